// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "plugin-api/sdk/testing/test_child.h"

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

// ---- where the kernel's default paces ----

// A network of this process alone, for which it needs no permission.
bool enter_network_whose_default_is(const char *algorithm) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const int fd = open("/proc/sys/net/ipv4/tcp_congestion_control", O_WRONLY | O_CLOEXEC);
  const bool set = fd >= 0 && write(fd, algorithm, strlen(algorithm)) > 0;
  close(fd);
  const int any = socket(AF_INET, SOCK_DGRAM, 0);
  const auto change = [any](unsigned long request, const char *name, const char *ip) {
    ifreq wanted{};
    strncpy(wanted.ifr_name, name, IFNAMSIZ - 1);
    if (ip != nullptr) {
      auto &address = reinterpret_cast<sockaddr_in &>(wanted.ifr_addr);
      address.sin_family = AF_INET;
      inet_pton(AF_INET, ip, &address.sin_addr);
    } else {
      wanted.ifr_flags = IFF_UP;
    }
    return ioctl(any, request, &wanted) == 0;
  };
  const bool up = change(SIOCSIFFLAGS, "lo", nullptr) && change(SIOCSIFADDR, "lo:1", "192.0.2.1") &&
                  change(SIOCSIFADDR, "lo:2", "192.0.2.2");
  close(any);
  return set && up;
}

// "listening accepted connecting connected": what sockets have at these times.
std::string congestion_between(const char *from, const char *to, const Settings &settings) {
  const auto source = sdk::SockAddr::from_ip(from, 0), target = sdk::SockAddr::from_ip(to, 7471);
  const int listener = *open_socket(AF_INET, settings), fd = *open_socket(AF_INET, settings);
  if (!bind_socket(listener, *target, BindFor::kListen)) return "no listener";
  share_port(listener);
  if (listen(listener, 1) != 0) return "no listener";
  if (!bind_socket(fd, *source)) return "no address";
  const std::string connecting = congestion(fd);
  if (connect(fd, target->c(), target->size()) != 0 && errno != EINPROGRESS) return "no connection";
  pollfd ready{.fd = listener, .events = POLLIN, .revents = 0};
  poll(&ready, 1, 10'000);
  const int accepted = accept(listener, nullptr, nullptr);
  apply_peer_settings(accepted, settings);
  apply_peer_settings(fd, settings);
  std::string all =
      congestion(listener) + ' ' + congestion(accepted) + ' ' + connecting + ' ' + congestion(fd);
  for (const int one : {accepted, listener, fd}) close(one);
  return all;
}

// A line for each pair of addresses. Empty: there is no such network.
std::string congestion_by_default(const char *algorithm, const char *local) {
  return sdk::in_child([=]() -> std::string {
    if (!enter_network_whose_default_is(algorithm)) return {};
    Settings settings;
    settings.local_congestion = local;
    return congestion_between("127.0.0.1", "127.0.0.1", settings) + '\n' +
           congestion_between("192.0.2.1", "192.0.2.1", settings) + '\n' +
           congestion_between("192.0.2.1", "192.0.2.2", settings) + '\n' +
           congestion_between("127.0.0.1", "127.0.0.1", Settings{});
  });
}

// What has once been paced is paced for ever.
TEST(Socket, WithinTheHostHasNeverBeenPaced) {
  const std::string all = congestion_by_default("bbr", "reno");
  if (all.empty()) GTEST_SKIP() << "no network of its own, or the kernel has no bbr";
  EXPECT_EQ(all,
            "reno reno reno reno\n"
            "reno reno reno reno\n"
            "reno bbr reno bbr\n"
            "bbr bbr bbr bbr");
}

TEST(Socket, BeginsWithADefaultThatDoesNotPace) {
  const std::string all = congestion_by_default("reno", "bbr");
  if (all.empty()) GTEST_SKIP() << "no network of its own";
  EXPECT_EQ(all,
            "reno bbr reno bbr\n"
            "reno bbr reno bbr\n"
            "reno reno reno reno\n"
            "reno reno reno reno");
}

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
