// SPDX-License-Identifier: BSD-2-Clause
// Carrier: what the protocol needs from outside. Connections that carry messages, remote memory
// access, registration, and time. Lower implements it over the inner provider, tests over a
// simulation.
//
// Example:
//    #include "plugins/rxm/protocol/core.h"
//    // The part that sends, of a carrier that loses every packet.
//    class Lossy : public Carrier {
//     public:
//      ssize_t send(Link &, const iovec *, void *const *, size_t, uint32_t, uint64_t flags,
//                   Token *token) override {
//        if (flags & FI_COMPLETION) sent_.push_back(token);
//        return 0;
//      }
//      void progress(Core &core) {
//        for (Token *token : std::exchange(sent_, {})) core.on_sent(*token, 0);
//      }
//
//     private:
//      std::vector<Token *> sent_;
//    };
//
// No call blocks, and no call calls the Core back: events are delivered later, from progress. Every
// operation that was accepted with FI_COMPLETION comes back exactly once through Core::on_sent(),
// even after its link was closed. Not for the format of packets (wire/packet.h).
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CARRIER_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CARRIER_H

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <sys/uio.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/layers/carrier.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "plugins/rxm/wire/packet.h"

namespace weft::rxm {

class Connection;

// Identifies an operation at the carrier. The carrier returns it when the operation has ended.
struct alignas(uint64_t) Token {
  enum class Kind : uint8_t { kOp, kSegment, kControl, kMessage };
  Kind kind = Kind::kOp;
};

struct Link;          // a connection of the carrier
struct Request;       // a connection request of a peer, before accept() or reject()
struct Buffer;        // memory of one received packet
struct Registration;  // memory that a peer may access

class Carrier {
 public:
  // ---- connections; null: failed with `err` (FI_E...) ----
  virtual Link *connect(Connection &owner, const sdk::Address &peer, std::span<const uint8_t> data,
                        int &err) = 0;
  virtual Link *accept(Connection &owner, Request &request, std::span<const uint8_t> data,
                       int &err) = 0;
  virtual void reject(Request &request, std::span<const uint8_t> data) = 0;
  // The link delivers no event and no packet after this call. `idle`: no operation is outstanding,
  // so injected data may still leave. Else what has not left fails.
  virtual void close(Link &link, bool idle) = 0;

  static constexpr uint64_t kMarks = WEFT_CARRIER_MARKS;
  static constexpr uint64_t kLater = WEFT_CARRIER_LATER;
  static constexpr uint64_t kUnasked = WEFT_CARRIER_UNASKED;
  // Not every inner provider takes them.
  static constexpr uint64_t kOptional = kMarks | kLater | kUnasked;

  // ---- data; 0, -FI_EAGAIN (no room now), or another error ----
  // Flags: FI_INJECT, FI_COMPLETION, FI_MORE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE,
  // FI_COMMIT_COMPLETE, FI_REMOTE_CQ_DATA (of a send: only with Settings::bare), and at most one of
  // kMarks: the application takes a message (FI_MSG, FI_TAGGED) or a write (FI_RMA) for complete
  // when the carrier has sent this. If that is lost all the same, or the call has no token, only
  // the mark says of what to tell. kLater, of a message with FI_INJECT and no token: it may wait
  // for the next packet on this link; it leaves at the next progress, or within some milliseconds.
  // kUnasked: the application may make no progress; what would wait for that leaves within
  // milliseconds, too. `desc`: descriptors of the vectors, from inner_descriptor(); it may be null,
  // and each of them.
  virtual ssize_t send(Link &link, const iovec *iov, void *const *desc, size_t count, uint32_t data,
                       uint64_t flags, Token *token) = 0;
  virtual ssize_t read(Link &link, const iovec *iov, void *const *desc, size_t count,
                       const RmaVector *from, size_t from_count, uint64_t flags, Token *token) = 0;
  virtual ssize_t write(Link &link, const iovec *iov, void *const *desc, size_t count,
                        const RmaVector *to, size_t to_count, uint64_t data, uint64_t flags,
                        Token *token) = 0;
  // The carrier's descriptor for one that the application passed.
  virtual void *inner_descriptor(void *descriptor) { return descriptor; }
  // Returns the buffer to the carrier, which receives into it again.
  virtual void release(Buffer &buffer) = 0;
  // Whether few buffers are left, so that the caller should copy packets rather than keep buffers.
  virtual bool buffers_low() const = 0;
  // Free buffers that all links share; kOwn: each link has its own.
  static constexpr size_t kOwn = SIZE_MAX;
  virtual size_t buffers_left() const = 0;
  // Stops or resumes reading packets of this link. Packets that are in a buffer already are still
  // delivered. False: the carrier cannot do it, and goes on reading.
  virtual bool hold(Link &link, bool held) = 0;

  // ---- memory ----
  // Registers `iov` for access by the peer of `link` and fills in `vector`. Null: failed with
  // `err`.
  virtual Registration *expose(Link &link, const iovec &iov, uint64_t access, RmaVector &vector,
                               int &err) = 0;
  // Registers `iov`, from which this endpoint writes to a peer, where the carrier wants that, and
  // fills in `desc`. Null with `err` 0: it does not; else it failed.
  virtual Registration *enlist(const iovec &iov, void *&desc, int &err) {
    static_cast<void>(iov);
    desc = nullptr;
    err = 0;
    return nullptr;
  }
  virtual void conceal(Registration &registration) = 0;
  // Whether packets of links that are not held are read as they come: there is room for them.
  virtual bool reads() { return true; }
  // The local memory that a peer's atomic addresses: the number of iov filled, or -FI_EACCES.
  virtual ssize_t resolve(const RmaVector &vector, uint64_t access, iovec *iov, size_t room) = 0;

  // ---- time ----
  virtual uint64_t now_ns() = 0;
  virtual void set_deadline(uint64_t at_ns) = 0;  // calls Core::on_deadline() then; 0: never

 protected:
  ~Carrier() = default;
};

// Errors of the carrier that mean that the link is dead, not that the operation is wrong.
inline bool is_link_error(ssize_t rc) {
  switch (-rc) {
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
    case EPIPE:
      return true;
    default:
      return false;
  }
}

}  // namespace weft::rxm

#endif
