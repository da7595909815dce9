// SPDX-License-Identifier: BSD-2-Clause
// InnerProgress: many completion queues of one domain of the provider beneath, which a layer's
// domain reads in each progress. A read of an empty queue moves on all of the domain beneath. So
// one such read is enough: in the same progress, no other queue is read that has nothing.
//
// Example:
//    void read_all(InnerProgress &progress, const Engine &engine, const InnerQueue &queue) {
//      fi_cq_tagged_entry entry;
//      while (progress.may_find(queue, engine)) {
//        const ssize_t n = fi_cq_read(queue.cq, &entry, 1);
//        if (n == -FI_EAGAIN) progress.note(engine);
//        if (n < 1) return;
//      }
//    }
//
// A provider that cannot say whether a queue has something is read each time. Not for counters,
// whose value is read anyway.
#ifndef WEFT_SDK_LAYERS_INNER_PROGRESS_H
#define WEFT_SDK_LAYERS_INNER_PROGRESS_H

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/progress/engine.h>

#include <cstdint>

namespace weft::sdk {

struct InnerQueue {
  InnerQueue() = default;
  explicit InnerQueue(fid_cq *cq) : cq(cq) {
    if (fi_control(&cq->fid, WEFT_QUEUE, &told_) != 0) told_ = {};
  }
  bool may_have_entries() const {
    return told_.has_entries == nullptr || told_.has_entries(told_.cq) != 0;
  }

  fid_cq *cq = nullptr;

 private:
  weft_queue told_{};
};

class InnerProgress {
 public:
  // With the lock of the layer's engine held.
  bool may_find(const InnerQueue &queue, const Engine &engine) const {
    return round_ != engine.rounds() || queue.may_have_entries();
  }
  // A read has found nothing, so the domain beneath has made progress.
  void note(const Engine &engine) { round_ = engine.rounds(); }

 private:
  uint64_t round_ = ~UINT64_C(0);  // the last one with progress beneath
};

}  // namespace weft::sdk

#endif
