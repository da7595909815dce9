// SPDX-License-Identifier: BSD-2-Clause
// Progress (fi_domain.3): with FI_PROGRESS_AUTO a peer that never calls the library completes what
// others began; with FI_PROGRESS_MANUAL its own calls are enough.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "tests/conformance/process.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

class RdmAuto : public ::testing::Test {
 protected:
  static Options automatic(uint64_t caps = 0) {
    Options options;
    options.caps |= caps;
    options.progress = FI_PROGRESS_AUTO;
    return options;
  }
  static bool offered(uint64_t caps = 0) {
    const Info info = find_info(automatic(caps));
    return info && info->domain_attr->data_progress == FI_PROGRESS_AUTO &&
           info->domain_attr->control_progress == FI_PROGRESS_AUTO;
  }
};
#define AUTO_NEEDED(caps)                                                  \
  do {                                                                     \
    covers("FI_PROGRESS_AUTO");                                            \
    if (!offered(caps)) GTEST_SKIP() << "FI_PROGRESS_AUTO is not offered"; \
  } while (0)

TEST_F(RdmAuto, AReceiverThatNeverPollsGetsItsMessage) {
  AUTO_NEEDED(0);
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    Options options = automatic();
    options.tx_op_flags = FI_DELIVERY_COMPLETE;
    Net net(2, options);
    net.set_asleep(1, true);  // already before the connection
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    must(fi_trecv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    net.post([&] { return fi_tsend(net[0].ep, out.data(), size, nullptr, net.at(0, 1), 1, &out); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);  // it has been delivered
    net.set_asleep(1, false);
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(in, out);
  }
}

TEST_F(RdmAuto, ASenderThatNeverPollsGetsItsMessageOut) {
  AUTO_NEEDED(0);
  Net net(2, automatic());
  net.exchange(0, 1);
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    net.post([&] { return fi_tsend(net[0].ep, out.data(), size, nullptr, net.at(0, 1), 1, &out); });
    net.set_asleep(0, true);
    must(fi_trecv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(in, out);
    net.set_asleep(0, false);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
}

TEST_F(RdmAuto, ATargetThatNeverPollsServesRma) {
  AUTO_NEEDED(FI_RMA);
  Options options = automatic(FI_RMA);
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  if (!find_info(options)) GTEST_SKIP() << "no FI_DELIVERY_COMPLETE";
  std::vector<uint8_t> window(200000), in(200000);  // outlive the thread that reads them
  Net net(2, options);
  fid_mr *region = net[1].expose(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
  const uint64_t at = net[1].base_of(window.data()), key = fi_mr_key(region);
  net.set_asleep(1, true);
  for (size_t size : {8, 20000, 200000}) {
    std::vector<uint8_t> out = pattern(size, 1);
    net.post([&] {
      return fi_write(net[0].ep, out.data(), size, nullptr, net.at(0, 1), at, key, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);  // it has been delivered
    net.post([&] {
      return fi_read(net[0].ep, in.data(), size, nullptr, net.at(0, 1), at, key, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
  }
}

TEST_F(RdmAuto, ATargetThatNeverPollsServesAtomics) {
  AUTO_NEEDED(FI_ATOMIC);
  uint64_t word = 0, one = 1, old = 9;
  Net net(2, automatic(FI_ATOMIC | FI_RMA));
  fid_mr *region = net[1].expose(&word, 8, FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
  net.set_asleep(1, true);
  for (uint64_t i = 0; i < 10; ++i) {
    net.post([&] {
      return fi_fetch_atomic(net[0].ep, &one, 1, nullptr, &old, nullptr, net.at(0, 1),
                             net[1].base_of(&word), fi_mr_key(region), FI_UINT64, FI_SUM, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(old, i);
  }
}

// Two processes that call nothing but what writes, and look at their memory: how one-sided programs
// synchronise. Each waits for the other's last write before it writes.
class Spinner {
 public:
  Spinner(int socket, const Options &options) : net_(1, options) {
    region_ = net_[0].expose(words_, sizeof words_, FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
    tell_text(socket, net_[0].name());
    tell(socket, net_[0].base_of(words_));
    tell(socket, fi_mr_key(region_));
    peer_ = net_[0].insert(hear_text(socket));
    at_ = hear(socket);
    key_ = hear(socket);
  }
  // The peer's word `i` changes by one of these; nobody reads a completion.
  void change(size_t i, uint64_t value) {
    const uint64_t at = at_ + 8 * i, one = 1;
    fid_ep *const ep = net_[0].ep;
    const Deadline deadline;
    ssize_t rc = -FI_EAGAIN;
    out_[i] = value;
    while (rc == -FI_EAGAIN && !deadline.passed()) switch (i) {
        case 0:
          rc = fi_inject_write(ep, &value, 8, peer_, at, key_);
          break;
        case 1:
          rc = fi_write(ep, &out_[1], 8, nullptr, peer_, at, key_, nullptr);
          break;
        case 2:
          rc = fi_inject_atomic(ep, &one, 1, peer_, at, key_, FI_UINT64, FI_SUM);
          break;
        default:
          rc = fi_atomic(ep, &one_, 1, nullptr, peer_, at, key_, FI_UINT64, FI_SUM, nullptr);
      }
    must(int(rc));
  }
  bool sees(size_t i, uint64_t value) {
    const Deadline deadline;
    while (std::atomic_ref(words_[i]).load() != value) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  uint64_t words_[4] = {}, out_[4] = {}, one_ = 1;
  Net net_;
  fid_mr *region_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_NOTAVAIL;
  uint64_t at_ = 0, key_ = 0;
};

// ThreadSanitizer takes what such a program is for to be a race: a thread of the library writes to
// memory that the program reads.
#define NEEDS_LOOKS_AT_MEMORY()                              \
  do {                                                       \
    if (sdk::kSanitizer == sdk::Sanitizer::kThread)          \
      GTEST_SKIP() << "memory that somebody else writes to"; \
  } while (0)

void spin(const Options &options, size_t kinds) {
  constexpr uint64_t kRounds = 20;
  Child child([&](int socket) {
    Spinner spinner(socket, options);
    for (uint64_t n = 1; n <= kRounds; ++n)
      for (size_t i = 0; i < kinds; ++i) {
        if (!spinner.sees(i, n)) throw std::runtime_error("the word does not change");
        spinner.change(i, n);
      }
    hear(socket);
  });
  Spinner spinner(child.socket(), options);
  for (uint64_t n = 1; n <= kRounds; ++n)
    for (size_t i = 0; i < kinds; ++i) {
      spinner.change(i, n);
      ASSERT_TRUE(spinner.sees(i, n)) << "round " << n << ", kind " << i;
    }
  tell(child.socket(), 1);
  child.join();
}

TEST_F(RdmAuto, ProcessesThatOnlyLookAtTheirMemorySeeWhatIsWritten) {
  NEEDS_PROCESSES();
  NEEDS_LOOKS_AT_MEMORY();
  if (!is_fresh_process()) AUTO_NEEDED(FI_RMA);
  if (!in_fresh_process()) return;
  spin(automatic(FI_RMA), 2);
}

TEST_F(RdmAuto, ProcessesThatOnlyLookAtTheirMemorySeeAtomics) {
  NEEDS_PROCESSES();
  NEEDS_LOOKS_AT_MEMORY();
  if (!is_fresh_process()) AUTO_NEEDED(FI_RMA | FI_ATOMIC);
  if (!in_fresh_process()) return;
  spin(automatic(FI_RMA | FI_ATOMIC), 4);
}

TEST_F(RdmAuto, AnIdleProcessUsesNoTime) {
  AUTO_NEEDED(0);
  covers("idle");
  Net net(3, automatic());
  net.exchange(0, 1);
  net.exchange(1, 2, 100000);
  net.settle();
  constexpr auto kLimit = std::chrono::milliseconds(25);
  long wakeups = 0;
  const auto wait = [&] {
    rusage before{}, after{};
    getrusage(RUSAGE_SELF, &before);
    std::this_thread::sleep_for(4 * kLimit);
    getrusage(RUSAGE_SELF, &after);
    wakeups = after.ru_nvcsw - before.ru_nvcsw;
  };
  EXPECT_LT(cpu_time_of(kLimit, wait), kLimit);
  EXPECT_LT(wakeups, 75) << "in 100 ms, of all threads";
}

TEST(RdmManual, CallsOfTheApplicationAreEnough) {
  covers("FI_PROGRESS_MANUAL");
  Options options;
  options.progress = FI_PROGRESS_MANUAL;
  Net net(2, options);
  for (size_t size : edges()) net.exchange(0, 1, size);
}

// A NIC writes to memory by itself, and carries out what it was given.
TEST(RdmManual, ANicNeedsNoCalls) {
  covers("FI_PROGRESS_MANUAL");
  NEEDS_LOOKS_AT_MEMORY();
  if (!is_fresh_process() && !is_matched_by_a_nic(FI_EP_RDM))
    GTEST_SKIP() << stack() << " is software";
  const char *const thread = std::getenv("FI_CXI_SOFT_THREAD");
  if (thread != nullptr && std::strcmp(thread, "0") == 0)
    GTEST_SKIP() << "this NIC is served by the program's calls alone";
  Options options;
  options.caps |= FI_RMA | FI_ATOMIC;
  options.progress = FI_PROGRESS_MANUAL;
  if (!in_fresh_process()) return;
  spin(options, 4);
}

TEST(RdmManual, OneThreadPerDomainNeedsNoMore) {
  covers("FI_THREAD_DOMAIN");
  Options options;
  options.threading = FI_THREAD_DOMAIN;
  Net net(3, options);
  for (size_t size : edges()) {
    net.exchange(0, 1, size);
    net.exchange(1, 2, size);
  }
}

// Reading any queue of the endpoint makes progress for all of it.
TEST(RdmManual, EitherQueueMakesProgress) {
  covers("FI_PROGRESS_MANUAL");
  Options options;
  options.progress = FI_PROGRESS_MANUAL;
  Net net(2, options);
  net.exchange(0, 1);
  net.set_asleep(0, true);
  net.set_asleep(1, true);
  for (size_t size : {8, 20000, 200000}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    must(fi_trecv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    std::optional<Completion> sent;
    net.post([&] { return fi_tsend(net[0].ep, out.data(), size, nullptr, net.at(0, 1), 1, &out); });
    EXPECT_TRUE(net.until([&] {
      fi_cq_read(net[1].tx_cq, nullptr, 0);  // not the one that gets the completion
      if (!sent) sent = poll(net[0].tx_cq);
      return sent && in == out;
    }));
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  }
}

TEST(RdmManual, CountersMakeProgress) {
  covers("FI_PROGRESS_MANUAL");
  Options options;
  options.progress = FI_PROGRESS_MANUAL;
  fid_cntr *counters[2];
  int i = 0;
  std::vector<uint8_t> out = pattern(30000, 1), in(30000);
  Net net(2, options, [&](Node &node) { counters[i++] = node.count(FI_RECV | FI_SEND); });
  net.set_asleep(0, true);
  net.set_asleep(1, true);
  must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  const auto both = [&] { return fi_cntr_read(counters[0]) + fi_cntr_read(counters[1]); };
  net.post([&] {
    both();
    return fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), 1, &out);
  });
  EXPECT_TRUE(net.until([&] { return both() == 2; }));
  EXPECT_EQ(in, out);
}

// An application that posts and then computes: its messages leave although it makes no progress,
// all of them, also after a time in which it made progress at once.
TEST(RdmManual, SendsPostedBeforeAComputationLeaveBeforeIt) {
  covers("FI_PROGRESS_MANUAL");
  constexpr size_t kBurst = 8;
  Options options;
  options.progress = FI_PROGRESS_MANUAL;
  std::vector<std::array<uint8_t, 64>> in(kBurst), out(kBurst);
  Net net(2, options);
  net.exchange(0, 1);
  const auto post = [&](uint64_t seed) {
    for (size_t i = 0; i < kBurst; ++i)
      must(fi_trecv(net[1].ep, in[i].data(), 64, nullptr, FI_ADDR_UNSPEC, seed, 0, &in[i]));
    for (size_t i = 0; i < kBurst; ++i) {
      out[i].fill(uint8_t(seed + i));
      must(fi_tsend(net[0].ep, out[i].data(), 64, nullptr, net.at(0, 1), seed, &out[i]));
    }
  };
  const auto receive = [&] {
    for (size_t i = 0; i < kBurst; ++i) EXPECT_EQ(net.wait(net[1].receive_cq()).err, 0);
    EXPECT_EQ(in, out);
  };
  const auto end = [&] {
    for (size_t i = 0; i < kBurst; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  };
  for (int phase = 0; phase < 3; ++phase) {
    SCOPED_TRACE(phase);
    for (uint64_t n = 0; n < 100; ++n) {  // progress follows at once
      post(n);
      net[0].progress();
      receive();
      end();
    }
    // The library cannot foresee the first computation.
    post(200);
    const Deadline computing{std::chrono::milliseconds(2)};
    while (!computing.passed()) {
    }
    end();
    receive();
    // Now everything must be there without any progress of the sender.
    for (uint64_t n = 201; n < 203; ++n) {
      post(n);
      net.set_asleep(0, true);
      receive();
      const Deadline more{std::chrono::milliseconds(2)};
      while (!more.passed()) {
      }
      net.set_asleep(0, false);
      end();
    }
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
