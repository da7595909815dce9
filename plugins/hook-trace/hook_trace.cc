// SPDX-License-Identifier: BSD-2-Clause
// trace: records the calls and completions of the objects that it is on (format.h says how). Each
// op goes on to the next table first and records when that has returned, so what is written last is
// what returned last; the depth of a call tells which calls it made itself, on this thread, through
// other layers that are traced too.
#include <rdma/fi_cm.h>
#include <weft/sdk/address.h>
#include <weft/sdk/atomic.h>
#include <weft/sdk/log.h>
#include <weft/sdk/unit.h>

#include <algorithm>
#include <cstring>

#include "plugins/hook-trace/settings.h"

namespace weft::trace {
namespace {

using namespace weft::sdk;

constexpr std::memory_order kRelaxed = std::memory_order_relaxed;

constexpr uint64_t kQuick = 2000;  // ticks: below a microsecond
constexpr uint32_t kMeasured = 16;

// What happened in vain since something last happened: -FI_EAGAIN, again and again. Counted without
// a lock: where threads meet some counts are lost.
struct InVain {
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> since{0};
  std::atomic<uint32_t> op{0};

  void add(uint64_t begin) {
    const uint64_t before = count.load(kRelaxed);
    if (before == 0) since.store(begin, kRelaxed);
    count.store(before + 1, kRelaxed);
  }
};

// What the hook knows of an object.
struct Seen {
  Seen(Store *store_, struct fid *fid_, const OpMask &ops_)
      : fid(fid_),
        store(store_),
        id(uint32_t(header_of(fid_)->id_core)),
        ops(ops_),
        fclass(uint8_t(fid_->fclass)) {}
  ~Seen() {
    if (entry != nullptr && !store->is_inherited()) {
      entry->reads_in_vain += all_in_vain + in_vain.count;
      store->close_object(entry);
    }
    store->leave();
  }
  Seen(const Seen &) = delete;
  Seen &operator=(const Seen &) = delete;

  struct fid *const fid;
  Store *const store;
  const uint32_t id;
  const OpMask ops;
  const uint8_t fclass;
  std::atomic<uint8_t> cq_format{0};  // FI_CQ_FORMAT_... ; 0 (UNSPEC): not known
  InVain in_vain;
  std::atomic<uint64_t> all_in_vain{0};
  std::atomic<uint64_t> last_value{0};  // of a counter
  std::atomic<bool> has_addresses{false};
  ObjectEntry *entry = nullptr;  // null: the table is full
};

size_t entry_size(int format) {
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      return sizeof(fi_cq_entry);
    case FI_CQ_FORMAT_MSG:
      return sizeof(fi_cq_msg_entry);
    case FI_CQ_FORMAT_DATA:
      return sizeof(fi_cq_data_entry);
    case FI_CQ_FORMAT_TAGGED:
      return sizeof(fi_cq_tagged_entry);
    default:
      return 0;
  }
}

uint64_t bytes_in(bool good, const struct iovec *iov, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; good && iov != nullptr && i < count; ++i) bytes += iov[i].iov_len;
  return bytes;
}

uint64_t number(const void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

uint32_t short_peer(fi_addr_t peer) {
  return peer < kNoPeer ? uint32_t(peer) : kNoPeer;
}

// "10.0.0.1:7471", or bytes where the address is of another family.
std::string address_text(const void *address, size_t length) {
  if (auto known = SockAddr::from(address, length); known && known->size() > 0)
    return known->to_string();
  std::string text;
  const auto *bytes = static_cast<const uint8_t *>(address);
  for (size_t i = 0; i < std::min<size_t>(length, 24); ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

template <size_t kSize>
void put(char (&place)[kSize], std::string_view text) {
  const size_t n = std::min(text.size(), kSize - 1);
  std::memcpy(place, text.data(), n);
  std::memset(place + n, 0, kSize - n);
}

// What is said of a post, before it is known how it went.
struct Post {
  uint64_t size = 0;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  uint64_t tag = 0;
  uint64_t flags = 0;
  const void *context = nullptr;
};

class HookTrace {
 public:
  static constexpr weft_param kParams[] = {
      size_param("size", "1M", "bytes of a thread's ring, 64 for each record", 1 << 14, 1 << 30),
      int_param("max_threads", "64", "rings at most; threads beyond only count what they lose", 1,
                1024),
      string_param("directory", nullptr,
                   "folder of the trace file; none: that of the user's processes in /dev/shm"),
      bool_param("keep", "no", "leave the file when the process ends by itself"),
      list_param("classes", nullptr, "objects to record: ep, cq, eq, ...; none: all"),
      list_param("ops", nullptr,
                 "operations or groups to record: tagged, cq, send, ...; none: all"),
      size_param("min_size", "0", "leave out transfers of fewer bytes"),
      list_param("peers", nullptr, "leave out transfers to and from other fi_addr_t; none: all"),
      int_param("sample", "1", "record one of so many runs of 64 posts and reads", 1, 1000000),
      string_param("start", "now", "now, or error: record from the first error on"),
      string_param("stop", "never", "never, or error: keep what led to the first error"),
  };
  static constexpr UnitInfo info{
      .name = "trace",
      .summary = "records calls and completions in shared memory, for weft trace",
      .version = FI_VERSION(1, 0),
      .maturity = WEFT_MATURITY_BETA,
      .security = WEFT_SECURITY_NO_NETWORK,
      .params = kParams};
  using ObjectState = Seen;

  static Result<std::unique_ptr<HookTrace>> create(const weft_instance *instance) {
    const Params<HookTrace> params(instance);
    Settings settings;
    settings.store.ring_bytes = params.size("size");
    settings.store.max_threads = uint32_t(params.integer("max_threads"));
    settings.store.directory = params.string("directory");
    settings.store.keep = params.flag("keep");
    WEFT_TRY(settings.ops, at(read_ops(params.list("ops")), params.origin("ops")));
    WEFT_TRY(settings.classes, at(read_classes(params.list("classes")), params.origin("classes")));
    WEFT_TRY(settings.peers, at(read_peers(params.list("peers")), params.origin("peers")));
    settings.min_size = params.size("min_size");
    settings.sample = uint32_t(params.integer("sample"));
    const std::string_view start = params.string("start"), stop = params.string("stop");
    if (start != "now" && start != "error")
      return fail(FI_EINVAL, "start is \"%.*s\" (%s): say now or error", int(start.size()),
                  start.data(), params.origin("start"));
    if (stop != "never" && stop != "error")
      return fail(FI_EINVAL, "stop is \"%.*s\" (%s): say never or error", int(stop.size()),
                  stop.data(), params.origin("stop"));
    if (start == "error") settings.store.phase = Phase::waiting;
    settings.store.stop_at_error = stop == "error";
    return std::make_unique<HookTrace>(instance, std::move(settings));
  }

  HookTrace(const weft_instance *instance, Settings settings)
      : instance_(instance),
        settings_(std::move(settings)),
        filters_data_(settings_.filters_data()) {}

  Result<std::unique_ptr<Seen>> attach(fid *fid) {
    // Regions come and go with messages; their registration is recorded at the domain.
    if (fid->fclass == FI_CLASS_MR) return nullptr;
    WEFT_TRY(Store * store, Store::join(settings_.store));
    std::unique_ptr<Seen> seen;
    try {
      seen = std::make_unique<Seen>(store, fid, settings_.mask(fid->fclass));
    } catch (...) {
      store->leave();
      throw;
    }
    const weft_fid_header *header = header_of(fid);
    if (ObjectEntry *entry = store->add_object(header->id_core); entry != nullptr) {
      entry->parent = header->parent_core != nullptr ? header_of(header->parent_core)->id_core : 0;
      entry->fclass = uint32_t(fid->fclass);
      if (const weft_instance *element = header->instance; element != nullptr) {
        entry->place = element->place;
        put(entry->element, element->unit != nullptr ? element->unit->name : "");
        put(entry->stack, element->stack != nullptr ? element->stack : "");
      }
      seen->entry = entry;
      publish(*entry);
    }
    return seen;
  }

  // ---- transfers ----

// What is said of a post is put together when it has returned: only of a good one the lists may be
// looked at, since an application may pass anything, and to refuse it is the provider's part.
#define WEFT_POST(op, table, call, what)                              \
  return post(                                                        \
      link, Op::op, [&]([[maybe_unused]] bool good) { return what; }, \
      [&] { return link.next.table->call; })
#define WEFT_MSG(op, table, call, ...) WEFT_POST(op, table, call, (Post{__VA_ARGS__}))

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
#undef WEFT_MSG
#undef WEFT_POST

  // ---- completion queues ----

  ssize_t cq_read(const weft_hook_link &link, fid_cq *cq, void *buf, size_t count) {
    return take(link, Op::cq_read, buf, count, nullptr, [&](void *place, size_t room, fi_addr_t *) {
      return link.next.cq->read(cq, place, room);
    });
  }
  ssize_t cq_readfrom(const weft_hook_link &link, fid_cq *cq, void *buf, size_t count,
                      fi_addr_t *from) {
    return take(link, Op::cq_readfrom, buf, count, from,
                [&](void *place, size_t room, fi_addr_t *sources) {
                  return link.next.cq->readfrom(cq, place, room, sources);
                });
  }
  ssize_t cq_sread(const weft_hook_link &link, fid_cq *cq, void *buf, size_t count,
                   const void *cond, int timeout) {
    return take(link, Op::cq_sread, buf, count, nullptr,
                [&](void *place, size_t room, fi_addr_t *) {
                  return link.next.cq->sread(cq, place, room, cond, timeout);
                });
  }
  ssize_t cq_sreadfrom(const weft_hook_link &link, fid_cq *cq, void *buf, size_t count,
                       fi_addr_t *from, const void *cond, int timeout) {
    return take(link, Op::cq_sreadfrom, buf, count, from,
                [&](void *place, size_t room, fi_addr_t *sources) {
                  return link.next.cq->sreadfrom(cq, place, room, sources, cond, timeout);
                });
  }
  ssize_t cq_readerr(const weft_hook_link &link, fid_cq *cq, struct fi_cq_err_entry *entry,
                     uint64_t flags) {
    Seen &seen = object_state<HookTrace>(link);
    const uint64_t begin = ticks();
    const ssize_t rc = link.next.cq->readerr(cq, entry, flags);
    if (rc <= 0) return rc;
    seen.store->saw_error();
    if (Slot *slot = slot_for(seen, Op::completion_error)) {
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
      record(seen, *slot, Op::cq_readerr, begin, rc, {.size = 1});
    }
    return rc;
  }
  int cq_signal(const weft_hook_link &link, fid_cq *cq) {
    return call(link, Op::cq_signal, {}, [&] { return link.next.cq->signal(cq); });
  }

  // ---- event queues ----

  ssize_t eq_read(const weft_hook_link &link, fid_eq *eq, uint32_t *event, void *buf, size_t len,
                  uint64_t flags) {
    return event_read(link, Op::eq_read, event, buf, flags, [&](uint32_t *place) {
      return link.next.eq->read(eq, place, buf, len, flags);
    });
  }
  ssize_t eq_sread(const weft_hook_link &link, fid_eq *eq, uint32_t *event, void *buf, size_t len,
                   int timeout, uint64_t flags) {
    return event_read(link, Op::eq_sread, event, buf, flags, [&](uint32_t *place) {
      return link.next.eq->sread(eq, place, buf, len, timeout, flags);
    });
  }
  ssize_t eq_readerr(const weft_hook_link &link, fid_eq *eq, struct fi_eq_err_entry *entry,
                     uint64_t flags) {
    Seen &seen = object_state<HookTrace>(link);
    const uint64_t begin = ticks();
    const ssize_t rc = link.next.eq->readerr(eq, entry, flags);
    if (rc <= 0) return rc;
    seen.store->saw_error();
    if (Slot *slot = slot_for(seen, Op::eq_readerr))
      record(seen, *slot, Op::eq_readerr, begin, -entry->err,
             {.size = uint64_t(rc), .context = pointer(id_of(entry->fid))});
    return rc;
  }
  ssize_t eq_write(const weft_hook_link &link, fid_eq *eq, uint32_t event, const void *buf,
                   size_t len, uint64_t flags) {
    return call(link, Op::eq_write, {.size = len, .tag = event, .flags = flags},
                [&] { return link.next.eq->write(eq, event, buf, len, flags); });
  }

  // ---- counters ----

  uint64_t cntr_read(const weft_hook_link &link, fid_cntr *cntr) {
    return counted(link, Op::cntr_read, [&] { return link.next.cntr->read(cntr); });
  }
  uint64_t cntr_readerr(const weft_hook_link &link, fid_cntr *cntr) {
    return link.next.cntr->readerr(cntr);
  }
  int cntr_wait(const weft_hook_link &link, fid_cntr *cntr, uint64_t threshold, int timeout) {
    return call(link, Op::cntr_wait, {.size = threshold},
                [&] { return link.next.cntr->wait(cntr, threshold, timeout); });
  }
  int cntr_add(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
    return call(link, Op::cntr_add, {.size = value},
                [&] { return link.next.cntr->add(cntr, value); });
  }
  int cntr_set(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
    return call(link, Op::cntr_set, {.size = value},
                [&] { return link.next.cntr->set(cntr, value); });
  }
  int cntr_adderr(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
    return call(link, Op::cntr_adderr, {.size = value},
                [&] { return link.next.cntr->adderr(cntr, value); });
  }
  int cntr_seterr(const weft_hook_link &link, fid_cntr *cntr, uint64_t value) {
    return call(link, Op::cntr_seterr, {.size = value},
                [&] { return link.next.cntr->seterr(cntr, value); });
  }

  // ---- connections ----

  int connect(const weft_hook_link &link, fid_ep *ep, const void *addr, const void *param,
              size_t paramlen) {
    return call(link, Op::connect, {.size = paramlen},
                [&] { return link.next.cm->connect(ep, addr, param, paramlen); });
  }
  int listen(const weft_hook_link &link, fid_pep *pep) {
    const int rc = call(link, Op::listen, {}, [&] { return link.next.cm->listen(pep); });
    if (rc == 0) note_addresses(link, &pep->fid);
    return rc;
  }
  int accept(const weft_hook_link &link, fid_ep *ep, const void *param, size_t paramlen) {
    return call(link, Op::accept, {.size = paramlen},
                [&] { return link.next.cm->accept(ep, param, paramlen); });
  }
  int reject(const weft_hook_link &link, fid_pep *pep, fid_t handle, const void *param,
             size_t paramlen) {
    return call(link, Op::reject, {.size = paramlen},
                [&] { return link.next.cm->reject(pep, handle, param, paramlen); });
  }
  int shutdown(const weft_hook_link &link, fid_ep *ep, uint64_t flags) {
    return call(link, Op::shutdown, {.flags = flags},
                [&] { return link.next.cm->shutdown(ep, flags); });
  }
  int setname(const weft_hook_link &link, fid_t fid, void *addr, size_t addrlen) {
    const int rc = call(link, Op::setname, {.size = addrlen},
                        [&] { return link.next.cm->setname(fid, addr, addrlen); });
    if (rc == 0) note_addresses(link, fid);
    return rc;
  }
  int getname(const weft_hook_link &link, fid_t fid, void *addr, size_t *addrlen) {
    return call(link, Op::getname, {}, [&] { return link.next.cm->getname(fid, addr, addrlen); });
  }
  int getpeer(const weft_hook_link &link, fid_ep *ep, void *addr, size_t *addrlen) {
    return call(link, Op::getpeer, {}, [&] { return link.next.cm->getpeer(ep, addr, addrlen); });
  }
  int join(const weft_hook_link &link, fid_ep *ep, const void *addr, uint64_t flags, fid_mc **mc,
           void *context) {
    return call(link, Op::join, {.flags = flags, .context = context},
                [&] { return link.next.cm->join(ep, addr, flags, mc, context); });
  }

  // ---- what objects are opened from others ----

  int domain(const weft_hook_link &link, fid_fabric *fabric, fi_info *wanted, fid_domain **made,
             void *context) {
    return open(link, Op::domain, made, context,
                [&] { return link.next.fabric->domain(fabric, wanted, made, context); });
  }
  int domain2(const weft_hook_link &link, fid_fabric *fabric, fi_info *wanted, fid_domain **made,
              uint64_t flags, void *context) {
    return open(link, Op::domain, made, context,
                [&] { return link.next.fabric->domain2(fabric, wanted, made, flags, context); });
  }
  int passive_ep(const weft_hook_link &link, fid_fabric *fabric, fi_info *wanted, fid_pep **made,
                 void *context) {
    return open(link, Op::passive_ep, made, context,
                [&] { return link.next.fabric->passive_ep(fabric, wanted, made, context); });
  }
  int eq_open(const weft_hook_link &link, fid_fabric *fabric, fi_eq_attr *attr, fid_eq **made,
              void *context) {
    return open(link, Op::eq_open, made, context,
                [&] { return link.next.fabric->eq_open(fabric, attr, made, context); });
  }
  int wait_open(const weft_hook_link &link, fid_fabric *fabric, fi_wait_attr *attr,
                fid_wait **made) {
    return open(link, Op::wait_open, made, nullptr,
                [&] { return link.next.fabric->wait_open(fabric, attr, made); });
  }
  int trywait(const weft_hook_link &link, fid_fabric *fabric, struct fid **fids, int count) {
    return polled(link, Op::trywait,
                  [&] { return link.next.fabric->trywait(fabric, fids, count); });
  }
  int av_open(const weft_hook_link &link, fid_domain *parent, fi_av_attr *attr, fid_av **made,
              void *context) {
    if (attr != nullptr) note_user_ids(link, attr->flags);
    return open(link, Op::av_open, made, context,
                [&] { return link.next.domain->av_open(parent, attr, made, context); });
  }
  int cq_open(const weft_hook_link &link, fid_domain *parent, fi_cq_attr *attr, fid_cq **made,
              void *context) {
    const int rc = open(link, Op::cq_open, made, context,
                        [&] { return link.next.domain->cq_open(parent, attr, made, context); });
    if (rc != 0 || attr == nullptr) return rc;
    // Other formats, and "whatever you like", show with the first entry.
    if (Seen *seen = seen_of(&(*made)->fid); seen != nullptr && entry_size(raw(attr->format)) != 0)
      set_format(*seen, raw(attr->format));
    return rc;
  }
  int endpoint(const weft_hook_link &link, fid_domain *parent, fi_info *wanted, fid_ep **made,
               void *context) {
    return opened_endpoint(
        open(link, Op::endpoint, made, context,
             [&] { return link.next.domain->endpoint(parent, wanted, made, context); }),
        wanted, made);
  }
  int endpoint2(const weft_hook_link &link, fid_domain *parent, fi_info *wanted, fid_ep **made,
                uint64_t flags, void *context) {
    return opened_endpoint(
        open(link, Op::endpoint, made, context,
             [&] { return link.next.domain->endpoint2(parent, wanted, made, flags, context); }),
        wanted, made);
  }
  int scalable_ep(const weft_hook_link &link, fid_domain *parent, fi_info *wanted, fid_ep **made,
                  void *context) {
    return opened_endpoint(
        open(link, Op::scalable_ep, made, context,
             [&] { return link.next.domain->scalable_ep(parent, wanted, made, context); }),
        wanted, made);
  }
  int cntr_open(const weft_hook_link &link, fid_domain *parent, fi_cntr_attr *attr, fid_cntr **made,
                void *context) {
    return open(link, Op::cntr_open, made, context,
                [&] { return link.next.domain->cntr_open(parent, attr, made, context); });
  }
  int poll_open(const weft_hook_link &link, fid_domain *parent, fi_poll_attr *attr,
                fid_poll **made) {
    return open(link, Op::poll_open, made, nullptr,
                [&] { return link.next.domain->poll_open(parent, attr, made); });
  }
  int stx_ctx(const weft_hook_link &link, fid_domain *parent, fi_tx_attr *attr, fid_stx **made,
              void *context) {
    return open(link, Op::stx_ctx, made, context,
                [&] { return link.next.domain->stx_ctx(parent, attr, made, context); });
  }
  int srx_ctx(const weft_hook_link &link, fid_domain *parent, fi_rx_attr *attr, fid_ep **made,
              void *context) {
    return open(link, Op::srx_ctx, made, context,
                [&] { return link.next.domain->srx_ctx(parent, attr, made, context); });
  }
  int tx_ctx(const weft_hook_link &link, fid_ep *sep, int index, fi_tx_attr *attr, fid_ep **made,
             void *context) {
    const int rc = open(link, Op::tx_ctx, made, context,
                        [&] { return link.next.ep->tx_ctx(sep, index, attr, made, context); });
    Seen *seen = rc == 0 ? seen_of(&(*made)->fid) : nullptr;
    if (seen != nullptr && seen->entry != nullptr && attr != nullptr)
      seen->entry->tx_op_flags = attr->op_flags;
    return rc;
  }
  int rx_ctx(const weft_hook_link &link, fid_ep *sep, int index, fi_rx_attr *attr, fid_ep **made,
             void *context) {
    return open(link, Op::rx_ctx, made, context,
                [&] { return link.next.ep->rx_ctx(sep, index, attr, made, context); });
  }

  // ---- the life of an object ----

  int close(const weft_hook_link &link, fid *fid) {
    Seen &seen = object_state<HookTrace>(link);
    // Once it is closed, link and state are gone, and this hook may be; the store is not.
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
    const int rc = call(link, Op::bind, {.tag = id_of(bound), .flags = flags},
                        [&] { return link.next.fid->bind(fid, bound, flags); });
    ObjectEntry *entry = object_state<HookTrace>(link).entry;
    if (rc != 0 || bound == nullptr || entry == nullptr || !is_endpoint(fid->fclass)) return rc;
    const auto id = uint32_t(id_of(bound));
    switch (bound->fclass) {
      case FI_CLASS_CQ:
        if ((flags & FI_TRANSMIT) != 0 || fid->fclass == FI_CLASS_TX_CTX) {
          entry->tx_cq = id;
          entry->tx_bind_flags = flags;
        }
        if ((flags & FI_RECV) != 0 || fid->fclass == FI_CLASS_RX_CTX) {
          entry->rx_cq = id;
          entry->rx_bind_flags = flags;
        }
        break;
      case FI_CLASS_EQ:
        entry->eq = id;
        break;
      case FI_CLASS_AV:
        entry->av = id;
        break;
      case FI_CLASS_SRX_CTX:
        entry->srx = id;
        break;
      default:
        break;
    }
    return rc;
  }
  int control(const weft_hook_link &link, fid *fid, int command, void *arg) {
    const int rc = call(link, Op::control, {.tag = uint64_t(uint32_t(command))},
                        [&] { return link.next.fid->control(fid, command, arg); });
    if (rc == 0 && command == FI_ENABLE && is_endpoint(fid->fclass)) note_addresses(link, fid);
    return rc;
  }
  ssize_t cancel(const weft_hook_link &link, fid_t fid, void *context) {
    return call(link, Op::cancel, {.context = context},
                [&] { return link.next.ep->cancel(fid, context); });
  }
  int setopt(const weft_hook_link &link, fid_t fid, int level, int optname, const void *value,
             size_t length) {
    return call(link, Op::setopt, {.size = length, .tag = uint64_t(uint32_t(optname))},
                [&] { return link.next.ep->setopt(fid, level, optname, value, length); });
  }

  // ---- memory regions, address vectors, sets ----

  int mr_reg(const weft_hook_link &link, fid *parent, const void *buf, size_t len, uint64_t access,
             uint64_t offset, uint64_t key, uint64_t flags, fid_mr **mr, void *context) {
    return call(link, Op::mr_reg, {.size = len, .flags = access, .context = buf}, [&] {
      return link.next.mr->reg(parent, buf, len, access, offset, key, flags, mr, context);
    });
  }
  int mr_regv(const weft_hook_link &link, fid *parent, const struct iovec *iov, size_t count,
              uint64_t access, uint64_t offset, uint64_t key, uint64_t flags, fid_mr **mr,
              void *context) {
    return call(link, Op::mr_regv, {.flags = access}, [&] {
      return link.next.mr->regv(parent, iov, count, access, offset, key, flags, mr, context);
    });
  }
  int mr_regattr(const weft_hook_link &link, fid *parent, const struct fi_mr_attr *attr,
                 uint64_t flags, fid_mr **mr) {
    const Post what{.flags = attr != nullptr ? attr->access : 0};
    return call(link, Op::mr_regattr, what,
                [&] { return link.next.mr->regattr(parent, attr, flags, mr); });
  }
  int av_insert(const weft_hook_link &link, fid_av *av, const void *addr, size_t count,
                fi_addr_t *peers, uint64_t flags, void *context) {
    note_user_ids(link, flags);
    const int rc =
        call(link, Op::av_insert, {.size = count, .flags = flags, .context = context},
             [&] { return link.next.av->insert(av, addr, count, peers, flags, context); });
    if (rc > 0 && peers != nullptr) note_peers(link, av, peers, count);
    return rc;
  }
  int av_insertsvc(const weft_hook_link &link, fid_av *av, const char *node, const char *service,
                   fi_addr_t *peers, uint64_t flags, void *context) {
    note_user_ids(link, flags);
    const int rc = call(link, Op::av_insertsvc, {.flags = flags, .context = context}, [&] {
      return link.next.av->insertsvc(av, node, service, peers, flags, context);
    });
    if (rc > 0 && peers != nullptr) note_peers(link, av, peers, 1);
    return rc;
  }
  int av_insertsym(const weft_hook_link &link, fid_av *av, const char *node, size_t nodes,
                   const char *service, size_t services, fi_addr_t *peers, uint64_t flags,
                   void *context) {
    note_user_ids(link, flags);
    const int rc = call(link, Op::av_insertsym,
                        {.size = nodes * services, .flags = flags, .context = context}, [&] {
                          return link.next.av->insertsym(av, node, nodes, service, services, peers,
                                                         flags, context);
                        });
    if (rc > 0 && peers != nullptr) note_peers(link, av, peers, nodes * services);
    return rc;
  }
  int av_remove(const weft_hook_link &link, fid_av *av, fi_addr_t *peers, size_t count,
                uint64_t flags) {
    return call(link, Op::av_remove, {.size = count, .flags = flags},
                [&] { return link.next.av->remove(av, peers, count, flags); });
  }
  int wait(const weft_hook_link &link, fid_wait *waitset, int timeout) {
    return call(link, Op::wait, {}, [&] { return link.next.wait->wait(waitset, timeout); });
  }
  int poll(const weft_hook_link &link, fid_poll *pollset, void **context, int count) {
    return polled(link, Op::poll, [&] { return link.next.poll->poll(pollset, context, count); });
  }

 private:
  template <class T>
  static Result<T> at(Result<T> result, const char *origin) {
    if (result) return result;
    return fail(result.error().code, "%s (%s)", result.error().text.c_str(), origin);
  }
  static uint64_t size_of(enum fi_datatype type) {
    return datatype_size(raw(type));
  }
  template <class Message>
  static Post described(bool good, const Message *msg, uint64_t flags, uint64_t tag) {
    if (msg == nullptr) return {.flags = flags};
    return {.size = bytes_of(good, *msg),
            .peer = msg->addr,
            .tag = tag,
            .flags = flags,
            .context = msg->context};
  }
  template <class Message>
  static uint64_t bytes_of(bool good, const Message &msg) {
    if constexpr (std::is_same_v<Message, struct fi_msg_atomic>) {
      return good && msg.rma_iov != nullptr
                 ? ioc_count(msg.rma_iov, msg.rma_iov_count) * size_of(msg.datatype)
                 : 0;
    } else {
      return bytes_in(good, msg.msg_iov, msg.iov_count);
    }
  }
  template <class Message>
  static uint64_t target(bool good, const Message *msg) {
    return good && msg != nullptr && msg->rma_iov != nullptr && msg->rma_iov_count > 0
               ? msg->rma_iov[0].addr
               : 0;
  }
  static uint64_t elements(bool good, const struct fi_ioc *iov, size_t count) {
    return good && iov != nullptr ? ioc_count(iov, count) : 0;
  }
  static const void *pointer(uint64_t value) {
    return reinterpret_cast<const void *>(uintptr_t(value));
  }
  static bool is_endpoint(size_t fclass) {
    return fclass == FI_CLASS_EP || fclass == FI_CLASS_SEP || fclass == FI_CLASS_TX_CTX ||
           fclass == FI_CLASS_RX_CTX || fclass == FI_CLASS_SRX_CTX || fclass == FI_CLASS_PEP;
  }
  // 0 for what is no object of a plugin, such as what connection requests name.
  static uint64_t id_of(const struct fid *fid) {
    return fid != nullptr && fid->fclass <= FI_CLASS_AV_SET && fid->fclass != FI_CLASS_CONNREQ &&
                   fid->fclass != FI_CLASS_UNSPEC && header_of(fid)->magic == WEFT_FID_MAGIC
               ? header_of(fid)->id_core
               : 0;
  }
  // What this hook knows of another object; null if it is not on it.
  Seen *seen_of(const struct fid *fid) const {
    if (id_of(fid) == 0) return nullptr;
    weft_hook_link **links = __atomic_load_n(&header_of(fid)->links_core, __ATOMIC_ACQUIRE);
    if (links == nullptr) return nullptr;
    const weft_hook_link *link = __atomic_load_n(&links[instance_->hook_slot], __ATOMIC_ACQUIRE);
    return link != nullptr ? static_cast<Seen *>(link->object_state) : nullptr;
  }

  static void publish(ObjectEntry &entry) {
    __atomic_store_n(reinterpret_cast<uint32_t *>(&entry.state), uint32_t(trace::ObjectState::open),
                     __ATOMIC_RELEASE);
  }
  static void set_format(Seen &seen, int format) {
    seen.cq_format.store(uint8_t(format), kRelaxed);
    if (seen.entry != nullptr) seen.entry->cq_format = uint32_t(format) + 1;
  }

  // Where this thread writes a record of the operation; null if it is not to.
  static Slot *slot_for(Seen &seen, Op op) {
    return seen.ops.has(op) ? seen.store->slot() : nullptr;
  }

  static bool is_error(int64_t rc) {
    return rc < 0 && rc != -FI_EAGAIN && rc != -FI_EAVAIL;
  }

  static void record(const Seen &seen, Slot &slot, Op op, uint64_t begin, int64_t result,
                     const Post &what) {
    write(seen, slot, op, begin, ticks_between(begin, ticks()), result, what);
  }
  static void write(const Seen &seen, Slot &slot, Op op, uint64_t begin, uint32_t duration,
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

  // A call that says with a negative result that it failed.
  template <class Next>
  static std::invoke_result_t<Next> call(const weft_hook_link &link, Op op, const Post &what,
                                         Next next) {
    Seen &seen = object_state<HookTrace>(link);
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
  // An error may be what the recording has been waiting for: then it is its first record.
  static void note_error(Seen &seen, const Slot *slot, Op op, uint64_t begin, int64_t rc,
                         const Post &what) {
    seen.store->saw_error();
    if (slot != nullptr) return;
    if (Slot *now = slot_for(seen, op)) record(seen, *now, op, begin, rc, what);
  }

  // A transfer. `describe` says of a good or a bad one what is recorded.
  template <class Describe, class Next>
  __attribute__((always_inline)) ssize_t post(const weft_hook_link &link, Op op, Describe describe,
                                              Next next) {
    Seen &seen = object_state<HookTrace>(link);
    Slot *slot = slot_for(seen, op);
    if (slot != nullptr && !samples(*slot)) slot = nullptr;
    if (slot == nullptr) {
      const ssize_t rc = next();
      if (is_error(rc)) note_error(seen, slot, op, ticks(), rc, describe(false));
      return rc;
    }
    // An endpoint that was there before the hook.
    if (!seen.has_addresses.load(kRelaxed)) [[unlikely]]
      note_addresses(link, seen.fid);
    ++slot->depth;
    const uint64_t begin = ticks();
    // Reading the clock is what recording costs most. How long a post takes is looked at for one of
    // 16 of those in quick succession, and for all others.
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
    write(seen, *slot, op, begin, measures ? ticks_between(begin, ticks()) : kNotMeasured, rc,
          what);
    if (rc < 0) [[unlikely]]
      seen.store->saw_error();
    return rc;
  }
  bool passes(const Post &what) const {
    if (what.size < settings_.min_size) return false;
    return settings_.peers.empty() || what.peer >= kNoPeer ||
           std::find(settings_.peers.begin(), settings_.peers.end(), uint32_t(what.peer)) !=
               settings_.peers.end();
  }
  // Asked by every post and read, so that a run of them is in or out as a whole.
  bool samples(Slot &slot) const {
    return settings_.sample <= 1 || slot.sampled++ / 64 % settings_.sample == 0;
  }
  static void note_retries(Seen &seen, Slot &slot) {
    const uint64_t count = seen.in_vain.count.exchange(0, kRelaxed);
    seen.all_in_vain.fetch_add(count, kRelaxed);
    record(seen, slot, Op::retries, seen.in_vain.since.load(kRelaxed), 0,
           {.size = count, .tag = seen.in_vain.op.load(kRelaxed)});
  }

  // Completions, in the format of the queue.
  template <class Next>
  ssize_t take(const weft_hook_link &link, Op op, void *buf, size_t count, fi_addr_t *sources,
               Next next) {
    Seen &seen = object_state<HookTrace>(link);
    Slot *slot = slot_for(seen, op);
    if (slot == nullptr || !samples(*slot)) return next(buf, count, sources);
    int format = seen.cq_format.load(kRelaxed);
    // Who reads in vain over and over does not pay for the clock, and has one reading less when
    // something comes: then the call began with the first that was recorded within it, or is not
    // measured.
    const bool spins = seen.in_vain.count.load(kRelaxed) != 0;
    const uint64_t before = slot->next;
    ++slot->depth;
    uint64_t begin = spins ? 0 : ticks();
    const ssize_t n = format != 0 || count == 0 || buf == nullptr
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
      begin = end;
      for (uint64_t k = before; k != slot->next && k != before + 64; ++k)
        begin = std::min(begin, slot->records[k & slot->mask].begin);
    }
    if (n <= 0) {
      if (n < 0) {
        record(seen, *slot, op, begin, n, {.context = pointer(count)});
        seen.store->saw_error();
      }
      return n;
    }
    Record note{.begin = end,
                .object = seen.id,
                .peer = kNoPeer,
                .op = uint16_t(Op::completion),
                .depth = uint8_t(slot->depth + 1),
                .fclass = seen.fclass};
    format = seen.cq_format.load(kRelaxed);
    const size_t size = entry_size(format);
    if (seen.ops.has(Op::completion)) {
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
        slot->write(note);
      }
    }
    uint64_t in_vain = seen.in_vain.count.load(kRelaxed);
    if (in_vain != 0) {
      in_vain = seen.in_vain.count.exchange(0, kRelaxed);
      seen.all_in_vain.fetch_add(in_vain, kRelaxed);
    }
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
  // The first entry of a queue that was opened before the hook came: how much of it is written
  // tells the format. One entry only, so that the application gets it whole even if this errs.
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

  template <class Next>
  ssize_t event_read(const weft_hook_link &link, Op op, uint32_t *event, const void *buf,
                     uint64_t flags, Next next) {
    Seen &seen = object_state<HookTrace>(link);
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
      seen.all_in_vain.fetch_add(seen.in_vain.count.exchange(0, kRelaxed), kRelaxed);
      record(seen, *slot, op, begin, rc,
             {.size = rc > 0 ? uint64_t(rc) : 0, .tag = what, .context = pointer(subject)});
    }
    if (rc < 0) seen.store->saw_error();
    return rc;
  }

  template <class Next>
  static uint64_t counted(const weft_hook_link &link, Op op, Next next) {
    Seen &seen = object_state<HookTrace>(link);
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
    const uint64_t in_vain = seen.in_vain.count.exchange(0, kRelaxed);
    seen.all_in_vain.fetch_add(in_vain, kRelaxed);
    record(seen, *slot, op, begin, 0,
           {.size = value,
            .tag = in_vain != 0 ? seen.in_vain.since.load(kRelaxed) : 0,
            .flags = in_vain});
    return value;
  }

  // A call that is made over and over until it finds something: 0 and -FI_EAGAIN count as nothing.
  template <class Next>
  static int polled(const weft_hook_link &link, Op op, Next next) {
    Seen &seen = object_state<HookTrace>(link);
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
    const uint64_t in_vain = seen.in_vain.count.exchange(0, kRelaxed);
    seen.all_in_vain.fetch_add(in_vain, kRelaxed);
    record(seen, *slot, op, begin, rc, {.flags = in_vain});
    return rc;
  }

  template <class Made, class Next>
  static int open(const weft_hook_link &link, Op op, Made **made, const void *context, Next next) {
    Seen &seen = object_state<HookTrace>(link);
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
  int opened_endpoint(int rc, const fi_info *wanted, fid_ep **made) const {
    if (rc != 0 || wanted == nullptr) return rc;
    Seen *seen = seen_of(&(*made)->fid);
    if (seen == nullptr || seen->entry == nullptr) return rc;
    if (wanted->ep_attr != nullptr) seen->entry->ep_type = uint32_t(raw(wanted->ep_attr->type));
    if (wanted->tx_attr != nullptr) seen->entry->tx_op_flags = wanted->tx_attr->op_flags;
    if (wanted->rx_attr != nullptr) seen->entry->rx_op_flags = wanted->rx_attr->op_flags;
    seen->entry->caps = wanted->caps;
    return rc;
  }

  // An endpoint's own address is known when it is enabled or listens, the other's when it is
  // connected. Asked of the tables beneath, so that nothing of it is recorded here.
  static void note_addresses(const weft_hook_link &link, struct fid *fid) {
    Seen &seen = object_state<HookTrace>(link);
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
  void note_connected(struct fid *fid) const {
    if (seen_of(fid) == nullptr) return;
    note_addresses(hook_link<HookTrace>(fid), fid);
  }
  // Which vectors a queue hears of is not known here, so that one with ids hides all sources.
  static void note_user_ids(const weft_hook_link &link, uint64_t flags) {
    if ((flags & FI_AV_USER_ID) != 0) object_state<HookTrace>(link).store->hide_sources();
  }
  static void note_peers(const weft_hook_link &link, fid_av *av, const fi_addr_t *peers,
                         size_t count) {
    Seen &seen = object_state<HookTrace>(link);
    if (seen.store->is_inherited()) return;
    for (size_t i = 0; i < count; ++i) {
      if (peers[i] == FI_ADDR_NOTAVAIL || peers[i] >= kNoPeer) continue;
      if (!seen.store->wants_addresses()) {
        seen.store->add_address(0, 0, "");  // counts it
        return;
      }
      alignas(16) char address[128];
      size_t length = sizeof address;
      if (link.next.av->lookup(av, peers[i], address, &length) == 0 && length <= sizeof address)
        seen.store->add_address(seen.id, uint32_t(peers[i]), address_text(address, length).c_str());
    }
  }

  const weft_instance *const instance_;
  const Settings settings_;
  const bool filters_data_;
};

constexpr PluginInfo kPlugin{.name = "hook-trace",
                             .vendor = "weft",
                             .version = WEFT_VERSION,
                             .license = "BSD-2-Clause",
                             .required_core_caps = WEFT_CORE_CAP_HOOKS};

}  // namespace
}  // namespace weft::trace

WEFT_PLUGIN(weft::trace::kPlugin, weft::trace::HookTrace)
