// SPDX-License-Identifier: BSD-2-Clause
// Store: the trace file of this process, with its rings. All instances of the hook share one.
//
// Example:
//    weft::Result<void> record_a_send(const StoreOptions &options, uint64_t begin) {
//      WEFT_TRY(Store *store, Store::join(options));  // makes the file, or adds a user
//      if (Slot *slot = store->slot()) slot->write({.begin = begin, .op = uint16_t(Op::send)});
//      store->leave();                                // the last user removes the file
//      return {};
//    }
//
// A thread takes a ring with its first record and gives it back when it ends. It writes without
// locks, allocation or system calls. The file is mapped shared, so the records stay if the process
// crashes. A forked child does not record calls on objects that its parent opened. Not a general
// ring buffer: one writer per ring, and readers only in other processes (tools/trace/snapshot.h) or
// after the writers.
#ifndef WEFT_PLUGINS_HOOK_TRACE_STORE_H
#define WEFT_PLUGINS_HOOK_TRACE_STORE_H

#include <weft/result.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "formats/trace.h"
#include "formats/trace_clock.h"

namespace weft::trace {

// Whether ticks() reads the processor's time stamps. Set once, before the first record.
extern std::atomic<bool> ticks_are_tsc;

inline uint64_t ticks() {
#if defined(__x86_64__)
  if (ticks_are_tsc.load(std::memory_order_relaxed)) return time_stamp();
#endif
  return monotonic_ns();
}
inline uint32_t ticks_between(uint64_t begin, uint64_t end) {
  const uint64_t ticks = end - begin;
  return ticks < kNotMeasured ? uint32_t(ticks) : kNotMeasured - 1;
}

struct StoreOptions {
  std::string directory;        // empty: runtime_directory()
  size_t ring_bytes = 1 << 20;  // rounded down to a power of two
  uint32_t max_threads = 64;
  uint32_t objects = 4096;
  uint32_t addresses = 4096;
  bool keep = false;
  Phase phase = Phase::kRecording;  // or waiting: nothing is recorded before the first error
  bool stop_at_error = false;
};

class Store;

// Values of Slot::generation and of a store's gate that are not the number of a store.
inline constexpr uint64_t kNoRing = ~uint64_t{0};  // of a slot
inline constexpr uint64_t kInherited = 0;          // of a gate: in a forked child
inline constexpr uint64_t kShut = 1;               // of a gate: nothing is recorded now
inline constexpr uint64_t kFirstGeneration = 2;

// A thread's place in its ring.
struct Slot {
  uint64_t generation = kNoRing;  // of the store that the ring belongs to
  Record *records = nullptr;
  uint64_t mask = 0;
  uint64_t next = 0;
  RingHeader *ring = nullptr;
  uint64_t full = 0;           // generation of a store that had no ring for this thread
  uint64_t last_post[4] = {};  // ticks, by the lowest bits of the depth
  uint32_t depth = 0;          // of calls that are recorded when they return
  uint32_t posts = 0;          // in quick succession
  uint32_t sampled = 0;        // calls seen by the sampling filter
  uint32_t skipped = 0;        // records since a ring was last asked for

  // Writes all fields of `record` except for the sequence, which it sets itself.
  __attribute__((always_inline)) void write(const Record &record) {
    Record &place = records[next & mask];
    // A reader that sees any byte of the new record also sees that the old sequence is gone. It
    // sees the new sequence only with all of the new record.
    __atomic_store_n(&place.sequence, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    place.duration = record.duration;
    place.begin = record.begin;
    place.context = record.context;
    place.tag = record.tag;
    place.flags = record.flags;
    place.size = record.size;
    place.object = record.object;
    place.peer = record.peer;
    place.result = record.result;
    place.op = record.op;
    place.depth = record.depth;
    place.fclass = record.fclass;
    ++next;
    const auto sequence = uint32_t(next);
    __atomic_store_n(&place.sequence, sequence != 0 ? sequence : 1, __ATOMIC_RELEASE);
    __atomic_store_n(&ring->head, next, __ATOMIC_RELEASE);
    if ((next & 0xfff) == 0) [[unlikely]]
      note_clock();
  }
  void note_clock();
};

extern thread_local constinit Slot this_thread;

class Store {
 public:
  // The first user's options hold for all users.
  static Result<Store *> join(const StoreOptions &options);
  void leave();
  void stay();  // adds a user; the caller is one already

  // Where this thread writes; null: nothing is recorded now, or the thread gets no ring, which is
  // counted.
  Slot *slot() {
    Slot &slot = this_thread;
    if (slot.generation == __atomic_load_n(gate_, __ATOMIC_RELAXED)) [[likely]]
      return &slot;
    return find_slot(slot);
  }
  // A call or an operation failed.
  void saw_error() {
    if (watches_errors_) change_phase();
  }
  // In a child that was forked from the process that made the store.
  bool is_inherited() const { return __atomic_load_n(gate_, __ATOMIC_RELAXED) == kInherited; }

  // A row of the object table, which may have been a closed object's; null: the table is full.
  ObjectEntry *add_object(uint64_t id);
  void close_object(ObjectEntry *entry);
  void add_address(uint32_t av, uint32_t peer, const char *text);
  bool wants_addresses() const;
  // From now on completions may have ids of the user (FI_AV_USER_ID) as sources; they are left out.
  void hide_sources() { hides_sources_.store(true, std::memory_order_relaxed); }
  bool hides_sources() const { return hides_sources_.load(std::memory_order_relaxed); }

  const std::string &path() const { return path_; }
  const FileHeader &header() const { return *header_; }

  // At the end of a thread; `last`: of the process too.
  static void end_of_thread(Slot &slot, bool last);

 private:
  friend struct Slot;
  friend struct std::default_delete<Store>;
  Store() = default;
  ~Store();
  static Result<Store *> create(const StoreOptions &options);
  Result<void> make_file(const std::string &directory);
  Result<void> map_file(const FileHeader &layout);
  Result<void> make_gate();
  void publish_header(FileHeader header);
  Slot *find_slot(Slot &slot);
  Slot *take_ring(Slot &slot);
  Slot *miss(Slot &slot);
  bool passes_stop();
  RingHeader *ring_at(uint32_t index);
  bool reserve(uint64_t offset, uint64_t size);
  void note_clock();
  void change_phase();
  void set_phase(Phase phase);

  uint64_t generation_ = 0;
  uint64_t *gate_ = nullptr;  // generation_ or kShut, on a page that fork() clears
  std::atomic<Phase> phase_{Phase::kRecording};
  bool watches_errors_ = false;
  bool stop_at_error_ = false;
  std::atomic<int32_t> left_{0};  // records before the stop
  std::atomic<bool> hides_sources_{false};

  FileHeader *header_ = nullptr;
  uint8_t *bytes_ = nullptr;
  int fd_ = -1;
  std::string path_;
  uint32_t users_ = 0;
  uint64_t objects_reserved_ = 0;
  uint32_t next_closed_ = 0;        // where to look for a closed object's row
  Slot *owners_[1024] = {};         // by ring
  uint64_t given_back_[1024] = {};  // when, by ring
  uint64_t times_given_back_ = 0;
};

}  // namespace weft::trace

#endif
