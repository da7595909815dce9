// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/addresses/address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_set>

#include "plugin-api/sdk/addresses/address_codec.h"
#include "plugin-api/sdk/testing/test_addresses.h"
#include "weft/sdk/ip/sock_addr.h"
#if __has_include(<infiniband/ib.h>)
#include <infiniband/ib.h>
#endif

namespace weft::sdk {
namespace {

using ::testing::HasSubstr;

Address peer_ip(std::string_view text, uint16_t port = 0) {
  return SockAddr::from_ip(text, port).value();
}
Address from_text(const char *text) {
  return read_address(FI_ADDR_STR, text).value();
}
unsigned reason_length(const Result<Address> &address) {
  return address ? 0 : unsigned(address.error().text.size());
}

#if __has_include(<infiniband/ib.h>)
TEST(AddressCodecs, KnowTheLayoutOfSockaddrIb) {
  static_assert(sizeof(sockaddr_ib) == ib::kSize && kFamilyIb == AF_IB);
  EXPECT_EQ(offsetof(sockaddr_ib, sib_pkey), ib::kPartition);
  EXPECT_EQ(offsetof(sockaddr_ib, sib_flowinfo), ib::kFlow);
  EXPECT_EQ(offsetof(sockaddr_ib, sib_addr), ib::kGid);
  EXPECT_EQ(offsetof(sockaddr_ib, sib_sid), ib::kService);
  EXPECT_EQ(offsetof(sockaddr_ib, sib_sid_mask), ib::kServiceMask);
  EXPECT_EQ(offsetof(sockaddr_ib, sib_scope_id), ib::kScope);
}
#endif

TEST(Address, NoneIsNoPeer) {
  const Address none;
  EXPECT_EQ(none.size(), 0u);
  EXPECT_EQ(none.format(), uint32_t(FI_FORMAT_UNSPEC));
  EXPECT_EQ(none.to_string(), "unspecified");
  EXPECT_TRUE(none.is_any());
  EXPECT_FALSE(none.names_peer());
  EXPECT_FALSE(none.has_port());
  EXPECT_EQ(none, Address(SockAddr()));
  EXPECT_FALSE(SockAddr::from(none));
}

TEST(Address, OfASocketAndBack) {
  for (const char *text : {"10.0.0.1", "fe80::1%7", "::1", "0.0.0.0"}) {
    const SockAddr socket = SockAddr::from_ip(text, 7471).value();
    const Address address = socket;
    EXPECT_EQ(SockAddr::from(address).value(), socket);
    EXPECT_EQ(address.to_string(), socket.to_string());
    EXPECT_EQ(address.port(), 7471);
    EXPECT_EQ(address.is_any(), socket.is_any());
    EXPECT_EQ(address.is_loopback(), socket.is_loopback());
    EXPECT_EQ(address.size(), socket.size());
    EXPECT_EQ(std::memcmp(address.data(), socket.c(), socket.size()), 0);
    EXPECT_EQ(read_address(FI_SOCKADDR, socket.c(), socket.size()).value(), address);
  }
  sockaddr_in6 flow{};
  flow.sin6_family = AF_INET6;
  flow.sin6_flowinfo = 77;
  EXPECT_EQ(Address(SockAddr(flow)), peer_ip("::"));
  EXPECT_EQ(read_address(FI_SOCKADDR_IN6, &flow).value(), peer_ip("::")) << "a flow label";
  sockaddr_in padded{};
  padded.sin_family = AF_INET;
  std::memset(padded.sin_zero, 7, sizeof padded.sin_zero);
  EXPECT_EQ(read_address(FI_SOCKADDR_IN, &padded).value(), peer_ip("0.0.0.0"));
  EXPECT_EQ(Address(SockAddr(padded)).hash(), peer_ip("0.0.0.0").hash());
  const auto ud = SockAddr::from(numbered_address(FI_ADDR_IB_UD, 1));
  EXPECT_THAT(ud.error().text, HasSubstr("fi_addr_ib_ud://"));
  EXPECT_EQ(ud.error().code, FI_EINVAL);
}

TEST(Address, ComparesAsItsSocketAddressDoes) {
  const char *texts[] = {"10.0.0.1", "9.0.0.1", "127.0.0.1", "::", "fe80::1%1", "fe80::1%2", "::1"};
  std::vector<SockAddr> all;
  for (const char *text : texts)
    for (const uint16_t port : {1, 2, 256}) all.push_back(SockAddr::from_ip(text, port).value());
  for (const SockAddr &a : all) {
    for (const SockAddr &b : all) {
      EXPECT_EQ(Address(a) == Address(b), a == b);
      EXPECT_TRUE((Address(a) <=> Address(b)) == (a <=> b));
      for (const unsigned bits : {0u, 7u, 8u, 31u, 32u, 33u, 100u, 128u, 129u})
        EXPECT_EQ(Address(a).same_prefix(b, bits), a.same_prefix(b, bits)) << bits;
    }
  }
}

TEST(Address, ComparesByValueInEveryFormat) {
  std::mt19937 random(4711);
  for (const uint32_t format : kNativeFormats) {
    std::unordered_set<Address, AddressHash> set;
    std::set<Address> ordered;
    for (uint32_t n = 0; n < 2000; ++n) {
      const Address address = numbered_address(format, n);
      EXPECT_TRUE(set.insert(address).second);
      EXPECT_TRUE(ordered.insert(address).second);
    }
    for (uint32_t n = 0; n < 2000; ++n) EXPECT_TRUE(set.contains(numbered_address(format, n)));
    for (int i = 0; i < 500; ++i) {
      const Address a = some_address(format, random), b = some_address(format, random);
      EXPECT_EQ(a == b, (a <=> b) == 0);
      EXPECT_EQ(a<b, b> a);
      const Address copy = a;
      EXPECT_EQ(copy, a);
      EXPECT_EQ(copy.hash(), a.hash());
    }
  }
  EXPECT_NE(Address(SockAddr::any(AF_INET)), Address(SockAddr::any(AF_INET6)));
}

TEST(Address, PortsBelongToSocketFormats) {
  for (const uint32_t format : {FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_SOCKADDR_IB}) {
    const Address address = numbered_address(format, 5);
    const Address moved = address.with_port(0x1234).value();
    EXPECT_EQ(moved.port(), 0x1234);
    EXPECT_NE(moved, address);
    EXPECT_EQ(moved.with_port(address.port()).value(), address);
    EXPECT_TRUE(moved.same_prefix(address, unsigned(8 * address.host().size())));
  }
  // The port of FI_SOCKADDR_IB is the lowest part of its service id; the port space stays.
  EXPECT_EQ(from_text("fi_sockaddr_ib://[fe80::1]:0xffff:0x106:0x0").with_port(7471)->to_string(),
            "fi_sockaddr_ib://[fe80::1]:0xffff:0x106:0x0?sid=0x1061d2f");
  for (const uint32_t format : {FI_ADDR_IB_UD, FI_ADDR_CXI}) {
    const Address address = numbered_address(format, 5);
    EXPECT_FALSE(address.has_port());
    EXPECT_EQ(address.port(), 0);
    EXPECT_THAT(address.with_port(1).error().text, HasSubstr("has no port"));
  }
}

TEST(Address, SaysWhetherOneCanSendToIt) {
  EXPECT_TRUE(peer_ip("10.0.0.1", 1).names_peer());
  EXPECT_FALSE(peer_ip("10.0.0.1").names_peer());
  EXPECT_FALSE(peer_ip("0.0.0.0", 1).names_peer());
  EXPECT_FALSE(peer_ip("::", 1).names_peer());
  EXPECT_FALSE(peer_ip("::1", 0).names_peer());
  EXPECT_TRUE(from_text("fi_sockaddr_ib://[fe80::1]:0xffff:0x106:0").names_peer());
  EXPECT_FALSE(from_text("fi_sockaddr_ib://[::]:0xffff:0x106:0").names_peer());
  EXPECT_FALSE(from_text("fi_sockaddr_ib://[fe80::1]").names_peer()) << "no service";
  EXPECT_TRUE(from_text("fi_sockaddr_ib://[::]").is_any());
  EXPECT_TRUE(from_text("fi_addr_ib_ud://fe80::1:11/0/ffff/0").names_peer());
  EXPECT_TRUE(from_text("fi_addr_ib_ud://:::11/4/ffff/0").names_peer()) << "by its LID";
  EXPECT_TRUE(from_text("fi_addr_ib_ud://fe80:::11/4/ffff/0").names_peer());
  EXPECT_FALSE(from_text("fi_addr_ib_ud://fe80:::11/0/ffff/0").names_peer());
  EXPECT_FALSE(from_text("fi_addr_ib_ud://fe80::1:0/4/ffff/0").names_peer());
  EXPECT_TRUE(from_text("fi_addr_cxi://0x201").names_peer());
  EXPECT_FALSE(from_text("fi_addr_cxi://0x3ff").names_peer()) << "any PID";
  EXPECT_FALSE(from_text("fi_addr_cxi://0").is_any());
}

// ---- bytes ----

TEST(AddressFormats, WhatIsWrittenIsReadBack) {
  std::mt19937 random(1);
  for (const uint32_t format : kNativeFormats) {
    for (int i = 0; i < 2000; ++i) {
      const Address address = some_address(format, random);
      ASSERT_EQ(address.format(), format);
      char buffer[300];
      for (const uint32_t as : {format, uint32_t(FI_ADDR_STR)}) {
        size_t length = sizeof buffer;
        ASSERT_EQ(write_address(address, as, buffer, &length), 0);
        ASSERT_EQ(length, address_length(address, as));
        ASSERT_EQ(read_address(as, buffer, length).value(), address) << address.to_string();
        ASSERT_EQ(read_address(as, buffer).value(), address);
      }
    }
  }
}

TEST(AddressFormats, NamesWithinAHost) {
  const Address name = from_text("fi_shm://17:0:3");
  EXPECT_EQ(name.format(), kHostName);
  EXPECT_EQ(from_text("fi_ns://17:0:3"), name) << "the same name";
  EXPECT_EQ(format_address_string(name), "fi_shm://17:0:3");
  EXPECT_NE(from_text("fi_shm://17:0:4"), name);
  EXPECT_FALSE(from_text("fi_shm://").names_peer());
  EXPECT_FALSE(name.has_port());
  const std::string longest(kHostNameSize - 1, 'x');
  EXPECT_EQ(format_address_string(from_text(("fi_shm://" + longest).c_str())),
            "fi_shm://" + longest);
  EXPECT_FALSE(read_address(FI_ADDR_STR, ("fi_shm://" + longest + "x").c_str()));
}

TEST(AddressFormats, ReadingStopsAtTheLength) {
  for (const uint32_t format : kNativeFormats) {
    const Address address = numbered_address(format, 3);
    for (size_t length = 0; length < address.size(); ++length) {
      // On the heap and of the exact size, so that a sanitizer sees one byte too many.
      const std::unique_ptr<char[]> exact(new char[length]);
      std::memcpy(exact.get(), address.data(), length);
      const auto cut = read_address(format, exact.get(), length);
      ASSERT_FALSE(cut) << format << " " << length;
      EXPECT_EQ(cut.error().code, FI_EINVAL);
      EXPECT_THAT(cut.error().text, HasSubstr(std::to_string(length)));
    }
    EXPECT_EQ(read_address(format, address.data(), 1000).value(), address) << "more is ignored";
  }
}

TEST(AddressFormats, AnyBytesAreAnAddressOrAnErrorWithAReason) {
  std::mt19937 random(7);
  const uint32_t formats[] = {FI_SOCKADDR,   FI_SOCKADDR_IP, FI_SOCKADDR_IN, FI_SOCKADDR_IN6,
                              FI_ADDR_IB_UD, FI_SOCKADDR_IB, FI_ADDR_CXI};
  size_t read = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    unsigned char bytes[Address::kMaxSize];
    for (unsigned char &byte : bytes) byte = random() % 2 == 0 ? uint8_t(random()) : 0;
    const unsigned char families[] = {AF_INET, AF_INET6, 27, 1};
    if (random() % 4 != 0) bytes[0] = families[random() % 4], bytes[1] = 0;
    const uint32_t format = formats[random() % std::size(formats)];
    const auto address = read_address(format, bytes, random() % (sizeof bytes + 1));
    if (!address) {
      ASSERT_GT(reason_length(address), 20u);
      ++refused;
      continue;
    }
    ++read;
    ASSERT_EQ(read_address(FI_ADDR_STR, format_address_string(*address).c_str()).value(), *address);
  }
  EXPECT_GT(read, 1000u);
  EXPECT_GT(refused, 1000u);
}

TEST(AddressFormats, FieldsThatCannotBeAreRefused) {
  const auto with = [](uint32_t format, size_t at, unsigned char value) {
    auto name = numbered_name<Address::kMaxSize>(format, 1);
    name[at] = value;
    return read_address(format, name.data(), name.size());
  };
  EXPECT_THAT(with(FI_ADDR_IB_UD, 19, 1).error().text, HasSubstr("24 bits"));
  EXPECT_THAT(with(FI_ADDR_IB_UD, 26, 16).error().text, HasSubstr("service level 16"));
  for (size_t at = 27; at < 32; ++at)
    EXPECT_THAT(with(FI_ADDR_IB_UD, at, 1).error().text, HasSubstr("padding"));
  EXPECT_THAT(with(kHostName, 3, 7).error().text, HasSubstr("control characters"));
  EXPECT_THAT(with(kHostName, kHostNameSize - 1, 'x').error().text, HasSubstr("at most 45"));
  EXPECT_THAT(with(FI_ADDR_CXI, 3, 0x20).error().text, HasSubstr("unused bits"));
  EXPECT_TRUE(with(FI_ADDR_CXI, 3, 0x1f));
  const Address marked = with(FI_ADDR_CXI, 7, 9).value();
  EXPECT_NE(marked, numbered_address(FI_ADDR_CXI, 1));
  EXPECT_EQ(identity(marked), identity(numbered_address(FI_ADDR_CXI, 1))) << "the mark of a host";
  EXPECT_THAT(with(FI_SOCKADDR_IB, 0, AF_INET).error().text, HasSubstr("no InfiniBand address"));
  EXPECT_THAT(with(FI_SOCKADDR_IN, 0, 27).error().text, HasSubstr("no IPv4 address"));
}

TEST(AddressFormats, AFamilyTellsWhatASocketAddressIs) {
  for (const uint32_t format : {FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_SOCKADDR_IB}) {
    const Address address = numbered_address(format, 4);
    EXPECT_EQ(read_address(FI_SOCKADDR, address.data(), address.size()).value(), address);
    EXPECT_EQ(native_size(FI_SOCKADDR, address.data()), address.size());
    EXPECT_EQ(read_address(FI_SOCKADDR_IP, address.data(), address.size()).has_value(),
              format != FI_SOCKADDR_IB);
  }
  const sa_family_t other[8] = {AF_UNIX};
  EXPECT_THAT(read_address(FI_SOCKADDR, other, sizeof other).error().text, HasSubstr("family 1"));
  EXPECT_EQ(native_size(FI_SOCKADDR, other), sizeof(sockaddr));
  EXPECT_EQ(native_size(FI_ADDR_IB_UD, other), 32u);
  for (const uint32_t unknown :
       {uint32_t(FI_FORMAT_UNSPEC), uint32_t(FI_ADDR_PSMX), uint32_t(FI_ADDR_EFA), 4711u}) {
    EXPECT_FALSE(is_address_format(unknown));
    EXPECT_THAT(read_address(unknown, other, sizeof other).error().text, HasSubstr("FI_ADDR_CXI"));
  }
  for (const uint32_t known : kNativeFormats) EXPECT_TRUE(is_address_format(known));
  EXPECT_TRUE(is_address_format(FI_ADDR_STR));
}

TEST(AddressFormats, OfAnFiInfo) {
  for (const uint32_t format : kNativeFormats) {
    const Address address = numbered_address(format, 9);
    void *member = nullptr;
    size_t length = 0;
    ASSERT_TRUE(set_info_address(member, length, format, address));
    EXPECT_EQ(length, address.size());
    EXPECT_EQ(read_address(format, member, length).value(), address);
    ASSERT_TRUE(set_info_address(member, length, FI_ADDR_STR, address));
    EXPECT_EQ(static_cast<char *>(member), format_address_string(address));
    EXPECT_EQ(length, format_address_string(address).size() + 1);
    std::free(member);
  }
}

// ---- text ----

// The beginnings are what libfabric 1.17 printed for the same bytes (fi_tostr).
TEST(AddressText, IsWhatStockPrints) {
  unsigned char bytes[48];
  for (size_t i = 0; i < sizeof bytes; ++i) bytes[i] = uint8_t(i + 1);
  bytes[19] = 0;
  bytes[26] = 0xb;
  bytes[24] = bytes[25] = 0;
  std::memset(bytes + 27, 0, 5);
  EXPECT_EQ(read_address(FI_ADDR_IB_UD, bytes, 32)->to_string(),
            "fi_addr_ib_ud://102:304:506:708:90a:b0c:d0e:f10:131211/1615/1817/b");
  bytes[24] = 0x19;
  EXPECT_EQ(read_address(FI_ADDR_IB_UD, bytes, 32)->to_string(),
            "fi_addr_ib_ud://102:304:506:708:90a:b0c:d0e:f10:131211/1615/1817/b?service=0x19");
  EXPECT_EQ(read_address(FI_ADDR_CXI, bytes, 8)->to_string(),
            "fi_addr_cxi://0x04030201?vni=1541&host=2055");
  bytes[4] = bytes[5] = 0;
  EXPECT_EQ(read_address(FI_ADDR_CXI, bytes, 8)->to_string(), "fi_addr_cxi://0x04030201?host=2055");
  bytes[6] = bytes[7] = 0;
  EXPECT_EQ(read_address(FI_ADDR_CXI, bytes, 8)->to_string(), "fi_addr_cxi://0x04030201");
  unsigned char sib[48] = {27, 0, 0xff, 0xff};
  sib[8] = 0xfe, sib[9] = 0x80, sib[23] = 5, sib[29] = 6, sib[28] = 1, sib[47] = 0xab;
  EXPECT_EQ(read_address(FI_SOCKADDR_IB, sib, 48)->to_string(),
            "fi_sockaddr_ib://[fe80::5]:0xffff:0x106:0xab");
  sib[31] = 1, sib[39] = 2, sib[40] = 3, sib[7] = 4;
  EXPECT_EQ(read_address(FI_SOCKADDR_IB, sib, 48)->to_string(),
            "fi_sockaddr_ib://[fe80::5]:0xffff:0x106:0xab?sid=0x1060001&mask=0x2&"
            "scope=0x3000000000000ab&flow=0x4");
}

TEST(AddressText, OmittedFieldsHaveDefaults) {
  EXPECT_EQ(from_text("fi_sockaddr_ib://[fe80::5]"),
            from_text("fi_sockaddr_ib://[fe80::5]:0xffff:0x0:0x0"));
  EXPECT_EQ(from_text("fi_sockaddr_ib://[fe80::5]:1"),
            from_text("fi_sockaddr_ib://[fe80::5]:0x1:0:0?mask=0&flow=0"));
  EXPECT_EQ(from_text("fi_addr_ib_ud://[fe80::1]:11"),
            from_text("fi_addr_ib_ud://fe80::1:11/0/ffff/0?service=0"));
  EXPECT_EQ(from_text("fi_addr_cxi://513"), from_text("fi_addr_cxi://0x00000201?vni=0"));
}

TEST(AddressText, WhatIsNoneIsAnErrorThatSaysWhatWouldBe) {
  for (const char *bad : {"fi_sockaddr_ib",
                          "fi_sockaddr_ib://",
                          "fi_sockaddr_ib://fe80::1",
                          "fi_sockaddr_ib://[fe80",
                          "fi_sockaddr_ib://[x]",
                          "fi_sockaddr_ib://[fe80::1]1",
                          "fi_sockaddr_ib://[fe80::1]:0x10000",
                          "fi_sockaddr_ib://[fe80::1]:1:2:3:4",
                          "fi_sockaddr_ib://[fe80::1]?sid",
                          "fi_sockaddr_ib://[fe80::1]?sid=",
                          "fi_sockaddr_ib://[fe80::1]?sid=0x10000000000000000",
                          "fi_sockaddr_ib://[fe80::1]?x=1",
                          "fi_sockaddr_ib://[fe80::1]?flow=0x100000000",
                          "fi_addr_ib_ud",
                          "fi_addr_ib_ud://",
                          "fi_addr_ib_ud://fe80::1",
                          "fi_addr_ib_ud://11/0/ffff/0",
                          "fi_addr_ib_ud://fe80::1:1000000/0/ffff/0",
                          "fi_addr_ib_ud://fe80::1:11/10000",
                          "fi_addr_ib_ud://fe80::1:11/1/1/10",
                          "fi_addr_ib_ud://fe80::1:11/1/1/1/1",
                          "fi_addr_ib_ud://fe80::1:-1",
                          "fi_addr_ib_ud://fe80::1:11?service=65536",
                          "fi_addr_cxi",
                          "fi_addr_cxi://",
                          "fi_addr_cxi://0x",
                          "fi_addr_cxi://0x100000000",
                          "fi_addr_cxi://0x20000000",
                          "fi_addr_cxi://1?vni=65536",
                          "fi_addr_cxi://1?vni",
                          "fi_addr_gni://1",
                          "fi_addr_opx://1"}) {
    const auto address = read_address(FI_ADDR_STR, bad);
    ASSERT_FALSE(address) << bad;
    EXPECT_EQ(address.error().code, FI_EINVAL) << bad;
    EXPECT_GT(reason_length(address), 30u) << bad;
  }
  EXPECT_THAT(read_address(FI_ADDR_STR, "fi_addr_ib_ud://x").error().text,
              HasSubstr("should look like fi_addr_ib_ud://"));
}

}  // namespace
}  // namespace weft::sdk
