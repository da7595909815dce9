// SPDX-License-Identifier: BSD-2-Clause
// Random runs of simulated endpoints, for thousands of seeds (plugin-api/sdk/testing/test_seeds.h).
// A seed that fails prints what it simulates and how to repeat it: SEED=n.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_seeds.h"
#include "plugin-api/sdk/testing/test_time.h"
#include "plugins/rxd/protocol/simulation.h"
#include "plugins/rxd/protocol/test_device.h"

namespace weft::rxd {
namespace {

using sdk::kMillisecond, sdk::kSecond;

std::string text_of(const Weather &w) {
  char text[200];
  std::snprintf(text, sizeof text,
                "of 1000 datagrams %u are lost, %u doubled, %u damaged; delay %.1f us, jitter %.1f",
                w.loss, w.doubled, w.damaged, double(w.delay) / 1e3, double(w.jitter) / 1e3);
  return text;
}

// Each endpoint of two hosts connects with each endpoint of the other host at the same time. At the
// end both ends of each connection must agree on it, and no operation may have failed.
void all_begin(uint64_t seed, sdk::Scenario &scenario) {
  constexpr size_t kEach = 2;
  World world(seed);
  world.weather = {.loss = 50 + unsigned(world.some(251)),
                   .doubled = unsigned(world.some(100)),
                   .delay = 1000 + world.some(100'000),
                   .jitter = world.some(200'000)};
  scenario.add("%s", text_of(world.weather).c_str());
  for (size_t i = 0; i < 2 * kEach; ++i) world.add(i, patient()).introduces = world.chance(500);
  const auto exchange = [&](uint64_t spread) {
    for (size_t i = 0; i < kEach; ++i)
      for (size_t j = kEach; j < 2 * kEach; ++j)
        for (const auto &[from, to] : {std::pair{i, j}, std::pair{j, i}}) {
          world.node(to)->post(100, true);
          world.after(world.some(spread), [&world, from = from, to = to] {
            world.node(from)->send(to, 100, {.delivery = true});
          });
        }
    world.run(spread);
    return world.run_until([&] { return world.all_ended(); }, 60 * kSecond);
  };
  EXPECT_TRUE(exchange(1 + world.some(2 * kMillisecond))) << "an operation does not end";
  // Late packets arrive, and all send once more.
  world.run(3 * kSecond);
  EXPECT_TRUE(exchange(kMillisecond)) << "an operation does not end, the second time";
  for (size_t i = 0; i < kEach; ++i)
    for (size_t j = kEach; j < 2 * kEach; ++j) {
      const Core::Pair a = world.node(i)->core().pair_with(uint32_t(j));
      const Core::Pair b = world.node(j)->core().pair_with(uint32_t(i));
      EXPECT_NE(a.cookie, 0U);
      EXPECT_EQ(a, (Core::Pair{b.theirs, b.ours, b.cookie}));
    }
  world.check(true);
}

TEST(Network, BothEndsConnectAtOnce) {
  sdk::run_seeds("Network.BothEndsConnectAtOnce",
                 {.usual = 5000, .sanitized = 300, .first = 1'000'000}, all_begin);
}

// One random run. The seed selects the number of endpoints, the weather of the network, the
// operations and the failures.
class SeededRun {
 public:
  SeededRun(uint64_t seed, sdk::Scenario &scenario)
      : scenario_(scenario), world_(seed), seed_(seed), kind_(seed % 10) {}

  void run() {
    pick_endpoints();
    pick_weather();
    pick_patience();
    for (size_t i = 0; i < nodes_; ++i) world_.add(i, settings_).introduces = world_.chance(500);
    describe();
    plan_operations();
    plan_receives();
    if (kind_ == 6 || kind_ == 7) plan_a_death();
    world_.run(late_ || impatient_ ? 4 * kSecond : 12 * kMillisecond);
    wait_for_all();
    // Messages that were sent after the restart must arrive.
    if (kind_ == 6) world_.run_until([] { return false; }, 3 * kSecond);
    world_.check(all_well_);
  }

 private:
  void pick_endpoints() {
    if (kind_ == 8) nodes_ = 3 + world_.some(4);
    if (seed_ % 500 == 8) nodes_ = 20 + world_.some(81);
    world_.weather.delay = 1000 + world_.some(200'000);
    world_.eagain = unsigned(world_.some(100));
    if (world_.chance(200)) world_.low = unsigned(world_.some(500));
    if (world_.chance(100)) world_.full = unsigned(world_.some(400));
    if (world_.chance(300)) world_.datagram = world_.chance(500) ? 65000 : 9000;
    if (world_.chance(100)) world_.window = 8192;
    if (world_.chance(150)) settings_.unexpected_limit = 40'000;
    if (kind_ == 9) settings_.auth_key = "a key of both";
    if (seed_ / 10 % 3 == 0) settings_.hmem = &device_.hmem;
  }

  void pick_weather() {
    Weather &weather = world_.weather;
    switch (kind_) {
      case 0:
        break;
      case 1:
        weather.loss = unsigned(world_.some(301));
        break;
      case 2:
        weather.doubled = unsigned(world_.some(300));
        weather.jitter = world_.some(1'000'000);
        break;
      case 3:
        weather.damaged = unsigned(world_.some(200));
        weather.loss = unsigned(world_.some(50));
        break;
      case 4:
        world_.ways[{0, 1}] = {.loss = unsigned(world_.some(200)), .delay = 1000};
        world_.ways[{1, 0}] = {
            .loss = unsigned(world_.some(200)), .delay = 2'000'000, .jitter = 500'000};
        if (world_.chance(300)) world_.ways[{0, 1}].path_mtu = 1472 + world_.some(20000);
        scenario_.add("0 to 1: %s; datagrams of more than %zu bytes are lost",
                      text_of(world_.ways[{0, 1}]).c_str(), world_.ways[{0, 1}].path_mtu);
        scenario_.add("1 to 0: %s", text_of(world_.ways[{1, 0}]).c_str());
        break;
      case 5:  // a partition that heals
        scenario_.add("0 and 1 cannot reach each other for a while, one way or both");
        world_.after(world_.some(3 * kMillisecond), [this] {
          world_.cut.insert({0, 1});
          if (world_.chance(500)) world_.cut.insert({1, 0});
          world_.after(world_.some(3 * kSecond), [this] { world_.cut.clear(); });
        });
        break;
      default:
        weather = {.loss = unsigned(world_.some(150)),
                   .doubled = unsigned(world_.some(100)),
                   .damaged = unsigned(world_.some(50)),
                   .delay = 1000 + world_.some(100'000),
                   .jitter = world_.some(200'000)};
        break;
    }
  }

  // Timeouts of peers, and delays that exceed them.
  void pick_patience() {
    if (kind_ == 7) settings_.peer_timeout_ns = 2 * kSecond;
    late_ = kind_ >= 5 && kind_ <= 6 && world_.chance(400);
    if (late_) {
      world_.weather.doubled = 300;
      world_.weather.jitter = world_.some(2 * kSecond);
    }
    impatient_ = kind_ == 5 && world_.chance(400);
    if (impatient_) {
      settings_.peer_timeout_ns = 300 * kMillisecond + world_.some(kSecond);
      all_well_ = false;
    }
    if (kind_ == 6) settings_.peer_timeout_ns = 20 * kSecond;
  }

  void describe() {
    scenario_.add("%zu endpoints; %s", nodes_, text_of(world_.weather).c_str());
    scenario_.add(
        "%u of 1000 sends find no room, buffers are low %u of 1000 times, the application does not "
        "read its completions %u of 1000 times",
        world_.eagain, world_.low, world_.full);
    scenario_.add("datagrams of %zu bytes, a socket of %zu, %llu bytes for what is unexpected%s",
                  world_.datagram, world_.window, (unsigned long long)settings_.unexpected_limit,
                  settings_.auth_key.empty() ? "" : ", a key");
    if (settings_.hmem != nullptr) scenario_.add("all memory is a device's");
    scenario_.add("peers are given up after %.1f s", double(settings_.peer_timeout_ns) / 1e9);
  }

  // Operations at random times.
  void plan_operations() {
    largest_ = kind_ == 8 || late_ ? 5000 : (world_.chance(150) ? 400'000 : 20'000);
    const size_t count = nodes_ > 10 ? 2 * nodes_ : 5 + world_.some(25);
    truncates_ = world_.chance(100);
    scenario_.add("%zu operations of up to %zu bytes%s", count, largest_,
                  truncates_ ? ", some longer than their receives" : "");
    expected_.resize(nodes_ * 2);
    for (size_t i = 0; i < count; ++i) {
      const size_t from = world_.some(nodes_), to = world_.chance(50) ? from : world_.some(nodes_);
      const uint64_t spread = late_ || impatient_ ? 4 * kSecond : 5 * kMillisecond;
      const uint64_t when = world_.some(world_.chance(300) ? 1000 : spread);
      const uint64_t what = world_.some(10);
      const size_t length =
          world_.chance(600) ? world_.some(200) : world_.some(world_.chance(500) ? 3000 : largest_);
      const Node::Form form{.tagged = world_.chance(700),
                            .delivery = world_.chance(200),
                            .transmit = world_.chance(300),
                            .fence = world_.chance(50),
                            .inject = world_.chance(200),
                            .more = world_.chance(200)};
      const size_t at = world_.some(1000);
      if (what < 7 && nodes_ <= 100) ++expected_[2 * to + (form.tagged ? 1 : 0)];
      world_.after(when, [this, from, to, what, length, form, at] {
        Node *n = world_.node(from);
        if (n == nullptr) return;
        if (what < 7) {
          n->send(to, length, form);
        } else if (what == 7) {
          n->write(to, length, at, form.tagged);
        } else if (what == 8) {
          n->read(to, length, at);
        } else {
          n->add(to);
        }
      });
    }
  }

  // What the largest message needs.
  size_t room() const { return std::max(largest_, size_t{10'000}); }
  // A receive for each message, at a random time.
  void plan_receives() {
    for (size_t to = 0; to < nodes_; ++to)
      for (size_t tagged = 0; tagged < 2; ++tagged)
        for (size_t i = 0; i < expected_[2 * to + tagged]; ++i) {
          const size_t room = truncates_ && world_.chance(300) ? world_.some(largest_)
                                                               : std::max(largest_, size_t{3000});
          world_.after(world_.some(10 * kMillisecond), [this, to, tagged, room] {
            if (Node *n = world_.node(to)) n->post(room, tagged != 0);
          });
        }
    if (!impatient_) return;
    // Receives that fail in the middle of a message are used up, so post more.
    for (size_t n = 0; n < nodes_; ++n)
      for (int i = 0; i < 30; ++i)
        world_.after(3 * kSecond, [this, n, i] { world_.node(n)->post(room(), i % 2 == 0); });
  }

  // One of two processes is killed, and in kind 6 another one starts at its address.
  void plan_a_death() {
    all_well_ = false;
    if (world_.chance(500)) {
      world_.told = 800;
      scenario_.add("the network reports datagrams to a closed port");
    }
    const size_t victim = world_.some(2);
    const uint64_t when = world_.some(late_ ? 3 * kSecond : 6 * kMillisecond);
    scenario_.add("%zu is killed after %.3f ms", victim, double(when) / 1e6);
    world_.after(when, [this, victim] {
      world_.kill(victim);
      if (kind_ == 7) return;
      const uint64_t away = world_.some(kSecond);
      scenario_.add("and begins again %.3f ms later", double(away) / 1e6);
      world_.after(away, [this, victim] { begin_again(victim); });
    });
    // The other one must not run out of receives.
    for (int i = 0; i < 20; ++i)
      world_.after(20 * kMillisecond, [this, victim] {
        if (Node *n = world_.node(1 - victim)) {
          n->post(room(), true);
          n->post(room(), false);
        }
      });
  }

  // The new process receives, sends, and is sent to.
  void begin_again(size_t victim) {
    Node &n = world_.add(victim, settings_);
    for (int i = 0; i < 40; ++i) {
      n.post(room(), true);
      n.post(room(), false);
    }
    for (size_t i = 0; i < 5; ++i) n.send(1 - victim, world_.some(10'000), {});
    if (Node *other = world_.node(1 - victim))
      for (size_t i = 0; i < 5; ++i) other->send(victim, world_.some(10'000), {});
  }

  bool over() const {
    if (!world_.all_ended()) return false;
    if (!all_well_) return true;
    for (const Operation &o : world_.operations)
      if (o.kind == TxOp::Kind::kMessage && o.arrived == 0) return false;
    return true;
  }

  void wait_for_all() {
    if (!world_.run_until([this] { return over(); }, 200 * kSecond)) {
      ADD_FAILURE() << "an operation does not end";
      for (size_t n = 0; n < nodes_; ++n)
        if (Node *at = world_.node(n))
          ADD_FAILURE() << "node " << n << ": " << at->posted() << " receives posted, "
                        << at->broken << " broken, " << at->receiver().unexpected()
                        << " messages wait";
    }
    for (size_t id = 0; id < world_.operations.size(); ++id) {
      const Operation &o = world_.operations[id];
      if (o.ended != 0 || o.gone) continue;
      ADD_FAILURE() << "operation " << id << ", " << o.length << " bytes, kind " << int(o.kind)
                    << ", from " << o.from << " to " << o.to << ", has not ended";
    }
  }

  sdk::Scenario &scenario_;
  TestDevice device_;
  World world_;
  const uint64_t seed_, kind_;
  Settings settings_ = patient();
  size_t nodes_ = 2;
  bool all_well_ = true;
  bool late_ = false;             // packets arrive after their connection has ended
  bool impatient_ = false;        // one end may give up while the other does not
  bool truncates_ = false;        // some receives are shorter than their messages
  size_t largest_ = 0;            // message, bytes
  std::vector<size_t> expected_;  // messages, untagged and tagged, of each node
};

TEST(Network, RandomRuns) {
  sdk::run_seeds("Network.RandomRuns", {.usual = 10'000, .sanitized = 600},
                 [](uint64_t seed, sdk::Scenario &scenario) { SeededRun(seed, scenario).run(); });
}

}  // namespace
}  // namespace weft::rxd
