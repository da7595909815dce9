// SPDX-License-Identifier: BSD-2-Clause
// OperationOps: the calls that post an operation: messages, RMA, atomics and collectives.
//
// Example:
//    class MyHook : public OperationOps<MyHook> {
//     public:
//      using ObjectState = State;  // of endpoints: EndpointState
//    };
//
// Each member counts the call on its endpoint (counting.h) and passes it to the next table. The
// class is a template of the hook so that its members compile into the hook's op table. Not for
// completion queues or for the life of objects: profile.cc.
#ifndef WEFT_PLUGINS_HOOK_PROFILE_OPERATION_OPS_H
#define WEFT_PLUGINS_HOOK_PROFILE_OPERATION_OPS_H

#include <weft/sdk/transfers/atomic.h>

#include <type_traits>

#include "plugins/hook-profile/state.h"

namespace weft::profile {

template <class Entry>
size_t bytes_in(const Entry *entries, size_t count, size_t unit) {
  size_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Entry, iovec>) {
      sum += entries[i].iov_len;
    } else {
      sum += entries[i].count * unit;
    }
  }
  return sum;
}
inline size_t bytes_in(const iovec *entries, size_t count) {
  return bytes_in(entries, count, 1);
}
inline size_t size_of(const enum fi_datatype &datatype) {
  return sdk::datatype_size(sdk::raw(datatype));
}

template <class Hook>
class OperationOps {
 public:
  // ---- messages ----

  ssize_t recv(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
               void *context) {
    return post(link, kRecv, src, context, len, link.next.msg->recv, ep, buf, len, desc, src,
                context);
  }
  ssize_t recvv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                void *context) {
    return post(
        link, kRecv, src, context, [&] { return bytes_in(iov, count); }, link.next.msg->recvv, ep,
        iov, desc, count, src, context);
  }
  ssize_t recvmsg(Link link, fid_ep *ep, const fi_msg *msg, uint64_t flags) {
    return post_msg(link, kRecv, link.next.msg->recvmsg, ep, msg, flags);
  }
  ssize_t send(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
               void *context) {
    return post(link, kSend, dest, context, len, link.next.msg->send, ep, buf, len, desc, dest,
                context);
  }
  ssize_t sendv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                void *context) {
    return post(
        link, kSend, dest, context, [&] { return bytes_in(iov, count); }, link.next.msg->sendv, ep,
        iov, desc, count, dest, context);
  }
  ssize_t sendmsg(Link link, fid_ep *ep, const fi_msg *msg, uint64_t flags) {
    return post_msg(link, kSend, link.next.msg->sendmsg, ep, msg, flags);
  }
  ssize_t inject(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest) {
    return post(link, kInject, dest, nullptr, len, link.next.msg->inject, ep, buf, len, dest);
  }
  ssize_t senddata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                   fi_addr_t dest, void *context) {
    return post(link, kSend, dest, context, len, link.next.msg->senddata, ep, buf, len, desc, data,
                dest, context);
  }
  ssize_t injectdata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                     fi_addr_t dest) {
    return post(link, kInject, dest, nullptr, len, link.next.msg->injectdata, ep, buf, len, data,
                dest);
  }

  // ---- tagged messages ----

  ssize_t trecv(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
                uint64_t tag, uint64_t ignore, void *context) {
    return post(link, kTrecv, src, context, len, link.next.tagged->recv, ep, buf, len, desc, src,
                tag, ignore, context);
  }
  ssize_t trecvv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                 uint64_t tag, uint64_t ignore, void *context) {
    return post(
        link, kTrecv, src, context, [&] { return bytes_in(iov, count); }, link.next.tagged->recvv,
        ep, iov, desc, count, src, tag, ignore, context);
  }
  ssize_t trecvmsg(Link link, fid_ep *ep, const fi_msg_tagged *msg, uint64_t flags) {
    return post_msg(link, kTrecv, link.next.tagged->recvmsg, ep, msg, flags);
  }
  ssize_t tsend(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
                uint64_t tag, void *context) {
    return post(link, kTsend, dest, context, len, link.next.tagged->send, ep, buf, len, desc, dest,
                tag, context);
  }
  ssize_t tsendv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                 uint64_t tag, void *context) {
    return post(
        link, kTsend, dest, context, [&] { return bytes_in(iov, count); }, link.next.tagged->sendv,
        ep, iov, desc, count, dest, tag, context);
  }
  ssize_t tsendmsg(Link link, fid_ep *ep, const fi_msg_tagged *msg, uint64_t flags) {
    return post_msg(link, kTsend, link.next.tagged->sendmsg, ep, msg, flags);
  }
  ssize_t tinject(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest,
                  uint64_t tag) {
    return post(link, kTinject, dest, nullptr, len, link.next.tagged->inject, ep, buf, len, dest,
                tag);
  }
  ssize_t tsenddata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                    fi_addr_t dest, uint64_t tag, void *context) {
    return post(link, kTsend, dest, context, len, link.next.tagged->senddata, ep, buf, len, desc,
                data, dest, tag, context);
  }
  ssize_t tinjectdata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                      fi_addr_t dest, uint64_t tag) {
    return post(link, kTinject, dest, nullptr, len, link.next.tagged->injectdata, ep, buf, len,
                data, dest, tag);
  }

  // ---- RMA ----

  ssize_t read(Link link, fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src,
               uint64_t addr, uint64_t key, void *context) {
    return post(link, kRead, src, context, len, link.next.rma->read, ep, buf, len, desc, src, addr,
                key, context);
  }
  ssize_t readv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t src,
                uint64_t addr, uint64_t key, void *context) {
    return post(
        link, kRead, src, context, [&] { return bytes_in(iov, count); }, link.next.rma->readv, ep,
        iov, desc, count, src, addr, key, context);
  }
  ssize_t readmsg(Link link, fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
    return post_msg(link, kRead, link.next.rma->readmsg, ep, msg, flags);
  }
  ssize_t write(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
                uint64_t addr, uint64_t key, void *context) {
    return post(link, kWrite, dest, context, len, link.next.rma->write, ep, buf, len, desc, dest,
                addr, key, context);
  }
  ssize_t writev(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                 uint64_t addr, uint64_t key, void *context) {
    return post(
        link, kWrite, dest, context, [&] { return bytes_in(iov, count); }, link.next.rma->writev,
        ep, iov, desc, count, dest, addr, key, context);
  }
  ssize_t writemsg(Link link, fid_ep *ep, const fi_msg_rma *msg, uint64_t flags) {
    return post_msg(link, kWrite, link.next.rma->writemsg, ep, msg, flags);
  }
  ssize_t inject_write(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest,
                       uint64_t addr, uint64_t key) {
    return post(link, kInjectWrite, dest, nullptr, len, link.next.rma->inject, ep, buf, len, dest,
                addr, key);
  }
  ssize_t writedata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                    fi_addr_t dest, uint64_t addr, uint64_t key, void *context) {
    return post(link, kWrite, dest, context, len, link.next.rma->writedata, ep, buf, len, desc,
                data, dest, addr, key, context);
  }
  ssize_t inject_writedata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                           fi_addr_t dest, uint64_t addr, uint64_t key) {
    return post(link, kInjectWrite, dest, nullptr, len, link.next.rma->injectdata, ep, buf, len,
                data, dest, addr, key);
  }

  // ---- atomics ----

  ssize_t atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, fi_addr_t dest,
                 uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                 void *context) {
    return post(
        link, kAtomic, dest, context, [&] { return count * size_of(datatype); },
        link.next.atomic->write, ep, buf, count, desc, dest, addr, key, datatype, op, context);
  }
  ssize_t atomicv(Link link, fid_ep *ep, const fi_ioc *iov, void **desc, size_t count,
                  fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                  enum fi_op op, void *context) {
    return post(
        link, kAtomic, dest, context, [&] { return bytes_in(iov, count, size_of(datatype)); },
        link.next.atomic->writev, ep, iov, desc, count, dest, addr, key, datatype, op, context);
  }
  ssize_t atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, uint64_t flags) {
    return post_msg(link, kAtomic, link.next.atomic->writemsg, ep, msg, flags);
  }
  ssize_t inject_atomic(Link link, fid_ep *ep, const void *buf, size_t count, fi_addr_t dest,
                        uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op) {
    return post(
        link, kInjectAtomic, dest, nullptr, [&] { return count * size_of(datatype); },
        link.next.atomic->inject, ep, buf, count, dest, addr, key, datatype, op);
  }
  ssize_t fetch_atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                       void *result, void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key,
                       enum fi_datatype datatype, enum fi_op op, void *context) {
    return post(
        link, kFetchAtomic, dest, context, [&] { return count * size_of(datatype); },
        link.next.atomic->readwrite, ep, buf, count, desc, result, result_desc, dest, addr, key,
        datatype, op, context);
  }
  ssize_t fetch_atomicv(Link link, fid_ep *ep, const fi_ioc *iov, void **desc, size_t count,
                        fi_ioc *resultv, void **result_desc, size_t result_count, fi_addr_t dest,
                        uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                        void *context) {
    return post(
        link, kFetchAtomic, dest, context,
        [&] { return bytes_in(resultv, result_count, size_of(datatype)); },
        link.next.atomic->readwritev, ep, iov, desc, count, resultv, result_desc, result_count,
        dest, addr, key, datatype, op, context);
  }
  ssize_t fetch_atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, fi_ioc *resultv,
                          void **result_desc, size_t result_count, uint64_t flags) {
    return post_msg(link, kFetchAtomic, link.next.atomic->readwritemsg, ep, msg, resultv,
                    result_desc, result_count, flags);
  }
  ssize_t compare_atomic(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                         const void *compare, void *compare_desc, void *result, void *result_desc,
                         fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                         enum fi_op op, void *context) {
    return post(
        link, kCompareAtomic, dest, context, [&] { return count * size_of(datatype); },
        link.next.atomic->compwrite, ep, buf, count, desc, compare, compare_desc, result,
        result_desc, dest, addr, key, datatype, op, context);
  }
  ssize_t compare_atomicv(Link link, fid_ep *ep, const fi_ioc *iov, void **desc, size_t count,
                          const fi_ioc *comparev, void **compare_desc, size_t compare_count,
                          fi_ioc *resultv, void **result_desc, size_t result_count, fi_addr_t dest,
                          uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                          void *context) {
    return post(
        link, kCompareAtomic, dest, context,
        [&] { return bytes_in(resultv, result_count, size_of(datatype)); },
        link.next.atomic->compwritev, ep, iov, desc, count, comparev, compare_desc, compare_count,
        resultv, result_desc, result_count, dest, addr, key, datatype, op, context);
  }
  ssize_t compare_atomicmsg(Link link, fid_ep *ep, const fi_msg_atomic *msg, const fi_ioc *comparev,
                            void **compare_desc, size_t compare_count, fi_ioc *resultv,
                            void **result_desc, size_t result_count, uint64_t flags) {
    return post_msg(link, kCompareAtomic, link.next.atomic->compwritemsg, ep, msg, comparev,
                    compare_desc, compare_count, resultv, result_desc, result_count, flags);
  }

  // ---- collectives: the peer is all members ----

  ssize_t barrier(Link link, fid_ep *ep, fi_addr_t coll, void *context) {
    return collective(link, 0, FI_UINT8, context, link.next.collective->barrier, ep, coll, context);
  }
  ssize_t barrier2(Link link, fid_ep *ep, fi_addr_t coll, uint64_t flags, void *context) {
    return collective(link, 0, FI_UINT8, context, link.next.collective->barrier2, ep, coll, flags,
                      context);
  }
  ssize_t broadcast(Link link, fid_ep *ep, void *buf, size_t count, void *desc, fi_addr_t coll,
                    fi_addr_t root, enum fi_datatype datatype, uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->broadcast, ep, buf,
                      count, desc, coll, root, datatype, flags, context);
  }
  ssize_t alltoall(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                   void *result_desc, fi_addr_t coll, enum fi_datatype datatype, uint64_t flags,
                   void *context) {
    return collective(link, count, datatype, context, link.next.collective->alltoall, ep, buf,
                      count, desc, result, result_desc, coll, datatype, flags, context);
  }
  ssize_t allreduce(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                    void *result_desc, fi_addr_t coll, enum fi_datatype datatype, enum fi_op op,
                    uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->allreduce, ep, buf,
                      count, desc, result, result_desc, coll, datatype, op, flags, context);
  }
  ssize_t allgather(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                    void *result_desc, fi_addr_t coll, enum fi_datatype datatype, uint64_t flags,
                    void *context) {
    return collective(link, count, datatype, context, link.next.collective->allgather, ep, buf,
                      count, desc, result, result_desc, coll, datatype, flags, context);
  }
  ssize_t reduce_scatter(Link link, fid_ep *ep, const void *buf, size_t count, void *desc,
                         void *result, void *result_desc, fi_addr_t coll, enum fi_datatype datatype,
                         enum fi_op op, uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->reduce_scatter, ep, buf,
                      count, desc, result, result_desc, coll, datatype, op, flags, context);
  }
  ssize_t reduce(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                 void *result_desc, fi_addr_t coll, fi_addr_t root, enum fi_datatype datatype,
                 enum fi_op op, uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->reduce, ep, buf, count,
                      desc, result, result_desc, coll, root, datatype, op, flags, context);
  }
  ssize_t scatter(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                  void *result_desc, fi_addr_t coll, fi_addr_t root, enum fi_datatype datatype,
                  uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->scatter, ep, buf, count,
                      desc, result, result_desc, coll, root, datatype, flags, context);
  }
  ssize_t gather(Link link, fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                 void *result_desc, fi_addr_t coll, fi_addr_t root, enum fi_datatype datatype,
                 uint64_t flags, void *context) {
    return collective(link, count, datatype, context, link.next.collective->gather, ep, buf, count,
                      desc, result, result_desc, coll, root, datatype, flags, context);
  }

 private:
  template <class Bytes, class Function, class... Args>
  static ssize_t post(Link link, Operation operation, fi_addr_t peer, void *context, Bytes bytes,
                      Function next, Args... args) {
    return endpoint_of(link).count(
        operation, peer, context, [&] { return next(args...); },
        [&] {
          if constexpr (std::is_invocable_v<Bytes>) {
            return static_cast<uint64_t>(bytes());
          } else {
            return static_cast<uint64_t>(bytes);
          }
        });
  }
  template <class Function, class Message, class... Args>
  static ssize_t post_msg(Link link, Operation operation, Function next, fid_ep *ep,
                          const Message *msg, Args... args) {
    if (msg == nullptr) return next(ep, msg, args...);
    return post(
        link, operation, msg->addr, msg->context,
        [&] {
          if constexpr (std::is_same_v<Message, fi_msg_atomic>) {
            return bytes_in(msg->msg_iov, msg->iov_count, size_of(msg->datatype));
          } else {
            return bytes_in(msg->msg_iov, msg->iov_count);
          }
        },
        next, ep, msg, args...);
  }
  template <class Function, class... Args>
  static ssize_t collective(Link link, size_t count, enum fi_datatype datatype, void *context,
                            Function next, Args... args) {
    return post(
        link, kCollective, FI_ADDR_UNSPEC, context, [&] { return count * size_of(datatype); }, next,
        args...);
  }
};

}  // namespace weft::profile

#endif
