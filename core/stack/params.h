// SPDX-License-Identifier: BSD-2-Clause
// Parameters: what a unit declares, what users wrote, and the typed values that the unit gets.
//
// Example:
//    Result<ParamSet> parameters(const weft_unit &tcp) {
//      WEFT_TRY(const ParamValue size,
//               parse_param({.type = WEFT_TYPE_SIZE, .name = "eager_size"}, "16K"));
//      const int64_t bytes = size.number;  // 16384
//      return resolve_params("tcp", tcp,
//                            {{"connect_timeout_ms", "5000", Rule::file("/etc/weft/a.yaml", 9)}});
//    }
//
// Strict: a value that does not fit its type or range, and a name that the unit does not declare,
// are errors with place and remedy. Which setting overrides which is decided in core/select.
#ifndef WEFT_CORE_STACK_PARAMS_H
#define WEFT_CORE_STACK_PARAMS_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/rule.h"

namespace weft {

// The declaration of a parameter, from a descriptor or a manifest.
struct ParamType {
  uint32_t type = 0;  // WEFT_TYPE_...
  std::string_view name;
  int64_t minimum = 0, maximum = 0;  // both 0: no limits
};

struct ParamValue {
  int64_t number = 0;
  std::string text;  // STRING and LIST
};

// The error says what is wrong with the value and what would be right. The caller adds the place
// and the unit.
Result<ParamValue> parse_param(const ParamType &param, std::string_view text);

std::string_view type_name(uint32_t type);  // "bool", "int", "size", "string", "list"

struct Setting {
  std::string key, value;
  Rule where = {};  // what sets it: a line of a file, a variable
};

// The values of one instance, in the order of unit->params. Movable; the pointers in values() stay
// valid.
class ParamSet {
 public:
  const weft_value *values() const { return values_.data(); }
  uint32_t count() const { return static_cast<uint32_t>(values_.size()); }

 private:
  friend Result<ParamSet> resolve_params(std::string_view, const weft_unit &,
                                         const std::vector<Setting> &);
  std::vector<weft_value> values_;
  std::deque<std::string> texts_;
};

// `settings`: weakest first. The last one for a key counts, but all must be well-formed.
Result<ParamSet> resolve_params(std::string_view unit_name, const weft_unit &unit,
                                const std::vector<Setting> &settings);

}  // namespace weft

#endif
