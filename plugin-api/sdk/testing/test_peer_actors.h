// SPDX-License-Identifier: BSD-2-Clause
// Who means harm in a World of endpoints: a thief of a peer's port or name on the peer's host,
// which may also pass the handshakes of others on (a relay), and crowds of strangers. And what
// became of each deed.
//
// Example:
//    inline void a_false_claim(peer_model::World &world, peer_model::Endpoint &victim,
//                              const peer_model::Endpoint &peer) {
//      using namespace peer_model;
//      Thief &thief = world.add<Thief>(peer.host(), world.new_process());
//      thief.claim(victim, peer.address(), /*number=*/77, /*place=*/0);
//      world.run_for(kSec);
//    }
#pragma once

#include "plugin-api/sdk/testing/test_peer_endpoint.h"

namespace weft::sdk::peer_model {

enum Deed : uint8_t {
  kHonest,
  kPortBefore,      // the thief listens at the peer's port before the peer's life
  kPortAfter,       // or after it
  kClaimFirst,      // it names the peer's port; there is no connection with the peer
  kClaimCrossing,   // the endpoint is calling the peer
  kClaimConnected,  // there is a connection with the peer
  kClaimNumber,     // the same, by the peer's own process number
  kClaimPlace,      // it says that it is a context of the peer
  kRelayToOther,    // passes a handshake on to another endpoint, and adds messages of its own
  kRelayBack,       // to the caller
  kRelayToPeer,     // to the peer itself, which has its port by then
  kRelayOfName,     // of one that calls the thief, to an endpoint, in the peer's name
  kSilent,          // strangers: no request
  kIdle,            // a request and nothing more
  kSlow,            // a message that never ends
  kUseful,          // messages
  kDeeds,
};
inline constexpr const char *kDeedNames[kDeeds] = {
    "honest requests",   "port before its life", "port after its life", "claim, no link",
    "claim, crossing",   "claim, connected",     "claim, same number",  "claim of a place",
    "relay to another",  "relay back",           "relay to the peer",   "relay in its name",
    "strangers, silent", "strangers, idle",      "strangers, slow",     "strangers, useful"};

// Of each deed, over all seeds.
struct Tally {
  struct Row {
    uint64_t attempts = 0, linked = 0, named = 0, refused = 0, found_out = 0;
  };
  Row rows[kDeeds];
  uint64_t restarts = 0, cuts = 0, contexts = 0, messages = 0;
};

class Thief final : public Agent {
 public:
  enum Answer : uint8_t {
    kSilence,
    kAccept,
    kRejectForNow,
    kReject,
    kHangUp,
    kDataFirst,
    kPassOn,  // to `target`
    kHold,    // pass on to the peer when it is there
    kAnswers,
  };
  Thief(World &world, unsigned host, uint32_t process) : Agent(world, host, process) {}

  Tally *tally = nullptr;
  Address target;          // of kPassOn
  Address name;            // kPassOn in the name of another; none: it is passed on as it is
  bool reflects = false;   // kPassOn goes to who called
  uint8_t says_last = 31;  // of the port that it has

  bool take(const Address &port, Deed as) {
    if (!world_.listen(port, *this)) return false;
    ports_[port] = as;
    return true;
  }
  // And serves who is held there to the peer, if that comes.
  void leave(const Address &port) {
    world_.unlisten(port, *this);
    ports_.erase(port);
    world_.after(world_.random.below(20 * kMs), [this] {
      for (const WirePtr &wire : std::exchange(held_, {})) {
        const Agent *const peer = world_.listener(wire->called);
        if (!alive() || !wire->open[1] || peer == nullptr || !peer->honest()) continue;
        wire->in_path = true;
        pass_on(wire, wire->called, kRelayToPeer);
      }
    });
  }
  bool has(const Address &port) const { return ports_.contains(port); }
  const std::map<Address, Deed> &ports() const { return ports_; }

  void claim(const Endpoint &victim, const Address &as, uint64_t number, uint8_t place) {
    const Peer *known = victim.peer_at(as);
    const State state = known != nullptr ? known->link.state() : State::kIdle;
    Deed deed = place != 0                                            ? kClaimPlace
                : state == State::kAttempt || state == State::kInsist ? kClaimCrossing
                : state == State::kIdle || state == State::kBackoff   ? kClaimFirst
                                                                      : kClaimConnected;
    if (deed == kClaimConnected && known->link.process() == number) deed = kClaimNumber;
    const WirePtr wire = call(victim.address(), deed);
    calls_[wire].request = {as.port(), number, place};
  }
  // Strangers: `deed` says what it does.
  void crowd(const Address &victim, Deed deed, uint16_t port) {
    const WirePtr wire = call(victim, deed);
    if (deed != kSilent) calls_[wire].request = {port, process() * 100ULL + port, 0};
  }
  // Does something with one of its connections.
  void stir() {
    if (wires_.empty()) return;
    const WirePtr wire = wires_[world_.random.below(wires_.size())];
    const int side = side_of(*wire);
    if (world_.random.one_in(6)) {
      world_.close(wire, side);
    } else if (wire->deed == kSlow) {
      world_.send(wire, side, {.kind = Packet::kPart});
    } else if (wire->deed != kSilent && wire->deed != kIdle && !wire->in_path) {
      say(wire);
    }
  }
  void close_all() {
    for (const WirePtr &wire : wires_) world_.close(wire, side_of(*wire));
    wires_.clear();
  }

  // ---- Agent ----
  void on_incoming(const WirePtr &wire) override {
    const auto port = ports_.find(wire->called);
    wire->deed = port != ports_.end() ? port->second : kPortBefore;
    wires_.push_back(wire);
    Answer &answer = calls_[wire].answer = Answer(world_.random.below(kAnswers));
    if (answer == kPassOn && target == Address()) answer = kAccept;
    if (answer == kPassOn) {
      const Address back = address_of(wire->ends[0]->host(), target.port());
      const Deed deed = name != Address() ? kRelayOfName : reflects ? kRelayBack : kRelayToOther;
      return pass_on(wire, reflects ? back : target, deed);
    }
    count(&Tally::Row::attempts, Deed(wire->deed));
    if (answer == kHangUp) world_.close(wire, 1);
    if (answer == kHold) held_.push_back(wire);
  }
  void on_arrival(const WirePtr &wire, int side) override {
    while (!wire->unread[side].empty()) {
      const Packet packet = wire->unread[side].front();
      wire->unread[side].pop_front();
      on_packet(wire, side, packet);
    }
  }

 private:
  int side_of(const Wire &wire) const { return wire.ends[0] == this ? 0 : 1; }
  void count(uint64_t Tally::Row::*what, Deed deed) {
    if (tally != nullptr) ++(tally->rows[deed].*what);
  }
  WirePtr call(const Address &to, Deed deed) {
    const WirePtr wire = world_.connect(*this, to);
    wire->deed = deed;
    wires_.push_back(wire);
    calls_[wire];
    count(&Tally::Row::attempts, deed);
    return wire;
  }
  void say(const WirePtr &wire) {
    world_.send(wire, side_of(*wire),
                {.kind = Packet::kData, .message = {process(), world_.next_value++}});
  }
  void pass_on(const WirePtr &wire, const Address &to, Deed deed) {
    wire->deed = deed;
    const WirePtr other = call(to, deed);
    other->in_path = wire->in_path;
    calls_[wire].other = other;
    calls_[wire].connected = true;
    calls_[other].other = wire;
    calls_[other].waiting = std::exchange(calls_[wire].waiting, {});
  }
  void forward(const WirePtr &wire, const WirePtr &other, Packet packet) {
    if (packet.kind == Packet::kConnected) {
      calls_[wire].connected = true;
      for (const Packet &p : std::exchange(calls_[wire].waiting, {})) world_.send(wire, 0, p);
      return;
    }
    if (packet.kind == Packet::kEnd || packet.kind == Packet::kReset) {
      const bool was = wire->known_at[side_of(*wire)] != 0;
      if (wire->open[side_of(*wire)])
        count(was ? &Tally::Row::found_out : &Tally::Row::refused, Deed(wire->deed));
      world_.close(wire, side_of(*wire));
      return world_.close(other, side_of(*other));
    }
    if (packet.kind == Packet::kRequest && name != Address() && !wire->in_path)
      packet.hello.port = name.port();
    if (!calls_[other].connected) return calls_[other].waiting.push_back(packet);
    world_.send(other, side_of(*other), packet);
    if (packet.kind != Packet::kAccept) return;
    wire->known_at[side_of(*wire)] = other->known_at[side_of(*other)] = world_.now;
    if (wire->in_path) return;
    say(wire);
    say(other);
  }
  void on_packet(const WirePtr &wire, int side, const Packet &packet) {
    Call &call = calls_[wire];
    if (call.other != nullptr) return forward(wire, call.other, packet);
    switch (packet.kind) {
      case Packet::kConnected:
        if (call.request.port != 0)
          world_.send(wire, 0, {.kind = Packet::kRequest, .hello = call.request});
        return;
      case Packet::kNonce:  // the thief does not know the key
        if (call.answer == kHold) return call.waiting.push_back(packet);
        if (call.answer != kSilence)
          world_.send(wire, 1,
                      {.kind = Packet::kPassiveProof,
                       .proof = {0, 'P', packet.nonce_of_sender, 1, wire->called},
                       .nonce_of_sender = 1});
        return;
      case Packet::kRequest:
        if (call.answer == kHold) return call.waiting.push_back(packet);
        return answer(wire, call.answer);
      case Packet::kAccept:
        wire->known_at[side] = world_.now;
        if (wire->deed == kSlow) return world_.send(wire, side, {.kind = Packet::kPart});
        if (wire->deed != kIdle) say(wire);
        return;
      case Packet::kReject:
      case Packet::kEnd:
      case Packet::kReset:
        if (wire->open[side])
          count(wire->known_at[side] != 0 ? &Tally::Row::found_out : &Tally::Row::refused,
                Deed(wire->deed));
        world_.close(wire, side);
        std::erase(wires_, WirePtr(wire));
        return;
      default:
        return;
    }
  }
  void answer(const WirePtr &wire, Answer answer) {
    const Hello hello = {wire->called.port(), process() * 100ULL, 0};
    switch (answer) {
      case kDataFirst:
        say(wire);
        [[fallthrough]];
      case kAccept:
        wire->known_at[1] = world_.now;
        world_.send(wire, 1, {.kind = Packet::kAccept, .hello = hello, .last = says_last});
        return say(wire);
      case kRejectForNow:
      case kReject:
        world_.send(wire, 1,
                    {.kind = Packet::kReject, .last = says_last, .again = answer == kRejectForNow});
        return world_.close(wire, 1);
      default:
        return;
    }
  }

  // What it does with a connection.
  struct Call {
    Hello request;  // port 0: none
    Answer answer = kSilence;
    WirePtr other;           // to which it passes all on
    bool connected = false;  // so it takes packets
    std::deque<Packet> waiting;
  };
  std::map<Address, Deed> ports_;
  std::vector<WirePtr> wires_, held_;
  std::map<WirePtr, Call> calls_;
};

}  // namespace weft::sdk::peer_model
