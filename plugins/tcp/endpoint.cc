// SPDX-License-Identifier: BSD-2-Clause
// An endpoint's op tables, its data path and its events. Opening, binding, options and closing are
// in endpoint_life.cc, connecting is in connect.cc.
#include "plugins/tcp/endpoint.h"

#include <poll.h>
#include <weft/sdk/objects/alias.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/transfers/levels.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>

#include "plugins/tcp/fabric.h"
#include "plugins/tcp/shared_receive.h"

namespace weft::tcp {
namespace {

// Operations allocated at first. Few, because layers have many endpoints, most of them idle.
constexpr size_t kOpsAtOnce = 2;

sdk::EndpointLimits limits_of(const Settings &settings) {
  return {.tx_size = settings.tx_size,
          .rx_size = settings.rx_size,
          .inject_size = kInjectSize,
          .max_msg_size = kMaxMessageSize,
          .early_receives = true};
}

// None asked for: all.
fi_info with_caps(fi_info info) {
  if (info.caps == 0) info.caps = kTransmitCaps | kReceiveCaps;
  return info;
}

}  // namespace

// ---- tables ----

Endpoint::Endpoint(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      ConnectedCore(domain.shared(), domain.fabric().connections(), domain.engine(), base(),
                    with_caps(info), limits_of(domain.fabric().settings()), &tx_, &rx_),
      Stream(domain),
      ExitDuty(domain.engine(), domain.fabric().settings().close_linger_ns()),
      tx_(info),
      rx_(info),
      tx_ops_(limits().tx_size, kOpsAtOnce),
      keeper_(sdk::order_of(info), kNativeOrder),
      own_recvs_(limits().rx_size) {
  keeper_.make_room(0);
  set_tables(*this);
  count_in_flight(
      [](sdk::EndpointCore &core) { return static_cast<Endpoint &>(core).tx_ops_.in_use(); });
}

Endpoint::~Endpoint() = default;

template <class T>
void Endpoint::set_tables(T &object) const {
  fid_ep *c = object.c();
  c->fid.ops = sdk::c_table(sdk::fid_ops<T>());
  c->ops = sdk::c_table(sdk::ep_ops<T>());
  c->cm = sdk::c_table(sdk::cm_ops<T>());
  c->msg = sdk::c_table(sdk::msg_ops<T>());
  c->rma = sdk::c_table(caps() & FI_RMA ? sdk::rma_ops<T>() : sdk::rma_ops<Nothing>());
  c->tagged = sdk::c_table(sdk::tagged_ops<Nothing>());
  c->atomic = sdk::c_table(sdk::atomic_ops<Nothing>());
  c->collective = sdk::c_table(sdk::collective_ops<Nothing>());
}

int Endpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<Endpoint>::open(*this, arg);
  return control_connected(command, arg, tcp::kSendFlags);
}

// ---- output ----

Operation *Endpoint::take_operation(uint64_t flags, ssize_t &rc) {
  rc = -FI_EAGAIN;
  if (output_lost()) {  // until what the peer has sent is read; then the endpoint is not connected
    if (stalled()) rc = -FI_ECONNRESET;
    return nullptr;
  }
  if (state_ == State::kConnected) {
    Operation *op = tx_.is_full() ? nullptr : tx_ops_.take();
    if (op != nullptr) return op;
    // Queued injects hold operations, and an application that only injects makes no progress.
    flush_output();
    if (state_ == State::kConnected && !tx_.is_full()) op = tx_ops_.take();
    // Nor does it read the answers that they may wait for.
    if (op == nullptr && flags & FI_INJECT && flags & sdk::kRemoteLevels)
      domain_.engine().progress();
    if (op != nullptr || state_ == State::kConnected) return op;
  }
  rc = not_connected();
  return nullptr;
}

ssize_t Endpoint::start(const sdk::SendRequest &r) {
  if (!takes(r.flags)) return -FI_EBADFLAGS;
  ssize_t rc;
  Operation *op = take_operation(r.flags, rc);
  if (op == nullptr) return rc;
  FrameHeader header;
  header.payload_size = r.length;
  if (r.flags & FI_REMOTE_CQ_DATA) {
    header.flags |= kFlagRemoteData;
    header.data = r.data;
  }
  op->wait_ack = (r.flags & sdk::kRemoteLevels) != 0;
  if (op->wait_ack) header.flags |= kFlagDelivery;
  op->kind = Operation::kSend;
  op->mark = uint8_t(r.flags & kMarks);
  op->flags = FI_SEND | FI_MSG;
  op->report = r.report;
  op->fence = r.flags & FI_FENCE || keeper_.must_wait(0, sdk::OrderKind::kSend);
  op->context = r.context;
  op->length = r.length;
  op->pin_count = 0;
  op->result_count = 0;
  op->set_header(header, order_);
  if (const int rc = op->place(r.iov, r.count, r.length, r.flags & FI_INJECT, domain_.hmem());
      rc != 0) {
    op->drop_copy();
    tx_ops_.give(op);
    return rc;
  }
  keeper_.started(0, sdk::OrderKind::kSend, op->fence);
  Stream::start(*op, r.length, r.flags & FI_MORE, r.report && !(r.flags & WEFT_CARRIER_UNASKED),
                r.flags & WEFT_CARRIER_LATER);
  return 0;
}

ssize_t Endpoint::start(const sdk::RmaRequest &r) {
  if (!takes(r.flags)) return -FI_EBADFLAGS;
  ssize_t rc;
  Operation *op = take_operation(r.flags, rc);
  if (op == nullptr) return rc;
  rc = op->prepare(r, order_, domain_.hmem());
  if (rc != 0) {
    op->drop_copy();
    tx_ops_.give(op);
    return rc;
  }
  op->mark = uint8_t(r.flags & kMarks);
  const auto kind = r.write ? sdk::OrderKind::kWrite : sdk::OrderKind::kRead;
  op->fence |= keeper_.must_wait(0, kind);
  keeper_.started(0, kind, op->fence);
  Stream::start(*op, r.length, r.flags & FI_MORE, r.report && !(r.flags & WEFT_CARRIER_UNASKED));
  return 0;
}

void Endpoint::complete(Operation &op, int error) {
  if (error == 0) {
    tx_.succeed(op.context, op.flags, op.length, op.report);
  } else {
    tx_.finish({.context = op.context, .flags = op.flags, .err = error});
  }
  answered(op);
  op.drop_copy();
  tx_ops_.give(&op);
}

// An operation that had completed has no context any more: as with injected ones, the endpoint's is
// told.
void Endpoint::lost(uint64_t flags, int error) {
  tx_.finish({.context = c()->fid.context, .flags = flags, .err = error});
}

// ---- input ----

sdk::RecvQueue &Endpoint::recv_queue() {
  return srx_ != nullptr ? srx_->queue() : own_recvs_;
}
size_t Endpoint::min_multi_recv() const {
  return srx_ != nullptr ? srx_->min_multi_recv() : min_multi_recv_;
}

ssize_t Endpoint::start(const sdk::RecvRequest &r) {
  if (srx_ != nullptr) return -FI_EOPNOTSUPP;  // receives are posted to the shared context
  if (r.flags & ~sdk::kRecvFlags) return -FI_EBADFLAGS;
  if (state_ == State::kDisconnected) return -FI_ESHUTDOWN;
  return own_recvs_.post(r.iov, r.count, r.context, r.flags);
}

void Endpoint::on_recv_posted() {
  if (state_ == State::kConnected) continue_stalled();
}

sdk::PostedRecv *Endpoint::find_recv(uint64_t payload) {
  sdk::RecvQueue &queue = recv_queue();
  for (;;) {
    sdk::PostedRecv *r = queue.front();
    if (r == nullptr) {
      queue.wait(*this);
      return nullptr;
    }
    if (!(r->flags & FI_MULTI_RECV)) return queue.pop();
    if (no_room_to_report()) {  // it may take any number of messages
      wait_for_room();
      return nullptr;
    }
    // A partly used buffer that is too short for this message goes back to the application, and the
    // next one is tried.
    if (payload <= r->length || r->length == r->capacity) return r;
    queue.pop();
    if (r->users == 0) finish_recv(r);
  }
}

void Endpoint::finish_recv(sdk::PostedRecv *r) {
  // No other flag: the entry stands for the buffer, not for a message (fi_cq.3, FI_MULTI_RECV).
  if (rx_.cq != nullptr) rx_.cq->push({.context = r->context, .flags = FI_MULTI_RECV});
  recv_queue().release(r);
}

Verdict Endpoint::take_message(const FrameHeader &header, Target &target) {
  if (messages_held_) return Verdict::kStall;
  sdk::PostedRecv *r = find_recv(header.payload_size);
  if (r == nullptr) return Verdict::kStall;
  current_recv_ = r;
  current_fit_ = target.fit({r->iov, r->count}, header.payload_size);
  current_base_ = r->count != 0 ? static_cast<char *>(r->iov[0].iov_base) : nullptr;
  if (r->flags & FI_MULTI_RECV) {
    ++r->users;
    r->iov[0] = {current_base_ + current_fit_, r->iov[0].iov_len - current_fit_};
    r->length -= current_fit_;
    if (r->length < std::max<size_t>(min_multi_recv(), 1)) recv_queue().pop();
  }
  return Verdict::kAccept;
}

void Endpoint::end_message(const FrameHeader &header) {
  sdk::PostedRecv *r = std::exchange(current_recv_, nullptr);
  const bool multi = r->flags & FI_MULTI_RECV;
  uint64_t flags = FI_RECV | (header.flags & kFlagTagged ? FI_TAGGED : FI_MSG);
  if (header.has_data()) flags |= FI_REMOTE_CQ_DATA;
  bool done = true;
  if (multi) {
    done = --r->users == 0 && r->popped;
    if (done && !r->cancelled) flags |= FI_MULTI_RECV;
  }
  const uint64_t excess = header.payload_size - current_fit_;
  const int broken = take_landing_error();
  if (excess == 0 && broken == 0) {
    if (rx_.cntr != nullptr) rx_.cntr->add_events(1, current_fit_);
    if (rx_.cq != nullptr && (rx_.reports(r->flags) || flags & FI_MULTI_RECV))
      rx_.cq->push({.context = r->context,
                    .flags = flags,
                    .len = current_fit_,
                    .buf = multi ? current_base_ : nullptr,
                    .data = header.data,
                    .tag = header.tag,
                    .src_addr = source_.value_or(FI_ADDR_NOTAVAIL)});
  } else {
    if (rx_.cntr != nullptr) rx_.cntr->add_error();
    if (rx_.cq != nullptr)
      rx_.cq->push_error({.context = r->context,
                          .flags = flags,
                          .len = current_fit_,
                          .buf = multi ? current_base_ : nullptr,
                          .data = header.data,
                          .olen = excess,
                          .err = broken != 0 ? broken : FI_ETRUNC,
                          .prov_errno = broken != 0 ? broken : FI_ETRUNC});
  }
  if (!done) return;
  if (r->cancelled) report_cancelled(*r);
  recv_queue().release(r);
}

void Endpoint::written(const FrameHeader &header, bool counts) {
  if (counts) rx_.count_remote(FI_REMOTE_WRITE, header.payload_size);
  if (header.has_data())
    rx_.report_remote_write(header.payload_size, header.data, source_.value_or(FI_ADDR_NOTAVAIL));
}

Verdict Endpoint::on_header(const FrameHeader &header, Target &target) {
  last_payload_ = header.payload_size;
  if (header.wants_ack() && owes_too_much())
    return refuse("reads none of the answers that it asked for");
  switch (header.op) {
    case Op::kMessage:
      if (header.is_answer()) return take_ack(header);
      return take_message(header, target);
    case Op::kWrite:
      return take_write(header, target);
    case Op::kReadRequest:
      return take_read(header);
    case Op::kReadResponse:
      return take_response(header, target);
    default:
      return refuse("sends an operation that message endpoints do not have");
  }
}

void Endpoint::on_frame_end(const FrameHeader &header) {
  switch (header.op) {
    case Op::kMessage:
      if (header.is_answer()) return end_ack(header);
      end_message(header);
      break;
    case Op::kWrite:
      if (!end_write(header)) return;
      break;
    case Op::kReadResponse:
      return end_response(header);
    default:
      return;
  }
  if (header.wants_ack()) queue_ack();
}

// `r` is off the queue. A multi-receive buffer in use is reported when its last message has ended.
void Endpoint::cancel(sdk::PostedRecv &r) {
  r.cancelled = true;
  if (r.users != 0) return;
  report_cancelled(r);
  recv_queue().release(&r);
}

void Endpoint::report_cancelled(const sdk::PostedRecv &r) {
  rx_.fail(r.context, FI_RECV | FI_MSG | (r.flags & FI_MULTI_RECV), FI_ECANCELED);
}

void Endpoint::drop_region(sdk::Mr &mr) {
  if (!uses(mr)) return;
  WEFT_WARN(
      instance(), FI_LOG_MR,
      "region with key %#llx is closed while %s still reads or writes it: the connection is closed",
      (unsigned long long)mr.key(), peer_.to_string().c_str());
  disconnect(FI_ECONNABORTED, true);
}

// ---- events ----

void Endpoint::watch() {
  if (socket_ < 0) return;
  uint32_t want = 0, cm = 0;
  switch (state_) {
    case State::kConnecting:
      want = cm = step_ == Step::kHandshake ? EPOLLOUT : EPOLLIN;
      break;
    case State::kConnected:
      want = (reader_.stalled() ? (shutdown_told_ ? 0 : uint32_t(EPOLLRDHUP)) : kInput) |
             (want_out_ ? uint32_t(EPOLLOUT) : 0);
      cm = EPOLLRDHUP | EPOLLET;
      break;
    default:
      break;
  }
  engine_.change(*this, want, cm);
}

void Endpoint::on_event(uint32_t events) {
  switch (state_) {
    case State::kConnecting:
      if (step_ == Step::kHandshake) return on_connecting();
      if (step_ == Step::kProof) return prove();
      return on_requested();
    case State::kConnected:
      if (events & EPOLLOUT) flush_output();
      if (state_ != State::kConnected) return;
      if (reader_.stalled()) return hang_up_while_stalled();
      if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP)) receive(events);
      return;
    default:
      return;
  }
}

// Nothing may be read, because the frame at the front has no receive. If the peer has closed,
// reports FI_SHUTDOWN all the same.
void Endpoint::hang_up_while_stalled() {
  if (shutdown_told_) return;
  pollfd p{socket_, POLLRDHUP, 0};
  if (::poll(&p, 1, 0) <= 0 || !(p.revents & (POLLRDHUP | POLLHUP | POLLERR))) return;
  report_shutdown();
  watch();
}

void Endpoint::on_flush() {
  if (state_ != State::kConnected) return;
  retry_after_full_queue();
  if (state_ == State::kConnected) flush_output();
}

// ---- control ----

ssize_t Endpoint::cancel(void *context) {
  sdk::Guard guard(engine_.lock());
  sdk::PostedRecv *r = own_recvs_.remove(context);
  // Not found: the operation has completed, is being received, or is a transmit. Transmits keep
  // their place in the stream and cannot be cancelled.
  if (r == nullptr) return -FI_ENOENT;
  cancel(*r);
  return 0;
}

ssize_t Endpoint::rx_size_left() {
  sdk::Guard guard(engine_.lock());
  return enabled() ? ssize_t(recv_queue().left()) : -FI_EOPBADSTATE;
}

ssize_t Endpoint::tx_size_left() {
  sdk::Guard guard(engine_.lock());
  return enabled() ? ssize_t(tx_ops_.limit() - tx_ops_.in_use()) : -FI_EOPBADSTATE;
}

}  // namespace weft::tcp
