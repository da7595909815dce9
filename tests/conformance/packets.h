// SPDX-License-Identifier: BSD-2-Clause
// What packets of IP a test has sent: all of a network namespace of its own, which has nothing but
// a loopback device.
//
// Example:
//     TEST(Example, PacketsAreMarked) {
//       if (!in_fresh_process()) return;
//       Packets packets;
//       if (!packets.opened()) GTEST_SKIP() << "no network namespace for this user";
//       EXPECT_EQ(packets.dscps(), std::set<int>{});  // nobody has sent anything
//     }
//
// For processes with one thread, which have not used the library: the process stays in the
// namespace. Not for the contents of packets.
#ifndef WEFT_TESTS_CONFORMANCE_PACKETS_H
#define WEFT_TESTS_CONFORMANCE_PACKETS_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace weft::conformance {

class Packets {
 public:
  Packets();
  ~Packets();
  Packets(const Packets &) = delete;
  Packets &operator=(const Packets &) = delete;

  // False: the system does not let this user have such a namespace.
  bool opened() const { return fd_ >= 0; }
  // The DSCPs of all TCP and UDP packets with a payload since the last call.
  std::set<int> dscps();
  // The same by the port that sent them.
  std::map<uint16_t, std::set<int>> dscps_by_port();

 private:
  int fd_ = -1;
};

}  // namespace weft::conformance

#endif
