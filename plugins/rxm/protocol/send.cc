// SPDX-License-Identifier: BSD-2-Clause
// Operations from take() to their completion. Everything that a small message passes is in this
// file, so that the compiler sees it as a whole.
#include <rdma/fi_errno.h>
#include <weft/sdk/iov.h>
#include <weft/sdk/levels.h>

#include <algorithm>
#include <cstring>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

// Whether the payload is in memory of a device: it is copied once for a rendezvous, and once more in
// small pieces for segments.
bool Core::is_devices(const TxOp &op) const {
  return settings_.hmem != nullptr && op.count != 0 &&
         settings_.hmem->find(op.iov[0].iov_base, op.iov[0].iov_len);
}

void Core::prepare_message(TxOp &op, bool tagged, bool has_data, Tell until) {
  op.tagged = tagged;
  op.has_data = has_data;
  op.until = until;
  if (op.length <= settings_.eager_limit) [[likely]] {
    op.form = TxOp::Form::kEager;  // and may go without a header
    return;
  }
  if (op.length <= settings_.sar_limit && settings_.eager_limit <= UINT16_MAX && !is_devices(op)) {
    op.form = TxOp::Form::kSegments;
    make_header(op, PacketType::kSegment);
  } else {
    op.form = TxOp::Form::kRendezvous;
    make_header(op, PacketType::kRendezvous);
  }
  op.header.message = id_of(op);
}

void Core::make_header(TxOp &op, PacketType type) {
  op.header = header_of(type, 0);
  op.header.op = uint8_t(op.tagged ? PacketOp::kTagged : PacketOp::kMessage);
  op.header.size = op.length;
  if (type != PacketType::kRendezvous && op.until != Tell::kNothing)
    op.header.flags = op.until == Tell::kMatched ? kFlagTellMatched : kFlagTellDelivered;
  if (op.has_data) {
    op.header.flags |= kFlagRemoteData;
    op.header.data = op.data;
  }
  if (op.tagged) op.header.tag = op.tag;
}

bool Core::own_data(TxOp &op) {
  uint8_t *to = op.bytes;
  // A rendezvous stores its vectors in op.bytes.
  if (op.form == TxOp::Form::kRendezvous || op.length > sizeof op.bytes) {
    op.bounce = std::make_unique_for_overwrite<uint8_t[]>(op.length);
    to = op.bounce.get();
  }
  if (!sdk::hmem_gather(settings_.hmem, to, op.iov, op.count, 0, op.length)) return false;
  op.iov[0] = {to, size_t(op.length)};
  op.desc[0] = nullptr;
  op.count = 1;
  op.inject = false;
  return true;
}

void Core::enqueue(Peer &p, TxOp &op) {
  if (op.inject && !(op.count == 1 && op.iov[0].iov_base == op.bytes)) {
    own_data(op);
    op.inject = true;
  }
  p.queue_.push(op);
  upper_.on_wait(op);
}

void Core::resume() {
  sender_.resume([this](Connection &c) { return flush(c); });
}

// Gives the carrier the packet of a message. `data`: of a bare message.
[[gnu::always_inline]] inline ssize_t Core::transmit_whole(Connection &c, TxOp &op,
                                                           std::span<const iovec> iov,
                                                           void *const *desc, size_t length,
                                                           std::optional<uint32_t> data) {
  const bool waits = op.until != Tell::kNothing;
  constexpr uint64_t kLevels = FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
  uint64_t flags = op.mark() | op.asked() | (op.flags & (waits ? FI_MORE : FI_MORE | kLevels));
  if (length <= settings_.inject_limit) flags |= FI_INJECT;
  if (data) flags |= FI_REMOTE_CQ_DATA;
  Token *const token = op.inject ? nullptr : &op;
  if (token != nullptr) {
    flags |= FI_COMPLETION;
    ++op.tokens;
  }
  const ssize_t rc = sender_.send(c, iov.data(), iov.size(), flags, token, desc, data.value_or(0));
  if (rc != 0) {
    if (token != nullptr) --op.tokens;
    return rc;
  }
  op.sent = true;
  if (waits) {
    in_flight_.await(c, op);
  } else if (token != nullptr) {
    in_flight_.depart(c, op);
  } else if (!op.queued) {  // it ends when the carrier has it
    in_flight_.settle(op);
  }
  return 0;
}

// The remote data with which the message needs no header; nullopt: it needs one.
inline std::optional<uint32_t> Core::bare_data(const Connection &c, const TxOp &op) const {
  if (!c.bare_ || op.has_data || op.until != Tell::kNothing || op.count > settings_.iov_limit)
    return std::nullopt;
  return op.tagged ? c.tags_sent_.data_of(op.tag) : kBareUntagged;
}

// Sends a message of one packet.
[[gnu::always_inline]] inline ssize_t Core::transmit_eager(Connection &c, TxOp &op) {
  const std::optional<uint32_t> data = bare_data(c, op);
  if (!data) return transmit_with_header(c, op);
  const ssize_t rc = transmit_whole(c, op, {op.iov, op.count}, desc_of(op), op.length, data);
  if (rc == 0) counters_.bare.add_alone();
  return rc;
}

ssize_t Core::transmit_with_header(Connection &c, TxOp &op) {
  suit(c, op);
  if (op.form == TxOp::Form::kRendezvous) {
    op.header.connection = c.peer_slot_;
    return transmit_rendezvous(c, op);
  }
  make_header(op, PacketType::kEager);
  if (op.until != Tell::kNothing) op.header.message = id_of(op);
  op.header.connection = c.peer_slot_;
  iovec iov[1 + sdk::kIovLimit];
  void *parts[1 + sdk::kIovLimit];
  void *const *desc = nullptr;
  size_t count = 1;
  if (op.count == 1 && op.iov[0].iov_base == op.bytes) {
    iov[0] = {&op.header, kHeaderSize + size_t(op.length)};
  } else {
    iov[0] = {&op.header, kHeaderSize};
    if (op.length != 0) {
      if (op.count < settings_.iov_limit) {
        for (size_t i = 0; i < op.count; ++i) iov[count++] = op.iov[i];
        if (settings_.descriptors) {
          parts[0] = nullptr;
          std::copy_n(op.desc, op.count, parts + 1);
          desc = parts;
        }
      } else {
        if (op.bounce == nullptr) {
          op.bounce = std::make_unique_for_overwrite<uint8_t[]>(op.length);
          if (!sdk::hmem_gather(settings_.hmem, op.bounce.get(), op.iov, op.count, 0, op.length))
            return -FI_EIO;
        }
        iov[count++] = {op.bounce.get(), size_t(op.length)};
      }
    }
  }
  const bool learns = c.bare_ && op.tagged;
  const uint64_t tag = op.tag;
  const ssize_t rc =
      transmit_whole(c, op, {iov, count}, desc, kHeaderSize + op.length, std::nullopt);
  if (rc == 0 && learns) c.tags_sent_.learn(tag);  // the operation may have ended
  return rc;
}

[[gnu::always_inline]] inline ssize_t Core::transmit(Connection &c, TxOp &op) {
  sender_.replies(c);
  if (op.fence && c.departed.count() != 0 && op.offset == 0) return -FI_EAGAIN;
  if (settings_.max_connections != 0) idle_limit_.touch(c);
  if (op.form == TxOp::Form::kEager) return transmit_eager(c, op);
  suit(c, op);
  op.header.connection = c.peer_slot_;
  switch (op.form) {
    case TxOp::Form::kEager:  // since suit()
      return transmit_with_header(c, op);
    case TxOp::Form::kSegments:
      return transmit_segments(c, op);
    case TxOp::Form::kRendezvous:
      return transmit_rendezvous(c, op);
    case TxOp::Form::kRead:
    case TxOp::Form::kWrite:
      return transmit_access(c, op);
    case TxOp::Form::kAtomic:
      return transmit_atomic(c, op);
  }
  return -FI_EINVAL;
}

int Core::start(TxOp &op, uint32_t index, const sdk::Address *address) {
  const bool outlives = op.form == TxOp::Form::kRendezvous || op.until != Tell::kNothing;
  if (op.inject && outlives && !own_data(op)) return -FI_EFAULT;
  Peer *p = peers_.at(index);
  if (p == nullptr) {
    if (address == nullptr) return -FI_EINVAL;
    p = &peers_.get(*address);
    if (p->is_stranger()) rename(*p, index);
  }
  if (Connection *const c = p->way_; c != nullptr && p->queue_.empty()) {
    op.connection = c;
    const ssize_t rc = transmit(*c, op);
    if (rc == 0) return 0;
    if (rc != -FI_EAGAIN && !is_link_error(rc)) return int(rc);
    if (rc != -FI_EAGAIN) {
      // This operation is the first to find the link dead. Earlier operations are lost. This one is
      // queued for the next link, unless part of it was sent.
      ended(*c, int(-rc));
      if (op.offset != 0) {
        in_flight_.end(op, int(-rc));
        return 0;
      }
    }
  }
  return wait_for_way(*p, op);
}

int Core::wait_for_way(Peer &p, TxOp &op) {
  counters_.queued.add_alone();
  const Connection *const c = p.main_;
  if (c != nullptr && c->state_ == State::kConnected && !c->sending.credits().has_room())
    counters_.waited_for_credits.add_alone();
  enqueue(p, op);
  if (p.way_ != nullptr) sender_.block(*p.way_);
  demand(p);
  return 0;
}

// Sends what is queued: credits, answers, operations. False: the carrier has no room.
bool Core::flush(Connection &c) {
  if (c.quiet_) return true;  // the peer's first packet makes it go on
  if (!sender_.tell_credits(c)) return false;
  if (const ssize_t rc = answers_.flush(c); rc != 0) {
    if (rc == -FI_EAGAIN) return false;
    on_closed(c, int(-rc));
    return true;
  }
  OpQueue &queue = c.peer_.queue_;
  while (c.peer_.way_ == &c && !queue.empty()) {
    TxOp &op = *queue.first();
    op.connection = &c;
    const ssize_t rc = transmit(c, op);
    if (rc == -FI_EAGAIN) return false;
    if (is_link_error(rc)) {
      on_closed(c, int(-rc));
      return true;
    }
    // The operation may have ended already, but `next` stays valid until the pool hands it out
    // again.
    if (queue.first() != &op) return true;
    queue.pop();
    if (rc != 0) {
      in_flight_.end(op, int(-rc));
    } else {
      in_flight_.settle(op);
    }
  }
  return true;
}

// Remote memory access: the carrier does it.
ssize_t Core::transmit_access(Connection &c, TxOp &op) {
  const bool write = op.form == TxOp::Form::kWrite;
  uint64_t flags = op.asked() | (op.flags & (FI_MORE | FI_REMOTE_CQ_DATA | sdk::kRmaRemoteLevels));
  if (write) flags |= FI_RMA;
  if (op.inject) flags |= FI_INJECT;
  const bool takes_receive = write && op.flags & FI_REMOTE_CQ_DATA;
  if (takes_receive && !c.sending.credits().has_room()) return -FI_EAGAIN;
  Token *token = op.inject ? nullptr : &op;
  if (token != nullptr) {
    flags |= FI_COMPLETION;
    ++op.tokens;
  }
  const ssize_t rc = write ? carrier_.write(*c.link_, op.iov, desc_of(op), op.count, op.vectors,
                                            op.vector_count, op.data, flags, token)
                           : carrier_.read(*c.link_, op.iov, desc_of(op), op.count, op.vectors,
                                           op.vector_count, flags, token);
  if (rc != 0) {
    if (token != nullptr) --op.tokens;
    return rc;
  }
  if (takes_receive) sender_.spend(c);
  if (token != nullptr) in_flight_.depart(c, op);
  op.sent = true;
  if (token == nullptr && !op.queued) in_flight_.settle(op);
  return 0;
}

// Changes the form of messages that this peer would not complete, or not tell of.
void Core::suit(const Connection &c, TxOp &op) const {
  const bool waits = op.until != Tell::kNothing;
  if (op.length == 0 && c.level_ == 0 && (waits || op.form == TxOp::Form::kRendezvous)) {
    // A stock receiver does not answer a rendezvous of 0 bytes. The one packet is the whole
    // message, so the carrier's delivery completion serves instead.
    op.form = TxOp::Form::kEager;
    op.until = Tell::kNothing;
    op.flags |= FI_DELIVERY_COMPLETE;
    return;
  }
  // Stock 1.17 does not complete a segmented message that was probed and claimed.
  const bool segments = op.form == TxOp::Form::kSegments;
  if ((segments && c.level_ == 0) ||
      (waits && (segments || op.form == TxOp::Form::kEager) && c.level_ < kLevelOfTelling))
    announce(op);
}

// Makes a rendezvous of a message. A rendezvous stores its vectors in op.bytes.
void Core::announce(TxOp &op) const {
  if (op.count == 1 && op.iov[0].iov_base == op.bytes) {
    op.bounce = std::make_unique_for_overwrite<uint8_t[]>(op.length);
    std::memcpy(op.bounce.get(), op.bytes, op.length);
    op.iov[0].iov_base = op.bounce.get();
  }
  op.form = TxOp::Form::kRendezvous;
  make_header(op, PacketType::kRendezvous);
  op.header.message = id_of(op);
}

void Core::on_sent(Token &token, int err) {
  switch (token.kind) {
    case Token::Kind::kOp:
      return in_flight_.on_sent(static_cast<TxOp &>(token), err);
    case Token::Kind::kSegment: {
      auto &s = static_cast<Segment &>(token);
      TxOp &op = *s.op;
      free_segment(s);
      return in_flight_.on_segment_sent(op, err);
    }
    case Token::Kind::kControl:
      return answers_.free(static_cast<Control &>(token));
    case Token::Kind::kMessage:
      return on_read(static_cast<RxMessage &>(token), err);
  }
}

// ---- answers ----

Control *Core::new_control(Connection &c, PacketType type, uint64_t id) {
  Control *const control = answers_.make(c, type, id);
  if (control == nullptr) fail_peer(c, "more requests than it takes answers for");
  return control;
}

void Core::queue_control(Connection &c, Control &control) {
  const int rc = answers_.queue(c, control);
  if (rc == Answers::kTooMuch) return fail_peer(c, "more atomics than it takes results for");
  if (rc != 0) on_closed(c, rc);
}

void Core::answer(Connection &c, PacketType type, uint64_t id) {
  if (Control *control = new_control(c, type, id)) queue_control(c, *control);
}

void Core::on_reposted(Connection &c, uint32_t count) {
  sender_.repost(c, count);
  if (c.state_ == State::kConnected && !sender_.tell_credits(c)) sender_.block(c);
}

}  // namespace weft::rxm
