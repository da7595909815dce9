// SPDX-License-Identifier: BSD-2-Clause
// All live objects that weft plugins made, and the hooks on them. The core's object_opened and
// object_closing services end here.
//
//   ObjectTable table;
//   table.add_element(instance, {hooks above this element, outermost first});
//   table.opened(&ep->fid, &domain->fid, &why);    // by the plugin; the hooks are on before it
//   returns table.attach(&domain->fid, hook);               // to a running program: this object,
//   what it opened, and will open table.detach(&domain->fid, "trace");
//
// A hook is attached in place: the object's op tables are copied, the ops that the hook names are
// laid over, and the copy is published, while other threads may be in calls on the object. What a
// thread may still be reading is kept until the object closes, and is used again if the same hook
// comes back. An object with no hook costs a record and nothing per call.
//
// Not the owner of objects (plugins are) and no access control: whoever may call fi_close on an
// object may hook it.
#ifndef WEFT_CORE_STACK_OBJECT_TABLE_H
#define WEFT_CORE_STACK_OBJECT_TABLE_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/stack/hook.h"

namespace weft {

class ObjectTable {
 public:
  ObjectTable();
  ~ObjectTable();
  ObjectTable(const ObjectTable &) = delete;
  ObjectTable &operator=(const ObjectTable &) = delete;

  // The services of weft_core_services.
  int32_t opened(struct fid *fid, struct fid *parent, weft_error *why);
  void closing(struct fid *fid);

  // An element of a stack that makes objects; `hooks` (outermost first) come under every one of
  // them. No object of it may be left when it is removed.
  void add_element(const weft_instance *instance, std::vector<std::shared_ptr<Hook>> hooks);
  void remove_element(const weft_instance *instance);

  // Hangs a hook on a live object, on all that was opened from it and on all that will be; outside
  // the hooks that are there. Takes it off again; hooks that the stack itself names stay.
  Result<void> attach(struct fid *root, std::shared_ptr<Hook> hook);
  Result<void> detach(struct fid *root, std::string_view hook);

  // The element that made a live object; null if this is none. The pointer is only compared, never
  // followed, until it is known.
  const weft_instance *element_of(const struct fid *fid) const;

  // The name under which a fabric was opened and what must outlive it. Owners of closed fabrics go
  // in reap(), which is called where no plugin's fi_close can be running on this thread.
  void own_fabric(struct fid *fid, std::string name, std::shared_ptr<void> owner);
  void reap();
  // The first open fabric of an owner with this name; whether this is one; whose fabric an object
  // was opened from.
  struct fid *find_fabric(const void *owner, std::string_view name) const;
  bool is_fabric(const struct fid *fid, const void *owner, std::string_view name) const;
  const void *owner_of(const struct fid *fid) const;

  struct Live {
    uint64_t id;
    struct fid *fid;
    struct fid *parent;              // null for a fabric
    std::string element;             // name of the unit that made it
    std::vector<std::string> hooks;  // outermost first
    size_t fclass = 0;               // FI_CLASS_...
  };
  std::vector<Live> list() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif
