// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/ip/sock_addr.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_set>

namespace weft::sdk {
namespace {

using ::testing::HasSubstr;

SockAddr ip(std::string_view text, uint16_t port = 0) {
  return SockAddr::from_ip(text, port).value();
}

TEST(SockAddr, FromText) {
  EXPECT_EQ(ip("10.0.0.1", 7471).to_string(), "10.0.0.1:7471");
  EXPECT_EQ(ip("::1", 80).to_string(), "[::1]:80");
  EXPECT_EQ(ip("fe80::1%lo").ip(), "fe80::1%lo");
  EXPECT_EQ(ip("fe80::1%" + std::to_string(if_nametoindex("lo"))), ip("fe80::1%lo"));
  EXPECT_EQ(ip("fe80::1%999999").ip(), "fe80::1%999999");
  for (const char *bad : {"", "10.0.0", "10.0.0.256", "10.0.0.1.2", " 10.0.0.1",
                          "::1::", "fe80::1%", "fe80::1%nosuchif0", "fe80::1%0",
                          "fe80::1%99999999999", "node", "%lo", "1:2:3:4:5:6:7:8:9"}) {
    EXPECT_FALSE(SockAddr::from_ip(bad)) << bad;
  }
  EXPECT_FALSE(SockAddr::from_ip(std::string_view("10.0.0.1\0x", 10)));
  EXPECT_FALSE(SockAddr::from_ip(std::string(100000, '1')));
}

TEST(SockAddr, FromBytesStopsAtTheLength) {
  const SockAddr four = ip("10.0.0.1", 5), six = ip("fe80::2%7", 6);
  EXPECT_EQ(SockAddr::from(four.c(), four.size()).value(), four);
  EXPECT_EQ(SockAddr::from(six.c(), six.size()).value(), six);
  for (const SockAddr &address : {four, six}) {
    for (size_t length = 0; length < address.size(); ++length) {
      // On the heap and of the exact size, so that a sanitizer sees one byte too many.
      const std::unique_ptr<char[]> exact(new char[length]);
      std::memcpy(exact.get(), address.c(), length);
      EXPECT_EQ(SockAddr::from(exact.get(), length).error().code, FI_EINVAL) << length;
    }
  }
  sockaddr_storage other{};
  other.ss_family = AF_UNIX;
  EXPECT_THAT(SockAddr::from(&other, sizeof other).error().text, HasSubstr("family 1"));
  EXPECT_FALSE(SockAddr::from(nullptr, 16));
}

TEST(SockAddr, Properties) {
  EXPECT_TRUE(SockAddr().is_any());
  EXPECT_EQ(SockAddr().size(), 0u);
  EXPECT_EQ(SockAddr().to_string(), "unspecified");
  EXPECT_TRUE(SockAddr::any(AF_INET6, 4).is_any());
  EXPECT_EQ(SockAddr::any(AF_INET6, 4).port(), 4);
  EXPECT_TRUE(SockAddr::loopback(AF_INET).is_loopback());
  EXPECT_TRUE(SockAddr::loopback(AF_INET6).is_loopback());
  EXPECT_TRUE(ip("127.5.5.5").is_loopback());
  EXPECT_FALSE(ip("128.0.0.1").is_loopback());
  EXPECT_TRUE(ip("169.254.3.4").is_link_local());
  EXPECT_TRUE(ip("fe80::9").is_link_local());
  EXPECT_FALSE(ip("fd00::9").is_link_local());
  SockAddr a = ip("10.0.0.1");
  a.set_port(65535);
  EXPECT_EQ(a.port(), 65535);
}

TEST(SockAddr, Prefixes) {
  EXPECT_TRUE(ip("10.1.2.3").same_prefix(ip("10.1.0.0"), 16));
  EXPECT_FALSE(ip("10.2.2.3").same_prefix(ip("10.1.0.0"), 16));
  EXPECT_TRUE(ip("10.1.2.3").same_prefix(ip("11.1.0.0"), 7));
  EXPECT_FALSE(ip("10.1.2.3").same_prefix(ip("11.1.0.0"), 8));
  EXPECT_TRUE(ip("10.1.2.3").same_prefix(ip("200.1.0.0"), 0));
  EXPECT_TRUE(ip("10.1.2.3").same_prefix(ip("10.1.2.3"), 32));
  EXPECT_FALSE(ip("10.1.2.3").same_prefix(ip("10.1.2.3"), 33));
  EXPECT_FALSE(ip("10.1.2.3").same_prefix(ip("::"), 0));
  EXPECT_TRUE(ip("fd00:1::1").same_prefix(ip("fd00:1::"), 33));
}

TEST(SockAddr, ComparesAndHashes) {
  EXPECT_EQ(ip("10.0.0.1", 1), ip("10.0.0.1", 1));
  EXPECT_NE(ip("10.0.0.1", 1), ip("10.0.0.1", 2));
  EXPECT_NE(ip("10.0.0.1", 1), ip("10.0.0.2", 1));
  EXPECT_NE(ip("fe80::1%1", 1), ip("fe80::1%2", 1));
  EXPECT_LT(ip("9.0.0.1", 9), ip("10.0.0.1", 1));
  EXPECT_LT(ip("10.0.0.1", 9), ip("::", 1));
  sockaddr_in6 flow{};
  flow.sin6_family = AF_INET6;
  flow.sin6_flowinfo = 77;
  EXPECT_EQ(SockAddr(flow), ip("::"));
  EXPECT_EQ(SockAddr(flow).hash(), ip("::").hash());
  std::unordered_set<SockAddr, SockAddrHash> set{ip("10.0.0.1", 1), ip("10.0.0.1", 2),
                                                 ip("::1", 1)};
  EXPECT_TRUE(set.contains(ip("10.0.0.1", 2)));
  EXPECT_FALSE(set.contains(ip("10.0.0.1", 3)));
}

TEST(Resolve, NumbersAndNames) {
  EXPECT_THAT(resolve("10.0.0.1", "7471", {}).value(),
              ::testing::ElementsAre(ip("10.0.0.1", 7471)));
  EXPECT_THAT(resolve("fe80::1%lo", nullptr, {.numeric = true}).value(),
              ::testing::ElementsAre(ip("fe80::1%lo")));
  EXPECT_THAT(resolve("localhost", "1", {.family = AF_INET}).value(),
              ::testing::Contains(ip("127.0.0.1", 1)));
  EXPECT_THAT(resolve(nullptr, "5", {.family = AF_INET, .local = true}).value(),
              ::testing::ElementsAre(SockAddr::any(AF_INET, 5)));
  EXPECT_THAT(resolve(nullptr, "5", {.family = AF_INET6}).value(),
              ::testing::ElementsAre(SockAddr::loopback(AF_INET6, 5)));
  EXPECT_THAT(resolve("fi_sockaddr_in://10.0.0.1:7471", nullptr, {}).value(),
              ::testing::ElementsAre(ip("10.0.0.1", 7471)));
  EXPECT_THAT(resolve("fi_sockaddr://[::1]", nullptr, {}).value(),
              ::testing::ElementsAre(ip("::1", 0)));
  EXPECT_THAT(resolve("fi_sockaddr_in6://:9", nullptr, {}).value(),
              ::testing::ElementsAre(SockAddr::any(AF_INET6, 9)));
}

TEST(Resolve, FailsWithAReason) {
  const ResolveOptions numeric{.numeric = true};
  EXPECT_THAT(resolve("localhost", nullptr, numeric).error().text, HasSubstr("numeric"));
  EXPECT_EQ(resolve("localhost", nullptr, numeric).error().code, FI_ENODATA);
  EXPECT_THAT(resolve("10.0.0.1", "65536", {}).error().text, HasSubstr("port 65536"));
  EXPECT_FALSE(resolve("10.0.0.1", "99999999999999999999", {}));
  EXPECT_FALSE(resolve("10.0.0.1", "no-such-service", {}));
  EXPECT_FALSE(resolve(nullptr, nullptr, {}));
  EXPECT_FALSE(resolve("fi_sockaddr_in://10.0.0.1:1", "2", {}));
  EXPECT_FALSE(resolve("fi_sockaddr_in://[::1]:1", nullptr, numeric));
  EXPECT_FALSE(resolve("fi_sockaddr_in://10.0.0.1:1", nullptr, {.family = AF_INET6}));
  EXPECT_FALSE(resolve("fi_addr_gni://10.0.0.1:1", nullptr, {}));
}

TEST(AddressStrings, AreParsed) {
  struct {
    const char *text;
    uint32_t format;
    const char *node, *service;
  } const table[] = {
      {"fi_sockaddr_in://10.0.0.1:7471", FI_SOCKADDR_IN, "10.0.0.1", "7471"},
      {"fi_sockaddr_in6://[fe80::1%eth0]:7471", FI_SOCKADDR_IN6, "fe80::1%eth0", "7471"},
      {"fi_sockaddr://host:port", FI_SOCKADDR, "host", "port"},
      {"fi_sockaddr_ip://host", FI_SOCKADDR_IP, "host", ""},
      {"fi_sockaddr://10.31.6.12:7471?qos=3", FI_SOCKADDR, "10.31.6.12", "7471"},
      {"fi_sockaddr://10.31.6.12?qos=3:4", FI_SOCKADDR, "10.31.6.12", ""},
      {"fi_sockaddr://[::1]:7471/more/and", FI_SOCKADDR, "::1", "7471"},
      {"fi_sockaddr://[::1]/more", FI_SOCKADDR, "::1", ""},
      {"fi_sockaddr://:7471", FI_SOCKADDR, "", "7471"},
      {"fi_sockaddr://:", FI_SOCKADDR, "", ""},
      {"fi_sockaddr://", FI_SOCKADDR, "", ""},
      {"fi_sockaddr_in", FI_SOCKADDR_IN, "", ""},
  };
  for (const auto &row : table) {
    const Result<AddressString> parts = parse_address_string(row.text);
    ASSERT_TRUE(parts) << row.text << ": " << parts.error().text;
    EXPECT_EQ(parts->format, row.format) << row.text;
    EXPECT_EQ(parts->node, row.node) << row.text;
    EXPECT_EQ(parts->service, row.service) << row.text;
  }
  for (const char *bad : {"", "10.0.0.1:7471", "fi_sockaddr_ib://x", "fi_sockaddr_inx://1", "://",
                          "fi_sockaddr://[::1", "fi_sockaddr://[]:1", "fi_sockaddr://[::1]x:1",
                          "fi_sockaddr://::1:7471", "FI_SOCKADDR://1:1"}) {
    EXPECT_EQ(parse_address_string(bad).error().code, FI_EINVAL) << bad;
  }
  EXPECT_THAT(parse_address_string("tcp://a").error().text,
              HasSubstr("\"tcp://a\" does not begin"));
}

TEST(AddressStrings, SurviveFormattingAndParsing) {
  for (const char *text : {"fi_sockaddr_in://10.0.0.1:7471", "fi_sockaddr_in6://[::1]:0",
                           "fi_sockaddr_in6://[fe80::1%lo]:65535", "fi_sockaddr_in://0.0.0.0:0"}) {
    EXPECT_EQ(format_address_string(read_address(FI_ADDR_STR, text).value()), text);
  }
}

TEST(Formats, ReadChecksTheFamily) {
  const SockAddr four = ip("10.0.0.1", 5), six = ip("fe80::2%7", 6);
  for (uint32_t format : {FI_SOCKADDR, FI_SOCKADDR_IP, FI_SOCKADDR_IN}) {
    EXPECT_EQ(read_address(format, four.c(), four.size()).value(), four);
    EXPECT_EQ(read_address(format, four.c()).value(), four);
  }
  EXPECT_EQ(read_address(FI_SOCKADDR_IN6, six.c()).value(), six);
  EXPECT_THAT(read_address(FI_SOCKADDR_IN6, four.c()).error().text, HasSubstr("no IPv6 address"));
  EXPECT_FALSE(read_address(FI_SOCKADDR_IN, six.c()));
  EXPECT_FALSE(read_address(FI_SOCKADDR, nullptr, 16));
  EXPECT_FALSE(read_address(FI_ADDR_PSMX, four.c(), 16));
  EXPECT_FALSE(read_address(FI_FORMAT_UNSPEC, four.c(), 16));
  EXPECT_FALSE(read_address(FI_ADDR_STR, "fi_sockaddr_in://[::1]:5"));
  EXPECT_FALSE(read_address(FI_ADDR_STR, "fi_sockaddr_in://localhost:5"));
  EXPECT_FALSE(read_address(FI_ADDR_STR, "fi_sockaddr_in://10.0.0.1:65536"));
  EXPECT_FALSE(read_address(FI_ADDR_STR, "fi_sockaddr_in://10.0.0.1:-1"));
  // With a length, with or without the terminator.
  const char text[] = "fi_sockaddr_in://10.0.0.1:5";
  EXPECT_EQ(read_address(FI_ADDR_STR, text, sizeof text).value(), four);
  EXPECT_EQ(read_address(FI_ADDR_STR, text, sizeof text - 1).value(), four);
  EXPECT_FALSE(read_address(FI_ADDR_STR, text, 3));
}

TEST(Formats, WriteHasTheSemanticsOfGetname) {
  const SockAddr four = ip("10.0.0.1", 7471);
  sockaddr_storage buffer{};
  size_t length = sizeof buffer;
  EXPECT_EQ(write_address(four, FI_SOCKADDR, &buffer, &length), 0);
  EXPECT_EQ(length, sizeof(sockaddr_in));
  EXPECT_EQ(SockAddr::from(&buffer, length).value(), four);

  length = 0;
  EXPECT_EQ(write_address(four, FI_SOCKADDR_IN, nullptr, &length), -FI_ETOOSMALL);
  EXPECT_EQ(length, sizeof(sockaddr_in));
  length = 100;
  EXPECT_EQ(write_address(four, FI_SOCKADDR_IN, nullptr, &length), -FI_ETOOSMALL);
  EXPECT_EQ(write_address(four, FI_SOCKADDR_IN, &buffer, nullptr), -FI_EINVAL);

  char cut[5] = {'x', 'x', 'x', 'x', 'x'};
  length = 4;
  EXPECT_EQ(write_address(four, FI_SOCKADDR_IN, cut, &length), -FI_ETOOSMALL);
  EXPECT_EQ(std::memcmp(cut, four.c(), 4), 0);
  EXPECT_EQ(cut[4], 'x');

  char text[64];
  length = sizeof text;
  EXPECT_EQ(write_address(four, FI_ADDR_STR, text, &length), 0);
  EXPECT_STREQ(text, "fi_sockaddr_in://10.0.0.1:7471");
  EXPECT_EQ(length, std::strlen(text) + 1);
  EXPECT_EQ(length, address_length(four, FI_ADDR_STR));
  length -= 1;
  EXPECT_EQ(write_address(four, FI_ADDR_STR, text, &length), -FI_ETOOSMALL);
  EXPECT_STREQ(text, "fi_sockaddr_in://10.0.0.1:747");
  EXPECT_EQ(address_length(ip("::1"), FI_SOCKADDR), sizeof(sockaddr_in6));
}

TEST(Formats, InfoAddresses) {
  void *member = nullptr;
  size_t length = 0;
  ASSERT_TRUE(set_info_address(member, length, FI_SOCKADDR_IN, ip("10.0.0.1", 1)));
  EXPECT_EQ(length, sizeof(sockaddr_in));
  ASSERT_TRUE(set_info_address(member, length, FI_ADDR_STR, ip("10.0.0.1", 1)));
  EXPECT_STREQ(static_cast<char *>(member), "fi_sockaddr_in://10.0.0.1:1");
  EXPECT_EQ(length, 28u);
  std::free(member);
}

}  // namespace
}  // namespace weft::sdk
