// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/unit/params.h"

#include <weft/nearest.h>

#include <algorithm>

namespace weft::sdk::params_detail {

const weft_value *value_at(const weft_instance *instance, uint32_t index) {
  if (index >= instance->param_count || instance->params == nullptr) return nullptr;
  // A newer core may have longer values than this file knows: their own size is the stride.
  const char *first = reinterpret_cast<const char *>(instance->params);
  return reinterpret_cast<const weft_value *>(first +
                                              size_t{index} * instance->params->struct_size);
}

const weft_value *value_of(const weft_instance *instance, std::string_view name) {
  const weft_unit *const unit = instance->unit;
  for (uint32_t i = 0; unit != nullptr && i < unit->param_count; ++i)
    if (unit->params[i]->name == name) return value_at(instance, i);
  return nullptr;
}

std::string_view text(const weft_value *value) {
  return value != nullptr && value->string_core != nullptr ? value->string_core
                                                           : std::string_view();
}

std::vector<std::string> split(const weft_value *value) {
  std::vector<std::string> entries;
  for (std::string_view rest = text(value); !rest.empty();) {
    const size_t comma = rest.find(',');
    if (comma != 0) entries.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  return entries;
}

Result<size_t> word(const weft_value *value, const char *name,
                    std::initializer_list<std::string_view> words) {
  const std::string_view given = text(value);
  const auto found = std::find(words.begin(), words.end(), given);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  std::string all;
  for (const std::string_view one : words) all.append(all.empty() ? "" : ", ").append(one);
  const std::string close = nearest(given, words);
  return fail(FI_EINVAL, "%s is \"%.*s\" (%s), which is none of %s%s%s%s", name,
              static_cast<int>(given.size()), given.data(),
              value != nullptr && value->origin_core != nullptr ? value->origin_core : "default",
              all.c_str(), close.empty() ? "" : ": did you mean \"", close.c_str(),
              close.empty() ? "" : "\"?");
}

}  // namespace weft::sdk::params_detail
