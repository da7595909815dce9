// SPDX-License-Identifier: BSD-2-Clause
// A thread that finds nothing many times in a row leaves the processor to others. This program has
// a sched_yield() of its own, which counts, and a clock that it alone moves while reads are
// counted.
#include <gtest/gtest.h>
#include <rdma/fi_eq.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <memory>

#include "plugin-api/sdk/testing/test_cq.h"
#include "plugin-api/sdk/testing/test_eq.h"
#include "weft/sdk/devices/cntr_source.h"
#include "weft/sdk/devices/cq_source.h"
#include "weft/sdk/layers/carrier.h"
#include "weft/sdk/objects/cntr.h"
#include "weft/sdk/objects/domain.h"
#include "weft/sdk/objects/ops.h"
#include "weft/sdk/objects/sets.h"

namespace weft::sdk::give_way_test {
namespace {

thread_local int yields = 0;
thread_local Lock *must_be_free = nullptr;  // while a thread gives way
thread_local uint64_t clock_ns = 0;         // 0: the kernel's clock
thread_local uint64_t yield_ns = 0;         // what a yield takes by that clock

constexpr uint64_t kAlone = Turn::kSwitchNs - 1, kShared = Turn::kSwitchNs;

void on_yield() {
  ++yields;
  if (clock_ns != 0) clock_ns += yield_ns;
  if (must_be_free == nullptr) return;
  EXPECT_TRUE(must_be_free->try_lock()) << "others may need it to send what this thread waits for";
  must_be_free->unlock();
}

int yields_of(const std::function<void()> &read, unsigned times, uint64_t takes_ns = kAlone) {
  const int before = yields;
  clock_ns = 1;
  yield_ns = takes_ns;
  for (unsigned i = 0; i < times; ++i) read();
  clock_ns = 0;
  return yields - before;
}

constexpr unsigned kTurn = Engine::kReadsOfATurn;

// A reader that finds nothing gives way once a turn, and sooner where others give the processor
// back.
void expect_turns(const std::function<void()> &read, unsigned turn = kTurn) {
  EXPECT_EQ(yields_of(read, turn - 1), 0);
  EXPECT_EQ(yields_of(read, 1), 1);
  EXPECT_EQ(yields_of(read, 2 * turn - 1), 1);
  EXPECT_EQ(yields_of(read, 1, kShared), 1);
  EXPECT_EQ(yields_of(read, turn / 2 - 1), 0);
  EXPECT_EQ(yields_of(read, 1, kAlone), 1);
  EXPECT_EQ(yields_of(read, turn - 1), 0);
  EXPECT_EQ(yields_of(read, 1), 1);
}

struct FreeLock {
  explicit FreeLock(Lock &lock) { must_be_free = &lock; }
  ~FreeLock() { must_be_free = nullptr; }
};

TEST(GiveWay, WhoReadsAnEmptyCompletionQueue) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
  const FreeLock free(domain.engine.lock());
  expect_turns([&] { EXPECT_EQ(queue.next(), -FI_EAGAIN); });
  fi_cq_tagged_entry entry{};
  fi_addr_t source = 0;
  expect_turns([&] { EXPECT_EQ(fi_cq_readfrom(queue.c(), &entry, 1, &source), -FI_EAGAIN); });
}

TEST(GiveWay, NobodyWhoFindsSomethingNowAndThen) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
  const auto read_most_of_a_turn = [&] { (void)queue.next(); };
  for (size_t i = 1; i <= 4; ++i) {
    EXPECT_EQ(yields_of(read_most_of_a_turn, kTurn - 1), 0);
    i % 2 != 0 ? queue.push(i) : queue.push_error(i);
    EXPECT_EQ(queue.next(), i % 2 != 0 ? ssize_t(i) : -1000 - ssize_t(i));
  }
}

Cntr *open_counter(TestDomain &domain, std::unique_ptr<CntrSource> source = nullptr) {
  const fi_cntr_attr attr{.events = FI_CNTR_EVENTS_COMP};
  auto opened = source != nullptr
                    ? Cntr::open(domain.context, &attr, nullptr, std::move(source), true)
                    : Cntr::open(domain.context, &attr, nullptr);
  EXPECT_TRUE(opened) << (opened ? "" : opened.error().text);
  return opened ? *opened : nullptr;
}

TEST(GiveWay, WhoReadsACounterThatStays) {
  TestDomain domain;
  Cntr *const counter = open_counter(domain);
  ASSERT_NE(counter, nullptr);
  {
    const FreeLock free(domain.engine.lock());
    uint64_t value = 0;
    const auto read = [&] { EXPECT_EQ(fi_cntr_read(counter->c()), value); };
    expect_turns(read);
    EXPECT_EQ(yields_of(read, kTurn - 1), 0);
    EXPECT_EQ(fi_cntr_add(counter->c(), ++value), 0);
    EXPECT_EQ(yields_of(read, kTurn), 0) << "the first of them finds the change";
    EXPECT_EQ(yields_of(read, 1), 1);
  }
  EXPECT_EQ(fi_close(counter->base()), 0);
}

TEST(GiveWay, WhoReadsAnEmptyEventQueue) {
  TestEq queue;
  expect_turns([&] { EXPECT_EQ(queue.next(), -FI_EAGAIN); });
  EXPECT_EQ(yields_of([&] { (void)queue.next(); }, kTurn - 1), 0);
  queue.write(7);
  EXPECT_EQ(queue.next(), 7);
  EXPECT_EQ(yields_of([&] { (void)queue.next(); }, kTurn - 1), 0);
}

TEST(GiveWay, WhoAsksAPollSet) {
  TestDomain domain;
  auto opened = PollSet::open(domain.context, nullptr);
  ASSERT_TRUE(opened);
  void *context = nullptr;
  expect_turns([&] { EXPECT_EQ(fi_poll((*opened)->c(), &context, 1), 0); });
  EXPECT_EQ(fi_close((*opened)->base()), 0);
}

// ---- objects of a device ----

struct NothingInQueue final : CqSource {
  void read(CqWriter &) override {}
  int wait_fd() override { return -FI_ENOSYS; }
  bool arm() override { return true; }
};

struct NothingCounted final : CntrSource {
  uint64_t value() override { return 0; }
  uint64_t errors() override { return 0; }
  void set(uint64_t) override {}
  void set_errors(uint64_t) override {}
  int wait_fd() override { return -FI_ENOSYS; }
  bool arm() override { return true; }
};

struct DeviceObjects {
  explicit DeviceObjects(TestDomain &domain) {
    const fi_cq_attr attr = cq_attr();
    auto opened =
        Cq::open(domain.context, &attr, nullptr, std::make_unique<NothingInQueue>(), true);
    EXPECT_TRUE(opened);
    cq = opened ? *opened : nullptr;
    cntr = open_counter(domain, std::make_unique<NothingCounted>());
  }
  ~DeviceObjects() {
    EXPECT_EQ(fi_close(cq->base()), 0);
    EXPECT_EQ(fi_close(cntr->base()), 0);
  }
  void read_queue() {
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_read(cq->c(), &entry, 1), -FI_EAGAIN);
  }
  void read_counter() { EXPECT_EQ(fi_cntr_read(cntr->c()), 0u); }

  Cq *cq;
  Cntr *cntr;
};

constexpr unsigned kDeviceTurn = DeviceEngine<CqSource>::kReads * kTurn;

TEST(GiveWay, WhoReadsADeviceAfterMoreReads) {
  TestDomain domain;
  DeviceObjects device(domain);
  const FreeLock free(device.cq->engine().lock());
  expect_turns([&] { device.read_queue(); }, kDeviceTurn);
  expect_turns([&] { device.read_counter(); }, kDeviceTurn);
}

// ---- beneath a layer ----

TEST(GiveWay, NobodyWhoReadsADeviceBeneathALayer) {
  TestDomain domain;
  domain.engine.yield_after(0);
  DeviceObjects device(domain);
  EXPECT_EQ(yields_of([&] { device.read_queue(); }, 3 * kDeviceTurn), 0);
  EXPECT_EQ(yields_of([&] { device.read_counter(); }, 3 * kDeviceTurn), 0);
}

TEST(GiveWay, NobodyWhoReadsAnEventQueueOfALayer) {
  TestEq queue;
  EXPECT_EQ(fi_control(&queue.c()->fid, WEFT_READ_BY_LAYER, nullptr), 0);
  EXPECT_EQ(yields_of([&] { EXPECT_EQ(queue.next(), -FI_EAGAIN); }, 3 * kTurn), 0);
}

class Domain final : public Object<Domain, fid_domain>, public SoftwareDomain {
 public:
  explicit Domain(const weft_instance *instance)
      : Object(instance, FI_CLASS_DOMAIN, nullptr),
        SoftwareDomain(instance, base(), {.api_version = FI_VERSION(2, 6)}) {
    fill_tables(*this);
  }
  int close() { return 0; }
  int bind(struct fid *, uint64_t) { return -FI_ENOSYS; }
};

TEST(GiveWay, NobodyWhoReadsQueuesOfADomainBeneathALayer) {
  TestInstance instance;
  Domain domain(instance.c());
  EXPECT_NE(domain.engine().yields_after(), 0u);
  EXPECT_EQ(fi_control(domain.base(), WEFT_READ_BY_LAYER, nullptr), 0);
  EXPECT_EQ(domain.engine().yields_after(), 0u);
  fid_cq *cq = nullptr;
  ASSERT_EQ(fi_cq_open(domain.c(), nullptr, &cq, nullptr), 0);
  fi_cq_entry entry{};
  EXPECT_EQ(yields_of([&] { EXPECT_EQ(fi_cq_read(cq, &entry, 1), -FI_EAGAIN); }, 3 * kTurn), 0);
  EXPECT_EQ(fi_close(&cq->fid), 0);
}

}  // namespace
}  // namespace weft::sdk::give_way_test

extern "C" int sched_yield() noexcept {
  weft::sdk::give_way_test::on_yield();
  return int(syscall(SYS_sched_yield));
}

extern "C" int clock_gettime(clockid_t clock, timespec *time) noexcept {
  const uint64_t now = weft::sdk::give_way_test::clock_ns;
  if (now == 0) return int(syscall(SYS_clock_gettime, clock, time));
  *time = {.tv_sec = time_t(now / 1'000'000'000), .tv_nsec = long(now % 1'000'000'000)};
  return 0;
}
