// SPDX-License-Identifier: BSD-2-Clause
// Native InfiniBand addresses (FI_SOCKADDR_IB), over a device of the double with that link layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/ib.h>
#include <rdma/rdma_cma.h>

#include "plugins/verbs/paths.h"
#include "plugins/verbs/private_data.h"
#include "plugins/verbs/test_link.h"

namespace weft::verbs {
namespace {

using testing::HasSubstr;

sdk::Address native(const char *text) {
  const std::string whole = "fi_sockaddr_ib://" + std::string(text);
  return sdk::read_address(FI_ADDR_STR, whole.c_str(), whole.size() + 1).value();
}

// What a request to `local` brings: the parameter, or "" if there is none.
std::string read_request(const std::string &delivered, const sdk::Address &local) {
  const std::string_view data = behind_ip_header(delivered, local);
  return std::string(read_private_data(data.data(), data.size()));
}

TEST(VerbsRequestData, HasTheHeaderBetweenNativeAddressesOnly) {
  const PrivateData data("hello");
  const sdk::Address a = native("[fe80::1]:0xffff:0x106:0x0?sid=0x1061234");
  const sdk::Address b = native("[fe80::2]:0xffff:0x106:0x0?sid=0x1064321");
  const RequestData request(data, a, b);
  ASSERT_EQ(request.bytes().size(), kIpHeaderSize + 6);
  // The header of the RDMA IP CM service (InfiniBand, annex A11): version 0, no version of IP, the
  // source's port, both GIDs.
  const uint8_t head[] = {0, 0, 0x12, 0x34, 0xfe, 0x80};
  EXPECT_EQ(std::memcmp(request.bytes().data(), head, sizeof head), 0);
  EXPECT_EQ(request.bytes()[19], 1);
  EXPECT_EQ(request.bytes()[35], 2);
  EXPECT_EQ(request.bytes()[36], 5);
  const RequestData plain(data, *sdk::SockAddr::from_ip("10.0.0.1"),
                          *sdk::SockAddr::from_ip("10.0.0.2"));
  EXPECT_EQ(plain.bytes().size(), 6u);
  const RequestData most(PrivateData(std::string(60, 'x')), a, b);
  EXPECT_EQ(most.bytes().size(), 92u);
}

TEST(VerbsRequestData, AHeaderThatIsCutIsNoParameter) {
  const sdk::Address local = native("[fe80::1]");
  std::string delivered(92, '\0');
  delivered[36] = 2;
  delivered[37] = 'h';
  delivered[38] = 'i';
  EXPECT_EQ(read_request(delivered, local), "hi");
  EXPECT_EQ(read_request(delivered.substr(0, 38), local), "");
  EXPECT_EQ(read_request(delivered.substr(0, 36), local), "");
  EXPECT_EQ(read_request(delivered.substr(0, 3), local), "");
  EXPECT_EQ(read_request("", local), "");
}

// Two sides over one device whose link layer is InfiniBand.
class VerbsInfiniBand : public testing::Test {
 protected:
  void listen() {
    fi_info hints{};
    hints.mode = FI_RX_CQ_DATA;
    hints.addr_format = FI_SOCKADDR_IB;
    ASSERT_NO_FATAL_FAILURE(b.open({.hints = &hints}));
    ASSERT_EQ(fi_passive_ep(b.fabric, b.info, &b.pep, nullptr), 0);
    ASSERT_EQ(fi_pep_bind(b.pep, &b.eq->fid, 0), 0);
    ASSERT_EQ(fi_listen(b.pep), 0) << test_log();
    size_t size = sizeof address;
    ASSERT_EQ(fi_getname(&b.pep->fid, &address, &size), 0);
    ASSERT_EQ(size, sizeof address);
  }
  void start(const std::string &parameter) {
    fi_info hints{};
    hints.mode = FI_RX_CQ_DATA;
    hints.addr_format = FI_SOCKADDR_IB;
    hints.dest_addr = &address;
    hints.dest_addrlen = sizeof address;
    ASSERT_NO_FATAL_FAILURE(a.open({.hints = &hints}));
    a.make_endpoint(a.info);
    ASSERT_EQ(fi_connect(a.ep, &address, parameter.data(), parameter.size()), 0) << test_log();
  }
  TestEvent next(TestSide &side) {
    for (int i = 0; i < 8; ++i) {
      if (auto event = side.event()) return *event;
      TestSide &other = &side == &a ? b : a;
      if (other.cq != nullptr) fi_cq_read(other.cq, nullptr, 0);
    }
    ADD_FAILURE() << "no event: " << test_log();
    return {};
  }

  TestNode node{{}, {.addresses = {}, .infiniband = true}};
  TestSide a{node, {}}, b{node, {}};
  sockaddr_ib address{};
};

TEST_F(VerbsInfiniBand, ADeviceWithoutAddressesOfIpIsOfferedByItsGid) {
  auto list = a.provider.getinfo({});
  ASSERT_TRUE(list) << list.error().text;
  const fi_info *const info = list->front();
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->addr_format, uint32_t(FI_SOCKADDR_IB));
  ASSERT_EQ(info->src_addrlen, sizeof(sockaddr_ib));
  const auto &name = *static_cast<const sockaddr_ib *>(info->src_addr);
  EXPECT_EQ(name.sib_family, AF_IB);
  EXPECT_EQ(be64toh(name.sib_sid), RDMA_IB_IP_PS_TCP);
}

TEST_F(VerbsInfiniBand, AnotherGidOrFormatHasNoSuchEntry) {
  fi_info hints{};
  hints.addr_format = FI_SOCKADDR_IB;
  const sdk::Address other = native("[fe80::77]:0xffff:0x106:0x0");
  hints.src_addr = const_cast<void *>(other.data());
  hints.src_addrlen = other.size();
  EXPECT_THAT(a.provider.getinfo({.hints = &hints}).error().text, HasSubstr("this GID"));
  fi_info ip{};
  ip.addr_format = FI_SOCKADDR_IN;
  EXPECT_FALSE(a.provider.getinfo({.hints = &ip}));
}

TEST_F(VerbsInfiniBand, APeerThatNoDeviceLeadsToIsNotFound) {
  fi_info hints{};
  hints.addr_format = FI_SOCKADDR_IB;
  const sdk::Address other = native("[fe80::77]:0xffff:0x106:0x0?sid=0x1061234");
  hints.dest_addr = const_cast<void *>(other.data());
  hints.dest_addrlen = other.size();
  EXPECT_THAT(a.provider.getinfo({.hints = &hints}).error().text, HasSubstr("fe80::77"));
}

TEST_F(VerbsInfiniBand, BothSidesAreToldWithTheParameters) {
  ASSERT_NO_FATAL_FAILURE(listen());
  ASSERT_NO_FATAL_FAILURE(start(std::string(55, 'q')));
  EXPECT_FALSE(a.event());
  EXPECT_FALSE(a.event());
  const TestEvent request = next(b);
  ASSERT_EQ(request.type, uint32_t(FI_CONNREQ));
  EXPECT_EQ(request.data, std::string(55, 'q'));
  ASSERT_NE(request.info, nullptr);
  EXPECT_EQ(request.info->addr_format, uint32_t(FI_SOCKADDR_IB));
  b.make_endpoint(request.info);
  free_info(request.info);
  ASSERT_EQ(fi_accept(b.ep, "to a", 4), 0);
  EXPECT_EQ(next(a).data, "to a");
  EXPECT_EQ(next(b).type, uint32_t(FI_CONNECTED));
  sockaddr_ib peer{};
  size_t size = sizeof peer;
  ASSERT_EQ(fi_getpeer(a.ep, &peer, &size), 0);
  EXPECT_EQ(peer.sib_sid, address.sib_sid);
  Buffer in(b, 16), out(a, 16, "over InfiniBand");
  ASSERT_EQ(fi_recv(b.ep, in.data(), 16, in.desc(), 0, nullptr), 0);
  ASSERT_EQ(fi_send(a.ep, out.data(), 15, out.desc(), 0, nullptr), 0);
  EXPECT_EQ(b.completion().len, 15u);
  EXPECT_EQ(in.text(15), "over InfiniBand");
}

TEST_F(VerbsInfiniBand, ARejectionHasNoHeader) {
  ASSERT_NO_FATAL_FAILURE(listen());
  ASSERT_NO_FATAL_FAILURE(start("x"));
  EXPECT_FALSE(a.event());
  EXPECT_FALSE(a.event());
  const TestEvent request = next(b);
  ASSERT_NE(request.info, nullptr);
  ASSERT_EQ(fi_reject(b.pep, request.info->handle, "no", 2), 0);
  free_info(request.info);
  const TestEvent refused = next(a);
  EXPECT_EQ(refused.err, FI_ECONNREFUSED);
  EXPECT_EQ(refused.data, "no");
}

TEST(VerbsInfiniBandRoce, ADeviceOnEthernetHasNoSuchAddress) {
  TestNode node;
  TestSide side(node, {});
  fi_info hints{};
  hints.addr_format = FI_SOCKADDR_IB;
  const auto list = side.provider.getinfo({.hints = &hints});
  ASSERT_FALSE(list);
  EXPECT_THAT(list.error().text, HasSubstr("link layer is InfiniBand"));
}

}  // namespace
}  // namespace weft::verbs
