// SPDX-License-Identifier: BSD-2-Clause
// Sender: the datagrams to a weft peer. A packet, or an acknowledgement, probe or close of its own,
// gets its header, the acknowledgement that is owed, its payload and its Seal, and leaves.
//
// Example:
//    // Sends a packet that was built. False: later.
//    inline bool send(Link &link, Sender &sender, OutPacket &p) {
//      const uint64_t now = link.now();
//      if (sender.send(p, link.channel.next_number(), now, /*ask=*/false) == -FI_EAGAIN) return false;
//      link.channel.sent(link.overhead + p.used + p.length, now, &p);
//      return true;
//    }
//
// Not for when a packet may leave, nor for what is in it.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_SENDER_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_SENDER_H

#include <rdma/fi_errno.h>

#include <cstdint>

#include "plugins/rxd/protocol/weft/answers.h"
#include "plugins/rxd/protocol/weft/link.h"
#include "plugins/rxd/protocol/weft/seal.h"

namespace weft::rxd {

class Sender {
 public:
  Sender(Link &link, Grants &grants, Answers &answers, const wire::Part &ours,
         const wire::Part &theirs);

  const Seal &seal() const { return seal_; }
  // Whether the peer is to be told something that would else wait for a packet.
  bool owes() const { return link_.channel.owed() != Channel::Owed::kNothing || grants_.tells(); }
  // -FI_EAGAIN: the carrier has no room, or the conversation is over. Else the packet has left, or
  // counts as lost.
  int send(OutPacket &p, uint64_t number, uint64_t now, bool ask);
  // These return false if the carrier has no room.
  bool acknowledge(uint64_t now);
  bool close(wire::PacketKind kind, uint64_t now);  // kClose or kClosed
  void probe(uint32_t size, uint64_t now);
  void probed(const wire::Probe &probe, uint64_t now);

 private:
  ssize_t payload(OutPacket &p, iovec *iov);
  ssize_t fetch(OutPacket &p, iovec *iov, size_t count);
  void fetched(const OutPacket &p);
  bool fill(wire::Acknowledgement &ack, uint64_t now);
  uint8_t *scratch();
  bool send_scratch(uint8_t *bytes, size_t size);
  bool send_alone(wire::PacketKind kind, uint64_t now);
  void told() {
    link_.channel.acknowledged();
    grants_.told();
  }

  Link &link_;
  Grants &grants_;
  Answers &answers_;
  const Seal seal_;
};

}  // namespace weft::rxd

#endif
