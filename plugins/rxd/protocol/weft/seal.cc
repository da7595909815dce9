// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/seal.h"

#include "plugins/rxd/protocol/channel.h"

namespace weft::rxd {

Seal::Seal(const wire::Part &ours, const wire::Part &theirs, std::string_view auth_key)
    : to_(theirs.connection),
      cookie_(ours.cookie + theirs.cookie),
      key_(auth_key.empty()
               ? nullptr
               : std::make_unique<wire::Key>(wire::connection_key(auth_key, ours, theirs))),
      checksum_(((ours.flags | theirs.flags) & wire::kPartChecksum) != 0) {}

wire::Header Seal::header(wire::PacketKind kind, uint16_t flags, uint64_t now) const {
  if (checksum_) flags |= wire::kFlagChecksum;
  if (key_ != nullptr) flags |= wire::kFlagMac;
  return {.kind = kind, .flags = flags, .to = to_, .cookie = cookie_, .time = Channel::clock(now)};
}

size_t Seal::close(std::span<const iovec> pieces, uint64_t number, uint8_t *mac) const {
  if (checksum_)
    wire::set_checksum(static_cast<uint8_t *>(pieces[0].iov_base), wire::checksum(pieces));
  if (key_ == nullptr) return 0;
  wire::mac(*key_, pieces, uint32_t(number >> 32),
            std::span<uint8_t, wire::kMacSize>(mac, wire::kMacSize));
  return wire::kMacSize;
}

bool Seal::fits(const wire::Packet &packet, uint64_t number) const {
  const bool authentic = key_ != nullptr;
  return packet.header.has(wire::kFlagChecksum) >= checksum_ &&
         packet.header.has(wire::kFlagMac) == authentic && wire::checksum_fits(packet) &&
         (!authentic || wire::mac_fits(*key_, packet, uint32_t(number >> 32)));
}

}  // namespace weft::rxd
