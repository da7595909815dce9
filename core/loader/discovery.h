// SPDX-License-Identifier: BSD-2-Clause
// Finds the plugins of one folder without opening a library: from its index, else its manifests,
// else the names of its files.
//
// Example (statements):
//    weft::ManifestReader reader("/usr/lib/weft/weft-config.so", {});
//    weft::DecisionRecord troubles;
//    std::vector<weft::PluginRecord> found =
//        weft::discover_folder("/usr/lib/weft", reader, {}, troubles);
//
// A record with an empty `name` is a library that no manifest describes: somebody has to probe it.
// An index holds as long as plugins.d has the modification time that the index names, so startup
// costs one open and one stat; after that each manifest is compared by its own stamp, and only what
// changed is read as YAML. A library without a manifest in a folder with an index is found by the
// next refresh, as with ldconfig.
#ifndef WEFT_CORE_LOADER_DISCOVERY_H
#define WEFT_CORE_LOADER_DISCOVERY_H

#include <weft/config.h>

#include <string>
#include <vector>

#include "core/loader/file_trust.h"
#include "core/loader/plugin_record.h"

namespace weft {

inline constexpr const char *kIndexName = "plugins.idx";
inline constexpr const char *kManifestFolder = "plugins.d";

// weft-config.so, opened when the first manifest is read, and never closed.
class ManifestReader {
 public:
  ManifestReader(std::string library, TrustRules rules)
      : library_(std::move(library)), rules_(rules) {}

  // Metadata of a manifest; `library` is absolute. Stamps and verdict are not filled.
  Checked<PluginRecord> read(const std::string &manifest);
  const std::string &library() const { return library_; }

 private:
  Checked<void> open();

  const std::string library_;
  const TrustRules rules_;
  const weft_config_reader *reader_ = nullptr;
};

std::vector<PluginRecord> discover_folder(const std::string &folder, ManifestReader &reader,
                                          const TrustRules &rules, DecisionRecord &troubles);

// The same from manifests and files alone, for a new index; `mtime_ns` is the one to write into it.
std::vector<PluginRecord> discover_afresh(const std::string &folder, ManifestReader &reader,
                                          const TrustRules &rules, DecisionRecord &troubles,
                                          int64_t &mtime_ns);

// "tcp.so" of "/usr/lib/weft/tcp.so": the name of a file in decisions.
std::string file_name(const std::string &path);

// The path absolute, without ".", ".." and a '/' at its end.
std::string tidy_path(const std::string &path);

}  // namespace weft

#endif
