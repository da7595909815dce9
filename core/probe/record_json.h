// SPDX-License-Identifier: BSD-2-Clause
// Plugin records as JSON, for tools.
//
// Example:
//    #include "core/loader/probe.h"
//    std::string probe(const ProbeOptions &options) {
//      return record_json(probe_in_child(options, "/opt/frobco/frob.so"));
//    }
//
// An object {"library", "verdict", "stage", "reason", "remedy", "name", "vendor", "version",
// "license", "support", "abi", "min_core_minor", "units"}; "verdict" is "ok", "rejected",
// "quarantined" or "unprobed". A member that is not known is empty. Later releases only add
// members. The index of plugins has a format of its own (core/loader/index.h).
#ifndef WEFT_CORE_PROBE_RECORD_JSON_H
#define WEFT_CORE_PROBE_RECORD_JSON_H

#include <string>
#include <vector>

#include "core/loader/plugin_record.h"

namespace weft {

std::string record_json(const PluginRecord &record);
std::string records_json(const std::vector<PluginRecord> &records);  // an array of them

}  // namespace weft

#endif
