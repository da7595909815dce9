// SPDX-License-Identifier: BSD-2-Clause
// Whether a plugin file may be used, by what was found out about it: in the index, in earlier
// probes, or in a probe now.
//
// Example:
//    weft::Checked<void> may_run(weft::Verdicts &verdicts, weft::PluginRecord &record) {
//      const weft::Checked<void> known = verdicts.recall(record);  // without a probe
//      if (!known || record.verdict == weft::Verdict::kOk) return known;
//      return verdicts.settle(record);  // with one, if this process may fork
//    }
//
// Runs no code of a plugin in this process. Not thread-safe: its Loader holds a lock.
#ifndef WEFT_CORE_LOADER_VERDICT_H
#define WEFT_CORE_LOADER_VERDICT_H

#include "core/loader/file_trust.h"
#include "core/loader/loader.h"
#include "core/loader/plugin_record.h"
#include "core/loader/probe.h"
#include "core/loader/verdict_cache.h"

namespace weft {

class Verdicts {
 public:
  // `options` must outlive this object.
  Verdicts(const LoaderOptions &options, const TrustRules &rules)
      : options_(options), cache_(options.quarantine_file, rules) {}

  // What index and cache say of a file. `record.library_stamp` is the file's own. A record without
  // metadata gets some from the cache. A quarantine whose time is over counts as unprobed: then
  // `due`, if given, is the old verdict, which holds until a probe refutes it.
  Checked<void> recall(PluginRecord &record, const PluginRecord **due = nullptr);
  // The same, with a probe if it is needed and possible. On success the record is kOk, or
  // kUnprobed where `unprobed_allow` permits that.
  Checked<void> settle(PluginRecord &record);
  // Quarantines a file whose code misbehaved in this process.
  void remember_misbehaviour(const PluginRecord &record, const Rejection &rejection);

  // Threads of this process that keep it from forking: above 1, it must not.
  size_t foreign_threads() const;

  VerdictCache &cache() { return cache_; }

 private:
  const LoaderOptions &options_;
  VerdictCache cache_;
};

ProbeOptions probe_options(const LoaderOptions &options);

}  // namespace weft

#endif
