// SPDX-License-Identifier: BSD-2-Clause
// Checker: what endpoints promise of who their peers are, held against who really sent each message
// and who really listened where (SECURITY.md, "A process on a peer's host").
//
// Example:
//    inline peer_model::Endpoint &watched(peer_model::World &world, peer_model::Checker &checker) {
//      using namespace peer_model;
//      return world.add<Endpoint>(1, world.new_process(), address_of(1, 1000),
//                                 Endpoint::Settings{.watcher = &checker});
//    }
//
// The peer's own process is the honest one that listens at its address.
// - A connected peer keeps its place: a connection with another process is no link while there is a
//   link with the peer's own process that both take for the one that counts.
// - A message of another process has the peer's name only if its connection began while there was
//   no link with the peer's own process, and only until that has answered a request, and the time
//   of doubt is over.
// - Nothing is sent to another process once a link with the peer's own is known, and who claims to
//   be the peer during a call to it is found out by the answer.
// - A message of another process has the name of a context only if the peer has such a context,
//   once the peer's own process is connected.
// None of these is promised of a process that had the peer's port when the endpoint called, and
// answers later: the call is the peer's by its address, until the peer asks for a connection again.
// - With a key no process without it has a link or a name.
// - A peer of the address vector is never refused for want of room, and of the strangers that can
//   make room one does whose host has the most.
#pragma once

#include "plugin-api/sdk/testing/test_peer_actors.h"

namespace weft::sdk::peer_model {

class Checker final : public Watcher {
 public:
  Checker(World &world, Tally &tally) : world_(world), tally_(tally) {}

  void on_link(const Endpoint &by, const Peer &peer, const WirePtr &wire,
               const WirePtr &before) override {
    const Agent &far = far_end(by, *wire);
    if (before != wire) ++tally_.rows[wire->deed].linked;
    EXPECT_TRUE(by.settings().key == 0 || far.honest() || wire->in_path)
        << "a process without the key has a link: " << kDeedNames[wire->deed];
    const Endpoint *const own = own_process(peer.at);
    if (own == nullptr || &far == own || !can_know(by, far)) return;
    if (wire->deed == kClaimCrossing) expect_found_out(by, peer, wire, *own);
    if (had_the_port(by, *wire)) return;
    for (const WirePtr &link : links(by, peer, *own, before))
      EXPECT_EQ(link, wire) << "the connected peer " << peer.at.to_string()
                            << " has lost its place: " << kDeedNames[wire->deed];
  }
  void on_answer(const Endpoint &by, const Peer &peer, const Wire &wire) override {
    if (!far_end(by, wire).honest() && !wire.in_path) false_answers_[{&by, peer.at}] = world_.now;
  }
  // Nothing is sent to another process once it is known that there is a link with the peer's own.
  void on_send(const Endpoint &by, const Peer &peer, const WirePtr &wire) override {
    const Endpoint *const own = own_process(peer.at);
    if (own == nullptr || &far_end(by, *wire) == own || wire->in_path) return;
    if (!can_know(by, far_end(by, *wire)) || had_the_port(by, *wire)) return;
    EXPECT_TRUE(links(by, peer, *own).empty())
        << "messages for " << peer.at.to_string() << " go to another: " << kDeedNames[wire->deed];
  }
  void on_message(const Endpoint &by, const Peer &peer, const WirePtr &wire,
                  const Message &message) override {
    ++tally_.messages;
    if (peer.index == Av::kNone) return;
    ++tally_.rows[wire->deed].named;
    if (world_.is_home(peer.at, message.author) || wire->in_path) return;
    const std::string who = std::string(kDeedNames[wire->deed]) + " is named as " +
                            peer.at.to_string() + ", place " + std::to_string(peer.place);
    EXPECT_EQ(by.settings().key, 0U) << who << ", without the key";
    const Endpoint *const own = own_process(peer.at);
    if (own != nullptr && !had_the_port(by, *wire)) {
      const uint64_t doubt = by.settings().rules.doubt_ns + kMs;
      for (const WirePtr &link : links(by, peer, *own)) {
        // What came on it may be here before its answer.
        const uint64_t known_at = link->known_at[by.side_of(*link)];
        if (known_at != 0) {
          EXPECT_LE(world_.now - known_at, doubt) << who << ", though the peer has answered";
        }
      }
    }
    if (peer.index >= Av::kContext && !by.has_called(peer.at)) on_false_context(by, peer, who);
  }
  void on_eviction(const Endpoint &by, const WirePtr &first, const std::vector<WirePtr> &candidates,
                   const std::vector<WirePtr> &all) override {
    const auto strangers_of = [&](const WirePtr &wire) {
      return std::ranges::count_if(all, [&](const WirePtr &other) {
        return far_end(by, *other).host() == far_end(by, *wire).host();
      });
    };
    for (const WirePtr &other : candidates)
      EXPECT_GE(strangers_of(first), strangers_of(other)) << "another host has more strangers";
  }
  void on_refusal(const Endpoint &by, const Wire &wire, const Address &remote) override {
    EXPECT_FALSE(by.has_entry(remote)) << "no room for a peer: " << kDeedNames[wire.deed];
  }
  // The endpoint at `first` has so many contexts, from now on.
  void has_contexts(const Address &first, unsigned contexts) {
    most_[first] = std::max(most_[first], contexts);
  }

 private:
  static const Agent &far_end(const Endpoint &by, const Wire &wire) {
    return *wire.ends[1 - by.side_of(wire)];
  }
  const Endpoint *own_process(const Address &at) const {
    return dynamic_cast<const Endpoint *>(world_.listener(at));
  }
  // It had the peer's port when `by` called.
  static bool had_the_port(const Endpoint &by, const Wire &wire) {
    return wire.ends[0] == &by && !far_end(by, wire).honest();
  }
  // The links of `by` with the peer's own process: both take each for the one that counts, or one
  // knows that the other does.
  std::vector<WirePtr> links(const Endpoint &by, const Peer &peer, const Endpoint &own,
                             const WirePtr &before = nullptr) const {
    std::vector<WirePtr> links;
    const Peer *const back = own.peer_at(by.address());
    if (back == nullptr) return links;
    for (const WirePtr &link : {back->stream, back->attempt}) {
      if (link == nullptr || !link->open[0] || !link->open[1] || &far_end(own, *link) != &by)
        continue;
      const int side = by.side_of(*link);
      const bool known = link->known_at[side] != 0 || link->heard[side];
      if (known &&
          (link == peer.stream || link == peer.probe || link == peer.attempt || link == before))
        links.push_back(link);
    }
    return links;
  }
  // A process that died leaves its answer on the way. By the rules of tcp that is read first, if
  // answers arrive in the order in which they were sent; by those of rxm its end comes within the
  // time of doubt.
  bool can_know(const Endpoint &by, const Agent &far) const {
    if (!far.honest()) return true;
    if (by.settings().in_order) return world_.fixed();
    return world_.longest_trip() + by.settings().longest_pause < by.settings().rules.doubt_ns;
  }
  // A claim has won against a call that reaches the peer: the peer's answer ends it. Where the peer
  // calls at the same time, and the claim has its number, the end comes when the peer has asked for
  // long.
  void expect_found_out(const Endpoint &by, const Peer &peer, const WirePtr &wire,
                        const Endpoint &own) {
    if (world_.was_stolen(peer.at) || world_.now - own.opened_at() < kToAnswerNs) return;
    const bool named = peer.link.process() == own.number();
    const uint64_t time = kToAnswerNs + (named ? by.settings().rules.again_ns : 0);
    world_.after(time, [this, &by, &own, wire, at = peer.at, cuts = world_.cuts()] {
      if (!by.alive() || !own.alive() || cuts != world_.cuts() || world_.was_stolen(at)) return;
      EXPECT_NE(by.peer_at(at)->stream, wire)
          << "who claimed to be " << at.to_string() << " during a call is not found out";
    });
  }
  void on_false_context(const Endpoint &by, const Peer &peer, const std::string &who) const {
    const Address first = *peer.at.with_port(uint16_t(peer.at.port() - peer.place));
    const auto most = most_.find(first);
    const unsigned contexts = most != most_.end() ? most->second : 0;
    EXPECT_TRUE(peer.place < contexts || world_.was_stolen(first))
        << who << ", and no process has said so";
    const Endpoint *const own = own_process(first);
    const Peer *const owner = by.peer_at(first);
    if (own == nullptr || owner == nullptr) return;
    for (const WirePtr &link : links(by, *owner, *own)) {
      const auto false_answer = false_answers_.find({&by, first});
      if (false_answer != false_answers_.end() &&
          false_answer->second >= link->known_at[by.side_of(*link)])
        continue;
      const bool new_here = world_.now - link->known_at[by.side_of(*link)] <= kToAskNs;
      EXPECT_TRUE(new_here || peer.place <= own->settings().last)
          << who << ", and the peer has not so many";
    }
  }

  static constexpr uint64_t kToAskNs = 4 * kSec, kToAnswerNs = 3 * kSec;

  World &world_;
  Tally &tally_;
  std::map<Address, unsigned> most_;
  std::map<std::pair<const Endpoint *, Address>, uint64_t> false_answers_;
};

}  // namespace weft::sdk::peer_model
