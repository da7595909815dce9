// SPDX-License-Identifier: BSD-2-Clause
// Remembers what probes found, and the quarantine list, in one file per user (or system).
//
// Example:
//    const weft::PluginRecord *known(weft::VerdictCache &cache, const weft::FileStamp &stamp) {
//      return cache.find("/opt/frobco/frob.so", stamp);  // null: never probed, or it has changed
//    }
//    void probed(weft::VerdictCache &cache, const weft::PluginRecord &record) {
//      cache.remember(record);  // writes through, manifest left out
//    }
//
// A quarantine that may be the machine's fault (Rejection::passing) ends after a minute, and after
// twice the time with each failure that follows, up to a day: is_due() then says that the file
// should be probed again. Entries about files that have changed are dropped.
//
// Many processes of many nodes may share the file. It is always replaced as a whole, and writers
// take turns by a lock on a file beside it. One that does not get the lock within a second, or
// cannot have it, writes all the same: then an entry may be lost, and its plugin is probed again.
// If the file cannot be written, this process alone remembers. Not thread-safe: its Loader holds a
// lock.
#ifndef WEFT_CORE_LOADER_VERDICT_CACHE_H
#define WEFT_CORE_LOADER_VERDICT_CACHE_H

#include <weft/result.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/loader/file_trust.h"
#include "core/loader/plugin_record.h"

namespace weft {

class VerdictCache {
 public:
  using Clock = std::function<int64_t()>;  // seconds since 1970

  // `path` empty: an empty cache that forgets everything.
  VerdictCache(std::string path, TrustRules rules, Clock clock = {});

  // Good until the next call that is not const.
  const PluginRecord *find(const std::string &library, const FileStamp &stamp);
  bool is_due(const PluginRecord &record) const;
  // Whether it is a quarantine that is not due. Null: no.
  bool holds(const PluginRecord *known) const;
  std::vector<PluginRecord> all();
  Result<void> remember(PluginRecord record);
  // The same for what was found out without being asked: a quarantine of the file that holds stays.
  // Somebody may have set it meanwhile.
  Result<void> remember_unless_quarantined(PluginRecord record);
  Result<void> forget(const std::string &library);  // FI_ENOENT: there is no entry

 private:
  void load();
  void add(PluginRecord record);
  Result<void> prepare() const;
  template <class F>
  Result<void> change(F edit);

  const std::string path_;
  const TrustRules rules_;
  const Clock clock_;
  bool loaded_ = false;
  std::vector<PluginRecord> records_;  // of the file, and own_
  std::vector<PluginRecord> own_;      // of this process, which the file does not have
};

}  // namespace weft

#endif
