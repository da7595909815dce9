// SPDX-License-Identifier: BSD-2-Clause
//
// Connections and names: listening, connecting, accepting; own and peer addresses; multicast
// groups.
//
// Example:
//    #include <rdma/fi_endpoint.h>
//    static int start(struct fid_pep *pep, struct fid_eq *eq) {
//      int ret = fi_pep_bind(pep, &eq->fid, 0);
//      return ret ? ret : fi_listen(pep);  // FI_CONNREQ with a fi_eq_cm_entry follows on eq
//    }
//    static int answer(struct fid_domain *domain, struct fi_eq_cm_entry *req, struct fid_eq *eq,
//                      struct fid_cq *cq, struct fid_ep **ep) {
//      int ret = fi_endpoint(domain, req->info, ep, NULL);
//      if (!ret) ret = fi_ep_bind(*ep, &eq->fid, 0);
//      if (!ret) ret = fi_ep_bind(*ep, &cq->fid, FI_TRANSMIT | FI_RECV);
//      return ret ? ret : fi_accept(*ep, NULL, 0);  // FI_CONNECTED follows on both sides
//    }
//
// Results of connection calls come as events, see fi_eq.h. Not for unconnected endpoints, which
// find their peers through an address vector (fi_domain.h). Man page: fi_cm(3).

#ifndef FI_CM_H
#define FI_CM_H

#include <rdma/fi_endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A multicast or collective group that was joined.
struct fid_mc {
  struct fid fid;
  fi_addr_t fi_addr;
};

struct fi_ops_cm {
  size_t size;
  int (*setname)(fid_t fid, void *addr, size_t addrlen);
  int (*getname)(fid_t fid, void *addr, size_t *addrlen);
  int (*getpeer)(struct fid_ep *ep, void *addr, size_t *addrlen);
  int (*connect)(struct fid_ep *ep, const void *addr, const void *param, size_t paramlen);
  int (*listen)(struct fid_pep *pep);
  int (*accept)(struct fid_ep *ep, const void *param, size_t paramlen);
  int (*reject)(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen);
  int (*shutdown)(struct fid_ep *ep, uint64_t flags);
  int (*join)(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc,
              void *context);
};

// Addresses have the endpoint's addr_format, lengths are bytes.
static inline int fi_setname(fid_t fid, void *addr, size_t addrlen) {
  struct fid_ep *ep = container_of(fid, struct fid_ep, fid);
  return ep->cm->setname(fid, addr, addrlen);
}

// *addrlen: room in, length out; -FI_ETOOSMALL where the address was cut.
static inline int fi_getname(fid_t fid, void *addr, size_t *addrlen) {
  struct fid_ep *ep = container_of(fid, struct fid_ep, fid);
  return ep->cm->getname(fid, addr, addrlen);
}

static inline int fi_getpeer(struct fid_ep *ep, void *addr, size_t *addrlen) {
  return ep->cm->getpeer(ep, addr, addrlen);
}

static inline int fi_listen(struct fid_pep *pep) {
  return pep->cm->listen(pep);
}

// `param` reaches the peer's event; at most FI_OPT_CM_DATA_SIZE bytes.
static inline int fi_connect(struct fid_ep *ep, const void *addr, const void *param,
                             size_t paramlen) {
  return ep->cm->connect(ep, addr, param, paramlen);
}

static inline int fi_accept(struct fid_ep *ep, const void *param, size_t paramlen) {
  return ep->cm->accept(ep, param, paramlen);
}

// `handle` is the request's info->handle and may not be used again.
static inline int fi_reject(struct fid_pep *pep, fid_t handle, const void *param, size_t paramlen) {
  return pep->cm->reject(pep, handle, param, paramlen);
}

static inline int fi_shutdown(struct fid_ep *ep, uint64_t flags) {
  return ep->cm->shutdown(ep, flags);
}

// FI_JOIN_COMPLETE tells when the group can be used; fi_close() leaves it.
static inline int fi_join(struct fid_ep *ep, const void *addr, uint64_t flags, struct fid_mc **mc,
                          void *context) {
  if (!FI_CHECK_OP(ep->cm, struct fi_ops_cm, join)) return -FI_ENOSYS;
  return ep->cm->join(ep, addr, flags, mc, context);
}

static inline fi_addr_t fi_mc_addr(struct fid_mc *mc) {
  return mc->fi_addr;
}

#ifdef __cplusplus
}
#endif

#endif  // FI_CM_H
