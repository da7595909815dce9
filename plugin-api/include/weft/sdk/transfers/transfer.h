// SPDX-License-Identifier: BSD-2-Clause
// TransferOps: the thirty-odd calls by which an application starts a transfer (fi_msg.3,
// fi_tagged.3, fi_rma.3, fi_atomic.3), turned into four requests. recv_ops.h has those that post a
// receive.
//
// Example:
//    class Endpoint : public EndpointCore, public TransferOps<Endpoint> {
//     public:
//      ssize_t start(const RecvRequest &request);    // all of them with the engine's lock held
//      ssize_t start(const SendRequest &request);
//      ssize_t start(const RmaRequest &request);
//      ssize_t start(const AtomicRequest &request);  // if its tables have atomics
//    };
//
// It checks pointers, counts, flags, that lengths add up and agree, and the endpoint's state and
// limits (EndpointCore has the answers: lock, enabled, offers, tx_flags, rx_flags, reports,
// heeds_level, check_length, check_atomic, kSendFlags). The endpoint checks everything about the
// peer. It keeps nothing and allocates nothing: pointers of a request are valid during start()
// only.
//
// `desc` is what the application passed: a descriptor (fi_mr_desc) for each vector, or null for
// none. TransferOps does not look at them. A call with one buffer has one, which may be null.
//
// A call with FI_TRIGGER starts later, by the domain's DeferredQueue (deferred.h). An endpoint
// whose device does that has start_later(request, trigger) in place of the one here. An endpoint
// that takes deferred work passes kQueueDeferred of its control() to queue_deferred().
#ifndef WEFT_SDK_TRANSFERS_TRANSFER_H
#define WEFT_SDK_TRANSFERS_TRANSFER_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/transfers/atomic.h>
#include <weft/sdk/transfers/deferred_request.h>
#include <weft/sdk/transfers/recv_ops.h>
#include <weft/sdk/transfers/transfer_requests.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

namespace weft::sdk {

template <class E>
class TransferOps : public ReceiveOps<E> {
 public:
  // ---- fi_ops_msg ----
  ssize_t send(const void *buf, size_t len, void *desc, fi_addr_t dest, void *context) {
    return one(false, buf, len, &desc, dest, 0, 0, self().tx_flags(), context);
  }
  ssize_t sendv(const struct iovec *iov, void **desc, size_t count, fi_addr_t dest, void *context) {
    return many(false, iov, desc, count, dest, 0, 0, self().tx_flags(), context);
  }
  ssize_t sendmsg(const struct fi_msg *msg, uint64_t flags) { return send_msg(msg, flags); }
  ssize_t inject(const void *buf, size_t len, fi_addr_t dest) {
    return one(false, buf, len, nullptr, dest, 0, 0, inject_flags(FI_SEND), nullptr);
  }
  ssize_t senddata(const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
                   void *context) {
    return one(false, buf, len, &desc, dest, 0, data, self().tx_flags() | FI_REMOTE_CQ_DATA,
               context);
  }
  ssize_t injectdata(const void *buf, size_t len, uint64_t data, fi_addr_t dest) {
    return one(false, buf, len, nullptr, dest, 0, data, inject_flags(FI_SEND) | FI_REMOTE_CQ_DATA,
               nullptr);
  }

  // ---- fi_ops_tagged ----
  ssize_t tsend(const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t tag,
                void *context) {
    return one(true, buf, len, &desc, dest, tag, 0, self().tx_flags(), context);
  }
  ssize_t tsendv(const struct iovec *iov, void **desc, size_t count, fi_addr_t dest, uint64_t tag,
                 void *context) {
    return many(true, iov, desc, count, dest, tag, 0, self().tx_flags(), context);
  }
  ssize_t tsendmsg(const struct fi_msg_tagged *msg, uint64_t flags) { return send_msg(msg, flags); }
  ssize_t tinject(const void *buf, size_t len, fi_addr_t dest, uint64_t tag) {
    return one(true, buf, len, nullptr, dest, tag, 0, inject_flags(FI_SEND), nullptr);
  }
  ssize_t tsenddata(const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
                    uint64_t tag, void *context) {
    return one(true, buf, len, &desc, dest, tag, data, self().tx_flags() | FI_REMOTE_CQ_DATA,
               context);
  }
  ssize_t tinjectdata(const void *buf, size_t len, uint64_t data, fi_addr_t dest, uint64_t tag) {
    return one(true, buf, len, nullptr, dest, tag, data, inject_flags(FI_SEND) | FI_REMOTE_CQ_DATA,
               nullptr);
  }

  // ---- fi_ops_rma ----
  ssize_t read(void *buf, size_t len, void *desc, fi_addr_t src, uint64_t addr, uint64_t key,
               void *context) {
    return rma_one(false, buf, len, &desc, src, addr, key, 0, self().tx_flags(), context);
  }
  ssize_t readv(const struct iovec *iov, void **desc, size_t count, fi_addr_t src, uint64_t addr,
                uint64_t key, void *context) {
    return rma_many(false, iov, desc, count, src, addr, key, self().tx_flags(), context);
  }
  ssize_t readmsg(const struct fi_msg_rma *msg, uint64_t flags) {
    return rma_msg(false, msg, flags);
  }
  ssize_t write(const void *buf, size_t len, void *desc, fi_addr_t dest, uint64_t addr,
                uint64_t key, void *context) {
    return rma_one(true, buf, len, &desc, dest, addr, key, 0, self().tx_flags(), context);
  }
  ssize_t writev(const struct iovec *iov, void **desc, size_t count, fi_addr_t dest, uint64_t addr,
                 uint64_t key, void *context) {
    return rma_many(true, iov, desc, count, dest, addr, key, self().tx_flags(), context);
  }
  ssize_t writemsg(const struct fi_msg_rma *msg, uint64_t flags) {
    return rma_msg(true, msg, flags);
  }
  ssize_t inject_write(const void *buf, size_t len, fi_addr_t dest, uint64_t addr, uint64_t key) {
    return rma_one(true, buf, len, nullptr, dest, addr, key, 0, inject_flags(FI_WRITE), nullptr);
  }
  ssize_t writedata(const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
                    uint64_t addr, uint64_t key, void *context) {
    return rma_one(true, buf, len, &desc, dest, addr, key, data,
                   self().tx_flags() | FI_REMOTE_CQ_DATA, context);
  }
  ssize_t inject_writedata(const void *buf, size_t len, uint64_t data, fi_addr_t dest,
                           uint64_t addr, uint64_t key) {
    return rma_one(true, buf, len, nullptr, dest, addr, key, data,
                   inject_flags(FI_WRITE) | FI_REMOTE_CQ_DATA, nullptr);
  }

  // ---- fi_ops_atomic ----
  ssize_t atomic(const void *buf, size_t count, void *desc, fi_addr_t dest, uint64_t addr,
                 uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context) {
    const Simple s(buf, nullptr, nullptr, count, addr, key);
    AtomicRequest request =
        s.request(AtomicKind::kWrite, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operand_desc = &desc;
    return start_now(std::move(request));
  }
  ssize_t atomicv(const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t dest,
                  uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                  void *context) {
    Vectors v(iov, count, addr, key);
    AtomicRequest request =
        v.request(AtomicKind::kWrite, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operand_desc = desc;
    return start_now(std::move(request));
  }
  ssize_t atomicmsg(const struct fi_msg_atomic *msg, uint64_t flags) {
    return atomic_msg({.kind = AtomicKind::kWrite}, msg, flags);
  }
  ssize_t inject_atomic(const void *buf, size_t count, fi_addr_t dest, uint64_t addr, uint64_t key,
                        enum fi_datatype datatype, enum fi_op op) {
    const Simple s(buf, nullptr, nullptr, count, addr, key);
    return start_now(s.request(AtomicKind::kWrite, dest, raw(datatype), raw(op),
                               inject_flags(FI_WRITE), nullptr));
  }
  ssize_t fetch_atomic(const void *buf, size_t count, void *desc, void *result, void *result_desc,
                       fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                       enum fi_op op, void *context) {
    const Simple s(buf, nullptr, result, count, addr, key);
    AtomicRequest request =
        s.request(AtomicKind::kFetch, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operand_desc = &desc;
    request.result_desc = &result_desc;
    return start_now(std::move(request));
  }
  ssize_t fetch_atomicv(const struct fi_ioc *iov, void **desc, size_t count, struct fi_ioc *resultv,
                        void **result_desc, size_t result_count, fi_addr_t dest, uint64_t addr,
                        uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context) {
    Vectors v(raw(op) == FI_ATOMIC_READ ? resultv : iov,
              raw(op) == FI_ATOMIC_READ ? result_count : count, addr, key);
    AtomicRequest request =
        v.request(AtomicKind::kFetch, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operands = iov;
    request.operand_desc = desc;
    request.operand_count = count;
    request.results = resultv;
    request.result_desc = result_desc;
    request.result_count = result_count;
    return start_now(std::move(request));
  }
  ssize_t fetch_atomicmsg(const struct fi_msg_atomic *msg, struct fi_ioc *resultv,
                          void **result_desc, size_t result_count, uint64_t flags) {
    return atomic_msg({.kind = AtomicKind::kFetch,
                       .results = resultv,
                       .result_desc = result_desc,
                       .result_count = result_count},
                      msg, flags);
  }
  ssize_t compare_atomic(const void *buf, size_t count, void *desc, const void *compare,
                         void *compare_desc, void *result, void *result_desc, fi_addr_t dest,
                         uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                         void *context) {
    const Simple s(buf, compare, result, count, addr, key);
    AtomicRequest request =
        s.request(AtomicKind::kCompare, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operand_desc = &desc;
    request.compare_desc = &compare_desc;
    request.result_desc = &result_desc;
    return start_now(std::move(request));
  }
  ssize_t compare_atomicv(const struct fi_ioc *iov, void **desc, size_t count,
                          const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
                          struct fi_ioc *resultv, void **result_desc, size_t result_count,
                          fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                          enum fi_op op, void *context) {
    Vectors v(iov, count, addr, key);
    AtomicRequest request =
        v.request(AtomicKind::kCompare, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operand_desc = desc;
    request.compares = comparev;
    request.compare_desc = compare_desc;
    request.compare_count = compare_count;
    request.results = resultv;
    request.result_desc = result_desc;
    request.result_count = result_count;
    return start_now(std::move(request));
  }
  ssize_t compare_atomicmsg(const struct fi_msg_atomic *msg, const struct fi_ioc *comparev,
                            void **compare_desc, size_t compare_count, struct fi_ioc *resultv,
                            void **result_desc, size_t result_count, uint64_t flags) {
    return atomic_msg({.kind = AtomicKind::kCompare,
                       .compares = comparev,
                       .compare_desc = compare_desc,
                       .compare_count = compare_count,
                       .results = resultv,
                       .result_desc = result_desc,
                       .result_count = result_count},
                      msg, flags);
  }

  // ---- what waits for a counter (deferred.h) ----
  // The lock is held, and the request has passed all checks.
  template <class Request>
  ssize_t start_later(const Request &request, const Trigger &trigger) {
    E &e = self();
    DeferredQueue *const queue = e.deferred_queue();
    if (queue == nullptr) return -FI_ENOSYS;
    // Who would copy the bytes of an inject does not know memory of devices.
    if (request.flags & FI_INJECT && e.domain_context().hmem) return -FI_ENOSYS;
    return queue->add(std::make_unique<DeferredTransfer<E, Request>>(
        e, request,
        Deferred::Origin{.trigger = trigger, .endpoint = &e, .context = request.context}));
  }
  // A call with FI_TRIGGER, which an endpoint without has_trigger() does not know.
  template <class Request>
  ssize_t start_triggered(Request &&) {
    return -FI_EBADFLAGS;
  }
  template <class Request>
  requires requires(E &e) { e.has_trigger(); }
  ssize_t start_triggered(Request &&request) {
    E &e = self();
    if (request.flags & kDeferred || !e.has_trigger()) return -FI_EBADFLAGS;
    Trigger trigger;
    if (const ssize_t rc = read_trigger(e.domain_context(), request.context, trigger); rc != 0)
      return rc;
    request.flags &= ~uint64_t(FI_TRIGGER);
    if (const ssize_t rc = prepare(request); rc != 0) return rc;
    Guard guard(e.lock());
    if (const ssize_t rc = admit(needs(request)); rc != 0) return rc;
    return e.start_later(request, trigger);
  }
  // Deferred work of the domain: `arg` is a DeferredCall. 0 or -FI_E...
  int queue_deferred(void *arg) {
    if (arg == nullptr) return -FI_EINVAL;
    auto &call = *static_cast<DeferredCall *>(arg);
    if (call.domain != &self().domain_context()) return -FI_EINVAL;
    if (self().deferred_queue() == nullptr) return -FI_EOPNOTSUPP;
    return int(std::visit(
        [&](auto &request) { return queue_work(std::move(request), call.origin); }, call.request));
  }

 private:
  static constexpr uint64_t kInjectCall = FI_INJECT | TxContext::kSilent;
  static constexpr uint64_t kWorkRecvFlags = FI_COMPLETION | FI_MORE;

  E &self() { return static_cast<E &>(*this); }

  // The flags of fi_inject and its like. It changes who owns the buffer, and there is no entry, but
  // a counter waits for the endpoint's level (fi_msg.3, fi_cntr.3).
  uint64_t inject_flags(uint64_t direction) {
    const uint64_t level = self().tx_flags() & kLevelFlags;
    return kInjectCall | (level != 0 && self().heeds_level(direction) ? level : 0);
  }

  // A call with flags that names no level has the endpoint's, too.
  uint64_t with_level(uint64_t flags) {
    return flags & kLevelFlags ? flags : flags | (self().tx_flags() & kLevelFlags);
  }

  // The flags that calls with flags may have, without FI_TRIGGER.
  static uint64_t known_flags(const SendRequest &) { return E::kSendFlags; }
  static uint64_t known_flags(const AtomicRequest &) { return E::kSendFlags; }
  static uint64_t known_flags(const RmaRequest &request) {
    if (request.write) return E::kSendFlags;
    if constexpr (requires { E::kReadFlags; }) return E::kReadFlags;
    return EndpointCore::kReadFlags;
  }
  static uint64_t known_flags(const RecvRequest &) { return ~kDeferred; }  // start() knows
  // Operands, compare values and results of the calls that have one of each.
  struct Simple {
    fi_ioc operand, compare, result;
    fi_rma_ioc rma;
    Simple(const void *buf, const void *with, void *into, size_t count, uint64_t addr, uint64_t key)
        : operand{const_cast<void *>(buf), count},
          compare{const_cast<void *>(with), count},
          result{into, count},
          rma{addr, count, key} {}
    AtomicRequest request(AtomicKind kind, fi_addr_t dest, int datatype, int op, uint64_t flags,
                          void *context) const {
      AtomicRequest r{.kind = kind,
                      .datatype = datatype,
                      .op = op,
                      .operands = &operand,
                      .operand_count = 1,
                      .rma = &rma,
                      .rma_count = 1,
                      .dest = dest,
                      .flags = flags,
                      .context = context};
      if (kind == AtomicKind::kCompare) {
        r.compares = &compare;
        r.compare_count = 1;
      }
      if (kind != AtomicKind::kWrite) {
        r.results = const_cast<fi_ioc *>(&result);
        r.result_count = 1;
      }
      return r;
    }
  };
  // For the calls with vectors: their target is one range, as long as the vectors together.
  struct Vectors {
    const fi_ioc *iov;
    size_t count;
    fi_rma_ioc rma;
    Vectors(const fi_ioc *v, size_t n, uint64_t addr, uint64_t key)
        : iov(v), count(n), rma{addr, 0, key} {
      if (v != nullptr && n <= kIovLimit)
        for (size_t i = 0; i < n; ++i) rma.count += v[i].count;
    }
    AtomicRequest request(AtomicKind kind, fi_addr_t dest, int datatype, int op, uint64_t flags,
                          void *context) {
      return {.kind = kind,
              .datatype = datatype,
              .op = op,
              .operands = iov,
              .operand_count = count,
              .rma = &rma,
              .rma_count = 1,
              .dest = dest,
              .flags = flags,
              .context = context};
    }
  };

  ssize_t one(bool tagged, const void *buf, size_t len, void *const *desc, fi_addr_t dest,
              uint64_t tag, uint64_t data, uint64_t flags, void *context) {
    const iovec iov{const_cast<void *>(buf), len};
    return start_now(SendRequest{.tagged = tagged,
                                 .iov = &iov,
                                 .desc = desc,
                                 .count = 1,
                                 .length = len,
                                 .dest = dest,
                                 .tag = tag,
                                 .data = data,
                                 .flags = flags,
                                 .context = context});
  }
  ssize_t many(bool tagged, const iovec *iov, void *const *desc, size_t count, fi_addr_t dest,
               uint64_t tag, uint64_t data, uint64_t flags, void *context) {
    if (count > kIovLimit || (count != 0 && iov == nullptr)) return -FI_EINVAL;
    SendRequest request{.tagged = tagged,
                        .iov = iov,
                        .desc = desc,
                        .count = count,
                        .dest = dest,
                        .tag = tag,
                        .data = data,
                        .flags = flags,
                        .context = context};
    if (!add_up(iov, count, request.length)) return -FI_EMSGSIZE;
    return start_now(std::move(request));
  }
  template <class Msg>
  ssize_t send_msg(const Msg *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    if (flags & ~(E::kSendFlags | FI_TRIGGER)) return -FI_EBADFLAGS;
    SendRequest request;
    if (const ssize_t rc = fill(request, *msg, with_level(flags)); rc != 0) return rc;
    return start_now(std::move(request));
  }

  // What needs no lock, and what does.
  ssize_t prepare(SendRequest &request) {
    if (const ssize_t rc = self().check_length(request.length, request.flags); rc != 0) return rc;
    return settle_flags(request);
  }
  ssize_t prepare(RmaRequest &request) {
    if (const ssize_t rc = self().check_length(request.length, request.flags); rc != 0) return rc;
    if (!request.write) request.flags &= ~(FI_REMOTE_CQ_DATA | FI_INJECT);
    return settle_flags(request);
  }
  ssize_t prepare(AtomicRequest &request) {
    if (const ssize_t rc = self().check_atomic(request); rc != 0) return rc;
    return settle_flags(request);
  }
  static ssize_t prepare(RecvRequest &request) {  // as far as a copy of it needs
    return request.count > kIovLimit || (request.count != 0 && request.iov == nullptr) ? -FI_EINVAL
                                                                                       : 0;
  }
  template <class Request>
  ssize_t settle_flags(Request &request) {
    request.report = self().reports(request.flags);
    // An error of such a call has the context of the endpoint, because the call has none.
    if constexpr (requires { self().context(); })
      if (request.flags & TxContext::kSilent) request.context = self().context();
    request.flags &= ~TxContext::kSilent;
    return 0;
  }
  // What the endpoint must have been opened for.
  struct Needs {
    uint64_t kind, direction;
  };
  static Needs needs(const SendRequest &request) {
    return {request.tagged ? FI_TAGGED : FI_MSG, FI_SEND};
  }
  static Needs needs(const RmaRequest &request) {
    return {FI_RMA, request.write ? FI_WRITE : FI_READ};
  }
  static Needs needs(const AtomicRequest &request) {
    return {FI_ATOMIC, request.kind != AtomicKind::kWrite ? FI_READ : FI_WRITE};
  }
  static Needs needs(const RecvRequest &request) {
    return {request.tagged ? FI_TAGGED : FI_MSG, FI_RECV};
  }
  ssize_t admit(Needs needs) {
    if (!self().enabled()) return -FI_EOPBADSTATE;
    return self().offers(needs.kind, needs.direction) ? 0 : -FI_EOPNOTSUPP;
  }
  // By reference: a copy of what was just written, in wider pieces, makes the processor wait.
  template <class Request>
  ssize_t start_now(Request &&request) {
    E &e = self();
    if (request.flags & (FI_TRIGGER | kDeferred)) [[unlikely]]
      return start_triggered(std::move(request));
    if (const ssize_t rc = prepare(request); rc != 0) return rc;
    const Needs needed = needs(request);  // before the lock, so that it is a constant
    Guard guard(e.lock());
    if (const ssize_t rc = admit(needed); rc != 0) return rc;
    return e.start(request);
  }
  template <class Request>
  ssize_t queue_work(Request &&request, Deferred::Origin origin) {
    E &e = self();
    request.flags &= ~uint64_t(FI_TRIGGER);
    if (request.flags & ~known_flags(request)) return -FI_EBADFLAGS;
    if constexpr (std::is_same_v<std::remove_cvref_t<Request>, RecvRequest>) {
      if (request.flags & ~kWorkRecvFlags) return -FI_ENOSYS;  // it ends more than once, or at once
    } else {
      request.flags = with_level(request.flags);
    }
    if (const ssize_t rc = prepare(request); rc != 0) return rc;
    origin.endpoint = &e;
    origin.context = request.context;
    origin.report = (request.flags & FI_COMPLETION) != 0;
    Guard guard(e.lock());
    if (const ssize_t rc = admit(needs(request)); rc != 0) return rc;
    return e.deferred_queue()->add(
        std::make_unique<DeferredTransfer<E, Request>>(e, request, origin));
  }

  ssize_t rma_one(bool write, const void *buf, size_t len, void *const *desc, fi_addr_t dest,
                  uint64_t addr, uint64_t key, uint64_t data, uint64_t flags, void *context) {
    const iovec iov{const_cast<void *>(buf), len};
    const fi_rma_iov rma{addr, len, key};
    return start_now(RmaRequest{.write = write,
                                .iov = &iov,
                                .desc = desc,
                                .count = 1,
                                .length = len,
                                .rma = &rma,
                                .rma_count = 1,
                                .dest = dest,
                                .data = data,
                                .flags = flags,
                                .context = context});
  }
  ssize_t rma_many(bool write, const iovec *iov, void *const *desc, size_t count, fi_addr_t dest,
                   uint64_t addr, uint64_t key, uint64_t flags, void *context) {
    if (count > kIovLimit || (count != 0 && iov == nullptr)) return -FI_EINVAL;
    uint64_t length;
    if (!add_up(iov, count, length)) return -FI_EMSGSIZE;
    const fi_rma_iov rma{addr, length, key};
    return start_now(RmaRequest{.write = write,
                                .iov = iov,
                                .desc = desc,
                                .count = count,
                                .length = length,
                                .rma = &rma,
                                .rma_count = 1,
                                .dest = dest,
                                .flags = flags,
                                .context = context});
  }
  ssize_t rma_msg(bool write, const fi_msg_rma *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    RmaRequest request{.write = write};
    if (flags & ~(known_flags(request) | FI_TRIGGER)) return -FI_EBADFLAGS;
    if (const ssize_t rc = fill(request, *msg, with_level(flags)); rc != 0) return rc;
    return start_now(std::move(request));
  }

  ssize_t atomic_msg(AtomicRequest request, const fi_msg_atomic *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    if (flags & ~(E::kSendFlags | FI_TRIGGER)) return -FI_EBADFLAGS;
    fill(request, *msg, with_level(flags));
    return start_now(std::move(request));
  }
};

}  // namespace weft::sdk

#endif
