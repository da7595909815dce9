// SPDX-License-Identifier: BSD-2-Clause
// Peers that say that they are contexts of a scalable endpoint, and what the process at that
// endpoint's own address says of it (weft/sdk/peer/place.h; docs/rxd-protocol.md, section 3).
#include "plugins/rxd/protocol/core.h"

namespace weft::rxd {

uint32_t Core::index_of_context(const sdk::Address &address, unsigned place) {
  return upper_.index_of_context(address, place);
}

bool Core::is_connected(uint32_t entry) {
  const Peer *known = peers_.at(entry);
  return known != nullptr && known->link.is_up();
}

// The answer is the challenge. The question is repeated until then, though the owner may talk all
// the while.
void Core::ask_for_places(uint32_t, const sdk::Address &first) {
  if (down_ || parting_) return;
  int err = 0;
  Peer *owner = peers_.find(first);
  if (owner == nullptr) owner = make(first, err);
  if (owner == nullptr || owner->losing) return;  // end_lost() asks
  // Its challenge came before it was asked for places, and connects are repeated ever more rarely.
  if (owner->link.state() == sdk::PeerLink::State::kAttempt && owner->handshake.has_token())
    handshakes_.send_rts(*owner);
  ask(*owner);
}

bool Core::asks_for_places(const Peer &peer) const {
  return peer.index != kNoIndex && !down_ && !parting_ &&
         owners_.waits(peer.index, carrier_.now_ns());
}

// The process that receives at the peer's address has answered our question.
void Core::learn_places(const Peer &peer, uint32_t last) {
  if (peer.index != kNoIndex) owners_.told(peer.index, peer.address, last, carrier_.now_ns());
}

void Core::name_context(const sdk::Address &address, unsigned place, uint32_t index) {
  Peer *peer = peers_.find(address);
  if (peer != nullptr && peer->index == kNoIndex && peer->place == place) name(*peer, index);
}

void Core::introduce_context(uint32_t index, const sdk::Address &address, unsigned place) {
  const Peer *peer = peers_.find(address);
  if (peer == nullptr || peer->place != place) return;
  const Leave leave(*this);
  if (owners_.judge(address, place, carrier_.now_ns()) == sdk::PlaceOwners::Claim::kTrue)
    name_context(address, place, index);
}

}  // namespace weft::rxd
