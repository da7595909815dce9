// SPDX-License-Identifier: BSD-2-Clause
// The names of the values and bits of the C API, for tostr.cc.
//
// Example (statements):
//    for (const weft::tostr::Name &name : weft::tostr::kEpTypes)
//      if (name.value == FI_EP_RDM) return;  // name.name is "FI_EP_RDM"
//
// Not for other folders: those include tostr.h.
#ifndef WEFT_CORE_BASE_TOSTR_NAMES_H
#define WEFT_CORE_BASE_TOSTR_NAMES_H

#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_trigger.h>
#include <rdma/providers/fi_log.h>

#include <cstdint>

namespace weft::tostr {

struct Name {
  uint64_t value;
  const char *name;
};

#define NAME(value) \
  { static_cast<uint64_t>(value), #value }

inline constexpr Name kEpTypes[] = {NAME(FI_EP_UNSPEC),       NAME(FI_EP_MSG),
                                    NAME(FI_EP_DGRAM),        NAME(FI_EP_RDM),
                                    {4, "FI_EP_SOCK_STREAM"}, {5, "FI_EP_SOCK_DGRAM"}};

inline constexpr Name kAddrFormats[] = {
    NAME(FI_FORMAT_UNSPEC), NAME(FI_SOCKADDR),   NAME(FI_SOCKADDR_IN), NAME(FI_SOCKADDR_IN6),
    NAME(FI_SOCKADDR_IB),   NAME(FI_ADDR_PSMX),  NAME(FI_ADDR_GNI),    NAME(FI_ADDR_BGQ),
    NAME(FI_ADDR_MLX),      NAME(FI_ADDR_STR),   NAME(FI_ADDR_PSMX2),  NAME(FI_ADDR_IB_UD),
    NAME(FI_ADDR_EFA),      NAME(FI_ADDR_PSMX3), NAME(FI_ADDR_OPX),    NAME(FI_ADDR_CXI),
    NAME(FI_ADDR_UCX),      NAME(FI_SOCKADDR_IP)};

inline constexpr Name kThreading[] = {NAME(FI_THREAD_UNSPEC),     NAME(FI_THREAD_SAFE),
                                      NAME(FI_THREAD_FID),        NAME(FI_THREAD_DOMAIN),
                                      NAME(FI_THREAD_COMPLETION), NAME(FI_THREAD_ENDPOINT)};

inline constexpr Name kProgress[] = {NAME(FI_PROGRESS_UNSPEC), NAME(FI_PROGRESS_AUTO),
                                     NAME(FI_PROGRESS_MANUAL), NAME(FI_PROGRESS_CONTROL_UNIFIED)};

inline constexpr Name kResourceMgmt[] = {NAME(FI_RM_UNSPEC), NAME(FI_RM_DISABLED),
                                         NAME(FI_RM_ENABLED)};

inline constexpr Name kAvTypes[] = {NAME(FI_AV_UNSPEC), NAME(FI_AV_MAP), NAME(FI_AV_TABLE)};

inline constexpr Name kProtocols[] = {NAME(FI_PROTO_UNSPEC),        NAME(FI_PROTO_RDMA_CM_IB_RC),
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

inline constexpr Name kDatatypes[] = {NAME(FI_INT8),          NAME(FI_UINT8),
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

inline constexpr Name kAtomicOps[] = {
    NAME(FI_MIN),      NAME(FI_MAX),      NAME(FI_SUM),         NAME(FI_PROD),
    NAME(FI_LOR),      NAME(FI_LAND),     NAME(FI_BOR),         NAME(FI_BAND),
    NAME(FI_LXOR),     NAME(FI_BXOR),     NAME(FI_ATOMIC_READ), NAME(FI_ATOMIC_WRITE),
    NAME(FI_CSWAP),    NAME(FI_CSWAP_NE), NAME(FI_CSWAP_LE),    NAME(FI_CSWAP_LT),
    NAME(FI_CSWAP_GE), NAME(FI_CSWAP_GT), NAME(FI_MSWAP),       NAME(FI_DIFF),
    NAME(FI_NOOP)};

inline constexpr Name kCollectiveOps[] = {
    NAME(FI_BARRIER),   NAME(FI_BROADCAST), NAME(FI_ALLTOALL),
    NAME(FI_ALLREDUCE), NAME(FI_ALLGATHER), NAME(FI_REDUCE_SCATTER),
    NAME(FI_REDUCE),    NAME(FI_SCATTER),   NAME(FI_GATHER)};

inline constexpr Name kEqEvents[] = {
    NAME(FI_NOTIFY),      NAME(FI_CONNREQ),     NAME(FI_CONNECTED),    NAME(FI_SHUTDOWN),
    NAME(FI_MR_COMPLETE), NAME(FI_AV_COMPLETE), NAME(FI_JOIN_COMPLETE)};

inline constexpr Name kOpTypes[] = {
    NAME(FI_OP_RECV),           NAME(FI_OP_SEND),     NAME(FI_OP_TRECV),   NAME(FI_OP_TSEND),
    NAME(FI_OP_READ),           NAME(FI_OP_WRITE),    NAME(FI_OP_ATOMIC),  NAME(FI_OP_FETCH_ATOMIC),
    NAME(FI_OP_COMPARE_ATOMIC), NAME(FI_OP_CNTR_SET), NAME(FI_OP_CNTR_ADD)};

inline constexpr Name kHmemIfaces[] = {NAME(FI_HMEM_SYSTEM), NAME(FI_HMEM_CUDA),
                                       NAME(FI_HMEM_ROCR),   NAME(FI_HMEM_ZE),
                                       NAME(FI_HMEM_NEURON), NAME(FI_HMEM_SYNAPSEAI)};

inline constexpr Name kCqFormats[] = {NAME(FI_CQ_FORMAT_UNSPEC), NAME(FI_CQ_FORMAT_CONTEXT),
                                      NAME(FI_CQ_FORMAT_MSG), NAME(FI_CQ_FORMAT_DATA),
                                      NAME(FI_CQ_FORMAT_TAGGED)};

inline constexpr Name kCqWaitConds[] = {NAME(FI_CQ_COND_NONE), NAME(FI_CQ_COND_THRESHOLD)};

inline constexpr Name kWaitObjs[] = {
    NAME(FI_WAIT_NONE),       NAME(FI_WAIT_UNSPEC), NAME(FI_WAIT_SET),   NAME(FI_WAIT_FD),
    NAME(FI_WAIT_MUTEX_COND), NAME(FI_WAIT_YIELD),  NAME(FI_WAIT_POLLFD)};

inline constexpr Name kCntrEvents[] = {NAME(FI_CNTR_EVENTS_COMP), NAME(FI_CNTR_EVENTS_BYTES)};

inline constexpr Name kLogLevels[] = {
    {FI_LOG_WARN, "warn"}, {FI_LOG_TRACE, "trace"}, {FI_LOG_INFO, "info"}, {FI_LOG_DEBUG, "debug"}};

inline constexpr Name kLogSubsystems[] = {{FI_LOG_CORE, "core"},       {FI_LOG_FABRIC, "fabric"},
                                          {FI_LOG_DOMAIN, "domain"},   {FI_LOG_EP_CTRL, "ep_ctrl"},
                                          {FI_LOG_EP_DATA, "ep_data"}, {FI_LOG_AV, "av"},
                                          {FI_LOG_CQ, "cq"},           {FI_LOG_EQ, "eq"},
                                          {FI_LOG_MR, "mr"},           {FI_LOG_CNTR, "cntr"}};

inline constexpr Name kBusTypes[] = {NAME(FI_BUS_UNKNOWN), NAME(FI_BUS_PCI)};

inline constexpr Name kLinkStates[] = {NAME(FI_LINK_UNKNOWN), NAME(FI_LINK_DOWN), NAME(FI_LINK_UP)};

inline constexpr Name kMrModes[] = {
    NAME(FI_MR_LOCAL),    NAME(FI_MR_RAW),        NAME(FI_MR_VIRT_ADDR), NAME(FI_MR_ALLOCATED),
    NAME(FI_MR_PROV_KEY), NAME(FI_MR_MMU_NOTIFY), NAME(FI_MR_RMA_EVENT), NAME(FI_MR_ENDPOINT),
    NAME(FI_MR_HMEM),     NAME(FI_MR_COLLECTIVE)};

// Bits. One bit has several names, so each kind of word has its own table.

inline constexpr Name kCaps[] = {NAME(FI_MSG),
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

inline constexpr Name kOpFlags[] = {NAME(FI_MSG),
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

// The bits of a completion. Other bits have no meaning there.
inline constexpr Name kCqEventFlags[] = {NAME(FI_MSG),         NAME(FI_RMA),
                                         NAME(FI_TAGGED),      NAME(FI_ATOMIC),
                                         NAME(FI_MULTICAST),   NAME(FI_COLLECTIVE),
                                         NAME(FI_READ),        NAME(FI_WRITE),
                                         NAME(FI_RECV),        NAME(FI_SEND),
                                         NAME(FI_REMOTE_READ), NAME(FI_REMOTE_WRITE),
                                         NAME(FI_MULTI_RECV),  NAME(FI_REMOTE_CQ_DATA),
                                         NAME(FI_MORE),        NAME(FI_RMA_EVENT),
                                         NAME(FI_CLAIM)};

inline constexpr Name kModes[] = {NAME(FI_CONTEXT2),  NAME(FI_LOCAL_MR),   NAME(FI_RX_CQ_DATA),
                                  NAME(FI_ASYNC_IOV), NAME(FI_MSG_PREFIX), NAME(FI_CONTEXT)};

inline constexpr Name kOrders[] = {
    NAME(FI_ORDER_RAR),        NAME(FI_ORDER_RAW),        NAME(FI_ORDER_RAS),
    NAME(FI_ORDER_WAR),        NAME(FI_ORDER_WAW),        NAME(FI_ORDER_WAS),
    NAME(FI_ORDER_SAR),        NAME(FI_ORDER_SAW),        NAME(FI_ORDER_SAS),
    NAME(FI_ORDER_RMA_RAR),    NAME(FI_ORDER_RMA_RAW),    NAME(FI_ORDER_RMA_WAR),
    NAME(FI_ORDER_RMA_WAW),    NAME(FI_ORDER_ATOMIC_RAR), NAME(FI_ORDER_ATOMIC_RAW),
    NAME(FI_ORDER_ATOMIC_WAR), NAME(FI_ORDER_ATOMIC_WAW), NAME(FI_ORDER_DATA)};

inline constexpr Name kAvFlags[] = {NAME(FI_EVENT), NAME(FI_PEER), NAME(FI_AV_USER_ID),
                                    NAME(FI_READ), NAME(FI_SYMMETRIC)};

#undef NAME

}  // namespace weft::tostr

#endif
