// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/object_table.h"

#include <rdma/providers/fi_log.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <list>
#include <mutex>
#include <new>
#include <unordered_map>

#include "core/stack/op_tables.h"

#ifdef __SANITIZE_THREAD__
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

namespace weft {
namespace {

// Tells ThreadSanitizer not to watch what this thread writes: tables, links and the states of
// hooks, which other threads reach only through a pointer that is stored with release order
// afterwards. They load it by an ordinary load, in an inline function of the public headers, so
// that no sanitizer can see the order (tests/tsan.supp).
class Unwatched {
 public:
#ifdef __SANITIZE_THREAD__
  Unwatched() {
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unwatched() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  }
#else
  Unwatched() {}
#endif
  Unwatched(const Unwatched &) = delete;
  Unwatched &operator=(const Unwatched &) = delete;
};

using HookList = std::vector<std::shared_ptr<Hook>>;  // outermost first

weft_fid_header *header_of(struct fid *fid) {
  return reinterpret_cast<weft_fid_header *>(fid) - 1;
}

// One hook on one object. Lives until the object closes, attached or not, since a thread may be in
// it.
struct Link {
  weft_hook_link c{};
  std::shared_ptr<Hook> hook;
};

// Made when the first hook comes to an object.
struct Hooked {
  weft_hook_link *slots[WEFT_MAX_HOOK_SLOTS] = {};
  std::vector<std::unique_ptr<Link>> links;  // all that ever were
  std::vector<Link *> active;                // outermost first

  // By place of the object's class: what the plugin put there, and what we put there last.
  std::array<const void *, 8> original{};
  std::array<const void *, 8> published{};

  // Every table made so far, by what it was made of: the same combination gives the same table
  // again, so memory is bounded by the combinations that occur, not by how often hooks come and go.
  struct Made {
    const void *base;
    const void *hook;  // null: only completed
    Table table;
    TableCopy copy;
  };
  std::vector<Made> made;

  const void *make(Table table, const void *base, const void *hook) {
    for (const Made &one : made) {
      if (one.base == base && one.hook == hook && one.table == table) return one.copy.get();
    }
    TableCopy copy = complete(table, base);
    if (copy == nullptr) return nullptr;
    if (hook != nullptr) overlay(copy.get(), hook);
    made.push_back({base, hook, table, std::move(copy)});
    return made.back().copy.get();
  }
};

struct Record {
  Record *previous = nullptr, *next = nullptr;
  struct fid *fid = nullptr;
  Record *parent = nullptr;
  uint64_t id = 0;
  uint32_t children = 0;
  uint32_t pins = 0;  // somebody will work on the hooks of this object, which must not go before
  bool busy = false;  // somebody does
  const weft_instance *element = nullptr;
  HookList live;  // attached to the running program, to this object or one above it; children
                  // inherit them
  std::unique_ptr<Hooked> hooked;
  std::unique_ptr<std::string> name;       // fabrics only, as is the next
  std::list<std::shared_ptr<void>> owner;  // what must live as long as this fabric: one or none

  bool is_named(const void *by, std::string_view wanted) const {
    return name != nullptr && *name == wanted && !owner.empty() && owner.front().get() == by;
  }
};

bool overlays_any(const weft_op_tables &tables, size_t fclass) {
  for (const TablePlace &place : places_of(fclass)) {
    if (table_in(tables, place.table) != nullptr) return true;
  }
  return false;
}

// Computes the tables of the object's active links from the wire outward and publishes them. What
// is published first is what outer links call through, so that a call never meets a table that is
// not there yet. False: no memory; nothing was changed.
bool publish(struct fid *fid, Hooked &hooked) try {
  const Unwatched writes;
  const std::span<const TablePlace> places = places_of(fid->fclass);
  std::array<const void *, 8> outermost{};
  std::vector<std::array<const void *, 8>> beneath(hooked.active.size());
  for (size_t p = 0; p < places.size(); ++p) {
    const Table table = places[p].table;
    // A plugin may have replaced its table since (fi_setopt, fi_enable): then that is the one to
    // build on.
    const void *now = load_table(fid, places[p]);
    if (now != hooked.published[p]) hooked.original[p] = hooked.published[p] = now;
    const void *current = hooked.original[p];
    for (size_t i = hooked.active.size(); i-- > 0;) {
      const Link &link = *hooked.active[i];
      const void *next =
          is_complete(table, current) ? current : hooked.make(table, current, nullptr);
      if (next == nullptr) return false;
      beneath[i][p] = next;
      const void *overlaid = table_in(*link.hook->unit().overlay, table);
      if (overlaid != nullptr && (current = hooked.make(table, current, overlaid)) == nullptr)
        return false;
    }
    outermost[p] = current;
  }
  for (size_t i = hooked.active.size(); i-- > 0;) {
    for (size_t p = 0; p < places.size(); ++p)
      publish_table_in(hooked.active[i]->c.next, places[p].table, beneath[i][p]);
  }
  for (size_t i = hooked.active.size(); i-- > 0;) {
    Link &link = *hooked.active[i];
    __atomic_store_n(&hooked.slots[link.c.slot], &link.c, __ATOMIC_RELEASE);
  }
  weft_hook_link **slots = hooked.slots;
  __atomic_store_n(&header_of(fid)->links_core, slots, __ATOMIC_RELEASE);
  for (size_t p = 0; p < places.size(); ++p) {
    if (outermost[p] == hooked.published[p]) continue;
    store_table(fid, places[p], outermost[p]);
    hooked.published[p] = outermost[p];
  }
  return true;
} catch (const std::bad_alloc &) {
  return false;
}

void log_failure(const Hook &hook, const std::string &text) {
  const weft_instance *instance = hook.instance();
  const weft_core_services *core = instance->core;
  if (core != nullptr && core->log != nullptr &&
      (core->log_enabled == nullptr || core->log_enabled(instance, FI_LOG_WARN, FI_LOG_CORE) != 0))
    core->log(instance, FI_LOG_WARN, FI_LOG_CORE, __func__, __LINE__, text.c_str());
}

// Puts one more hook on an object that the caller holds (busy), outside all others. False with a
// text if the hook failed; true also where the hook does not want this object.
bool put_on(Record &record, const std::shared_ptr<Hook> &hook, std::string &text) {
  const Unwatched writes;
  const weft_hook_unit &unit = hook->unit();
  const bool touches = overlays_any(*unit.overlay, record.fid->fclass);
  if (unit.attach == nullptr && !touches) return true;
  if (record.hooked == nullptr) record.hooked = std::make_unique<Hooked>();
  Hooked &hooked = *record.hooked;

  Link *link = nullptr;
  for (const auto &one : hooked.links) {
    if (one->hook == hook) link = one.get();  // it was here before: its state is still good
  }
  if (link == nullptr) {
    void *object_state = nullptr;
    if (unit.attach != nullptr) {
      weft_error why{};
      why.struct_size = sizeof why;
      const int32_t rc = unit.attach(hook->state(), record.fid, &object_state, &why);
      if (rc > 0) return true;
      if (rc < 0) {
        text = from_c(rc, why).text;
        if (text.empty()) text = "attach() returned " + std::to_string(rc);
        return false;
      }
    }
    auto made = std::make_unique<Link>();
    made->hook = hook;
    made->c.struct_size = sizeof made->c;
    made->c.slot = hook->slot();
    made->c.hook_state = hook->state();
    made->c.object_state = object_state;
    made->c.next.struct_size = sizeof made->c.next;
    hooked.links.push_back(std::move(made));
    link = hooked.links.back().get();
  }
  hooked.active.insert(hooked.active.begin(), link);
  if (!publish(record.fid, hooked)) {
    hooked.active.erase(hooked.active.begin());
    text = "no memory for op tables";
    return false;
  }
  return true;
}

// The same, said in the log: an object goes on without a hook that failed.
bool try_put_on(Record &record, const std::shared_ptr<Hook> &hook, std::string &text) noexcept {
  try {
    if (put_on(record, hook, text)) return true;
    log_failure(*hook, "hook " + std::string(hook->name()) + " leaves object " +
                           std::to_string(record.id) + " alone: " + text);
  } catch (const std::bad_alloc &) {
    text.clear();  // "no memory" is all there is to say, and saying more takes some
  }
  return false;
}

bool is_active(const Record &record, uint32_t slot) {
  if (record.hooked == nullptr) return false;
  return std::any_of(record.hooked->active.begin(), record.hooked->active.end(),
                     [&](const Link *link) { return link->c.slot == slot; });
}

}  // namespace

struct ObjectTable::Impl {
  mutable std::mutex mutex;
  mutable std::condition_variable idle;  // some record is no longer busy
  Record *first = nullptr;
  uint64_t next_id = 1;
  std::unordered_map<const weft_instance *, HookList> elements;
  std::list<std::shared_ptr<void>>
      retired;  // owners of closed fabrics, which cannot go while fi_close runs

  // A plugin wrote the header: nothing of it is believed before its magic was seen.
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
  // Takes a record, which the caller has pinned, for work on its hooks; gives it back.
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
  // What is still open stays usable without us: its tables must not point into memory that goes
  // now.
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
        hooks.insert(hooks.end(), element->second.begin(), element->second.end());
      record->parent = above;
      if (above != nullptr) ++above->children;
      record->id = impl_->next_id++;
      // The header is whole before anybody can find the object, who may hook it at once.
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
      if (is_active(*record, hooks[i]->slot())) continue;
      std::string text;
      (void)try_put_on(*record, hooks[i], text);
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
  if (record->hooked != nullptr) {
    Hooked &hooked = *record->hooked;
    const std::span<const TablePlace> places = places_of(fid->fclass);
    for (size_t p = 0; p < places.size(); ++p) {
      if (load_table(fid, places[p]) == hooked.published[p])
        store_table(fid, places[p], hooked.original[p]);
    }
    __atomic_store_n(&header->links_core, nullptr, __ATOMIC_RELEASE);
    for (const auto &link : hooked.links) {
      if (link->hook->unit().release != nullptr)
        link->hook->unit().release(link->c.hook_state, link->c.object_state);
    }
  }
  header->record_core = nullptr;
  header->parent_core = nullptr;
}

void ObjectTable::add_element(const weft_instance *instance, HookList hooks) {
  std::lock_guard lock(impl_->mutex);
  impl_->elements[instance] = std::move(hooks);
}

void ObjectTable::remove_element(const weft_instance *instance) {
  HookList dropped;  // hooks may end here: not under the lock
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
  // A hook of the stack counts even if it left this very object alone: it is on what comes beneath.
  const auto configured = impl_->elements.find(top->element);
  const bool taken = is_active(*top, hook->slot()) ||
                     std::any_of(top->live.begin(), top->live.end(), same_slot) ||
                     (configured != impl_->elements.end() &&
                      std::any_of(configured->second.begin(), configured->second.end(), same_slot));
  if (!taken) {
    // From here on, what is opened beneath comes under the hook by inheritance.
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
    if (wanted && !is_active(*record, hook->slot())) {
      lock.unlock();
      std::string text;
      if (!try_put_on(*record, hook, text) && record == top) {
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
  HookList dropped;  // the last reference may end here: not under the lock
  std::unique_lock lock(impl_->mutex);
  Record *top = impl_->find(root);
  if (top == nullptr) return fail(FI_EINVAL, "hook %s: this is no open object", hook_name.c_str());
  const auto is_named = [&](const std::shared_ptr<Hook> &hook) { return hook->name() == name; };
  const auto configured = impl_->elements.find(top->element);
  const bool of_stack = configured != impl_->elements.end() &&
                        std::any_of(configured->second.begin(), configured->second.end(), is_named);
  bool found = false, failed = false;
  for (Record *record : impl_->pin_subtree(top)) {
    impl_->hold(lock, record);
    const auto at = std::find_if(record->live.begin(), record->live.end(), is_named);
    if (at != record->live.end()) {
      found = true;
      const std::shared_ptr<Hook> hook = *at;
      dropped.push_back(hook);
      record->live.erase(at);
      if (record->hooked != nullptr) {
        std::vector<Link *> &active = record->hooked->active;
        const auto gone = std::find_if(active.begin(), active.end(),
                                       [&](const Link *link) { return link->hook == hook; });
        if (gone != active.end()) {
          Link *const link = *gone;
          const auto place = active.erase(gone);
          if (!publish(record->fid, *record->hooked)) {
            active.insert(place, link);
            failed = true;
          }
        }
      }
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
  std::list<std::shared_ptr<void>> gone;  // they come back to this table: not under the lock
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
    // While somebody changes this object's hooks, they are not for reading.
    if (!record->busy && record->hooked != nullptr) {
      for (const Link *link : record->hooked->active) one.hooks.emplace_back(link->hook->name());
    }
    live.push_back(std::move(one));
  }
  std::reverse(live.begin(), live.end());
  return live;
}

}  // namespace weft
