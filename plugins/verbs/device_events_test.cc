// SPDX-License-Identifier: BSD-2-Clause
// What a device tells asynchronously, over the double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "plugins/verbs/endpoint.h"
#include "plugins/verbs/test_link.h"

namespace weft::verbs {
namespace {

using testing::HasSubstr;

uint32_t qp_of(TestSide &side) {
  return Endpoint::from(&side.ep->fid)->qp_num();
}

TEST(VerbsDeviceEvents, APortIsALineOfTheLog) {
  Link link;
  link.node.device.set_port_state(IBV_PORT_DOWN);
  EXPECT_FALSE(link.a.event());
  EXPECT_THAT(link.node.log(), HasSubstr("dbl0: port 1: port error"));
  link.node.device.set_port_state(IBV_PORT_ACTIVE);
  EXPECT_FALSE(link.a.event());
  EXPECT_THAT(link.node.log(), HasSubstr("dbl0: port 1: port active"));
}

TEST(VerbsDeviceEvents, ABrokenQueuePairEndsItsConnection) {
  Link link;
  Buffer in(link.a, 16);
  ASSERT_EQ(fi_recv(link.a.ep, in.data(), 16, in.desc(), 0, &in), 0);
  link.node.device.break_queue_pair(qp_of(link.a));
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(link.a.failure().err, FI_ECANCELED);
  EXPECT_THAT(link.node.log(), HasSubstr("its queue pair failed"));
}

// Whoever connects may send before it says that it is ready, and what it sends may break our queue
// pair.
TEST(VerbsDeviceEvents, AQueuePairThatBreaksBeforeTheConnectionIsThereFailsIt) {
  Link link({}, /*connects=*/false);
  link.start("");
  const TestEvent request = link.requested();
  link.b.make_endpoint(request.info);
  free_info(request.info);
  ASSERT_EQ(fi_accept(link.b.ep, nullptr, 0), 0);
  link.node.device.break_queue_pair(qp_of(link.b));
  EXPECT_EQ(link.next(link.b).err, FI_ECONNABORTED);
  EXPECT_NE(link.next(link.a).type, uint32_t(FI_CONNREQ));
  EXPECT_FALSE(link.b.event());
}

TEST(VerbsDeviceEvents, ABrokenCompletionQueueIsAnErrorAndEndsItsConnections) {
  Link link;
  link.node.device.break_completion_queue(CompletionQueue::of(*sdk::Cq::from(&link.a.cq->fid)).c());
  EXPECT_FALSE(link.a.event());  // reads it
  EXPECT_EQ(link.a.failure().err, FI_EOVERRUN);
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
}

TEST(VerbsDeviceEvents, AnEventIsAcknowledgedBeforeItsObjectGoes) {
  Link link;
  for (TestSide *side : {&link.a, &link.b}) {
    link.node.device.break_queue_pair(qp_of(*side));
    ASSERT_EQ(fi_close(&side->ep->fid), 0);  // unread: it goes with its object
    side->ep = nullptr;
  }
}

// The device is open once in the process, so either fabric may read the event of the other's.
TEST(VerbsDeviceEvents, AnotherFabricMayReadAnEvent) {
  Link link;
  link.node.device.break_queue_pair(qp_of(link.a));
  EXPECT_FALSE(link.b.event());
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
}

TEST(VerbsDeviceEvents, OneThatWaitsIsWokenByWhatAnotherFabricReads) {
  Link link;
  int fd = -1;
  struct fid *queue = &link.a.eq->fid;
  ASSERT_EQ(fi_control(queue, FI_GETWAIT, &fd), 0);
  ASSERT_EQ(fi_trywait(link.a.fabric, &queue, 1), 0);
  link.node.device.break_queue_pair(qp_of(link.a));
  EXPECT_FALSE(link.b.event());
  pollfd waited{fd, POLLIN, 0};
  EXPECT_EQ(poll(&waited, 1, 30'000), 1);
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
}

}  // namespace
}  // namespace weft::verbs
