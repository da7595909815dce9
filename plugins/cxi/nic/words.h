// SPDX-License-Identifier: BSD-2-Clause
// The vocabulary of a Cassini NIC: its addresses, its numbers, and the codes that it answers with.
//
// Example:
//    inline bool is_from(uint32_t initiator, Nid nid, Pid pid) {
//      return accepts(match_id(pid, nid), initiator);
//    }
//
// The values are those of the hardware, so that a backend for it encodes them as they are. An
// address within a fabric is (nid, vni, pid, index): the NIC, the virtual network, the process on
// it, and one of the 256 portals of the process. Not for what libfabric calls these things.
#ifndef WEFT_PLUGINS_CXI_NIC_WORDS_H
#define WEFT_PLUGINS_CXI_NIC_WORDS_H

#include <cstdint>

namespace weft::cxi {

using Nid = uint32_t;  // 20 bits
using Pid = uint16_t;  // 9 bits
using Vni = uint16_t;
using Index = uint8_t;

inline constexpr unsigned kNidBits = 20, kPidBits = 9;
inline constexpr Nid kMaxNid = (1u << kNidBits) - 1;
inline constexpr Pid kMaxPid = 510, kAnyPid = 511;
inline constexpr Index kRendezvousIndex = 255;  // where a target's NIC reads the rest of a message

// Who sends: the pid above, the NIC (or a rank) below. All ones are a wildcard, of either part.
inline constexpr uint32_t kMatchEpBits = 23, kMatchAny = ~0u;
constexpr uint32_t match_id(uint32_t pid, uint32_t ep) {
  return pid << kMatchEpBits | ep;
}
constexpr uint32_t kMatchAnyEp = (1u << kMatchEpBits) - 1, kMatchAnyPid = kAnyPid;
// The part below is a rank: how senders name themselves whose address vectors are symmetric.
inline constexpr uint32_t kLogical = 1u << (kMatchEpBits - 1), kMaxRank = kLogical - 2;
constexpr bool is_logical(uint32_t initiator) {
  return (initiator & kLogical) != 0;
}
constexpr uint32_t rank_of(uint32_t initiator) {
  return initiator & (kLogical - 1);
}
// Whether a sender on this NIC may go by that name. Which rank it has, no NIC knows.
constexpr bool is_of(uint32_t initiator, Nid nid) {
  return is_logical(initiator) || (initiator & kMatchAnyEp) == nid;
}
constexpr bool accepts(uint32_t wanted, uint32_t initiator) {
  const uint32_t differs = wanted ^ initiator;
  const bool any_pid = wanted >> kMatchEpBits == kMatchAnyPid;
  const bool any_ep = (wanted & kMatchAnyEp) == kMatchAnyEp;
  return (any_pid || differs >> kMatchEpBits == 0) && (any_ep || (differs & kMatchAnyEp) == 0);
}

// An endpoint of the fabric as one number.
constexpr uint64_t key_of(Nid nid, Vni vni, Pid pid) {
  return uint64_t{nid} << 32 | uint64_t{vni} << 16 | pid;
}

enum class Rc : uint8_t {
  kNone = 0,
  kOk = 1,
  kUndeliverable = 2,
  kPtDisabled = 3,
  kDropped = 4,
  kPermViolation = 5,
  kOpViolation = 6,
  kNoMatch = 8,
  kNoSpace = 16,
  kEntryNotFound = 18,
  kVniNotFound = 25,
  kPtlteNotFound = 26,
  kPtlteSwManaged = 27,
  kMstCancelled = 29,
  kInvalidAc = 33,
  kPagePermError = 34,
  kNoTranslation = 36,
  kAmoInvalOp = 40,
  kAmoAlign = 41,
  kRestrictedUnicast = 48,
  kAddrOutOfRange = 52,
  kCanceled = 54,
  kAmoLength = 58,
};

enum class EventType : uint8_t {
  kPut = 0,
  kGet = 1,
  kAtomic = 2,
  kFetchAtomic = 3,
  kPutOverflow = 4,
  kAck = 9,
  kReply = 10,
  kLink = 11,
  kSearch = 12,
  kStateChange = 13,
  kUnlink = 14,
  kRendezvous = 15,
  kCommandFailure = 17,
  kTriggered = 18,
  kMatch = 21,
  kError = 28,
};

enum class List : uint8_t { kPriority = 0, kOverflow = 1, kRequest = 2, kUnexpected = 3 };

enum class PortalState : uint8_t { kReset = 0, kDisabled = 1, kEnabled = 2, kSoftwareManaged = 3 };

// Why the NIC has changed the state of a portal by itself.
enum class Reason : uint8_t {
  kEqFull = 0,
  kNoMatch = 1,
  kUnexpectedFail = 2,
  kRequestFull = 3,
  kSmUnexpectedFail = 4,
  kSmAppendFail = 5,
  kUncorrectable = 6,
};

enum class Op : uint8_t {
  kPut = 1,
  kGet = 2,
  kRendezvousPut = 3,
  kAtomic = 4,
  kFetchAtomic = 5,
};

enum class AmoOp : uint8_t {
  kMin = 0,
  kMax = 1,
  kSum = 2,
  kLor = 4,
  kLand = 5,
  kBor = 6,
  kBand = 7,
  kLxor = 8,
  kBxor = 9,
  kSwap = 10,
  kCswap = 11,
  kAxor = 12,  // the masked swap
};
// The operand is compared with the target's value: kLe is operand <= target.
enum class Cswap : uint8_t { kEq = 0, kNe = 1, kLe = 2, kLt = 3, kGe = 4, kGt = 5 };
enum class AmoType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt16 = 2,
  kUint16 = 3,
  kInt32 = 4,
  kUint32 = 5,
  kInt64 = 6,
  kUint64 = 7,
  kFloat = 8,
  kFloatComplex = 9,
  kDouble = 10,
  kDoubleComplex = 11,
  kUint128 = 12,
};

inline constexpr uint32_t kIgnoreDrops = 0xffffff;  // of a state change: whatever the count is

}  // namespace weft::cxi

#endif
