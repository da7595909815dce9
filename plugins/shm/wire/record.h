// SPDX-License-Identifier: BSD-2-Clause
// Record: what one record of a ring says. parse() is the only way from its content, which another
// process has written, to values; Content is the other way.
//
// Example:
//    inline bool is_message(const Head &head, std::span<const uint8_t> content,
//                           const Geometry &geometry) {
//      const auto record = parse(head, content, geometry);
//      return record && record->type == Type::kMessage;
//    }
//    inline Head done(Content &content, uint64_t id, uint16_t status) {
//      content.put(status);
//      return content.head(Type::kDone, 0, id);
//    }
//
//   type      tag         content
//   kMessage  the tag     data (8, kHasData), id (8, kAck... or kElsewhere),
//                         then the payload, or under kInBytes its length (4), or under
//                         kElsewhere a count (1) and as many vectors of the sender (16)
//   kDone     an id       status (2): the operation has ended, with FI_E... or 0
//   kPull     own id      the message's id (8), offset (8), length (4): send me this part
//   kData     an id       status (2), length (4); the payload is in the bytes
//   kWrite    own id      [data (8)], regions, then as a message; kElsewhere: the target copies
//   kRead     own id      regions, then the initiator's vectors. Or, of a part, which kData answers:
//                         [bytes of the region that ends with it (8, kHasData)],
//                         [of the whole read (8, kLast)], one region, no vectors
//   kAtomic   own id      kind (1), operation (1), datatype (1), regions; operands in the bytes
// Regions: a count (1) and as many addresses (8), lengths (8) and keys (8).
//
// An id names an operation of the end that it came from: a place and a generation. Not for what an
// end does with a record: link.h.
#ifndef WEFT_PLUGINS_SHM_WIRE_RECORD_H
#define WEFT_PLUGINS_SHM_WIRE_RECORD_H

#include <tl/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "plugins/shm/wire/ring.h"

namespace weft::shm {

enum class Type : uint8_t { kMessage = 1, kDone, kPull, kData, kWrite, kRead, kAtomic };

enum : uint8_t {
  kTagged = 1,
  kHasData = 2,
  kAckTaken = 4,        // kDone when it is off the ring,
  kAckPlaced = 8,       // or when it is in a receive's memory, or is in the target's
  kInBytes = 16,        // the payload is among the bytes
  kElsewhere = 32,      // the payload is in the sender's memory
  kForFetch = kTagged,  // kData: the answer to a kPull; else to a kRead or a kAtomic
  kLast = kAckTaken,    // kRead: the last part of a read
};

inline constexpr size_t kMostVectors = 4;
inline constexpr size_t kMostAtomic = 4096;  // bytes of operands, and of results
// kDone of a kRead: the target cannot write to the initiator's memory, so it asks for parts.
inline constexpr uint16_t kInParts = UINT16_MAX;
inline constexpr uint64_t kMostLength = INT64_MAX;  // bytes of a message or an access

// Memory of the other process, as it says. It is never an address of this one.
struct FarVector {
  uint64_t address = 0, length = 0;
};
struct Region {
  uint64_t address = 0, length = 0, key = 0;
};

struct Record {
  Type type = Type::kMessage;
  uint8_t flags = 0;
  uint64_t tag = 0;  // or an id
  uint64_t id = 0, data = 0, offset = 0;
  uint64_t length = 0;  // of the payload
  uint16_t status = 0;
  uint8_t vector_count = 0, region_count = 0;
  uint8_t atomic_kind = 0, operation = 0, datatype = 0;
  const uint8_t *inline_payload = nullptr;  // in the content, unless it is elsewhere
  FarVector vectors[kMostVectors];
  Region regions[kMostVectors];

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
  // What it takes of the ring's bytes.
  size_t bytes() const { return has(kInBytes) ? size_t(length) : 0; }
};

enum class Reject : uint8_t { kType, kFlags, kSize, kLength, kVectors, kRegions, kAtomic };
const char *text_of(Reject reject);

tl::expected<Record, Reject> parse(const Head &head, std::span<const uint8_t> content,
                                   const Geometry &geometry);

// The part [offset, offset + n) of the regions; as many are written to `out`, which may not be
// `regions`.
size_t slice_regions(const Region *regions, size_t count, uint64_t offset, uint64_t n, Region *out);

// Collects the content of a record.
class Content {
 public:
  template <class T>
  void put(T value) {
    std::memcpy(bytes_ + size_, &value, sizeof value);
    size_ += sizeof value;
  }
  void put(const Region *regions, size_t count) {
    put(uint8_t(count));
    for (size_t i = 0; i < count; ++i) put(regions[i]);
  }
  void put(const iovec *iov, size_t count) {
    put(uint8_t(count));
    for (size_t i = 0; i < count; ++i) {
      put(uint64_t(reinterpret_cast<uintptr_t>(iov[i].iov_base)));
      put(uint64_t(iov[i].iov_len));
    }
  }
  uint8_t *room(size_t n) {
    uint8_t *const at = bytes_ + size_;
    size_ += n;
    return at;
  }
  size_t size() const { return size_; }
  size_t left() const { return kMostContent - size_; }
  const uint8_t *bytes() const { return bytes_; }
  Head head(Type type, uint8_t flags, uint64_t tag) const {
    return {.type = uint8_t(type), .flags = flags, .size = uint16_t(size_), .tag = tag};
  }

 private:
  size_t size_ = 0;
  uint8_t bytes_[kMostContent];
};

// The largest contents fit.
static_assert(kMostContent >= 8 + 8 + 1 + kMostVectors * sizeof(FarVector));
static_assert(kMostContent >=
              8 + 1 + kMostVectors * sizeof(Region) + 1 + kMostVectors * sizeof(FarVector));

}  // namespace weft::shm

#endif
