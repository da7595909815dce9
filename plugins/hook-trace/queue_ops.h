// SPDX-License-Identifier: BSD-2-Clause
// QueueOps: the calls on completion queues, event queues and counters.
//
// Example:
//    class MyHook : public Recorder, public QueueOps<MyHook> {
//     public:
//      using ObjectState = Seen;
//      using Recorder::Recorder;
//    };
//
// Each member calls the next table and lets the Recorder write what came of it (recorder.h). The
// class is a template so that both compile into one function: recording a call takes a few
// nanoseconds. Not for opening or binding them: object_ops.h.
#ifndef WEFT_PLUGINS_HOOK_TRACE_QUEUE_OPS_H
#define WEFT_PLUGINS_HOOK_TRACE_QUEUE_OPS_H

#include "plugins/hook-trace/recorder.h"

namespace weft::trace {

template <class Hook>
class QueueOps {
 public:
  // ---- completion queues ----

  ssize_t cq_read(const weft_hook_link &link, fid_cq *cq, void *buf, size_t count) {
    return self().take(
        link, Op::cq_read, buf, count, nullptr,
        [&](void *place, size_t room, fi_addr_t *) { return link.next.cq->read(cq, place, room); });
  }
  ssize_t cq_readfrom(const weft_hook_link &link, fid_cq *cq, void *buf, size_t count,
                      fi_addr_t *from) {
    return self().take(link, Op::cq_readfrom, buf, count, from,
                       [&](void *place, size_t room, fi_addr_t *sources) {
                         return link.next.cq->readfrom(cq, place, room, sources);
                       });
  }
  ssize_t cq_sread(const weft_hook_link &link, fid_cq *cq, void *buf, size_t count,
                   const void *cond, int timeout) {
    return self().take(link, Op::cq_sread, buf, count, nullptr,
                       [&](void *place, size_t room, fi_addr_t *) {
                         return link.next.cq->sread(cq, place, room, cond, timeout);
                       });
  }
  ssize_t cq_sreadfrom(const weft_hook_link &link, fid_cq *cq, void *buf, size_t count,
                       fi_addr_t *from, const void *cond, int timeout) {
    return self().take(link, Op::cq_sreadfrom, buf, count, from,
                       [&](void *place, size_t room, fi_addr_t *sources) {
                         return link.next.cq->sreadfrom(cq, place, room, sources, cond, timeout);
                       });
  }
  ssize_t cq_readerr(const weft_hook_link &link, fid_cq *cq, struct fi_cq_err_entry *entry,
                     uint64_t flags) {
    Seen &seen = state_of(link);
    const uint64_t begin = ticks();
    const ssize_t rc = link.next.cq->readerr(cq, entry, flags);
    if (rc <= 0) return rc;
    seen.store->saw_error();
    if (Slot *slot = self().slot_for(seen, Op::completion_error)) {
      slot->write({.begin = ticks(),
                   .context = number(entry->op_context),
                   .tag = (entry->flags & FI_TAGGED) != 0 ? entry->tag : entry->data,
                   .flags = entry->flags,
                   .size = entry->len,
                   .object = seen.id,
                   .peer = kNoPeer,
                   .result = -entry->err,
                   .op = uint16_t(Op::completion_error),
                   .depth = uint8_t(slot->depth + 1),
                   .fclass = seen.fclass});
      self().record(seen, *slot, Op::cq_readerr, begin, rc, {.size = 1});
    }
    return rc;
  }
  int cq_signal(const weft_hook_link &link, fid_cq *cq) {
    return self().call(link, Op::cq_signal, {}, [&] { return link.next.cq->signal(cq); });
  }

  // ---- event queues ----

  ssize_t eq_read(const weft_hook_link &link, fid_eq *eq, uint32_t *event, void *buf, size_t len,
                  uint64_t flags) {
    return self().event_read(link, Op::eq_read, event, buf, flags, [&](uint32_t *place) {
      return link.next.eq->read(eq, place, buf, len, flags);
    });
  }
  ssize_t eq_sread(const weft_hook_link &link, fid_eq *eq, uint32_t *event, void *buf, size_t len,
                   int timeout, uint64_t flags) {
    return self().event_read(link, Op::eq_sread, event, buf, flags, [&](uint32_t *place) {
      return link.next.eq->sread(eq, place, buf, len, timeout, flags);
    });
  }
  ssize_t eq_readerr(const weft_hook_link &link, fid_eq *eq, struct fi_eq_err_entry *entry,
                     uint64_t flags) {
    Seen &seen = state_of(link);
    const uint64_t begin = ticks();
    const ssize_t rc = link.next.eq->readerr(eq, entry, flags);
    if (rc <= 0) return rc;
    seen.store->saw_error();
    if (Slot *slot = self().slot_for(seen, Op::eq_readerr))
      self().record(seen, *slot, Op::eq_readerr, begin, -entry->err,
                    {.size = uint64_t(rc), .context = pointer(id_of(entry->fid))});
    return rc;
  }
  ssize_t eq_write(const weft_hook_link &link, fid_eq *eq, uint32_t event, const void *buf,
                   size_t len, uint64_t flags) {
    return self().call(link, Op::eq_write, {.size = len, .tag = event, .flags = flags},
                       [&] { return link.next.eq->write(eq, event, buf, len, flags); });
  }

  // ---- counters ----

  uint64_t cntr_read(const weft_hook_link &link, fid_cntr *cntr) {
    return self().counted(link, Op::cntr_read, [&] { return link.next.cntr->read(cntr); });
  }
  uint64_t cntr_readerr(const weft_hook_link &link, fid_cntr *cntr) {
    return link.next.cntr->readerr(cntr);
  }
  int cntr_wait(const weft_hook_link &link, fid_cntr *cntr, uint64_t threshold, int timeout) {
    return self().call(link, Op::cntr_wait, {.size = threshold},
                       [&] { return link.next.cntr->wait(cntr, threshold, timeout); });
  }
  int cntr_add(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
    return self().call(link, Op::cntr_add, {.size = value},
                       [&] { return link.next.cntr->add(cntr, value); });
  }
  int cntr_set(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
    return self().call(link, Op::cntr_set, {.size = value},
                       [&] { return link.next.cntr->set(cntr, value); });
  }
  int cntr_adderr(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
    return self().call(link, Op::cntr_adderr, {.size = value},
                       [&] { return link.next.cntr->adderr(cntr, value); });
  }
  int cntr_seterr(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
    return self().call(link, Op::cntr_seterr, {.size = value},
                       [&] { return link.next.cntr->seterr(cntr, value); });
  }

 private:
  Hook &self() { return static_cast<Hook &>(*this); }
};

}  // namespace weft::trace

#endif
