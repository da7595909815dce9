// SPDX-License-Identifier: BSD-2-Clause
// What the protocol needs of the world: connections that carry messages, remote memory access,
// registration, and time. The plugin makes it of the provider beneath; tests make it of a
// simulation.
//
//   class Inner final : public Carrier { Link *connect(...) override { ... fi_connect ... } ... };
//   Core core(inner, endpoint, settings);
//   core.on_connected(link's connection, private_data);           // what happened beneath
//
// Nothing here blocks, and nothing calls back into the protocol before it returns: what happens is
// told later, from progress. Every operation that was accepted with FI_COMPLETION comes back
// exactly once through Core::on_sent(), also after its link was closed.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CARRIER_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CARRIER_H

#include <rdma/fabric.h>
#include <sys/uio.h>
#include <weft/sdk/address.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "plugins/rxm/wire/packet.h"

namespace weft::rxm {

class Connection;

// What comes back from the carrier when an operation has ended: the base of all that can be waited
// for.
struct Token {
  enum class Kind : uint8_t { kOp, kSegment, kControl, kMessage };
  Kind kind = Kind::kOp;
};

struct Link;          // a connection of the carrier
struct Request;       // of a peer, that waits for accept() or reject()
struct Buffer;        // one received packet's memory
struct Registration;  // memory that a peer may reach

class Carrier {
 public:
  // ---- connections; null: failed, `err` says why (FI_E...) ----
  virtual Link *connect(Connection &owner, const sdk::SockAddr &peer, std::span<const uint8_t> data,
                        int &err) = 0;
  virtual Link *accept(Connection &owner, Request &request, std::span<const uint8_t> data,
                       int &err) = 0;
  virtual void reject(Request &request, std::span<const uint8_t> data) = 0;
  // No event and no packet of the link is told from here on. `idle`: nothing is outstanding, so
  // what was injected may still leave.
  virtual void close(Link &link, bool idle) = 0;

  // ---- data: 0, -FI_EAGAIN (later), or another error ----
  // Flags: FI_INJECT, FI_COMPLETION, FI_MORE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE,
  // FI_COMMIT_COMPLETE, FI_REMOTE_CQ_DATA.
  virtual ssize_t send(Link &link, const iovec *iov, size_t count, uint64_t flags,
                       Token *token) = 0;
  virtual ssize_t read(Link &link, const iovec *iov, size_t count, const RmaVector *from,
                       size_t from_count, uint64_t flags, Token *token) = 0;
  virtual ssize_t write(Link &link, const iovec *iov, size_t count, const RmaVector *to,
                        size_t to_count, uint64_t data, uint64_t flags, Token *token) = 0;
  // The packet's memory is not needed any more: receive into it again.
  virtual void release(Buffer &buffer) = 0;
  // Whether buffers should be given back soon, by copying what is in them.
  virtual bool buffers_low() const = 0;
  // Those that wait for packets of anybody; kOwn: each link has its own.
  static constexpr size_t kOwn = SIZE_MAX;
  virtual size_t buffers_left() const = 0;
  // While a link is held no more packets are taken from it, but for those that have a buffer
  // already. False: the carrier cannot, and it goes on.
  virtual bool hold(Link &link, bool held) = 0;

  // ---- memory ----
  // Makes `iov` readable or writable for the peer of `link`. Null: `err`.
  virtual Registration *expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                               int &err) = 0;
  virtual void conceal(Registration &registration) = 0;
  // Where an atomic's target lies: the number of vectors, or -FI_EACCES.
  virtual ssize_t resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) = 0;

  // ---- time ----
  virtual uint64_t now_ns() = 0;
  virtual void set_deadline(uint64_t at_ns) = 0;  // Core::on_deadline() then; 0: none

 protected:
  ~Carrier() = default;
};

}  // namespace weft::rxm

#endif
