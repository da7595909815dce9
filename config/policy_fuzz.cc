// SPDX-License-Identifier: BSD-2-Clause
// Fuzz target: any bytes are a policy file or an error with a place; the view is whole and is
// freed.
#include <weft/config.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

extern "C" const weft_config_reader *weft_config_query(void);

namespace {

struct Seen {
  size_t errors = 0, bytes = 0;
};

void require(bool condition) {
  if (!condition) std::abort();
}

void on_diagnostic(void *arg, uint32_t severity, const weft_where *where, const char *text) {
  require(severity == WEFT_DIAG_ERROR || severity == WEFT_DIAG_WARNING);
  require(where->line > 0 && where->column > 0);
  auto *seen = static_cast<Seen *>(arg);
  if (severity == WEFT_DIAG_ERROR) ++seen->errors;
  seen->bytes += std::strlen(text);
}

size_t length(const char *text) {
  require(text != nullptr);
  return std::strlen(text);
}

size_t touch(const weft_name *names, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += length(names[i].name) + length(names[i].where.file);
  return sum;
}

size_t touch(const weft_setting *settings, size_t count, bool in_stack) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += length(settings[i].key) + length(settings[i].value);
    require((settings[i].unit == nullptr) == in_stack);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const weft_config_reader *reader = weft_config_query();
  Seen seen;
  weft_policy *policy = nullptr;
  const int32_t rc = reader->read_policy("fuzz.yaml", reinterpret_cast<const char *>(data), size,
                                         on_diagnostic, &seen, &policy);
  require((rc == 0) == (seen.errors == 0));
  require(rc != 0 || policy != nullptr);
  // Of a file with errors there may be what could be read of it.
  if (policy == nullptr) return 0;
  require(policy->use_count == 0 || policy->has_use != 0);
  size_t sum = touch(policy->enable, policy->enable_count) +
               touch(policy->disable, policy->disable_count) +
               touch(policy->use, policy->use_count) +
               touch(policy->plugin_path, policy->plugin_path_count) +
               touch(policy->final_keys, policy->final_key_count) +
               touch(policy->params, policy->param_count, false);
  for (size_t i = 0; i < policy->rank_count; ++i) {
    const weft_rank_rule &rule = policy->ranks[i];
    require(rc != 0 || rule.has_rank != 0 || rule.has_enable != 0);
    for (const char *text :
         {rule.provider, rule.netdev, rule.subnet, rule.ep_type, rule.hostname, rule.executable})
      if (text != nullptr) sum += length(text);
  }
  for (size_t i = 0; i < policy->stack_count; ++i) {
    const weft_stack &stack = policy->stacks[i];
    require(rc != 0 || (stack.element_count > 0 &&
                        stack.elements[stack.element_count - 1].kind == WEFT_KIND_PROVIDER));
    for (size_t j = 0; j < stack.element_count; ++j)
      sum += length(stack.elements[j].name) +
             touch(stack.elements[j].params, stack.elements[j].param_count, true);
  }
  require(sum < 64 * (size + 1));
  reader->free_policy(policy);
  return 0;
}
