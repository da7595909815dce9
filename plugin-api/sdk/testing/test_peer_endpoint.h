// SPDX-License-Identifier: BSD-2-Clause
// Endpoint: an honest endpoint in a World, made of PeerLink, PlaceOwners and Crowd in the way of
// the plugins: of tcp, which reads answers in the order in which they came, or of rxm, which does
// not and therefore doubts.
//
// Example:
//    inline bool one_sends_to_the_other(peer_model::World &world) {
//      using namespace peer_model;
//      const Address a = address_of(1, 1000), b = address_of(2, 1000);
//      Endpoint &from = world.add<Endpoint>(1, world.new_process(), a, Endpoint::Settings{});
//      Endpoint &to = world.add<Endpoint>(2, world.new_process(), b, Endpoint::Settings{});
//      if (!from.open() || !to.open()) return false;
//      from.insert(b, /*entry=*/0);
//      from.send(b);
//      world.run_for(kSec);
//      return from.is_linked_with(to);
//    }
//
// Not for bytes, memory and time limits of the plugins: they have tests of their own.
#pragma once

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/peer/crowd.h>
#include <weft/sdk/peer/link.h>
#include <weft/sdk/peer/place.h>

#include "plugin-api/sdk/testing/test_peer_world.h"

namespace weft::sdk::peer_model {

using State = PeerLink::State;
using Next = PeerLink::Next;
using Refusal = PeerLink::Refusal;
using Claim = PlaceOwners::Claim;

struct Peer {
  Address at;
  uint32_t index = Av::kNone;  // in the address vector
  unsigned place = 0;          // what it says of itself
  PeerLink link;
  WirePtr stream, attempt, probe;
  std::deque<Message> pending;
};

class Endpoint;

// Looks at all that endpoints do.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // `wire` is the link with `peer` from now on; `before`: what it was until now.
  virtual void on_link(const Endpoint &, const Peer &, const WirePtr &, const WirePtr &) {}
  virtual void on_message(const Endpoint &, const Peer &, const WirePtr &, const Message &) {}
  // An answer to a call of ours.
  virtual void on_answer(const Endpoint &, const Peer &, const Wire &) {}
  // What waited for a link is sent by `wire`.
  virtual void on_send(const Endpoint &, const Peer &, const WirePtr &) {}
  // One that could make room does. First those that could, then all strangers.
  virtual void on_eviction(const Endpoint &, const WirePtr &, const std::vector<WirePtr> &,
                           const std::vector<WirePtr> &) {}
  virtual void on_refusal(const Endpoint &, const Wire &, const Address &) {}
  virtual void on_failure(const Endpoint &, const Peer &) {}
};

class Endpoint final : public Agent, PlaceOwners::Peers {
 public:
  struct Settings {
    bool in_order = true;
    PeerLink::Rules rules = {};
    uint32_t key = 0;  // 0: none
    uint8_t place = 0, last = 0;
    size_t max_strangers = 6, max_handshakes = 6;
    uint64_t timeout = 15 * kSec;
    uint64_t longest_pause = kMs;  // between two looks at what has arrived
    bool replies = false;          // its application does, to some messages of peers with a name
    Watcher *watcher = nullptr;
  };
  static constexpr uint64_t kHandshakeNs = 2 * kSec;
  static constexpr uint64_t kSilenceNs = 50 * kMs, kStuckNs = kSec;

  Endpoint(World &world, unsigned host, uint32_t process, const Address &at,
           const Settings &settings)
      : Agent(world, host, process),
        settings_(settings),
        at_(at),
        number_(process * 100 + settings.place) {}

  bool open() {
    opened_at_ = world_.now;
    return world_.listen(at_, *this);
  }
  uint64_t opened_at() const { return opened_at_; }
  bool honest() const override { return true; }
  const Address &address() const { return at_; }
  // What its requests say of its process: anybody on its host can find it out.
  uint64_t number() const { return number_; }
  const Settings &settings() const { return settings_; }
  int failed() const { return failed_; }

  void insert(const Address &peer, uint32_t entry) {
    av_[peer] = entry;
    if (const int known = find(peer); known >= 0) peers_[size_t(known)].index = entry;
    for (unsigned place = 1; place < Av::kContexts; ++place) {
      const Address at = *peer.with_port(uint16_t(peer.port() + place));
      const int known = find(at);
      if (known < 0 || peers_[size_t(known)].place != place) continue;
      if (owners_.judge(at, place, world_.now) == Claim::kTrue)
        name_context(at, place, index_of_context(at, place));
    }
  }
  int send(const Address &to) {
    Peer &peer = peers_[size_t(find_or_add(to))];
    peer.pending.push_back({process(), world_.next_value++});
    const int value = peer.pending.back().value;
    follow(peer, peer.link.want(world_.now, settings_.timeout));
    flush(peer);
    return value;
  }
  // To a context of an endpoint in the address vector.
  void send_to_context(const Address &first, unsigned place) {
    const Address at = *first.with_port(uint16_t(first.port() + place));
    Peer &peer = peers_[size_t(find_or_add(at))];
    peer.index = index_of_context(at, place);
    called_.insert(at);
    send(at);
  }
  // As a context, so the application says that it is one.
  bool has_called(const Address &at) const { return called_.contains(at); }
  bool has_entry(const Address &at) const { return av_.contains(at); }
  const Peer *peer_at(const Address &at) const {
    const int known = find(at);
    return known >= 0 ? &peers_[size_t(known)] : nullptr;
  }
  // By one connection, which both take for the one that counts.
  bool is_linked_with(const Endpoint &other) const {
    const Peer *ours = peer_at(other.at_), *theirs = other.peer_at(at_);
    return ours != nullptr && theirs != nullptr && ours->stream != nullptr &&
           (ours->stream == theirs->stream) && ours->link.state() == State::kUp &&
           theirs->link.state() == State::kUp;
  }
  // The index under which it was reported; Av::kNone: a stranger's, or it has not arrived.
  uint32_t source_of(uint32_t author, int value) const {
    const auto found = received_.find({author, value});
    return found != received_.end() ? found->second : Av::kNone;
  }
  bool has_received(uint32_t author, int value) const {
    return received_.contains({author, value});
  }
  const std::deque<Peer> &peers() const { return peers_; }
  size_t strangers() const {
    return size_t(std::ranges::count_if(
        peers_, [](const Peer &p) { return p.index == Av::kNone && p.stream != nullptr; }));
  }
  int side_of(const Wire &wire) const { return wire.ends[0] == this ? 0 : 1; }

  // ---- Agent ----
  void on_incoming(const WirePtr &wire) override {
    backlog_.push_back(wire);
    admit();
  }
  void on_arrival(const WirePtr &wire, int side) override {
    ready_.emplace_back(wire, side);
    if (std::exchange(polls_, true)) return;
    world_.after(world_.random.below(settings_.longest_pause), [this] {
      if (alive()) poll();
    });
  }

 private:
  // ---- reading ----
  void poll() {
    polls_ = false;
    auto ready = std::exchange(ready_, {});
    world_.random.shuffle(ready);
    for (const auto &[wire, side] : ready) read(wire, side);
    admit();
  }
  void read(const WirePtr &wire, int side) {
    std::deque<Packet> &unread = wire->unread[side];
    while (wire->open[side] && !unread.empty()) {
      // News of connections and messages come by two ways where answers are not read in order: a
      // message may come first, and the news later.
      const bool overtakes = !settings_.in_order && unread.size() > 1 &&
                             unread[0].kind == Packet::kAccept && unread[1].kind == Packet::kData &&
                             world_.random.one_in(2);
      const size_t next = overtakes ? 1 : 0;
      if (overtakes) read_later(wire, side);
      const Packet packet = unread[next];
      unread.erase(unread.begin() + long(next));
      if (side == 1 && std::ranges::find(backlog_, wire) != backlog_.end()) {
        unread.push_front(packet);  // nobody has accepted it yet
        return;
      }
      on_packet(wire, side, packet);
      if (overtakes) return;
    }
  }
  void read_later(const WirePtr &wire, int side) {
    world_.after(world_.random.below(2 * world_.longest_trip()), [this, wire, side] {
      if (alive()) read(wire, side);
    });
  }
  void on_packet(const WirePtr &wire, int side, const Packet &packet) {
    switch (packet.kind) {
      case Packet::kConnected:
        if (settings_.key == 0) return request(wire);
        wire->nonce[side] = world_.random.below(UINT32_MAX);
        return world_.send(wire, side,
                           {.kind = Packet::kNonce, .nonce_of_sender = wire->nonce[side]});
      case Packet::kNonce:
      case Packet::kPassiveProof:
      case Packet::kActiveProof:
        return on_key(wire, side, packet);
      case Packet::kRequest:
        if (settings_.key != 0 && !wire->proven[side]) return refuse(wire, false);
        return on_request(wire, packet.hello);
      case Packet::kAccept:
        return on_accept(wire, packet);
      case Packet::kReject:
        if (Peer *peer = caller(wire)) tell(*peer, *wire, packet.last);
        return on_end(wire, side, packet.again ? Refusal::kRejected : Refusal::kUnreachable);
      case Packet::kData:
      case Packet::kPart:
        return on_data(wire, side, packet);
      case Packet::kEnd:
        return on_end(wire, side, Refusal::kHungUp);
      case Packet::kReset:
        return on_end(wire, side, Refusal::kUnreachable);
    }
  }
  // The peer to which we have called by this connection, and which has not answered.
  Peer *caller(const WirePtr &wire) {
    if (wire->ends[0] != this || wire->peer[0] < 0) return nullptr;
    Peer &peer = peers_[size_t(wire->peer[0])];
    return wire == peer.attempt || wire == peer.probe ? &peer : nullptr;
  }

  // ---- keys, as in tcp's key exchange ----
  Proof proof(char role, const Wire &wire) const {
    const bool ours = wire.ends[0] == this;
    return {settings_.key, role, ours ? wire.nonce[0] : wire.other_nonce[1],
            ours ? wire.other_nonce[0] : wire.nonce[1], wire.called};
  }
  void on_key(const WirePtr &wire, int side, const Packet &packet) {
    if (settings_.key == 0) return refuse(wire, false);
    switch (packet.kind) {
      case Packet::kNonce:
        if (side != 1) return on_end(wire, side, Refusal::kUnreachable);
        wire->other_nonce[1] = packet.nonce_of_sender;
        wire->nonce[1] = world_.random.below(UINT32_MAX);
        return world_.send(wire, 1,
                           {.kind = Packet::kPassiveProof,
                            .proof = proof('P', *wire),
                            .nonce_of_sender = wire->nonce[1]});
      case Packet::kPassiveProof:
        wire->other_nonce[0] = packet.nonce_of_sender;
        if (side != 0 || !equal(packet.proof, proof('P', *wire)))
          return on_end(wire, side, Refusal::kUnreachable);
        wire->proven[0] = true;
        world_.send(wire, 0, {.kind = Packet::kActiveProof, .proof = proof('A', *wire)});
        return request(wire);
      default:
        if (side != 1 || !equal(packet.proof, proof('A', *wire))) return refuse(wire, false);
        wire->proven[1] = true;
        return;
    }
  }
  static bool equal(const Proof &a, const Proof &b) { return a == b; }

  // ---- our requests ----
  WirePtr call(Peer &peer, bool probe) {
    const WirePtr wire = world_.connect(*this, peer.at);
    wire->peer[0] = int(number_of(peer));
    world_.at(probe ? world_.now + kHandshakeNs
                    : std::max(peer.link.deadline(), world_.now + kHandshakeNs),
              [this, wire] {
                if (alive() && caller(wire) != nullptr && wire->known_at[0] == 0)
                  on_end(wire, 0, Refusal::kUnreachable);
              });
    return wire;
  }
  void request(const WirePtr &wire) {
    if (caller(wire) == nullptr || (settings_.key != 0 && !wire->proven[0])) return;
    world_.send(wire, 0,
                {.kind = Packet::kRequest, .hello = {at_.port(), number_, settings_.place}});
  }
  void on_accept(const WirePtr &wire, const Packet &packet) {
    Peer *peer = caller(wire);
    if (peer == nullptr || wire->known_at[0] != 0) return;
    if (settings_.key != 0 && !wire->proven[0]) return on_end(wire, 0, Refusal::kUnreachable);
    wire->known_at[0] = world_.now;
    tell(*peer, *wire, packet.last);
    if (wire == peer->attempt) {
      const Next next = peer->link.on_accepted(world_.now, packet.hello.process);
      begin(*peer, std::exchange(peer->attempt, nullptr));
      return follow(*peer, next);
    }
    follow(*peer, peer->link.on_accepted(world_.now, packet.hello.process));
  }
  void on_end(const WirePtr &wire, int side, Refusal refusal) {
    world_.close(wire, side);
    std::erase_if(fresh_, [&](const WirePtr &w) { return w == wire && side == 1; });
    if (wire->peer[side] < 0) return;
    Peer &peer = peers_[size_t(wire->peer[side])];
    if (wire == peer.probe && side == 0) {
      peer.probe = nullptr;
      peer.link.on_probe_ended();
      flush(peer);
    } else if (wire == peer.attempt && side == 0) {
      peer.attempt = nullptr;
      follow(peer, peer.link.on_refused(world_.now, refusal, wanted(peer)));
    } else if (wire == peer.stream && side == side_of(*wire)) {
      lose(peer);
    }
    check(peer);
  }
  void lose(Peer &peer) {
    world_.close(peer.stream, side_of(*peer.stream));
    peer.stream = nullptr;
    if (peer.index < Av::kContext) owners_.ended(peer.index);
    follow(peer, peer.link.on_lost(world_.now, !peer.pending.empty(), settings_.timeout));
  }
  static bool is_idle(const Peer &peer) {
    return peer.stream == nullptr && peer.attempt == nullptr && peer.probe == nullptr &&
           peer.pending.empty() && peer.link.state() == State::kIdle;
  }
  // A peer with which there is nothing is forgotten.
  void check(Peer &peer) {
    if (!is_idle(peer)) return;
    peer.place = 0;
    peer.index = index_of(peer.at);
  }
  bool wanted(const Peer &peer) const {
    return !peer.pending.empty() ||
           (peer.index != Av::kNone && owners_.waits(Av::entry_of(peer.index), world_.now));
  }
  void follow(Peer &peer, Next next) {
    switch (next) {
      case Next::kNothing:
        return;
      case Next::kWait:
        return world_.at(peer.link.wake_at(), [this, n = number_of(peer)] { on_time(n); });
      case Next::kConnect:
        peer.attempt = call(peer, false);
        return;
      case Next::kProbe:
        peer.probe = call(peer, true);
        return;
      case Next::kResume:
        peer.attempt = std::exchange(peer.probe, nullptr);
        return;
      case Next::kReplace:
        return begin(peer, std::exchange(peer.probe, nullptr));
      case Next::kFail:
        failed_ += int(peer.pending.size());
        peer.pending.clear();
        if (settings_.watcher != nullptr) settings_.watcher->on_failure(*this, peer);
        return check(peer);
    }
  }
  void on_time(size_t number) {
    Peer &peer = peers_[number];
    const State state = peer.link.state();
    if (!alive() || (state != State::kBackoff && state != State::kDoubt)) return;
    if (peer.link.wake_at() <= world_.now)
      follow(peer, peer.link.on_time(world_.now, wanted(peer)));
  }

  // ---- requests of peers ----
  void refuse(const WirePtr &wire, bool again) {
    if (wire->ends[0] == this) return on_end(wire, 0, Refusal::kUnreachable);
    world_.send(wire, 1, {.kind = Packet::kReject, .last = settings_.last, .again = again});
    world_.close(wire, 1);
    std::erase(fresh_, wire);
  }
  void on_request(const WirePtr &wire, const Hello &hello) {
    if (wire->ends[1] != this || std::erase(fresh_, wire) == 0) return;
    const Address from = *at_.with_port(hello.port);
    const Address remote = address_of(wire->ends[0]->host(), from.port());
    const Claim claim =
        hello.place == 0 ? Claim::kTrue : owners_.judge(remote, hello.place, world_.now);
    if (claim == Claim::kAsk || claim == Claim::kWait) return refuse(wire, true);
    Peer *peer = requester(remote, hello.place, claim == Claim::kTrue);
    if (peer != nullptr && settings_.in_order && peer->attempt != nullptr) {
      // A process that accepted our attempt, and died, had the address before this requester.
      read(WirePtr(peer->attempt), 0);
      peer = requester(remote, hello.place, claim == Claim::kTrue);
    }
    if (peer == nullptr) {
      if (settings_.watcher != nullptr) settings_.watcher->on_refusal(*this, *wire, remote);
      return refuse(wire, true);
    }
    peer->place = hello.place;
    const bool claims = peer->link.is_up() && peer->link.process() != hello.process;
    if (claims && peer->stream != nullptr && has_ended(*peer->stream)) lose(*peer);
    const PeerLink::Decision decision =
        peer->link.on_request(remote <=> at_, hello.process, world_.now);
    if (!decision.accept) {
      refuse(wire, true);
      return follow(*peer, decision.next);
    }
    if (decision.to_probe) {
      peer->probe = std::exchange(peer->attempt, nullptr);
    } else if (!decision.second && peer->attempt != nullptr) {
      world_.close(std::exchange(peer->attempt, nullptr), 0);
    }
    world_.send(wire, 1,
                {.kind = Packet::kAccept,
                 .hello = {at_.port(), number_, settings_.place},
                 .last = settings_.last});
    wire->peer[1] = int(number_of(*peer));
    wire->known_at[1] = wire->useful_at = world_.now;
    if (decision.second) return;
    begin(*peer, wire);
    if (peer->index < Av::kContext) owners_.begun(peer->index, peer->at, world_.now);
  }
  bool has_ended(const Wire &wire) const {
    const auto &unread = wire.unread[side_of(wire)];
    return !unread.empty() && unread.back().kind == Packet::kEnd;
  }
  // From now on this is the link.
  void begin(Peer &peer, const WirePtr &wire) {
    const WirePtr before = std::exchange(peer.stream, wire);
    if (settings_.watcher != nullptr) settings_.watcher->on_link(*this, peer, wire, before);
    if (before != nullptr && before != wire) world_.close(before, side_of(*before));
    flush(peer);
  }
  void flush(Peer &peer) {
    if (peer.stream == nullptr || peer.link.state() == State::kDoubt) return;
    if (settings_.watcher != nullptr && !peer.pending.empty())
      settings_.watcher->on_send(*this, peer, peer.stream);
    while (!peer.pending.empty()) {
      world_.send(peer.stream, side_of(*peer.stream),
                  {.kind = Packet::kData, .message = peer.pending.front()});
      peer.pending.pop_front();
    }
  }
  void on_data(const WirePtr &wire, int side, const Packet &packet) {
    if (wire->peer[side] < 0 || (settings_.key != 0 && !wire->proven[side]))
      return on_end(wire, side, Refusal::kUnreachable);
    Peer &peer = peers_[size_t(wire->peer[side])];
    if (wire == peer.attempt || wire == peer.probe) {
      if (settings_.in_order && wire->known_at[0] == 0)
        return on_end(wire, side, Refusal::kUnreachable);  // no answer
      if (wire->known_at[0] == 0) peer.link.on_heard();
    }
    if (packet.kind == Packet::kPart) {
      if (wire->mid_since == 0) wire->mid_since = world_.now;
      return;
    }
    wire->mid_since = 0;
    wire->useful_at = world_.now;
    wire->heard[side] = true;
    received_[{packet.message.author, packet.message.value}] = peer.index;
    if (settings_.watcher != nullptr)
      settings_.watcher->on_message(*this, peer, wire, packet.message);
    if (settings_.replies && peer.index != Av::kNone && world_.random.one_in(3))
      world_.after(0, [this, at = peer.at] {
        const Peer *const named = alive() ? peer_at(at) : nullptr;
        if (named != nullptr && named->index != Av::kNone) send(at);
      });
  }

  // ---- peers and strangers, as in tcp ----
  size_t number_of(const Peer &peer) const {
    for (size_t i = 0; i < peers_.size(); ++i)
      if (&peers_[i] == &peer) return i;
    return SIZE_MAX;
  }
  int find(const Address &at) const {
    const auto found = by_address_.find(at);
    return found != by_address_.end() ? int(found->second) : -1;
  }
  uint32_t index_of(const Address &at) const {
    const auto found = av_.find(at);
    return found != av_.end() ? found->second : Av::kNone;
  }
  int find_or_add(const Address &at) {
    if (const int known = find(at); known >= 0) return known;
    by_address_[at] = peers_.size();
    Peer &peer = peers_.emplace_back();
    peer.at = at;
    peer.index = index_of(at);
    peer.link = PeerLink(settings_.rules);
    return int(peers_.size()) - 1;
  }
  Peer *requester(const Address &at, unsigned place, bool believed) {
    const bool full = strangers() >= settings_.max_strangers;
    if (const int known = find(at); known >= 0 && !is_idle(peers_[size_t(known)])) {
      Peer &peer = peers_[size_t(known)];
      if (!full || peer.index != Av::kNone || peer.stream != nullptr) return &peer;
    }
    const uint32_t index = !believed    ? Av::kNone
                           : place != 0 ? index_of_context(at, place)
                                        : index_of(at);
    if (index == Av::kNone && full) {
      make_room();
      return nullptr;
    }
    Peer &peer = peers_[size_t(find_or_add(at))];
    if (index != Av::kNone) peer.index = index;
    return &peer;
  }
  void make_room() {
    std::vector<WirePtr> idle, stuck, all;
    for (const Peer &peer : peers_) {
      if (peer.index != Av::kNone || peer.stream == nullptr) continue;
      all.push_back(peer.stream);
      const uint64_t since = peer.stream->mid_since;
      if (since == 0) idle.push_back(peer.stream);
      if (since != 0 && world_.now - since >= kStuckNs) stuck.push_back(peer.stream);
    }
    evict(all, idle.empty() ? stuck : idle);
  }
  bool evict(const std::vector<WirePtr> &all, const std::vector<WirePtr> &candidates) {
    Crowd crowd;
    for (const WirePtr &wire : all) crowd.add(remote(*wire));
    WirePtr first;
    for (const WirePtr &wire : candidates)
      if (crowd.goes_before(remote(*wire), wire->useful_at)) first = wire;
    if (first == nullptr) return false;
    if (settings_.watcher != nullptr) settings_.watcher->on_eviction(*this, first, candidates, all);
    on_end(first, side_of(*first), Refusal::kHungUp);
    return true;
  }
  Address remote(const Wire &wire) const {
    return address_of(wire.ends[1 - side_of(wire)]->host(), 1);
  }
  // Accepts connections from the backlog, as long as there is room for requests that may come.
  void admit() {
    while (!backlog_.empty()) {
      if (fresh_.size() >= settings_.max_handshakes) {
        std::vector<WirePtr> silent;
        for (const WirePtr &wire : fresh_)
          if (world_.now - wire->useful_at >= kSilenceNs) silent.push_back(wire);
        if (!evict(fresh_, silent)) return admit_later();
      }
      const WirePtr wire = backlog_.front();
      backlog_.pop_front();
      if (!wire->open[1]) continue;
      wire->useful_at = world_.now;
      fresh_.push_back(wire);
      world_.after(kHandshakeNs, [this, wire] {
        if (alive() && std::ranges::find(fresh_, wire) != fresh_.end())
          on_end(wire, 1, Refusal::kHungUp);
      });
      if (!wire->unread[1].empty()) on_arrival(wire, 1);
    }
  }
  void admit_later() {
    if (std::exchange(waits_to_admit_, true)) return;
    world_.after(kSilenceNs, [this] {
      waits_to_admit_ = false;
      if (alive()) admit();
    });
  }

  // ---- contexts ----
  void tell(const Peer &peer, const Wire &wire, uint8_t last) {
    if (settings_.watcher != nullptr) settings_.watcher->on_answer(*this, peer, wire);
    if (peer.index != Av::kNone) owners_.told(Av::entry_of(peer.index), peer.at, last, world_.now);
  }
  uint32_t index_of_context(const Address &address, unsigned place) override {
    if (place == 0 || place > address.port()) return Av::kNone;
    const uint32_t entry = index_of(*address.with_port(uint16_t(address.port() - place)));
    return entry != Av::kNone ? Av::kContext + entry * Av::kContexts + place : Av::kNone;
  }
  bool is_connected(uint32_t entry) override {
    return std::ranges::any_of(
        peers_, [&](const Peer &p) { return p.index == entry && p.stream != nullptr; });
  }
  void ask_for_places(uint32_t entry, const Address &first) override {
    Peer &peer = peers_[size_t(find_or_add(first))];
    peer.index = entry;
    follow(peer, peer.link.ask(world_.now, settings_.timeout));
  }
  void name_context(const Address &address, unsigned place, uint32_t index) override {
    const int known = find(address);
    if (known >= 0 && peers_[size_t(known)].place == place) peers_[size_t(known)].index = index;
  }
  void drop_context(const Address &address, unsigned place) override {
    const int known = find(address);
    if (known < 0 || peers_[size_t(known)].place != place) return;
    Peer &peer = peers_[size_t(known)];
    if (peer.stream != nullptr) lose(peer);
    check(peer);
  }

  const Settings settings_;
  const Address at_;
  const uint64_t number_;
  std::map<Address, uint32_t> av_;
  std::set<Address> called_;
  PlaceOwners owners_{*this};
  std::deque<Peer> peers_;
  std::map<Address, size_t> by_address_;
  std::deque<WirePtr> backlog_;  // accepted by the kernel
  std::vector<WirePtr> fresh_;   // have not asked for anything yet
  std::vector<std::pair<WirePtr, int>> ready_;
  bool polls_ = false, waits_to_admit_ = false;
  int failed_ = 0;
  uint64_t opened_at_ = 0;
  std::map<std::pair<uint32_t, int>, uint32_t> received_;  // under which name
};

}  // namespace weft::sdk::peer_model
