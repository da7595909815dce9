// SPDX-License-Identifier: BSD-2-Clause
// Asks the units of a plugin for their offers, as the first fi_getinfo() of a program does.
//
// Example:
//    #include <cstdio>
//    Checked<void> try_out(const weft_plugin_desc &desc, void *state, const PluginRecord &record) {
//      return ask_units(desc, state, record, [](const std::string &unit) {
//        std::printf("%s is asked\n", unit.c_str());
//      });
//    }
//
// In a stack of the core's own making, with the defaults of all parameters. A provider stands
// alone, a layer over providers that offer nothing. A unit without its device is not asked: no
// program would. What a unit answers does not matter, as long as it answers.
#ifndef WEFT_CORE_PROBE_ASK_H
#define WEFT_CORE_PROBE_ASK_H

#include <weft/plugin.h>

#include <functional>
#include <string>

#include "core/loader/plugin_record.h"

namespace weft {

// `before` is called before each unit is asked. The error: an exception left the plugin.
Checked<void> ask_units(const weft_plugin_desc &desc, void *state, const PluginRecord &record,
                        const std::function<void(const std::string &unit)> &before);

}  // namespace weft

#endif
