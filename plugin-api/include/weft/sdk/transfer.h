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
// check_length, check_atomic, kSendFlags). The endpoint checks everything about the peer. It keeps
// nothing and allocates nothing: pointers of a request are valid during start() only.
//
// `desc` is what the application passed: a descriptor (fi_mr_desc) for each vector, or null for
// none. TransferOps does not look at them. A call with one buffer has one, which may be null.
#ifndef WEFT_SDK_TRANSFER_H
#define WEFT_SDK_TRANSFER_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <weft/sdk/atomic.h>
#include <weft/sdk/endpoint.h>
#include <weft/sdk/iov.h>
#include <weft/sdk/recv_ops.h>

#include <utility>

namespace weft::sdk {

// `report`: a completion is wanted. `length`: bytes of all vectors. Flags are those of fi_sendmsg
// and its like (FI_INJECT, FI_REMOTE_CQ_DATA, FI_MORE, FI_FENCE, completion levels); those of calls
// without flags are the endpoint's (fi_tx_attr.op_flags).
struct SendRequest {
  bool tagged = false;
  bool report = true;
  const iovec *iov = nullptr;
  void *const *desc = nullptr;
  size_t count = 0;
  uint64_t length = 0;
  fi_addr_t dest = FI_ADDR_UNSPEC;
  uint64_t tag = 0;
  uint64_t data = 0;
  uint64_t flags = 0;
  void *context = nullptr;
};

struct RmaRequest {
  bool write = false;
  bool report = true;
  const iovec *iov = nullptr;
  void *const *desc = nullptr;
  size_t count = 0;
  uint64_t length = 0;
  const fi_rma_iov *rma = nullptr;  // their lengths add up to `length`
  size_t rma_count = 0;
  fi_addr_t dest = FI_ADDR_UNSPEC;
  uint64_t data = 0;
  uint64_t flags = 0;
  void *context = nullptr;
};

struct AtomicRequest {
  AtomicKind kind = AtomicKind::kWrite;
  bool report = true;
  int datatype = 0, op = 0;          // valid together, for this kind
  const fi_ioc *operands = nullptr;  // none for FI_ATOMIC_READ
  void *const *operand_desc = nullptr;
  size_t operand_count = 0;
  const fi_ioc *compares = nullptr;  // kCompare
  void *const *compare_desc = nullptr;
  size_t compare_count = 0;
  fi_ioc *results = nullptr;  // kFetch, kCompare
  void *const *result_desc = nullptr;
  size_t result_count = 0;
  const fi_rma_ioc *rma = nullptr;
  size_t rma_count = 0;
  uint64_t elements = 0;  // of each of those
  fi_addr_t dest = FI_ADDR_UNSPEC;
  uint64_t data = 0;
  uint64_t flags = 0;
  void *context = nullptr;
};

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
  ssize_t sendmsg(const struct fi_msg *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    if (flags & ~E::kSendFlags) return -FI_EBADFLAGS;
    return many(false, msg->msg_iov, msg->desc, msg->iov_count, msg->addr, 0, msg->data, flags,
                msg->context);
  }
  ssize_t inject(const void *buf, size_t len, fi_addr_t dest) {
    return one(false, buf, len, nullptr, dest, 0, 0, kInjectCall, nullptr);
  }
  ssize_t senddata(const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
                   void *context) {
    return one(false, buf, len, &desc, dest, 0, data, self().tx_flags() | FI_REMOTE_CQ_DATA,
               context);
  }
  ssize_t injectdata(const void *buf, size_t len, uint64_t data, fi_addr_t dest) {
    return one(false, buf, len, nullptr, dest, 0, data, kInjectCall | FI_REMOTE_CQ_DATA, nullptr);
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
  ssize_t tsendmsg(const struct fi_msg_tagged *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    if (flags & ~E::kSendFlags) return -FI_EBADFLAGS;
    return many(true, msg->msg_iov, msg->desc, msg->iov_count, msg->addr, msg->tag, msg->data,
                flags, msg->context);
  }
  ssize_t tinject(const void *buf, size_t len, fi_addr_t dest, uint64_t tag) {
    return one(true, buf, len, nullptr, dest, tag, 0, kInjectCall, nullptr);
  }
  ssize_t tsenddata(const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
                    uint64_t tag, void *context) {
    return one(true, buf, len, &desc, dest, tag, data, self().tx_flags() | FI_REMOTE_CQ_DATA,
               context);
  }
  ssize_t tinjectdata(const void *buf, size_t len, uint64_t data, fi_addr_t dest, uint64_t tag) {
    return one(true, buf, len, nullptr, dest, tag, data, kInjectCall | FI_REMOTE_CQ_DATA, nullptr);
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
    return rma_msg(false, msg, flags, EndpointCore::kReadFlags);
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
    return rma_msg(true, msg, flags, E::kSendFlags);
  }
  ssize_t inject_write(const void *buf, size_t len, fi_addr_t dest, uint64_t addr, uint64_t key) {
    return rma_one(true, buf, len, nullptr, dest, addr, key, 0, kInjectCall, nullptr);
  }
  ssize_t writedata(const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t dest,
                    uint64_t addr, uint64_t key, void *context) {
    return rma_one(true, buf, len, &desc, dest, addr, key, data,
                   self().tx_flags() | FI_REMOTE_CQ_DATA, context);
  }
  ssize_t inject_writedata(const void *buf, size_t len, uint64_t data, fi_addr_t dest,
                           uint64_t addr, uint64_t key) {
    return rma_one(true, buf, len, nullptr, dest, addr, key, data, kInjectCall | FI_REMOTE_CQ_DATA,
                   nullptr);
  }

  // ---- fi_ops_atomic ----
  ssize_t atomic(const void *buf, size_t count, void *desc, fi_addr_t dest, uint64_t addr,
                 uint64_t key, enum fi_datatype datatype, enum fi_op op, void *context) {
    const Simple s(buf, nullptr, nullptr, count, addr, key);
    AtomicRequest request =
        s.request(AtomicKind::kWrite, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operand_desc = &desc;
    return start_atomic(std::move(request));
  }
  ssize_t atomicv(const struct fi_ioc *iov, void **desc, size_t count, fi_addr_t dest,
                  uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op,
                  void *context) {
    Vectors v(iov, count, addr, key);
    AtomicRequest request =
        v.request(AtomicKind::kWrite, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operand_desc = desc;
    return start_atomic(std::move(request));
  }
  ssize_t atomicmsg(const struct fi_msg_atomic *msg, uint64_t flags) {
    return atomic_msg({.kind = AtomicKind::kWrite}, msg, flags);
  }
  ssize_t inject_atomic(const void *buf, size_t count, fi_addr_t dest, uint64_t addr, uint64_t key,
                        enum fi_datatype datatype, enum fi_op op) {
    const Simple s(buf, nullptr, nullptr, count, addr, key);
    return start_atomic(
        s.request(AtomicKind::kWrite, dest, raw(datatype), raw(op), kInjectCall, nullptr));
  }
  ssize_t fetch_atomic(const void *buf, size_t count, void *desc, void *result, void *result_desc,
                       fi_addr_t dest, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                       enum fi_op op, void *context) {
    const Simple s(buf, nullptr, result, count, addr, key);
    AtomicRequest request =
        s.request(AtomicKind::kFetch, dest, raw(datatype), raw(op), self().tx_flags(), context);
    request.operand_desc = &desc;
    request.result_desc = &result_desc;
    return start_atomic(std::move(request));
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
    return start_atomic(std::move(request));
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
    return start_atomic(std::move(request));
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
    return start_atomic(std::move(request));
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

 private:
  static constexpr uint64_t kInjectCall = FI_INJECT | TxContext::kSilent;

  E &self() { return static_cast<E &>(*this); }

  static bool add_up(const iovec *iov, size_t count, uint64_t &length) {
    length = 0;
    for (size_t i = 0; i < count; ++i)
      if (__builtin_add_overflow(length, uint64_t(iov[i].iov_len), &length)) return false;
    return true;
  }
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
    return send_request({.tagged = tagged,
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
    return send_request(std::move(request));
  }
  // By reference: a copy of what was just written, in wider pieces, makes the processor wait.
  ssize_t send_request(SendRequest &&request) {
    E &e = self();
    if (const ssize_t rc = e.check_length(request.length, request.flags); rc != 0) return rc;
    request.report = e.reports(request.flags);
    request.flags &= ~TxContext::kSilent;
    Guard guard(e.lock());
    if (!e.enabled()) return -FI_EOPBADSTATE;
    if (!e.offers(request.tagged ? FI_TAGGED : FI_MSG, FI_SEND)) return -FI_EOPNOTSUPP;
    return e.start(request);
  }

  ssize_t rma_one(bool write, const void *buf, size_t len, void *const *desc, fi_addr_t dest,
                  uint64_t addr, uint64_t key, uint64_t data, uint64_t flags, void *context) {
    const iovec iov{const_cast<void *>(buf), len};
    const fi_rma_iov rma{addr, len, key};
    return rma_request({.write = write,
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
    return rma_request({.write = write,
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
  ssize_t rma_msg(bool write, const fi_msg_rma *msg, uint64_t flags, uint64_t known) {
    if (msg == nullptr) return -FI_EINVAL;
    if (flags & ~known) return -FI_EBADFLAGS;
    if (msg->iov_count > kIovLimit || (msg->iov_count != 0 && msg->msg_iov == nullptr) ||
        msg->rma_iov == nullptr || msg->rma_iov_count == 0 || msg->rma_iov_count > kIovLimit)
      return -FI_EINVAL;
    RmaRequest request{.write = write,
                       .iov = msg->msg_iov,
                       .desc = msg->desc,
                       .count = msg->iov_count,
                       .rma = msg->rma_iov,
                       .rma_count = msg->rma_iov_count,
                       .dest = msg->addr,
                       .data = msg->data,
                       .flags = flags,
                       .context = msg->context};
    uint64_t remote = 0;
    for (size_t i = 0; i < msg->rma_iov_count; ++i)
      if (__builtin_add_overflow(remote, uint64_t(msg->rma_iov[i].len), &remote))
        return -FI_EMSGSIZE;
    if (!add_up(msg->msg_iov, msg->iov_count, request.length)) return -FI_EMSGSIZE;
    if (remote != request.length) return -FI_EINVAL;
    return rma_request(std::move(request));
  }
  ssize_t rma_request(RmaRequest &&request) {
    E &e = self();
    if (const ssize_t rc = e.check_length(request.length, request.flags); rc != 0) return rc;
    if (!request.write) request.flags &= ~(FI_REMOTE_CQ_DATA | FI_INJECT);
    request.report = e.reports(request.flags);
    request.flags &= ~TxContext::kSilent;
    Guard guard(e.lock());
    if (!e.enabled()) return -FI_EOPBADSTATE;
    if (!e.offers(FI_RMA, request.write ? FI_WRITE : FI_READ)) return -FI_EOPNOTSUPP;
    return e.start(request);
  }

  ssize_t atomic_msg(AtomicRequest request, const fi_msg_atomic *msg, uint64_t flags) {
    if (msg == nullptr) return -FI_EINVAL;
    if (flags & ~E::kSendFlags) return -FI_EBADFLAGS;
    request.datatype = raw(msg->datatype);
    request.op = raw(msg->op);
    request.operands = msg->msg_iov;
    request.operand_desc = msg->desc;
    request.operand_count = msg->iov_count;
    request.rma = msg->rma_iov;
    request.rma_count = msg->rma_iov_count;
    request.dest = msg->addr;
    request.data = msg->data;
    request.flags = flags;
    request.context = msg->context;
    return start_atomic(std::move(request));
  }
  ssize_t start_atomic(AtomicRequest &&request) {
    E &e = self();
    if (const ssize_t rc = e.check_atomic(request); rc != 0) return rc;
    request.report = e.reports(request.flags);
    request.flags &= ~TxContext::kSilent;
    Guard guard(e.lock());
    if (!e.enabled()) return -FI_EOPBADSTATE;
    const bool reads = request.kind != AtomicKind::kWrite;
    if (!e.offers(FI_ATOMIC, reads ? FI_READ : FI_WRITE)) return -FI_EOPNOTSUPP;
    return e.start(request);
  }
};

}  // namespace weft::sdk

#endif
