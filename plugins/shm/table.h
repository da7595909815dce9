// SPDX-License-Identifier: BSD-2-Clause
// Table: objects that another process may name by an id. An id is a place and a generation, so that
// a wrong one, or one of before, names nothing.
//
// Example:
//    struct Call : Numbered {
//      int value = 0;
//    };
//    inline int value_of(Table<Call> &calls, uint64_t id) {
//      const Call *const call = calls.find(id);  // null: there is none
//      return call != nullptr ? call->value : -1;
//    }
//
// Memory is kept until the table goes, and objects are not made anew. Not for whose an object is:
// the caller checks that the process that names it may do so.
#ifndef WEFT_PLUGINS_SHM_TABLE_H
#define WEFT_PLUGINS_SHM_TABLE_H

#include <weft/sdk/memory/room.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <new>
#include <vector>

namespace weft::shm {

struct Numbered {
  uint32_t place = 0, generation = 0;
  bool taken = false;
  uint64_t id() const { return uint64_t(generation) << 32 | place; }
};

template <class T>
class Table {
 public:
  explicit Table(size_t limit) : limit_(limit) {}

  // Null: `limit` are taken, or there is no memory.
  T *take() {
    if (free_.empty() && !grow()) return nullptr;
    T *const object = free_.back();
    free_.pop_back();
    object->taken = true;
    return object;
  }
  void give(T &object) {
    object.taken = false;
    ++object.generation;
    free_.push_back(&object);  // there is room for all
  }
  T *find(uint64_t id) {
    const uint32_t place = uint32_t(id);
    if (place >= all_.size()) return nullptr;
    T &object = all_[place];
    return object.taken && object.generation == id >> 32 ? &object : nullptr;
  }
  template <class F>
  void visit(F each) {
    for (T &object : all_)
      if (object.taken) each(object);
  }
  size_t in_use() const { return all_.size() - free_.size(); }

 private:
  bool grow() {
    if (all_.size() >= limit_) return false;
    try {
      sdk::have_room(free_, all_.size() + 1);
      T &object = all_.emplace_back();
      object.place = uint32_t(all_.size() - 1);
      free_.push_back(&object);
    } catch (const std::bad_alloc &) {
      return false;
    }
    return true;
  }

  const size_t limit_;
  std::deque<T> all_;
  std::vector<T *> free_;
};

}  // namespace weft::shm

#endif
