// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo for reliable datagrams (fi_getinfo.3, fi_endpoint.3, fi_domain.3): what every field of
// the hints filters, what is implied by what, and that an answer can be asked for again.
#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

void for_all(const Info &list, const std::function<void(const fi_info &)> &check) {
  ASSERT_TRUE(list);
  for (const fi_info *info = list.get(); info != nullptr; info = info->next) check(*info);
}

TEST(RdmGetinfo, EveryAnswerIsOfTheStackAndType) {
  covers("fi_getinfo");
  for_all(ask(), [](const fi_info &info) {
    // A provider's name stands for the layers over it, too.
    EXPECT_TRUE(std::string(info.fabric_attr->prov_name).starts_with(stack()));
    EXPECT_EQ(info.ep_attr->type, FI_EP_RDM);
    EXPECT_EQ(info.mode, 0u) << "no mode bit was offered";
    EXPECT_EQ(info.domain_attr->mode, 0u);
    EXPECT_EQ(info.ep_attr->msg_prefix_size, 0u);
    EXPECT_GT(info.ep_attr->max_msg_size, size_t(1) << 20);
    EXPECT_GE(info.tx_attr->size, 16u);
    EXPECT_GE(info.rx_attr->size, 16u);
    EXPECT_GE(info.tx_attr->iov_limit, 1u);
    EXPECT_GE(info.rx_attr->iov_limit, 1u);
    EXPECT_NE(info.domain_attr->threading, FI_THREAD_UNSPEC);
    EXPECT_NE(info.domain_attr->control_progress, FI_PROGRESS_UNSPEC);
    EXPECT_NE(info.domain_attr->data_progress, FI_PROGRESS_UNSPEC);
    EXPECT_NE(info.domain_attr->resource_mgmt, FI_RM_UNSPEC);
  });
}

// An application tells its peers the name of its fabric, and they ask for it: with stock at the
// other side it must be stock's.
TEST(RdmGetinfo, TheFabricIsCalledAsStockCallsIt) {
  covers("fi_getinfo");
  NEEDS_IPV4_ADDRESSES();
  for_all(ask(), [](const fi_info &info) { EXPECT_STREQ(info.fabric_attr->name, "127.0.0.1/32"); });
  for_all(ask([](fi_info &h) { h.fabric_attr->name = strdup("127.0.0.1/32"); }),
          [](const fi_info &info) { EXPECT_STREQ(info.fabric_attr->name, "127.0.0.1/32"); });
}

// fi_getinfo.3: a primary capability comes only when asked for; its modifiers are implied.
TEST(RdmGetinfo, CapabilitiesFilterAndImply) {
  covers("fi_getinfo");
  const struct {
    uint64_t primary, implied;
  } cases[] = {{FI_MSG, FI_SEND | FI_RECV},
               {FI_TAGGED, FI_SEND | FI_RECV},
               {FI_RMA, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE},
               {FI_ATOMIC, FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE}};
  for (const auto &c : cases) {
    Options options;
    options.caps = c.primary;
    const Info info = find_info(options);
    if (!info) continue;
    SCOPED_TRACE(caps_text(c.primary));
    EXPECT_EQ(info->caps & (c.primary | c.implied), c.primary | c.implied);
    EXPECT_EQ(info->caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC) & ~c.primary, 0u)
        << "a primary capability that was not asked for";
  }
}

TEST(RdmGetinfo, AModifierNarrowsItsPrimary) {
  covers("fi_getinfo");
  Options options;
  options.caps = FI_MSG | FI_SEND;
  const Info info = find_info(options);
  ASSERT_TRUE(info);
  EXPECT_TRUE(info->caps & FI_SEND);
  EXPECT_TRUE(info->tx_attr->caps & FI_SEND);
  EXPECT_FALSE(info->caps & FI_RECV) << "not asked for";
}

TEST(RdmGetinfo, AttributesThatNoStackHasGiveNoData) {
  covers("fi_getinfo");
  EXPECT_FALSE(ask([](fi_info &h) { h.caps |= FI_HMEM; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->size = size_t(1) << 40; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.rx_attr->size = size_t(1) << 40; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->inject_size = size_t(1) << 40; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->iov_limit = 1 << 20; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.rx_attr->iov_limit = 1 << 20; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->rma_iov_limit = 1 << 20; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.ep_attr->protocol = FI_PROTO_PSMX3; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.ep_attr->protocol_version = 4711; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.ep_attr->tx_ctx_cnt = 1 << 20; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.ep_attr->rx_ctx_cnt = 1 << 20; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.domain_attr->cq_data_size = 1 << 10; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.addr_format = FI_ADDR_PSMX3; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.domain_attr->name = strdup("no-such-domain"); }));
  EXPECT_FALSE(ask([](fi_info &h) { h.fabric_attr->name = strdup("no-such-fabric"); }));
}

TEST(RdmGetinfo, SizesAreAtLeastThoseAskedFor) {
  covers("fi_getinfo");
  const Info base = find_info();
  for (size_t divide : {1, 2}) {
    for_all(ask([&](fi_info &h) {
              h.tx_attr->size = base->tx_attr->size / divide;
              h.rx_attr->size = base->rx_attr->size / divide;
              h.tx_attr->inject_size = base->tx_attr->inject_size / divide;
              h.ep_attr->max_msg_size = base->ep_attr->max_msg_size / divide;
            }),
            [&](const fi_info &info) {
              EXPECT_GE(info.tx_attr->size, base->tx_attr->size / divide);
              EXPECT_GE(info.rx_attr->size, base->rx_attr->size / divide);
              EXPECT_GE(info.tx_attr->inject_size, base->tx_attr->inject_size / divide);
              EXPECT_GE(info.ep_attr->max_msg_size, base->ep_attr->max_msg_size / divide);
            });
  }
}

TEST(RdmGetinfo, EveryReportedOrderCanBeAskedFor) {
  covers("fi_getinfo");
  const Info base = find_info();
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t order = uint64_t(1) << bit;
    if (!(base->tx_attr->msg_order & base->rx_attr->msg_order & order)) continue;
    Options options;
    options.order = order;
    const Info info = find_info(options);
    ASSERT_TRUE(info) << fi_tostr(&order, FI_TYPE_MSG_ORDER);
    EXPECT_TRUE(info->tx_attr->msg_order & order);
    EXPECT_TRUE(info->rx_attr->msg_order & order);
  }
  EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->msg_order = uint64_t(1) << 62; }));
}

// FI_ORDER_WAW and the like are about RMA and atomics together (fi_endpoint.3, Message Ordering).
// An application without atomics can have them from every stack that keeps its RMA in order.
TEST(RdmGetinfo, WithoutAtomicsTheOrderIsThatOfRma) {
  covers("fi_getinfo");
  Options options;
  options.caps = FI_MSG | FI_RMA;
  for (auto [both, rma] : {std::pair<uint64_t, uint64_t>{FI_ORDER_RAR, FI_ORDER_RMA_RAR},
                           {FI_ORDER_RAW, FI_ORDER_RMA_RAW},
                           {FI_ORDER_WAW, FI_ORDER_RMA_WAW}}) {
    options.order = rma;
    const bool kept = bool(find_info(options));
    options.order = both;
    const Info info = find_info(options);
    EXPECT_EQ(bool(info), kept) << fi_tostr(&both, FI_TYPE_MSG_ORDER);
    if (info) {
      EXPECT_TRUE(info->tx_attr->msg_order & both);
      EXPECT_FALSE(info->caps & FI_ATOMIC);
    }
  }
}

TEST(RdmGetinfo, EveryThreadingProgressAndManagementIsGivenAsAsked) {
  covers("fi_getinfo");
  for (auto threading : {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_ENDPOINT, FI_THREAD_COMPLETION,
                         FI_THREAD_DOMAIN}) {
    Options options;
    options.threading = threading;
    EXPECT_TRUE(find_info(options)) << "a thread-safe provider is right for " << threading;
  }
  for (auto management : {FI_RM_DISABLED, FI_RM_ENABLED}) {
    Options options;
    options.resource_mgmt = management;
    const Info info = find_info(options);
    ASSERT_TRUE(info);
    if (management == FI_RM_ENABLED) {
      EXPECT_EQ(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
    }
  }
  for (auto progress : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
    Options options;
    options.progress = progress;
    const Info info = find_info(options);
    if (info && progress == FI_PROGRESS_AUTO) {
      EXPECT_EQ(info->domain_attr->data_progress, FI_PROGRESS_AUTO);
    }
  }
}

// fi_getinfo.3: an answer may be passed as hints, and is found again.
TEST(RdmGetinfo, AnAnswerIsAHintForItself) {
  covers("fi_getinfo");
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA;
  const Info first = find_info(options);
  ASSERT_TRUE(first);
  Info again;
  must(try_info(again, nullptr, nullptr, 0, first.get()));
  EXPECT_EQ(again->fabric_attr->prov_name, stack());
  EXPECT_EQ(again->caps, first->caps);
  EXPECT_STREQ(again->domain_attr->name, first->domain_attr->name);
  EXPECT_EQ(again->tx_attr->size, first->tx_attr->size);
}

TEST(RdmGetinfo, OnlyAcceptedModesAreRequired) {
  covers("fi_getinfo");
  for_all(ask([](fi_info &h) {
            h.mode = FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | FI_ASYNC_IOV | FI_RX_CQ_DATA;
            h.domain_attr->mr_mode =
                FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
          }),
          [](const fi_info &info) {
            EXPECT_EQ(info.mode & ~(FI_CONTEXT | FI_CONTEXT2 | FI_MSG_PREFIX | FI_ASYNC_IOV |
                                    FI_RX_CQ_DATA),
                      0u);
          });
}

TEST(RdmGetinfo, AddressesAreResolved) {
  covers("fi_getinfo");
  NEEDS_HOST_NAMES();
  const Info source = ask({}, {}, test_node(), "4711", FI_SOURCE);
  ASSERT_TRUE(source);
  ASSERT_EQ(source->src_addrlen, sizeof(sockaddr_in));
  const auto *address = static_cast<const sockaddr_in *>(source->src_addr);
  EXPECT_EQ(address->sin_port, htons(4711));
  in_addr node;
  ASSERT_EQ(inet_pton(AF_INET, test_node(), &node), 1);
  EXPECT_EQ(address->sin_addr.s_addr, node.s_addr);
  const Info target = ask({}, {}, test_node(), "4711");
  ASSERT_TRUE(target);
  ASSERT_EQ(target->dest_addrlen, sizeof(sockaddr_in));
  EXPECT_EQ(static_cast<const sockaddr_in *>(target->dest_addr)->sin_port, htons(4711));
}

TEST(RdmGetinfo, Ipv6IsOffered) {
  covers("fi_getinfo, IPv6");
  NEEDS_IPV4_ADDRESSES();
  if (!have_ipv6_loopback()) GTEST_SKIP() << "no ::1 here";
  Options options;
  options.node = "::1";
  const Info info = find_info(options, FI_SOURCE);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->addr_format, FI_SOCKADDR_IN6);
  Net net(2, options);
  net.exchange(0, 1);
  net.exchange(1, 0, 100000);
}

// The names that programs ask for: the stack's, and the layer's alone if there is one.
TEST(RdmGetinfo, ProviderNamesSelect) {
  covers("fi_getinfo");
  const auto first_for = [](const char *name) -> std::string {
    const Info list = ask([&](fi_info &h) {
      free(h.fabric_attr->prov_name);
      h.fabric_attr->prov_name = strdup(name);
    });
    return list ? list->fabric_attr->prov_name : "";
  };
  EXPECT_EQ(first_for(stack().c_str()), stack());
  EXPECT_EQ(first_for("no_such_provider"), "");
}

}  // namespace
}  // namespace weft::conformance::rdm
