// SPDX-License-Identifier: BSD-2-Clause
// Channels over bad links, in simulated time: every packet arrives once, and a flow uses its
// link and shares it. The single rules are in channel_rules_test.cc.
#include "plugins/rxd/protocol/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugin-api/sdk/testing/test_time.h"

namespace weft::rxd {
namespace {

using sdk::kMicrosecond, sdk::kMillisecond, sdk::kSecond;
constexpr uint32_t kPacket = 1472;  // bytes of a datagram

// ---- a network in simulated time ----

class World : public sdk::TestTime {
 public:
  explicit World(uint64_t seed) : TestTime(kSecond), random_(seed) {}
  void at(uint64_t time, std::function<void()> what) {
    after(std::max(time, now) - now, std::move(what));
  }
  // Runs until `done`. False: no event is left, or the time is over.
  template <class F>
  bool run(uint64_t until, F done) {
    if (run_until(done, until - now)) return true;
    now = until;
    return false;
  }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  uint64_t up_to(uint64_t n) { return std::uniform_int_distribution<uint64_t>(0, n)(random_); }

 private:
  std::mt19937_64 random_;
};

struct LinkSettings {
  double rate = 1.25;  // bytes per ns
  uint64_t delay = 15 * kMicrosecond;
  size_t queue = 64;  // packets
  double loss = 0;
  double duplication = 0;
  double late = 0;  // packets that take up to `lateness` longer
  uint64_t lateness = 0;
};

// A queue, a wire and its faults.
class Link {
 public:
  Link(World &world, const LinkSettings &settings) : world_(world), settings_(settings) {}
  void send(size_t size, std::function<void()> arrive) {
    ++offered;
    if (waiting_ >= settings_.queue) {
      ++overflowed;
      return;
    }
    ++waiting_;
    most_waiting = std::max(most_waiting, waiting_);
    busy_until_ = std::max(busy_until_, world_.now) +
                  static_cast<uint64_t>(static_cast<double>(size) / settings_.rate);
    bytes += size;
    world_.at(busy_until_, [this] { --waiting_; });
    if (world_.chance(settings_.loss)) return;
    deliver(arrive);
    if (world_.chance(settings_.duplication)) deliver(arrive);
  }
  void set_delay(uint64_t delay) { settings_.delay = delay; }
  void set_loss(double loss) { settings_.loss = loss; }
  size_t most_waiting = 0;
  uint64_t offered = 0, overflowed = 0, bytes = 0;

 private:
  void deliver(std::function<void()> arrive) {
    uint64_t time = busy_until_ + settings_.delay;
    if (world_.chance(settings_.late)) time += world_.up_to(settings_.lateness);
    world_.at(time, std::move(arrive));
  }
  World &world_;
  LinkSettings settings_;
  size_t waiting_ = 0;
  uint64_t busy_until_ = 0;
};

// A sender and a receiver; data one way, acknowledgements the other.
class Flow {
 public:
  Flow(World &world, Link &there, Link &back, uint64_t packets, uint32_t size = kPacket)
      : world_(world),
        there_(there),
        back_(back),
        size_(size),
        sender_(pool_, size),
        receiver_(pool_, size),
        sent_(packets),
        came_(packets) {
    receiver_.set_share(kWindow);
    sender_.raise_limit(receiver_.limit());
  }
  void start() { pump(); }
  bool done() const { return acknowledged_ == sent_.size(); }
  uint64_t arrived() const { return arrived_; }
  Channel &sender() { return sender_; }
  Channel &receiver() { return receiver_; }
  SentPool &pool() { return pool_; }
  // The most early packets that the receiver keeps.
  void keep_at_most(uint64_t n) { keeps_ = n; }
  // The receiver reads only at multiples of `period`.
  void read_every(uint64_t period) { period_ = period; }
  // It tells how long packets may have waited for that.
  void tell_unread() { tells_ = true; }
  void read_nothing_until(uint64_t time) { deaf_until_ = time; }
  void check() const {
    for (const auto &packet : sent_) ASSERT_EQ(packet.acknowledged, 1);
    for (const int times : came_) ASSERT_EQ(times, 1);
    EXPECT_EQ(sender_.outstanding(), 0u);
    EXPECT_EQ(sender_.in_flight(), 0u);
    EXPECT_EQ(sender_.silent_since(), 0u);
  }
  uint64_t repeats = 0, timeouts = 0, duplicates = 0, acks = 0;
  uint64_t longest_silence = 0;
  double overflowed = 0;  // share of the packets that the link had no room for

 private:
  struct Packet {
    uint64_t number = 0;
    int acknowledged = 0;
  };

  wire::Header header(uint64_t number, bool ask) const {
    return {.flags = ask ? wire::kFlagAsk : uint16_t{0},
            .sequence = static_cast<uint32_t>(number),
            .time = Channel::clock(world_.now)};
  }
  void transmit(uint64_t number, bool ask) {
    there_.send(size_, [this, h = header(number, ask)] { arrive(h); });
  }
  void pump() {
    const uint64_t now = world_.now;
    for (Channel::Lost lost; sender_.next_lost(lost, now);) {
      ASSERT_EQ(static_cast<Packet *>(lost.packet)->number, lost.number);
      ASSERT_EQ(static_cast<Packet *>(lost.packet)->acknowledged, 0);
      transmit(lost.number, lost.ask);
      sender_.sent_again(lost.number, now);
      ++repeats;
    }
    while (!sender_.has_lost() && next_ < sent_.size() &&
           sender_.gate(size_, now) == Channel::Gate::kOpen) {
      sent_[next_].number = sender_.next_number();
      transmit(sender_.next_number(), false);
      ASSERT_EQ(sender_.sent(size_, now, &sent_[next_]), next_);
      ++next_;
    }
    arm();
  }
  void arm() {
    const uint64_t at = sender_.deadline();
    if (at == 0 || (timer_ != 0 && timer_ <= at)) return;
    timer_ = at;
    world_.at(at, [this, at] {
      if (timer_ != at) return;
      timer_ = 0;
      const uint64_t due = sender_.deadline();
      if (due != 0 && due <= world_.now && sender_.on_deadline(world_.now)) ++timeouts;
      pump();
    });
  }
  void arrive(const wire::Header &h) {
    const uint64_t now = world_.now;
    uint64_t read_at = std::max(now, deaf_until_);
    if (period_ != 0) read_at = (read_at + period_ - 1) / period_ * period_;
    inbox_.push_back(h);
    if (inbox_.size() == 1) world_.at(read_at, [this] { read(); });
  }
  void read() {
    const Moment now(world_.now, tells_ ? world_.now - std::exchange(looked_, world_.now) : 0);
    while (!inbox_.empty()) {
      const wire::Header h = inbox_.front();
      inbox_.pop_front();
      const uint64_t number = receiver_.number_of(h.sequence);
      switch (receiver_.look(number)) {
        case Channel::Arrival::kEarly:
          if (arrived_ - receiver_.next() >= keeps_) break;  // no room: lost
          [[fallthrough]];
        case Channel::Arrival::kInOrder:
          ++came_[number];
          ++arrived_;
          receiver_.accept(number, h, now);
          break;
        case Channel::Arrival::kDuplicate:
          ++duplicates;
          receiver_.duplicate(h, now);
          break;
        case Channel::Arrival::kOutside:
          FAIL() << "packet " << number << " is outside of the limit";
      }
      if (receiver_.owed() == Channel::Owed::kNow) acknowledge();
    }
    if (receiver_.owed() != Channel::Owed::kNothing) acknowledge();
  }
  void acknowledge() {
    wire::Acknowledgement ack;
    receiver_.fill(ack, world_.now);
    receiver_.acknowledged();
    ++acks;
    back_.send(wire::kHeaderSize + ack.size(), [this, ack] {
      const uint64_t now = world_.now;
      if (sender_.silent_since() != 0) {
        longest_silence = std::max(longest_silence, now - sender_.silent_since());
      }
      sender_.heard(now);
      ASSERT_TRUE(sender_.on_acknowledgement(ack, now, [this](void *packet) {
        ++static_cast<Packet *>(packet)->acknowledged;
        ++acknowledged_;
      }));
      pump();
    });
  }

  World &world_;
  Link &there_, &back_;
  const uint32_t size_;
  SentPool pool_{SIZE_MAX, 1};
  Channel sender_, receiver_;
  std::vector<Packet> sent_;
  std::vector<int> came_;
  std::deque<wire::Header> inbox_;
  uint64_t next_ = 0, acknowledged_ = 0, arrived_ = 0;
  uint64_t timer_ = 0, period_ = 0, deaf_until_ = 0, keeps_ = UINT64_MAX, looked_ = 0;
  bool tells_ = false;
};

// ---- every packet arrives exactly once, whatever the network does ----

struct Weather {
  const char *name;
  LinkSettings there, back;
};
class Delivery : public testing::TestWithParam<Weather> {};

TEST_P(Delivery, EveryPacketArrivesExactlyOnce) {
  for (uint64_t seed = 1; seed <= sdk::rounds(25); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    World world(seed);
    Link there(world, GetParam().there), back(world, GetParam().back);
    Flow flow(world, there, back, 3000);
    if (seed % 2 == 0) flow.keep_at_most(64);
    flow.start();
    ASSERT_TRUE(world.run(world.now + 100 * kSecond, [&] { return flow.done(); }));
    flow.check();
    EXPECT_EQ(flow.pool().in_use(), 0u);  // idle channels have no memory in use
    // Stock's rxd can be silent for seconds.
    EXPECT_LT(flow.longest_silence, kSecond);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Delivery,
    testing::Values(
        Weather{"Clear", {}, {}}, Weather{"Loss1", {.loss = 0.01}, {.loss = 0.01}},
        Weather{"Loss5", {.loss = 0.05}, {.loss = 0.05}},
        Weather{"Loss30", {.loss = 0.3}, {.loss = 0.3}}, Weather{"AcksLost", {}, {.loss = 0.5}},
        Weather{"Reordered",
                {.late = 0.3, .lateness = 100 * kMicrosecond},
                {.late = 0.3, .lateness = 100 * kMicrosecond}},
        Weather{"Doubled",
                {.duplication = 0.2, .late = 0.1, .lateness = kMillisecond},
                {.duplication = 0.2, .late = 0.1, .lateness = kMillisecond}},
        Weather{"Everything",
                {.queue = 16,
                 .loss = 0.1,
                 .duplication = 0.1,
                 .late = 0.2,
                 .lateness = 500 * kMicrosecond},
                {.loss = 0.1, .duplication = 0.1, .late = 0.2, .lateness = 500 * kMicrosecond}},
        Weather{"Slow",
                {.rate = 0.001, .delay = 20 * kMillisecond},
                {.rate = 0.001, .delay = 20 * kMillisecond}}),
    [](const auto &info) { return info.param.name; });

// ---- speed, and fairness to other flows ----

// The share of the link that a flow uses after its beginning.
double utilisation(const LinkSettings &link, uint32_t size, uint64_t packets, uint64_t seed,
                   Flow *&out, uint64_t period = 0) {
  static std::unique_ptr<World> world;
  static std::unique_ptr<Link> there, back;
  static std::unique_ptr<Flow> flow;
  flow.reset();
  world = std::make_unique<World>(seed);
  there = std::make_unique<Link>(*world, link);
  back = std::make_unique<Link>(*world, link);
  flow = std::make_unique<Flow>(*world, *there, *back, packets, size);
  out = flow.get();
  flow->read_every(period);
  flow->start();
  uint64_t from = 0, had = 0, offered = 0, overflowed = 0;
  EXPECT_TRUE(world->run(world->now + 100 * kSecond, [&] {
    if (from == 0 && flow->arrived() >= packets / 5) {
      from = world->now;
      had = flow->arrived();
      offered = there->offered;
      overflowed = there->overflowed;
    }
    return flow->done();
  }));
  flow->overflowed = static_cast<double>(there->overflowed - overflowed) /
                     static_cast<double>(there->offered - offered);
  return static_cast<double>((flow->arrived() - had) * size) /
         static_cast<double>(world->now - from) / link.rate;
}

struct Path {
  const char *name;
  double rate;  // bytes per ns
  uint64_t delay;
  uint32_t size;
};
class Speed : public testing::TestWithParam<Path> {};

TEST_P(Speed, FillsTheLinkDespiteLoss) {
  Flow *flow = nullptr;
  const Path &path = GetParam();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const double clear =
        utilisation({.rate = path.rate, .delay = path.delay}, path.size, 20000, seed, flow);
    EXPECT_GE(clear, 0.8);
    // With 64 packets of queue the window must not keep overflowing it.
    EXPECT_LT(flow->overflowed, 0.02);
    EXPECT_LT(static_cast<double>(flow->repeats), 0.05 * 20000);
    const double lossy = utilisation({.rate = path.rate, .delay = path.delay, .loss = 0.01},
                                     path.size, 20000, seed, flow);
    EXPECT_GE(lossy, 0.5 * clear);
  }
}

INSTANTIATE_TEST_SUITE_P(, Speed,
                         testing::Values(Path{"Gigabit", 0.125, 15 * kMicrosecond, 1472},
                                         Path{"GigabitFar", 0.125, 500 * kMicrosecond, 1472},
                                         Path{"Ten", 1.25, 15 * kMicrosecond, 1472},
                                         Path{"TenJumbo", 1.25, 15 * kMicrosecond, 8972},
                                         Path{"TenFar", 1.25, 200 * kMicrosecond, 1472},
                                         Path{"Hundred", 12.5, 5 * kMicrosecond, 8972},
                                         Path{"Loopback", 5, 5 * kMicrosecond, 65507}),
                         [](const auto &info) { return info.param.name; });

// A reader that reads only every 50 us must not be taken for a queue.
TEST(Pauses, AReaderThatReadsEvery50Microseconds) {
  Flow *flow = nullptr;
  EXPECT_GE(utilisation({.delay = 15 * kMicrosecond, .queue = 512}, kPacket, 30000, 1, flow,
                        50 * kMicrosecond),
            0.8);
}

// Processes share processors: a reader that runs once in six milliseconds, and briefly, gets all
// that its limit lets through each time.
TEST(Pauses, AReaderThatComesToItsTurnEvery6Milliseconds) {
  const uint64_t turn = 6 * kMillisecond, turns = 40;
  World world(1);
  Link there(world, {.queue = 2 * kWindow}), back(world, {});
  Flow flow(world, there, back, 2 * turns * kWindow);
  flow.read_every(turn);
  flow.tell_unread();
  flow.start();
  const uint64_t begin = world.now;
  world.run(begin + turns * turn, [] { return false; });
  EXPECT_GE(flow.arrived(), turns * kWindow / 2);
}

// The same, but the reader does not run for milliseconds at a time and tells nobody.
TEST(Pauses, AReaderThatRunsAQuarterOfTheTime) {
  World world(3);
  Link there(world, {.queue = 3000}), back(world, {});
  Flow flow(world, there, back, 2'000'000);
  flow.start();
  const uint64_t begin = world.now, on = 4 * kMillisecond, off = 12 * kMillisecond;
  std::function<void()> stall = [&] {
    flow.read_nothing_until(world.now + off / 2 + world.up_to(off));
    world.at(world.now + on + off, stall);
  };
  world.at(world.now + kMillisecond, stall);
  world.run(begin + kSecond, [] { return false; });
  // A quarter of the link.
  EXPECT_GE(static_cast<double>(flow.arrived() * kPacket) / kSecond, 0.5 * 1.25 * 4 / 16);
  EXPECT_LT(static_cast<double>(flow.repeats), 0.02 * static_cast<double>(flow.arrived()));
}

class Fairness : public testing::TestWithParam<uint64_t> {};

TEST_P(Fairness, TwoFlowsShareALink) {
  for (const LinkSettings &link : {LinkSettings{.rate = 0.125}, LinkSettings{.rate = 1.25},
                                   LinkSettings{.rate = 1.25, .queue = 512}}) {
    World world(1);
    Link there(world, link), back(world, link);
    Flow first(world, there, back, 2'000'000), second(world, there, back, 2'000'000);
    first.start();
    const uint64_t from = world.now + GetParam();
    world.at(from, [&] { second.start(); });
    const uint64_t settled = from + 50 * kMillisecond, end = settled + 100 * kMillisecond;
    world.run(settled, [] { return false; });
    const uint64_t a = first.arrived(), b = second.arrived();
    world.run(end, [] { return false; });
    const auto x = static_cast<double>(first.arrived() - a);
    const auto y = static_cast<double>(second.arrived() - b);
    EXPECT_LT(x, 2 * y);
    EXPECT_LT(y, 2 * x);
    EXPECT_GT((x + y) * kPacket / (100 * kMillisecond) / link.rate, 0.9);
  }
}

INSTANTIATE_TEST_SUITE_P(, Fairness, testing::Values(0, 50 * kMillisecond),
                         [](const auto &info) { return info.param == 0 ? "Together" : "Later"; });

TEST(Pauses, NeedlessTimeoutsDoNotSlowTheFlowDown) {
  World world(1);
  Link there(world, {.queue = 512}), back(world, {});
  Flow flow(world, there, back, 20000);
  flow.start();
  world.run(world.now + 100 * kSecond, [&] { return flow.arrived() > 5000; });
  const uint64_t window = flow.sender().window(), repeats = flow.repeats;
  // The reader does not run for 20 ms; all packets wait in its socket.
  const uint64_t back_at = world.now + 20 * kMillisecond;
  flow.read_nothing_until(back_at);
  world.run(back_at - 1, [] { return false; });
  EXPECT_GE(flow.timeouts, 3u);
  EXPECT_LE(flow.repeats, repeats + 2 * flow.timeouts);
  world.run(back_at + 2 * kMillisecond, [] { return false; });
  EXPECT_GE(flow.sender().window(), window / 4);
  EXPECT_EQ(flow.sender().timeouts(), 0u);
  ASSERT_TRUE(world.run(world.now + kSecond, [&] { return flow.done(); }));
  flow.check();
}

TEST(Pauses, APartitionEndsWithinTheLongestTimeout) {
  World world(1);
  Link there(world, {}), back(world, {});
  Flow flow(world, there, back, 20000);
  flow.start();
  world.run(world.now + 100 * kSecond, [&] { return flow.arrived() > 1000; });
  there.set_loss(1);
  world.run(world.now + 3 * kSecond, [] { return false; });
  // 1, 2, 4 ... 200, 200 ... ms.
  EXPECT_GE(flow.timeouts, 15u);
  EXPECT_LE(flow.timeouts, 30u);
  EXPECT_NE(flow.sender().silent_since(), 0u);
  EXPECT_GE(world.now - flow.sender().silent_since(), 2900 * kMillisecond);
  there.set_loss(0);
  const uint64_t had = flow.arrived();
  ASSERT_TRUE(world.run(world.now + 201 * kMillisecond, [&] { return flow.arrived() > had; }));
  ASSERT_TRUE(world.run(world.now + kSecond, [&] { return flow.done(); }));
  flow.check();
}

}  // namespace
}  // namespace weft::rxd
