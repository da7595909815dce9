// SPDX-License-Identifier: BSD-2-Clause
// Completion queues: events and when they come, size, overrun.
#include <poll.h>

#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

class DoubleCq : public testing::Test {
 protected:
  // Lets a message come that completes a receive of the passive end.
  void message(Pair &pair, unsigned flags = IBV_SEND_SIGNALED) {
    ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
    ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4, flags)), 0);
    EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  }

  // Takes an event of the passive end. False if there is none.
  bool event(Pair &pair) {
    ibv_cq *cq = nullptr;
    void *context = nullptr;
    if (ibv_get_cq_event(pair.passive.comp_channel, &cq, &context) != 0) {
      EXPECT_EQ(errno, EAGAIN);
      return false;
    }
    EXPECT_EQ(cq, pair.passive.cq);
    EXPECT_EQ(context, &pair.passive);
    ibv_ack_cq_events(cq, 1);
    return true;
  }

  bool is_readable(Pair &pair) {
    pollfd descriptor = {pair.passive.comp_channel->fd, POLLIN, 0};
    return poll(&descriptor, 1, 0) == 1;
  }

  Surroundings surroundings_;
};

TEST_F(DoubleCq, EventComesForTheNextCompletionOnly) {
  Pair pair(surroundings_);
  message(pair);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.cq, 0), 0);
  EXPECT_FALSE(event(pair)) << "a completion before the request counts for none";
  message(pair);
  EXPECT_TRUE(is_readable(pair));
  EXPECT_TRUE(event(pair));
  EXPECT_FALSE(is_readable(pair));
  message(pair);
  EXPECT_FALSE(event(pair)) << "one event for one request";
}

TEST_F(DoubleCq, SolicitedRequestIgnoresOtherMessages) {
  Pair pair(surroundings_);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.cq, 1), 0);
  message(pair);
  EXPECT_FALSE(event(pair));
  message(pair, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
  EXPECT_TRUE(event(pair));
}

TEST_F(DoubleCq, ErrorCountsAsSolicited) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.cq, 1), 0);
  ASSERT_EQ(rdma_disconnect(pair.passive.id), 0);
  EXPECT_TRUE(event(pair));
}

TEST_F(DoubleCq, SolicitedRequestDoesNotWeakenOneForAll) {
  Pair pair(surroundings_);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.cq, 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.cq, 1), 0);
  message(pair);
  EXPECT_TRUE(event(pair));
}

TEST_F(DoubleCq, OverrunIsAnEventAndBreaksTheQueue) {
  PairOptions options;
  options.passive.max_cqe = 2;
  Pair pair(surroundings_, options);
  message(pair);
  message(pair);
  ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
  ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4)), 0);
  ibv_async_event async;
  ASSERT_EQ(ibv_get_async_event(pair.passive.id->verbs, &async), 0);
  EXPECT_EQ(async.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(async.element.cq, pair.passive.cq);
  ibv_ack_async_event(&async);
  ibv_wc wc[4];
  EXPECT_EQ(ibv_poll_cq(pair.passive.cq, 4, wc), 2);
  EXPECT_LT(ibv_poll_cq(pair.passive.cq, 4, wc), 0);
  EXPECT_EQ(pair.passive.state(), IBV_QPS_ERR);
}

TEST_F(DoubleCq, ResizedQueueHoldsMore) {
  PairOptions options;
  options.passive.max_cqe = 2;
  Pair pair(surroundings_, options);
  message(pair);
  message(pair);
  EXPECT_EQ(ibv_resize_cq(pair.passive.cq, 1), EINVAL) << "two are in it";
  ASSERT_EQ(ibv_resize_cq(pair.passive.cq, 8), 0);
  EXPECT_GE(pair.passive.cq->cqe, 8);
  message(pair);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pair.passive.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_resize_cq(pair.passive.cq, 1 << 30), EINVAL);
}

TEST_F(DoubleCq, QueueInUseIsBusy) {
  Pair pair(surroundings_);
  EXPECT_EQ(ibv_destroy_cq(pair.passive.cq), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(pair.passive.comp_channel), EBUSY);
}

TEST_F(DoubleCq, DestroyWaitsForAcknowledgements) {
  Pair pair(surroundings_);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.cq, 0), 0);
  message(pair);
  ibv_cq *cq = nullptr;
  void *context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(pair.passive.comp_channel, &cq, &context), 0);
  std::thread other([cq] { ibv_ack_cq_events(cq, 1); });
  pair.passive.destroy_queue_pair();
  EXPECT_EQ(ibv_destroy_cq(std::exchange(pair.passive.cq, nullptr)), 0);
  other.join();
}

TEST_F(DoubleCq, DestroyedQueueTakesItsEventsAlong) {
  Pair pair(surroundings_);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.cq, 0), 0);
  message(pair);
  EXPECT_TRUE(is_readable(pair));
  pair.passive.destroy_queue_pair();
  EXPECT_EQ(ibv_destroy_cq(std::exchange(pair.passive.cq, nullptr)), 0);
  EXPECT_FALSE(is_readable(pair));
}

TEST_F(DoubleCq, BlockingCallWaitsForTheEvent) {
  Pair pair(surroundings_);
  const int flags = fcntl(pair.passive.comp_channel->fd, F_GETFL);
  fcntl(pair.passive.comp_channel->fd, F_SETFL, flags & ~O_NONBLOCK);
  ASSERT_EQ(ibv_req_notify_cq(pair.passive.cq, 0), 0);
  bool woke = false;
  std::thread waiter([&] { woke = event(pair); });
  message(pair);
  waiter.join();
  EXPECT_TRUE(woke);
}

}  // namespace
}  // namespace weft::verbs_double
