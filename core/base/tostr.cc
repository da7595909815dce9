// SPDX-License-Identifier: BSD-2-Clause
#include "core/base/tostr.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_trigger.h>
#include <rdma/providers/fi_log.h>
#include <sys/socket.h>

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace weft {
namespace {

// A bounded text. Once full it stays full, so that nothing later appears after a cut.
class Text {
 public:
  Text(char *text, size_t size) : at_(text), left_(size) {
    if (left_ > 0) *at_ = '\0';
  }

  __attribute__((format(printf, 2, 3))) void add(const char *format, ...) {
    if (left_ == 0) return;
    va_list args;
    va_start(args, format);
    const int written =
        std::vsnprintf(at_, left_, format, args);  // NOLINT(clang-analyzer-valist.Uninitialized)
    va_end(args);
    advance(written < 0 ? 0 : static_cast<size_t>(written));
  }

  // For writers that fill a buffer themselves.
  char *at() const { return at_; }
  size_t left() const { return left_; }
  void advance(size_t written) {
    if (written >= left_) {
      left_ = 0;
      return;
    }
    at_ += written;
    left_ -= written;
  }

 private:
  char *at_;
  size_t left_;
};

struct Name {
  uint64_t value;
  const char *name;
};
#define NAME(value) \
  { static_cast<uint64_t>(value), #value }

// ---- values
// ---------------------------------------------------------------------------------------

constexpr Name kEpTypes[] = {NAME(FI_EP_UNSPEC), NAME(FI_EP_MSG), NAME(FI_EP_DGRAM),
                             NAME(FI_EP_RDM)};

constexpr Name kAddrFormats[] = {
    NAME(FI_FORMAT_UNSPEC), NAME(FI_SOCKADDR),   NAME(FI_SOCKADDR_IN), NAME(FI_SOCKADDR_IN6),
    NAME(FI_SOCKADDR_IB),   NAME(FI_ADDR_PSMX),  NAME(FI_ADDR_GNI),    NAME(FI_ADDR_BGQ),
    NAME(FI_ADDR_MLX),      NAME(FI_ADDR_STR),   NAME(FI_ADDR_PSMX2),  NAME(FI_ADDR_IB_UD),
    NAME(FI_ADDR_EFA),      NAME(FI_ADDR_PSMX3), NAME(FI_ADDR_OPX),    NAME(FI_ADDR_CXI),
    NAME(FI_ADDR_UCX),      NAME(FI_SOCKADDR_IP)};

constexpr Name kThreading[] = {NAME(FI_THREAD_UNSPEC),     NAME(FI_THREAD_SAFE),
                               NAME(FI_THREAD_FID),        NAME(FI_THREAD_DOMAIN),
                               NAME(FI_THREAD_COMPLETION), NAME(FI_THREAD_ENDPOINT)};

constexpr Name kProgress[] = {NAME(FI_PROGRESS_UNSPEC), NAME(FI_PROGRESS_AUTO),
                              NAME(FI_PROGRESS_MANUAL), NAME(FI_PROGRESS_CONTROL_UNIFIED)};

constexpr Name kResourceMgmt[] = {NAME(FI_RM_UNSPEC), NAME(FI_RM_DISABLED), NAME(FI_RM_ENABLED)};

constexpr Name kAvTypes[] = {NAME(FI_AV_UNSPEC), NAME(FI_AV_MAP), NAME(FI_AV_TABLE)};

constexpr Name kProtocols[] = {NAME(FI_PROTO_UNSPEC),        NAME(FI_PROTO_RDMA_CM_IB_RC),
                               NAME(FI_PROTO_IWARP),         NAME(FI_PROTO_IB_UD),
                               NAME(FI_PROTO_PSMX),          NAME(FI_PROTO_UDP),
                               NAME(FI_PROTO_SOCK_TCP),      NAME(FI_PROTO_MXM),
                               NAME(FI_PROTO_IWARP_RDM),     NAME(FI_PROTO_IB_RDM),
                               NAME(FI_PROTO_GNI),           NAME(FI_PROTO_RXM),
                               NAME(FI_PROTO_RXD),           NAME(FI_PROTO_MLX),
                               NAME(FI_PROTO_NETWORKDIRECT), NAME(FI_PROTO_PSMX2),
                               NAME(FI_PROTO_SHM),           NAME(FI_PROTO_MRAIL),
                               NAME(FI_PROTO_RSTREAM),       NAME(FI_PROTO_RDMA_CM_IB_XRC),
                               NAME(FI_PROTO_EFA),           NAME(FI_PROTO_PSMX3),
                               NAME(FI_PROTO_RXM_TCP),       NAME(FI_PROTO_OPX),
                               NAME(FI_PROTO_CXI),           NAME(FI_PROTO_XNET),
                               NAME(FI_PROTO_COLL),          NAME(FI_PROTO_UCX),
                               NAME(FI_PROTO_SM2),           NAME(FI_PROTO_CXI_RNR),
                               NAME(FI_PROTO_LPP),           NAME(FI_PROTO_LNX)};

constexpr Name kDatatypes[] = {NAME(FI_INT8),          NAME(FI_UINT8),
                               NAME(FI_INT16),         NAME(FI_UINT16),
                               NAME(FI_INT32),         NAME(FI_UINT32),
                               NAME(FI_INT64),         NAME(FI_UINT64),
                               NAME(FI_FLOAT),         NAME(FI_DOUBLE),
                               NAME(FI_FLOAT_COMPLEX), NAME(FI_DOUBLE_COMPLEX),
                               NAME(FI_LONG_DOUBLE),   NAME(FI_LONG_DOUBLE_COMPLEX),
                               NAME(FI_INT128),        NAME(FI_UINT128),
                               NAME(FI_FLOAT16),       NAME(FI_BFLOAT16),
                               NAME(FI_FLOAT8_E4M3),   NAME(FI_FLOAT8_E5M2),
                               NAME(FI_VOID)};

constexpr Name kAtomicOps[] = {NAME(FI_MIN),      NAME(FI_MAX),         NAME(FI_SUM),
                               NAME(FI_PROD),     NAME(FI_LOR),         NAME(FI_LAND),
                               NAME(FI_BOR),      NAME(FI_BAND),        NAME(FI_LXOR),
                               NAME(FI_BXOR),     NAME(FI_ATOMIC_READ), NAME(FI_ATOMIC_WRITE),
                               NAME(FI_CSWAP),    NAME(FI_CSWAP_NE),    NAME(FI_CSWAP_LE),
                               NAME(FI_CSWAP_LT), NAME(FI_CSWAP_GE),    NAME(FI_CSWAP_GT),
                               NAME(FI_MSWAP),    NAME(FI_DIFF),        NAME(FI_NOOP)};

constexpr Name kCollectiveOps[] = {NAME(FI_BARRIER),   NAME(FI_BROADCAST), NAME(FI_ALLTOALL),
                                   NAME(FI_ALLREDUCE), NAME(FI_ALLGATHER), NAME(FI_REDUCE_SCATTER),
                                   NAME(FI_REDUCE),    NAME(FI_SCATTER),   NAME(FI_GATHER)};

constexpr Name kEqEvents[] = {NAME(FI_NOTIFY),       NAME(FI_CONNREQ),     NAME(FI_CONNECTED),
                              NAME(FI_SHUTDOWN),     NAME(FI_MR_COMPLETE), NAME(FI_AV_COMPLETE),
                              NAME(FI_JOIN_COMPLETE)};

constexpr Name kOpTypes[] = {
    NAME(FI_OP_RECV),           NAME(FI_OP_SEND),     NAME(FI_OP_TRECV),   NAME(FI_OP_TSEND),
    NAME(FI_OP_READ),           NAME(FI_OP_WRITE),    NAME(FI_OP_ATOMIC),  NAME(FI_OP_FETCH_ATOMIC),
    NAME(FI_OP_COMPARE_ATOMIC), NAME(FI_OP_CNTR_SET), NAME(FI_OP_CNTR_ADD)};

constexpr Name kHmemIfaces[] = {NAME(FI_HMEM_SYSTEM), NAME(FI_HMEM_CUDA),
                                NAME(FI_HMEM_ROCR),   NAME(FI_HMEM_ZE),
                                NAME(FI_HMEM_NEURON), NAME(FI_HMEM_SYNAPSEAI)};

constexpr Name kCqFormats[] = {NAME(FI_CQ_FORMAT_UNSPEC), NAME(FI_CQ_FORMAT_CONTEXT),
                               NAME(FI_CQ_FORMAT_MSG), NAME(FI_CQ_FORMAT_DATA),
                               NAME(FI_CQ_FORMAT_TAGGED)};

constexpr Name kCqWaitConds[] = {NAME(FI_CQ_COND_NONE), NAME(FI_CQ_COND_THRESHOLD)};

constexpr Name kWaitObjs[] = {NAME(FI_WAIT_NONE),  NAME(FI_WAIT_UNSPEC),     NAME(FI_WAIT_SET),
                              NAME(FI_WAIT_FD),    NAME(FI_WAIT_MUTEX_COND), NAME(FI_WAIT_YIELD),
                              NAME(FI_WAIT_POLLFD)};

constexpr Name kCntrEvents[] = {NAME(FI_CNTR_EVENTS_COMP), NAME(FI_CNTR_EVENTS_BYTES)};

constexpr Name kLogLevels[] = {
    {FI_LOG_WARN, "warn"}, {FI_LOG_TRACE, "trace"}, {FI_LOG_INFO, "info"}, {FI_LOG_DEBUG, "debug"}};

constexpr Name kLogSubsystems[] = {{FI_LOG_CORE, "core"},       {FI_LOG_FABRIC, "fabric"},
                                   {FI_LOG_DOMAIN, "domain"},   {FI_LOG_EP_CTRL, "ep_ctrl"},
                                   {FI_LOG_EP_DATA, "ep_data"}, {FI_LOG_AV, "av"},
                                   {FI_LOG_CQ, "cq"},           {FI_LOG_EQ, "eq"},
                                   {FI_LOG_MR, "mr"},           {FI_LOG_CNTR, "cntr"}};

constexpr Name kBusTypes[] = {NAME(FI_BUS_UNKNOWN), NAME(FI_BUS_PCI)};

constexpr Name kLinkStates[] = {NAME(FI_LINK_UNKNOWN), NAME(FI_LINK_DOWN), NAME(FI_LINK_UP)};

constexpr Name kMrModes[] = {NAME(FI_MR_LOCAL),     NAME(FI_MR_RAW),      NAME(FI_MR_VIRT_ADDR),
                             NAME(FI_MR_ALLOCATED), NAME(FI_MR_PROV_KEY), NAME(FI_MR_MMU_NOTIFY),
                             NAME(FI_MR_RMA_EVENT), NAME(FI_MR_ENDPOINT), NAME(FI_MR_HMEM),
                             NAME(FI_MR_COLLECTIVE)};

// ---- bits; one bit has several names, so each kind of word has a table of its own
// --------------------

constexpr Name kCaps[] = {NAME(FI_MSG),
                          NAME(FI_RMA),
                          NAME(FI_TAGGED),
                          NAME(FI_ATOMIC),
                          NAME(FI_MULTICAST),
                          NAME(FI_COLLECTIVE),
                          NAME(FI_READ),
                          NAME(FI_WRITE),
                          NAME(FI_RECV),
                          NAME(FI_SEND),
                          NAME(FI_REMOTE_READ),
                          NAME(FI_REMOTE_WRITE),
                          NAME(FI_MULTI_RECV),
                          NAME(FI_REMOTE_CQ_DATA),
                          NAME(FI_TRIGGER),
                          NAME(FI_FENCE),
                          NAME(FI_AV_USER_ID),
                          NAME(FI_FIREWALL_ADDR),
                          NAME(FI_PEER),
                          NAME(FI_TAGGED_DIRECTED_RECV),
                          NAME(FI_TAGGED_MULTI_RECV),
                          NAME(FI_HMEM),
                          NAME(FI_EXACT_DIRECTED_RECV),
                          NAME(FI_RMA_PMEM),
                          NAME(FI_SOURCE_ERR),
                          NAME(FI_LOCAL_COMM),
                          NAME(FI_REMOTE_COMM),
                          NAME(FI_SHARED_AV),
                          NAME(FI_RMA_EVENT),
                          NAME(FI_SOURCE),
                          NAME(FI_NAMED_RX_CTX),
                          NAME(FI_DIRECTED_RECV)};

constexpr Name kOpFlags[] = {NAME(FI_MSG),
                             NAME(FI_RMA),
                             NAME(FI_TAGGED),
                             NAME(FI_ATOMIC),
                             NAME(FI_MULTICAST),
                             NAME(FI_COLLECTIVE),
                             NAME(FI_READ),
                             NAME(FI_WRITE),
                             NAME(FI_RECV),
                             NAME(FI_SEND),
                             NAME(FI_REMOTE_READ),
                             NAME(FI_REMOTE_WRITE),
                             NAME(FI_MULTI_RECV),
                             NAME(FI_REMOTE_CQ_DATA),
                             NAME(FI_MORE),
                             NAME(FI_PEEK),
                             NAME(FI_TRIGGER),
                             NAME(FI_FENCE),
                             NAME(FI_COMPLETION),
                             NAME(FI_INJECT),
                             NAME(FI_INJECT_COMPLETE),
                             NAME(FI_TRANSMIT_COMPLETE),
                             NAME(FI_DELIVERY_COMPLETE),
                             NAME(FI_AFFINITY),
                             NAME(FI_COMMIT_COMPLETE),
                             NAME(FI_MATCH_COMPLETE),
                             NAME(FI_RESCAN),
                             NAME(FI_PEER_TRANSFER),
                             NAME(FI_MR_DMABUF),
                             NAME(FI_MR_SINGLE_USE),
                             NAME(FI_FIREWALL_ADDR),
                             NAME(FI_PEER),
                             NAME(FI_HMEM_HOST_ALLOC),
                             NAME(FI_HMEM_DEVICE_ONLY),
                             NAME(FI_RMA_PMEM),
                             NAME(FI_PROV_ATTR_ONLY),
                             NAME(FI_NUMERICHOST),
                             NAME(FI_RMA_EVENT),
                             NAME(FI_DISCARD),
                             NAME(FI_CLAIM)};

// The bits of a completion; the rest of the word means nothing there.
constexpr Name kCqEventFlags[] = {NAME(FI_MSG),         NAME(FI_RMA),
                                  NAME(FI_TAGGED),      NAME(FI_ATOMIC),
                                  NAME(FI_MULTICAST),   NAME(FI_COLLECTIVE),
                                  NAME(FI_READ),        NAME(FI_WRITE),
                                  NAME(FI_RECV),        NAME(FI_SEND),
                                  NAME(FI_REMOTE_READ), NAME(FI_REMOTE_WRITE),
                                  NAME(FI_MULTI_RECV),  NAME(FI_REMOTE_CQ_DATA),
                                  NAME(FI_MORE),        NAME(FI_RMA_EVENT),
                                  NAME(FI_CLAIM)};

constexpr Name kModes[] = {NAME(FI_CONTEXT2),  NAME(FI_LOCAL_MR),   NAME(FI_RX_CQ_DATA),
                           NAME(FI_ASYNC_IOV), NAME(FI_MSG_PREFIX), NAME(FI_CONTEXT)};

constexpr Name kOrders[] = {
    NAME(FI_ORDER_RAR),        NAME(FI_ORDER_RAW),        NAME(FI_ORDER_RAS),
    NAME(FI_ORDER_WAR),        NAME(FI_ORDER_WAW),        NAME(FI_ORDER_WAS),
    NAME(FI_ORDER_SAR),        NAME(FI_ORDER_SAW),        NAME(FI_ORDER_SAS),
    NAME(FI_ORDER_RMA_RAR),    NAME(FI_ORDER_RMA_RAW),    NAME(FI_ORDER_RMA_WAR),
    NAME(FI_ORDER_RMA_WAW),    NAME(FI_ORDER_ATOMIC_RAR), NAME(FI_ORDER_ATOMIC_RAW),
    NAME(FI_ORDER_ATOMIC_WAR), NAME(FI_ORDER_ATOMIC_WAW), NAME(FI_ORDER_DATA)};

constexpr Name kAvFlags[] = {NAME(FI_EVENT), NAME(FI_PEER), NAME(FI_AV_USER_ID), NAME(FI_READ),
                             NAME(FI_SYMMETRIC)};

#undef NAME

template <size_t N>
const char *name_of(const Name (&names)[N], uint64_t value) {
  for (const Name &entry : names) {
    if (entry.value == value) return entry.name;
  }
  return nullptr;
}

template <size_t N>
void add_value(Text &text, const Name (&names)[N], uint64_t value) {
  const char *name = name_of(names, value);
  text.add("%s", name != nullptr ? name : "Unknown");
}

// Names of the set bits, joined by commas; what has no name as a number, so that no bit is lost.
template <size_t N>
void add_bits(Text &text, const Name (&names)[N], uint64_t bits) {
  const char *separator = "";
  for (const Name &entry : names) {
    if ((bits & entry.value) == 0) continue;
    text.add("%s%s", separator, entry.name);
    separator = ", ";
    bits &= ~entry.value;
  }
  if (bits != 0) text.add("%s0x%" PRIx64, separator, bits);
}

void add_comp_order(Text &text, uint64_t order) {
  if (order == FI_ORDER_NONE) {
    text.add("FI_ORDER_NONE");
  } else {
    add_bits(text, kOrders, order);
  }
}

void add_mr_mode(Text &text, int mode) {
  // Before API 1.5 it was an enumeration, whose values now are bits that nothing else uses.
  if (mode == FI_MR_BASIC) return text.add("FI_MR_BASIC");
  if (mode == FI_MR_SCALABLE) return text.add("FI_MR_SCALABLE");
  add_bits(text, kMrModes, static_cast<uint32_t>(mode));
}

// Formats and protocols of providers outside the tree have the top bit set.
template <size_t N>
void add_open_value(Text &text, const Name (&names)[N], uint32_t value) {
  if ((value & 0x80000000u) != 0) return text.add("Provider specific");
  add_value(text, names, value);
}

const char *string_or_null(const char *string) {
  return string != nullptr ? string : "(null)";
}

// ---- addresses
// ------------------------------------------------------------------------------------

template <class T>
T load(const void *from, size_t offset = 0) {
  T value;
  std::memcpy(&value, static_cast<const char *>(from) + offset, sizeof value);
  return value;
}

void add_hex(Text &text, const char *scheme, const void *addr, size_t size) {
  constexpr size_t kShown = 64;
  text.add("%s://", scheme);
  const auto *bytes = static_cast<const unsigned char *>(addr);
  for (size_t i = 0; i < std::min(size, kShown); i++) text.add("%02x", bytes[i]);
  if (size > kShown) text.add("...");
}

void add_inet6(Text &text, const void *addr) {
  char buffer[INET6_ADDRSTRLEN] = "";
  text.add("[%s]", inet_ntop(AF_INET6, addr, buffer, sizeof buffer));
}

// Says whether it could: the address must be long enough for its family.
bool add_sockaddr(Text &text, const void *addr, size_t size) {
  if (size < sizeof(sa_family_t)) return false;
  switch (load<sa_family_t>(addr)) {
    case AF_INET: {
      if (size < sizeof(sockaddr_in)) return false;
      const auto in = load<sockaddr_in>(addr);
      char buffer[INET_ADDRSTRLEN] = "";
      text.add("fi_sockaddr_in://%s:%u", inet_ntop(AF_INET, &in.sin_addr, buffer, sizeof buffer),
               ntohs(in.sin_port));
      return true;
    }
    case AF_INET6: {
      if (size < sizeof(sockaddr_in6)) return false;
      const auto in6 = load<sockaddr_in6>(addr);
      text.add("fi_sockaddr_in6://");
      add_inet6(text, &in6.sin6_addr);
      text.add(":%u", ntohs(in6.sin6_port));
      return true;
    }
    default:
      return false;
  }
}

// struct sockaddr_ib of the kernel: family, pkey, flow info, GID, service id, its mask, scope id.
bool add_sockaddr_ib(Text &text, const void *addr, size_t size) {
  if (size < 48) return false;
  const uint16_t pkey = ntohs(load<uint16_t>(addr, 2));
  const uint64_t service = be64toh(load<uint64_t>(addr, 24));
  const uint64_t scope = load<uint64_t>(addr, 40);
  text.add("fi_sockaddr_ib://");
  add_inet6(text, static_cast<const char *>(addr) + 8);
  text.add(":0x%x:0x%x:0x%x", pkey, static_cast<unsigned>(service >> 16 & 0xffff),
           static_cast<unsigned>(scope));
  return true;
}

bool add_words(Text &text, const char *scheme, const void *addr, size_t size, size_t count) {
  if (size < count * sizeof(uint64_t)) return false;
  text.add("%s://", scheme);
  for (size_t i = 0; i < count; i++) {
    text.add("%s%" PRIx64, i == 0 ? "" : ":", load<uint64_t>(addr, i * sizeof(uint64_t)));
  }
  return true;
}

void add_address(Text &text, uint32_t format, const void *addr, size_t size) {
  if (addr == nullptr) return text.add("(null)");
  bool shown = false;
  const char *scheme = "fi_addr";
  switch (format) {
    case FI_ADDR_STR: {
      const auto *string = static_cast<const char *>(addr);
      text.add("%.*s", static_cast<int>(strnlen(string, std::min<size_t>(size, INT32_MAX))),
               string);
      return;
    }
    case FI_SOCKADDR:
    case FI_SOCKADDR_IP:
    case FI_SOCKADDR_IN:
    case FI_SOCKADDR_IN6:
      scheme = "fi_sockaddr";
      shown = add_sockaddr(text, addr, size);
      break;
    case FI_SOCKADDR_IB:
      scheme = "fi_sockaddr_ib";
      shown = add_sockaddr_ib(text, addr, size);
      break;
    case FI_ADDR_PSMX:
      scheme = "fi_addr_psmx";
      shown = add_words(text, scheme, addr, size, 1);
      break;
    case FI_ADDR_PSMX2:
      scheme = "fi_addr_psmx2";
      shown = add_words(text, scheme, addr, size, 2);
      break;
    case FI_ADDR_PSMX3:
      scheme = "fi_addr_psmx3";
      shown = add_words(text, scheme, addr, size, 4);
      break;
    case FI_ADDR_EFA:
      scheme = "fi_addr_efa";
      if (size >= 24) {  // GID, queue pair number, key of the queue
        text.add("%s://", scheme);
        add_inet6(text, addr);
        text.add(":%u:%u", load<uint16_t>(addr, 16), load<uint32_t>(addr, 20));
        shown = true;
      }
      break;
    case FI_ADDR_CXI:
      scheme = "fi_addr_cxi";
      if (size >= sizeof(uint32_t)) {
        text.add("%s://0x%08x", scheme, load<uint32_t>(addr));
        shown = true;
      }
      break;
    case FI_ADDR_OPX:
      scheme = "fi_addr_opx";
      if (size >= sizeof(uint64_t)) {
        text.add("%s://%016" PRIx64, scheme, load<uint64_t>(addr));
        shown = true;
      }
      break;
    case FI_ADDR_GNI:
      scheme = "fi_addr_gni";
      break;
    case FI_ADDR_BGQ:
      scheme = "fi_addr_bgq";
      break;
    case FI_ADDR_MLX:
      scheme = "fi_addr_mlx";
      break;
    case FI_ADDR_IB_UD:
      scheme = "fi_addr_ib_ud";
      break;
    case FI_ADDR_UCX:
      scheme = "fi_addr_ucx";
      break;
    default:
      break;
  }
  if (!shown) add_hex(text, scheme, addr, size);
}

// ---- structs: "name:" and a line per member, four spaces deeper
// ---------------------------------------

// A member's line begins with `indent` four-space steps.
struct Lines {
  Text &text;
  int indent;

  void title(const char *name) const { text.add("%*s%s:\n", 4 * indent, "", name); }
  void key(const char *name) const { text.add("%*s%s: ", 4 * (indent + 1), "", name); }
  void end() const { text.add("\n"); }

  void number(const char *name, uint64_t value) const {
    key(name);
    text.add("%" PRIu64 "\n", value);
  }
  void signed_number(const char *name, int64_t value) const {
    key(name);
    text.add("%" PRId64 "\n", value);
  }
  void hex(const char *name, uint64_t value) const {
    key(name);
    text.add("0x%" PRIx64 "\n", value);
  }
  void string(const char *name, const char *value) const {
    key(name);
    text.add("%s\n", string_or_null(value));
  }
  void pointer(const char *name, const void *value) const {
    key(name);
    text.add("%p\n", value);
  }
  void version(const char *name, uint32_t value) const {
    key(name);
    text.add("%u.%u\n", FI_MAJOR(value), FI_MINOR(value));
  }
  template <size_t N>
  void value(const char *name, const Name (&names)[N], uint64_t value) const {
    key(name);
    add_value(text, names, value);
    end();
  }
  template <size_t N>
  void bits(const char *name, const Name (&names)[N], uint64_t value) const {
    key(name);
    text.add("[ ");
    add_bits(text, names, value);
    text.add(" ]\n");
  }
};

void add_tx_attr(Text &text, const fi_tx_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_tx_attr: (null)\n", 4 * indent, "");
  lines.title("fi_tx_attr");
  lines.bits("caps", kCaps, attr->caps);
  lines.bits("mode", kModes, attr->mode);
  lines.bits("op_flags", kOpFlags, attr->op_flags);
  lines.bits("msg_order", kOrders, attr->msg_order);
  lines.key("comp_order");
  text.add("[ ");
  add_comp_order(text, attr->comp_order);
  text.add(" ]\n");
  lines.number("inject_size", attr->inject_size);
  lines.number("size", attr->size);
  lines.number("iov_limit", attr->iov_limit);
  lines.number("rma_iov_limit", attr->rma_iov_limit);
  lines.hex("tclass", attr->tclass);
}

void add_rx_attr(Text &text, const fi_rx_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_rx_attr: (null)\n", 4 * indent, "");
  lines.title("fi_rx_attr");
  lines.bits("caps", kCaps, attr->caps);
  lines.bits("mode", kModes, attr->mode);
  lines.bits("op_flags", kOpFlags, attr->op_flags);
  lines.bits("msg_order", kOrders, attr->msg_order);
  lines.key("comp_order");
  text.add("[ ");
  add_comp_order(text, attr->comp_order);
  text.add(" ]\n");
  lines.number("total_buffered_recv", attr->total_buffered_recv);
  lines.number("size", attr->size);
  lines.number("iov_limit", attr->iov_limit);
}

// Authorization keys are secrets: only their size is shown.
void add_ep_attr(Text &text, const fi_ep_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_ep_attr: (null)\n", 4 * indent, "");
  lines.title("fi_ep_attr");
  lines.value("type", kEpTypes, static_cast<uint32_t>(attr->type));
  lines.key("protocol");
  add_open_value(text, kProtocols, attr->protocol);
  lines.end();
  lines.number("protocol_version", attr->protocol_version);
  lines.number("max_msg_size", attr->max_msg_size);
  lines.number("msg_prefix_size", attr->msg_prefix_size);
  lines.number("max_order_raw_size", attr->max_order_raw_size);
  lines.number("max_order_war_size", attr->max_order_war_size);
  lines.number("max_order_waw_size", attr->max_order_waw_size);
  lines.key("mem_tag_format");
  text.add("0x%016" PRIx64 "\n", attr->mem_tag_format);
  lines.number("tx_ctx_cnt", attr->tx_ctx_cnt);
  lines.number("rx_ctx_cnt", attr->rx_ctx_cnt);
  lines.number("auth_key_size", attr->auth_key_size);
}

void add_domain_attr(Text &text, const fi_domain_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_domain_attr: (null)\n", 4 * indent, "");
  lines.title("fi_domain_attr");
  lines.hex("domain", reinterpret_cast<uintptr_t>(attr->domain));
  lines.string("name", attr->name);
  lines.value("threading", kThreading, static_cast<uint32_t>(attr->threading));
  lines.value("control_progress", kProgress, static_cast<uint32_t>(attr->control_progress));
  lines.value("data_progress", kProgress, static_cast<uint32_t>(attr->data_progress));
  lines.value("resource_mgmt", kResourceMgmt, static_cast<uint32_t>(attr->resource_mgmt));
  lines.value("av_type", kAvTypes, static_cast<uint32_t>(attr->av_type));
  lines.key("mr_mode");
  text.add("[ ");
  add_mr_mode(text, attr->mr_mode);
  text.add(" ]\n");
  lines.number("mr_key_size", attr->mr_key_size);
  lines.number("cq_data_size", attr->cq_data_size);
  lines.number("cq_cnt", attr->cq_cnt);
  lines.number("ep_cnt", attr->ep_cnt);
  lines.number("tx_ctx_cnt", attr->tx_ctx_cnt);
  lines.number("rx_ctx_cnt", attr->rx_ctx_cnt);
  lines.number("max_ep_tx_ctx", attr->max_ep_tx_ctx);
  lines.number("max_ep_rx_ctx", attr->max_ep_rx_ctx);
  lines.number("max_ep_stx_ctx", attr->max_ep_stx_ctx);
  lines.number("max_ep_srx_ctx", attr->max_ep_srx_ctx);
  lines.number("cntr_cnt", attr->cntr_cnt);
  lines.number("mr_iov_limit", attr->mr_iov_limit);
  lines.bits("caps", kCaps, attr->caps);
  lines.bits("mode", kModes, attr->mode);
  lines.number("auth_key_size", attr->auth_key_size);
  lines.number("max_err_data", attr->max_err_data);
  lines.number("mr_cnt", attr->mr_cnt);
  lines.hex("tclass", attr->tclass);
  lines.number("max_ep_auth_key", attr->max_ep_auth_key);
  lines.number("max_group_id", attr->max_group_id);
  lines.number("max_cntr_value", attr->max_cntr_value);
  lines.number("max_err_cntr_value", attr->max_err_cntr_value);
}

void add_fabric_attr(Text &text, const fi_fabric_attr *attr, int indent) {
  const Lines lines{text, indent};
  if (attr == nullptr) return text.add("%*sfi_fabric_attr: (null)\n", 4 * indent, "");
  lines.title("fi_fabric_attr");
  lines.string("name", attr->name);
  lines.string("prov_name", attr->prov_name);
  lines.version("prov_version", attr->prov_version);
  lines.version("api_version", attr->api_version);
}

void add_device_attr(Text &text, const fi_device_attr &attr, int indent) {
  const Lines lines{text, indent};
  lines.title("fi_device_attr");
  lines.string("name", attr.name);
  lines.string("device_id", attr.device_id);
  lines.string("device_version", attr.device_version);
  lines.string("vendor_id", attr.vendor_id);
  lines.string("driver", attr.driver);
  lines.string("firmware", attr.firmware);
}

void add_bus_attr(Text &text, const fi_bus_attr &attr, int indent) {
  const Lines lines{text, indent};
  lines.title("fi_bus_attr");
  lines.value("bus_type", kBusTypes, static_cast<uint32_t>(attr.bus_type));
  if (attr.bus_type != FI_BUS_PCI) return;
  const Lines pci{text, indent + 1};
  pci.title("fi_pci_attr");
  pci.number("domain_id", attr.attr.pci.domain_id);
  pci.number("bus_id", attr.attr.pci.bus_id);
  pci.number("device_id", attr.attr.pci.device_id);
  pci.number("function_id", attr.attr.pci.function_id);
}

void add_link_attr(Text &text, const fi_link_attr &attr, int indent) {
  const Lines lines{text, indent};
  lines.title("fi_link_attr");
  lines.string("address", attr.address);
  lines.number("mtu", attr.mtu);
  lines.number("speed", attr.speed);
  lines.value("state", kLinkStates, static_cast<uint32_t>(attr.state));
  lines.string("network_type", attr.network_type);
}

void add_nic(Text &text, const fid_nic *nic, int indent) {
  if (nic == nullptr) return text.add("%*snic: (nil)\n", 4 * indent, "");
  text.add("%*snic:\n", 4 * indent, "");
  if (nic->device_attr != nullptr) add_device_attr(text, *nic->device_attr, indent + 1);
  if (nic->bus_attr != nullptr) add_bus_attr(text, *nic->bus_attr, indent + 1);
  if (nic->link_attr != nullptr) add_link_attr(text, *nic->link_attr, indent + 1);
}

void add_info(Text &text, const fi_info &info, int indent) {
  const Lines lines{text, indent};
  lines.title("fi_info");
  lines.bits("caps", kCaps, info.caps);
  lines.bits("mode", kModes, info.mode);
  lines.key("addr_format");
  add_open_value(text, kAddrFormats, info.addr_format);
  lines.end();
  lines.number("src_addrlen", info.src_addrlen);
  lines.number("dest_addrlen", info.dest_addrlen);
  lines.key("src_addr");
  add_address(text, info.addr_format, info.src_addr, info.src_addrlen);
  lines.end();
  lines.key("dest_addr");
  add_address(text, info.addr_format, info.dest_addr, info.dest_addrlen);
  lines.end();
  lines.pointer("handle", info.handle);
  add_tx_attr(text, info.tx_attr, indent + 1);
  add_rx_attr(text, info.rx_attr, indent + 1);
  add_ep_attr(text, info.ep_attr, indent + 1);
  add_domain_attr(text, info.domain_attr, indent + 1);
  add_fabric_attr(text, info.fabric_attr, indent + 1);
  add_nic(text, info.nic, indent + 1);
}

void add_av_attr(Text &text, const fi_av_attr &attr) {
  const Lines lines{text, 0};
  lines.title("fi_av_attr");
  lines.value("type", kAvTypes, static_cast<uint32_t>(attr.type));
  lines.signed_number("rx_ctx_bits", attr.rx_ctx_bits);
  lines.number("count", attr.count);
  lines.number("ep_per_node", attr.ep_per_node);
  lines.string("name", attr.name);
  lines.pointer("map_addr", attr.map_addr);
  lines.bits("flags", kAvFlags, attr.flags);
}

void add_cq_attr(Text &text, const fi_cq_attr &attr) {
  const Lines lines{text, 0};
  lines.title("fi_cq_attr");
  lines.number("size", attr.size);
  lines.bits("flags", kOpFlags, attr.flags);
  lines.value("format", kCqFormats, static_cast<uint32_t>(attr.format));
  lines.value("wait_obj", kWaitObjs, static_cast<uint32_t>(attr.wait_obj));
  lines.signed_number("signaling_vector", attr.signaling_vector);
  lines.value("wait_cond", kCqWaitConds, static_cast<uint32_t>(attr.wait_cond));
  lines.pointer("wait_set", attr.wait_set);
}

void add_cntr_attr(Text &text, const fi_cntr_attr &attr) {
  const Lines lines{text, 0};
  lines.title("fi_cntr_attr");
  lines.value("events", kCntrEvents, static_cast<uint32_t>(attr.events));
  lines.value("wait_obj", kWaitObjs, static_cast<uint32_t>(attr.wait_obj));
  lines.pointer("wait_set", attr.wait_set);
  lines.bits("flags", kOpFlags, attr.flags);
}

// Whether mr_iov or dmabuf counts is said by a flag outside the struct, so the pointer is not
// followed.
void add_mr_attr(Text &text, const fi_mr_attr &attr) {
  const Lines lines{text, 0};
  lines.title("fi_mr_attr");
  lines.pointer("mr_iov", attr.mr_iov);
  lines.number("iov_count", attr.iov_count);
  lines.bits("access", kCaps, attr.access);
  lines.number("offset", attr.offset);
  lines.hex("requested_key", attr.requested_key);
  lines.pointer("context", attr.context);
  lines.number("auth_key_size", attr.auth_key_size);
  lines.value("iface", kHmemIfaces, static_cast<uint32_t>(attr.iface));
  lines.hex("device", attr.device.reserved);
  lines.pointer("hmem_data", attr.hmem_data);
  lines.number("page_size", attr.page_size);
  lines.pointer("base_mr", attr.base_mr);
  lines.number("sub_mr_cnt", attr.sub_mr_cnt);
}

void add_cq_err_entry(Text &text, const fi_cq_err_entry &entry) {
  const Lines lines{text, 0};
  lines.title("fi_cq_err_entry");
  lines.pointer("op_context", entry.op_context);
  lines.bits("flags", kCqEventFlags, entry.flags);
  lines.number("len", entry.len);
  lines.pointer("buf", entry.buf);
  lines.number("data", entry.data);
  lines.hex("tag", entry.tag);
  lines.number("olen", entry.olen);
  lines.key("err");
  text.add("%d (%s)\n", entry.err, error_text(entry.err));
  lines.signed_number("prov_errno", entry.prov_errno);
  lines.pointer("err_data", entry.err_data);
  lines.number("err_data_size", entry.err_data_size);
  lines.hex("src_addr", entry.src_addr);
}

void add_fid(Text &text, const struct fid &fid) {
  if (FI_CHECK_OP(fid.ops, struct fi_ops, tostr) && text.left() > 0) {
    if (fid.ops->tostr(&fid, text.at(), text.left()) == 0) {
      text.advance(strnlen(text.at(), text.left()));
      return;
    }
    *text.at() = '\0';
  }
  text.add("fid: %p\n", static_cast<const void *>(&fid));
}

}  // namespace

void to_text(const void *data, fi_type type, char *buffer, size_t size) noexcept {
  if (buffer == nullptr || size == 0) return;
  Text text(buffer, size);
  if (data == nullptr && type != FI_TYPE_VERSION) return text.add("(null)");
  // Callers point to enumerations, uint32_t or uint64_t, whatever the type's words are.
  const auto word = [&] { return load<uint32_t>(data); };
  const auto long_word = [&] { return load<uint64_t>(data); };
  switch (type) {
    case FI_TYPE_INFO:
      return add_info(text, *static_cast<const fi_info *>(data), 0);
    case FI_TYPE_EP_TYPE:
      return add_value(text, kEpTypes, word());
    case FI_TYPE_CAPS:
      return add_bits(text, kCaps, long_word());
    case FI_TYPE_OP_FLAGS:
      return add_bits(text, kOpFlags, long_word());
    case FI_TYPE_ADDR_FORMAT:
      return add_open_value(text, kAddrFormats, word());
    case FI_TYPE_TX_ATTR:
      return add_tx_attr(text, static_cast<const fi_tx_attr *>(data), 0);
    case FI_TYPE_RX_ATTR:
      return add_rx_attr(text, static_cast<const fi_rx_attr *>(data), 0);
    case FI_TYPE_EP_ATTR:
      return add_ep_attr(text, static_cast<const fi_ep_attr *>(data), 0);
    case FI_TYPE_DOMAIN_ATTR:
      return add_domain_attr(text, static_cast<const fi_domain_attr *>(data), 0);
    case FI_TYPE_FABRIC_ATTR:
      return add_fabric_attr(text, static_cast<const fi_fabric_attr *>(data), 0);
    case FI_TYPE_THREADING:
      return add_value(text, kThreading, word());
    case FI_TYPE_PROGRESS:
      return add_value(text, kProgress, word());
    case FI_TYPE_PROTOCOL:
      return add_open_value(text, kProtocols, word());
    case FI_TYPE_MSG_ORDER:
      return add_bits(text, kOrders, long_word());
    case FI_TYPE_MODE:
      return add_bits(text, kModes, long_word());
    case FI_TYPE_AV_TYPE:
      return add_value(text, kAvTypes, word());
    case FI_TYPE_ATOMIC_TYPE:
      return add_value(text, kDatatypes, word());
    case FI_TYPE_ATOMIC_OP:
      return add_value(text, kAtomicOps, word());
    case FI_TYPE_VERSION:
      return text.add("%d.%d.%d", FI_MAJOR_VERSION, FI_MINOR_VERSION, FI_REVISION_VERSION);
    case FI_TYPE_EQ_EVENT:
      return add_value(text, kEqEvents, word());
    case FI_TYPE_CQ_EVENT_FLAGS:
      return add_bits(text, kCqEventFlags, long_word());
    case FI_TYPE_MR_MODE:
      return add_mr_mode(text, static_cast<int>(word()));
    case FI_TYPE_OP_TYPE:
      return add_value(text, kOpTypes, word());
    case FI_TYPE_FID:
      return add_fid(text, *static_cast<const struct fid *>(data));
    case FI_TYPE_COLLECTIVE_OP:
      return add_value(text, kCollectiveOps, word());
    case FI_TYPE_HMEM_IFACE:
      return add_value(text, kHmemIfaces, word());
    case FI_TYPE_CQ_FORMAT:
      return add_value(text, kCqFormats, word());
    case FI_TYPE_LOG_LEVEL:
      return add_value(text, kLogLevels, word());
    case FI_TYPE_LOG_SUBSYS:
      return add_value(text, kLogSubsystems, word());
    case FI_TYPE_AV_ATTR:
      return add_av_attr(text, *static_cast<const fi_av_attr *>(data));
    case FI_TYPE_CQ_ATTR:
      return add_cq_attr(text, *static_cast<const fi_cq_attr *>(data));
    case FI_TYPE_MR_ATTR:
      return add_mr_attr(text, *static_cast<const fi_mr_attr *>(data));
    case FI_TYPE_CNTR_ATTR:
      return add_cntr_attr(text, *static_cast<const fi_cntr_attr *>(data));
    case FI_TYPE_CQ_ERR_ENTRY:
      return add_cq_err_entry(text, *static_cast<const fi_cq_err_entry *>(data));
    case FI_TYPE_CQ_WAIT_COND:
      return add_value(text, kCqWaitConds, word());
    case FI_TYPE_WAIT_OBJ:
      return add_value(text, kWaitObjs, word());
  }
  text.add("Unknown type");
}

void nic_to_text(const fid_nic &nic, char *buffer, size_t size) noexcept {
  if (buffer == nullptr || size == 0) return;
  Text text(buffer, size);
  add_nic(text, &nic, 0);
}

const char *error_text(int error) noexcept {
  static constexpr const char *kOwn[] = {
      "Other error",
      "Buffer too small for the answer",
      "Not permitted in the object's current state",
      "An error entry is available",
      "Unknown or unsupported flags",
      "No event queue bound",
      "Objects of different domains",
      "No completion queue bound",
      "Checksum mismatch",
      "Message truncated, longer than the buffer",
      "Memory key not available",
      "No address vector bound",
      "Queue overrun, entries lost",
      "Receiver has no buffer posted",
      "No more memory regions available",
      "Address behind a firewall cannot be connected to",
  };
  static_assert(std::size(kOwn) == FI_ERRNO_MAX - FI_ERRNO_OFFSET);
  const int64_t number = error < 0 ? -static_cast<int64_t>(error) : error;
  if (number >= FI_ERRNO_OFFSET && number < FI_ERRNO_MAX) return kOwn[number - FI_ERRNO_OFFSET];
  // Static and thread-safe, unlike strerror().
  const char *text = number <= INT32_MAX ? strerrordesc_np(static_cast<int>(number)) : nullptr;
  return text != nullptr ? text : "Unknown error";
}

}  // namespace weft
