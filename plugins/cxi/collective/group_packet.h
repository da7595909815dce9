// SPDX-License-Identifier: BSD-2-Clause
// GroupPacket: what the members of a group send each other.
//
// Example:
//    inline std::optional<GroupPacket> echo(const GroupPacket &packet) {
//      return GroupPacket::parse(packet.bytes());
//    }
//
// It is 80 bytes, little-endian, and ours: HPE's provider reduces in the switches, and its packets
// are theirs. A number of a member's own names the group at that member (`to`, `from`); 0 where it
// is not known yet. Not for how it is sent: control.h.
#ifndef WEFT_PLUGINS_CXI_COLLECTIVE_GROUP_PACKET_H
#define WEFT_PLUGINS_CXI_COLLECTIVE_GROUP_PACKET_H

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "plugins/cxi/collective/reduction.h"

namespace weft::cxi {

enum class GroupPacketType : uint8_t {
  kJoin = 1,    // to the parent: this part of the tree is there
  kJoined = 2,  // to a child: all are there
  kUp = 3,      // to the parent: the operands of this part of the tree
  kDown = 4,    // to a child: the result
  kAbort = 5,   // to any neighbour: operations from `sequence` on fail, or joining does
  kProbe = 6,   // to any neighbour: are you there?
};

struct GroupPacket {
  static constexpr size_t kSize = 80;
  using Bytes = std::array<uint8_t, kSize>;

  GroupPacketType type = GroupPacketType::kProbe;
  uint32_t from_rank = 0, to_rank = 0;
  uint64_t from = 0, to = 0;
  uint64_t membership = 0;  // kJoin: of which group
  // Of an operation; kJoin: the one that it comes after (groups.h); kJoined: the group's multicast
  // address plus one, or 0 without one.
  uint64_t sequence = 0;
  Partial partial;  // kUp, kDown; kAbort: why

  Bytes bytes() const;
  static std::optional<GroupPacket> parse(std::span<const uint8_t> bytes);
};

}  // namespace weft::cxi

#endif
