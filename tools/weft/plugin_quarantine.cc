// SPDX-License-Identifier: BSD-2-Clause
// weft plugin quarantine: the plugins that failed a probe badly, and how to get one out again.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <algorithm>
#include <filesystem>

#include "tools/weft/child.h"
#include "tools/weft/command.h"
#include "tools/weft/library.h"
#include "tools/weft/plugin.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

struct Quarantined {
  std::string library, stage, reason, remedy, where;
};

Result<std::vector<Quarantined>> quarantined(const Library &library) {
  WEFT_TRY(const Json plugins, library.plugins());
  std::vector<Quarantined> all;
  const std::string remembered = text_of(plugins, "quarantine");
  std::error_code error;
  if (!remembered.empty() && fs::exists(remembered, error)) {
    WEFT_TRY(const ChildResult child,
             run_child({library.probe_program(), "--list", remembered}, {}, kProbeLimit));
    const Json records = Json::parse(child.out, nullptr, false);
    if (child.status != 0 || !records.is_array())
      return fail(FI_EINVAL, "%s cannot be read: %s", remembered.c_str(), child.err.c_str());
    for (const Json &record : records)
      if (text_of(record, "verdict") == "quarantined")
        all.push_back({text_of(record, "library"), text_of(record, "stage"),
                       text_of(record, "reason"), text_of(record, "remedy"), remembered});
  }
  // A plugin may also be quarantined by the index of its folder.
  for (const Json &plugin : array_of(plugins, "plugins")) {
    const std::string file = text_of(plugin, "library");
    if (text_of(plugin, "state") != "quarantined" ||
        std::any_of(all.begin(), all.end(),
                    [&](const Quarantined &one) { return one.library == file; }))
      continue;
    const std::string folder = fs::path(file).parent_path();
    all.push_back({file, text_of(plugin, "stage"), text_of(plugin, "reason"),
                   absl::StrCat("`weft plugin refresh ", folder, "` tries it again"),
                   absl::StrCat(folder, "/plugins.idx")});
  }
  return all;
}

Result<int> clear(const Library &library, const std::string &wanted, bool json) {
  WEFT_TRY(const std::vector<Quarantined> all, quarantined(library));
  const std::string file = tidy_path(wanted);
  std::vector<std::string> known;
  for (const Quarantined &one : all) {
    known.push_back(one.library);
    if (one.library != file) continue;
    if (fs::path(one.where).filename() == "plugins.idx")
      return fail(FI_EPERM, "%s stands in %s: %s", file.c_str(), one.where.c_str(),
                  one.remedy.c_str());
    WEFT_TRY(const ChildResult child,
             run_child({library.probe_program(), "--forget", file, "--quarantine", one.where}, {},
                       kProbeLimit));
    if (child.status != 0) return fail(FI_EPERM, "%s", child.err.c_str());
    if (json)
      print_json({{"cleared", file}});
    else
      absl::PrintF("%s is tried again when it is next needed\n", printable(file));
    return kExitOk;
  }
  const std::string close = nearest_word(file, known);
  return fail(FI_ENOENT, "%s is not in quarantine%s%s%s", file.c_str(),
              close.empty() ? "" : ": did you mean '", close.c_str(), close.empty() ? "" : "'?");
}

}  // namespace

Result<int> quarantine_plugins(const PluginOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  if (!options.clear.empty()) return clear(library, options.clear, options.json);
  WEFT_TRY(const std::vector<Quarantined> all, quarantined(library));
  if (options.json) {
    Json list = Json::array();
    for (const Quarantined &one : all)
      list.push_back({{"library", one.library},
                      {"stage", one.stage},
                      {"reason", one.reason},
                      {"remedy", one.remedy},
                      {"where", one.where}});
    print_json(list);
    return kExitOk;
  }
  if (all.empty()) {
    absl::PrintF("no plugin is in quarantine\n");
    return kExitOk;
  }
  Table table({"FILE", "STAGE", "REASON"});
  for (const Quarantined &one : all) {
    table.add({one.library, one.stage, one.reason});
    table.note(absl::StrCat("remedy: ", one.remedy));
    table.note(absl::StrCat("stands in: ", one.where));
  }
  table.print();
  return kExitOk;
}

}  // namespace weft::cli
