// SPDX-License-Identifier: BSD-2-Clause
// Makes an instance of a unit with as many of its settings as the unit takes. A wrong variable of
// the environment takes no provider away: it is told, and what holds without it is used. A wrong
// value of a file stays an error.
//
// Example:
//    #include <cstdio>
//    Result<void> make(const weft_unit &unit, const std::vector<Setting> &settings,
//                      const std::function<Result<void>(const std::vector<Setting> &)> &create) {
//      return with_usable_settings(unit, settings, create,
//                                  [](const std::string &line) { std::puts(line.c_str()); });
//    }
//
// Another error than FI_EINVAL is no word about a value, and stays one too.
//
// What a declaration alone refuses (params.h) never comes here from the environment: core/select
// leaves it out. This is for what only the unit knows: values that do not go together.
#ifndef WEFT_CORE_STACK_USABLE_SETTINGS_H
#define WEFT_CORE_STACK_USABLE_SETTINGS_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/stack/params.h"

namespace weft {

using TakeSettings = std::function<Result<void>(const std::vector<Setting> &settings)>;
using TellLine = std::function<void(const std::string &line)>;

// `take` may be called several times; what it made before does not count any more. The last call is
// that of the result. `tell` gets a line for each variable that is not used, and may be empty.
Result<void> with_usable_settings(const weft_unit &unit, const std::vector<Setting> &settings,
                                  const TakeSettings &take, const TellLine &tell);

// The variable of the environment that a setting comes from; "": another source.
std::string_view variable_of(const Setting &setting);

// "FI_TCP_PORT: REASON; 7471, from /etc/weft/10-site.yaml:3:5, is used": what is said of a value
// that is not used. `other` is what is used in its place; null: the default, itself null where the
// unit has none.
std::string unused_line(std::string_view variable, std::string_view reason, const Setting *other,
                        const char *fallback);

}  // namespace weft

#endif
