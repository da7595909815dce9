// SPDX-License-Identifier: BSD-2-Clause
// Shared receive contexts of reliable datagram endpoints (fi_endpoint.3, SHARED CONTEXTS and
// fi_srx_context): one pool of receives for several endpoints of a domain.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

class RdmSrx : public ::testing::Test {
 protected:
  static constexpr uint64_t kCaps =
      FI_MSG | FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV | FI_MULTI_RECV;
  // The endpoints of the net: two that share, and two peers with their own receives.
  static constexpr size_t kA = 0, kB = 1, kPeer = 2, kOther = 3;

  void SetUp() override {
    covers("shared receive contexts");
    Options options;
    options.caps = kCaps;
    plain_ = options;
    options.shared_receive = true;
    shared_ = options;
    if (!find_info(options)) GTEST_SKIP() << stack() << " has no shared receive contexts";
  }
  // Both ends of the pool, and the peers.
  void open(size_t rx_size = 0) {
    shared_.rx_size = rx_size;
    net.emplace(0);
    Node &a = net->add(shared_);
    net->add(shared_, {}, &a);
    net->add(plain_);
    net->add(plain_);
    srx = a.srx;
  }
  // From a peer to one of the two.
  void send(size_t from, size_t to, std::vector<uint8_t> &out, uint64_t tag) {
    net->post([&] {
      return fi_tsend((*net)[from].ep, out.data(), out.size(), nullptr, net->at(from, to), tag,
                      &out);
    });
  }
  void recv(std::vector<uint8_t> &in, uint64_t tag, uint64_t ignore = 0,
            fi_addr_t from = FI_ADDR_UNSPEC) {
    must(fi_trecv(srx, in.data(), in.size(), nullptr, from, tag, ignore, &in));
  }
  Completion at(size_t node) { return net->wait((*net)[node].rx_cq); }
  bool quiet(size_t node) {
    net->settle();
    return !poll((*net)[node].rx_cq).has_value();
  }

  Options plain_, shared_;
  std::optional<Net> net;
  fid_ep *srx = nullptr;
};

TEST_F(RdmSrx, GetinfoOffersThemIfAskedFor) {
  const Info info = find_info(shared_);
  EXPECT_EQ(info->ep_attr->rx_ctx_cnt, size_t(FI_SHARED_CONTEXT));
  EXPECT_GT(info->domain_attr->max_ep_srx_ctx, 0u);
  EXPECT_NE(find_info(plain_)->ep_attr->rx_ctx_cnt, size_t(FI_SHARED_CONTEXT));
}

TEST_F(RdmSrx, TheEndpointThatGotTheMessageReportsToItsOwnQueue) {
  open();
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    for (const bool posted_first : {true, false}) {
      std::vector<uint8_t> in(size), in2(size), out = pattern(size, 1), out2 = pattern(size, 2);
      const auto post = [&] {
        recv(in, 5);
        recv(in2, 6);
      };
      if (posted_first) post();
      send(kPeer, kB, out, 5);
      send(kOther, kA, out2, 6);
      if (!posted_first) {
        net->settle();
        post();
      }
      const Completion b = at(kB), a = at(kA);
      ASSERT_EQ(b.err, 0) << fi_strerror(b.err);
      ASSERT_EQ(a.err, 0) << fi_strerror(a.err);
      EXPECT_EQ(b.context, &in);
      EXPECT_EQ(b.tag, 5u);
      EXPECT_EQ(b.len, size);
      EXPECT_EQ(b.source, net->at(kA, kPeer));
      EXPECT_EQ(a.context, &in2);
      EXPECT_EQ(a.source, net->at(kA, kOther));
      EXPECT_EQ(in, out);
      EXPECT_EQ(in2, out2);
      EXPECT_EQ(net->wait((*net)[kPeer].tx_cq).err, 0);
      EXPECT_EQ(net->wait((*net)[kOther].tx_cq).err, 0);
    }
  }
}

TEST_F(RdmSrx, UntaggedReceivesAreTakenInTheOrderOfPosting) {
  open();
  std::vector<std::vector<uint8_t>> in(4, std::vector<uint8_t>(8));
  for (auto &bytes : in) must(fi_recv(srx, bytes.data(), 8, nullptr, FI_ADDR_UNSPEC, &bytes));
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t to = i % 2 == 0 ? kB : kA;
    std::vector<uint8_t> out = pattern(8, unsigned(i));
    net->post([&] {
      return fi_send((*net)[kPeer].ep, out.data(), 8, nullptr, net->at(kPeer, to), &out);
    });
    const Completion got = at(to);
    EXPECT_EQ(got.context, &in[i]);
    EXPECT_EQ(in[i], out);
    net->wait((*net)[kPeer].tx_cq);
  }
}

TEST_F(RdmSrx, TheOrderOfEachSenderIsKept) {
  open();
  constexpr uint64_t kCount = 200;
  struct Slot {
    uint64_t number;
  };
  std::vector<Slot> slots(32);
  const auto post = [&](Slot &slot) {
    must(fi_recv(srx, &slot.number, sizeof slot.number, nullptr, FI_ADDR_UNSPEC, &slot));
  };
  for (Slot &slot : slots) post(slot);
  uint64_t sent[2][2] = {}, seen[2][2] = {};
  uint64_t total = 0;
  const auto drain = [&](size_t to) {
    while (const auto done = poll((*net)[to].rx_cq)) {
      ASSERT_EQ(done->err, 0) << fi_strerror(done->err);
      auto &slot = *static_cast<Slot *>(done->context);
      const size_t from = done->source == net->at(kA, kPeer) ? 0 : 1;
      EXPECT_EQ(slot.number, seen[from][to]++);
      ++total;
      post(slot);
    }
  };
  EXPECT_TRUE(net->until([&] {
    for (size_t from : {0, 1}) {
      for (size_t to : {kA, kB}) {
        uint64_t &n = sent[from][to];
        if (n < kCount &&
            fi_inject((*net)[kPeer + from].ep, &n, sizeof n, net->at(kPeer + from, to)) == 0)
          ++n;
      }
    }
    drain(kA);
    drain(kB);
    return total == 4 * kCount || HasFatalFailure();
  }));
}

TEST_F(RdmSrx, DirectedReceivesNameThePeerNotTheEndpoint) {
  open();
  std::vector<uint8_t> in(8), out = pattern(8, 1), out2 = pattern(8, 2);
  recv(in, 1, 0, net->at(kA, kOther));
  send(kPeer, kA, out, 1);
  EXPECT_TRUE(quiet(kA));
  send(kOther, kB, out2, 1);
  const Completion got = at(kB);
  EXPECT_EQ(got.context, &in);
  EXPECT_EQ(got.source, net->at(kA, kOther));
  EXPECT_EQ(in, out2);
  std::vector<uint8_t> rest(8);
  recv(rest, 1);
  EXPECT_EQ(at(kA).context, &rest);
  EXPECT_EQ(rest, out);
}

TEST_F(RdmSrx, AMultiReceiveBufferTakesTheMessagesOfAll) {
  open();
  std::vector<uint8_t> buffer(1000);
  size_t minimum = 100;
  must(fi_setopt(&srx->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &minimum, sizeof minimum));
  post_multi(srx, buffer);
  size_t told_end = 0;
  for (int i = 0; i < 10; ++i) {
    const size_t to = i % 2 == 0 ? kA : kB;
    std::vector<uint8_t> out(64, uint8_t('a' + i));
    net->post([&] { return fi_inject((*net)[kPeer].ep, out.data(), 64, net->at(kPeer, to)); });
    const Completion got = at(to);
    ASSERT_EQ(got.err, 0);
    EXPECT_EQ(got.context, &buffer);
    EXPECT_EQ(got.len, 64u);
    EXPECT_EQ(std::memcmp(got.buf, out.data(), 64), 0);
    if (got.flags & FI_MULTI_RECV) ++told_end;
  }
  EXPECT_EQ(told_end, 0u) << "360 of 1000 bytes are left";
  for (int i = 0; i < 5 && told_end == 0; ++i) {
    char bytes[64] = {};
    net->post([&] { return fi_inject((*net)[kPeer].ep, bytes, 64, net->at(kPeer, kB)); });
    if (at(kB).flags & FI_MULTI_RECV) ++told_end;
  }
  EXPECT_EQ(told_end, 1u);
}

TEST_F(RdmSrx, PeekAndClaimSeeTheMessagesOfAll) {
  open();
  const auto look = [&](uint64_t tag, void *context, uint64_t flags) {
    fi_msg_tagged m{};
    m.tag = tag;
    m.addr = FI_ADDR_UNSPEC;
    m.context = context;
    must(fi_trecvmsg(srx, &m, flags | FI_COMPLETION));
  };
  const auto told = [&] {  // by either endpoint
    std::optional<Completion> done;
    EXPECT_TRUE(net->until([&] {
      done = poll((*net)[kA].rx_cq);
      if (!done) done = poll((*net)[kB].rx_cq);
      return done.has_value();
    }));
    return done.value_or(Completion{});
  };
  int mark = 0;
  look(9, &mark, FI_PEEK);
  EXPECT_EQ(told().err, FI_ENOMSG);
  std::vector<uint8_t> in(100), out = pattern(100, 1);
  send(kPeer, kB, out, 9);
  Completion found;
  EXPECT_TRUE(net->until([&] {
    look(9, &mark, FI_PEEK | FI_CLAIM);
    found = told();
    return found.err == 0;
  }));
  EXPECT_EQ(found.len, 100u);
  EXPECT_EQ(found.source, net->at(kA, kPeer));
  const iovec iov{in.data(), in.size()};
  fi_msg_tagged m{};
  m.msg_iov = &iov;
  m.iov_count = 1;
  m.tag = 9;
  m.addr = FI_ADDR_UNSPEC;
  m.context = &mark;
  must(fi_trecvmsg(srx, &m, FI_CLAIM | FI_COMPLETION));
  EXPECT_EQ(at(kB).len, 100u);
  EXPECT_EQ(in, out);
}

TEST_F(RdmSrx, ACancelledReceiveIsReportedByOneEndpoint) {
  open();
  const ssize_t all = receives_left(srx);
  std::vector<uint8_t> in(8), in2(8), out = pattern(8, 1);
  recv(in, 1);
  recv(in2, 1);
  EXPECT_EQ(receives_left(srx), all - 2);
  must(fi_cancel(&srx->fid, &in));
  EXPECT_EQ(fi_cancel(&srx->fid, &in), -FI_ENOENT);
  std::optional<Completion> done;
  ASSERT_TRUE(net->until([&] {
    done = poll((*net)[kA].rx_cq);
    if (!done) done = poll((*net)[kB].rx_cq);
    return done.has_value();
  }));
  EXPECT_EQ(done->err, FI_ECANCELED);
  EXPECT_EQ(done->context, &in);
  send(kPeer, kB, out, 1);
  EXPECT_EQ(at(kB).context, &in2) << "the other one is still there";
  EXPECT_EQ(receives_left(srx), all);
}

TEST_F(RdmSrx, EndpointsThatShareHaveNoReceivesOfTheirOwn) {
  open();
  char in[4];
  EXPECT_EQ(fi_recv((*net)[kA].ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, in), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_trecv((*net)[kB].ep, in, sizeof in, nullptr, FI_ADDR_UNSPEC, 0, 0, in),
            -FI_EOPNOTSUPP);
  EXPECT_LT(fi_send(srx, in, sizeof in, nullptr, 0, nullptr), 0) << "a context does not send";
}

TEST_F(RdmSrx, SendsWorkAsWithoutIt) {
  open();
  std::vector<uint8_t> in(5000), out = pattern(5000, 1);
  must(fi_trecv((*net)[kPeer].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 3, 0, &in));
  send(kB, kPeer, out, 3);
  EXPECT_EQ(at(kPeer).err, 0);
  EXPECT_EQ(net->wait((*net)[kB].tx_cq).err, 0);
  EXPECT_EQ(in, out);
}

// Between the two that share, and to itself.
TEST_F(RdmSrx, TheyReachEachOther) {
  open();
  for (const auto &[from, to] : {std::pair{kA, kB}, {kB, kA}, {kA, kA}}) {
    std::vector<uint8_t> in(300000), out = pattern(300000, 1);
    recv(in, 4);
    send(from, to, out, 4);
    EXPECT_EQ(at(to).context, &in);
    EXPECT_EQ(net->wait((*net)[from].tx_cq).err, 0);
    EXPECT_EQ(in, out);
  }
}

TEST_F(RdmSrx, AnEndpointThatClosesLeavesTheReceivesToTheOthers) {
  open();
  const ssize_t all = receives_left(srx);
  std::vector<uint8_t> in(100), in2(1 << 20), out = pattern(100, 1), large = pattern(1 << 20, 2);
  recv(in, 1);
  // A large message on its way to B, in any state, and a message without a receive.
  recv(in2, 2);
  send(kPeer, kB, large, 2);
  send(kPeer, kB, out, 77);
  for (int i = 0; i < 3; ++i) net->progress();
  (*net)[kB].ep.reset();
  // B took the large message or closed before: its receive is used up, or free again.
  send(kOther, kA, out, 1);
  EXPECT_EQ(at(kA).context, &in);
  EXPECT_EQ(in, out);
  EXPECT_GE(receives_left(srx), all - 1);
  if (receives_left(srx) == all - 1) must(fi_cancel(&srx->fid, &in2));
  EXPECT_EQ(receives_left(srx), all);
  net.reset();  // before the buffers: the peer's sends may not have ended
}

TEST_F(RdmSrx, ThePoolOutlivesItsEndpoints) {
  open();
  std::vector<uint8_t> in(8), out = pattern(8, 1);
  recv(in, 1);
  EXPECT_EQ(fi_close(&srx->fid), -FI_EBUSY) << "endpoints are bound to it";
  (*net)[kB].ep.reset();
  EXPECT_EQ(fi_close(&srx->fid), -FI_EBUSY);
  send(kPeer, kA, out, 1);
  EXPECT_EQ(at(kA).context, &in);
}

TEST_F(RdmSrx, WrongCombinationsAreRefused) {
  open();
  Node &a = (*net)[kA];
  Handle<fid_ep> ep;
  must(fi_endpoint(a.domain, a.info.get(), ep.out(), nullptr));
  must(fi_ep_bind(ep, a.tx_cq.fid(), FI_TRANSMIT | FI_RECV));
  fi_av_attr attr{};
  attr.type = FI_AV_TABLE;
  Handle<fid_av> other_av;
  must(fi_av_open(a.domain, &attr, other_av.out(), nullptr));
  must(fi_ep_bind(ep, other_av.fid(), 0));
  EXPECT_LT(fi_enable(ep), 0) << "opened for a shared context, and has none";
  must(fi_ep_bind(ep, &srx->fid, 0));
  EXPECT_EQ(fi_ep_bind(ep, &srx->fid, 0), -FI_EBUSY);
  EXPECT_LT(fi_enable(ep), 0) << "the others have another address vector";
  ep.reset();
  Node &peer = (*net)[kPeer];
  must(fi_endpoint(peer.domain, peer.info.get(), ep.out(), nullptr));
  EXPECT_LT(fi_ep_bind(ep, &srx->fid, 0), 0) << "a context of another domain";
  fi_rx_attr rx{};
  rx.caps = FI_MSG | FI_COLLECTIVE;
  fid_ep *none = nullptr;
  EXPECT_LT(fi_srx_context(a.domain, &rx, &none, nullptr), 0);
}

// Each endpoint has a thread that reads its queue and posts what it took again; each peer one that
// sends to both.
TEST_F(RdmSrx, ThreadsOfAllEndpointsPostToOneContext) {
  for (Options *options : {&plain_, &shared_}) {
    options->threading = FI_THREAD_SAFE;
    options->progress = FI_PROGRESS_AUTO;
  }
  open();
  constexpr uint64_t kCount = 300;
  constexpr size_t kSize = 100;
  std::vector<std::vector<uint8_t>> in(16, std::vector<uint8_t>(kSize));
  for (auto &bytes : in) recv(bytes, 0, ~UINT64_C(0));
  std::atomic<uint64_t> received{0}, wrong{0};
  const Deadline deadline;
  const auto work = [&](size_t node, const std::function<bool()> &step) {
    return std::thread([&, node, step] {
      while (!deadline.passed() && step()) {
        if (node >= kPeer) fi_cq_read((*net)[node].tx_cq, nullptr, 0);
        std::this_thread::yield();
      }
    });
  };
  std::vector<std::thread> threads;
  for (size_t node : {kA, kB}) {
    threads.push_back(work(node, [&, node] {
      while (const auto done = poll((*net)[node].rx_cq)) {
        auto &bytes = *static_cast<std::vector<uint8_t> *>(done->context);
        if (done->err != 0 || done->len != kSize || bytes != pattern(kSize, unsigned(done->tag)))
          ++wrong;
        ++received;
        if (fi_trecv(srx, bytes.data(), kSize, nullptr, FI_ADDR_UNSPEC, 0, ~UINT64_C(0), &bytes) !=
            0)
          ++wrong;
      }
      return received < 4 * kCount;
    }));
  }
  uint64_t sent[2] = {};
  std::vector<uint8_t> out[2];
  for (size_t peer : {0, 1}) {
    threads.push_back(work(kPeer + peer, [&, peer] {
      uint64_t &n = sent[peer];
      if (poll((*net)[kPeer + peer].tx_cq)) out[peer].clear();  // it has left
      if (!out[peer].empty()) return true;
      if (n == 2 * kCount) return false;
      out[peer] = pattern(kSize, unsigned(n));
      const ssize_t rc = fi_tsend((*net)[kPeer + peer].ep, out[peer].data(), kSize, nullptr,
                                  net->at(kPeer + peer, n % 2 == 0 ? kA : kB), n, nullptr);
      if (rc != 0) {
        if (rc != -FI_EAGAIN) ++wrong;
        out[peer].clear();
        return true;
      }
      ++n;
      return true;
    }));
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(received, 4 * kCount);
  EXPECT_EQ(wrong, 0u);
}

TEST_F(RdmSrx, CountersBelongToTheEndpoints) {
  net.emplace(0);
  fid_cntr *counters[2] = {};
  const auto with = [&](int i) {
    return [&counters, i](Node &node) { counters[i] = node.count(FI_RECV); };
  };
  Node &a = net->add(shared_, with(0));
  net->add(shared_, with(1), &a);
  net->add(plain_);
  srx = a.srx;
  std::vector<uint8_t> in(8), out = pattern(8, 1);
  for (int i = 0; i < 3; ++i) {
    recv(in, 1);
    send(kPeer, kB, out, 1);
    at(kB);
  }
  EXPECT_EQ(fi_cntr_read(counters[1]), 3u);
  EXPECT_EQ(fi_cntr_read(counters[0]), 0u);
}

// What fi_getinfo says of receives (rx_attr.caps) is what a context can be opened with.
TEST(RdmSrxAttributes, ThoseOfFiGetinfoAreTaken) {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | FI_RMA;
  options.shared_receive = true;
  if (!find_info(options)) GTEST_SKIP() << "no shared receive contexts";
  Node node(options);
  EXPECT_NE(node.srx.get(), nullptr);
  fi_rx_attr attr = *node.info->rx_attr;
  attr.caps |= FI_MULTICAST;  // is of sends
  fid_ep *refused = nullptr;
  EXPECT_EQ(fi_srx_context(node.domain, &attr, &refused, nullptr), -FI_EINVAL);
}

}  // namespace
}  // namespace weft::conformance::rdm
