// SPDX-License-Identifier: BSD-2-Clause
// Peer: the state of an FI_EP_RDM endpoint for one peer, from the first use on: the connection
// attempts (attempt.h), and the stream while there is one (peer_stream.h).
//
// Example:
//    // If there is no stream, the operation waits while the peer connects. False: no memory.
//    inline bool send(Peer &peer, RdmOperation &op, const iovec &payload) {
//      FrameHeader header;
//      header.payload_size = payload.iov_len;
//      op.set_header(header, peer.stream != nullptr ? peer.stream->order() : ByteOrder::kNative);
//      if (op.place(&payload, 1, payload.iov_len, /*inject=*/false, nullptr) != 0) return false;
//      peer.launch(op);
//      return true;
//    }
//
// There is one stream per pair of endpoints, used in both directions; the endpoint that sends first
// asks for it. A peer that was only inserted in the address vector has no Peer. All calls need the
// lock of the domain's engine. Limits are in unconnected_endpoint.h; which request wins when both
// connect is in weft/sdk/peer/link.h.
#ifndef WEFT_PLUGINS_TCP_PEER_H
#define WEFT_PLUGINS_TCP_PEER_H

#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/peer/link.h>

#include <memory>
#include <vector>

#include "plugins/tcp/attempt.h"
#include "plugins/tcp/peer_stream.h"

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
  // Does what `link` says. `error`: of operations that fail.
  void follow(sdk::PeerLink::Next next, int error = FI_ECONNREFUSED);
  void fail_pending(int error);
  bool has_unasked() const;  // among those that wait: no completion tells of it
  void attempt_failed(sdk::PeerLink::Refusal refusal, int error);
  void probe_ended();
  void stream_ended(PeerStream &which);
  // There is no stream any more.
  void lost();
  // A request of the peer is accepted, which ends our attempt, or makes it a probe.
  void yield(bool to_probe);
  // Connects to the peer for its answer alone; by a probe while there is a stream.
  void ask();
  // A process other than the one at the other end of the stream claims to be this peer. `next`:
  // whether the address is asked; if so, by a probe, unless nothing listens there.
  void challenge(sdk::PeerLink::Next next, bool may_connect);
  // The process that listens at the peer's address accepted our attempt, or our probe: it is the
  // peer. A stream that there was is replaced.
  void accepted(int fd, const Terms &terms, uint32_t process);
  // Whether somebody waits for an answer of the peer.
  bool wanted() const;
  void start_probe();
  bool is_idle() const {
    return streams == 0 && saved == 0 && pending.empty() && attempt == nullptr && probe == nullptr;
  }

  UnconnectedEndpoint &endpoint;
  const sdk::SockAddr address;
  bool is_named() const { return source < sdk::Matcher::kFirstUnnamed; }

  uint32_t source;                // entry in the address vector, or a number of its own
  unsigned place = 0;             // what it says of itself: a context of a scalable endpoint
  std::vector<uint32_t> indices;  // of the address vector that lead here
  sdk::PeerLink link;
  PeerStream *stream = nullptr;   // for all that is sent
  PeerStream *leaving = nullptr;  // our half of it is closed
  uint32_t streams = 0;           // also old ones, and the second end of a connection to ourselves
  uint32_t saved = 0;             // messages
  uint64_t saved_bytes = 0;       // of these messages when they are whole
  uint64_t arrived_bytes = 0;     // of these messages so far
  std::unique_ptr<Attempt> attempt;
  std::unique_ptr<Attempt> probe;  // while there is a stream
  OperationList pending;           // wait for a stream
};

}  // namespace weft::tcp

#endif
