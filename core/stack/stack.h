// SPDX-License-Identifier: BSD-2-Clause
// Stacks: composes loaded units into a provider, from the wire up, and hangs hooks at their places.
//
//   Result<std::shared_ptr<Stack>> stack = builder.build(spec, why);
//   (*stack)->getinfo(...); (*stack)->fabric(attr, &fabric, context);
//
// A layer gets the provider beneath it as an argument. A hook makes no object: it is attached to the op tables of the objects of
// the element beneath it (ObjectTable). Building is iterative and refuses a stack that names one layer or hook twice in a row.
#ifndef WEFT_CORE_STACK_STACK_H
#define WEFT_CORE_STACK_STACK_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/decision.h"

namespace weft {

class Stack;

// All live objects of the process that weft plugins made, and the hooks on them. The core's object_opened and
// object_closing services end here.
class ObjectTable {
 public:
  ObjectTable();
  ~ObjectTable();
  int32_t opened(struct fid *fid, struct fid *parent, weft_error *why);
  void closing(struct fid *fid);

  // Attaches a hook in place to every live object that `instance` of a stack element made (or to one object and its future
  // children), and to those opened later; detaches it again. Safe under traffic: other threads may be in the objects' ops.
  Result<void> attach(struct fid *root, const weft_instance *hook, void *hook_state);
  Result<void> detach(struct fid *root, const weft_instance *hook);

  struct Live {
    uint64_t id;
    struct fid *fid;
    struct fid *parent;
    std::string element;             // unit that made it
    std::vector<std::string> hooks;  // outermost first
  };
  std::vector<Live> list() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif
