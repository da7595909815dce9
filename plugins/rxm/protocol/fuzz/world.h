// SPDX-License-Identifier: BSD-2-Clause
// World: the simulated network of core_fuzz.cc. It has the links between the endpoint, the honest
// peer and the attacker, and all packets and events in flight. Only World::step() delivers, one
// event at a time, so that the input decides the order.
//
// Example (statements):
//    World world;
//    bool arrived = false;
//    world.events.push_back([&arrived] { arrived = true; });
//    while (!arrived && world.step()) {
//    }
//
// Not for what the endpoints do: side.h, attacker.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_WORLD_H
#define WEFT_PLUGINS_RXM_PROTOCOL_FUZZ_WORLD_H

#include <arpa/inet.h>
#include <weft/sdk/ip/sock_addr.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "plugins/rxm/protocol/core.h"
#include "tests/fuzz/tally.h"

namespace weft::rxm {

weft::fuzz::Tally &thief_tally();
weft::fuzz::Tally &relay_tally();

class Side;

struct Item {
  enum class Kind { kPacket, kRead, kReply, kWrite, kClosed } kind;
  std::vector<uint8_t> bytes;
  RmaVector vector;
  Token *token = nullptr;
  int err = 0;
  std::optional<uint32_t> data = {};  // of a packet that is a bare message
};

// One end of a connection. Ends of the attacker have no side.
struct Link {
  struct Read {
    Token *token;
    std::vector<iovec> into;
  };
  Side *side = nullptr;
  Connection *owner = nullptr;
  Link *other = nullptr;
  uint8_t who = 0;  // of the attacker: number of its address; kImpostor: the honest peer's address
  bool open = true;
  bool held = false;       // its packets are not read
  bool mistaken = false;   // closed for the sake of a dead process: Side::note_end
  bool is_actors = false;  // an end of the thief or of the relay, which the attacker leaves alone
  bool accepted = false;   // with `answer`: the other side's
  std::optional<std::vector<uint8_t>> answer;
  size_t in_use = 0;                       // of its own buffers, if they are not shared
  std::deque<std::function<void()>> news;  // events, which are not ordered with packets
  std::deque<Item> inbox;
  std::deque<Token *> sent;
  std::vector<Read> reads;
};

struct Request {
  Link *from;
  bool answered = false;
};

struct Buffer {
  std::unique_ptr<uint8_t[]> bytes;
  size_t length = 0;
  Link *link = nullptr;  // that owns it
};

inline constexpr uint16_t kEndpoint = 5000, kHonest = 5001, kAttacker = 5002, kRelay = 5010;
inline constexpr size_t kNames = 3;  // of the attacker
inline constexpr uint8_t kByRelay = 8;
inline constexpr uint8_t kImpostor = 9;  // who acts under the honest peer's address
// The remote CQ data of messages of the thief, and of those to the relay. The lowest bit of the
// latter says that it is the honest peer's.
inline constexpr uint64_t kStolen = UINT64_C(0x57017e4d) << 32;
inline constexpr uint64_t kRelayed = UINT64_C(0x4e1a7ed1) << 32;
inline constexpr uint8_t kUntouched = 0x5c;  // initial bytes of receive buffers
inline constexpr uint64_t kCounterKey = 7, kRegionKey = 8;
inline constexpr size_t kRegionSize = 256;
inline constexpr size_t kSharedBuffers = 16, kOwnBuffers = 8;

inline sdk::Address address_of(uint16_t port, bool low) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(port == kEndpoint ? 0x0a000002
                             : port == kRelay  ? 0x0a000009
                             : low             ? 0x0a000001
                                               : 0x0a000003);
  return sdk::SockAddr(in);
}

// Payload of honest messages. It never looks like mark_of(), the attacker's payload.
inline uint8_t pattern(uint64_t id, size_t i) {
  return uint8_t((id * 131 + i * 7 + (i >> 7)) & 0x7f);
}
// The tag of an honest message. Its upper part is one of few at times, and at others one of more
// than a connection remembers, or is too large for that (wire/bare.h). A tag of the attacker's bare
// messages is never like it.
inline constexpr uint32_t kHonestTag = UINT32_C(1) << 28;
inline uint64_t tag_of(uint64_t id) {
  static constexpr uint64_t kUppers[] = {0, 5, 0xfffffffe, 1, 2, 3, 0xffffffff, UINT64_C(1) << 34};
  const size_t in_use = id / 8 % 2 == 0 ? 3 : std::size(kUppers);
  return kUppers[id % in_use] << 29 | kHonestTag | id;
}
inline uint64_t id_of_tag(uint64_t tag) {
  return tag & (kHonestTag - 1);
}
inline uint8_t mark_of(uint8_t who) {
  return uint8_t(0xa0 | who);
}

struct World {
  std::deque<Link> links;
  std::deque<std::function<void()>> events;  // requests on their way to the listener
  Side *endpoint = nullptr, *honest = nullptr;
  std::vector<Link *> calls;  // requests to the attacker without an answer
  std::vector<uint64_t> ids;  // message ids that the attacker saw
  struct Ask {
    Link *link;
    Token *token;
    size_t length;
    RmaVector vector = {};
  };
  std::vector<Ask> asks;         // reads of the attacker's memory without an answer
  std::vector<Ask> actors_asks;  // the same of the thief's, and by way of the relay
  struct Call {
    Link *link;
    std::vector<uint8_t> bytes;
  };
  std::vector<Call> thief_calls, relay_calls;  // requests to them without an answer
  bool acted = false;                          // there are a thief and a relay
  // The thief may answer, or has answered, what it was asked while it had the address of the honest
  // peer, which has it again. It is believed (SECURITY.md).
  bool late = false;
  bool relay_listens = false;
  bool thief_listens = false;  // at the honest peer's address
  bool limited = false;        // connections end when they are idle, and then their address is free
  uint32_t stolen = 0;         // messages of the thief
  struct Return {
    Side *side;
    Token *token;
    std::vector<iovec> into;
  };
  std::deque<Return> returns;  // tokens of closed links
  uint64_t now = 1'000'000;
  bool low = false;     // the honest peer's address is below the endpoint's
  bool mute = false;    // sends to the attacker get -FI_EAGAIN
  bool scarce = false;  // connecting with the attacker fails
  unsigned stutter = 0, tries = 0;
  size_t cursor = 0, turns = 0;

  Link &make(Side *side, Connection *owner) {
    links.emplace_back();
    links.back().side = side;
    links.back().owner = owner;
    return links.back();
  }
  // An end of the thief or of the relay.
  Link &make_actors(uint8_t who) {
    Link &link = make(nullptr, nullptr);
    link.who = who;
    link.is_actors = true;
    return link;
  }
  bool step();

 private:
  bool event();
  bool come_back();
  static bool sent(Link &link);
};

// Closes the attacker's or a dead peer's end of a link.
inline void end_link(Link &link, bool reset) {
  link.open = false;
  if (reset) link.other->inbox.clear();  // a reset overtakes packets
  link.other->inbox.push_back({.kind = Item::Kind::kClosed, .bytes = {}, .vector = {}});
}

}  // namespace weft::rxm

#endif
