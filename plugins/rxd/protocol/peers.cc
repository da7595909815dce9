// SPDX-License-Identifier: BSD-2-Clause
// The peers of a core: made at first use; found by address, index or number; freed when unused; and
// removed to make room for newcomers.
#include <rdma/fi_errno.h>

#include <memory>
#include <new>

#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

// Peers that admits() examines to find one that can be removed; bounds the cost of a newcomer.
constexpr int kLooks = 64;

}  // namespace

Peer *Core::make(const sdk::Address &address, int &err) {
  try {
    // First: a vector that hears of the entry only now introduces it.
    const uint32_t index = upper_.index_of(address);
    auto made = std::make_unique<Peer>();
    made->address = address;
    made->path = carrier_.open(address, err);
    if (made->path == nullptr) return nullptr;
    Peer *peer = made.get();
    if (free_slots_.empty()) {
      free_slots_.reserve(slots_.size() + 1);
      slots_.push_back(nullptr);
      free_slots_.push_back(uint32_t(slots_.size() - 1));
    }
    try {
      by_address_.emplace(address, peer);
    } catch (const std::bad_alloc &) {
      carrier_.close(*made->path);
      throw;
    }
    peer->number = free_slots_.back() + 1;
    free_slots_.pop_back();
    slots_[peer->number - 1] = made.release();
    peer->handshake.set_question(random());
    peer->index = index;
    if (index != kNoIndex) {
      by_index_.set(index, peer);
    } else {
      unname(*peer);
    }
    return peer;
  } catch (const std::bad_alloc &) {
    err = FI_ENOMEM;
    return nullptr;
  }
}

void Core::free(Peer &peer) {
  if (peer.wants_idle) std::erase(idle_, &peer);
  if (peer.wants_room) std::erase(blocked_, &peer);
  if (peer.losing) std::erase(losing_, &peer);
  if (peer.index != kNoIndex) {
    by_index_.set(peer.index, nullptr);
  } else {
    unlist(peer);
  }
  by_address_.erase(peer.address);
  timers_.forget(peer.number);
  slots_[peer.number - 1] = nullptr;
  free_slots_.push_back(peer.number - 1);
  carrier_.close(*peer.path);
  delete &peer;
}

void Core::name(Peer &peer, uint32_t index) {
  const uint32_t before = source_of(peer);
  if (peer.index == kNoIndex) unlist(peer);
  by_index_.set(index, &peer);
  peer.index = index;
  if (peer.saved != 0) upper_.receiver().rename_source(before, source_of(peer));
}

// Puts the peer at the end of the list of peers without an index, as the newest.
void Core::unname(Peer &peer) {
  peer.newer = nullptr;
  peer.older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = &peer;
  newest_ = &peer;
  ++unnamed_;
}

void Core::unlist(Peer &peer) {
  (peer.older != nullptr ? peer.older->newer : oldest_) = peer.newer;
  (peer.newer != nullptr ? peer.newer->older : newest_) = peer.older;
  peer.older = peer.newer = nullptr;
  --unnamed_;
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
  if (unnamed_ < settings_.max_unnamed_peers || upper_.index_of(newcomer) != kNoIndex) return true;
  Peer *next = oldest_;
  for (int looks = 0; next != nullptr && looks < kLooks; ++looks) {
    Peer &peer = *next;
    next = peer.newer;
    if (!may_go(peer)) {
      heard_of(peer);  // to the end of the list: the next call examines other peers
      continue;
    }
    counters_.dismissed.add_alone();
    if (peer.weft != nullptr) peer.weft->dismiss();
    lose(peer, FI_ECONNRESET, true);
    end_lost();
    if (unnamed_ < settings_.max_unnamed_peers) return true;
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
  Peer *peer = by_index_.at(index);
  if (peer == nullptr) return;
  const Leave leave(*this);
  by_index_.set(index, nullptr);
  peer->index = kNoIndex;
  // The address vector may hold the same address at another index.
  if (const uint32_t other = upper_.index_of(peer->address);
      other != kNoIndex && other != index && by_index_.at(other) == nullptr) {
    by_index_.set(other, peer);
    peer->index = other;
  } else {
    unname(*peer);
  }
  if (peer->saved != 0) upper_.receiver().rename_source(sdk::Av::entry_of(index), source_of(*peer));
}

void Core::introduce(uint32_t index, const sdk::Address &address) {
  if (by_address_.empty()) return;
  const auto it = by_address_.find(address);
  if (it == by_address_.end() || it->second->index != kNoIndex) return;
  const Leave leave(*this);
  name(*it->second, index);
}

const sdk::Address *Core::address_of(uint32_t source) const {
  const Peer *peer = source < sdk::Matcher::kFirstUnnamed
                         ? by_index_.at(source)
                         : peer_of(source - sdk::Matcher::kFirstUnnamed);
  return peer != nullptr ? &peer->address : nullptr;
}

}  // namespace weft::rxd
