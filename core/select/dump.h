// SPDX-License-Identifier: BSD-2-Clause
// JSON on one line. Texts quote files, the environment and the program, which need not be UTF-8:
// what is not is replaced.
//
// Example (statements):
//    std::string line = weft::dump({{"provider", "tcp"}});
#ifndef WEFT_CORE_SELECT_DUMP_H
#define WEFT_CORE_SELECT_DUMP_H

#include <nlohmann/json.hpp>
#include <string>

namespace weft {

inline std::string dump(const nlohmann::ordered_json &json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace weft

#endif
