// SPDX-License-Identifier: BSD-2-Clause
// Segment: the writer's side of formats/profile.h, and the records that the hook profile keeps in
// it.
//
// Example:
//    std::string count_a_send(const Labels &labels) {
//      std::string why;
//      std::shared_ptr<Segment> segment = Segment::open(64 << 20, why);
//      OperationRecord *record = segment->operation(labels);
//      if (record == nullptr) return "no room";
//      write(record->head, [&] { bump(record->calls, 1); });  // only one thread may do this
//      segment->retire(record);                               // when the object is closed
//      return why;                                            // why no other process can read it
//    }
//
// The segment reserves memory from the file system in advance, piece by piece, so that a full
// /dev/shm costs a record and never causes a SIGBUS. If no file can be made, the records are in
// private memory, and the program can still ask for them with fi_profile. Not for readers in other
// processes: those know formats/profile.h only.
#ifndef WEFT_PLUGINS_HOOK_PROFILE_SEGMENT_H
#define WEFT_PLUGINS_HOOK_PROFILE_SEGMENT_H

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "formats/profile.h"

namespace weft::profile {

inline constexpr uint32_t kSizeSubBits = 2, kTimeSubBits = 3, kBatchSubBits = 2;
inline constexpr uint32_t kSizeBuckets = buckets_to(36, kSizeSubBits);    // to 64 GiB
inline constexpr uint32_t kTimeBuckets = buckets_to(36, kTimeSubBits);    // to 68 s
inline constexpr uint32_t kBatchBuckets = buckets_to(12, kBatchSubBits);  // to 4096 completions

// What distinguishes the records of a type; all types have the same labels.
struct Labels {
  uint64_t object;  // number of the object in its process; 0: all that are closed
  char element[16];
  char stack[64];
  char operation[24];
  char peer[16];
};

// The fields of the records, each in this list only: the structs below, the segment's description
// of itself (segment.cc), and with it `weft stats`, `weft top` and the exporter follow from it.
//   COUNTER(name, unit, help)
//   HISTOGRAM(name, unit, help, buckets, sub_bits, sum)   sum: the counter with the sum of values
#define WEFT_PROFILE_POST_COUNTERS(COUNTER)            \
  COUNTER(calls, "", "operations that were accepted")  \
  COUNTER(again, "", "calls that returned -FI_EAGAIN") \
  COUNTER(errors, "", "calls that failed otherwise")   \
  COUNTER(bytes, "bytes", "sum of the sizes of what was accepted")

#define WEFT_PROFILE_OPERATION_FIELDS(COUNTER, HISTOGRAM)                                         \
  WEFT_PROFILE_POST_COUNTERS(COUNTER)                                                             \
  COUNTER(post_samples, "", "calls whose duration was measured")                                  \
  COUNTER(post_ns, "ns", "sum of these durations")                                                \
  COUNTER(latency_samples, "", "operations measured up to their completion")                      \
  COUNTER(latency_ns, "ns", "sum of these times")                                                 \
  HISTOGRAM(size, "bytes", "sizes of what was accepted", kSizeBuckets, kSizeSubBits, "bytes")     \
  HISTOGRAM(post, "ns", "durations of the calls, of some", kTimeBuckets, kTimeSubBits, "post_ns") \
  HISTOGRAM(latency, "ns", "times from the call until the completion was read, of some",          \
            kTimeBuckets, kTimeSubBits, "latency_ns")

#define WEFT_PROFILE_QUEUE_FIELDS(COUNTER, HISTOGRAM)                                             \
  COUNTER(reads, "", "calls that read the queue")                                                 \
  COUNTER(empty, "", "reads that found nothing")                                                  \
  COUNTER(completions, "", "completions that were read")                                          \
  COUNTER(received_bytes, "bytes",                                                                \
          "sum of the lengths of received messages, where the queue's format has them")           \
  COUNTER(error_reads, "", "reads that failed or found an error waiting")                         \
  COUNTER(errors, "", "errors that were read")                                                    \
  HISTOGRAM(batch, "completions", "completions that one read gave", kBatchBuckets, kBatchSubBits, \
            "completions")

#define WEFT_PROFILE_COUNTER_(name, unit, help) uint64_t name;
#define WEFT_PROFILE_HISTOGRAM_(name, unit, help, buckets, sub_bits, sum) uint64_t name[buckets];
// Calls that post one operation on one endpoint to one class of peers.
struct OperationRecord {
  Record head;
  Labels labels;
  WEFT_PROFILE_OPERATION_FIELDS(WEFT_PROFILE_COUNTER_, WEFT_PROFILE_HISTOGRAM_)
};

// Reads of one completion queue.
struct QueueRecord {
  Record head;
  Labels labels;
  WEFT_PROFILE_QUEUE_FIELDS(WEFT_PROFILE_COUNTER_, WEFT_PROFILE_HISTOGRAM_)
};
#undef WEFT_PROFILE_COUNTER_
#undef WEFT_PROFILE_HISTOGRAM_

// For a word that one thread writes: no locked instruction.
inline void bump(uint64_t &word, uint64_t by) {
  std::atomic_ref<uint64_t> ref(word);
  // Release: a reader that sees the new value also sees the odd sequence before it.
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
  // At most `size` bytes. `why`: why no other process can read it; empty if they can.
  static std::shared_ptr<Segment> open(size_t size, std::string &why);
  ~Segment();
  Segment(const Segment &) = delete;
  Segment &operator=(const Segment &) = delete;

  OperationRecord *operation(const Labels &labels);
  QueueRecord *queue(const Labels &labels);
  // Adds the counts to the record of closed objects. No thread may write to the record any more;
  // null is allowed.
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
  std::vector<Record *> closed_;  // one per set of labels
  std::vector<Record *> free_;
};

}  // namespace weft::profile

#endif
