// SPDX-License-Identifier: BSD-2-Clause
// JSON that the core writes. Its writer is compiled here alone (json.cc), since each unit that
// writes by itself compiles all of it again.
//
// Example:
//    #include <nlohmann/json.hpp>
//    inline std::string answer(int result) {
//      return weft::dump({{"result", result}});  // {"result":0}
//    }
//
// Not for decisions: core/base/render.h has their form.
#ifndef WEFT_CORE_BASE_JSON_H
#define WEFT_CORE_BASE_JSON_H

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft {

// On one line. Texts quote files, the environment and the program, which need not be UTF-8: what is
// not is replaced.
std::string dump(const nlohmann::ordered_json &json);

}  // namespace weft

#endif
