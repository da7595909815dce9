// SPDX-License-Identifier: BSD-2-Clause
// What a test can make go wrong: calls, completions, ports, devices, peers.
#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

DeviceOptions second_device() {
  return {.name = "dbl1", .addresses = {"10.99.1.1", "fd99:1::1"}};
}

class DoubleFaults : public testing::Test {
 protected:
  Surroundings surroundings_;
};

TEST_F(DoubleFaults, NthCallFails) {
  Pair pair(surroundings_);
  const uint64_t before = surroundings_.network.calls("ibv_post_send");
  surroundings_.network.fail({.call = "ibv_post_send", .error = ENOMEM, .at = 2});
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(pair.passive.post_receive(i, 0, 16), 0);
  EXPECT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_EQ(pair.active.post(pair.active.send(2, 0, 4)), ENOMEM);
  EXPECT_EQ(pair.active.post(pair.active.send(3, 0, 4)), 0);
  EXPECT_EQ(surroundings_.network.calls("ibv_post_send"), before + 3);
  EXPECT_EQ(pair.passive.completion().wr_id, 0U);
  EXPECT_EQ(pair.passive.completion().wr_id, 1U);
  EXPECT_TRUE(pair.passive.is_empty());
}

TEST_F(DoubleFaults, CallsThatReturnObjectsSetErrno) {
  Pair pair(surroundings_);
  surroundings_.network.fail({.call = "ibv_reg_mr", .error = ENOSPC, .count = 2});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ibv_reg_mr(pair.active.pd, pair.active.at(0), 8, 0), nullptr);
    EXPECT_EQ(errno, ENOSPC);
  }
  ibv_mr *region = ibv_reg_mr(pair.active.pd, pair.active.at(0), 8, 0);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(DoubleFaults, UnknownCallIsRefused) {
  EXPECT_THROW(surroundings_.network.fail({.call = "ibv_reg_mrs", .error = EIO}),
               std::invalid_argument);
  EXPECT_THROW(static_cast<void>(surroundings_.network.calls("fi_send")), std::invalid_argument);
}

TEST_F(DoubleFaults, EveryStatusCanBeMadeToHappen) {
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    for (const bool receive : {false, true}) {
      Pair pair(surroundings_);
      surroundings_.network.fail(
          CompletionFault{.status = static_cast<ibv_wc_status>(status), .receive = receive});
      ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
      ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4)), 0);
      End &end = receive ? pair.passive : pair.active;
      const ibv_wc wc = end.completion();
      EXPECT_EQ(static_cast<int>(wc.status), status);
      EXPECT_EQ(wc.vendor_err, 0x52U);
      EXPECT_EQ(wc.wr_id, receive ? 1U : 2U);
      EXPECT_EQ(end.state(), IBV_QPS_ERR);
      EXPECT_STRNE(ibv_wc_status_str(wc.status), "unknown");
    }
  }
}

TEST_F(DoubleFaults, CompletionFaultOfOneQueuePairSparesOthers) {
  Pair first(surroundings_);
  Pair second(surroundings_);
  surroundings_.network.fail(CompletionFault{
      .status = IBV_WC_RETRY_EXC_ERR, .at = 2, .qp_num = second.active.id->qp->qp_num});
  for (Pair *pair : {&first, &second}) {
    for (uint64_t i = 0; i < 2; ++i) {
      ASSERT_EQ(pair->passive.post_receive(i, 0, 16), 0);
      ASSERT_EQ(pair->active.post(pair->active.send(i, 0, 4)), 0);
    }
  }
  EXPECT_EQ(first.active.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(first.active.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(second.active.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(second.active.completion().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DoubleFaults, RemovedDeviceTellsEverybody) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.active.post_receive(1, 0, 16), 0);
  surroundings_.device.remove();
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(pair.active.id->verbs, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
  expect_event(surroundings_, pair.channel, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(pair.active.post(pair.active.send(1, 0, 4)), EIO);
  EXPECT_EQ(ibv_alloc_pd(pair.active.id->verbs), nullptr);
  EXPECT_EQ(errno, EIO);
  int count = 7;
  ibv_device **list = ibv_get_device_list(&count);
  EXPECT_EQ(count, 0);
  ibv_free_device_list(list);
}  // everything can still be closed

TEST_F(DoubleFaults, PortThatIsDownLosesTheConnection) {
  Pair pair(surroundings_);
  surroundings_.device.set_port_state(IBV_PORT_DOWN);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(pair.active.id->verbs, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 1);
  ibv_ack_async_event(&event);
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(DoubleTime, PortThatComesBackInTimeLosesNothing) {
  Surroundings surroundings({.timers = Timers::kOnDemand});
  Pair pair(surroundings);
  surroundings.device.set_port_state(IBV_PORT_DOWN);
  ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
  ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4)), 0);
  EXPECT_TRUE(pair.active.is_empty());
  surroundings.device.set_port_state(IBV_PORT_ACTIVE);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.passive.completion().status, IBV_WC_SUCCESS);
}

TEST(DoubleTime, PeerThatVanishesIsNoticedWhenTheTimeIsOver) {
  Surroundings surroundings({.timers = Timers::kOnDemand});
  Pair pair(surroundings, {.rnr_retry_count = 3});
  surroundings.device.silence(pair.passive.id->qp->qp_num);
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_TRUE(pair.active.is_empty());
  surroundings.network.expire_timers();
  EXPECT_EQ(pair.active.completion().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(DoubleTime, LimitedRetriesEndWhenTheTimeIsOver) {
  Surroundings surroundings({.timers = Timers::kOnDemand});
  Pair pair(surroundings, {.rnr_retry_count = 3});
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_TRUE(pair.active.is_empty());
  surroundings.network.expire_timers();
  EXPECT_EQ(pair.active.completion().status, IBV_WC_RNR_RETRY_EXC_ERR);
  Pair endless(surroundings);
  ASSERT_EQ(endless.active.post(endless.active.send(1, 0, 4)), 0);
  surroundings.network.expire_timers();
  EXPECT_TRUE(endless.active.is_empty()) << "seven retries are without end";
}

TEST(DoubleTime, RequestToAHostThatDiedIsUnreachable) {
  Surroundings surroundings;
  Device &other = surroundings.network.add(second_device());
  rdma_event_channel *channel = make_channel();
  rdma_cm_id *id = nullptr;
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in source = surroundings.address();
  sockaddr_in target = surroundings.address(9);
  inet_pton(AF_INET, "10.99.1.1", &target.sin_addr);
  ASSERT_EQ(rdma_resolve_addr(id, reinterpret_cast<sockaddr *>(&source),
                              reinterpret_cast<sockaddr *>(&target), 1000),
            0);
  expect_event(surroundings, channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
  expect_event(surroundings, channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  other.vanish();
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_event *event = next_event(surroundings, channel, RDMA_CM_EVENT_UNREACHABLE);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->status, -ETIMEDOUT);
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  rdma_destroy_event_channel(channel);
}

TEST(DoubleTime, SendThatWaitsForAReceiveOfADeadHostFails) {
  Surroundings surroundings;
  Device &other = surroundings.network.add(second_device());
  Pair pair(surroundings, {.active_address = "10.99.1.1"});
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_TRUE(pair.active.is_empty());
  surroundings.device.vanish();
  EXPECT_EQ(pair.active.completion().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_STREQ(ibv_get_device_name(pair.active.id->verbs->device), other.name().c_str());
  pair.passive.close();
  rdma_cm_event *event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(pair.channel, &event), -1) << "the dead host says nothing";
}

TEST(DoubleTime, DisconnectWithoutAnAnswerEnds) {
  Surroundings surroundings({.timers = Timers::kOnDemand});
  Pair pair(surroundings);
  ASSERT_EQ(rdma_disconnect(pair.active.id), 0);
  rdma_cm_event *event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(pair.channel, &event), -1) << "the other end did not answer yet";
  surroundings.network.expire_timers();
  event = next_event(surroundings, pair.channel, RDMA_CM_EVENT_DISCONNECTED);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->status, -ETIMEDOUT);
  rdma_ack_cm_event(event);
}

TEST_F(DoubleFaults, BrokenQueuePairFlushesAndIsAnEvent) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.active.post_receive(1, 0, 16), 0);
  surroundings_.device.break_queue_pair(pair.active.id->qp->qp_num);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_WR_FLUSH_ERR);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(pair.active.id->verbs, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
  ibv_ack_async_event(&event);
}

TEST_F(DoubleFaults, OpenObjectsAreNamed) {
  EXPECT_EQ(surroundings_.network.open_objects(), "");
  rdma_event_channel *channel = make_channel();
  EXPECT_EQ(surroundings_.network.open_objects(), "1 rdma_event_channel");
  rdma_destroy_event_channel(channel);
  EXPECT_EQ(surroundings_.network.open_objects(), "");
}

TEST_F(DoubleFaults, ComplaintsNameWhatHasNoError) {
  rdma_event_channel *channel = make_channel();
  rdma_cm_id *id = nullptr;
  ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
  rdma_destroy_event_channel(channel);
  ASSERT_EQ(surroundings_.network.complaints().size(), 1U);
  EXPECT_EQ(surroundings_.network.complaints()[0],
            "rdma_destroy_event_channel: identifiers use it");
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
}

}  // namespace
}  // namespace weft::verbs_double
