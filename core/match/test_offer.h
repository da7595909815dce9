// SPDX-License-Identifier: BSD-2-Clause
// The things that the tests of this folder share: an offer, and hints that fit it.
//
// Example:
//    #include <gtest/gtest.h>
//    TEST(MyTest, MatchesThePlainHints) {
//      EXPECT_TRUE(match_test::ask(match_test::hints(), match_test::offer()).accepted);
//    }
//
// Only for tests.
#ifndef WEFT_CORE_MATCH_TEST_OFFER_H
#define WEFT_CORE_MATCH_TEST_OFFER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/base/info.h"
#include "core/match/match.h"

namespace weft::match_test {

inline constexpr uint32_t kNow = FI_VERSION(2, 6);
inline constexpr uint32_t kOld = FI_VERSION(1, 4);

inline InfoPtr empty() {
  return InfoPtr(alloc_info());
}

inline sockaddr_in address(const char *text, uint16_t port = 0) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  inet_pton(AF_INET, text, &in.sin_addr);
  return in;
}

inline void set_source(fi_info &info, const sockaddr_in &in) {
  std::free(info.src_addr);
  info.src_addr = std::malloc(sizeof in);
  std::memcpy(info.src_addr, &in, sizeof in);
  info.src_addrlen = sizeof in;
}

// A provider like verbs: connected endpoints, hardware limits, registration requirements.
inline InfoPtr offer() {
  InfoPtr info = empty();
  info->caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
               FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM |
               FI_SOURCE | FI_RMA_EVENT | FI_FENCE;
  info->mode = FI_CONTEXT;
  info->addr_format = FI_SOCKADDR_IN;
  set_source(*info, address("10.0.0.2"));
  info->tx_attr->op_flags = FI_COMPLETION | FI_INJECT | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
  info->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_RAR | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW;
  info->tx_attr->comp_order = FI_ORDER_STRICT;
  info->tx_attr->inject_size = 128;
  info->tx_attr->size = 1024;
  info->tx_attr->iov_limit = 4;
  info->tx_attr->rma_iov_limit = 2;
  info->tx_attr->tclass = FI_TC_LOW_LATENCY;
  info->rx_attr->op_flags = FI_COMPLETION | FI_MULTI_RECV;
  info->rx_attr->msg_order = FI_ORDER_SAS;
  info->rx_attr->comp_order = FI_ORDER_STRICT | FI_ORDER_DATA;
  info->rx_attr->total_buffered_recv = 0;
  info->rx_attr->size = 512;
  info->rx_attr->iov_limit = 3;
  info->ep_attr->type = FI_EP_MSG;
  info->ep_attr->protocol = FI_PROTO_RDMA_CM_IB_RC;
  info->ep_attr->protocol_version = 1;
  info->ep_attr->max_msg_size = 1 << 30;
  info->ep_attr->msg_prefix_size = 16;
  info->ep_attr->max_order_raw_size = 100;
  info->ep_attr->max_order_war_size = 0;
  info->ep_attr->max_order_waw_size = SIZE_MAX;
  info->ep_attr->tx_ctx_cnt = 1;
  info->ep_attr->rx_ctx_cnt = 1;
  info->ep_attr->auth_key_size = 8;
  fi_domain_attr &domain = *info->domain_attr;
  domain.name = strdup("mlx5_0");
  domain.threading = FI_THREAD_COMPLETION;
  domain.control_progress = FI_PROGRESS_AUTO;
  domain.data_progress = FI_PROGRESS_MANUAL;
  domain.resource_mgmt = FI_RM_DISABLED;
  domain.av_type = FI_AV_TABLE;
  domain.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  domain.mr_key_size = 4;
  domain.cq_data_size = 4;
  domain.cq_cnt = 1000;
  domain.ep_cnt = 2000;
  domain.tx_ctx_cnt = 3000;
  domain.rx_ctx_cnt = 4000;
  domain.max_ep_tx_ctx = 2;
  domain.max_ep_rx_ctx = 1;
  domain.max_ep_stx_ctx = 0;
  domain.max_ep_srx_ctx = 16;
  domain.cntr_cnt = 64;
  domain.mr_iov_limit = 1;
  domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  domain.auth_key_size = 8;
  domain.max_err_data = 32;
  domain.mr_cnt = 100;
  domain.tclass = FI_TC_LOW_LATENCY;
  domain.max_ep_auth_key = 1;
  domain.max_group_id = 7;
  domain.max_cntr_value = 1000;
  domain.max_err_cntr_value = 10;
  info->fabric_attr->name = strdup("IB-0xfe80");
  info->fabric_attr->prov_name = strdup("verbs");
  info->fabric_attr->prov_version = FI_VERSION(1, 2);
  return info;
}

// The hints of an application that does all that this provider needs.
inline InfoPtr hints() {
  InfoPtr info = empty();
  info->mode = FI_CONTEXT;
  info->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  return info;
}

inline Match ask(const InfoPtr &wanted, const InfoPtr &offered, uint32_t version = kNow,
                 uint64_t flags = 0) {
  return match_info(version, flags, wanted.get(), *offered);
}

}  // namespace weft::match_test

#endif
