// SPDX-License-Identifier: BSD-2-Clause
//
// A domain, that is one logical device, and what lives in it beside endpoints: address vectors and
// memory regions; also the calls that open its completion queues and counters.
//
// Example:
//    static int open_domain(struct fid_fabric *fabric, struct fi_info *info, void *buf, size_t len,
//                           struct fid_domain **domain, struct fid_av **av, struct fid_mr **mr) {
//      struct fi_av_attr attr = {.type = FI_AV_TABLE};
//      int ret = fi_domain(fabric, info, domain, NULL);
//      if (!ret) ret = fi_av_open(*domain, &attr, av, NULL);
//      if (!ret) ret = fi_mr_reg(*domain, buf, len, FI_REMOTE_WRITE, 0, 1, 0, mr, NULL);  // key 1
//      return ret;
//    }
//
// Not for moving data, see fi_endpoint.h, fi_tagged.h, fi_rma.h, fi_atomic.h.
// Man pages: fi_domain(3), fi_av(3), fi_mr(3), fi_av_set(3).

#ifndef FI_DOMAIN_H
#define FI_DOMAIN_H

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

// --- Address vectors ---

#define FI_SYMMETRIC (1ULL << 59)  // fi_av_open: the same addresses in the same order everywhere
#define FI_SYNC_ERR (1ULL << 58)   // fi_av_insert: `context` is an int[count], an error for each
#define FI_UNIVERSE (1ULL << 57)   // fi_av_set: all addresses of the vector
#define FI_AUTH_KEY (1ULL << 57)   // the fi_addr_t stands for an authorization key

// fi_av_set: the collectives that the set must serve.
#define FI_BARRIER_SET (1ULL << 40)
#define FI_BROADCAST_SET (1ULL << 41)
#define FI_ALLTOALL_SET (1ULL << 42)
#define FI_ALLREDUCE_SET (1ULL << 43)
#define FI_ALLGATHER_SET (1ULL << 44)
#define FI_REDUCE_SCATTER_SET (1ULL << 45)
#define FI_REDUCE_SET (1ULL << 46)
#define FI_SCATTER_SET (1ULL << 47)
#define FI_GATHER_SET (1ULL << 48)

struct fi_av_attr {
  enum fi_av_type type;
  int rx_ctx_bits;     // upper bits of an fi_addr_t that select a receive context
  size_t count;        // addresses to expect; 0: unknown
  size_t ep_per_node;  // of those, how many share a host; 0: unknown
  const char *name;    // of a vector that processes share
  void *map_addr;      // where a shared table was mapped
  uint64_t flags;
};

// The members are start_addr, start_addr + stride, ... up to end_addr. fi_av_set(3).
struct fi_av_set_attr {
  size_t count;  // members to expect
  fi_addr_t start_addr;
  fi_addr_t end_addr;
  uint64_t stride;
  size_t comm_key_size;  // bytes
  uint8_t *comm_key;
  uint64_t flags;
};

struct fid_av_set;

struct fi_ops_av {
  size_t size;
  int (*insert)(struct fid_av *av, const void *addr, size_t count, fi_addr_t *fi_addr,
                uint64_t flags, void *context);
  int (*insertsvc)(struct fid_av *av, const char *node, const char *service, fi_addr_t *fi_addr,
                   uint64_t flags, void *context);
  int (*insertsym)(struct fid_av *av, const char *node, size_t nodecnt, const char *service,
                   size_t svccnt, fi_addr_t *fi_addr, uint64_t flags, void *context);
  int (*remove)(struct fid_av *av, fi_addr_t *fi_addr, size_t count, uint64_t flags);
  int (*lookup)(struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *addrlen);
  const char *(*straddr)(struct fid_av *av, const void *addr, char *buf, size_t *len);
  int (*av_set)(struct fid_av *av, struct fi_av_set_attr *attr, struct fid_av_set **av_set,
                void *context);
  int (*insert_auth_key)(struct fid_av *av, const void *auth_key, size_t auth_key_size,
                         fi_addr_t *fi_addr, uint64_t flags);
  int (*lookup_auth_key)(struct fid_av *av, fi_addr_t addr, void *auth_key, size_t *auth_key_size);
  int (*set_user_id)(struct fid_av *av, fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags);
};

struct fid_av {
  struct fid fid;
  struct fi_ops_av *ops;
};

// --- Memory regions ---

struct fid_mr {
  struct fid fid;
  void *mem_desc;  // for the `desc` arguments of local operations
  uint64_t key;    // for peers, or FI_KEY_NOTAVAIL
};

// Whose memory it is: the host's or that of a kind of device.
enum fi_hmem_iface {
  FI_HMEM_SYSTEM = 0,
  FI_HMEM_CUDA,
  FI_HMEM_ROCR,
  FI_HMEM_ZE,
  FI_HMEM_NEURON,
  FI_HMEM_SYNAPSEAI,
};

// attr.device.ze: a level zero device by the indices of its driver and of itself.
static inline int fi_hmem_ze_device(int driver_index, int device_index) {
  return driver_index << 16 | device_index;
}

// `len` bytes of a dma-buf from byte `offset`; base_addr is where it is mapped, or NULL.
struct fi_mr_dmabuf {
  int fd;
  uint64_t offset;
  size_t len;
  void *base_addr;
};

// attr.auth_key of regions in domains with FI_AV_AUTH_KEY.
struct fi_mr_auth_key {
  struct fid_av *av;
  fi_addr_t src_addr;
};

struct fi_mr_attr {
  union {
    const struct iovec *mr_iov;
    const struct fi_mr_dmabuf *dmabuf;  // with FI_MR_DMABUF
  };
  size_t iov_count;        // elements
  uint64_t access;         // FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE
  uint64_t offset;         // 0; reserved
  uint64_t requested_key;  // ignored with FI_MR_PROV_KEY
  void *context;
  size_t auth_key_size;  // bytes
  uint8_t *auth_key;
  enum fi_hmem_iface iface;
  union {
    uint64_t reserved;
    int cuda;       // ordinal
    int ze;         // fi_hmem_ze_device()
    int neuron;     // ordinal
    int synapseai;  // ordinal
  } device;
  void *hmem_data;               // what the device interface wants passed along, or NULL
  size_t page_size;              // bytes of a page behind the region; 0: unknown
  const struct fid_mr *base_mr;  // this is a part of that region
  size_t sub_mr_cnt;             // parts that will be registered of this region
};

// FI_REFRESH: what fi_mr_refresh() passes.
struct fi_mr_modify {
  uint64_t flags;
  struct fi_mr_attr attr;
};

// fi_set_ops() with this name: the provider copies device memory by the calls of the application.
#define FI_SET_OPS_HMEM_OVERRIDE "hmem_override_ops"

// Both return the bytes copied or a negative error.
struct fi_hmem_override_ops {
  size_t size;
  ssize_t (*copy_from_hmem_iov)(void *dest, size_t size, enum fi_hmem_iface iface, uint64_t device,
                                const struct iovec *hmem_iov, size_t hmem_iov_count,
                                uint64_t hmem_iov_offset);
  ssize_t (*copy_to_hmem_iov)(enum fi_hmem_iface iface, uint64_t device,
                              const struct iovec *hmem_iov, size_t hmem_iov_count,
                              uint64_t hmem_iov_offset, const void *src, size_t size);
};

// --- Datatypes and operations of atomics and collectives. fi_atomic(3), fi_collective(3) ---

// Values from here on belong to collectives only.
#define FI_COLLECTIVE_OFFSET 256

enum fi_datatype {
  FI_INT8,
  FI_UINT8,
  FI_INT16,
  FI_UINT16,
  FI_INT32,
  FI_UINT32,
  FI_INT64,
  FI_UINT64,
  FI_FLOAT,
  FI_DOUBLE,
  FI_FLOAT_COMPLEX,
  FI_DOUBLE_COMPLEX,
  FI_LONG_DOUBLE,
  FI_LONG_DOUBLE_COMPLEX,
  FI_INT128,
  FI_UINT128,
  FI_FLOAT16,
  FI_BFLOAT16,
  FI_FLOAT8_E4M3,
  FI_FLOAT8_E5M2,
  FI_VOID = FI_COLLECTIVE_OFFSET,  // no values at all, as in a barrier
};

// One past the datatypes of the first releases; it stays there, because programs size arrays by it.
#define FI_DATATYPE_LAST 14

enum fi_op {
  FI_MIN,
  FI_MAX,
  FI_SUM,
  FI_PROD,
  FI_LOR,
  FI_LAND,
  FI_BOR,
  FI_BAND,
  FI_LXOR,
  FI_BXOR,
  FI_ATOMIC_READ,
  FI_ATOMIC_WRITE,
  FI_CSWAP,
  FI_CSWAP_NE,
  FI_CSWAP_LE,
  FI_CSWAP_LT,
  FI_CSWAP_GE,
  FI_CSWAP_GT,
  FI_MSWAP,
  FI_DIFF,
  FI_NOOP = FI_COLLECTIVE_OFFSET,
};

// As FI_DATATYPE_LAST.
#define FI_ATOMIC_OP_LAST 19

enum fi_collective_op {
  FI_BARRIER,
  FI_BROADCAST,
  FI_ALLTOALL,
  FI_ALLREDUCE,
  FI_ALLGATHER,
  FI_REDUCE_SCATTER,
  FI_REDUCE,
  FI_SCATTER,
  FI_GATHER,
};

// --- Domains ---

struct fi_atomic_attr;
struct fi_cq_attr;
struct fi_cntr_attr;
struct fi_collective_attr;

struct fi_ops_domain {
  size_t size;
  int (*av_open)(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
                 void *context);
  int (*cq_open)(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                 void *context);
  int (*endpoint)(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                  void *context);
  int (*scalable_ep)(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep,
                     void *context);
  int (*cntr_open)(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **cntr,
                   void *context);
  int (*poll_open)(struct fid_domain *domain, struct fi_poll_attr *attr, struct fid_poll **pollset);
  int (*stx_ctx)(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
                 void *context);
  int (*srx_ctx)(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **rx_ep,
                 void *context);
  int (*query_atomic)(struct fid_domain *domain, enum fi_datatype datatype, enum fi_op op,
                      struct fi_atomic_attr *attr, uint64_t flags);
  int (*query_collective)(struct fid_domain *domain, enum fi_collective_op coll,
                          struct fi_collective_attr *attr, uint64_t flags);
  int (*endpoint2)(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                   uint64_t flags, void *context);
};

// The fid passed is the domain's.
struct fi_ops_mr {
  size_t size;
  int (*reg)(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset,
             uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context);
  int (*regv)(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
              uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr,
              void *context);
  int (*regattr)(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                 struct fid_mr **mr);
};

// fi_domain_bind() of an event queue: memory registration completes there.
#define FI_REG_MR (1ULL << 59)

struct fid_domain {
  struct fid fid;
  struct fi_ops_domain *ops;
  struct fi_ops_mr *mr;
};

static inline int fi_domain(struct fid_fabric *fabric, struct fi_info *info,
                            struct fid_domain **domain, void *context) {
  return fabric->ops->domain(fabric, info, domain, context);
}

// Without flags the same as fi_domain(), so that every provider has it.
static inline int fi_domain2(struct fid_fabric *fabric, struct fi_info *info,
                             struct fid_domain **domain, uint64_t flags, void *context) {
  if (!flags) return fi_domain(fabric, info, domain, context);
  if (!FI_CHECK_OP(fabric->ops, struct fi_ops_fabric, domain2)) return -FI_ENOSYS;
  return fabric->ops->domain2(fabric, info, domain, flags, context);
}

static inline int fi_domain_bind(struct fid_domain *domain, struct fid *fid, uint64_t flags) {
  return domain->fid.ops->bind(&domain->fid, fid, flags);
}

static inline int fi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                             void *context) {
  return domain->ops->cq_open(domain, attr, cq, context);
}

static inline int fi_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
                               struct fid_cntr **cntr, void *context) {
  return domain->ops->cntr_open(domain, attr, cntr, context);
}

static inline int fi_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr,
                               struct fid_wait **waitset) {
  return fabric->ops->wait_open(fabric, attr, waitset);
}

static inline int fi_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
                               struct fid_poll **pollset) {
  return domain->ops->poll_open(domain, attr, pollset);
}

// --- Memory region calls. fi_mr(3) ---

static inline int fi_mr_reg(struct fid_domain *domain, const void *buf, size_t len, uint64_t acs,
                            uint64_t offset, uint64_t requested_key, uint64_t flags,
                            struct fid_mr **mr, void *context) {
  return domain->mr->reg(&domain->fid, buf, len, acs, offset, requested_key, flags, mr, context);
}

static inline int fi_mr_regv(struct fid_domain *domain, const struct iovec *iov, size_t count,
                             uint64_t acs, uint64_t offset, uint64_t requested_key, uint64_t flags,
                             struct fid_mr **mr, void *context) {
  return domain->mr->regv(&domain->fid, iov, count, acs, offset, requested_key, flags, mr, context);
}

static inline int fi_mr_regattr(struct fid_domain *domain, const struct fi_mr_attr *attr,
                                uint64_t flags, struct fid_mr **mr) {
  return domain->mr->regattr(&domain->fid, attr, flags, mr);
}

static inline void *fi_mr_desc(struct fid_mr *mr) {
  return mr->mem_desc;
}

static inline uint64_t fi_mr_key(struct fid_mr *mr) {
  return mr->key;
}

// The key to send to a peer where the domain has FI_MR_RAW. *key_size: room in, needed out.
static inline int fi_mr_raw_attr(struct fid_mr *mr, uint64_t *base_addr, uint8_t *raw_key,
                                 size_t *key_size, uint64_t flags) {
  struct fi_mr_raw_attr request;
  request.flags = flags;
  request.base_addr = base_addr;
  request.raw_key = raw_key;
  request.key_size = key_size;
  return mr->fid.ops->control(&mr->fid, FI_GET_RAW_MR, &request);
}

// Turns a peer's raw key into one for data transfers; give it back with fi_mr_unmap_key().
static inline int fi_mr_map_raw(struct fid_domain *domain, uint64_t base_addr, uint8_t *raw_key,
                                size_t key_size, uint64_t *key, uint64_t flags) {
  struct fi_mr_map_raw request;
  request.flags = flags;
  request.base_addr = base_addr;
  request.raw_key = raw_key;
  request.key_size = key_size;
  request.key = key;
  return domain->fid.ops->control(&domain->fid, FI_MAP_RAW_MR, &request);
}

static inline int fi_mr_unmap_key(struct fid_domain *domain, uint64_t key) {
  return domain->fid.ops->control(&domain->fid, FI_UNMAP_KEY, &key);
}

static inline int fi_mr_bind(struct fid_mr *mr, struct fid *bfid, uint64_t flags) {
  return mr->fid.ops->bind(&mr->fid, bfid, flags);
}

// Tells the provider that the pages behind these parts of the region changed.
static inline int fi_mr_refresh(struct fid_mr *mr, const struct iovec *iov, size_t count,
                                uint64_t flags) {
  struct fi_mr_modify request;
  memset(&request, 0, sizeof(request));
  request.flags = flags;
  request.attr.mr_iov = iov;
  request.attr.iov_count = count;
  return mr->fid.ops->control(&mr->fid, FI_REFRESH, &request);
}

static inline int fi_mr_enable(struct fid_mr *mr) {
  return mr->fid.ops->control(&mr->fid, FI_ENABLE, NULL);
}

// --- Address vector calls. fi_av(3) ---

static inline int fi_av_open(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
                             void *context) {
  return domain->ops->av_open(domain, attr, av, context);
}

// Deprecated: insertion is synchronous unless an event queue is bound.
static inline int fi_av_bind(struct fid_av *av, struct fid *fid, uint64_t flags) {
  return av->fid.ops->bind(&av->fid, fid, flags);
}

// Returns how many of the `count` addresses went in (0 where an event queue is bound); those that
// did not have FI_ADDR_NOTAVAIL in `fi_addr`.
static inline int fi_av_insert(struct fid_av *av, const void *addr, size_t count,
                               fi_addr_t *fi_addr, uint64_t flags, void *context) {
  return av->ops->insert(av, addr, count, fi_addr, flags, context);
}

static inline int fi_av_insertsvc(struct fid_av *av, const char *node, const char *service,
                                  fi_addr_t *fi_addr, uint64_t flags, void *context) {
  return av->ops->insertsvc(av, node, service, fi_addr, flags, context);
}

// nodecnt hosts from `node` upwards, on each svccnt services from `service` upwards.
static inline int fi_av_insertsym(struct fid_av *av, const char *node, size_t nodecnt,
                                  const char *service, size_t svccnt, fi_addr_t *fi_addr,
                                  uint64_t flags, void *context) {
  return av->ops->insertsym(av, node, nodecnt, service, svccnt, fi_addr, flags, context);
}

static inline int fi_av_remove(struct fid_av *av, fi_addr_t *fi_addr, size_t count,
                               uint64_t flags) {
  return av->ops->remove(av, fi_addr, count, flags);
}

// *addrlen: room in, length of the whole address out; a longer address is cut.
static inline int fi_av_lookup(struct fid_av *av, fi_addr_t fi_addr, void *addr, size_t *addrlen) {
  return av->ops->lookup(av, fi_addr, addr, addrlen);
}

static inline const char *fi_av_straddr(struct fid_av *av, const void *addr, char *buf,
                                        size_t *len) {
  return av->ops->straddr(av, addr, buf, len);
}

// An fi_addr_t that stands for the key in calls with FI_AUTH_KEY. For domains with FI_AV_AUTH_KEY.
static inline int fi_av_insert_auth_key(struct fid_av *av, const void *auth_key,
                                        size_t auth_key_size, fi_addr_t *fi_addr, uint64_t flags) {
  if (!FI_CHECK_OP(av->ops, struct fi_ops_av, insert_auth_key)) return -FI_ENOSYS;
  return av->ops->insert_auth_key(av, auth_key, auth_key_size, fi_addr, flags);
}

// *auth_key_size: room in, length of the whole key out.
static inline int fi_av_lookup_auth_key(struct fid_av *av, fi_addr_t addr, void *auth_key,
                                        size_t *auth_key_size) {
  if (!FI_CHECK_OP(av->ops, struct fi_ops_av, lookup_auth_key)) return -FI_ENOSYS;
  return av->ops->lookup_auth_key(av, addr, auth_key, auth_key_size);
}

// Completions of a vector with FI_AV_USER_ID report `user_id` instead of `fi_addr`.
static inline int fi_av_set_user_id(struct fid_av *av, fi_addr_t fi_addr, fi_addr_t user_id,
                                    uint64_t flags) {
  if (!FI_CHECK_OP(av->ops, struct fi_ops_av, set_user_id)) return -FI_ENOSYS;
  return av->ops->set_user_id(av, fi_addr, user_id, flags);
}

// One receive context of a peer; rx_ctx_bits as in the vector's attributes, 1 to 63.
static inline fi_addr_t fi_rx_addr(fi_addr_t fi_addr, int rx_index, int rx_ctx_bits) {
  return (fi_addr_t)(((uint64_t)rx_index << (64 - rx_ctx_bits)) | fi_addr);
}

// A peer as member of a group, up to domain_attr.max_group_id. The id goes into the upper half.
static inline fi_addr_t fi_group_addr(fi_addr_t fi_addr, uint32_t group_id) {
  return (fi_addr_t)(((uint64_t)group_id << 32) | fi_addr);
}

#ifdef __cplusplus
}
#endif

#endif  // FI_DOMAIN_H
