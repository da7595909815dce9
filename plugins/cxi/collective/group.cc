// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/collective/group.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

namespace weft::cxi {
namespace {

constexpr uint64_t kLongestInterval = 1'000'000'000;  // ns between two probes

}  // namespace

Group::Group(uint64_t id, GroupPlace place, const GroupLimits &limits, GroupOutput &output)
    : id_(id), place_(std::move(place)), limits_(limits), output_(output) {
  const uint64_t n = place_.peers.size();
  const auto rank_of = [&](uint64_t node) { return uint32_t((node + place_.root) % n); };
  const uint64_t node = (place_.rank + n - place_.root) % n;
  if (node != 0) parent_.rank = rank_of((node - 1) / kChildren);
  for (uint64_t child = node * kChildren + 1; child <= node * kChildren + kChildren; ++child)
    if (child < n) children_.push_back({.rank = rank_of(child)});
  for (uint64_t i = 0; i < kWindow; ++i) slots_[i].sequence = i;
}

void Group::send(const Neighbour &to, GroupPacketType type, uint64_t sequence,
                 const Partial &part) {
  output_.packets.push_back({place_.peers[to.rank],
                             {.type = type,
                              .from_rank = place_.rank,
                              .to_rank = to.rank,
                              .from = id_,
                              .to = to.id,
                              .membership = place_.membership,
                              .sequence = sequence,
                              .partial = part}});
}

Group::Neighbour *Group::neighbour(uint64_t id) {
  if (id == 0) return nullptr;
  if (!is_root() && parent_.id == id) return &parent_;
  const auto found = std::ranges::find(children_, id, &Neighbour::id);
  return found != children_.end() ? &*found : nullptr;
}

bool Group::has_neighbour(uint64_t id) const {
  return const_cast<Group *>(this)->neighbour(id) != nullptr;
}

// ---- joining ----

void Group::begin(uint64_t now) {
  joined_since_ = now;
  begun_ = true;
  had_news(now);
  consider_join(now);
}

bool Group::lacks_child(uint32_t rank) const {
  return std::ranges::any_of(
      children_, [&](const Neighbour &child) { return child.rank == rank && child.id == 0; });
}

void Group::adopt(uint64_t now, uint32_t rank, uint64_t id) {
  const auto child = std::ranges::find(children_, rank, &Neighbour::rank);
  child->id = id;
  child->lost_at = 0;
  if (state_ == State::kFailed)
    return send(*child, GroupPacketType::kAbort, 0, {.failure = broken_by_});
  had_news(now);
  consider_join(now);
}

void Group::consider_join(uint64_t now) {
  if (!begun_ || state_ != State::kJoining || asked_ ||
      std::ranges::any_of(children_, [](const Neighbour &child) { return child.id == 0; }))
    return;
  if (is_root() && !place_.asks) return set_joined(now);
  asked_ = true;
  if (is_root()) return output_.asking.push_back(id_);
  send(parent_, GroupPacketType::kJoin);
}

void Group::on_address(uint64_t now, uint32_t address) {
  if (state_ != State::kJoining) return;
  address_ = address;
  set_joined(now);
}

void Group::on_no_address(Failure why) {
  if (state_ == State::kJoining) fail_join(why);
}

void Group::set_joined(uint64_t now) {
  state_ = State::kJoined;
  for (const Neighbour &child : children_)
    send(child, GroupPacketType::kJoined, address_ ? *address_ + uint64_t{1} : 0);
  output_.ended.push_back({id_, true, 0, {}});
  had_news(now);
}

void Group::fail_join(Failure why) {
  state_ = State::kFailed;
  broken_by_ = why;
  deadline_ = 0;
  for (const Neighbour &child : children_)
    if (child.id != 0) send(child, GroupPacketType::kAbort, 0, {.failure = why});
  // The parent may not know it by a number of its own yet: it finds it by its child's.
  if (!is_root()) send(parent_, GroupPacketType::kAbort, 0, {.failure = why});
  output_.ended.push_back({id_, true, 0, {.failure = why}});
}

// ---- operations ----

int Group::start(uint64_t now, const Partial &operand, uint64_t token) {
  if (state_ == State::kJoining) return -FI_EAGAIN;
  if (state_ == State::kFailed || next_ >= broken_from_) return -FI_ENOTCONN;
  Slot &slot = slot_of(next_);
  if (slot.sequence != next_) return -FI_EAGAIN;
  ++next_;
  slot.active = true;
  slot.own = operand;
  slot.token = token;
  slot.since = now;
  if (first_unfinished_ + 1 == next_) had_news(now);
  consider(slot);
  if (slot.active && is_waiting_in_vain(slot)) abort(slot.sequence, Failure::kGone);
  return 0;
}

void Group::consider(Slot &slot) {
  if (!slot.active || slot.sent || slot.present != all_children()) return;
  Partial total = slot.own;
  for (size_t i = 0; i < children_.size(); ++i) total.add(slot.children[i]);
  if (is_root()) return finish(slot, total);
  slot.sent = true;
  send(parent_, GroupPacketType::kUp, slot.sequence, total);
  if (is_waiting_in_vain(slot)) abort(slot.sequence, Failure::kGone);
}

void Group::finish(Slot &slot, const Partial &result) {
  for (const Neighbour &child : children_)
    send(child, GroupPacketType::kDown, slot.sequence, result);
  end(slot, result);
}

void Group::end(Slot &slot, const Partial &result) {
  output_.ended.push_back({id_, false, slot.token, result});
  slot = {.sequence = slot.sequence + kWindow};
  while (first_unfinished_ != next_ && slot_of(first_unfinished_).sequence != first_unfinished_)
    ++first_unfinished_;
}

// Operations from `sequence` on cannot end any more. Each member tells its neighbours once.
void Group::abort(uint64_t sequence, Failure why) {
  if (sequence >= broken_from_) return;
  broken_from_ = sequence;
  broken_by_ = why;
  for (uint64_t i = std::max(sequence, first_unfinished_); i < next_; ++i) {
    Slot &slot = slot_of(i);
    if (slot.sequence != i || !slot.active) continue;
    Partial result = slot.own;
    result.failure = std::max(result.failure, why);
    end(slot, result);
  }
  const auto tell = [&](const Neighbour &one) {
    if (one.id != 0 && one.ends_before > sequence)
      send(one, GroupPacketType::kAbort, sequence, {.failure = why});
  };
  for (const Neighbour &child : children_) tell(child);
  if (!is_root()) tell(parent_);
}

void Group::leave() {
  if (state_ == State::kJoining) {
    fail_join(Failure::kCanceled);
  } else if (state_ == State::kJoined) {
    abort(first_unfinished_, Failure::kCanceled);
  }
  deadline_ = 0;
}

// ---- packets ----

void Group::on_packet(uint64_t now, const GroupPacket &packet) {
  if (packet.type == GroupPacketType::kJoined) {
    if (state_ != State::kJoining || !asked_ || is_root() || packet.from_rank != parent_.rank)
      return;
    parent_.id = packet.from;
    if (packet.sequence != 0) address_ = uint32_t(packet.sequence - 1);
    return set_joined(now);
  }
  Neighbour *const from = packet.type == GroupPacketType::kAbort &&
                                  packet.from_rank == parent_.rank && !is_root() && parent_.id == 0
                              ? &parent_  // it failed before it could tell its number
                              : neighbour(packet.from);
  if (from == nullptr) return;
  if (packet.type == GroupPacketType::kAbort) return on_aborted(*from, packet);
  if (packet.type == GroupPacketType::kProbe) {
    if (broken_from_ != kNever || state_ == State::kFailed)
      send(*from, GroupPacketType::kAbort, state_ == State::kFailed ? 0 : broken_from_,
           {.failure = broken_by_});
    return;
  }
  Slot &slot = slot_of(packet.sequence);
  if (place_.discards || slot.sequence != packet.sequence) return;
  had_news(now);
  if (packet.type == GroupPacketType::kDown) {
    if (from == &parent_ && slot.sent) finish(slot, packet.partial);
  } else if (packet.type == GroupPacketType::kUp && from != &parent_) {
    const auto child = size_t(from - children_.data());
    slot.children[child] = packet.partial;
    slot.present |= uint8_t(1u << child);
    consider(slot);
  }
}

void Group::on_aborted(Neighbour &by, const GroupPacket &packet) {
  const Failure why = std::max(packet.partial.failure, Failure::kOther);
  by.ends_before = std::min(by.ends_before, packet.sequence);
  if (state_ == State::kJoining) return fail_join(why == Failure::kCanceled ? Failure::kGone : why);
  if (state_ == State::kJoined) {
    // It canceled its own operations; here they fail because it is gone.
    abort(packet.sequence, why == Failure::kCanceled ? Failure::kGone : why);
    look_for_the_gone();
  }
}

// ---- waiting ----

void Group::had_news(uint64_t now) {
  interval_ = limits_.timeout;
  deadline_ = now + interval_;
  if (limits_.limit != 0 && (state_ == State::kJoining || first_unfinished_ != next_))
    deadline_ = std::min(deadline_, waits_since() + limits_.limit);
}

uint64_t Group::waits_since() const {
  return state_ == State::kJoining ? joined_since_ : slots_[first_unfinished_ % kWindow].since;
}

// Whether it waits for a neighbour that takes no part in it.
bool Group::is_waiting_in_vain(const Slot &slot) const {
  if (slot.sent) return parent_.ends_before <= slot.sequence;
  for (size_t i = 0; i < children_.size(); ++i)
    if ((slot.present >> i & 1) == 0 && children_[i].ends_before <= slot.sequence) return true;
  return false;
}

void Group::look_for_the_gone() {
  for (uint64_t i = first_unfinished_; i < next_ && i < broken_from_; ++i) {
    const Slot &slot = slot_of(i);
    if (slot.sequence == i && slot.active && is_waiting_in_vain(slot))
      return abort(i, Failure::kGone);
  }
}

// Those whose packets are awaited, once each.
template <class F>
void Group::for_awaited(F look) {
  if (state_ == State::kJoining) {
    for (Neighbour &child : children_)
      if (child.id == 0) look(child);
    if (asked_ && !is_root()) look(parent_);
    return;
  }
  uint32_t children = 0;
  bool parent = false;
  for (uint64_t i = first_unfinished_; i < next_; ++i) {
    const Slot &slot = slot_of(i);
    if (slot.sequence != i || !slot.active) continue;
    parent |= slot.sent;
    if (!slot.sent) children |= all_children() & ~uint32_t{slot.present};
  }
  for (size_t i = 0; i < children_.size(); ++i)
    if (children >> i & 1) look(children_[i]);
  if (parent) look(parent_);
}

void Group::on_reached(const GroupPacket &packet) {
  const auto reached = [&](Neighbour &one) {
    if (one.rank == packet.to_rank) one.lost_at = 0;
  };
  for (Neighbour &child : children_) reached(child);
  if (!is_root()) reached(parent_);
}

void Group::on_lost(uint64_t now, const GroupPacket &packet) {
  const auto lost = [&](Neighbour &one) {
    if (one.rank != packet.to_rank) return;
    if (state_ == State::kJoining) {
      if (one.lost_at == 0) one.lost_at = now;
    } else if (one.ends_before == kNever) {  // else it has left, and said when
      one.ends_before = 0;
    }
  };
  for (Neighbour &child : children_) lost(child);
  if (!is_root()) lost(parent_);
  if (state_ == State::kJoined) look_for_the_gone();
}

void Group::on_time(uint64_t now) {
  if (deadline_ == 0 || now < deadline_) return;
  deadline_ = 0;
  if (state_ == State::kFailed || (state_ == State::kJoined && first_unfinished_ == next_)) return;
  if (limits_.limit != 0 && now - waits_since() >= limits_.limit)
    return state_ == State::kJoining ? fail_join(Failure::kTimeout)
                                     : abort(first_unfinished_, Failure::kTimeout);
  bool gave_up = false;
  for_awaited([&](Neighbour &one) {
    if (one.lost_at != 0 && now - one.lost_at >= limits_.patience) gave_up = true;
    // The parent may have started anew, and not know that it was asked.
    const bool asks = state_ == State::kJoining && &one == &parent_;
    send(one, asks ? GroupPacketType::kJoin : GroupPacketType::kProbe);
  });
  if (gave_up && state_ == State::kJoining) return fail_join(Failure::kGone);
  interval_ = std::min(interval_ * 2, std::max(kLongestInterval, limits_.timeout));
  deadline_ = now + interval_;
  if (limits_.limit != 0) deadline_ = std::min(deadline_, waits_since() + limits_.limit);
}

}  // namespace weft::cxi
