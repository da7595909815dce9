// SPDX-License-Identifier: BSD-2-Clause
// MemoryMonitor: knows when the process unmaps, moves or empties memory that a cache of
// registrations relies on. It asks the kernel (userfaultfd) and replaces no function.
//
// Example:
//    class Known final : public MemoryMonitor::Watcher {
//     public:
//      void on_change(const MemoryRange &range) override {
//        if (range.overlaps(known_)) known_ = {};
//      }
//      MemoryRange first_in(const MemoryRange &range) const override {
//        return range.overlaps(known_) ? known_ : MemoryRange{};
//      }
//      bool has(MemoryMonitor &monitor, const MemoryRange &memory) {
//        std::lock_guard lock(monitor.lock());
//        return monitor.current() && known_.contains(memory);
//      }
//
//     private:
//      MemoryRange known_;  // guarded by the monitor's lock
//    };
//
// How a stale answer is avoided:
//  - munmap, mmap over a mapping, brk and mremap first change the mappings and then tell the
//    monitor. The caller goes on when the monitor has read the event. But another thread may get
//    the same addresses earlier. So the kernel counts calls that have begun and whose event was not
//    read; the count is raised before a mapping changes. current() asks whether it is zero
//    (UFFDIO_ZEROPAGE of nothing fails with EAGAIN while it is not) and reads what there is.
//  - Events are read and applied under one lock, and current() needs it. So whoever holds the lock
//    sees the effect of each event that was read.
//  - A watcher knows a range before watch() is called, and memory is registered after it. What
//    changes in between reaches on_change().
//  - A thread of the monitor reads events at once, because callers of munmap wait for it. Code
//    under the lock therefore never allocates, frees or unmaps: that could wait for this thread,
//    which waits for the lock.
//
// Watched is private anonymous memory: the heap, stacks, mmap without a file. Shared memory, files
// and huge pages of hugetlbfs are refused, because they can change through a descriptor or by
// shmdt() without an event. After fork() the child has no monitor.
//
// The kernel does not tell of three things, so a cache is for who knows that the process does none
// of them with memory that it transfers:
//  - madvise(MADV_GUARD_INSTALL) (Linux 6.13);
//  - shmat(SHM_REMAP) over private memory;
//  - madvise(MADV_DONTNEED, MADV_FREE, MADV_REMOVE) in one thread while another begins to transfer
//    the same pages: this event comes before its effect.
//
// Needs Linux 5.7, no privilege from 5.11 on. Memory has one userfaultfd: a process that uses its
// own for the same memory gets EBUSY, or the monitor does. So a provider has one monitor for all of
// its domains. Not for the memory of devices.
#ifndef WEFT_SDK_DEVICES_MEMORY_MONITOR_H
#define WEFT_SDK_DEVICES_MEMORY_MONITOR_H

#include <sys/uio.h>
#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::sdk {

// Addresses from start up to end. Empty: start is not below end.
struct MemoryRange {
  uintptr_t start = 0, end = 0;

  // The whole pages that contain the memory. Empty: it has no bytes, or no end.
  static MemoryRange pages_of(const iovec &memory);
  bool empty() const { return start >= end; }
  size_t bytes() const { return empty() ? 0 : end - start; }
  bool overlaps(const MemoryRange &other) const { return start < other.end && other.start < end; }
  bool contains(const MemoryRange &other) const { return start <= other.start && other.end <= end; }
};

class MemoryMonitor {
 public:
  // What relies on memory. All is called with the lock held.
  class Watcher {
   public:
    // The memory is not what it was: forget all that overlaps.
    virtual void on_change(const MemoryRange &range) = 0;
    // The lowest range that this watcher relies on and that overlaps. Empty: there is none.
    virtual MemoryRange first_in(const MemoryRange &range) const = 0;

   protected:
    ~Watcher() = default;
  };

  // FI_EPERM, FI_ENOSYS and others: the kernel does not let this process, with the reason.
  static Result<std::shared_ptr<MemoryMonitor>> open();
  // After all watchers have left.
  ~MemoryMonitor();
  MemoryMonitor(const MemoryMonitor &) = delete;
  MemoryMonitor &operator=(const MemoryMonitor &) = delete;

  // False in a child of fork(): call nothing else then.
  bool here() const { return *alive_ != 0; }
  std::mutex &lock() { return mutex_; }

  // Without the lock.
  void add(Watcher &watcher);
  void remove(Watcher &watcher);
  // From now on, changes of the range reach the watchers. False: the memory cannot be watched; call
  // unwatch(), as for a range that is.
  bool watch(const MemoryRange &range);

  // With the lock.
  // Whether the watchers know all that has happened. False: a change is under way.
  bool current();
  // Stops where no watcher relies on the range.
  void unwatch(const MemoryRange &range);

 private:
  MemoryMonitor(UniqueFd fd, UniqueFd stop, uint8_t *alive);
  Result<void> prove();
  void run();
  bool changing() const;
  void read_events();
  void change(const MemoryRange &range, const MemoryRange &gone);
  void leave(const MemoryRange &range, size_t watcher);
  void unregister(const MemoryRange &range);
  void unregister_all();
  void give_up();

  UniqueFd fd_, stop_;
  uint8_t *const alive_;  // a page that is zero in children (MADV_WIPEONFORK)
  std::mutex mutex_;
  std::vector<Watcher *> watchers_;
  MemoryRange gone_;     // of the event under way: no mapping of ours is there any more
  bool broken_ = false;  // events cannot be read
  std::thread reader_;
};

}  // namespace weft::sdk

#endif
