// SPDX-License-Identifier: BSD-2-Clause
// What an FI_EP_RDM endpoint keeps about one peer, from the first use on: how to get a stream to
// it (attempt.h), and the stream while there is one (peer_stream.h).
//
//   Peer *peer = endpoint.peer_at(index);
//   peer->launch(*op);                  // now, or when there is a stream; connects if need be
//
// There is one stream per pair of endpoints, used in both directions; whoever sends first asks for
// it. A peer that was only inserted in the address vector has none of these. Everything with the
// lock of the domain's engine held. Which endpoint these belong to, and what limits them, is in
// unconnected_endpoint.h; who wins when both connect, in wire/peer_link.h.
#ifndef WEFT_PLUGINS_TCP_PEER_H
#define WEFT_PLUGINS_TCP_PEER_H

#include <weft/sdk/address.h>

#include <memory>
#include <vector>

#include "plugins/tcp/attempt.h"
#include "plugins/tcp/peer_stream.h"
#include "plugins/tcp/wire/peer_link.h"

namespace weft::tcp {

class UnconnectedEndpoint;

class Peer {
 public:
  Peer(UnconnectedEndpoint &ep, const sdk::SockAddr &address, uint32_t source)
      : endpoint(ep), address(address), source(source) {}

  void launch(RdmOperation &op) {
    if (stream != nullptr) {
      stream->launch(op);
    } else {
      wait(op);
    }
  }
  void wait(RdmOperation &op);
  // Takes over a socket on which the connection messages were exchanged.
  void open_stream(int fd, const Terms &terms, bool second);
  void try_again(PeerLink::Next next, int error);
  void fail_pending(int error);
  void attempt_failed(PeerLink::Refusal refusal, int error);
  void stream_ended(PeerStream &which);
  // There is no stream, or none any more: connects, if somebody needs one or has been asked.
  void reconnect();
  // A request that crossed ours is accepted. Ours goes on as a question: the requester may be
  // somebody else on the peer's host, and the peer itself rejects ours.
  void yield();
  // Another process than the one at the other end of the stream says that it is this peer.
  void challenge(bool may_connect);
  // The one who listens at the peer's address accepted a connection of ours: it is the peer, and
  // whoever had its place is not.
  void confirmed(int fd, const Terms &terms, uint32_t process);
  bool is_idle() const {
    return streams == 0 && saved == 0 && pending.empty() && attempt == nullptr && probe == nullptr;
  }

  UnconnectedEndpoint &endpoint;
  const sdk::SockAddr address;
  bool is_named() const { return source < sdk::Matcher::kFirstUnnamed; }

  uint32_t source;                // index in the address vector, or a number of its own
  std::vector<uint32_t> indices;  // that lead here
  PeerLink link;
  PeerStream *stream = nullptr;   // what is sent goes there
  PeerStream *leaving = nullptr;  // our half of it is closed
  uint32_t streams = 0;           // with second ends of a connection to ourselves, and old ones
  uint32_t saved = 0;             // messages
  uint64_t saved_bytes = 0;       // of these, when they are whole
  uint64_t arrived_bytes = 0;     // of these, so far
  std::unique_ptr<Attempt> attempt;
  std::unique_ptr<Attempt> probe;  // while there is a stream
  OperationList pending;           // until there is a stream
};

}  // namespace weft::tcp

#endif
