// SPDX-License-Identifier: BSD-2-Clause
// The packets of rxm: the content of one message of the carrier. parse() turns bytes into a typed
// Packet or a Reject. To encode a packet, fill in a WireHeader.
//
// Example:
//    // The header of a tagged message. One message of the carrier has it and the payload.
//    inline WireHeader header_for(uint32_t connection, uint64_t tag, uint64_t length) {
//      WireHeader h = header_of(PacketType::kEager, connection);
//      h.op = uint8_t(PacketOp::kTagged);
//      h.size = length;
//      h.tag = tag;
//      return h;
//    }
//    // Why the connection must end; null: the packet was taken.
//    inline const char *take(std::span<const uint8_t> bytes, std::vector<uint8_t> &message) {
//      const Parsed parsed = parse(bytes);
//      if (parsed.reject != Reject::kNone) return text_of(parsed.reject);
//      const Packet &p = parsed.packet;
//      if (p.type == PacketType::kEager) message.assign(p.payload.begin(), p.payload.end());
//      return nullptr;
//    }
//
// All fields have the byte order of this machine: a peer with another order is refused when it
// connects (connect_data.h). Stock senders leave garbage in fields that a type does not use; they
// are ignored. Not for the state of a connection: whether an answer was requested is checked in
// protocol/.
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
// Between weft peers: the sender waits for kReadDone (docs/rxm-extensions.md, level 4).
inline constexpr uint32_t kFlagTellDelivered = 0x1, kFlagTellMatched = 0x2;

enum class PacketType : uint8_t {
  kEager = 0,           // a whole message
  kSegment = 1,         // a part of a message
  kRendezvous = 2,      // a large message: where the receiver can read it
  kReadDone = 3,        // the receiver has read the message, or tells what its header asked for
  kAtomic = 4,          // request
  kAtomicResponse = 5,  // status and result
  kCredit = 6,          // the receiver of this may send more packets
  kWriteTarget = 7,     // where the sender of a rendezvous shall write
  kWriteDone = 8,       // the sender has written the message
  kPart = 64,           // between weft peers: the end of an idle connection
};

enum class PacketOp : uint8_t { kMessage = 0, kTagged = 1, kAtomic = 6, kFetch = 7, kCompare = 8 };

enum class SegmentKind : uint8_t { kFirst = 1, kMiddle = 2, kLast = 3 };

// What the receiver of a message tells its sender.
enum class Tell : uint8_t {
  kNothing,
  kDelivered,  // the message is in the memory of its receive, or saved for one
  kMatched,    // it has met its receive
};

// How two peers end a connection without loss (docs/rxm-extensions.md).
enum class Parting : uint8_t {
  kAsk = 1,    // may we end the connection? I send nothing until you answer
  kAgree = 2,  // yes, this is my last packet
  kStay = 3,   // no, I need the connection: go on
};

struct RmaVector {
  uint64_t address = 0;
  uint64_t length = 0;  // bytes; of an atomic: elements
  uint64_t key = 0;
  bool operator==(const RmaVector &) const = default;
};

// The header as it is on the wire.
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
  kShort,             // shorter than a header
  kControlVersion,    // not 4
  kType,              // unknown
  kOperationVersion,  // not 2
  kOp,                // not valid for this type
  kLength,            // differs from the length in the header
  kSegment,           // impossible kind, number or size of a segment
  kVectors,           // none, more than 4, or of another length than the message
  kAtomicCode,        // unknown datatype or operation
  kAtomicLength,      // the number of operands differs from that of the vectors
  kParting,           // unknown control data of a kPart
};
const char *text_of(Reject reject);

// A checked packet. Fields that its type does not carry are 0.
struct Packet {
  PacketType type;
  PacketOp op;
  SegmentKind segment;
  Parting parting;
  Tell tell;  // kEager, kSegment, kWriteDone; of a stock peer it means nothing
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

// Never reads past `bytes`. The spans of the result point into `bytes`.
Parsed parse(std::span<const uint8_t> bytes);

// Size in bytes of an atomic datatype (enum fi_datatype); 0: unknown.
size_t element_size(uint8_t datatype);

// The data of kRendezvous and kWriteTarget.
void encode_vectors(std::span<const RmaVector> vectors, WireVectors &out);
// The first 8 bytes of the data of kAtomicResponse.
void encode_status(int32_t status, uint32_t length, uint8_t (&out)[kAtomicStatusSize]);

}  // namespace weft::rxm

#endif
