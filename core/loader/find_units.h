// SPDX-License-Identifier: BSD-2-Clause
// Finds the plugin files of all folders, and their units: what a Loader knows when it starts.
//
// Example:
//    size_t count_units(const weft::LoaderOptions &options, const weft::TrustRules &rules,
//                       const weft_offer &offer, weft::Verdicts &verdicts) {
//      const weft::FoundUnits found = weft::find_units(options, rules, offer, verdicts);
//      for (const weft::Decision &trouble : found.troubles.decisions())
//        std::string reason = trouble.reason;  // files without usable units, and why
//      return found.units.size();
//    }
//
// A library that no manifest and no index describes is probed in a child process, or opened here
// where that is allowed. Not for one folder alone: discovery.h does that and opens no library.
#ifndef WEFT_CORE_LOADER_FIND_UNITS_H
#define WEFT_CORE_LOADER_FIND_UNITS_H

#include <weft/plugin.h>

#include <deque>
#include <optional>
#include <vector>

#include "core/base/decision.h"
#include "core/base/unit.h"
#include "core/loader/file_trust.h"
#include "core/loader/loader.h"
#include "core/loader/plugin_record.h"
#include "core/loader/run_plugin.h"
#include "core/loader/verdict.h"

namespace weft {

// One plugin file, on its way from found to initialized.
struct PluginFile {
  PluginRecord record;
  bool unknown = false;             // nothing describes it: no manifest, no index, no earlier probe
  std::optional<FileStamp> stamp;   // set when it has passed trust and architecture for load()
  RunningPlugin running;            // its library, when it is open
  bool ready = false;               // its init() succeeded
  std::optional<Rejection> failed;  // the file as a whole is refused
};

struct FoundUnits {
  std::deque<PluginFile> plugins;  // addresses stay
  std::vector<UnitInfo> units;     // by rank, maturity, name
  std::vector<size_t> owners;      // of each unit: its file's place in `plugins`
  DecisionRecord troubles;
};

FoundUnits find_units(const LoaderOptions &options, const TrustRules &rules,
                      const weft_offer &offer, Verdicts &verdicts);

}  // namespace weft

#endif
