// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/unit/info_list.h>

#include "plugins/verbs/paths.h"
#include "plugins/verbs/test_node.h"

namespace weft::verbs {
namespace {

DeviceFacts some_device() {
  DeviceFacts facts;
  facts.name = "dev0";
  facts.firmware = "1.2.3";
  facts.vendor = 0x15b3;
  facts.port_active = true;
  facts.mtu = 4096;
  facts.speed = 100'000'000'000;
  facts.gid_prefix = 0xfe80000000000000;
  facts.addresses = {*sdk::SockAddr::from_ip("10.0.0.1"), *sdk::SockAddr::from_ip("fd00::1")};
  facts.max_message_size = 1 << 30;
  facts.max_queue_pairs = 100;
  facts.max_queue_entries = 300;
  facts.max_sges = 3;
  facts.max_cqs = 50;
  facts.max_cq_entries = 4000;
  facts.max_regions = 70;
  facts.max_shared_queues = 10;
  facts.max_inline = 128;
  facts.has_atomics = true;
  return facts;
}

// The entry for the first address of `facts`, as an answer to `hints`.
class Offer {
 public:
  explicit Offer(const DeviceFacts &facts, const fi_info *hints = nullptr) : list_(&kTestCore) {
    const auto paths = source_paths({facts}, {}, AF_UNSPEC);
    EXPECT_FALSE(paths.empty());
    fi_info *const info = list_.add().value();
    const auto filled = fill_message_info(*info, paths.front(), {.hints = hints}, Sizes{});
    EXPECT_TRUE(filled) << filled.error().text;
  }
  const fi_info *operator->() const { return list_.front(); }

 private:
  sdk::InfoList list_;
};

TEST(VerbsFacts, LimitsAreThoseOfTheDevice) {
  const Offer offer(some_device());
  EXPECT_EQ(offer->tx_attr->size, 300u);
  EXPECT_EQ(offer->rx_attr->size, 300u);
  EXPECT_EQ(offer->tx_attr->iov_limit, 3u);
  EXPECT_EQ(offer->tx_attr->inject_size, 128u);
  EXPECT_EQ(offer->ep_attr->max_msg_size, size_t(1) << 30);
  EXPECT_EQ(offer->domain_attr->ep_cnt, 100u);
  EXPECT_EQ(offer->domain_attr->cq_cnt, 50u);
  EXPECT_EQ(offer->domain_attr->mr_cnt, 70u);
  EXPECT_EQ(offer->domain_attr->mr_key_size, 4u);
  EXPECT_EQ(offer->domain_attr->cq_data_size, 4u);
  EXPECT_EQ(offer->domain_attr->cntr_cnt, 0u);
  EXPECT_EQ(offer->ep_attr->protocol, uint32_t(FI_PROTO_RDMA_CM_IB_RC));
  EXPECT_STREQ(offer->fabric_attr->name, "IB-0xfe80000000000000");
  EXPECT_STREQ(offer->domain_attr->name, "dev0");
}

// The core answers applications that ask for FI_MR_BASIC.
TEST(VerbsFacts, LocalMemoryIsRegisteredInEveryForm) {
  EXPECT_EQ(Offer(some_device())->domain_attr->mr_mode,
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
  fi_domain_attr domain{};
  domain.mr_mode = FI_MR_BASIC;
  fi_info hints{};
  hints.domain_attr = &domain;
  EXPECT_EQ(Offer(some_device(), &hints)->domain_attr->mr_mode,
            FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
}

TEST(VerbsFacts, AWriteWithDataTakesAReceiveSoMemoryAccessNeedsTheMode) {
  fi_info hints{};
  EXPECT_EQ(Offer(some_device(), &hints)->caps & FI_RMA, 0u);
  EXPECT_EQ(Offer(some_device(), &hints)->mode & FI_RX_CQ_DATA, 0u);
  hints.mode = FI_RX_CQ_DATA;
  EXPECT_NE(Offer(some_device(), &hints)->caps & FI_RMA, 0u);
  EXPECT_NE(Offer(some_device(), &hints)->mode & FI_RX_CQ_DATA, 0u);
  // Asked for memory access: the entry says which mode is missing.
  hints.mode = 0;
  hints.caps = FI_RMA;
  EXPECT_NE(Offer(some_device(), &hints)->mode & FI_RX_CQ_DATA, 0u);
}

TEST(VerbsFacts, IwarpHasNoDataNoAtomicsNoRepeatsAndItsOwnProtocol) {
  DeviceFacts facts = some_device();
  facts.transport = Transport::kIwarp;
  facts.has_atomics = false;
  const Offer offer(facts);
  EXPECT_EQ(offer->domain_attr->cq_data_size, 0u);
  EXPECT_EQ(offer->caps & FI_ATOMIC, 0u);
  EXPECT_EQ(offer->mode & FI_RX_CQ_DATA, 0u);
  EXPECT_EQ(offer->domain_attr->resource_mgmt, FI_RM_DISABLED);
  EXPECT_EQ(offer->ep_attr->protocol, uint32_t(FI_PROTO_IWARP));
  EXPECT_STREQ(offer->fabric_attr->name, "Ethernet-iWARP");
}

TEST(VerbsFacts, TheNicIsTheDeviceItsBusAndItsLink) {
  DeviceFacts facts = some_device();
  facts.pci = parse_pci("0000:3b:00.1");
  const Offer offer(facts);
  ASSERT_NE(offer->nic, nullptr);
  EXPECT_STREQ(offer->nic->device_attr->name, "dev0");
  EXPECT_STREQ(offer->nic->device_attr->vendor_id, "0x15b3");
  EXPECT_STREQ(offer->nic->device_attr->firmware, "1.2.3");
  EXPECT_EQ(offer->nic->bus_attr->bus_type, FI_BUS_PCI);
  EXPECT_EQ(offer->nic->bus_attr->attr.pci.bus_id, 0x3b);
  EXPECT_EQ(offer->nic->bus_attr->attr.pci.function_id, 1);
  EXPECT_EQ(offer->nic->link_attr->mtu, 4096u);
  EXPECT_EQ(offer->nic->link_attr->speed, size_t(100'000'000'000));
  EXPECT_EQ(offer->nic->link_attr->state, FI_LINK_UP);
  EXPECT_STREQ(offer->nic->link_attr->network_type, "Ethernet");
}

TEST(VerbsFacts, APciAddressIsReadWholeOrNotAtAll) {
  EXPECT_FALSE(parse_pci(""));
  EXPECT_FALSE(parse_pci("rdma0"));
  EXPECT_FALSE(parse_pci("0000:3b:00.1x"));
  ASSERT_TRUE(parse_pci("0001:af:1f.7"));
  EXPECT_EQ(parse_pci("0001:af:1f.7")->domain_id, 1);
  EXPECT_EQ(parse_pci("0001:af:1f.7")->device_id, 0x1f);
}

TEST(VerbsFacts, TheSpeedIsLanesTimesTheSpeedOfALane) {
  EXPECT_EQ(link_speed(2, 32), uint64_t(100'000'000'000));
  EXPECT_EQ(link_speed(1, 1), uint64_t(2'500'000'000));
  EXPECT_EQ(link_speed(0, 32), 0u);
  EXPECT_EQ(link_speed(2, 3), 0u);
}

TEST(VerbsPaths, EachAddressOfEachActiveDeviceIsAPath) {
  DeviceFacts down = some_device();
  down.name = "down0";
  down.port_active = false;
  const auto paths = source_paths({some_device(), down}, {}, AF_UNSPEC);
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[0].source.to_string(), "10.0.0.1:0");
  EXPECT_EQ(paths[1].source.to_string(), "[fd00::1]:0");
  EXPECT_EQ(source_paths({some_device()}, {}, AF_INET6).size(), 1u);
}

TEST(VerbsPaths, APortAloneStandsForAllAddresses) {
  const auto paths = source_paths({some_device()}, {sdk::SockAddr::any(AF_INET, 7000)}, AF_UNSPEC);
  ASSERT_EQ(paths.size(), 1u);
  EXPECT_EQ(paths[0].source.to_string(), "10.0.0.1:7000");
  EXPECT_TRUE(
      source_paths({some_device()}, {*sdk::SockAddr::from_ip("10.0.0.2")}, AF_UNSPEC).empty());
}

}  // namespace
}  // namespace weft::verbs
