// SPDX-License-Identifier: BSD-2-Clause
// The connection manager: addresses, requests and their answers, private data, the end.
#include "plugins/verbs/double/cm.h"

#include "plugins/verbs/double/test_pair.h"

namespace weft::verbs_double {
namespace {

// One channel for each end, and identifiers that are destroyed at the end of the test.
class DoubleCm : public testing::Test {
 protected:
  void SetUp() override {
    active_ = make_channel();
    passive_ = make_channel();
  }
  void TearDown() override {
    for (rdma_cm_id *id : ids_) EXPECT_EQ(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(active_);
    rdma_destroy_event_channel(passive_);
    EXPECT_EQ(surroundings_.network.open_objects(), "");
  }

  rdma_cm_id *make_id(rdma_event_channel *channel) {
    rdma_cm_id *id = nullptr;
    EXPECT_EQ(rdma_create_id(channel, &id, this, RDMA_PS_TCP), 0);
    ids_.push_back(id);
    return id;
  }
  void destroy(rdma_cm_id *id) {
    std::erase(ids_, id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }

  rdma_cm_id *listen() {
    rdma_cm_id *id = make_id(passive_);
    sockaddr_in address = surroundings_.address();
    EXPECT_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&address)), 0);
    EXPECT_EQ(rdma_listen(id, 2), 0);
    return id;
  }

  // An identifier with a route to this port.
  rdma_cm_id *resolve(uint16_t port) {
    rdma_cm_id *id = make_id(active_);
    sockaddr_in address = surroundings_.address(port);
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&address), 1000), 0);
    expect_event(surroundings_, active_, RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(id, 1000), 0);
    expect_event(surroundings_, active_, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
  }

  // Takes the next request; its event is returned with it.
  rdma_cm_event *request() {
    rdma_cm_event *event = next_event(surroundings_, passive_, RDMA_CM_EVENT_CONNECT_REQUEST);
    if (event != nullptr) ids_.push_back(event->id);
    return event;
  }

  Surroundings surroundings_;
  rdma_event_channel *active_ = nullptr;
  rdma_event_channel *passive_ = nullptr;
  std::vector<rdma_cm_id *> ids_;
};

TEST_F(DoubleCm, BindToAPortOfZeroFindsOne) {
  rdma_cm_id *id = make_id(active_);
  sockaddr_in address = surroundings_.address();
  ASSERT_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&address)), 0);
  EXPECT_NE(rdma_get_src_port(id), 0);
  ASSERT_NE(id->verbs, nullptr);
  EXPECT_STREQ(ibv_get_device_name(id->verbs->device), surroundings_.device.name().c_str());
  rdma_cm_id *second = make_id(active_);
  address.sin_port = rdma_get_src_port(id);
  EXPECT_EQ(rdma_bind_addr(second, reinterpret_cast<sockaddr *>(&address)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
}

TEST_F(DoubleCm, BindToAnyAddressHasNoDeviceYet) {
  rdma_cm_id *id = make_id(active_);
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  ASSERT_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&any)), 0);
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_NE(rdma_get_src_port(id), 0);
}

TEST_F(DoubleCm, BindToAnAddressOfNoDeviceFails) {
  rdma_cm_id *id = make_id(active_);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
  EXPECT_EQ(rdma_bind_addr(id, reinterpret_cast<sockaddr *>(&address)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST_F(DoubleCm, AddressThatNobodyHasIsAnEvent) {
  rdma_cm_id *id = make_id(active_);
  sockaddr_in address = surroundings_.address();
  inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&address), 1000), 0);
  rdma_cm_event *event = next_event(surroundings_, active_, RDMA_CM_EVENT_ADDR_ERROR);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->status, -ETIMEDOUT);
  EXPECT_EQ(event->id, id);
  rdma_ack_cm_event(event);
}

TEST_F(DoubleCm, IPv6AddressesConnect) {
  rdma_cm_id *listener = make_id(passive_);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  inet_pton(AF_INET6, "fd99::1", &address.sin6_addr);
  ASSERT_EQ(rdma_bind_addr(listener, reinterpret_cast<sockaddr *>(&address)), 0);
  ASSERT_EQ(rdma_listen(listener, 1), 0);
  address.sin6_port = rdma_get_src_port(listener);
  rdma_cm_id *id = make_id(active_);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&address), 1000), 0);
  expect_event(surroundings_, active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
  expect_event(surroundings_, active_, RDMA_CM_EVENT_ROUTE_RESOLVED);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_event *event = request();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(rdma_get_local_addr(event->id)->sa_family, AF_INET6);
  EXPECT_EQ(rdma_get_dst_port(event->id), rdma_get_src_port(id));
  rdma_ack_cm_event(event);
}

TEST_F(DoubleCm, RequestCarries56BytesWithZerosBehind) {
  rdma_cm_id *listener = listen();
  rdma_cm_id *id = resolve(ntohs(rdma_get_src_port(listener)));
  const std::string data = "hello";
  rdma_conn_param param = {};
  param.private_data = data.data();
  param.private_data_len = 5;
  param.responder_resources = 3;
  param.initiator_depth = 5;
  param.flow_control = 1;
  param.rnr_retry_count = 7;
  param.qp_num = 77;
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_event *event = request();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->listen_id, listener);
  EXPECT_EQ(event->id->context, listener->context);
  const rdma_conn_param &got = event->param.conn;
  ASSERT_EQ(got.private_data_len, 56);
  const std::string received(static_cast<const char *>(got.private_data), 56);
  EXPECT_EQ(received, data + std::string(51, '\0'));
  EXPECT_EQ(got.responder_resources, 5) << "the other end's initiator depth";
  EXPECT_EQ(got.initiator_depth, 3);
  EXPECT_EQ(got.flow_control, 1);
  EXPECT_EQ(got.qp_num, 77U);
  rdma_ack_cm_event(event);
}

TEST_F(DoubleCm, RequestOfMoreThan56BytesIsRefused) {
  rdma_cm_id *id = resolve(ntohs(rdma_get_src_port(listen())));
  const std::string data(57, 'x');
  rdma_conn_param param = {};
  param.private_data = data.data();
  param.private_data_len = 57;
  EXPECT_EQ(rdma_connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(DoubleCm, WithoutAQueuePairTheProgramEstablishes) {
  rdma_cm_id *id = resolve(ntohs(rdma_get_src_port(listen())));
  rdma_conn_param param = {};
  param.qp_num = 5;
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_event *event = request();
  ASSERT_NE(event, nullptr);
  rdma_cm_id *child = event->id;
  rdma_ack_cm_event(event);
  const std::string data = "yes";
  param.private_data = data.data();
  param.private_data_len = 3;
  param.qp_num = 6;
  ASSERT_EQ(rdma_accept(child, &param), 0);
  event = next_event(surroundings_, active_, RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->param.conn.private_data_len, 196);
  EXPECT_EQ(event->param.conn.qp_num, 6U);
  EXPECT_STREQ(static_cast<const char *>(event->param.conn.private_data), "yes");
  rdma_ack_cm_event(event);
  ASSERT_EQ(rdma_establish(id), 0);
  event = next_event(surroundings_, passive_, RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->param.conn.private_data_len, 0);
  rdma_ack_cm_event(event);
}

TEST_F(DoubleCm, RejectCarries148Bytes) {
  rdma_cm_id *id = resolve(ntohs(rdma_get_src_port(listen())));
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_event *event = request();
  ASSERT_NE(event, nullptr);
  rdma_cm_id *child = event->id;
  rdma_ack_cm_event(event);
  ASSERT_EQ(rdma_reject(child, "no", 2), 0);
  event = next_event(surroundings_, active_, RDMA_CM_EVENT_REJECTED);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->status, 28);
  EXPECT_EQ(event->param.conn.private_data_len, 148);
  EXPECT_STREQ(static_cast<const char *>(event->param.conn.private_data), "no");
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_accept(child, &param), -1);
}

TEST_F(DoubleCm, WithoutAListenerTheKernelRejects) {
  rdma_cm_id *id = resolve(9);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_event *event = next_event(surroundings_, active_, RDMA_CM_EVENT_REJECTED);
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->status, 8);
  ASSERT_EQ(event->param.conn.private_data_len, 148);
  EXPECT_EQ(*static_cast<const uint8_t *>(event->param.conn.private_data), 0);
  rdma_ack_cm_event(event);
}

TEST_F(DoubleCm, DestroyedRequestIsARejectedOne) {
  rdma_cm_id *id = resolve(ntohs(rdma_get_src_port(listen())));
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_cm_event *event = request();
  ASSERT_NE(event, nullptr);
  rdma_cm_id *child = event->id;
  rdma_ack_cm_event(event);
  destroy(child);
  expect_event(surroundings_, active_, RDMA_CM_EVENT_REJECTED);
}

TEST_F(DoubleCm, DestroyedListenerRejectsWhatNobodyFetched) {
  rdma_cm_id *listener = listen();
  rdma_cm_id *id = resolve(ntohs(rdma_get_src_port(listener)));
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  destroy(listener);
  expect_event(surroundings_, active_, RDMA_CM_EVENT_REJECTED);
}

TEST_F(DoubleCm, BacklogLimitsTheRequestsThatNobodyFetched) {
  const uint16_t port = ntohs(rdma_get_src_port(listen()));
  rdma_conn_param param = {};
  for (int i = 0; i < 3; ++i) ASSERT_EQ(rdma_connect(resolve(port), &param), 0);
  expect_event(surroundings_, active_, RDMA_CM_EVENT_REJECTED);
  for (int i = 0; i < 2; ++i) {
    rdma_cm_event *event = request();
    ASSERT_NE(event, nullptr);
    rdma_ack_cm_event(event);
  }
}

TEST_F(DoubleCm, MovedIdentifierTakesItsEventsAlong) {
  rdma_cm_id *id = resolve(9);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  rdma_event_channel *other = make_channel();
  ASSERT_EQ(rdma_migrate_id(id, other), 0);
  expect_event(surroundings_, other, RDMA_CM_EVENT_REJECTED);
  destroy(id);
  rdma_destroy_event_channel(other);
}

TEST_F(DoubleCm, ChannelIsReadableWhileThereAreEvents) {
  const auto is_readable = [&] {
    pollfd descriptor = {active_->fd, POLLIN, 0};
    return poll(&descriptor, 1, 0) == 1;
  };
  EXPECT_FALSE(is_readable());
  rdma_cm_event *event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(active_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  rdma_cm_id *id = make_id(active_);
  sockaddr_in address = surroundings_.address(9);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr *>(&address), 1000), 0);
  EXPECT_TRUE(surroundings_.wait(is_readable));
  expect_event(surroundings_, active_, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_FALSE(is_readable());
}

TEST_F(DoubleCm, DisconnectIsToldToBothEndsOnce) {
  Pair pair(surroundings_);
  ASSERT_EQ(pair.active.post_receive(1, 0, 16), 0);
  ASSERT_EQ(rdma_disconnect(pair.active.id), 0);
  EXPECT_EQ(pair.active.completion().status, IBV_WC_WR_FLUSH_ERR);
  expect_event(surroundings_, pair.passive_channel(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(pair.passive.state(), IBV_QPS_RTS) << "its program leaves in its turn";
  ASSERT_EQ(rdma_disconnect(pair.passive.id), 0);
  EXPECT_EQ(pair.passive.state(), IBV_QPS_ERR);
  expect_event(surroundings_, pair.channel, RDMA_CM_EVENT_DISCONNECTED);
  expect_event(surroundings_, pair.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  expect_event(surroundings_, pair.passive_channel(), RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_EQ(rdma_disconnect(pair.active.id), -1);
}

TEST_F(DoubleCm, DestroyedIdentifierDisconnects) {
  Pair pair(surroundings_);
  pair.active.close();
  expect_event(surroundings_, pair.passive_channel(), RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(DoubleCm, QueuePairNeedsAProtectionDomainOfTheSameContext) {
  rdma_cm_id *id = resolve(9);
  ibv_context *own = ibv_open_device(id->verbs->device);
  ibv_pd *pd = ibv_alloc_pd(own);
  ibv_cq *cq = ibv_create_cq(own, 4, nullptr, nullptr, 0);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  EXPECT_EQ(rdma_create_qp(id, pd, &init), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(own), 0);
}

TEST_F(DoubleCm, AddressInfoHasTheAddress) {
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo *info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("10.99.0.1", "4711", &hints, &info), 0);
  ASSERT_NE(info->ai_src_addr, nullptr);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in *>(info->ai_src_addr)->sin_port), 4711);
  rdma_freeaddrinfo(info);
  EXPECT_NE(rdma_getaddrinfo("no address", nullptr, &hints, &info), 0);
}

}  // namespace
}  // namespace weft::verbs_double
