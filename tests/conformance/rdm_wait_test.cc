// SPDX-License-Identifier: BSD-2-Clause
// Waiting on many objects of one domain (fi_cntr.3, fi_cq.3, fi_eq.3, fi_poll.3): counters, queues,
// wait sets and poll sets, by the calls of the API and by descriptors. The man pages give no limit
// of their number, so ten thousand must work.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kThousands = 2000;  // beyond every limit of the kernel that there is
constexpr size_t kMany = sdk::kSanitizer == sdk::Sanitizer::kNone ? 10'000 : kThousands;

// Those that have a descriptor each need room for them.
size_t raise_file_limit(size_t wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const size_t room = limit.rlim_cur > 1000 ? size_t(limit.rlim_cur) - 1000 : 0;
  return std::min(wanted, room);
}

fi_cntr_attr cntr_attr(enum fi_wait_obj wait, fid_wait *set = nullptr) {
  fi_cntr_attr attr{};
  attr.wait_obj = wait;
  attr.wait_set = set;
  return attr;
}

fi_cq_attr cq_attr(enum fi_wait_obj wait, fid_wait *set = nullptr) {
  fi_cq_attr attr = Options::cq_attr(FI_CQ_FORMAT_CONTEXT, wait);
  attr.size = 8;
  attr.wait_set = set;
  return attr;
}

// Calls `wait(i)` for all numbers below `count`, in several threads, because each call sleeps.
template <class Wait>
void side_by_side(size_t count, Wait wait) {
  constexpr size_t kThreads = 16;
  std::vector<std::thread> threads;
  for (size_t first = 0; first < kThreads; ++first)
    threads.emplace_back([=, &wait] {
      for (size_t i = first; i < count; i += kThreads)
        if (!wait(i)) {
          ADD_FAILURE() << "wait " << i + 1;
          return;
        }
    });
  for (std::thread &thread : threads) thread.join();
}

// Two applications; the second waits.
class Many : public ::testing::Test {
 protected:
  void SetUp() override { covers("wait objects"); }
  // A message to the second, sent by a thread of its own while the caller sleeps.
  template <class Wait>
  void wake(Wait wait) {
    std::vector<uint8_t> out = pattern(64, 1), in(64);
    must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    std::atomic<bool> over{false};
    std::thread sender([&] {
      net.set_asleep(1, true);
      net.post(
          [&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), &out); });
      while (!over) net.progress();
    });
    wait();
    over = true;
    sender.join();
    net.set_asleep(1, false);
    net.wait(net[0].tx_cq);
    EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
  }
  Net net{2};
};

TEST_F(Many, CountersCanAllBeWaitedFor) {
  std::vector<fid_cntr *> counters(kMany);
  for (auto &counter : counters) counter = net[1].count(0, cntr_attr(FI_WAIT_UNSPEC));
  side_by_side(kMany, [&](size_t i) {
    if (fi_cntr_wait(counters[i], 1, 1) != -FI_ETIMEDOUT) return false;
    return fi_cntr_add(counters[i], i) == 0 && fi_cntr_wait(counters[i], i, 1000) == 0;
  });
  fid_cntr *last = net[1].count(FI_RECV, cntr_attr(FI_WAIT_UNSPEC));
  ASSERT_EQ(fi_cntr_wait(last, 1, 1), -FI_ETIMEDOUT);
  wake([&] { EXPECT_EQ(fi_cntr_wait(last, 1, patience().count()), 0); });
}

TEST_F(Many, CompletionQueuesCanAllBeWaitedFor) {
  std::vector<Handle<fid_cq>> queues(kThousands);
  fi_cq_attr attr = cq_attr(FI_WAIT_UNSPEC);
  for (auto &queue : queues) must(fi_cq_open(net[1].domain, &attr, queue.out(), nullptr));
  side_by_side(kThousands, [&](size_t i) {
    fi_cq_entry entry;
    return fi_cq_sread(queues[i], &entry, 1, nullptr, 1) == -FI_EAGAIN;
  });
  // fi_cq_signal wakes the reader of the last queue.
  fid_cq *last = queues.back();
  ssize_t rc = 0;
  std::thread sleeper([&] {
    fi_cq_entry entry;
    rc = fi_cq_sread(last, &entry, 1, nullptr, int(patience().count()));
  });
  must(fi_cq_signal(last));
  sleeper.join();
  EXPECT_EQ(rc, -FI_EAGAIN);
}

TEST_F(Many, EventQueuesCanAllBeWaitedFor) {
  std::vector<Handle<fid_eq>> queues(kThousands);
  fi_eq_attr attr = Options::eq_attr(FI_WAIT_UNSPEC);
  attr.flags = FI_WRITE;
  uint32_t event = 0;
  fi_eq_entry entry{};
  for (auto &queue : queues) must(fi_eq_open(net[1].fabric, &attr, queue.out(), nullptr));
  side_by_side(kThousands, [&](size_t i) {
    uint32_t none;
    char nothing[sizeof(fi_eq_entry)];
    return fi_eq_sread(queues[i], &none, nothing, sizeof nothing, 1, 0) == -FI_EAGAIN;
  });
  fid_eq *last = queues.back();
  std::thread writer([&] { must(fi_eq_write(last, 7, &entry, sizeof entry, 0)); });
  EXPECT_EQ(fi_eq_sread(last, &event, &entry, sizeof entry, int(patience().count()), 0),
            ssize_t(sizeof entry));
  writer.join();
  EXPECT_EQ(event, 7u);
}

// The descriptor of each, as an event loop has them: in one set of epoll.
struct Loop {
  Loop() : epoll(epoll_create1(EPOLL_CLOEXEC)) {}
  ~Loop() { ::close(epoll); }
  void add(struct fid *fid, size_t which) {
    int fd = -1;
    must(fi_control(fid, FI_GETWAIT, &fd));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = which;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
      throw std::runtime_error("epoll_ctl of descriptor " + std::to_string(which) + ": " +
                               strerror(errno));
  }
  // Waits until this descriptor is among the readable ones.
  bool sees(size_t which) {
    std::vector<epoll_event> events(kMany + 10);
    const Deadline deadline;
    while (!deadline.passed()) {
      const int n = epoll_wait(epoll, events.data(), int(events.size()), 100);
      for (int i = 0; i < n; ++i)
        if (events[size_t(i)].data.u64 == which) return true;
    }
    return false;
  }
  bool quiet() {
    epoll_event event;
    return epoll_wait(epoll, &event, 1, 0) == 0;
  }
  const int epoll;
};

TEST_F(Many, CountersHaveDescriptorsForAnEventLoop) {
  const size_t count = raise_file_limit(kMany);
  Loop loop;
  std::vector<fid *> fids;
  for (size_t i = 0; i < count; ++i) {
    fid_cntr *counter = net[1].count(0, cntr_attr(FI_WAIT_FD));
    fids.push_back(&counter->fid);
    loop.add(&counter->fid, i);
  }
  const auto arm = [&] {
    return net.until([&] { return fi_trywait(net[1].fabric, fids.data(), fids.size()) == 0; });
  };
  ASSERT_TRUE(arm());
  EXPECT_TRUE(loop.quiet());
  for (size_t i : {size_t(0), count / 2, count - 1}) {
    must(fi_cntr_add(net[1].counters[i], 1));
    EXPECT_TRUE(loop.sees(i)) << i;
    ASSERT_TRUE(arm());
    EXPECT_TRUE(loop.quiet()) << i;
  }
  // Traffic wakes the one that counts it, and it may wake others.
  must(fi_ep_bind(net[1].ep, net[1].counters[count - 1].fid(), FI_RECV));
  wake([&] {
    const Deadline deadline;
    while (fi_cntr_read(net[1].counters[count - 1]) != 2 && !deadline.passed()) {
      if (fi_trywait(net[1].fabric, fids.data(), fids.size()) != 0) continue;
      epoll_event event;
      epoll_wait(loop.epoll, &event, 1, int(patience().count()));
    }
  });
  EXPECT_EQ(fi_cntr_read(net[1].counters[count - 1]), 2u);
}

TEST_F(Many, QueuesHaveDescriptorsForAnEventLoop) {
  const size_t count = raise_file_limit(kMany / 2);
  Loop loop;
  std::vector<Handle<fid_cq>> cqs(count);
  std::vector<Handle<fid_eq>> eqs(100);
  fi_cq_attr attr = cq_attr(FI_WAIT_FD);
  for (size_t i = 0; i < count; ++i) {
    must(fi_cq_open(net[1].domain, &attr, cqs[i].out(), nullptr));
    loop.add(cqs[i].fid(), i);
  }
  fi_eq_attr eq_attr = Options::eq_attr(FI_WAIT_FD);
  for (size_t i = 0; i < eqs.size(); ++i) {
    must(fi_eq_open(net[1].fabric, &eq_attr, eqs[i].out(), nullptr));
    loop.add(eqs[i].fid(), count + i);
  }
  for (auto &cq : cqs) {
    fid *one = cq.fid();
    ASSERT_TRUE(net.until([&] { return fi_trywait(net[1].fabric, &one, 1) == 0; }));
  }
  must(fi_cq_signal(cqs.back()));
  EXPECT_TRUE(loop.sees(count - 1));
}

TEST_F(Many, AWaitSetTakesThemAll) {
  Handle<fid_wait> set;
  fi_wait_attr attr{};
  attr.wait_obj = FI_WAIT_FD;
  must(fi_wait_open(net[1].fabric, &attr, set.out()));
  std::vector<Handle<fid_cntr>> counters(kMany);
  std::vector<Handle<fid_cq>> queues(100);
  std::vector<Handle<fid_eq>> events(100);
  fi_cntr_attr of_counter = cntr_attr(FI_WAIT_SET, set);
  for (auto &counter : counters)
    must(fi_cntr_open(net[1].domain, &of_counter, counter.out(), nullptr));
  fi_cq_attr of_queue = cq_attr(FI_WAIT_SET, set);
  for (auto &queue : queues) must(fi_cq_open(net[1].domain, &of_queue, queue.out(), nullptr));
  fi_eq_attr of_events = Options::eq_attr(FI_WAIT_SET);
  of_events.wait_set = set;
  of_events.flags = FI_WRITE;
  for (auto &queue : events) must(fi_eq_open(net[1].fabric, &of_events, queue.out(), nullptr));

  EXPECT_EQ(fi_wait(set, 1), -FI_ETIMEDOUT);
  std::thread adder([&] { must(fi_cntr_add(counters.back(), 1)); });
  EXPECT_EQ(fi_wait(set, int(patience().count())), 0);
  adder.join();
  EXPECT_EQ(fi_wait(set, 1), -FI_ETIMEDOUT) << "told once";
  fi_eq_entry entry{};
  std::thread writer([&] { must(fi_eq_write(events.back(), 1, &entry, sizeof entry, 0)); });
  EXPECT_EQ(fi_wait(set, int(patience().count())), 0);
  writer.join();
  uint32_t event;
  EXPECT_EQ(fi_eq_read(events.back(), &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  // And by traffic.
  must(fi_ep_bind(net[1].ep, counters[kMany / 2].fid(), FI_RECV));
  wake([&] {
    const Deadline deadline;
    while (fi_cntr_read(counters[kMany / 2]) != 1 && !deadline.passed())
      EXPECT_EQ(fi_wait(set, int(patience().count())), 0);
  });
  // Its descriptor goes into an event loop as any other.
  Loop loop;
  loop.add(set.fid(), 1);
  fid *fids[] = {set.fid()};
  ASSERT_TRUE(net.until([&] { return fi_trywait(net[1].fabric, fids, 1) == 0; }));
  EXPECT_TRUE(loop.quiet());
  must(fi_cntr_add(counters[3], 1));
  EXPECT_TRUE(loop.sees(1));
  net[1].ep.reset();
  // It is busy as long as there are members.
  for (auto &counter : counters) counter.reset();
  for (auto &queue : queues) queue.reset();
  EXPECT_EQ(fi_close(set.fid()), -FI_EBUSY);
  for (auto &queue : events) queue.reset();
}

TEST_F(Many, APollSetTakesThemAll) {
  Handle<fid_poll> set;
  fi_poll_attr attr{};
  must(fi_poll_open(net[1].domain, &attr, set.out()));
  std::vector<Handle<fid_cntr>> counters(kMany);
  fi_cntr_attr of_counter = cntr_attr(FI_WAIT_NONE);
  for (auto &counter : counters) {
    must(fi_cntr_open(net[1].domain, &of_counter, counter.out(), &counter));
    must(fi_poll_add(set, counter.fid(), 0));
  }
  void *contexts[4] = {};
  EXPECT_EQ(fi_poll(set, contexts, 4), 0);
  must(fi_cntr_adderr(counters.back(), 1));
  EXPECT_EQ(fi_poll(set, contexts, 4), 1);
  EXPECT_EQ(contexts[0], &counters.back());
  for (auto &counter : counters) must(fi_poll_del(set, counter.fid(), 0));
}

// A blocked reader of one queue gets its completion although the domain has many other endpoints.
TEST(ManyEndpoints, OfOneDomainLeaveABlockedReaderAlone) {
  covers("wait objects");
  Options options;
  options.rx_cq.wait_obj = FI_WAIT_FD;
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  Net net(2, options);
  constexpr size_t kEndpoints = 120;
  for (size_t i = 0; i < kEndpoints; ++i) net.add(options, {}, &net[1]);
  Loop loop;
  for (size_t i = 1; i < net.size(); ++i) loop.add(net[i].rx_cq.fid(), i);
  const size_t last = net.size() - 1;
  must(fi_recv(net[last].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  for (size_t i = 1; i < net.size(); ++i) net.set_asleep(i, true);
  std::atomic<bool> over{false};
  std::thread sender([&] {
    net.post(
        [&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, last), &out); });
    while (!over) net.progress();
  });
  fi_cq_tagged_entry entry{};
  const ssize_t n = fi_cq_sread(net[last].rx_cq, &entry, 1, nullptr, int(patience().count()));
  over = true;
  sender.join();
  EXPECT_EQ(n, 1);
  EXPECT_EQ(entry.op_context, &in);
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace weft::conformance::rdm
