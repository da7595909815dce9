// SPDX-License-Identifier: BSD-2-Clause
// Peers that say that they are contexts of a scalable endpoint, and what the process at that endpoint's
// own address says of it (weft/sdk/peer/place.h; docs/rxd-protocol.md, section 3).
#include "plugins/rxd/protocol/core.h"

namespace weft::rxd {

using Claim = sdk::PlaceOwner::Claim;

Claim Core::judge(const sdk::Address &address, unsigned place) {
  if (place == 0) return Claim::kFalse;
  const uint32_t context = upper_.index_of_context(address, place);
  const auto first = address.with_port(uint16_t(address.port() - place));
  if (context == kNoIndex || !first) return Claim::kFalse;
  const uint32_t entry = sdk::Av::entry_of(context);
  const Peer *known = by_index_.at(entry);
  const bool connected = known != nullptr && known->state == State::kTalking;
  const Claim claim = owners_[entry].judge(place, carrier_.now_ns(), connected);
  if (claim == Claim::kAsk) ask_for_places(*first);
  return claim;
}

// The answer is the challenge.
void Core::ask_for_places(const sdk::Address &first) {
  if (down_ || parting_) return;
  int err = 0;
  const auto it = by_address_.find(first);
  Peer *owner = it != by_address_.end() ? it->second : make(first, err);
  if (owner == nullptr || owner->losing) return;
  // Its challenge came before it was asked for places, and connects are repeated ever more rarely.
  if (owner->state == State::kConnecting) send_rts(*owner);
  if (owner->state == State::kIdle) ask(*owner);
  if (owner->state == State::kTalking) doubt(*owner);
}

// The process that receives at the peer's address has answered our question.
void Core::learn_places(const Peer &peer, uint32_t last) {
  const auto owner = owners_.find(peer.index);
  if (owner == owners_.end()) return;
  owner->second.told(last, carrier_.now_ns());
  for (unsigned place = 1; place <= last && place < sdk::Av::kContexts; ++place) {
    const auto address = peer.address.with_port(uint16_t(peer.address.port() + place));
    const auto it = address ? by_address_.find(*address) : by_address_.end();
    if (it != by_address_.end()) name_context(*it->second, place);
  }
}

void Core::name_context(Peer &peer, unsigned place) {
  if (peer.index != kNoIndex || peer.place != place) return;
  const uint32_t context = upper_.index_of_context(peer.address, place);
  if (context != kNoIndex) name(peer, context);
}

void Core::introduce_context(uint32_t, const sdk::Address &address, unsigned place) {
  const auto it = by_address_.find(address);
  if (it == by_address_.end() || it->second->place != place) return;
  const Leave leave(*this);
  if (judge(address, place) == Claim::kTrue) name_context(*it->second, place);
}

}  // namespace weft::rxd
