// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/peer_table.h"

#include <weft/sdk/memory/room.h>

#include <new>

namespace weft::rxd {

PeerTable::~PeerTable() {
  for (Peer *peer : slots_) delete peer;
}

Peer &PeerTable::add(const sdk::Address &address, Path &path, uint32_t index) {
  auto made = std::make_unique<Peer>();
  Peer &peer = *made;
  if (free_slots_.empty()) {
    sdk::have_room(free_slots_, slots_.size() + 1);
    slots_.push_back(nullptr);
    free_slots_.push_back(uint32_t(slots_.size() - 1));
  }
  by_address_.emplace(address, &peer);
  try {
    if (index != kNoIndex) by_index_.set(index, &peer);
  } catch (const std::bad_alloc &) {
    by_address_.erase(address);
    throw;
  }
  peer.address = address;
  peer.path = &path;
  peer.index = index;
  peer.number = free_slots_.back() + 1;
  free_slots_.pop_back();
  slots_[peer.number - 1] = made.release();
  if (index == kNoIndex) list(peer);
  return peer;
}

void PeerTable::remove(Peer &peer) {
  if (peer.index != kNoIndex) {
    by_index_.set(peer.index, nullptr);
  } else {
    unlist(peer);
  }
  by_address_.erase(peer.address);
  slots_[peer.number - 1] = nullptr;
  free_slots_.push_back(peer.number - 1);
  delete &peer;
}

void PeerTable::name(Peer &peer, uint32_t index) {
  by_index_.set(index, &peer);
  if (peer.index == kNoIndex) unlist(peer);
  peer.index = index;
}

void PeerTable::unname(Peer &peer) {
  by_index_.set(peer.index, nullptr);
  peer.index = kNoIndex;
  list(peer);
}

Peer *PeerTable::take_unproven() {
  Peer *peer = of_number(unproven_.front());
  unproven_.pop_front();
  return peer;
}

void PeerTable::list(Peer &peer) {
  peer.newer = nullptr;
  peer.older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = &peer;
  newest_ = &peer;
  ++unnamed_;
}

void PeerTable::unlist(Peer &peer) {
  (peer.older != nullptr ? peer.older->newer : oldest_) = peer.newer;
  (peer.newer != nullptr ? peer.newer->older : newest_) = peer.older;
  peer.older = peer.newer = nullptr;
  --unnamed_;
}

}  // namespace weft::rxd
