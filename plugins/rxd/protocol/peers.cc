// SPDX-License-Identifier: BSD-2-Clause
// The peers of a core: made at first use, named when the address vector has them, freed when
// unused, and removed to make room for newcomers.
#include <rdma/fi_errno.h>

#include <new>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

// Peers that admits() examines to find one that can be removed; bounds the cost of a newcomer.
constexpr int kLooks = 64;

}  // namespace

Peer *Core::make(const sdk::Address &address, int &err) {
  // First: a vector that hears of the entry only now introduces it.
  const uint32_t index = upper_.index_of(address);
  Path *path = carrier_.open(address, err);
  if (path == nullptr) return nullptr;
  try {
    Peer &peer = peers_.add(address, *path, index);
    peer.handshake.set_question(handshakes_.random());
    return &peer;
  } catch (const std::bad_alloc &) {
    carrier_.close(*path);
    err = FI_ENOMEM;
    return nullptr;
  }
}

void Core::free(Peer &peer) {
  if (peer.wants_idle) std::erase(idle_, &peer);
  if (peer.wants_room) std::erase(blocked_, &peer);
  if (peer.losing) std::erase(losing_, &peer);
  timers_.forget(peer.number);
  carrier_.close(*peer.path);
  peers_.remove(peer);
}

void Core::name(Peer &peer, uint32_t index) {
  const uint32_t before = source_of(peer);
  peers_.name(peer, index);
  if (peer.saved != 0) upper_.receiver().rename_source(before, source_of(peer));
}

// Whether the peer can be removed without loss. A stock peer that has talked to us remembers its
// numbers for ever, and could not start again.
bool Core::may_go(const Peer &peer) const {
  return peer.conversation != nullptr && !peer.losing && peer.first == nullptr && peer.saved == 0 &&
         (peer.weft != nullptr || !peer.proven) && !peer.conversation->busy();
}

// Whether a newcomer may become an object: always if it is in the address vector; otherwise if
// there are fewer than max_unnamed_peers, or if one that was idle for long can be removed.
bool Core::admits(const sdk::Address &newcomer) {
  if (peers_.unnamed() < settings_.max_unnamed_peers || upper_.index_of(newcomer) != kNoIndex)
    return true;
  Peer *next = peers_.oldest();
  for (int looks = 0; next != nullptr && looks < kLooks; ++looks) {
    Peer &peer = *next;
    next = peer.newer;
    if (!may_go(peer)) {
      peers_.heard_of(peer);  // to the end of the list: the next call examines other peers
      continue;
    }
    counters_.dismissed.add_alone();
    if (peer.weft != nullptr) peer.weft->dismiss();
    lose(peer, FI_ECONNRESET, true);
    end_lost();
    if (peers_.unnamed() < settings_.max_unnamed_peers) return true;
  }
  counters_.refused.add_alone();
  if (counters_.refused.value() == 1)
    upper_.warn(
        "a peer is refused: max_unnamed_peers that are not in the address vector have something "
        "outstanding; raise it, or insert the addresses of peers");
  return false;
}

void Core::forget(uint32_t index) {
  owners_.forget(index);
  Peer *peer = peers_.at(index);
  if (peer == nullptr) return;
  const Leave leave(*this);
  peers_.unname(*peer);
  // The address vector may hold the same address at another index.
  const uint32_t other = upper_.index_of(peer->address);
  if (other != kNoIndex && other != index && peers_.at(other) == nullptr) peers_.name(*peer, other);
  if (peer->saved != 0) upper_.receiver().rename_source(sdk::Av::entry_of(index), source_of(*peer));
}

void Core::introduce(uint32_t index, const sdk::Address &address) {
  if (peers_.empty()) return;
  Peer *peer = peers_.find(address);
  if (peer == nullptr || peer->index != kNoIndex) return;
  const Leave leave(*this);
  name(*peer, index);
}

const sdk::Address *Core::address_of(uint32_t source) const {
  const Peer *peer = source < sdk::Matcher::kFirstUnnamed
                         ? peers_.at(source)
                         : peers_.of_number(source - sdk::Matcher::kFirstUnnamed);
  return peer != nullptr ? &peer->address : nullptr;
}

}  // namespace weft::rxd
