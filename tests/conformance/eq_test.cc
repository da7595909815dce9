// SPDX-License-Identifier: BSD-2-Clause
// Event queues (fi_eq.3): reading, peeking, writing, errors, waiting.
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/providers/fi_peer.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/harness.h"

namespace weft::conformance {
namespace {

struct Queue {
  explicit Queue(enum fi_wait_obj wait = FI_WAIT_NONE, uint64_t flags = FI_WRITE) {
    info = options_info({});
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    fi_eq_attr attr{};
    attr.wait_obj = wait;
    attr.flags = flags;
    must(fi_eq_open(fabric, &attr, eq.out(), nullptr));
  }
  void write(uint32_t event, uint64_t value) {
    fi_eq_entry entry{};
    entry.fid = eq.fid();
    entry.data = value;
    EXPECT_EQ(fi_eq_write(eq, event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  }
  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_eq> eq;
};

TEST(Eq, WrittenEventsAreReadInOrder) {
  Queue q;
  for (uint64_t i = 0; i < 5; ++i) q.write(uint32_t(100 + i), i);
  for (uint64_t i = 0; i < 5; ++i) {
    uint32_t event = 0;
    fi_eq_entry entry{};
    EXPECT_EQ(fi_eq_read(q.eq, &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
    EXPECT_EQ(event, 100 + i);
    EXPECT_EQ(entry.data, i);
    EXPECT_EQ(entry.fid, q.eq.fid());
  }
}

TEST(Eq, AnEmptyQueueIsEAGAIN) {
  Queue q;
  uint32_t event;
  fi_eq_entry entry;
  fi_eq_err_entry error{};
  EXPECT_EQ(fi_eq_read(q.eq, &event, &entry, sizeof entry, 0), -FI_EAGAIN);
  EXPECT_EQ(fi_eq_readerr(q.eq, &error, 0), -FI_EAGAIN);
}

TEST(Eq, PeekLeavesTheEventThere) {
  Queue q;
  q.write(7, 70);
  q.write(8, 80);
  uint32_t event = 0;
  fi_eq_entry entry{};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(fi_eq_read(q.eq, &event, &entry, sizeof entry, FI_PEEK), ssize_t(sizeof entry));
    EXPECT_EQ(event, 7u);
    EXPECT_EQ(entry.data, 70u);
  }
  EXPECT_EQ(fi_eq_read(q.eq, &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(event, 7u);
  EXPECT_EQ(fi_eq_read(q.eq, &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(event, 8u);
}

TEST(Eq, ABufferTooSmallForTheEventIsETOOSMALLAndTheEventStays) {
  Queue q;
  q.write(7, 70);
  uint32_t event = 0;
  fi_eq_entry entry{};
  EXPECT_EQ(fi_eq_read(q.eq, &event, &entry, 4, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(q.eq, &event, nullptr, 0, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(q.eq, &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(entry.data, 70u);
}

TEST(Eq, WriteWithoutFI_WRITEIsRefused) {
  Queue q(FI_WAIT_NONE, 0);
  fi_eq_entry entry{};
  EXPECT_LT(fi_eq_write(q.eq, 1, &entry, sizeof entry, 0), 0);
}

TEST(Eq, EventsOfAnyLengthCanBeWritten) {
  Queue q;
  char out[300], in[400];
  memset(out, 'e', sizeof out);
  EXPECT_EQ(fi_eq_write(q.eq, 9, out, sizeof out, 0), ssize_t(sizeof out));
  uint32_t event;
  EXPECT_EQ(fi_eq_read(q.eq, &event, in, sizeof in, 0), ssize_t(sizeof out));
  EXPECT_EQ(memcmp(in, out, sizeof out), 0);
}

TEST(Eq, StrerrorHasAText) {
  Queue q;
  char text[64] = "";
  EXPECT_STREQ(fi_eq_strerror(q.eq, FI_ECONNREFUSED, nullptr, text, sizeof text), text);
  EXPECT_NE(std::string(text), "");
}

TEST(Eq, SreadWithoutAWaitObjectIsRefused) {
  Queue q(FI_WAIT_NONE);
  uint32_t event;
  fi_eq_entry entry;
  const ssize_t rc = fi_eq_sread(q.eq, &event, &entry, sizeof entry, 1000, 0);
  EXPECT_LT(rc, 0);
  EXPECT_NE(rc, -FI_EAGAIN);
}

TEST(Eq, AnErrorHidesWhatIsBehindItUntilItIsRead) {
  Options options;
  options.eq.flags = FI_WRITE;
  Side active(options);
  active.open(options_info(options).get());
  active.make_endpoint(active.info.get());
  // A port without a listener: a port of ours that is closed again.
  std::string address;
  {
    Side passive;
    passive.open(options_info({}, nullptr, FI_SOURCE).get());
    address = Listener(passive).address();
  }
  must(fi_connect(active.ep, address.data(), nullptr, 0));
  uint32_t event = 0;
  fi_eq_entry entry{};
  ASSERT_TRUE(
      until([&] { return fi_eq_read(active.eq, &event, &entry, sizeof entry, 0) == -FI_EAVAIL; },
            {&active}));
  entry.data = 5;
  EXPECT_EQ(fi_eq_write(active.eq, 77, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(fi_eq_read(active.eq, &event, &entry, sizeof entry, 0), -FI_EAVAIL);
  fi_eq_err_entry error{};
  EXPECT_EQ(fi_eq_readerr(active.eq, &error, 0), ssize_t(sizeof error));
  EXPECT_EQ(error.err, FI_ECONNREFUSED);
  EXPECT_EQ(error.fid, active.ep.fid());
  EXPECT_EQ(fi_eq_read(active.eq, &event, &entry, sizeof entry, 0), ssize_t(sizeof entry));
  EXPECT_EQ(event, 77u);
}

TEST(Eq, ConnectionDataThatDoesNotFitIsCut) {
  Side passive, active;
  passive.open(options_info({}, nullptr, FI_SOURCE).get());
  Listener listener(passive);
  active.open(options_info({}).get());
  active.make_endpoint(active.info.get());
  const std::string address = listener.address();
  const std::vector<uint8_t> data = pattern(200, 1);
  must(fi_connect(active.ep, address.data(), data.data(), data.size()));
  alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 300];
  uint32_t event = 0;
  ASSERT_TRUE(
      until([&] { return fi_eq_read(passive.eq, &event, buffer, sizeof buffer, FI_PEEK) > 0; },
            {&active, &passive}));
  EXPECT_EQ(fi_eq_read(passive.eq, &event, buffer, 4, 0), -FI_ETOOSMALL);
  memset(buffer, 0x5a, sizeof buffer);
  EXPECT_EQ(fi_eq_read(passive.eq, &event, buffer, sizeof(fi_eq_cm_entry) + 50, 0),
            ssize_t(sizeof(fi_eq_cm_entry) + 50));
  EXPECT_EQ(event, uint32_t(FI_CONNREQ));
  EXPECT_EQ(memcmp(buffer + sizeof(fi_eq_cm_entry), data.data(), 50), 0);
  EXPECT_EQ(buffer[sizeof(fi_eq_cm_entry) + 50], 0x5a);
  const Info request(reinterpret_cast<fi_eq_cm_entry *>(buffer)->info);
  must(fi_reject(listener.pep, request->handle, nullptr, 0));
}

// ---- waiting ----

class EqWait : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, EqWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD,
                                           FI_WAIT_YIELD, FI_WAIT_MUTEX_COND));

TEST_P(EqWait, SreadTimesOut) {
  Queue q(GetParam());
  uint32_t event;
  fi_eq_entry entry;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fi_eq_sread(q.eq, &event, &entry, sizeof entry, 20, 0), -FI_EAGAIN);
  const auto spent = std::chrono::steady_clock::now() - start;
  EXPECT_GE(spent, std::chrono::milliseconds(15));
  EXPECT_LT(spent, std::chrono::seconds(10));
  EXPECT_EQ(fi_eq_sread(q.eq, &event, &entry, sizeof entry, 0, 0), -FI_EAGAIN);
}

TEST_P(EqWait, AWrittenEventWakesABlockedReader) {
  Queue q(GetParam());
  ssize_t rc = 0;
  uint32_t event = 0;
  std::thread reader([&] {
    fi_eq_entry entry;
    rc = fi_eq_sread(q.eq, &event, &entry, sizeof entry, 20000, 0);
  });
  q.write(55, 5);
  reader.join();
  EXPECT_EQ(rc, ssize_t(sizeof(fi_eq_entry)));
  EXPECT_EQ(event, 55u);
}

TEST_P(EqWait, ConnectionsAreMadeByBlockedReadersAlone) {
  // Two threads that only block make a connection and notice its end.
  Options options;
  options.eq = Options::eq_attr(GetParam());
  Side passive(options), active(options);
  passive.open(options_info(options, nullptr, FI_SOURCE).get());
  Listener listener(passive);
  const std::string address = listener.address();
  active.open(options_info(options).get());
  active.make_endpoint(active.info.get());
  const auto wait = [](Side &side) {
    alignas(fi_eq_cm_entry) char buffer[sizeof(fi_eq_cm_entry) + 300];
    uint32_t type = 0;
    must(fi_eq_sread(side.eq, &type, buffer, sizeof buffer, 20000, 0));
    Event event;
    event.type = type;
    event.info.reset(reinterpret_cast<fi_eq_cm_entry *>(buffer)->info);
    return event;
  };
  in_two_threads(
      [&] {
        must(fi_connect(active.ep, address.data(), nullptr, 0));
        EXPECT_EQ(wait(active).type, uint32_t(FI_CONNECTED));
        must(fi_shutdown(active.ep, 0));
      },
      [&] {
        const Event request = wait(passive);
        passive.make_endpoint(request.info.get());
        must(fi_accept(passive.ep, nullptr, 0));
        EXPECT_EQ(wait(passive).type, uint32_t(FI_CONNECTED));
        EXPECT_EQ(wait(passive).type, uint32_t(FI_SHUTDOWN));
      });
}

TEST(EqNative, TrywaitThenPollSeesAConnectionRequest) {
  Options options;
  options.eq = Options::eq_attr(FI_WAIT_FD);
  Side passive(options), active;
  passive.open(options_info(options, nullptr, FI_SOURCE).get());
  Listener listener(passive);
  const std::string address = listener.address();
  active.open(options_info({}).get());
  active.make_endpoint(active.info.get());
  int fd = -1;
  must(fi_control(passive.eq.fid(), FI_GETWAIT, &fd));
  fid *fids[] = {passive.eq.fid()};
  std::optional<Event> event;
  bool connected = false;
  const Deadline deadline;
  while (!event && !deadline.passed()) {
    if (fi_trywait(passive.fabric, fids, 1) == 0) {
      pollfd p{fd, POLLIN, 0};
      if (!connected) {
        EXPECT_EQ(::poll(&p, 1, 0), 0) << "nothing is there yet";
        must(fi_connect(active.ep, address.data(), nullptr, 0));
        connected = true;
      }
      // The request leaves with the active side's progress.
      int ready = 0;
      while ((ready = ::poll(&p, 1, 10)) == 0 && !deadline.passed()) active.progress();
      EXPECT_EQ(ready, 1);
    }
    event = poll_eq(passive.eq);
    active.progress();
  }
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->type, uint32_t(FI_CONNREQ));
  must(fi_reject(listener.pep, event->info->handle, nullptr, 0));
}

TEST(EqNative, DataTrafficDoesNotWakeAReaderOfEvents) {
  NEEDS_WAITING_MESSAGES();
  Options options;
  options.eq = Options::eq_attr(FI_WAIT_FD);
  Pair pair(options);
  int fd = -1;
  must(fi_control(pair.b.eq.fid(), FI_GETWAIT, &fd));
  fid *fids[] = {pair.b.eq.fid()};
  ASSERT_EQ(fi_trywait(pair.b.fabric, fids, 1), 0);
  for (int i = 0; i < 10; ++i) must(fi_inject(pair.a.ep, "x", 2, 0));
  pair.a.progress();
  pollfd p{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 0);
  must(fi_shutdown(pair.a.ep, 0));
  EXPECT_EQ(::poll(&p, 1, 20000), 1) << "but the end does";
}

TEST(EqIdle, ABlockedReaderUsesNoProcessor) {
  if (!in_fresh_process()) return;
  Options options;
  options.eq = Options::eq_attr(FI_WAIT_FD);
  Pair pair(options);
  uint32_t event;
  fi_eq_cm_entry entry;
  constexpr auto kLimit = std::chrono::milliseconds(10);
  const auto wait = [&] {
    EXPECT_EQ(fi_eq_sread(pair.b.eq, &event, &entry, sizeof entry, 200, 0), -FI_EAGAIN);
  };
  EXPECT_LT(cpu_time_of(kLimit, wait), kLimit);
}

TEST(EqIdle, AReaderBlockedOnAHalfClosedPeerUsesNoProcessor) {
  // The peer is gone, its last message has no receive: the queue reports the end once, then its
  // reader blocks.
  if (!in_fresh_process()) return;
  const bool waits = find_info(Options{.resource_mgmt = FI_RM_ENABLED}) != nullptr;
  Options options;
  options.eq = Options::eq_attr(FI_WAIT_FD);
  Pair pair(options);
  if (waits) must(fi_inject(pair.a.ep, "last", 5, 0));  // else it would end the connection
  must(fi_shutdown(pair.a.ep, 0));
  uint32_t event = 0;
  fi_eq_cm_entry entry;
  ASSERT_GT(fi_eq_sread(pair.b.eq, &event, &entry, sizeof entry, 20000, 0), 0);
  EXPECT_EQ(event, uint32_t(FI_SHUTDOWN));
  constexpr auto kLimit = std::chrono::milliseconds(10);
  const auto wait = [&] {
    EXPECT_EQ(fi_eq_sread(pair.b.eq, &event, &entry, sizeof entry, 100, 0), -FI_EAGAIN);
  };
  EXPECT_LT(cpu_time_of(kLimit, wait), kLimit);
  // The message can still be received.
  if (!waits) return;
  char in[8];
  const ssize_t rc = fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, in);
  if (rc == 0) {
    EXPECT_EQ(pair.wait(pair.b.rx_cq).context, in);
  }
}

// ---- registrations ----

TEST(EqRegistration, CompletesOnTheQueueOfTheDomain) {
  Side side;
  side.open(options_info({}).get());
  int rc = fi_domain_bind(side.domain, side.eq.fid(), FI_REG_MR);
  if (rc == -FI_ENOSYS) GTEST_SKIP() << "registrations are always synchronous";
  ASSERT_EQ(rc, 0);
  char memory[64];
  int mark;
  Handle<fid_mr> region;
  must(fi_mr_reg(side.domain, memory, sizeof memory, FI_REMOTE_READ, 0, 3, 0, region.out(), &mark));
  uint32_t type = 0;
  fi_eq_entry entry{};
  ASSERT_TRUE(until([&] { return fi_eq_read(side.eq, &type, &entry, sizeof entry, 0) > 0; }, {}));
  EXPECT_EQ(type, uint32_t(FI_MR_COMPLETE));
  EXPECT_EQ(entry.fid, region.fid());
  EXPECT_EQ(entry.context, &mark);
}

// ---- an owner's queue (fi_peer.3) ----

// Connections are not what peers share: fi_getinfo offers no FI_PEER with them.
TEST(EqOfAnOwner, GetsNoEventsOfConnections) {
  Queue q;
  fi_peer_eq_context context{.size = sizeof context, .eq = q.eq};
  fi_eq_attr attr{};
  attr.flags = FI_PEER;
  Handle<fid_eq> imported;
  must(fi_eq_open(q.fabric, &attr, imported.out(), &context));
  Handle<fid_pep> passive;
  must(fi_passive_ep(q.fabric, q.info.get(), passive.out(), nullptr));
  EXPECT_EQ(fi_pep_bind(passive, imported.fid(), 0), -FI_EOPNOTSUPP);
  must(fi_pep_bind(passive, q.eq.fid(), 0));
  Handle<fid_domain> domain;
  must(fi_domain(q.fabric, q.info.get(), domain.out(), nullptr));
  Handle<fid_ep> ep;
  must(fi_endpoint(domain, q.info.get(), ep.out(), nullptr));
  EXPECT_EQ(fi_ep_bind(ep, imported.fid(), 0), -FI_EOPNOTSUPP);
  must(fi_ep_bind(ep, q.eq.fid(), 0));
}

}  // namespace
}  // namespace weft::conformance
