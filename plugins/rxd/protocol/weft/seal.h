// SPDX-License-Identifier: BSD-2-Clause
// Seal: the header of this connection's packets, and what makes sure that they are of this
// connection and were not changed: the cookie, the checksum, the MAC (docs/rxd-protocol.md,
// sections 2, 3 and 10).
//
// Example:
//    // Finishes a packet whose content stands behind its header. Returns the size of the datagram;
//    // `bytes` has room for a MAC.
//    inline size_t finish(const Seal &seal, uint8_t *bytes, size_t size, uint64_t now) {
//      wire::Writer w({bytes, wire::kHeaderSize});
//      w.header(seal.header(wire::PacketKind::kClosed, 0, now));
//      const iovec iov{bytes, size};
//      return size + seal.close({&iov, 1}, /*number=*/0, bytes + size);
//    }
//
// Not for packets of the handshake.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_SEAL_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_SEAL_H

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "plugins/rxd/wire/integrity.h"
#include "plugins/rxd/wire/packet.h"

namespace weft::rxd {

class Seal {
 public:
  // Both sides' parts of the handshake. An empty key: without authentication.
  Seal(const wire::Part &ours, const wire::Part &theirs, std::string_view auth_key);

  // The cookie field of both sides' packets. It names both ends: a packet of a connection that
  // shares only one end with this one does not match.
  uint32_t cookie() const { return cookie_; }
  wire::Header header(wire::PacketKind kind, uint16_t flags, uint64_t now) const;
  // Sets the checksum in the packet, whose header is at the beginning of the first piece, and
  // writes the MAC to `mac`. Returns the bytes of the MAC. `number`: of a data packet, else 0.
  size_t close(std::span<const iovec> pieces, uint64_t number, uint8_t *mac) const;
  // Whether the peer has made the packet, and nobody has changed it.
  bool fits(const wire::Packet &packet, uint64_t number) const;

 private:
  const uint32_t to_, cookie_;
  const std::unique_ptr<const wire::Key> key_;
  const bool checksum_;
};

}  // namespace weft::rxd

#endif
