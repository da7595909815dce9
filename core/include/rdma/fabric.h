// SPDX-License-Identifier: BSD-2-Clause
//
// The root of the C API: versions, flags, attributes, fi_getinfo(), the base object `struct fid`.
//
// Example:
//    #include <stddef.h>
//    static int open_fabric(struct fid_fabric **fabric) {
//      struct fi_info *hints = fi_allocinfo(), *info = NULL;
//      if (!hints) return -FI_ENOMEM;
//      hints->caps = FI_MSG;
//      hints->ep_attr->type = FI_EP_RDM;
//      int ret = fi_getinfo(FI_VERSION(2, 6), "host", "7471", 0, hints, &info);
//      if (!ret) ret = fi_fabric(info->fabric_attr, fabric, NULL);
//      fi_freeinfo(info);
//      fi_freeinfo(hints);
//      return ret;
//    }
//
// Layouts, values and names are release 2.6 of the OFI interface; old members never move, structs
// only grow at their end. Not for domains, queues and endpoints, which have headers of their own,
// and not for provider authors' helpers (providers/fi_prov.h). Man pages: fabric(7), fi_getinfo(3),
// fi_fabric(3), fi_endpoint(3), fi_domain(3), fi_version(3).

#ifndef FABRIC_H
#define FABRIC_H

#include <rdma/fi_errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __GNUC__
#define FI_DEPRECATED_FUNC __attribute__((deprecated))
#define FI_DEPRECATED_FIELD __attribute__((deprecated))
#define FI_FORMAT_PRINTF(string, first) __attribute__((__format__(__printf__, (string), (first))))
#else
#define FI_DEPRECATED_FUNC
#define FI_DEPRECATED_FIELD
#define FI_FORMAT_PRINTF(string, first)
#endif

// An attribute name that keeps a symbol through link time optimisation, where the compiler has one.
#if defined(__GNUC__) && !defined(__clang__)
#define EXTERNALLY_VISIBLE externally_visible
#else
#define EXTERNALLY_VISIBLE
#endif

#ifdef __cplusplus
extern "C" {
#endif

// From a pointer to a member back to the object that holds it.
#ifndef container_of
#define container_of(ptr, type, field) ((type *)((char *)(ptr)-offsetof(type, field)))
#endif

// Elements of an array; not of a pointer.
#ifndef count_of
#define count_of(x) (sizeof(x) / sizeof((x)[0]))
#endif

// --- Versions ---

#define FI_MAJOR_VERSION 2
#define FI_MINOR_VERSION 6
#define FI_REVISION_VERSION 0

enum {
  FI_NAME_MAX = 64,  // bytes of a name, its terminator included
};

#define FI_VERSION(major, minor) (((major) << 16) | (minor))
#define FI_MAJOR(version) ((version) >> 16)
#define FI_MINOR(version) ((version)&0xFFFF)
#define FI_VERSION_GE(v1, v2) ((v1) >= (v2))
#define FI_VERSION_LT(v1, v2) ((v1) < (v2))

// The API version that the library in use implements, as FI_VERSION() packs it. fi_version(3).
uint32_t fi_version(void);

struct fid;
struct fid_fabric;
struct fid_domain;
struct fid_av;
struct fid_wait;
struct fid_poll;
struct fid_eq;
struct fid_cq;
struct fid_cntr;
struct fid_ep;
struct fid_pep;
struct fid_stx;
struct fid_mr;
struct fid_nic;

typedef struct fid *fid_t;

// --- Capabilities and flags ---

// One 64-bit space. Low bits mean the same wherever they appear; bits from 59 downwards are given
// to one call or class each, so that the same bit may have several names; 60 to 63 belong to
// providers.

// Kinds of data transfer, in fi_info.caps.
#define FI_MSG (1ULL << 1)
#define FI_RMA (1ULL << 2)
#define FI_TAGGED (1ULL << 3)
#define FI_ATOMIC (1ULL << 4)
#define FI_ATOMICS FI_ATOMIC
#define FI_MULTICAST (1ULL << 5)
#define FI_COLLECTIVE (1ULL << 6)

// Direction: restricts a capability, grants access to a memory region, describes a completion.
#define FI_READ (1ULL << 8)
#define FI_WRITE (1ULL << 9)
#define FI_RECV (1ULL << 10)
#define FI_SEND (1ULL << 11)
#define FI_TRANSMIT FI_SEND
#define FI_REMOTE_READ (1ULL << 12)
#define FI_REMOTE_WRITE (1ULL << 13)

// Flags of an operation and of its completion. fi_msg(3), fi_cq(3).
#define FI_MULTI_RECV (1ULL << 16)      // one buffer for several messages: FI_OPT_MIN_MULTI_RECV
#define FI_REMOTE_CQ_DATA (1ULL << 17)  // `data` travels with the message to the peer's completion
#define FI_MORE (1ULL << 18)            // another post follows at once, this one may wait for it
#define FI_PEEK (1ULL << 19)            // look for a matching message without receiving it
#define FI_TRIGGER (1ULL << 20)         // deferred until a counter says so, see fi_trigger.h
#define FI_FENCE (1ULL << 21)           // starts after all earlier operations to the same peer

#define FI_COMPLETION (1ULL << 24)
#define FI_EVENT FI_COMPLETION
#define FI_INJECT (1ULL << 25)  // the source buffer is free again when the call returns

// What a transmit completion promises, from weakest to strongest; FI_AFFINITY is none of them.
// fi_cq(3).
#define FI_INJECT_COMPLETE (1ULL << 26)    // the source buffer may be reused
#define FI_TRANSMIT_COMPLETE (1ULL << 27)  // it no longer depends on the local side
#define FI_DELIVERY_COMPLETE (1ULL << 28)  // it is in the target's memory
#define FI_AFFINITY (1ULL << 29)           // opening a queue: its signaling_vector counts
#define FI_COMMIT_COMPLETE (1ULL << 30)    // it is in persistent memory
#define FI_MATCH_COMPLETE (1ULL << 31)     // the target matched it with a receive buffer

#define FI_RESCAN (1ULL << 35)         // fi_getinfo: look for devices anew
#define FI_PEER_TRANSFER (1ULL << 36)  // fi_peer(3): transfers pass between peer providers
#define FI_MR_DMABUF (1ULL << 40)      // fi_mr_regattr: the region is given by a dma-buf
#define FI_MR_SINGLE_USE (1ULL << 41)  // fi_mr_regattr: one remote access only
#define FI_AV_USER_ID (1ULL << 41)     // completions report the application's id of the source
#define FI_FIREWALL_ADDR (1ULL << 42)  // fi_av_insert: this address takes no connections
#define FI_PEER (1ULL << 43)           // fi_peer(3): the object is imported from another provider
#define FI_TAGGED_DIRECTED_RECV (1ULL << 45)  // FI_DIRECTED_RECV for tagged receives only
#define FI_HMEM_HOST_ALLOC (1ULL << 45)       // registration: host memory of a device's allocator
#define FI_TAGGED_MULTI_RECV (1ULL << 46)     // FI_MULTI_RECV for tagged receives
#define FI_HMEM_DEVICE_ONLY (1ULL << 46)      // registration: the host cannot touch the memory
#define FI_HMEM (1ULL << 47)                  // buffers may lie in device memory
#define FI_EXACT_DIRECTED_RECV (1ULL << 48)   // directed receives must not name FI_ADDR_UNSPEC
#define FI_RMA_PMEM (1ULL << 49)
#define FI_SOURCE_ERR (1ULL << 50)      // raw address of an unknown sender in the error entry
#define FI_LOCAL_COMM (1ULL << 51)      // peers on this host
#define FI_REMOTE_COMM (1ULL << 52)     // peers on other hosts
#define FI_SHARED_AV (1ULL << 53)       // address vectors that processes share
#define FI_PROV_ATTR_ONLY (1ULL << 54)  // fi_getinfo: what providers are there, unfiltered
#define FI_NUMERICHOST (1ULL << 55)     // fi_getinfo: the node is a numeric address
#define FI_RMA_EVENT (1ULL << 56)       // remote access counts on the target
#define FI_SOURCE (1ULL << 57)          // fi_getinfo: the node is ours; caps: tells the sender
#define FI_NAMED_RX_CTX (1ULL << 58)    // one receive context of a peer can be addressed
#define FI_DIRECTED_RECV (1ULL << 59)   // receives can be limited to one source

// Values for FI_PEEK'ed and buffered messages.
#define FI_CLAIM (1ULL << 59)    // reserve the found message for a later receive
#define FI_DISCARD (1ULL << 58)  // throw the found message away

// fi_ep_bind() of a completion queue: report only what asks for FI_COMPLETION, and errors.
#define FI_SELECTIVE_COMPLETION (1ULL << 59)

// Withdrawn; zero, so that sources which name it still build.
#define FI_VARIABLE_MSG 0ULL

// A vector element of atomic and collective calls; `count` is in values of the datatype.
struct fi_ioc {
  void *addr;
  size_t count;
};

// --- Addresses ---

// fi_info.addr_format: how the bytes of an endpoint address are to be read. fi_getinfo(3).
enum {
  FI_FORMAT_UNSPEC,  // left to the provider
  FI_SOCKADDR,       // struct sockaddr, of whatever family
  FI_SOCKADDR_IN,    // struct sockaddr_in
  FI_SOCKADDR_IN6,   // struct sockaddr_in6
  FI_SOCKADDR_IB,    // struct sockaddr_ib
  FI_ADDR_PSMX,      // uint64_t
  FI_ADDR_GNI,
  FI_ADDR_BGQ,
  FI_ADDR_MLX,
  FI_ADDR_STR,    // text of the form format://node:service/...
  FI_ADDR_PSMX2,  // uint64_t[2]
  FI_ADDR_IB_UD,  // uint64_t[4]
  FI_ADDR_EFA,
  FI_ADDR_PSMX3,  // uint64_t[4]
  FI_ADDR_OPX,
  FI_ADDR_CXI,
  FI_ADDR_UCX,
  FI_SOCKADDR_IP,  // struct sockaddr_in or struct sockaddr_in6
};

// What fi_av_insert() returns and data transfers name a peer by.
typedef uint64_t fi_addr_t;

#define FI_ADDR_UNSPEC ((uint64_t)-1)    // any source
#define FI_ADDR_NOTAVAIL ((uint64_t)-1)  // source not known
#define FI_KEY_NOTAVAIL ((uint64_t)-1)   // no key (yet), or a raw one
#define FI_SHARED_CONTEXT SIZE_MAX       // ep_attr.tx_ctx_cnt, rx_ctx_cnt: a shared context
#define FI_AV_AUTH_KEY ((size_t)-1)      // domain_attr.auth_key_size: keys are in the AV

// How an address vector hands out fi_addr_t. fi_av(3).
enum fi_av_type {
  FI_AV_UNSPEC,
  FI_AV_MAP,    // opaque values
  FI_AV_TABLE,  // indices from zero in order of insertion
};

// domain_attr.mr_mode. The three named values are those of API versions before 1.5, the bits below
// state since then each requirement on its own. fi_mr(3).
enum fi_mr_mode {
  FI_MR_UNSPEC,
  FI_MR_BASIC,
  FI_MR_SCALABLE,
};
#define FI_MR_LOCAL (1 << 2)        // buffers of local operations must be registered as well
#define FI_MR_RAW (1 << 3)          // keys longer than 64 bits: fi_mr_raw_attr(), fi_mr_map_raw()
#define FI_MR_VIRT_ADDR (1 << 4)    // peers name virtual addresses instead of offsets
#define FI_MR_ALLOCATED (1 << 5)    // pages must exist when the region is registered
#define FI_MR_PROV_KEY (1 << 6)     // the provider chooses the key
#define FI_MR_MMU_NOTIFY (1 << 7)   // fi_mr_refresh() after the pages change
#define FI_MR_RMA_EVENT (1 << 8)    // regions whose accesses are counted need fi_mr_enable()
#define FI_MR_ENDPOINT (1 << 9)     // regions are bound to an endpoint, then enabled
#define FI_MR_HMEM (1 << 10)        // device buffers of local operations must be registered
#define FI_MR_COLLECTIVE (1 << 11)  // buffers of collectives must be registered

// --- Models of a domain ---

// Who makes asynchronous operations advance. fi_domain(3).
enum fi_progress {
  FI_PROGRESS_UNSPEC,
  FI_PROGRESS_AUTO,             // the provider
  FI_PROGRESS_MANUAL,           // the application, by reading or waiting
  FI_PROGRESS_CONTROL_UNIFIED,  // manual, and control shares its serialisation with data
};

// What the application serialises itself. fi_domain(3).
enum fi_threading {
  FI_THREAD_UNSPEC,
  FI_THREAD_SAFE,        // nothing
  FI_THREAD_FID,         // calls on one object; deprecated
  FI_THREAD_DOMAIN,      // calls on objects of one domain
  FI_THREAD_COMPLETION,  // calls on objects that share a completion queue or counter
  FI_THREAD_ENDPOINT,    // calls on one endpoint; deprecated
};

// Whether the provider guards queues against overflow. fi_domain(3).
enum fi_resource_mgmt {
  FI_RM_UNSPEC,
  FI_RM_DISABLED,
  FI_RM_ENABLED,
};

// --- Ordering ---

// XAY: an X issued after a Y to the same peer is not carried out before it. R read, W write, S
// send. The RMA and ATOMIC forms concern one kind of operation only. fi_endpoint(3).
#define FI_ORDER_NONE 0ULL
#define FI_ORDER_RAR (1ULL << 0)
#define FI_ORDER_RAW (1ULL << 1)
#define FI_ORDER_RAS (1ULL << 2)
#define FI_ORDER_WAR (1ULL << 3)
#define FI_ORDER_WAW (1ULL << 4)
#define FI_ORDER_WAS (1ULL << 5)
#define FI_ORDER_SAR (1ULL << 6)
#define FI_ORDER_SAW (1ULL << 7)
#define FI_ORDER_SAS (1ULL << 8)
#define FI_ORDER_STRICT 0x1FF

#define FI_ORDER_RMA_RAR (1ULL << 32)
#define FI_ORDER_RMA_RAW (1ULL << 33)
#define FI_ORDER_RMA_WAR (1ULL << 34)
#define FI_ORDER_RMA_WAW (1ULL << 35)
#define FI_ORDER_ATOMIC_RAR (1ULL << 36)
#define FI_ORDER_ATOMIC_RAW (1ULL << 37)
#define FI_ORDER_ATOMIC_WAR (1ULL << 38)
#define FI_ORDER_ATOMIC_WAW (1ULL << 39)

#define FI_ORDER_DATA (1ULL << 16)  // comp_order: bytes of a message are written in order

// --- Endpoints ---

enum fi_ep_type {
  FI_EP_UNSPEC,
  FI_EP_MSG,    // reliable, connected
  FI_EP_DGRAM,  // unreliable, unconnected
  FI_EP_RDM,    // reliable, unconnected
};

// Withdrawn; reads as unspecified, so that sources which name it still build.
#define FI_EP_SOCK_STREAM FI_EP_UNSPEC

// ep_attr.protocol: endpoints with the same protocol and version understand each other.
enum {
  FI_PROTO_UNSPEC,
  FI_PROTO_RDMA_CM_IB_RC,
  FI_PROTO_IWARP,
  FI_PROTO_IB_UD,
  FI_PROTO_PSMX,
  FI_PROTO_UDP,
  FI_PROTO_SOCK_TCP,
  FI_PROTO_MXM,
  FI_PROTO_IWARP_RDM,
  FI_PROTO_IB_RDM,
  FI_PROTO_GNI,
  FI_PROTO_RXM,
  FI_PROTO_RXD,
  FI_PROTO_MLX,
  FI_PROTO_NETWORKDIRECT,
  FI_PROTO_PSMX2,
  FI_PROTO_SHM,
  FI_PROTO_MRAIL,
  FI_PROTO_RSTREAM,
  FI_PROTO_RDMA_CM_IB_XRC,
  FI_PROTO_EFA,
  FI_PROTO_PSMX3,
  FI_PROTO_RXM_TCP,
  FI_PROTO_OPX,
  FI_PROTO_CXI,
  FI_PROTO_XNET,
  FI_PROTO_COLL,
  FI_PROTO_UCX,
  FI_PROTO_SM2,
  FI_PROTO_CXI_RNR,
  FI_PROTO_LPP,
  FI_PROTO_LNX,
};

// Traffic classes: a DSCP value with FI_TC_DSCP set, or one of the labels.
enum {
  FI_TC_UNSPEC = 0,
  FI_TC_DSCP = 0x100,
  FI_TC_LABEL = 0x200,
  FI_TC_BEST_EFFORT = FI_TC_LABEL,
  FI_TC_LOW_LATENCY,
  FI_TC_DEDICATED_ACCESS,
  FI_TC_BULK_DATA,
  FI_TC_SCAVENGER,
  FI_TC_NETWORK_CTRL,
};

static inline uint32_t fi_tc_dscp_set(uint8_t dscp) {
  return (uint32_t)dscp | FI_TC_DSCP;
}

// The DSCP value of `tclass`, 0 where it holds a label.
static inline uint8_t fi_tc_dscp_get(uint32_t tclass) {
  return (tclass & FI_TC_DSCP) ? (uint8_t)tclass : (uint8_t)0;
}

// ep_attr.mem_tag_format: what tags look like. Values from FI_TAG_MAX_FORMAT up are bit patterns,
// whose leading zeros are tag bits that the provider keeps and whose alternating runs mark fields.
enum {
  FI_TAG_BITS = 0,  // 64 free bits and an arbitrary ignore mask
  FI_TAG_MPI = 1,   // fi_tag_mpi() of fi_tagged.h, each field ignored as a whole or not at all
  FI_TAG_CCL = 2,   // exact matches only
  FI_TAG_MAX_FORMAT = 1 << 16,
};

// Mode bits: what a provider asks of the application. fi_getinfo(3).
#define FI_CONTEXT (1ULL << 59)  // contexts are struct fi_context, the provider's until completion
#define FI_MSG_PREFIX (1ULL << 58)  // buffers start with room of ep_attr.msg_prefix_size bytes
#define FI_ASYNC_IOV (1ULL << 57)   // iovec arrays stay untouched until completion
#define FI_RX_CQ_DATA (1ULL << 56)  // arriving remote CQ data uses up a receive buffer
#define FI_LOCAL_MR (1ULL << 55)    // before API 1.5: what FI_MR_LOCAL is now
#define FI_CONTEXT2 (1ULL << 52)    // as FI_CONTEXT, with struct fi_context2

// Withdrawn modes; zero, so that sources which mask them still build.
#define FI_NOTIFY_FLAGS_ONLY 0ULL
#define FI_RESTRICTED_COMP 0ULL

// --- Attributes. fi_endpoint(3), fi_domain(3), fi_fabric(3), fi_getinfo(3) ---

// The sending half of an endpoint.
struct fi_tx_attr {
  uint64_t caps;
  uint64_t mode;
  uint64_t op_flags;     // flags of every operation that has no flags argument
  uint64_t msg_order;    // FI_ORDER_*
  uint64_t comp_order;   // FI_ORDER_*
  size_t inject_size;    // bytes: largest message for FI_INJECT
  size_t size;           // operations that can be outstanding
  size_t iov_limit;      // elements of a local vector
  size_t rma_iov_limit;  // elements of a remote vector
  uint32_t tclass;       // FI_TC_*
};

// The receiving half of an endpoint.
struct fi_rx_attr {
  uint64_t caps;
  uint64_t mode;
  uint64_t op_flags;
  uint64_t msg_order;
  uint64_t comp_order;
  size_t total_buffered_recv;  // bytes that the provider buffers of unexpected messages; deprecated
  size_t size;                 // receives that can be posted
  size_t iov_limit;
};

struct fi_ep_attr {
  enum fi_ep_type type;
  uint32_t protocol;  // FI_PROTO_*
  uint32_t protocol_version;
  size_t max_msg_size;        // bytes
  size_t msg_prefix_size;     // bytes, see FI_MSG_PREFIX
  size_t max_order_raw_size;  // bytes up to which the ordering holds, per pair of operations
  size_t max_order_war_size;
  size_t max_order_waw_size;
  uint64_t mem_tag_format;  // FI_TAG_*
  size_t tx_ctx_cnt;        // transmit contexts of a scalable endpoint, or FI_SHARED_CONTEXT
  size_t rx_ctx_cnt;
  size_t auth_key_size;  // bytes
  uint8_t *auth_key;
};

struct fi_domain_attr {
  struct fid_domain *domain;  // an open domain: fi_getinfo answers for it only
  char *name;
  enum fi_threading threading;
  enum fi_progress control_progress;  // deprecated in favour of `progress`
  union {
    enum fi_progress data_progress;
    enum fi_progress progress;
  };
  enum fi_resource_mgmt resource_mgmt;
  enum fi_av_type av_type;
  int mr_mode;          // FI_MR_*
  size_t mr_key_size;   // bytes
  size_t cq_data_size;  // bytes of remote CQ data
  size_t cq_cnt;        // from here to cntr_cnt: how many there can be, at best
  size_t ep_cnt;
  size_t tx_ctx_cnt;
  size_t rx_ctx_cnt;
  size_t max_ep_tx_ctx;   // per endpoint
  size_t max_ep_rx_ctx;   // per endpoint
  size_t max_ep_stx_ctx;  // endpoints per shared transmit context
  size_t max_ep_srx_ctx;  // endpoints per shared receive context
  size_t cntr_cnt;
  size_t mr_iov_limit;  // buffers in one region
  uint64_t caps;
  uint64_t mode;
  uint8_t *auth_key;
  size_t auth_key_size;  // bytes, or FI_AV_AUTH_KEY
  size_t max_err_data;   // bytes of error data in a queue's error entry
  size_t mr_cnt;
  uint32_t tclass;              // FI_TC_*, the default of the domain's endpoints
  size_t max_ep_auth_key;       // keys per endpoint
  uint32_t max_group_id;        // largest id for fi_group_addr(); 0 where there are no groups
  uint64_t max_cntr_value;      // a counter wraps after this
  uint64_t max_err_cntr_value;  // and its error count after this
};

struct fi_fabric_attr {
  struct fid_fabric *fabric;  // an open fabric: fi_getinfo answers for it only
  char *name;
  char *prov_name;  // "tcp", or layered "tcp;ofi_rxm"; a leading '^' in hints excludes
  uint32_t prov_version;
  uint32_t api_version;
};

// One way to communicate, as fi_getinfo() lists them from best to worst; also its hints.
// Allocate with fi_allocinfo(), release the whole list with fi_freeinfo().
struct fi_info {
  struct fi_info *next;
  uint64_t caps;
  uint64_t mode;
  uint32_t addr_format;  // FI_SOCKADDR* or FI_ADDR_*
  size_t src_addrlen;    // bytes
  size_t dest_addrlen;   // bytes
  void *src_addr;
  void *dest_addr;
  fid_t handle;  // a connection request, or a passive endpoint
  struct fi_tx_attr *tx_attr;
  struct fi_rx_attr *rx_attr;
  struct fi_ep_attr *ep_attr;
  struct fi_domain_attr *domain_attr;
  struct fi_fabric_attr *fabric_attr;
  struct fid_nic *nic;  // NULL where no device stands behind it
};

// --- The device behind a domain. fi_nic(3). Any text may be NULL ---

struct fi_device_attr {
  char *name;
  char *device_id;
  char *device_version;
  char *vendor_id;
  char *driver;
  char *firmware;
};

enum fi_bus_type {
  FI_BUS_UNSPEC,
  FI_BUS_UNKNOWN = FI_BUS_UNSPEC,
  FI_BUS_PCI,
};

struct fi_pci_attr {
  uint16_t domain_id;
  uint8_t bus_id;
  uint8_t device_id;
  uint8_t function_id;
};

struct fi_bus_attr {
  enum fi_bus_type bus_type;  // says which member of `attr` counts
  union {
    struct fi_pci_attr pci;
  } attr;
};

enum fi_link_state {
  FI_LINK_UNKNOWN,
  FI_LINK_DOWN,
  FI_LINK_UP,
};

struct fi_link_attr {
  char *address;
  size_t mtu;    // bytes
  size_t speed;  // bits per second
  enum fi_link_state state;
  char *network_type;
};

// --- Objects ---

// fid.fclass: what kind of object a fid is.
enum {
  FI_CLASS_UNSPEC,
  FI_CLASS_FABRIC,
  FI_CLASS_DOMAIN,
  FI_CLASS_EP,
  FI_CLASS_SEP,
  FI_CLASS_RX_CTX,
  FI_CLASS_SRX_CTX,
  FI_CLASS_TX_CTX,
  FI_CLASS_STX_CTX,
  FI_CLASS_PEP,
  FI_CLASS_INTERFACE,
  FI_CLASS_AV,
  FI_CLASS_MR,
  FI_CLASS_EQ,
  FI_CLASS_CQ,
  FI_CLASS_CNTR,
  FI_CLASS_WAIT,
  FI_CLASS_POLL,
  FI_CLASS_CONNREQ,
  FI_CLASS_MC,
  FI_CLASS_NIC,
  FI_CLASS_AV_SET,
  FI_CLASS_MR_CACHE,
  FI_CLASS_MEM_MONITOR,
  FI_CLASS_PEER_CQ,
  FI_CLASS_PEER_SRX,
  FI_CLASS_LOG,
  FI_CLASS_PEER_AV,
  FI_CLASS_PEER_AV_SET,
  FI_CLASS_PEER_CNTR,
  FI_CLASS_PROFILE,
};

struct fi_eq_attr;
struct fi_wait_attr;

// The calls that every object has. `size` counts the table's bytes, so that a newer caller can tell
// which members an older provider knows: see FI_CHECK_OP().
struct fi_ops {
  size_t size;
  int (*close)(struct fid *fid);
  int (*bind)(struct fid *fid, struct fid *bfid, uint64_t flags);
  int (*control)(struct fid *fid, int command, void *arg);
  int (*ops_open)(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);
  int (*tostr)(const struct fid *fid, char *buf, size_t len);
  int (*ops_set)(struct fid *fid, const char *name, uint64_t flags, void *ops, void *context);
};

// Every object begins with this.
struct fid {
  size_t fclass;  // FI_CLASS_*
  void *context;  // the application's, as given when the object was opened
  struct fi_ops *ops;
};

// Lists what fits the hints, from best to worst; *info is for fi_freeinfo(). `version` is the API
// that the application was written to. -FI_ENODATA where nothing fits. fi_getinfo(3).
int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
               const struct fi_info *hints, struct fi_info **info);
void fi_freeinfo(struct fi_info *info);

// A deep copy of one entry (not of the list), or an empty one with all attributes where `info` is
// NULL. NULL where memory is short.
struct fi_info *fi_dupinfo(const struct fi_info *info);

static inline struct fi_info *fi_allocinfo(void) {
  return fi_dupinfo(NULL);
}

struct fi_ops_fabric {
  size_t size;
  int (*domain)(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **dom,
                void *context);
  int (*passive_ep)(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep,
                    void *context);
  int (*eq_open)(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq,
                 void *context);
  int (*wait_open)(struct fid_fabric *fabric, struct fi_wait_attr *attr, struct fid_wait **waitset);
  int (*trywait)(struct fid_fabric *fabric, struct fid **fids, int count);
  int (*domain2)(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **dom,
                 uint64_t flags, void *context);
};

struct fid_fabric {
  struct fid fid;
  struct fi_ops_fabric *ops;
  uint32_t api_version;  // what the application passed to fi_getinfo()
};

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
int fi_fabric2(struct fi_info *info, struct fid_fabric **fabric, uint64_t flags, void *context);

// Opens an object of the library itself by name, such as "logging" or "mr_cache". fi_fabric(3).
int fi_open(uint32_t version, const char *name, void *attr, size_t attr_len, uint64_t flags,
            struct fid **fid, void *context);

struct fid_nic {
  struct fid fid;
  struct fi_device_attr *device_attr;
  struct fi_bus_attr *bus_attr;
  struct fi_link_attr *link_attr;
  void *prov_attr;
};

// Whether a table is there, long enough to hold `op`, and has it.
#define FI_CHECK_OP(ops, opstype, op) ((ops) && ((ops)->size > offsetof(opstype, op)) && (ops)->op)

// Releases any object; -FI_EBUSY while others refer to it.
static inline int fi_close(struct fid *fid) {
  return fid->ops->close(fid);
}

// --- Control ---

// FI_ALIAS: another fid of the same object with other flags.
struct fi_alias {
  struct fid **fid;
  uint64_t flags;
};

// FI_GET_VAL, FI_SET_VAL
struct fi_fid_var {
  int name;
  void *val;
};

// FI_GET_RAW_MR; `key_size` in bytes, in and out.
struct fi_mr_raw_attr {
  uint64_t flags;
  uint64_t *base_addr;
  uint8_t *raw_key;
  size_t *key_size;
};

// FI_MAP_RAW_MR; `key` receives the 64-bit stand-in.
struct fi_mr_map_raw {
  uint64_t flags;
  uint64_t base_addr;
  uint8_t *raw_key;
  size_t key_size;
  uint64_t *key;
};

// Commands of fi_control(), with the type of their argument. fi_control(3).
enum {
  FI_GETFIDFLAG,   // uint64_t *
  FI_SETFIDFLAG,   // uint64_t *
  FI_GETOPSFLAG,   // uint64_t *: FI_TRANSMIT or FI_RECV in, operation flags out
  FI_SETOPSFLAG,   // uint64_t *
  FI_ALIAS,        // struct fi_alias *
  FI_GETWAIT,      // the wait object: int *, struct fi_mutex_cond *, struct fi_wait_pollfd *
  FI_ENABLE,       // NULL
  FI_BACKLOG,      // int *: pending connection requests of a passive endpoint
  FI_GET_RAW_MR,   // struct fi_mr_raw_attr *
  FI_MAP_RAW_MR,   // struct fi_mr_map_raw *
  FI_UNMAP_KEY,    // uint64_t *
  FI_QUEUE_WORK,   // struct fi_deferred_work *
  FI_CANCEL_WORK,  // struct fi_deferred_work *
  FI_FLUSH_WORK,   // NULL
  FI_REFRESH,      // struct fi_mr_modify *
  FI_DUP,          // struct fid **
  FI_GETWAITOBJ,   // enum fi_wait_obj *
  FI_GET_VAL,      // struct fi_fid_var *
  FI_SET_VAL,      // struct fi_fid_var *
  FI_EXPORT_FID,   // struct fi_fid_export *
  FI_GET_FD,       // int *
};

static inline int fi_control(struct fid *fid, int command, void *arg) {
  return fid->ops->control(fid, command, arg);
}

static inline int fi_alias(struct fid *fid, struct fid **alias_fid, uint64_t flags) {
  struct fi_alias request;
  request.fid = alias_fid;
  request.flags = flags;
  return fi_control(fid, FI_ALIAS, &request);
}

// Provider specific values, named by provider specific numbers (fi_ext.h).
static inline int fi_get_val(struct fid *fid, int name, void *val) {
  struct fi_fid_var request;
  request.name = name;
  request.val = val;
  return fi_control(fid, FI_GET_VAL, &request);
}

static inline int fi_set_val(struct fid *fid, int name, void *val) {
  struct fi_fid_var request;
  request.name = name;
  request.val = val;
  return fi_control(fid, FI_SET_VAL, &request);
}

// A table of further calls that the object has under `name`.
static inline int fi_open_ops(struct fid *fid, const char *name, uint64_t flags, void **ops,
                              void *context) {
  return fid->ops->ops_open(fid, name, flags, ops, context);
}

// The other way round: the object calls the table `ops` of the application.
static inline int fi_set_ops(struct fid *fid, const char *name, uint64_t flags, void *ops,
                             void *context) {
  if (!FI_CHECK_OP(fid->ops, struct fi_ops, ops_set)) return -FI_ENOSYS;
  return fid->ops->ops_set(fid, name, flags, ops, context);
}

// --- Text ---

// What the pointer given to fi_tostr() refers to.
enum fi_type {
  FI_TYPE_INFO,
  FI_TYPE_EP_TYPE,
  FI_TYPE_CAPS,
  FI_TYPE_OP_FLAGS,
  FI_TYPE_ADDR_FORMAT,
  FI_TYPE_TX_ATTR,
  FI_TYPE_RX_ATTR,
  FI_TYPE_EP_ATTR,
  FI_TYPE_DOMAIN_ATTR,
  FI_TYPE_FABRIC_ATTR,
  FI_TYPE_THREADING,
  FI_TYPE_PROGRESS,
  FI_TYPE_PROTOCOL,
  FI_TYPE_MSG_ORDER,
  FI_TYPE_MODE,
  FI_TYPE_AV_TYPE,
  FI_TYPE_ATOMIC_TYPE,
  FI_TYPE_ATOMIC_OP,
  FI_TYPE_VERSION,
  FI_TYPE_EQ_EVENT,
  FI_TYPE_CQ_EVENT_FLAGS,
  FI_TYPE_MR_MODE,
  FI_TYPE_OP_TYPE,
  FI_TYPE_FID,
  FI_TYPE_COLLECTIVE_OP,
  FI_TYPE_HMEM_IFACE,
  FI_TYPE_CQ_FORMAT,
  FI_TYPE_LOG_LEVEL,
  FI_TYPE_LOG_SUBSYS,
  FI_TYPE_AV_ATTR,
  FI_TYPE_CQ_ATTR,
  FI_TYPE_MR_ATTR,
  FI_TYPE_CNTR_ATTR,
  FI_TYPE_CQ_ERR_ENTRY,
  FI_TYPE_CQ_WAIT_COND,
  FI_TYPE_WAIT_OBJ,
};

// Text of a value, overwritten by the next call; fi_tostr_r() writes into `buf`, at most `len`
// bytes.
char *fi_tostr(const void *data, enum fi_type datatype);
char *fi_tostr_r(char *buf, size_t len, const void *data, enum fi_type datatype);

// --- Parameters of the library and its providers. fi_getinfo(3) ---

enum fi_param_type {
  FI_PARAM_STRING,
  FI_PARAM_INT,
  FI_PARAM_BOOL,
  FI_PARAM_SIZE_T,
};

struct fi_param {
  const char *name;
  enum fi_param_type type;
  const char *help_string;
  const char *value;  // NULL where it is not set
};

int fi_getparams(struct fi_param **params, int *count);
void fi_freeparams(struct fi_param *params);

// Operation contexts of providers with FI_CONTEXT and FI_CONTEXT2: room for the provider's own use.
struct fi_context {
  void *internal[4];
};

struct fi_context2 {
  void *internal[8];
};

// op_context of receives on a shared receive context, where one buffer serves several endpoints.
struct fi_recv_context {
  struct fid_ep *ep;
  void *context;
};

#ifdef __cplusplus
}
#endif

#endif  // FABRIC_H
