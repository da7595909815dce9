// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/wire/record.h"

#include <weft/sdk/transfers/atomic.h>

#include <algorithm>

namespace weft::shm {
namespace {

// Reads a content from its beginning. Behind its end everything is 0, and ok() says so.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> content) : left_(content) {}
  template <class T>
  T get() {
    T value{};
    if (left_.size() < sizeof value) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, left_.data(), sizeof value);
    left_ = left_.subspan(sizeof value);
    return value;
  }
  bool ok() const { return ok_; }
  std::span<const uint8_t> rest() const { return left_; }

 private:
  std::span<const uint8_t> left_;
  bool ok_ = true;
};

using Parsed = tl::expected<Record, Reject>;

tl::unexpected<Reject> reject(Reject why) {
  return tl::unexpected(why);
}

// The sum of the lengths; more than kMostLength: they are no vectors.
template <class Vector>
uint64_t read_vectors(Reader &in, Vector *out, uint8_t &count) {
  count = in.get<uint8_t>();
  if (!in.ok() || count > kMostVectors) return UINT64_MAX;
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    out[i] = in.get<Vector>();
    if (__builtin_add_overflow(sum, out[i].length, &sum)) return UINT64_MAX;
  }
  return in.ok() && sum <= kMostLength ? sum : UINT64_MAX;
}

// Where the payload of a message or a write is.
Parsed read_payload(Record r, Reader &in, const Geometry &geometry) {
  if (r.has(kInBytes) && r.has(kElsewhere)) return reject(Reject::kFlags);
  if (r.has(kElsewhere)) {
    r.length = read_vectors(in, r.vectors, r.vector_count);
    if (r.length == UINT64_MAX) return reject(Reject::kVectors);
  } else if (r.has(kInBytes)) {
    r.length = in.get<uint32_t>();
    if (r.length > geometry.most_payload()) return reject(Reject::kLength);
  } else {
    r.length = in.rest().size();
    r.inline_payload = in.rest().data();
    return r;
  }
  if (!in.ok() || !in.rest().empty()) return reject(Reject::kSize);
  return r;
}

Parsed read_message(Record r, Reader &in, const Geometry &geometry) {
  if (r.has(kHasData)) r.data = in.get<uint64_t>();
  if (r.has(kAckTaken | kAckPlaced | kElsewhere)) r.id = in.get<uint64_t>();
  if (!in.ok()) return reject(Reject::kSize);
  return read_payload(r, in, geometry);
}

Parsed read_end(Record r, Reader &in) {
  r.status = in.get<uint16_t>();
  if (!in.ok() || !in.rest().empty()) return reject(Reject::kSize);
  return r;
}

Parsed read_pull(Record r, Reader &in, const Geometry &geometry) {
  r.id = in.get<uint64_t>();
  r.offset = in.get<uint64_t>();
  r.length = in.get<uint32_t>();
  if (!in.ok() || !in.rest().empty()) return reject(Reject::kSize);
  if (r.length > geometry.most_payload() || r.offset > kMostLength) return reject(Reject::kLength);
  return r;
}

Parsed read_data(Record r, Reader &in, const Geometry &geometry) {
  r.status = in.get<uint16_t>();
  r.length = in.get<uint32_t>();
  if (!in.ok() || !in.rest().empty()) return reject(Reject::kSize);
  if (!r.has(kInBytes)) return reject(Reject::kFlags);
  if (r.length > geometry.most_payload()) return reject(Reject::kLength);
  return r;
}

Parsed read_write(Record r, Reader &in, const Geometry &geometry) {
  if (r.has(kHasData)) r.data = in.get<uint64_t>();
  const uint64_t target = read_vectors(in, r.regions, r.region_count);
  if (target == UINT64_MAX) return reject(Reject::kRegions);
  Parsed whole = read_payload(r, in, geometry);
  if (whole && whole->length != target) return reject(Reject::kLength);
  return whole;
}

Parsed read_read(Record r, Reader &in, const Geometry &geometry) {
  if (r.has(kHasData)) r.data = in.get<uint64_t>();
  if (r.has(kLast)) r.id = in.get<uint64_t>();
  const uint64_t target = read_vectors(in, r.regions, r.region_count);
  if (target == UINT64_MAX) return reject(Reject::kRegions);
  r.length = read_vectors(in, r.vectors, r.vector_count);
  if (r.vector_count != 0 && r.length != target) return reject(Reject::kVectors);
  r.length = target;
  if (r.vector_count == 0 && r.length > geometry.most_payload()) return reject(Reject::kLength);
  if (!in.ok() || !in.rest().empty()) return reject(Reject::kSize);
  return r;
}

Parsed read_atomic(Record r, Reader &in) {
  r.atomic_kind = in.get<uint8_t>();
  r.operation = in.get<uint8_t>();
  r.datatype = in.get<uint8_t>();
  r.length = in.get<uint32_t>();
  const uint64_t target = read_vectors(in, r.regions, r.region_count);  // lengths in bytes
  if (!in.ok() || !in.rest().empty()) return reject(Reject::kSize);
  if (r.atomic_kind > uint8_t(sdk::AtomicKind::kCompare)) return reject(Reject::kAtomic);
  const auto kind = sdk::AtomicKind(r.atomic_kind);
  if (!sdk::atomic_valid(kind, r.operation, r.datatype)) return reject(Reject::kAtomic);
  if (target > kMostAtomic) return reject(Reject::kRegions);
  for (size_t i = 0; i < r.region_count; ++i)
    if (r.regions[i].length % sdk::datatype_size(r.datatype) != 0) return reject(Reject::kRegions);
  const uint64_t operands = kind == sdk::AtomicKind::kCompare ? 2 * target
                            : r.operation == FI_ATOMIC_READ   ? 0
                                                              : target;
  if (r.length != operands || operands > kMostAtomic) return reject(Reject::kLength);
  if (!r.has(kInBytes)) return reject(Reject::kFlags);
  return r;
}

}  // namespace

const char *text_of(Reject reject) {
  switch (reject) {
    case Reject::kType:
      return "a record of an unknown type";
    case Reject::kFlags:
      return "a record with flags that contradict each other";
    case Reject::kSize:
      return "a record with too little or too much content";
    case Reject::kLength:
      return "a payload of a length that it cannot have";
    case Reject::kVectors:
      return "vectors of memory that are none";
    case Reject::kRegions:
      return "vectors of regions that are none";
    case Reject::kAtomic:
      return "an atomic operation that there is not";
  }
  return "a record that is none";
}

size_t slice_regions(const Region *regions, size_t count, uint64_t offset, uint64_t n,
                     Region *out) {
  size_t made = 0;
  for (size_t i = 0; i < count && n != 0; ++i) {
    if (offset >= regions[i].length) {
      offset -= regions[i].length;
      continue;
    }
    const uint64_t k = std::min(n, regions[i].length - offset);
    out[made++] = {regions[i].address + offset, k, regions[i].key};
    offset = 0;
    n -= k;
  }
  return made;
}

Parsed parse(const Head &head, std::span<const uint8_t> content, const Geometry &geometry) {
  Record r;
  r.type = Type(head.type);
  r.flags = head.flags;
  r.tag = head.tag;
  Reader in(content);
  switch (r.type) {
    case Type::kMessage:
      return read_message(r, in, geometry);
    case Type::kDone:
      return read_end(r, in);
    case Type::kPull:
      return read_pull(r, in, geometry);
    case Type::kData:
      return read_data(r, in, geometry);
    case Type::kWrite:
      return read_write(r, in, geometry);
    case Type::kRead:
      return read_read(r, in, geometry);
    case Type::kAtomic:
      return read_atomic(r, in);
  }
  return reject(Reject::kType);
}

}  // namespace weft::shm
