// SPDX-License-Identifier: BSD-2-Clause
// All live objects that weft plugins made, and the hooks on them. The core's object_opened and
// object_closing services end here.
//
// Example:
//    #include <rdma/fi_domain.h>
//    Result<void> watch(ObjectTable &table, fid_domain &domain, std::shared_ptr<Hook> trace) {
//      // To a running program: the domain, what it opened, and what it will open.
//      WEFT_CHECK(table.attach(&domain.fid, std::move(trace)));
//      return table.detach(&domain.fid, "trace");
//    }
//
// Plugins call opened() for each object that they make. When it returns, the hooks of the stack and
// those of the object's parents are on the object.
//
// A hook is attached in place (object_hooks.h), while other threads may be in calls on the object.
// An object with no hook costs a record and nothing per call.
//
// The plugins own the objects. There is no access control: code that may call fi_close() on an
// object may hook it.
#ifndef WEFT_CORE_STACK_OBJECT_TABLE_H
#define WEFT_CORE_STACK_OBJECT_TABLE_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdint>
#include <functional>
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

  // What an element says of an fi_info with which one of its objects is to be opened.
  using CheckInfo = std::function<Result<void>(uint32_t api_version, const fi_info &info)>;

  // An element of a stack that makes objects. `hooks` (outermost first) come to each of them. When
  // the element is removed, no object of it may be open.
  void add_element(const weft_instance *instance, std::vector<std::shared_ptr<Hook>> hooks,
                   CheckInfo check = {});
  void remove_element(const weft_instance *instance);
  // By the element of `instance`, which has an open fabric or is about to open one.
  Result<void> check_info(const weft_instance *instance, uint32_t api_version,
                          const fi_info &info) const;

  // Puts a hook on a live object, on all objects opened from it and on all that will be, outside
  // the hooks that are there. detach() takes it off again; hooks of the stack itself stay.
  Result<void> attach(struct fid *root, std::shared_ptr<Hook> hook);
  Result<void> detach(struct fid *root, std::string_view hook);

  // The element that made a live object; null if `fid` is none. `fid` may be any pointer: it is
  // compared with those of the live objects before it is used.
  const weft_instance *element_of(const struct fid *fid) const;

  // Sets the name under which a fabric was opened, and an owner that must outlive the fabric.
  // reap() drops the owners of closed fabrics. It is called where this thread is in no plugin's
  // fi_close().
  void own_fabric(struct fid *fid, std::string name, std::shared_ptr<void> owner);
  void reap();
  // The first open fabric of an owner with this name; whether `fid` is such a fabric; the owner of
  // the fabric from which an object was opened.
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

  // Calls `visit` for each open fabric, the oldest first, without a lock held. The fabric stays
  // open meanwhile, and its hooks stay as they are. Passes on what `visit` throws.
  struct Visited {
    uint64_t id;
    struct fid *fid;
    const weft_instance *element;
    std::string name;  // under which the application opened it; empty: an inner one
    std::vector<std::shared_ptr<Hook>> hooks;  // outermost first
  };
  void visit_fabrics(const std::function<void(const Visited &fabric)> &visit) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft

#endif
