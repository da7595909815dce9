// SPDX-License-Identifier: BSD-2-Clause
// Counters: what they count, what they write to memory, and what they fire.
#include "plugins/cxi/soft/counter.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>

#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

struct Counting {
  explicit Counting(uint32_t triggered = 100) : host(triggered) {
    inbox.append(List::kPriority, entry());
  }
  Entry entry() {
    Entry entry = b.entry_for(region(1, 0), space);
    entry.comm_disable = true;
    entry.link_disable = true;
    return entry;
  }
  Transfer put() const { return a.put_to(b.at(20), text); }

  Host host;
  Process a{host, 1}, b{host, 2};
  Portal &inbox = b.open_portal(20, {});
  std::unique_ptr<Counter> counter = must(a.lni->counter()), other = must(a.lni->counter());
  std::unique_ptr<TriggerQueue> triggers = must(a.lni->trigger_queue({.vni = kVni}));
  std::array<char, 8> space{};
  std::string text = "12345";
};

TEST(Counter, CountsOperationsOrBytesAndFailures) {
  Counting c;
  Transfer put = c.put();
  put.counter = c.counter.get();
  EXPECT_EQ(c.a.result_of(put), Rc::kOk);
  put.counts_bytes = true;
  EXPECT_EQ(c.a.result_of(put), Rc::kOk);
  EXPECT_EQ(c.counter->success(), 6u);
  put.to.index = 21;
  EXPECT_EQ(c.a.result_of(put), Rc::kPtlteNotFound);
  EXPECT_EQ(c.counter->success(), 6u);
  EXPECT_EQ(c.counter->failure(), 1u);
}

TEST(Counter, CountsWhatPeersDo) {
  Counting c;
  auto counter = must(c.b.lni->counter());
  Entry entry = c.b.entry_for(region(2, 0), c.space);
  entry.counter = counter.get();
  entry.comm_disable = true;
  Portal &portal = c.b.open_portal(22, {});
  portal.append(List::kPriority, entry);
  c.b.next();
  Transfer put = c.put();
  put.to.index = 22;
  EXPECT_EQ(c.a.result_of(put), Rc::kOk);
  put.remote_offset = 7;
  EXPECT_EQ(c.a.result_of(put), Rc::kAddrOutOfRange);
  EXPECT_EQ(counter->success(), 1u);
  EXPECT_EQ(counter->failure(), 1u);
  c.b.portals.clear();
}

TEST(Counter, IsSetAndStopsAtItsLimits) {
  Counting c;
  c.counter->set(Counter::kMaxSuccess, std::nullopt);
  c.counter->add(2);
  EXPECT_EQ(c.counter->success(), 1u) << "48 bits";
  for (int i = 0; i < 200; ++i) c.counter->add_failure(1);
  EXPECT_EQ(c.counter->failure(), Counter::kMaxFailure);
  c.counter->set(std::nullopt, 3);
  EXPECT_EQ(c.counter->success(), 1u);
  EXPECT_EQ(c.counter->failure(), 3u);
}

TEST(Counter, WritesBackOnFailureWhenSetAndByRequest) {
  Counting c;
  uint64_t word = 0;
  c.counter->write_back_to(&word);
  c.counter->add(5);
  EXPECT_EQ(word, 0u);
  c.counter->request_write_back();
  EXPECT_EQ(word, Counter::kWritten | 5);
  c.counter->add(1);
  c.counter->add_failure(2);
  EXPECT_EQ(word, Counter::kWritten | uint64_t{2} << 48 | 6);
  c.counter->set(9, 0);
  EXPECT_EQ(word, Counter::kWritten | 9);
  c.counter->add(1);
  EXPECT_EQ(word, Counter::kWritten | 9);
  EXPECT_EQ(c.counter->success(), 10u);
  EXPECT_EQ(word, Counter::kWritten | 10) << "it was read";
  const Trigger trigger{.counter = c.counter.get(),
                        .threshold = 12,
                        .kind = Trigger::Kind::kWriteBack,
                        .target = c.counter.get()};
  ASSERT_EQ(c.triggers->post(trigger), 0);
  c.counter->add(1);
  EXPECT_EQ(word, Counter::kWritten | 10);
  c.counter->add(1);
  EXPECT_EQ(word, Counter::kWritten | 12);
  c.counter->write_back_to(nullptr);
  c.counter->set(1, 0);
  EXPECT_EQ(word, Counter::kWritten | 12);
}

TEST(Counter, FiresEachCommandOnceTheLowestFirst) {
  Counting c;
  const auto post = [&](uint64_t threshold) {
    const Trigger trigger{.counter = c.counter.get(),
                          .threshold = threshold,
                          .kind = Trigger::Kind::kEvent,
                          .eq = c.a.acks.get()};
    ASSERT_EQ(c.triggers->post(trigger), 0);
  };
  post(3);
  post(1);
  post(2);
  EXPECT_EQ(c.triggers->pending(), 3u);
  EXPECT_FALSE(c.a.ack().has_value());
  c.counter->add(1);
  EXPECT_EQ(c.a.ack().value().threshold, 1u);
  EXPECT_FALSE(c.a.ack().has_value());
  c.counter->add_failure(5);  // failures count, too
  EXPECT_EQ(c.a.ack().value().threshold, 2u);
  const Event last = c.a.ack().value();
  EXPECT_EQ(last.type, EventType::kTriggered);
  EXPECT_EQ(last.counter, c.counter.get());
  EXPECT_EQ(last.threshold, 3u);
  EXPECT_EQ(c.triggers->pending(), 0u);
  post(2);  // reached already
  EXPECT_EQ(c.a.ack().value().threshold, 2u);
}

TEST(Counter, FiresTransfersAndOtherCounters) {
  Counting c;
  Trigger chain{.counter = c.counter.get(),
                .threshold = 1,
                .kind = Trigger::Kind::kAdd,
                .target = c.other.get(),
                .value = 4};
  ASSERT_EQ(c.triggers->post(chain), 0);
  Trigger put{.counter = c.other.get(), .threshold = 4, .transfer = c.put()};
  put.transfer.counter = c.counter.get();
  ASSERT_EQ(c.triggers->post(put), 0);
  Trigger set{.counter = c.counter.get(),
              .threshold = 2,
              .kind = Trigger::Kind::kSet,
              .target = c.other.get(),
              .value = 100};
  ASSERT_EQ(c.triggers->post(set), 0);
  c.counter->add(1);
  EXPECT_EQ(std::string(c.space.data()), c.text);
  EXPECT_EQ(c.counter->success(), 2u) << "the put was acknowledged";
  EXPECT_EQ(c.other->success(), 100u);
}

TEST(Counter, CommandsEndWithTheirCounterOrTheirQueue) {
  Counting c;
  const auto post = [&](Counter &counter, TriggerQueue &queue) {
    return queue.post(
        {.counter = &counter, .threshold = 1, .kind = Trigger::Kind::kEvent, .eq = c.a.acks.get()});
  };
  ASSERT_EQ(post(*c.counter, *c.triggers), 0);
  ASSERT_EQ(post(*c.other, *c.triggers), 0);
  EXPECT_EQ(c.host.used(Resource::kTriggered), 2u);
  c.counter->cancel();
  EXPECT_EQ(c.host.used(Resource::kTriggered), 1u);
  c.counter->add(1);
  EXPECT_FALSE(c.a.ack().has_value());
  ASSERT_EQ(post(*c.other, *c.triggers), 0);
  c.triggers.reset();
  EXPECT_EQ(c.host.used(Resource::kTriggered), 0u);
  c.other->add(1);
  EXPECT_FALSE(c.a.ack().has_value());
  auto again = must(c.a.lni->trigger_queue({.vni = kVni}));
  ASSERT_EQ(post(*c.other, *again), 0);  // fires
  c.other->set(0, 0);
  ASSERT_EQ(post(*c.other, *again), 0);
  c.other.reset();
  EXPECT_EQ(again->pending(), 0u);
  EXPECT_EQ(c.host.used(Resource::kTriggered), 0u);
}

TEST(Counter, WhatACommandNamesMayEndBeforeIt) {
  Counting c;
  const auto wait = [&](Trigger trigger) {
    trigger.counter = c.counter.get();
    trigger.threshold = 1;
    ASSERT_EQ(c.triggers->post(trigger), 0);
  };
  auto events = must(c.a.lni->event_queue({.places = 8}));
  wait({.kind = Trigger::Kind::kAdd, .target = c.other.get(), .value = 1});
  wait({.kind = Trigger::Kind::kEvent, .eq = events.get()});
  Trigger put{.transfer = c.put()};
  put.transfer.counter = c.other.get();
  put.transfer.eq = events.get();
  wait(put);
  EXPECT_EQ(c.triggers->pending(), 3u);
  c.other.reset();
  events.reset();
  EXPECT_EQ(c.triggers->pending(), 1u) << "the put reports to nobody, but happens";
  EXPECT_EQ(c.host.used(Resource::kTriggered), 1u);
  c.counter->add(1);
  EXPECT_EQ(std::string(c.space.data()), c.text);
}

TEST(Counter, TheServiceLimitsTriggeredCommands) {
  Counting c(1);
  const Trigger trigger{.counter = c.counter.get(),
                        .threshold = 1,
                        .kind = Trigger::Kind::kEvent,
                        .eq = c.a.acks.get()};
  EXPECT_EQ(c.triggers->post(trigger), 0);
  EXPECT_EQ(c.triggers->post(trigger), -FI_ENOSPC);
  c.counter->add(1);
  EXPECT_EQ(c.triggers->post(trigger), 0);
}

// Threads that add, and one whose puts count: nothing is lost.
TEST(Counter, NoIncrementIsLost) {
  Counting c;
  constexpr int kEach = 2000;
  std::thread one([&] {
    for (int i = 0; i < kEach; ++i) c.counter->add(1);
  });
  std::thread two([&] {
    for (int i = 0; i < kEach; ++i) c.counter->add(1);
  });
  Transfer put = c.put();
  put.counter = c.counter.get();
  for (int i = 0; i < kEach; ++i) EXPECT_EQ(c.a.result_of(put), Rc::kOk);
  one.join();
  two.join();
  EXPECT_EQ(c.counter->success(), 3u * kEach);
}

}  // namespace
}  // namespace weft::cxi
