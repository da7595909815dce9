// SPDX-License-Identifier: BSD-2-Clause
// What the hook profile keeps per object, and how a call is counted.
//
// Example:
//    #include <rdma/fi_endpoint.h>
//    ssize_t send(Endpoint &endpoint, const fi_ops_msg &next, fid_ep *ep, const void *buf,
//                 size_t len, fi_addr_t dest, void *context) {
//      return endpoint.count(
//          kSend, dest, context, [&] { return next.send(ep, buf, len, nullptr, dest, context); },
//          [&] { return len; });
//    }
//
// The thread that first makes a call on an object owns the object's records: it counts with plain
// instructions. Other threads count in a second record, with locked instructions. One call in
// `sample` is measured: its duration, and the time until its completion is read from the completion
// queue, if the context identifies the completion. Counting allocates nothing after the first call
// of an operation to a class of peers.
//
// Not a trace: it does not tell which call was slow.
#ifndef WEFT_PLUGINS_HOOK_PROFILE_COUNTING_H
#define WEFT_PLUGINS_HOOK_PROFILE_COUNTING_H

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <sys/types.h>
#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>

#include "plugins/hook-profile/peer.h"
#include "plugins/hook-profile/segment.h"

namespace weft::profile {

// X(operation, name in the segment)
#define WEFT_PROFILE_OPERATIONS(X)    \
  X(kSend, "send")                    \
  X(kInject, "inject")                \
  X(kRecv, "recv")                    \
  X(kTsend, "tsend")                  \
  X(kTinject, "tinject")              \
  X(kTrecv, "trecv")                  \
  X(kRead, "read")                    \
  X(kWrite, "write")                  \
  X(kInjectWrite, "inject_write")     \
  X(kAtomic, "atomic")                \
  X(kInjectAtomic, "inject_atomic")   \
  X(kFetchAtomic, "fetch_atomic")     \
  X(kCompareAtomic, "compare_atomic") \
  X(kCollective, "collective")

enum Operation : uint8_t {
#define WEFT_PROFILE_OPERATION_(operation, name) operation,
  WEFT_PROFILE_OPERATIONS(WEFT_PROFILE_OPERATION_)
#undef WEFT_PROFILE_OPERATION_
};
inline constexpr const char *kOperationNames[] = {
#define WEFT_PROFILE_OPERATION_(operation, name) name,
    WEFT_PROFILE_OPERATIONS(WEFT_PROFILE_OPERATION_)
#undef WEFT_PROFILE_OPERATION_
};
inline constexpr size_t kOperations = std::size(kOperationNames);
constexpr bool is_receive(Operation operation) {
  return operation == kRecv || operation == kTrecv;
}
constexpr bool has_completion(Operation operation) {
  return operation != kInject && operation != kTinject && operation != kInjectWrite &&
         operation != kInjectAtomic;
}

// An address that no other living thread has.
inline const void *this_thread() {
  static thread_local char place __attribute__((tls_model("initial-exec")));
  return &place;
}

inline uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

// The records of one operation on one object: of the thread that owns it, and of all other threads.
template <class RecordType>
struct Lane {
  std::atomic<const void *> owner{nullptr};
  std::atomic<RecordType *> own{nullptr};
  std::atomic<RecordType *> shared{nullptr};
  uint32_t left = 0;             // calls of the owner until one is measured
  const void *before = nullptr;  // context of the owner's last call
};

class Queue;

// Makes records, with the labels of the endpoint.
class Source {
 public:
  virtual OperationRecord *operation(Operation operation, PeerClass peer) = 0;  // null: no room
  virtual void unused(OperationRecord *record) = 0;                             // gives it back
  virtual PeerClass peer(fi_addr_t dest) = 0;  // the caller keeps the answer

 protected:
  ~Source() = default;
};

// The classes of the peers of an address vector; each peer is looked up once.
class PeerTable {
 public:
  PeerTable() = default;
  ~PeerTable();
  PeerTable(const PeerTable &) = delete;
  PeerTable &operator=(const PeerTable &) = delete;
  // -1: not known yet.
  int find(fi_addr_t address) const {
    if (address >= kPages * kPage) [[unlikely]]
      return kAny;
    const Page *page = pages_[address / kPage].load(std::memory_order_acquire);
    if (page == nullptr) [[unlikely]]
      return -1;
    return page->classes[address % kPage].load(std::memory_order_relaxed) - 1;
  }
  void keep(fi_addr_t address, PeerClass where);
  void forget(fi_addr_t address);

 private:
  static constexpr size_t kPages = 4096, kPage = 4096;
  struct Page {
    std::atomic<uint8_t> classes[kPage];  // 1 + class; 0: not known
  };
  std::atomic<Page *> pages_[kPages] = {};
};

class Endpoint {
 public:
  Endpoint(Source &source, uint32_t sample) : source_(source), sample_(sample) {}
  Endpoint(const Endpoint &) = delete;
  Endpoint &operator=(const Endpoint &) = delete;

  // How the class of a peer is found: from the address of the operation, or the same for all peers.
  static constexpr uint8_t kAsk = 254, kByAddress = 255;
  void set_peer(uint8_t way) { way_.store(way, std::memory_order_relaxed); }
  uint8_t way() const { return way_.load(std::memory_order_relaxed); }
  void set_peers(std::shared_ptr<PeerTable> peers);
  void set_queue(bool receive, std::shared_ptr<Queue> queue);
  void share(const Endpoint &original);  // takes over the queues and peers: this is an alias

  // Makes the call, counts it and returns its result. Calls `bytes` only if the call succeeded.
  template <class Call, class Bytes>
  ssize_t count(Operation operation, fi_addr_t dest, void *context, Call call, Bytes bytes) {
    const PeerClass where = is_receive(operation) ? kAny : peer_of(dest);
    Lane<OperationRecord> &lane = lanes_[operation][where];
    if (lane.owner.load(std::memory_order_relaxed) != this_thread()) [[unlikely]] {
      if (!own(lane, operation, where)) {
        const ssize_t rc = call();
        count_shared(lane, operation, where, rc, rc == 0 ? bytes() : 0);
        return rc;
      }
    }
    ssize_t rc;
    if (--lane.left == 0) [[unlikely]] {
      const Sample sample = begin_sample(lane, operation, context);
      rc = call();
      end_sample(lane, sample, rc);
    } else {
      rc = call();
    }
    lane.before = context;
    OperationRecord &record = *lane.own.load(std::memory_order_relaxed);
    if (rc == 0) [[likely]] {
      const uint64_t size = bytes();
      const uint32_t bucket = bucket_of(size, kSizeSubBits, kSizeBuckets);
      write(record.head, [&] {
        bump(record.calls, 1);
        bump(record.bytes, size);
        bump(record.size[bucket], 1);
      });
    } else {
      write(record.head, [&] { bump(rc == -FI_EAGAIN ? record.again : record.errors, 1); });
    }
    return rc;
  }

  struct Sums {
#define WEFT_PROFILE_SUM_(name, unit, help) uint64_t name = 0;
    WEFT_PROFILE_POST_COUNTERS(WEFT_PROFILE_SUM_)
#undef WEFT_PROFILE_SUM_
    void add(const Sums &other) {
#define WEFT_PROFILE_SUM_(name, unit, help) name += other.name;
      WEFT_PROFILE_POST_COUNTERS(WEFT_PROFILE_SUM_)
#undef WEFT_PROFILE_SUM_
    }
  };
  Sums sums(Operation operation) const;
  // Gives the records back. No thread may be in a call on the endpoint any more.
  void retire(Segment &segment);

 private:
  friend class Queue;
  struct Sample {
    uint64_t start;
    Queue *queue;
    int slot;
  };
  PeerClass peer_of(fi_addr_t dest) {
    const uint8_t way = way_.load(std::memory_order_relaxed);
    if (way < kPeerClasses) return static_cast<PeerClass>(way);
    if (way == kByAddress) {
      const PeerTable *peers = peers_.load(std::memory_order_acquire);
      const int known = peers != nullptr ? peers->find(dest) : -1;
      if (known >= 0) [[likely]]
        return static_cast<PeerClass>(known);
    }
    return source_.peer(dest);
  }
  bool own(Lane<OperationRecord> &lane, Operation operation, PeerClass where);
  void count_shared(Lane<OperationRecord> &lane, Operation operation, PeerClass where, ssize_t rc,
                    uint64_t bytes);
  Sample begin_sample(Lane<OperationRecord> &lane, Operation operation, void *context);
  void end_sample(Lane<OperationRecord> &lane, const Sample &sample, ssize_t rc);

  Source &source_;
  const uint32_t sample_;
  std::atomic<uint8_t> way_{kAsk};
  std::atomic<PeerTable *> peers_{nullptr};
  std::shared_ptr<PeerTable> kept_peers_;
  std::atomic<Queue *> queues_[2] = {};  // transmit, receive
  std::shared_ptr<Queue> kept_queues_[2];
  Lane<OperationRecord> lanes_[kOperations][kPeerClasses];
};

class Queue {
 public:
  Queue(std::shared_ptr<Segment> segment, const Labels &labels)
      : segment_(std::move(segment)), labels_(labels) {}
  Queue(const Queue &) = delete;
  Queue &operator=(const Queue &) = delete;

  // Not called for a queue that was open before the hook came: then only reads are counted.
  void set_format(enum fi_cq_format format);

  // Counts a read that returned `rc` and wrote that many entries.
  void count(ssize_t rc, const void *entries) {
    const bool mine = lane_.owner.load(std::memory_order_relaxed) == this_thread() || own();
    if (rc == -FI_EAGAIN) [[likely]] {
      if (mine) {
        QueueRecord &record = *lane_.own.load(std::memory_order_relaxed);
        write(record.head, [&] {
          bump(record.reads, 1);
          bump(record.empty, 1);
        });
        return;
      }
    } else if (rc > 0 && armed_.load(std::memory_order_acquire) != 0) {
      complete(rc, entries);
    }
    count_slow(mine, rc, entries);
  }
  void count_error(ssize_t rc, void *context);
  void retire();

 private:
  friend class Endpoint;
  static constexpr uint32_t kSlots = 8;
  // An operation that is measured. kBusy: a thread looks at the slot.
  struct Slot {
    enum : uint32_t { kFree, kBusy, kArmed };
    std::atomic<uint32_t> state{kFree};
    Endpoint *endpoint = nullptr;
    OperationRecord *record = nullptr;
    std::atomic<void *> context{nullptr};
    uint64_t start = 0;
  };

  bool own();
  void count_slow(bool mine, ssize_t rc, const void *entries);
  void complete(ssize_t count, const void *entries);
  int arm(Endpoint *endpoint, OperationRecord *record, void *context, uint64_t start);
  void disarm(int slot, Endpoint *endpoint);
  void forget(Endpoint *endpoint);
  void found(uint32_t slot, void *context, bool keep_time);

  const std::shared_ptr<Segment> segment_;
  const Labels labels_;
  std::atomic<uint32_t> stride_{0};  // bytes of an entry; 0: not known
  std::atomic<uint32_t> armed_{0};   // bit i: slot i may be armed
  std::atomic<uint32_t> turn_{0};
  Slot slots_[kSlots];
  Lane<QueueRecord> lane_;
};

}  // namespace weft::profile

#endif
