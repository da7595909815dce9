// SPDX-License-Identifier: BSD-2-Clause
// ReceiveOps: the six calls by which an application posts a receive (fi_msg.3, fi_tagged.3), turned
// into one request.
//
// Example:
//    #include <weft/sdk/objects/fid.h>
//    class Context final : public Object<Context, fid_ep>, public ReceiveOps<Context> {
//     public:
//      Lock &lock();                                          // the engine's
//      bool enabled() const;      // else -FI_EOPBADSTATE; may_receive() where the class has that
//      bool offers(uint64_t kind, uint64_t direction) const;  // FI_MSG or FI_TAGGED, FI_RECV
//      uint64_t rx_flags() const;                             // of calls without flags
//      ssize_t start(const RecvRequest &request);             // with the lock held
//    };
//
// start() checks the vectors (Receiver::post). A call with FI_TRIGGER becomes start_triggered(),
// where the class has that. Not for endpoints that also send: transfer.h.
#ifndef WEFT_SDK_TRANSFERS_RECV_OPS_H
#define WEFT_SDK_TRANSFERS_RECV_OPS_H

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <weft/sdk/progress/lock.h>
#include <weft/sdk/transfers/receiver.h>
#include <weft/sdk/transfers/transfer_requests.h>

namespace weft::sdk {

template <class E>
class ReceiveOps {
 public:
  // ---- fi_ops_msg ----
  ssize_t recv(void *buf, size_t len, void *desc, fi_addr_t src, void *context) {
    const iovec iov{buf, len};
    return post({.iov = &iov,
                 .desc = &desc,
                 .count = 1,
                 .src = src,
                 .flags = default_flags(),
                 .context = context});
  }
  ssize_t recvv(const struct iovec *iov, void **desc, size_t count, fi_addr_t src, void *context) {
    return post({.iov = iov,
                 .desc = desc,
                 .count = count,
                 .src = src,
                 .flags = default_flags(),
                 .context = context});
  }
  ssize_t recvmsg(const struct fi_msg *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    return post(recv_request(*msg, flags));
  }

  // ---- fi_ops_tagged ----
  ssize_t trecv(void *buf, size_t len, void *desc, fi_addr_t src, uint64_t tag, uint64_t ignore,
                void *context) {
    const iovec iov{buf, len};
    return post({.tagged = true,
                 .iov = &iov,
                 .desc = &desc,
                 .count = 1,
                 .src = src,
                 .tag = tag,
                 .ignore = ignore,
                 .flags = default_flags(),
                 .context = context});
  }
  ssize_t trecvv(const struct iovec *iov, void **desc, size_t count, fi_addr_t src, uint64_t tag,
                 uint64_t ignore, void *context) {
    return post({.tagged = true,
                 .iov = iov,
                 .desc = desc,
                 .count = count,
                 .src = src,
                 .tag = tag,
                 .ignore = ignore,
                 .flags = default_flags(),
                 .context = context});
  }
  ssize_t trecvmsg(const struct fi_msg_tagged *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    return post(recv_request(*msg, flags));
  }

 private:
  ssize_t post(const RecvRequest &request) {
    E &e = static_cast<E &>(*this);
    if (request.flags & (FI_TRIGGER | kDeferred)) [[unlikely]]
      return post_triggered(e, request);
    Guard guard(e.lock());
    if (!takes_receives(e)) return -FI_EOPBADSTATE;
    if (!e.offers(request.tagged ? FI_TAGGED : FI_MSG, FI_RECV)) return -FI_EOPNOTSUPP;
    return e.start(request);
  }
  // Named unlike the class's own, which it would hide.
  static bool takes_receives(E &e) {
    if constexpr (requires { e.may_receive(); })
      return e.may_receive();
    else
      return e.enabled();
  }
  static ssize_t post_triggered(E &e, const RecvRequest &request) {
    if constexpr (requires { e.start_triggered(RecvRequest(request)); })
      return e.start_triggered(RecvRequest(request));
    else
      return -FI_EBADFLAGS;
  }
  uint64_t default_flags() { return static_cast<E &>(*this).rx_flags(); }
};

}  // namespace weft::sdk

#endif
