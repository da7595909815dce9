// SPDX-License-Identifier: BSD-2-Clause
//
// Atomic operations on remote memory: plain (update), fetch (update and return the old value) and
// compare (update if a comparison holds, return the old value). See fi_atomic(3).
//
// Example:
//    static ssize_t count_up(struct fid_ep *ep, fi_addr_t peer, uint64_t remote_addr, uint64_t key,
//                            int64_t *before, void *context) {
//      static int64_t one = 1;  // must stay until the completion, as must *before
//      return fi_fetch_atomic(ep, &one, 1, NULL, before, NULL, peer, remote_addr, key, FI_INT64,
//                             FI_SUM, context);
//    }
//
// Not for local memory, and not atomic against the target CPU's own accesses unless the provider
// says so. Datatypes and operations are in fi_domain.h.
//
// Common arguments: `count` counts elements of `datatype`, not bytes; `desc` describes the local
// buffer (fi_mr_desc) where FI_MR_LOCAL asks for it; `addr` is an address or, without
// FI_MR_VIRT_ADDR, an offset in the target's region `key`. The posting calls return 0,
// -FI_EAGAIN (read the completion queue, then try again) or another negative errno.

#ifndef FI_ATOMIC_H
#define FI_ATOMIC_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

// Flags of fi_query_atomic: which of the three kinds is asked for (neither: plain).
#define FI_FETCH_ATOMIC (1ULL << 58)
#define FI_COMPARE_ATOMIC (1ULL << 59)

// What fi_query_atomic reports.
struct fi_atomic_attr {
  size_t count;  // most elements per operation
  size_t size;   // bytes per element
};

struct fi_msg_atomic {
  const struct fi_ioc *msg_iov;  // local operands
  void **desc;
  size_t iov_count;
  fi_addr_t addr;                    // target
  const struct fi_rma_ioc *rma_iov;  // its memory
  size_t rma_iov_count;
  enum fi_datatype datatype;
  enum fi_op op;
  void *context;
  uint64_t data;  // for the target's completion, with FI_REMOTE_CQ_DATA
};

// Where the old values go.
struct fi_msg_fetch {
  struct fi_ioc *msg_iov;
  void **desc;
  size_t iov_count;
};

// What the target's values are compared with.
struct fi_msg_compare {
  const struct fi_ioc *msg_iov;
  void **desc;
  size_t iov_count;
};

// What a provider implements; the functions below call through it.
struct fi_ops_atomic {
  size_t size;
  ssize_t (*write)(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                   fi_addr_t dest_addr, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                   enum fi_op op, void *context);
  ssize_t (*writev)(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
                    fi_addr_t dest_addr, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                    enum fi_op op, void *context);
  ssize_t (*writemsg)(struct fid_ep *ep, const struct fi_msg_atomic *msg, uint64_t flags);
  ssize_t (*inject)(struct fid_ep *ep, const void *buf, size_t count, fi_addr_t dest_addr,
                    uint64_t addr, uint64_t key, enum fi_datatype datatype, enum fi_op op);

  ssize_t (*readwrite)(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                       void *result_desc, fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                       enum fi_datatype datatype, enum fi_op op, void *context);
  ssize_t (*readwritev)(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
                        struct fi_ioc *resultv, void **result_desc, size_t result_count,
                        fi_addr_t dest_addr, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                        enum fi_op op, void *context);
  ssize_t (*readwritemsg)(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                          struct fi_ioc *resultv, void **result_desc, size_t result_count,
                          uint64_t flags);

  ssize_t (*compwrite)(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                       const void *compare, void *compare_desc, void *result, void *result_desc,
                       fi_addr_t dest_addr, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                       enum fi_op op, void *context);
  ssize_t (*compwritev)(struct fid_ep *ep, const struct fi_ioc *iov, void **desc, size_t count,
                        const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
                        struct fi_ioc *resultv, void **result_desc, size_t result_count,
                        fi_addr_t dest_addr, uint64_t addr, uint64_t key, enum fi_datatype datatype,
                        enum fi_op op, void *context);
  ssize_t (*compwritemsg)(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                          const struct fi_ioc *comparev, void **compare_desc, size_t compare_count,
                          struct fi_ioc *resultv, void **result_desc, size_t result_count,
                          uint64_t flags);

  int (*writevalid)(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op, size_t *count);
  int (*readwritevalid)(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op, size_t *count);
  int (*compwritevalid)(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op, size_t *count);
};

// ---- plain ----

static inline ssize_t fi_atomic(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                enum fi_datatype datatype, enum fi_op op, void *context) {
  return ep->atomic->write(ep, buf, count, desc, dest_addr, addr, key, datatype, op, context);
}

static inline ssize_t fi_atomicv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                 size_t count, fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                 enum fi_datatype datatype, enum fi_op op, void *context) {
  return ep->atomic->writev(ep, iov, desc, count, dest_addr, addr, key, datatype, op, context);
}

static inline ssize_t fi_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                   uint64_t flags) {
  return ep->atomic->writemsg(ep, msg, flags);
}

// `buf` may be reused at once; no completion is written.
static inline ssize_t fi_inject_atomic(struct fid_ep *ep, const void *buf, size_t count,
                                       fi_addr_t dest_addr, uint64_t addr, uint64_t key,
                                       enum fi_datatype datatype, enum fi_op op) {
  return ep->atomic->inject(ep, buf, count, dest_addr, addr, key, datatype, op);
}

// ---- fetch: `result` gets what was there before ----

static inline ssize_t fi_fetch_atomic(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                      void *result, void *result_desc, fi_addr_t dest_addr,
                                      uint64_t addr, uint64_t key, enum fi_datatype datatype,
                                      enum fi_op op, void *context) {
  return ep->atomic->readwrite(ep, buf, count, desc, result, result_desc, dest_addr, addr, key,
                               datatype, op, context);
}

static inline ssize_t fi_fetch_atomicv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                       size_t count, struct fi_ioc *resultv, void **result_desc,
                                       size_t result_count, fi_addr_t dest_addr, uint64_t addr,
                                       uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                       void *context) {
  return ep->atomic->readwritev(ep, iov, desc, count, resultv, result_desc, result_count, dest_addr,
                                addr, key, datatype, op, context);
}

static inline ssize_t fi_fetch_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                         struct fi_ioc *resultv, void **result_desc,
                                         size_t result_count, uint64_t flags) {
  return ep->atomic->readwritemsg(ep, msg, resultv, result_desc, result_count, flags);
}

// ---- compare: as fetch, and updates only where the comparison with `compare` holds ----

static inline ssize_t fi_compare_atomic(struct fid_ep *ep, const void *buf, size_t count,
                                        void *desc, const void *compare, void *compare_desc,
                                        void *result, void *result_desc, fi_addr_t dest_addr,
                                        uint64_t addr, uint64_t key, enum fi_datatype datatype,
                                        enum fi_op op, void *context) {
  return ep->atomic->compwrite(ep, buf, count, desc, compare, compare_desc, result, result_desc,
                               dest_addr, addr, key, datatype, op, context);
}

static inline ssize_t fi_compare_atomicv(struct fid_ep *ep, const struct fi_ioc *iov, void **desc,
                                         size_t count, const struct fi_ioc *comparev,
                                         void **compare_desc, size_t compare_count,
                                         struct fi_ioc *resultv, void **result_desc,
                                         size_t result_count, fi_addr_t dest_addr, uint64_t addr,
                                         uint64_t key, enum fi_datatype datatype, enum fi_op op,
                                         void *context) {
  return ep->atomic->compwritev(ep, iov, desc, count, comparev, compare_desc, compare_count,
                                resultv, result_desc, result_count, dest_addr, addr, key, datatype,
                                op, context);
}

static inline ssize_t fi_compare_atomicmsg(struct fid_ep *ep, const struct fi_msg_atomic *msg,
                                           const struct fi_ioc *comparev, void **compare_desc,
                                           size_t compare_count, struct fi_ioc *resultv,
                                           void **result_desc, size_t result_count,
                                           uint64_t flags) {
  return ep->atomic->compwritemsg(ep, msg, comparev, compare_desc, compare_count, resultv,
                                  result_desc, result_count, flags);
}

// ---- asking first: 0 and the most elements in *count, or a negative errno ----

static inline int fi_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                 size_t *count) {
  return ep->atomic->writevalid(ep, datatype, op, count);
}

static inline int fi_fetch_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype, enum fi_op op,
                                       size_t *count) {
  return ep->atomic->readwritevalid(ep, datatype, op, count);
}

static inline int fi_compare_atomicvalid(struct fid_ep *ep, enum fi_datatype datatype,
                                         enum fi_op op, size_t *count) {
  return ep->atomic->compwritevalid(ep, datatype, op, count);
}

// The same of a domain. `flags`: 0, FI_FETCH_ATOMIC or FI_COMPARE_ATOMIC for the kind, and
// FI_TAGGED for atomics to tagged receive buffers.
static inline int fi_query_atomic(struct fid_domain *domain, enum fi_datatype datatype,
                                  enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags) {
  return FI_CHECK_OP(domain->ops, struct fi_ops_domain, query_atomic)
             ? domain->ops->query_atomic(domain, datatype, op, attr, flags)
             : -FI_ENOSYS;
}

#ifdef __cplusplus
}
#endif

#endif  // FI_ATOMIC_H
