// SPDX-License-Identifier: BSD-2-Clause
// Runs a plugin's code in this process: opens its library, asks for its descriptor, calls init().
// If the code changed a signal handler, the handler is put back and the plugin is refused.
//
// Example:
//    #include <chrono>
//    weft::Checked<void> start(const std::string &library, const weft_offer &offer) {
//      weft::RunningPlugin plugin;
//      const weft::Checked<void> described = weft::describe_plugin(library, offer, plugin);
//      if (!described) return described;
//      return weft::init_plugin(library, offer, std::chrono::seconds(2), plugin);
//    }
//
// Decides nothing about trust: by then somebody chose to run the file's code. Against a crash only
// a probe in a child process helps (probe.h).
#ifndef WEFT_CORE_LOADER_RUN_PLUGIN_H
#define WEFT_CORE_LOADER_RUN_PLUGIN_H

#include <weft/plugin.h>

#include <chrono>
#include <optional>
#include <string>

#include "core/loader/plugin_record.h"

namespace weft {

struct RunningPlugin {
  const weft_plugin_desc *desc = nullptr;
  void *state = nullptr;   // what init() returned
  PluginRecord described;  // what the descriptor says
};

// The stages dlopen, symbol and negotiate. Does nothing the second time.
Checked<void> describe_plugin(const std::string &library, const weft_offer &offer,
                              RunningPlugin &plugin);

// The stage init, after describe_plugin(). With a budget, init() runs on a thread of its own, which
// is abandoned when the time is over; without one, on this thread.
Checked<void> init_plugin(const std::string &library, const weft_offer &offer,
                          std::optional<std::chrono::milliseconds> budget, RunningPlugin &plugin);

// The offer that plugins see. It is never freed, because a plugin is never closed and may look at
// it for ever.
const weft_offer &immortal_offer(const weft_core_services &services);

}  // namespace weft

#endif
