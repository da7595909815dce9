// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/layers/layer_info.h"

#include <gtest/gtest.h>
#include <rdma/fi_domain.h>

#include <cstdlib>
#include <cstring>

namespace weft::sdk::layer_info_test {
namespace {

// An fi_info with all of its attributes, as the core makes them.
struct Whole {
  fi_info info{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
  Whole() {
    info.tx_attr = &tx;
    info.rx_attr = &rx;
    info.ep_attr = &ep;
    info.domain_attr = &domain;
    info.fabric_attr = &fabric;
  }
};

const weft_core_services kCore = {
    .struct_size = sizeof(weft_core_services),
    .info_alloc = []() -> fi_info * { return &(new Whole)->info; },
    .info_free =
        [](fi_info *info) {
          std::free(info->src_addr);
          std::free(info->dest_addr);
          std::free(info->domain_attr->name);
          std::free(info->fabric_attr->name);
          delete reinterpret_cast<Whole *>(info);
        },
};

TEST(InnerHints, WithoutHintsOnlyTheEndpointTypeIsSet) {
  const Result<InfoList> list = inner_hints(&kCore, FI_EP_DGRAM, FI_MSG, nullptr);
  ASSERT_TRUE(list);
  const fi_info &info = *list->front();
  EXPECT_EQ(info.ep_attr->type, FI_EP_DGRAM);
  EXPECT_EQ(info.caps, uint64_t(FI_MSG));
  EXPECT_EQ(info.domain_attr->threading, FI_THREAD_SAFE);
  EXPECT_EQ(info.domain_attr->data_progress, FI_PROGRESS_MANUAL);
  EXPECT_EQ(info.addr_format, uint32_t(FI_FORMAT_UNSPEC));
  EXPECT_EQ(info.src_addr, nullptr);
  EXPECT_EQ(info.dest_addr, nullptr);
  EXPECT_EQ(info.domain_attr->name, nullptr);
}

TEST(InnerHints, PassesOnAddressesAndNamesOnly) {
  Whole outer;
  char source[] = "here", target[] = "over there", domain[] = "eth0", fabric[] = "lan";
  outer.info.caps = FI_TAGGED | FI_ATOMIC;
  outer.info.mode = FI_CONTEXT;
  outer.info.addr_format = FI_ADDR_STR;
  outer.info.src_addr = source;
  outer.info.src_addrlen = sizeof source;
  outer.info.dest_addr = target;
  outer.info.dest_addrlen = sizeof target;
  outer.ep.type = FI_EP_RDM;
  outer.domain.name = domain;
  outer.domain.data_progress = FI_PROGRESS_AUTO;
  outer.fabric.name = fabric;
  const Result<InfoList> list = inner_hints(&kCore, FI_EP_MSG, FI_MSG | FI_RMA, &outer.info);
  ASSERT_TRUE(list);
  const fi_info &info = *list->front();
  EXPECT_EQ(info.ep_attr->type, FI_EP_MSG);
  EXPECT_EQ(info.caps, uint64_t(FI_MSG | FI_RMA));
  EXPECT_EQ(info.mode, 0u);
  EXPECT_EQ(info.addr_format, uint32_t(FI_ADDR_STR));
  ASSERT_EQ(info.src_addrlen, sizeof source);
  EXPECT_NE(info.src_addr, outer.info.src_addr);  // a copy
  EXPECT_STREQ(static_cast<char *>(info.src_addr), "here");
  ASSERT_EQ(info.dest_addrlen, sizeof target);
  EXPECT_STREQ(static_cast<char *>(info.dest_addr), "over there");
  EXPECT_STREQ(info.domain_attr->name, "eth0");
  EXPECT_STREQ(info.fabric_attr->name, "lan");
  EXPECT_EQ(info.domain_attr->data_progress, FI_PROGRESS_MANUAL);
}

TEST(InnerHints, HintsMayLackAttributes) {
  fi_info outer{};
  EXPECT_TRUE(inner_hints(&kCore, FI_EP_MSG, FI_MSG, &outer));
}

TEST(InnerQuery, HasTheApiVersionOfTheLayer) {
  InfoList hints(&kCore);
  ASSERT_TRUE(hints.add());
  const GetinfoQuery query = inner_query(
      hints, {.api_version = FI_VERSION(1, 5), .node = "host", .service = "7", .flags = FI_SOURCE});
  EXPECT_EQ(query.api_version, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));
  EXPECT_STREQ(query.node, "host");
  EXPECT_STREQ(query.service, "7");
  EXPECT_EQ(query.flags, uint64_t(FI_SOURCE));
  EXPECT_EQ(query.hints, hints.front());
}

TEST(OfferRdm, AnEntryOfTheInnerProviderBecomesOneOfTheLayer) {
  Whole entry;
  entry.info.caps = FI_MSG;
  entry.info.mode = FI_MSG_PREFIX;
  fid handle{};
  entry.info.handle = &handle;
  entry.ep.type = FI_EP_DGRAM;
  entry.ep.max_msg_size = 1472;
  entry.domain.caps = FI_REMOTE_COMM | FI_DIRECTED_RECV;
  entry.domain.mr_mode = FI_MR_VIRT_ADDR;
  entry.domain.ep_cnt = 12;
  offer_rdm(entry.info,
            {.protocol = FI_PROTO_RXD,
             .order = FI_ORDER_SAS,
             .tx_size = 10,
             .rx_size = 20,
             .inject_size = 30,
             .rma_iov_limit = 3},
            {.api_version = FI_VERSION(1, 9)});
  EXPECT_EQ(entry.info.caps, kRdmTransmitCaps | kRdmReceiveCaps | FI_REMOTE_COMM | FI_SHARED_AV);
  EXPECT_EQ(entry.tx.caps | entry.rx.caps | FI_REMOTE_COMM | FI_SHARED_AV, entry.info.caps);
  EXPECT_EQ(entry.info.mode, 0u);
  EXPECT_EQ(entry.info.handle, nullptr);
  EXPECT_EQ(entry.ep.type, FI_EP_RDM);
  EXPECT_EQ(entry.ep.protocol, uint32_t(FI_PROTO_RXD));
  EXPECT_EQ(entry.tx.msg_order, uint64_t(FI_ORDER_SAS));
  EXPECT_EQ(entry.rx.msg_order, uint64_t(FI_ORDER_SAS));
  EXPECT_EQ(entry.tx.size, 10u);
  EXPECT_EQ(entry.rx.size, 20u);
  EXPECT_EQ(entry.tx.inject_size, 30u);
  EXPECT_EQ(entry.tx.rma_iov_limit, 3u);
  EXPECT_EQ(entry.domain.caps, uint64_t(FI_REMOTE_COMM | FI_AV_USER_ID | FI_PEER | FI_SHARED_AV));
  EXPECT_EQ(entry.domain.data_progress, FI_PROGRESS_MANUAL);
  EXPECT_EQ(entry.fabric.api_version, FI_VERSION(1, 9));
  // The layer decides about these.
  EXPECT_EQ(entry.ep.max_msg_size, 1472u);
  EXPECT_EQ(entry.domain.mr_mode, FI_MR_VIRT_ADDR);
  EXPECT_EQ(entry.domain.ep_cnt, 12u);
}

TEST(OfferRdm, RaisesLimitsToTheHintsUpToAMaximum) {
  const RdmOffer offer{.order = FI_ORDER_SAS,
                       .order_if_asked = FI_ORDER_RAW | FI_ORDER_WAW,
                       .tx_size = 10,
                       .rx_size = 20,
                       .inject_size = 30,
                       .max_inject_size = 300};
  Whole entry, hints;
  hints.tx.size = 4096;
  hints.rx.size = kMaxLayerQueue;
  hints.tx.inject_size = 300;
  hints.rx.msg_order = FI_ORDER_RAW;
  offer_rdm(entry.info, offer, {.hints = &hints.info});
  EXPECT_EQ(entry.tx.size, 4096u);
  EXPECT_EQ(entry.rx.size, kMaxLayerQueue);
  EXPECT_EQ(entry.tx.inject_size, 300u);
  EXPECT_EQ(entry.tx.msg_order, FI_ORDER_SAS | FI_ORDER_RAW);
  EXPECT_EQ(entry.rx.msg_order, FI_ORDER_SAS | FI_ORDER_RAW);
  // Hints below the defaults lower nothing. The core refuses hints above the maximum.
  hints.tx.size = 1;
  hints.rx.size = kMaxLayerQueue + 1;
  hints.tx.inject_size = 301;
  hints.rx.msg_order = FI_ORDER_RAR;
  offer_rdm(entry.info, offer, {.hints = &hints.info});
  EXPECT_EQ(entry.tx.size, 10u);
  EXPECT_EQ(entry.rx.size, 20u);
  EXPECT_EQ(entry.tx.inject_size, 30u);
  EXPECT_EQ(entry.tx.msg_order, uint64_t(FI_ORDER_SAS));
}

TEST(OfferRdm, TakesTheProgressOfTheHints) {
  Whole entry, hints;
  hints.domain.data_progress = FI_PROGRESS_AUTO;
  offer_rdm(entry.info, {}, {.hints = &hints.info});
  EXPECT_EQ(entry.domain.data_progress, FI_PROGRESS_AUTO);
  EXPECT_EQ(entry.domain.control_progress, FI_PROGRESS_MANUAL);
}

}  // namespace
}  // namespace weft::sdk::layer_info_test
