// SPDX-License-Identifier: BSD-2-Clause
//
// What the cxi provider (HPE Slingshot) has beyond the portable API: authorization keys, NIC
// attributes, flags, options, domain and counter extensions, collective types. See fi_cxi(7).
//
// Example:
//    static int queue_depth(struct fid_domain *domain, size_t *depth) {
//      struct fi_cxi_dom_ops *ops;
//      int ret = fi_open_ops(&domain->fid, FI_CXI_DOM_OPS_6, 0, (void **)&ops, NULL);
//      return ret ? ret : ops->get_dwq_depth(&domain->fid, depth);
//    }
//
// Not for portable programs: no other provider knows any of it.

#ifndef FI_CXI_EXT_H
#define FI_CXI_EXT_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_ext.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- authorization and NIC attributes ----

// What auth_key of a domain or an endpoint points to.
struct cxi_auth_key {
  uint32_t svc_id;  // CXI service; 1 is the one that each NIC has
  uint16_t vni;     // virtual network, must be one of the service's
};

// fi_info->nic->prov_attr points to this.
#define FI_CXI_NIC_ATTR_VER 1

struct cxip_nic_attr {
  uint32_t version;                      // FI_CXI_NIC_ATTR_VER
  const unsigned int addr;               // NIC address
  const unsigned int default_rgroup_id;  // resource group of the default service
  const unsigned int default_vni;
};

// ---- options: fi_control on a domain, fi_set_val on an alias endpoint, fi_setopt ----

#define FI_PROV_SPECIFIC_CXI (0xccc << 16)

enum {
  FI_OPT_CXI_SET_TCLASS = -FI_PROV_SPECIFIC_CXI,  // uint32_t, alias endpoint: traffic class
  FI_OPT_CXI_SET_MSG_ORDER,                       // uint64_t, alias endpoint: FI_ORDER_*
  FI_OPT_CXI_NIC_REFRESH_ATTR,                    // struct fid_nic: read its attributes anew
  FI_OPT_CXI_SET_MR_MATCH_EVENTS,                 // bool, domain, before any endpoint or MR
  FI_OPT_CXI_GET_MR_MATCH_EVENTS,                 // bool, domain
  FI_OPT_CXI_SET_OPTIMIZED_MRS,                   // bool, domain with FI_MR_PROV_KEY, before any MR
  FI_OPT_CXI_GET_OPTIMIZED_MRS,                   // bool, domain
  FI_OPT_CXI_SET_PROV_KEY_CACHE,                  // bool, domain with FI_MR_PROV_KEY, before any MR
  FI_OPT_CXI_GET_PROV_KEY_CACHE,                  // bool, domain
  FI_OPT_CXI_SET_RNR_MAX_RETRY_TIME,              // uint64_t, endpoint, microseconds
  FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE,          // string: hardware, software or hybrid
  FI_OPT_CXI_GET_RX_MATCH_MODE_OVERRIDE,          // string
  FI_OPT_CXI_SET_REQ_BUF_SIZE_OVERRIDE,           // size_t, bytes
  FI_OPT_CXI_GET_REQ_BUF_SIZE_OVERRIDE,           // size_t, bytes
  FI_OPT_CXI_GET_RNR_APPEND_RETRY_ATTEMPTS,       // uint64_t
};

// ---- flags ----

#define FI_CXI_CNTR_CACHED (1ULL << 32)  // counter; not described in fi_cxi(7)
#define FI_CXI_TRUNC (1ULL << 56)        // completion: the message was cut
#define FI_CXI_PCIE_AMO (1ULL << 57)     // atomic: do it on PCIe, not in the NIC
#define FI_CXI_PRE_REDUCED (1ULL << 57)  // reduction: the source is a cxip_coll_accumulator
#define FI_CXI_HRP (1ULL << 60)          // atomic or write: high-rate put; with UNRELIABLE
#define FI_CXI_UNRELIABLE (1ULL << 61)   // restricted write or atomic: may get lost
#define FI_CXI_CNTR_WB (1ULL << 62)      // deferred work: write the counter back when done
#define FI_CXI_WEAK_FENCE (1ULL << 63)   // alias endpoint, one-sided: order data up to here

// Counter attribute `events`: count bytes. The same as the portable name that came later.
#define FI_CXI_CNTR_EVENTS_BYTES FI_CNTR_EVENTS_BYTES

// ---- domain extensions ----

// Names for fi_open_ops on a domain. Each adds members to the one struct at its end.
#define FI_CXI_DOM_OPS_1 "dom_ops_v1"
#define FI_CXI_DOM_OPS_2 "dom_ops_v2"
#define FI_CXI_DOM_OPS_3 "dom_ops_v3"
#define FI_CXI_DOM_OPS_4 "dom_ops_v4"
#define FI_CXI_DOM_OPS_5 "dom_ops_v5"
#define FI_CXI_DOM_OPS_6 "dom_ops_v6"

struct fi_cxi_dom_ops {
  // Reads a hardware counter, by the numbers of cassini_cntr_defs.h, and when it was sampled. A
  // site may limit this to once a second.
  int (*cntr_read)(struct fid *fid, unsigned int cntr, uint64_t *value, struct timespec *ts);
  // Where the NIC sits in a dragonfly network.
  int (*topology)(struct fid *fid, unsigned int *group_id, unsigned int *switch_id,
                  unsigned int *port_id);
  // Lets RMA and atomics take a local descriptor where the caller has one.
  int (*enable_hybrid_mr_desc)(struct fid *fid, bool enable);
  // Lists messages that no receive matched: len, data, tag and flags of each entry are set.
  // Returns how many were written, or a negative errno; *ux_count: how many there are. With
  // count 0 or a NULL array only *ux_count is set.
  size_t (*ep_get_unexp_msgs)(struct fid_ep *fid_ep, struct fi_cq_tagged_entry *entry, size_t count,
                              fi_addr_t *src_addr, size_t *ux_count);
  // Triggered operations that the service, shared by a job's processes on the NIC, may queue.
  int (*get_dwq_depth)(struct fid *fid, size_t *depth);
  // Both superseded by FI_OPT_CXI_SET_MR_MATCH_EVENTS and FI_OPT_CXI_SET_OPTIMIZED_MRS.
  int (*enable_mr_match_events)(struct fid *fid, bool enable);
  int (*enable_optimized_mrs)(struct fid *fid, bool enable);
};

// ---- counter extensions ----

#define FI_CXI_COUNTER_OPS "cxi_counter_ops"

#define FI_CXI_CNTR_SUCCESS_MAX ((1ULL << 48) - 1)
#define FI_CXI_CNTR_FAILURE_MAX ((1ULL << 7) - 1)

struct fi_cxi_cntr_ops {
  // Where the NIC writes the counter's value: at least 8 bytes, 8-byte aligned, until closed.
  int (*set_wb_buffer)(struct fid *fid, void *buf, size_t len);
  // The counter's registers, for stores from the host or a device without a library call.
  int (*get_mmio_addr)(struct fid *fid, void **addr, size_t *len);
};

// The word that the NIC writes back: successes in bits 0 to 47, failures in 48 to 54, bit 63 set.
// It changes behind the compiler's back, hence volatile.
static inline uint64_t fi_cxi_cntr_wb_read(const void *wb_buf) {
  return *(const volatile uint64_t *)wb_buf & FI_CXI_CNTR_SUCCESS_MAX;
}

static inline uint64_t fi_cxi_cntr_wb_readerr(const void *wb_buf) {
  return (*(const volatile uint64_t *)wb_buf >> 48) & FI_CXI_CNTR_FAILURE_MAX;
}

// The word that a counter with `value` successes and no failures writes back, for devices that
// wait by comparing whole words.
static inline uint64_t fi_cxi_gen_cntr_success(uint64_t value) {
  return (1ULL << 63) | (value & FI_CXI_CNTR_SUCCESS_MAX);
}

// The registers, each in a cache line of its own. A store adds the value stored, or resets.
static inline void *fi_cxi_get_cntr_add_addr(void *cntr_mmio) {
  return cntr_mmio;
}

static inline void *fi_cxi_get_cntr_adderr_addr(void *cntr_mmio) {
  return (uint8_t *)cntr_mmio + 64;
}

static inline void *fi_cxi_get_cntr_reset_addr(void *cntr_mmio) {
  return (uint8_t *)cntr_mmio + 128;
}

static inline void *fi_cxi_get_cntr_reseterr_addr(void *cntr_mmio) {
  return (uint8_t *)cntr_mmio + 192;
}

// The fi_cntr_* calls as plain stores; -FI_EINVAL if the value does not fit the counter.
static inline int fi_cxi_cntr_add(void *cntr_mmio, uint64_t value) {
  if (value > FI_CXI_CNTR_SUCCESS_MAX) return -FI_EINVAL;
  *(volatile uint64_t *)fi_cxi_get_cntr_add_addr(cntr_mmio) = value;
  return FI_SUCCESS;
}

static inline int fi_cxi_cntr_adderr(void *cntr_mmio, uint64_t value) {
  if (value > FI_CXI_CNTR_FAILURE_MAX) return -FI_EINVAL;
  *(volatile uint64_t *)fi_cxi_get_cntr_adderr_addr(cntr_mmio) = value;
  return FI_SUCCESS;
}

// There is no register that sets: reset, then add.
static inline int fi_cxi_cntr_set(void *cntr_mmio, uint64_t value) {
  if (value > FI_CXI_CNTR_SUCCESS_MAX) return -FI_EINVAL;
  *(volatile uint64_t *)fi_cxi_get_cntr_reset_addr(cntr_mmio) = 0;
  return value ? fi_cxi_cntr_add(cntr_mmio, value) : FI_SUCCESS;
}

static inline int fi_cxi_cntr_seterr(void *cntr_mmio, uint64_t value) {
  if (value > FI_CXI_CNTR_FAILURE_MAX) return -FI_EINVAL;
  *(volatile uint64_t *)fi_cxi_get_cntr_reseterr_addr(cntr_mmio) = 0;
  return value ? fi_cxi_cntr_adderr(cntr_mmio, value) : FI_SUCCESS;
}

// ---- collectives ----

// How a collective group's multicast tree is made: cxip_comm_key::keytype.
enum cxip_comm_key_type {
  COMM_KEY_NONE = 0,   // the provider asks the fabric manager
  COMM_KEY_MULTICAST,  // the application has a multicast address
  COMM_KEY_UNICAST,    // no multicast: for tests
  COMM_KEY_RANK,       // all ranks in one process: for tests
  COMM_KEY_MAX
};

struct cxip_coll_mcast_key {
  uint32_t hwroot_idx;  // index in the AV set of the tree's root
  uint32_t mcast_addr;
};

struct cxip_coll_unicast_key {
  uint32_t hwroot_idx;
  uint32_t mcast_addr;
};

struct cxip_coll_rank_key {
  uint32_t hwroot_idx;
  uint32_t rank;    // whom this object stands for
  bool rx_discard;  // drop what it receives
};

// fi_av_set_attr::comm_key points to this.
struct cxip_comm_key {
  enum cxip_comm_key_type keytype;
  union {
    struct cxip_coll_mcast_key mcast;
    struct cxip_coll_unicast_key ucast;
    struct cxip_coll_rank_key rank;
  };
};

// Reductions beyond enum fi_op; cast to it.
enum cxip_coll_op {
  FI_CXI_MINMAXLOC = 32,  // least and greatest value, and who has them; count 1
  FI_CXI_REPSUM,          // sum of FI_DOUBLE that does not depend on the order; count 1
  FI_CXI_OP_LAST
};

// Operand and result of FI_CXI_MINMAXLOC.
struct cxip_coll_intminmax {
  int64_t minval;
  uint64_t minidx;  // rank of the least value
  int64_t maxval;
  uint64_t maxidx;
};

struct cxip_coll_fltminmax {
  double minval;
  uint64_t minidx;
  double maxval;
  uint64_t maxidx;
};

// Partial result of a local reduction with FI_MORE; only the provider looks inside.
struct cxip_coll_accumulator {
  uint8_t accum[64];
};

// prov_errno of failed reductions (1024 on) and joins (2048 on).
enum cxip_coll_prov_errno {
  FI_CXI_ERRNO_RED_FIRST = 1024,
  FI_CXI_ERRNO_RED_FLT_OVERFLOW = 1024,  // a double became infinite
  FI_CXI_ERRNO_RED_FLT_INVALID,          // a signalling NaN, or infinity minus infinity
  FI_CXI_ERRNO_RED_INT_OVERFLOW,         // a sum of integers overflowed
  FI_CXI_ERRNO_RED_CONTR_OVERFLOW,       // more contributions than members
  FI_CXI_ERRNO_RED_OP_MISMATCH,          // members disagree on the operation
  FI_CXI_ERRNO_RED_MC_FAILURE,           // the multicast tree failed
  FI_CXI_COLL_RC_RDMA_FAILURE,           // a control transfer failed
  FI_CXI_COLL_RC_RDMA_DATA_FAILURE,      // a data transfer failed
  FI_CXI_ERRNO_RED_OTHER,
  FI_CXI_ERRNO_RED_LAST,

  FI_CXI_ERRNO_JOIN_FIRST = 2048,
  FI_CXI_ERRNO_JOIN_MCAST_INUSE = 2048,  // the multicast address is in use
  FI_CXI_ERRNO_JOIN_HWROOT_INUSE,        // the node is already the root of a tree
  FI_CXI_ERRNO_JOIN_MCAST_INVALID,       // no such multicast address
  FI_CXI_ERRNO_JOIN_HWROOT_INVALID,      // no such root
  FI_CXI_ERRNO_JOIN_CURL_FAILED,         // the request to the fabric manager failed
  FI_CXI_ERRNO_JOIN_CURL_TIMEOUT,        // it did not answer in time
  FI_CXI_ERRNO_JOIN_SERVER_ERR,          // it refused
  FI_CXI_ERRNO_JOIN_FAIL_PTE,            // no portal table entry
  FI_CXI_ERRNO_JOIN_OTHER,
  FI_CXI_ERRNO_JOIN_FAIL_RDMA,  // a transfer between members failed
  FI_CXI_ERRNO_JOIN_LAST = 2091,
};

#ifdef __cplusplus
}
#endif

#endif  // FI_CXI_EXT_H
