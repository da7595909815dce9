// SPDX-License-Identifier: BSD-2-Clause
// Channel: the packets of one connection between weft peers, seen as numbers and times: which were
// acknowledged, which are lost, how many may be on their way, when to repeat, what to acknowledge
// (docs/rxd-protocol.md, sections 5, 6 and 8). It does not know what is in a packet.
//
//   if (channel.may_send(size, now)) {
//     uint32_t n = channel.sent(size, now, &packet);       // first transmission
//     ...
//   }
//   channel.on_acknowledgement(ack, now, [](void *packet) { ... arrived ... });
//   while (void *packet = channel.next_lost()) { ... send it again ...; channel.sent_again(n, now); }
//
//   switch (channel.arrived(number, ordered)) { ... }      // the receiving half
//   if (channel.owes_acknowledgement()) { channel.acknowledge(ack, now); ... }
//
// No socket, no clock, no allocation once the window has been used; sans-I/O, all times in ns.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CHANNEL_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CHANNEL_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/rxd/protocol/congestion.h"
#include "plugins/rxd/wire/packet.h"

namespace weft::rxd {

inline constexpr uint32_t kWindow = 1024;  // packets

}  // namespace weft::rxd

#endif
