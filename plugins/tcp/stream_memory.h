// SPDX-License-Identifier: BSD-2-Clause
// The part of Stream that executes a peer's reads and writes of memory regions. Included by
// stream.h.
#ifndef WEFT_PLUGINS_TCP_STREAM_MEMORY_H
#define WEFT_PLUGINS_TCP_STREAM_MEMORY_H

#include <weft/sdk/memory/persist.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>

#include "plugins/tcp/stream.h"

namespace weft::tcp {

template <class Upper>
void Stream<Upper>::note_refusal(const FrameHeader &header, const RmaVector &vector,
                                 sdk::MrReject reject) {
  domain_.fabric().counters().rma_rejected.add();
  const bool waits = header.op != Op::kWrite || header.wants_ack();
  WEFT_WARN_SPARSE(upper().instance(), FI_LOG_EP_DATA,
                   "%s from %s of %llu bytes at %#llx, key %#llx: %s; %s",
                   header.op == Op::kWrite ? "write" : "read", upper().peer_name().c_str(),
                   (unsigned long long)vector.length, (unsigned long long)vector.address,
                   (unsigned long long)vector.key, text_of(reject),
                   refuses_               ? "the peer gets an error"
                   : !upper().is_hidden() ? "the connection is closed"
                   : waits ? "the connection ends, since the peer's protocol has no negative answer"
                           : "the peer is not told, since its protocol has no negative answer");
}

// Nothing of the payload is taken. Where applications see connections this one ends, as those of
// devices do. Where they do not, the frames behind it must not be lost with it.
template <class Upper>
Verdict Stream<Upper>::refuse_write(const FrameHeader &header, const RmaVector &vector,
                                    sdk::MrReject reject, Target &target) {
  note_refusal(header, vector, reject);
  if (!refuses_ && !upper().is_hidden()) return Verdict::kReject;
  if (refuses_ && owes_too_much()) return refuse("reads none of the answers that it asked for");
  if (!refuses_ && header.wants_ack())
    if (const Verdict verdict = end_answers(); verdict != Verdict::kAccept) return verdict;
  refused_ = true;
  target = {};
  target.discard = header.payload_size;
  return Verdict::kAccept;
}

template <class Upper>
Verdict Stream<Upper>::refuse_read(const FrameHeader &header, const RmaVector &vector,
                                   sdk::MrReject reject, Operation &answer) {
  note_refusal(header, vector, reject);
  for (size_t i = 0; i < answer.pin_count; ++i) --answer.pins[i]->pins;
  answer.pin_count = 0;
  if (!refuses_) {
    upper().control_ops().give(&answer);
    return upper().is_hidden() ? end_answers() : Verdict::kReject;
  }
  FrameHeader refusal;
  refusal.op = Op::kReadResponse;
  refusal.op_data = kOpDataRefused;
  answer.set_header(refusal, order_);
  queue_response(answer);
  return Verdict::kAccept;
}

// The peer waits for an answer that must not come, in a protocol without another one. So our half
// of the connection ends: that fails its operation. What it sends until it knows takes effect. Our
// own operations wait for the end.
template <class Upper>
Verdict Stream<Upper>::end_answers() {
  if (mute_) return Verdict::kAccept;
  flush_output();
  if (!upper().open() || !writer_.empty()) return Verdict::kReject;
  ::shutdown(socket_, SHUT_WR);
  mute_ = true;
  upper().on_mute();
  return Verdict::kAccept;
}

// A peer that knows no refusal ends the connection, when a write may have completed and messages
// behind it have. So it is asked for an acknowledgement, for which only the trace waits.
template <class Upper>
void Stream<Upper>::trace(Operation &write) {
  write.trace = upper().control_ops().take();
  if (write.trace == nullptr) return;
  write.trace->kind = Operation::kTrace;
  write.trace->mark = write.mark;
  write.change_flags(kFlagDelivery, true, order_);
}

template <class Upper>
void Stream<Upper>::forget_trace(Operation &op) {
  if (op.trace == nullptr) return;
  op.change_flags(kFlagDelivery, false, order_);
  upper().control_ops().give(std::exchange(op.trace, nullptr));
}

// The connection has ended before the peer took the access: it, and the messages that have
// completed behind it, may be lost. An end of our own making is no news of them.
template <class Upper>
void Stream<Upper>::fail_sent(Operation &op, int error) {
  const bool tells = traces() && op.kind != Operation::kSend && error != FI_ECANCELED;
  const uint32_t messages = tells ? op.behind[0] : 0, tagged = tells ? op.behind[1] : 0;
  last_access_ = nullptr;
  if (op.kind == Operation::kTrace) {
    const uint64_t mark = op.mark;
    upper().control_ops().give(&op);
    if (tells) tell_lost(mark, error);
  } else {
    upper().complete(op, error);
  }
  for (uint32_t i = 0; i < messages; ++i) tell_lost(FI_MSG, error);
  for (uint32_t i = 0; i < tagged; ++i) tell_lost(FI_TAGGED, error);
}

template <class Upper>
void Stream<Upper>::tell_lost(uint64_t mark, int error) {
  if (mark != 0) upper().lost((mark == FI_RMA ? FI_WRITE : FI_SEND) | mark, error);
}

template <class Upper>
void Stream<Upper>::queue_response(Operation &op) {
  op.next_response = nullptr;
  (first_response_ != nullptr ? last_response_->next_response : first_response_) = &op;
  last_response_ = &op;
  queue_control(op);
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
      return refuse_write(header, v, access.reject, target);
    }
    ++access.mr->pins;
    incoming_[incoming_count_++] = access.mr;
    if (access.count != 0) target.add(iov.iov_base, iov.iov_len);
  }
  return Verdict::kAccept;
}

template <class Upper>
bool Stream<Upper>::end_write(const FrameHeader &header) {
  if (std::exchange(refused_, false)) {
    if (refuses_) queue_ack(header.wants_ack() ? kOpDataRefused : kOpDataWriteRefused);
    return false;
  }
  // There is no answer for this: the stream ends.
  if (take_landing_error() != 0) broken_ = FI_EIO;
  bool counts = true;
  if (header.flags & kFlagCommit) {
    for (size_t i = 0; i < header.rma_count; ++i) {
      const RmaVector &v = header.rma[i];
      iovec iov;
      const auto access = domain_.regions().resolve(v.key, v.address, v.length, FI_REMOTE_WRITE,
                                                    &iov, 1, upper().mr_peer());
      if (access.count != 0 && !sdk::make_persistent(iov)) broken_ = FI_EIO;
    }
  }
  for (size_t i = 0; i < incoming_count_; ++i) {
    incoming_[i]->count_remote(FI_REMOTE_WRITE, header.rma[i].length);
    counts &= incoming_[i]->holder() == 0;
  }
  unpin_incoming();
  upper().written(header, counts);
  return true;
}

template <class Upper>
Verdict Stream<Upper>::take_read(const FrameHeader &header) {
  if (mute_) return Verdict::kAccept;
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
    if (access.mr == nullptr) return refuse_read(header, v, access.reject, *op);
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
  queue_response(*op);
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
