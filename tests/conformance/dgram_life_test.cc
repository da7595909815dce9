// SPDX-License-Identifier: BSD-2-Clause
// The life of datagram endpoints (fi_endpoint.3, fi_cm.3, fi_domain.3): names, addresses of every
// form, what is missing at fi_enable, aliases, what is busy, which calls make progress, and waits.
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/conformance/dgram_harness.h"
#include "tests/conformance/process.h"
#include "tests/conformance/signals.h"

namespace weft::conformance::dgram {
namespace {

using unconnected::Bytes;

TEST(DgramLife, TheFirstUseOfTheNameFixesIt) {
  DGRAM_NEEDS_SOCKETS();
  covers("names");
  Info info = find_info({}, FI_SOURCE);
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_av> av;
  Handle<fid_cq> cq;
  Handle<fid_ep> ep;
  must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
  must(fi_domain(fabric, info.get(), domain.out(), nullptr));
  fi_av_attr av_attr{};
  must(fi_av_open(domain, &av_attr, av.out(), nullptr));
  fi_cq_attr cq_attr{};
  must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
  must(fi_endpoint(domain, info.get(), ep.out(), nullptr));
  // An address that another socket has is refused at once.
  PlainSocket other;
  std::string taken = other.name();
  EXPECT_EQ(fi_setname(ep.fid(), taken.data(), taken.size()), -FI_EADDRINUSE);
  char before[64], after[64], tiny[4];
  size_t size = sizeof before, again = sizeof after, short_size = sizeof tiny;
  must(fi_getname(ep.fid(), before, &size));
  EXPECT_EQ(size, sizeof(sockaddr_in));
  EXPECT_EQ(fi_getname(ep.fid(), tiny, &short_size), -FI_ETOOSMALL);
  EXPECT_EQ(short_size, size);
  // Again; the endpoint's own address is accepted again.
  EXPECT_EQ(fi_setname(ep.fid(), taken.data(), taken.size()), -FI_EADDRINUSE);
  must(fi_setname(ep.fid(), before, size));
  EXPECT_EQ(fi_enable(ep), -FI_ENOAV);
  must(fi_ep_bind(ep, av.fid(), 0));
  EXPECT_EQ(fi_enable(ep), -FI_ENOCQ);
  EXPECT_EQ(fi_send(ep, before, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_recv(ep, before, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
  must(fi_ep_bind(ep, cq.fid(), FI_TRANSMIT | FI_RECV));
  char early;
  EXPECT_EQ(fi_recv(ep, &early, 1, nullptr, 0, &early), 0) << "fi_cm.3: at any time";
  must(fi_enable(ep));
  other.send({before, size}, {42});
  Deadline deadline;
  std::optional<Done> received;
  while (!(received = poll_cq(cq)) && !deadline.passed()) continue;
  ASSERT_TRUE(received);
  EXPECT_EQ(received->context, &early);
  EXPECT_EQ(early, 42);
  must(fi_getname(ep.fid(), after, &again));
  ASSERT_EQ(again, size);
  EXPECT_EQ(std::memcmp(before, after, size), 0);
  EXPECT_EQ(fi_setname(ep.fid(), before, size), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_close(cq.fid()), -FI_EBUSY);
  EXPECT_EQ(fi_close(av.fid()), -FI_EBUSY);
  EXPECT_EQ(fi_close(domain.fid()), -FI_EBUSY);
}

TEST(DgramLife, AddressesOfEveryFormat) {
  DGRAM_NEEDS_SOCKETS();
  covers("address formats");
  std::vector<std::pair<std::string, uint32_t>> cases{
      {"127.0.0.1", FI_SOCKADDR}, {"127.0.0.1", FI_SOCKADDR_IN}, {"127.0.0.1", FI_ADDR_STR}};
  if (have_ipv6_loopback()) {
    for (uint32_t format : {FI_SOCKADDR, FI_SOCKADDR_IN6, FI_ADDR_STR})
      cases.emplace_back("::1", format);
  }
  for (const auto &[node, format] : cases) {
    SCOPED_TRACE(node + " " + std::to_string(format));
    Options options;
    options.node = node;
    options.addr_format = format;
    options.caps |= FI_SOURCE;
    Net net(2, options);
    EXPECT_EQ(net[0].info->addr_format, format);
    net.exchange(0, 1, net[0].info->ep_attr->max_msg_size);
    Bytes in(10), out(10);
    must(fi_recv(net[0].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
    must(fi_inject(net[1].ep, out.data(), 10, net.at(1, 0)));
    EXPECT_EQ(net.wait(net[0].rx_cq).source, net.at(0, 1));
  }
}

TEST(DgramLife, IPv6AndIPv4DoNotMix) {
  DGRAM_NEEDS_SOCKETS();
  covers("address formats");
  if (!have_ipv6_loopback()) GTEST_SKIP() << "no ::1";
  Options six;
  six.node = "::1";
  Net net(1, six);
  PlainSocket four;
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  const std::string name = four.name();
  char byte = 0;
  if (fi_av_insert(net[0].av, name.data(), 1, &to, 0, nullptr) == 1) {
    EXPECT_LT(fi_inject(net[0].ep, &byte, 1, to), 0) << "the error is that of the call";
  }
  net.exchange(0, 0);
}

TEST(DgramLife, BroadcastIsRefusedAtTheCall) {
  DGRAM_NEEDS_SOCKETS();
  covers("broadcast is off");
  Net net(1);
  PlainSocket other;
  std::string name = other.name();
  std::fill(name.begin() + 4, name.begin() + 8, char(0xff));
  const fi_addr_t all = net[0].insert(name);
  char byte = 0;
  const ssize_t rc = fi_send(net[0].ep, &byte, 1, nullptr, all, nullptr);
  EXPECT_TRUE(rc == -FI_EACCES || rc == -ENETUNREACH) << rc;
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq)) << "what was refused does not complete";
}

// Nothing listens at the peer's port: neither that datagram nor the next one fails.
TEST(DgramLife, APortThatIsClosedIsNoError) {
  DGRAM_NEEDS_SOCKETS();
  covers("socket errors");
  Net net(2);
  std::string gone;
  {
    PlainSocket nobody;
    gone = nobody.name();
  }
  const fi_addr_t to = net[0].insert(gone);
  Bytes out(10);
  for (int i = 0; i < 10; ++i) {
    must(fi_send(net[0].ep, out.data(), 10, nullptr, to, &out));
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.exchange(0, 1);
    net.exchange(1, 0);
  }
}

TEST(DgramLife, AnAliasSendsForItsEndpoint) {
  covers("endpoint aliases");
  Options options;
  options.tx_cq_flags = FI_SELECTIVE_COMPLETION;
  Net net(2, options);
  fid_ep *alias = nullptr;
  must(fi_ep_alias(net[0].ep, &alias, FI_TRANSMIT | FI_COMPLETION));
  EXPECT_EQ(fi_close(net[0].ep.fid()), -FI_EBUSY);
  Bytes in(10), out = pattern(10, 1);
  must(fi_recv(net[1].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
  must(fi_recv(net[1].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
  must(fi_send(net[0].ep, out.data(), 10, nullptr, net.at(0, 1), nullptr));
  must(fi_send(alias, out.data(), 10, nullptr, net.at(0, 1), &out));
  EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_FALSE(poll(net[0].tx_cq));
  must(fi_close(&alias->fid));
}

// The default flags of an alias are those of its sends: what they cannot have is refused here, and
// not at each of them.
TEST(DgramLife, AnAliasHasNoFlagsWithWhichItCannotSend) {
  covers("endpoint aliases");
  Net net(2);
  Bytes out(8);
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t flag = uint64_t{1} << bit;
    if (flag & (FI_TRANSMIT | FI_RECV | FI_MULTICAST | FI_TRIGGER)) continue;
    fid_ep *alias = nullptr;
    if (fi_ep_alias(net[0].ep, &alias, FI_TRANSMIT | flag) != 0) continue;
    const Handle<fid_ep> own(alias);
    const ssize_t rc = net.attempt(
        [&] { return fi_send(alias, out.data(), out.size(), nullptr, net.at(0, 1), nullptr); });
    EXPECT_EQ(rc, 0) << "bit " << bit;
  }
}

TEST(DgramLife, OptionsHaveTheLimits) {
  covers("endpoint options");
  Net net(1);
  for (auto [name, expected] : {std::pair{FI_OPT_MAX_MSG_SIZE, net[0].info->ep_attr->max_msg_size},
                                {FI_OPT_INJECT_MSG_SIZE, net[0].info->tx_attr->inject_size},
                                {FI_OPT_TX_SIZE, net[0].info->tx_attr->size},
                                {FI_OPT_RX_SIZE, net[0].info->rx_attr->size}}) {
    size_t value = 0, size = sizeof value;
    must(fi_getopt(net[0].ep.fid(), FI_OPT_ENDPOINT, name, &value, &size));
    EXPECT_EQ(value, expected) << name;
  }
  size_t value = 0, size = sizeof value;
  EXPECT_LT(fi_getopt(net[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MAX_TAGGED_SIZE, &value, &size), 0);
  uint64_t flags = FI_TRANSMIT;
  must(fi_control(net[0].ep.fid(), FI_GETOPSFLAG, &flags));
  EXPECT_EQ(flags & FI_INJECT, 0u);
}

// An application that asks for authentication must not get an endpoint without it.
TEST(DgramLife, KeysAreRefused) {
  covers("auth_key is refused");
  Node node{Options()};
  Info info(fi_dupinfo(node.info.get()));
  uint8_t key[16] = {1};
  info->ep_attr->auth_key = key;
  info->ep_attr->auth_key_size = sizeof key;
  fid_ep *ep = nullptr;
  const int rc = fi_endpoint(node.domain, info.get(), &ep, nullptr);
  EXPECT_LT(rc, 0);
  if (rc == 0) fi_close(&ep->fid);
  info->ep_attr->auth_key = nullptr;
  info->ep_attr->auth_key_size = 0;
}

// An endpoint that only sends or only receives needs no queue for the other direction.
TEST(DgramLife, OneDirectionOnly) {
  covers("FI_SEND alone, FI_RECV alone");
  Options sender, receiver;
  sender.caps |= FI_SEND;
  receiver.caps |= FI_RECV;
  Net net(0);
  net.add(sender);
  net.add(receiver);
  net.exchange(0, 1);
  char byte = 0;
  EXPECT_EQ(fi_recv(net[0].ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, nullptr), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_send(net[1].ep, &byte, 1, nullptr, net.at(1, 0), nullptr), -FI_EOPNOTSUPP);
}

TEST(DgramLife, RegionsCanBeRegistered) {
  covers("fi_mr_reg");
  Net net(1);
  Handle<fid_mr> mr;
  Bytes bytes(100);
  must(fi_mr_reg(net[0].domain, bytes.data(), 100, FI_SEND | FI_RECV, 0, 1, 0, mr.out(), nullptr));
  must(fi_recv(net[0].ep, bytes.data(), 50, fi_mr_desc(mr), FI_ADDR_UNSPEC, &bytes));
  must(fi_send(net[0].ep, bytes.data() + 50, 50, fi_mr_desc(mr), net.at(0, 0), &bytes));
  EXPECT_EQ(net.wait(net[0].rx_cq).err, 0);
}

TEST(DgramLife, OutstandingOperationsEndWithTheEndpoint) {
  covers("life cycle");
  for (int round = 0; round < 20; ++round) {
    Net net(2);
    Bytes in(10), out(10);
    for (int i = 0; i < 100; ++i)
      must(fi_recv(net[1].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
    iovec iov{out.data(), 10};
    fi_msg message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = net.at(0, 1);
    for (int i = 0; i < round; ++i) must(fi_sendmsg(net[0].ep, &message, FI_MORE));
  }
}

// ---- progress and threading ----

TEST(DgramProgress, OneThreadNeedsNoLock) {
  covers("FI_THREAD_DOMAIN");
  covers("FI_PROGRESS_MANUAL");
  Options options;
  options.threading = FI_THREAD_DOMAIN;
  options.progress = FI_PROGRESS_MANUAL;
  Net net(3, options);
  for (size_t i = 0; i < 30; ++i) net.exchange(i % 3, (i + 1) % 3, i * 40);
}

TEST(DgramProgress, AThreadReceivesAndSendsWithoutPolls) {
  DGRAM_NEEDS_COUNTERS();
  covers("FI_PROGRESS_AUTO");
  Options options;
  options.progress = FI_PROGRESS_AUTO;
  fid_cntr *received = nullptr;
  Net net(2, options, [&](Node &node) {
    fi_cntr_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    received = node.count(FI_RECV, attr);
  });
  Bytes in(10), out = pattern(10, 1);
  must(fi_recv(net[1].ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, &in));
  iovec iov{out.data(), 10};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = net.at(0, 1);
  must(fi_sendmsg(net[0].ep, &message, FI_MORE));  // no later call ends the batch
  must(fi_cntr_wait(received, 1, int(std::chrono::milliseconds(kPatience).count())));
  EXPECT_EQ(in, out);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);  // until then the buffer is lent
}

TEST(DgramProgress, AnIdleProcessUsesNoTime) {
  covers("idle");
  Options options;
  options.progress = FI_PROGRESS_AUTO;
  Net net(3, options);
  net.exchange(0, 1);
  // Datagrams without a receive must not keep the thread awake, either.
  Bytes out(10);
  must(fi_inject(net[0].ep, out.data(), 10, net.at(0, 2)));
  constexpr auto kLimit = std::chrono::milliseconds(25);
  EXPECT_LT(cpu_time_of(kLimit, [&] { std::this_thread::sleep_for(4 * kLimit); }), kLimit);
}

class DgramWait : public ::testing::TestWithParam<enum fi_wait_obj> {};
INSTANTIATE_TEST_SUITE_P(Objects, DgramWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND,
                                           FI_WAIT_YIELD));

TEST_P(DgramWait, SreadWakesUpForADatagram) {
  covers("wait objects");
  Options options;
  options.rx_cq.wait_obj = GetParam();
  Node receiver(options);
  // A plain socket, or another endpoint of the device.
  PlainSocket peer;
  std::unique_ptr<Node> node;
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  if (is_of_a_device(FI_EP_DGRAM)) {
    node = std::make_unique<Node>(Options());
    to = node->insert(receiver.name());
  }
  const auto send = [&](const Bytes &out) {
    return node == nullptr ? peer.send(receiver.name(), out)
                           : int(fi_inject(node->ep, out.data(), out.size(), to));
  };
  fi_cq_msg_entry entry{};
  EXPECT_EQ(fi_cq_sread(receiver.rx_cq, &entry, 1, nullptr, 20), -FI_EAGAIN);
  for (int i = 0; i < 50; ++i) {
    Bytes in(100);
    const Bytes out = pattern(i % 10, unsigned(i));
    must(fi_recv(receiver.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    std::thread sender([&] { EXPECT_EQ(send(out), 0); });
    const ssize_t n = fi_cq_sread(receiver.rx_cq, &entry, 1, nullptr,
                                  int(std::chrono::milliseconds(kPatience).count()));
    sender.join();
    ASSERT_EQ(n, 1) << error_text(n);
    EXPECT_EQ(entry.op_context, &in);
    EXPECT_EQ(entry.len, out.size());
  }
}

TEST(DgramWaitFd, TheDescriptorBecomesReadable) {
  DGRAM_NEEDS_SOCKETS();
  covers("FI_WAIT_FD");
  Options options;
  options.rx_cq.wait_obj = FI_WAIT_FD;
  Node receiver(options);
  PlainSocket peer;
  int fd = -1;
  must(fi_control(receiver.rx_cq.fid(), FI_GETWAIT, &fd));
  struct fid *fids[1] = {receiver.rx_cq.fid()};
  for (int i = 0; i < 20; ++i) {
    Bytes in(100);
    must(fi_recv(receiver.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
    ASSERT_EQ(fi_trywait(receiver.fabric, fids, 1), 0);
    ASSERT_EQ(peer.send(receiver.name(), pattern(10, 1)), 0);
    const Deadline deadline;
    fi_cq_msg_entry entry{};
    while (fi_cq_read(receiver.rx_cq, &entry, 1) != 1) {
      ASSERT_FALSE(deadline.passed());
      if (fi_trywait(receiver.fabric, fids, 1) == 0) {
        pollfd wait{fd, POLLIN, 0};
        ASSERT_EQ(::poll(&wait, 1, deadline.left_ms()), 1);
      }
    }
    EXPECT_EQ(entry.op_context, &in);
  }
}

TEST(DgramThreads, SeveralThreadsSendAndReceive) {
  covers("FI_THREAD_SAFE");
  Options options;
  options.threading = FI_THREAD_SAFE;
  Net net(2, options);
  constexpr int kThreads = 3, kEach = 2000;
  std::vector<std::thread> threads;
  std::atomic<int> received{0}, failed{0};
  // A device has no room but the receives.
  const int ahead = is_of_a_device(FI_EP_DGRAM) ? 18 : 200;
  std::vector<Bytes> in(64, Bytes(64));
  for (auto &buffer : in)
    must(fi_recv(net[1].ep, buffer.data(), 64, nullptr, FI_ADDR_UNSPEC, &buffer));
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        Bytes out = pattern(64, unsigned(t * kEach + i));
        // Never more on the way than the receiver's socket keeps.
        while (i > received / kThreads + ahead && failed == 0) std::this_thread::yield();
        ssize_t rc;
        while ((rc = fi_inject(net[0].ep, out.data(), 64, net.at(0, 1))) == -FI_EAGAIN)
          fi_cq_read(net[0].tx_cq, nullptr, 0);
        if (rc != 0) ++failed;
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      const Deadline deadline;
      while (received < kThreads * kEach && failed == 0 && !deadline.passed()) {
        fi_cq_msg_entry entry{};
        if (fi_cq_read(net[1].rx_cq, &entry, 1) != 1) continue;
        if (entry.len != 64) ++failed;
        auto &buffer = *static_cast<Bytes *>(entry.op_context);
        if (fi_recv(net[1].ep, buffer.data(), 64, nullptr, FI_ADDR_UNSPEC, &buffer) != 0) ++failed;
        ++received;
      }
    });
  }
  for (auto &thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(received, kThreads * kEach);
}

// ---- signals ----

TEST(DgramSignals, EndBlockingCalls) {
  covers("wait objects");
  for (const enum fi_progress progress : {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO}) {
    SCOPED_TRACE(fi_tostr(&progress, FI_TYPE_PROGRESS));
    Options options;
    options.progress = progress;
    if (!find_info(options)) continue;
    Net net(1, options);
    signals_end_blocking_calls(net[0]);
  }
}

// A child that closes what is its parent's.
TEST(DgramLife, AForkedChildThatClosesAllDisturbsNothing) {
  covers("life cycle");
  if (!in_fresh_process()) return;
  Options options;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_MSG, FI_WAIT_UNSPEC);
  for (const auto exits : kForkedEnds) {
    Net net(2, options);
    net.exchange(0, 1);
    in_forked_child([&] { const Net closes = std::move(net); }, exits);
    for (int i = 0; i < 3; ++i) {
      net.exchange(0, 1);
      net.exchange(1, 0);
    }
  }
}

}  // namespace
}  // namespace weft::conformance::dgram
