// SPDX-License-Identifier: BSD-2-Clause
// Every cell of the decision table of PeerLink. Whole networks are in peer_model_test.cc.
#include <gtest/gtest.h>
#include <weft/sdk/peer/link.h>

#include <algorithm>

namespace weft::sdk {
namespace {

using State = PeerLink::State;
using Next = PeerLink::Next;
using Refusal = PeerLink::Refusal;
using Order = std::strong_ordering;

constexpr Order kOrders[] = {Order::less, Order::equal, Order::greater};

PeerLink in_state(State state, uint64_t process = 7) {
  PeerLink link;
  if (state == State::kIdle) return link;
  EXPECT_EQ(link.want(0, 0), Next::kConnect);
  if (state == State::kUp) {
    EXPECT_EQ(link.on_accepted(0, process), Next::kNothing);
  }
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
      const auto d = link.on_request(order, 9, 0);
      EXPECT_TRUE(d.accept);
      EXPECT_FALSE(d.to_probe || d.claim || d.second || d.replaces);
      EXPECT_EQ(link.state(), State::kUp);
      EXPECT_EQ(link.process(), 9u);
    }
  }
}

TEST(PeerLink, CrossingRequestsAreDecidedByAddress) {
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::less, 9, 0);
    EXPECT_FALSE(d.accept || d.to_probe || d.claim || d.second);
    EXPECT_EQ(link.state(), State::kAttempt);
  }
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::greater, 9, 0);
    EXPECT_TRUE(d.accept && d.to_probe);
    EXPECT_FALSE(d.claim || d.second);
    EXPECT_EQ(link.state(), State::kAsking);
    EXPECT_EQ(link.process(), 9u);
  }
  {
    PeerLink link = in_state(State::kAttempt);
    const auto d = link.on_request(Order::equal, 9, 0);
    EXPECT_TRUE(d.accept && d.second);
    EXPECT_FALSE(d.to_probe || d.claim);
    EXPECT_EQ(link.state(), State::kAttempt);
    link.on_accepted(0, 9);
    EXPECT_EQ(link.state(), State::kUp);
  }
}

TEST(PeerLink, SecondRequestsAreRejectedAndThoseOfAnotherProcessCauseAProbe) {
  for (Order order : kOrders) {
    PeerLink link = in_state(State::kUp, 7);
    auto d = link.on_request(order, 7, 0);
    EXPECT_FALSE(d.accept || d.to_probe || d.claim || d.second);
    EXPECT_EQ(d.next, Next::kNothing);
    EXPECT_EQ(link.state(), State::kUp);
    // The claim of a restart alone changes nothing.
    d = link.on_request(order, 8, 0);
    EXPECT_TRUE(d.claim);
    EXPECT_FALSE(d.accept || d.to_probe || d.second);
    EXPECT_EQ(d.next, Next::kProbe);
    EXPECT_EQ(link.state(), State::kAsking);
    EXPECT_EQ(link.process(), 7u);
    // One probe is enough.
    EXPECT_EQ(link.on_request(order, 8, 0).next, Next::kNothing);
    EXPECT_EQ(link.ask(0, 0), Next::kNothing);
    // An answer of the process at the peer's address does change it.
    EXPECT_EQ(link.on_accepted(0, 8), Next::kReplace);
    EXPECT_EQ(link.process(), 8u);
    EXPECT_FALSE(link.on_request(order, 8, 0).claim);
    // So does the end of the link.
    EXPECT_EQ(link.on_lost(0, false, 0), Next::kNothing);
    EXPECT_TRUE(link.on_request(order, 9, 0).accept);
  }
}

// Who asks again has no link, and another process may have named it: all processes of a host can
// find out the numbers of others. Two sides that ask each other about this soon stop.
TEST(PeerLink, TheSameProcessIsBelievedToHaveTheLinkForAWhile) {
  constexpr uint64_t kSecond = 1'000'000'000;
  PeerLink link = in_state(State::kUp, 7);
  for (const uint64_t begin : {kSecond, 10 * kSecond}) {
    for (const uint64_t ms : {0, 1, 3, 7, 15, 500, 999}) {
      const auto d = link.on_request(Order::less, 7, begin + ms * 1'000'000);
      EXPECT_FALSE(d.accept || d.claim) << ms;
      EXPECT_EQ(d.next, Next::kNothing);
    }
    const auto d = link.on_request(Order::less, 7, begin + kSecond);
    EXPECT_TRUE(d.claim);
    EXPECT_FALSE(d.accept);
    EXPECT_EQ(d.next, Next::kProbe);
    link.on_probe_ended();
    EXPECT_FALSE(link.on_request(Order::less, 7, begin + kSecond).claim) << "it begins anew";
    EXPECT_TRUE(link.on_request(Order::less, 7, begin + 2 * kSecond).claim);
    link.on_probe_ended();
  }
  // A question of long ago does not count: a request that crossed ours is one, too.
  EXPECT_FALSE(link.on_request(Order::less, 7, 13 * kSecond).claim);
  EXPECT_FALSE(link.on_request(Order::less, 7, 16 * kSecond).claim) << "it begins anew";
  EXPECT_TRUE(link.on_request(Order::less, 7, 17 * kSecond).claim);
  link.on_probe_ended();
  EXPECT_EQ(link.ask(20 * kSecond, 0), Next::kProbe);
  EXPECT_EQ(link.on_accepted(20 * kSecond, 7), Next::kReplace);
  EXPECT_FALSE(link.on_request(Order::less, 7, 30 * kSecond).claim) << "a new link";
}

// Each claim costs its sender little, and the peer that is asked for it more.
TEST(PeerLink, ClaimsAreAskedAboutEverMoreRarely) {
  PeerLink link = in_state(State::kUp, 7);
  uint64_t asked_at = 0, pause = 0;
  for (uint64_t now = 1; now < 2'000'000'000; now += 100'000) {
    const Next next = link.on_request(Order::less, 8, now).next;
    if (next != Next::kProbe) continue;
    if (asked_at != 0) {
      EXPECT_GE(now - asked_at, pause);
      pause = std::min<uint64_t>(now - asked_at, 99'000'000);
    }
    asked_at = now;
    link.on_probe_ended();
    EXPECT_EQ(link.state(), State::kUp);
    EXPECT_EQ(link.process(), 7u);
  }
  EXPECT_GE(pause, 99'000'000u);
  EXPECT_GT(asked_at, 1'800'000'000u) << "a later claim may be the peer's";
  // The same of a link that seems to be over. A new link is asked about at once.
  EXPECT_EQ(link.suspect(asked_at + 1), Next::kNothing);
  EXPECT_EQ(link.suspect(asked_at + 100'000'001), Next::kProbe);
  EXPECT_EQ(link.on_accepted(asked_at + 100'000'001, 8), Next::kReplace);
  EXPECT_EQ(link.suspect(asked_at + 100'000'001), Next::kProbe);
}

TEST(PeerLink, AProbeThatOutlivesTheLinkIsTheAttemptAndNoRequestCounts) {
  for (Order order : kOrders) {
    PeerLink link = in_state(State::kUp);
    ASSERT_EQ(link.ask(0, 0), Next::kProbe);
    EXPECT_EQ(link.on_lost(5, false, 10), Next::kResume);
    EXPECT_EQ(link.state(), State::kInsist);
    EXPECT_EQ(link.deadline(), 15u);
    EXPECT_FALSE(link.on_request(order, 9, 6).accept);
    PeerLink refused = link;
    EXPECT_EQ(link.on_accepted(7, 8), Next::kNothing);
    EXPECT_TRUE(link.state() == State::kUp && link.process() == 8);
    EXPECT_EQ(refused.on_refused(7, Refusal::kRejected, false), Next::kNothing);
    EXPECT_TRUE(refused.on_request(order, 9, 8).accept);
  }
}

// What comes on an attempt proves that its request is accepted, although that news is late.
TEST(PeerLink, AnAttemptOnWhichSomethingCameDoesNotLose) {
  PeerLink link = in_state(State::kAttempt);
  link.on_heard();
  EXPECT_EQ(link.state(), State::kInsist);
  EXPECT_FALSE(link.on_request(Order::greater, 9, 0).accept);
  EXPECT_EQ(link.on_accepted(0, 8), Next::kNothing);
  EXPECT_EQ(link.process(), 8u);
}

PeerLink in_doubt(bool heard) {
  PeerLink link(PeerLink::Rules{.doubt_ns = 100});
  EXPECT_EQ(link.want(0, 0), Next::kConnect);
  EXPECT_TRUE(link.on_request(Order::greater, 9, 0).to_probe);
  if (heard) {
    link.on_heard();
    EXPECT_EQ(link.state(), State::kDoubt);
    EXPECT_EQ(link.on_time(1'000, true), Next::kNothing) << "it is not known who accepted";
  }
  EXPECT_EQ(link.on_accepted(10, 8), Next::kWait);
  EXPECT_EQ(link.state(), State::kDoubt);
  EXPECT_EQ(link.wake_at(), 110u);
  return link;
}

TEST(PeerLink, AnAcceptedRequestThatCrossedReplacesTheLinkUnlessItEndsSoon) {
  for (const bool heard : {false, true}) {
    PeerLink link = in_doubt(heard);
    EXPECT_EQ(link.process(), 9u);
    EXPECT_FALSE(link.on_request(Order::greater, 9, 20).accept);
    EXPECT_EQ(link.on_time(109, false), Next::kWait);
    EXPECT_EQ(link.on_time(110, false), Next::kReplace);
    EXPECT_TRUE(link.state() == State::kUp && link.process() == 8);
    // The process that accepted it has died before the requester started.
    link = in_doubt(heard);
    link.on_probe_ended();
    EXPECT_TRUE(link.state() == State::kUp && link.process() == 9);
    EXPECT_EQ(link.on_time(200, false), Next::kNothing);
    // The requester is gone: there is no doubt any more.
    link = in_doubt(heard);
    EXPECT_EQ(link.on_lost(20, true, 0), Next::kReplace);
    EXPECT_TRUE(link.state() == State::kUp && link.process() == 8);
  }
  // A probe that asks because of a claim leaves none.
  PeerLink link(PeerLink::Rules{.doubt_ns = 100});
  link.want(0, 0);
  link.on_accepted(0, 7);
  ASSERT_EQ(link.ask(0, 0), Next::kProbe);
  link.on_heard();
  EXPECT_EQ(link.state(), State::kDoubt);
  EXPECT_EQ(link.on_accepted(0, 8), Next::kReplace);
}

TEST(PeerLink, ARequestWithAProofCountsInEveryState) {
  for (State state : {State::kIdle, State::kAttempt, State::kBackoff, State::kUp}) {
    for (Order order : kOrders) {
      PeerLink link = in_state(state);
      const auto d = link.on_request(order, 9, 0, PeerLink::Proof::kAddress);
      EXPECT_TRUE(d.accept);
      EXPECT_FALSE(d.to_probe || d.second || d.claim);
      EXPECT_EQ(d.replaces, state == State::kUp);
      EXPECT_TRUE(link.state() == State::kUp && link.process() == 9);
    }
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
    const uint64_t pause = link.wake_at() - now;
    EXPECT_GE(pause, last);
    EXPECT_LE(pause, 100'000'000u);
    last = pause;
    now = link.wake_at();
    ASSERT_EQ(link.on_time(now, true), Next::kConnect);
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
      ASSERT_GT(link.wake_at(), now);
      now = link.wake_at();
      ASSERT_EQ(link.on_time(now, true), Next::kConnect);
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
  EXPECT_EQ(link.on_time(link.wake_at() - 1, false), Next::kWait);
  EXPECT_EQ(link.on_time(link.wake_at(), false), Next::kNothing);
  EXPECT_EQ(link.state(), State::kIdle);
  // Events of an attempt that lost are ignored.
  link = in_state(State::kUp);
  EXPECT_EQ(link.on_refused(0, Refusal::kRejected, true), Next::kNothing);
  EXPECT_EQ(link.on_time(0, true), Next::kNothing);
  EXPECT_EQ(link.state(), State::kUp);
  link.on_lost(0, false, 0);
  EXPECT_EQ(link.state(), State::kIdle);
}

}  // namespace
}  // namespace weft::sdk
