// SPDX-License-Identifier: BSD-2-Clause
// Stacks: composes loaded units into a provider, from the wire up, and hangs hooks at their places.
//
// Example:
//    Result<fid_fabric *> open(const LoadedUnit &trace, const LoadedUnit &rxm,
//                              const LoadedUnit &tcp, const weft_core_services &services,
//                              ObjectTable &objects, fi_fabric_attr &attr) {
//      StackPlan plan{.name = "tcp;ofi_rxm",  // the name is from the wire up, the elements are
//                     // from the application down
//                     .elements = {{trace, {}}, {rxm, {}}, {tcp, {}}}};
//      WEFT_TRY(const std::shared_ptr<Stack> stack, Stack::build(plan, &services, &objects));
//      return stack->fabric(&attr, nullptr);
//    }
//
// A layer gets the provider beneath it as an argument. The answers to its questions are filtered by
// its hints, like those to an application. A hook makes no object: it is put on the objects of the
// nearest element beneath it that is no hook (ObjectTable). A stack lives until its last holder
// drops it and its last fabric is closed. Its units are destroyed from the outside in.
//
// It chooses nothing: core/select makes the plan.
#ifndef WEFT_CORE_STACK_STACK_H
#define WEFT_CORE_STACK_STACK_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/unit.h"
#include "core/match/match.h"
#include "core/stack/object_table.h"
#include "core/stack/params.h"

namespace weft {

struct PlanElement {
  LoadedUnit unit;
  std::vector<Setting> settings;  // weakest first
};

struct StackPlan {
  std::string name;                   // prov_name, from the wire up, without hooks
  std::vector<PlanElement> elements;  // from the application down to the wire
};

// What is needed to judge an order of elements before anything is loaded.
struct ElementKind {
  std::string name;
  uint32_t kind = 0;
  uint32_t needs_ep = 0, offers_ep = 0;  // 0: not stated
};
// One provider, at the bottom; each layer finds an endpoint type that it needs; no layer twice; no
// hook twice on one element.
Result<void> check_order(const std::vector<ElementKind> &elements);

class Stack : public std::enable_shared_from_this<Stack> {
 public:
  static Result<std::shared_ptr<Stack>> build(const StackPlan &plan,
                                              const weft_core_services *services,
                                              ObjectTable *objects);
  ~Stack();
  Stack(const Stack &) = delete;
  Stack &operator=(const Stack &) = delete;

  const std::string &name() const { return name_; }

  // The offers of the stack for these arguments of fi_getinfo(), filtered and narrowed by the
  // hints, best first. `rejected` gets each of the other offers and why it does not fit. An error
  // is the provider's own.
  using Rejected = std::function<void(const fi_info &offer, const Match &why)>;
  Result<std::vector<struct fi_info *>> getinfo(uint32_t version, const char *node,
                                                const char *service, uint64_t flags,
                                                const fi_info *hints, const Rejected &rejected);

  Result<struct fid_fabric *> fabric(struct fi_fabric_attr *attr, void *context);
  struct fid *open_fabric(std::string_view name) const;  // the first one with this name, or null
  bool opened_as(const struct fid *fabric, std::string_view name) const;

  // Whether an object was opened from a fabric of this stack, by the application.
  bool made(const struct fid *fid) const;

  // What each element found on this machine and how it decided, from the application down.
  struct Explanation {
    std::string element;
    std::vector<std::string> lines;
  };
  std::vector<Explanation> explain();

 private:
  struct Element;
  Stack(std::string name, const weft_core_services *services, ObjectTable *objects);
  Result<void> add(const PlanElement &planned, uint32_t place);

  std::string name_;
  const weft_core_services *services_;
  ObjectTable *objects_;
  std::vector<std::unique_ptr<Element>> elements_;  // from the wire up, hooks not among them
};

}  // namespace weft

#endif
