// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/av.h"

#include <gtest/gtest.h>

#include "plugin-api/sdk/test_instance.h"

namespace weft::sdk {
namespace {

sockaddr_in peer(uint32_t number) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x0a000000 + number);
  address.sin_port = htons(7471);
  return address;
}

TEST(Av, KeepsWhatWasInserted) {
  TestDomain domain;
  fi_av_attr attr{};
  auto av = Av::open(domain.context, FI_SOCKADDR_IN, &attr, nullptr);
  ASSERT_TRUE(av) << av.error().text;
  EXPECT_EQ(attr.type, FI_AV_TABLE);
  std::vector<sockaddr_in> peers;
  for (uint32_t i = 0; i < 1000; ++i) peers.push_back(peer(i + 1));
  std::vector<fi_addr_t> out(1000);
  ASSERT_EQ((*av)->insert(peers.data(), 1000, out.data(), 0, nullptr), 1000);
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(out[i], i);
    EXPECT_EQ(*(*av)->address(i), SockAddr(peers[i]));
    EXPECT_EQ((*av)->find(SockAddr(peers[i])), i);
  }
  EXPECT_EQ((*av)->close(), 0);
}

}  // namespace
}  // namespace weft::sdk
