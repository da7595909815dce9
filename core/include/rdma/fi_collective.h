// SPDX-License-Identifier: BSD-2-Clause
//
// Operations in which all members of a group take part: barrier, broadcast, reductions. A group is
// an AV set that each member has joined. See fi_collective(3) and fi_av_set(3).
//
// Example:
//    static int join(struct fid_ep *ep, struct fid_av *av, struct fi_av_set_attr *attr,
//                    struct fid_mc **mc) {
//      struct fid_av_set *set;  // its members
//      fi_addr_t set_addr;
//      int ret = fi_av_set(av, attr, &set, NULL);
//      if (!ret) ret = fi_av_set_addr(set, &set_addr);
//      if (!ret) ret = fi_join_collective(ep, set_addr, set, 0, mc, NULL);
//      return ret;  // 0: FI_JOIN_COMPLETE follows on the event queue
//    }
//    static ssize_t add_up(struct fid_ep *ep, struct fid_mc *mc, double mine[8], double sum[8],
//                          void *context) {
//      return fi_allreduce(ep, mine, 8, NULL, sum, NULL, fi_mc_addr(mc), FI_DOUBLE, FI_SUM, 0,
//                          context);
//    }
//
// Not for multicast of datagrams: fi_join. Operations and datatypes are in fi_domain.h.
//
// Common arguments: `count` counts elements of `datatype`; `desc` describes a local buffer
// (fi_mr_desc) where FI_MR_LOCAL asks for it; `coll_addr` is the group, from fi_mc_addr;
// `root_addr` is one member. The posting calls return 0, -FI_EAGAIN or another negative errno.
// Members must issue the same operations in the same order.

#ifndef FI_COLLECTIVE_H
#define FI_COLLECTIVE_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fid_av_set;

// What a provider implements for AV sets; `set_union`, `intersect` and `diff` change `dst`.
struct fi_ops_av_set {
  size_t size;
  int (*set_union)(struct fid_av_set *dst, const struct fid_av_set *src);
  int (*intersect)(struct fid_av_set *dst, const struct fid_av_set *src);
  int (*diff)(struct fid_av_set *dst, const struct fid_av_set *src);
  int (*insert)(struct fid_av_set *set, fi_addr_t addr);
  int (*remove)(struct fid_av_set *set, fi_addr_t addr);
  int (*addr)(struct fid_av_set *set, fi_addr_t *coll_addr);
};

// An ordered subset of the addresses in an AV.
struct fid_av_set {
  struct fid fid;  // fclass FI_CLASS_AV_SET
  struct fi_ops_av_set *ops;
};

// fi_query_collective. In: op and datatype for reductions. Out: the rest.
struct fi_collective_attr {
  enum fi_op op;
  enum fi_datatype datatype;
  struct fi_atomic_attr datatype_attr;  // most elements per operation, bytes per element
  size_t max_members;                   // of a group
  uint64_t mode;                        // what the provider asks of the application; 0 by now
};

// What fi_join_collective hands to fi_join with FI_COLLECTIVE as the address.
struct fi_collective_addr {
  const struct fid_av_set *set;
  fi_addr_t coll_addr;  // the AV set's or a parent group's; FI_ADDR_NOTAVAIL: application-managed
};

struct fi_msg_collective {
  const struct fi_ioc *msg_iov;  // local operands
  void **desc;
  size_t iov_count;
  fi_addr_t coll_addr;
  fi_addr_t root_addr;  // where `coll` has a root
  enum fi_collective_op coll;
  enum fi_datatype datatype;
  enum fi_op op;  // where `coll` reduces
  void *context;
};

// What a provider implements; the functions below call through it.
struct fi_ops_collective {
  size_t size;
  ssize_t (*barrier)(struct fid_ep *ep, fi_addr_t coll_addr, void *context);
  ssize_t (*broadcast)(struct fid_ep *ep, void *buf, size_t count, void *desc, fi_addr_t coll_addr,
                       fi_addr_t root_addr, enum fi_datatype datatype, uint64_t flags,
                       void *context);
  ssize_t (*alltoall)(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                      void *result_desc, fi_addr_t coll_addr, enum fi_datatype datatype,
                      uint64_t flags, void *context);
  ssize_t (*allreduce)(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                       void *result_desc, fi_addr_t coll_addr, enum fi_datatype datatype,
                       enum fi_op op, uint64_t flags, void *context);
  ssize_t (*allgather)(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                       void *result_desc, fi_addr_t coll_addr, enum fi_datatype datatype,
                       uint64_t flags, void *context);
  ssize_t (*reduce_scatter)(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                            void *result, void *result_desc, fi_addr_t coll_addr,
                            enum fi_datatype datatype, enum fi_op op, uint64_t flags,
                            void *context);
  ssize_t (*reduce)(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                    void *result_desc, fi_addr_t coll_addr, fi_addr_t root_addr,
                    enum fi_datatype datatype, enum fi_op op, uint64_t flags, void *context);
  ssize_t (*scatter)(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                     void *result_desc, fi_addr_t coll_addr, fi_addr_t root_addr,
                     enum fi_datatype datatype, uint64_t flags, void *context);
  ssize_t (*gather)(struct fid_ep *ep, const void *buf, size_t count, void *desc, void *result,
                    void *result_desc, fi_addr_t coll_addr, fi_addr_t root_addr,
                    enum fi_datatype datatype, uint64_t flags, void *context);
  ssize_t (*msg)(struct fid_ep *ep, const struct fi_msg_collective *msg, struct fi_ioc *resultv,
                 void **result_desc, size_t result_count, uint64_t flags);
  ssize_t (*barrier2)(struct fid_ep *ep, fi_addr_t coll_addr, uint64_t flags, void *context);
};

// ---- groups ----

// Makes a set of the addresses that `attr` names (fi_av_set(3)). Close it with fi_close.
static inline int fi_av_set(struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **set,
                            void *context) {
  return FI_CHECK_OP(av->ops, struct fi_ops_av, av_set) ? av->ops->av_set(av, attr, set, context)
                                                        : -FI_ENOSYS;
}

static inline int fi_av_set_union(struct fid_av_set *dst, const struct fid_av_set *src) {
  return dst->ops->set_union(dst, src);
}

static inline int fi_av_set_intersect(struct fid_av_set *dst, const struct fid_av_set *src) {
  return dst->ops->intersect(dst, src);
}

static inline int fi_av_set_diff(struct fid_av_set *dst, const struct fid_av_set *src) {
  return dst->ops->diff(dst, src);
}

static inline int fi_av_set_insert(struct fid_av_set *set, fi_addr_t addr) {
  return set->ops->insert(set, addr);
}

static inline int fi_av_set_remove(struct fid_av_set *set, fi_addr_t addr) {
  return set->ops->remove(set, addr);
}

// The address by which fi_join_collective refers to the set.
static inline int fi_av_set_addr(struct fid_av_set *set, fi_addr_t *coll_addr) {
  return set->ops->addr(set, coll_addr);
}

// Attaches the endpoint to the group; done when the EQ reports FI_JOIN_COMPLETE. fi_close(mc)
// leaves it.
static inline int fi_join_collective(struct fid_ep *ep, fi_addr_t coll_addr,
                                     const struct fid_av_set *set, uint64_t flags,
                                     struct fid_mc **mc, void *context) {
  struct fi_collective_addr group;
  group.set = set;
  group.coll_addr = coll_addr;
  return fi_join(ep, &group, flags | FI_COLLECTIVE, mc, context);
}

// ---- operations ----

// Completes when all members have called it.
static inline ssize_t fi_barrier(struct fid_ep *ep, fi_addr_t coll_addr, void *context) {
  return ep->collective->barrier(ep, coll_addr, context);
}

// The same with operation flags. Providers from before it exists still serve it without flags.
static inline ssize_t fi_barrier2(struct fid_ep *ep, fi_addr_t coll_addr, uint64_t flags,
                                  void *context) {
  if (!flags) return fi_barrier(ep, coll_addr, context);
  return FI_CHECK_OP(ep->collective, struct fi_ops_collective, barrier2)
             ? ep->collective->barrier2(ep, coll_addr, flags, context)
             : -FI_ENOSYS;
}

// The root's `buf` goes into every other member's.
static inline ssize_t fi_broadcast(struct fid_ep *ep, void *buf, size_t count, void *desc,
                                   fi_addr_t coll_addr, fi_addr_t root_addr,
                                   enum fi_datatype datatype, uint64_t flags, void *context) {
  return ep->collective->broadcast(ep, buf, count, desc, coll_addr, root_addr, datatype, flags,
                                   context);
}

// Member i's part j goes to member j's part i.
static inline ssize_t fi_alltoall(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                  void *result, void *result_desc, fi_addr_t coll_addr,
                                  enum fi_datatype datatype, uint64_t flags, void *context) {
  return ep->collective->alltoall(ep, buf, count, desc, result, result_desc, coll_addr, datatype,
                                  flags, context);
}

// Every member gets the reduction of all `buf`.
static inline ssize_t fi_allreduce(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                   void *result, void *result_desc, fi_addr_t coll_addr,
                                   enum fi_datatype datatype, enum fi_op op, uint64_t flags,
                                   void *context) {
  return ep->collective->allreduce(ep, buf, count, desc, result, result_desc, coll_addr, datatype,
                                   op, flags, context);
}

// Every member gets all `buf`, one after the other.
static inline ssize_t fi_allgather(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                   void *result, void *result_desc, fi_addr_t coll_addr,
                                   enum fi_datatype datatype, uint64_t flags, void *context) {
  return ep->collective->allgather(ep, buf, count, desc, result, result_desc, coll_addr, datatype,
                                   flags, context);
}

// Every member gets its slice of the reduction of all `buf`.
static inline ssize_t fi_reduce_scatter(struct fid_ep *ep, const void *buf, size_t count,
                                        void *desc, void *result, void *result_desc,
                                        fi_addr_t coll_addr, enum fi_datatype datatype,
                                        enum fi_op op, uint64_t flags, void *context) {
  return ep->collective->reduce_scatter(ep, buf, count, desc, result, result_desc, coll_addr,
                                        datatype, op, flags, context);
}

// The root gets the reduction of all `buf`.
static inline ssize_t fi_reduce(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                void *result, void *result_desc, fi_addr_t coll_addr,
                                fi_addr_t root_addr, enum fi_datatype datatype, enum fi_op op,
                                uint64_t flags, void *context) {
  return ep->collective->reduce(ep, buf, count, desc, result, result_desc, coll_addr, root_addr,
                                datatype, op, flags, context);
}

// Every member gets its slice of the root's `buf`.
static inline ssize_t fi_scatter(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                 void *result, void *result_desc, fi_addr_t coll_addr,
                                 fi_addr_t root_addr, enum fi_datatype datatype, uint64_t flags,
                                 void *context) {
  return ep->collective->scatter(ep, buf, count, desc, result, result_desc, coll_addr, root_addr,
                                 datatype, flags, context);
}

// The root gets all `buf`, one after the other.
static inline ssize_t fi_gather(struct fid_ep *ep, const void *buf, size_t count, void *desc,
                                void *result, void *result_desc, fi_addr_t coll_addr,
                                fi_addr_t root_addr, enum fi_datatype datatype, uint64_t flags,
                                void *context) {
  return ep->collective->gather(ep, buf, count, desc, result, result_desc, coll_addr, root_addr,
                                datatype, flags, context);
}

// Whether the domain offers an operation, and its limits.
static inline int fi_query_collective(struct fid_domain *domain, enum fi_collective_op coll,
                                      struct fi_collective_attr *attr, uint64_t flags) {
  return FI_CHECK_OP(domain->ops, struct fi_ops_domain, query_collective)
             ? domain->ops->query_collective(domain, coll, attr, flags)
             : -FI_ENOSYS;
}

#ifdef __cplusplus
}
#endif

#endif  // FI_COLLECTIVE_H
