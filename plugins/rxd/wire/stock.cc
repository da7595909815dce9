// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/wire/stock.h"

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>

#include <cstring>

namespace weft::rxd::stock {
namespace {

constexpr uint16_t kFlagData = 0x01;
constexpr uint16_t kFlagTag = 0x10;
constexpr uint16_t kFlagInline = 0x20;
constexpr size_t kSegmentHeader = 24;
constexpr size_t kVector = 24;
constexpr size_t kCodes = 8;  // datatype and operation

bool is_operation(Type type) {
  return type <= Type::kCompare;
}
bool is_atomic(Type type) {
  return type >= Type::kAtomic && type <= Type::kCompare;
}
bool has_vectors(Type type) {
  return is_operation(type) && type >= Type::kRead;
}

bool is_type(uint8_t byte) {
  return byte <= uint8_t(Type::kAnswer) && byte != 3 && byte != 5;
}

// Takes fields from the front of a datagram.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : rest_(bytes) {}
  template <class T>
  void take(T &out) {
    if (rest_.size() < sizeof out) return fail();
    std::memcpy(&out, rest_.data(), sizeof out);
    rest_ = rest_.subspan(sizeof out);
  }
  void skip(size_t n) {
    if (rest_.size() < n) return fail();
    rest_ = rest_.subspan(n);
  }
  bool ok() const { return ok_; }
  std::span<const uint8_t> rest() const { return rest_; }

 private:
  void fail() {
    ok_ = false;
    rest_ = {};
  }
  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

class Output {
 public:
  explicit Output(std::span<uint8_t, kMaxHeader> out) : out_(out) {}
  template <class T>
  void put(const T &field) {
    std::memcpy(out_.data() + at_, &field, sizeof field);
    at_ += sizeof field;
  }
  void zero(size_t n) {
    std::memset(out_.data() + at_, 0, n);
    at_ += n;
  }
  size_t size() const { return at_; }

 private:
  std::span<uint8_t, kMaxHeader> out_;
  size_t at_ = 0;
};

Reject read_operands(Packet &p, std::span<const uint8_t> bytes) {
  if (p.size > kSegment) return Reject::kOperand;  // it could not be answered in one packet
  // A fetch without operands: the vectors tell its size.
  if (p.type != Type::kCompare && p.operation == FI_ATOMIC_READ)
    return bytes.empty() ? Reject::kNone : Reject::kOperand;
  const size_t parts = p.type == Type::kCompare ? 2 : 1;
  if (bytes.size() != parts * p.size) return Reject::kOperand;
  p.payload = bytes.first(p.size);
  if (parts == 2) p.compare = bytes.subspan(p.size);
  return Reject::kNone;
}

Reject read_operation(Packet &p, uint16_t flags, Input &in) {
  p.is_inline = flags & kFlagInline;
  p.has_data = flags & kFlagData;
  if (flags & kFlagTag) {
    in.take(p.tag);
  } else if (p.type == Type::kTagged) {
    return Reject::kTag;
  }
  if (p.has_data) in.take(p.data);
  uint64_t size = 0;
  if (!p.is_inline) {
    in.take(size);
    in.take(p.packets);
    in.take(p.id);
    in.take(p.count);
    in.skip(3);
    if (!in.ok()) return Reject::kShort;
    if (!has_vectors(p.type)) p.count = 0;
  } else {
    if (p.type == Type::kRead || p.type == Type::kFetch || p.type == Type::kCompare)
      return Reject::kInline;
    p.packets = 1;
    p.count = has_vectors(p.type) ? 1 : 0;
  }
  uint64_t total = 0;
  if (has_vectors(p.type)) {
    if (p.count == 0 || p.count > kVectorLimit) return Reject::kVectors;
    for (size_t i = 0; i < p.count; ++i) {
      RmaVector &v = p.vectors[i];
      in.take(v.address);
      in.take(v.length);
      in.take(v.key);
      if (__builtin_add_overflow(total, v.length, &total)) return Reject::kVectors;
    }
  }
  if (is_atomic(p.type)) {
    in.take(p.datatype);
    in.take(p.operation);
  }
  if (!in.ok()) return Reject::kShort;
  const std::span<const uint8_t> rest = in.rest();
  // In atomics, stock's senders leave values of an earlier operation in both fields.
  if (is_atomic(p.type)) {
    p.packets = 1;
    p.size = total;
    return read_operands(p, rest);
  }
  p.size = p.is_inline ? rest.size() : size;
  if (p.size > INT64_MAX) return Reject::kLength;
  if (has_vectors(p.type) && total != p.size) return Reject::kVectors;
  if (p.type == Type::kRead) {
    p.packets = 1;  // the request; the size tells how many packets answer it
    return rest.empty() ? Reject::kNone : Reject::kLength;
  }
  if (rest.size() > p.size) return Reject::kLength;
  if (p.packets != packets_of(p.size, rest.size())) return Reject::kPackets;
  p.payload = rest;
  return Reject::kNone;
}

Reject read_rts(Packet &p, uint64_t sequence, std::span<const uint8_t> bytes, uint32_t name_format,
                Input &in) {
  if (bytes.size() != kRtsSize) return bytes.size() < kRtsSize ? Reject::kShort : Reject::kLength;
  p.marked = std::memcmp(&sequence, kMark, sizeof sequence) == 0;
  in.take(p.index);
  if (p.index == 0) return Reject::kIndex;
  const auto name = sdk::read_address(name_format, in.rest().data(), in.rest().size());
  if (!name || !name->names_peer()) return Reject::kName;
  p.name = *name;
  return Reject::kNone;
}

Reject read_cts(Packet &p, std::span<const uint8_t> bytes, Input &in) {
  if (bytes.size() != kCtsSize) return bytes.size() < kCtsSize ? Reject::kShort : Reject::kLength;
  in.take(p.rts_index);
  in.take(p.index);
  return p.index == 0 || p.rts_index == 0 ? Reject::kIndex : Reject::kNone;
}

Reject read_ack(Packet &p, std::span<const uint8_t> bytes, Input &in) {
  if (bytes.size() != kAckSize) return bytes.size() < kAckSize ? Reject::kShort : Reject::kLength;
  in.skip(sizeof(uint32_t));
  in.take(p.window);  // 4 bytes, of which 2 are used
  return Reject::kNone;
}

Reject read_data(Packet &p, Input &in) {
  in.take(p.id);
  in.skip(sizeof(uint32_t));
  in.take(p.segment);
  if (!in.ok()) return Reject::kShort;
  p.payload = in.rest();
  return p.payload.size() > kSegment ? Reject::kLength : Reject::kNone;
}

}  // namespace

const char *text_of(Reject reject) {
  switch (reject) {
    case Reject::kNone:
      return "accepted";
    case Reject::kShort:
      return "shorter than its headers";
    case Reject::kVersion:
      return "not version 2";
    case Reject::kType:
      return "unknown packet type";
    case Reject::kLength:
      return "length does not fit the headers";
    case Reject::kInline:
      return "a request without an id";
    case Reject::kTag:
      return "a tagged message without a tag";
    case Reject::kVectors:
      return "vectors do not fit the payload";
    case Reject::kPackets:
      return "number of packets does not fit the size";
    case Reject::kOperand:
      return "operands do not fit the vectors or the packet";
    case Reject::kIndex:
      return "index 0";
    case Reject::kName:
      return "an address that cannot be answered";
  }
  return "unknown reason";
}

Parsed parse(std::span<const uint8_t> bytes, uint32_t name_format) {
  Parsed out;
  Packet &p = out.packet;
  Input in(bytes);
  uint8_t version = 0, type = 0;
  uint16_t flags = 0;
  uint32_t peer = 0;
  uint64_t sequence = 0;
  in.take(version);
  in.take(type);
  in.take(flags);
  in.take(peer);
  in.take(sequence);
  if (!in.ok()) {
    out.reject = Reject::kShort;
    return out;
  }
  if (version != kVersion) {
    out.reject = Reject::kVersion;
    return out;
  }
  if (!is_type(type)) {
    out.reject = Reject::kType;
    return out;
  }
  p.type = Type(type);
  if (p.type != Type::kRts && p.type != Type::kCts) {
    p.peer = peer;
    p.sequence = sequence;
  }
  switch (p.type) {
    case Type::kRts:
      out.reject = read_rts(p, sequence, bytes, name_format, in);
      break;
    case Type::kCts:
      out.reject = read_cts(p, bytes, in);
      break;
    case Type::kAck:
      out.reject = read_ack(p, bytes, in);
      break;
    case Type::kData:
    case Type::kAnswer:
      out.reject = read_data(p, in);
      break;
    default:
      out.reject = read_operation(p, flags, in);
      break;
  }
  return out;
}

size_t header_size(const Packet &p) {
  switch (p.type) {
    case Type::kRts:
      return kRtsSize;
    case Type::kCts:
      return kCtsSize;
    case Type::kAck:
      return kAckSize;
    case Type::kData:
    case Type::kAnswer:
      return kDataHeader;
    default:
      return kBase + (p.type == Type::kTagged ? sizeof p.tag : 0) +
             (p.has_data ? sizeof p.data : 0) + (p.is_inline ? 0 : kSegmentHeader) +
             (has_vectors(p.type) ? p.count * kVector : 0) + (is_atomic(p.type) ? kCodes : 0);
  }
}

size_t encode(const Packet &p, std::span<uint8_t, kMaxHeader> bytes) {
  Output out(bytes);
  uint16_t flags = 0;
  uint64_t sequence = p.sequence;
  if (is_operation(p.type)) {
    if (p.type == Type::kTagged) flags |= kFlagTag;
    if (p.has_data) flags |= kFlagData;
    if (p.is_inline) flags |= kFlagInline;
  }
  if (p.type == Type::kRts) {
    sequence = 0;
    if (p.marked) std::memcpy(&sequence, kMark, sizeof sequence);
  }
  out.put(kVersion);
  out.put(uint8_t(p.type));
  out.put(flags);
  out.put(p.peer);
  out.put(sequence);
  switch (p.type) {
    case Type::kRts: {
      uint8_t name[kNameSize] = {};
      std::memcpy(name, p.name.data(), p.name.size());
      out.put(p.index);
      out.put(name);
      break;
    }
    case Type::kCts:
      out.put(p.rts_index);
      out.put(p.index);
      break;
    case Type::kAck:
      out.zero(sizeof(uint32_t));
      out.put(uint32_t(p.window));
      out.zero(sizeof(uint64_t));
      break;
    case Type::kData:
    case Type::kAnswer:
      out.put(p.id);
      out.zero(sizeof(uint32_t));
      out.put(p.segment);
      break;
    default:
      if (p.type == Type::kTagged) out.put(p.tag);
      if (p.has_data) out.put(p.data);
      if (!p.is_inline) {
        out.put(p.size);
        out.put(p.type == Type::kRead ? p.size / kSegment + (p.size % kSegment != 0) : p.packets);
        out.put(p.id);
        out.put(uint8_t(has_vectors(p.type) ? p.count : 0));
        out.zero(3);
      }
      if (has_vectors(p.type)) {
        for (size_t i = 0; i < p.count; ++i) {
          out.put(p.vectors[i].address);
          out.put(p.vectors[i].length);
          out.put(p.vectors[i].key);
        }
      }
      if (is_atomic(p.type)) {
        out.put(p.datatype);
        out.put(p.operation);
      }
      break;
  }
  return out.size();
}

}  // namespace weft::rxd::stock
