// SPDX-License-Identifier: BSD-2-Clause
// Writes plugins.d/NAME.yaml: what a plugin's descriptor says, so that discovery runs without
// opening the library.
//
// Example:
//    weft::Result<void> write(const weft::PluginRecord &record) {
//      const std::string yaml = weft::manifest_yaml(record, "../tcp.so");  // from its folder
//      return weft::write_atomically("/usr/lib/weft/plugins.d/tcp.yaml", yaml);
//    }
//
// Only the writer; config/ reads manifests.
#ifndef WEFT_CORE_LOADER_MANIFEST_WRITER_H
#define WEFT_CORE_LOADER_MANIFEST_WRITER_H

#include <weft/result.h>

#include <string>
#include <string_view>

#include "core/loader/plugin_record.h"

namespace weft {

std::string manifest_yaml(const PluginRecord &record, const std::string &library);

// Name of this machine's architecture in manifests: "x86_64".
std::string_view machine_arch();

// A reader sees the whole old content or the whole new one. Of concurrent writers one wins.
Result<void> write_atomically(const std::string &path, std::string_view content);

}  // namespace weft

#endif
