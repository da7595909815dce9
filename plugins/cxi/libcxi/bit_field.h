// SPDX-License-Identifier: BSD-2-Clause
// Field: some bits of a word of the hardware, by the first bit and the width. A word is a row of
// little-endian bytes; a field never crosses a multiple of 64 bits.
//
// Example (statements):
//    constexpr Field speed{4, 3};
//    uint8_t word[8] = {};
//    put(word, speed, 5);
//    const bool kept = get(word, speed) == 5 && word[0] == 0x50;
//
// put() leaves the bits beside the field alone, and takes the low bits of a value that is too wide.
// Not for packets of the network, which have the other byte order: packet_head.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_BIT_FIELD_H
#define WEFT_PLUGINS_CXI_LIBCXI_BIT_FIELD_H

#include <bit>
#include <cstdint>
#include <cstring>

namespace weft::cxi {

struct Field {
  uint16_t bit = 0, width = 0;

  constexpr uint64_t max() const { return ~uint64_t{0} >> (64 - width); }
  constexpr unsigned end() const { return unsigned(bit) + width; }
  // Whether it is what put() and get() can do.
  constexpr bool is_sound() const { return width != 0 && bit / 64 == (end() - 1) / 64; }
};

static_assert(std::endian::native == std::endian::little, "a Cassini's words are little endian");

inline uint64_t get(const void *word, Field field) {
  uint64_t part;
  std::memcpy(&part, static_cast<const uint8_t *>(word) + field.bit / 64 * 8, sizeof part);
  return part >> field.bit % 64 & field.max();
}

inline void put(void *word, Field field, uint64_t value) {
  uint8_t *const at = static_cast<uint8_t *>(word) + field.bit / 64 * 8;
  uint64_t part;
  std::memcpy(&part, at, sizeof part);
  const uint64_t mask = field.max() << field.bit % 64;
  part = (part & ~mask) | (value << field.bit % 64 & mask);
  std::memcpy(at, &part, sizeof part);
}

}  // namespace weft::cxi

#endif
