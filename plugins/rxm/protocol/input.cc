// SPDX-License-Identifier: BSD-2-Clause
// What arrives: packets, and what the carrier read for us.
#include <rdma/fi_errno.h>
#include <weft/sdk/iov.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

using sdk::scatter;
using sdk::slice;
namespace {
constexpr size_t kMaxUnfinished = 64;  // messages in segments, of one connection
constexpr size_t kKeptParts = 8;       // that a message keeps memory of for the next
}  // namespace

uint32_t Core::source_of(const Connection &c) const {
  const Connection *named = &c;
  if (c.own_) {
    if (const auto it = by_address_.find(c.address_); it != by_address_.end()) named = it->second;
  }
  // A sender that is inserted later gets what it sent.
  return named->index_ != kNoIndex ? named->index_ : sdk::Matcher::kFirstUnnamed + named->slot_;
}

sdk::Message Core::message_of(Connection &c, const Packet &p) const {
  return {.tagged = p.op == PacketOp::kTagged,
          .has_data = p.has_data,
          .source = source_of(c),
          .tag = p.tag,
          .data = p.data,
          .length = p.size};
}

bool Core::on_packet(Connection &c, std::span<const uint8_t> bytes, Buffer &buffer) {
  if (c.state_ == State::kIdle) return false;  // the connection is over
  const Parsed parsed = parse(bytes);
  if (parsed.reject != Reject::kNone) {
    fail_peer(c, text_of(parsed.reject));
    return false;
  }
  const Packet &p = parsed.packet;
  c.heard_ = true;
  if (p.type != PacketType::kPart) touch(c);
  switch (p.type) {
    case PacketType::kEager:
      return take_whole(c, message_of(c, p), p.payload, buffer);
    case PacketType::kSegment:
      return take_segment(c, p, buffer);
    case PacketType::kRendezvous:
      return take_rendezvous(c, p, buffer);
    case PacketType::kReadDone:
      if (TxOp *op = awaited(c, p.message); op != nullptr && op->form == TxOp::Form::kRendezvous) {
        end(*op, 0);
      } else {
        fail_peer(c, "an answer to a rendezvous that does not exist");
      }
      return false;
    case PacketType::kAtomic:
      take_atomic(c, p);
      return false;
    case PacketType::kAtomicResponse:
      take_response(c, p);
      return false;
    case PacketType::kCredit:
      if (p.credits > UINT32_MAX) {
        fail_peer(c, "more credits than anybody has");
        return false;
      }
      c.credits_ += p.credits;
      if (c.state_ == State::kConnected) block(c);
      return false;
    case PacketType::kWriteTarget:
      take_target(c, p);
      return false;
    case PacketType::kPart:
      take_part(c, p);
      return false;
    case PacketType::kWriteDone:
      for (RxMessage *m = c.messages_.first; m != nullptr; m = m->following) {
        // Only of one for which it has a target: others are being read, and may be written to.
        if (m->id != p.message || m->exposed == 0) continue;
        finish(*m, 0);
        return false;
      }
      fail_peer(c, "the end of a write that was not asked for");
      return false;
  }
  return false;
}

bool Core::on_short_message(Connection &c, std::span<const uint8_t> bytes, bool has_data,
                            uint64_t data, uint64_t tag, Buffer &buffer) {
  if (c.state_ == State::kIdle) return false;
  const sdk::Message m{.tagged = true,
                       .has_data = has_data,
                       .source = source_of(c),
                       .tag = tag,
                       .data = data,
                       .length = bytes.size()};
  return take_whole(c, m, bytes, buffer);
}

bool Core::take_whole(Connection &c, const sdk::Message &message, std::span<const uint8_t> payload,
                      Buffer &buffer) {
  sdk::Receiver &receiver = owner_.receiver();
  if (sdk::Receive *r = receiver.match(message)) {
    const size_t n = std::min<size_t>(payload.size(), r->length);
    if (r->count == 1 && n > 0) {  // memcpy takes no null pointers, not even for no bytes
      std::memcpy(r->iov[0].iov_base, payload.data(), n);
    } else {
      scatter(r->iov, r->count, 0, payload.data(), n);
    }
    receiver.complete(*r, message, n, 0);
    return false;
  }
  RxMessage *m = new_message(&c, RxMessage::Form::kWhole, message);
  if (m == nullptr) return false;
  const bool kept = keep(*m, payload, buffer);
  m->received = payload.size();
  receiver.save(*m);
  return kept;
}

RxMessage *Core::new_message(Connection *c, RxMessage::Form form, const sdk::Message &message) {
  RxMessage *m = messages_.take();
  if (m == nullptr) {
    fail_peer(*c, "more messages than there is memory for");
    return nullptr;
  }
  m->kind = Token::Kind::kMessage;
  m->form = form;
  m->message = message;
  m->tag = message.tag;
  m->source = message.source;
  m->discarded = m->over = m->waits = false;
  m->count = m->next_vector = m->exposed = 0;
  m->err = 0;
  m->tokens = 0;
  m->next_segment = 0;
  m->from = c;
  ++c->kept_;
  m->connection = nullptr;
  m->receive = nullptr;
  m->received = 0;
  m->charged = 0;
  if (form != RxMessage::Form::kWhole) {
    m->connection = c;
    c->list_of(*m).add(*m);
  }
  return m;
}

void Core::drop_parts(RxMessage &m) {
  Connection &c = *m.from;
  for (RxMessage::Part &part : m.parts) {
    if (part.buffer == nullptr) continue;
    --c.buffers_;
    if (is_stranger(c)) --strangers_buffers_;
    carrier_.release(*part.buffer);
  }
  m.parts.clear();
  if (m.parts.capacity() > kKeptParts) std::vector<RxMessage::Part>().swap(m.parts);
  unexpected_ -= m.charged;
  c.charged_ -= m.charged;
  if (is_stranger(c)) strangers_charged_ -= m.charged;
  m.charged = 0;
}

// ---- what may be kept of whom ----

void Core::charge(RxMessage &m, uint64_t bytes) {
  m.charged += bytes;
  unexpected_ += bytes;
  m.from->charged_ += bytes;
  if (is_stranger(*m.from)) strangers_charged_ += bytes;
}

// Whoever comes first leaves something to those who come later.
bool Core::may_charge(const Connection &c, uint64_t bytes) const {
  const uint64_t limit = settings_.unexpected_limit;
  if (unexpected_ + bytes > limit) return false;
  if (is_stranger(c) && strangers_charged_ + bytes > limit / 2) return false;
  return c.charged_ + bytes <= 3 * (limit - unexpected_);
}

// It has as many buffers as are left for all others, or those are the reserve. Strangers count as
// one.
bool Core::takes_too_much(const Connection &c) const {
  const size_t left = carrier_.buffers_left();
  if (left == Carrier::kOwn) return false;
  return (is_stranger(c) ? strangers_buffers_ : c.buffers_) + reserve_ >= left;
}

// It is past its share. Whose messages are all received may send more, however much is kept of
// others. A connection with receives of its own is in nobody's way.
bool Core::must_wait(const Connection &c) const {
  if (carrier_.buffers_left() == Carrier::kOwn) return false;
  const uint64_t charged = is_stranger(c) ? strangers_charged_ : c.charged_;
  const size_t buffers = is_stranger(c) ? strangers_buffers_ : c.buffers_;
  if (charged != 0 && !may_charge(c, 0)) return true;
  return (charged != 0 || buffers != 0) && takes_too_much(c) &&
         !may_charge(c, sizeof(RxMessage) + settings_.eager_limit);
}

void Core::hold(Connection &c) {
  if (c.held_ || c.link_ == nullptr || !carrier_.hold(*c.link_, true)) return;
  c.held_ = true;
  held_.push_back(&c);
}

void Core::hold_greedy(Connection &c) {
  if (!is_stranger(c)) return hold(c);
  for (Connection *stranger : slots_)
    if (stranger != nullptr && is_stranger(*stranger)) hold(*stranger);
}

void Core::release_held() {
  for (size_t i = 0; i < held_.size();) {
    Connection &c = *held_[i];
    if (must_wait(c)) {
      ++i;
      continue;
    }
    held_[i] = held_.back();
    held_.pop_back();
    c.held_ = false;
    carrier_.hold(*c.link_, false);
  }
}

void Core::free_message(RxMessage &m) {
  drop_parts(m);
  while (m.exposed != 0) carrier_.conceal(*m.registrations[--m.exposed]);
  if (m.waits) std::erase(fetching_, &m);
  unlist(m);
  Connection &c = *m.from;
  if (--c.kept_ == 0 && c.state_ == State::kIdle) note_unused(c);
  messages_.give(&m);
}

void Core::unlist(RxMessage &m) {
  Connection *c = std::exchange(m.connection, nullptr);
  if (c == nullptr) return;
  c->list_of(m).remove(m);
  if (m.form == RxMessage::Form::kSegments) --c->unfinished_count_;
}

// Saves what nobody wants yet. True: in the buffer that it came in.
bool Core::keep(RxMessage &m, std::span<const uint8_t> bytes, Buffer &buffer) {
  const uint64_t cost = sizeof(RxMessage) + bytes.size();
  Connection &c = *m.from;
  const bool greedy = takes_too_much(c), within = may_charge(c, cost);
  const bool scarce = bytes.empty() || carrier_.buffers_low() || greedy;
  if (greedy && !within) hold_greedy(c);
  // What a held connection still brings was read before it was held, but for this one packet: it is
  // at most what the buffers took, and may not keep those that are left for others.
  if (scarce && (c.held_ || within)) {
    std::unique_ptr<uint8_t[]> copy(bytes.empty() ? nullptr
                                                  : new (std::nothrow) uint8_t[bytes.size()]);
    if (copy != nullptr || bytes.empty()) {
      charge(m, cost);
      if (bytes.empty()) return false;
      std::memcpy(copy.get(), bytes.data(), bytes.size());
      const uint8_t *at = copy.get();
      m.parts.push_back({nullptr, std::move(copy), at, bytes.size()});
      return false;
    }
  }
  // Past the limit buffers are kept, also for what needs none. Where the carrier cannot hold
  // anybody all have to wait when there are no more.
  m.parts.push_back({&buffer, nullptr, bytes.data(), bytes.size()});
  ++c.buffers_;
  if (is_stranger(c)) ++strangers_buffers_;
  return true;
}

void Core::place(RxMessage &m, uint64_t at, std::span<const uint8_t> bytes) {
  const sdk::Receive &r = *m.receive;
  if (at >= r.length) return;
  scatter(r.iov, r.count, at, bytes.data(), std::min<uint64_t>(bytes.size(), r.length - at));
}

void Core::finish(RxMessage &m, int err) {
  sdk::Receive *r = m.receive;
  const sdk::Message message = m.message;
  const size_t received = size_t(std::min<uint64_t>(m.received, r->length));
  free_message(m);
  owner_.receiver().complete(*r, message, received, err);
}

bool Core::take_segment(Connection &c, const Packet &p, Buffer &buffer) {
  // The id is free again after the last segment, whether or not the message was received by then.
  RxMessage *m = c.unfinished_.first;
  while (m != nullptr && m->id != p.message) m = m->following;
  const bool first = p.segment == SegmentKind::kFirst;
  if (first != (m == nullptr)) {
    fail_peer(c, first ? "the first segment of a message twice" : "a segment without the first");
    return false;
  }
  bool kept = false;
  if (first) {
    // Whoever sends one sends all of it before the next.
    if (c.unfinished_count_ == kMaxUnfinished) {
      fail_peer(c, "more messages in segments at once than anybody does");
      return false;
    }
    const sdk::Message message = message_of(c, p);
    m = new_message(&c, RxMessage::Form::kSegments, message);
    if (m == nullptr) return false;
    ++c.unfinished_count_;
    m->id = p.message;
    m->receive = owner_.receiver().match(message);
    if (m->receive == nullptr) owner_.receiver().save(*m);
  } else if (p.segment_number != m->next_segment || p.size != m->message.length) {
    fail_peer(c, "a segment out of order");
    return false;
  }
  if (p.payload.size() > m->message.length - m->received ||
      (p.segment == SegmentKind::kLast) != (m->received + p.payload.size() == m->message.length)) {
    fail_peer(c, "segments that are not as long as their message");
    return false;
  }
  if (m->receive != nullptr) {
    place(*m, m->received, p.payload);
  } else if (!m->discarded) {
    kept = keep(*m, p.payload, buffer);
  }
  m->received += p.payload.size();
  ++m->next_segment;
  if (p.segment != SegmentKind::kLast) return kept;
  if (m->receive != nullptr) {
    finish(*m, 0);
  } else if (m->discarded) {
    free_message(*m);
  } else {
    unlist(*m);
  }
  return kept;
}

bool Core::take_rendezvous(Connection &c, const Packet &p, Buffer &buffer) {
  const sdk::Message message = message_of(c, p);
  RxMessage *m = new_message(&c, RxMessage::Form::kRendezvous, message);
  if (m == nullptr) return false;
  m->id = p.message;
  m->count = p.count;
  std::copy_n(p.vectors, p.count, m->vectors);
  m->receive = owner_.receiver().match(message);
  if (m->receive != nullptr) {
    fetch(*m);
    return false;
  }
  const bool kept = keep(*m, {}, buffer);
  owner_.receiver().save(*m);
  return kept;
}

void Core::deliver(RxMessage &m, sdk::Receive &receive) {
  m.receive = &receive;
  switch (m.form) {
    case RxMessage::Form::kRendezvous:
      drop_parts(m);
      return fetch(m);
    case RxMessage::Form::kWhole:
    case RxMessage::Form::kSegments: {
      uint64_t at = 0;
      for (const RxMessage::Part &part : m.parts) {
        place(m, at, {part.bytes, part.length});
        at += part.length;
      }
      drop_parts(m);
      if (m.connection == nullptr) finish(m, m.err);
      return;
    }
  }
}

void Core::discard(RxMessage &m) {
  drop_parts(m);
  if (m.form == RxMessage::Form::kSegments && m.connection != nullptr) {
    m.discarded = true;  // the rest of it is still coming
    return;
  }
  if (m.form == RxMessage::Form::kRendezvous && m.connection != nullptr && !down_) {
    // There is no negative answer; whoever sent it waits for one.
    Connection &c = *m.connection;
    const uint64_t id = m.id;
    free_message(m);
    return answer(c, PacketType::kReadDone, id);
  }
  free_message(m);
}

// Brings the bytes of a rendezvous that was matched: reads them, or says where to write them.
void Core::fetch(RxMessage &m) {
  Connection &c = *m.connection;
  const sdk::Receive &r = *m.receive;
  const uint64_t want = std::min<uint64_t>(m.message.length, r.length);
  if (settings_.rendezvous_write && want != 0) {
    RmaVector vectors[kMaxVectors];
    size_t count = 0;
    for (size_t i = 0; i < r.count; ++i) {
      if (r.iov[i].iov_len == 0) continue;
      int err = 0;
      Registration *registration =
          carrier_.expose(*c.link_, r.iov[i], FI_REMOTE_WRITE, vectors[count], err);
      if (registration == nullptr) return lose_peer(m, err);
      m.registrations[m.exposed++] = registration;
      vectors[count++].length = r.iov[i].iov_len;
    }
    m.received = want;
    Control *control = new_control(c, PacketType::kWriteTarget, m.id);
    if (control == nullptr) return;  // that ended the connection, and this message
    encode_vectors({vectors, count}, control->wire);
    control->length += kVectorListSize;
    return queue_control(c, *control);
  }
  while (m.received < want) {
    const RmaVector &vector = m.vectors[m.next_vector];
    const uint64_t n = std::min<uint64_t>(vector.length, want - m.received);
    if (n != 0) {
      iovec iov[sdk::kIovLimit];
      const size_t count = slice(r.iov, r.count, m.received, n, iov);
      const RmaVector from{vector.address, n, vector.key};
      ssize_t rc = -FI_EAGAIN;
      ++m.tokens;
      if (c.state_ == State::kConnected)
        rc = carrier_.read(*c.link_, iov, count, &from, 1, FI_COMPLETION, &m);
      if (rc != 0) --m.tokens;
      if (rc == -FI_EAGAIN) {
        m.waits = true;
        fetching_.push_back(&m);
        return;
      }
      if (rc != 0) return lose_peer(m, int(-rc));
      m.received += n;
    }
    ++m.next_vector;
  }
  if (m.tokens == 0) fetched(m);
}

void Core::fetched(RxMessage &m) {
  Connection &c = *m.connection;
  const uint64_t id = m.id;
  finish(m, 0);
  answer(c, PacketType::kReadDone, id);
}

void Core::on_read(RxMessage &m, int err) {
  --m.tokens;
  if (err != 0 && m.err == 0) m.err = err;
  if (m.tokens != 0) return;
  const uint64_t want = std::min<uint64_t>(m.message.length, m.receive->length);
  if (m.over) {
    m.received = 0;
    return finish(m, m.err);
  }
  if (m.err != 0) return lose_peer(m, m.err);
  if (m.received == want && !m.waits) fetched(m);
}

// The bytes cannot be had. There is no way to tell the sender but to end the connection.
void Core::lose_peer(RxMessage &m, int err) {
  Connection &c = *m.connection;
  drop_link(c, err);
  fail_queue(c, err);
}

// The message's connection is over.
void Core::lose(RxMessage &m, int err) {
  if (m.over) return;  // lost with an earlier link, and waits for its tokens
  if (m.discarded) return free_message(m);
  if (m.receive == nullptr) {
    // It keeps its place among the messages: others of the peer that came whole are behind it, and
    // whoever receives it is told. It still counts, so that dying peers cannot pile them up.
    drop_parts(m);
    if (!may_charge(*m.from, sizeof(RxMessage))) {
      owner_.receiver().forget(m);
      return free_message(m);
    }
    while (m.exposed != 0) carrier_.conceal(*m.registrations[--m.exposed]);
    unlist(m);
    m.form = RxMessage::Form::kWhole;
    m.received = 0;
    m.err = err;
    charge(m, sizeof(RxMessage));
    return;
  }
  if (m.tokens != 0) {  // the carrier may still write to the receive's memory
    m.over = true;
    if (m.err == 0) m.err = err;
    if (m.waits) {
      m.waits = false;
      std::erase(fetching_, &m);
    }
    return;
  }
  if (m.form == RxMessage::Form::kRendezvous) m.received = 0;
  finish(m, err);
}

void Core::lose_messages(Connection &c, int err) {
  for (RxMessage *m : {c.messages_.first, c.unfinished_.first})
    while (m != nullptr) lose(*std::exchange(m, m->following), err);
}

// ---- answers to what we sent ----

TxOp *Core::awaited(Connection &c, uint64_t id) {
  const auto slot = uint32_t(id);
  if (slot >= op_slots_.size()) return nullptr;
  TxOp *op = op_slots_[slot];
  return op->answer && op->connection == &c && id_of(*op) == id ? op : nullptr;
}

void Core::take_target(Connection &c, const Packet &p) {
  TxOp *op = awaited(c, p.message);
  if (op == nullptr || op->form != TxOp::Form::kRendezvous || op->writing)
    return fail_peer(c, "a target for a rendezvous that does not exist");
  uint64_t room = 0;
  for (size_t i = 0; i < p.count; ++i) room += p.vectors[i].length;
  std::copy_n(p.vectors, p.count, op->vectors);
  op->vector_count = p.count;
  op->writing = true;
  op->written = 0;
  op->target = std::min<uint64_t>(room, op->length);
  op->next_vector = 0;
  if (continue_write(c, *op) == 0) return;
  writes_.push_back(op);
}

// Writes to where the peer said, then says so. -FI_EAGAIN: later.
ssize_t Core::continue_write(Connection &c, TxOp &op) {
  while (op.written < op.target) {
    const RmaVector &vector = op.vectors[op.next_vector];
    const uint64_t n = std::min<uint64_t>(vector.length, op.target - op.written);
    if (n != 0) {
      iovec iov[sdk::kIovLimit];
      const size_t count = slice(op.iov, op.count, op.written, n, iov);
      const RmaVector to{vector.address, n, vector.key};
      ++op.tokens;
      const ssize_t rc = carrier_.write(*c.link_, iov, count, &to, 1, 0, FI_COMPLETION, &op);
      if (rc != 0) --op.tokens;
      if (rc == -FI_EAGAIN) return rc;
      if (rc != 0) {
        on_closed(c, int(-rc));
        return 0;
      }
      op.written += n;
    }
    ++op.next_vector;
  }
  const uint64_t id = id_of(op);
  end(op, 0);
  answer(c, PacketType::kWriteDone, id);
  return 0;
}

void Core::resume_writes() {
  // Each once; a connection that ends meanwhile takes its own off the list.
  for (size_t turns = writes_.size(); turns != 0 && !writes_.empty(); --turns) {
    TxOp *op = writes_.front();
    writes_.erase(writes_.begin());
    if (continue_write(*op->connection, *op) != 0) writes_.push_back(op);
  }
}

// Two who ask each other at once both get an answer, and whoever was agreed with closes. After an
// agreement nothing is sent: it is the last packet, so that what comes before it has been read when
// the connection ends.
void Core::take_part(Connection &c, const Packet &p) {
  if (p.parting != Parting::kAsk && !c.asked_)
    return fail_peer(c, "an answer to what it was not asked");
  switch (p.parting) {
    case Parting::kAsk: {
      if (c.agreed_) return fail_peer(c, "the same question twice");
      const bool agrees = !busy(c);
      Control *control = new_control(c, PacketType::kPart, 0);
      if (control == nullptr) return;
      control->header.control_data = uint64_t(agrees ? Parting::kAgree : Parting::kStay);
      if (agrees) {
        if (c.state_ == State::kConnected && !c.asked_) ++leaving_;
        c.agreed_ = true;
      } else {
        touch(c);
      }
      return queue_control(c, *control);
    }
    case Parting::kAgree:
      return part(c, FI_ECONNABORTED);
    case Parting::kStay:
      return stay(c);
  }
}

void Core::take_response(Connection &c, const Packet &p) {
  TxOp *op = awaited(c, p.message);
  if (op == nullptr || op->form != TxOp::Form::kAtomic)
    return fail_peer(c, "an answer to an atomic that does not exist");
  if (p.status != 0) return end(*op, p.status < 0 ? -p.status : FI_EIO);
  const bool fetches = op->header.op != uint8_t(PacketOp::kAtomic);
  if (p.payload.size() != (fetches ? op->length : 0))
    return fail_peer(c, "an atomic's result of another length");
  if (fetches)
    sdk::ioc_scatter(op->results, op->result_count, element_size(op->header.atomic.datatype),
                     p.payload.data(), p.payload.size());
  end(*op, 0);
}

// ---- atomics of peers ----

void Core::take_atomic(Connection &c, const Packet &p) {
  const sdk::AtomicKind kind = p.op == PacketOp::kAtomic  ? sdk::AtomicKind::kWrite
                               : p.op == PacketOp::kFetch ? sdk::AtomicKind::kFetch
                                                          : sdk::AtomicKind::kCompare;
  const size_t element = element_size(p.datatype);
  Control *control = new_control(c, PacketType::kAtomicResponse, p.message);
  if (control == nullptr) return;
  control->header.op = uint8_t(p.op);
  control->header.atomic.datatype = p.datatype;
  control->header.atomic.operation = p.operation;
  int32_t status = 0;
  RmaVector where[kMaxVectors];
  iovec iov[kMaxVectors][kMaxVectors];
  size_t counts[kMaxVectors] = {};
  const uint64_t access = sdk::atomic_access(kind, p.operation);
  const bool fetches = kind != sdk::AtomicKind::kWrite;
  if (!sdk::atomic_valid(kind, p.operation, p.datatype)) {
    status = -FI_EOPNOTSUPP;
  } else if (fetches && p.size + kAtomicStatusSize > settings_.eager_limit) {
    status = -FI_EMSGSIZE;
  } else {
    // All or nothing: the last vector may be the bad one.
    for (size_t i = 0; i < p.count && status == 0; ++i) {
      where[i] = p.vectors[i];
      where[i].length *= element;
      const ssize_t n = carrier_.resolve(where[i], access, iov[i], kMaxVectors);
      if (n < 0) {
        status = -FI_EACCES;
      } else {
        counts[i] = size_t(n);
      }
    }
  }
  if (status == 0) {
    if (fetches) control->more.resize(p.size);
    size_t at = 0;
    for (size_t i = 0; i < p.count; ++i) {
      const uint8_t *operand = p.payload.empty() ? nullptr : p.payload.data() + at;
      const uint8_t *compare = p.compare.empty() ? nullptr : p.compare.data() + at;
      sdk::atomic_execute_v(kind, p.operation, p.datatype, iov[i], counts[i], operand, compare,
                            fetches ? control->more.data() + at : nullptr);
      at += where[i].length;
    }
    owner_.on_remote_atomic(access, {where, p.count});
  }
  encode_status(status, uint32_t(control->more.size()), control->status);
  control->length += kAtomicStatusSize;
  control->header.size = kAtomicStatusSize + control->more.size();
  queue_control(c, *control);
}

}  // namespace weft::rxm
