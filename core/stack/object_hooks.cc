// SPDX-License-Identifier: BSD-2-Clause
#include "core/stack/object_hooks.h"

#include <rdma/providers/fi_log.h>

#include <algorithm>
#include <array>
#include <new>
#include <span>
#include <utility>

#include "core/stack/op_tables.h"

#ifdef __SANITIZE_THREAD__
extern "C" void AnnotateIgnoreWritesBegin(const char *file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char *file, int line);
#endif

namespace weft {
namespace {

// Tells ThreadSanitizer not to watch what this thread writes: tables, links and the states of
// hooks. Other threads reach them only through a pointer that is stored with release order
// afterwards. They load it by an ordinary load, in an inline function of the public headers, so
// no sanitizer can see the order (tests/tsan.supp).
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

// By place of an object's class (places_of()).
using PlacePointers = std::array<const void *, 8>;

// One hook on one object. Lives until the object closes, attached or not, since a thread may be in
// it.
struct Link {
  weft_hook_link c{};
  std::shared_ptr<Hook> hook;
};

bool overlays_any(const weft_op_tables &tables, size_t fclass) {
  for (const TablePlace &place : places_of(fclass)) {
    if (table_in(tables, place.table) != nullptr) return true;
  }
  return false;
}

void log_failure(const Hook &hook, const std::string &text) {
  const weft_instance *instance = hook.instance();
  const weft_core_services *core = instance->core;
  if (core != nullptr && core->log != nullptr &&
      (core->log_enabled == nullptr || core->log_enabled(instance, FI_LOG_WARN, FI_LOG_CORE) != 0))
    core->log(instance, FI_LOG_WARN, FI_LOG_CORE, __func__, __LINE__, text.c_str());
}

}  // namespace

// Made when the first hook comes to an object.
struct ObjectHooks::State {
  weft_hook_link *slots[WEFT_MAX_HOOK_SLOTS] = {};
  std::vector<std::unique_ptr<Link>> links;  // all that ever were
  std::vector<Link *> active;                // outermost first

  PlacePointers original{};   // the plugin's tables
  PlacePointers published{};  // the tables that this class put there last

  // Every table made so far, with what it was made of. The same combination uses the same table
  // again, so attaching and detaching often costs no more memory.
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

  Link *link_of(const Hook &hook) const {
    for (const auto &one : links) {
      if (one->hook.get() == &hook) return one.get();
    }
    return nullptr;
  }

  Link *add_link(const std::shared_ptr<Hook> &hook, void *object_state) {
    auto link = std::make_unique<Link>();
    link->hook = hook;
    link->c.struct_size = sizeof link->c;
    link->c.slot = hook->slot();
    link->c.hook_state = hook->state();
    link->c.object_state = object_state;
    link->c.next.struct_size = sizeof link->c.next;
    links.push_back(std::move(link));
    return links.back().get();
  }

  // The tables of one place, computed from the wire outward: `beneath[i]` is what the active link i
  // calls, `outermost` what the object gets. False: no memory.
  bool compute(Table table, size_t place, std::vector<PlacePointers> &beneath,
               PlacePointers &outermost) {
    const void *current = original[place];
    for (size_t i = active.size(); i-- > 0;) {
      const void *next = is_complete(table, current) ? current : make(table, current, nullptr);
      if (next == nullptr) return false;
      beneath[i][place] = next;
      const void *overlaid = table_in(*active[i]->hook->unit().overlay, table);
      if (overlaid != nullptr && (current = make(table, current, overlaid)) == nullptr)
        return false;
    }
    outermost[place] = current;
    return true;
  }

  // Computes the tables of the active links and publishes them. The tables that outer links call
  // are published first, so that a call never meets a table that is not there yet. False: no
  // memory; nothing was changed.
  bool publish(struct fid *fid) try {
    const Unwatched writes;
    const std::span<const TablePlace> places = places_of(fid->fclass);
    PlacePointers outermost{};
    std::vector<PlacePointers> beneath(active.size());
    for (size_t p = 0; p < places.size(); ++p) {
      // A plugin may have replaced its table since (fi_setopt, fi_enable): then the new one is the
      // one to build on.
      const void *now = load_table(fid, places[p]);
      if (now != published[p]) original[p] = published[p] = now;
      if (!compute(places[p].table, p, beneath, outermost)) return false;
    }
    for (size_t i = active.size(); i-- > 0;) {
      for (size_t p = 0; p < places.size(); ++p)
        publish_table_in(active[i]->c.next, places[p].table, beneath[i][p]);
    }
    for (size_t i = active.size(); i-- > 0;)
      __atomic_store_n(&slots[active[i]->c.slot], &active[i]->c, __ATOMIC_RELEASE);
    weft_hook_link **first_slot = slots;
    __atomic_store_n(&header_of(fid)->links_core, first_slot, __ATOMIC_RELEASE);
    for (size_t p = 0; p < places.size(); ++p) {
      if (outermost[p] == published[p]) continue;
      store_table(fid, places[p], outermost[p]);
      published[p] = outermost[p];
    }
    return true;
  } catch (const std::bad_alloc &) {
    return false;
  }
};

ObjectHooks::ObjectHooks() = default;
ObjectHooks::~ObjectHooks() = default;

bool ObjectHooks::has(uint32_t slot) const {
  if (state_ == nullptr) return false;
  return std::any_of(state_->active.begin(), state_->active.end(),
                     [&](const Link *link) { return link->c.slot == slot; });
}

std::vector<std::string> ObjectHooks::names() const {
  std::vector<std::string> names;
  if (state_ == nullptr) return names;
  for (const Link *link : state_->active) names.emplace_back(link->hook->name());
  return names;
}

std::vector<std::shared_ptr<Hook>> ObjectHooks::active() const {
  std::vector<std::shared_ptr<Hook>> hooks;
  if (state_ == nullptr) return hooks;
  for (const Link *link : state_->active) hooks.push_back(link->hook);
  return hooks;
}

bool ObjectHooks::try_put_on(struct fid *fid, const std::shared_ptr<Hook> &hook,
                             std::string &text) {
  const Unwatched writes;
  const weft_hook_unit &unit = hook->unit();
  if (unit.attach == nullptr && !overlays_any(*unit.overlay, fid->fclass)) return true;
  if (state_ == nullptr) state_ = std::make_unique<State>();

  Link *link = state_->link_of(*hook);  // it was here before: its state is still good
  if (link == nullptr) {
    void *object_state = nullptr;
    if (unit.attach != nullptr) {
      weft_error why{};
      why.struct_size = sizeof why;
      const int32_t rc = unit.attach(hook->state(), fid, &object_state, &why);
      if (rc > 0) return true;
      if (rc < 0) {
        text = from_c(rc, why).text;
        if (text.empty()) text = "attach() returned " + std::to_string(rc);
        return false;
      }
    }
    link = state_->add_link(hook, object_state);
  }
  state_->active.insert(state_->active.begin(), link);
  if (!state_->publish(fid)) {
    state_->active.erase(state_->active.begin());
    text = "no memory for op tables";
    return false;
  }
  return true;
}

bool ObjectHooks::put_on(struct fid *fid, uint64_t id, const std::shared_ptr<Hook> &hook,
                         std::string &text) noexcept {
  try {
    if (try_put_on(fid, hook, text)) return true;
    log_failure(*hook, "hook " + std::string(hook->name()) + " leaves object " +
                           std::to_string(id) + " alone: " + text);
  } catch (const std::bad_alloc &) {
    text.clear();  // a longer text than none would need memory
  }
  return false;
}

bool ObjectHooks::take_off(struct fid *fid, const Hook &hook) {
  if (state_ == nullptr) return true;
  std::vector<Link *> &active = state_->active;
  const auto gone = std::find_if(active.begin(), active.end(),
                                 [&](const Link *link) { return link->hook.get() == &hook; });
  if (gone == active.end()) return true;
  Link *const link = *gone;
  const auto place = active.erase(gone);
  if (state_->publish(fid)) return true;
  active.insert(place, link);
  return false;
}

void ObjectHooks::close(struct fid *fid) {
  if (state_ == nullptr) return;
  const std::span<const TablePlace> places = places_of(fid->fclass);
  for (size_t p = 0; p < places.size(); ++p) {
    if (load_table(fid, places[p]) == state_->published[p])
      store_table(fid, places[p], state_->original[p]);
  }
  __atomic_store_n(&header_of(fid)->links_core, nullptr, __ATOMIC_RELEASE);
  for (const auto &link : state_->links) {
    if (link->hook->unit().release != nullptr)
      link->hook->unit().release(link->c.hook_state, link->c.object_state);
  }
}

}  // namespace weft
