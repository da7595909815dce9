// SPDX-License-Identifier: BSD-2-Clause
// World: the simulated network and time of core_test. A seed decides how long packets take on
// links, and which calls fail.
//
// Example (statements):
//    World world(/*seed=*/42);
//    bool arrived = false;
//    world.after(1 + world.some(10), [&arrived] { arrived = true; });
//    while (!arrived && world.step()) {  // each step goes to the time of the next event
//    }
//
// Not for peers: test_node.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_TEST_WORLD_H
#define WEFT_PLUGINS_RXM_PROTOCOL_TEST_WORLD_H

#include <arpa/inet.h>
#include <weft/sdk/ip/sock_addr.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

class Node;

struct Link {
  Node *node = nullptr;
  Connection *owner = nullptr;
  Link *other = nullptr;
  bool open = true;
  bool busy = false;
  bool is_quiet = false;                    // it may not send before it has received
  bool held = false;                        // its packets are not read
  size_t in_use = 0;                        // of its own buffers, if they are not shared
  uint64_t last_arrival = 0;                // of packets from the other end
  std::deque<std::function<bool()>> inbox;  // false: no buffer, try later
  std::multiset<Token *> pending;
  std::map<uint64_t, uint64_t> segmented;  // unfinished messages: our id, id of a stock sender
};

struct Request {
  Node *target = nullptr;
  Link *from = nullptr;
  bool answered = false;
};

struct Buffer {
  std::vector<uint8_t> bytes;
  Link *link = nullptr;  // that owns it; null: shared
};

inline sdk::Address address_of(size_t n, uint32_t format = FI_SOCKADDR_IN) {
  const auto port = uint16_t(5000 + n);
  if (format == FI_SOCKADDR_IB) {
    const char text[] = "fi_sockaddr_ib://[fe80::1]:0xffff:0x106:0x0";
    return *sdk::read_address(FI_ADDR_STR, text)->with_port(port);
  }
  return sdk::SockAddr::loopback(AF_INET, port);
}

struct World : sdk::TestTime {
  // The protocol must not care what an address is, as long as it has a port.
  explicit World(unsigned seed)
      : TestTime(1), format(seed % 3 == 2 ? FI_SOCKADDR_IB : FI_SOCKADDR_IN), random(seed) {}
  sdk::Address address_of(size_t n) const { return rxm::address_of(n, format); }
  uint64_t some(uint64_t limit) { return random() % limit; }
  bool chance(unsigned percent) { return random() % 100 < percent; }

  const uint32_t format;
  std::mt19937_64 random;
  std::vector<std::unique_ptr<Link>> links;
  std::map<uint16_t, Node *> listening;
  unsigned eagain = 10;        // percent of calls
  unsigned faults = 0;         // percent of calls that fail for lack of resources
  unsigned crowd = 0;          // percent of requests that are hung up on
  const Node *mute = nullptr;  // its calls get -FI_EAGAIN
  const Node *slow = nullptr;  // sends to it do not complete
  bool silent = false;         // ends of links are not reported to the other side
  bool holds = true;           // the carriers can hold links
  uint64_t slow_news = 0;      // by how much packets may precede the report of a connection
  std::vector<std::function<void()>> put_off;
  unsigned without_data = 50;  // percent of messages that have no remote data
  unsigned segments = 0, partings = 0, acknowledged = 0, bare = 0, marked_writes = 0, later = 0;
};

struct Sent {
  size_t from = 0, to = 0;
  bool message = true, tagged = false, has_data = false;
  bool gone = false;  // the sender died before it ended
  size_t length = 0;
  int ended = 0, err = 0;
  int arrived = 0;
  std::vector<uint8_t> bytes;
};

inline constexpr size_t kIdSize = 4;  // bytes at the beginning of a payload
inline constexpr unsigned kIdBits = 29;

// The payload of a message says which one it is, if it is long enough.
inline uint8_t pattern(uint64_t id, size_t i) {
  return i < kIdSize ? uint8_t(id >> 8 * i) : uint8_t(id * 131 + i * 7 + (i >> 8));
}

// The tag says so, too. Its upper part is one of few during some messages, and during others one of
// more than a connection remembers. The last three are too large for that (wire/bare.h).
inline uint64_t tag_of(uint64_t id) {
  static constexpr uint64_t kUppers[] = {
      0, 77, 0xfffffffe, 1, 2, 3, 0x12345678, 0xffffffff, 0x100000000, (UINT64_C(1) << 35) - 1};
  const size_t in_use = id / 50 % 2 == 0 ? 3 : std::size(kUppers);
  return kUppers[(id * 0x9e3779b97f4a7c15 >> 40) % in_use] << kIdBits | id;
}
inline uint64_t id_of_tag(uint64_t tag) {
  return tag & ((UINT64_C(1) << kIdBits) - 1);
}

}  // namespace weft::rxm

#endif
