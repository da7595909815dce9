// SPDX-License-Identifier: BSD-2-Clause
// Carrier: what the protocol needs from outside: datagrams to and from addresses, memory that peers
// may access, time and random numbers. The plugin implements it with the provider beneath, tests
// with a simulated network.
//
// Example:
//    #include <rdma/fi_errno.h>
//    // Sends a header and a payload as one datagram. False: no room; Core::poll() will try again.
//    inline bool send(Carrier &carrier, Path &to, const iovec &header, const iovec &payload) {
//      const iovec pieces[] = {header, payload};
//      if (carrier.send(to, pieces, 2, /*more=*/true) == -FI_EAGAIN) return false;
//      carrier.flush();  // until here the memory of both had to stay as it was
//      return true;
//    }
//
// Datagrams that arrive are for Core::on_datagram(), which the carrier's owner calls. Nothing here
// blocks, and nothing calls back into the protocol.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CARRIER_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CARRIER_H

#include <sys/uio.h>
#include <weft/sdk/addresses/address.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::rxd {

struct Path;    // an address to which datagrams can be sent
struct Buffer;  // the memory of one datagram that was received

// A vector of a remote access, as the peer names it.
struct RmaVector {
  uint64_t address = 0;
  uint64_t length = 0;  // bytes
  uint64_t key = 0;
};

class Carrier {
 public:
  // ---- paths; null: `err` (FI_E...) ----
  virtual Path *open(const sdk::Address &peer, int &err) = 0;
  virtual void close(Path &path) = 0;
  // Further addresses at which peers may call this endpoint, beside the one that it tells them.
  virtual std::span<const sdk::Address> other_names() const { return {}; }
  // A peer has called none of these. True: there is one more, at which datagrams have come since;
  // it is the last of them. Who asks may learn it only from the peer's next call.
  virtual bool learn_name() { return false; }
  // Whether the address is of this host. Datagrams to it are not damaged on their way.
  virtual bool is_local(const sdk::Address &peer) = 0;
  // Whether the network finds damaged datagrams as well as a checksum of ours would.
  virtual bool checks_datagrams() const { return false; }
  // Whether this carrier can tell Core::on_datagram() the source of a datagram. It does so for
  // datagrams that are read between name_sources(true) and name_sources(false).
  virtual bool names_sources() const = 0;
  virtual void name_sources(bool wanted) = 0;

  // ---- datagrams ----
  // Sends the pieces as one datagram. 0: taken; -FI_EAGAIN: nothing was taken, Core::poll() tries
  // again; other: this datagram cannot be sent, and counts as lost. With `more` the memory must
  // stay unchanged until a call without `more`, or flush(), has returned.
  virtual int send(Path &to, const iovec *iov, size_t count, bool more) = 0;
  virtual void flush() = 0;
  virtual size_t max_datagram() const = 0;    // bytes, sent and received
  virtual size_t receive_window() const = 0;  // bytes that it holds until they are read
  // The memory of a kept datagram is not needed any more.
  virtual void release(Buffer &buffer) = 0;
  // Whether few receive buffers are left, so that no more datagrams should be kept.
  virtual bool buffers_low() const = 0;

  // ---- memory ----
  // Finds the memory of a vector that a peer named, for `access` (FI_REMOTE_READ, FI_REMOTE_WRITE
  // or both): the number of pieces, or -FI_EACCES: no such key, range or right.
  virtual ssize_t resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) = 0;

  // ---- time and random numbers ----
  virtual uint64_t now_ns() = 0;  // never goes back
  // When there was last nothing to read: what is read now may have waited since. 0: it waited for
  // nobody, because the endpoint was blocked until something came.
  virtual uint64_t looked_ns() { return 0; }
  // Whether the next progress call comes within microseconds, as far as past calls tell. Then
  // messages that follow others may wait for it.
  virtual bool progress_is_near() { return true; }
  // Waiting messages filled a packet and were sent before the next progress call.
  virtual void sent_before_progress() {}
  // Whether answers may wait for what the application sends next: Core::begin_pass() and poll()
  // come within 10 ms, though the application makes no more calls.
  virtual bool flush_later() { return false; }
  virtual void set_deadline(uint64_t at_ns) = 0;  // Core::on_deadline() then; 0: none
  virtual void random(std::span<uint8_t> out) = 0;

 protected:
  ~Carrier() = default;
};

}  // namespace weft::rxd

#endif
