// SPDX-License-Identifier: BSD-2-Clause
// FI_THREAD_SAFE (fi_domain.3): many threads on one endpoint, one queue, one address vector. Every
// build checks that nothing is lost; ThreadSanitizer finds races.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kThreads = 4;

class RdmThreads : public ::testing::TestWithParam<enum fi_progress> {
 protected:
  Options options(uint64_t caps = 0) {
    Options options;
    options.caps |= caps;
    options.threading = FI_THREAD_SAFE;
    options.progress = GetParam();
    return options;
  }
  bool offered(uint64_t caps = 0) {
    const Info info = find_info(options(caps));
    return info && info->domain_attr->data_progress == GetParam();
  }
};
INSTANTIATE_TEST_SUITE_P(Progress, RdmThreads,
                         ::testing::Values(FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO),
                         [](const auto &info) {
                           return std::string(info.param == FI_PROGRESS_AUTO ? "Auto" : "Manual");
                         });
#define THREADS_NEEDED(caps) \
  covers("FI_THREAD_SAFE");  \
  if (!offered(caps)) GTEST_SKIP() << "not offered with this progress"

void run(size_t count, const std::function<void(size_t)> &body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (auto &thread : threads) thread.join();
}

// Senders, receivers and readers of queues at once, each with a tag of its own.
TEST_P(RdmThreads, EveryMessageArrivesOnce) {
  THREADS_NEEDED(0);
  Net net(2, options());
  net.exchange(0, 1);
  constexpr size_t kEach = 60;
  const size_t sizes[] = {8, 300, 20000, 100000};
  std::atomic<size_t> sent{0}, received{0}, bad{0};
  std::vector<std::vector<uint8_t>> in(kThreads * kEach), out(kThreads * kEach);
  for (size_t i = 0; i < in.size(); ++i) {
    out[i] = pattern(sizes[i % 4], unsigned(i));
    in[i].resize(out[i].size());
  }
  const Deadline deadline;
  const auto reap = [&] {
    for (auto [cq, count] :
         {std::pair(net[0].tx_cq.get(), &sent), std::pair(net[1].rx_cq.get(), &received)}) {
      fi_cq_tagged_entry entry;
      const ssize_t n = fi_cq_read(cq, &entry, 1);
      if (n == 1) ++*count;
      if (n == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        fi_cq_readerr(cq, &error, 0);
        ++bad;
      }
    }
  };
  run(kThreads, [&](size_t thread) {
    for (size_t i = thread * kEach; i < (thread + 1) * kEach; ++i) {
      if (fi_trecv(net[1].ep, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, i, 0, &in[i]) !=
          0)
        ++bad;
      while (!deadline.passed()) {
        const ssize_t rc =
            fi_tsend(net[0].ep, out[i].data(), out[i].size(), nullptr, net.at(0, 1), i, &out[i]);
        if (rc == 0) break;
        if (rc != -FI_EAGAIN) ++bad;
        reap();
      }
    }
    while ((sent < in.size() || received < in.size()) && !deadline.passed()) reap();
  });
  EXPECT_EQ(sent, in.size());
  EXPECT_EQ(received, in.size());
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(in, out);
}

// Insert, look up and remove while others send.
TEST_P(RdmThreads, TheAddressVectorChangesUnderTraffic) {
  THREADS_NEEDED(0);
  Net net(2, options());
  Node third(options());
  const std::string name = third.name();
  net.exchange(0, 1);
  std::atomic<bool> stop{false};
  std::atomic<size_t> bad{0};
  std::thread changer([&] {
    while (!stop) {
      fi_addr_t at = FI_ADDR_NOTAVAIL;
      char buffer[64];
      size_t size = sizeof buffer;
      if (insert_address(net[0].av, name, &at, 0, nullptr) != 1) ++bad;
      if (fi_av_lookup(net[0].av, at, buffer, &size) != 0) ++bad;
      if (fi_av_remove(net[0].av, &at, 1, 0) != 0) ++bad;
    }
  });
  for (int i = 0; i < 100; ++i) net.exchange(0, 1, i % 2 ? 8 : 20000);
  stop = true;
  changer.join();
  EXPECT_EQ(bad, 0u);
}

// A thread that cancels races with the message for the same receive: one of them wins.
TEST_P(RdmThreads, CancelRacesWithArrival) {
  THREADS_NEEDED(0);
  Net net(2, options());
  net.exchange(0, 1);
  for (int round = 0; round < 100; ++round) {
    std::vector<uint8_t> out = pattern(64, 1), in(64);
    must(fi_trecv(net[1].ep, in.data(), 64, nullptr, FI_ADDR_UNSPEC, 3, 0, &in));
    std::thread canceller([&] { fi_cancel(net[1].ep.fid(), &in); });
    net.post([&] { return fi_tinject(net[0].ep, out.data(), 64, net.at(0, 1), 3); });
    const Completion got = net.wait(net[1].rx_cq);
    canceller.join();
    EXPECT_EQ(got.context, &in);
    if (got.err == 0) {
      EXPECT_EQ(in, out);
    } else {
      EXPECT_EQ(got.err, FI_ECANCELED);
      must(fi_trecv(net[1].ep, in.data(), 64, nullptr, FI_ADDR_UNSPEC, 3, 0, &in));
      EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    }
  }
}

TEST_P(RdmThreads, RmaFromManyThreads) {
  THREADS_NEEDED(FI_RMA);
  std::vector<std::vector<uint8_t>> out;
  Net net(2, options(FI_RMA));
  constexpr size_t kEach = 50, kSize = 1000;
  std::vector<uint8_t> window(kThreads * kSize);
  fid_mr *region = net[1].expose(window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 1);
  const uint64_t at = net[1].base_of(window.data()), key = fi_mr_key(region);
  net.exchange(0, 1);
  std::atomic<size_t> done{0}, bad{0};
  const Deadline deadline;
  const auto reap = [&] {
    fi_cq_tagged_entry entry;
    const ssize_t n = fi_cq_read(net[0].tx_cq, &entry, 1);
    if (n == 1) ++done;
    if (n == -FI_EAVAIL) ++bad;
    net[1].progress();
  };
  for (size_t i = 0; i < kThreads; ++i) out.push_back(pattern(kSize, unsigned(i)));
  run(kThreads, [&](size_t thread) {
    for (size_t i = 0; i < kEach; ++i) {
      while (fi_write(net[0].ep, out[thread].data(), kSize, nullptr, net.at(0, 1),
                      at + thread * kSize, key, nullptr) != 0 &&
             !deadline.passed())
        reap();
    }
    while (done < kThreads * kEach && bad == 0 && !deadline.passed()) reap();
  });
  EXPECT_EQ(done, kThreads * kEach);
  EXPECT_EQ(bad, 0u);
  for (size_t i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(net.until([&] {
      return std::equal(out[i].begin(), out[i].end(), window.begin() + ptrdiff_t(i * kSize));
    }));
  }
}

// Threads that block on one queue: each completion wakes one of them, and none is lost.
TEST_P(RdmThreads, BlockedReadersShareAQueue) {
  THREADS_NEEDED(0);
  Options wanted = options();
  wanted.rx_cq.wait_obj = FI_WAIT_UNSPEC;
  std::vector<std::thread> readers;
  std::vector<uint8_t> out = pattern(64, 1);
  Net net(2, wanted);
  net.exchange(0, 1);
  constexpr size_t kCount = 200;
  std::vector<std::vector<uint8_t>> in(kCount, std::vector<uint8_t>(64));
  for (auto &buffer : in)
    must(fi_trecv(net[1].ep, buffer.data(), 64, nullptr, FI_ADDR_UNSPEC, 5, 0, &buffer));
  net.set_asleep(1, true);
  std::atomic<size_t> received{0}, ended{0};
  const Deadline deadline;
  for (size_t i = 0; i < kThreads; ++i) {
    readers.emplace_back([&] {
      while (received < kCount && !deadline.passed()) {
        fi_cq_tagged_entry entry;
        if (fi_cq_sread(net[1].rx_cq, &entry, 1, nullptr, 200) == 1) ++received;
      }
      ++ended;
    });
  }
  for (size_t i = 0; i < kCount; ++i)
    net.post([&] { return fi_tinject(net[0].ep, out.data(), 64, net.at(0, 1), 5); });
  EXPECT_TRUE(net.until([&] { return received == kCount; }));
  while (ended < kThreads) {  // those that still wait for another one
    fi_cq_signal(net[1].rx_cq);
    std::this_thread::yield();
  }
  for (auto &reader : readers) reader.join();
  for (auto &buffer : in) EXPECT_EQ(buffer, out);
}

}  // namespace
}  // namespace weft::conformance::rdm
