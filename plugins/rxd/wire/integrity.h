// SPDX-License-Identifier: BSD-2-Clause
// The integrity and the origin of datagrams: the checksum, the MAC, and the token of a challenge
// (docs/rxd-protocol.md, sections 2, 3 and 10).
//
// Example:
//    // Completes a datagram. Its header, in the first piece, has a checksum of 0 so far. The MAC
//    // is sent as a last piece. `number`: of the packet, with its upper half, which is not sent.
//    inline void seal(std::span<const iovec> pieces, const Key &key, uint64_t number,
//                     std::span<uint8_t, kMacSize> tail) {
//      set_checksum(static_cast<uint8_t *>(pieces[0].iov_base), checksum(pieces));
//      mac(key, pieces, uint32_t(number >> 32), tail);
//    }
//    inline bool is_genuine(const Packet &packet, const Key &key, uint64_t number) {
//      return checksum_fits(packet) && mac_fits(key, packet, uint32_t(number >> 32));
//    }
//
// The primitives are ISA-L's and libsodium's. Not for choosing whether a connection uses them.
#ifndef WEFT_PLUGINS_RXD_WIRE_INTEGRITY_H
#define WEFT_PLUGINS_RXD_WIRE_INTEGRITY_H

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "plugins/rxd/wire/packet.h"

namespace weft::rxd::wire {

// CRC32C. `crc`: the result for what came before.
uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t crc = 0) noexcept;
uint32_t crc32c(std::span<const iovec> pieces) noexcept;

// The checksum of a datagram whose header has a checksum of zero.
inline uint32_t checksum(std::span<const iovec> pieces) noexcept {
  return crc32c(pieces);
}
// Whether packet.header.checksum is right: that of the datagram, or 0 without kFlagChecksum.
bool checksum_fits(const Packet &packet) noexcept;

using Key = std::array<uint8_t, 32>;

// The keys for connect and accept, and for all later packets. `auth_key` must not be empty.
Key handshake_key(std::string_view auth_key) noexcept;
// The same at both ends, whichever is `ours`.
Key connection_key(std::string_view auth_key, const Part &ours, const Part &theirs) noexcept;

// `upper`: the upper half of the packet's sequence number; 0 for packets without one.
void mac(const Key &key, std::span<const iovec> pieces, uint32_t upper,
         std::span<uint8_t, kMacSize> out) noexcept;
// Whether packet.mac is right; false without one. Takes constant time. `behind`: bytes that the
// code covers behind the packet, and that both ends know.
bool mac_fits(const Key &key, const Packet &packet, uint32_t upper,
              std::span<const uint8_t> behind = {}) noexcept;

// A token proves that its owner receives at an address. The same endpoint makes and checks it, and
// keeps no state for it.
class TokenMaker {
 public:
  using Secret = std::array<uint8_t, 16>;
  explicit TokenMaker(const Secret &secret) : secret_(secret) {}

  std::array<uint8_t, kTokenSize> make(uint64_t now_ns,
                                       std::span<const uint8_t> address) const noexcept;
  // When the token was made for this address, if at most `lifetime_ns` ago; 0: it is not valid.
  uint64_t made_at(Token token, uint64_t now_ns, uint64_t lifetime_ns,
                   std::span<const uint8_t> address) const noexcept;

 private:
  uint64_t seal(uint64_t time, std::span<const uint8_t> address) const noexcept;
  Secret secret_;
};

}  // namespace weft::rxd::wire

#endif
