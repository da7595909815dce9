// SPDX-License-Identifier: BSD-2-Clause
// The byte order and the flags that packet.cc and packet_writer.cc share.
//
// Example:
//    #include <cstring>
//    inline uint32_t load(const uint8_t *at) {
//      uint32_t value = 0;
//      std::memcpy(&value, at, sizeof value);  // fields have any alignment
//      return little(value);
//    }
//
// Internal to wire/. Not for other wire formats.
#ifndef WEFT_PLUGINS_RXD_WIRE_PACKET_FIELDS_H
#define WEFT_PLUGINS_RXD_WIRE_PACKET_FIELDS_H

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::rxd::wire {

// A number of this host as little endian, or the other way round.
template <class T>
T little(T value) {
  if constexpr (std::endian::native == std::endian::big && sizeof value > 1) {
    if constexpr (sizeof value == 2) value = __builtin_bswap16(value);
    if constexpr (sizeof value == 4) value = __builtin_bswap32(value);
    if constexpr (sizeof value == 8) value = __builtin_bswap64(value);
  }
  return value;
}

// Flags of frames.
inline constexpr uint8_t kTagged = 1, kRemoteData = 2, kWantsDone = 4, kAnnounced = 8;
inline constexpr uint8_t kAnswers = 1;
inline constexpr uint32_t kWriteData = 2;
inline constexpr size_t kVectorSize = 24;
inline constexpr uint8_t kAtomicKinds = 3;

}  // namespace weft::rxd::wire

#endif
