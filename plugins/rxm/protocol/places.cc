// SPDX-License-Identifier: BSD-2-Clause
// Peers that say that they are contexts of a scalable endpoint, and what the process at that endpoint's
// own address says of it (weft/sdk/peer/place.h, docs/rxm-extensions.md).
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

using Claim = sdk::PlaceOwner::Claim;

Claim Core::judge(const sdk::Address &address, unsigned place) {
  const uint32_t context =
      place != 0 ? upper_.index_of_context(address, place) : uint32_t{kNoIndex};
  if (context == kNoIndex) return Claim::kFalse;
  const uint32_t entry = sdk::Av::entry_of(context);
  const Connection *known = peers_.at(entry);
  const bool connected = known != nullptr && known->state_ == State::kConnected;
  const Claim claim = owners_[entry].judge(place, carrier_.now_ns(), connected);
  if (claim == Claim::kAsk) ask_for_places(entry, address, place);
  return claim;
}

void Core::ask_for_places(uint32_t entry, const sdk::Address &context, unsigned place) {
  const Result<sdk::Address> first = context.with_port(uint16_t(context.port() - place));
  if (!first || down_) return;
  const auto it = by_address_.find(*first);
  Connection &owner = it != by_address_.end() ? *it->second : *make(*first, false);
  if (owner.index_ == kNoIndex) name(owner, entry);
  if (owner.state_ == State::kIdle) connect(owner);
  if (owner.state_ == State::kAccepting || owner.state_ == State::kConnected) contest(owner);
}

// The process that listens at the address of `c` has answered a request of ours.
void Core::learn_places(const Connection &c, uint8_t last) {
  const Connection &named = c.own_ && c.rival_ != nullptr ? *c.rival_ : c;
  const auto owner = owners_.find(named.index_);
  if (owner == owners_.end()) return;
  owner->second.told(last, carrier_.now_ns());
  for (unsigned place = 1; place <= last && place < kPlaces; ++place) {
    const auto address = c.address_.with_port(uint16_t(c.address_.port() + place));
    const auto it = address ? by_address_.find(*address) : by_address_.end();
    if (it != by_address_.end()) name_context(*it->second, place);
  }
}

void Core::name_context(Connection &c, unsigned place) {
  if (c.index_ != kNoIndex || c.place_ != place) return;
  const uint32_t context = upper_.index_of_context(c.address_, place);
  if (context != kNoIndex) name(c, context);
}

void Core::introduce_context(uint32_t, const sdk::Address &address, unsigned place) {
  const auto it = by_address_.find(address);
  if (it == by_address_.end() || it->second->place_ != place) return;
  if (judge(address, place) == Claim::kTrue) name_context(*it->second, place);
}

}  // namespace weft::rxm
