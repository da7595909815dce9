// SPDX-License-Identifier: BSD-2-Clause
// Extended connections: one target serves many shared queues, which the sender names.
#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

class DoubleXrc : public testing::Test {
 protected:
  void SetUp() override {
    ibv_device **list = ibv_get_device_list(nullptr);
    context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
    region_ = ibv_reg_mr(pd_, memory_, sizeof memory_, IBV_ACCESS_LOCAL_WRITE);
    ibv_xrcd_init_attr init = {};
    init.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    init.fd = -1;
    init.oflags = O_CREAT;
    xrcd_ = ibv_open_xrcd(context_, &init);
    ASSERT_NE(xrcd_, nullptr);
    sender_ = make(IBV_QPT_XRC_SEND);
    target_ = make(IBV_QPT_XRC_RECV);
    ASSERT_NE(sender_, nullptr);
    ASSERT_NE(target_, nullptr);
    connect(sender_, target_->qp_num);
    connect(target_, sender_->qp_num);
  }
  void TearDown() override {
    EXPECT_EQ(ibv_close_xrcd(xrcd_), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(sender_), 0);
    EXPECT_EQ(ibv_destroy_qp(target_), 0);
    for (ibv_srq *srq : srqs_) EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_close_xrcd(xrcd_), 0);
    EXPECT_EQ(ibv_dereg_mr(region_), 0);
    EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    EXPECT_EQ(ibv_close_device(context_), 0);
    EXPECT_EQ(surroundings_.network.open_objects(), "");
  }

  ibv_qp *make(ibv_qp_type type) {
    ibv_qp_init_attr_ex init = {};
    init.qp_type = type;
    init.comp_mask = type == IBV_QPT_XRC_SEND ? IBV_QP_INIT_ATTR_PD : IBV_QP_INIT_ATTR_XRCD;
    init.pd = pd_;
    init.xrcd = xrcd_;
    if (type == IBV_QPT_XRC_SEND) {
      init.send_cq = cq_;
      init.cap = {8, 0, 1, 0, 32};
    }
    return ibv_create_qp_ex(context_, &init);
  }

  void connect(ibv_qp *qp, uint32_t peer) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    EXPECT_EQ(ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              0);
    const bool is_target = qp->qp_type == IBV_QPT_XRC_RECV;
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.sgid_index = 1;
    EXPECT_EQ(ibv_query_gid(context_, 1, 1, &attr.ah_attr.grh.dgid), 0);
    EXPECT_EQ(
        ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          (is_target ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
        0);
    attr.qp_state = IBV_QPS_RTS;
    attr.retry_cnt = attr.rnr_retry = 7;
    EXPECT_EQ(
        ibv_modify_qp(
            qp, &attr,
            IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                (is_target ? 0 : IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)),
        0);
  }

  // A shared queue of the domain; its number goes to the sender.
  ibv_srq *share(uint32_t &number) {
    ibv_srq_init_attr_ex init = {};
    init.attr.max_wr = 4;
    init.attr.max_sge = 1;
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    init.pd = pd_;
    init.xrcd = xrcd_;
    init.cq = cq_;
    ibv_srq *srq = ibv_create_srq_ex(context_, &init);
    EXPECT_NE(srq, nullptr);
    srqs_.push_back(srq);
    EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
    return srq;
  }

  int post_receive(ibv_srq *srq, uint64_t wr_id) {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(memory_ + 64), 32, region_->lkey};
    ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
    ibv_recv_wr *bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }

  int send(uint32_t number) {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(memory_), 4, region_->lkey};
    ibv_send_wr wr = {};
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.qp_type.xrc.remote_srqn = number;
    ibv_send_wr *bad = nullptr;
    return ibv_post_send(sender_, &wr, &bad);
  }

  // The next completions: of the receive, and of the send, in any order.
  std::vector<ibv_wc> completions(size_t count) {
    std::vector<ibv_wc> all;
    ibv_wc wc;
    EXPECT_TRUE(surroundings_.wait([&] {
      if (ibv_poll_cq(cq_, 1, &wc) == 1) all.push_back(wc);
      return all.size() == count;
    }));
    return all;
  }

  Surroundings surroundings_;
  uint8_t memory_[128] = {};
  ibv_context *context_ = nullptr;
  ibv_pd *pd_ = nullptr;
  ibv_cq *cq_ = nullptr;
  ibv_mr *region_ = nullptr;
  ibv_xrcd *xrcd_ = nullptr;
  ibv_qp *sender_ = nullptr;
  ibv_qp *target_ = nullptr;
  std::vector<ibv_srq *> srqs_;
};

TEST_F(DoubleXrc, MessageGoesToTheQueueThatItNames) {
  uint32_t first = 0;
  uint32_t second = 0;
  ibv_srq *one = share(first);
  ibv_srq *two = share(second);
  ASSERT_NE(first, second);
  ASSERT_EQ(post_receive(one, 1), 0);
  ASSERT_EQ(post_receive(two, 2), 0);
  ASSERT_EQ(send(second), 0);
  bool found = false;
  for (const ibv_wc &wc : completions(2)) {
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode != IBV_WC_RECV) continue;
    found = true;
    EXPECT_EQ(wc.wr_id, 2U);
    EXPECT_EQ(wc.qp_num, target_->qp_num);
    EXPECT_EQ(wc.byte_len, 4U);
  }
  EXPECT_TRUE(found);
}

TEST_F(DoubleXrc, UnknownQueueIsAnInvalidRequest) {
  ASSERT_EQ(send(4711), 0);
  EXPECT_EQ(completions(1)[0].status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(DoubleXrc, SenderWaitsForAReceiveOfItsQueue) {
  uint32_t number = 0;
  ibv_srq *srq = share(number);
  ASSERT_EQ(send(number), 0);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(cq_, 1, &wc), 0);
  ASSERT_EQ(post_receive(srq, 5), 0);
  for (const ibv_wc &each : completions(2)) EXPECT_EQ(each.status, IBV_WC_SUCCESS);
}

TEST_F(DoubleXrc, QueueWhoseCompletionWaitsCanBeDestroyed) {
  uint32_t number = 0;
  ibv_srq *srq = share(number);
  ASSERT_EQ(post_receive(srq, 5), 0);
  ASSERT_EQ(send(number), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  srqs_.clear();
  for (const ibv_wc &each : completions(2)) EXPECT_EQ(each.status, IBV_WC_SUCCESS);
}

TEST_F(DoubleXrc, TargetIsOpenedByItsNumber) {
  ibv_qp_open_attr attr = {};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = target_->qp_num;
  attr.xrcd = xrcd_;
  attr.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp *again = ibv_open_qp(context_, &attr);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->qp_num, target_->qp_num);
  EXPECT_EQ(ibv_destroy_qp(again), 0);
  attr.qp_num = sender_->qp_num;
  EXPECT_EQ(ibv_open_qp(context_, &attr), nullptr);
}

TEST(DoubleXrcLimits, DeviceWithoutItRefuses) {
  Surroundings surroundings({}, {.features = {.xrc = false}});
  ibv_device **list = ibv_get_device_list(nullptr);
  ibv_context *context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ibv_device_attr attr = {};
  ASSERT_EQ(ibv_query_device(context, &attr), 0);
  EXPECT_EQ(attr.device_cap_flags & IBV_DEVICE_XRC, 0U);
  ibv_xrcd_init_attr init = {};
  EXPECT_EQ(ibv_open_xrcd(context, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_close_device(context), 0);
}

}  // namespace
}  // namespace weft::verbs_double
