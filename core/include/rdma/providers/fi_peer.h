// SPDX-License-Identifier: BSD-2-Clause
//
// Objects that one provider (the owner) lends to another (the peer), so that the application sees
// one completion queue, one counter, one receive queue although two providers move the data.
// The owner opens the peer's object with the flag FI_PEER and a fi_peer_*_context as its context.
// See fi_peer(3).
//
// Example:
//    static int lend(struct fid_peer_cq *mine, struct fid_domain *peer_domain,
//                    struct fi_cq_attr attr, struct fid_cq **peer_cq) {
//      struct fi_peer_cq_context context = {.size = sizeof context, .cq = mine};
//      attr.flags |= FI_PEER;
//      return fi_cq_open(peer_domain, &attr, peer_cq, &context);
//    }
//
// Not for applications, and not stable between releases: both sides must be built for the same.
// In every struct `size` is the sizeof that its writer knew.

#ifndef FI_PEER_H
#define FI_PEER_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- address vector: an offload provider resolves addresses through its main provider ----

struct fid_peer_av;

struct fi_ops_av_owner {
  size_t size;
  int (*query)(struct fid_peer_av *av, struct fi_av_attr *attr);  // fills *attr as it is now
  // The address of a local endpoint, FI_ADDR_NOTAVAIL if nobody inserted it.
  fi_addr_t (*ep_addr)(struct fid_peer_av *av, struct fid_ep *ep);
};

struct fid_peer_av {
  struct fid fid;  // fclass FI_CLASS_PEER_AV
  struct fi_ops_av_owner *owner_ops;
};

struct fi_peer_av_context {
  size_t size;
  struct fid_peer_av *av;
};

// ---- address vector set: the members of a collective group ----

struct fid_peer_av_set;
struct fi_peer_av_set;  // named by fi_peer_av_set_context only; nobody defines it

struct fi_ops_av_set_owner {
  size_t size;
  // *count: in, how many addresses fit in `addr`; out, how many members there are.
  // -FI_ETOOSMALL if they did not fit.
  int (*members)(struct fid_peer_av_set *av, fi_addr_t *addr, size_t *count);
};

struct fid_peer_av_set {
  struct fid fid;  // fclass FI_CLASS_PEER_AV_SET
  struct fi_ops_av_set_owner *owner_ops;
};

struct fi_peer_av_set_context {
  size_t size;
  struct fi_peer_av_set *av_set;  // holds a struct fid_peer_av_set *: the type's name is historic
};

// ---- completion queue: the peer writes into the owner's ----

struct fid_peer_cq;

struct fi_ops_cq_owner {
  size_t size;
  // Adds a completion. The arguments are the fields of fi_cq_tagged_entry and the source address
  // in the peer's AV (FI_ADDR_NOTAVAIL if unknown); the CQ's format tells which of them count.
  // The owner locks, signals waiters and handles overflow.
  ssize_t (*write)(struct fid_peer_cq *cq, void *context, uint64_t flags, size_t len, void *buf,
                   uint64_t data, uint64_t tag, fi_addr_t src);
  // Adds an error completion; the entry is copied.
  ssize_t (*writeerr)(struct fid_peer_cq *cq, const struct fi_cq_err_entry *err_entry);
};

struct fid_peer_cq {
  struct fid fid;  // fclass FI_CLASS_PEER_CQ
  struct fi_ops_cq_owner *owner_ops;
};

struct fi_peer_cq_context {
  size_t size;
  struct fid_peer_cq *cq;  // must outlive the peer's CQ
};

// ---- counter: the peer counts on the owner's ----

struct fid_peer_cntr;

struct fi_ops_cntr_owner {
  size_t size;
  void (*inc)(struct fid_peer_cntr *cntr);     // one more success
  void (*incerr)(struct fid_peer_cntr *cntr);  // one more failure
};

struct fid_peer_cntr {
  struct fid fid;  // fclass FI_CLASS_PEER_CNTR
  struct fi_ops_cntr_owner *owner_ops;
};

struct fi_peer_cntr_context {
  size_t size;
  struct fid_peer_cntr *cntr;  // must outlive the peer's counter
};

// ---- domain and event queue: lent as they are ----

struct fi_peer_domain_context {
  size_t size;
  struct fid_domain *domain;  // e.g. to register memory with the owner
};

struct fi_peer_eq_context {
  size_t size;
  struct fid_eq *eq;
};

// ---- shared receive context: the owner matches, the peer fills the buffers ----

struct fid_peer_srx;

// A message that arrived. The owner allocates it in get_msg or get_tag and frees it in free_entry.
struct fi_peer_rx_entry {
  struct fid_peer_srx *srx;
  fi_addr_t addr;       // source in the peer's AV, FI_ADDR_UNSPEC if not known yet
  size_t msg_size;      // bytes that arrive
  uint64_t tag;         // of a tagged message
  uint64_t cq_data;     // valid if flags has FI_REMOTE_CQ_DATA
  uint64_t flags;       // for the completion
  void *context;        // of the application's receive
  size_t count;         // of iov and desc
  void **desc;          // memory descriptors of iov; NULL if none
  void *peer_context;   // the peer's own
  void *owner_context;  // the owner's own
  struct iovec *iov;    // where to put the data
};

// What the peer knows of a message when it asks for a buffer.
struct fi_peer_match_attr {
  fi_addr_t addr;   // source, FI_ADDR_UNSPEC if unknown or if the endpoint is not directed
  size_t msg_size;  // bytes
  uint64_t tag;     // get_tag only
};

struct fi_ops_srx_owner {
  size_t size;
  // Find a posted receive. 0: *entry says where the data goes. -FI_ENOENT: none matches; *entry is
  // valid all the same and the peer keeps the message, fills in what it knows and queues it.
  int (*get_msg)(struct fid_peer_srx *srx, struct fi_peer_match_attr *attr,
                 struct fi_peer_rx_entry **entry);
  int (*get_tag)(struct fid_peer_srx *srx, struct fi_peer_match_attr *attr,
                 struct fi_peer_rx_entry **entry);
  // Put an unexpected message on the owner's list. No other get may come between.
  int (*queue_msg)(struct fi_peer_rx_entry *entry);
  int (*queue_tag)(struct fi_peer_rx_entry *entry);
  // After an AV insert: asks get_addr again for each queued entry whose source was unknown.
  void (*foreach_unspec_addr)(struct fid_peer_srx *srx,
                              fi_addr_t (*get_addr)(struct fi_peer_rx_entry *entry));
  void (*free_entry)(struct fi_peer_rx_entry *entry);  // the peer is done with it
};

// Set by the peer before its fi_srx_context returns.
struct fi_ops_srx_peer {
  size_t size;
  // A receive now matches the queued entry: move the data.
  int (*start_msg)(struct fi_peer_rx_entry *entry);
  int (*start_tag)(struct fi_peer_rx_entry *entry);
  // The application gave the message up: drop it, without a completion.
  int (*discard_msg)(struct fi_peer_rx_entry *entry);
  int (*discard_tag)(struct fi_peer_rx_entry *entry);
};

struct fid_peer_srx {
  struct fid_ep ep_fid;  // fid.fclass FI_CLASS_PEER_SRX
  struct fi_ops_srx_owner *owner_ops;
  struct fi_ops_srx_peer *peer_ops;
};

struct fi_peer_srx_context {
  size_t size;
  struct fid_peer_srx *srx;
};

// ---- transfers (FI_PEER_TRANSFER): the peer's control messages travel over the owner ----

struct fi_peer_transfer_context;

// Set by the peer before its fi_endpoint2 returns; called by the owner, never recursively.
struct fi_ops_transfer_peer {
  size_t size;
  ssize_t (*complete)(struct fid_ep *ep, struct fi_cq_tagged_entry *buf, fi_addr_t src_addr);
  ssize_t (*comperr)(struct fid_ep *ep, struct fi_cq_err_entry *buf);
};

struct fi_peer_transfer_context {
  size_t size;
  struct fi_info *info;  // what the owner's objects can do; may be NULL
  struct fid_ep *ep;     // the owner's endpoint that carries the transfers
  struct fi_ops_transfer_peer *peer_ops;
};

#ifdef __cplusplus
}
#endif

#endif  // FI_PEER_H
