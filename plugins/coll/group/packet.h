// SPDX-License-Identifier: BSD-2-Clause
// What members of a group tell each other besides their data, and the tags of all messages.
//
// Example:
//    inline std::optional<Packet> echo(const Packet &packet) { return Packet::parse(packet.bytes()); }
//    static_assert(is_ours(data_tag(1, 2, 3, 4)) && !is_ours(17));
//
// A tag has 64 bits, of which the highest one keeps ours apart from the application's:
//
//   data      1, kind, the group's number at the receiver (16) and at the sender (16),
//             sequence (11), label (18)
//   joining   1, kind, a part of the membership and of the receiver's rank in it (53), label (8)
//   packets   1, kind
//
// So endpoints that share receives know their messages apart. A member learns the numbers of others
// from others, who may lie. But nobody tells it its own: with both numbers in the tag, no lie makes
// data of a group look like those of another.
//
// A packet is 48 bytes, little-endian. Not for how it is sent.
#ifndef WEFT_PLUGINS_COLL_GROUP_PACKET_H
#define WEFT_PLUGINS_COLL_GROUP_PACKET_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft::coll {

inline constexpr uint64_t kOurTags = uint64_t{1} << 63;
inline constexpr uint32_t kNumbers = 1u << 16;    // of groups: 1 to kNumbers - 1
inline constexpr uint32_t kSequences = 1u << 11;  // of operations
inline constexpr uint32_t kLabels = 1u << 18;

constexpr bool is_ours(uint64_t tag) {
  return (tag & kOurTags) != 0;
}
constexpr uint64_t data_tag(uint32_t receivers, uint32_t senders, uint64_t sequence,
                            uint32_t label) {
  return kOurTags | uint64_t{1} << 61 | uint64_t{receivers % kNumbers} << 45 |
         uint64_t{senders % kNumbers} << 29 | sequence % kSequences << 18 | label % kLabels;
}
constexpr uint64_t join_tag(uint64_t membership, uint32_t to_rank, uint32_t label) {
  const uint64_t place = membership ^ to_rank * UINT64_C(0x9e3779b97f4a7c15);
  return kOurTags | uint64_t{2} << 61 | place >> 11 << 8 | (label & 0xff);
}
inline constexpr uint64_t kPacketTag = kOurTags | uint64_t{3} << 61;

// Why an operation has not ended well. The numbers are in packets.
enum class Failure : uint8_t {
  kNone = 0,
  kMismatch,  // members disagree on the operation, or on the table of algorithms
  kGone,      // a member is gone, or has left
  kTimeout,   // GroupLimits::deadline
  kCanceled,  // by the member itself
};

enum class PacketType : uint8_t {
  kProbe = 1,  // are you there?
  kGone = 2,   // the answer of a member that has left
  kAbort = 3,  // operations fail, and so do all that follow
};

struct Packet {
  static constexpr size_t kSize = 48;
  using Bytes = std::array<uint8_t, kSize>;

  PacketType type = PacketType::kProbe;
  Failure why = Failure::kNone;  // kAbort
  uint32_t from_rank = 0;
  uint32_t culprit = 0;       // kAbort: the rank of a member that is gone
  uint32_t from = 0, to = 0;  // the group's number at both; `to` is 0 while they join
  uint64_t membership = 0;

  Bytes bytes() const;
  static std::optional<Packet> parse(std::span<const uint8_t> bytes);
};

}  // namespace weft::coll

#endif
