// SPDX-License-Identifier: BSD-2-Clause
// The text form of plugin records: plugins.idx of a folder, the cache of probe verdicts, and the
// report of a probe.
//
// Example:
//    weft::Result<std::string> rewrite(const std::string &text) {
//      WEFT_TRY(const weft::Index index, weft::parse_index(text, "/usr/lib/weft"));
//      return weft::write_index(index, "/usr/lib/weft");
//    }
//
// One line per fact, fields separated by tabs, so that startup needs no YAML. Parsed strictly and
// in bounded memory: a file that is damaged in any way is refused as a whole, and the manifests are
// read instead. Not an interface: only weft reads and writes it.
//
// Lines (fields in capitals are values):
//   weft-index  FORMAT  ABI  MTIME-OF-PLUGINS.D  PLUGINS
//   plugin   LIBRARY  SIZE  MTIME  MANIFEST  SIZE  MTIME
//   verdict  unprobed|ok|rejected|quarantined  STAGE  CAUSE  REMEDY
//   retry    FAILURES  AT                  of a quarantine that may pass
//   about    NAME  VENDOR  VERSION  LICENSE  SUPPORT  MAJOR  MINOR  MIN_CORE_MINOR
//   unit     KIND  NAME  OFI_NAME  VERSION  NEEDS_EP  INNER_MIN  INNER_MAX  OFFERS_EP  RANK
//            MATURITY  SECURITY  SUMMARY
//   device   TEXT
//   device_remedy  TEXT
//   param    TYPE  NAME  HAS_DEFAULT  DEFAULT  MINIMUM  MAXIMUM  HELP
//   end
// Paths are relative to the index's folder, times are in nanoseconds. A plugin whose descriptor is
// not known has no line `about`.
#ifndef WEFT_CORE_LOADER_INDEX_H
#define WEFT_CORE_LOADER_INDEX_H

#include <weft/result.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/loader/plugin_record.h"

namespace weft {

struct Index {
  int64_t manifests_mtime_ns = 0;  // of the folder plugins.d when it was read; 0: none
  std::vector<PluginRecord> plugins;
};

inline constexpr size_t kMaxIndexSize = size_t{8} << 20;
inline constexpr size_t kMaxIndexPlugins = 4096;

// `folder`: what relative paths are relative to; empty: all paths are absolute.
Result<Index> parse_index(std::string_view text, const std::string &folder);
std::string write_index(const Index &index, const std::string &folder);

// The stage of that name; false: there is none.
bool stage_from_name(std::string_view name, Stage &stage);

}  // namespace weft

#endif
