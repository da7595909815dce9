// SPDX-License-Identifier: BSD-2-Clause
// Who the peer is, in worlds from seeds: two hosts with honest processes, which restart, and call
// each other at once; a thief of a port or a name; relays; crowds of strangers. What must hold is
// in test_peer_checker.h, and at the end of each world honest pairs are connected.
//
// WEFT_SEEDS=100000 runs more of them. The table at the end counts what was tried, and what became
// of it.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "plugin-api/sdk/testing/test_peer_checker.h"
#include "plugin-api/sdk/testing/test_seeds.h"

namespace weft::sdk::peer_model {
namespace {

// The endpoint's own port while its first context is closed: it says how many contexts there are.
class Teller final : public Agent {
 public:
  Teller(World &world, unsigned host, uint32_t process, uint8_t last)
      : Agent(world, host, process), last_(last) {}
  bool honest() const override { return true; }
  void on_arrival(const WirePtr &wire, int side) override {
    const Packet packet = wire->unread[side].front();
    wire->unread[side].clear();
    if (packet.kind == Packet::kRequest)
      world_.send(wire, side, {.kind = Packet::kReject, .last = last_, .again = true});
    world_.close(wire, side);
  }

 private:
  const uint8_t last_;
};

constexpr unsigned kMostContexts = 4;

// An honest endpoint of a process, with one context or several. It may be down.
struct Party {
  Address at;
  unsigned host = 0;
  uint32_t entry = 0;  // in the address vectors of the others
  unsigned contexts = 1;
  uint32_t process = 0;
  Endpoint *context[kMostContexts] = {};
  Teller *teller = nullptr;
  bool up = false;
  std::vector<const Party *> knows;
};

class Drama {
 public:
  Drama(uint64_t seed, Tally &tally, Scenario &scenario)
      : dice_(seed),
        in_order_(dice_.one_in(2)),
        world_(seed, dice_.one_in(2), longest_trip()),
        checker_(world_, tally),
        tally_(tally) {
    key_ = dice_.one_in(4) ? 5 : 0;
    has_thief_ = !dice_.one_in(4);
    has_relay_ = has_thief_ && dice_.one_in(2);
    has_crowd_ = dice_.one_in(4);
    restarts_ = dice_.one_in(2);
    scalable_ = dice_.one_in(3);
    const bool one_host = dice_.one_in(6);
    const unsigned low = dice_.one_in(2) ? 1 : 3;
    set(a_, one_host ? 2 : low, 1000, 3);
    set(x_, 2, dice_.one_in(2) ? 500 : 2000, 7);
    set(y_, 4, 3000, 9);
    meet(a_, x_);
    meet(a_, y_);
    if (scalable_) x_.contexts = 1 + unsigned(dice_.below(kMostContexts));
    scenario.add(
        "%s, key %u, trips of %s up to %llu us, thief %d, relay %d, crowd %d, restarts %d, "
        "contexts %u",
        in_order_ ? "answers in order" : "doubt", key_, world_.fixed() ? "equal" : "any",
        (unsigned long long)(world_.longest_trip() / kUs), has_thief_, has_relay_, has_crowd_,
        restarts_, scalable_ ? x_.contexts : 0);
  }
  void play() {
    for (Party *p : {&a_, &x_, &y_})
      if (!dice_.one_in(4)) raise(*p);
    if (has_thief_) hire();
    if (has_crowd_) gather();
    for (int i = 0; i < 40 && !testing::Test::HasFailure(); ++i) {
      act();
      world_.run_for(pause());
    }
    finish();
  }

 private:
  uint64_t longest_trip() {
    constexpr uint64_t kTrips[] = {50 * kUs, kMs, 20 * kMs, 150 * kMs};
    return kTrips[dice_.below(4)];
  }
  void set(Party &party, unsigned host, uint16_t port, uint32_t entry) {
    party.at = address_of(host, port);
    party.host = host;
    party.entry = entry;
  }
  static void meet(Party &a, Party &b) {
    a.knows.push_back(&b);
    b.knows.push_back(&a);
  }
  uint64_t pause() {
    switch (dice_.below(12)) {
      case 0:
        return dice_.below(400 * kMs);
      case 1:
        return dice_.one_in(4) ? dice_.below(12 * kSec) : 0;
      case 2:
      case 3:
        return 0;
      default:
        return dice_.below(4 * world_.longest_trip());
    }
  }

  // ---- honest processes ----
  bool raise(Party &party) {
    if (party.up) return true;
    if (world_.listener(party.at) != nullptr) return false;  // the thief has the port
    party.up = true;
    party.process = world_.new_process();
    if (scalable_ && &party == &x_) party.contexts = 1 + unsigned(dice_.below(kMostContexts));
    checker_.has_contexts(party.at, party.contexts);
    for (unsigned place = 0; place < party.contexts; ++place) open(party, place);
    return true;
  }
  void open(Party &party, unsigned place) {
    if (party.context[place] != nullptr) return;
    if (place == 0 && party.teller != nullptr) world_.kill(*std::exchange(party.teller, nullptr));
    Endpoint::Settings settings{.in_order = in_order_,
                                .key = key_,
                                .place = uint8_t(place),
                                .last = uint8_t(party.contexts - 1),
                                .watcher = &checker_};
    if (!in_order_)
      settings.rules = {.doubt_ns = 100 * kMs, .again_ns = 5 * kSec, .longest_pause_ns = 500 * kMs};
    if (dice_.one_in(4)) settings.longest_pause = 5 * kMs;
    settings.replies = !finishing_ && dice_.one_in(2);
    Endpoint &made =
        world_.add<Endpoint>(party.host, party.process,
                             *party.at.with_port(uint16_t(party.at.port() + place)), settings);
    if (!made.open()) return world_.kill(made);  // the thief has the port: later
    party.context[place] = &made;
    ++tally_.contexts;
    for (const Party *other : party.knows)
      if (!dice_.one_in(4) || finishing_) made.insert(other->at, other->entry);
  }
  void close(Party &party, unsigned place) {
    if (party.context[place] == nullptr) return;
    world_.kill(*std::exchange(party.context[place], nullptr));
    if (place != 0) return;
    party.teller = &world_.add<Teller>(party.host, party.process, uint8_t(party.contexts - 1));
    world_.listen(party.at, *party.teller);
  }
  void fell(Party &party) {
    for (Endpoint *&context : party.context)
      if (context != nullptr) world_.kill(*std::exchange(context, nullptr));
    if (party.teller != nullptr) world_.kill(*std::exchange(party.teller, nullptr));
    tally_.restarts += party.up;
    party.up = false;
  }
  void learn(Party &party) {
    for (Endpoint *context : party.context)
      for (const Party *other : party.knows)
        if (context != nullptr && !context->has_entry(other->at))
          context->insert(other->at, other->entry);
  }
  Endpoint *some_context(const Party &party) {
    return party.context[dice_.one_in(2) ? 0 : dice_.below(party.contexts)];
  }
  void send(const Party &from, const Party &to) {
    Endpoint *const context = some_context(from);
    if (context == nullptr) return;
    if (!context->has_entry(to.at)) context->insert(to.at, to.entry);
    if (&to == &x_ && scalable_ && dice_.one_in(4)) {
      context->send_to_context(to.at, 1 + unsigned(dice_.below(kMostContexts + 1)));
    } else {
      context->send(to.at);
    }
  }

  // ---- the others ----
  void hire() {
    thief_ = &world_.add<Thief>(x_.host, world_.new_process());
    thief_->tally = &tally_;
    if (!has_relay_) return;
    thief_->target = dice_.one_in(2) ? y_.at : a_.at;
    if (dice_.one_in(3)) thief_->reflects = true;
    if (dice_.one_in(3)) {
      thief_->reflects = false;
      thief_->name = x_.at;
    }
    thief_at_ = address_of(x_.host, 4000);  // honest processes call it, too
    if (!world_.listen(thief_at_, *thief_)) FAIL() << "the port is free";
  }
  void gather() {
    for (unsigned host = 5; host < 8; ++host) {
      crowds_.push_back(&world_.add<Thief>(host, world_.new_process()));
      crowds_.back()->tally = &tally_;
    }
    visitor_ = &world_.add<Endpoint>(8, world_.new_process(), address_of(8, 6000),
                                     Endpoint::Settings{.in_order = in_order_, .key = key_});
    ASSERT_TRUE(visitor_->open());
  }
  void crowd() {
    if (crowds_.empty()) return;
    Thief &one = *crowds_[dice_.one_in(2) ? 0 : dice_.below(crowds_.size())];
    if (dice_.one_in(4)) return one.stir();
    const auto deed = Deed(kSilent + dice_.below(kDeeds - kSilent));
    for (uint64_t n = 1 + dice_.below(4); n != 0; --n)
      one.crowd(a_.at, deed, uint16_t(10'000 + dice_.below(50'000)));
  }
  void steal() {
    if (thief_ == nullptr) return;
    const unsigned place = scalable_ && dice_.one_in(2) ? 1 + unsigned(dice_.below(6)) : 0;
    const Address port = *x_.at.with_port(uint16_t(x_.at.port() + place));
    Endpoint *const victim = some_context(a_);
    switch (dice_.below(8)) {
      case 0:
      case 1:
        if (world_.listener(port) == nullptr)
          thief_->take(port, x_.process == 0 ? kPortBefore : kPortAfter);
        return;
      case 2:
        if (!thief_->ports().empty()) thief_->leave(thief_->ports().begin()->first);
        return;
      case 3:
        return thief_->stir();
      case 4:
        if (thief_at_ != Address() && y_.context[0] != nullptr) {
          y_.context[0]->insert(thief_at_, 11);
          y_.context[0]->send(thief_at_);
        }
        [[fallthrough]];
      default:
        if (victim != nullptr) thief_->claim(*victim, port, some_number(), uint8_t(place));
        return;
    }
  }
  uint64_t some_number() {
    if (x_.context[0] != nullptr && dice_.one_in(2)) return x_.context[0]->number();
    return 1 + dice_.below(50);
  }

  // A process dies that may have accepted a call just now, and the next one calls itself.
  void die_during_a_call() {
    send(a_, x_);
    world_.run_for(dice_.below(6 * world_.longest_trip()));
    fell(x_);
    if (raise(x_)) x_.context[0]->send(a_.at);
  }
  // The thief has the port while the peer is down, and says that there are contexts.
  void steal_contexts() {
    Endpoint *const a = a_.context[0];
    if (thief_ == nullptr || a == nullptr || (x_.up && !restarts_)) return;
    if (!a->has_entry(x_.at)) a->insert(x_.at, x_.entry);
    fell(x_);
    if (!thief_->take(x_.at, kPortAfter)) return;
    const unsigned place = 1 + unsigned(dice_.below(6));
    for (int i = 0; i < 3; ++i) {
      thief_->claim(*a, *x_.at.with_port(uint16_t(x_.at.port() + place)), 1, uint8_t(place));
      world_.run_for(kMs + dice_.below(8 * world_.longest_trip()));
    }
    if (dice_.one_in(2)) thief_->stir();
    thief_->leave(x_.at);
    if (!raise(x_)) return;
    if (x_.context[0] != nullptr) x_.context[0]->send(a_.at);
    world_.run_for(dice_.below(8 * kSec));
    for (int i = 0; i < 4; ++i) thief_->stir();
  }
  // The thief claims to be the peer during a call to it, again and again.
  void claim_during_a_call() {
    Endpoint *const a = a_.context[0];
    if (thief_ == nullptr || a == nullptr) return;
    if (!a->has_entry(x_.at)) a->insert(x_.at, x_.entry);
    for (int i = 0; i < 4; ++i) {
      a->send(x_.at);
      thief_->claim(*a, x_.at, some_number(), 0);
      world_.run_for(dice_.below(3 * world_.longest_trip()));
      if (dice_.one_in(2)) thief_->close_all();
      if (x_.context[0] != nullptr && dice_.one_in(4)) x_.context[0]->send(a_.at);
    }
    if (dice_.one_in(4)) world_.run_for(6 * kSec);  // nobody else helps to find out
  }

  void act() {
    switch (dice_.below(16)) {
      case 0:
        if (!restarts_) return;
        if (Party &p = dice_.one_in(3) ? a_ : x_; p.up) {
          fell(p);
          if (dice_.one_in(2)) raise(p);
        }
        return;
      case 1:
        for (Party *p : {&a_, &x_, &y_}) raise(*p);
        return;
      case 2:
        if (dice_.one_in(3)) {
          ++tally_.cuts;
          world_.cut_one();
        }
        return;
      case 3: {
        if (!scalable_ || !x_.up || key_ != 0) return;
        const auto place = unsigned(dice_.below(x_.contexts));
        x_.context[place] != nullptr ? close(x_, place) : open(x_, place);
        return;
      }
      case 4:
        learn(dice_.one_in(2) ? a_ : x_);
        return;
      case 5:
        send(a_, x_);
        return send(x_, a_);
      case 6:
        return send(a_, x_);
      case 7:
        return send(x_, a_);
      case 8:
        return dice_.one_in(2) ? send(a_, y_) : send(y_, a_);
      case 9:
        if (restarts_) die_during_a_call();
        return;
      case 10:
        return scalable_ && dice_.one_in(2) ? steal_contexts() : claim_during_a_call();
      case 11:
      case 12:
        crowd();
        [[fallthrough]];
      default:
        return steal();
    }
  }

  // ---- the end ----
  // The faults end. All that want to talk do, though the thief goes on for a while.
  void finish() {
    finishing_ = true;
    const uint64_t stays = dice_.below(3);
    if (thief_ != nullptr) {
      while (!thief_->ports().empty()) thief_->leave(thief_->ports().begin()->first);
      if (stays == 0) world_.kill(*thief_);
    }
    for (Party *p : {&a_, &x_, &y_}) {
      EXPECT_TRUE(raise(*p));
      for (unsigned place = 0; place < p->contexts; ++place) open(*p, place);
      learn(*p);
    }
    for (int i = 0; i < 160; ++i) {
      if (thief_ != nullptr && thief_->alive() && stays == 1 && i < 12) persist();
      if (i < 40) crowd();
      world_.run_for(250 * kMs);
      if (!nudge() && i >= 12) break;
      if (testing::Test::HasFailure()) return;
    }
    world_.run_for(20 * kSec);
    expect_links();
    expect_messages();
    expect_links();
  }
  void persist() {
    for (int i = 0; i < 5; ++i) {
      steal();
      while (!thief_->ports().empty()) thief_->leave(thief_->ports().begin()->first);
      world_.run_for(dice_.below(20 * kMs));
    }
  }
  template <class F>
  void each_pair(const F &f) {
    for (unsigned place = 0; place < x_.contexts; ++place)
      f(*a_.context[0], *x_.context[place], a_, x_, place);
    f(*a_.context[0], *y_.context[0], a_, y_, 0);
  }
  // Those without a link send. False: all have one.
  bool nudge() {
    bool missing = false;
    each_pair([&](Endpoint &a, Endpoint &b, const Party &, const Party &, unsigned place) {
      if (a.is_linked_with(b)) return;
      missing = true;
      b.send(a.address());
      if (place == 0) a.send(b.address());
    });
    if (visitor_ == nullptr || a_.context[0]->is_linked_with(*visitor_)) return missing;
    visitor_->send(a_.at);
    return true;
  }
  // Whether a relay has passed the handshake on to the peer itself: then it stays between them.
  static bool is_relayed(const Endpoint &a, const Endpoint &b) {
    const Peer *const peer = a.peer_at(b.address());
    return peer != nullptr && peer->stream != nullptr && peer->stream->in_path;
  }
  void expect_links() {
    each_pair([&](Endpoint &a, Endpoint &b, const Party &, const Party &, unsigned) {
      if (is_relayed(a, b) || is_relayed(b, a)) return;
      EXPECT_TRUE(a.is_linked_with(b))
          << a.address().to_string() << " and " << b.address().to_string() << " are "
          << int(state(a, b)) << " and " << int(state(b, a));
      int between = 0;
      for (const WirePtr &wire : world_.all_wires())
        between += wire->open[0] && wire->open[1] &&
                   ((wire->ends[0] == &a && wire->ends[1] == &b) ||
                    (wire->ends[0] == &b && wire->ends[1] == &a));
      EXPECT_LE(between, 1) << "connections of one pair";
    });
  }
  static State state(const Endpoint &of, const Endpoint &with) {
    const Peer *peer = of.peer_at(with.address());
    return peer != nullptr ? peer->link.state() : State::kIdle;
  }
  void expect_messages() {
    std::vector<std::function<void()>> expectations;
    each_pair([&](Endpoint &a, Endpoint &b, const Party &pa, const Party &pb, unsigned place) {
      if (is_relayed(a, b) || is_relayed(b, a)) return;  // it passes on what it likes
      const int there = b.send(a.address());
      const uint32_t name = place == 0 ? pb.entry : Av::kContext + pb.entry * Av::kContexts + place;
      expectations.push_back([this, &a, &b, &pb, there, name, place] {
        EXPECT_TRUE(a.has_received(b.process(), there)) << b.address().to_string();
        const bool unsure = place != 0 && world_.was_stolen(pb.at);
        const uint32_t source = a.source_of(b.process(), there);
        EXPECT_TRUE(source == name || (unsure && source == Av::kNone))
            << b.address().to_string() << " has the name " << source;
      });
      if (place != 0) return;
      const int back = a.send(b.address());
      expectations.push_back([&a, &b, &pa, back] {
        EXPECT_EQ(b.source_of(a.process(), back), pa.entry) << a.address().to_string();
      });
    });
    world_.run_for(kSec);
    for (const auto &expect : expectations) expect();
  }

  Random dice_;
  const bool in_order_;
  World world_;
  Checker checker_;
  Tally &tally_;
  uint32_t key_;
  bool has_thief_, has_relay_, has_crowd_, restarts_, scalable_, finishing_ = false;
  Party a_, x_, y_;
  Thief *thief_ = nullptr;
  Address thief_at_;
  std::vector<Thief *> crowds_;
  Endpoint *visitor_ = nullptr;
};

// Over all seeds, of all processes that run them.
struct SharedTally {
  SharedTally() {
    void *const memory =
        mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sum = memory != MAP_FAILED ? new (memory) Tally : nullptr;
  }
  ~SharedTally() { munmap(sum, sizeof(Tally)); }
  void add(const Tally &tally) {
    static_assert(sizeof(Tally) % sizeof(uint64_t) == 0);
    const auto *from = reinterpret_cast<const uint64_t *>(&tally);
    auto *to = reinterpret_cast<uint64_t *>(sum);
    for (size_t i = 0; i < sizeof(Tally) / sizeof(uint64_t); ++i)
      std::atomic_ref(to[i]).fetch_add(from[i], std::memory_order_relaxed);
  }
  void print() const {
    std::printf("%-22s %10s %10s %10s %10s %10s\n", "", "attempts", "linked", "messages", "refused",
                "found out");
    for (int deed = 0; deed < kDeeds; ++deed) {
      const Tally::Row &row = sum->rows[deed];
      std::printf("%-22s %10llu %10llu %10llu %10llu %10llu\n", kDeedNames[deed],
                  (unsigned long long)row.attempts, (unsigned long long)row.linked,
                  (unsigned long long)row.named, (unsigned long long)row.refused,
                  (unsigned long long)row.found_out);
    }
    std::printf("%llu restarts, %llu contexts, %llu connections cut, %llu messages\n",
                (unsigned long long)sum->restarts, (unsigned long long)sum->contexts,
                (unsigned long long)sum->cuts, (unsigned long long)sum->messages);
  }
  Tally *sum;
};

TEST(PeerModel, WhoThePeerIs) {
  SharedTally tally;
  ASSERT_NE(tally.sum, nullptr);
  run_seeds("PeerModel.WhoThePeerIs", {.usual = 6000, .sanitized = 1500},
            [&](uint64_t seed, Scenario &scenario) {
              Tally own;
              Drama drama(seed, own, scenario);
              drama.play();
              tally.add(own);
            });
  tally.print();
}

}  // namespace
}  // namespace weft::sdk::peer_model
