// SPDX-License-Identifier: BSD-2-Clause
// Output to stock peers: operations get numbers, packets leave within the window, acknowledgements
// end operations or cause retransmissions.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <bit>
#include <new>

#include "plugins/rxd/protocol/stock.h"

namespace weft::rxd {
namespace {

constexpr uint64_t kFirstTimeOut = 10'000'000;
constexpr uint64_t kMinTimeOut = 2'000'000;
constexpr uint64_t kMaxTimeOut = 200'000'000;
constexpr uint32_t kSame = 3;    // acknowledgements of one number: its packet is lost
constexpr size_t kHeaders = 16;  // in one batch

uint32_t us(uint64_t ns) {
  return uint32_t(ns / 1000);
}

}  // namespace

// ---- operations ----

void StockConversation::Items::push(const Item &item) {
  if (size_ == ring_.size()) {
    std::vector<Item> bigger(std::max<size_t>(8, 2 * ring_.size()));
    for (size_t i = 0; i < size_; ++i) bigger[i] = (*this)[i];
    ring_.swap(bigger);
    at_ = 0;
  }
  (*this)[size_++] = item;
}

void StockConversation::push_waiting(TxOp &op) {
  op.next = nullptr;
  (waiting_.last != nullptr ? waiting_.last->next : waiting_.first) = &op;
  waiting_.last = &op;
}

void StockConversation::start(TxOp &op) {
  push_waiting(op);
  if (op.more && !op.on_device) return core_.want_room(peer_);
  output();
}

// Divides the operation into packets.
StockConversation::Item StockConversation::item_of(TxOp &op) {
  Item item;
  item.op = &op;
  item.first = next_;
  item.packets = 1;
  stock::Packet p = packet_of(item);
  const size_t whole = stock::kDatagram - stock::header_size(p);
  switch (op.kind) {
    case TxOp::Kind::kMessage:
    case TxOp::Kind::kWrite: {
      if (op.length <= whole) {
        item.payload = uint32_t(op.length);
        break;
      }
      item.packets = 2;  // not inline: there is one header more
      p = packet_of(item);
      item.payload =
          uint32_t(std::min<uint64_t>(stock::kDatagram - stock::header_size(p), op.length));
      item.packets = stock::packets_of(op.length, item.payload);
      break;
    }
    case TxOp::Kind::kRead:
      break;
    case TxOp::Kind::kAtomic:
      item.payload = uint32_t(op.length);
      break;
  }
  return item;
}

// The first packet of an item, without payload.
stock::Packet StockConversation::packet_of(const Item &item) const {
  stock::Packet p;
  p.peer = index_;
  p.sequence = item.first;
  if (item.answer != nullptr) {
    p.type = stock::Type::kAnswer;
    p.id = item.answer->id;
    return p;
  }
  const TxOp &op = *item.op;
  p.packets = item.packets;
  p.size = op.length;
  switch (op.kind) {
    case TxOp::Kind::kMessage:
      p.type = op.tagged ? stock::Type::kTagged : stock::Type::kMessage;
      p.is_inline = item.packets == 1;
      break;
    case TxOp::Kind::kWrite:
      p.type = stock::Type::kWrite;
      p.is_inline = item.packets == 1 && op.vector_count <= 1;
      break;
    case TxOp::Kind::kRead:
      p.type = stock::Type::kRead;
      break;
    case TxOp::Kind::kAtomic:
      p.type = op.atomic == sdk::AtomicKind::kWrite   ? stock::Type::kAtomic
               : op.atomic == sdk::AtomicKind::kFetch ? stock::Type::kFetch
                                                      : stock::Type::kCompare;
      p.is_inline = op.atomic == sdk::AtomicKind::kWrite && op.vector_count <= 1;
      p.size = target_size(op);  // also of FI_ATOMIC_READ: stock answers as much
      p.datatype = op.datatype;
      p.operation = op.op;
      break;
  }
  if (op.kind != TxOp::Kind::kMessage) {
    p.count = std::max<uint8_t>(op.vector_count, 1);
    std::copy_n(op.vectors, op.vector_count, p.vectors);
  }
  p.tag = op.tag;
  p.has_data = op.has_data;
  p.data = op.data;
  p.id = op.id;
  return p;
}

// Gives numbers to the next answer or operation; answers go first. False: there is none.
bool StockConversation::begin_item() {
  for (;;) {
    if (Answer *answer = answers_) {
      answers_ = answer->next;
      if (answers_ == nullptr) last_answer_ = nullptr;
      Item item;
      item.answer = answer;
      item.first = next_;
      item.packets = std::max<uint64_t>(1, (answer->size + stock::kSegment - 1) / stock::kSegment);
      next_ += item.packets;
      items_.push(item);
      return true;
    }
    TxOp *op = waiting_.first;
    if (op == nullptr) return false;
    if (op->fence && (items_.size() != 0 || awaited_count_ != 0)) return false;
    const bool does = stock_does(*op);
    if (!does || (op->on_device && !core_.own_data(*op))) {
      waiting_.first = op->next;
      if (waiting_.first == nullptr) waiting_.last = nullptr;
      core_.end(*op, does ? FI_EIO : FI_EOPNOTSUPP);
      continue;
    }
    const bool answered = op->kind == TxOp::Kind::kRead || (op->kind == TxOp::Kind::kAtomic &&
                                                            op->atomic != sdk::AtomicKind::kWrite);
    // Stock does not answer a read of 0 bytes.
    const bool empty = op->kind == TxOp::Kind::kRead && op->length == 0;
    if (answered && !empty && !await(*op)) return false;
    waiting_.first = op->next;
    if (waiting_.first == nullptr) waiting_.last = nullptr;
    if (empty) {
      core_.end(*op, 0);
      continue;
    }
    op->started = true;
    const Item item = item_of(*op);
    next_ += item.packets;
    items_.push(item);
    return true;
  }
}

// ---- packets ----

uint64_t StockConversation::limit() const {
  return std::max<uint64_t>(1, std::min({window_, congestion_, kInFlight}));
}

// Sends packets from the cursor on, as many as the window allows.
void StockConversation::output() {
  // Until the peer is proven, its name and index may be forged, and a packet with a wrong index may
  // crash a stock process.
  if (lost_ || !peer_.proven) {
    if (waiting_.first != nullptr && !asking_) {
      asking_ = true;
      asked_ = false;
      attempts_ = 0;
      asked_at_ = ask_at_ = core_.carrier().now_ns();
      core_.doubt(peer_);
      ask_later();
    }
    return set_timer();
  }
  if (sent_us_ == nullptr && (waiting_.first != nullptr || answers_ != nullptr)) {
    sent_us_.reset(new (std::nothrow) uint32_t[kInFlight]());
    if (sent_us_ == nullptr) return core_.want_room(peer_);
  }
  uint8_t headers[kHeaders][stock::kMaxHeader];
  size_t used = 0;
  const uint64_t now = core_.carrier().now_ns();
  if (items_.size() == 0) since_ = now;
  while (cursor_ - acked_ < limit()) {
    if (cursor_ == next_ && !begin_item()) break;
    Item &item = items_[at_];
    if (used == kHeaders) {
      core_.flush();
      used = 0;
    }
    const int rc = transmit(item, cursor_, headers[used]);
    if (rc == -FI_EAGAIN) {
      core_.want_room(peer_);
      break;
    }
    if (rc == -FI_EACCES) {
      core_.flush();
      return give_up(FI_ECONNRESET, "closed a region that a stock peer was reading");
    }
    ++used;
    sent_us_[cursor_ % kInFlight] = us(now);
    if (cursor_ < highest_) {
      core_.counters().repeated.add_alone();
    } else {
      highest_ = cursor_ + 1;
    }
    const bool told = cursor_ == item.first || cursor_ + 1 == item.first + item.packets;
    if (++cursor_ == item.first + item.packets) ++at_;
    if (told) {
      pinged_ = cursor_;
    } else if (cursor_ - std::min(pinged_, cursor_) >= std::max<uint64_t>(limit() / 2, 1)) {
      ping();
    }
  }
  core_.flush();
  set_timer();
}

int StockConversation::transmit(Item &item, uint64_t number,
                                std::span<uint8_t, stock::kMaxHeader> header) {
  iovec iov[1 + kMaxPieces];
  size_t count = 1;
  const uint64_t k = number - item.first;
  stock::Packet p;
  if (item.answer != nullptr) {
    const Answer &answer = *item.answer;
    p = packet_of(item);
    p.segment = k;
    const uint64_t offset = k * stock::kSegment;
    const uint64_t n = std::min<uint64_t>(stock::kSegment, answer.size - offset);
    if (answer.result != nullptr) {
      iov[count++] = {answer.result.get() + offset, size_t(n)};
    } else {
      const ssize_t pieces = core_.resolve({answer.vectors, answer.count}, FI_REMOTE_READ, offset,
                                           n, iov + 1, kMaxPieces);
      if (pieces < 0) return -FI_EACCES;
      count += size_t(pieces);
    }
  } else {
    const TxOp &op = *item.op;
    uint64_t offset = 0, n = item.payload;
    if (k == 0) {
      p = packet_of(item);
    } else {
      p.type = stock::Type::kData;
      p.peer = index_;
      p.segment = k - 1;
      offset = item.payload + (k - 1) * stock::kSegment;
      n = std::min<uint64_t>(stock::kSegment, op.length - offset);
    }
    if (op.kind != TxOp::Kind::kRead) count += slice(op.iov, op.count, offset, n, iov + 1);
  }
  p.sequence = number;
  iov[0] = {header.data(), stock::encode(p, header)};
  const int rc = item.answer != nullptr && core_.hmem() != nullptr
                     ? core_.send_of_devices(peer_, iov, count)
                     : core_.send(peer_, iov, count);
  return rc == -FI_EAGAIN ? rc : 0;  // a packet that cannot be sent counts as lost
}

int StockConversation::send_packet(const stock::Packet &packet) {
  uint8_t header[stock::kMaxHeader];
  const iovec iov{header, stock::encode(packet, header)};
  const int rc = core_.send(peer_, &iov, 1);
  core_.flush();
  return rc;
}

void StockConversation::ask_later() {
  const uint64_t wait = std::min(kMs << std::min(attempts_, 8u), kMaxTimeOut);
  ++attempts_;
  ask_at_ = core_.carrier().now_ns() + wait;
}

// Sends a message with a number that the peer has: it drops it, and acknowledges what it expects.
void StockConversation::ping() {
  stock::Packet p;
  p.peer = index_;
  p.sequence = acked_ - 1;
  p.is_inline = true;
  if (send_packet(p) == 0) pinged_ = cursor_;
}

void StockConversation::acknowledge(uint16_t window) {
  stock::Packet p;
  p.type = stock::Type::kAck;
  p.peer = index_;
  p.sequence = expected_;
  p.window = window;
  if (send_packet(p) == -FI_EAGAIN) return owe_acknowledgement();
  owes_ = false;
  unacknowledged_ = 0;
}

void StockConversation::owe_acknowledgement() {
  owes_ = true;
  core_.want_idle(peer_);
}

void StockConversation::on_idle() {
  if (owes_) acknowledge(refuses_ ? 0 : stock::kWindow);
}

// ---- time ----

uint64_t StockConversation::time_out() const {
  const uint64_t first =
      srtt_ == 0 ? kFirstTimeOut : std::clamp(srtt_ + 4 * rttvar_, kMinTimeOut, kMaxTimeOut);
  return std::min(first << std::min(backoff_, 7u), kMaxTimeOut);
}

void StockConversation::measure(uint64_t rtt) {
  if (srtt_ == 0) {
    srtt_ = std::max<uint64_t>(rtt, 1);
    rttvar_ = rtt / 2;
    return;
  }
  const uint64_t error = rtt > srtt_ ? rtt - srtt_ : srtt_ - rtt;
  rttvar_ = (3 * rttvar_ + error) / 4;
  srtt_ = std::max<uint64_t>((7 * srtt_ + rtt) / 8, 1);
}

uint64_t StockConversation::age_of_first(uint64_t now) const {
  return uint64_t(us(now) - sent_us_[acked_ % kInFlight]) * 1000;
}

void StockConversation::set_timer() {
  uint64_t at = 0;
  if (lost_ || asking_) {
    if (asking_) at = ask_at_;
  } else if (cursor_ != acked_) {
    const uint64_t now = core_.carrier().now_ns();
    const uint64_t age = age_of_first(now);
    const uint64_t wait = time_out();
    at = now + (age < wait ? wait - age : 0);
  } else if (waits()) {
    at = std::max(heard_, ask_at_) + kAskAfter;
  }
  core_.set_deadline(peer_, at);
}

// ---- acknowledgements ----

// Retransmits all packets that were not acknowledged, in order.
void StockConversation::rewind() {
  cursor_ = acked_;
  pinged_ = acked_;
  at_ = 0;
  measured_ = highest_;
  same_ = 0;
}

void StockConversation::on_acknowledgement(const stock::Packet &p, uint64_t now) {
  if (lost_) {
    if (asking_ && asked_) on_number(p.sequence);
    return;
  }
  if (p.sequence > highest_ && p.sequence <= taken_back_)
    // It is unknown whether the peer took the packets that have these numbers now.
    return give_up(FI_ECONNRESET,
                   "met a stock peer that took what it had refused: outstanding operations fail");
  if (p.sequence > highest_)
    return give_up(
        FI_ECONNREFUSED,
        "met a stock peer that remembers an earlier process at this address; use another "
        "port after a restart");
  if (p.sequence < acked_) return;  // late
  window_ = p.window;
  if (p.sequence > acked_) {
    arrived(p.sequence, now);
    return output();
  }
  if (cursor_ == acked_) return;
  if (p.window == 0) return on_refused(now);
  const uint64_t age = age_of_first(now);
  // If the packet was not lost, its retransmission causes more such acknowledgements: so only once.
  if (++same_ < kSame || age < srtt_ || hurried_ == acked_) return;
  hurried_ = acked_;
  threshold_ = std::max(congestion_ / 2, kLeastWindow);
  congestion_ = threshold_;
  rewind();
  output();
}

// The peer expects `number` now: all packets before it have arrived.
void StockConversation::arrived(uint64_t number, uint64_t now) {
  if (number > measured_) measure(uint64_t(us(now) - sent_us_[(number - 1) % kInFlight]) * 1000);
  const uint64_t count = number - acked_;
  congestion_ = uint32_t(std::min<uint64_t>(
      congestion_ + (congestion_ < threshold_
                         ? count
                         : (count + congestion_ / 2) / std::max<uint32_t>(congestion_, 1)),
      kInFlight));
  backoff_ = 0;
  same_ = 0;
  refused_ = 0;
  refusals_ = 0;
  since_ = now;
  acked_ = number;
  cursor_ = std::max(cursor_, number);
  pinged_ = std::max(pinged_, number);
  while (items_.size() != 0) {
    const Item item = items_[0];
    if (item.first + item.packets > acked_) break;
    items_.pop();
    if (at_ != 0) --at_;
    if (item.answer != nullptr) {
      item.answer->result.reset();
      pool_.give(item.answer);
      continue;
    }
    item.op->acked = true;
    finish(*item.op);
  }
  while (at_ < items_.size() && items_[at_].first + items_[at_].packets <= cursor_) ++at_;
}

// The peer refused the request at the head: it lacks resources, or the access is not permitted.
void StockConversation::on_refused(uint64_t now) {
  if (refused_ == 0) {
    refused_ = now;
    refusals_ = 0;
  }
  ++refusals_;
}

void StockConversation::finish(TxOp &op) {
  const bool answered = op.kind == TxOp::Kind::kRead ||
                        (op.kind == TxOp::Kind::kAtomic && op.atomic != sdk::AtomicKind::kWrite);
  if (!op.acked || (answered && !op.answered)) return;
  if (answered) forget_awaited(op);
  core_.end(op, op.status);
}

void StockConversation::fail(TxOp &op, int err) {
  forget_awaited(op);
  core_.end(op, err);
}

// ---- ids ----

// Ids are reused as late as possible, so that a late answer to a forgotten request is not taken for
// an answer to another one. 0 means none.
bool StockConversation::await(TxOp &op) {
  try {
    if (awaited_count_ * 2 >= awaited_.size() && awaited_.size() <= UINT16_MAX / 2) {
      std::vector<TxOp *> bigger(std::max<size_t>(8, 2 * awaited_.size()));
      for (TxOp *other : awaited_)
        if (other != nullptr) {
          // Ids in use differ in the lower bits of the old size, so of the new one too.
          bigger[other->id & (bigger.size() - 1)] = other;
        }
      awaited_.swap(bigger);
    }
  } catch (const std::bad_alloc &) {
    return false;
  }
  for (size_t tries = 0; tries < awaited_.size() * 2; ++tries) {
    if (++next_id_ == 0) ++next_id_;
    TxOp *&slot = awaited_[next_id_ & (awaited_.size() - 1)];
    if (slot != nullptr) continue;
    slot = &op;
    op.id = next_id_;
    ++awaited_count_;
    return true;
  }
  return false;
}

TxOp *StockConversation::awaited(uint32_t id) const {
  if (awaited_.empty()) return nullptr;
  TxOp *op = awaited_[id & (awaited_.size() - 1)];
  return op != nullptr && op->id == (id & UINT16_MAX) ? op : nullptr;
}

void StockConversation::forget_awaited(TxOp &op) {
  if (op.id == 0 || awaited(op.id) != &op) return;
  awaited_[op.id & (awaited_.size() - 1)] = nullptr;
  op.id = 0;
  --awaited_count_;
}

}  // namespace weft::rxd
