// SPDX-License-Identifier: BSD-2-Clause
// TransferOps: the calls that start a transfer: messages, tagged messages, RMA and atomics.
//
// Example:
//    class MyHook : public Recorder, public TransferOps<MyHook> {
//     public:
//      using ObjectState = Seen;
//      using Recorder::Recorder;
//    };
//
// Each member calls the next table and lets the Recorder write what came of it (recorder.h). The
// class is a template so that both compile into one function: recording a call takes a few
// nanoseconds. Not for completions: queue_ops.h.
#ifndef WEFT_PLUGINS_HOOK_TRACE_TRANSFER_OPS_H
#define WEFT_PLUGINS_HOOK_TRACE_TRANSFER_OPS_H

#include <weft/sdk/transfers/atomic.h>

#include <type_traits>

#include "plugins/hook-trace/recorder.h"

namespace weft::trace {

inline uint64_t size_of(enum fi_datatype type) {
  return sdk::datatype_size(sdk::raw(type));
}
// Sizes and addresses are read from lists only if the provider accepted the call (`good`): a
// program may pass anything, and it is the provider's part to refuse it.
inline uint64_t bytes_in(bool good, const struct iovec *iov, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; good && iov != nullptr && i < count; ++i) bytes += iov[i].iov_len;
  return bytes;
}
inline uint64_t elements(bool good, const struct fi_ioc *iov, size_t count) {
  return good && iov != nullptr ? sdk::ioc_count(iov, count) : 0;
}
template <class Message>
uint64_t bytes_of(bool good, const Message &msg) {
  if constexpr (std::is_same_v<Message, struct fi_msg_atomic>) {
    return good && msg.rma_iov != nullptr
               ? sdk::ioc_count(msg.rma_iov, msg.rma_iov_count) * size_of(msg.datatype)
               : 0;
  } else {
    return bytes_in(good, msg.msg_iov, msg.iov_count);
  }
}
// The remote address of a message struct of RMA or atomics.
template <class Message>
uint64_t target(bool good, const Message *msg) {
  return good && msg != nullptr && msg->rma_iov != nullptr && msg->rma_iov_count > 0
             ? msg->rma_iov[0].addr
             : 0;
}
template <class Message>
Post described(bool good, const Message *msg, uint64_t flags, uint64_t tag) {
  if (msg == nullptr) return {.flags = flags};
  return {.size = bytes_of(good, *msg),
          .peer = msg->addr,
          .tag = tag,
          .flags = flags,
          .context = msg->context};
}

// `what` is evaluated after the call has returned, with `good` saying whether it was accepted.
#define WEFT_POST(op, table, call, what)                              \
  return static_cast<Hook *>(this)->post(                             \
      link, Op::op, [&]([[maybe_unused]] bool good) { return what; }, \
      [&] { return link.next.table->call; })
#define WEFT_MSG(op, table, call, ...) WEFT_POST(op, table, call, (Post{__VA_ARGS__}))

template <class Hook>
class TransferOps {
 public:
  ssize_t send(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
               fi_addr_t dest, void *context) {
    WEFT_MSG(send, msg, send(ep, buf, len, desc, dest, context), len, dest, 0, 0, context);
  }
  ssize_t sendv(const weft_hook_link &link, fid_ep *ep, const struct iovec *iov, void **desc,
                size_t count, fi_addr_t dest, void *context) {
    WEFT_MSG(sendv, msg, sendv(ep, iov, desc, count, dest, context), bytes_in(good, iov, count),
             dest, 0, 0, context);
  }
  ssize_t sendmsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg *msg,
                  uint64_t flags) {
    WEFT_POST(sendmsg, msg, sendmsg(ep, msg, flags),
              described(good, msg, flags, msg != nullptr ? msg->data : 0));
  }
  ssize_t senddata(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
                   uint64_t data, fi_addr_t dest, void *context) {
    WEFT_MSG(senddata, msg, senddata(ep, buf, len, desc, data, dest, context), len, dest, data,
             FI_REMOTE_CQ_DATA, context);
  }
  ssize_t inject(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len,
                 fi_addr_t dest) {
    WEFT_MSG(inject, msg, inject(ep, buf, len, dest), len, dest);
  }
  ssize_t injectdata(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len,
                     uint64_t data, fi_addr_t dest) {
    WEFT_MSG(injectdata, msg, injectdata(ep, buf, len, data, dest), len, dest, data,
             FI_REMOTE_CQ_DATA);
  }
  ssize_t recv(const weft_hook_link &link, fid_ep *ep, void *buf, size_t len, void *desc,
               fi_addr_t src, void *context) {
    WEFT_MSG(recv, msg, recv(ep, buf, len, desc, src, context), len, src, 0, 0, context);
  }
  ssize_t recvv(const weft_hook_link &link, fid_ep *ep, const struct iovec *iov, void **desc,
                size_t count, fi_addr_t src, void *context) {
    WEFT_MSG(recvv, msg, recvv(ep, iov, desc, count, src, context), bytes_in(good, iov, count), src,
             0, 0, context);
  }
  ssize_t recvmsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg *msg,
                  uint64_t flags) {
    WEFT_POST(recvmsg, msg, recvmsg(ep, msg, flags), described(good, msg, flags, 0));
  }

  ssize_t tsend(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
                fi_addr_t dest, uint64_t tag, void *context) {
    WEFT_MSG(tsend, tagged, send(ep, buf, len, desc, dest, tag, context), len, dest, tag, 0,
             context);
  }
  ssize_t tsendv(const weft_hook_link &link, fid_ep *ep, const struct iovec *iov, void **desc,
                 size_t count, fi_addr_t dest, uint64_t tag, void *context) {
    WEFT_MSG(tsendv, tagged, sendv(ep, iov, desc, count, dest, tag, context),
             bytes_in(good, iov, count), dest, tag, 0, context);
  }
  ssize_t tsendmsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg_tagged *msg,
                   uint64_t flags) {
    WEFT_POST(tsendmsg, tagged, sendmsg(ep, msg, flags),
              described(good, msg, flags, msg != nullptr ? msg->tag : 0));
  }
  ssize_t tsenddata(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
                    uint64_t data, fi_addr_t dest, uint64_t tag, void *context) {
    WEFT_MSG(tsenddata, tagged, senddata(ep, buf, len, desc, data, dest, tag, context), len, dest,
             tag, FI_REMOTE_CQ_DATA, context);
  }
  ssize_t tinject(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len,
                  fi_addr_t dest, uint64_t tag) {
    WEFT_MSG(tinject, tagged, inject(ep, buf, len, dest, tag), len, dest, tag);
  }
  ssize_t tinjectdata(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len,
                      uint64_t data, fi_addr_t dest, uint64_t tag) {
    WEFT_MSG(tinjectdata, tagged, injectdata(ep, buf, len, data, dest, tag), len, dest, tag,
             FI_REMOTE_CQ_DATA);
  }
  ssize_t trecv(const weft_hook_link &link, fid_ep *ep, void *buf, size_t len, void *desc,
                fi_addr_t src, uint64_t tag, uint64_t ignore, void *context) {
    WEFT_MSG(trecv, tagged, recv(ep, buf, len, desc, src, tag, ignore, context), len, src, tag, 0,
             context);
  }
  ssize_t trecvv(const weft_hook_link &link, fid_ep *ep, const struct iovec *iov, void **desc,
                 size_t count, fi_addr_t src, uint64_t tag, uint64_t ignore, void *context) {
    WEFT_MSG(trecvv, tagged, recvv(ep, iov, desc, count, src, tag, ignore, context),
             bytes_in(good, iov, count), src, tag, 0, context);
  }
  ssize_t trecvmsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg_tagged *msg,
                   uint64_t flags) {
    WEFT_POST(trecvmsg, tagged, recvmsg(ep, msg, flags),
              described(good, msg, flags, msg != nullptr ? msg->tag : 0));
  }

  ssize_t read(const weft_hook_link &link, fid_ep *ep, void *buf, size_t len, void *desc,
               fi_addr_t src, uint64_t addr, uint64_t key, void *context) {
    WEFT_MSG(read, rma, read(ep, buf, len, desc, src, addr, key, context), len, src, addr, 0,
             context);
  }
  ssize_t readv(const weft_hook_link &link, fid_ep *ep, const struct iovec *iov, void **desc,
                size_t count, fi_addr_t src, uint64_t addr, uint64_t key, void *context) {
    WEFT_MSG(readv, rma, readv(ep, iov, desc, count, src, addr, key, context),
             bytes_in(good, iov, count), src, addr, 0, context);
  }
  ssize_t readmsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg_rma *msg,
                  uint64_t flags) {
    WEFT_POST(readmsg, rma, readmsg(ep, msg, flags),
              described(good, msg, flags, target(good, msg)));
  }
  ssize_t write(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
                fi_addr_t dest, uint64_t addr, uint64_t key, void *context) {
    WEFT_MSG(write, rma, write(ep, buf, len, desc, dest, addr, key, context), len, dest, addr, 0,
             context);
  }
  ssize_t writev(const weft_hook_link &link, fid_ep *ep, const struct iovec *iov, void **desc,
                 size_t count, fi_addr_t dest, uint64_t addr, uint64_t key, void *context) {
    WEFT_MSG(writev, rma, writev(ep, iov, desc, count, dest, addr, key, context),
             bytes_in(good, iov, count), dest, addr, 0, context);
  }
  ssize_t writemsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg_rma *msg,
                   uint64_t flags) {
    WEFT_POST(writemsg, rma, writemsg(ep, msg, flags),
              described(good, msg, flags, target(good, msg)));
  }
  ssize_t writedata(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len, void *desc,
                    uint64_t data, fi_addr_t dest, uint64_t addr, uint64_t key, void *context) {
    WEFT_MSG(writedata, rma, writedata(ep, buf, len, desc, data, dest, addr, key, context), len,
             dest, addr, FI_REMOTE_CQ_DATA, context);
  }
  ssize_t inject_write(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len,
                       fi_addr_t dest, uint64_t addr, uint64_t key) {
    WEFT_MSG(inject_write, rma, inject(ep, buf, len, dest, addr, key), len, dest, addr);
  }
  ssize_t inject_writedata(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t len,
                           uint64_t data, fi_addr_t dest, uint64_t addr, uint64_t key) {
    WEFT_MSG(inject_writedata, rma, injectdata(ep, buf, len, data, dest, addr, key), len, dest,
             addr, FI_REMOTE_CQ_DATA);
  }

  ssize_t atomic(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t count, void *desc,
                 fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type, enum fi_op op,
                 void *context) {
    WEFT_MSG(atomic, atomic, write(ep, buf, count, desc, dest, addr, key, type, op, context),
             count * size_of(type), dest, addr, 0, context);
  }
  ssize_t atomicv(const weft_hook_link &link, fid_ep *ep, const struct fi_ioc *iov, void **desc,
                  size_t count, fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
                  enum fi_op op, void *context) {
    WEFT_MSG(atomicv, atomic, writev(ep, iov, desc, count, dest, addr, key, type, op, context),
             elements(good, iov, count) * size_of(type), dest, addr, 0, context);
  }
  ssize_t atomicmsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg_atomic *msg,
                    uint64_t flags) {
    WEFT_POST(atomicmsg, atomic, writemsg(ep, msg, flags),
              described(good, msg, flags, target(good, msg)));
  }
  ssize_t inject_atomic(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t count,
                        fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype type,
                        enum fi_op op) {
    WEFT_MSG(inject_atomic, atomic, inject(ep, buf, count, dest, addr, key, type, op),
             count * size_of(type), dest, addr);
  }
  ssize_t fetch_atomic(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t count,
                       void *desc, void *result, void *result_desc, fi_addr_t dest, uint64_t addr,
                       uint64_t key, enum fi_datatype type, enum fi_op op, void *context) {
    WEFT_MSG(
        fetch_atomic, atomic,
        readwrite(ep, buf, count, desc, result, result_desc, dest, addr, key, type, op, context),
        count * size_of(type), dest, addr, 0, context);
  }
  ssize_t fetch_atomicv(const weft_hook_link &link, fid_ep *ep, const struct fi_ioc *iov,
                        void **desc, size_t count, struct fi_ioc *resultv, void **result_desc,
                        size_t result_count, fi_addr_t dest, uint64_t addr, uint64_t key,
                        enum fi_datatype type, enum fi_op op, void *context) {
    WEFT_MSG(fetch_atomicv, atomic,
             readwritev(ep, iov, desc, count, resultv, result_desc, result_count, dest, addr, key,
                        type, op, context),
             elements(good, resultv, result_count) * size_of(type), dest, addr, 0, context);
  }
  ssize_t fetch_atomicmsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg_atomic *msg,
                          struct fi_ioc *resultv, void **result_desc, size_t result_count,
                          uint64_t flags) {
    WEFT_POST(fetch_atomicmsg, atomic,
              readwritemsg(ep, msg, resultv, result_desc, result_count, flags),
              described(good, msg, flags, target(good, msg)));
  }
  ssize_t compare_atomic(const weft_hook_link &link, fid_ep *ep, const void *buf, size_t count,
                         void *desc, const void *compare, void *compare_desc, void *result,
                         void *result_desc, fi_addr_t dest, uint64_t addr, uint64_t key,
                         enum fi_datatype type, enum fi_op op, void *context) {
    WEFT_MSG(compare_atomic, atomic,
             compwrite(ep, buf, count, desc, compare, compare_desc, result, result_desc, dest, addr,
                       key, type, op, context),
             count * size_of(type), dest, addr, 0, context);
  }
  ssize_t compare_atomicv(const weft_hook_link &link, fid_ep *ep, const struct fi_ioc *iov,
                          void **desc, size_t count, const struct fi_ioc *comparev,
                          void **compare_desc, size_t compare_count, struct fi_ioc *resultv,
                          void **result_desc, size_t result_count, fi_addr_t dest, uint64_t addr,
                          uint64_t key, enum fi_datatype type, enum fi_op op, void *context) {
    WEFT_MSG(compare_atomicv, atomic,
             compwritev(ep, iov, desc, count, comparev, compare_desc, compare_count, resultv,
                        result_desc, result_count, dest, addr, key, type, op, context),
             elements(good, iov, count) * size_of(type), dest, addr, 0, context);
  }
  ssize_t compare_atomicmsg(const weft_hook_link &link, fid_ep *ep, const struct fi_msg_atomic *msg,
                            const struct fi_ioc *comparev, void **compare_desc,
                            size_t compare_count, struct fi_ioc *resultv, void **result_desc,
                            size_t result_count, uint64_t flags) {
    WEFT_POST(compare_atomicmsg, atomic,
              compwritemsg(ep, msg, comparev, compare_desc, compare_count, resultv, result_desc,
                           result_count, flags),
              described(good, msg, flags, target(good, msg)));
  }
};

#undef WEFT_MSG
#undef WEFT_POST

}  // namespace weft::trace

#endif
