// SPDX-License-Identifier: BSD-2-Clause
// Every status of a work completion, on every kind of operation: the error entry that the
// application gets, and what becomes of the endpoint.
#include "plugins/verbs/status.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "plugins/verbs/test_datagrams.h"
#include "plugins/verbs/test_link.h"

namespace weft::verbs {
namespace {

struct StatusCase {
  ibv_wc_status status;
  int err;  // of the entry
};
constexpr StatusCase kStatuses[] = {
    {IBV_WC_LOC_LEN_ERR, FI_ETRUNC},
    {IBV_WC_LOC_QP_OP_ERR, FI_EIO},
    {IBV_WC_LOC_EEC_OP_ERR, FI_EIO},
    {IBV_WC_LOC_PROT_ERR, FI_EINVAL},
    {IBV_WC_WR_FLUSH_ERR, FI_ECANCELED},
    {IBV_WC_MW_BIND_ERR, FI_EINVAL},
    {IBV_WC_BAD_RESP_ERR, FI_EIO},
    {IBV_WC_LOC_ACCESS_ERR, FI_EINVAL},
    {IBV_WC_REM_INV_REQ_ERR, FI_EREMOTEIO},
    {IBV_WC_REM_ACCESS_ERR, FI_EACCES},
    {IBV_WC_REM_OP_ERR, FI_EREMOTEIO},
    {IBV_WC_RETRY_EXC_ERR, FI_ETIMEDOUT},
    {IBV_WC_RNR_RETRY_EXC_ERR, FI_ENORX},
    {IBV_WC_LOC_RDD_VIOL_ERR, FI_EIO},
    {IBV_WC_REM_INV_RD_REQ_ERR, FI_EIO},
    {IBV_WC_REM_ABORT_ERR, FI_ECONNABORTED},
    {IBV_WC_INV_EECN_ERR, FI_EIO},
    {IBV_WC_INV_EEC_STATE_ERR, FI_EIO},
    {IBV_WC_FATAL_ERR, FI_EIO},
    {IBV_WC_RESP_TIMEOUT_ERR, FI_ETIMEDOUT},
    {IBV_WC_GENERAL_ERR, FI_EIO},
    {IBV_WC_TM_ERR, FI_EIO},
    {IBV_WC_TM_RNDV_INCOMPLETE, FI_EIO},
    {ibv_wc_status(30), FI_EIO},  // of a library that is newer than this
};

std::string name_of(const StatusCase &c) {
  std::string name = "Status" + std::to_string(int(c.status));
  return name;
}

template <class Side>
void expect_entry(Side &side, const fi_cq_err_entry &error, const StatusCase &c, uint64_t flags,
                  const void *context) {
  EXPECT_EQ(error.err, c.err);
  EXPECT_EQ(error.prov_errno, int(c.status));
  EXPECT_EQ(error.flags, flags);
  EXPECT_EQ(error.op_context, context);
  const char *const text = fi_cq_strerror(side.cq, error.prov_errno, nullptr, nullptr, 0);
  ASSERT_NE(text, nullptr);
  EXPECT_STREQ(text, ibv_wc_status_str(c.status));
}

// ---- connected endpoints: any error ends the connection, at both sides ----

enum class Kind { kSend, kReceive, kSharedReceive, kRead, kWrite, kFetchingAtomic, kCompareAtomic };
constexpr Kind kKinds[] = {Kind::kSend,  Kind::kReceive,        Kind::kSharedReceive, Kind::kRead,
                           Kind::kWrite, Kind::kFetchingAtomic, Kind::kCompareAtomic};
const char *const kKindNames[] = {"Send",  "Receive",        "SharedReceive", "Read",
                                  "Write", "FetchingAtomic", "CompareAtomic"};

class VerbsStatus : public testing::TestWithParam<std::tuple<Kind, StatusCase>> {};

uint64_t start_operation(Link &link, Kind kind, Buffer &local, Buffer &target) {
  const uint64_t to = target.address(), key = target.key();
  void *const desc = local.desc();
  switch (kind) {
    case Kind::kSend:
    case Kind::kReceive:
    case Kind::kSharedReceive:
      EXPECT_EQ(fi_send(link.a.ep, local.data(), 8, desc, 0, &local), 0);
      return kind == Kind::kSend ? FI_SEND | FI_MSG : FI_RECV | FI_MSG;
    case Kind::kRead:
      EXPECT_EQ(fi_read(link.a.ep, local.data(), 8, desc, 0, to, key, &local), 0);
      return FI_RMA | FI_READ;
    case Kind::kWrite:
      EXPECT_EQ(fi_write(link.a.ep, local.data(), 8, desc, 0, to, key, &local), 0);
      return FI_RMA | FI_WRITE;
    case Kind::kFetchingAtomic:
      EXPECT_EQ(fi_fetch_atomic(link.a.ep, local.data(), 1, desc, local.data(), desc, 0, to, key,
                                FI_UINT64, FI_SUM, &local),
                0);
      return FI_ATOMIC | FI_READ;
    case Kind::kCompareAtomic:
      EXPECT_EQ(fi_compare_atomic(link.a.ep, local.data(), 1, desc, local.data(), desc,
                                  local.data(), desc, 0, to, key, FI_UINT64, FI_CSWAP, &local),
                0);
      return FI_ATOMIC | FI_READ;
  }
  return 0;
}

TEST_P(VerbsStatus, IsAnEntryAndEndsTheConnection) {
  const auto [kind, c] = GetParam();
  const bool shares = kind == Kind::kSharedReceive;
  const bool receives = kind == Kind::kReceive || shares;
  Link link({.shares_receives = shares});
  Buffer local(link.a, 8), target(link.b, 8), in(link.b, 16), waiting(link.a, 16);
  ASSERT_EQ(fi_recv(shares ? link.b.srx : link.b.ep, in.data(), 16, in.desc(), 0, &in), 0);
  if (!shares) {
    ASSERT_EQ(fi_recv(link.a.ep, waiting.data(), 16, waiting.desc(), 0, &waiting), 0);
  }
  link.node.network.fail({.status = c.status, .receive = receives});
  const uint64_t flags = start_operation(link, kind, local, target);
  TestSide &side = receives ? link.b : link.a;
  expect_entry(side, side.failure(), c, flags, receives ? &in : &local);
  // What else was in flight is cancelled, the endpoint says so, and transmits nothing.
  if (!receives) {
    const fi_cq_err_entry rest = link.a.failure();
    EXPECT_EQ(rest.op_context, &waiting);
    EXPECT_EQ(rest.err, FI_ECANCELED);
  }
  EXPECT_EQ(link.next(side).type, uint32_t(FI_SHUTDOWN));
  EXPECT_EQ(fi_send(side.ep, in.data(), 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  TestSide &other = &side == &link.a ? link.b : link.a;
  EXPECT_EQ(link.next(other).type, uint32_t(FI_SHUTDOWN));
  EXPECT_FALSE(side.event()) << "once";
}

INSTANTIATE_TEST_SUITE_P(All, VerbsStatus,
                         testing::Combine(testing::ValuesIn(kKinds), testing::ValuesIn(kStatuses)),
                         [](const auto &info) {
                           return kKindNames[int(std::get<0>(info.param))] +
                                  name_of(std::get<1>(info.param));
                         });

// ---- datagrams: the operation fails, and the endpoint goes on ----

class VerbsDatagramStatus : public testing::TestWithParam<StatusCase> {};

std::vector<fi_cq_err_entry> failures_of(DatagramSide &side) {
  std::vector<fi_cq_err_entry> all;
  fi_cq_data_entry entry{};
  while (fi_cq_read(side.cq, &entry, 1) == -FI_EAVAIL) {
    all.emplace_back();
    EXPECT_EQ(fi_cq_readerr(side.cq, &all.back(), 0), 1);
  }
  return all;
}

void expect_talk(DatagramSide &from, DatagramSide &to) {
  const fi_addr_t dest = from.insert(to);
  DatagramBuffer in(to, 100), out(from, 100, "on");
  ASSERT_EQ(fi_recv(to.ep, in.start(), in.size(), in.desc(), 0, &in), 0) << test_log();
  ASSERT_EQ(fi_send(from.ep, out.start(), out.length(2), out.desc(), dest, &out), 0) << test_log();
  EXPECT_EQ(to.completion().entry.op_context, &in);
  EXPECT_EQ(in.text(2), "on");
  EXPECT_EQ(from.completion().entry.op_context, &out);
}

TEST_P(VerbsDatagramStatus, OfASendFailsThatSend) {
  const StatusCase &c = GetParam();
  TestNode node;
  DatagramSide a(node), b(node);
  const fi_addr_t to = a.insert(b);
  DatagramBuffer out(a, 10), at_a(a, 100), at_b(b, 100);
  ASSERT_EQ(fi_recv(a.ep, at_a.start(), at_a.size(), at_a.desc(), 0, &at_a), 0);
  ASSERT_EQ(fi_recv(b.ep, at_b.start(), at_b.size(), at_b.desc(), 0, &at_b), 0);
  node.network.fail({.status = c.status});
  ASSERT_EQ(fi_send(a.ep, out.start(), out.length(1), out.desc(), to, &out), 0);
  expect_entry(a, a.failure(), c, FI_SEND | FI_MSG, &out);
  b.completion();  // the datagram has left
  // The receive was not touched: only sending failed.
  ASSERT_EQ(fi_send(b.ep, out.start(), kDatagramHeader, nullptr, b.insert(a), &out), 0);
  EXPECT_EQ(a.completion().entry.op_context, &at_a);
  EXPECT_EQ(b.completion().entry.op_context, &out);
  expect_talk(a, b);
  expect_talk(b, a);
  EXPECT_FALSE(a.try_completion());
}

TEST_P(VerbsDatagramStatus, OfAReceiveFailsThePostedOnes) {
  const StatusCase &c = GetParam();
  TestNode node;
  DatagramSide a(node), b(node);
  const fi_addr_t to = a.insert(b);
  DatagramBuffer first(b, 100), second(b, 100);
  for (DatagramBuffer *in : {&first, &second})
    ASSERT_EQ(fi_recv(b.ep, in->start(), in->size(), in->desc(), 0, in), 0);
  node.network.fail({.status = c.status, .receive = true});
  char message[kDatagramHeader + 1] = {};
  ASSERT_EQ(fi_inject(a.ep, message, sizeof message, to), 0);
  const auto failures = failures_of(b);
  ASSERT_EQ(failures.size(), 2u);
  expect_entry(b, failures[0], c, FI_RECV | FI_MSG, &first);
  EXPECT_EQ(failures[1].op_context, &second);
  EXPECT_EQ(failures[1].err, FI_ECANCELED);
  for (int round = 0; round < 2; ++round) {
    expect_talk(b, a);
    expect_talk(a, b);
  }
}

INSTANTIATE_TEST_SUITE_P(All, VerbsDatagramStatus, testing::ValuesIn(kStatuses),
                         [](const auto &info) { return name_of(info.param); });

// A peer chooses the size of its datagrams: it must not be able to end an endpoint.
TEST(VerbsDatagramStatus, ADatagramThatIsTooLongEndsNothing) {
  for (const bool keeps : {true, false}) {
    verbs_double::DeviceOptions device;
    device.features.keeps_completions = keeps;
    TestNode node({}, device);
    DatagramSide a(node), b(node), honest(node);
    const fi_addr_t to = a.insert(b);
    DatagramBuffer small(b, 10), other(b, 1000), out(a, 1000);
    for (int round = 0; round < 3; ++round) {
      for (DatagramBuffer *in : {&small, &other})
        ASSERT_EQ(fi_recv(b.ep, in->start(), in->size(), in->desc(), 0, in), 0);
      ASSERT_EQ(fi_send(a.ep, out.start(), out.length(11), out.desc(), to, nullptr), 0);
      a.completion();
      const auto failures = failures_of(b);
      ASSERT_EQ(failures.size(), 2u);
      EXPECT_EQ(failures[0].err, FI_ETRUNC);
      expect_talk(honest, b);
      expect_talk(b, honest);
    }
  }
}

TEST(VerbsDatagramStatus, RecoversWhileTheDeviceIsSlow) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    verbs_double::NetworkOptions slow;
    slow.progress = verbs_double::Progress::kByStep;
    slow.seed = seed;
    TestNode node(slow);
    DatagramSide a(node), b(node);
    const fi_addr_t to = a.insert(b);
    constexpr size_t kReceives = 8;
    std::vector<std::unique_ptr<DatagramBuffer>> in;
    for (size_t i = 0; i < kReceives; ++i) {
      in.push_back(std::make_unique<DatagramBuffer>(b, i == 2 ? 1 : 100));
      ASSERT_EQ(fi_recv(b.ep, in[i]->start(), in[i]->size(), in[i]->desc(), 0, in[i].get()), 0);
    }
    char message[kDatagramHeader + 5] = {};
    for (int i = 0; i < 4; ++i) ASSERT_EQ(fi_inject(a.ep, message, sizeof message, to), 0);
    size_t ended = 0;
    const auto take = [&] {
      fi_cq_data_entry entry{};
      fi_cq_err_entry error{};
      ssize_t n;
      while ((n = fi_cq_read(b.cq, &entry, 1)) != -FI_EAGAIN) {
        ASSERT_TRUE(n == 1 || fi_cq_readerr(b.cq, &error, 0) == 1);
        ++ended;
      }
    };
    // A receive is posted at any time after the failure.
    DatagramBuffer late(b, 100);
    const int steps = int(seed % 17);
    for (int i = 0; i < steps; ++i) node.network.step();
    take();
    ASSERT_EQ(fi_recv(b.ep, late.start(), late.size(), late.desc(), 0, &late), 0) << test_log();
    node.network.run();
    take();
    if (ended < kReceives + 1) {  // the late one is still posted, or the failure was not seen yet
      ASSERT_EQ(fi_inject(a.ep, message, sizeof message, to), 0);
      node.network.run();
      take();
    }
    EXPECT_EQ(ended, kReceives + 1) << "seed " << seed << ": each receive once";
  }
}

// One thread receives, two send, while a peer's datagrams break the queue pair again and again.
TEST(VerbsDatagramStatus, RecoversInAnyThread) {
  verbs_double::NetworkOptions alive;
  alive.progress = verbs_double::Progress::kByThread;
  TestNode node(alive);
  DatagramSide hostile(node), b(node), peer(node);
  const fi_addr_t from_hostile = hostile.insert(b), to_peer = b.insert(peer);
  constexpr size_t kReceives = 8;
  constexpr size_t kErrors = 100;
  std::vector<std::unique_ptr<DatagramBuffer>> in;
  for (size_t i = 0; i < kReceives; ++i) in.push_back(std::make_unique<DatagramBuffer>(b, 16));
  std::atomic<bool> stop{false};
  std::atomic<size_t> errors{0};
  std::thread receiver([&] {
    std::set<DatagramBuffer *> idle;
    for (auto &one : in) idle.insert(one.get());
    while (!stop.load()) {
      for (auto it = idle.begin(); it != idle.end();) {
        DatagramBuffer &one = **it;
        const ssize_t rc = fi_recv(b.ep, one.start(), one.size(), one.desc(), 0, &one);
        EXPECT_TRUE(rc == 0 || rc == -FI_EAGAIN) << rc << test_log();
        it = rc == 0 ? idle.erase(it) : std::next(it);
      }
      fi_cq_data_entry entry{};
      fi_cq_err_entry error{};
      const ssize_t n = fi_cq_read(b.cq, &entry, 1);
      if (n == -FI_EAVAIL && fi_cq_readerr(b.cq, &error, 0) == 1) {
        entry.op_context = error.op_context;
        entry.flags = error.flags;
        ++errors;
      }
      if ((n == 1 || n == -FI_EAVAIL) && entry.flags & FI_RECV) {
        EXPECT_TRUE(idle.insert(static_cast<DatagramBuffer *>(entry.op_context)).second)
            << "a receive ends twice";
      }
    }
  });
  std::vector<std::thread> senders;
  for (int i = 0; i < 2; ++i)
    senders.emplace_back([&] {
      char message[kDatagramHeader + 4] = {};
      while (!stop.load()) {
        const ssize_t rc = fi_inject(b.ep, message, sizeof message, to_peer);
        EXPECT_TRUE(rc == 0 || rc == -FI_EAGAIN) << rc << test_log();
      }
    });
  char message[kDatagramHeader + 17] = {};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (size_t i = 0; errors.load() < kErrors && std::chrono::steady_clock::now() < deadline; ++i) {
    fi_inject(hostile.ep, message, i % 2 ? sizeof message : kDatagramHeader, from_hostile);
    fi_cq_read(hostile.cq, nullptr, 0);
  }
  stop.store(true);
  receiver.join();
  for (std::thread &sender : senders) sender.join();
  EXPECT_GE(errors.load(), kErrors);
  b.close_endpoint();
}

}  // namespace
}  // namespace weft::verbs
