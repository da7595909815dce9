// SPDX-License-Identifier: BSD-2-Clause
// The environment of the process, read once: variables, the folder of the library, whether the
// program is privileged.
//
// Example:
//    std::string log_level() {
//      const weft::Environment environment = weft::Environment::of_process();
//      const std::string *level = environment.find("FI_LOG_LEVEL");
//      return level != nullptr ? *level : "";
//    }
//
// Nothing else reads the environment: other parts get an Environment, which a test fills by hand.
// Not for values that change while the program runs.
#ifndef WEFT_CORE_API_ENVIRONMENT_H
#define WEFT_CORE_API_ENVIRONMENT_H

#include <map>
#include <string>
#include <string_view>

namespace weft {

struct Environment {
  std::map<std::string, std::string> variables;  // FI_*, HOME, XDG_*, WEFT_WHY; none where `secure`
  std::string library_folder;                    // absolute, links resolved; empty if unknown
  bool secure = false;                           // AT_SECURE: set-user-id and the like

  static Environment of_process();

  const std::string *find(std::string_view name) const;
};

}  // namespace weft

#endif
