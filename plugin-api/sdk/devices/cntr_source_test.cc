// SPDX-License-Identifier: BSD-2-Clause
// A counter that a device keeps, or raises, too.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "plugin-api/sdk/testing/test_instance.h"
#include "weft/sdk/devices/cntr_source.h"
#include "weft/sdk/objects/cntr.h"

namespace weft::sdk {
namespace {

// Its channel is written once after it was armed.
struct CountingDevice {
  CountingDevice() : channel(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~CountingDevice() { ::close(channel); }
  void count(uint64_t successes, uint64_t failures = 0) {
    value += successes;
    errors += failures;
    if (!armed.exchange(false)) return;
    const uint64_t one = 1;
    EXPECT_EQ(::write(channel, &one, sizeof one), ssize_t(sizeof one));
  }

  std::atomic<uint64_t> value{0}, errors{0};
  std::atomic<bool> armed{false};
  bool closed = false;
  int channel;
};

class CountingSource final : public CntrSource {
 public:
  explicit CountingSource(CountingDevice &device) : device_(device) {}
  ~CountingSource() override { device_.closed = true; }
  uint64_t value() override { return looked_ = device_.value.load(); }
  uint64_t errors() override { return device_.errors; }
  void set(uint64_t value) override { device_.value = value; }
  void set_errors(uint64_t errors) override { device_.errors = errors; }
  int wait_fd() override { return device_.channel; }
  bool arm() override {
    uint64_t count;
    if (::read(device_.channel, &count, sizeof count) < 0) {
      EXPECT_EQ(errno, EAGAIN);
    }
    device_.armed = true;
    return device_.value == looked_;
  }

 private:
  CountingDevice &device_;
  std::atomic<uint64_t> looked_{0};
};

struct DeviceCounter {
  explicit DeviceCounter(enum fi_wait_obj wait = FI_WAIT_FD) {
    fi_cntr_attr attr{};
    attr.wait_obj = wait;
    auto opened =
        Cntr::open(domain.context, &attr, ctx(1), std::make_unique<CountingSource>(device), true);
    EXPECT_TRUE(opened) << (opened ? "" : opened.error().text);
    cntr = opened ? *opened : nullptr;
  }
  ~DeviceCounter() {
    EXPECT_EQ(fi_close(cntr->base()), 0);
    EXPECT_TRUE(device.closed);
  }

  TestDomain domain;
  CountingDevice device;
  Cntr *cntr;
};

TEST(CntrSource, IsReadWhereItIs) {
  DeviceCounter counter;
  counter.device.count(3, 1);
  Guard domain_is_held(counter.domain.engine.lock());
  Guard counter_is_held(counter.cntr->engine().lock());  // a read that locked would wait for ever
  EXPECT_EQ(fi_cntr_read(counter.cntr->c()), 3u);
  EXPECT_EQ(fi_cntr_readerr(counter.cntr->c()), 1u);
}

TEST(CntrSource, IsSetInTheDevice) {
  DeviceCounter counter;
  counter.device.count(3, 1);
  EXPECT_EQ(fi_cntr_add(counter.cntr->c(), 4), 0);
  EXPECT_EQ(fi_cntr_adderr(counter.cntr->c(), 1), 0);
  EXPECT_EQ(counter.device.value, 7u);
  EXPECT_EQ(counter.device.errors, 2u);
  EXPECT_EQ(fi_cntr_set(counter.cntr->c(), 1), 0);
  EXPECT_EQ(fi_cntr_seterr(counter.cntr->c(), 0), 0);
  EXPECT_EQ(fi_cntr_read(counter.cntr->c()), 1u);
  EXPECT_EQ(fi_cntr_readerr(counter.cntr->c()), 0u);
}

TEST(CntrSource, AThreadWaitsForAThreshold) {
  DeviceCounter counter;
  for (uint64_t i = 1; i <= 100; ++i) {
    int rc = -1;
    Sleeper sleeper([&] { rc = fi_cntr_wait(counter.cntr->c(), 2 * i, kPatienceMs); });
    if (i % 4 == 0) {
      EXPECT_TRUE(sleeper.eventually_asleep());
    }
    counter.device.count(1);
    counter.device.count(1);
    sleeper.join();
    EXPECT_EQ(rc, 0);
  }
  EXPECT_EQ(fi_cntr_wait(counter.cntr->c(), 1000, 10), -FI_ETIMEDOUT);
}

TEST(CntrSource, AnErrorEndsAWait) {
  DeviceCounter counter;
  int rc = 0;
  Sleeper sleeper([&] { rc = fi_cntr_wait(counter.cntr->c(), 5, kPatienceMs); });
  EXPECT_TRUE(sleeper.eventually_asleep());
  counter.device.count(0, 1);
  sleeper.join();
  EXPECT_EQ(rc, -FI_EAVAIL);
}

TEST(CntrSource, ItsDescriptorIsReadableWithAChange) {
  DeviceCounter counter;
  int fd = -1;
  ASSERT_EQ(fi_control(counter.cntr->base(), FI_GETWAIT, &fd), 0);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(counter.cntr->trywait(), 0);
    pollfd p{fd, POLLIN, 0};
    EXPECT_EQ(::poll(&p, 1, 0), 0);
    counter.device.count(1);
    EXPECT_EQ(::poll(&p, 1, kPatienceMs), 1);
    EXPECT_EQ(counter.cntr->trywait(), -FI_EAGAIN);
  }
}

TEST(CntrSource, APollSetSeesAChangeOnce) {
  DeviceCounter counter;
  EXPECT_FALSE(counter.cntr->poll());
  counter.device.count(0, 1);
  EXPECT_TRUE(counter.cntr->poll());
  EXPECT_FALSE(counter.cntr->poll());
}

// The device counts one of each whenever somebody has looked.
class BusyStore final : public CntrStore {
 public:
  explicit BusyStore(uint64_t &looks) : looks_(looks) {}
  uint64_t value() override { return look(value_); }
  uint64_t errors() override { return look(errors_); }
  void set(uint64_t value) override { value_ = value; }
  void set_errors(uint64_t errors) override { errors_ = errors; }
  void count(uint64_t amount) override { value_ += amount; }
  void count_errors(uint64_t amount) override { errors_ += amount; }

 private:
  uint64_t look(uint64_t which) {
    ++looks_, ++value_, ++errors_;
    return which;
  }
  uint64_t &looks_, value_ = 0, errors_ = 0;
};

TEST(CntrStore, WhatIsCountedWhileAnApplicationAddsIsNotLost) {
  TestDomain domain;
  uint64_t looks = 0;
  auto opened = Cntr::open(domain.context, nullptr, ctx(1), std::make_unique<BusyStore>(looks));
  ASSERT_TRUE(opened);
  fid_cntr *const counter = (*opened)->c();
  for (uint64_t added = 0; added != 50; added += 10) {
    const uint64_t counted = looks;
    EXPECT_EQ(fi_cntr_read(counter), added + counted);
    EXPECT_EQ(fi_cntr_readerr(counter), added + counted + 1);
    EXPECT_EQ(fi_cntr_add(counter, 10), 0);
    EXPECT_EQ(fi_cntr_adderr(counter, 10), 0);
  }
  EXPECT_EQ(fi_close((*opened)->base()), 0);
}

}  // namespace
}  // namespace weft::sdk
