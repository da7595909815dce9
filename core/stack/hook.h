// SPDX-License-Identifier: BSD-2-Clause
// Hook: one hook, of a stack or attached to a running program. Instance: what any unit sees of the
// core.
//
// Example:
//    Result<std::shared_ptr<Hook>> trace(const LoadedUnit &unit,
//                                        const weft_core_services &services) {
//      return Hook::create({.unit = unit, .stack = "tcp", .settings = {}, .core = &services});
//    }
//
// It is destroyed (with the unit's destroy()) after the stack and every object that the hook was
// ever on. It does not touch objects: ObjectTable does.
#ifndef WEFT_CORE_STACK_HOOK_H
#define WEFT_CORE_STACK_HOOK_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/unit.h"
#include "core/stack/params.h"

namespace weft {

// What an instance is made of.
struct InstanceSpec {
  LoadedUnit unit;
  std::string stack;              // in OFI's notation, from the wire up
  uint32_t place = 0;             // 0: outermost
  std::vector<Setting> settings;  // weakest first
  const weft_core_services *core = nullptr;
};

// A weft_instance and what its pointers point to. Its address identifies it.
class Instance {
 public:
  static Result<std::unique_ptr<Instance>> create(InstanceSpec spec);
  Instance(const Instance &) = delete;
  Instance &operator=(const Instance &) = delete;

  const weft_instance *c() const { return &instance_; }
  const weft_unit &unit() const { return *instance_.unit; }

 private:
  Instance(InstanceSpec spec, ParamSet params);

  std::string stack_;
  ParamSet params_;
  weft_instance instance_{};
};

class Hook {
 public:
  // Calls the unit's create().
  static Result<std::shared_ptr<Hook>> create(InstanceSpec spec);
  ~Hook();
  Hook(const Hook &) = delete;
  Hook &operator=(const Hook &) = delete;

  const char *name() const { return instance_->unit().name; }
  uint32_t slot() const { return instance_->c()->hook_slot; }
  const weft_instance *instance() const { return instance_->c(); }
  const weft_hook_unit &unit() const { return *instance_->unit().hook; }
  void *state() const { return state_; }

 private:
  explicit Hook(std::unique_ptr<Instance> instance) : instance_(std::move(instance)) {}

  std::unique_ptr<Instance> instance_;
  void *state_ = nullptr;
  bool created_ = false;
};

}  // namespace weft

#endif
