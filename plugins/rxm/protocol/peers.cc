// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/peers.h"

#include <weft/sdk/memory/room.h>

#include <algorithm>
#include <memory>

namespace weft::rxm {

namespace {

// A place for one more object, found again by its number. Room for its return is made now.
template <class T>
uint32_t place_for(std::vector<T *> &objects, std::vector<uint32_t> &free) {
  if (free.empty()) {
    sdk::have_room(free, objects.size() + 1);
    objects.push_back(nullptr);
    free.push_back(uint32_t(objects.size() - 1));
  }
  return free.back();
}

}  // namespace

Peers::~Peers() {
  for (Connection *c : slots_) delete c;
  for (Peer *p : by_number_) delete p;
}

Peer *Peers::find(const sdk::Address &address) const {
  const auto it = by_address_.find(address);
  return it != by_address_.end() ? it->second : nullptr;
}

Peer *Peers::of_source(uint32_t source) const {
  const uint32_t number = source - sdk::Matcher::kFirstUnnamed;
  const bool is_number = source >= sdk::Matcher::kFirstUnnamed && number < by_number_.size();
  return is_number ? by_number_[number] : nullptr;
}

size_t Peers::objects() const {
  const auto is_bare = [](const Peer *p) { return p != nullptr && p->connections_ == nullptr; };
  return slots_.size() - free_slots_.size() + size_t(std::ranges::count_if(by_number_, is_bare));
}

Peer &Peers::get(const sdk::Address &address) {
  if (Peer *known = find(address)) return *known;
  const uint32_t number = place_for(by_number_, free_numbers_);
  auto made = std::make_unique<Peer>(address, number);
  by_address_.emplace(address, made.get());
  free_numbers_.pop_back();
  by_number_[number] = made.get();
  return *made.release();
}

Connection &Peers::connect(Peer &peer) {
  const uint32_t slot = place_for(slots_, free_slots_);
  auto *const made = new Connection(peer, slot);
  free_slots_.pop_back();
  slots_[slot] = made;
  made->next_ = peer.connections_;
  peer.connections_ = made;
  return *made;
}

void Peers::erase(Connection &c) {
  Connection **at = &c.peer_.connections_;
  while (*at != &c) at = &(*at)->next_;
  *at = c.next_;
  slots_[c.slot_] = nullptr;
  free_slots_.push_back(c.slot_);
  delete &c;
}

void Peers::erase(Peer &p) {
  if (!p.is_stranger()) by_index_.set(p.index_, nullptr);
  by_address_.erase(p.address_);
  by_number_[p.number_] = nullptr;
  free_numbers_.push_back(p.number_);
  delete &p;
}

void Peers::set_index(Peer &p, uint32_t index) {
  if (index != kNoIndex) by_index_.set(index, &p);
  if (!p.is_stranger()) by_index_.set(p.index_, nullptr);
  count_stranger(p, -1);
  p.index_ = index;
  count_stranger(p, 1);
  for (Connection *c = p.connections_; c != nullptr; c = c->next_) c->source_ = p.source();
}

void Peers::count_stranger(const Peer &p, int times) {
  if (!p.is_stranger()) return;
  strangers_.connected += size_t(times * int(p.open_ != 0));
  strangers_.buffers += size_t(times * int64_t(p.buffers_));
  strangers_.charged += uint64_t(times * int64_t(p.charged_));
}

void Peers::opened(Connection &c) {
  Peer &p = c.peer_;
  if (p.open_++ == 0 && p.is_stranger()) ++strangers_.connected;
}

void Peers::closed(Connection &c) {
  Peer &p = c.peer_;
  if (--p.open_ == 0 && p.is_stranger()) --strangers_.connected;
}

}  // namespace weft::rxm
