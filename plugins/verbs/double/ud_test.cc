// SPDX-License-Identifier: BSD-2-Clause
// Datagrams: address handles, the 40 bytes in front, keys, groups, and what is lost without a word.
#include <set>

#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

constexpr uint32_t kQkey = 0x1234;
constexpr size_t kHeader = 40;

// A queue pair for datagrams, with a queue and 4 KiB of memory.
class DatagramEnd {
 public:
  explicit DatagramEnd(Surroundings &surroundings) : surroundings_(surroundings), memory(8192) {
    ibv_device **list = ibv_get_device_list(nullptr);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
    region = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_UD;
    init.cap = {16, 16, 2, 2, 64};
    qp = ibv_create_qp(pd, &init);
    EXPECT_NE(qp, nullptr);
    start();
  }
  DatagramEnd(const DatagramEnd &) = delete;
  DatagramEnd &operator=(const DatagramEnd &) = delete;
  ~DatagramEnd() {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_dereg_mr(region), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }

  void start() {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    EXPECT_EQ(
        ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    attr.qp_state = IBV_QPS_RTR;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  }

  // An address handle for the device itself, by the entry `index` of its table.
  ibv_ah *handle(int index) {
    ibv_ah_attr attr = {};
    attr.port_num = 1;
    attr.is_global = 1;
    attr.grh.sgid_index = static_cast<uint8_t>(index);
    attr.grh.hop_limit = 64;
    EXPECT_EQ(ibv_query_gid(context, 1, index, &attr.grh.dgid), 0);
    return ibv_create_ah(pd, &attr);
  }

  int post_receive(uint64_t wr_id, size_t offset, uint32_t size) {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(&memory[offset]), size, region->lkey};
    ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
    ibv_recv_wr *bad = nullptr;
    return ibv_post_recv(qp, &wr, &bad);
  }

  int send(ibv_ah *ah, uint32_t number, uint32_t size, uint32_t qkey = kQkey) {
    ibv_sge sge = {reinterpret_cast<uintptr_t>(memory.data()), size, region->lkey};
    ibv_send_wr wr = {};
    wr.wr_id = 99;
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = htonl(3);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = number;
    wr.wr.ud.remote_qkey = qkey;
    ibv_send_wr *bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }

  ibv_wc completion() {
    ibv_wc wc = {};
    wc.status = IBV_WC_GENERAL_ERR;
    EXPECT_TRUE(surroundings_.wait([&] { return ibv_poll_cq(cq, 1, &wc) == 1; }));
    return wc;
  }
  bool is_empty() {
    ibv_wc wc;
    return ibv_poll_cq(cq, 1, &wc) == 0;
  }

 private:
  Surroundings &surroundings_;

 public:
  std::vector<uint8_t> memory;
  ibv_context *context;
  ibv_pd *pd;
  ibv_cq *cq;
  ibv_mr *region;
  ibv_qp *qp;
};

class DoubleDatagrams : public testing::Test {
 protected:
  Surroundings surroundings_;
};

TEST_F(DoubleDatagrams, PayloadStandsBehindFortyBytes) {
  DatagramEnd sender(surroundings_);
  DatagramEnd receiver(surroundings_);
  ibv_ah *ah = sender.handle(1);
  ASSERT_NE(ah, nullptr);
  std::memcpy(sender.memory.data(), "hello", 5);
  ASSERT_EQ(receiver.post_receive(1, 0, 256), 0);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 5), 0);
  EXPECT_EQ(sender.completion().status, IBV_WC_SUCCESS);
  ibv_wc wc = receiver.completion();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, kHeader + 5);
  EXPECT_EQ(wc.src_qp, sender.qp->qp_num);
  EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_GRH | IBV_WC_WITH_IMM));
  EXPECT_EQ(ntohl(wc.imm_data), 3U);
  EXPECT_EQ(std::memcmp(&receiver.memory[kHeader], "hello", 5), 0);
  EXPECT_EQ(receiver.memory[20], 0x45) << "RoCE v2 over IPv4: the header of IPv4 is in the end";

  // The answer finds its way by what was received.
  auto *grh = reinterpret_cast<ibv_grh *>(receiver.memory.data());
  ibv_ah *back = ibv_create_ah_from_wc(receiver.pd, &wc, grh, 1);
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(sender.post_receive(2, 1024, 256), 0);
  ASSERT_EQ(receiver.send(back, wc.src_qp, 7), 0);
  EXPECT_EQ(sender.completion().byte_len, kHeader + 7);
  EXPECT_EQ(ibv_destroy_ah(back), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(DoubleDatagrams, HeaderOfIPv6NamesBothEnds) {
  DatagramEnd sender(surroundings_);
  DatagramEnd receiver(surroundings_);
  ibv_ah *ah = sender.handle(2);  // fd99::1
  ASSERT_EQ(receiver.post_receive(1, 0, 256), 0);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 5), 0);
  ibv_wc wc = receiver.completion();
  ibv_grh grh;
  std::memcpy(&grh, receiver.memory.data(), sizeof grh);
  EXPECT_EQ(grh.sgid.raw[0], 0xfd);
  ibv_ah_attr attr;
  ASSERT_EQ(ibv_init_ah_from_wc(receiver.context, 1, &wc, &grh, &attr), 0);
  EXPECT_EQ(attr.grh.sgid_index, 2);
  EXPECT_EQ(std::memcmp(attr.grh.dgid.raw, grh.sgid.raw, sizeof grh.sgid.raw), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(DoubleDatagrams, WrongKeyOrNoReceiveLosesThem) {
  DatagramEnd sender(surroundings_);
  DatagramEnd receiver(surroundings_);
  ibv_ah *ah = sender.handle(1);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 5), 0);  // there is no receive
  ASSERT_EQ(receiver.post_receive(1, 0, 256), 0);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 5, kQkey + 1), 0);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num + 100, 5), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sender.completion().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(receiver.is_empty());
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 6), 0);
  EXPECT_EQ(receiver.completion().byte_len, kHeader + 6);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(DoubleDatagrams, MoreThanTheMtuIsAnError) {
  DatagramEnd sender(surroundings_);
  ibv_ah *ah = sender.handle(1);
  ASSERT_EQ(sender.send(ah, 5, 4097), 0);
  EXPECT_EQ(sender.completion().status, IBV_WC_LOC_LEN_ERR);
  ASSERT_EQ(sender.send(ah, 5, 4), 0);
  EXPECT_EQ(sender.completion().status, IBV_WC_WR_FLUSH_ERR) << "the send queue is in error";
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(sender.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_SQE);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(sender.qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(sender.send(ah, 5, 4), 0);
  EXPECT_EQ(sender.completion().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(DoubleDatagrams, ReceiveWithoutRoomForTheHeaderFails) {
  DatagramEnd sender(surroundings_);
  DatagramEnd receiver(surroundings_);
  ibv_ah *ah = sender.handle(1);
  ASSERT_EQ(receiver.post_receive(1, 0, 44), 0);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 5), 0);
  EXPECT_EQ(receiver.completion().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(DoubleDatagrams, LossAndDuplicationFollowTheSettings) {
  DatagramEnd sender(surroundings_);
  DatagramEnd receiver(surroundings_);
  ibv_ah *ah = sender.handle(1);
  surroundings_.network.fail(DatagramFaults{.lost = 1000});
  ASSERT_EQ(receiver.post_receive(1, 0, 256), 0);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 5), 0);
  EXPECT_EQ(sender.completion().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(receiver.is_empty());
  surroundings_.network.fail(DatagramFaults{.duplicated = 1000});
  ASSERT_EQ(receiver.post_receive(2, 0, 256), 0);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 5), 0);
  EXPECT_EQ(receiver.completion().wr_id, 1U);
  EXPECT_EQ(receiver.completion().wr_id, 2U);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(DoubleDatagrams, GroupReachesItsMembersOnly) {
  DatagramEnd sender(surroundings_);
  DatagramEnd member(surroundings_);
  DatagramEnd other(surroundings_);
  ibv_gid group = {};
  inet_pton(AF_INET6, "ff0e::ffff:ef01:203", group.raw);
  ASSERT_EQ(ibv_attach_mcast(member.qp, &group, 0), 0);
  EXPECT_EQ(ibv_destroy_qp(member.qp), EBUSY) << "it is in a group";
  ASSERT_EQ(member.post_receive(1, 0, 256), 0);
  ASSERT_EQ(other.post_receive(1, 0, 256), 0);
  ibv_ah_attr attr = {};
  attr.port_num = 1;
  attr.is_global = 1;
  attr.grh.sgid_index = 1;
  attr.grh.dgid = group;
  ibv_ah *ah = ibv_create_ah(sender.pd, &attr);
  ASSERT_EQ(sender.send(ah, 0xffffff, 5), 0);
  EXPECT_EQ(member.completion().byte_len, kHeader + 5);
  EXPECT_TRUE(other.is_empty());
  ASSERT_EQ(ibv_detach_mcast(member.qp, &group, 0), 0);
  EXPECT_EQ(ibv_detach_mcast(member.qp, &group, 0), EINVAL);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST(DoubleLocalIds, DatagramWithoutARouteHeaderKeepsItsFortyBytes) {
  Surroundings surroundings({}, {.infiniband = true});
  DatagramEnd sender(surroundings);
  DatagramEnd receiver(surroundings);
  ibv_port_attr port = {};
  ASSERT_EQ(ibv_query_port(sender.context, 1, &port), 0);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
  ASSERT_NE(port.lid, 0);
  ibv_ah_attr attr = {};
  attr.port_num = 1;
  attr.dlid = port.lid;
  ibv_ah *ah = ibv_create_ah(sender.pd, &attr);
  ASSERT_NE(ah, nullptr);
  receiver.memory[0] = 7;
  std::memcpy(sender.memory.data(), "hello", 5);
  ASSERT_EQ(receiver.post_receive(1, 0, 256), 0);
  ASSERT_EQ(sender.send(ah, receiver.qp->qp_num, 5), 0);
  EXPECT_EQ(sender.completion().status, IBV_WC_SUCCESS);
  ibv_wc wc = receiver.completion();
  EXPECT_EQ(wc.byte_len, kHeader + 5);
  EXPECT_EQ(wc.wc_flags & IBV_WC_GRH, 0U);
  EXPECT_EQ(wc.slid, port.lid);
  EXPECT_EQ(receiver.memory[0], 7) << "nothing is written where the header would be";
  EXPECT_EQ(std::memcmp(&receiver.memory[kHeader], "hello", 5), 0);
  ibv_ah *back = ibv_create_ah_from_wc(receiver.pd, &wc, nullptr, 1);
  ASSERT_NE(back, nullptr);
  ASSERT_EQ(sender.post_receive(2, 1024, 256), 0);
  ASSERT_EQ(receiver.send(back, wc.src_qp, 7), 0);
  EXPECT_EQ(sender.completion().byte_len, kHeader + 7);
  EXPECT_EQ(ibv_destroy_ah(back), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST(DoubleLocalIds, ConnectionsGoByThem) {
  Surroundings surroundings({}, {.infiniband = true});
  Pair pair(surroundings);
  ASSERT_EQ(pair.passive.post_receive(1, 0, 16), 0);
  ASSERT_EQ(pair.active.post(pair.active.send(2, 0, 4)), 0);
  EXPECT_EQ(pair.passive.completion().status, IBV_WC_SUCCESS);
}

// The connection manager joins groups, and finds queue pairs of datagram services.
class DoubleServices : public testing::Test {
 protected:
  // An identifier that is bound to the device, with a queue pair for datagrams.
  rdma_cm_id *make(rdma_event_channel *channel) {
    rdma_cm_id *id = nullptr;
    EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP), 0);
    sockaddr_in address = surroundings_.address();
    EXPECT_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&address)), 0);
    if (cq_ == nullptr) cq_ = ibv_create_cq(id->verbs, 16, nullptr, nullptr, 0);
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = IBV_QPT_UD;
    init.cap = {4, 4, 1, 1, 16};
    EXPECT_EQ(rdma_create_qp(id, nullptr, &init), 0);
    return id;
  }
  void end(rdma_cm_id *id) {
    rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
  void TearDown() override {
    if (cq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    }
    rdma_destroy_event_channel(channel_);
    EXPECT_EQ(surroundings_.network.open_objects(), "");
  }

  Surroundings surroundings_;
  rdma_event_channel *channel_ = make_channel();
  ibv_cq *cq_ = nullptr;
};

TEST_F(DoubleServices, JoinedGroupIsAnEventWithItsAddress) {
  rdma_cm_id *id = make(channel_);
  sockaddr_in group = {};
  group.sin_family = AF_INET;
  inet_pton(AF_INET, "239.1.2.3", &group.sin_addr);
  int mine = 0;
  ASSERT_EQ(rdma_join_multicast(id, reinterpret_cast<sockaddr *>(&group), &mine), 0);
  rdma_cm_event *event = next_event(surroundings_, channel_, RDMA_CM_EVENT_MULTICAST_JOIN);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->param.ud.private_data, &mine);
  EXPECT_EQ(event->param.ud.qp_num, 0xffffffU);
  EXPECT_EQ(event->param.ud.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3};
  EXPECT_EQ(std::memcmp(event->param.ud.ah_attr.grh.dgid.raw, mapped, sizeof mapped), 0);

  uint8_t memory[64] = {};
  ibv_mr *region = ibv_reg_mr(id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  ibv_sge sge = {reinterpret_cast<uintptr_t>(memory), sizeof memory, region->lkey};
  ibv_recv_wr receive = {1, nullptr, &sge, 1};
  ibv_recv_wr *bad_receive = nullptr;
  ASSERT_EQ(ibv_post_recv(id->qp, &receive, &bad_receive), 0);
  ibv_ah *ah = ibv_create_ah(id->pd, &event->param.ud.ah_attr);
  ASSERT_NE(ah, nullptr);
  ibv_send_wr wr = {};
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud = {ah, event->param.ud.qp_num, event->param.ud.qkey};
  ibv_send_wr *bad = nullptr;
  ASSERT_EQ(ibv_post_send(id->qp, &wr, &bad), 0);
  ibv_wc wc = {};
  ASSERT_TRUE(surroundings_.wait([&] { return ibv_poll_cq(cq_, 1, &wc) == 1; }));
  EXPECT_EQ(wc.byte_len, kHeader);

  rdma_ack_cm_event(event);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(rdma_leave_multicast(id, reinterpret_cast<sockaddr *>(&group)), 0);
  EXPECT_EQ(rdma_leave_multicast(id, reinterpret_cast<sockaddr *>(&group)), -1);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
  end(id);
}

TEST_F(DoubleServices, LookupFindsTheQueuePair) {
  rdma_cm_id *listener = nullptr;
  ASSERT_EQ(rdma_create_id(channel_, &listener, nullptr, RDMA_PS_UDP), 0);
  sockaddr_in address = surroundings_.address();
  ASSERT_EQ(rdma_bind_addr(listener, reinterpret_cast<sockaddr *>(&address)), 0);
  ASSERT_EQ(rdma_listen(listener, 1), 0);
  address.sin_port = rdma_get_src_port(listener);

  rdma_cm_id *id = nullptr;
  ASSERT_EQ(rdma_create_id(channel_, &id, nullptr, RDMA_PS_UDP), 0);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&address), 1000), 0);
  expect_event(surroundings_, channel_, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
  expect_event(surroundings_, channel_, RDMA_CM_EVENT_ROUTE_RESOLVED);
  rdma_conn_param param = {};
  param.private_data = "who";
  param.private_data_len = 3;
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_event *event = next_event(surroundings_, channel_, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->param.ud.private_data_len, 180);
  EXPECT_STREQ(static_cast<const char *>(event->param.ud.private_data), "who");
  rdma_cm_id *child = event->id;
  rdma_ack_cm_event(event);
  param.qp_num = 4711;
  ASSERT_EQ(rdma_accept(child, &param), 0);
  event = next_event(surroundings_, channel_, RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->param.ud.qp_num, 4711U);
  EXPECT_EQ(event->param.ud.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  EXPECT_EQ(event->param.ud.ah_attr.is_global, 1);
  rdma_ack_cm_event(event);
  for (rdma_cm_id *each : {child, id, listener}) EXPECT_EQ(rdma_destroy_id(each), 0);
}

TEST_F(DoubleServices, SynchronousIdentifierWaitsForItsEvents) {
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo *info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("10.99.0.1", "4712", &hints, &info), 0);
  rdma_cm_id *listener = nullptr;
  ASSERT_EQ(rdma_create_ep(&listener, info, nullptr, nullptr), 0);
  rdma_freeaddrinfo(info);
  ASSERT_EQ(rdma_listen(listener, 1), 0);
  hints.ai_flags = 0;
  ASSERT_EQ(rdma_getaddrinfo("10.99.0.1", "4713", &hints, &info), 0);
  rdma_cm_id *id = nullptr;
  ASSERT_EQ(rdma_create_ep(&id, info, nullptr, nullptr), 0);
  rdma_freeaddrinfo(info);
  EXPECT_NE(id->verbs, nullptr);
  rdma_conn_param param = {};
  EXPECT_EQ(rdma_connect(id, &param), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

}  // namespace
}  // namespace weft::verbs_double
