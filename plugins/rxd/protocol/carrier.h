// SPDX-License-Identifier: BSD-2-Clause
// What the protocol needs of the world: datagrams to and from addresses, memory that peers may
// reach, time and chance. The plugin makes it of the provider beneath; tests make it of a simulated
// network.
//
//   class Inner final : public Carrier { int send(Path &to, ...) override { fi_sendmsg ... } ... };
//   Core core(inner, endpoint, settings);
//   if (!core.on_datagram(bytes, buffer)) inner.release(buffer);   // for each that came
//   core.on_idle();                                                // nothing more to read now
//
// Nothing here blocks, and nothing calls back into the protocol.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_CARRIER_H
#define WEFT_PLUGINS_RXD_PROTOCOL_CARRIER_H

#include <sys/uio.h>
#include <weft/sdk/address.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::rxd {

struct Path;    // an address to which datagrams can be sent
struct Buffer;  // the memory of one datagram that was received

// A vector of a remote access, as peers name it.
struct RmaVector {
  uint64_t address = 0;
  uint64_t length = 0;  // bytes
  uint64_t key = 0;
};

class Carrier {
 public:
  // ---- paths; null: `err` (FI_E...) ----
  virtual Path *open(const sdk::SockAddr &peer, int &err) = 0;
  virtual void close(Path &path) = 0;
  // Whether the address is of this host: what goes there is not damaged on its way.
  virtual bool is_local(const sdk::SockAddr &peer) = 0;
  // Whether Core::on_datagram() can be told where datagrams come from. It is told so for those that
  // are read after name_sources(true), which comes first of all, until name_sources(false).
  virtual bool names_sources() const = 0;
  virtual void name_sources(bool wanted) = 0;

  // ---- datagrams ----
  // Sends the pieces as one datagram. 0: taken; -FI_EAGAIN: nothing was taken, Core::poll() tries
  // again; other: this datagram cannot be sent (it counts as lost). With `more` the memory must
  // stay as it is until a call without it, or flush(), has returned.
  virtual int send(Path &to, const iovec *iov, size_t count, bool more) = 0;
  virtual void flush() = 0;
  virtual size_t max_datagram() const = 0;    // bytes, that it sends and receives
  virtual size_t receive_window() const = 0;  // bytes that it holds while nobody reads
  // The memory of a kept datagram is not needed any more.
  virtual void release(Buffer &buffer) = 0;
  // Whether buffers should be given back soon, by copying what is in them.
  virtual bool buffers_low() const = 0;

  // ---- memory ----
  // Where a vector lies that a peer named, for `access` (FI_REMOTE_READ, FI_REMOTE_WRITE or both):
  // the number of pieces, or -FI_EACCES: no such key, range or right.
  virtual ssize_t resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) = 0;

  // ---- time and chance ----
  virtual uint64_t now_ns() = 0;  // never goes back
  // Whether output that has company may wait for the next progress: it comes within microseconds,
  // as far as experience tells.
  virtual bool progress_is_near() { return true; }
  // What waited went out without it, because it was enough.
  virtual void sent_before_progress() {}
  virtual void set_deadline(uint64_t at_ns) = 0;  // Core::on_deadline() then; 0: none
  virtual void random(std::span<uint8_t> out) = 0;

 protected:
  ~Carrier() = default;
};

}  // namespace weft::rxd

#endif
