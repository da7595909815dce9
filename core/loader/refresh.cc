// SPDX-License-Identifier: BSD-2-Clause
// Loader::refresh: probes the plugins of a folder and writes its index.
#include <filesystem>
#include <string>
#include <utility>

#include "core/loader/discovery.h"
#include "core/loader/file_trust.h"
#include "core/loader/index.h"
#include "core/loader/loader.h"
#include "core/loader/manifest_writer.h"
#include "core/loader/plugin_record.h"
#include "core/loader/probe.h"
#include "core/loader/verdict.h"

namespace weft {
namespace {

// Probes one plugin and puts the verdict into its record.
void probe_for_index(const LoaderOptions &options, PluginRecord &record, DecisionRecord &troubles) {
  PluginRecord probed = probe_in_child(probe_options(options), record.library);
  // An index keeps no failure that may pass: a library that cannot be linked yet, or a machine that
  // was busy during the installation.
  if ((probed.verdict == Verdict::kRejected && probed.rejection.stage == Stage::kDlopen) ||
      probed.rejection.passing)
    probed.verdict = Verdict::kUnprobed;
  if (!probed.name.empty() && probed.verdict == Verdict::kOk) {
    probed.manifest = record.manifest;
    probed.manifest_stamp = record.manifest_stamp;
    record = std::move(probed);
    return;
  }
  troubles.add(to_decision(file_name(record.library), probed.rejection, record.library));
  record.library_stamp = probed.library_stamp;
  record.verdict = probed.verdict;
  record.rejection = probed.rejection;
}

}  // namespace

Result<RefreshReport> Loader::refresh(const LoaderOptions &options, const std::string &folder) {
  const TrustRules rules = trust_rules(options.secure, options.library_folder);
  const std::string path = tidy_path(folder);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return fail(FI_ENOENT, "%s is not a folder: give one that holds plugins", path.c_str());
  ManifestReader reader(
      options.reader_library.empty() ? std::string() : tidy_path(options.reader_library), rules);
  RefreshReport report;
  Index index;
  for (PluginRecord &record :
       discover_afresh(path, reader, rules, report.troubles, index.manifests_mtime_ns)) {
    if (Checked<FileStamp> file = check_file(record.library, rules); !file) {
      // Each load judges the file again, so that it can be repaired without a new index.
      report.troubles.add(to_decision(file_name(record.library), file.error(), record.library));
      if (record.name.empty()) continue;
    } else {
      probe_for_index(options, record, report.troubles);
    }
    index.plugins.push_back(std::move(record));
  }
  report.plugins = index.plugins.size();
  WEFT_CHECK(write_atomically(path + "/" + kIndexName, write_index(index, path)));
  return report;
}

}  // namespace weft
