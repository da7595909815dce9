// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-profile/counting.h"

#include <sched.h>

#include <cstring>
#include <new>

namespace weft::profile {
namespace {

// Counts go here when the segment is full. They are not shown.
OperationRecord lost_operations;
QueueRecord lost_reads;

OperationRecord *or_lost(OperationRecord *record) {
  return record != nullptr ? record : &lost_operations;
}
QueueRecord *or_lost(QueueRecord *record) {
  return record != nullptr ? record : &lost_reads;
}

// Makes the calling thread the owner of a lane that has none. True: it is the owner.
template <class RecordType, class Make>
bool own_lane(Lane<RecordType> &lane, Make make) {
  static constexpr char kTaken = 0;  // its address differs from all of this_thread()
  const void *nobody = nullptr;
  if (!lane.owner.compare_exchange_strong(nobody, &kTaken, std::memory_order_acquire))
    return nobody == this_thread();
  lane.own.store(or_lost(make()), std::memory_order_relaxed);
  lane.owner.store(this_thread(), std::memory_order_release);
  return true;
}

template <class RecordType, class Make, class Unmake>
RecordType &shared_of(Lane<RecordType> &lane, Make make, Unmake unmake) {
  RecordType *record = lane.shared.load(std::memory_order_acquire);
  if (record == nullptr) {
    RecordType *made = or_lost(make());
    if (lane.shared.compare_exchange_strong(record, made, std::memory_order_acq_rel)) return *made;
    if (made != or_lost(static_cast<RecordType *>(nullptr))) unmake(made);
  }
  return *record;
}

}  // namespace

// ---- peers ----

PeerTable::~PeerTable() {
  for (auto &page : pages_) delete page.load();
}

void PeerTable::keep(fi_addr_t address, PeerClass where) {
  if (address >= kPages * kPage) return;
  std::atomic<Page *> &place = pages_[address / kPage];
  Page *page = place.load(std::memory_order_acquire);
  if (page == nullptr) {
    Page *made = new (std::nothrow) Page{};
    if (made == nullptr) return;  // asked for again next time
    if (place.compare_exchange_strong(page, made, std::memory_order_acq_rel))
      page = made;
    else
      delete made;
  }
  page->classes[address % kPage].store(static_cast<uint8_t>(where + 1), std::memory_order_relaxed);
}

void PeerTable::forget(fi_addr_t address) {
  if (address >= kPages * kPage) return;
  Page *page = pages_[address / kPage].load(std::memory_order_acquire);
  if (page != nullptr) page->classes[address % kPage].store(0, std::memory_order_relaxed);
}

// ---- endpoints ----

void Endpoint::set_peers(std::shared_ptr<PeerTable> peers) {
  kept_peers_ = std::move(peers);
  peers_.store(kept_peers_.get(), std::memory_order_release);
  set_peer(kByAddress);
}

void Endpoint::set_queue(bool receive, std::shared_ptr<Queue> queue) {
  const int which = receive ? 1 : 0;
  kept_queues_[which] = std::move(queue);
  queues_[which].store(kept_queues_[which].get(), std::memory_order_release);
}

void Endpoint::share(const Endpoint &original) {
  for (const bool receive : {false, true}) {
    if (original.kept_queues_[receive] != nullptr)
      set_queue(receive, original.kept_queues_[receive]);
  }
  if (original.kept_peers_ != nullptr) set_peers(original.kept_peers_);
}

bool Endpoint::own(Lane<OperationRecord> &lane, Operation operation, PeerClass where) {
  if (!own_lane(lane, [&] { return source_.operation(operation, where); })) return false;
  // The first call is measured too, so that there is a time for operations with few calls.
  if (lane.left == 0) lane.left = 1;
  return true;
}

void Endpoint::count_shared(Lane<OperationRecord> &lane, Operation operation, PeerClass where,
                            ssize_t rc, uint64_t bytes) {
  OperationRecord &record = shared_of(
      lane, [&] { return source_.operation(operation, where); },
      [&](OperationRecord *made) { source_.unused(made); });
  if (rc != 0) {
    bump_shared(rc == -FI_EAGAIN ? record.again : record.errors, 1);
    return;
  }
  bump_shared(record.calls, 1);
  bump_shared(record.bytes, bytes);
  bump_shared(record.size[bucket_of(bytes, kSizeSubBits, kSizeBuckets)], 1);
}

Endpoint::Sample Endpoint::begin_sample(Lane<OperationRecord> &lane, Operation operation,
                                        void *context) {
  lane.left = sample_;
  Sample sample{0, nullptr, -1};
  Queue *queue = queues_[is_receive(operation) ? 1 : 0].load(std::memory_order_acquire);
  const uint64_t start = now_ns();
  // A context that operations share does not tell when this operation is complete.
  if (queue != nullptr && has_completion(operation) && context != nullptr &&
      context != lane.before) {
    sample.slot = queue->arm(this, lane.own.load(std::memory_order_relaxed), context, start);
    sample.queue = queue;
  }
  sample.start = start;
  return sample;
}

void Endpoint::end_sample(Lane<OperationRecord> &lane, const Sample &sample, ssize_t rc) {
  if (rc != 0) {
    if (sample.slot >= 0) sample.queue->disarm(sample.slot, this);
    lane.left = 1;  // measure the next call instead
    return;
  }
  const uint64_t took = now_ns() - sample.start;
  OperationRecord &record = *lane.own.load(std::memory_order_relaxed);
  write(record.head, [&] {
    bump(record.post_samples, 1);
    bump(record.post_ns, took);
    bump(record.post[bucket_of(took, kTimeSubBits, kTimeBuckets)], 1);
  });
}

Endpoint::Sums Endpoint::sums(Operation operation) const {
  Sums sums;
  for (const Lane<OperationRecord> &lane : lanes_[operation]) {
    const void *owner = lane.owner.load(std::memory_order_acquire);
    for (OperationRecord *record :
         {owner != nullptr ? lane.own.load(std::memory_order_acquire) : nullptr,
          lane.shared.load(std::memory_order_acquire)}) {
      if (record == nullptr || record == &lost_operations) continue;
#define WEFT_PROFILE_SUM_(name, unit, help) sums.name += value_of(record->name);
      WEFT_PROFILE_POST_COUNTERS(WEFT_PROFILE_SUM_)
#undef WEFT_PROFILE_SUM_
    }
  }
  return sums;
}

void Endpoint::retire(Segment &segment) {
  for (const auto &queue : kept_queues_) {
    if (queue != nullptr) queue->forget(this);
  }
  for (auto &lanes : lanes_) {
    for (Lane<OperationRecord> &lane : lanes) {
      for (OperationRecord *record : {lane.own.load(), lane.shared.load()}) {
        if (record != &lost_operations) segment.retire(record);
      }
    }
  }
}

// ---- completion queues ----

void Queue::set_format(enum fi_cq_format format) {
  uint32_t stride = 0;
  switch (static_cast<int>(format)) {
    case FI_CQ_FORMAT_CONTEXT:
      stride = sizeof(fi_cq_entry);
      break;
    case FI_CQ_FORMAT_MSG:
      stride = sizeof(fi_cq_msg_entry);
      break;
    case FI_CQ_FORMAT_DATA:
      stride = sizeof(fi_cq_data_entry);
      break;
    case FI_CQ_FORMAT_TAGGED:
      stride = sizeof(fi_cq_tagged_entry);
      break;
    default:
      break;  // the provider chooses: not known here
  }
  stride_.store(stride, std::memory_order_relaxed);
}

bool Queue::own() {
  return own_lane(lane_, [&] { return segment_->queue(labels_); });
}

void Queue::count_slow(bool mine, ssize_t rc, const void *entries) {
  uint64_t received = 0;
  const uint32_t stride = stride_.load(std::memory_order_relaxed);
  for (ssize_t i = 0; i < rc && stride >= sizeof(fi_cq_msg_entry); ++i) {
    fi_cq_msg_entry entry;
    std::memcpy(&entry, static_cast<const char *>(entries) + size_t(i) * stride, sizeof entry);
    if ((entry.flags & FI_RECV) != 0) received += entry.len;
  }
  const auto add = [&](QueueRecord &record, auto bump_word) {
    bump_word(record.reads, 1);
    if (rc > 0) {
      bump_word(record.completions, uint64_t(rc));
      bump_word(record.received_bytes, received);
      bump_word(record.batch[bucket_of(uint64_t(rc), kBatchSubBits, kBatchBuckets)], 1);
    } else if (rc == -FI_EAGAIN || rc == 0) {
      bump_word(record.empty, 1);
    } else {
      bump_word(record.error_reads, 1);
    }
  };
  if (mine) {
    QueueRecord &record = *lane_.own.load(std::memory_order_relaxed);
    write(record.head, [&] { add(record, bump); });
  } else {
    add(shared_of(
            lane_, [&] { return segment_->queue(labels_); },
            [&](QueueRecord *made) { segment_->retire(made); }),
        bump_shared);
  }
}

void Queue::count_error(ssize_t rc, void *context) {
  if (rc <= 0) return;
  const bool mine = lane_.owner.load(std::memory_order_relaxed) == this_thread() || own();
  if (mine) {
    QueueRecord &record = *lane_.own.load(std::memory_order_relaxed);
    write(record.head, [&] { bump(record.errors, 1); });
  } else {
    bump_shared(shared_of(
                    lane_, [&] { return segment_->queue(labels_); },
                    [&](QueueRecord *made) { segment_->retire(made); })
                    .errors,
                1);
  }
  uint32_t mask = armed_.load(std::memory_order_acquire);
  for (uint32_t slot = 0; mask != 0; ++slot, mask >>= 1) {
    if ((mask & 1) != 0) found(slot, context, false);
  }
}

void Queue::complete(ssize_t count, const void *entries) {
  const uint32_t stride = stride_.load(std::memory_order_relaxed);
  const uint32_t armed = armed_.load(std::memory_order_acquire);
  if (armed == 0 || stride == 0) return;
  for (ssize_t i = 0; i < count; ++i) {
    void *context;
    std::memcpy(&context, static_cast<const char *>(entries) + size_t(i) * stride, sizeof context);
    for (uint32_t slot = 0, mask = armed; mask != 0; ++slot, mask >>= 1) {
      if ((mask & 1) != 0 && slots_[slot].context.load(std::memory_order_relaxed) == context)
        found(slot, context, true);
    }
  }
}

void Queue::found(uint32_t index, void *context, bool keep_time) {
  Slot &slot = slots_[index];
  uint32_t expected = Slot::kArmed;
  if (!slot.state.compare_exchange_strong(expected, Slot::kBusy, std::memory_order_acquire)) return;
  if (slot.context.load(std::memory_order_relaxed) != context) {
    slot.state.store(Slot::kArmed, std::memory_order_release);
    return;
  }
  if (keep_time) {
    // The thread that reads the queue may not own the record.
    const uint64_t took = now_ns() - slot.start;
    bump_shared(slot.record->latency_samples, 1);
    bump_shared(slot.record->latency_ns, took);
    bump_shared(slot.record->latency[bucket_of(took, kTimeSubBits, kTimeBuckets)], 1);
  }
  armed_.fetch_and(~(1u << index), std::memory_order_relaxed);
  slot.state.store(Slot::kFree, std::memory_order_release);
}

int Queue::arm(Endpoint *endpoint, OperationRecord *record, void *context, uint64_t start) {
  const uint32_t index = turn_.fetch_add(1, std::memory_order_relaxed) % kSlots;
  Slot &slot = slots_[index];
  // Replaces an operation whose completion has not come in kSlots samples: it may have none.
  uint32_t expected = slot.state.load(std::memory_order_relaxed);
  if (expected == Slot::kBusy ||
      !slot.state.compare_exchange_strong(expected, Slot::kBusy, std::memory_order_acquire))
    return -1;
  slot.endpoint = endpoint;
  slot.record = record;
  slot.context.store(context, std::memory_order_relaxed);
  slot.start = start;
  slot.state.store(Slot::kArmed, std::memory_order_release);
  armed_.fetch_or(1u << index, std::memory_order_release);
  return static_cast<int>(index);
}

void Queue::disarm(int index, Endpoint *endpoint) {
  Slot &slot = slots_[index];
  uint32_t expected = Slot::kArmed;
  if (!slot.state.compare_exchange_strong(expected, Slot::kBusy, std::memory_order_acquire)) return;
  const bool mine = slot.endpoint == endpoint;
  if (mine) armed_.fetch_and(~(1u << index), std::memory_order_relaxed);
  slot.state.store(mine ? Slot::kFree : Slot::kArmed, std::memory_order_release);
}

void Queue::forget(Endpoint *endpoint) {
  for (uint32_t i = 0; i < kSlots; ++i) {
    // A thread that looks at a slot is done with it in a few instructions.
    while (slots_[i].state.load(std::memory_order_acquire) == Slot::kBusy) sched_yield();
    disarm(static_cast<int>(i), endpoint);
  }
}

void Queue::retire() {
  for (QueueRecord *record : {lane_.own.load(), lane_.shared.load()}) {
    if (record != &lost_reads) segment_->retire(record);
  }
}

}  // namespace weft::profile
