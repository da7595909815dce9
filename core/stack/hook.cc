// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/hook.h"

namespace weft {

Instance::Instance(InstanceSpec spec, ParamSet params)
    : stack_(std::move(spec.stack)), params_(std::move(params)) {
  instance_.magic = WEFT_INSTANCE_MAGIC;
  instance_.struct_size = sizeof instance_;
  instance_.core = spec.core;
  instance_.unit = spec.unit.unit;
  instance_.plugin_state = spec.unit.plugin_state;
  instance_.stack = stack_.c_str();
  instance_.place = spec.place;
  instance_.hook_slot = spec.unit.hook_slot;
  instance_.params = params_.values();
  instance_.param_count = params_.count();
}

Result<std::unique_ptr<Instance>> Instance::create(InstanceSpec spec) {
  const weft_unit &unit = *spec.unit.unit;
  WEFT_TRY(ParamSet params, resolve_params(unit.name, unit, spec.settings));
  return std::unique_ptr<Instance>(new Instance(std::move(spec), std::move(params)));
}

Result<std::shared_ptr<Hook>> Hook::create(InstanceSpec spec) {
  const weft_unit &unit = *spec.unit.unit;
  if (unit.kind != WEFT_KIND_HOOK || unit.hook == nullptr || unit.hook->overlay == nullptr)
    return fail(FI_EINVAL, "%s is no hook", unit.name);
  if (spec.unit.hook_slot >= WEFT_MAX_HOOK_SLOTS)
    return fail(FI_ENOSPC, "hook %s: all %d hook slots of the process are taken", unit.name,
                WEFT_MAX_HOOK_SLOTS);
  WEFT_TRY(std::unique_ptr<Instance> instance, Instance::create(std::move(spec)));
  std::shared_ptr<Hook> hook(new Hook(std::move(instance)));
  if (hook->unit().create != nullptr) {
    weft_error why{};
    why.struct_size = sizeof why;
    const int32_t rc = hook->unit().create(hook->instance(), &hook->state_, &why);
    if (rc != 0) {
      Error error = from_c(rc < 0 ? rc : -FI_EOTHER, why);
      if (error.text.empty()) error.text = "create() returned " + std::to_string(rc);
      error.text = std::string("hook ") + unit.name + ": " + error.text;
      return tl::unexpected<Error>(std::move(error));
    }
  }
  hook->created_ = true;
  return hook;
}

Hook::~Hook() {
  if (created_ && unit().destroy != nullptr) unit().destroy(state_);
}

}  // namespace weft
