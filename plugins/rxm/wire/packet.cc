// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/wire/packet.h"

#include <endian.h>
#include <rdma/fi_domain.h>

#include <cstring>

namespace weft::rxm {
namespace {

// The code of FI_ATOMIC_READ in enum fi_op. It has no operands.
constexpr uint8_t kAtomicRead = FI_ATOMIC_READ;
constexpr uint8_t kLastOperation = FI_DIFF;

bool is_message(uint8_t op) {
  return op == uint8_t(PacketOp::kMessage) || op == uint8_t(PacketOp::kTagged);
}

bool is_atomic(uint8_t op) {
  return op >= uint8_t(PacketOp::kAtomic) && op <= uint8_t(PacketOp::kCompare);
}

Tell asked_by(uint32_t flags) {
  if (flags & kFlagTellMatched) return Tell::kMatched;
  return flags & kFlagTellDelivered ? Tell::kDelivered : Tell::kNothing;
}

Reject read_vectors(std::span<const uint8_t> data, Packet &packet) {
  if (data.size() < kVectorListSize) return Reject::kLength;
  const uint8_t count = data[kMaxVectors * sizeof(RmaVector)];
  const bool empty = packet.type == PacketType::kRendezvous && packet.size == 0;
  if ((count == 0 && !empty) || count > kMaxVectors) return Reject::kVectors;
  std::memcpy(packet.vectors, data.data(), count * sizeof(RmaVector));
  packet.count = count;
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i)
    if (__builtin_add_overflow(total, packet.vectors[i].length, &total)) return Reject::kVectors;
  // The vectors of a rendezvous add up to the message. A target may be longer, or shorter if the
  // receiver truncates.
  if (packet.type == PacketType::kRendezvous && total != packet.size) return Reject::kVectors;
  return Reject::kNone;
}

Reject read_atomic(const WireHeader &h, std::span<const uint8_t> data, Packet &packet) {
  if (!is_atomic(h.op)) return Reject::kOp;
  packet.datatype = h.atomic.datatype;
  packet.operation = h.atomic.operation;
  const size_t element = element_size(packet.datatype);
  if (element == 0 || packet.operation > kLastOperation) return Reject::kAtomicCode;
  const uint8_t count = h.atomic.vectors;
  if (count == 0 || count > kMaxVectors) return Reject::kVectors;
  if (data.size() < kAtomicVectorsSize || h.size != data.size()) return Reject::kAtomicLength;
  std::memcpy(packet.vectors, data.data(), count * sizeof(RmaVector));
  packet.count = count;
  const std::span<const uint8_t> operands = data.subspan(kAtomicVectorsSize);
  uint64_t elements = 0;
  for (size_t i = 0; i < count; ++i)
    if (__builtin_add_overflow(elements, packet.vectors[i].length, &elements))
      return Reject::kAtomicLength;
  uint64_t bytes;
  if (__builtin_mul_overflow(elements, uint64_t(element), &bytes)) return Reject::kAtomicLength;
  packet.size = bytes;
  const bool none = packet.op != PacketOp::kCompare && packet.operation == kAtomicRead;
  if (none) {
    // Limit the length of the answer here, because there are no operands that limit it.
    if (bytes > UINT32_MAX || !operands.empty()) return Reject::kAtomicLength;
    return Reject::kNone;
  }
  if (packet.op == PacketOp::kCompare) {
    if (bytes > operands.size() || operands.size() - bytes != bytes) return Reject::kAtomicLength;
    packet.compare = operands.subspan(bytes);
  } else if (operands.size() != bytes) {
    return Reject::kAtomicLength;
  }
  packet.payload = operands.first(bytes);
  return Reject::kNone;
}

Reject read_response(std::span<const uint8_t> data, Packet &packet) {
  if (data.size() < kAtomicStatusSize) return Reject::kLength;
  uint32_t status, length;
  std::memcpy(&status, data.data(), sizeof status);
  std::memcpy(&length, data.data() + sizeof status, sizeof length);
  packet.status = int32_t(be32toh(status));
  length = be32toh(length);
  const std::span<const uint8_t> result = data.subspan(kAtomicStatusSize);
  if (length > result.size()) return Reject::kLength;
  packet.payload = result.first(length);
  return Reject::kNone;
}

Reject read(std::span<const uint8_t> bytes, Packet &packet) {
  if (bytes.size() < kHeaderSize) return Reject::kShort;
  WireHeader h;
  std::memcpy(&h, bytes.data(), sizeof h);
  const std::span<const uint8_t> data = bytes.subspan(kHeaderSize);
  if (h.control_version != kControlVersion) return Reject::kControlVersion;
  if (h.type > uint8_t(PacketType::kWriteDone) && h.type != uint8_t(PacketType::kPart))
    return Reject::kType;
  packet.type = static_cast<PacketType>(h.type);
  packet.op = static_cast<PacketOp>(h.op);
  packet.segment = SegmentKind::kFirst;
  packet.parting = Parting::kAsk;
  packet.tell = Tell::kNothing;
  packet.has_data = false;
  packet.count = packet.datatype = packet.operation = 0;
  packet.connection = uint32_t(h.connection);
  packet.segment_number = 0;
  packet.message = h.message;
  packet.size = packet.data = packet.tag = packet.credits = 0;
  packet.status = 0;
  packet.payload = packet.compare = {};
  if (packet.type == PacketType::kCredit) {
    packet.credits = h.control_data;
    return Reject::kNone;
  }
  if (h.operation_version != kOperationVersion) return Reject::kOperationVersion;
  switch (packet.type) {
    case PacketType::kEager:
    case PacketType::kSegment:
    case PacketType::kRendezvous:
      if (!is_message(h.op)) return Reject::kOp;
      packet.size = h.size;
      packet.has_data = (h.flags & kFlagRemoteData) != 0;
      if (packet.has_data) packet.data = h.data;
      if (packet.op == PacketOp::kTagged) packet.tag = h.tag;
      [[fallthrough]];
    case PacketType::kWriteDone:
      packet.tell = asked_by(h.flags);
      break;
    default:
      break;
  }
  switch (packet.type) {
    case PacketType::kEager:
      if (h.size != data.size()) return Reject::kLength;
      packet.payload = data;
      return Reject::kNone;
    case PacketType::kSegment: {
      const auto kind = uint8_t(h.control_data & 3);
      if (kind == 0) return Reject::kSegment;
      packet.segment = static_cast<SegmentKind>(kind);
      packet.segment_number = h.segment_number;
      if (h.segment_size != data.size()) return Reject::kLength;
      if (h.segment_size > h.size) return Reject::kSegment;
      // Only the first segment has number 0: the receiver recognises it without its state.
      if ((packet.segment == SegmentKind::kFirst) != (h.segment_number == 0))
        return Reject::kSegment;
      packet.payload = data;
      return Reject::kNone;
    }
    case PacketType::kRendezvous:
    case PacketType::kWriteTarget:
      return read_vectors(data, packet);
    case PacketType::kAtomic:
      return read_atomic(h, data, packet);
    case PacketType::kAtomicResponse:
      return read_response(data, packet);
    case PacketType::kPart:
      if (h.control_data < uint64_t(Parting::kAsk) || h.control_data > uint64_t(Parting::kStay))
        return Reject::kParting;
      packet.parting = static_cast<Parting>(h.control_data);
      return Reject::kNone;
    default:  // kReadDone, kWriteDone: only a header
      return Reject::kNone;
  }
}

}  // namespace

const char *text_of(Reject reject) {
  switch (reject) {
    case Reject::kNone:
      return "a valid packet";
    case Reject::kShort:
      return "shorter than a header of 64 bytes: the peer does not speak rxm";
    case Reject::kControlVersion:
      return "a control version that is not 4: the peer does not speak rxm, or a newer version";
    case Reject::kType:
      return "an unknown type: the peer speaks a newer version";
    case Reject::kOperationVersion:
      return "an operation version that is not 2: the peer speaks a newer version";
    case Reject::kOp:
      return "an operation that this type of packet does not have";
    case Reject::kLength:
      return "a length that is not what the header says";
    case Reject::kSegment:
      return "an impossible segment: its kind, number or size is wrong";
    case Reject::kVectors:
      return "no remote vectors, more than 4, or vectors of another length than the message";
    case Reject::kAtomicCode:
      return "an atomic of an unknown datatype or operation";
    case Reject::kAtomicLength:
      return "an atomic whose operands and vectors differ in number";
    case Reject::kParting:
      return "an unknown packet about the end of the connection: the peer speaks a newer version";
  }
  return "unknown";
}

size_t element_size(uint8_t datatype) {
  switch (datatype) {
    case FI_INT8:
    case FI_UINT8:
      return 1;
    case FI_INT16:
    case FI_UINT16:
      return 2;
    case FI_INT32:
    case FI_UINT32:
    case FI_FLOAT:
      return 4;
    case FI_INT64:
    case FI_UINT64:
    case FI_DOUBLE:
    case FI_FLOAT_COMPLEX:
      return 8;
    case FI_DOUBLE_COMPLEX:
    case FI_INT128:
    case FI_UINT128:
      return 16;
    case FI_LONG_DOUBLE:
      return sizeof(long double);
    case FI_LONG_DOUBLE_COMPLEX:
      return 2 * sizeof(long double);
    default:
      return 0;
  }
}

Parsed parse(std::span<const uint8_t> bytes) {
  Parsed parsed;
  parsed.reject = read(bytes, parsed.packet);
  return parsed;
}

void encode_vectors(std::span<const RmaVector> vectors, WireVectors &out) {
  out = {};
  out.count = uint8_t(vectors.size() < kMaxVectors ? vectors.size() : kMaxVectors);
  for (size_t i = 0; i < out.count; ++i) out.vector[i] = vectors[i];
}

void encode_status(int32_t status, uint32_t length, uint8_t (&out)[kAtomicStatusSize]) {
  const uint32_t words[2] = {htobe32(uint32_t(status)), htobe32(length)};
  std::memcpy(out, words, sizeof words);
}

}  // namespace weft::rxm
