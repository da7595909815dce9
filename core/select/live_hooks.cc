// SPDX-License-Identifier: BSD-2-Clause
// Attaches hooks to live objects and detaches them.
#include <algorithm>

#include "core/base/render.h"
#include "core/select/front_impl.h"

namespace weft {
namespace {

bool same_settings(const std::vector<Setting> &a, const std::vector<Setting> &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Setting &x, const Setting &y) {
    return x.key == y.key && x.value == y.value;
  });
}

}  // namespace

Result<std::shared_ptr<Hook>> Front::Impl::live_hook(std::string_view name,
                                                     std::vector<Setting> more) {
  const UnitInfo *unit = find_unit(loader->units(), name);
  if (unit == nullptr || unit->kind != WEFT_KIND_HOOK)
    return fail(FI_ENOENT, "no hook %s: %s", in_quotes(name).c_str(),
                text_of(known_units(loader->units(), name, 1u << WEFT_KIND_HOOK)).c_str());
  if (const Judgement verdict = judge_unit(policy, *unit); !verdict.accepted)
    return fail(FI_EPERM, "%s (%s): %s", verdict.reason.c_str(), text_of(verdict.rule).c_str(),
                text_of(verdict.remedy).c_str());
  for (const Setting &setting : more)
    if (const Sourced<std::string> *final = overruled_by(policy, *unit, setting))
      return fail(FI_EPERM, "params.%s.%s is final in %s: leave it out", unit->name.c_str(),
                  setting.key.c_str(), text_of(final->origin.where).c_str());
  std::lock_guard lock(mutex);
  // The same hook each time, so that it finds its state on an object again; another one if it is to
  // be set otherwise.
  if (const auto known = live_hooks.find(unit->name);
      known != live_hooks.end() && same_settings(known->second.settings, more))
    return known->second.hook;
  DecisionRecord loading;
  const LoadedUnit *loaded = loader->load(unit->name, loading);
  if (loaded == nullptr) {
    const Decision *why = loading.last(unit->name);
    return fail(FI_ENODEV, "hook %s: %s", unit->name.c_str(),
                why != nullptr ? reason_of(*why).c_str() : "it cannot be loaded");
  }
  InstanceSpec spec;
  spec.unit = *loaded;
  spec.settings = settings_at(policy, *unit, more);
  spec.core = &options.services;
  WEFT_TRY(std::shared_ptr<Hook> hook, Hook::create(std::move(spec)));
  live_hooks[unit->name] = {hook, std::move(more)};
  return hook;
}

Result<void> Front::attach_hook(std::span<struct fid *const> roots, std::string_view hook,
                                std::vector<Setting> settings) {
  return guarded(
      [&]() -> Result<void> {
        impl_->prepare();
        WEFT_TRY(const std::shared_ptr<Hook> made, impl_->live_hook(hook, std::move(settings)));
        ObjectTable &objects = *impl_->options.objects;
        std::vector<struct fid *> done;
        Result<void> gone = fail(FI_EINVAL, "hook %s: no object", made->name());
        for (struct fid *root : roots) {
          Result<void> one = objects.attach(root, made);
          if (one) {
            done.push_back(root);
          } else if (one.error().code == FI_EINVAL || one.error().code == FI_EBUSY) {
            gone = std::move(one);
          } else {
            for (struct fid *back : done) (void)objects.detach(back, made->name());
            return one;
          }
        }
        return done.empty() ? std::move(gone) : Result<void>();
      },
      as_error);
}

Result<void> Front::detach_hook(std::span<struct fid *const> roots, std::string_view hook) {
  return guarded(
      [&]() -> Result<void> {
        impl_->prepare();
        const UnitInfo *unit = find_unit(impl_->loader->units(), hook);
        const std::string_view name = unit != nullptr ? std::string_view(unit->name) : hook;
        Result<void> failed = fail(FI_EINVAL, "hook %s: no object", std::string(name).c_str());
        bool done = false;
        for (struct fid *root : roots) {
          Result<void> one = impl_->options.objects->detach(root, name);
          done = done || one.has_value();
          if (!one) failed = std::move(one);
        }
        return done ? Result<void>() : std::move(failed);
      },
      as_error);
}

}  // namespace weft
