// SPDX-License-Identifier: BSD-2-Clause
// Peers that say that they are contexts of a scalable endpoint, and what the process at that
// endpoint's own address says of it (weft/sdk/peer/place.h, docs/rxm-extensions.md).
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

using Claim = sdk::PlaceOwner::Claim;

Claim Core::judge(const sdk::Address &address, unsigned place) {
  return owners_.judge(address, place, carrier_.now_ns());
}

// The process that listens at the address of this peer has answered a request of ours.
void Core::told(const Connection &c, uint8_t last) {
  const Peer &p = c.peer_;
  if (!p.is_stranger())
    owners_.told(sdk::Av::entry_of(p.index_), p.address_, last, carrier_.now_ns());
}

uint32_t Core::index_of_context(const sdk::Address &address, unsigned place) {
  return upper_.index_of_context(address, place);
}

bool Core::is_connected(uint32_t entry) {
  const Peer *const owner = peers_.at(entry);
  return owner != nullptr && owner->main_ != nullptr && owner->main_->state_ == State::kConnected;
}

void Core::ask_for_places(uint32_t entry, const sdk::Address &first) {
  if (down_) return;
  Peer &owner = peers_.get(first);
  if (owner.is_stranger()) rename(owner, entry);
  follow(owner, owner.link_.ask(carrier_.now_ns(), settings_.connect_timeout_ns));
}

void Core::name_context(const sdk::Address &address, unsigned place, uint32_t index) {
  Peer *const p = peers_.find(address);
  if (p != nullptr && p->is_stranger() && p->place_ == place) rename(*p, index);
}

void Core::drop_context(const sdk::Address &address, unsigned place) {
  const Peer *const p = peers_.find(address);
  if (p != nullptr && p->place_ == place && p->main_ != nullptr) ended(*p->main_, FI_ECONNRESET);
}

void Core::introduce_context(uint32_t index, const sdk::Address &address, unsigned place) {
  const Peer *const p = peers_.find(address);
  if (p == nullptr || p->place_ != place) return;
  if (judge(address, place) == Claim::kTrue) name_context(address, place, index);
}

}  // namespace weft::rxm
