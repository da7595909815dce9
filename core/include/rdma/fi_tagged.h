// SPDX-License-Identifier: BSD-2-Clause
//
// Tagged messages: a message goes into the first posted receive whose tag it matches.
//
// Example:
//    // Takes any message whose lower 32 tag bits are 7.
//    static ssize_t expect(struct fid_ep *ep, void *buf, size_t len, void *desc, void *context) {
//      return fi_trecv(ep, buf, len, desc, FI_ADDR_UNSPEC, 7, 0xffffffff00000000, context);
//    }
//
// Tags match where (sent ^ posted) & ~ignore is zero. They are a space of their own: an untagged
// message (fi_endpoint.h) never meets a tagged receive. Man page: fi_tagged(3).

#ifndef FI_TAGGED_H
#define FI_TAGGED_H

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>

#ifdef __cplusplus
extern "C" {
#endif

// A tag of format FI_TAG_MPI (fi_ep_attr.mem_tag_format): the message tag in the lower half, above
// it a byte that says what kind of payload this is.
static inline uint64_t fi_tag_mpi(int tag, uint8_t payload_id) {
  return ((uint64_t)payload_id << 32) | (uint32_t)tag;
}

// Ignore masks of that format, to be combined: each field matters as a whole or not at all.
#define FI_MPI_IGNORE_TAG ((uint64_t)UINT32_MAX)
#define FI_MPI_IGNORE_PAYLOAD ((uint64_t)UINT8_MAX << 32)

// A message for fi_tsendmsg() and fi_trecvmsg().
struct fi_msg_tagged {
  const struct iovec *msg_iov;
  void **desc;
  size_t iov_count;
  fi_addr_t addr;
  uint64_t tag;
  uint64_t ignore;  // tag bits that need not match; receives only
  void *context;
  uint64_t data;  // with FI_REMOTE_CQ_DATA
};

struct fi_ops_tagged {
  size_t size;
  ssize_t (*recv)(struct fid_ep *ep, void *buf, size_t len, void *desc, fi_addr_t src_addr,
                  uint64_t tag, uint64_t ignore, void *context);
  ssize_t (*recvv)(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                   fi_addr_t src_addr, uint64_t tag, uint64_t ignore, void *context);
  ssize_t (*recvmsg)(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags);
  ssize_t (*send)(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t dest_addr,
                  uint64_t tag, void *context);
  ssize_t (*sendv)(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count,
                   fi_addr_t dest_addr, uint64_t tag, void *context);
  ssize_t (*sendmsg)(struct fid_ep *ep, const struct fi_msg_tagged *msg, uint64_t flags);
  ssize_t (*inject)(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t dest_addr,
                    uint64_t tag);
  ssize_t (*senddata)(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data,
                      fi_addr_t dest_addr, uint64_t tag, void *context);
  ssize_t (*injectdata)(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                        fi_addr_t dest_addr, uint64_t tag);
};

static inline ssize_t fi_trecv(struct fid_ep *ep, void *buf, size_t len, void *desc,
                               fi_addr_t src_addr, uint64_t tag, uint64_t ignore, void *context) {
  return ep->tagged->recv(ep, buf, len, desc, src_addr, tag, ignore, context);
}

static inline ssize_t fi_trecvv(struct fid_ep *ep, const struct iovec *iov, void **desc,
                                size_t count, fi_addr_t src_addr, uint64_t tag, uint64_t ignore,
                                void *context) {
  return ep->tagged->recvv(ep, iov, desc, count, src_addr, tag, ignore, context);
}

// FI_PEEK looks for a waiting message, FI_CLAIM reserves it, FI_DISCARD drops it.
static inline ssize_t fi_trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
                                  uint64_t flags) {
  return ep->tagged->recvmsg(ep, msg, flags);
}

static inline ssize_t fi_tsend(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                               fi_addr_t dest_addr, uint64_t tag, void *context) {
  return ep->tagged->send(ep, buf, len, desc, dest_addr, tag, context);
}

static inline ssize_t fi_tsendv(struct fid_ep *ep, const struct iovec *iov, void **desc,
                                size_t count, fi_addr_t dest_addr, uint64_t tag, void *context) {
  return ep->tagged->sendv(ep, iov, desc, count, dest_addr, tag, context);
}

static inline ssize_t fi_tsendmsg(struct fid_ep *ep, const struct fi_msg_tagged *msg,
                                  uint64_t flags) {
  return ep->tagged->sendmsg(ep, msg, flags);
}

// No completion; `buf` is free when the call returns. At most tx_attr.inject_size bytes.
static inline ssize_t fi_tinject(struct fid_ep *ep, const void *buf, size_t len,
                                 fi_addr_t dest_addr, uint64_t tag) {
  return ep->tagged->inject(ep, buf, len, dest_addr, tag);
}

static inline ssize_t fi_tsenddata(struct fid_ep *ep, const void *buf, size_t len, void *desc,
                                   uint64_t data, fi_addr_t dest_addr, uint64_t tag,
                                   void *context) {
  return ep->tagged->senddata(ep, buf, len, desc, data, dest_addr, tag, context);
}

static inline ssize_t fi_tinjectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data,
                                     fi_addr_t dest_addr, uint64_t tag) {
  return ep->tagged->injectdata(ep, buf, len, data, dest_addr, tag);
}

#ifdef __cplusplus
}
#endif

#endif  // FI_TAGGED_H
