// SPDX-License-Identifier: BSD-2-Clause
// Counters (fi_cntr.3): what they count, and waits for them.
#include <poll.h>

#include <functional>
#include <thread>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

fi_cntr_attr cntr_attr(enum fi_wait_obj wait = FI_WAIT_NONE,
                       enum fi_cntr_events events = FI_CNTR_EVENTS_COMP) {
  fi_cntr_attr attr{};
  attr.events = events;
  attr.wait_obj = wait;
  return attr;
}

// A domain, and a counter that is bound to nothing.
class Cntr : public ::testing::Test {
 protected:
  Cntr() { side.open(options_info({}).get()); }
  fid_cntr *open(const fi_cntr_attr &attr) { return side.count(0, attr); }
  Side side;
};

TEST_F(Cntr, StartsAtZero) {
  NEEDS_COUNTERS();
  fid_cntr *counter = open(cntr_attr());
  EXPECT_EQ(fi_cntr_read(counter), 0u);
  EXPECT_EQ(fi_cntr_readerr(counter), 0u);
}

TEST_F(Cntr, AddAndSet) {
  NEEDS_COUNTERS();
  fid_cntr *counter = open(cntr_attr());
  must(fi_cntr_add(counter, 5));
  must(fi_cntr_add(counter, 2));
  EXPECT_EQ(fi_cntr_read(counter), 7u);
  must(fi_cntr_set(counter, 3));
  EXPECT_EQ(fi_cntr_read(counter), 3u);
  must(fi_cntr_adderr(counter, 4));
  must(fi_cntr_adderr(counter, 1));
  EXPECT_EQ(fi_cntr_readerr(counter), 5u);
  must(fi_cntr_seterr(counter, 1));
  EXPECT_EQ(fi_cntr_readerr(counter), 1u);
  EXPECT_EQ(fi_cntr_read(counter), 3u);
}

TEST_F(Cntr, WaitReturnsWhenTheThresholdIsReached) {
  NEEDS_COUNTERS();
  for (const auto wait : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD}) {
    fid_cntr *counter = open(cntr_attr(wait));
    EXPECT_EQ(fi_cntr_wait(counter, 0, 0), 0);
    must(fi_cntr_set(counter, 9));
    EXPECT_EQ(fi_cntr_wait(counter, 9, 0), 0);
    EXPECT_EQ(fi_cntr_wait(counter, 5, -1), 0);
  }
}

TEST_F(Cntr, WaitTimesOut) {
  NEEDS_COUNTERS();
  for (const auto wait : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD}) {
    fid_cntr *counter = open(cntr_attr(wait));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(fi_cntr_wait(counter, 1, 20), -FI_ETIMEDOUT);
    const auto spent = std::chrono::steady_clock::now() - start;
    EXPECT_GE(spent, std::chrono::milliseconds(15));
    EXPECT_LT(spent, std::chrono::seconds(10));
    EXPECT_EQ(fi_cntr_wait(counter, 1, 0), -FI_ETIMEDOUT);
    EXPECT_EQ(fi_cntr_readerr(counter), 0u);
  }
}

// fi_cntr.3 forbids it, and programs do it.
TEST_F(Cntr, WaitWithoutAWaitObjectWorks) {
  NEEDS_COUNTERS();
  fid_cntr *counter = open(cntr_attr(FI_WAIT_NONE));
  EXPECT_EQ(fi_cntr_wait(counter, 1, 10), -FI_ETIMEDOUT);
  std::thread raiser([&] { must(fi_cntr_add(counter, 1)); });
  EXPECT_EQ(fi_cntr_wait(counter, 1, 20000), 0);
  raiser.join();
}

TEST_F(Cntr, AddWakesABlockedThread) {
  NEEDS_COUNTERS();
  for (const auto wait : {FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_YIELD}) {
    fid_cntr *counter = open(cntr_attr(wait));
    int rc = -1;
    std::thread waiter([&] { rc = fi_cntr_wait(counter, 3, 20000); });
    must(fi_cntr_add(counter, 1));
    must(fi_cntr_add(counter, 2));
    waiter.join();
    EXPECT_EQ(rc, 0);
  }
}

TEST_F(Cntr, AnErrorWakesABlockedThread) {
  NEEDS_COUNTERS();
  fid_cntr *counter = open(cntr_attr(FI_WAIT_UNSPEC));
  int rc = 0;
  const auto start = std::chrono::steady_clock::now();
  std::thread waiter([&] { rc = fi_cntr_wait(counter, 3, 20000); });
  // The error must come during the wait: errors from before do not end it. Tries again until it
  // does.
  std::atomic<bool> over{false};
  std::thread poker([&] {
    while (!over) {
      fi_cntr_adderr(counter, 1);
      std::this_thread::yield();
    }
  });
  waiter.join();
  over = true;
  poker.join();
  EXPECT_EQ(rc, -FI_EAVAIL);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

TEST_F(Cntr, TheDescriptorWakesAPoller) {
  NEEDS_COUNTERS();
  fid_cntr *counter = open(cntr_attr(FI_WAIT_FD));
  int fd = -1;
  must(fi_control(&counter->fid, FI_GETWAIT, &fd));
  ASSERT_GE(fd, 0);
  fid *fids[] = {&counter->fid};
  ASSERT_EQ(fi_trywait(side.fabric, fids, 1), 0);
  pollfd p{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 0);
  must(fi_cntr_add(counter, 1));
  EXPECT_EQ(::poll(&p, 1, 10000), 1);
}

// ---- what is counted ----

void expect_each_kind(bool late) {
  Options options;
  options.caps = FI_MSG | FI_RMA | FI_RMA_EVENT;
  std::vector<fid_cntr *> counters;
  const uint64_t kinds[] = {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE};
  const auto open = [&](Side &side) {
    for (const uint64_t kind : kinds) counters.push_back(side.count(kind));
  };
  Pair pair(options, options, late ? nullptr : std::function<void(Side &)>(open));
  if (late) {
    // Operations before the bind are not counted.
    char byte = 1;
    must(fi_recv(pair.b.ep, &byte, 1, nullptr, 0, nullptr));
    must(fi_inject(pair.a.ep, &byte, 1, 0));
    pair.wait(pair.b.rx_cq);
    open(pair.a);
    open(pair.b);
  }
  // The active side's counters come first.
  const auto expect = [&](bool active, std::initializer_list<uint64_t> values) {
    size_t i = active ? 0 : std::size(kinds);
    for (const uint64_t value : values) {
      fid_cntr *counter = counters[i++];
      EXPECT_TRUE(
          pair.until([&] { return fi_cntr_read(counter) == value; }, std::chrono::seconds(5)))
          << (active ? "active" : "passive") << " counter " << (i - 1) % std::size(kinds) << " is "
          << fi_cntr_read(counter) << ", not " << value;
      EXPECT_EQ(fi_cntr_readerr(counter), 0u);
    }
  };
  std::vector<uint8_t> memory(1000), here(1000);
  fid_mr *region = pair.b.expose(memory.data(), memory.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 3);
  const uint64_t key = fi_mr_key(region);
  for (int i = 0; i < 3; ++i)
    must(fi_recv(pair.b.ep, here.data(), here.size(), nullptr, 0, nullptr));
  must(fi_send(pair.a.ep, here.data(), 10, nullptr, 0, nullptr));
  must(fi_inject(pair.a.ep, here.data(), 20, 0));
  must(fi_senddata(pair.a.ep, here.data(), 30, nullptr, 1, 0, nullptr));
  expect(true, {3, 0, 0, 0, 0, 0});
  expect(false, {0, 3, 0, 0, 0, 0});
  must(fi_write(pair.a.ep, here.data(), 100, nullptr, 0, 0, key, nullptr));
  must(fi_inject_write(pair.a.ep, here.data(), 50, 0, 0, key));
  must(fi_read(pair.a.ep, here.data(), 100, nullptr, 0, 0, key, nullptr));
  expect(true, {3, 0, 1, 2, 0, 0});
  expect(false, {0, 3, 0, 0, 1, 2});
}

TEST(CntrCounts, EachKindOfOperation) {
  NEEDS_COUNTERS();
  expect_each_kind(false);
}

TEST(CntrCounts, EachKindFromALateBindOn) {
  NEEDS_COUNTERS();
  expect_each_kind(true);
}

TEST(CntrCounts, BytesInsteadOfOperations) {
  NEEDS_COUNTERS();
  Options options;
  fid_cntr *counters[2] = {};
  const fi_cntr_attr attr = cntr_attr(FI_WAIT_NONE, FI_CNTR_EVENTS_BYTES);
  {
    // Not every library knows this kind.
    Side side;
    side.open(options_info({}).get());
    fi_cntr_attr copy = attr;
    Handle<fid_cntr> counter;
    if (fi_cntr_open(side.domain, &copy, counter.out(), nullptr) != 0) {
      (void)counter;
      GTEST_SKIP() << "no FI_CNTR_EVENTS_BYTES";
    }
  }
  int n = 0;
  Pair pair(options, options,
            [&](Side &side) { counters[n] = side.count(n == 0 ? FI_SEND : FI_RECV, attr), ++n; });
  std::vector<uint8_t> bytes(1000);
  for (int i = 0; i < 3; ++i)
    must(fi_recv(pair.b.ep, bytes.data(), bytes.size(), nullptr, 0, nullptr));
  must(fi_send(pair.a.ep, bytes.data(), 1000, nullptr, 0, nullptr));
  must(fi_send(pair.a.ep, bytes.data(), 0, nullptr, 0, nullptr));
  must(fi_inject(pair.a.ep, bytes.data(), 7, 0));
  EXPECT_TRUE(pair.until([&] {
    return fi_cntr_read(counters[0]) == 1007 && fi_cntr_read(counters[1]) == 1007;
  })) << fi_cntr_read(counters[0])
      << " " << fi_cntr_read(counters[1]);
}

TEST(CntrCounts, ErrorsSeparately) {
  NEEDS_COUNTERS();
  fid_cntr *counters[2] = {};
  int n = 0;
  Pair pair({}, {}, [&](Side &side) { counters[n++] = side.count(FI_RECV); });
  char in[4];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr));
  must(fi_send(pair.a.ep, "much too long", 14, nullptr, 0, nullptr));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, FI_ETRUNC);
  EXPECT_EQ(fi_cntr_read(counters[1]), 0u);
  EXPECT_EQ(fi_cntr_readerr(counters[1]), 1u);
  for (int i = 0; i < 2; ++i) must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr));
  must(fi_shutdown(pair.b.ep, 0));
  EXPECT_EQ(fi_cntr_readerr(counters[1]), 3u);
}

TEST(CntrCounts, AnEndpointMayHaveCountersInsteadOfQueues) {
  NEEDS_COUNTERS();
  Side passive, active;
  passive.open(options_info({}, nullptr, FI_SOURCE).get());
  Listener listener(passive);
  active.open(options_info({}).get());
  fid_cntr *counters[2][2];
  const auto make = [&](Side &side, fi_info *info, fid_cntr **out) {
    side.make_unbound_endpoint(info);
    must(fi_ep_bind(side.ep, side.eq.fid(), 0));
    out[0] = side.count(FI_SEND | FI_WRITE | FI_READ, cntr_attr(FI_WAIT_UNSPEC));
    out[1] = side.count(FI_RECV, cntr_attr(FI_WAIT_UNSPEC));
    must(fi_enable(side.ep));
  };
  make(active, active.info.get(), counters[0]);
  const std::string address = listener.address();
  must(fi_connect(active.ep, address.data(), nullptr, 0));
  const Event request = next_request(passive, {&active, &passive});
  make(passive, request.info.get(), counters[1]);
  must(fi_accept(passive.ep, nullptr, 0));
  EXPECT_EQ(wait_event(active.eq, {&active, &passive}).type, uint32_t(FI_CONNECTED));
  EXPECT_EQ(wait_event(passive.eq, {&active, &passive}).type, uint32_t(FI_CONNECTED));
  char in[4], out[4] = "abc";
  must(fi_recv(passive.ep, in, sizeof in, nullptr, 0, nullptr));
  must(fi_send(active.ep, out, sizeof out, nullptr, 0, nullptr));
  // Waiting makes progress.
  EXPECT_EQ(fi_cntr_wait(counters[0][0], 1, 10000), 0);
  EXPECT_EQ(fi_cntr_wait(counters[1][1], 1, 10000), 0);
  EXPECT_STREQ(in, "abc");
}

TEST(CntrCounts, ReadingMakesProgress) {
  NEEDS_COUNTERS();
  fid_cntr *counters[2] = {};
  int n = 0;
  Pair pair({}, {}, [&](Side &side) { counters[n++] = side.count(FI_RECV); });
  char in[4];
  must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr));
  must(fi_send(pair.a.ep, "abc", 4, nullptr, 0, nullptr));
  EXPECT_TRUE(until([&] { return fi_cntr_read(counters[1]) == 1; }, {}));
}

}  // namespace
}  // namespace weft::conformance
