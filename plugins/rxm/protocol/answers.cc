// SPDX-License-Identifier: BSD-2-Clause
// Answers to peers (Control), and operations that wait for the answer of a peer.
#include <rdma/fi_errno.h>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

namespace {

// A stranger gets this fraction of Settings::max_controls and Settings::owed_limit.
constexpr size_t kStrangersPart = 16;
constexpr size_t kKeptResult = 256;  // bytes of result memory that a Control keeps in the pool

}  // namespace

void Core::reset(Control &control, PacketType type, uint64_t id) {
  control.kind = Token::Kind::kControl;
  control.next = nullptr;
  control.told = false;
  control.more.clear();
  control.owed = 0;
  control.length = kHeaderSize;
  control.header = header_of(type, 0);
  control.header.message = id;
}

Control *Core::new_control(Connection &c, PacketType type, uint64_t id) {
  const size_t most = settings_.max_controls / (c.peer_.is_stranger() ? kStrangersPart : 1);
  Control *control = c.controls_ < most ? controls_.take() : nullptr;
  if (control == nullptr) {
    fail_peer(c, "more requests than it takes answers for");
    return nullptr;
  }
  control->connection = &c;
  ++c.controls_;
  reset(*control, type, id);
  return control;
}

void Core::free_control(Control &control) {
  Connection &c = *control.connection;
  --c.controls_;
  c.owed_ -= control.owed;
  if (control.more.capacity() > kKeptResult) std::vector<uint8_t>().swap(control.more);
  controls_.give(&control);
}

void Core::answer(Connection &c, PacketType type, uint64_t id) {
  if (Control *control = new_control(c, type, id)) queue_control(c, *control);
}

void Core::queue_control(Connection &c, Control &control) {
  control.owed = control.more.size();
  c.owed_ += control.owed;
  const bool too_much =
      c.owed_ > settings_.owed_limit / (c.peer_.is_stranger() ? kStrangersPart : 1);
  if (!too_much && c.state_ == State::kConnected && c.control_ == nullptr) {
    const ssize_t rc = send_control(c, control);
    if (rc == 0) return;
    if (rc != -FI_EAGAIN) {
      free_control(control);
      return on_closed(c, int(-rc));
    }
    sender_.block(c);
  }
  if (c.state_ == State::kEnded) return free_control(control);
  (c.control_ != nullptr ? c.control_last_->next : c.control_) = &control;
  c.control_last_ = &control;
  if (too_much) fail_peer(c, "more atomics than it takes results for");
}

ssize_t Core::send_control(Connection &c, Control &control) {
  control.header.connection = c.peer_slot_;
  const iovec iov[2] = {{&control.header, control.length},
                        {control.more.data(), control.more.size()}};
  const size_t total = control.length + control.more.size();
  const size_t count = control.more.empty() ? 1 : 2;
  if (total <= settings_.inject_limit) {
    uint64_t flags = FI_INJECT;
    if (control.told && sender_.tells(c)) flags |= Carrier::kLater;
    const ssize_t rc = sender_.send(c, iov, count, flags, nullptr);
    // flush() reads control.next afterwards: the pool has not handed the object out again by then.
    if (rc == 0) free_control(control);
    return rc;
  }
  return sender_.send(c, iov, count, FI_COMPLETION, &control);
}

// The carrier has the packet. The operation waits for the answer of the peer.
void Core::await(Connection &c, TxOp &op) {
  depart(c, op);
  op.sent = op.answer = true;
  c.in_flight_.add(op);
}

TxOp *Core::awaited(Connection &c, uint64_t id) {
  TxOp *const op = ops_.find(id);
  return op != nullptr && op->answer && op->connection == &c ? op : nullptr;
}

}  // namespace weft::rxm
