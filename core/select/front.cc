// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/front.h"

#include "core/base/each_element.h"
#include "core/base/render.h"
#include "core/select/front_impl.h"
#include "core/select/near.h"

namespace weft {

const std::string *Front::Impl::variable(const char *name) const {
  const auto found = options.environment.find(name);
  return found != options.environment.end() && !found->second.empty() ? &found->second : nullptr;
}

std::string Front::Impl::user_folder(const char *xdg, const char *in_home) const {
  if (options.secure) return {};
  if (const std::string *folder = variable(xdg); folder != nullptr && folder->front() == '/')
    return *folder;
  const std::string *home = variable("HOME");
  return home != nullptr && home->front() == '/' ? *home + in_home : std::string();
}

PolicySources Front::Impl::sources() const {
  PolicySources sources;
  sources.system_folders = {options.system_root + "/usr/share/weft",
                            options.system_root + "/etc/weft"};
  if (const std::string folder = user_folder("XDG_CONFIG_HOME", "/.config"); !folder.empty())
    sources.user_file = folder + "/weft/weft.yaml";
  for (const auto &[name, value] : options.environment) {
    if (name.rfind("FI_", 0) == 0) sources.environment.emplace(name, value);
  }
  sources.reader_library = options.library_folder + "/weft/weft-config.so";
  sources.secure = options.secure;
  sources.library_folder = options.library_folder;
  sources.stand_ins = supposed.files();
  return sources;
}

LoaderOptions Front::Impl::loader_options() const {
  LoaderOptions loading;
  for (const auto &folder : policy.plugin_path) loading.folders.push_back(folder.value);
  if (!options.library_folder.empty()) loading.folders.push_back(options.library_folder + "/weft");
  loading.reader_library = options.library_folder + "/weft/weft-config.so";
  loading.probe_program = options.library_folder + "/weft/weft-probe";
  const std::string cache = user_folder("XDG_CACHE_HOME", "/.cache");
  loading.quarantine_file = cache.empty() ? options.system_root + "/var/cache/weft/quarantine"
                                          : cache + "/weft/quarantine";
  loading.probe_budget = std::chrono::milliseconds(policy.probe_budget_ms->value);
  loading.unprobed_allow = policy.unprobed_allow->value;
  loading.secure = options.secure;
  loading.library_folder = options.library_folder;
  loading.own_threads = [this] {
    return watches.load() + (options.own_threads ? options.own_threads() : 0);
  };
  loading.refused = refused;
  loading.calls = calls;
  loading.services = options.services;
  if (policy.filter && !policy.filter->exclude) {
    for (const FilterItem &item : policy.filter->items) {
      each_word(item, [&](const Word &word) { loading.chosen.push_back(lower(word.text)); });
    }
    // Hooks and the stacks in use are chosen as well, and what makes near stacks of them.
    if (policy.local_shm->value)
      loading.chosen.insert(loading.chosen.end(),
                            {std::string(kNearLayer), std::string(kNearProvider)});
    for (const Word &hook : policy.hooks) loading.chosen.push_back(lower(hook.text));
    for (const StackSpec &spec : policy.stacks) {
      each_element(spec.elements,
                   [&](const StackElement &element) { loading.chosen.push_back(element.name); });
    }
  }
  return loading;
}

void Front::Impl::prepare() {
  std::lock_guard lock(mutex);
  if (ready) return;
  policy = load_policy(sources());
  loader = std::make_unique<Loader>(loader_options());
  join_names(policy, loader->units());
  slots.clear();
  notes = {};
  StackRules rules(policy, place);
  for (Candidate &candidate : make_candidates(policy, loader->units(), notes)) {
    Slot &slot = slots.emplace_back();  // elements of a deque keep their address
    slot.candidate = std::move(candidate);
    slot.units = slot.candidate.shown_units();
    if (const StackUnits units = slot.candidate.units(); !units.empty())
      slot.offers_ep = units.back()->offers_ep;
    if (slot.candidate.verdict.accepted) judge_by_rules(slot, rules);
  }
  names = check_names(policy, loader->units());
  for (const UnitInfo &unit : loader->units()) (void)settings_of(policy, unit, &names);
  tell_about_configuration();
  ready = true;
}

// Rules see a near stack as the one whose name it has, and its memory as a provider by itself.
void Front::Impl::judge_by_rules(Slot &slot, StackRules &rules) const {
  const Judgement *verdict = &rules.judge(slot.units);
  if (slot.candidate.is_near())
    for (const std::string_view name : {kNearLayer, kNearProvider})
      if (verdict->accepted) verdict = &rules.judge({find_unit(loader->units(), name)});
  if (verdict->accepted) return;
  slot.candidate.stage = Stage::kPolicy;
  slot.candidate.verdict = *verdict;
}

// A file may have thousands of mistakes, and every process of a job would tell them all. What is
// wrong comes before what is only left out.
void Front::Impl::tell_about_configuration() {
  constexpr size_t kMaxLines = 20;
  std::set<std::string> lines;
  const auto tell = [&](std::string line) {
    if (lines.size() < kMaxLines) notice(line);
    lines.insert(std::move(line));
  };
  for (const Diagnostic &one : names)
    if (one.note) log(FI_LOG_CORE, __func__, __LINE__, one.text, FI_LOG_INFO);
  // A name in FI_PROVIDER that nothing has is in `notes`, too.
  const auto is_told = [](const Diagnostic &one) {
    return one.error || (one.where.is(Rule::Kind::kEnvironment) && !one.note &&
                         !one.where.is_variable("FI_PROVIDER"));
  };
  for (const bool errors : {true, false}) {
    for (const Diagnostic &one : policy.diagnostics)
      if (one.error == errors) tell(line_of(one));
    for (const Diagnostic &one : names)
      if (one.error == errors && is_told(one)) tell(line_of(one));
  }
  for (const Decision &one : notes.decisions()) {
    // A name that is close to an existing one is misspelt. Others may be meant for other hosts.
    if (!one.remedy.meant.empty()) tell(line_of(one, {.candidate = false}));
  }
  if (lines.size() > kMaxLines)
    notice(std::to_string(lines.size() - kMaxLines) +
           " more problems of the configuration: `weft config lint` tells them all");
}

void Front::Impl::notice(const std::string &line) {
  {
    std::lock_guard lock(notice_mutex);
    if (!noticed.insert(line).second) return;
  }
  if (options.notice) options.notice(line);
}

void Front::Impl::log(int32_t subsys, const char *func, int32_t line, const std::string &text,
                      int32_t level) const {
  const weft_core_services &core = options.services;
  if (core.log == nullptr) return;
  if (core.log_enabled != nullptr && core.log_enabled(nullptr, level, subsys) == 0) return;
  core.log(nullptr, level, subsys, func, line, text.c_str());
}

int Front::Impl::as_errno(int32_t subsys, const char *func, const char *call, int error,
                          const char *text) const {
  if (error != FI_ENOMEM) log(subsys, func, __LINE__, std::string(call) + ": " + text);
  return -error;
}

Front::Front(FrontOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Front::~Front() = default;

int Front::getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const fi_info *hints, fi_info **out) noexcept {
  // Flags of the core's own, which an application cannot give.
  constexpr uint64_t kOwn = WEFT_GETINFO_NAMED | WEFT_GETINFO_OPENING;
  return guarded(
      [&] {
        return impl_->getinfo({version, node, service, flags & ~kOwn, hints}, out);
      },
      [&](int error, const char *text) {
        return impl_->as_errno(FI_LOG_CORE, "getinfo", "fi_getinfo", error, text);
      });
}

int Front::fabric(fi_fabric_attr *attr, const fi_info *info, uint64_t flags, fid_fabric **fabric,
                  void *context) noexcept {
  return guarded(
      [&] {
        if (flags == 0) return impl_->fabric(attr, info, fabric, context);
        impl_->log(FI_LOG_FABRIC, "fabric", __LINE__, "fi_fabric2: no flags are defined");
        return -FI_EBADFLAGS;
      },
      [&](int error, const char *text) {
        return impl_->as_errno(FI_LOG_FABRIC, "fabric", "fi_fabric", error, text);
      });
}

void Front::listen(PluginCalls::Listener listener, void *arg) {
  impl_->calls->listen(listener, arg);
}

Result<void> Front::refuse(RefusedFile file) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->ready)
    return fail(FI_EBUSY, "the plugins are known already: refuse a file before anything else");
  impl_->refused.push_back(std::move(file));
  return {};
}

Result<void> Front::suppose(std::string_view what, const std::string &name,
                            const std::string &value) {
  return guarded(
      [&]() -> Result<void> {
        const std::lock_guard lock(impl_->mutex);
        if (impl_->ready)
          return fail(FI_EBUSY, "the configuration is known already: suppose before anything else");
        WEFT_CHECK(impl_->supposed.add(what, name, value, impl_->sources()));
        impl_->place = impl_->supposed.applied_to(Place::of_process());
        return {};
      },
      as_error);
}

bool Front::control_allowed() {
  return guarded(
      [&] {
        impl_->prepare();
        return impl_->policy.control_allow->value;
      },
      [](int, const char *) { return false; });
}

}  // namespace weft
