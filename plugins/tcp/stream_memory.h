// SPDX-License-Identifier: BSD-2-Clause
// The part of Stream that executes a peer's reads and writes of memory regions. Included by
// stream.h.
#ifndef WEFT_PLUGINS_TCP_STREAM_MEMORY_H
#define WEFT_PLUGINS_TCP_STREAM_MEMORY_H

#include <weft/sdk/persist.h>

#include <algorithm>

#include "plugins/tcp/stream.h"

namespace weft::tcp {

template <class Upper>
Verdict Stream<Upper>::refuse_rma(const FrameHeader &header, const RmaVector &vector,
                                  sdk::MrReject reject) {
  domain_.fabric().counters().rma_rejected.add();
  WEFT_WARN(upper().instance(), FI_LOG_EP_DATA,
            "%s from %s of %llu bytes at %#llx, key %#llx: %s; the connection is closed, since the "
            "protocol has no negative answer",
            header.op == Op::kWrite ? "write" : "read", upper().peer_name().c_str(),
            (unsigned long long)vector.length, (unsigned long long)vector.address,
            (unsigned long long)vector.key, text_of(reject));
  return Verdict::kReject;
}

template <class Upper>
Verdict Stream<Upper>::take_write(const FrameHeader &header, Target &target) {
  if (header.has_data() && upper().no_room_to_report()) {
    wait_for_room();
    return Verdict::kStall;
  }
  for (size_t i = 0; i < header.rma_count; ++i) {
    const RmaVector &v = header.rma[i];
    iovec iov;
    const auto access = domain_.regions().resolve(v.key, v.address, v.length, FI_REMOTE_WRITE, &iov,
                                                  1, upper().mr_peer());
    if (access.mr == nullptr) {
      unpin_incoming();
      return refuse_rma(header, v, access.reject);
    }
    ++access.mr->pins;
    incoming_[incoming_count_++] = access.mr;
    if (access.count != 0) target.add(iov.iov_base, iov.iov_len);
  }
  return Verdict::kAccept;
}

template <class Upper>
void Stream<Upper>::end_write(const FrameHeader &header) {
  // There is no negative answer: the stream ends.
  if (take_landing_error() != 0) is_broken_ = true;
  bool counts = true;
  if (header.flags & kFlagCommit) {
    for (size_t i = 0; i < header.rma_count; ++i) {
      const RmaVector &v = header.rma[i];
      iovec iov;
      const auto access = domain_.regions().resolve(v.key, v.address, v.length, FI_REMOTE_WRITE,
                                                    &iov, 1, upper().mr_peer());
      if (access.count != 0 && !sdk::make_persistent(iov)) is_broken_ = true;
    }
  }
  for (size_t i = 0; i < incoming_count_; ++i) {
    incoming_[i]->count_remote(FI_REMOTE_WRITE, header.rma[i].length);
    counts &= incoming_[i]->holder() == 0;
  }
  unpin_incoming();
  upper().written(header, counts);
}

template <class Upper>
Verdict Stream<Upper>::take_read(const FrameHeader &header) {
  Operation *op = owes_too_much() ? nullptr : upper().control_ops().take();
  if (op == nullptr) return refuse("reads none of the answers that it asked for");
  FrameHeader response;
  response.op = Op::kReadResponse;
  response.payload_size = header.rma_length();
  op->kind = Operation::kResponse;
  op->pin_count = 0;
  op->set_header(response, order_);
  for (size_t i = 0; i < header.rma_count; ++i) {
    const RmaVector &v = header.rma[i];
    iovec iov;
    const auto access = domain_.regions().resolve(v.key, v.address, v.length, FI_REMOTE_READ, &iov,
                                                  1, upper().mr_peer());
    if (access.mr == nullptr) {
      for (size_t k = 0; k < op->pin_count; ++k) --op->pins[k]->pins;
      upper().control_ops().give(op);
      return refuse_rma(header, v, access.reject);
    }
    ++access.mr->pins;
    op->pins[op->pin_count++] = access.mr;
    if (access.count != 0) op->add(iov.iov_base, iov.iov_len);
  }
  bool counts = true;
  for (size_t i = 0; i < op->pin_count; ++i) {
    op->pins[i]->count_remote(FI_REMOTE_READ, header.rma[i].length);
    counts &= op->pins[i]->holder() == 0;
  }
  if (counts) upper().was_read(response.payload_size);
  op->next_response = nullptr;
  (first_response_ != nullptr ? last_response_->next_response : first_response_) = op;
  last_response_ = op;
  queue_control(*op);
  return Verdict::kAccept;
}

template <class Upper>
bool Stream<Upper>::uses(const sdk::Mr &mr) const {
  const auto in = [&mr](sdk::Mr *const *list, size_t count) {
    return std::find(list, list + count, &mr) != list + count;
  };
  if (in(incoming_, incoming_count_)) return true;
  for (const Operation *op = first_response_; op != nullptr; op = op->next_response)
    if (in(op->pins, op->pin_count)) return true;
  return false;
}

}  // namespace weft::tcp

#endif
