// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace weft::tcp {
namespace {

std::string congestion(int fd) {
  char name[64] = {};
  socklen_t size = sizeof name;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return "getsockopt failed";
  return name;
}

// A connection of this process with itself.
class Connection : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    sockaddr_storage any{};
    any.ss_family = sa_family_t(GetParam());
    socklen_t size = GetParam() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (GetParam() == AF_INET)
      reinterpret_cast<sockaddr_in &>(any).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
      reinterpret_cast<sockaddr_in6 &>(any).sin6_addr = in6addr_loopback;
    listener_ = socket(GetParam(), SOCK_STREAM, 0);
    if (bind(listener_, reinterpret_cast<sockaddr *>(&any), size) != 0)
      GTEST_SKIP() << "no loopback address of this family";
    ASSERT_EQ(listen(listener_, 1), 0);
    ASSERT_EQ(getsockname(listener_, reinterpret_cast<sockaddr *>(&any), &size), 0);
    fd_ = socket(GetParam(), SOCK_STREAM, 0);
    ASSERT_EQ(connect(fd_, reinterpret_cast<sockaddr *>(&any), size), 0);
  }
  void TearDown() override {
    close(fd_);
    close(listener_);
  }

  int listener_ = -1, fd_ = -1;
};

TEST_P(Connection, WithinTheHostIsNotPaced) {
  Settings settings;
  settings.local_congestion = "reno";
  apply_peer_settings(fd_, settings);
  EXPECT_EQ(congestion(fd_), "reno");
}

TEST_P(Connection, KeepsTheKernelsChoiceIfAskedTo) {
  const std::string before = congestion(fd_);
  apply_peer_settings(fd_, Settings{});
  EXPECT_EQ(congestion(fd_), before);
}

TEST_P(Connection, KeepsTheKernelsChoiceIfTheKernelDoesNotKnowTheName) {
  const std::string before = congestion(fd_);
  Settings settings;
  settings.local_congestion = "no-such-algorithm-and-far-too-long-a-name";
  apply_peer_settings(fd_, settings);
  EXPECT_EQ(congestion(fd_), before);
}

INSTANTIATE_TEST_SUITE_P(Families, Connection, testing::Values(AF_INET, AF_INET6),
                         [](const auto &family) {
                           return family.param == AF_INET ? "IPv4" : "IPv6";
                         });

TEST(Socket, WithoutAPeerIsLeftAlone) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const std::string before = congestion(fd);
  Settings settings;
  settings.local_congestion = "reno";
  apply_peer_settings(fd, settings);
  EXPECT_EQ(congestion(fd), before);
  close(fd);
}

}  // namespace
}  // namespace weft::tcp
