// SPDX-License-Identifier: BSD-2-Clause
// Fuzz target: any bytes give a policy or an error with a place; the policy is complete
// and is freed.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "config/policy.h"

extern "C" const weft_config_reader *weft_config_query(void);

namespace {

using namespace weft;
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

size_t touch(const std::vector<Sourced<std::string>> &names) {
  size_t sum = 0;
  for (const auto &[name, origin] : names) {
    require(!name.empty());
    sum += name.size() + origin.where.name.size();
  }
  return sum;
}

// A stack or a branch. If the file is right, it ends with a provider or with branches.
size_t touch(const std::vector<StackElement> &elements, bool right) {
  size_t sum = 0;
  require(!right || !elements.empty());
  for (const StackElement &element : elements) {
    const bool last = &element == &elements.back();
    require(!element.name.empty());
    require(element.branches.empty() || element.kind == WEFT_KIND_LAYER);
    if (right) {
      require(last == (element.kind == WEFT_KIND_PROVIDER || !element.branches.empty()));
      require(element.branches.size() <= WEFT_MAX_INNER);
    }
    sum += element.name.size();
    for (const Setting &setting : element.params)
      sum += setting.key.size() + setting.value.size() + setting.where.name.size();
    for (const std::vector<StackElement> &branch : element.branches) sum += touch(branch, right);
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
  size_t sum = touch(policy->disable) + touch(policy->plugin_path) + touch(policy->final_keys);
  if (policy->enable) sum += touch(policy->enable->value);
  if (policy->use) sum += touch(policy->use->value);
  for (const auto &[unit, key, value] : policy->params) {
    require(!unit.empty() && !key.empty());
    sum += unit.size() + key.size() + value.value.size() + value.origin.where.name.size();
  }
  for (const RankRule &rule : policy->ranks) {
    require(rc != 0 || rule.rank || rule.enable);
    for (const std::string *text : {&rule.provider, &rule.netdev, &rule.subnet, &rule.ep_type,
                                    &rule.hostname, &rule.executable})
      sum += text->size();
  }
  for (const StackSpec &stack : policy->stacks) sum += touch(stack.elements, rc == 0);
  require(sum < 64 * (size + 1));
  reader->free_policy(policy);
  return 0;
}
