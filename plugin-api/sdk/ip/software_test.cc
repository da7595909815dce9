// SPDX-License-Identifier: BSD-2-Clause
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <weft/sdk/ip/software.h>

#include <cstdlib>

namespace weft::sdk::software_test {
namespace {

// An entry with all attributes, as the core makes them.
struct Entry {
  Entry() {
    info.tx_attr = &tx;
    info.rx_attr = &rx;
    info.ep_attr = &ep;
    info.domain_attr = &domain;
    info.fabric_attr = &fabric;
  }
  ~Entry() {
    std::free(domain.name);
    std::free(fabric.name);
    std::free(info.src_addr);
    std::free(info.dest_addr);
  }
  Entry(const Entry &) = delete;
  Entry &operator=(const Entry &) = delete;

  fi_info info{};
  fi_tx_attr tx{};
  fi_rx_attr rx{};
  fi_ep_attr ep{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};
};

constexpr uint64_t kTransmit = FI_MSG | FI_SEND, kReceive = FI_MSG | FI_RECV | FI_SOURCE;

void fill(Entry &entry, const fi_info *hints, int mr_mode = 0) {
  const IpPath path{"eth0", "10.1.0.0/16", SockAddr::any(AF_INET), {}, 1500};
  const Result<void> filled =
      fill_software_info(entry.info, path, {.api_version = FI_VERSION(1, 17), .hints = hints},
                         {.type = FI_EP_DGRAM,
                          .version = FI_VERSION(3, 4),
                          .transmit_caps = kTransmit,
                          .receive_caps = kReceive,
                          .mr_mode = mr_mode});
  ASSERT_TRUE(filled) << filled.error().text;
}

TEST(Software, SetsLimitsOfThePathAndTheOffer) {
  Entry entry;
  fill(entry, nullptr);
  EXPECT_EQ(entry.info.caps, kTransmit | kReceive | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV);
  EXPECT_EQ(entry.tx.caps, kTransmit);
  EXPECT_EQ(entry.rx.caps, kReceive);
  EXPECT_EQ(entry.domain.caps, uint64_t(FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SHARED_AV));
  EXPECT_EQ(entry.ep.type, FI_EP_DGRAM);
  EXPECT_STREQ(entry.domain.name, "eth0");
  EXPECT_STREQ(entry.fabric.name, "10.1.0.0/16");
  EXPECT_EQ(entry.fabric.prov_version, FI_VERSION(3, 4));
  EXPECT_EQ(entry.fabric.api_version, FI_VERSION(1, 17));
  EXPECT_EQ(entry.info.addr_format, uint32_t(FI_SOCKADDR_IN));
  EXPECT_EQ(entry.info.src_addrlen, sizeof(sockaddr_in));
  EXPECT_EQ(entry.info.dest_addr, nullptr);
  EXPECT_EQ(entry.domain.threading, FI_THREAD_SAFE);
  EXPECT_EQ(entry.domain.resource_mgmt, FI_RM_ENABLED);
  EXPECT_EQ(entry.tx.size + entry.rx.size + entry.ep.max_msg_size + entry.domain.cq_data_size, 0u)
      << "the protocol sets them";
}

// FI_AV_USER_ID and FI_PEER of the receives are capabilities of the domain too.
TEST(Software, UserIdsAndPeersAreDomainCapabilitiesToo) {
  Entry entry;
  const IpPath path{"eth0", "10.1.0.0/16", SockAddr::any(AF_INET), {}, 1500};
  const uint64_t receive = kReceive | FI_AV_USER_ID | FI_PEER;
  ASSERT_TRUE(fill_software_info(
      entry.info, path, {},
      {.type = FI_EP_RDM, .version = 1, .transmit_caps = kTransmit, .receive_caps = receive}));
  EXPECT_EQ(entry.domain.caps,
            uint64_t(FI_LOCAL_COMM | FI_REMOTE_COMM | FI_AV_USER_ID | FI_PEER | FI_SHARED_AV));
  EXPECT_EQ(entry.info.caps & receive, receive);
}

TEST(Software, TakesTheProgressOfTheHints) {
  for (const bool automatic : {false, true}) {
    Entry hints, entry;
    hints.domain.control_progress = automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_UNSPEC;
    hints.domain.data_progress = automatic ? FI_PROGRESS_UNSPEC : FI_PROGRESS_AUTO;
    fill(entry, &hints.info);
    EXPECT_EQ(entry.domain.control_progress, automatic ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL);
    EXPECT_EQ(entry.domain.data_progress, automatic ? FI_PROGRESS_MANUAL : FI_PROGRESS_AUTO);
  }
  Entry bare, entry;
  bare.info.domain_attr = nullptr;
  fill(entry, &bare.info);
  EXPECT_EQ(entry.domain.data_progress, FI_PROGRESS_MANUAL);
}

TEST(Software, TakesTheMrModeOfTheHints) {
  const auto given = [](int wanted, int offered) {
    Entry hints, entry;
    hints.domain.mr_mode = wanted;
    fill(entry, &hints.info, offered);
    return entry.domain.mr_mode;
  };
  EXPECT_EQ(given(0, FI_MR_PROV_KEY), 0);
  EXPECT_EQ(given(FI_MR_PROV_KEY | FI_MR_LOCAL, FI_MR_PROV_KEY), FI_MR_PROV_KEY);
  EXPECT_EQ(given(FI_MR_PROV_KEY | FI_MR_LOCAL, 0), 0);
  EXPECT_EQ(given(FI_MR_BASIC, FI_MR_PROV_KEY), FI_MR_BASIC);
  EXPECT_EQ(given(FI_MR_SCALABLE, 0), FI_MR_SCALABLE);
}

}  // namespace
}  // namespace weft::sdk::software_test
