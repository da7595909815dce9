// SPDX-License-Identifier: BSD-2-Clause
// For tests of several hosts: a host that has a NIC with an address of the loopback, and somebody
// who calls it.
//
// Example (statements):
//    const FarHost here, far;
//    Node a = here.process(5);
//    Stranger stranger(far, here, HostsOptions().port);
//    stranger.call(here.at(5));
//    const bool is_welcome = stranger.answer({&a})->kind == Hello::Kind::kWelcome;
//
// Not for what a NIC does with messages: test_nic.h.
#ifndef WEFT_PLUGINS_CXI_SOFT_TEST_HOSTS_H
#define WEFT_PLUGINS_CXI_SOFT_TEST_HOSTS_H

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <initializer_list>
#include <span>
#include <vector>

#include "plugins/cxi/soft/network.h"
#include "plugins/cxi/soft/test_node.h"

namespace weft::cxi {

inline constexpr auto kPatience = std::chrono::seconds(30);

// A NIC that no other test program on this host has.
inline Nid some_nid() {
  static unsigned last = 0;
  return (uint32_t(::getpid()) << 6 | ++last) & kMaxNid;
}
constexpr uint32_t ip_of(Nid nid) {
  return address_of(0x7f000000, nid);
}

struct FarHost {
  FarHost() : nid(some_nid()) {}
  Node process(Pid pid, Vni vni = kVni, const HostsOptions &options = {}) const {
    return Node(folder.path, nid, pid, vni, ip_of(nid), options);
  }
  Address at(Pid pid, Index index = 0) const { return {nid, pid, index}; }
  const TestFolder folder;
  const Nid nid;
};

// Somebody who knows the format, and need not keep to it.
class Stranger {
 public:
  Stranger(const FarHost &from, const FarHost &to, uint16_t port)
      : fd_(call_at(ip_of(from.nid), ip_of(to.nid), port)) {
    ::fcntl(fd_.get(), F_SETFL, 0);
    const timeval limit{.tv_sec = 30, .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void say(std::span<const uint8_t> bytes) {
    ASSERT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  size_t try_to_say(std::span<const uint8_t> bytes) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return size_t(std::max<ssize_t>(n, 0));
  }
  // At once, whatever has not left yet.
  void hang_up() {
    const linger none{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    fd_.reset();
  }
  void call(const Address &to, Vni vni = kVni) {
    std::array<uint8_t, kHelloSize> bytes;
    write_hello({.vni = vni, .to = to}, bytes);
    say(bytes);
  }
  // What comes while these make progress; fewer bytes: the connection has ended.
  std::vector<uint8_t> hear(size_t count, std::initializer_list<Node *> others) {
    std::vector<uint8_t> bytes(count);
    size_t have = 0;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (have != count && std::chrono::steady_clock::now() < end) {
      for (Node *const other : others) other->neighbours->poll();
      const ssize_t n = ::recv(fd_.get(), bytes.data() + have, count - have, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) break;
      have += size_t(std::max<ssize_t>(n, 0));
    }
    bytes.resize(have);
    return bytes;
  }
  tl::expected<Hello, Refusal> answer(std::initializer_list<Node *> others) {
    const std::vector<uint8_t> bytes = hear(kHelloSize, others);
    if (bytes.size() != kHelloSize) return tl::unexpected(Refusal::kStranger);
    return parse_hello(std::span<const uint8_t, kHelloSize>(bytes));
  }

 private:
  sdk::UniqueFd fd_;
};

inline Packet packet_to(const FarHost &from, const Address &to, Vni vni = kVni) {
  return {.op = Op::kPut,
          .vni = vni,
          .source = from.nid,
          .to = to,
          .token = 77,
          .initiator = match_id(5, from.nid)};
}
inline std::array<uint8_t, kHeadSize> frame_bytes(const Packet &packet) {
  std::array<uint8_t, kHeadSize> head;
  write_head(packet, head);
  return head;
}

}  // namespace weft::cxi

#endif
