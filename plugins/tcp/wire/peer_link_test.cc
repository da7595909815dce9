// SPDX-License-Identifier: BSD-2-Clause
// Every cell of the decision table of PeerLink. Whole networks are in peer_link_network_test.cc.
#include "peer_link.h"

#include <gtest/gtest.h>

namespace weft::tcp {
namespace {

using State = PeerLink::State;
using Next = PeerLink::Next;
using Refusal = PeerLink::Refusal;
using Order = std::strong_ordering;

constexpr Order kOrders[] = {Order::less, Order::equal, Order::greater};

PeerLink in_state(State state, uint32_t process = 7) {
  PeerLink link;
  if (state == State::kIdle) return link;
  EXPECT_EQ(link.want(0, 0), Next::kConnect);
  if (state == State::kUp) link.on_accepted(process);
  if (state == State::kBackoff) {
    EXPECT_EQ(link.on_refused(0, Refusal::kRejected, true), Next::kWait);
  }
  EXPECT_EQ(link.state(), state);
  return link;
}

TEST(PeerLink, IdleAcceptsEveryRequest) {
  for (State state : {State::kIdle, State::kBackoff}) {
    for (Order order : kOrders) {
      PeerLink link = in_state(state);
      const auto d = link.on_request(order, 9);
      EXPECT_TRUE(d.accept);
      EXPECT_FALSE(d.drop_attempt || d.challenge || d.second);
      EXPECT_EQ(link.state(), State::kUp);
      EXPECT_EQ(link.process(), 9u);
    }
  }
}

TEST(PeerLink, CrossingRequestsAreDecidedByAddress) {
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::less, 9);
    EXPECT_FALSE(d.accept || d.drop_attempt || d.challenge || d.second);
    EXPECT_EQ(link.state(), State::kAttempt);
  }
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::greater, 9);
    EXPECT_TRUE(d.accept && d.drop_attempt);
    EXPECT_FALSE(d.challenge || d.second);
    EXPECT_EQ(link.state(), State::kUp);
  }
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::equal, 9);
    EXPECT_TRUE(d.accept && d.second);
    EXPECT_FALSE(d.drop_attempt || d.challenge);
    EXPECT_EQ(link.state(), State::kAttempt);
    link.on_accepted(9);
    EXPECT_EQ(link.state(), State::kUp);
  }
}

TEST(PeerLink, SecondRequestsAreRejectedAndThoseOfAnotherProcessCauseAProbe) {
  for (Order order : kOrders) {
    PeerLink link = in_state(State::kUp, 7);
    auto d = link.on_request(order, 7);
    EXPECT_FALSE(d.accept || d.drop_attempt || d.challenge || d.second);
    EXPECT_EQ(link.state(), State::kUp);
    // The claim of a restart alone changes nothing.
    d = link.on_request(order, 8);
    EXPECT_TRUE(d.challenge);
    EXPECT_FALSE(d.accept || d.drop_attempt || d.second);
    EXPECT_EQ(link.state(), State::kUp);
    EXPECT_EQ(link.process(), 7u);
    // An answer of the process at the peer's address does.
    link.on_accepted(8);
    EXPECT_EQ(link.process(), 8u);
    EXPECT_FALSE(link.on_request(order, 8).challenge);
    // So does the end of the stream.
    link.on_lost();
    EXPECT_TRUE(link.on_request(order, 9).accept);
  }
}

TEST(PeerLink, PausesAfterRejectsGrow) {
  PeerLink link;
  EXPECT_EQ(link.want(1000, 1'000'000'000), Next::kConnect);
  EXPECT_EQ(link.want(1000, 1'000'000'000), Next::kNothing);
  uint64_t now = 1000, last = 0;
  int attempts = 1;
  for (;;) {
    const Next next = link.on_refused(now, Refusal::kRejected, true);
    if (next == Next::kFail) break;
    ASSERT_EQ(next, Next::kWait);
    EXPECT_EQ(link.want(now, 1'000'000'000), Next::kWait);
    const uint64_t pause = link.retry_at() - now;
    EXPECT_GE(pause, last);
    EXPECT_LE(pause, 100'000'000u);
    last = pause;
    now = link.retry_at();
    ASSERT_EQ(link.on_retry(now, true), Next::kConnect);
    ++attempts;
    ASSERT_LT(attempts, 100);
  }
  EXPECT_GT(attempts, 5);
  EXPECT_LT(now, 1'000'001'000u);
  EXPECT_EQ(link.state(), State::kIdle);
  // The next operation begins anew.
  EXPECT_EQ(link.want(now, 1'000'000'000), Next::kConnect);
}

TEST(PeerLink, AnUnreachablePeerFailsAtOnce) {
  PeerLink link = in_state(State::kAttempt);
  EXPECT_EQ(link.on_refused(0, Refusal::kUnreachable, true), Next::kFail);
  EXPECT_EQ(link.state(), State::kIdle);
}

// A peer that hangs up may only be busy: it is asked again until the timeout, with growing pauses.
TEST(PeerLink, HangUpsAreRetriedUntilTheTimeIsOver) {
  for (const uint64_t timeout : {uint64_t(1'000'000'000), uint64_t(30'000'000'000), uint64_t(0)}) {
    PeerLink link;
    uint64_t now = 1000;
    ASSERT_EQ(link.want(now, timeout), Next::kConnect);
    unsigned attempts = 1;
    while (link.on_refused(now, Refusal::kHungUp, true) == Next::kWait) {
      ASSERT_GT(link.retry_at(), now);
      now = link.retry_at();
      ASSERT_EQ(link.on_retry(now, true), Next::kConnect);
      ASSERT_LT(++attempts, 1000u);
    }
    EXPECT_EQ(link.state(), State::kIdle);
    if (timeout == 0) {
      EXPECT_LT(now, 10'000'000'000u) << "the attempts at a peer that never answers must end, too";
    } else {
      EXPECT_LE(now, 1000 + timeout);
      EXPECT_GE(now, 1000 + timeout - 100'000'000) << "given up too early";
    }
    EXPECT_GT(attempts, 4u);
  }
}

TEST(PeerLink, NoRetryWithoutOperations) {
  PeerLink link = in_state(State::kAttempt);
  EXPECT_EQ(link.on_refused(0, Refusal::kRejected, false), Next::kNothing);
  EXPECT_EQ(link.state(), State::kIdle);
  link = in_state(State::kBackoff);
  EXPECT_EQ(link.on_retry(0, false), Next::kNothing);
  EXPECT_EQ(link.state(), State::kIdle);
  // Events of an attempt that lost are ignored.
  link = in_state(State::kUp);
  EXPECT_EQ(link.on_refused(0, Refusal::kRejected, true), Next::kNothing);
  EXPECT_EQ(link.on_retry(0, true), Next::kNothing);
  EXPECT_EQ(link.state(), State::kUp);
  link.on_lost();
  EXPECT_EQ(link.state(), State::kIdle);
}

}  // namespace
}  // namespace weft::tcp
