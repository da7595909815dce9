// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo for datagrams (fi_getinfo.3, fi_endpoint.3): what the hints filter, and how large a
// datagram may be.
#include <netinet/in.h>

#include <cstring>

#include "tests/conformance/dgram_harness.h"

namespace weft::conformance::dgram {
namespace {

TEST(DgramGetinfo, EveryAnswerIsOfTheStackAndType) {
  covers("fi_getinfo");
  const Info list = ask({}, {}, nullptr);
  ASSERT_TRUE(list);
  for (const fi_info *info = list.get(); info != nullptr; info = info->next) {
    EXPECT_EQ(info->fabric_attr->prov_name, stack());
    EXPECT_EQ(info->ep_attr->type, FI_EP_DGRAM);
    EXPECT_EQ(info->mode, demands(FI_EP_DGRAM).mode) << "no other mode bit was offered";
    EXPECT_EQ(info->ep_attr->msg_prefix_size != 0, (info->mode & FI_MSG_PREFIX) != 0);
    EXPECT_GE(info->ep_attr->max_msg_size, 508u) << "what every IPv4 host takes";
    if (!is_of_a_device(FI_EP_DGRAM)) {
      EXPECT_LE(info->ep_attr->max_msg_size, 1472u) << "what other libfabrics say";
      EXPECT_EQ(info->tx_attr->inject_size, info->ep_attr->max_msg_size);
      EXPECT_EQ(info->tx_attr->iov_limit, 4u);
      EXPECT_EQ(info->rx_attr->iov_limit, 4u);
      EXPECT_EQ(info->domain_attr->cq_data_size, 0u);
    }
    EXPECT_GE(info->tx_attr->size, 16u);
    EXPECT_GE(info->rx_attr->size, 16u);
    EXPECT_NE(info->domain_attr->threading, FI_THREAD_UNSPEC);
    EXPECT_NE(info->domain_attr->data_progress, FI_PROGRESS_UNSPEC);
    EXPECT_EQ(info->caps & (FI_TAGGED | FI_RMA | FI_ATOMIC), 0u);
    EXPECT_NE(info->src_addr, nullptr);
  }
}

TEST(DgramGetinfo, AttributesThatNoStackHasGiveNoData) {
  covers("fi_getinfo");
  for (uint64_t caps : {FI_TAGGED, FI_RMA, FI_ATOMIC, FI_MULTI_RECV, FI_DIRECTED_RECV, FI_HMEM})
    EXPECT_FALSE(ask([caps](fi_info &h) { h.caps |= caps; })) << fi_tostr(&caps, FI_TYPE_CAPS);
  EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->size = size_t(1) << 40; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.rx_attr->size = size_t(1) << 40; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->iov_limit = 5; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.domain_attr->cq_data_size = 8; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.ep_attr->protocol = FI_PROTO_PSMX3; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->op_flags = FI_DELIVERY_COMPLETE; }));
  // A device keeps the order of datagrams.
  if (!is_of_a_device(FI_EP_DGRAM)) {
    EXPECT_FALSE(ask([](fi_info &h) { h.tx_attr->msg_order = FI_ORDER_SAS; }));
  }
  EXPECT_FALSE(ask([](fi_info &h) { h.addr_format = FI_ADDR_PSMX3; }));
  EXPECT_FALSE(ask([](fi_info &h) { h.domain_attr->name = strdup("no-such-domain"); }));
}

// Every datagram that the interface carries whole may be asked for, and none that it does not.
TEST(DgramGetinfo, MaxMsgSizeIsWhatTheInterfaceCarriesIfAskedFor) {
  DGRAM_NEEDS_SOCKETS();
  covers("max_msg_size by hints");
  EXPECT_EQ(ask()->ep_attr->max_msg_size, 1472u);
  for (size_t wanted : {1, 1472}) {
    const Info info = ask([&](fi_info &h) { h.ep_attr->max_msg_size = wanted; });
    ASSERT_TRUE(info);
    EXPECT_EQ(info->ep_attr->max_msg_size, 1472u);
  }
  for (size_t wanted : {1473, 9000, 65000}) {
    const Info info = ask([&](fi_info &h) { h.ep_attr->max_msg_size = wanted; });
    if (!info) continue;  // a small loopback MTU
    EXPECT_GE(info->ep_attr->max_msg_size, wanted);
    EXPECT_LE(info->ep_attr->max_msg_size, 65507u);
    Options options;
    options.max_msg_size = wanted;
    Net net(2, options);
    net.exchange(0, 1, wanted);
    net.exchange(1, 0, net[1].info->ep_attr->max_msg_size);
    const std::vector<uint8_t> longer(net[0].info->ep_attr->max_msg_size + 1);
    EXPECT_EQ(fi_inject(net[0].ep, longer.data(), longer.size(), net.at(0, 1)), -FI_EMSGSIZE);
  }
  EXPECT_FALSE(ask([](fi_info &h) { h.ep_attr->max_msg_size = 65508; }));
  if (!have_ipv6_loopback()) return;
  const auto six = [](size_t wanted) {
    return ask([&](fi_info &h) { h.ep_attr->max_msg_size = wanted; }, {}, "::1");
  };
  ASSERT_TRUE(six(0));
  EXPECT_LE(six(0)->ep_attr->max_msg_size, 1472u);
  EXPECT_FALSE(six(65508));
}

TEST(DgramGetinfo, AnAnswerIsAHintForItself) {
  covers("fi_getinfo");
  Options options;
  options.caps |= FI_SOURCE;
  const Info first = find_info(options, FI_SOURCE);
  ASSERT_TRUE(first);
  Info again;
  must(try_info(again, nullptr, nullptr, 0, first.get()));
  EXPECT_EQ(again->fabric_attr->prov_name, stack());
  EXPECT_EQ(again->caps, first->caps);
  EXPECT_EQ(again->ep_attr->max_msg_size, first->ep_attr->max_msg_size);
  EXPECT_STREQ(again->domain_attr->name, first->domain_attr->name);
}

TEST(DgramGetinfo, NodeAndServiceBecomeAddresses) {
  DGRAM_NEEDS_SOCKETS();
  covers("fi_getinfo");
  const Info to = ask({}, {}, "127.0.0.1", "7471");
  ASSERT_TRUE(to);
  ASSERT_EQ(to->dest_addrlen, sizeof(sockaddr_in));
  sockaddr_in in;
  std::memcpy(&in, to->dest_addr, sizeof in);
  EXPECT_EQ(ntohs(in.sin_port), 7471);
  const Info from = ask({}, {}, "127.0.0.1", "7471", FI_SOURCE);
  ASSERT_TRUE(from);
  EXPECT_EQ(from->dest_addr, nullptr);
  std::memcpy(&in, from->src_addr, sizeof in);
  EXPECT_EQ(ntohs(in.sin_port), 7471);
  EXPECT_EQ(in.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}

TEST(DgramGetinfo, EveryThreadingAndProgressIsGivenAsAsked) {
  covers("fi_getinfo");
  for (auto threading : {FI_THREAD_SAFE, FI_THREAD_FID, FI_THREAD_ENDPOINT, FI_THREAD_COMPLETION,
                         FI_THREAD_DOMAIN}) {
    Options options;
    options.threading = threading;
    EXPECT_TRUE(find_info(options)) << threading;
  }
  for (auto progress : {FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL}) {
    Options options;
    options.progress = progress;
    const Info info = find_info(options);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->domain_attr->data_progress, progress);
  }
}

}  // namespace
}  // namespace weft::conformance::dgram
