// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/group/groups.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace weft::coll {

void Groups::Membership::add(const void *name, size_t bytes) {
  const auto *const from = static_cast<const uint8_t *>(name);
  for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ from[i]) * 0x100000001b3;
  hash_ = (hash_ ^ bytes) * 0x100000001b3;
}

// Mixed, because tags have only a part of it.
uint64_t Groups::Membership::value() const {
  uint64_t hash = hash_;
  hash = (hash ^ hash >> 31) * 0x9e3779b97f4a7c15;
  hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9;
  return hash ^ hash >> 32;
}

// A number is used again as late as can be: messages for the group that had it may be under way.
uint32_t Numbers::take() {
  if (used_.size() >= kNumbers / 2) return 0;
  do last_ = last_ % (kNumbers - 1) + 1;
  while (!used_.insert(last_).second);
  return last_;
}

Group *Groups::join(uint64_t now, GroupPlace place) {
  const uint32_t number = numbers_->take();
  if (number == 0) return nullptr;
  auto group = std::make_unique<Group>(number, std::move(place), limits_, choice_, carrier_);
  Group &own = *groups_.emplace(number, std::move(group)).first->second;
  const bool waits = std::ranges::any_of(joins_, [&](uint32_t other) {
    return groups_.at(other)->place().membership == own.place().membership;
  });
  joins_.push_back(own.number());
  if (!waits) begin(now, own);
  return &own;
}

void Groups::begin(uint64_t now, Group &group) {
  group.join(now);
  if (group.state() != Group::State::kJoining) return;
  std::erase_if(early_, [&](const Early &one) { return now - one.at > kEarlyFor; });
  const auto found = std::ranges::find_if(
      early_, [&](const Early &one) { return group.is_told_by(one.packet, one.source); });
  if (found == early_.end()) return;
  const Early one = std::move(*found);
  early_.erase(found);
  group.on_packet(one.packet, one.source);
}

void Groups::on_joined(uint64_t now, uint32_t number) {
  if (const Group *const group = find(number)) next_join(now, number, group->place().membership);
}

void Groups::next_join(uint64_t now, uint32_t ended, uint64_t membership) {
  if (std::erase(joins_, ended) == 0) return;
  const auto next = std::ranges::find_if(joins_, [&](uint32_t number) {
    return groups_.at(number)->place().membership == membership;
  });
  if (next != joins_.end() && groups_.at(*next)->state() == Group::State::kWaiting)
    begin(now, *groups_.at(*next));
}

bool Groups::leave(uint64_t now, Group &group) {
  group.leave();
  if (!group.is_idle()) return false;
  on_idle(now, group);
  return true;
}

void Groups::on_idle(uint64_t now, Group &group) {
  next_join(now, group.number(), group.place().membership);
  forget(group);
}

void Groups::forget(Group &group) {
  const auto found = groups_.find(group.number());
  if (found == groups_.end()) return;
  numbers_->give(group.number());
  left_members_ += group.size();
  left_.push_back(std::move(found->second));
  groups_.erase(found);
  while (left_.size() > kMaxLeft || (left_members_ > kMaxLeftMembers && left_.size() > 1)) {
    left_members_ -= left_.front()->size();
    left_.pop_front();
  }
}

Group *Groups::find(uint32_t number) {
  const auto found = groups_.find(number);
  return found != groups_.end() ? found->second.get() : nullptr;
}

void Groups::on_told(uint32_t number, uint32_t rank, PacketType type, bool reached) {
  if (Group *const group = find(number)) return group->on_told(rank, type, reached);
  const auto left =
      std::ranges::find_if(left_, [&](const auto &one) { return one->number() == number; });
  if (left != left_.end()) (*left)->on_told(rank, type, reached);
}

// While they join, members do not know each other's numbers. Some may have joined already.
Group *Groups::told_by(const Packet &packet, const std::string &source) const {
  const auto found = std::ranges::find_if(
      groups_, [&](const auto &one) { return one.second->is_told_by(packet, source); });
  return found != groups_.end() ? found->second.get() : nullptr;
}

bool Groups::on_packet(uint64_t now, const Packet &packet, const std::string &source) {
  Group *const group = packet.to != 0 ? find(packet.to) : told_by(packet, source);
  if (group != nullptr) return group->on_packet(packet, source);
  if (packet.to != 0) return answer(packet, source);
  if (packet.type == PacketType::kAbort) keep({now, packet, source});
  return true;
}

void Groups::keep(Early one) {
  const auto is_same = [&](const Early &other) { return other.source == one.source; };
  if (size_t(std::ranges::count_if(early_, is_same)) >= kMaxEarlyOfOne)
    early_.erase(std::ranges::find_if(early_, is_same));
  if (early_.size() >= kMaxEarly) early_.pop_front();
  early_.push_back(std::move(one));
}

bool Groups::answer(const Packet &packet, const std::string &source) {
  for (const auto &group : left_) {
    if (group->number() != packet.to || !group->is_from_member(packet, source)) continue;
    if (packet.type == PacketType::kProbe) group->answer(packet);
    return true;
  }
  return false;
}

uint64_t Groups::deadline() const {
  uint64_t first = 0;
  for (const auto &[number, group] : groups_) {
    const uint64_t at = group->deadline();
    if (at != 0 && (first == 0 || at < first)) first = at;
  }
  return first;
}

void Groups::on_time(uint64_t now) {
  std::vector<uint32_t> numbers;
  for (const auto &[number, group] : groups_)
    if (const uint64_t at = group->deadline(); at != 0 && at <= now) numbers.push_back(number);
  for (const uint32_t number : numbers)
    if (Group *const group = find(number)) group->on_time(now);
}

}  // namespace weft::coll
