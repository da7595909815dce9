// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/loader.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/loader/descriptor.h"
#include "core/loader/device.h"
#include "core/loader/discovery.h"
#include "core/loader/file_trust.h"
#include "core/loader/index.h"
#include "core/loader/initialize.h"
#include "core/loader/manifest_writer.h"
#include "core/loader/open_library.h"
#include "core/loader/probe.h"
#include "core/loader/side_effects.h"
#include "core/loader/verdict_cache.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char *kAskVendor =
    "ask its vendor for a repaired release; a file that changed is tried again, `weft plugin "
    "check` tries it now";

std::string tidy(const std::string &path) {
  std::error_code error;
  std::string absolute = fs::absolute(path, error).lexically_normal();
  while (absolute.size() > 1 && absolute.back() == '/') absolute.pop_back();
  return error ? path : absolute;
}

Decision to_decision(std::string candidate, const Rejection &rejection, std::string rule) {
  return {.candidate = std::move(candidate),
          .stage = rejection.stage,
          .accepted = false,
          .reason = rejection.cause,
          .remedy = rejection.remedy,
          .rule = std::move(rule)};
}

// What plugins see of the core. A plugin is never closed and may look at it for ever, so it is
// never freed.
struct CoreOffer {
  weft_core_services services;
  weft_offer offer;
};

const weft_offer &immortal_offer(const weft_core_services &services) {
  static std::mutex mutex;
  static auto &offers = *new std::deque<CoreOffer>;
  const std::lock_guard lock(mutex);
  CoreOffer &made = offers.emplace_back();
  made.services = services;
  made.offer = make_offer(&made.services);
  return made.offer;
}

// A manifest or index that does not tell what the library says would give the unit wrong
// parameters.
Checked<void> compare(const UnitInfo &told, const UnitInfo &found, const std::string &manifest) {
  std::string what;
  if (told.kind != found.kind)
    what = "kind " + std::to_string(told.kind) + ", the library says " + std::to_string(found.kind);
  else if (told.ofi_name != found.ofi_name)
    what = "ofi_name '" + told.ofi_name + "', the library says '" + found.ofi_name + "'";
  else if (told.params.size() != found.params.size())
    what = std::to_string(told.params.size()) + " parameters, the library has " +
           std::to_string(found.params.size());
  for (size_t i = 0; what.empty() && i < found.params.size(); ++i)
    if (told.params[i].name != found.params[i].name || told.params[i].type != found.params[i].type)
      what = "'" + told.params[i].name + "' as parameter " + std::to_string(i) +
             ", the library has '" + found.params[i].name + "'";
  if (what.empty()) return {};
  return with_remedy(
      reject(Stage::kNegotiate, "%s does not fit to the library: it gives unit '%s' the %s",
             manifest.empty() ? "what was remembered" : manifest.c_str(), found.name.c_str(),
             what.c_str()),
      "write it anew: weft-probe --manifest LIBRARY --output MANIFEST, then weft plugin refresh "
      "FOLDER");
}

ProbeOptions probe_options(const LoaderOptions &options) {
  return {
      .program = options.probe_program, .budget = options.probe_budget, .secure = options.secure};
}

}  // namespace

struct Loader::Impl {
  struct Plugin {
    PluginRecord record;
    bool unknown = false;  // at discovery: no manifest, never probed
    // Progress of load(), and where it ended.
    std::optional<FileStamp> stamp;  // passed trust and architecture
    const weft_plugin_desc *desc = nullptr;
    void *state = nullptr;
    PluginRecord described;  // by the library itself
    bool ready = false;
    std::optional<Rejection> failed;
  };

  struct Unit {
    size_t plugin = 0;
    bool tried = false;
    Decision decision;
    LoadedUnit loaded;
  };

  explicit Impl(LoaderOptions given)
      : options(std::move(given)),
        offer(immortal_offer(options.services)),
        rules(trust_rules(options.secure, options.library_folder)),
        cache(options.quarantine_file, rules) {
    discover();
  }

  ~Impl() {
    for (auto it = initialized.rbegin(); it != initialized.rend(); ++it)
      (void)finish(*(*it)->desc, (*it)->state);  // nobody is left to be told
  }

  // ---- discovery
  // -------------------------------------------------------------------------------------------------

  void discover() {
    if (!options.reader_library.empty()) options.reader_library = tidy(options.reader_library);
    ManifestReader reader(options.reader_library, rules);
    std::vector<std::string> folders;
    for (const std::string &folder : options.folders) {
      const std::string path = tidy(folder);
      if (!path.empty() && std::find(folders.begin(), folders.end(), path) == folders.end())
        folders.push_back(path);
    }
    // Our own folder first: it has its names before anybody else.
    if (!folders.empty()) std::rotate(folders.begin(), folders.end() - 1, folders.end());
    std::map<std::string, std::string> libraries;  // to what described it
    for (const std::string &folder : folders)
      for (PluginRecord &record : discover_folder(folder, reader, rules, troubles)) {
        const auto [first, is_new] = libraries.emplace(record.library, record.manifest);
        if (is_new)
          add(std::move(record));
        else if (!record.manifest.empty())
          troubles.add({.candidate = file_name(record.manifest),
                        .stage = Stage::kManifest,
                        .accepted = false,
                        .reason = "it describes " + record.library + ", which " +
                                  (first->second.empty() ? "was found" : first->second + " does") +
                                  " already",
                        .remedy = "remove one of the two manifests",
                        .rule = record.manifest});
      }
    const auto add_all = [&](auto wanted) {
      for (size_t i = 0; i < plugins.size(); ++i)
        if (wanted(plugins[i])) add_units(i);
    };
    add_all([](const Plugin &plugin) { return !plugin.unknown && !plugin.failed; });
    // Policy comes before the code of a plugin: one that nobody knows is not run for a choice that
    // is met without it.
    const bool needed = !choice_is_met();
    for (Plugin &plugin : plugins)
      if (plugin.unknown) explore(plugin, needed);
    add_all([](const Plugin &plugin) { return plugin.unknown && !plugin.failed; });
    // What is out of use keeps its units, so that asking for one tells why; it takes no name from
    // what works.
    add_all([](const Plugin &plugin) { return plugin.failed.has_value(); });
    std::stable_sort(units.begin(), units.end(), [](const UnitInfo &a, const UnitInfo &b) {
      if (a.rank != b.rank) return a.rank > b.rank;
      if (a.maturity != b.maturity) return a.maturity < b.maturity;
      return a.name < b.name;
    });
    for (const UnitInfo &unit : units) {
      states.push_back({});
      states.back().plugin = owner.at(unit.name);
    }
  }

  void add(PluginRecord record) {
    Plugin &plugin = plugins.emplace_back();
    plugin.record = std::move(record);
    if (!plugin.record.name.empty()) return;
    // No manifest describes it. Perhaps an index or an earlier probe does.
    Checked<FileStamp> file = check_file(plugin.record.library, rules);
    if (!file) return fail_discovery(plugin, file.error());
    plugin.record.library_stamp = *file;
    if (Checked<void> verdict = recall(plugin.record); !verdict)
      return fail_discovery(plugin, verdict.error());
    plugin.unknown = plugin.record.name.empty();
  }

  void fail_discovery(Plugin &plugin, const Rejection &rejection) {
    plugin.failed = rejection;
    troubles.add(to_decision(file_name(plugin.record.library), rejection, plugin.record.library));
  }

  bool choice_is_met() const {
    for (const std::string &stack : options.chosen)
      for (size_t from = 0; from <= stack.size();) {
        const size_t to = std::min(stack.find(';', from), stack.size());
        const std::string name = stack.substr(from, to - from);
        const auto known = [&](const UnitInfo &unit) {
          return unit.name == name || unit.ofi_name == name;
        };
        if (!name.empty() && std::none_of(units.begin(), units.end(), known)) return false;
        from = to + 1;
      }
    return !options.chosen.empty();
  }

  // Finds out what a library without a manifest is, in a child or, where that cannot be and may be
  // done without, here. Only its descriptor is read here; init() waits until somebody chooses a
  // unit.
  void explore(Plugin &plugin, bool needed) {
    const std::string library = plugin.record.library;
    if (!needed) {
      troubles.add({.candidate = file_name(library),
                    .stage = Stage::kPolicy,
                    .accepted = false,
                    .reason = "not opened: it has no manifest and was never probed, and what was "
                              "chosen is there without it",
                    .remedy = "`weft plugin check " + library + "` probes it",
                    .rule = library});
      return;
    }
    if (Checked<void> verdict = settle(plugin.record); !verdict)
      return fail_discovery(plugin, verdict.error());
    if (!plugin.record.name.empty()) return;
    if (Checked<void> described = describe(plugin); !described) {
      remember_misbehaviour(plugin.record, described.error());
      return fail_discovery(plugin, described.error());
    }
    const FileStamp stamp = plugin.record.library_stamp;
    plugin.record = plugin.described;
    plugin.record.library = library;
    plugin.record.library_stamp = stamp;
  }

  void add_units(size_t index) {
    const Plugin &plugin = plugins[index];
    for (const UnitInfo &unit : plugin.record.units) {
      const auto taken = [&](const std::string &name) {
        return std::find_if(units.begin(), units.end(), [&](const UnitInfo &other) {
          return other.name == name || other.ofi_name == name;
        });
      };
      auto other = taken(unit.name);
      if (other == units.end()) other = taken(unit.ofi_name);
      if (other != units.end()) {
        troubles.add(
            {.candidate = file_name(plugin.record.library),
             .stage = Stage::kNegotiate,
             .accepted = false,
             .reason = "its unit '" + unit.name + "' has a name that is taken by unit '" +
                       other->name + "' of " + other->library,
             .remedy = "remove one of the two files; the other one stays in use until then",
             .rule = plugin.record.library});
        continue;
      }
      units.push_back(unit);
      units.back().library = plugin.record.library;
      units.back().manifest = plugin.record.manifest;
      owner.emplace(unit.name, index);
    }
  }

  // ---- the verdict
  // -----------------------------------------------------------------------------------------------

  static Checked<void> as_rejection(const PluginRecord &record) {
    if (record.verdict != Verdict::kRejected && record.verdict != Verdict::kQuarantined) return {};
    Rejection rejection = record.rejection;
    if (record.verdict == Verdict::kQuarantined)
      rejection.cause = "quarantined: " + rejection.cause;
    return tl::unexpected<Rejection>(std::move(rejection));
  }

  // What index and cache say; a record without metadata gets some from there. Its library_stamp is
  // the file's own. A quarantine whose time is over says nothing any more: `due`, if given, then is
  // what the next probe has to refute.
  Checked<void> recall(PluginRecord &record, const PluginRecord **due = nullptr) {
    // The quarantine list is stronger than an index that was written before.
    const PluginRecord *known = cache.find(record.library, record.library_stamp);
    if (known != nullptr && cache.is_due(*known)) {
      record.verdict = Verdict::kUnprobed;
      if (due != nullptr) *due = known;
      return {};
    }
    if (known != nullptr &&
        (known->verdict == Verdict::kQuarantined || record.verdict == Verdict::kUnprobed ||
         record.verdict == Verdict::kRejected))
      return adopt(record, *known);
    return as_rejection(record);
  }

  static Checked<void> adopt(PluginRecord &record, PluginRecord from) {
    from.manifest = record.manifest;
    from.manifest_stamp = record.manifest_stamp;
    if (record.name.empty()) {
      record = std::move(from);
    } else {
      record.verdict = from.verdict;
      record.rejection = from.rejection;
    }
    return as_rejection(record);
  }

  size_t foreign_threads() const {
    const size_t all = count_threads();
    const size_t own = options.own_threads ? options.own_threads() : 0;
    return own < all ? all - own : 1;
  }

  // The same, and a probe if need be. On success the record is ok, or unprobed and allowed to be.
  Checked<void> settle(PluginRecord &record) {
    const PluginRecord *due = nullptr;
    if (Checked<void> verdict = recall(record, &due); !verdict || record.verdict == Verdict::kOk)
      return verdict;
    std::string why_not;
    const size_t threads = foreign_threads();
    if (options.probe_program.empty()) {
      why_not = "there is no weft-probe";
    } else if (threads > 1) {
      why_not = "this process has " + std::to_string(threads) + " threads and must not fork";
    } else {
      PluginRecord probed = probe_in_child(probe_options(options), record.library);
      if (probed.verdict != Verdict::kUnprobed) {
        // A library that could not be linked today may be tomorrow, when what it needs was
        // installed.
        if (!(probed.verdict == Verdict::kRejected && probed.rejection.stage == Stage::kDlopen))
          (void)cache.remember(probed);  // a home that cannot be written to costs a probe each time
        return adopt(record, std::move(probed));
      }
      why_not = probed.rejection.cause;
    }
    // What failed in a child is not tried here.
    if (due != nullptr) return as_rejection(*due);
    if (options.unprobed_allow) return {};
    return with_remedy(
        reject(Stage::kTrust, "never probed, and %s; the policy denies unprobed plugins",
               why_not.c_str()),
        "run `weft plugin check %s`, or `weft plugin refresh` of its folder",
        record.library.c_str());
  }

  void remember_misbehaviour(const PluginRecord &record, const Rejection &rejection) {
    if (!rejection.misbehaved) return;
    PluginRecord bad = record;
    bad.verdict = Verdict::kQuarantined;
    bad.rejection = rejection;
    (void)cache.remember(std::move(bad));
  }

  // ---- running a plugin's code
  // -----------------------------------------------------------------------------------

  // `before` was read before the plugin's code ran. Each reading costs as many system calls as
  // there are signals, so there are no more of them than steps that run code.
  Checked<void> check_signals(const SignalTable &before, const std::string &library, Stage stage,
                              const char *what) const {
    const SignalTable now = SignalTable::read();
    if (now.difference(before).empty()) return {};
    // Another thread of the application may have installed a handler of its own meanwhile.
    const std::string blame = count_threads() > 1 ? library : std::string();
    const std::string difference = now.difference(before, blame);
    if (difference.empty()) return {};
    before.restore(now, blame);
    return tl::unexpected<Rejection>(
        Rejection{stage, what + (" " + difference) + "; it was put back", kAskVendor, true});
  }

  // dlopen, symbol, negotiate.
  Checked<void> describe(Plugin &plugin) {
    if (plugin.desc != nullptr) return {};
    const SignalTable before = SignalTable::read();
    const Checked<OpenPlugin> opened = open_plugin(plugin.record.library);
    const Answer answer = opened ? ask(*opened, offer) : Answer{};
    if (auto signals = check_signals(before, plugin.record.library, Stage::kDlopen,
                                     "its constructors or " WEFT_QUERY_SYMBOL);
        !signals)
      return signals;
    if (!opened) return tl::unexpected<Rejection>(opened.error());
    if (answer.threw)
      return tl::unexpected<Rejection>(
          Rejection{Stage::kNegotiate, "an exception left " WEFT_QUERY_SYMBOL, kAskVendor, true});
    Checked<PluginRecord> described = check_descriptor(answer.desc, answer.why);
    if (!described) return tl::unexpected<Rejection>(described.error());
    plugin.described = *std::move(described);
    plugin.desc = answer.desc;
    return {};
  }

  Checked<void> init(Plugin &plugin) {
    if (plugin.desc->init == nullptr) return {};
    const SignalTable before = SignalTable::read();
    const bool known = plugin.record.verdict == Verdict::kOk;
    Checked<void> done =
        known ? initialize(*plugin.desc, offer, plugin.state)
              : initialize_within(options.probe_budget, *plugin.desc, offer, plugin.state);
    if (auto signals = check_signals(before, plugin.record.library, Stage::kInit, "init()");
        !signals)
      return signals;
    return done;
  }

  Checked<void> examine_file(Plugin &plugin) {
    if (plugin.stamp) return {};
    Checked<FileStamp> stamp = check_file(plugin.record.library, rules);
    if (!stamp) return tl::unexpected<Rejection>(stamp.error());
    plugin.stamp = *stamp;
    return {};
  }

  // The stages of the whole file after device.
  Checked<void> prepare(Plugin &plugin) {
    if (plugin.ready) return {};
    if (plugin.record.library_stamp != *plugin.stamp) {
      plugin.record.library_stamp = *plugin.stamp;
      plugin.record.verdict = Verdict::kUnprobed;  // it was about another file
    }
    if (Checked<void> verdict = settle(plugin.record); !verdict) return verdict;
    Checked<void> done = describe(plugin);
    if (done) done = init(plugin);
    if (!done) {
      remember_misbehaviour(plugin.record, done.error());
      return done;
    }
    initialized.push_back(&plugin);
    plugin.ready = true;
    return {};
  }

  Checked<LoadedUnit> load_unit(const UnitInfo &info, Plugin &plugin) {
    const auto whole = [&](Checked<void> result) {
      if (!result) plugin.failed = result.error();
      return result;
    };
    if (plugin.failed) return tl::unexpected<Rejection>(*plugin.failed);
    if (auto file = whole(examine_file(plugin)); !file)
      return tl::unexpected<Rejection>(file.error());
    if (auto device = check_devices(info.devices); !device)
      return tl::unexpected<Rejection>(device.error());
    if (auto ready = whole(prepare(plugin)); !ready)
      return tl::unexpected<Rejection>(ready.error());

    const weft_unit *unit = find_unit(*plugin.desc, info.name);
    if (unit == nullptr)
      return with_remedy(
          reject(Stage::kNegotiate, "the library has no unit '%s', which %s promises",
                 info.name.c_str(), info.manifest.empty() ? "the index" : info.manifest.c_str()),
          "write the manifest anew, or reinstall the plugin");
    const auto found = std::find_if(plugin.described.units.begin(), plugin.described.units.end(),
                                    [&](const UnitInfo &other) { return other.name == info.name; });
    if (auto fits = compare(info, *found, info.manifest); !fits)
      return tl::unexpected<Rejection>(fits.error());
    LoadedUnit loaded{.unit = unit, .plugin_state = plugin.state, .hook_slot = 0, .info = &info};
    if (info.kind == WEFT_KIND_HOOK) {
      if (next_hook_slot == WEFT_MAX_HOOK_SLOTS)
        return with_remedy(
            reject(Stage::kNegotiate, "all %d places for hooks are in use", WEFT_MAX_HOOK_SLOTS),
            "select fewer kinds of hooks");
      loaded.hook_slot = next_hook_slot++;
    }
    return loaded;
  }

  PluginStatus status(const Plugin &plugin) {
    const PluginRecord &record = plugin.record;
    PluginStatus status{.library = record.library,
                        .manifest = record.manifest,
                        .name = record.name,
                        .vendor = record.vendor,
                        .version = record.version,
                        .abi = {},
                        .units = {},
                        .state = "installed",
                        .stage = {},
                        .reason = {},
                        .remedy = {}};
    if (record.abi_major != 0)
      status.abi = std::to_string(record.abi_major) + "." + std::to_string(record.abi_minor);
    for (const UnitInfo &unit : record.units) status.units.push_back(unit.name);
    const PluginRecord *cached = cache.find(record.library, record.library_stamp);
    const auto refused = [&](const char *state, const Rejection &rejection) {
      status.state = state;
      status.stage = stage_name(rejection.stage);
      status.reason = rejection.cause;
      status.remedy = rejection.remedy;
    };
    if (plugin.ready)
      status.state = "loaded";
    else if (cached != nullptr && cached->verdict == Verdict::kQuarantined)
      refused("quarantined", cached->rejection);
    else if (record.verdict == Verdict::kQuarantined)
      refused("quarantined", record.rejection);
    else if (plugin.failed)
      refused("rejected", *plugin.failed);
    else if (record.verdict == Verdict::kRejected)
      refused("rejected", record.rejection);
    else if (record.verdict == Verdict::kOk ||
             (cached != nullptr && cached->verdict == Verdict::kOk))
      status.state = "probed";
    return status;
  }

  LoaderOptions options;
  const weft_offer &offer;
  const TrustRules rules;
  DecisionRecord troubles;     // from here to units: fixed after construction
  std::deque<Plugin> plugins;  // stable addresses
  std::map<std::string, size_t> owner;
  std::vector<UnitInfo> units;

  std::recursive_mutex mutex;  // recursive only to notice a plugin that calls back
  bool busy = false;
  std::vector<Unit> states;  // one per unit
  VerdictCache cache;
  std::vector<Plugin *> initialized;
  uint32_t next_hook_slot = 0;
};

Result<void> check_trusted_code(const std::string &path, bool secure,
                                const std::string &library_folder) {
  if (const Checked<FileStamp> file = check_trust(path, trust_rules(secure, library_folder)); !file)
    return fail(FI_EPERM, "%s: %s", path.c_str(), file.error().cause.c_str());
  return {};
}

Loader::Loader(LoaderOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Loader::~Loader() = default;

const std::vector<UnitInfo> &Loader::units() const {
  return impl_->units;
}
const DecisionRecord &Loader::discovery() const {
  return impl_->troubles;
}

const UnitInfo *Loader::find(std::string_view name) const {
  for (const UnitInfo &unit : impl_->units)
    if (unit.name == name || unit.ofi_name == name) return &unit;
  return nullptr;
}

const LoadedUnit *Loader::load(std::string_view name, DecisionRecord &why) {
  const UnitInfo *info = find(name);
  if (info == nullptr) {
    why.add({.candidate = std::string(name),
             .stage = Stage::kManifest,
             .accepted = false,
             .reason = "no plugin offers a unit of this name",
             .remedy = "`weft plugin list` shows what is installed",
             .rule = {}});
    return nullptr;
  }
  const std::lock_guard lock(impl_->mutex);
  if (impl_->busy) {
    why.add({.candidate = info->name,
             .stage = Stage::kInit,
             .accepted = false,
             .reason = "a plugin that is being loaded asks for another one",
             .remedy = kAskVendor,
             .rule = info->library});
    return nullptr;
  }
  Impl::Unit &unit = impl_->states[static_cast<size_t>(info - impl_->units.data())];
  if (!unit.tried) {
    impl_->busy = true;
    Checked<LoadedUnit> loaded = impl_->load_unit(*info, impl_->plugins[unit.plugin]);
    impl_->busy = false;
    unit.tried = true;
    if (loaded) {
      unit.loaded = *loaded;
      unit.decision = {.candidate = info->name,
                       .stage = Stage::kInit,
                       .accepted = true,
                       .reason = "loaded from " + info->library + " (" + info->plugin + " " +
                                 info->plugin_version + " of " + info->vendor + ")",
                       .remedy = {},
                       .rule = info->library};
    } else {
      unit.decision = to_decision(info->name, loaded.error(), info->library);
    }
  }
  why.add(unit.decision);
  return unit.loaded.unit == nullptr ? nullptr : &unit.loaded;
}

std::vector<PluginStatus> Loader::plugins() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<PluginStatus> all;
  for (const Impl::Plugin &plugin : impl_->plugins) all.push_back(impl_->status(plugin));
  return all;
}

PluginStatus Loader::check(const std::string &library) {
  const std::lock_guard lock(impl_->mutex);
  Impl::Plugin plugin;
  plugin.record.library = tidy(library);
  if (Checked<FileStamp> file = check_file(plugin.record.library, impl_->rules); !file) {
    plugin.failed = file.error();
  } else if (const size_t threads = impl_->foreign_threads(); threads > 1) {
    plugin.failed = Rejection{
        Stage::kTrust,
        "this process has " + std::to_string(threads) + " threads and must not fork to probe it",
        "use `weft plugin check`", false};
  } else {
    PluginRecord probed = probe_in_child(probe_options(impl_->options), plugin.record.library);
    if (probed.verdict == Verdict::kUnprobed)
      plugin.failed = probed.rejection;
    else
      (void)impl_->cache.remember(probed);  // the answer is true even where it cannot be stored
    plugin.record = std::move(probed);
  }
  return impl_->status(plugin);
}

Result<void> Loader::quarantine(const std::string &library, const std::string &reason) {
  const std::lock_guard lock(impl_->mutex);
  PluginRecord record;
  record.library = tidy(library);
  if (!stamp_of(record.library, record.library_stamp))
    return fail(FI_ENOENT, "there is no file %s: give the path of a plugin",
                record.library.c_str());
  record.verdict = Verdict::kQuarantined;
  record.rejection = {Stage::kTrust, reason, "weft plugin quarantine --remove " + record.library,
                      true};
  return impl_->cache.remember(std::move(record));
}

Result<void> Loader::unquarantine(const std::string &library) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->cache.forget(tidy(library));
}

Result<RefreshReport> Loader::refresh(const LoaderOptions &options, const std::string &folder) {
  const TrustRules rules = trust_rules(options.secure, options.library_folder);
  const std::string path = tidy(folder);
  std::error_code error;
  if (!fs::is_directory(path, error))
    return fail(FI_ENOENT, "%s is not a folder: give one that holds plugins", path.c_str());
  ManifestReader reader(
      options.reader_library.empty() ? std::string() : tidy(options.reader_library), rules);
  RefreshReport report;
  Index index;
  for (PluginRecord &record :
       discover_afresh(path, reader, rules, report.troubles, index.manifests_mtime_ns)) {
    Checked<FileStamp> file = check_file(record.library, rules);
    if (!file) {
      // Judged again by whoever loads it: it may be put right without the index being written anew.
      report.troubles.add(to_decision(file_name(record.library), file.error(), record.library));
      if (record.name.empty()) continue;
    } else {
      PluginRecord probed = probe_in_child(probe_options(options), record.library);
      // Nor may a machine that was busy while it was installed keep a plugin out for ever.
      if ((probed.verdict == Verdict::kRejected && probed.rejection.stage == Stage::kDlopen) ||
          probed.rejection.passing)
        probed.verdict = Verdict::kUnprobed;
      if (!probed.name.empty() && probed.verdict == Verdict::kOk) {
        probed.manifest = record.manifest;
        probed.manifest_stamp = record.manifest_stamp;
        record = std::move(probed);
      } else {
        report.troubles.add(
            to_decision(file_name(record.library), probed.rejection, record.library));
        record.library_stamp = probed.library_stamp;
        record.verdict = probed.verdict;
        record.rejection = probed.rejection;
      }
    }
    index.plugins.push_back(std::move(record));
  }
  report.plugins = index.plugins.size();
  WEFT_CHECK(write_atomically(path + "/" + kIndexName, write_index(index, path)));
  return report;
}

}  // namespace weft
