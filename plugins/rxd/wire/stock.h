// SPDX-License-Identifier: BSD-2-Clause
// The packets that stock rxd endpoints exchange. parse() turns a datagram into a typed Packet or a
// Reject, encode() turns a Packet into the headers of a datagram.
//
// Example:
//    // The tag of a message, if the datagram is one.
//    inline bool read(std::span<const uint8_t> datagram, uint64_t &tag) {
//      const Parsed parsed = parse(datagram, FI_SOCKADDR_IP);
//      if (parsed.reject != Reject::kNone || parsed.packet.type != Type::kTagged) return false;
//      tag = parsed.packet.tag;
//      return true;
//    }
//    // The header of a short tagged message. Its payload is sent behind it. `peer`: the index that
//    // the peer gave us.
//    inline size_t write(std::span<uint8_t, kMaxHeader> header, uint32_t peer, uint64_t sequence,
//                        uint64_t tag, uint64_t payload) {
//      return encode({.type = Type::kTagged,
//                     .peer = peer,
//                     .sequence = sequence,
//                     .is_inline = true,
//                     .tag = tag,
//                     .size = payload},
//                    header);
//    }
//
// The wire format defines no byte order: fields are in the sender's, little endian in practice.
// Fields that stock leaves undefined are written as 0 and not read. Not for checks that depend on
// state: whether a number is the next one, or an index or id is known.
#ifndef WEFT_PLUGINS_RXD_WIRE_STOCK_H
#define WEFT_PLUGINS_RXD_WIRE_STOCK_H

#include <weft/sdk/addresses/address.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "plugins/rxd/protocol/carrier.h"

namespace weft::rxd::stock {

inline constexpr uint8_t kVersion = 2;     // the first byte of every packet
inline constexpr size_t kDatagram = 1472;  // both sides must use the same, and cannot negotiate it
inline constexpr size_t kBase = 16;        // bytes that every packet begins with
inline constexpr size_t kDataHeader = 32;  // of a data packet
inline constexpr size_t kSegment =
    kDatagram - kDataHeader;  // payload of every data packet but the last
inline constexpr size_t kVectorLimit = 4;
inline constexpr size_t kNameSize = 64;
inline constexpr size_t kRtsSize = 88;
inline constexpr size_t kCtsSize = 32;
inline constexpr size_t kAckSize = 32;
inline constexpr size_t kMaxHeader = 160;  // all headers before the payload, at most
inline constexpr uint32_t kWindow = 128;   // packets: what stock grants, and assumes at first
// An RTS with these in its sequence field, which stock ignores there, is from a weft endpoint.
inline constexpr char kMark[] = "weft-rxd";

enum class Type : uint8_t {
  kMessage = 0,
  kTagged = 1,
  kRead = 2,  // request
  kWrite = 4,
  kAtomic = 6,
  kFetch = 7,
  kCompare = 8,
  kRts = 9,
  kCts = 10,
  kAck = 11,
  kData = 12,    // of a message or a write
  kAnswer = 13,  // the data of a read, or the previous values of an atomic
};

enum class Reject : uint8_t {
  kNone,
  kShort,    // no whole header
  kVersion,  //
  kType,     //
  kLength,   // the datagram's length is not what its type or its headers say
  kInline,   // an operation with an answer, but without the header that has its id
  kTag,      // a tagged message without a tag
  kVectors,  // none, more than 4, or lengths that differ from the payload's
  kPackets,  // the number of packets does not match the size
  kOperand,  // an atomic's operands do not match the vectors, or do not fit a packet
  kIndex,    // 0 as index
  kName,     // an address of an unsupported family
};
const char *text_of(Reject reject);

// The fields of a packet, checked. Fields that a type does not have are 0.
struct Packet {
  Type type = Type::kMessage;
  uint32_t peer = 0;      // the index that the receiver of the packet gave to its sender
  uint64_t sequence = 0;  // kAck: the next number that is expected
  // ---- operations ----
  bool is_inline = false;  // one packet, without the header that has packets, id and count
  bool has_data = false;
  uint8_t count = 0;  // vectors
  uint32_t id = 0;    // repeated in the answer; in kAnswer: the request's
  uint64_t tag = 0;   // kTagged
  uint64_t data = 0;
  uint64_t size = 0;     // of the whole message or access; of an atomic: bytes of the target
  uint64_t packets = 0;  // of a message or write, including this one
  uint32_t datatype = 0, operation = 0;  // of an atomic; any number
  RmaVector vectors[kVectorLimit];       // the first `count`; lengths are bytes in atomics too
  // ---- kData, kAnswer ----
  uint64_t segment = 0;  // from 0
  // ---- kAck ----
  uint16_t window = 0;  // packets that may be in flight; 0: the next packet was refused
  // ---- kRts, kCts ----
  bool marked = false;               // by a weft endpoint
  uint64_t index = 0;                // the sender's number for the receiver
  uint64_t rts_index = 0;            // kCts: of the RTS that it answers
  sdk::Address name;                 // kRts: the sender's
  std::span<const uint8_t> payload;  // of an atomic: operands; none for FI_ATOMIC_READ
  std::span<const uint8_t> compare;  // kCompare
};

struct Parsed {
  Reject reject = Reject::kNone;
  Packet packet;  // undefined unless reject is kNone
};

// Reads no further than `bytes`. The spans of the result point into it. `name_format`: of the name
// in an RTS, which is an address of the inner provider.
Parsed parse(std::span<const uint8_t> bytes, uint32_t name_format);

// Bytes of the headers of this packet.
size_t header_size(const Packet &packet);
// Writes the headers and returns their size. An RTS, CTS or acknowledgement has nothing else.
size_t encode(const Packet &packet, std::span<uint8_t, kMaxHeader> out);

// The number of packets that `size` bytes take when the first packet has `first` of them.
constexpr uint64_t packets_of(uint64_t size, uint64_t first) {
  const uint64_t rest = size - first;
  return 1 + rest / kSegment + (rest % kSegment != 0);
}

}  // namespace weft::rxd::stock

#endif
