// SPDX-License-Identifier: BSD-2-Clause
// The loader: finds plugins by manifest, and opens those that somebody chose.
//
// Example (statements):
//    weft::LoaderOptions options;
//    options.folders = {"/usr/lib/x86_64-linux-gnu/weft"};
//    weft::Loader loader(std::move(options));
//    for (const weft::UnitInfo &unit : loader.units()) std::string name = unit.name;
//    weft::DecisionRecord why;
//    const weft::LoadedUnit *tcp = loader.load("tcp", why);  // trust ... init; null: `why` tells
//
// An object, not a registry: a test makes its own over a temporary folder. It never closes what it
// opened. It does not choose: select/ does. All methods are thread-safe.
#ifndef WEFT_CORE_LOADER_LOADER_H
#define WEFT_CORE_LOADER_LOADER_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/decision.h"
#include "core/base/plugin_calls.h"
#include "core/base/unit.h"

namespace weft {

// A file that somebody saw misbehave in another process. It is not used here, whatever is known of
// it.
struct RefusedFile {
  std::string library;
  Stage stage = Stage::kGetinfo;
  std::string cause, remedy;
};

struct LoaderOptions {
  // Folders with `plugins.idx` and/or `plugins.d/*.yaml` and .so files, most preferred first: the
  // policy's plugin_path, FI_PROVIDER_PATH, then <folder of libfabric.so.1>/weft. The last one is
  // our own: the names of its units cannot be taken by a file of another folder. Among the others
  // the first has the name.
  std::vector<std::string> folders;
  // Units (names, or stacks like "tcp;ofi_rxm") that somebody chose to the exclusion of all others,
  // as FI_PROVIDER does; empty: there is no such choice. If all of them are known, an unknown
  // library is neither opened nor probed.
  std::vector<std::string> chosen;
  std::vector<RefusedFile> refused;
  // Path of weft-config.so, which is opened only to read a manifest that no index covers.
  std::string reader_library;
  std::string probe_program;  // path of weft-probe
  // $XDG_CACHE_HOME/weft/quarantine or /var/cache/weft/quarantine; empty: none. Holds what probes
  // found, good and bad.
  std::string quarantine_file;
  std::chrono::milliseconds probe_budget{2000};
  // Load plugins in this process that could not be probed (a process with threads never forks).
  bool unprobed_allow = true;
  // How many threads do not keep this process from forking: the caller's own, asleep and without
  // locks. Optional.
  std::function<size_t()> own_threads;
  bool secure = false;            // AT_SECURE: only folders owned by root, no environment
  std::string library_folder;     // that of libfabric.so.1: who owns it is trusted (file_trust.h)
  weft_core_services services{};  // copied into the offer
  std::shared_ptr<PluginCalls> calls;  // knows what is called; optional
};

// One plugin file and what is known of it, for tools.
struct PluginStatus {
  std::string library, manifest, name, vendor, version;
  std::string abi;  // the one that it was built for, "1.0"; empty: not known
  std::vector<std::string> units;
  // "installed" (never probed), "probed", "loaded", "rejected", "quarantined"
  std::string state;
  std::string stage, reason, remedy;  // if "rejected" or "quarantined"
};

struct RefreshReport {
  size_t plugins = 0;  // those in the index that was written
  DecisionRecord troubles;
};

// Whether the code in a file may run here, by the rules of file_trust.h. For weft's own libraries,
// which are no plugins.
Result<void> check_trusted_code(const std::string &path, bool secure,
                                const std::string &library_folder);

class Loader {
 public:
  // Finds the plugins. Where a library has no manifest, this probes it (a process with one thread)
  // or, if `unprobed_allow`, opens it to read its descriptor.
  explicit Loader(LoaderOptions options);
  // Calls fini() of what was initialized, in reverse order: nothing that a unit made may be open
  // any more.
  ~Loader();
  Loader(const Loader &) = delete;
  Loader &operator=(const Loader &) = delete;

  // All known units in a stable order (rank, maturity, name). Troubles found on the way (a manifest
  // that cannot be read, two units of one name, a library without a manifest that fails its probe)
  // stand in discovery().
  const std::vector<UnitInfo> &units() const;
  const DecisionRecord &discovery() const;
  const UnitInfo *find(std::string_view name) const;  // by name or ofi_name

  // Takes a unit through trust, architecture, device, dlopen, symbol, negotiate and init; adds a
  // decision per stage that rejects (and one when all passed) to `why`. Loaded once; a failure is
  // remembered and told again. Null: not usable.
  const LoadedUnit *load(std::string_view name, DecisionRecord &why);

  std::vector<PluginStatus> plugins() const;
  // Probes a file now, whatever is known of it, and remembers the verdict: a good one ends its
  // quarantine.
  PluginStatus check(const std::string &library);
  // Puts a file on the quarantine list until it changes, and takes it off again.
  Result<void> quarantine(const std::string &library, const std::string &reason);
  Result<void> unquarantine(const std::string &library);

  // Probes every plugin of a folder and writes its plugins.idx. Needs no Loader; `options` gives
  // reader, probe and budget.
  static Result<RefreshReport> refresh(const LoaderOptions &options, const std::string &folder);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif
