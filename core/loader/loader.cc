// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/loader.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "core/loader/descriptor.h"
#include "core/loader/device.h"
#include "core/loader/discovery.h"
#include "core/loader/file_trust.h"
#include "core/loader/find_units.h"
#include "core/loader/initialize.h"
#include "core/loader/plugin_record.h"
#include "core/loader/probe.h"
#include "core/loader/run_plugin.h"
#include "core/loader/verdict.h"

namespace weft {
namespace {

// Whether the library has the unit that its manifest or index describes. With another description
// the unit would get wrong parameters.
Checked<void> check_description(const UnitInfo &told, const UnitInfo &found,
                                const std::string &manifest) {
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
      reject(Stage::kNegotiate, "%s does not match the library: it gives unit '%s' the %s",
             manifest.empty() ? "the remembered description" : manifest.c_str(), found.name.c_str(),
             what.c_str()),
      "write it anew: weft-probe --manifest LIBRARY --output MANIFEST, then weft plugin refresh "
      "FOLDER");
}

}  // namespace

struct Loader::Impl {
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
        verdicts(options, rules),
        found(find_units(options, rules, offer, verdicts)) {
    for (const size_t owner : found.owners) states.emplace_back().plugin = owner;
  }

  ~Impl() {
    for (auto it = initialized.rbegin(); it != initialized.rend(); ++it)
      (void)finish(*(*it)->running.desc, (*it)->running.state);  // nobody is left to be told
  }

  Checked<void> examine_file(PluginFile &plugin) {
    if (plugin.stamp) return {};
    Checked<FileStamp> stamp = check_file(plugin.record.library, rules);
    if (!stamp) return tl::unexpected<Rejection>(stamp.error());
    plugin.stamp = *stamp;
    return {};
  }

  // The stages after device, which concern the whole file.
  Checked<void> prepare(const std::string &unit, PluginFile &plugin) {
    if (plugin.ready) return {};
    if (plugin.record.library_stamp != *plugin.stamp) {
      plugin.record.library_stamp = *plugin.stamp;
      plugin.record.verdict = Verdict::kUnprobed;  // the old one was about another file
    }
    if (Checked<void> verdict = verdicts.settle(plugin.record); !verdict) return verdict;
    const std::string &library = plugin.record.library;
    Checked<void> done;
    {
      const PluginCalls::Inside inside(options.calls.get(), unit, library, "dlopen");
      done = describe_plugin(library, offer, plugin.running);
    }
    if (done) {
      // A plugin that passed a probe is trusted to return from init().
      std::optional<std::chrono::milliseconds> budget;
      if (plugin.record.verdict != Verdict::kOk) budget = options.probe_budget;
      const PluginCalls::Inside inside(options.calls.get(), unit, library, "init");
      done = init_plugin(library, offer, budget, plugin.running);
    }
    if (!done) {
      verdicts.remember_misbehaviour(plugin.record, done.error());
      return done;
    }
    initialized.push_back(&plugin);
    plugin.ready = true;
    return {};
  }

  Checked<LoadedUnit> load_unit(const UnitInfo &info, PluginFile &plugin) {
    const auto whole = [&](Checked<void> result) {
      if (!result) plugin.failed = result.error();
      return result;
    };
    if (plugin.failed) return tl::unexpected<Rejection>(*plugin.failed);
    if (auto file = whole(examine_file(plugin)); !file)
      return tl::unexpected<Rejection>(file.error());
    if (auto device = check_devices(info); !device)
      return tl::unexpected<Rejection>(device.error());
    if (auto ready = whole(prepare(info.name, plugin)); !ready)
      return tl::unexpected<Rejection>(ready.error());

    const weft_unit *unit = find_unit(*plugin.running.desc, info.name);
    if (unit == nullptr)
      return with_remedy(
          reject(Stage::kNegotiate, "the library has no unit '%s', which %s promises",
                 info.name.c_str(), info.manifest.empty() ? "the index" : info.manifest.c_str()),
          "write the manifest anew, or reinstall the plugin");
    const std::vector<UnitInfo> &units = plugin.running.described.units;
    const auto described = std::find_if(
        units.begin(), units.end(), [&](const UnitInfo &other) { return other.name == info.name; });
    if (auto fits = check_description(info, *described, info.manifest); !fits)
      return tl::unexpected<Rejection>(fits.error());
    LoadedUnit loaded{
        .unit = unit, .plugin_state = plugin.running.state, .hook_slot = 0, .info = &info};
    if (info.kind == WEFT_KIND_HOOK) {
      if (next_hook_slot == WEFT_MAX_HOOK_SLOTS)
        return with_remedy(
            reject(Stage::kNegotiate, "all %d places for hooks are in use", WEFT_MAX_HOOK_SLOTS),
            "select fewer kinds of hooks");
      loaded.hook_slot = next_hook_slot++;
    }
    return loaded;
  }

  PluginStatus status(const PluginFile &plugin) {
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
    const PluginRecord *cached = verdicts.cache().find(record.library, record.library_stamp);
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

  const LoaderOptions options;
  const weft_offer &offer;
  const TrustRules rules;
  Verdicts verdicts;
  FoundUnits found;  // the units and troubles are fixed after construction

  std::recursive_mutex mutex;  // recursive only to notice a plugin that calls back
  bool busy = false;
  std::vector<Unit> states;  // one per unit
  std::vector<PluginFile *> initialized;
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
  return impl_->found.units;
}
const DecisionRecord &Loader::discovery() const {
  return impl_->found.troubles;
}

const UnitInfo *Loader::find(std::string_view name) const {
  for (const UnitInfo &unit : impl_->found.units)
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
             .rule = Rule::plugin(info->library)});
    return nullptr;
  }
  Impl::Unit &unit = impl_->states[static_cast<size_t>(info - impl_->found.units.data())];
  if (!unit.tried) {
    impl_->busy = true;
    Checked<LoadedUnit> loaded = impl_->load_unit(*info, impl_->found.plugins[unit.plugin]);
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
                       .rule = Rule::plugin(info->library)};
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
  for (const PluginFile &plugin : impl_->found.plugins) all.push_back(impl_->status(plugin));
  return all;
}

PluginStatus Loader::check(const std::string &library) {
  const std::lock_guard lock(impl_->mutex);
  PluginFile plugin;
  plugin.record.library = tidy_path(library);
  if (Checked<FileStamp> file = check_file(plugin.record.library, impl_->rules); !file) {
    plugin.failed = file.error();
  } else if (const size_t threads = impl_->verdicts.foreign_threads(); threads > 1) {
    plugin.failed = Rejection{
        Stage::kTrust,
        "this process has " + std::to_string(threads) + " threads and must not fork to probe it",
        "use `weft plugin check`", false};
  } else {
    PluginRecord probed = probe_in_child(probe_options(impl_->options), plugin.record.library);
    if (probed.verdict == Verdict::kUnprobed)
      plugin.failed = probed.rejection;
    else
      (void)impl_->verdicts.cache().remember(probed);  // it holds even if it cannot be stored
    plugin.record = std::move(probed);
  }
  return impl_->status(plugin);
}

Result<void> Loader::quarantine(const std::string &library, const std::string &reason) {
  const std::lock_guard lock(impl_->mutex);
  PluginRecord record;
  record.library = tidy_path(library);
  if (!stamp_of(record.library, record.library_stamp))
    return fail(FI_ENOENT, "there is no file %s: give the path of a plugin",
                record.library.c_str());
  record.verdict = Verdict::kQuarantined;
  record.rejection = {Stage::kTrust, reason, "weft plugin quarantine --remove " + record.library,
                      true};
  return impl_->verdicts.cache().remember(std::move(record));
}

Result<void> Loader::unquarantine(const std::string &library) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->verdicts.cache().forget(tidy_path(library));
}

}  // namespace weft
