// SPDX-License-Identifier: BSD-2-Clause
// The world of simulation.h: simulated time, the weather of the network, and the operations of all
// applications. A World carries datagrams between nodes; its seed decides what happens to each.
//
// Example (statements):
//    #include "plugins/rxd/protocol/simulation.h"
//    World world(/*seed=*/7);
//    world.cut.insert({0, 1});                            // from node 0 to node 1 all is lost ...
//    world.after(20'000'000, [&] { world.cut.clear(); });  // ... for 20 ms
//    world.run(1'000'000'000);
//
// Do not include it alone: simulation.h has the nodes.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_SIMULATION_WORLD_H
#define WEFT_PLUGINS_RXD_PROTOCOL_SIMULATION_WORLD_H

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <weft/sdk/ip/sock_addr.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/core.h"
#include "plugins/rxd/protocol/test_carrier.h"
#include "plugins/rxd/wire/packet.h"
#include "plugins/rxd/wire/stock.h"

namespace weft::rxd {

class Node;

// Faults of the network: per thousand datagrams, or in ns.
struct Weather {
  unsigned loss = 0, doubled = 0, damaged = 0;
  uint64_t delay = 20'000, jitter = 0;
  size_t path_mtu = SIZE_MAX;  // larger ones are lost
};

inline uint8_t pattern(uint64_t id, size_t i) {
  return uint8_t(id * 131 + i * 7 + (i >> 8) * 3 + 1);
}

// Settings of endpoints that speak weft's dialect only and wait long for each other.
inline Settings patient() {
  Settings settings;
  settings.stock_peers = false;
  settings.checksum = Checksum::kOn;
  settings.peer_timeout_ns = 300'000'000'000;
  return settings;
}

// An operation that an application started.
struct Operation {
  size_t from = 0, to = 0;
  uint32_t life = 0, target_life = 0;  // lives of both endpoints when it started
  TxOp::Kind kind = TxOp::Kind::kMessage;
  bool tagged = false;
  bool sure = false;  // it must not succeed before it has arrived
  bool gone = false;  // its endpoint died before it ended
  size_t length = 0;
  int ended = 0, err = 0;
  int arrived = 0;     // complete receives
  uint64_t value = 0;  // what an atomic fetched
  std::vector<uint8_t> bytes;
};

class World : public sdk::TestTime {
 public:
  explicit World(uint64_t seed)
      : TestTime(1'000'000'000),
        format(seed % 3 == 2 ? FI_ADDR_IB_UD : FI_SOCKADDR_IN),
        random(seed) {}
  ~World();

  Node &add(size_t number, const Settings &settings);
  // The process ends without a close; another one may be added at its address.
  void kill(size_t number);
  Node *node(size_t number) { return number < nodes.size() ? nodes[number].get() : nullptr; }

  void run(uint64_t time) {
    run_until([] { return false; }, time);
  }
  bool all_ended() const {
    return std::all_of(operations.begin(), operations.end(),
                       [](const Operation &o) { return o.ended != 0 || o.gone; });
  }
  // The protocol must not care what an address is: the nodes have sockets, or queue pairs.
  sdk::Address address_of(size_t n) const {
    if (format == FI_SOCKADDR_IN) return *sdk::SockAddr::from_ip("10.0.0.1", uint16_t(1000 + n));
    char text[64];
    std::snprintf(text, sizeof text, "fi_addr_ib_ud://fe80::1:%zx/4/ffff/0", 1000 + n);
    return *sdk::read_address(FI_ADDR_STR, text);
  }
  size_t number_of(const sdk::Address &address) const {
    if (format == FI_SOCKADDR_IN) return address.port() - 1000u;
    uint32_t queue_pair;
    std::memcpy(&queue_pair, static_cast<const char *>(address.data()) + 16, sizeof queue_pair);
    return queue_pair - 1000;
  }
  void carry(size_t from, const sdk::Address &to, std::vector<uint8_t> bytes);
  void arrive(size_t from, size_t to, const std::vector<uint8_t> &bytes);
  // Checks what must hold at the end of any run. `all_well`: no operation may have failed.
  void check(bool all_well);

  uint64_t some(uint64_t limit) { return limit == 0 ? 0 : random() % limit; }
  bool chance(unsigned of_a_thousand) { return random() % 1000 < of_a_thousand; }

  const uint32_t format;
  std::mt19937_64 random;
  Weather weather;
  std::map<std::pair<size_t, size_t>, Weather> ways;  // (from, to) with a weather of their own
  std::set<std::pair<size_t, size_t>> cut;            // (from, to) without a path
  std::deque<Operation> operations;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<uint32_t> lives;
  unsigned eagain = 20;  // of a thousand sends
  unsigned low = 0;      // per thousand queries: buffers are low
  unsigned told = 0;     // per thousand datagrams to no process: the network reports it
  unsigned full = 0;     // per thousand progress calls: the application does not read completions
  size_t datagram = 1472;
  size_t window = 212992;
  uint64_t datagrams = 0;
  // Called with every datagram that a node sends; may change it. False: the datagram is lost.
  std::function<bool(size_t from, size_t to, std::vector<uint8_t> &bytes)> spy;
};

// A datagram in words, for traces of a seed (TRACE=1).
inline std::string text_of(const std::vector<uint8_t> &bytes, uint32_t format) {
  constexpr const char *kKinds[] = {"?",     "challenge",   "connect", "accept",
                                    "data",  "acknowledge", "probe",   "probed",
                                    "reset", "close",       "closed"};
  char text[300];
  const auto packet = wire::parse(bytes);
  if (!packet) {
    const stock::Parsed parsed = stock::parse(bytes, format);
    if (parsed.reject != stock::Reject::kNone) return "nonsense";
    const stock::Packet &p = parsed.packet;
    std::snprintf(text, sizeof text, "stock %d%s: index %llx, %llx; to %u, sequence %llu",
                  int(p.type), p.marked ? " (marked)" : "", (unsigned long long)p.index,
                  (unsigned long long)p.rts_index, p.peer, (unsigned long long)p.sequence);
    return text;
  }
  const wire::Header &h = packet->header;
  int n = std::snprintf(text, sizeof text, "%s to %08x pair %08x sequence %u%s%s",
                        kKinds[std::min<size_t>(size_t(h.kind), std::size(kKinds) - 1)], h.to,
                        h.cookie, h.sequence, h.has(wire::kFlagOrdered) ? ", ordered" : "",
                        h.has(wire::kFlagAsk) ? ", asks" : "");
  const auto add_part = [&](const wire::Part &part) {
    n += std::snprintf(text + n, sizeof text - size_t(n),
                       "; instance %llx connection %08x cookie %08x flags %u",
                       (unsigned long long)part.instance, part.connection, part.cookie, part.flags);
  };
  if (const auto *connect = std::get_if<wire::Connect>(&packet->content)) add_part(connect->part);
  if (const auto *accept = std::get_if<wire::Accept>(&packet->content)) add_part(accept->part);
  if (h.has(wire::kFlagAcknowledgement))
    std::snprintf(text + n, sizeof text - size_t(n), "; next %u limit %u",
                  packet->acknowledgement.next, packet->acknowledgement.limit);
  return text;
}

}  // namespace weft::rxd

#endif
