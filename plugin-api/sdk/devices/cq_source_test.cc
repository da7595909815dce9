// SPDX-License-Identifier: BSD-2-Clause
// A completion queue whose entries a device makes.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "plugin-api/sdk/testing/test_cq.h"
#include "weft/sdk/devices/cq_source.h"
#include "weft/sdk/objects/sets.h"

namespace weft::sdk {
namespace {

// A device: finished operations are numbers, of which the negative ones failed. Its channel is
// written once after it was armed, as that of ibv_req_notify_cq(3) is.
struct FakeDevice {
  FakeDevice() : channel(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~FakeDevice() { ::close(channel); }
  void finish(long number) {
    std::lock_guard guard(mutex);
    done.push_back(number);
    if (!std::exchange(armed, false)) return;
    const uint64_t one = 1;
    EXPECT_EQ(::write(channel, &one, sizeof one), ssize_t(sizeof one));
  }

  std::mutex mutex;
  std::deque<long> done;
  bool armed = false;
  bool closed = false;
  size_t at_once = 1;  // that one look takes off
  int channel;
};

class FakeSource final : public CqSource {
 public:
  explicit FakeSource(FakeDevice &device) : device_(device) {}
  ~FakeSource() override { device_.closed = true; }
  void read(CqWriter &out) override {
    std::lock_guard guard(device_.mutex);
    while (out.room() != 0 && !device_.done.empty()) {
      for (size_t i = 0; i < device_.at_once && !device_.done.empty(); ++i) {
        const long number = device_.done.front();
        device_.done.pop_front();
        if (number >= 0) {
          out.put({.context = ctx(size_t(number)), .flags = FI_SEND | FI_MSG, .len = 8});
        } else {
          out.put_error({.context = ctx(size_t(-number)), .err = FI_EIO, .prov_errno = 12});
        }
      }
    }
  }
  int wait_fd() override { return device_.channel; }
  bool arm() override {
    std::lock_guard guard(device_.mutex);
    uint64_t count;
    if (::read(device_.channel, &count, sizeof count) < 0) {
      EXPECT_EQ(errno, EAGAIN);
    }
    device_.armed = true;
    return device_.done.empty();
  }
  const char *text_of(int prov_errno) const override {
    return prov_errno == 12 ? "transport retry counter exceeded" : nullptr;
  }

 private:
  FakeDevice &device_;
};

struct DeviceQueue {
  explicit DeviceQueue(const fi_cq_attr &attr = cq_attr(FI_WAIT_FD), bool managed = true) {
    domain.context.resource_management = managed;
    auto opened =
        Cq::open(domain.context, &attr, ctx(1), std::make_unique<FakeSource>(device), true);
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().text);
    cq = opened ? *opened : nullptr;
  }
  ~DeviceQueue() {
    EXPECT_EQ(fi_close(cq->base()), 0);
    EXPECT_TRUE(device.closed);
  }
  long next() {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(cq->c(), &entry, 1);
    if (n == 1) return long(reinterpret_cast<size_t>(entry.op_context));
    if (n != -FI_EAVAIL) return -1000 + n;
    fi_cq_err_entry error{};
    EXPECT_EQ(fi_cq_readerr(cq->c(), &error, 0), 1);
    EXPECT_EQ(error.err, FI_EIO);
    return -long(reinterpret_cast<size_t>(error.op_context));
  }

  TestDomain domain;
  FakeDevice device;
  Cq *cq;
};

constexpr long kNothing = -1000 - FI_EAGAIN;

TEST(CqSource, IsReadStraightIntoTheEntries) {
  DeviceQueue queue;
  for (long i = 1; i <= 5; ++i) queue.device.finish(i);
  fi_cq_tagged_entry entries[3] = {};
  fi_addr_t sources[3] = {1, 1, 1};
  ASSERT_EQ(fi_cq_readfrom(queue.cq->c(), entries, 3, sources), 3);
  EXPECT_EQ(entries[2].op_context, ctx(3));
  EXPECT_EQ(entries[2].flags, uint64_t(FI_SEND | FI_MSG));
  EXPECT_EQ(entries[2].len, 8u);
  EXPECT_EQ(sources[2], FI_ADDR_NOTAVAIL);
  EXPECT_EQ(queue.device.done.size(), 2u) << "what was not asked for stays in the device";
  EXPECT_EQ(fi_cq_read(queue.cq->c(), nullptr, 1), -FI_EINVAL);
  EXPECT_EQ(queue.next(), 4);
  EXPECT_EQ(queue.next(), 5);
  EXPECT_EQ(queue.next(), kNothing);
}

TEST(CqSource, TouchesNothingOfTheDomain) {
  DeviceQueue queue;
  EXPECT_NE(&queue.cq->engine(), &queue.domain.engine);
  queue.device.finish(1);
  Guard held(queue.domain.engine.lock());  // another thread would wait for ever
  EXPECT_EQ(queue.next(), 1);
}

TEST(CqSource, AnErrorKeepsItsPlace) {
  DeviceQueue queue;
  queue.device.at_once = 4;
  for (const long number : {1, -2, 3, 4}) queue.device.finish(number);
  fi_cq_tagged_entry entries[4] = {};
  ASSERT_EQ(fi_cq_read(queue.cq->c(), entries, 4), 1);
  queue.device.finish(5);
  EXPECT_EQ(fi_cq_read(queue.cq->c(), entries, 4), -FI_EAVAIL);
  EXPECT_EQ(queue.next(), -2);
  EXPECT_EQ(queue.next(), 3);
  EXPECT_EQ(queue.next(), 4);
  EXPECT_EQ(queue.next(), 5);
  EXPECT_EQ(queue.next(), kNothing);
}

TEST(CqSource, AnErrorAloneIsSaidAtOnce) {
  DeviceQueue queue;
  queue.device.finish(-7);
  EXPECT_EQ(queue.next(), -7);
  EXPECT_EQ(queue.next(), kNothing);
}

TEST(CqSource, NothingIsLostOfWhatWasNotAskedFor) {
  DeviceQueue queue;
  queue.device.at_once = 8;
  for (long i = 1; i <= 8; ++i) queue.device.finish(i);
  for (long i = 1; i <= 8; ++i) EXPECT_EQ(queue.next(), i);
  EXPECT_EQ(queue.next(), kNothing);
}

TEST(CqSource, EntriesOfSoftwareComeFirst) {
  DeviceQueue queue;
  queue.device.finish(2);
  {
    Guard guard(queue.cq->engine().lock());
    queue.cq->push({.context = ctx(1), .flags = FI_SEND | FI_MSG});
  }
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.next(), 2);
}

TEST(CqSource, ItsErrorsHaveTheTextOfTheDevice) {
  DeviceQueue queue;
  char text[64] = {};
  EXPECT_STREQ(fi_cq_strerror(queue.cq->c(), 12, nullptr, text, sizeof text),
               "transport retry counter exceeded");
  EXPECT_STREQ(text, "transport retry counter exceeded");
  EXPECT_STREQ(fi_cq_strerror(queue.cq->c(), FI_ETRUNC, nullptr, text, sizeof text),
               "message truncated: longer than the posted buffer");
}

TEST(CqSource, ABlockedThreadWakesWithTheChannel) {
  DeviceQueue queue;
  for (long i = 1; i <= 200; ++i) {
    long got = 0;
    Sleeper sleeper([&] {
      fi_cq_tagged_entry entry{};
      if (fi_cq_sread(queue.cq->c(), &entry, 1, nullptr, kPatienceMs) == 1)
        got = long(reinterpret_cast<size_t>(entry.op_context));
    });
    if (i % 4 == 0) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    queue.device.finish(i);
    sleeper.join();
    EXPECT_EQ(got, i);
  }
}

TEST(CqSource, ItsDescriptorIsReadableWithACompletion) {
  DeviceQueue queue;
  int fd = -1;
  ASSERT_EQ(fi_control(queue.cq->base(), FI_GETWAIT, &fd), 0);
  for (long i = 1; i <= 20; ++i) {
    ASSERT_EQ(queue.cq->trywait(), 0);
    pollfd p{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&p, 1, 0), 0);
    queue.device.finish(i);
    EXPECT_EQ(::poll(&p, 1, kPatienceMs), 1);
    EXPECT_EQ(queue.cq->trywait(), -FI_EAGAIN);
    EXPECT_EQ(queue.next(), i);
  }
}

// The device has finished between the last look and the arming: its channel says nothing of that.
TEST(CqSource, WhatFinishesBeforeTheArmingIsSeen) {
  DeviceQueue queue;
  queue.device.finish(1);
  EXPECT_EQ(queue.cq->trywait(), -FI_EAGAIN);
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.cq->trywait(), 0);
}

TEST(CqSource, APollSetSeesIt) {
  DeviceQueue queue;
  EXPECT_FALSE(queue.cq->poll());
  queue.device.finish(3);
  EXPECT_TRUE(queue.cq->poll());
  EXPECT_EQ(queue.next(), 3);
}

TEST(CqSource, WhatAThresholdCollectsComesOutInOrder) {
  DeviceQueue queue(cq_threshold_attr());
  for (long i = 1; i <= 100; ++i) queue.device.finish(i);
  fi_cq_tagged_entry entries[10] = {};
  ASSERT_EQ(fi_cq_sread(queue.cq->c(), entries, 10, ctx(10), kPatienceMs), 10);
  EXPECT_EQ(entries[9].op_context, ctx(10));
  for (long i = 11; i <= 100; ++i) EXPECT_EQ(queue.next(), i);
  EXPECT_EQ(queue.next(), kNothing);
}

// The device has accepted what it gives: there is no entry that may be dropped, also where a queue
// of the SDK's own would overrun.
TEST(CqSource, NothingOverrunsWithoutResourceManagement) {
  for (const size_t size : {1, 2, 5}) {
    for (const size_t at_once : {1, 8, 64}) {
      DeviceQueue queue(cq_attr(FI_WAIT_FD, size), /*managed=*/false);
      queue.device.at_once = at_once;
      std::vector<long> want, got;
      for (long i = 1; i <= 200; ++i) {
        want.push_back(i % 7 == 3 ? -i : i);
        queue.device.finish(want.back());
        if (i % 50 == 0) queue.cq->poll();  // collects
      }
      for (long number; (number = queue.next()) != kNothing && got.size() <= want.size();)
        got.push_back(number);
      EXPECT_EQ(got, want) << "size " << size << ", " << at_once << " at once";
    }
  }
}

// Whoever only waits, and does not read, cannot make the ring grow.
TEST(CqSource, WhatNobodyReadsStaysInTheDevice) {
  for (const auto &attr : {cq_attr(FI_WAIT_FD, 4), cq_threshold_attr()}) {
    DeviceQueue queue(attr);
    constexpr long kCount = 5000;
    for (long i = 1; i <= kCount; ++i) queue.device.finish(i);
    for (int i = 0; i < 200; ++i) {
      queue.cq->poll();
      queue.cq->trywait();
      Guard guard(queue.cq->engine().lock());
      queue.cq->engine().progress();  // as another waiter, or a thread, does
    }
    const size_t most = attr.size != 0 ? attr.size : queue.domain.context.default_cq_size;
    EXPECT_GE(queue.device.done.size(), size_t(kCount) - most);
    for (long i = 1; i <= kCount; ++i) ASSERT_EQ(queue.next(), i);
    EXPECT_EQ(queue.next(), kNothing);
  }
}

// A thread reads, another one waits: all that the device finishes comes out once.
TEST(CqSource, TwoThreadsTakeEachEntryOnce) {
  DeviceQueue queue(cq_attr(FI_WAIT_FD, 8));
  constexpr long kCount = 2000;
  std::atomic<long> left{kCount};
  std::vector<std::atomic<int>> taken(kCount + 1);
  const auto take = [&](const fi_cq_tagged_entry *entries, ssize_t n) {
    for (ssize_t i = 0; i < n; ++i) ++taken[reinterpret_cast<size_t>(entries[i].op_context)];
    if (n > 0) left -= n;
  };
  std::thread spinner([&] {
    fi_cq_tagged_entry entries[3];
    while (left > 0) {
      take(entries, fi_cq_read(queue.cq->c(), entries, 3));
      sched_yield();
    }
    fi_cq_signal(queue.cq->c());
  });
  std::thread waiter([&] {
    fi_cq_tagged_entry entries[2];
    while (left > 0) take(entries, fi_cq_sread(queue.cq->c(), entries, 2, nullptr, kPatienceMs));
  });
  for (long i = 1; i <= kCount; ++i) queue.device.finish(i);
  spinner.join();
  waiter.join();
  EXPECT_EQ(left, 0);
  for (long i = 1; i <= kCount; ++i) ASSERT_EQ(taken[size_t(i)], 1) << i;
}

}  // namespace
}  // namespace weft::sdk
