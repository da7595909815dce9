// SPDX-License-Identifier: BSD-2-Clause
// Two connected ends for tests of queue pairs, made with the public calls of libibverbs and
// librdmacm only, so that the same tests can run on a device: `Surroundings` alone knows the
// double.
//
// Example:
//    // One end sends three bytes to the other.
//    void send_three_bytes() {
//      Surroundings surroundings;
//      Pair pair(surroundings);
//      pair.passive.post_receive(/*wr_id=*/1, /*offset=*/0, /*size=*/16);
//      pair.active.post(pair.active.send(/*wr_id=*/2, /*offset=*/0, /*size=*/3));
//      pair.active.completion();   // of the send
//      pair.passive.completion();  // of the receive
//    }
//
// Not for tests of the connection manager itself: they call it one by one.
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_TEST_PAIR_H
#define WEFT_PLUGINS_VERBS_DOUBLE_TEST_PAIR_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "plugins/verbs/double/double.h"

namespace weft::verbs_double {

// What a test stands on: the double with one device.
class Surroundings {
 public:
  explicit Surroundings(const NetworkOptions &options = {}, const DeviceOptions &device = {})
      : network(options), device(network.add(device)) {}

  // An address of the device, with a port.
  sockaddr_in address(uint16_t port = 0) const {
    sockaddr_in result = {};
    result.sin_family = AF_INET;
    result.sin_port = htons(port);
    inet_pton(AF_INET, "10.99.0.1", &result.sin_addr);
    return result;
  }

  // Lets the hardware work until `is_done`, at most ten seconds.
  bool wait(const std::function<bool()> &is_done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!is_done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      if (!network.step()) std::this_thread::yield();
    }
    return true;
  }

  Network network;
  Device &device;
};

inline rdma_cm_event *next_event(Surroundings &surroundings, rdma_event_channel *channel,
                                 rdma_cm_event_type type) {
  rdma_cm_event *event = nullptr;
  EXPECT_TRUE(surroundings.wait([&] { return rdma_get_cm_event(channel, &event) == 0; }))
      << "no " << rdma_event_str(type);
  if (event == nullptr) return nullptr;
  EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
  return event;
}

inline void expect_event(Surroundings &surroundings, rdma_event_channel *channel,
                         rdma_cm_event_type type) {
  if (rdma_cm_event *event = next_event(surroundings, channel, type)) rdma_ack_cm_event(event);
}

inline rdma_event_channel *make_channel() {
  rdma_event_channel *channel = rdma_create_event_channel();
  fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  return channel;
}

struct EndOptions {
  uint32_t max_send_wr = 16;
  uint32_t max_recv_wr = 16;
  uint32_t max_inline = 64;
  int max_cqe = 64;
  bool shares_receives = false;
  int memory_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC;
};

// One end: an identifier with a queue pair, one completion queue for both directions, and a
// registered memory of 4 KiB.
class End {
 public:
  explicit End(Surroundings &surroundings) : surroundings_(surroundings), memory(512) {}
  End(const End &) = delete;
  End &operator=(const End &) = delete;
  ~End() { close(); }

  void open(rdma_cm_id *its_id, const EndOptions &options = {}) {
    id = its_id;
    pd = ibv_alloc_pd(id->verbs);
    comp_channel = ibv_create_comp_channel(id->verbs);
    fcntl(comp_channel->fd, F_SETFL, O_NONBLOCK);
    cq = ibv_create_cq(id->verbs, options.max_cqe, this, comp_channel, 0);
    ibv_device_attr attr{};
    ibv_query_device(id->verbs, &attr);
    const int atomic = attr.atomic_cap != IBV_ATOMIC_NONE ? IBV_ACCESS_REMOTE_ATOMIC : 0;
    const int access = options.memory_access & (~IBV_ACCESS_REMOTE_ATOMIC | atomic);
    region = ibv_reg_mr(pd, memory.data(), bytes(), access);
    ibv_qp_init_attr init = {};
    if (options.shares_receives) {
      ibv_srq_init_attr shared = {};
      shared.attr.max_wr = options.max_recv_wr;
      shared.attr.max_sge = 2;
      srq = ibv_create_srq(pd, &shared);
    }
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_wr = options.max_send_wr;
    init.cap.max_recv_wr = options.max_recv_wr;
    init.cap.max_send_sge = init.cap.max_recv_sge = 2;
    init.cap.max_inline_data = options.max_inline;
    ASSERT_EQ(rdma_create_qp(id, pd, &init), 0) << strerror(errno);
  }

  void destroy_queue_pair() {
    if (id != nullptr && id->qp != nullptr) rdma_destroy_qp(id);
  }

  void close() {
    destroy_queue_pair();
    if (srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(std::exchange(srq, nullptr)), 0);
    }
    if (region != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(std::exchange(region, nullptr)), 0);
    }
    if (cq != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(std::exchange(cq, nullptr)), 0);
    }
    if (comp_channel != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(std::exchange(comp_channel, nullptr)), 0);
    }
    if (pd != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(std::exchange(pd, nullptr)), 0);
    }
    if (id != nullptr) rdma_destroy_id(std::exchange(id, nullptr));
  }

  size_t bytes() const { return memory.size() * sizeof memory[0]; }
  uint8_t *at(size_t offset) { return reinterpret_cast<uint8_t *>(memory.data()) + offset; }
  uint64_t address(size_t offset) { return reinterpret_cast<uintptr_t>(at(offset)); }

  ibv_sge part(size_t offset, uint32_t size) { return {address(offset), size, region->lkey}; }

  // A send; its opcode and the other fields can be changed before it is posted.
  ibv_send_wr send(uint64_t wr_id, size_t offset, uint32_t size,
                   unsigned flags = IBV_SEND_SIGNALED) {
    sge_ = part(offset, size);
    ibv_send_wr wr = {};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = flags;
    wr.sg_list = &sge_;
    wr.num_sge = 1;
    return wr;
  }

  // A write or a read of the other end's memory.
  ibv_send_wr access(ibv_wr_opcode opcode, uint64_t wr_id, size_t offset, uint32_t size, End &other,
                     size_t there) {
    ibv_send_wr wr = send(wr_id, offset, size);
    wr.opcode = opcode;
    wr.wr.rdma.remote_addr = other.address(there);
    wr.wr.rdma.rkey = other.region->rkey;
    return wr;
  }

  int post(ibv_send_wr wr) {
    ibv_send_wr *bad = nullptr;
    return ibv_post_send(id->qp, &wr, &bad);
  }

  int post_receive(uint64_t wr_id, size_t offset, uint32_t size) {
    ibv_sge sge = part(offset, size);
    return post_receive(wr_id, sge);
  }

  int post_receive(uint64_t wr_id, ibv_sge sge) {
    ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
    ibv_recv_wr *bad = nullptr;
    return srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(id->qp, &wr, &bad);
  }

  // The next completion; waits for it.
  ibv_wc completion() {
    ibv_wc wc = {};
    wc.status = IBV_WC_GENERAL_ERR;
    EXPECT_TRUE(surroundings_.wait([&] { return ibv_poll_cq(cq, 1, &wc) == 1; }))
        << "no completion";
    return wc;
  }

  bool is_empty() {
    ibv_wc wc;
    return ibv_poll_cq(cq, 1, &wc) == 0;
  }

  ibv_qp_state state() {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    EXPECT_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
  }

 private:
  Surroundings &surroundings_;
  ibv_sge sge_ = {};

 public:
  std::vector<uint64_t> memory;
  rdma_cm_id *id = nullptr;
  ibv_pd *pd = nullptr;
  ibv_comp_channel *comp_channel = nullptr;
  ibv_cq *cq = nullptr;
  ibv_srq *srq = nullptr;
  ibv_mr *region = nullptr;
};

struct PairOptions {
  EndOptions active = {};
  EndOptions passive = {};
  uint8_t rnr_retry_count = 7;
  uint8_t responder_resources = 4;
  uint8_t initiator_depth = 4;
  const char *active_address = nullptr;  // of its device; otherwise both ends are on one device
};

// Two ends that are connected.
class Pair {
 public:
  explicit Pair(Surroundings &surroundings, const PairOptions &options = {})
      : active(surroundings), passive(surroundings), surroundings_(surroundings) {
    channel = make_channel();
    listener_channel_ = make_channel();
    connect(options);
  }
  Pair(const Pair &) = delete;
  Pair &operator=(const Pair &) = delete;
  ~Pair() {
    active.close();
    passive.close();
    if (listener_ != nullptr) rdma_destroy_id(listener_);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(listener_channel_);
  }

  rdma_event_channel *passive_channel() { return listener_channel_; }

  End active;
  End passive;
  rdma_event_channel *channel = nullptr;  // of the active end

 private:
  void connect(const PairOptions &options) {
    ASSERT_EQ(rdma_create_id(listener_channel_, &listener_, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in address = surroundings_.address();
    ASSERT_EQ(rdma_bind_addr(listener_, reinterpret_cast<sockaddr *>(&address)), 0);
    ASSERT_EQ(rdma_listen(listener_, 4), 0);
    address.sin_port = rdma_get_src_port(listener_);

    rdma_cm_id *id = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in source = surroundings_.address();
    if (options.active_address != nullptr) {
      inet_pton(AF_INET, options.active_address, &source.sin_addr);
    }
    ASSERT_EQ(rdma_resolve_addr(id, reinterpret_cast<sockaddr *>(&source),
                                reinterpret_cast<sockaddr *>(&address), 2000),
              0);
    expect_event(surroundings_, channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    active.open(id, options.active);
    ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
    expect_event(surroundings_, channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    rdma_conn_param param = {};
    param.responder_resources = options.responder_resources;
    param.initiator_depth = options.initiator_depth;
    param.retry_count = 7;
    param.rnr_retry_count = options.rnr_retry_count;
    ASSERT_EQ(rdma_connect(id, &param), 0) << strerror(errno);
    rdma_cm_event *request =
        next_event(surroundings_, listener_channel_, RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_NE(request, nullptr);
    passive.open(request->id, options.passive);
    rdma_ack_cm_event(request);
    ASSERT_EQ(rdma_accept(passive.id, &param), 0) << strerror(errno);
    expect_event(surroundings_, channel, RDMA_CM_EVENT_ESTABLISHED);
    expect_event(surroundings_, listener_channel_, RDMA_CM_EVENT_ESTABLISHED);
  }

  Surroundings &surroundings_;
  rdma_event_channel *listener_channel_ = nullptr;
  rdma_cm_id *listener_ = nullptr;
};

}  // namespace weft::verbs_double

#endif
