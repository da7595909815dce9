// SPDX-License-Identifier: BSD-2-Clause
// Opens a plugin file and asks it for its descriptor: the stages dlopen and symbol, and the call of
// query().
//
// Example:
//    #include "core/loader/descriptor.h"
//    weft::Checked<weft::PluginRecord> open(const weft_offer &offer) {
//      weft::Checked<weft::OpenPlugin> plugin = weft::open_plugin("/usr/lib/weft/tcp.so");
//      if (!plugin) return tl::unexpected(plugin.error());  // its constructors ran
//      const weft::Answer answer = weft::ask(*plugin, offer);
//      return weft::check_descriptor(answer.desc, answer.why);
//    }
//
// RTLD_NOW|RTLD_LOCAL|RTLD_NODELETE, and never closed: code of a plugin may be on some thread's
// stack or in some op table. Decides nothing about trust; by the time this is called, somebody
// chose to run the file's code.
#ifndef WEFT_CORE_LOADER_OPEN_LIBRARY_H
#define WEFT_CORE_LOADER_OPEN_LIBRARY_H

#include <weft/plugin.h>

#include <string>

#include "core/loader/plugin_record.h"

namespace weft {

struct OpenPlugin {
  weft_plugin_query_fn query = nullptr;
};

Checked<OpenPlugin> open_plugin(const std::string &path);

struct Answer {
  const weft_plugin_desc *desc = nullptr;
  weft_error why{};
  bool threw = false;  // an exception came out of query()
};
Answer ask(const OpenPlugin &plugin, const weft_offer &offer);

}  // namespace weft

#endif
