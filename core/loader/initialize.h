// SPDX-License-Identifier: BSD-2-Clause
// Calls a plugin's init() and fini(): the stage init.
//
// Example:
//    #include <chrono>
//    weft::Checked<void> start(const weft_plugin_desc &desc, const weft_offer &offer, bool known,
//                              void *&state) {
//      if (known) return weft::initialize(desc, offer, state);  // on this thread
//      return weft::initialize_within(std::chrono::seconds(5), desc, offer, state);
//    }
//
// initialize_within() runs init() on a thread of its own and abandons that thread when the time is
// over: a thread cannot be ended from outside. Only a plugin that was never probed costs this.
#ifndef WEFT_CORE_LOADER_INITIALIZE_H
#define WEFT_CORE_LOADER_INITIALIZE_H

#include <weft/plugin.h>

#include <chrono>

#include "core/loader/plugin_record.h"

namespace weft {

Checked<void> initialize(const weft_plugin_desc &desc, const weft_offer &offer, void *&state);

// `desc` and `offer` must live as long as the process.
Checked<void> initialize_within(std::chrono::milliseconds budget, const weft_plugin_desc &desc,
                                const weft_offer &offer, void *&state);

Checked<void> finish(const weft_plugin_desc &desc, void *state);

}  // namespace weft

#endif
