// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/opening_changes.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>

namespace weft::conformance::opening {
namespace {

// A limit or a count `v`: less, as much, and more.
uint64_t around(uint64_t v, size_t value) {
  const uint64_t values[] = {0, 1, v / 2, v, v == UINT64_MAX ? v : v + 1, 16384, 16385, UINT64_MAX};
  return values[value];
}
constexpr size_t kAround = 8;

template <class Part, class Number>
Change limit(const char *member, Part *fi_info::*part, Number Part::*number) {
  return {member, kAround, [=](fi_info &info, size_t value) {
            Number &at = info.*part->*number;
            at = Number(around(at, value));
          }};
}

// Any number in an enum: the library gets it from C.
template <class Part, class Enum>
Change word(const char *member, Part *fi_info::*part, Enum Part::*number, std::vector<int> values) {
  const size_t count = values.size();
  return {member, count, [=, values = std::move(values)](fi_info &info, size_t value) {
            static_assert(sizeof(Enum) == sizeof(int));
            std::memcpy(&(info.*part->*number), &values[value], sizeof(int));
          }};
}

// Each bit by itself is turned over; the last value is none at all.
template <class Get>
Change bits(const char *member, std::vector<uint64_t> all, Get get) {
  const size_t count = all.size() + 1;
  return {member, count, [=, all = std::move(all)](fi_info &info, size_t value) {
            auto &at = get(info);
            using Number = std::remove_reference_t<decltype(at)>;
            at = value < all.size() ? Number(at ^ Number(all[value])) : Number(0);
          }};
}

const std::vector<uint64_t> kCaps = {
    FI_MSG,          FI_RMA,          FI_TAGGED,     FI_ATOMIC,      FI_MULTICAST,
    FI_COLLECTIVE,   FI_SEND,         FI_RECV,       FI_READ,        FI_WRITE,
    FI_REMOTE_READ,  FI_REMOTE_WRITE, FI_SOURCE,     FI_SOURCE_ERR,  FI_DIRECTED_RECV,
    FI_MULTI_RECV,   FI_RMA_EVENT,    FI_FENCE,      FI_TRIGGER,     FI_RMA_PMEM,
    FI_NAMED_RX_CTX, FI_AV_USER_ID,   FI_LOCAL_COMM, FI_REMOTE_COMM, UINT64_C(1) << 45};
const std::vector<uint64_t> kTxFlags = {FI_COMPLETION,
                                        FI_INJECT,
                                        FI_INJECT_COMPLETE,
                                        FI_TRANSMIT_COMPLETE,
                                        FI_DELIVERY_COMPLETE,
                                        FI_MATCH_COMPLETE,
                                        FI_COMMIT_COMPLETE,
                                        FI_MULTICAST,
                                        FI_FENCE,
                                        FI_MORE,
                                        FI_REMOTE_CQ_DATA,
                                        UINT64_C(1) << 45};
const std::vector<uint64_t> kRxFlags = {FI_COMPLETION, FI_MULTI_RECV, FI_MORE, FI_PEEK,
                                        UINT64_C(1) << 45};
const std::vector<uint64_t> kOrders = {
    FI_ORDER_RAR,        FI_ORDER_RAW,        FI_ORDER_RAS,        FI_ORDER_WAR,
    FI_ORDER_WAW,        FI_ORDER_WAS,        FI_ORDER_SAR,        FI_ORDER_SAW,
    FI_ORDER_SAS,        FI_ORDER_RMA_RAR,    FI_ORDER_RMA_RAW,    FI_ORDER_RMA_WAR,
    FI_ORDER_RMA_WAW,    FI_ORDER_ATOMIC_RAR, FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAR,
    FI_ORDER_ATOMIC_WAW, UINT64_C(1) << 45};
const std::vector<uint64_t> kCompletionOrders = {FI_ORDER_STRICT, FI_ORDER_DATA, UINT64_C(1) << 45};
const std::vector<uint64_t> kMrModes = {FI_MR_LOCAL,    FI_MR_VIRT_ADDR, FI_MR_ALLOCATED,
                                        FI_MR_PROV_KEY, FI_MR_ENDPOINT,  FI_MR_RMA_EVENT,
                                        FI_MR_RAW};
const std::vector<int> kClasses = {FI_TC_UNSPEC,           FI_TC_BEST_EFFORT, FI_TC_LOW_LATENCY,
                                   FI_TC_DEDICATED_ACCESS, FI_TC_BULK_DATA,   FI_TC_SCAVENGER,
                                   FI_TC_NETWORK_CTRL,     0x7fffffff};

std::vector<Change> of_transmits() {
  constexpr auto kPart = &fi_info::tx_attr;
  return {bits("tx_attr.caps", kCaps, [](fi_info &i) -> uint64_t & { return i.tx_attr->caps; }),
          bits("tx_attr.op_flags", kTxFlags,
               [](fi_info &i) -> uint64_t & { return i.tx_attr->op_flags; }),
          bits("tx_attr.msg_order", kOrders,
               [](fi_info &i) -> uint64_t & { return i.tx_attr->msg_order; }),
          bits("tx_attr.comp_order", kCompletionOrders,
               [](fi_info &i) -> uint64_t & { return i.tx_attr->comp_order; }),
          limit("tx_attr.inject_size", kPart, &fi_tx_attr::inject_size),
          limit("tx_attr.size", kPart, &fi_tx_attr::size),
          limit("tx_attr.iov_limit", kPart, &fi_tx_attr::iov_limit),
          limit("tx_attr.rma_iov_limit", kPart, &fi_tx_attr::rma_iov_limit),
          word("tx_attr.tclass", kPart, &fi_tx_attr::tclass, kClasses)};
}

std::vector<Change> of_receives() {
  constexpr auto kPart = &fi_info::rx_attr;
  return {bits("rx_attr.caps", kCaps, [](fi_info &i) -> uint64_t & { return i.rx_attr->caps; }),
          bits("rx_attr.op_flags", kRxFlags,
               [](fi_info &i) -> uint64_t & { return i.rx_attr->op_flags; }),
          bits("rx_attr.msg_order", kOrders,
               [](fi_info &i) -> uint64_t & { return i.rx_attr->msg_order; }),
          bits("rx_attr.comp_order", kCompletionOrders,
               [](fi_info &i) -> uint64_t & { return i.rx_attr->comp_order; }),
          limit("rx_attr.size", kPart, &fi_rx_attr::size),
          limit("rx_attr.iov_limit", kPart, &fi_rx_attr::iov_limit)};
}

std::vector<Change> of_endpoints() {
  constexpr auto kPart = &fi_info::ep_attr;
  return {word("ep_attr.type", kPart, &fi_ep_attr::type,
               {FI_EP_UNSPEC, FI_EP_MSG, FI_EP_DGRAM, FI_EP_RDM, 77}),
          word("ep_attr.protocol", kPart, &fi_ep_attr::protocol,
               {FI_PROTO_UNSPEC, FI_PROTO_RDMA_CM_IB_RC, FI_PROTO_UDP, FI_PROTO_SOCK_TCP,
                FI_PROTO_RXM, FI_PROTO_RXD, 12345}),
          limit("ep_attr.protocol_version", kPart, &fi_ep_attr::protocol_version),
          limit("ep_attr.max_msg_size", kPart, &fi_ep_attr::max_msg_size),
          limit("ep_attr.max_order_raw_size", kPart, &fi_ep_attr::max_order_raw_size),
          limit("ep_attr.max_order_war_size", kPart, &fi_ep_attr::max_order_war_size),
          limit("ep_attr.max_order_waw_size", kPart, &fi_ep_attr::max_order_waw_size),
          limit("ep_attr.mem_tag_format", kPart, &fi_ep_attr::mem_tag_format),
          limit("ep_attr.tx_ctx_cnt", kPart, &fi_ep_attr::tx_ctx_cnt),
          limit("ep_attr.rx_ctx_cnt", kPart, &fi_ep_attr::rx_ctx_cnt)};
}

std::vector<Change> of_domains() {
  constexpr auto kPart = &fi_info::domain_attr;
  return {
      word("domain_attr.threading", kPart, &fi_domain_attr::threading,
           {FI_THREAD_UNSPEC, FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_DOMAIN, FI_THREAD_COMPLETION,
            FI_THREAD_ENDPOINT}),
      word("domain_attr.control_progress", kPart, &fi_domain_attr::control_progress,
           {FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_PROGRESS_CONTROL_UNIFIED}),
      word("domain_attr.data_progress", kPart, &fi_domain_attr::data_progress,
           {FI_PROGRESS_UNSPEC, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}),
      word("domain_attr.resource_mgmt", kPart, &fi_domain_attr::resource_mgmt,
           {FI_RM_UNSPEC, FI_RM_DISABLED, FI_RM_ENABLED}),
      word("domain_attr.av_type", kPart, &fi_domain_attr::av_type,
           {FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE}),
      bits("domain_attr.mr_mode", kMrModes,
           [](fi_info &i) -> int & { return i.domain_attr->mr_mode; }),
      bits("domain_attr.caps", kCaps, [](fi_info &i) -> uint64_t & { return i.domain_attr->caps; }),
      limit("domain_attr.cq_data_size", kPart, &fi_domain_attr::cq_data_size),
      limit("domain_attr.cq_cnt", kPart, &fi_domain_attr::cq_cnt),
      limit("domain_attr.ep_cnt", kPart, &fi_domain_attr::ep_cnt),
      limit("domain_attr.max_ep_tx_ctx", kPart, &fi_domain_attr::max_ep_tx_ctx),
      limit("domain_attr.max_ep_rx_ctx", kPart, &fi_domain_attr::max_ep_rx_ctx),
      limit("domain_attr.cntr_cnt", kPart, &fi_domain_attr::cntr_cnt),
      limit("domain_attr.mr_iov_limit", kPart, &fi_domain_attr::mr_iov_limit),
      limit("domain_attr.max_err_data", kPart, &fi_domain_attr::max_err_data),
      limit("domain_attr.mr_cnt", kPart, &fi_domain_attr::mr_cnt),
      word("domain_attr.tclass", kPart, &fi_domain_attr::tclass, kClasses)};
}

}  // namespace

const std::vector<Change> &changes() {
  static const std::vector<Change> all = [] {
    std::vector<Change> list;
    list.push_back(bits("caps", kCaps, [](fi_info &i) -> uint64_t & { return i.caps; }));
    list.push_back(bits("mode", {FI_CONTEXT, FI_LOCAL_MR, FI_RX_CQ_DATA, FI_MSG_PREFIX},
                        [](fi_info &i) -> uint64_t & { return i.mode; }));
    for (Change &change : of_transmits()) {
      change.of_transmits = true;
      list.push_back(std::move(change));
    }
    for (Change &change : of_receives()) {
      change.of_receives = true;
      list.push_back(std::move(change));
    }
    for (Change &change : of_endpoints()) list.push_back(std::move(change));
    for (Change &change : of_domains()) list.push_back(std::move(change));
    return list;
  }();
  return all;
}

}  // namespace weft::conformance::opening
