// SPDX-License-Identifier: BSD-2-Clause
// Hello: what the two ends say over their socket before they use their memory. The end that
// connects says who it is and how large the rings are, and passes the memory's descriptor; the
// other end answers. Both say where the other may try whether the kernel lets it copy
// (process_vm_readv).
//
// Example:
//    inline bool is_asked(std::span<const uint8_t> packet) { return parse_hello(packet).has_value(); }
//    inline std::vector<uint8_t> ask(const sdk::Address &own, const Geometry &geometry) {
//      return encode_hello({.name = own, .geometry = geometry});
//    }
//
// Each is one packet. Afterwards a packet of one byte wakes the other end. Not for what is in the
// memory.
#ifndef WEFT_PLUGINS_SHM_WIRE_HELLO_H
#define WEFT_PLUGINS_SHM_WIRE_HELLO_H

#include <weft/sdk/addresses/address.h>
#include <weft/sdk/addresses/host_name.h>
#include <tl/expected.hpp>

#include <cstdint>
#include <span>
#include <vector>

#include "plugins/shm/wire/layout.h"

namespace weft::shm {

inline constexpr size_t kMostPacket = 128;  // bytes
inline constexpr uint8_t kWake = 'w';       // the packet that wakes

// Where a number is in the memory of the process that says so. It is there as long as its endpoint.
struct Probe {
  uint64_t address = 0, value = 0;
};

struct Hello {
  sdk::Address name;  // of the endpoint that connects
  Geometry geometry;
  Probe probe;
  bool has_barriers = false;  // barrier.h
};
struct Answer {
  Probe probe;
  bool has_barriers = false;
};

enum class BadPacket : uint8_t { kSize, kMagic, kVersion, kGeometry, kName };
const char *text_of(BadPacket why);

tl::expected<Hello, BadPacket> parse_hello(std::span<const uint8_t> packet);
tl::expected<Answer, BadPacket> parse_answer(std::span<const uint8_t> packet);
std::vector<uint8_t> encode_hello(const Hello &hello);
std::vector<uint8_t> encode_answer(const Answer &answer);

}  // namespace weft::shm

#endif
