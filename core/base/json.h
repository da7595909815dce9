// SPDX-License-Identifier: BSD-2-Clause
// JSON that the core writes. Its writer is compiled here alone (json.cc), since each unit that
// writes by itself compiles all of it again.
//
// Example:
//    #include <nlohmann/json.hpp>
//    // {"troubles":[{"candidate":"tcp",...}]}
//    inline std::string troubles(const weft::DecisionRecord &record) {
//      nlohmann::ordered_json json;
//      json["troubles"] = weft::json_of(record);
//      return weft::dump(json);
//    }
#ifndef WEFT_CORE_BASE_JSON_H
#define WEFT_CORE_BASE_JSON_H

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/base/decision.h"

namespace weft {

// On one line. Texts quote files, the environment and the program, which need not be UTF-8: what is
// not is replaced.
std::string dump(const nlohmann::ordered_json &json);

// What DecisionRecord::to_json() has as text.
nlohmann::ordered_json json_of(const DecisionRecord &record);

}  // namespace weft

#endif
