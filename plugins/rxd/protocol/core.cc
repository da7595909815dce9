// SPDX-License-Identifier: BSD-2-Clause
// Operations, messages, remote memory and deadlines, for all conversations. Peers are in peers.cc,
// the handshake is in handshake.cc and handshake_stock.cc.
#include "plugins/rxd/protocol/core.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {
namespace {

// After this many datagrams on_idle() runs, even if more can be read.
constexpr uint32_t kBatch = 32;

}  // namespace

Core::Core(Carrier &carrier, Upper &upper, const Settings &settings)
    : carrier_(carrier),
      upper_(upper),
      settings_(settings),
      ops_(settings.tx_size),
      inbox_(*this, settings.unexpected_limit),
      pools_(std::make_unique<Pools>()),
      copies_(settings.hmem != nullptr ? std::make_unique<DeviceCopies>(*this, *settings.hmem)
                                       : nullptr),
      handshakes_(carrier_, counters_, settings_) {
  carrier_.name_sources(false);
}

Core::~Core() {
  for (Peer *peer : peers_.slots()) {
    if (peer == nullptr) continue;
    peer->conversation.reset();
    carrier_.close(*peer->path);
  }
}

size_t Core::notes() const {
  const Pools &p = *pools_;
  return p.sent.in_use() + p.packets.in_use() + p.answers.in_use() + p.results.in_use() +
         p.remotes.in_use() + p.kept.in_use();
}

Core::Pair Core::pair_with(uint32_t index) const {
  const Peer *peer = peers_.at(index);
  if (peer == nullptr || peer->weft == nullptr) return {};
  return {handshakes_.veiled(peer->number), peer->weft->theirs().connection, peer->weft->cookie()};
}
// ---- operations ----

TxOp *Core::take() {
  TxOp *op = ops_.take();
  if (op == nullptr) {
    counters_.tx_full.add_alone();
    return nullptr;
  }
  op->kind = TxOp::Kind::kMessage;
  op->tagged = op->has_data = op->delivery = op->transmit = op->weft_only = op->fence = op->more =
      false;
  op->report = true;
  op->is_canceled = false;
  op->atomic = sdk::AtomicKind::kWrite;
  op->datatype = op->op = op->count = op->vector_count = op->result_count = 0;
  op->context = nullptr;
  op->cq_flags = op->length = op->data = op->tag = 0;
  op->next = op->previous = op->ready = op->beside = nullptr;
  op->is_ready = op->announced = op->counted = op->copied = op->started = op->acked = op->answered =
      false;
  op->on_device = false;
  op->id = op->packets = 0;
  op->status = 0;
  op->sent = op->allowed = op->received = op->charged = 0;
  return op;
}

void Core::give(TxOp &op) {
  op.copy.reset();
  op.context = nullptr;  // fi_cancel does not find it any more
  ops_.give(&op);
}

bool Core::own_data(TxOp &op) {
  uint8_t *to = op.bytes;
  if (op.length > kInlineSize) {
    op.copy = std::make_unique_for_overwrite<uint8_t[]>(op.length);
    to = op.copy.get();
  }
  if (!sdk::hmem_gather(settings_.hmem, to, op.iov, op.count, 0, op.length)) return false;
  op.iov[0] = {to, size_t(op.length)};
  op.count = op.length != 0 ? 1 : 0;
  op.on_device = false;
  return true;
}

// The copy is sent at once: the next one takes its place.
int Core::send_of_devices(Peer &peer, iovec *iov, size_t count) {
  size_t length = 0;
  for (size_t i = 0; i < count; ++i) length += iov[i].iov_len;
  if (staging_.size() < length) staging_.resize(length);
  if (!sdk::hmem_gather(settings_.hmem, staging_.data(), iov, count, 0, length)) return -FI_EIO;
  const iovec whole{staging_.data(), length};
  const int rc = send(peer, &whole, 1);
  flush();
  return rc;
}

bool Core::give_results(const TxOp &op, std::span<const uint8_t> bytes) {
  const size_t element = sdk::datatype_size(op.datatype);
  if (settings_.hmem == nullptr) {
    sdk::ioc_scatter(op.results, op.result_count, element, bytes.data(), bytes.size());
    return true;
  }
  iovec iov[sdk::kIovLimit];
  for (size_t i = 0; i < op.result_count; ++i)
    iov[i] = {op.results[i].addr, op.results[i].count * element};
  return sdk::hmem_scatter(settings_.hmem, iov, op.result_count, 0, bytes.data(), bytes.size());
}

void Core::end(TxOp &op, int err) {
  flush();
  if (err != 0) counters_.failed.add_alone();
  upper_.on_done(op, err);
  give(op);
}

bool stock_does(const TxOp &op) {
  return !op.weft_only &&
         (op.kind != TxOp::Kind::kAtomic || sdk::stock_executes(op.op, op.datatype));
}

int Core::start(TxOp &op, uint32_t index, const sdk::Address *address) {
  if (down_) return -down_err_;
  if (parting_) return -FI_EOPBADSTATE;
  const Leave leave(*this);
  Peer *peer = peers_.at(index);
  if (peer == nullptr) {
    if (address == nullptr) return -FI_EINVAL;
    int err = FI_ENOMEM;
    peer = peers_.find(*address);  // perhaps by a second index of the address
    if (peer == nullptr) peer = make(*address, err);
    if (peer == nullptr) return -err;
    if (peer->index == kNoIndex) name(*peer, index);
  }
  if (peer->conversation != nullptr && !peer->losing) {
    if (peer->weft == nullptr && peer->proven && !stock_does(op)) return -FI_EOPNOTSUPP;
    peer->conversation->start(op);
    return 0;
  }
  op.next = nullptr;
  (peer->last != nullptr ? peer->last->next : peer->first) = &op;
  peer->last = &op;
  if (!peer->link.is_up()) ask(*peer);
  return 0;
}

void Core::fail_waiting(Peer &peer, int err) {
  while (TxOp *op = peer.first) {
    peer.first = op->next;
    if (peer.first == nullptr) peer.last = nullptr;
    end(*op, err);
  }
}

// ---- messages ----

void Core::deliver(Incoming &m, sdk::Receive &receive) {
  const Leave leave(*this);
  Peer &peer = *m.peer;
  m.receive = &receive;
  if (m.saved) --peer.saved;
  m.saved = false;
  if (m.conversation == nullptr && peer.weft != nullptr) peer.weft->consumed(m);
  if (!inbox_.deliver(m)) return m.conversation->fetch(m);
  free_if_unused(peer);
}

void Core::discard(Incoming &m) {
  const Leave leave(*this);
  Peer &peer = *m.peer;
  if (m.saved) --peer.saved;
  m.saved = false;
  if (m.conversation != nullptr && !down_) return m.conversation->discard(m);
  if (peer.weft != nullptr) peer.weft->consumed(m);
  inbox_.drop(m);
  free_if_unused(peer);
}

// The first bytes of a saved message, of which the application is told before it has a receive.
int Core::read_first(Incoming &m, void *to, size_t n) {
  if (m.conversation == nullptr && m.err != 0) return -m.err;
  if (m.arrived < n || m.arrived != m.end) {  // or there may be gaps
    if (m.conversation != nullptr) m.conversation->fetch_first(m, n);
    return -FI_EAGAIN;
  }
  std::memcpy(to, m.kept, n);
  return 0;
}

// ---- remote memory ----

ssize_t Core::resolve(std::span<const RmaVector> vectors, uint64_t access, uint64_t offset,
                      uint64_t n, iovec *iov, size_t room) {
  size_t made = 0;
  for (const RmaVector &v : vectors) {
    if (offset >= v.length) {
      offset -= v.length;
      continue;
    }
    const uint64_t k = std::min(n, v.length - offset);
    if (k != 0) {
      const RmaVector part{v.address + offset, k, v.key};
      const ssize_t count = carrier_.resolve(part, access, iov + made, room - made);
      if (count < 0) return count;
      made += size_t(count);
    }
    offset = 0;
    n -= k;
    if (n == 0) break;
  }
  return n == 0 ? ssize_t(made) : -FI_EACCES;
}

uint16_t Core::write_to(std::span<const RmaVector> vectors, uint64_t offset,
                        std::span<const uint8_t> bytes) {
  iovec iov[kMaxPieces];
  const ssize_t count = resolve(vectors, FI_REMOTE_WRITE, offset, bytes.size(), iov, kMaxPieces);
  if (count < 0) return uint16_t(-count);
  return sdk::hmem_scatter(settings_.hmem, iov, size_t(count), 0, bytes.data(), bytes.size())
             ? uint16_t(0)
             : uint16_t(FI_EIO);
}

uint16_t Core::execute(sdk::AtomicKind kind, uint8_t operation, uint8_t datatype,
                       std::span<const RmaVector> vectors, std::span<const uint8_t> operands,
                       std::span<const uint8_t> compares, std::span<uint8_t> result,
                       size_t &result_size) {
  result_size = 0;
  if (!sdk::atomic_valid(kind, operation, datatype)) return FI_EOPNOTSUPP;
  const size_t element = sdk::datatype_size(datatype);
  const bool fetches = kind != sdk::AtomicKind::kWrite;
  const uint64_t limit = fetches ? result.size() : operands.size();
  uint64_t total = 0;
  for (const RmaVector &v : vectors) {
    if (v.length > limit || v.length % element != 0) return FI_EINVAL;
    total += v.length;
  }
  if (total > limit) return FI_EINVAL;
  if (operation != FI_ATOMIC_READ && operands.size() != total) return FI_EINVAL;
  if (kind == sdk::AtomicKind::kCompare && compares.size() != total) return FI_EINVAL;
  // Resolve all vectors before any is changed: the last one may be invalid.
  iovec iov[kMaxVectors][kMaxVectors];
  size_t counts[kMaxVectors] = {};
  const uint64_t access = sdk::atomic_access(kind, operation);
  for (size_t i = 0; i < vectors.size(); ++i) {
    const ssize_t n = carrier_.resolve(vectors[i], access, iov[i], kMaxVectors);
    if (n < 0) return uint16_t(-n);
    counts[i] = size_t(n);
  }
  size_t at = 0;
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (!sdk::hmem_atomic(settings_.hmem, kind, operation, datatype, iov[i], counts[i],
                          vectors[i].length, operands.empty() ? nullptr : operands.data() + at,
                          compares.empty() ? nullptr : compares.data() + at,
                          fetches ? result.data() + at : nullptr))
      return FI_EIO;
    at += vectors[i].length;
  }
  if (access & FI_REMOTE_WRITE) {
    if (const uint16_t status = upper_.persist(vectors); status != 0) return status;
  }
  if (fetches) result_size = total;
  upper_.on_remote_atomic(access, total, vectors);
  return 0;
}

// ---- to the carrier ----

int Core::send(Peer &peer, const iovec *iov, size_t count) {
  const int rc = carrier_.send(*peer.path, iov, count, true);
  if (rc == -FI_EAGAIN) {
    counters_.provider_full.add_alone();
    return rc;
  }
  counters_.packets_sent.add_alone();
  unflushed_ = true;
  return rc;
}

void Core::want_idle(Peer &peer) {
  if (peer.wants_idle) return;
  peer.wants_idle = true;
  idle_.push_back(&peer);
}

void Core::want_room(Peer &peer) {
  if (peer.wants_room) return;
  peer.wants_room = true;
  blocked_.push_back(&peer);
}

void Core::lose(Peer &peer, int err, bool requeue) {
  if (peer.losing) return;
  if (peer.conversation != nullptr && !down_) counters_.ended.add_alone();
  peer.losing = true;
  peer.err = err;
  peer.requeue = requeue;
  losing_.push_back(&peer);
}

void Core::leave() {
  while (!losing_.empty()) end_lost();
  flush();
  arm();
}

void Core::end_lost() {
  Peer &peer = *losing_.back();
  losing_.pop_back();
  end_link(peer);
  end_conversation(peer);
  if (!peer.requeue) fail_waiting(peer, peer.err);
  if ((peer.first != nullptr && !down_) || asks_for_places(peer)) {
    ask(peer);
  } else {
    fail_waiting(peer, peer.err);
    free_if_unused(peer);
  }
}

// A handshake that verifies the connection is about its cookie, which is not used again.
void Core::end_link(Peer &peer) {
  const uint64_t now = carrier_.now_ns();
  peer.link.on_probe_ended();
  peer.link.on_lost(now, /*wanted=*/false, 0);
  peer.link.on_refused(now, sdk::PeerLink::Refusal::kUnreachable, /*wanted=*/false);
}

void Core::end_conversation(Peer &peer) {
  flush();
  if (peer.index != kNoIndex && !asks_for_places(peer)) owners_.forget(peer.index);
  const std::unique_ptr<Conversation> over = std::move(peer.conversation);
  peer.weft = nullptr;
  peer.cookie = 0;
  peer.deadline = 0;
  peer.handshake.end();
  update_sources(peer);
  // Operations that are started from now on wait behind those that end() returns.
  Conversation::Queue unsent;
  if (over != nullptr) over->end(peer.err, peer.requeue ? &unsent : nullptr);
  peer.losing = false;
  if (unsent.first != nullptr) {
    unsent.last->next = peer.first;
    peer.first = unsent.first;
    if (peer.last == nullptr) peer.last = unsent.last;
  }
}

// ---- from the carrier ----

void Core::on_idle() {
  const Leave leave(*this);
  batch_ = 0;
  // Peers that ask for another call during this loop get it the next time.
  turn_.swap(idle_);
  for (Peer *peer : turn_) peer->wants_idle = false;
  for (Peer *peer : turn_)
    if (peer->conversation != nullptr && !peer->losing) peer->conversation->on_idle();
  turn_.clear();
}

void Core::resume() {
  const Leave leave(*this);
  turn_.swap(blocked_);
  for (Peer *peer : turn_) peer->wants_room = false;
  for (Peer *peer : turn_)
    if (peer->conversation != nullptr && !peer->losing) peer->conversation->on_room();
  turn_.clear();
}

bool Core::on_datagram(std::span<const uint8_t> bytes, Buffer &buffer, const Path *from) {
  bool kept = false;
  {
    const Leave leave(*this);
    counters_.packets_received.add_alone();
    if (down_ || bytes.empty()) return false;
    if (bytes[0] == wire::kMagic) {
      kept = on_weft(bytes, buffer);
    } else if (bytes[0] == stock::kVersion) {
      kept = on_stock(bytes, buffer, from);
    } else {
      counters_.rejected.add_alone();
    }
  }
  if (++batch_ >= kBatch) on_idle();
  return kept;
}

void Core::on_unreachable(const sdk::Address &to, std::span<const uint8_t> datagram) {
  const Leave leave(*this);
  Peer *const known = peers_.find(to);
  if (down_ || known == nullptr) return;
  Peer &peer = *known;
  if (peer.losing || peer.link.state() == sdk::PeerLink::State::kIdle) return;
  const stock::Parsed parsed = stock::parse(datagram, name_format());
  const bool asked = parsed.reject == stock::Reject::kNone && parsed.packet.marked &&
                     parsed.packet.index == peer.rts_index();
  if (peer.link.is_up()) {
    // The first report may be late or forged, so it only starts an inquiry: an RTS. The peer is
    // gone if that RTS is reported too. Any packet of the peer in between would have ended the
    // doubt.
    if (!peer.is_doubted()) {
      if (handshakes_.may_answer()) doubt(peer);
    } else if (asked) {
      lose(peer, FI_ECONNRESET, !parting_);
    }
    return;
  }
  // The first report may be late: the peer may have started since. An endpoint that is being closed
  // has no time to find out.
  if (asked && (peer.handshake.on_undelivered() || parting_)) give_up(peer, FI_ECONNREFUSED);
}

// ---- deadlines ----

void Core::set_deadline(Peer &peer, uint64_t at_ns) {
  peer.deadline = at_ns;
  note_deadline(peer);
}

void Core::note_deadline(Peer &peer) {
  uint64_t at = peer.deadline;
  const uint64_t next = peer.handshake.next_at();
  if (next != 0 && (at == 0 || next < at)) at = next;
  if (at != 0) timers_.wake(peer.number, at);
}

void Core::arm() {
  const uint64_t first = timers_.next();
  if (first == deadline_) return;
  deadline_ = first;
  carrier_.set_deadline(first);
}

void Core::on_deadline() {
  const Leave leave(*this);
  deadline_ = 0;
  const uint64_t now = carrier_.now_ns();
  for (uint32_t number; (number = timers_.due(now)) != Timers::kNone;) {
    Peer *peer = peers_.of_number(number);
    const uint64_t next = peer->handshake.next_at();
    if (next != 0 && next <= now) repeat(*peer, now);
    peer = peers_.of_number(number);
    if (peer == nullptr) continue;
    if (peer->deadline != 0 && peer->deadline <= now) {
      peer->deadline = 0;
      if (peer->conversation != nullptr && !peer->losing) peer->conversation->on_deadline(now);
    }
    note_deadline(*peer);
  }
}

// ---- the end ----

void Core::part(bool waits) {
  const Leave leave(*this);
  parting_ = true;
  waits_ = waits;
  for (Peer *peer : peers_.slots())
    if (peer != nullptr && peer->conversation != nullptr && !peer->losing)
      peer->conversation->part();
}

bool Core::parted() const {
  for (const Peer *peer : peers_.slots()) {
    if (peer == nullptr) continue;
    if (peer->first != nullptr) return false;
    if (peer->conversation != nullptr && !peer->conversation->parted()) return false;
  }
  return true;
}

void Core::shut_down(int err) {
  const Leave leave(*this);
  if (!down_) down_err_ = err;
  down_ = true;
  // Peers that still wait for something of this endpoint hear that it will not come.
  for (Peer *peer : peers_.slots())
    if (peer != nullptr && peer->weft != nullptr && !peer->losing && !peer->weft->parted())
      peer->weft->dismiss();
  for (Peer *peer : peers_.slots())
    if (peer != nullptr) lose(*peer, err, false);
}

}  // namespace weft::rxd
