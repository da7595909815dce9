// SPDX-License-Identifier: BSD-2-Clause
// The data path of the plugin, over the double.
#include "plugins/verbs/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <weft/sdk/layers/carrier.h>

#include <utility>

#include "plugins/verbs/status.h"
#include "plugins/verbs/test_link.h"

namespace weft::verbs {
namespace {

TEST(VerbsEndpoint, AMessageArrives) {
  Link link;
  Buffer in(link.b, 1000), out(link.a, 1000, "hello");
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 1000, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(link.a.ep, out.data(), 900, out.desc(), 0, &out), 0);
  const auto received = link.b.completion(), sent = link.a.completion();
  EXPECT_EQ(received.op_context, &in);
  EXPECT_EQ(received.flags, uint64_t(FI_RECV | FI_MSG));
  EXPECT_EQ(received.len, 900u);
  EXPECT_EQ(in.text(5), "hello");
  EXPECT_EQ(sent.op_context, &out);
  EXPECT_EQ(sent.flags, uint64_t(FI_SEND | FI_MSG));
}

TEST(VerbsEndpoint, ASmallMessageNeedsNoDescriptor) {
  Link link;
  Buffer in(link.b, 16);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(link.a.ep, "inline", 6, nullptr, 0, nullptr), 0);
  EXPECT_EQ(link.b.completion().len, 6u);
  EXPECT_EQ(in.text(6), "inline");
  std::vector<char> large(1000);
  EXPECT_EQ(fi_send(link.a.ep, large.data(), large.size(), nullptr, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_inject(link.a.ep, large.data(), large.size(), 0), -FI_EMSGSIZE);
}

TEST(VerbsEndpoint, DataGoesWithAMessageInTheOrderOfTheNetwork) {
  Link link;
  Buffer in(link.b, 16);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_injectdata(link.a.ep, "x", 1, 0x1122334455667788, 0), 0);
  const auto received = link.b.completion();
  EXPECT_EQ(received.flags, uint64_t(FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA));
  EXPECT_EQ(received.data, 0x55667788u);
}

// What the names of peers do is tested by stack (rdm_user_id_test).
TEST(VerbsEndpoint, PeersAreNamedBeforeTheEndpointIsEnabled) {
  Link link;
  void *ops = nullptr;
  EXPECT_EQ(fi_open_ops(&link.a.ep->fid, "unknown", 0, &ops, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_open_ops(&link.a.ep->fid, WEFT_CARRIER_OPS, 1, &ops, nullptr), -FI_EBADFLAGS);
  ASSERT_EQ(fi_open_ops(&link.a.ep->fid, WEFT_CARRIER_OPS, 0, &ops, nullptr), 0);
  const auto *const carrier = static_cast<const weft_carrier_ops *>(ops);
  EXPECT_LT(carrier->size, sizeof *carrier) << "it has not all of them";
  EXPECT_EQ(carrier->identify(link.a.ep, 5), -FI_EOPBADSTATE);
  // The domain tells as much before there is an endpoint.
  void *same = nullptr;
  ASSERT_EQ(fi_open_ops(&link.a.domain->fid, WEFT_CARRIER_OPS, 0, &same, nullptr), 0);
  EXPECT_EQ(same, ops);
}

// A device gives the numbers of queue pairs again. The receives of a shared context know no more.
TEST(VerbsEndpoint, WhoSentAMessageIsNoLaterPeerWithTheSameNumber) {
  Link link({.device = {.features = {.reuses_numbers = true}}, .shares_receives = true},
            /*connects=*/false);
  fid_ep *old[2] = {};
  const auto connected = [&](TestSide &side) {
    TestEvent event = link.next(side);
    while (event.type == FI_SHUTDOWN) event = link.next(side);  // of the old connection
    return event.type == FI_CONNECTED;
  };
  const auto connect = [&](fi_addr_t identity) {
    old[0] = std::exchange(link.a.ep, nullptr);
    old[1] = std::exchange(link.b.ep, nullptr);
    link.a.make_endpoint(link.a.info);
    EXPECT_EQ(fi_connect(link.a.ep, &link.address, nullptr, 0), 0);
    const TestEvent request = link.requested();
    // The number of this queue pair is free from here on.
    if (old[1] != nullptr) {
      EXPECT_EQ(fi_shutdown(old[1], 0), 0);
    }
    ASSERT_EQ(fi_endpoint(link.b.domain, request.info, &link.b.ep, nullptr), 0);
    free_info(request.info);
    Endpoint::carrier_ops().identify(link.b.ep, identity);
    for (struct fid *const bound : {&link.b.eq->fid, &link.b.srx->fid})
      EXPECT_EQ(fi_ep_bind(link.b.ep, bound, 0), 0);
    EXPECT_EQ(fi_ep_bind(link.b.ep, &link.b.cq->fid, FI_TRANSMIT | FI_RECV), 0);
    EXPECT_EQ(fi_accept(link.b.ep, nullptr, 0), 0);
    EXPECT_TRUE(connected(link.a) && connected(link.b));
  };
  const auto source = [&] {
    fi_cq_data_entry entry{};
    fi_addr_t from = 99;
    EXPECT_EQ(fi_cq_readfrom(link.b.cq, &entry, 1, &from), 1);
    return from;
  };
  link.a.open("10.99.0.1", std::to_string(ntohs(link.address.sin_port)));
  connect(1);
  Buffer in(link.b, 48);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(fi_recv(link.b.srx, in.data() + 16 * i, 16, in.desc(), 0, &in), 0);
  const uint32_t number = Endpoint::from(link.b.ep)->qp_num();
  ASSERT_EQ(fi_inject(link.a.ep, "old", 3, 0), 0);  // is not read yet
  connect(2);
  EXPECT_EQ(Endpoint::from(link.b.ep)->qp_num(), number);
  ASSERT_EQ(fi_inject(link.a.ep, "new", 3, 0), 0);
  EXPECT_EQ(source(), 1u);
  EXPECT_EQ(source(), 2u);
  for (fid_ep *const ep : old) EXPECT_EQ(fi_close(&ep->fid), 0);
}

TEST(VerbsEndpoint, MemoryOfThePeerIsWrittenAndRead) {
  Link link;
  Buffer target(link.b, 1000), source(link.a, 1000, "written"), back(link.a, 1000);
  ASSERT_EQ(fi_write(link.a.ep, source.data(), 500, source.desc(), 0, target.address(),
                     target.key(), &source),
            0);
  EXPECT_EQ(link.a.completion().flags, uint64_t(FI_RMA | FI_WRITE));
  EXPECT_EQ(target.text(7), "written");
  ASSERT_EQ(
      fi_read(link.a.ep, back.data(), 500, back.desc(), 0, target.address(), target.key(), &back),
      0);
  EXPECT_EQ(link.a.completion().flags, uint64_t(FI_RMA | FI_READ));
  EXPECT_EQ(back.text(7), "written");
  EXPECT_FALSE(link.b.try_completion());
}

TEST(VerbsEndpoint, AWriteWithDataTakesAReceive) {
  Link link;
  Buffer target(link.b, 100), source(link.a, 100, "written"), in(link.b, 16);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_writedata(link.a.ep, source.data(), 7, source.desc(), 77, 0, target.address(),
                         target.key(), nullptr),
            0);
  const auto told = link.b.completion();
  EXPECT_EQ(told.flags, uint64_t(FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
  EXPECT_EQ(told.data, 77u);
  EXPECT_EQ(told.op_context, &in);
  EXPECT_EQ(target.text(7), "written");
}

TEST(VerbsEndpoint, AtomicsAreThoseOfTheDevice) {
  Link link;
  Buffer target(link.b, 64), result(link.a, 64);
  const auto word = [](Buffer &buffer) {
    uint64_t value;
    std::memcpy(&value, buffer.data(), sizeof value);
    return value;
  };
  uint64_t operand = 40;
  ASSERT_EQ(fi_inject_atomic(link.a.ep, &operand, 1, 0, target.address(), target.key(), FI_UINT64,
                             FI_ATOMIC_WRITE),
            0);
  EXPECT_EQ(word(target), 40u);
  operand = 2;
  ASSERT_EQ(fi_fetch_atomic(link.a.ep, &operand, 1, nullptr, result.data(), result.desc(), 0,
                            target.address(), target.key(), FI_UINT64, FI_SUM, nullptr),
            0);
  EXPECT_EQ(link.a.completion().flags, uint64_t(FI_ATOMIC | FI_READ));
  EXPECT_EQ(word(result), 40u);
  EXPECT_EQ(word(target), 42u);
  uint64_t compare = 42;
  operand = 7;
  ASSERT_EQ(fi_compare_atomic(link.a.ep, &operand, 1, nullptr, &compare, nullptr, result.data(),
                              result.desc(), 0, target.address(), target.key(), FI_UINT64, FI_CSWAP,
                              nullptr),
            0);
  link.a.completion();
  EXPECT_EQ(word(result), 42u);
  EXPECT_EQ(word(target), 7u);
  ASSERT_EQ(fi_fetch_atomic(link.a.ep, nullptr, 1, nullptr, result.data(), result.desc(), 0,
                            target.address(), target.key(), FI_UINT64, FI_ATOMIC_READ, nullptr),
            0);
  link.a.completion();
  EXPECT_EQ(word(result), 7u);
}

TEST(VerbsEndpoint, OtherAtomicsAreNotOffered) {
  Link link;
  size_t count = 0;
  fi_atomic_attr attr{};
  EXPECT_EQ(fi_query_atomic(link.a.domain, FI_UINT64, FI_SUM, &attr, FI_FETCH_ATOMIC), 0);
  EXPECT_EQ(attr.count, 1u);
  EXPECT_EQ(attr.size, 8u);
  EXPECT_EQ(fi_query_atomic(link.a.domain, FI_UINT64, FI_SUM, &attr, 0), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_query_atomic(link.a.domain, FI_INT64, FI_CSWAP, &attr, FI_COMPARE_ATOMIC), 0);
  EXPECT_EQ(fi_query_atomic(link.a.domain, FI_INT64, FI_ATOMIC_WRITE, &attr, FI_TAGGED),
            -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_fetch_atomicvalid(link.a.ep, FI_UINT64, FI_SUM, &count), 0);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(fi_compare_atomicvalid(link.a.ep, FI_INT64, FI_CSWAP, &count), 0);
  EXPECT_EQ(fi_atomicvalid(link.a.ep, FI_UINT64, FI_SUM, &count), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_fetch_atomicvalid(link.a.ep, FI_UINT32, FI_SUM, &count), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_fetch_atomicvalid(link.a.ep, FI_UINT64, FI_MIN, &count), -FI_EOPNOTSUPP);
}

TEST(VerbsEndpoint, InjectsAloneNeverExhaustTheQueue) {
  Link link({.tx_size = 8});
  Buffer in(link.b, 16);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
    ssize_t rc = fi_inject(link.a.ep, "x", 1, 0);
    if (rc == -FI_EAGAIN) {
      EXPECT_FALSE(link.a.try_completion());  // retires them
      rc = fi_inject(link.a.ep, "x", 1, 0);
    }
    ASSERT_EQ(rc, 0) << i;
    EXPECT_EQ(link.b.completion().len, 1u);
  }
}

TEST(VerbsEndpoint, AtMostTheQueueIsInFlight) {
  Link link({.tx_size = 4});
  Buffer target(link.b, 8), source(link.a, 8);
  const auto write = [&] {
    return fi_write(link.a.ep, source.data(), 8, source.desc(), 0, target.address(), target.key(),
                    nullptr);
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(write(), 0);
  EXPECT_EQ(write(), -FI_EAGAIN);
  link.a.completion();
  EXPECT_EQ(write(), 0);
  for (int i = 0; i < 4; ++i) link.a.completion();
}

TEST(VerbsEndpoint, SelectiveCompletionsAreThoseThatWereAskedFor) {
  Link link({.selective = FI_SELECTIVE_COMPLETION});
  Buffer in(link.b, 16), out(link.a, 1000);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(link.a.ep, "quiet", 5, nullptr, 0, nullptr), 0);
  EXPECT_FALSE(link.a.try_completion());
  EXPECT_FALSE(link.b.try_completion());
  EXPECT_EQ(in.text(5), "quiet");
  const iovec iov{in.data(), 16};
  void *desc = in.desc();
  fi_msg msg{};
  msg.msg_iov = &iov;
  msg.desc = &desc;
  msg.iov_count = 1;
  ASSERT_EQ(fi_recvmsg(link.b.ep, &msg, FI_COMPLETION), 0);
  ASSERT_EQ(fi_send(link.a.ep, "heard", 5, nullptr, 0, nullptr), 0);
  EXPECT_EQ(link.b.completion().len, 5u);
}

TEST(VerbsEndpoint, WhatIsMarkedMoreLeavesWithTheNext) {
  Link link;
  Buffer target(link.b, 8), back(link.a, 8);
  const iovec into{back.data(), 8};
  void *desc = back.desc();
  const fi_rma_iov remote{target.address(), 8, target.key()};
  fi_msg_rma msg{};
  msg.msg_iov = &into;
  msg.desc = &desc;
  msg.iov_count = 1;
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  const uint64_t before = link.node.network.calls("ibv_post_send");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(fi_readmsg(link.a.ep, &msg, FI_COMPLETION | FI_MORE), 0);
  EXPECT_EQ(link.node.network.calls("ibv_post_send"), before);
  ASSERT_EQ(fi_readmsg(link.a.ep, &msg, FI_COMPLETION), 0);
  EXPECT_EQ(link.node.network.calls("ibv_post_send"), before + 1);
  for (int i = 0; i < 4; ++i) link.a.completion();
}

TEST(VerbsEndpoint, WhatIsKeptBackLeavesWhenCompletionsAreRead) {
  Link link;
  Buffer target(link.b, 8, "content"), back(link.a, 8);
  const iovec into{back.data(), 8};
  void *desc = back.desc();
  const fi_rma_iov remote{target.address(), 8, target.key()};
  fi_msg_rma msg{};
  msg.msg_iov = &into;
  msg.desc = &desc;
  msg.iov_count = 1;
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  ASSERT_EQ(fi_readmsg(link.a.ep, &msg, FI_COMPLETION | FI_MORE), 0);
  EXPECT_EQ(link.a.completion().flags, uint64_t(FI_RMA | FI_READ));
  EXPECT_EQ(back.text(7), "content");
}

TEST(VerbsEndpoint, AKeptRequestThatTheDeviceRefusesIsAnErrorEntry) {
  Link link;
  Buffer target(link.b, 8), back(link.a, 8);
  const iovec into{back.data(), 8};
  void *desc = back.desc();
  const fi_rma_iov remote{target.address(), 8, target.key()};
  fi_msg_rma msg{};
  msg.msg_iov = &into;
  msg.desc = &desc;
  msg.iov_count = 1;
  msg.rma_iov = &remote;
  msg.rma_iov_count = 1;
  msg.context = &back;
  ASSERT_EQ(fi_readmsg(link.a.ep, &msg, FI_COMPLETION | FI_MORE), 0);
  link.node.network.fail({.call = "ibv_post_send", .error = EINVAL});
  fi_cq_data_entry entry{};
  ssize_t n = fi_cq_read(link.a.cq, &entry, 1);  // posts it, or already tells
  if (n == -FI_EAGAIN) n = fi_cq_read(link.a.cq, &entry, 1);
  ASSERT_EQ(n, -FI_EAVAIL);
  fi_cq_err_entry error{};
  ASSERT_EQ(fi_cq_readerr(link.a.cq, &error, 0), 1);
  EXPECT_EQ(error.err, EINVAL);
  EXPECT_EQ(error.op_context, &back);
}

// A device that reads into one vector at a time (max_sge_rd), as those of iWARP.
class VerbsReads : public ::testing::Test {
 protected:
  ssize_t read(size_t each, uint64_t flags = FI_COMPLETION) {
    const iovec into[] = {{one_.data(), each}, {two_.data(), each}, {three_.data(), each}};
    void *desc[] = {one_.desc(), two_.desc(), three_.desc()};
    const fi_rma_iov remote{target_.address(), 3 * each, target_.key()};
    fi_msg_rma msg{};
    msg.msg_iov = into;
    msg.desc = desc;
    msg.iov_count = 3;
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    msg.context = &one_;
    return fi_readmsg(link_.a.ep, &msg, flags);
  }
  fi_cq_err_entry failure() {
    const fi_cq_err_entry error = link_.a.failure();
    EXPECT_FALSE(link_.a.try_completion()) << "one operation, one entry";
    return error;
  }

  Link link_{{.device = {.limits = {.max_sge_rd = 1}}, .tx_size = 16}};
  Buffer target_{link_.b, 12, "onetwothree"}, one_{link_.a, 8}, two_{link_.a, 8},
      three_{link_.a, 8};
};

TEST_F(VerbsReads, ManyVectorsAreOneOperation) {
  ASSERT_EQ(read(3), 0);
  const fi_cq_data_entry done = link_.a.completion();
  EXPECT_EQ(done.op_context, &one_);
  EXPECT_EQ(done.len, 9u);
  EXPECT_FALSE(link_.a.try_completion());
  EXPECT_EQ(one_.text(3) + two_.text(3) + three_.text(3), "onetwothr");
}

TEST_F(VerbsReads, AFailedPartIsOneErrorWithItsCause) {
  ASSERT_EQ(read(5), 0);  // the third vector is beyond the region
  const fi_cq_err_entry error = failure();
  EXPECT_EQ(error.op_context, &one_);
  EXPECT_EQ(error.prov_errno, int(IBV_WC_REM_ACCESS_ERR));
}

TEST_F(VerbsReads, AFailedFirstPartIsOneErrorWithItsCause) {
  ASSERT_EQ(read(8), 0);
  const fi_cq_err_entry error = failure();
  EXPECT_EQ(error.op_context, &one_);
  EXPECT_EQ(error.prov_errno, int(IBV_WC_REM_ACCESS_ERR));
}

TEST_F(VerbsReads, AFullQueueTakesAllOrNothing) {
  int posted = 0;
  ssize_t rc = 0;
  while (posted < 100 && (rc = read(3)) == 0) ++posted;
  ASSERT_EQ(rc, -FI_EAGAIN);
  EXPECT_EQ(posted, 5);  // of three requests each
  for (int i = 0; i < posted; ++i) EXPECT_EQ(link_.a.completion().len, 9u);
  EXPECT_FALSE(link_.a.try_completion());
  ASSERT_EQ(read(3), 0);
  EXPECT_EQ(link_.a.completion().len, 9u);
}

TEST_F(VerbsReads, ADeviceThatRefusesAllRefusesTheCall) {
  link_.node.network.fail({.call = "ibv_post_send", .error = EINVAL});
  EXPECT_EQ(read(3), -FI_EINVAL);
  ASSERT_EQ(read(3), 0);
  EXPECT_EQ(link_.a.completion().len, 9u);
}

TEST(VerbsEndpoint, ASharedContextServesItsEndpoints) {
  Link link({.shares_receives = true});
  Buffer in(link.b, 16);
  EXPECT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), -FI_EOPNOTSUPP);
  ASSERT_EQ(fi_recv(link.b.srx, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(link.a.ep, "shared", 6, nullptr, 0, nullptr), 0);
  const auto received = link.b.completion();
  EXPECT_EQ(received.op_context, &in);
  EXPECT_EQ(received.len, 6u);
  EXPECT_EQ(in.text(6), "shared");
}

TEST(VerbsEndpoint, AWrongKeyIsAnErrorThatEndsTheConnection) {
  Link link;
  Buffer target(link.b, 8), source(link.a, 8);
  ASSERT_EQ(fi_write(link.a.ep, source.data(), 8, source.desc(), 0, target.address(),
                     target.key() ^ 0x5555, &source),
            0);
  const fi_cq_err_entry error = link.a.failure();
  EXPECT_EQ(error.err, FI_EACCES);
  EXPECT_EQ(error.prov_errno, int(IBV_WC_REM_ACCESS_ERR));
  EXPECT_EQ(error.op_context, &source);
  EXPECT_STREQ(fi_cq_strerror(link.a.cq, error.prov_errno, nullptr, nullptr, 0),
               ibv_wc_status_str(IBV_WC_REM_ACCESS_ERR));
}

TEST(VerbsEndpoint, AQueueGrowsWithItsEndpointsAndNeverOverruns) {
  // Room for less than one endpoint may have in flight, so each operation takes its own place.
  Link link({.device = {.limits = {.max_cqe = 6}}, .settings = {.sizes = {.tx = 8, .rx = 8}}});
  Buffer target(link.b, 8), source(link.a, 8);
  int posted = 0;
  while (fi_write(link.a.ep, source.data(), 8, source.desc(), 0, target.address(), target.key(),
                  nullptr) == 0)
    ASSERT_LT(++posted, 7);
  EXPECT_EQ(posted, 6);
  for (int i = 0; i < posted; ++i) link.a.completion();
  EXPECT_EQ(fi_write(link.a.ep, source.data(), 8, source.desc(), 0, target.address(), target.key(),
                     nullptr),
            0);
  link.a.completion();
}

TEST(VerbsEndpoint, TheDescriptorOfAQueueIsReadableWithItsNextCompletion) {
  Link link;
  Buffer in(link.b, 16);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  struct fid *queue = &link.b.cq->fid;
  pollfd waited{-1, POLLIN, 0};
  ASSERT_EQ(fi_control(queue, FI_GETWAIT, &waited.fd), 0);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(fi_trywait(link.b.fabric, &queue, 1), 0);
    EXPECT_EQ(poll(&waited, 1, 0), 0);
    ASSERT_EQ(fi_inject(link.a.ep, "wake", 4, 0), 0);
    EXPECT_EQ(poll(&waited, 1, 30'000), 1);
    EXPECT_EQ(fi_trywait(link.b.fabric, &queue, 1), -FI_EAGAIN);
    EXPECT_EQ(link.b.completion().len, 4u);
    ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  }
}

TEST(VerbsEndpoint, CountersAreNotOffered) {
  Link link;
  fid_cntr *cntr = nullptr;
  EXPECT_EQ(fi_cntr_open(link.a.domain, nullptr, &cntr, nullptr), -FI_ENOSYS);
  EXPECT_THAT(link.node.log(), testing::HasSubstr("bind a completion queue"));
}

}  // namespace
}  // namespace weft::verbs
