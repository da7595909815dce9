// SPDX-License-Identifier: BSD-2-Clause
// Progress (fi_domain.3): automatic progress needs no call. FI_THREAD_SAFE: any thread may call.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

Options automatic() {
  Options options;
  options.progress = FI_PROGRESS_AUTO;
  return options;
}

// Waits for memory that another thread's progress writes. It calls nothing that makes progress. The
// memory is read as a debugger reads it: the language knows of no synchronisation here.
bool becomes(const uint8_t *where, uint8_t value) {
  const int memory = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  const Deadline deadline;
  uint8_t now = uint8_t(~value);
  while (now != value && !deadline.passed()) {
    if (::pread(memory, &now, 1, off_t(reinterpret_cast<uintptr_t>(where))) != 1) break;
    std::this_thread::yield();
  }
  ::close(memory);
  return now == value;
}

TEST(ProgressAuto, ATargetThatNeverPollsServesRma) {
  Options manual;
  Pair pair(manual, automatic());
  std::vector<uint8_t> memory = pattern(500000, 1), out = pattern(500000, 2), in(500000);
  fid_mr *region = pair.b.expose(memory.data(), memory.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 5);
  // From here on only the active side makes calls.
  const auto wait = [&] {
    std::optional<Done> done;
    EXPECT_TRUE(until([&] { return (done = poll_cq(pair.a.tx_cq)).has_value(); }, {&pair.a}));
    return done.value_or(Done{.err = FI_ETIMEDOUT});
  };
  const std::vector<uint8_t> before = memory;
  const uint64_t base = pair.b.base_of(memory.data());
  must(fi_read(pair.a.ep, in.data(), in.size(), nullptr, 0, base, fi_mr_key(region), &in));
  EXPECT_EQ(wait().err, 0);
  EXPECT_EQ(in, before);
  must(fi_write(pair.a.ep, out.data(), out.size(), nullptr, 0, base, fi_mr_key(region), &out));
  EXPECT_EQ(wait().err, 0);
  must(fi_read(pair.a.ep, in.data(), in.size(), nullptr, 0, base, fi_mr_key(region), &in));
  EXPECT_EQ(wait().err, 0);
  EXPECT_EQ(in, out);
  pair.b.regions.clear();
}

TEST(ProgressAuto, ASenderThatNeverPollsDelivers) {
  Options manual;
  Pair pair(automatic(), manual);
  // Much more than the socket takes at once.
  std::vector<uint8_t> out = pattern(up_to_limit(20 << 20), 1), in(out.size());
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr));
  std::optional<Done> done;
  ASSERT_TRUE(until([&] { return (done = poll_cq(pair.b.rx_cq)).has_value(); }, {&pair.b}));
  EXPECT_EQ(in, out);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
}

TEST(ProgressAuto, MessagesArriveWithoutACall) {
  Pair pair(automatic());
  std::vector<uint8_t> out(100, 0xab), in(100);
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr));
  EXPECT_TRUE(becomes(&in.back(), 0xab));
  // Only now the buffer is the test's again.
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, &in);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
}

TEST(ProgressAuto, AcknowledgementsNeedNoCall) {
  NEEDS_LEVEL(FI_DELIVERY_COMPLETE);
  Pair pair(automatic());
  std::vector<uint8_t> out(100), in(100);
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  const iovec iov{out.data(), out.size()};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  must(fi_sendmsg(pair.a.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  std::optional<Done> done;
  EXPECT_TRUE(until([&] { return (done = poll_cq(pair.a.tx_cq)).has_value(); }, {}));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, &in);
}

TEST(ProgressAuto, ABlockedReaderIsWokenByTheThread) {
  Options options = automatic();
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_FD);
  Pair pair(options);
  for (int i = 0; i < 100; ++i) {
    int in = -1;
    must(fi_recv(pair.b.ep, &in, sizeof in, nullptr, 0, &in));
    std::thread sender([&] { EXPECT_EQ(fi_inject(pair.a.ep, &i, sizeof i, 0), 0); });
    fi_cq_data_entry entry{};
    const ssize_t n = fi_cq_sread(pair.b.rx_cq, &entry, 1, nullptr, 20000);
    sender.join();
    ASSERT_EQ(n, 1);
    EXPECT_EQ(in, i);
  }
}

TEST(ProgressAuto, ConnectionsAreMadeWithoutReading) {
  Options options = automatic();
  Side passive(options), active(options);
  passive.open(options_info(options, nullptr, FI_SOURCE).get());
  Listener listener(passive);
  active.open(options_info(options).get());
  active.make_endpoint(active.info.get());
  const std::string address = listener.address();
  must(fi_connect(active.ep, address.data(), nullptr, 0));
  // Only the passive side reads events: the request comes all the same.
  const Event request = next_request(passive, {&passive});
  passive.make_endpoint(request.info.get());
  must(fi_accept(passive.ep, nullptr, 0));
  std::optional<Event> event;
  EXPECT_TRUE(until([&] { return (event = poll_eq(active.eq)).has_value(); }, {}));
}

TEST(ProgressAuto, OpeningAndClosingManyTimes) {
  if (!in_fresh_process({kNoControl})) return;
  { const Pair warm(automatic()); }
  const int before = count_descriptors();
  for (int i = 0; i < 20; ++i) {
    Pair pair(automatic());
    must(fi_inject(pair.a.ep, "x", 1, 0));
  }
  EXPECT_EQ(count_descriptors(), before);
}

// ---- threads ----

class Threads : public ::testing::TestWithParam<bool> {
 protected:
  Options options() const {
    Options o;
    o.threading = FI_THREAD_SAFE;
    if (GetParam()) o.progress = FI_PROGRESS_AUTO;
    o.tx_cq = o.rx_cq = Options::cq_attr(FI_CQ_FORMAT_DATA, FI_WAIT_UNSPEC);
    return o;
  }
};
INSTANTIATE_TEST_SUITE_P(Automatic, Threads, ::testing::Bool());

TEST_P(Threads, FourSendOnOneEndpointWhileOthersRead) {
  NEEDS_WAITING_MESSAGES();
  Pair pair(options());
  constexpr int kThreads = 4, kEach = 1500, kTotal = kThreads * kEach;
  struct Message {
    int thread, number;
    uint8_t fill[56];
  };
  std::vector<Message> in(256);
  for (Message &message : in)
    must(fi_recv(pair.b.ep, &message, sizeof message, nullptr, 0, &message));
  std::atomic<int> received{0}, completed{0}, failures{0};
  std::vector<std::thread> threads;
  const Deadline deadline;
  const auto complete_one = [&](int timeout) {
    fi_cq_data_entry entry;
    const ssize_t n = fi_cq_sread(pair.a.tx_cq, &entry, 1, nullptr, timeout);
    if (n == 1) ++completed;
    if (n == -FI_EAVAIL) ++failures;
  };
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // A ring of buffers that is larger than what can be in flight.
      std::vector<Message> out(2048);
      for (int i = 0; i < kEach; ++i) {
        Message &message = out[size_t(i) % out.size()];
        message = {t, i, {}};
        memset(message.fill, t * 31 + i, sizeof message.fill);
        ssize_t rc;
        // A full completion queue is a reason for -FI_EAGAIN, too.
        while ((rc = fi_send(pair.a.ep, &message, sizeof message, nullptr, 0, nullptr)) ==
                   -FI_EAGAIN &&
               !deadline.passed())
          complete_one(0);
        if (rc != 0) ++failures;
      }
      while (completed < kTotal && !deadline.passed() && failures == 0) complete_one(20);
    });
  }
  std::mutex order;
  int next[kThreads] = {};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (received < kTotal && !deadline.passed() && failures == 0) {
        // Reading and checking together, so that the order of two readers is that of the queue.
        std::lock_guard guard(order);
        fi_cq_data_entry entry;
        const ssize_t n = fi_cq_read(pair.b.rx_cq, &entry, 1);
        if (n == -FI_EAVAIL) ++failures;
        if (n != 1) continue;
        auto *message = static_cast<Message *>(entry.op_context);
        bool good = entry.len == sizeof *message && message->number == next[message->thread]++;
        for (const uint8_t byte : message->fill)
          good = good && byte == uint8_t(message->thread * 31 + message->number);
        if (!good) ++failures;
        ++received;
        if (fi_recv(pair.b.ep, message, sizeof *message, nullptr, 0, message) != 0) ++failures;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(received, kTotal);
  EXPECT_EQ(completed, kTotal);
}

TEST_P(Threads, BothDirectionsAndRmaAtOnce) {
  Pair pair(options());
  constexpr int kEach = 400;
  std::vector<uint8_t> memory_a = pattern(65536, 1), memory_b = pattern(65536, 2);
  fid_mr *at_a = pair.a.expose(memory_a.data(), memory_a.size(), FI_REMOTE_READ, 1);
  fid_mr *at_b = pair.b.expose(memory_b.data(), memory_b.size(), FI_REMOTE_READ, 2);
  std::atomic<int> failures{0}, running{4};
  const Deadline deadline;
  // The context of each operation is a counter of what is done.
  const auto drain = [&](fid_cq *cq) {
    fi_cq_data_entry entry;
    ssize_t n;
    while ((n = fi_cq_read(cq, &entry, 1)) == 1)
      if (entry.op_context != nullptr) ++*static_cast<std::atomic<int> *>(entry.op_context);
    if (n == -FI_EAVAIL) ++failures;
  };
  const auto reader = [&](Side &me, fid_mr *remote, const std::vector<uint8_t> &expected) {
    std::vector<uint8_t> in(expected.size());
    const uint64_t base = me.base_of(expected.data());
    for (int i = 0; i < kEach && failures == 0; ++i) {
      std::atomic<int> done{0};
      ssize_t rc;
      while ((rc = fi_read(me.ep, in.data(), in.size(), nullptr, 0, base, fi_mr_key(remote),
                           &done)) == -FI_EAGAIN &&
             !deadline.passed())
        drain(me.tx_cq);
      if (rc != 0) ++failures;
      while (done == 0 && failures == 0 && !deadline.passed()) drain(me.tx_cq);
      if (done == 0) {
        ++failures;
        // The buffer is still the library's.
        static std::vector<std::vector<uint8_t>> *lost = new std::vector<std::vector<uint8_t>>;
        lost->push_back(std::move(in));
        break;
      }
      if (in != expected) ++failures;
    }
    --running;
  };
  const auto talker = [&](Side &me, Side &you) {
    for (int i = 0; i < kEach && failures == 0; ++i) {
      std::atomic<int> arrived{0};
      uint64_t in = 0;
      const uint64_t out = uint64_t(i);
      if (fi_recv(you.ep, &in, sizeof in, nullptr, 0, &arrived) != 0) ++failures;
      ssize_t rc;
      while ((rc = fi_inject(me.ep, &out, sizeof out, 0)) == -FI_EAGAIN && !deadline.passed())
        drain(me.tx_cq);
      if (rc != 0) ++failures;
      while (arrived == 0 && failures == 0 && !deadline.passed()) drain(you.rx_cq);
      if (arrived == 0 || in != out) ++failures;
    }
    --running;
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { reader(pair.a, at_b, memory_b); });
  threads.emplace_back([&] { reader(pair.b, at_a, memory_a); });
  threads.emplace_back([&] { talker(pair.a, pair.b); });
  threads.emplace_back([&] { talker(pair.b, pair.a); });
  while (running > 0 && !deadline.passed()) {
    drain(pair.a.tx_cq);
    drain(pair.b.tx_cq);
    std::this_thread::yield();
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  pair.a.regions.clear();
  pair.b.regions.clear();
}

TEST_P(Threads, OpenConnectAndCloseInParallel) {
  constexpr int kThreads = 4, kEach = 12;
  std::atomic<int> good{0};
  std::mutex failures_lock;
  std::string failures;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < kEach; ++i) {
          Pair pair(options());
          char in[8];
          must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
          must(fi_inject(pair.a.ep, "hello", 6, 0));
          if (pair.wait(pair.b.rx_cq).err == 0) ++good;
        }
      } catch (const std::exception &error) {
        std::lock_guard guard(failures_lock);
        failures += std::string(error.what()) + "\n";
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(failures, "");
  EXPECT_EQ(good, kThreads * kEach);
}

TEST_P(Threads, EndpointsOfOneDomainOpenAndCloseUnderTraffic) {
  // One pair exchanges messages all the time; others are opened and closed on the same domains and
  // queues.
  Options o = options();
  Pair pair(o);
  std::atomic<bool> over{false};
  std::atomic<int> failures{0}, exchanged{0};
  std::thread traffic([&] {
    uint64_t out = 0;
    while (!over && failures == 0) {
      uint64_t in = ~out;
      if (fi_recv(pair.b.ep, &in, sizeof in, nullptr, 0, &in) != 0) ++failures;
      const Deadline room;
      ssize_t rc;
      // Places of the queue of a device are free when its completions were looked for.
      while ((rc = fi_inject(pair.a.ep, &out, sizeof out, 0)) == -FI_EAGAIN && !room.passed())
        fi_cq_read(pair.a.tx_cq, nullptr, 0);
      if (rc != 0) ++failures;
      const Deadline deadline;
      fi_cq_data_entry entry;
      ssize_t n;
      while ((n = fi_cq_read(pair.b.rx_cq, &entry, 1)) == -FI_EAGAIN && !deadline.passed()) {
      }
      if (n != 1 || in != out) ++failures;
      ++out;
      ++exchanged;
    }
  });
  const Deadline start;
  while (exchanged == 0 && failures == 0 && !start.passed()) std::this_thread::yield();
  try {
    const std::string address = pair.listener->address();
    for (int i = 0; i < 30; ++i) {
      Handle<fid_ep> caller, answerer;
      const auto make = [](Side &side, fi_info *info, Handle<fid_ep> &ep) {
        must(fi_endpoint(side.domain, info, ep.out(), nullptr));
        must(fi_ep_bind(ep, side.eq.fid(), 0));
        must(fi_ep_bind(ep, side.tx_cq.fid(), FI_TRANSMIT));
        must(fi_ep_bind(ep, side.rx_cq.fid(), FI_RECV));
        must(fi_enable(ep));
      };
      make(pair.a, pair.a.info.get(), caller);
      must(fi_connect(caller, address.data(), nullptr, 0));
      const Event request = next_request(pair.b, {&pair.a, &pair.b});
      make(pair.b, request.info.get(), answerer);
      must(fi_accept(answerer, nullptr, 0));
      EXPECT_EQ(wait_event(pair.a.eq, {&pair.a, &pair.b}).type, uint32_t(FI_CONNECTED));
      EXPECT_EQ(wait_event(pair.b.eq, {&pair.a, &pair.b}).type, uint32_t(FI_CONNECTED));
      caller.reset();
      EXPECT_EQ(wait_event(pair.b.eq, {&pair.a, &pair.b}).type, uint32_t(FI_SHUTDOWN));
    }
  } catch (const std::exception &error) {
    ADD_FAILURE() << error.what();
  }
  over = true;
  traffic.join();
  EXPECT_EQ(failures, 0);
  EXPECT_GT(exchanged, 0);
}

TEST(ThreadDomain, SerializedCallsNeedNoLocks) {
  Options options;
  options.threading = FI_THREAD_DOMAIN;
  Pair pair(options);
  char in[8];
  for (int i = 0; i < 100; ++i) {
    must(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in));
    must(fi_inject(pair.a.ep, "hello", 6, 0));
    EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
  }
}

// An application that posts and then computes: its messages leave although it makes no progress,
// all of them, also after a time in which it made progress at once.
TEST(ProgressManual, SendsPostedBeforeAComputationLeaveBeforeIt) {
  constexpr size_t kBurst = 8;
  Pair pair;
  std::vector<std::array<uint8_t, 64>> in(kBurst), out(kBurst);
  const auto post = [&](uint8_t seed) {
    for (size_t i = 0; i < kBurst; ++i)
      must(fi_recv(pair.b.ep, in[i].data(), 64, nullptr, 0, &in[i]));
    for (size_t i = 0; i < kBurst; ++i) {
      out[i].fill(uint8_t(seed + i));
      must(fi_send(pair.a.ep, out[i].data(), 64, nullptr, 0, &out[i]));
    }
  };
  const auto reap = [&](Side &side, fid_cq *cq) {
    for (size_t i = 0; i < kBurst; ++i) {
      std::optional<Done> done;
      EXPECT_TRUE(until([&] { return (done = poll_cq(cq)).has_value(); }, {&side}));
      EXPECT_EQ(done.value_or(Done{.err = FI_ETIMEDOUT}).err, 0);
    }
  };
  const auto receive = [&] {
    reap(pair.b, pair.b.receive_cq());
    EXPECT_EQ(in, out);
  };
  for (int phase = 0; phase < 3; ++phase) {
    SCOPED_TRACE(phase);
    for (int n = 0; n < 100; ++n) {  // progress follows at once
      post(uint8_t(n));
      reap(pair.a, pair.a.tx_cq);
      receive();
    }
    // The library cannot foresee the first computation.
    post(200);
    const Deadline computing{std::chrono::milliseconds(2)};
    while (!computing.passed()) {
    }
    reap(pair.a, pair.a.tx_cq);
    receive();
    // Now everything must be there without any progress of the sender.
    for (int n = 0; n < 2; ++n) {
      post(uint8_t(100 + n));
      receive();
      const Deadline more{std::chrono::milliseconds(2)};
      while (!more.passed()) {
      }
      reap(pair.a, pair.a.tx_cq);
    }
  }
}

}  // namespace
}  // namespace weft::conformance
