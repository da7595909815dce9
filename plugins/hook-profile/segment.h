// SPDX-License-Identifier: BSD-2-Clause
// Segment: the writer's side of format.h, and the records that the hook profile keeps in it.
//
//   std::string why;
//   std::shared_ptr<Segment> segment = Segment::open(64 << 20, why);  // why: not empty, not shared
//   OperationRecord *record = segment->operation(labels);             // null: no room
//   write(record->head, [&] { bump(record->calls, 1); });             // one thread
//   segment->retire(record);                                          // its object is closed
//
// Memory is taken from the file system in advance, piece by piece, so that a full /dev/shm is a
// record less and never a SIGBUS. Where no file can be made, the records are in private memory: the
// program can still ask for them by fi_profile. Not for readers of other processes: those know
// format.h only.
#ifndef WEFT_PLUGINS_HOOK_PROFILE_SEGMENT_H
#define WEFT_PLUGINS_HOOK_PROFILE_SEGMENT_H

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/hook-profile/format.h"

namespace weft::profile {

inline constexpr uint32_t kSizeSubBits = 2, kTimeSubBits = 3, kBatchSubBits = 2;
inline constexpr uint32_t kSizeBuckets = buckets_to(36, kSizeSubBits);    // to 64 GiB
inline constexpr uint32_t kTimeBuckets = buckets_to(36, kTimeSubBits);    // to 68 s
inline constexpr uint32_t kBatchBuckets = buckets_to(12, kBatchSubBits);  // to 4096 completions

// What distinguishes records of one type; the same in all types.
struct Labels {
  uint64_t object;  // number of the object in its process; 0: all that are closed
  char element[16];
  char stack[64];
  char operation[24];
  char peer[16];
};

// Calls that post operations of one sort on one endpoint to one class of peers.
struct OperationRecord {
  Record head;
  Labels labels;
  uint64_t calls, again, errors, bytes;
  uint64_t post_samples, post_ns, latency_samples, latency_ns;
  uint64_t size[kSizeBuckets];
  uint64_t post[kTimeBuckets];
  uint64_t latency[kTimeBuckets];
};

// Reads of one completion queue.
struct QueueRecord {
  Record head;
  Labels labels;
  uint64_t reads, empty, completions, received_bytes, error_reads, errors;
  uint64_t batch[kBatchBuckets];
};

// The only writer of a word, or of the words of a record, needs no locked instruction.
inline void bump(uint64_t &word, uint64_t by) {
  std::atomic_ref<uint64_t> ref(word);
  // Release: seen after the odd sequence that stands before it.
  ref.store(ref.load(std::memory_order_relaxed) + by, std::memory_order_release);
}
inline void bump_shared(uint64_t &word, uint64_t by) {
  std::atomic_ref<uint64_t>(word).fetch_add(by, std::memory_order_relaxed);
}
inline uint64_t value_of(uint64_t &word) {
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_relaxed);
}
template <class Body>
void write(Record &record, Body body) {
  std::atomic_ref<uint32_t> sequence(record.sequence);
  const uint32_t before = sequence.load(std::memory_order_relaxed);
  sequence.store(before + 1, std::memory_order_relaxed);
  body();
  sequence.store(before + 2, std::memory_order_release);
}

class Segment {
 public:
  // At most `size` bytes. `why`: the reason for which no other process will see it.
  static std::shared_ptr<Segment> open(size_t size, std::string &why);
  ~Segment();
  Segment(const Segment &) = delete;
  Segment &operator=(const Segment &) = delete;

  OperationRecord *operation(const Labels &labels);
  QueueRecord *queue(const Labels &labels);
  // Hands the counts on to the record of closed objects; null is allowed. Nobody writes any more.
  void retire(OperationRecord *record);
  void retire(QueueRecord *record);

  int pid() const { return pid_; }
  const std::string &path() const { return path_; }  // empty: private memory

 private:
  Segment(size_t size, std::string &why);
  Header &header() { return *reinterpret_cast<Header *>(base_); }
  void describe();
  bool grow(size_t end);
  Record *allocate(uint32_t type, const Labels &labels);
  void retire(Record *record, size_t counters);

  std::mutex mutex_;
  std::string path_;
  int pid_;
  int file_ = -1;
  char *base_ = nullptr;
  size_t size_ = 0, backed_ = 0;
  std::vector<Record *> closed_;  // one for each set of labels
  std::vector<Record *> free_;
};

}  // namespace weft::profile

#endif
