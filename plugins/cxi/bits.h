// SPDX-License-Identifier: BSD-2-Clause
// What endpoints of cxi agree on: which portal of an endpoint is for what, and what stands in the
// match bits of its packets.
//
// Example (statements):
//    const Protocol usual;
//    const uint64_t sent = usual.wanted(true, 7) | usual.has_data;
//    const bool matches = ((sent ^ usual.wanted(true, 7)) & ~usual.ignored(true)) == 0;
//
// They are those of HPE's provider, so that both understand each other on one NIC. Not for what the
// NIC itself defines: nic/words.h.
#ifndef WEFT_PLUGINS_CXI_BITS_H
#define WEFT_PLUGINS_CXI_BITS_H

#include <cstddef>
#include <cstdint>

#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

// ---- portals ----

inline constexpr Index kReceiveIndex = 0;
inline constexpr Index kRnrIndex = 1;              // the receives of FI_PROTO_CXI_RNR
inline constexpr Index kCollectiveIndex = 6;       // what the members of groups send each other
inline constexpr Index kOptimizedWriteIndex = 17;  // and up: one for each key
inline constexpr Index kWriteIndex = 117;          // of all other regions; and control messages
inline constexpr Index kDoneIndex = 127;           // "your message has met its receive"
inline constexpr Index kOptimizedReadIndex = 128;
inline constexpr Index kReadIndex = 228;
inline constexpr uint64_t kOptimizedKeys = 100;

// ---- messages ----

inline constexpr unsigned kTagBits = 48;
inline constexpr unsigned kTransactionShift = 48;  // of a short message that wants to be told
inline constexpr uint64_t kTransactions = uint64_t{1} << 11;
inline constexpr unsigned kRendezvousShift = 48;  // of a long one: the high bits of its number
inline constexpr uint64_t kRendezvousHigh = uint64_t{1} << 7;
inline constexpr uint64_t kLacMask = 15;        // the address space of its bytes
inline constexpr unsigned kProtocolShift = 61;  // of a long one
inline constexpr uint64_t kAltRead = 1;         // the target's software reads the rest
inline constexpr uint64_t kHasData = uint64_t{1} << 59;
inline constexpr uint64_t kTagged = uint64_t{1} << 60;
inline constexpr uint64_t kMatchComplete = uint64_t{1} << 61;  // of a short one
inline constexpr uint64_t kControl = uint64_t{1} << 63;
inline constexpr unsigned kVniShift = 48;  // of FI_PROTO_CXI_RNR

// What stands where in the match bits of messages, by the protocol of the endpoint.
struct Protocol {
  bool is_rnr = false;  // FI_PROTO_CXI_RNR: a message without a receive is sent again
  Index index = kReceiveIndex;
  unsigned tag_bits = kTagBits;
  uint64_t tagged = kTagged, has_data = kHasData;
  uint64_t constant = 0;    // of all messages
  bool marks_vnis = false;  // each message has its VNI, and a receive takes those of any

  static constexpr Protocol rnr(Vni vni) {
    return {.is_rnr = true,
            .index = kRnrIndex,
            .tag_bits = 40,
            .tagged = uint64_t{1} << 47,
            .has_data = uint64_t{1} << 46,
            .constant = uint64_t{vni} << kVniShift};
  }
  // Of an endpoint that is in several VNIs.
  static constexpr Protocol rnr_of_vnis() {
    Protocol own = rnr(0);
    own.marks_vnis = true;
    return own;
  }
  constexpr uint64_t tag_mask() const { return (uint64_t{1} << tag_bits) - 1; }
  // Of a receive. What it does not look at comes with the user's ignore bits on top.
  constexpr uint64_t wanted(bool is_tagged, uint64_t tag) const {
    return constant | (is_tagged ? tagged | tag : 0);
  }
  constexpr uint64_t ignored(bool is_tagged) const {
    const uint64_t fixed = marks_vnis ? 0 : is_rnr ? uint64_t{0xffff} << kVniShift : kControl;
    return ~(fixed | tagged | (is_tagged ? tag_mask() : 0));
  }
  // Of a message to a peer in this VNI.
  constexpr uint64_t sent(bool is_tagged, uint64_t tag, Vni vni) const {
    return wanted(is_tagged, tag) | (marks_vnis ? uint64_t{vni} << kVniShift : 0);
  }
  constexpr uint64_t tag_of(uint64_t bits) const { return bits & tagged ? bits & tag_mask() : 0; }
};

struct MessageBits {
  uint64_t bits = 0;
  constexpr MessageBits with_transaction(uint64_t id) const {
    return {bits | kMatchComplete | id << kTransactionShift};
  }
  constexpr MessageBits with_rendezvous(uint64_t high, uint64_t lac, uint64_t protocol) const {
    return {bits | high << kRendezvousShift | lac << 55 | protocol << kProtocolShift};
  }
};
constexpr uint64_t transaction_of(uint64_t bits) {
  return bits >> kTransactionShift & (kTransactions - 1);
}

// A Get of the rest of a long message names it so: the low byte of its number, and the top 16 bits
// of what it was sent with.
constexpr uint64_t read_bits(uint8_t rendezvous_id, uint64_t message_bits) {
  return rendezvous_id | (message_bits & (uint64_t{0xffff} << 48));
}
constexpr uint32_t rendezvous_of(uint64_t read_bits) {
  return uint32_t(read_bits & 0xff) |
         uint32_t(read_bits >> kRendezvousShift & (kRendezvousHigh - 1)) << 8;
}

// ---- control messages, between the endpoints themselves ----

enum class ControlType : uint8_t { kNotify = 0, kResume = 1 };

struct ControlBits {
  ControlType type = ControlType::kNotify;
  uint16_t drops = 0;

  constexpr uint64_t bits() const {
    return kControl | uint64_t(type) << kProtocolShift | uint64_t{drops} << 16;
  }
  static constexpr ControlBits of(uint64_t bits) {
    return {ControlType(bits >> kProtocolShift & 3), uint16_t(bits >> 16)};
  }
};

// ---- keys of memory regions ----

inline constexpr uint64_t kProviderKey = uint64_t{1}
                                         << 63;  // made by the provider; not on the wire
inline constexpr uint64_t kOptimizedKey = uint64_t{1} << 61;  // of those: a portal of its own
inline constexpr uint64_t kSolicited = uint64_t{1} << 59;     // on the wire: tell the target
// Of those: memory of a LAC by its address, which is part of the key, above the LAC. One entry of
// the LAC serves all.
inline constexpr uint64_t kCachedKey = uint64_t{1} << 62;
inline constexpr unsigned kCachedShift = 3, kCachedBits = 56;
inline constexpr uint64_t kCachedAddress = ((uint64_t{1} << kCachedBits) - 1) << kCachedShift;
inline constexpr uint64_t kFirstProviderId = 8;  // optimized ones stand behind these

constexpr uint64_t cached_key(uint8_t lac, uint64_t address, bool is_optimized) {
  return kProviderKey | kCachedKey | (is_optimized ? kOptimizedKey : 0) | address << kCachedShift |
         lac;
}

// No region has it. The NIC of an endpoint answers for the endpoint that there is none: with
// ENTRY_NOT_FOUND.
inline constexpr uint64_t kNobodysKey = uint64_t{1} << 60 | (kSolicited - 1);

// A portal that an endpoint has only with a region.
constexpr bool is_optimized_index(Index index) {
  return (index >= kOptimizedWriteIndex && index < kWriteIndex) ||
         (index >= kOptimizedReadIndex && index < kReadIndex);
}

// Where a peer's region is.
struct RegionAt {
  Index index = 0;
  uint64_t match_bits = 0;
  bool is_optimized = false;
  uint64_t offset = 0;  // of its first byte
};
constexpr RegionAt region_at(uint64_t key, bool writes, bool optimized_client_keys) {
  const Index base = writes ? kOptimizedWriteIndex : kOptimizedReadIndex;
  if (key & kProviderKey) {
    if (key & kCachedKey) {
      const bool is_optimized = (key & kOptimizedKey) != 0;
      const Index shared = writes ? kWriteIndex : kReadIndex;
      return {is_optimized ? Index(base + (key & 7)) : shared,
              is_optimized ? 0 : key & ~kProviderKey, is_optimized,
              (key & kCachedAddress) >> kCachedShift};
    }
    const uint64_t id = key & 0xffff;
    if (key & kOptimizedKey && id < kOptimizedKeys - kFirstProviderId)
      return {Index(base + kFirstProviderId + id), 0, true};
    return {writes ? kWriteIndex : kReadIndex, key & ~kProviderKey, false};
  }
  if (optimized_client_keys && key < kOptimizedKeys) return {Index(base + key), 0, true};
  return {writes ? kWriteIndex : kReadIndex, key, false};
}

}  // namespace weft::cxi

#endif
