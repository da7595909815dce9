// SPDX-License-Identifier: BSD-2-Clause
// Stacks: composes loaded units into a provider, from the wire up, and hangs hooks at their places.
// A stack is a tree: a layer may stand over several providers.
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
// A layer gets the providers beneath it as an argument. The answers to its questions are filtered
// by its hints, like those to an application; where there are several providers, what one of them
// refuses begins with its place: "branch 2 (tcp;ofi_rxm): ...". A hook makes no object: it is put
// on the objects of the nearest element beneath it that is no hook (ObjectTable), so in a branch it
// sees the objects of that branch only. A stack lives until its last holder drops it and its last
// fabric is closed. Its units are destroyed from the outside in.
//
// Names and places of a tree are those of weft/plugin.h, weft_instance.
//
// It chooses nothing: core/select makes the plan.
#ifndef WEFT_CORE_STACK_STACK_H
#define WEFT_CORE_STACK_STACK_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/plugin_calls.h"
#include "core/base/unit.h"
#include "core/match/match.h"
#include "core/stack/check_order.h"
#include "core/stack/object_table.h"
#include "core/stack/params.h"
#include "core/stack/usable_settings.h"

namespace weft {

struct PlanElement {
  LoadedUnit unit;
  std::vector<Setting> settings;  // weakest first
  // Of the last element, if it is a layer over several providers: a chain for each of them.
  std::vector<std::vector<PlanElement>> branches = {};
};

struct StackPlan {
  std::string name;                         // from the wire up, without hooks; prov_name
  std::vector<PlanElement> elements;        // from the application down to the wire
  uint32_t version = 0;                     // prov_version; 0: that of the outermost unit
  uint32_t protocol = 0;                    // of the provider whose place it takes; 0: of none
  std::shared_ptr<PluginCalls> calls = {};  // knows what is called
  TellLine tell = {};          // gets a line for each variable that a unit does not take
  std::string prov_name = {};  // what applications see in place of `name`; empty: that
};

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
  // hints, best first. `rejected` gets each of the other offers and why it does not fit.
  // `branch_refused` gets what each branch of a layer said that had nothing for the layer, in
  // words; the layer may have answered all the same. An error is the provider's own.
  using Rejected = std::function<void(const fi_info &offer, const Match &why)>;
  using BranchRefused = std::function<void(const std::string &why)>;
  Result<std::vector<struct fi_info *>> getinfo(uint32_t version, const char *node,
                                                const char *service, uint64_t flags,
                                                const fi_info *hints, const Rejected &rejected,
                                                const BranchRefused &branch_refused = {});

  Result<struct fid_fabric *> fabric(struct fi_fabric_attr *attr, void *context);
  struct fid *open_fabric(std::string_view name) const;  // the first one with this name, or null
  bool opened_as(const struct fid *fabric, std::string_view name) const;

  // Whether an object was opened from a fabric of this stack, by the application.
  bool made(const struct fid *fid) const;

  // What each element found on this machine and how it decided, from the application down. The
  // last element of a chain has the branches, if any.
  struct Explanation {
    std::string element;
    std::vector<std::string> lines;
    std::vector<std::vector<Explanation>> branches = {};
  };
  std::vector<Explanation> explain();

 private:
  struct Element;
  struct Asking {  // a thread that is in getinfo()
    std::thread::id thread;
    const BranchRefused *refused;
  };
  Stack(std::string name, const weft_core_services *services, ObjectTable *objects,
        std::shared_ptr<PluginCalls> calls, TellLine tell);
  // Builds a chain and its branches, from the wire up. `place` is that of its first element. The
  // result is its outermost provider or layer.
  Result<Element *> add_chain(const std::vector<PlanElement> &chain, uint32_t place);
  Result<Element *> add(const PlanElement &planned, uint32_t place, std::vector<Element *> inner);
  Result<void> add_hook(const PlanElement &planned, uint32_t place, Element &beneath);
  static std::vector<Explanation> explain_chain(const Element *outermost);
  void tell_branch_refused(const std::string &why);

  std::string name_;
  const weft_core_services *services_;
  ObjectTable *objects_;
  std::shared_ptr<PluginCalls> calls_;
  TellLine tell_;
  // From the wire up, hooks not among them: one branch after the other, then the layer above them.
  std::vector<std::unique_ptr<Element>> elements_;
  std::mutex asking_mutex_;
  std::vector<Asking> asking_;
};

}  // namespace weft

#endif
