// SPDX-License-Identifier: BSD-2-Clause
// Recorder: makes a call through the next table and writes what came of it to the thread's ring.
//
// Example:
//    int cntr_add(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
//      return Recorder::call(link, Op::cntr_add, {.size = value},
//                            [&] { return link.next.cntr->add(cntr, value); });
//    }
//
// post() is for transfers, take() for reads of completion queues, event_read() for event queues,
// counted() for counters, polled() for calls that are repeated until they find something, open()
// for new objects, call() for all else. All of them go on to the next table first and write when
// that has returned, so the record written last is of the call that returned last. The depth of a
// record tells which calls a call made itself, on the same thread, through other layers that are
// traced too.
//
// Everything is inline: full tracing must cost 60 ns per call at most. Not an op table:
// transfer_ops.h, queue_ops.h and object_ops.h are.
#ifndef WEFT_PLUGINS_HOOK_TRACE_RECORDER_H
#define WEFT_PLUGINS_HOOK_TRACE_RECORDER_H

#include <rdma/fi_cm.h>
#include <weft/sdk/unit.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "plugins/hook-trace/seen.h"

namespace weft::trace {

class Recorder {
 public:
  Recorder(const weft_instance *instance, Settings settings)
      : instance_(instance),
        settings_(std::move(settings)),
        filters_data_(settings_.filters_data()) {}

  const Settings &settings() const { return settings_; }

  // Where this thread writes a record of the operation; null: the operation is not recorded now.
  static Slot *slot_for(Seen &seen, Op op) {
    return seen.ops.has(op) ? seen.store->slot() : nullptr;
  }
  static void record(const Seen &seen, Slot &slot, Op op, uint64_t begin, int64_t result,
                     const Post &what) {
    write_record(seen, slot, op, begin, ticks_between(begin, ticks()), result, what);
  }

  // ---- calls ----

  // A call that reports a failure with a negative result.
  template <class Next>
  static std::invoke_result_t<Next> call(const weft_hook_link &link, Op op, const Post &what,
                                         Next next) {
    Seen &seen = state_of(link);
    Slot *slot = slot_for(seen, op);
    if (slot != nullptr) ++slot->depth;
    const uint64_t begin = ticks();
    const auto rc = next();
    if (slot != nullptr) {
      --slot->depth;
      record(seen, *slot, op, begin, rc, what);
    }
    if (is_error(rc)) note_error(seen, slot, op, begin, rc, what);
    return rc;
  }

  // A call that opens an object, which its record names.
  template <class Made, class Next>
  static int open(const weft_hook_link &link, Op op, Made **made, const void *context, Next next) {
    Seen &seen = state_of(link);
    Slot *slot = slot_for(seen, op);
    if (slot != nullptr) ++slot->depth;
    const uint64_t begin = ticks();
    const int rc = next();
    Post what{.context = context};
    if (rc == 0 && made != nullptr && *made != nullptr) what.tag = id_of(&(*made)->fid);
    if (slot != nullptr) {
      --slot->depth;
      record(seen, *slot, op, begin, rc, what);
    }
    if (is_error(rc)) note_error(seen, slot, op, begin, rc, what);
    return rc;
  }

  // A call that is repeated until it finds something: 0 and -FI_EAGAIN mean that it found nothing.
  template <class Next>
  static int polled(const weft_hook_link &link, Op op, Next next) {
    Seen &seen = state_of(link);
    Slot *slot = slot_for(seen, op);
    if (slot == nullptr) return next();
    ++slot->depth;
    const uint64_t begin = ticks();
    const int rc = next();
    --slot->depth;
    if (rc == 0 || rc == -FI_EAGAIN) {
      seen.in_vain.add(begin);
      return rc;
    }
    const uint64_t in_vain = seen.take_in_vain();
    record(seen, *slot, op, begin, rc, {.flags = in_vain});
    return rc;
  }

  // A read of a counter. Reads of an unchanged value are in vain.
  template <class Next>
  static uint64_t counted(const weft_hook_link &link, Op op, Next next) {
    Seen &seen = state_of(link);
    Slot *slot = slot_for(seen, op);
    if (slot == nullptr) return next();
    ++slot->depth;
    const uint64_t begin = ticks();
    const uint64_t value = next();
    --slot->depth;
    if (value == seen.last_value.load(kRelaxed)) {
      seen.in_vain.add(begin);
      return value;
    }
    seen.last_value.store(value, kRelaxed);
    const uint64_t in_vain = seen.take_in_vain();
    record(seen, *slot, op, begin, 0,
           {.size = value,
            .tag = in_vain != 0 ? seen.in_vain.since.load(kRelaxed) : 0,
            .flags = in_vain});
    return value;
  }

  // ---- transfers ----

  // `describe(good)` returns what is recorded of a call that was accepted, or was not.
  template <class Describe, class Next>
  __attribute__((always_inline)) ssize_t post(const weft_hook_link &link, Op op, Describe describe,
                                              Next next) {
    Seen &seen = state_of(link);
    Slot *slot = slot_for(seen, op);
    if (slot != nullptr && !samples(*slot)) slot = nullptr;
    if (slot == nullptr) {
      const ssize_t rc = next();
      if (is_error(rc)) note_error(seen, slot, op, ticks(), rc, describe(false));
      return rc;
    }
    // The endpoint was open before the hook was attached.
    if (!seen.has_addresses.load(kRelaxed)) [[unlikely]]
      note_addresses(link, seen.fid);
    ++slot->depth;
    const uint64_t begin = ticks();
    // Reading the clock is the largest cost of recording. The duration of a post is measured for
    // one in 16 of those in quick succession, and for all others.
    const bool measures =
        begin - slot->last_post[slot->depth & 3] > kQuick || (++slot->posts & (kMeasured - 1)) == 0;
    slot->last_post[slot->depth & 3] = begin;
    const ssize_t rc = next();
    --slot->depth;
    if (rc == -FI_EAGAIN) [[unlikely]] {
      seen.in_vain.add(begin);
      seen.in_vain.op.store(uint32_t(op), kRelaxed);
      return rc;
    }
    const Post what = describe(rc == 0);
    if (filters_data_ && rc == 0 && !passes(what)) return rc;
    if (seen.in_vain.count.load(kRelaxed) != 0) [[unlikely]]
      note_retries(seen, *slot);
    write_record(seen, *slot, op, begin, measures ? ticks_between(begin, ticks()) : kNotMeasured,
                 rc, what);
    if (rc < 0) [[unlikely]]
      seen.store->saw_error();
    return rc;
  }

  // ---- completions ----

  // A read of a completion queue, in the format of the queue.
  template <class Next>
  ssize_t take(const weft_hook_link &link, Op op, void *buf, size_t count, fi_addr_t *sources,
               Next next) {
    Seen &seen = state_of(link);
    Slot *slot = slot_for(seen, op);
    if (slot == nullptr || !samples(*slot)) return next(buf, count, sources);
    // A program that reads in vain over and over does not pay for the clock before each read. When
    // a completion comes, the begin of its read is therefore not known (see begin_of).
    const bool spins = seen.in_vain.count.load(kRelaxed) != 0;
    const uint64_t before = slot->next;
    ++slot->depth;
    uint64_t begin = spins ? 0 : ticks();
    const bool knows_format = seen.cq_format.load(kRelaxed) != 0;
    const ssize_t n = knows_format || count == 0 || buf == nullptr
                          ? next(buf, count, sources)
                          : take_first(seen, buf, sources, next);
    --slot->depth;
    if (n == -FI_EAGAIN) {
      seen.in_vain.add(begin);
      return n;
    }
    const uint64_t end = ticks();
    bool measured = true;
    if (begin == 0) {
      measured = slot->next != before;
      begin = begin_of(*slot, before, end);
    }
    if (n <= 0) {
      if (n < 0) {
        record(seen, *slot, op, begin, n, {.context = pointer(count)});
        seen.store->saw_error();
      }
      return n;
    }
    if (seen.ops.has(Op::completion)) write_completions(seen, *slot, end, buf, n, sources);
    const uint64_t in_vain =
        seen.in_vain.count.load(kRelaxed) != 0 ? seen.take_in_vain() : uint64_t{0};
    slot->write({.duration = measured ? ticks_between(begin, end) : kNotMeasured,
                 .begin = begin,
                 .context = count,
                 .tag = in_vain != 0 ? seen.in_vain.since.load(kRelaxed) : 0,
                 .flags = in_vain,
                 .size = uint64_t(n),
                 .object = seen.id,
                 .peer = kNoPeer,
                 .result = int32_t(n),
                 .op = uint16_t(op),
                 .depth = uint8_t(slot->depth),
                 .fclass = seen.fclass});
    return n;
  }

  // ---- events ----

  template <class Next>
  ssize_t event_read(const weft_hook_link &link, Op op, uint32_t *event, const void *buf,
                     uint64_t flags, Next next) {
    Seen &seen = state_of(link);
    Slot *slot = slot_for(seen, op);
    if (slot != nullptr) ++slot->depth;
    const uint64_t begin = ticks();
    const ssize_t rc = next(event);
    if (slot != nullptr) --slot->depth;
    if (rc == -FI_EAGAIN) {
      if (slot != nullptr) seen.in_vain.add(begin);
      return rc;
    }
    const uint32_t what = rc > 0 && event != nullptr ? *event : 0;
    uint64_t subject = 0;
    if (rc >= ssize_t(sizeof(fi_eq_cm_entry)) && what != 0) {
      const auto *entry = static_cast<const fi_eq_cm_entry *>(buf);
      const bool known = what == FI_CONNECTED || what == FI_SHUTDOWN || what == FI_CONNREQ;
      if (known) subject = id_of(entry->fid);
      if (what == FI_CONNECTED && (flags & FI_PEEK) == 0) note_connected(entry->fid);
    }
    if (slot != nullptr) {
      seen.take_in_vain();
      record(seen, *slot, op, begin, rc,
             {.size = rc > 0 ? uint64_t(rc) : 0, .tag = what, .context = pointer(subject)});
    }
    if (rc < 0) seen.store->saw_error();
    return rc;
  }

  // ---- facts about objects ----

  // The state of another object; null: the hook is not on it.
  Seen *seen_of(const struct fid *fid) const {
    const weft_hook_link *link = link_at(fid);
    return link != nullptr ? static_cast<Seen *>(link->object_state) : nullptr;
  }

  int opened_endpoint(int rc, const fi_info *wanted, fid_ep **made) const {
    if (rc != 0 || wanted == nullptr) return rc;
    Seen *seen = seen_of(&(*made)->fid);
    if (seen == nullptr || seen->entry == nullptr) return rc;
    if (wanted->ep_attr != nullptr)
      seen->entry->ep_type = uint32_t(sdk::raw(wanted->ep_attr->type));
    if (wanted->tx_attr != nullptr) seen->entry->tx_op_flags = wanted->tx_attr->op_flags;
    if (wanted->rx_attr != nullptr) seen->entry->rx_op_flags = wanted->rx_attr->op_flags;
    seen->entry->caps = wanted->caps;
    return rc;
  }

  // Notes an endpoint's own address (known when it is enabled or listens) and that of its peer
  // (known when it is connected). Asks the next table, so that nothing is recorded of the question.
  static void note_addresses(const weft_hook_link &link, struct fid *fid) {
    Seen &seen = state_of(link);
    seen.has_addresses.store(true, kRelaxed);
    if (seen.entry == nullptr || seen.store->is_inherited() || link.next.cm == nullptr) return;
    alignas(16) char address[128];
    size_t length = sizeof address;
    if (link.next.cm->getname(fid, address, &length) == 0 && length <= sizeof address)
      put(seen.entry->address, address_text(address, length));
    length = sizeof address;
    const bool may_be_connected =
        seen.entry->ep_type == FI_EP_MSG || seen.entry->ep_type == FI_EP_UNSPEC;
    if (fid->fclass == FI_CLASS_EP && may_be_connected &&
        link.next.cm->getpeer(reinterpret_cast<fid_ep *>(fid), address, &length) == 0 &&
        length <= sizeof address) {
      put(seen.entry->peer, address_text(address, length));
      seen.entry->ep_type = FI_EP_MSG;
    }
  }

  // An address vector with FI_AV_USER_ID exists. Which queues report its ids is not known here, so
  // completions name no sources from now on.
  static void note_user_ids(const weft_hook_link &link, uint64_t flags) {
    if ((flags & FI_AV_USER_ID) != 0) state_of(link).store->hide_sources();
  }

  static void note_peers(const weft_hook_link &link, fid_av *av, const fi_addr_t *peers,
                         size_t count) {
    Seen &seen = state_of(link);
    if (seen.store->is_inherited()) return;
    for (size_t i = 0; i < count; ++i) {
      if (peers[i] == FI_ADDR_NOTAVAIL || peers[i] >= kNoPeer) continue;
      if (!seen.store->wants_addresses()) {
        seen.store->add_address(0, 0, "");  // counts it as lost
        return;
      }
      alignas(16) char address[128];
      size_t length = sizeof address;
      if (link.next.av->lookup(av, peers[i], address, &length) == 0 && length <= sizeof address)
        seen.store->add_address(seen.id, uint32_t(peers[i]), address_text(address, length).c_str());
    }
  }

 private:
  static constexpr uint64_t kQuick = 2000;  // ticks: below a microsecond
  static constexpr uint32_t kMeasured = 16;

  static bool is_error(int64_t rc) { return rc < 0 && rc != -FI_EAGAIN && rc != -FI_EAVAIL; }

  static void write_record(const Seen &seen, Slot &slot, Op op, uint64_t begin, uint32_t duration,
                           int64_t result, const Post &what) {
    slot.write({.duration = duration,
                .begin = begin,
                .context = number(what.context),
                .tag = what.tag,
                .flags = what.flags,
                .size = what.size,
                .object = seen.id,
                .peer = short_peer(what.peer),
                .result = int32_t(result),
                .op = uint16_t(op),
                .depth = uint8_t(slot.depth),
                .fclass = seen.fclass});
  }

  // An error may start the recording (start=error): then it is the first record.
  static void note_error(Seen &seen, const Slot *slot, Op op, uint64_t begin, int64_t rc,
                         const Post &what) {
    seen.store->saw_error();
    if (slot != nullptr) return;
    if (Slot *now = slot_for(seen, op)) record(seen, *now, op, begin, rc, what);
  }

  bool passes(const Post &what) const {
    if (what.size < settings_.min_size) return false;
    return settings_.peers.empty() || what.peer >= kNoPeer ||
           std::find(settings_.peers.begin(), settings_.peers.end(), uint32_t(what.peer)) !=
               settings_.peers.end();
  }
  // All posts and reads ask this, so that a run of them is recorded as a whole or not at all.
  bool samples(Slot &slot) const {
    return settings_.sample <= 1 || slot.sampled++ / 64 % settings_.sample == 0;
  }
  static void note_retries(Seen &seen, Slot &slot) {
    const uint64_t count = seen.take_in_vain();
    record(seen, slot, Op::retries, seen.in_vain.since.load(kRelaxed), 0,
           {.size = count, .tag = seen.in_vain.op.load(kRelaxed)});
  }

  // When a read began whose begin was not measured: with the first call that was recorded within
  // it, else at its end.
  static uint64_t begin_of(const Slot &slot, uint64_t before, uint64_t end) {
    uint64_t begin = end;
    for (uint64_t k = before; k != slot.next && k != before + 64; ++k)
      begin = std::min(begin, slot.records[k & slot.mask].begin);
    return begin;
  }

  // One record for each completion that a read returned.
  __attribute__((always_inline)) static void write_completions(const Seen &seen, Slot &slot,
                                                               uint64_t end, const void *buf,
                                                               ssize_t n,
                                                               const fi_addr_t *sources) {
    Record note{.begin = end,
                .object = seen.id,
                .peer = kNoPeer,
                .op = uint16_t(Op::completion),
                .depth = uint8_t(slot.depth + 1),
                .fclass = seen.fclass};
    const int format = seen.cq_format.load(kRelaxed);
    const size_t size = entry_size(format);
    const bool names_sources = sources != nullptr && !seen.store->hides_sources();
    const auto *entry = static_cast<const uint8_t *>(buf);
    for (ssize_t i = 0; i < n; ++i, entry += size) {
      // All formats begin alike (fi_cq.3).
      note.context = number(reinterpret_cast<const fi_cq_entry *>(entry)->op_context);
      if (format >= FI_CQ_FORMAT_MSG) {
        const auto &message = *reinterpret_cast<const fi_cq_msg_entry *>(entry);
        note.flags = message.flags;
        note.size = message.len;
      }
      if (format == FI_CQ_FORMAT_DATA) {
        note.tag = reinterpret_cast<const fi_cq_data_entry *>(entry)->data;
      } else if (format == FI_CQ_FORMAT_TAGGED) {
        const auto &tagged = *reinterpret_cast<const fi_cq_tagged_entry *>(entry);
        note.tag = (tagged.flags & FI_TAGGED) != 0 ? tagged.tag : tagged.data;
      }
      if (names_sources) note.peer = short_peer(sources[i]);
      slot.write(note);
    }
  }

  // The first entry of a queue that was opened before the hook came. The number of bytes that the
  // provider writes tells the format. Reads one entry only, so that the application gets it whole
  // even if the guess is wrong.
  template <class Next>
  static ssize_t take_first(Seen &seen, void *buf, fi_addr_t *sources, Next next) {
    constexpr uint64_t kUntouched = 0x9c5a3e1f7b2d4860;
    constexpr size_t kWords = sizeof(fi_cq_tagged_entry) / 8 + 2;
    alignas(16) uint64_t words[kWords];
    std::fill(std::begin(words), std::end(words), kUntouched);
    const ssize_t n = next(words, 1, sources);
    if (n <= 0) return n;
    size_t written = kWords;
    while (written > 1 && words[written - 1] == kUntouched) --written;
    std::memcpy(buf, words, written * 8);
    set_format(seen, written <= 1   ? FI_CQ_FORMAT_CONTEXT
                     : written <= 3 ? FI_CQ_FORMAT_MSG
                     : written <= 5 ? FI_CQ_FORMAT_DATA
                                    : FI_CQ_FORMAT_TAGGED);
    return n;
  }

  const weft_hook_link *link_at(const struct fid *fid) const {
    if (id_of(fid) == 0) return nullptr;
    weft_hook_link **links = __atomic_load_n(&sdk::header_of(fid)->links_core, __ATOMIC_ACQUIRE);
    return links != nullptr ? __atomic_load_n(&links[instance_->hook_slot], __ATOMIC_ACQUIRE)
                            : nullptr;
  }
  void note_connected(struct fid *fid) const {
    if (const weft_hook_link *link = link_at(fid)) note_addresses(*link, fid);
  }

  const weft_instance *const instance_;
  const Settings settings_;
  const bool filters_data_;
};

}  // namespace weft::trace

#endif
