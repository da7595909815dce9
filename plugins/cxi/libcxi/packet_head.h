// SPDX-License-Identifier: BSD-2-Clause
// The heads of packets as the hardware leaves them in a request buffer, in front of the bytes of a
// message that software is to match: 49 bytes of a short message, 63 of another one.
//
// Example:
//    // The message whose packet begins here.
//    inline uint64_t tag_at(const uint8_t *packet) { return read_packet_head(packet).match_bits; }
//
// Numbers are big-endian there. What the NICs say to each other in the same heads is left out when
// reading, and zero when writing. Not for how the NIC in software speaks with others: soft/frame.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_PACKET_HEAD_H
#define WEFT_PLUGINS_CXI_LIBCXI_PACKET_HEAD_H

#include <cstdint>

#include "plugins/cxi/nic/command.h"

namespace weft::cxi {

inline constexpr uint32_t kShortPacketHead = 49, kPacketHead = 63;
static_assert(kPacketHead <= kMaxRequestHead);

// How many bytes the head at `packet` has.
uint32_t packet_head_size(const uint8_t *packet);
// `source` is that of the initiator.
RequestHeader read_packet_head(const uint8_t *packet);
// `is_short`: without a remote offset and a rendezvous. Returns its bytes.
uint32_t write_packet_head(const RequestHeader &header, bool is_short, uint8_t *packet);

}  // namespace weft::cxi

#endif
