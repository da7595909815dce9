// SPDX-License-Identifier: BSD-2-Clause
// A plugin file as the loader knows it, and the reason for which it refused one.
//
// Example:
//    std::string text_of(const weft::Checked<weft::PluginRecord> &record) {
//      if (record) return record->name;
//      return std::string(weft::stage_name(record.error().stage)) + ": " + record.error().cause;
//    }
//
// Plain data that descriptor, index, manifest and probe exchange. It holds no pointer into a
// library, so it outlives one.
#ifndef WEFT_CORE_LOADER_PLUGIN_RECORD_H
#define WEFT_CORE_LOADER_PLUGIN_RECORD_H

#include <cstdarg>
#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "core/base/decision.h"
#include "core/base/unit.h"

namespace weft {

// The refusal of a plugin or unit: the stage, the cause, and the way out.
struct Rejection {
  Stage stage = Stage::kManifest;
  std::string cause;
  std::string remedy;
  // The plugin did what no plugin may do (crash, hang, change a signal handler): it goes on the
  // quarantine list. A plain refusal (wrong magic, built for another core) does not.
  bool misbehaved = false;
  // The machine may be at fault (too slow, out of memory): the plugin is tried again later.
  bool passing = false;
};

template <class T>
using Checked = tl::expected<T, Rejection>;

__attribute__((format(printf, 2, 3))) tl::unexpected<Rejection> reject(Stage stage,
                                                                       const char *cause, ...);
tl::unexpected<Rejection> vreject(Stage stage, const char *cause, va_list args);
// The same with a remedy: `return with_remedy(reject(...), "reinstall %s", path)`.
__attribute__((format(printf, 2, 3))) tl::unexpected<Rejection> with_remedy(
    tl::unexpected<Rejection> rejection, const char *remedy, ...);

// A rejection as a step of the decision record; `path` is that of the library, manifest or folder.
Decision to_decision(std::string candidate, const Rejection &rejection, const std::string &path);

// Remedies that several stages give.
inline constexpr const char *kFaultyPlugin =
    "the plugin is faulty: ask its vendor for a repaired release";
inline constexpr const char *kAskVendor =
    "ask its vendor for a repaired release; a file that changed is tried again, `weft plugin "
    "check` tries it now";

// Identifies the content of a file as far as one stat() can.
struct FileStamp {
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  bool operator==(const FileStamp &) const = default;
};

// The result of a probe in a child process. A record without one is `kUnprobed`.
enum class Verdict { kUnprobed, kOk, kRejected, kQuarantined };

struct PluginRecord {
  std::string library;  // absolute
  FileStamp library_stamp;
  std::string manifest;  // absolute; empty: none
  FileStamp manifest_stamp;

  Verdict verdict = Verdict::kUnprobed;
  Rejection rejection;  // where the verdict is kRejected or kQuarantined
  // In a quarantine that may pass the plugin failed this often, and is probed again at this time
  // (seconds since 1970). 0: it is not probed before the file changes.
  uint32_t failures = 0;
  int64_t retry_at = 0;

  // The descriptor says these; all are empty where it could not be read.
  std::string name, vendor, version, license, support;
  uint16_t abi_major = 0, abi_minor = 0, min_core_minor = 0;
  std::vector<UnitInfo> units;
};

}  // namespace weft

#endif
