// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/group/packet.h"

#include <algorithm>

namespace weft::coll {
namespace {

constexpr uint32_t kMagic = 0x6c6f6377;  // "wcol"

// Fields: magic (4), type, failure, zeros (2), from_rank (4), culprit (4), from (4), to (4),
// membership (8), zeros (16).
void put(uint8_t *at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) at[i] = uint8_t(value >> (8 * i));
}
uint64_t get(const uint8_t *at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{at[i]} << (8 * i);
  return value;
}

}  // namespace

Packet::Bytes Packet::bytes() const {
  Bytes bytes{};
  uint8_t *const at = bytes.data();
  put(at, kMagic, 4);
  at[4] = uint8_t(type);
  at[5] = uint8_t(why);
  put(at + 8, from_rank, 4);
  put(at + 12, culprit, 4);
  put(at + 16, from, 4);
  put(at + 20, to, 4);
  put(at + 24, membership, 8);
  return bytes;
}

std::optional<Packet> Packet::parse(std::span<const uint8_t> bytes) {
  if (bytes.size() != kSize) return std::nullopt;
  const uint8_t *const at = bytes.data();
  if (get(at, 4) != kMagic || at[4] < uint8_t(PacketType::kProbe) ||
      at[4] > uint8_t(PacketType::kAbort) || at[5] > uint8_t(Failure::kCanceled))
    return std::nullopt;
  return Packet{.type = PacketType(at[4]),
                .why = Failure(at[5]),
                .from_rank = uint32_t(get(at + 8, 4)),
                .culprit = uint32_t(get(at + 12, 4)),
                .from = uint32_t(get(at + 16, 4)),
                .to = uint32_t(get(at + 20, 4)),
                .membership = get(at + 24, 8)};
}

}  // namespace weft::coll
