// SPDX-License-Identifier: BSD-2-Clause
// How connections end, and what becomes of operations in flight, over the double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <weft/plugin.h>

#include <chrono>
#include <map>
#include <thread>

#include "plugins/verbs/test_link.h"

namespace weft::verbs {
namespace {

using testing::HasSubstr;

template <class IsTrue>
bool becomes(IsTrue is_true) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

std::map<std::string, uint64_t> counters(fid_fabric *fabric) {
  weft_counters_ops *ops = nullptr;
  EXPECT_EQ(fi_open_ops(&fabric->fid, WEFT_COUNTERS_OPS, 0, (void **)&ops, nullptr), 0);
  std::vector<weft_counter> all(ops->read(&fabric->fid, nullptr, 0));
  ops->read(&fabric->fid, all.data(), all.size());
  std::map<std::string, uint64_t> values;
  for (const weft_counter &counter : all) values[counter.name] = counter.value;
  return values;
}

TEST(VerbsClosing, WhatWasInjectedArrivesAllTheSame) {
  Link link;
  Buffer in(link.b, 16);
  ASSERT_EQ(fi_inject(link.a.ep, "last", 4, 0), 0);  // waits at the peer for a receive
  const uint64_t polled = link.node.network.calls("ibv_poll_cq");
  std::thread closer([&] {
    EXPECT_EQ(fi_close(&link.a.ep->fid), 0);
    link.a.ep = nullptr;
  });
  EXPECT_TRUE(becomes([&] { return link.node.network.calls("ibv_poll_cq") > polled + 2; }));
  EXPECT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  closer.join();
  EXPECT_EQ(link.b.completion().len, 4u);
  EXPECT_EQ(in.text(4), "last");
}

TEST(VerbsClosing, ShutdownSendsWhatWasInjected) {
  Link link;
  Buffer in(link.b, 16);
  ASSERT_EQ(fi_inject(link.a.ep, "last", 4, 0), 0);
  const uint64_t polled = link.node.network.calls("ibv_poll_cq");
  std::thread closer([&] { EXPECT_EQ(fi_shutdown(link.a.ep, 0), 0); });
  EXPECT_TRUE(becomes([&] { return link.node.network.calls("ibv_poll_cq") > polled + 2; }));
  EXPECT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  closer.join();
  EXPECT_EQ(link.b.completion().len, 4u);
}

TEST(VerbsClosing, APeerThatTakesNothingDelaysForALimitedTime) {
  Link link({.settings = {.close_linger_ms = 5}});
  ASSERT_EQ(fi_inject(link.a.ep, "never", 5, 0), 0);
  ASSERT_EQ(fi_close(&link.a.ep->fid), 0);
  link.a.ep = nullptr;
  EXPECT_THAT(link.node.log(), HasSubstr("before its peer took all that was injected, after 5 ms"));
}

// The peer's queue pair is gone, and with it whoever would acknowledge.
TEST(VerbsClosing, APeerThatHasLeftDelaysNothing) {
  Link link({.network = {.timers = verbs_double::Timers::kOnDemand},
             .settings = {.close_linger_ms = 60'000}});
  ASSERT_EQ(fi_inject(link.a.ep, "never", 5, 0), 0);
  ASSERT_EQ(fi_close(&link.b.ep->fid), 0);
  link.b.ep = nullptr;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(fi_close(&link.a.ep->fid), 0);
  link.a.ep = nullptr;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(VerbsClosing, ACompletedInjectDelaysNothing) {
  Link link({.settings = {.close_linger_ms = 60'000}});
  Buffer in(link.b, 16);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_inject(link.a.ep, "taken", 5, 0), 0);
  ASSERT_EQ(fi_close(&link.a.ep->fid), 0);
  link.a.ep = nullptr;
  EXPECT_EQ(link.b.completion().len, 5u);
}

TEST(VerbsClosing, ADeviceThatRefusesTheMarkDelaysNothing) {
  Link link({.settings = {.close_linger_ms = 60'000}});
  ASSERT_EQ(fi_inject(link.a.ep, "never", 5, 0), 0);
  link.node.network.fail({.call = "ibv_post_send", .error = EIO});
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(fi_close(&link.a.ep->fid), 0);
  link.a.ep = nullptr;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

// Of a driver that does not say when a queue pair has left the receives of a shared context alone.
TEST(VerbsClosing, ADriverThatDoesNotTellDelaysOnce) {
  Link link({.device = {.features = {.last_receives = false}},
             .settings = {.close_linger_ms = 60'000},
             .shares_receives = true});
  for (TestSide *const side : {&link.a, &link.b}) {
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(fi_close(&side->ep->fid), 0);
    side->ep = nullptr;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  }
}

TEST(VerbsClosing, AllThatIsCancelledIsToldBeforeShutdownReturns) {
  Link link;
  Buffer in(link.a, 16), out(link.a, 1000);
  ASSERT_EQ(fi_recv(link.a.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(link.a.ep, out.data(), 1000, out.desc(), 0, &out), 0);
  ASSERT_EQ(fi_shutdown(link.a.ep, 0), 0);
  std::map<void *, int> errors;
  for (int i = 0; i < 2; ++i) {
    const fi_cq_err_entry error = link.a.failure();
    errors[error.op_context] = error.err;
  }
  EXPECT_EQ(errors[&in], FI_ECANCELED);
  EXPECT_EQ(errors[&out], FI_ECANCELED);
  EXPECT_FALSE(link.a.try_completion());
}

// The device is asked to flush and cannot: its operations fail all the same, in their order.
TEST(VerbsClosing, WhatTheDeviceDoesNotTellOfFails) {
  Link link;
  std::vector<std::unique_ptr<Buffer>> receives;
  for (int i = 0; i < 40; ++i) {
    receives.push_back(std::make_unique<Buffer>(link.a, 16));
    ASSERT_EQ(
        fi_recv(link.a.ep, receives[i]->data(), 16, receives[i]->desc(), 0, receives[i].get()), 0);
  }
  Buffer out(link.a, 1000);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(fi_send(link.a.ep, out.data(), 1000, out.desc(), 0, &out), 0);
  link.node.network.fail({.call = "rdma_disconnect", .error = EIO});
  link.node.network.fail({.call = "ibv_modify_qp", .error = EIO});
  ASSERT_EQ(fi_shutdown(link.a.ep, 0), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(link.a.failure().op_context, &out);
  for (const auto &receive : receives) EXPECT_EQ(link.a.failure().op_context, receive.get());
  EXPECT_FALSE(link.a.try_completion());
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
}

TEST(VerbsClosing, AReceiverOfASharedContextLosesNothing) {
  Link link({.shares_receives = true});
  Buffer in(link.b, 16);
  ASSERT_EQ(fi_recv(link.b.srx, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(link.a.ep, "unread", 6, nullptr, 0, nullptr), 0);
  const uint64_t events = link.node.network.calls("ibv_get_async_event");
  ASSERT_EQ(fi_close(&link.b.ep->fid), 0);
  link.b.ep = nullptr;
  EXPECT_GT(link.node.network.calls("ibv_get_async_event"), events);  // the last receive
  const auto received = link.b.completion();
  EXPECT_EQ(received.op_context, &in);
  EXPECT_EQ(received.len, 6u);
}

TEST(VerbsClosing, ATransferThatBreaksTheQueuePairEndsTheConnection) {
  Link link;
  Buffer target(link.b, 8), source(link.a, 8);
  ASSERT_EQ(fi_write(link.a.ep, source.data(), 8, source.desc(), 0, target.address(),
                     target.key() ^ 0x5555, &source),
            0);
  EXPECT_EQ(link.a.failure().err, FI_EACCES);
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(link.next(link.b).type, uint32_t(FI_SHUTDOWN));
}

TEST(VerbsClosing, ALateAnswerMakesNoConnection) {
  Link link({.settings = {.connect_timeout_ms = 1}}, /*connects=*/false);
  link.start("");
  const TestEvent request = link.requested();
  ASSERT_NE(request.info, nullptr);
  std::optional<TestEvent> late;
  EXPECT_TRUE(becomes([&] { return bool(late = link.a.event()); }));
  EXPECT_EQ(late->err, FI_ETIMEDOUT);
  link.b.make_endpoint(request.info);
  free_info(request.info);
  ASSERT_EQ(fi_accept(link.b.ep, nullptr, 0), 0);
  EXPECT_NE(link.next(link.b).err, 0);
  EXPECT_EQ(counters(link.a.fabric)["connections_failed"], 1u);
}

TEST(VerbsClosing, ADeviceThatFailsGivesBackWhatItHad) {
  Link link;
  Buffer in(link.a, 16), out(link.a, 1000);
  ASSERT_EQ(fi_recv(link.a.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(link.a.ep, out.data(), 1000, out.desc(), 0, &out), 0);
  link.node.device.remove();
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(link.a.failure().err, FI_ECANCELED);
  EXPECT_EQ(link.a.failure().err, FI_ECANCELED);
  EXPECT_EQ(fi_send(link.a.ep, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  EXPECT_EQ(counters(link.a.fabric)["connections_lost"], 1u);
  EXPECT_GE(counters(link.a.fabric)["device_failures"] + counters(link.b.fabric)["device_failures"],
            1u);
}

TEST(VerbsClosing, ADeviceThatGoesDuringAShutdownEndsItOnce) {
  Link link;
  Buffer out(link.a, 1000);
  ASSERT_EQ(fi_send(link.a.ep, out.data(), 1000, out.desc(), 0, &out), 0);
  link.node.device.remove();
  ASSERT_EQ(fi_shutdown(link.a.ep, 0), 0);  // waits for the send, and reads that the device is gone
  EXPECT_EQ(link.a.failure().err, FI_ECANCELED);
  EXPECT_FALSE(link.a.try_completion());
  EXPECT_EQ(link.next(link.a).type, uint32_t(FI_SHUTDOWN));
  EXPECT_FALSE(link.a.event());
}

TEST(VerbsClosing, RefusedRequestsGiveTheirPlacesBack) {
  Link link({.tx_size = 4});
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
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) ASSERT_EQ(fi_readmsg(link.a.ep, &msg, FI_COMPLETION | FI_MORE), 0);
    link.node.network.fail({.call = "ibv_post_send", .error = EINVAL});
    EXPECT_EQ(fi_readmsg(link.a.ep, &msg, FI_COMPLETION), -FI_EAGAIN);  // full: posts what it kept
    for (int i = 0; i < 4; ++i) EXPECT_EQ(link.a.failure().err, EINVAL);
  }
  for (int i = 0; i < 4; ++i) ASSERT_EQ(fi_readmsg(link.a.ep, &msg, FI_COMPLETION), 0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(link.a.completion().len, 8u);
}

TEST(VerbsClosing, AReceiveWithoutAQueuePairCanBeCancelled) {
  Link link({}, /*connects=*/false);
  link.a.open("10.99.0.1", std::to_string(ntohs(link.address.sin_port)));
  link.a.make_endpoint(link.a.info);
  Buffer in(link.a, 48);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(fi_recv(link.a.ep, in.data() + 16 * i, 16, in.desc(), 0, in.data() + 16 * i), 0);
  EXPECT_EQ(fi_cancel(&link.a.ep->fid, in.data() + 32), 0);
  EXPECT_EQ(link.a.failure().op_context, in.data() + 32);
  EXPECT_EQ(fi_cancel(&link.a.ep->fid, in.data() + 32), -FI_ENOENT);
  ASSERT_EQ(fi_recv(link.a.ep, in.data() + 32, 16, in.desc(), 0, in.data() + 32), 0);
  ASSERT_EQ(fi_connect(link.a.ep, &link.address, nullptr, 0), 0);
  link.accept("");
  EXPECT_EQ(fi_cancel(&link.a.ep->fid, in.data()), -FI_ENOENT);  // the device has it
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(fi_inject(link.b.ep, "x", 1, 0), 0);
    EXPECT_EQ(link.a.completion().op_context, in.data() + 16 * i);
  }
}

TEST(VerbsClosing, AnAliasHasFlagsOfItsOwn) {
  Link link({.selective = FI_SELECTIVE_COMPLETION});
  fid_ep *alias = nullptr;
  ASSERT_EQ(fi_ep_alias(link.a.ep, &alias, FI_TRANSMIT | FI_COMPLETION), 0) << link.node.log();
  Buffer in(link.b, 16);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(alias, "told", 4, nullptr, 0, &in), 0);
  EXPECT_EQ(link.a.completion().op_context, &in);
  EXPECT_EQ(fi_tsend(alias, "x", 1, nullptr, 0, 0, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_close(&link.a.ep->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&alias->fid), 0);
}

// Whatever an endpoint does, its alias does for it.
TEST(VerbsClosing, AnAliasConnectsTransfersAndShutsDown) {
  Link link({}, /*connects=*/false);
  link.a.open("10.99.0.1", std::to_string(ntohs(link.address.sin_port)));
  link.a.make_endpoint(link.a.info);
  fid_ep *alias = nullptr;
  ASSERT_EQ(fi_ep_alias(link.a.ep, &alias, FI_TRANSMIT | FI_COMPLETION), 0) << link.node.log();
  Buffer early(link.a, 16), target(link.b, 16), source(link.a, 16, "by an alias");
  ASSERT_EQ(fi_recv(alias, early.data(), 16, early.desc(), 0, &early), 0);
  EXPECT_EQ(fi_cancel(&alias->fid, &early), 0);
  EXPECT_EQ(link.a.failure().op_context, &early);
  ASSERT_EQ(fi_recv(alias, early.data(), 16, early.desc(), 0, &early), 0);
  ASSERT_EQ(fi_connect(alias, &link.address, "me", 2), 0) << link.node.log();
  link.accept("");
  EXPECT_EQ(link.connected_a.fid, &link.a.ep->fid);
  sockaddr_in peer{};
  size_t size = sizeof peer;
  EXPECT_EQ(fi_getpeer(alias, &peer, &size), 0);
  EXPECT_EQ(peer.sin_port, link.address.sin_port);

  const uint64_t to = target.address(), key = target.key();
  ASSERT_EQ(fi_write(alias, source.data(), 12, source.desc(), 0, to, key, &source), 0);
  EXPECT_EQ(link.a.completion().flags, uint64_t(FI_RMA | FI_WRITE));
  EXPECT_EQ(target.text(11), "by an alias");
  ASSERT_EQ(fi_read(alias, source.data(), 8, source.desc(), 0, to, key, &source), 0);
  EXPECT_EQ(link.a.completion().flags, uint64_t(FI_RMA | FI_READ));
  size_t count = 0;
  EXPECT_EQ(fi_fetch_atomicvalid(alias, FI_UINT64, FI_SUM, &count), 0);
  uint64_t one = 1;
  ASSERT_EQ(fi_fetch_atomic(alias, &one, 1, nullptr, source.data(), source.desc(), 0, to, key,
                            FI_UINT64, FI_SUM, &source),
            0);
  EXPECT_EQ(link.a.completion().flags, uint64_t(FI_ATOMIC | FI_READ));
  ASSERT_EQ(fi_inject(link.b.ep, "back", 4, 0), 0);
  EXPECT_EQ(link.a.completion().op_context, &early);

  ASSERT_EQ(fi_shutdown(alias, 0), 0);
  EXPECT_EQ(link.next(link.b).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(fi_send(link.a.ep, source.data(), 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  EXPECT_EQ(fi_close(&alias->fid), 0);
}

TEST(VerbsCounters, TellWhatHappened) {
  Link link;
  Buffer in(link.b, 16), target(link.b, 8), back(link.a, 8);
  ASSERT_EQ(fi_recv(link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  ASSERT_EQ(fi_send(link.a.ep, "x", 1, nullptr, 0, nullptr), 0);
  auto a = counters(link.a.fabric), b = counters(link.b.fabric);
  EXPECT_EQ(a["connections_made"], 1u);
  EXPECT_EQ(b["connections_made"], 1u);
  EXPECT_EQ(a["doorbells"], 1u);
  EXPECT_EQ(b["doorbells"], 0u);
  EXPECT_EQ(a["registrations"], 1u);
  EXPECT_EQ(b["registrations"], 2u);
  link.a.completion();
  link.node.network.fail({.status = IBV_WC_RETRY_EXC_ERR});
  ASSERT_EQ(
      fi_write(link.a.ep, back.data(), 8, back.desc(), 0, target.address(), target.key(), nullptr),
      0);
  EXPECT_EQ(link.a.failure().err, FI_ETIMEDOUT);
  ASSERT_EQ(fi_close(&link.a.ep->fid), 0);
  link.a.ep = nullptr;
  a = counters(link.a.fabric);
  EXPECT_EQ(a["retries_exceeded"], 1u);
  EXPECT_EQ(a["doorbells"], 2u);  // also of a closed endpoint
  EXPECT_EQ(link.next(link.b).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(counters(link.b.fabric)["connections_lost"], 1u);
}

}  // namespace
}  // namespace weft::verbs
