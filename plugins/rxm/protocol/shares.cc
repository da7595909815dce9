// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/shares.h"

#include <algorithm>
#include <utility>

namespace weft::rxm {

namespace {

constexpr size_t kMostReserve = 8;

}  // namespace

Shares::Shares(Carrier &carrier, Peers &peers, const Settings &settings, Counters &counters)
    : carrier_(carrier),
      peers_(peers),
      settings_(settings),
      counters_(counters),
      reserve_(std::clamp<size_t>(settings.receive_count / 16, 1, kMostReserve)) {}

bool Shares::may_charge(const Peer &p, uint64_t bytes) const {
  const uint64_t limit = settings_.unexpected_limit;
  if (charged_ + bytes > limit) return false;
  if (p.is_stranger() && peers_.strangers().charged + bytes > limit / 2) return false;
  return p.charged_ + bytes <= 3 * (limit - charged_);
}

bool Shares::takes_too_much(const Peer &p) const {
  const size_t left = carrier_.buffers_left();
  if (left == Carrier::kOwn) return false;
  return (p.is_stranger() ? peers_.strangers().buffers : p.buffers_) + reserve_ >= left;
}

bool Shares::must_wait(const Peer &p) const {
  if (carrier_.buffers_left() == Carrier::kOwn) return false;
  const uint64_t charged = p.is_stranger() ? peers_.strangers().charged : p.charged_;
  const size_t buffers = p.is_stranger() ? peers_.strangers().buffers : p.buffers_;
  if (charged != 0 && !may_charge(p, 0)) return true;
  return (charged != 0 || buffers != 0) && takes_too_much(p) &&
         !may_charge(p, sizeof(RxMessage) + settings_.eager_limit);
}

void Shares::hold(Connection &c) {
  if (c.held_ || c.link_ == nullptr || !carrier_.hold(*c.link_, true)) return;
  counters_.held.add_alone();
  c.held_ = true;
  held_.push_back(&c);
}

void Shares::hold_all(Peer &p) {
  if (!p.is_stranger()) {
    for (Connection *c = p.connections_; c != nullptr; c = c->next_) hold(*c);
    return;
  }
  for (Connection *c : peers_.connections())
    if (c != nullptr && c->peer_.is_stranger()) hold(*c);
}

void Shares::release() {
  for (size_t i = 0; i < held_.size();) {
    Connection &c = *held_[i];
    if (must_wait(c.peer_)) {
      ++i;
      continue;
    }
    held_[i] = held_.back();
    held_.pop_back();
    c.held_ = false;
    carrier_.hold(*c.link_, false);
  }
}

void Shares::forget(Connection &c) {
  if (std::exchange(c.held_, false)) std::erase(held_, &c);
}

}  // namespace weft::rxm
