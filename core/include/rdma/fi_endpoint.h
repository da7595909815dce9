// SPDX-License-Identifier: BSD-2-Clause
//
// Endpoints: the objects that communicate, their options, and plain messages.
//
// Example:
//    static int open_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_cq *cq,
//                             struct fid_av *av, struct fid_ep **ep) {
//      int ret = fi_endpoint(domain, info, ep, NULL);
//      if (!ret) ret = fi_ep_bind(*ep, &cq->fid, FI_TRANSMIT | FI_RECV);
//      if (!ret) ret = fi_ep_bind(*ep, &av->fid, 0);
//      return ret ? ret : fi_enable(*ep);
//    }
//    static ssize_t say(struct fid_ep *ep, fi_addr_t peer, const char *text, size_t len,
//                       void *context) {
//      return fi_send(ep, text, len, NULL, peer, context);
//    }
//
// A data transfer that returns 0 was accepted, its completion comes later; -FI_EAGAIN means that
// there is no room now: read the completion queue, then try again. Not for connections (fi_cm.h),
// tagged messages (fi_tagged.h) or remote memory (fi_rma.h). Man pages: fi_endpoint(3), fi_msg(3).

#ifndef FI_ENDPOINT_H
#define FI_ENDPOINT_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#ifdef __cplusplus
extern "C" {
#endif

// A message for fi_sendmsg() and fi_recvmsg().
struct fi_msg {
  const struct iovec *msg_iov;
  void **desc;  // fi_mr_desc() of each element, or NULL where local buffers need no registration
  size_t iov_count;
  fi_addr_t addr;  // destination, or source of a directed receive; ignored when connected
  void *context;
  uint64_t data;  // with FI_REMOTE_CQ_DATA
};

// Levels of fi_getopt() and fi_setopt().
enum {
  FI_OPT_ENDPOINT,
};

// Options of level FI_OPT_ENDPOINT, with the type that optval points to. Sizes are bytes.
enum {
  FI_OPT_MIN_MULTI_RECV = 0,       // size_t: a FI_MULTI_RECV buffer is released when less is left
  FI_OPT_CM_DATA_SIZE = 1,         // size_t: most that fi_connect(), fi_accept(), fi_reject() carry
  FI_OPT_BUFFERED_MIN = 2,         // size_t; of a withdrawn mode
  FI_OPT_BUFFERED_LIMIT = 3,       // size_t; of a withdrawn mode
  FI_OPT_SEND_BUF_SIZE = 4,        // size_t: buffer of a transport that has one
  FI_OPT_RECV_BUF_SIZE = 5,        // size_t
  FI_OPT_TX_SIZE = 6,              // size_t: operations
  FI_OPT_RX_SIZE = 7,              // size_t: operations
  FI_OPT_FI_HMEM_P2P = 8,          // int: FI_HMEM_P2P_*
  FI_OPT_XPU_TRIGGER = 9,          // of a withdrawn feature
  FI_OPT_CUDA_API_PERMITTED = 10,  // bool: the provider may call CUDA while moving data
  FI_OPT_SHARED_MEMORY_PERMITTED = 11,  // bool: peers on this host may be reached by shared memory
  FI_OPT_MAX_MSG_SIZE = 12,             // size_t: largest transfer, per kind
  FI_OPT_MAX_TAGGED_SIZE = 13,          // size_t
  FI_OPT_MAX_RMA_SIZE = 14,             // size_t
  FI_OPT_MAX_ATOMIC_SIZE = 15,          // size_t
  FI_OPT_INJECT_MSG_SIZE = 16,          // size_t: largest injected transfer, per kind
  FI_OPT_INJECT_TAGGED_SIZE = 17,       // size_t
  FI_OPT_INJECT_RMA_SIZE = 18,          // size_t
  FI_OPT_INJECT_ATOMIC_SIZE = 19,       // size_t
  FI_OPT_FIREWALL_ADDR = 20,            // whether peers find this endpoint behind a firewall
};

// FI_OPT_FI_HMEM_P2P: whether the device talks to the network without the host in between.
enum {
  FI_HMEM_P2P_ENABLED,    // as the provider likes
  FI_HMEM_P2P_REQUIRED,   // always
  FI_HMEM_P2P_PREFERRED,  // whenever possible
  FI_HMEM_P2P_DISABLED,   // never
};

struct fi_ops_ep {
  size_t size;
  ssize_t (*cancel)(fid_t fid, void *context);
  int (*getopt)(fid_t fid, int level, int optname, void *optval, size_t *optlen);
  int (*setopt)(fid_t fid, int level, int optname, const void *optval, size_t optlen);
  int (*tx_ctx)(struct fid_ep *sep, int index, struct fi_tx_attr *attr, struct fid_ep **tx_ep,
                void *context);
  int (*rx_ctx)(struct fid_ep *sep, int index, struct fi_rx_attr *attr, struct fid_ep **rx_ep,
                void *context);
  ssize_t (*rx_size_left)(struct fid_ep *ep);
  ssize_t (*tx_size_left)(struct fid_ep *ep);
};

struct fi_ops_msg {
  size_t size;
  ssize_t (*recv)(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                  void *context);
  ssize_t (*recvv)(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                   fi_addr_t src_addr, void *context);
  ssize_t (*recvmsg)(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags);
  ssize_t (*send)(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest_addr,
                  void *context);
  ssize_t (*sendv)(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                   fi_addr_t dest_addr, void *context);
  ssize_t (*sendmsg)(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags);
  ssize_t (*inject)(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr);
  ssize_t (*senddata)(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                      fi_addr_t dest_addr, void *context);
  ssize_t (*injectdata)(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                        fi_addr_t dest_addr);
};

struct fi_ops_cm;
struct fi_ops_rma;
struct fi_ops_tagged;
struct fi_ops_atomic;
struct fi_ops_collective;

// An active endpoint, a transmit or receive context, or a shared receive context. A provider may
// swap a table when the endpoint changes (bind, control, setopt), so those calls must not run
// beside others on the same endpoint; and it may leave out tables at the end that its capabilities
// do not use.
struct fid_ep {
  struct fid fid;
  struct fi_ops_ep *ops;
  struct fi_ops_cm *cm;
  struct fi_ops_msg *msg;
  struct fi_ops_rma *rma;
  struct fi_ops_tagged *tagged;
  struct fi_ops_atomic *atomic;
  struct fi_ops_collective *collective;
};

// A listener. It begins as fid_ep does, so that fi_getopt() and fi_getname() serve both.
struct fid_pep {
  struct fid fid;
  struct fi_ops_ep *ops;
  struct fi_ops_cm *cm;
};

// A transmit context that endpoints share.
struct fid_stx {
  struct fid fid;
  struct fi_ops_ep *ops;
};

// --- Opening and configuring. fi_endpoint(3) ---

static inline int fi_passive_ep(struct fid_fabric *fabric, struct fi_info *info,
                                struct fid_pep **pep, void *context) {
  return fabric->ops->passive_ep(fabric, info, pep, context);
}

static inline int fi_endpoint(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                              void *context) {
  return domain->ops->endpoint(domain, info, ep, context);
}

// Without flags the same as fi_endpoint(), so that every provider has it.
static inline int fi_endpoint2(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                               uint64_t flags, void *context) {
  if (!flags) return fi_endpoint(domain, info, ep, context);
  if (!FI_CHECK_OP(domain->ops, struct fi_ops_domain, endpoint2)) return -FI_ENOSYS;
  return domain->ops->endpoint2(domain, info, ep, flags, context);
}

static inline int fi_scalable_ep(struct fid_domain *domain, struct fi_info *info,
                                 struct fid_ep **sep, void *context) {
  return domain->ops->scalable_ep(domain, info, sep, context);
}

static inline int fi_ep_bind(struct fid_ep *ep, struct fid *bfid, uint64_t flags) {
  return ep->fid.ops->bind(&ep->fid, bfid, flags);
}

static inline int fi_pep_bind(struct fid_pep *pep, struct fid *bfid, uint64_t flags) {
  return pep->fid.ops->bind(&pep->fid, bfid, flags);
}

static inline int fi_scalable_ep_bind(struct fid_ep *sep, struct fid *bfid, uint64_t flags) {
  return sep->fid.ops->bind(&sep->fid, bfid, flags);
}

static inline int fi_enable(struct fid_ep *ep) {
  return ep->fid.ops->control(&ep->fid, FI_ENABLE, NULL);
}

// Asks for an operation to end early. If it can, its completion reports FI_ECANCELED.
static inline ssize_t fi_cancel(fid_t fid, void *context) {
  struct fid_ep *ep = container_of(fid, struct fid_ep, fid);
  return ep->ops->cancel(fid, context);
}

static inline int fi_setopt(fid_t fid, int level, int optname, const void *optval, size_t optlen) {
  struct fid_ep *ep = container_of(fid, struct fid_ep, fid);
  return ep->ops->setopt(fid, level, optname, optval, optlen);
}

// *optlen: room in, length out.
static inline int fi_getopt(fid_t fid, int level, int optname, void *optval, size_t *optlen) {
  struct fid_ep *ep = container_of(fid, struct fid_ep, fid);
  return ep->ops->getopt(fid, level, optname, optval, optlen);
}

static inline int fi_ep_alias(struct fid_ep *ep, struct fid_ep **alias_ep, uint64_t flags) {
  struct fid *fid;
  int ret = fi_alias(&ep->fid, &fid, flags);
  if (!ret) *alias_ep = container_of(fid, struct fid_ep, fid);
  return ret;
}

static inline int fi_tx_context(struct fid_ep *ep, int idx, struct fi_tx_attr *attr,
                                struct fid_ep **tx_ep, void *context) {
  return ep->ops->tx_ctx(ep, idx, attr, tx_ep, context);
}

static inline int fi_rx_context(struct fid_ep *ep, int idx, struct fi_rx_attr *attr,
                                struct fid_ep **rx_ep, void *context) {
  return ep->ops->rx_ctx(ep, idx, attr, rx_ep, context);
}

// How many operations can be posted now. Deprecated: post, and obey -FI_EAGAIN.
static inline FI_DEPRECATED_FUNC ssize_t fi_rx_size_left(struct fid_ep *ep) {
  return ep->ops->rx_size_left(ep);
}

static inline FI_DEPRECATED_FUNC ssize_t fi_tx_size_left(struct fid_ep *ep) {
  return ep->ops->tx_size_left(ep);
}

static inline int fi_stx_context(struct fid_domain *domain, struct fi_tx_attr *attr,
                                 struct fid_stx **stx, void *context) {
  return domain->ops->stx_ctx(domain, attr, stx, context);
}

static inline int fi_srx_context(struct fid_domain *domain, struct fi_rx_attr *attr,
                                 struct fid_ep **rx_ep, void *context) {
  return domain->ops->srx_ctx(domain, attr, rx_ep, context);
}

// --- Messages. fi_msg(3). Lengths are bytes ---

static inline ssize_t fi_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
                              fi_addr_t src_addr, void *context) {
  return ep->msg->recv(ep, buf, len, desc, src_addr, context);
}

static inline ssize_t fi_recvv(struct fid_ep *ep, const struct iovec *iov, void **desc,
                               size_t count, fi_addr_t src_addr, void *context) {
  return ep->msg->recvv(ep, iov, desc, count, src_addr, context);
}

static inline ssize_t fi_recvmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags) {
  return ep->msg->recvmsg(ep, msg, flags);
}

static inline ssize_t fi_send(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                              fi_addr_t dest_addr, void *context) {
  return ep->msg->send(ep, buf, len, desc, dest_addr, context);
}

static inline ssize_t fi_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc,
                               size_t count, fi_addr_t dest_addr, void *context) {
  return ep->msg->sendv(ep, iov, desc, count, dest_addr, context);
}

static inline ssize_t fi_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags) {
  return ep->msg->sendmsg(ep, msg, flags);
}

// No completion; `buf` is free when the call returns. At most tx_attr.inject_size bytes.
static inline ssize_t fi_inject(struct fid_ep *ep, const void *buf, size_t len,
                                fi_addr_t dest_addr) {
  return ep->msg->inject(ep, buf, len, dest_addr);
}

static inline ssize_t fi_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                                  uint64_t data, fi_addr_t dest_addr, void *context) {
  return ep->msg->senddata(ep, buf, len, desc, data, dest_addr, context);
}

static inline ssize_t fi_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                                    fi_addr_t dest_addr) {
  return ep->msg->injectdata(ep, buf, len, data, dest_addr);
}

#ifdef __cplusplus
}
#endif

#endif  // FI_ENDPOINT_H
