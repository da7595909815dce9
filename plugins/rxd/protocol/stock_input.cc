// SPDX-License-Identifier: BSD-2-Clause
// Packets from stock peers: only the one with the expected number is taken, and acknowledged.
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/rxd/protocol/stock.h"

namespace weft::rxd {
namespace {

constexpr uint32_t kAcknowledgeEvery = 32;  // packets, at the latest
// An RTS so long after the peer's first packet is not a late one: the peer has restarted.
constexpr uint64_t kLate = 1'000'000'000;

}  // namespace

bool StockConversation::on_packet(std::span<const uint8_t> bytes, Buffer &) {
  const stock::Parsed parsed = stock::parse(bytes, core_.name_format());
  if (parsed.reject != stock::Reject::kNone) {
    core_.counters().rejected.add_alone();
    return false;
  }
  const stock::Packet &p = parsed.packet;
  const uint64_t now = core_.carrier().now_ns();
  heard_ = now;
  tries_ = 0;
  if (p.type == stock::Type::kRts) {
    on_rts(p, now);
    return false;
  }
  if (p.type == stock::Type::kCts) {
    on_cts(p);
    return false;
  }
  // The peer has proven itself by this packet, before it answered our question.
  const bool begins = !lost_ && std::exchange(asking_, false);
  if (!asking_) core_.trust(peer_);
  if (talked_ == 0) talked_ = now;
  if (p.type == stock::Type::kAck) {
    on_acknowledgement(p, now);
    if (begins) output();
    return false;
  }
  if (rebase_ && p.type <= stock::Type::kCompare) {
    expected_ = p.sequence;
    rebase_ = false;
  }
  if (p.sequence != expected_) {
    core_.counters().duplicates.add_alone();
    owe_acknowledgement();
    if (begins) output();
    return false;
  }
  const Verdict verdict = take(p);
  if (verdict == Verdict::kTaken) {
    ++expected_;
    ++unacknowledged_;
    refuses_ = false;
  } else if (verdict == Verdict::kRefused) {
    refuses_ = true;  // until something is taken
  }
  output();
  // Acknowledge a complete operation at once: it ends at the peer only then, and the application
  // here may wait for the peer without making progress.
  if (verdict == Verdict::kRefused) {
    acknowledge(0);
  } else if (verdict == Verdict::kTaken &&
             (unacknowledged_ >= kAcknowledgeEvery || arriving_.kind == Arriving::Kind::kNone)) {
    acknowledge(stock::kWindow);
  } else {
    owe_acknowledgement();
  }
  return false;
}

// ---- handshake and restarts ----

void StockConversation::on_rts(const stock::Packet &p, uint64_t now) {
  const bool restart = talked_ != 0 && (lost_ || now - talked_ > kLate);
  if (restart) restarted();
  // An index that the proven peer sent itself is not replaced by an RTS, which may be forged.
  if (!peer_.proven) {
    index_ = uint32_t(p.index);
  } else if (index_ != uint32_t(p.index)) {
    core_.doubt(peer_);
  }
  stock::Packet cts;
  cts.type = stock::Type::kCts;
  cts.peer = uint32_t(p.index);
  cts.rts_index = p.index;
  cts.index = peer_.number;
  send_packet(cts);
  output();
}

void StockConversation::on_cts(const stock::Packet &p) {
  index_ = uint32_t(p.index);
  core_.trust(peer_);
  if (lost_ && asking_) {
    asked_ = true;
    ping();
    return;
  }
  if (!lost_) asking_ = false;
  output();
}

// The peer is another process now, without the state of the old one.
void StockConversation::restarted() {
  fail_all(FI_ECONNRESET);
  acked_ = cursor_ = next_ = highest_ = taken_back_ = measured_ = pinged_ = 0;
  hurried_ = kNoNumber;
  window_ = stock::kWindow;
  expected_ = 0;
  talked_ = 0;
  unacknowledged_ = 0;
  owes_ = refuses_ = rebase_ = lost_ = asking_ = false;
  peer_.proven = false;
  core_.trust(peer_);
}

// The peer was given up before; now it has told which number it expects.
void StockConversation::on_number(uint64_t number) {
  if (number < acked_) {
    expected_ = 0;  // it has restarted
  } else if (number > highest_) {
    rebase_ = expected_ == 0;  // it remembers more than we do
  }
  acked_ = cursor_ = next_ = pinged_ = measured_ = number;
  highest_ = taken_back_ = number;
  hurried_ = kNoNumber;
  lost_ = asking_ = false;
  window_ = stock::kWindow;
  output();
}

// ---- operations of the peer ----

StockConversation::Verdict StockConversation::take(const stock::Packet &p) {
  const bool more = p.type == stock::Type::kData || p.type == stock::Type::kAnswer;
  // The peer begins another operation, although data of the last one are missing.
  if (!more && arriving_.kind != Arriving::Kind::kNone) return Verdict::kNotNow;
  // The application does not read its completions. The peer retransmits this packet, and our
  // acknowledgements show it that we are alive.
  const bool reports = p.type == stock::Type::kMessage || p.type == stock::Type::kTagged ||
                       p.type == stock::Type::kWrite || p.type == stock::Type::kData;
  if (reports && core_.full()) return Verdict::kNotNow;
  switch (p.type) {
    case stock::Type::kMessage:
    case stock::Type::kTagged:
      return take_message(p);
    case stock::Type::kRead:
      return take_read(p);
    case stock::Type::kWrite:
      return take_write(p);
    case stock::Type::kAtomic:
    case stock::Type::kFetch:
    case stock::Type::kCompare:
      return take_atomic(p);
    case stock::Type::kData:
      return take_data(p);
    case stock::Type::kAnswer:
      return take_answer(p);
    default:
      return Verdict::kNotNow;
  }
}

StockConversation::Verdict StockConversation::take_message(const stock::Packet &p) {
  sdk::Message message;
  message.tagged = p.type == stock::Type::kTagged;
  message.has_data = p.has_data;
  message.source = core_.source_of(peer_);
  message.tag = p.tag;
  message.data = p.data;
  message.length = p.size;
  Inbox &inbox = core_.inbox();
  Incoming *m = nullptr;
  if (inbox.bytes() >= inbox.limit()) {
    // No room: take only messages with a receive. The peer retransmits the others.
    sdk::Receive *receive = core_.upper().receiver().match(message);
    if (receive == nullptr) return Verdict::kNotNow;
    m = inbox.begin(peer_, this, message, 0, *receive);
    if (m == nullptr) return Verdict::kTaken;  // no memory; the receive has failed
  } else if (p.packets == 1) {
    bool lost = false;
    inbox.whole(peer_, message, p.payload, lost);
    return lost ? Verdict::kNotNow : Verdict::kTaken;
  } else {
    m = inbox.begin(peer_, this, message, 0);
    if (m == nullptr) return Verdict::kNotNow;
  }
  const bool placed = inbox.place(*m, 0, p.payload);
  if (p.packets == 1) {
    inbox.finish(*m, placed ? 0 : FI_ENOMEM);
    return Verdict::kTaken;
  }
  if (!placed) {
    // There was memory for the message, but none for its bytes: it fails, but keeps its place.
    inbox.orphan(*m, FI_ENOMEM);
    m = nullptr;
  }
  arriving_ = {};
  arriving_.kind = Arriving::Kind::kMessage;
  arriving_.message = m;
  arriving_.size = p.size;
  arriving_.first = p.payload.size();
  arriving_.segments = p.packets - 1;
  if (m != nullptr && m->waits_for_bytes()) core_.upper().receiver().on_more(*m);
  return Verdict::kTaken;
}

StockConversation::Answer *StockConversation::new_answer(const stock::Packet &p) {
  Answer *answer = pool_.take();
  if (answer == nullptr) return nullptr;
  answer->next = nullptr;
  answer->id = p.id;
  answer->count = p.count;
  answer->size = p.size;
  std::copy_n(p.vectors, p.count, answer->vectors);
  return answer;
}

StockConversation::Verdict StockConversation::take_read(const stock::Packet &p) {
  for (size_t i = 0; i < p.count; ++i) {
    iovec iov[kMaxPieces];
    if (core_.carrier().resolve(p.vectors[i], FI_REMOTE_READ, iov, kMaxPieces) < 0)
      return Verdict::kRefused;
  }
  if (p.size == 0) return Verdict::kTaken;
  Answer *answer = new_answer(p);
  if (answer == nullptr) return Verdict::kRefused;
  (last_answer_ != nullptr ? last_answer_->next : answers_) = answer;
  last_answer_ = answer;
  core_.upper().on_remote_read(p.size, {answer->vectors, answer->count});
  return Verdict::kTaken;
}

StockConversation::Verdict StockConversation::take_write(const stock::Packet &p) {
  for (size_t i = 0; i < p.count; ++i) {
    iovec iov[kMaxPieces];
    if (core_.carrier().resolve(p.vectors[i], FI_REMOTE_WRITE, iov, kMaxPieces) < 0)
      return Verdict::kRefused;
  }
  if (!p.payload.empty() && core_.write_to({p.vectors, p.count}, 0, p.payload) != 0)
    return Verdict::kRefused;
  if (p.packets == 1) {
    core_.upper().on_remote_write(core_.source_of(peer_), p.size, p.has_data, p.data,
                                  {p.vectors, p.count});
    return Verdict::kTaken;
  }
  arriving_ = {};
  arriving_.kind = Arriving::Kind::kWrite;
  arriving_.has_data = p.has_data;
  arriving_.data = p.data;
  arriving_.count = p.count;
  arriving_.size = p.size;
  arriving_.first = p.payload.size();
  arriving_.segments = p.packets - 1;
  std::copy_n(p.vectors, p.count, arriving_.vectors);
  return Verdict::kTaken;
}

StockConversation::Verdict StockConversation::take_atomic(const stock::Packet &p) {
  if (p.datatype > UINT8_MAX || p.operation > UINT8_MAX) return Verdict::kRefused;
  const sdk::AtomicKind kind = p.type == stock::Type::kAtomic  ? sdk::AtomicKind::kWrite
                               : p.type == stock::Type::kFetch ? sdk::AtomicKind::kFetch
                                                               : sdk::AtomicKind::kCompare;
  Answer *answer = nullptr;
  if (kind != sdk::AtomicKind::kWrite) {
    answer = new_answer(p);
    if (answer == nullptr) return Verdict::kRefused;
    answer->result.reset(new (std::nothrow) uint8_t[stock::kSegment]);
  }
  size_t size = 0;
  const std::span<uint8_t> result(answer != nullptr ? answer->result.get() : nullptr,
                                  answer != nullptr ? stock::kSegment : 0);
  const bool refused = (answer != nullptr && answer->result == nullptr) ||
                       core_.execute(kind, uint8_t(p.operation), uint8_t(p.datatype),
                                     {p.vectors, p.count}, p.payload, p.compare, result, size) != 0;
  if (answer == nullptr) return refused ? Verdict::kRefused : Verdict::kTaken;
  if (refused) {
    answer->result.reset();
    pool_.give(answer);
    return Verdict::kRefused;
  }
  answer->size = size;
  (last_answer_ != nullptr ? last_answer_->next : answers_) = answer;
  last_answer_ = answer;
  return Verdict::kTaken;
}

// ---- data of operations ----

StockConversation::Verdict StockConversation::take_data(const stock::Packet &p) {
  Arriving &a = arriving_;
  const uint64_t offset = a.first + a.segment * stock::kSegment;
  if (a.kind == Arriving::Kind::kNone || p.segment != a.segment ||
      p.payload.size() != std::min<uint64_t>(stock::kSegment, a.size - offset)) {
    core_.counters().rejected.add_alone();
    return Verdict::kNotNow;
  }
  if (a.kind == Arriving::Kind::kWrite) {
    if (core_.write_to({a.vectors, a.count}, offset, p.payload) != 0) return Verdict::kRefused;
  } else if (a.message != nullptr) {
    Incoming &m = *a.message;
    Inbox &inbox = core_.inbox();
    // The peer retransmits it until there is room, or a receive.
    if (m.receive == nullptr && !m.discarded && inbox.bytes() >= inbox.limit())
      return Verdict::kNotNow;
    if (!inbox.place(m, offset, p.payload)) return Verdict::kNotNow;
    if (m.waits_for_bytes()) core_.upper().receiver().on_more(m);
  }
  if (++a.segment != a.segments) return Verdict::kTaken;
  const Arriving done = a;
  a = {};
  if (done.kind == Arriving::Kind::kWrite) {
    core_.upper().on_remote_write(core_.source_of(peer_), done.size, done.has_data, done.data,
                                  {done.vectors, done.count});
  } else if (done.message != nullptr) {
    core_.inbox().finish(*done.message, 0);
  }
  return Verdict::kTaken;
}

StockConversation::Verdict StockConversation::take_answer(const stock::Packet &p) {
  TxOp *op = awaited(p.id);
  // Its request has ended meanwhile. The packet still uses up a number of the peer.
  if (op == nullptr || op->answered) return Verdict::kTaken;
  const uint64_t size = op->kind == TxOp::Kind::kAtomic ? target_size(*op) : op->length;
  if (op->received != p.segment * stock::kSegment ||
      p.payload.size() != std::min<uint64_t>(stock::kSegment, size - op->received)) {
    core_.counters().rejected.add_alone();
    op->status = FI_EIO;
    op->answered = true;
    finish(*op);
    return Verdict::kTaken;
  }
  if (op->kind == TxOp::Kind::kAtomic) {
    if (!core_.give_results(*op, p.payload)) op->status = FI_EIO;
  } else if (!sdk::hmem_scatter(core_.hmem(), op->iov, op->count, op->received, p.payload.data(),
                                p.payload.size())) {
    op->status = FI_EIO;
  }
  op->received += p.payload.size();
  if (op->received == size) {
    op->answered = true;
    finish(*op);
  }
  return Verdict::kTaken;
}

// ---- messages that are not whole ----

// Nothing to do: kept bytes are in place already, and later data go to the receive.
void StockConversation::fetch(Incoming &) {}

// The rest still arrives, and its bytes are dropped.
void StockConversation::discard(Incoming &message) {
  message.discarded = true;
}

void StockConversation::drop_arriving(int err) {
  Incoming *m = arriving_.message;
  arriving_ = {};
  if (m != nullptr) core_.inbox().orphan(*m, err);
}

}  // namespace weft::rxd
