// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/params.h"

namespace weft::sdk::params_detail {

const weft_value *value_at(const weft_instance *instance, uint32_t index) {
  if (index >= instance->param_count || instance->params == nullptr) return nullptr;
  // A newer core may have longer values than this file knows: their own size is the stride.
  const char *first = reinterpret_cast<const char *>(instance->params);
  return reinterpret_cast<const weft_value *>(first +
                                              size_t{index} * instance->params->struct_size);
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

}  // namespace weft::sdk::params_detail
