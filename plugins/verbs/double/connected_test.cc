// SPDX-License-Identifier: BSD-2-Clause
// Operations of connected queue pairs, and what both ends see when one fails.
#include "plugins/verbs/double/connected.h"

#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

using testing::Test;

class DoubleConnected : public Test {
 protected:
  Surroundings surroundings_;
};

TEST_F(DoubleConnected, SendFillsTheReceive) {
  Pair pair(surroundings_);
  std::memcpy(pair.active.at(0), "hello", 5);
  ASSERT_EQ(pair.passive.post_receive(7, 100, 16), 0);
  ASSERT_EQ(pair.active.post(pair.active.send(8, 0, 5)), 0);
  const ibv_wc received = pair.passive.completion();
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 7U);
  EXPECT_EQ(received.byte_len, 5U);
  EXPECT_EQ(received.qp_num, pair.passive.id->qp->qp_num);
  EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(std::memcmp(pair.passive.at(100), "hello", 5), 0);
  const ibv_wc sent = pair.active.completion();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_SEND);
  EXPECT_EQ(sent.wr_id, 8U);
}

TEST_F(DoubleConnected, ImmediateDataComesAsItWasSent) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
  ibv_send_wr wr = pair.active.send(2, 0, 3);
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = htonl(0x11223344);
  ASSERT_EQ(pair.active.post(wr), 0);
  const ibv_wc received = pair.passive.completion();
  EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ntohl(received.imm_data), 0x11223344U);
}

TEST_F(DoubleConnected, InlineDataNeedsNoKeyAndMayChangeAfterThePost) {
  Pair pair(surroundings_);
  uint8_t outside[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  ibv_sge sge = {reinterpret_cast<uintptr_t>(outside), sizeof outside, 0};
  ibv_send_wr wr = pair.active.send(1, 0, 0, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  wr.sg_list = &sge;
  ASSERT_EQ(pair.active.post(wr), 0);
  std::memset(outside, 0xff, sizeof outside);
  ASSERT_EQ(pair.passive.post_receive(2, 0, 8), 0);  // only now
  EXPECT_EQ(pair.passive.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(*pair.passive.at(3), 4);
  sge.length = 65;
  EXPECT_EQ(pair.active.post(wr), EINVAL) << "more than max_inline_data";
}

TEST_F(DoubleConnected, WriteChangesMemoryWithoutAReceive) {
  Pair pair(surroundings_);
  std::memcpy(pair.active.at(0), "written", 7);
  ASSERT_EQ(pair.active.post(pair.active.access(IBV_WR_RDMA_WRITE, 1, 0, 7, pair.passive, 64)), 0);
  const ibv_wc wc = pair.active.completion();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(std::memcmp(pair.passive.at(64), "written", 7), 0);
  EXPECT_TRUE(pair.passive.is_empty());
}

TEST_F(DoubleConnected, WriteWithImmediateTakesAReceive) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.passive.post_receive(9, 0, 0), 0);
  ibv_send_wr wr = pair.active.access(IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 7, pair.passive, 64);
  wr.imm_data = htonl(5);
  ASSERT_EQ(pair.active.post(wr), 0);
  const ibv_wc wc = pair.passive.completion();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.wr_id, 9U);
  EXPECT_EQ(wc.byte_len, 7U);
  EXPECT_EQ(ntohl(wc.imm_data), 5U);
}

TEST_F(DoubleConnected, ReadFetchesMemory) {
  Pair pair(surroundings_);
  std::memcpy(pair.passive.at(64), "fetched", 7);
  ASSERT_EQ(pair.active.post(pair.active.access(IBV_WR_RDMA_READ, 1, 0, 7, pair.passive, 64)), 0);
  const ibv_wc wc = pair.active.completion();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(wc.byte_len, 7U);
  EXPECT_EQ(std::memcmp(pair.active.at(0), "fetched", 7), 0);
}

TEST_F(DoubleConnected, AtomicsReturnWhatWasThere) {
  Pair pair(surroundings_);
  pair.passive.memory[8] = 40;
  ibv_send_wr wr = pair.active.send(1, 0, 8);
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic.remote_addr = pair.passive.address(64);
  wr.wr.atomic.rkey = pair.passive.region->rkey;
  wr.wr.atomic.compare_add = 2;
  ASSERT_EQ(pair.active.post(wr), 0);
  EXPECT_EQ(pair.active.completion().opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(pair.active.memory[0], 40U);
  EXPECT_EQ(pair.passive.memory[8], 42U);

  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.wr.atomic.compare_add = 42;
  wr.wr.atomic.swap = 7;
  ASSERT_EQ(pair.active.post(wr), 0);
  EXPECT_EQ(pair.active.completion().opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(pair.active.memory[0], 42U);
  EXPECT_EQ(pair.passive.memory[8], 7U);
  ASSERT_EQ(pair.active.post(wr), 0);  // 42 is not there any more
  EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.active.memory[0], 7U);
  EXPECT_EQ(pair.passive.memory[8], 7U);
}

TEST(DoubleIwarp, AMessageWithoutAReceiveEndsTheConnection) {
  Surroundings surroundings({}, {.iwarp = true});
  Pair pair(surroundings);
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(pair.passive.post_receive(3, 0, 16), 0);
  EXPECT_EQ(pair.passive.completion().status, IBV_WC_WR_FLUSH_ERR);
}

TEST(DoubleIwarp, ThereAreNoImmediates) {
  Surroundings surroundings({}, {.iwarp = true});
  Pair pair(surroundings);
  ibv_send_wr wr = pair.active.send(1, 0, 4);
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  EXPECT_EQ(pair.active.post(wr), EINVAL);
}

TEST_F(DoubleConnected, WithSevenRetriesASendWaitsForTheReceive) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_TRUE(pair.active.is_empty());
  ASSERT_EQ(pair.passive.post_receive(2, 0, 16), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.passive.completion().status, IBV_WC_SUCCESS);
}

TEST_F(DoubleConnected, WithFewerRetriesItFails) {
  Pair pair(surroundings_, {.rnr_retry_count = 1});
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(pair.active.state(), IBV_QPS_ERR);
}

TEST_F(DoubleConnected, ReceiveThatIsTooSmallFailsAtBothEnds) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.passive.post_receive(1, 0, 4), 0);
  ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 5)), 0);
  const ibv_wc received = pair.passive.completion();
  EXPECT_EQ(received.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(received.wr_id, 1U);
  EXPECT_NE(received.vendor_err, 0U);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(pair.active.state(), IBV_QPS_ERR);
  EXPECT_EQ(pair.passive.state(), IBV_QPS_ERR);
}

TEST_F(DoubleConnected, UnknownLocalKeyFailsHereOnly) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
  ibv_send_wr wr = pair.active.send(2, 0, 4);
  wr.sg_list->lkey = pair.active.region->rkey;  // the other key is not this one
  ASSERT_EQ(pair.active.post(wr), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_TRUE(pair.passive.is_empty());
  EXPECT_EQ(pair.passive.state(), IBV_QPS_RTS);
}

TEST_F(DoubleConnected, UnknownLocalKeyOfAReceiveFailsAtBothEnds) {
  Pair pair(surroundings_);
  ibv_sge sge = pair.passive.part(0, 16);
  sge.lkey = 1;
  ASSERT_EQ(pair.passive.post_receive(1, sge), 0);
  ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4)), 0);
  EXPECT_EQ(pair.passive.completion().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_REM_OP_ERR);
}

TEST_F(DoubleConnected, KeyOfAnotherProtectionDomainIsNoKey) {
  Pair pair(surroundings_);
  ibv_pd *other = ibv_alloc_pd(pair.active.id->verbs);
  ibv_mr *region = ibv_reg_mr(other, pair.active.at(0), 64, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(region, nullptr);
  ibv_send_wr wr = pair.active.send(2, 0, 4);
  wr.sg_list->lkey = region->lkey;
  ASSERT_EQ(pair.active.post(wr), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(DoubleConnected, UnknownRemoteKeyFailsAndTellsThePeer) {
  Pair pair(surroundings_);
  ibv_send_wr wr = pair.active.access(IBV_WR_RDMA_WRITE, 1, 0, 8, pair.passive, 0);
  wr.wr.rdma.rkey = pair.passive.region->lkey;
  ASSERT_EQ(pair.active.post(wr), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(pair.passive.state(), IBV_QPS_ERR);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(pair.passive.id->verbs, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, pair.passive.id->qp);
  ibv_ack_async_event(&event);
}

TEST_F(DoubleConnected, AccessBeyondTheRegionFails) {
  Pair pair(surroundings_);
  const size_t end = pair.passive.bytes();
  ibv_send_wr wr = pair.active.access(IBV_WR_RDMA_READ, 1, 0, 16, pair.passive, end - 8);
  ASSERT_EQ(pair.active.post(wr), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DoubleConnected, RegionWithoutTheRightRefuses) {
  PairOptions options;
  options.passive.memory_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  Pair pair(surroundings_, options);
  ASSERT_EQ(pair.active.post(pair.active.access(IBV_WR_RDMA_WRITE, 1, 0, 8, pair.passive, 0)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.active.post(pair.active.access(IBV_WR_RDMA_READ, 2, 0, 8, pair.passive, 0)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(DoubleConnected, QueuePairWithoutResourcesForReadsRefusesThem) {
  Pair pair(surroundings_, {.responder_resources = 0, .initiator_depth = 4});
  ASSERT_EQ(pair.passive.post_receive(1, 0, 8), 0);
  ASSERT_EQ(pair.active.post(pair.active.access(IBV_WR_RDMA_READ, 2, 0, 8, pair.passive, 0)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_LOC_QP_OP_ERR);  // 0 at a time
}

TEST_F(DoubleConnected, MisalignedAtomicIsInvalid) {
  Pair pair(surroundings_);
  ibv_send_wr wr = pair.active.send(1, 0, 8);
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic.remote_addr = pair.passive.address(4);
  wr.wr.atomic.rkey = pair.passive.region->rkey;
  ASSERT_EQ(pair.active.post(wr), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(DoubleConnected, ReadIntoMemoryThatMayNotBeWrittenFails) {
  PairOptions options;
  options.active.memory_access = 0;
  Pair pair(surroundings_, options);
  ASSERT_EQ(pair.active.post(pair.active.access(IBV_WR_RDMA_READ, 1, 0, 8, pair.passive, 0)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(DoubleConnected, UnsignaledSendsHoldTheirEntriesUntilALaterCompletionIsPolled) {
  PairOptions options;
  options.active.max_send_wr = 4;
  Pair pair(surroundings_, options);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(pair.passive.post_receive(i, 0, 16), 0);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(pair.active.post(pair.active.send(i, 0, 4, 0)), 0);
  ASSERT_EQ(pair.active.post(pair.active.send(3, 0, 4)), 0);
  EXPECT_EQ(pair.active.post(pair.active.send(4, 0, 4, 0)), ENOMEM);
  const ibv_wc wc = pair.active.completion();
  EXPECT_EQ(wc.wr_id, 3U);
  EXPECT_TRUE(pair.active.is_empty());
  EXPECT_EQ(pair.active.post(pair.active.send(4, 0, 4, 0)), 0);
}

TEST_F(DoubleConnected, ListStopsAtTheFirstBadRequest) {
  PairOptions options;
  options.active.max_send_wr = 2;
  Pair pair(surroundings_, options);
  ibv_send_wr list[3] = {pair.active.send(1, 0, 4), pair.active.send(2, 0, 4),
                         pair.active.send(3, 0, 4)};
  list[0].next = &list[1];
  list[1].next = &list[2];
  ibv_send_wr *bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.active.id->qp, list, &bad), ENOMEM);
  EXPECT_EQ(bad, &list[2]);
}

TEST_F(DoubleConnected, BehindAnErrorEverythingFlushes) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.active.post_receive(10, 0, 16), 0);
  ibv_send_wr bad = pair.active.send(1, 0, 4, 0);
  bad.sg_list->lkey = 1;
  ASSERT_EQ(pair.active.post(bad), 0);
  const ibv_wc failed = pair.active.completion();
  EXPECT_EQ(failed.status, IBV_WC_LOC_PROT_ERR) << "an error is told of an unsignaled send, too";
  EXPECT_EQ(failed.wr_id, 1U);
  const ibv_wc receive = pair.active.completion();
  EXPECT_EQ(receive.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(receive.wr_id, 10U);
  ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4, 0)), 0);  // as the specification has it
  EXPECT_EQ(pair.active.completion().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(pair.active.post_receive(11, 0, 16), 0);
  EXPECT_EQ(pair.active.completion().wr_id, 11U);
}

TEST_F(DoubleConnected, SendToADestroyedPeerExceedsItsRetries) {
  Pair pair(surroundings_);
  pair.passive.destroy_queue_pair();
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DoubleConnected, SendThatWaitsForAReceiveFailsWhenThePeerIsDestroyed) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_TRUE(pair.active.is_empty());
  pair.passive.destroy_queue_pair();
  EXPECT_EQ(pair.active.completion().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DoubleConnected, PeerInInitStateMakesASenderWait) {
  Pair pair(surroundings_);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(pair.passive.id->qp, &attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(pair.passive.id->qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_TRUE(pair.active.is_empty());
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(pair.passive.id->qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(DoubleConnected, SharedReceivesServeTheQueuePairs) {
  PairOptions options;
  options.passive.shares_receives = true;
  Pair pair(surroundings_, options);
  ASSERT_EQ(pair.active.post(pair.active.send(1, 0, 4)), 0);
  EXPECT_TRUE(pair.passive.is_empty());
  ASSERT_EQ(pair.passive.post_receive(2, 0, 16), 0);
  const ibv_wc wc = pair.passive.completion();
  EXPECT_EQ(wc.wr_id, 2U);
  EXPECT_EQ(wc.qp_num, pair.passive.id->qp->qp_num);
}

}  // namespace
}  // namespace weft::verbs_double
