// SPDX-License-Identifier: BSD-2-Clause
// ObjectOps: the life of objects: opened, bound, connected, closed; memory regions and vectors.
//
// Example:
//    class MyHook : public Recorder, public ObjectOps<MyHook> {
//     public:
//      using ObjectState = Seen;
//      using Recorder::Recorder;
//    };
//
// Each member calls the next table and lets the Recorder write what came of it (recorder.h). The
// class is a template so that both compile into one function: recording a call takes a few
// nanoseconds. Not for transfers or queues: transfer_ops.h, queue_ops.h.
#ifndef WEFT_PLUGINS_HOOK_TRACE_OBJECT_OPS_H
#define WEFT_PLUGINS_HOOK_TRACE_OBJECT_OPS_H

#include <rdma/fi_cm.h>

#include "plugins/hook-trace/recorder.h"

namespace weft::trace {

template <class Hook>
class ObjectOps {
 public:
  // ---- connections ----

  int connect(const weft_hook_link &link, fid_ep *ep, const void *addr, const void *param,
              size_t paramlen) {
    return self().call(link, Op::connect, {.size = paramlen},
                       [&] { return link.next.cm->connect(ep, addr, param, paramlen); });
  }
  int listen(const weft_hook_link &link, fid_pep *pep) {
    const int rc = self().call(link, Op::listen, {}, [&] { return link.next.cm->listen(pep); });
    if (rc == 0) self().note_addresses(link, &pep->fid);
    return rc;
  }
  int accept(const weft_hook_link &link, fid_ep *ep, const void *param, size_t paramlen) {
    return self().call(link, Op::accept, {.size = paramlen},
                       [&] { return link.next.cm->accept(ep, param, paramlen); });
  }
  int reject(const weft_hook_link &link, fid_pep *pep, fid_t handle, const void *param,
             size_t paramlen) {
    return self().call(link, Op::reject, {.size = paramlen},
                       [&] { return link.next.cm->reject(pep, handle, param, paramlen); });
  }
  int shutdown(const weft_hook_link &link, fid_ep *ep, uint64_t flags) {
    return self().call(link, Op::shutdown, {.flags = flags},
                       [&] { return link.next.cm->shutdown(ep, flags); });
  }
  int setname(const weft_hook_link &link, fid_t fid, void *addr, size_t addrlen) {
    const int rc = self().call(link, Op::setname, {.size = addrlen},
                               [&] { return link.next.cm->setname(fid, addr, addrlen); });
    if (rc == 0) self().note_addresses(link, fid);
    return rc;
  }
  int getname(const weft_hook_link &link, fid_t fid, void *addr, size_t *addrlen) {
    return self().call(link, Op::getname, {},
                       [&] { return link.next.cm->getname(fid, addr, addrlen); });
  }
  int getpeer(const weft_hook_link &link, fid_ep *ep, void *addr, size_t *addrlen) {
    return self().call(link, Op::getpeer, {},
                       [&] { return link.next.cm->getpeer(ep, addr, addrlen); });
  }
  int join(const weft_hook_link &link, fid_ep *ep, const void *addr, uint64_t flags, fid_mc **mc,
           void *context) {
    return self().call(link, Op::join, {.flags = flags, .context = context},
                       [&] { return link.next.cm->join(ep, addr, flags, mc, context); });
  }

  // ---- opening ----

  int domain(const weft_hook_link &link, fid_fabric *fabric, fi_info *wanted, fid_domain **made,
             void *context) {
    return self().open(link, Op::domain, made, context,
                       [&] { return link.next.fabric->domain(fabric, wanted, made, context); });
  }
  int domain2(const weft_hook_link &link, fid_fabric *fabric, fi_info *wanted, fid_domain **made,
              uint64_t flags, void *context) {
    return self().open(link, Op::domain, made, context, [&] {
      return link.next.fabric->domain2(fabric, wanted, made, flags, context);
    });
  }
  int passive_ep(const weft_hook_link &link, fid_fabric *fabric, fi_info *wanted, fid_pep **made,
                 void *context) {
    return self().open(link, Op::passive_ep, made, context,
                       [&] { return link.next.fabric->passive_ep(fabric, wanted, made, context); });
  }
  int eq_open(const weft_hook_link &link, fid_fabric *fabric, fi_eq_attr *attr, fid_eq **made,
              void *context) {
    return self().open(link, Op::eq_open, made, context,
                       [&] { return link.next.fabric->eq_open(fabric, attr, made, context); });
  }
  int wait_open(const weft_hook_link &link, fid_fabric *fabric, fi_wait_attr *attr,
                fid_wait **made) {
    return self().open(link, Op::wait_open, made, nullptr,
                       [&] { return link.next.fabric->wait_open(fabric, attr, made); });
  }
  int trywait(const weft_hook_link &link, fid_fabric *fabric, struct fid **fids, int count) {
    return self().polled(link, Op::trywait,
                         [&] { return link.next.fabric->trywait(fabric, fids, count); });
  }
  int av_open(const weft_hook_link &link, fid_domain *parent, fi_av_attr *attr, fid_av **made,
              void *context) {
    if (attr != nullptr) self().note_user_ids(link, attr->flags);
    return self().open(link, Op::av_open, made, context,
                       [&] { return link.next.domain->av_open(parent, attr, made, context); });
  }
  int cq_open(const weft_hook_link &link, fid_domain *parent, fi_cq_attr *attr, fid_cq **made,
              void *context) {
    const int rc = self().open(link, Op::cq_open, made, context, [&] {
      return link.next.domain->cq_open(parent, attr, made, context);
    });
    if (rc != 0 || attr == nullptr) return rc;
    // Other formats, and the provider's choice (FI_CQ_FORMAT_UNSPEC), show with the first entry.
    const int format = sdk::raw(attr->format);
    if (Seen *seen = self().seen_of(&(*made)->fid); seen != nullptr && entry_size(format) != 0)
      set_format(*seen, format);
    return rc;
  }
  int endpoint(const weft_hook_link &link, fid_domain *parent, fi_info *wanted, fid_ep **made,
               void *context) {
    return self().opened_endpoint(
        self().open(link, Op::endpoint, made, context,
                    [&] { return link.next.domain->endpoint(parent, wanted, made, context); }),
        wanted, made);
  }
  int endpoint2(const weft_hook_link &link, fid_domain *parent, fi_info *wanted, fid_ep **made,
                uint64_t flags, void *context) {
    return self().opened_endpoint(
        self().open(
            link, Op::endpoint, made, context,
            [&] { return link.next.domain->endpoint2(parent, wanted, made, flags, context); }),
        wanted, made);
  }
  int scalable_ep(const weft_hook_link &link, fid_domain *parent, fi_info *wanted, fid_ep **made,
                  void *context) {
    return self().opened_endpoint(
        self().open(link, Op::scalable_ep, made, context,
                    [&] { return link.next.domain->scalable_ep(parent, wanted, made, context); }),
        wanted, made);
  }
  int cntr_open(const weft_hook_link &link, fid_domain *parent, fi_cntr_attr *attr, fid_cntr **made,
                void *context) {
    return self().open(link, Op::cntr_open, made, context,
                       [&] { return link.next.domain->cntr_open(parent, attr, made, context); });
  }
  int poll_open(const weft_hook_link &link, fid_domain *parent, fi_poll_attr *attr,
                fid_poll **made) {
    return self().open(link, Op::poll_open, made, nullptr,
                       [&] { return link.next.domain->poll_open(parent, attr, made); });
  }
  int stx_ctx(const weft_hook_link &link, fid_domain *parent, fi_tx_attr *attr, fid_stx **made,
              void *context) {
    return self().open(link, Op::stx_ctx, made, context,
                       [&] { return link.next.domain->stx_ctx(parent, attr, made, context); });
  }
  int srx_ctx(const weft_hook_link &link, fid_domain *parent, fi_rx_attr *attr, fid_ep **made,
              void *context) {
    return self().open(link, Op::srx_ctx, made, context,
                       [&] { return link.next.domain->srx_ctx(parent, attr, made, context); });
  }
  int tx_ctx(const weft_hook_link &link, fid_ep *sep, int index, fi_tx_attr *attr, fid_ep **made,
             void *context) {
    const int rc = self().open(link, Op::tx_ctx, made, context, [&] {
      return link.next.ep->tx_ctx(sep, index, attr, made, context);
    });
    Seen *seen = rc == 0 ? self().seen_of(&(*made)->fid) : nullptr;
    if (seen != nullptr && seen->entry != nullptr && attr != nullptr)
      seen->entry->tx_op_flags = attr->op_flags;
    return rc;
  }
  int rx_ctx(const weft_hook_link &link, fid_ep *sep, int index, fi_rx_attr *attr, fid_ep **made,
             void *context) {
    return self().open(link, Op::rx_ctx, made, context,
                       [&] { return link.next.ep->rx_ctx(sep, index, attr, made, context); });
  }

  // ---- the life of an object ----

  int close(const weft_hook_link &link, fid *fid) {
    Seen &seen = state_of(link);
    // Closing frees the link and the state, and may destroy the hook. The store stays.
    Store *const store = seen.store;
    const uint32_t id = seen.id;
    const uint8_t fclass = seen.fclass;
    const bool wanted = seen.ops.has(Op::close);
    const auto next = link.next.fid->close;
    store->stay();
    Slot *slot = wanted ? store->slot() : nullptr;
    if (slot != nullptr) ++slot->depth;
    const uint64_t begin = ticks();
    const int rc = next(fid);
    if (slot != nullptr) {
      --slot->depth;
      slot->write({.duration = ticks_between(begin, ticks()),
                   .begin = begin,
                   .object = id,
                   .peer = kNoPeer,
                   .result = rc,
                   .op = uint16_t(Op::close),
                   .depth = uint8_t(slot->depth),
                   .fclass = fclass});
    }
    store->leave();
    return rc;
  }
  int bind(const weft_hook_link &link, fid *fid, struct fid *bound, uint64_t flags) {
    const int rc = self().call(link, Op::bind, {.tag = id_of(bound), .flags = flags},
                               [&] { return link.next.fid->bind(fid, bound, flags); });
    ObjectEntry *entry = state_of(link).entry;
    if (rc == 0 && bound != nullptr && entry != nullptr && is_endpoint(fid->fclass))
      note_bound(*entry, fid->fclass, *bound, flags);
    return rc;
  }
  int control(const weft_hook_link &link, fid *fid, int command, void *arg) {
    const int rc = self().call(link, Op::control, {.tag = uint64_t(uint32_t(command))},
                               [&] { return link.next.fid->control(fid, command, arg); });
    if (rc == 0 && command == FI_ENABLE && is_endpoint(fid->fclass))
      self().note_addresses(link, fid);
    return rc;
  }
  ssize_t cancel(const weft_hook_link &link, fid_t fid, void *context) {
    return self().call(link, Op::cancel, {.context = context},
                       [&] { return link.next.ep->cancel(fid, context); });
  }
  int setopt(const weft_hook_link &link, fid_t fid, int level, int optname, const void *value,
             size_t length) {
    return self().call(link, Op::setopt, {.size = length, .tag = uint64_t(uint32_t(optname))},
                       [&] { return link.next.ep->setopt(fid, level, optname, value, length); });
  }

  // ---- memory regions, address vectors, sets ----

  int mr_reg(const weft_hook_link &link, fid *parent, const void *buf, size_t len, uint64_t access,
             uint64_t offset, uint64_t key, uint64_t flags, fid_mr **mr, void *context) {
    return self().call(link, Op::mr_reg, {.size = len, .flags = access, .context = buf}, [&] {
      return link.next.mr->reg(parent, buf, len, access, offset, key, flags, mr, context);
    });
  }
  int mr_regv(const weft_hook_link &link, fid *parent, const struct iovec *iov, size_t count,
              uint64_t access, uint64_t offset, uint64_t key, uint64_t flags, fid_mr **mr,
              void *context) {
    return self().call(link, Op::mr_regv, {.flags = access}, [&] {
      return link.next.mr->regv(parent, iov, count, access, offset, key, flags, mr, context);
    });
  }
  int mr_regattr(const weft_hook_link &link, fid *parent, const struct fi_mr_attr *attr,
                 uint64_t flags, fid_mr **mr) {
    const Post what{.flags = attr != nullptr ? attr->access : 0};
    return self().call(link, Op::mr_regattr, what,
                       [&] { return link.next.mr->regattr(parent, attr, flags, mr); });
  }
  int av_insert(const weft_hook_link &link, fid_av *av, const void *addr, size_t count,
                fi_addr_t *peers, uint64_t flags, void *context) {
    self().note_user_ids(link, flags);
    const int rc =
        self().call(link, Op::av_insert, {.size = count, .flags = flags, .context = context},
                    [&] { return link.next.av->insert(av, addr, count, peers, flags, context); });
    if (rc > 0 && peers != nullptr) self().note_peers(link, av, peers, count);
    return rc;
  }
  int av_insertsvc(const weft_hook_link &link, fid_av *av, const char *node, const char *service,
                   fi_addr_t *peers, uint64_t flags, void *context) {
    self().note_user_ids(link, flags);
    const int rc = self().call(link, Op::av_insertsvc, {.flags = flags, .context = context}, [&] {
      return link.next.av->insertsvc(av, node, service, peers, flags, context);
    });
    if (rc > 0 && peers != nullptr) self().note_peers(link, av, peers, 1);
    return rc;
  }
  int av_insertsym(const weft_hook_link &link, fid_av *av, const char *node, size_t nodes,
                   const char *service, size_t services, fi_addr_t *peers, uint64_t flags,
                   void *context) {
    self().note_user_ids(link, flags);
    const int rc = self().call(link, Op::av_insertsym,
                               {.size = nodes * services, .flags = flags, .context = context}, [&] {
                                 return link.next.av->insertsym(av, node, nodes, service, services,
                                                                peers, flags, context);
                               });
    if (rc > 0 && peers != nullptr) self().note_peers(link, av, peers, nodes * services);
    return rc;
  }
  int av_remove(const weft_hook_link &link, fid_av *av, fi_addr_t *peers, size_t count,
                uint64_t flags) {
    return self().call(link, Op::av_remove, {.size = count, .flags = flags},
                       [&] { return link.next.av->remove(av, peers, count, flags); });
  }
  int wait(const weft_hook_link &link, fid_wait *waitset, int timeout) {
    return self().call(link, Op::wait, {}, [&] { return link.next.wait->wait(waitset, timeout); });
  }
  int poll(const weft_hook_link &link, fid_poll *pollset, void **context, int count) {
    return self().polled(link, Op::poll,
                         [&] { return link.next.poll->poll(pollset, context, count); });
  }

 private:
  static void note_bound(ObjectEntry &entry, size_t fclass, const struct fid &bound,
                         uint64_t flags) {
    const auto id = uint32_t(id_of(&bound));
    switch (bound.fclass) {
      case FI_CLASS_CQ:
        if ((flags & FI_TRANSMIT) != 0 || fclass == FI_CLASS_TX_CTX) {
          entry.tx_cq = id;
          entry.tx_bind_flags = flags;
        }
        if ((flags & FI_RECV) != 0 || fclass == FI_CLASS_RX_CTX) {
          entry.rx_cq = id;
          entry.rx_bind_flags = flags;
        }
        break;
      case FI_CLASS_EQ:
        entry.eq = id;
        break;
      case FI_CLASS_AV:
        entry.av = id;
        break;
      case FI_CLASS_SRX_CTX:
        entry.srx = id;
        break;
      default:
        break;
    }
  }

  Hook &self() { return static_cast<Hook &>(*this); }
};

}  // namespace weft::trace

#endif
