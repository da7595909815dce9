// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/object_table.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <new>
#include <unordered_map>

#include "core/stack/object_hooks.h"

namespace weft {
namespace {

using HookList = std::vector<std::shared_ptr<Hook>>;  // outermost first

struct Record {
  Record *previous = nullptr, *next = nullptr;
  struct fid *fid = nullptr;
  Record *parent = nullptr;
  uint64_t id = 0;
  uint32_t children = 0;
  uint32_t pins = 0;  // threads that will work on its hooks: it must not close before
  bool busy = false;  // one of them does so now
  const weft_instance *element = nullptr;
  HookList live;  // attached to the running program, to this object or one above it; children
                  // inherit them
  ObjectHooks hooks;
  std::unique_ptr<std::string> name;       // of fabrics only, as is `owner`
  std::list<std::shared_ptr<void>> owner;  // what must live as long as this fabric: one or none

  bool is_named(const void *by, std::string_view wanted) const {
    return name != nullptr && *name == wanted && !owner.empty() && owner.front().get() == by;
  }
};

}  // namespace

struct ObjectTable::Impl {
  mutable std::mutex mutex;
  mutable std::condition_variable idle;  // some record is no longer busy
  Record *first = nullptr;
  uint64_t next_id = 1;
  struct Element {
    HookList hooks;
    CheckInfo check;
  };
  std::unordered_map<const weft_instance *, Element> elements;
  std::list<std::shared_ptr<void>> retired;  // owners of closed fabrics, kept while fi_close() runs

  // A plugin wrote the header: the magic is checked before anything else is used.
  static Record *record_of(struct fid *fid) {
    weft_fid_header *header = header_of(fid);
    return header->magic == WEFT_FID_MAGIC ? static_cast<Record *>(header->record_core) : nullptr;
  }
  Record *find(const struct fid *fid) const {
    for (Record *record = first; record != nullptr; record = record->next) {
      if (record->fid == fid) return record;
    }
    return nullptr;
  }
  // Takes a record for work on its hooks, and gives it back. The caller has pinned it.
  void hold(std::unique_lock<std::mutex> &lock, Record *record) const {
    idle.wait(lock, [&] { return !record->busy; });
    record->busy = true;
  }
  void release(Record *record) const {
    record->busy = false;
    idle.notify_all();
  }
  void unpin(Record *record) const {
    --record->pins;
    idle.notify_all();
  }
  static bool is_under(const Record *record, const Record *root) {
    for (; record != nullptr; record = record->parent) {
      if (record == root) return true;
    }
    return false;
  }
  // The object itself first, then what was opened from it; all pinned.
  std::vector<Record *> pin_subtree(Record *root) const {
    std::vector<Record *> found;
    for (Record *record = first; record != nullptr; record = record->next) {
      if (is_under(record, root)) found.push_back(record);
    }
    std::reverse(found.begin(), found.end());  // the list has the newest first
    for (Record *record : found) ++record->pins;
    return found;
  }
};

ObjectTable::ObjectTable() : impl_(std::make_unique<Impl>()) {}

ObjectTable::~ObjectTable() {
  // Open objects stay usable: their tables must not point into memory that is freed now.
  while (impl_->first != nullptr) closing(impl_->first->fid);
  reap();
}

int32_t ObjectTable::opened(struct fid *fid, struct fid *parent, weft_error *why) {
  try {
    if (fid == nullptr) return to_c({FI_EINVAL, "object_opened: no object"}, why);
    weft_fid_header *header = header_of(fid);
    if (header->magic != WEFT_FID_MAGIC || header->struct_size < sizeof *header)
      return to_c(
          {FI_EINVAL,
           "object_opened: no weft_fid_header in front of the object (a fault of the plugin)"},
          why);
    Record *above = nullptr;
    if (parent != nullptr && (above = Impl::record_of(parent)) == nullptr)
      return to_c(
          {FI_EINVAL, "object_opened: the parent is no open object (a fault of the plugin)"}, why);

    auto owned = std::make_unique<Record>();
    Record *record = owned.get();
    record->fid = fid;
    record->element = header->instance;
    HookList hooks;
    {
      std::lock_guard lock(impl_->mutex);
      const auto element = impl_->elements.find(header->instance);
      if (above != nullptr) record->live = above->live;
      hooks = record->live;
      if (element != impl_->elements.end())
        hooks.insert(hooks.end(), element->second.hooks.begin(), element->second.hooks.end());
      record->parent = above;
      if (above != nullptr) ++above->children;
      record->id = impl_->next_id++;
      // The header is complete before another thread can find the object and hook it.
      header->parent_core = parent;
      header->links_core = nullptr;
      header->id_core = record->id;
      header->record_core = record;
      record->busy = !hooks.empty();
      record->next = impl_->first;
      if (impl_->first != nullptr) impl_->first->previous = record;
      impl_->first = owned.release();
    }
    if (hooks.empty()) return 0;

    for (size_t i = hooks.size(); i-- > 0;) {
      if (record->hooks.has(hooks[i]->slot())) continue;
      std::string text;
      (void)record->hooks.put_on(fid, record->id, hooks[i], text);
    }
    std::lock_guard lock(impl_->mutex);
    impl_->release(record);
    return 0;
  } catch (const std::bad_alloc &) {
    return to_c({FI_ENOMEM, "object_opened: no memory"}, why);
  }
}

void ObjectTable::closing(struct fid *fid) {
  if (fid == nullptr) return;
  Record *record = Impl::record_of(fid);
  if (record == nullptr) return;
  {
    std::unique_lock lock(impl_->mutex);
    impl_->idle.wait(lock, [&] { return !record->busy && record->pins == 0; });
    if (record->previous != nullptr)
      record->previous->next = record->next;
    else
      impl_->first = record->next;
    if (record->next != nullptr) record->next->previous = record->previous;
    if (record->parent != nullptr) --record->parent->children;
    if (record->children > 0) {
      for (Record *one = impl_->first; one != nullptr; one = one->next) {
        if (one->parent == record) one->parent = nullptr;
      }
    }
    impl_->retired.splice(impl_->retired.end(), record->owner);
  }
  const std::unique_ptr<Record> owned(record);
  weft_fid_header *header = header_of(fid);
  record->hooks.close(fid);
  header->record_core = nullptr;
  header->parent_core = nullptr;
}

void ObjectTable::add_element(const weft_instance *instance, HookList hooks, CheckInfo check) {
  std::lock_guard lock(impl_->mutex);
  impl_->elements[instance] = {std::move(hooks), std::move(check)};
}

Result<void> ObjectTable::check_info(const weft_instance *instance, uint32_t api_version,
                                     const fi_info &info) const {
  CheckInfo check;  // it opens devices: not with the lock
  {
    std::lock_guard lock(impl_->mutex);
    const auto found = impl_->elements.find(instance);
    if (found != impl_->elements.end()) check = found->second.check;
  }
  return check ? check(api_version, info) : Result<void>();
}

void ObjectTable::remove_element(const weft_instance *instance) {
  Impl::Element dropped;  // destroys hooks, without the lock
  std::lock_guard lock(impl_->mutex);
  const auto found = impl_->elements.find(instance);
  if (found == impl_->elements.end()) return;
  dropped = std::move(found->second);
  impl_->elements.erase(found);
}

Result<void> ObjectTable::attach(struct fid *root, std::shared_ptr<Hook> hook) {
  const auto same_slot = [&](const std::shared_ptr<Hook> &one) {
    return one->slot() == hook->slot();
  };
  std::unique_lock lock(impl_->mutex);
  Record *top = impl_->find(root);
  if (top == nullptr) return fail(FI_EINVAL, "hook %s: this is no open object", hook->name());
  const std::vector<Record *> records = impl_->pin_subtree(top);
  impl_->hold(lock, top);
  // A hook of the stack counts even if it did not want this object: it is on the objects below.
  const auto configured = impl_->elements.find(top->element);
  const bool taken =
      top->hooks.has(hook->slot()) || std::any_of(top->live.begin(), top->live.end(), same_slot) ||
      (configured != impl_->elements.end() &&
       std::any_of(configured->second.hooks.begin(), configured->second.hooks.end(), same_slot));
  if (!taken) {
    // From here on, objects that are opened from these inherit the hook.
    for (Record *record : records) {
      if (std::none_of(record->live.begin(), record->live.end(), same_slot))
        record->live.insert(record->live.begin(), hook);
    }
  }
  impl_->release(top);

  bool failed = false;
  std::string failure = "no memory";
  for (Record *record : records) {
    impl_->hold(lock, record);
    const bool wanted =
        !taken && std::find(record->live.begin(), record->live.end(), hook) != record->live.end();
    if (wanted && !record->hooks.has(hook->slot())) {
      lock.unlock();
      std::string text;
      if (!record->hooks.put_on(record->fid, record->id, hook, text) && record == top) {
        failed = true;
        if (!text.empty()) failure = text;
      }
      lock.lock();
    }
    impl_->release(record);
    impl_->unpin(record);
  }
  lock.unlock();
  if (taken)
    return fail(FI_EBUSY, "hook %s is on this object already: detach it first", hook->name());
  if (failed) {
    (void)detach(root, hook->name());
    return fail(FI_EOTHER, "hook %s: %s", hook->name(), failure.c_str());
  }
  return {};
}

Result<void> ObjectTable::detach(struct fid *root, std::string_view name) {
  const std::string hook_name(name);
  HookList dropped;  // drops the last references, without the lock
  std::unique_lock lock(impl_->mutex);
  Record *top = impl_->find(root);
  if (top == nullptr) return fail(FI_EINVAL, "hook %s: this is no open object", hook_name.c_str());
  const auto is_named = [&](const std::shared_ptr<Hook> &hook) { return hook->name() == name; };
  const auto configured = impl_->elements.find(top->element);
  const bool of_stack =
      configured != impl_->elements.end() &&
      std::any_of(configured->second.hooks.begin(), configured->second.hooks.end(), is_named);
  bool found = false, failed = false;
  for (Record *record : impl_->pin_subtree(top)) {
    impl_->hold(lock, record);
    const auto at = std::find_if(record->live.begin(), record->live.end(), is_named);
    if (at != record->live.end()) {
      found = true;
      const std::shared_ptr<Hook> hook = *at;
      dropped.push_back(hook);
      record->live.erase(at);
      if (!record->hooks.take_off(record->fid, *hook)) failed = true;
    }
    impl_->release(record);
    impl_->unpin(record);
  }
  lock.unlock();
  if (failed)
    return fail(FI_ENOMEM, "hook %s: no memory to take it off everywhere", hook_name.c_str());
  if (found) return {};
  if (of_stack)
    return fail(FI_EBUSY, "hook %s belongs to the stack: take it out of the configuration",
                hook_name.c_str());
  return fail(FI_ENODATA, "hook %s is not on this object", hook_name.c_str());
}

const weft_instance *ObjectTable::element_of(const struct fid *fid) const {
  std::lock_guard lock(impl_->mutex);
  const Record *record = impl_->find(fid);
  return record != nullptr ? record->element : nullptr;
}

void ObjectTable::own_fabric(struct fid *fid, std::string name, std::shared_ptr<void> owner) {
  auto text = std::make_unique<std::string>(std::move(name));
  std::list<std::shared_ptr<void>> owners;
  owners.push_back(std::move(owner));
  std::lock_guard lock(impl_->mutex);
  Record *record = impl_->find(fid);
  if (record == nullptr) return;
  record->name = std::move(text);
  record->owner = std::move(owners);
}

void ObjectTable::reap() {
  // Their destruction calls this table, so it happens without the lock.
  std::list<std::shared_ptr<void>> gone;
  std::lock_guard lock(impl_->mutex);
  gone.swap(impl_->retired);
}

struct fid *ObjectTable::find_fabric(const void *owner, std::string_view name) const {
  std::lock_guard lock(impl_->mutex);
  const Record *oldest = nullptr;
  for (const Record *record = impl_->first; record != nullptr; record = record->next) {
    if (record->is_named(owner, name)) oldest = record;  // newest first in the list
  }
  return oldest != nullptr ? oldest->fid : nullptr;
}

bool ObjectTable::is_fabric(const struct fid *fid, const void *owner, std::string_view name) const {
  std::lock_guard lock(impl_->mutex);
  const Record *record = impl_->find(fid);
  return record != nullptr && record->is_named(owner, name);
}

const void *ObjectTable::owner_of(const struct fid *fid) const {
  std::lock_guard lock(impl_->mutex);
  const Record *record = impl_->find(fid);
  while (record != nullptr && record->owner.empty()) record = record->parent;
  return record != nullptr ? record->owner.front().get() : nullptr;
}

std::vector<ObjectTable::Live> ObjectTable::list() const {
  std::unique_lock lock(impl_->mutex);
  std::vector<Live> live;
  for (Record *record = impl_->first; record != nullptr; record = record->next) {
    Live one{record->id, record->fid, record->parent != nullptr ? record->parent->fid : nullptr,
             {},         {},          record->fid->fclass};
    if (record->element != nullptr && record->element->unit != nullptr)
      one.element = record->element->unit->name;
    // While another thread changes the hooks of this object, they cannot be read.
    if (!record->busy) one.hooks = record->hooks.names();
    live.push_back(std::move(one));
  }
  std::reverse(live.begin(), live.end());
  return live;
}

void ObjectTable::visit_fabrics(const std::function<void(const Visited &fabric)> &visit) const {
  std::unique_lock lock(impl_->mutex);
  std::vector<Record *> fabrics;
  for (Record *record = impl_->first; record != nullptr; record = record->next) {
    if (record->fid->fclass == FI_CLASS_FABRIC) fabrics.push_back(record);
  }
  for (Record *record : fabrics) ++record->pins;
  std::exception_ptr thrown;
  for (; !fabrics.empty(); fabrics.pop_back()) {  // the list has the newest first
    Record *record = fabrics.back();
    if (thrown == nullptr) {
      impl_->hold(lock, record);
      try {
        const Visited fabric{record->id, record->fid, record->element,
                             record->name != nullptr ? *record->name : std::string(),
                             record->hooks.active()};
        lock.unlock();
        visit(fabric);
      } catch (...) {
        thrown = std::current_exception();
      }
      if (!lock.owns_lock()) lock.lock();
      impl_->release(record);
    }
    impl_->unpin(record);
  }
  lock.unlock();
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace weft
