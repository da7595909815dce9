// SPDX-License-Identifier: BSD-2-Clause
// PostOps: the operations that are no messages to send: receives, RMA and atomics.
//
// Example:
//    class MyHook : public PostOps<MyHook> {
//     public:
//      explicit MyHook(Injector &injector) : injector_(injector) {}
//      Injector &injector() { return injector_; }
//
//     private:
//      Injector &injector_;
//    };
//
// Each member passes the call to the Injector, which decides what becomes of it (injector.h).
// Not for messages that are sent: message_ops.h.
#ifndef WEFT_PLUGINS_HOOK_FAULT_POST_OPS_H
#define WEFT_PLUGINS_HOOK_FAULT_POST_OPS_H

#include "plugins/hook-fault/injector.h"

namespace weft::fault {

template <class Hook>
class PostOps {
 public:
  ssize_t recv(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
               void *context) {
    return injector().post(link, plain(kRecv, len, src, context, FI_MSG),
                           [&] { return link.next.msg->recv(ep, buf, len, desc, src, context); });
  }
  ssize_t recvv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                void *context) {
    const size_t size = is_readable(iov, count) ? bytes_in(iov, count) : 0;
    return injector().post(link, plain(kRecv, size, src, context, FI_MSG), [&] {
      return link.next.msg->recvv(ep, iov, desc, count, src, context);
    });
  }
  ssize_t recvmsg(Link link, fid_ep *ep, const fi_msg *msg, uint64_t flags) {
    return injector().post_msg(link, kRecv, FI_MSG, msg, flags,
                               [&] { return link.next.msg->recvmsg(ep, msg, flags); });
  }
  ssize_t trecv(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
                uint64_t tag, uint64_t ignore, void *context) {
    return injector().post(link, plain(kTrecv, len, src, context, FI_TAGGED, tag), [&] {
      return link.next.tagged->recv(ep, buf, len, desc, src, tag, ignore, context);
    });
  }
  ssize_t trecvv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                 uint64_t tag, uint64_t ignore, void *context) {
    const size_t size = is_readable(iov, count) ? bytes_in(iov, count) : 0;
    return injector().post(link, plain(kTrecv, size, src, context, FI_TAGGED, tag), [&] {
      return link.next.tagged->recvv(ep, iov, desc, count, src, tag, ignore, context);
    });
  }
  ssize_t trecvmsg(Link link, fid_ep *ep, const fi_msg_tagged *msg, uint64_t flags) {
    return injector().post_msg(link, kTrecv, FI_TAGGED, msg, flags,
                               [&] { return link.next.tagged->recvmsg(ep, msg, flags); });
  }

  ssize_t read(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
               uint64_t addr, uint64_t key, void *context) {
    return injector().post(link, plain(kRead, len, src, context, FI_RMA | FI_READ), [&] {
      return link.next.rma->read(ep, buf, len, desc, src, addr, key, context);
    });
  }
  ssize_t readv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                uint64_t addr, uint64_t key, void *context) {
    const size_t size = is_readable(iov, count) ? bytes_in(iov, count) : 0;
    return injector().post(link, plain(kRead, size, src, context, FI_RMA | FI_READ), [&] {
      return link.next.rma->readv(ep, iov, desc, count, src, addr, key, context);
    });
  }
  ssize_t readmsg(Link link, fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
    return injector().post_msg(link, kRead, FI_RMA | FI_READ, msg, flags,
                               [&] { return link.next.rma->readmsg(ep, msg, flags); });
  }
  ssize_t write(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
                uint64_t addr, uint64_t key, void *context) {
    return injector().post(link, plain(kWrite, len, dest, context, FI_RMA | FI_WRITE), [&] {
      return link.next.rma->write(ep, buf, len, desc, dest, addr, key, context);
    });
  }
  ssize_t writev(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                 uint64_t addr, uint64_t key, void *context) {
    const size_t size = is_readable(iov, count) ? bytes_in(iov, count) : 0;
    return injector().post(link, plain(kWrite, size, dest, context, FI_RMA | FI_WRITE), [&] {
      return link.next.rma->writev(ep, iov, desc, count, dest, addr, key, context);
    });
  }
  ssize_t writemsg(Link link, fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
    return injector().post_msg(link, kWrite, FI_RMA | FI_WRITE, msg, flags,
                               [&] { return link.next.rma->writemsg(ep, msg, flags); });
  }
  ssize_t writedata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                    fi_addr_t dest, uint64_t addr, uint64_t key, void *context) {
    return injector().post(link, plain(kWrite, len, dest, context, FI_RMA | FI_WRITE), [&] {
      return link.next.rma->writedata(ep, buf, len, desc, data, dest, addr, key, context);
    });
  }
  ssize_t inject_write(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest,
                       uint64_t addr, uint64_t key) {
    return injector().post(link, plain(kInjectWrite, len, dest, nullptr, FI_RMA | FI_WRITE),
                           [&] { return link.next.rma->inject(ep, buf, len, dest, addr, key); });
  }
  ssize_t inject_writedata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                           fi_addr_t dest, uint64_t addr, uint64_t key) {
    return injector().post(link, plain(kInjectWrite, len, dest, nullptr, FI_RMA | FI_WRITE), [&] {
      return link.next.rma->injectdata(ep, buf, len, data, dest, addr, key);
    });
  }

  ssize_t atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t dest,
                 uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                 void *context) {
    return injector().post(
        link, plain(kAtomic, count * size_of(datatype), dest, context, kAtomicFlags), [&] {
          return link.next.atomic->write(ep, buf, count, desc, dest, addr, key, datatype, op,
                                         context);
        });
  }
  ssize_t atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, uint64_t flags) {
    return injector().post_msg(link, kAtomic, kAtomicFlags, msg, flags,
                               [&] { return link.next.atomic->writemsg(ep, msg, flags); });
  }
  ssize_t fetch_atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                       void *result, void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key,
                       enum fi_datatype datatype, enum fi_op op, void *context) {
    return injector().post(
        link, plain(kAtomic, count * size_of(datatype), dest, context, FI_ATOMIC | FI_READ), [&] {
          return link.next.atomic->readwrite(ep, buf, count, desc, result, result_desc, dest, addr,
                                             key, datatype, op, context);
        });
  }
  ssize_t fetch_atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, fi_ioc *resultv,
                          void **result_desc, size_t result_count, uint64_t flags) {
    return injector().post_msg(link, kAtomic, FI_ATOMIC | FI_READ, msg, flags, [&] {
      return link.next.atomic->readwritemsg(ep, msg, resultv, result_desc, result_count, flags);
    });
  }
  ssize_t compare_atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                         const void *compare, void *compare_desc, void *result, void *result_desc,
                         fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                         enum fi_op op, void *context) {
    return injector().post(
        link, plain(kAtomic, count * size_of(datatype), dest, context, FI_ATOMIC | FI_READ), [&] {
          return link.next.atomic->compwrite(ep, buf, count, desc, compare, compare_desc, result,
                                             result_desc, dest, addr, key, datatype, op, context);
        });
  }
  ssize_t compare_atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, const fi_ioc *comparev,
                            void **compare_desc, size_t compare_count, fi_ioc *resultv,
                            void **result_desc, size_t result_count, uint64_t flags) {
    return injector().post_msg(link, kAtomic, FI_ATOMIC | FI_READ, msg, flags, [&] {
      return link.next.atomic->compwritemsg(ep, msg, comparev, compare_desc, compare_count, resultv,
                                            result_desc, result_count, flags);
    });
  }

 private:
  static constexpr uint64_t kAtomicFlags = FI_ATOMIC | FI_WRITE;

  Injector &injector() { return static_cast<Hook *>(this)->injector(); }
};

}  // namespace weft::fault

#endif
