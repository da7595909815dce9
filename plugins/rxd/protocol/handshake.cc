// SPDX-License-Identifier: BSD-2-Clause
// The handshake: endpoints find out which protocol a peer speaks, weft peers prove their addresses
// and agree on a connection (docs/rxd-protocol.md, section 3). Packets in stock's format are in
// handshake_stock.cc.
#include <rdma/fi_errno.h>
#include <utility>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/weft.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {
namespace {

bool same_connection(const wire::Part &a, const wire::Part &b) {
  return a.instance == b.instance && a.connection == b.connection && a.cookie == b.cookie;
}

}  // namespace

wire::Part Core::part_of(const Peer &peer) {
  return handshakes_.part_of(peer, WeftConversation::first_limit(*this));
}

void Core::send_connect(Peer &peer) {
  handshakes_.send_connect(peer, part_of(peer));
}

void Core::send_accept(Peer &peer, uint64_t index) {
  handshakes_.send_accept(peer, index, part_of(peer), peer.weft->theirs());
}

// Only packets in stock's format need their source address, and reading it costs time. So sources
// are read while a stock peer may answer, and while stock conversations exist.
void Core::update_sources(Peer &peer) {
  const bool wanted = peer.is_asked() || (peer.conversation != nullptr && peer.weft == nullptr);
  if (wanted == peer.by_source) return;
  peer.by_source = wanted;
  if (wanted ? by_source_++ == 0 : --by_source_ == 0) carrier_.name_sources(wanted);
}

void Core::ask(Peer &peer) {
  const uint64_t now = carrier_.now_ns();
  switch (peer.link.ask(now, 0)) {
    case sdk::PeerLink::Next::kConnect:
      handshakes_.new_cookie(peer);
      break;
    case sdk::PeerLink::Next::kProbe:
      counters_.doubts.add_alone();
      break;
    default:  // it is asked already
      return;
  }
  update_sources(peer);
  peer.handshake.begin(handshakes_.random(), now);
  handshakes_.send_rts(peer);
  note_deadline(peer);
}

void Core::repeat(Peer &peer, uint64_t now) {
  switch (peer.handshake.on_time(now, settings_.peer_timeout_ns, asks_for_places(peer))) {
    case Handshake::Step::kRts:
      return handshakes_.send_rts(peer);
    case Handshake::Step::kConnect:
      return send_connect(peer);
    case Handshake::Step::kNobody:
      break;
  }
  if (peer.link.is_up()) return;  // the conversation has its own timeout
  counters_.unanswered.add_alone();
  if (has_key()) upper_.warn("a peer does not answer: it may be down, or have another auth_key");
  give_up(peer, has_key() ? FI_EACCES : FI_ETIMEDOUT);
}

void Core::give_up(Peer &peer, int err) {
  end_link(peer);
  peer.cookie = 0;
  peer.handshake.end();
  update_sources(peer);
  fail_waiting(peer, err);
  if (peer.first != nullptr) return ask(peer);  // started from a completion callback
  free_if_unused(peer);
}

// A question about places goes on.
void Core::end_doubt(Peer &peer) {
  if (asks_for_places(peer)) return;
  peer.link.on_probe_ended();
  peer.handshake.end();
  update_sources(peer);
}

// ---- conversations ----

void Core::converse(Peer &peer, std::unique_ptr<Conversation> conversation,
                    WeftConversation *weft) {
  peer.handshake.end();
  peer.settled_at = carrier_.now_ns();
  peer.conversation = std::move(conversation);
  peer.weft = weft;
  update_sources(peer);
}

void Core::start_waiting(Peer &peer) {
  while (peer.first != nullptr && peer.conversation != nullptr && !peer.losing) {
    TxOp *op = peer.first;
    peer.first = op->next;
    if (peer.first == nullptr) peer.last = nullptr;
    op->next = nullptr;
    op->more = peer.first != nullptr || op->on_device;
    peer.conversation->start(*op);
  }
  if (parting_ && peer.conversation != nullptr && !peer.losing) peer.conversation->part();
}

std::unique_ptr<WeftConversation> Core::make_weft(Peer &peer, const wire::Part &theirs) {
  return std::make_unique<WeftConversation>(*this, peer, part_of(peer), theirs);
}

void Core::become_weft(Peer &peer, std::unique_ptr<WeftConversation> made) {
  WeftConversation *weft = made.get();
  counters_.connected.add_alone();
  converse(peer, std::move(made), weft);
}

// ---- input ----

bool Core::on_weft(std::span<const uint8_t> bytes, Buffer &buffer) {
  const auto header = wire::parse_header(bytes);
  if (!header) {
    counters_.rejected.add_alone();
    return false;
  }
  switch (header->kind) {
    case wire::PacketKind::kChallenge:
    case wire::PacketKind::kConnect:
    case wire::PacketKind::kAccept:
    case wire::PacketKind::kReset:
      break;
    default: {
      Peer *peer = peers_.of_number(handshakes_.veiled(header->to));
      if (peer == nullptr || peer->weft == nullptr || peer->losing ||
          peer->weft->cookie() != header->cookie) {
        counters_.strangers.add_alone();
        return false;
      }
      peers_.heard_of(*peer);
      return peer->weft->on_packet(bytes, buffer);
    }
  }
  const auto packet = wire::parse(bytes);
  if (!packet || !handshakes_.is_valid(*packet)) {
    counters_.rejected.add_alone();
    return false;
  }
  if (const auto *challenge = std::get_if<wire::Challenge>(&packet->content)) {
    on_challenge(*challenge, header->to);
  } else if (const auto *connect = std::get_if<wire::Connect>(&packet->content)) {
    on_connect(*connect, bytes);
  } else {
    Peer *peer = peer_of(handshakes_.veiled(header->to), header->cookie);
    if (peer == nullptr) {
      counters_.strangers.add_alone();
    } else if (const auto *accept = std::get_if<wire::Accept>(&packet->content)) {
      on_accept(*peer, *accept);
    } else if (peer->weft != nullptr) {
      lose(*peer, FI_ECONNRESET, true);
    }
  }
  return false;
}

template <class F>
void Core::with_path(const sdk::Address &to, F use) {
  if (const Peer *known = peers_.find(to)) return use(*known->path);
  int err = 0;
  Path *path = carrier_.open(to, err);
  if (path == nullptr) return;
  use(*path);
  carrier_.close(*path);
}

// Answers an RTS, or a connect with a useless token. Keeps no state, and the answer is no longer
// than the question.
void Core::answer_with_challenge(const sdk::Address &from, std::span<const uint8_t> name,
                                 uint64_t index) {
  if (!handshakes_.may_answer()) return;
  with_path(from, [&](Path &path) { handshakes_.send_challenge(path, index, name); });
}

void Core::on_challenge(const wire::Challenge &challenge, uint32_t last_place) {
  Peer *peer = peers_.of_number(uint32_t(challenge.index));
  if (peer == nullptr || peer->losing || challenge.index != peer->rts_index()) return;
  if (!peer->is_asked() || !handshakes_.may_answer()) return;
  learn_places(*peer, last_place);
  // A weft endpoint now has the address of a stock peer.
  if (peer->link.is_up() && peer->weft == nullptr) return lose(*peer, FI_ECONNRESET, true);
  peer->handshake.on_challenge(challenge.token);
  send_connect(*peer);
}

void Core::on_connect(const wire::Connect &connect, std::span<const uint8_t> bytes) {
  const auto from = sdk::read_address(name_format(), connect.name.data(), connect.name.size());
  const uint64_t made_at = handshakes_.token_made_at(connect);
  const wire::Part &theirs = connect.part;
  if (!from || theirs.cookie == 0 || theirs.datagram < kSmallestDatagram) {
    counters_.rejected.add_alone();
    return;
  }
  if (made_at == 0) {
    // An earlier endpoint at this address made the token, it is too old, or an RTS was damaged.
    // Send a new one, so that the peer does not repeat this connect in vain.
    counters_.rejected.add_alone();
    return answer_with_challenge(*from, connect.name, connect.index);
  }
  Peer *peer = peers_.find(*from);
  if (peer != nullptr && peer->losing) return;
  if (peer != nullptr && peer->weft != nullptr && same_connection(peer->weft->theirs(), theirs)) {
    peer->weft->heard();
    trust(*peer);
    return send_accept(*peer, connect.index);
  }
  if ((theirs.flags & kPartVerify) != 0) {
    // The peer asks about a connection that is not known here. If we are connecting ourselves, that
    // handshake answers it: the peer may have accepted our connect already.
    if (peer != nullptr && peer->link.state() == sdk::PeerLink::State::kAttempt) return;
    return with_path(*from, [&](Path &path) { handshakes_.send_reset(path, theirs, bytes); });
  }
  if (down_ || parting_ || only_tells_ || settings_.only_transmits) return;
  const auto place = uint8_t((theirs.flags & kPartPlace) >> kPartPlaceShift);
  const auto claim = owners_.judge(*from, place, carrier_.now_ns());
  // Until it is known whether there is such a context, the peer repeats this.
  if (claim == sdk::PlaceOwners::Claim::kAsk || claim == sdk::PlaceOwners::Claim::kWait) return;
  if (peer != nullptr && peer->link.is_up()) {
    // The peer has restarted. But a token that is older than the connection means that this connect
    // may be late: then a peer that still wants to connect repeats it with a new token.
    if (made_at < peer->settled_at)
      return answer_with_challenge(*from, connect.name, connect.index);
    lose(*peer, FI_ECONNRESET, true);
    end_lost();
    peer = peers_.find(*from);
  }
  if (peer == nullptr) {
    int err = 0;
    if (admits(*from)) peer = make(*from, err);
    if (peer == nullptr) return;
  }
  peer->place = place;
  has_contexts_ |= place != 0;
  if (claim == sdk::PlaceOwners::Claim::kTrue)
    name_context(*from, place, upper_.index_of_context(*from, place));
  if (peer->link.state() == sdk::PeerLink::State::kIdle) handshakes_.new_cookie(*peer);
  auto made = make_weft(*peer, theirs);
  handshakes_.on_proven();
  peer->link.on_request(*from <=> own_address(), theirs.instance, carrier_.now_ns(),
                        sdk::PeerLink::Proof::kAddress);
  become_weft(*peer, std::move(made));
  send_accept(*peer, connect.index);
  start_waiting(*peer);
}

void Core::on_accept(Peer &peer, const wire::Accept &accept) {
  const wire::Part &theirs = accept.part;
  if (peer.losing || theirs.cookie == 0 || theirs.datagram < kSmallestDatagram) return;
  if (peer.link.state() == sdk::PeerLink::State::kAttempt) {
    if (!peer.handshake.has_token()) return;
    auto made = make_weft(peer, theirs);
    handshakes_.on_proven();
    peer.link.on_accepted(carrier_.now_ns(), theirs.instance);
    become_weft(peer, std::move(made));
    return start_waiting(peer);
  }
  if (peer.weft == nullptr) return;
  if (same_connection(peer.weft->theirs(), theirs)) {
    peer.weft->heard();
    return trust(peer);
  }
  lose(peer, FI_ECONNRESET, true);
}

}  // namespace weft::rxd
