// SPDX-License-Identifier: BSD-2-Clause
// MessageOps: the calls that send messages, plain and tagged.
//
// Example:
//    class MyHook : public MessageOps<MyHook> {
//     public:
//      explicit MyHook(Injector &injector) : injector_(injector) {}
//      Injector &injector() { return injector_; }
//
//     private:
//      Injector &injector_;
//    };
//
// Each member passes the call to the Injector, which decides what becomes of it (injector.h).
// Not for operations that cannot be copied: post_ops.h.
#ifndef WEFT_PLUGINS_HOOK_FAULT_MESSAGE_OPS_H
#define WEFT_PLUGINS_HOOK_FAULT_MESSAGE_OPS_H

#include "plugins/hook-fault/injector.h"

namespace weft::fault {

template <class Hook>
class MessageOps {
 public:
  ssize_t send(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
               void *context) {
    const auto next = link.next.msg->send;
    const iovec iov{const_cast<void *>(buf), len};
    return injector().transmit(
        link, plain(kSend, len, dest, context, FI_MSG), &iov, 1, desc != nullptr,
        [&] { return next(ep, buf, len, desc, dest, context); },
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, dest, c); });
  }
  ssize_t sendv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                void *context) {
    const auto go_on = [&] { return link.next.msg->sendv(ep, iov, desc, count, dest, context); };
    if (!is_readable(iov, count)) return go_on();
    const auto next = link.next.msg->send;
    return injector().transmit(
        link, plain(kSend, bytes_in(iov, count), dest, context, FI_MSG), iov, count,
        has_descriptors(desc, count), go_on,
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, dest, c); });
  }
  ssize_t sendmsg(Link link, fid_ep *ep, const fi_msg *msg, uint64_t flags) {
    const auto go_on = [&] { return link.next.msg->sendmsg(ep, msg, flags); };
    if (msg == nullptr || !is_readable(msg->msg_iov, msg->iov_count)) return go_on();
    const auto next = link.next.msg->sendmsg;
    return injector().transmit(link, flagged(kSend, *msg, flags, FI_MSG), msg->msg_iov,
                               msg->iov_count, has_descriptors(msg->desc, msg->iov_count), go_on,
                               [=, copy = *msg](const void *b, size_t l, void *c) {
                                 const iovec iov{const_cast<void *>(b), l};
                                 fi_msg again = copy;
                                 again.msg_iov = &iov;
                                 again.iov_count = 1;
                                 again.desc = nullptr;
                                 again.context = c;
                                 return next(ep, &again, flags);
                               });
  }
  ssize_t senddata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                   fi_addr_t dest, void *context) {
    const auto next = link.next.msg->senddata;
    const iovec iov{const_cast<void *>(buf), len};
    return injector().transmit(
        link, plain(kSend, len, dest, context, FI_MSG), &iov, 1, desc != nullptr,
        [&] { return next(ep, buf, len, desc, data, dest, context); },
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, data, dest, c); });
  }
  ssize_t inject(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest) {
    const auto next = link.next.msg->inject;
    const iovec iov{const_cast<void *>(buf), len};
    return injector().transmit(
        link, plain(kInject, len, dest, nullptr, FI_MSG), &iov, 1, false,
        [&] { return next(ep, buf, len, dest); },
        [=](const void *b, size_t l, void *) { return next(ep, b, l, dest); });
  }
  ssize_t injectdata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                     fi_addr_t dest) {
    const auto next = link.next.msg->injectdata;
    const iovec iov{const_cast<void *>(buf), len};
    return injector().transmit(
        link, plain(kInject, len, dest, nullptr, FI_MSG), &iov, 1, false,
        [&] { return next(ep, buf, len, data, dest); },
        [=](const void *b, size_t l, void *) { return next(ep, b, l, data, dest); });
  }
  ssize_t tsend(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest,
                uint64_t tag, void *context) {
    const auto next = link.next.tagged->send;
    const iovec iov{const_cast<void *>(buf), len};
    return injector().transmit(
        link, plain(kTsend, len, dest, context, FI_TAGGED, tag), &iov, 1, desc != nullptr,
        [&] { return next(ep, buf, len, desc, dest, tag, context); },
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, dest, tag, c); });
  }
  ssize_t tsendv(Link link, fid_ep *ep, const iovec *iov, void **desc, size_t count, fi_addr_t dest,
                 uint64_t tag, void *context) {
    const auto go_on = [&] {
      return link.next.tagged->sendv(ep, iov, desc, count, dest, tag, context);
    };
    if (!is_readable(iov, count)) return go_on();
    const auto next = link.next.tagged->send;
    return injector().transmit(
        link, plain(kTsend, bytes_in(iov, count), dest, context, FI_TAGGED, tag), iov, count,
        has_descriptors(desc, count), go_on,
        [=](const void *b, size_t l, void *c) { return next(ep, b, l, nullptr, dest, tag, c); });
  }
  ssize_t tsendmsg(Link link, fid_ep *ep, const fi_msg_tagged *msg, uint64_t flags) {
    const auto go_on = [&] { return link.next.tagged->sendmsg(ep, msg, flags); };
    if (msg == nullptr || !is_readable(msg->msg_iov, msg->iov_count)) return go_on();
    const auto next = link.next.tagged->sendmsg;
    Attempt attempt = flagged(kTsend, *msg, flags, FI_TAGGED);
    attempt.tag = msg->tag;
    return injector().transmit(link, attempt, msg->msg_iov, msg->iov_count,
                               has_descriptors(msg->desc, msg->iov_count), go_on,
                               [=, copy = *msg](const void *b, size_t l, void *c) {
                                 const iovec iov{const_cast<void *>(b), l};
                                 fi_msg_tagged again = copy;
                                 again.msg_iov = &iov;
                                 again.iov_count = 1;
                                 again.desc = nullptr;
                                 again.context = c;
                                 return next(ep, &again, flags);
                               });
  }
  ssize_t tsenddata(Link link, fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                    fi_addr_t dest, uint64_t tag, void *context) {
    const auto next = link.next.tagged->senddata;
    const iovec iov{const_cast<void *>(buf), len};
    return injector().transmit(
        link, plain(kTsend, len, dest, context, FI_TAGGED, tag), &iov, 1, desc != nullptr,
        [&] { return next(ep, buf, len, desc, data, dest, tag, context); },
        [=](const void *b, size_t l, void *c) {
          return next(ep, b, l, nullptr, data, dest, tag, c);
        });
  }
  ssize_t tinject(Link link, fid_ep *ep, const void *buf, size_t len, fi_addr_t dest,
                  uint64_t tag) {
    const auto next = link.next.tagged->inject;
    const iovec iov{const_cast<void *>(buf), len};
    return injector().transmit(
        link, plain(kTinject, len, dest, nullptr, FI_TAGGED, tag), &iov, 1, false,
        [&] { return next(ep, buf, len, dest, tag); },
        [=](const void *b, size_t l, void *) { return next(ep, b, l, dest, tag); });
  }
  ssize_t tinjectdata(Link link, fid_ep *ep, const void *buf, size_t len, uint64_t data,
                      fi_addr_t dest, uint64_t tag) {
    const auto next = link.next.tagged->injectdata;
    const iovec iov{const_cast<void *>(buf), len};
    return injector().transmit(
        link, plain(kTinject, len, dest, nullptr, FI_TAGGED, tag), &iov, 1, false,
        [&] { return next(ep, buf, len, data, dest, tag); },
        [=](const void *b, size_t l, void *) { return next(ep, b, l, data, dest, tag); });
  }

 private:
  Injector &injector() { return static_cast<Hook *>(this)->injector(); }
};

}  // namespace weft::fault

#endif
