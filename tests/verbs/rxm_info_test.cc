// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo answers for verbs;ofi_rxm: as stock libfabric 1.17 does over soft-RoCE.
#include <rdma/fi_domain.h>

#include "tests/conformance/common.h"
#include "tests/verbs/network.h"

namespace weft::conformance {
namespace {

constexpr int kKeys = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
constexpr int kAll = FI_MR_LOCAL | FI_MR_ALLOCATED | kKeys;
constexpr uint64_t kReached = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr uint32_t kOld = FI_VERSION(1, 4), kNew = FI_VERSION(1, 17);

Info ask(const std::function<void(fi_info &)> &change, uint32_t api = kNew) {
  Info hints = make_hints(Options{.type = FI_EP_RDM, .caps = 0});
  change(*hints);
  Info info;
  const int rc = try_info(info, test_node(), nullptr, FI_SOURCE, hints.get(), api);
  EXPECT_TRUE(rc == 0 || rc == -FI_ENODATA) << rc;
  return info;
}
Info ask(int mr_mode, uint64_t caps = 0, uint32_t api = kNew) {
  return ask(
      [&](fi_info &hints) {
        hints.domain_attr->mr_mode = mr_mode;
        hints.caps = caps;
      },
      api);
}

TEST(RxmOverVerbsInfo, RegistrationIsPassedUpAsTheApplicationCan) {
  EXPECT_EQ(ask(kAll)->domain_attr->mr_mode, kAll);
  EXPECT_EQ(ask(kAll | FI_MR_ENDPOINT | FI_MR_RAW)->domain_attr->mr_mode, kAll);
  // Local memory is registered by rxm, or by an application that says that it does.
  EXPECT_EQ(ask(kAll & ~FI_MR_LOCAL)->domain_attr->mr_mode, kAll & ~FI_MR_LOCAL);
  EXPECT_EQ(ask(FI_MR_BASIC)->domain_attr->mr_mode, FI_MR_BASIC);
  EXPECT_EQ(ask(0, 0, kOld)->domain_attr->mr_mode, FI_MR_BASIC);
  for (const int able : {kAll, kAll & ~FI_MR_LOCAL, int(FI_MR_BASIC)})
    EXPECT_EQ(ask(able)->caps & kReached, kReached) << able;
}

TEST(RxmOverVerbsInfo, WithoutTheDevicesKeysNoPeerReachesMemory) {
  for (const int able : {0, int(FI_MR_LOCAL), int(FI_MR_ALLOCATED), kAll & ~FI_MR_VIRT_ADDR,
                         kAll & ~FI_MR_PROV_KEY}) {
    const Info all = ask(able);
    ASSERT_NE(all, nullptr) << able;
    EXPECT_EQ(all->caps & kReached, 0u) << able;
    EXPECT_EQ(all->rx_attr->caps & (kReached | FI_RMA), 0u) << able;
    EXPECT_EQ(all->caps & (FI_RMA | FI_READ | FI_WRITE), uint64_t(FI_RMA | FI_READ | FI_WRITE));
    EXPECT_EQ(all->domain_attr->mr_mode & ~able, 0) << able;
    EXPECT_EQ(ask(able, FI_RMA), nullptr) << able;
    EXPECT_EQ(ask(able, FI_MSG | FI_TAGGED | FI_RMA), nullptr) << able;
    EXPECT_EQ(ask(able, FI_ATOMIC), nullptr) << able;
    EXPECT_NE(ask(able, FI_MSG), nullptr) << able;
    EXPECT_NE(ask(able, FI_TAGGED), nullptr) << able;
    EXPECT_NE(ask(able, FI_MSG | FI_SOURCE | FI_DIRECTED_RECV), nullptr) << able;
    EXPECT_NE(ask(able, FI_MULTI_RECV), nullptr) << able;
    EXPECT_NE(ask(able, FI_RMA | FI_READ | FI_WRITE), nullptr) << able;
  }
  EXPECT_EQ(ask(FI_MR_SCALABLE, FI_RMA), nullptr);
}

TEST(RxmOverVerbsInfo, CapabilitiesAreThoseOfTheDeviceAndOfRxm) {
  const Info info = ask(kAll);
  const uint64_t usual = FI_MSG | FI_RMA | FI_TAGGED | FI_READ | FI_WRITE | FI_RECV | FI_SEND |
                         kReached | FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM;
  EXPECT_EQ(info->caps & usual, usual);
  EXPECT_EQ(info->caps & (FI_ATOMIC | FI_RMA_EVENT), 0u);
  EXPECT_EQ(info->mode, 0u);
  EXPECT_EQ(info->ep_attr->protocol, uint32_t(FI_PROTO_RXM));
  EXPECT_EQ(info->tx_attr->inject_size, 192u);
  EXPECT_EQ(info->tx_attr->rma_iov_limit, 1u);
  EXPECT_EQ(info->domain_attr->cq_data_size, 4u);
  EXPECT_EQ(info->domain_attr->mr_key_size, 4u);
  ASSERT_NE(info->nic, nullptr);
  EXPECT_STREQ(info->nic->device_attr->name, "dbl0");
  EXPECT_NE(ask(kAll, FI_ATOMIC), nullptr);  // rxm's own
  // The device counts nothing.
  EXPECT_EQ(ask(kAll, FI_RMA_EVENT), nullptr);
  EXPECT_EQ(ask(kAll, FI_RMA | FI_RMA_EVENT), nullptr);
  // Modes of the device are taken over.
  for (const uint64_t mode : {UINT64_C(0), uint64_t(FI_CONTEXT), uint64_t(FI_RX_CQ_DATA)})
    EXPECT_EQ(ask([&](fi_info &hints) {
                hints.domain_attr->mr_mode = kAll;
                hints.mode = mode;
              })->mode,
              0u);
  // rxm has counters of its own.
  EXPECT_NE(ask([](fi_info &hints) { hints.domain_attr->cntr_cnt = 3; }), nullptr);
}

TEST(RxmOverVerbsInfo, RemoteDataIsThatOfTheDeviceOrOfPackets) {
  const auto with_data = [](size_t size, uint64_t caps) {
    return ask([&](fi_info &hints) {
      hints.domain_attr->mr_mode = kAll;
      hints.domain_attr->cq_data_size = size;
      hints.caps = caps;
    });
  };
  EXPECT_NE(with_data(4, FI_MSG | FI_RMA), nullptr);
  EXPECT_EQ(with_data(8, FI_MSG | FI_RMA), nullptr);
  EXPECT_NE(with_data(8, FI_MSG | FI_TAGGED), nullptr);
}

TEST(RxmOverVerbsInfo, OrdersAreThoseThatStockAnswers) {
  for (const uint64_t order :
       {FI_ORDER_RAR, FI_ORDER_RAW, FI_ORDER_RAS, FI_ORDER_WAW, FI_ORDER_WAS, FI_ORDER_SAW,
        FI_ORDER_SAS, FI_ORDER_RMA_RAR, FI_ORDER_RMA_RAW, FI_ORDER_RMA_WAW, FI_ORDER_ATOMIC_RAR,
        FI_ORDER_ATOMIC_RAW, FI_ORDER_ATOMIC_WAW})
    EXPECT_NE(ask([&](fi_info &hints) {
                hints.domain_attr->mr_mode = kAll;
                hints.tx_attr->msg_order = order;
              }),
              nullptr)
        << std::hex << order;
}

TEST(RxmOverVerbsInfo, ADeviceWithoutSharedReceivesAndInlineData) {
  const Info hints = make_hints(Options{.type = FI_EP_RDM, .caps = 0, .mr_mode = kAll});
  const Info info = get_info(kPlain, nullptr, FI_SOURCE, hints.get(), kNew);
  EXPECT_EQ(info->tx_attr->inject_size, 64u);
  EXPECT_NE(info->domain_attr->max_ep_srx_ctx, 0u);  // they are rxm's
}

}  // namespace
}  // namespace weft::conformance
