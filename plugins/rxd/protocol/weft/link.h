// SPDX-License-Identifier: BSD-2-Clause
// Link: what the parts of a conversation between weft peers share: the core, the peer, the channel
// of its packets, and the sizes that the handshake has settled. It has the ways in which a part
// ends the conversation.
//
// Example:
//    // False, as from all that takes frames: the conversation is over.
//    inline bool take(Link &link, const wire::PullFrame &f, const TxOp &op) {
//      if (f.limit > op.length) return link.violated("a pull beyond the end of a message");
//      return true;
//    }
//
// Not for what one part alone has to know.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_LINK_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_LINK_H

#include <algorithm>
#include <cstdint>

#include "plugins/rxd/protocol/channel.h"
#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/weft/credit.h"
#include "plugins/rxd/protocol/weft/landings.h"
#include "plugins/rxd/protocol/weft/packets.h"

namespace weft::rxd {

class Link {
 public:
  // `datagram`: bytes of the first datagrams. `limit`: of packets, from the peer's part. `has_key`:
  // datagrams end with a MAC.
  Link(Core &its_core, Peer &its_peer, Pools &its_pools, uint32_t datagram, uint32_t limit,
       bool has_key)
      : core(its_core),
        peer(its_peer),
        pools(its_pools),
        channel(its_pools.sent, datagram, limit),
        overhead(uint32_t(OutPacket::kHead + (has_key ? wire::kMacSize : 0))),
        result_room(uint32_t(
            std::min<size_t>(kMaxAtomicSize, datagram - overhead - wire::kResultFrameSize))) {}
  Link(const Link &) = delete;
  Link &operator=(const Link &) = delete;

  uint64_t now() { return core.carrier().now_ns(); }
  DeviceCopies *copies() const { return core.copies(); }  // null: without FI_HMEM
  Grants::Room inbox_room() { return {core.inbox().bytes(), core.inbox().limit()}; }
  void want_room() { core.want_room(peer); }
  void want_idle() { core.want_idle(peer); }
  // All has come. True: copies are under way, and it ends later.
  bool waits_for_copies(Landing &landing) {
    if (!landings.waits(*copies(), landing)) return false;
    want_room();
    return true;
  }

  // The conversation is over. Each returns false.
  bool violated(const char *what);  // the peer has sent that
  bool no_memory(const char *what);

  Core &core;
  Peer &peer;
  Pools &pools;
  Channel channel;
  Landings landings;
  const uint32_t overhead;     // bytes of a datagram that are neither frames nor payload
  const uint32_t result_room;  // bytes of an atomic's result that every packet has room for
};

}  // namespace weft::rxd

#endif
