// SPDX-License-Identifier: BSD-2-Clause
// Packets in stock's format: the RTS, by which weft peers begin too, the CTS, and those of stock
// conversations. They have no secret, so their source address and our question tell who sent them.
#include <rdma/fi_errno.h>

#include <cstring>
#include <utility>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/weft.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {
namespace {

constexpr size_t kNameAt = 24;  // in an RTS

}  // namespace

// A packet that names the peer but does not come from its address. The peer may send from another
// address than the one that reaches it: if it answers our question from there too, it is the peer.
void Core::on_other_source(Peer &peer, const Path *from) {
  counters_.strangers.add_alone();
  if (from == nullptr && handshakes_.may_answer()) doubt(peer);
}

bool Core::on_stock(std::span<const uint8_t> bytes, Buffer &buffer, const Path *from) {
  if (bytes.size() < stock::kBase) {
    counters_.rejected.add_alone();
    return false;
  }
  const auto type = stock::Type(bytes[1]);
  if (type != stock::Type::kRts && type != stock::Type::kCts) {
    uint32_t number;
    std::memcpy(&number, &bytes[4], sizeof number);
    Peer *peer = peers_.of_number(number);
    if (peer == nullptr || peer->losing || peer->conversation == nullptr || peer->weft != nullptr) {
      counters_.strangers.add_alone();
      return false;
    }
    if (!is_of(*peer, from)) {
      on_other_source(*peer, from);
      return false;
    }
    if (!std::exchange(peer->proven, true)) handshakes_.on_proven();
    peers_.heard_of(*peer);
    return peer->conversation->on_packet(bytes, buffer);
  }
  const stock::Parsed parsed = stock::parse(bytes, name_format());
  if (parsed.reject != stock::Reject::kNone) {
    counters_.rejected.add_alone();
    return false;
  }
  const stock::Packet &p = parsed.packet;
  if (type == stock::Type::kRts && p.marked) {
    answer_with_challenge(p.name, bytes.subspan(kNameAt, wire::kNameSize), p.index);
    return false;
  }
  if (has_key() || !settings_.stock_peers) return false;
  // Every later packet to this peer carries the index, in 32 bits; 0 is not an index.
  if (uint32_t(p.index) == 0 || (type == stock::Type::kCts && p.index > UINT32_MAX)) {
    counters_.rejected.add_alone();
    return false;
  }
  return type == stock::Type::kCts ? on_cts(p, bytes, buffer, from)
                                   : on_rts(p, bytes, buffer, from);
}

bool Core::on_cts(const stock::Packet &p, std::span<const uint8_t> bytes, Buffer &buffer,
                  const Path *from) {
  Peer *peer = peers_.of_number(uint32_t(p.rts_index));
  if (peer == nullptr || peer->losing || p.rts_index != peer->rts_index()) return false;
  // Only a process that receives at the peer's address can know the question.
  learn_places(*peer, 0);
  peer->roams = from != peer->path;
  if (peer->weft != nullptr) {
    if (!peer->is_doubted()) return false;
    // A stock endpoint has the address now, so the weft peer is gone. The stock endpoint knows us
    // by the number in our question.
    peer->losing = peer->requeue = true;
    peer->err = FI_ECONNRESET;
    end_conversation(*peer);
    return become_stock(*peer, bytes, buffer, true);
  }
  if (peer->conversation != nullptr) {
    peer->proven = true;
    return peer->conversation->on_packet(bytes, buffer);
  }
  if (!peer->is_asked()) return false;
  return become_stock(*peer, bytes, buffer, true);
}

// Makes a stock peer that has only sent an RTS. At most max_stock_peers of them exist; the oldest
// is removed.
Peer *Core::make_unproven(const sdk::Address &name) {
  while (peers_.unproven() >= settings_.max_stock_peers) {
    Peer *oldest = peers_.take_unproven();
    if (oldest == nullptr || oldest->proven || oldest->weft != nullptr ||
        oldest->conversation == nullptr || oldest->losing || oldest->conversation->busy())
      continue;
    lose(*oldest, FI_ECONNRESET, true);
    end_lost();
  }
  int err = 0;
  Peer *peer = admits(name) ? make(name, err) : nullptr;
  if (peer == nullptr) return nullptr;
  peers_.add_unproven(*peer);
  return peer;
}

bool Core::on_rts(const stock::Packet &p, std::span<const uint8_t> bytes, Buffer &buffer,
                  const Path *from) {
  Peer *peer = peers_.find(p.name);
  if (peer == nullptr && from != nullptr) {
    counters_.strangers.add_alone();  // it names an address that is not its own
    return false;
  }
  if (peer != nullptr && !is_of(*peer, from)) {
    on_other_source(*peer, from);
    return false;
  }
  if (peer != nullptr) {
    // An RTS proves nothing, so it does not end a connection; but it makes us re-verify a weft
    // peer. While we are asking the peer ourselves, our own handshake decides.
    if (peer->weft != nullptr && !peer->is_doubted() && handshakes_.may_answer()) doubt(*peer);
    if (peer->losing || peer->weft != nullptr) return false;
    if (peer->conversation != nullptr) return peer->conversation->on_packet(bytes, buffer);
    if (peer->is_asked()) return false;
  }
  if (down_ || parting_ || only_tells_ || !handshakes_.may_answer()) return false;
  if (peer == nullptr) peer = make_unproven(p.name);
  if (peer == nullptr) return false;
  return become_stock(*peer, bytes, buffer, false);
}

// `proven`: by a CTS to our question; otherwise by an RTS, while we did not ask.
bool Core::become_stock(Peer &peer, std::span<const uint8_t> bytes, Buffer &buffer, bool proven) {
  auto made = make_stock_conversation(*this, peer);
  const uint64_t now = carrier_.now_ns();
  if (proven) {
    peer.link.on_accepted(now, 0);
  } else {
    peer.link.on_request(peer.address <=> own_address(), 0, now);
  }
  counters_.stock_peers.add_alone();
  converse(peer, std::move(made), nullptr);
  peer.proven = proven;
  const bool kept = peer.conversation->on_packet(bytes, buffer);
  start_waiting(peer);
  return kept;
}

}  // namespace weft::rxd
