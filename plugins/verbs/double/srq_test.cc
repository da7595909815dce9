// SPDX-License-Identifier: BSD-2-Clause
// Shared receive queues: their limit, their size, and the end of a queue pair that uses one.
#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

class DoubleSrq : public testing::Test {
 protected:
  PairOptions shared() {
    PairOptions options;
    options.passive.shares_receives = true;
    options.passive.max_recv_wr = 4;
    return options;
  }

  void message(Pair &pair) {
    ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
    EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  }

  Surroundings surroundings_;
};

TEST_F(DoubleSrq, LimitIsToldOnce) {
  Pair pair(surroundings_, shared());
  fcntl(pair.passive.id->verbs->async_fd, F_SETFL, O_NONBLOCK);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(pair.passive.post_receive(i, 0, 16), 0);
  ibv_srq_attr attr = {};
  attr.srq_limit = 3;
  ASSERT_EQ(ibv_modify_srq(pair.passive.srq, &attr, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(ibv_query_srq(pair.passive.srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 3U);
  ibv_async_event event;
  message(pair);
  EXPECT_EQ(ibv_get_async_event(pair.passive.id->verbs, &event), -1) << "three are left";
  message(pair);
  ASSERT_EQ(ibv_get_async_event(pair.passive.id->verbs, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, pair.passive.srq);
  ibv_ack_async_event(&event);
  message(pair);
  EXPECT_EQ(ibv_get_async_event(pair.passive.id->verbs, &event), -1);
}

TEST_F(DoubleSrq, EntriesAreFreeWhenTheirCompletionsArePolled) {
  Pair pair(surroundings_, shared());
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(pair.passive.post_receive(i, 0, 16), 0);
  EXPECT_EQ(pair.passive.post_receive(4, 0, 16), ENOMEM);
  message(pair);
  EXPECT_EQ(pair.passive.post_receive(4, 0, 16), ENOMEM);
  EXPECT_EQ(pair.passive.completion().wr_id, 0U);
  EXPECT_EQ(pair.passive.post_receive(4, 0, 16), 0);
}

TEST_F(DoubleSrq, ReceivesOutliveAQueuePair) {
  Pair pair(surroundings_, shared());
  ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
  EXPECT_EQ(ibv_destroy_srq(pair.passive.srq), EBUSY);
  ASSERT_EQ(rdma_disconnect(pair.passive.id), 0);
  EXPECT_TRUE(pair.passive.is_empty()) << "what is shared does not flush";
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(pair.passive.id->verbs, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, pair.passive.id->qp);
  ibv_ack_async_event(&event);
}

TEST_F(DoubleSrq, QueuePairWithASharedQueueTakesNoReceives) {
  Pair pair(surroundings_, shared());
  ibv_recv_wr wr = {};
  ibv_recv_wr *bad = nullptr;
  EXPECT_EQ(ibv_post_recv(pair.passive.id->qp, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
}

TEST_F(DoubleSrq, CompletionOfADestroyedQueuePairCanBePolled) {
  Pair pair(surroundings_, shared());
  ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
  message(pair);
  const uint32_t number = pair.passive.id->qp->qp_num;
  pair.passive.destroy_queue_pair();
  EXPECT_EQ(ibv_destroy_srq(std::exchange(pair.passive.srq, nullptr)), 0);
  const ibv_wc wc = pair.passive.completion();
  EXPECT_EQ(wc.wr_id, 1U);
  EXPECT_EQ(wc.qp_num, number);
}

TEST(DoubleSrqLimits, DeviceWithoutSharedQueuesRefuses) {
  Surroundings surroundings({}, {.features = {.srq = false}});
  ibv_device **list = ibv_get_device_list(nullptr);
  ibv_context *context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ibv_pd *pd = ibv_alloc_pd(context);
  ibv_srq_init_attr init = {};
  init.attr.max_wr = init.attr.max_sge = 1;
  EXPECT_EQ(ibv_create_srq(pd, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace
}  // namespace weft::verbs_double
