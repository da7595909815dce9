// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/collective/groups.h"

#include <algorithm>
#include <utility>

namespace weft::cxi {

uint64_t Groups::membership_of(const std::vector<uint64_t> &peers, uint32_t root, bool by_rank) {
  // FNV-1a of the words.
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  const auto mix = [&](uint64_t word) {
    for (int i = 0; i < 64; i += 8) {
      hash ^= word >> i & 0xff;
      hash *= UINT64_C(0x100000001b3);
    }
  };
  mix(peers.size());
  mix(uint64_t{root} << 1 | uint64_t{by_rank});
  for (const uint64_t peer : peers) mix(peer);
  return hash;
}

Group &Groups::join(uint64_t now, GroupPlace place) {
  const uint64_t id = uint64_t{incarnation_} << 32 | ++last_;
  const uint64_t membership = place.membership;
  const uint32_t rank = place.rank;
  auto made = std::make_unique<Group>(id, std::move(place), limits_, output_);
  Group &group = *made;
  groups_.emplace(id, std::move(made));
  group.begin(now);
  match(now, membership, rank);
  return group;
}

void Groups::leave(uint64_t id) {
  const auto found = groups_.find(id);
  if (found == groups_.end()) return;
  found->second->leave();
  if (found->second->state() == Group::State::kJoined) {
    closed_[id] = found->second->ended_well();
    if (closed_.size() > kMaxClosed) closed_.erase(closed_.begin());
  }
  groups_.erase(found);
}

Group *Groups::find(uint64_t id) {
  const auto found = groups_.find(id);
  return found != groups_.end() ? found->second.get() : nullptr;
}

void Groups::on_address(uint64_t now, uint64_t id, uint32_t address) {
  if (Group *const group = find(id)) group->on_address(now, address);
}

void Groups::on_no_address(uint64_t id, Failure why) {
  if (Group *const group = find(id)) group->on_no_address(why);
}

// ---- packets ----

void Groups::on_packet(uint64_t now, uint64_t peer, const GroupPacket &packet) {
  if (packet.type == GroupPacketType::kJoin) return on_join(now, peer, packet);
  const auto is_for = [&](const Group &group) {
    const GroupPlace &place = group.place();
    return packet.to_rank == place.rank && packet.from_rank < place.peers.size() &&
           place.peers[packet.from_rank] == peer;
  };
  if (packet.to != 0) {
    Group *const group = find(packet.to);
    if (group != nullptr && is_for(*group)) return group->on_packet(now, packet);
    if (packet.type == GroupPacketType::kAbort) return;
    const auto closed = closed_.find(packet.to);
    return answer_stranger(peer, packet, closed != closed_.end() ? closed->second : 0,
                           Failure::kGone);
  }
  if (packet.type != GroupPacketType::kAbort) return;
  // A child that has given up to join does not know our number.
  remember(packet.from);
  if (requests_.remove_if([&](const Request &request) {
        return request.packet.from == packet.from && request.peer == peer;
      }) != 0)
    return;
  for (auto &[id, group] : groups_)
    if (group->has_neighbour(packet.from) && is_for(*group)) return group->on_packet(now, packet);
}

void Groups::answer_stranger(uint64_t peer, const GroupPacket &packet, uint64_t sequence,
                             Failure why) {
  GroupPacket answer;
  answer.type = GroupPacketType::kAbort;
  answer.from_rank = packet.to_rank;
  answer.to_rank = packet.from_rank;
  answer.from = packet.to;
  answer.to = packet.from;
  answer.sequence = sequence;
  answer.partial.failure = why;
  output_.packets.push_back({peer, answer});
}

void Groups::remember(uint64_t id) {
  if (!received_.insert(id).second) return;
  received_order_.push_back(id);
  if (received_order_.size() <= kMaxReceived) return;
  received_.erase(received_order_.front());
  received_order_.pop_front();
}

void Groups::on_join(uint64_t now, uint64_t peer, const GroupPacket &packet) {
  if (packet.from == 0 || received_.contains(packet.from)) return;  // asked again
  requests_.remove_if([&](const Request &request) {
    return request.peer == peer && request.packet.from >> 32 != packet.from >> 32;
  });
  if (requests_.size() >= kMaxRequests) return answer_stranger(peer, packet, 0, Failure::kOther);
  remember(packet.from);
  requests_.push_back({peer, packet});
  match(now, packet.membership, packet.to_rank);
}

// Whether all that it comes after were taken.
bool Groups::is_next(const Request &request) const {
  const uint64_t after = request.packet.sequence;
  return after == 0 ||
         (received_.contains(after) && std::ranges::none_of(requests_, [&](const Request &one) {
            return one.packet.from == after;
          }));
}

void Groups::match(uint64_t now, uint64_t membership, uint32_t rank) {
  for (auto &[id, one] : groups_) {
    Group &group = *one;
    const GroupPlace &place = group.place();
    if (place.membership != membership || place.rank != rank ||
        group.state() == Group::State::kJoined)
      continue;
    const auto is_wanted = [&](const Request &request) {
      const GroupPacket &packet = request.packet;
      return packet.membership == membership && packet.to_rank == rank &&
             group.lacks_child(packet.from_rank) && place.peers[packet.from_rank] == request.peer &&
             is_next(request);
    };
    for (auto found = std::ranges::find_if(requests_, is_wanted); found != requests_.end();
         found = std::ranges::find_if(requests_, is_wanted)) {
      const Request request = *found;
      requests_.erase(found);
      group.adopt(now, request.packet.from_rank, request.packet.from);
    }
  }
}

// ---- what became of packets, and time ----

void Groups::on_reached(const GroupPacket &packet) {
  if (Group *const group = find(packet.from)) group->on_reached(packet);
}

void Groups::on_lost(uint64_t now, const GroupPacket &packet) {
  if (Group *const group = find(packet.from)) group->on_lost(now, packet);
}

uint64_t Groups::deadline() const {
  uint64_t next = 0;
  for (const auto &[id, group] : groups_)
    if (group->deadline() != 0 && (next == 0 || group->deadline() < next)) next = group->deadline();
  return next;
}

void Groups::on_time(uint64_t now) {
  for (auto &[id, group] : groups_) group->on_time(now);
}

// The newest of the earlier joins of the same members that are under way.
uint64_t Groups::predecessor_of(const Group &group) const {
  uint64_t newest = 0;
  for (const auto &[id, one] : groups_) {
    if (id == group.id()) break;
    if (one->state() == Group::State::kJoining && one->place().rank == group.place().rank &&
        one->place().membership == group.place().membership)
      newest = id;
  }
  return newest;
}

void Groups::take_output(GroupOutput &output) {
  output.packets.clear();
  output.ended.clear();
  output.asking.clear();
  for (GroupOutput::Sent &sent : output_.packets) {
    if (sent.packet.type != GroupPacketType::kJoin) continue;
    const Group *const group = find(sent.packet.from);
    sent.packet.sequence = group != nullptr ? predecessor_of(*group) : 0;
  }
  std::swap(output, output_);
}

}  // namespace weft::cxi
