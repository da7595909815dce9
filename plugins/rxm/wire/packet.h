// SPDX-License-Identifier: BSD-2-Clause
// The packets of rxm: what one message of the carrier holds. Bytes become a typed Packet or a
// Reject in parse(); encoding is filling a WireHeader.
//
//   const Parsed p = parse({bytes, n});
//   if (p.reject != Reject::kNone) return text_of(p.reject);
//   switch (p.packet.type) { case PacketType::kEager: ... p.packet.payload ... }
//
//   WireHeader h = header_of(PacketType::kEager, connection);
//   h.op = uint8_t(PacketOp::kTagged);
//   h.size = n; h.tag = tag;                       // then h and the payload go out in one message
//
// All fields are in the order of the sender, which is ours: a peer with the other order is refused
// when it connects (connect_data.h). Fields that a type does not use hold leftovers of stock
// senders and are not looked at. Not for the state of a connection: whether an answer was asked for
// is the protocol's to know.
#ifndef WEFT_PLUGINS_RXM_WIRE_PACKET_H
#define WEFT_PLUGINS_RXM_WIRE_PACKET_H

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::rxm {

inline constexpr uint8_t kControlVersion = 4;
inline constexpr uint8_t kOperationVersion = 2;
inline constexpr size_t kHeaderSize = 64;
inline constexpr size_t kMaxVectors = 4;
inline constexpr size_t kVectorListSize = 104;  // rendezvous: 4 vectors, count, 7 undefined
inline constexpr size_t kAtomicVectorsSize = 96;
inline constexpr size_t kAtomicStatusSize = 8;
inline constexpr uint32_t kFlagRemoteData = 0x00020000;

enum class PacketType : uint8_t {
  kEager = 0,           // a whole message
  kSegment = 1,         // a part of one
  kRendezvous = 2,      // a message that waits for the receiver: where it can be read
  kReadDone = 3,        // the receiver has read it
  kAtomic = 4,          // request
  kAtomicResponse = 5,  //
  kCredit = 6,          // more packets may be sent
  kWriteTarget = 7,     // where a rendezvous' sender shall write
  kWriteDone = 8,       // and that it has
  kPart = 64,           // between weft peers: about the end of an idle connection
};

enum class PacketOp : uint8_t { kMessage = 0, kTagged = 1, kAtomic = 6, kFetch = 7, kCompare = 8 };

enum class SegmentKind : uint8_t { kFirst = 1, kMiddle = 2, kLast = 3 };

// How two agree that a connection ends with nothing lost (docs/rxm-extensions.md).
enum class Parting : uint8_t {
  kAsk = 1,    // I send nothing more unless you object
  kAgree = 2,  // neither do I: this was my last packet
  kStay = 3,   // I need it: go on
};

struct RmaVector {
  uint64_t address = 0;
  uint64_t length = 0;  // bytes; of an atomic: elements
  uint64_t key = 0;
  bool operator==(const RmaVector &) const = default;
};

// As it stands on the wire.
struct WireHeader {
  uint8_t control_version;
  uint8_t type;
  uint16_t segment_size;
  uint32_t segment_number;
  uint64_t connection;
  uint64_t message;
  uint64_t control_data;
  uint8_t operation_version;
  uint8_t rx_context;
  uint8_t op;
  uint8_t zero;
  uint32_t flags;
  uint64_t size;
  uint64_t data;
  union {
    uint64_t tag;
    struct {
      uint8_t datatype, operation, vectors;
    } atomic;
  };
};
static_assert(sizeof(WireHeader) == kHeaderSize);

struct WireVectors {
  RmaVector vector[kMaxVectors];
  uint8_t count;
  uint8_t zero[7];
};
static_assert(sizeof(WireVectors) == kVectorListSize);

inline WireHeader header_of(PacketType type, uint32_t connection) {
  WireHeader h{};
  h.control_version = kControlVersion;
  h.type = static_cast<uint8_t>(type);
  h.connection = connection;
  h.operation_version = kOperationVersion;
  return h;
}

enum class Reject : uint8_t {
  kNone,
  kShort,             // no whole header
  kControlVersion,    //
  kType,              //
  kOperationVersion,  //
  kOp,                // not one that this type has
  kLength,            // the packet's length is not what its header says
  kSegment,           // kind or size of a segment cannot be
  kVectors,           // none, more than 4, or lengths that are not the message's
  kAtomicCode,        // datatype or operation unknown
  kAtomicLength,      // operands are not as many as the vectors say
  kParting,           // neither question nor answer
};
const char *text_of(Reject reject);

// In words that need no further look at the bytes. What a type does not carry is 0.
struct Packet {
  PacketType type;
  PacketOp op;
  SegmentKind segment;
  Parting parting;
  bool has_data;
  uint8_t count;                // vectors
  uint8_t datatype, operation;  // of atomics, within the codes of the ABI
  uint32_t connection;
  uint32_t segment_number;
  uint64_t message;
  uint64_t size;  // of the whole message; of an atomic: bytes of the operands
  uint64_t data;
  uint64_t tag;
  uint64_t credits;
  int32_t status;                    // kAtomicResponse: 0 or -FI_E...
  std::span<const uint8_t> payload;  // kEager, kSegment, kAtomic (operands), kAtomicResponse
  std::span<const uint8_t> compare;  // kAtomic, op kCompare
  RmaVector vectors[kMaxVectors];    // the first `count`
};

struct Parsed {
  Reject reject;
  Packet packet;  // undefined unless reject is kNone
};

// Reads no further than `bytes`. The spans of the result point into it.
Parsed parse(std::span<const uint8_t> bytes);

// Bytes of one element of an atomic datatype code; 0: unknown.
size_t element_size(uint8_t datatype);

// The data part of types 2 and 7.
void encode_vectors(std::span<const RmaVector> vectors, WireVectors &out);
// The first 8 bytes of the data part of type 5.
void encode_status(int32_t status, uint32_t length, uint8_t (&out)[kAtomicStatusSize]);

}  // namespace weft::rxm

#endif
