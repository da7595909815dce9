// SPDX-License-Identifier: BSD-2-Clause
// What the conformance tests of FI_EP_DGRAM share: the applications of unconnected.h with what
// is usual for this kind, and plain sockets as peers.
//
// Example:
//     TEST(DgramExample, ADatagramArrives) {
//       DGRAM_NEEDS(FI_MSG, "FI_MSG");
//       Net net(2);  // two applications, default options
//       net.exchange(0, 1);
//     }
//
// Over loopback nothing is lost while the receiver's socket has room, so a test may expect what it
// sent.
#ifndef WEFT_TESTS_CONFORMANCE_DGRAM_HARNESS_H
#define WEFT_TESTS_CONFORMANCE_DGRAM_HARNESS_H

#include "tests/conformance/unconnected.h"

namespace weft::conformance::dgram {

using unconnected::Node;

struct Options : conformance::Options {
  Options();  // FI_MSG
};

inline Info find_info(const Options &options = {}, uint64_t flags = 0) {
  return conformance::find_info(options, flags);
}
inline Info ask(const std::function<void(fi_info &)> &change = {}, const Options &options = {},
                const char *node = test_node(), const char *service = nullptr, uint64_t flags = 0) {
  return unconnected::ask(options, change, node, service, flags);
}

#define DGRAM_NEEDS(caps, name) UNCONNECTED_NEEDS(::weft::conformance::dgram::Options(), caps, name)

// Peers that are plain UDP sockets, and the kernel's sockets behind the endpoints: on the loopback
// interface only.
#define DGRAM_NEEDS_SOCKETS()                                               \
  do {                                                                      \
    if (::weft::conformance::is_of_a_device(FI_EP_DGRAM))                   \
      GTEST_SKIP() << "datagrams of a device are not those of UDP sockets"; \
  } while (0)

#define DGRAM_NEEDS_COUNTERS()                                                       \
  do {                                                                               \
    if (::weft::conformance::dgram::find_info()->domain_attr->cntr_cnt == 0)         \
      GTEST_SKIP() << ::weft::conformance::stack() << " has no counters (cntr_cnt)"; \
  } while (0)

class Net : public unconnected::Net {
 public:
  explicit Net(size_t nodes = 2, const Options &options = {},
               const std::function<void(Node &)> &before_enable = {})
      : unconnected::Net(nodes, options, before_enable) {}
  // One datagram, checked at both ends.
  void exchange(size_t from, size_t to, size_t bytes = 100);
};

// Any UDP program: a plain socket on loopback. Addresses are those of fi_getname in the format
// FI_SOCKADDR_IN or FI_SOCKADDR_IN6.
class PlainSocket {
 public:
  explicit PlainSocket(int family = 2 /* AF_INET */, const std::string &to_bind = {});
  ~PlainSocket();
  PlainSocket(const PlainSocket &) = delete;
  PlainSocket &operator=(const PlainSocket &) = delete;
  int fd() const { return fd_; }
  std::string name() const;
  // 0 or -errno
  int send(const std::string &to, const std::vector<uint8_t> &bytes);
  // Waits for one; empty optional: none comes.
  std::optional<std::vector<uint8_t>> receive(std::string *from = nullptr,
                                              std::chrono::milliseconds patience = kPatience);

 private:
  int fd_;
};

}  // namespace weft::conformance::dgram

#endif
