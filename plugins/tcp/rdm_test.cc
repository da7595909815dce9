// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_RDM over the public API, several endpoints in one process: exchange, threads, names, remote
// memory. Saved messages are in rdm_saved_test.cc, peers that leave and return in
// rdm_peers_test.cc.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "plugins/tcp/test_node.h"

namespace weft::conformance {
namespace {

using rdm::Completion, rdm::Options;

// ---- exchange ----

class RdmModes : public ::testing::TestWithParam<int> {};

// Each endpoint sends to all, itself included, before any has made progress.
TEST_P(RdmModes, AllPeersSendToAllAtOnce) {
  Options options = defaults();
  if (GetParam() == 1) options.threading = FI_THREAD_DOMAIN;
  if (GetParam() == 2) options.progress = FI_PROGRESS_AUTO;
  constexpr size_t kNodes = 4;
  const size_t sizes[] = {0, 1, 64, 4000, 70000, 300000};
  std::vector<std::unique_ptr<Node>> nodes;
  for (size_t i = 0; i < kNodes; ++i) nodes.push_back(std::make_unique<Node>(options));
  fi_addr_t to[kNodes][kNodes];
  for (size_t a = 0; a < kNodes; ++a)
    for (size_t b = 0; b < kNodes; ++b) to[a][b] = nodes[a]->insert(*nodes[b]);

  for (size_t size : sizes) {
    std::vector<Bytes> out(kNodes), in(kNodes * kNodes * 2, Bytes(size + 1));
    for (size_t a = 0; a < kNodes; ++a) out[a] = pattern(size, unsigned(a));
    for (size_t a = 0; a < kNodes; ++a) {
      for (size_t b = 0; b < kNodes; ++b) {
        must(fi_tsend(nodes[a]->ep, out[a].data(), size, nullptr, to[a][b], 1000 + a, mark(b)));
        must(fi_send(nodes[a]->ep, out[a].data(), size, nullptr, to[a][b], mark(50 + b)));
      }
    }
    for (size_t b = 0; b < kNodes; ++b) {
      for (size_t a = 0; a < kNodes; ++a) {
        const size_t k = (b * kNodes + a) * 2;
        must(fi_trecv(nodes[b]->ep, in[k].data(), size + 1, nullptr, FI_ADDR_UNSPEC, 1000 + a, 0,
                      mark(100 + a)));
        must(fi_recv(nodes[b]->ep, in[k + 1].data(), size + 1, nullptr, to[b][a], mark(200 + a)));
      }
    }
    const Nodes all = {nodes[0].get(), nodes[1].get(), nodes[2].get(), nodes[3].get()};
    for (size_t b = 0; b < kNodes; ++b) {
      for (size_t a = 0; a < kNodes; ++a) {
        const size_t k = (b * kNodes + a) * 2;
        const Completion tagged = wait(*nodes[b], mark(100 + a), all);
        EXPECT_EQ(tagged.err, 0);
        EXPECT_EQ(tagged.len, size);
        EXPECT_EQ(tagged.tag, 1000 + a);
        EXPECT_EQ(tagged.source, to[b][a]);
        EXPECT_EQ(tagged.flags, uint64_t(FI_RECV | FI_TAGGED));
        const Completion plain = wait(*nodes[b], mark(200 + a), all);
        EXPECT_EQ(plain.err, 0);
        EXPECT_EQ(plain.len, size);
        EXPECT_EQ(plain.source, to[b][a]);
        EXPECT_EQ(plain.flags, uint64_t(FI_RECV | FI_MSG));
        for (size_t i : {k, k + 1}) {
          in[i].resize(size);
          EXPECT_EQ(in[i], out[a]) << a << " to " << b;
        }
        EXPECT_EQ(wait(*nodes[a], mark(b), all).flags, uint64_t(FI_SEND | FI_TAGGED));
        EXPECT_EQ(wait(*nodes[a], mark(50 + b), all).flags, uint64_t(FI_SEND | FI_MSG));
      }
    }
    for (auto &node : nodes) {
      node->progress();
      EXPECT_TRUE(node->done.empty());
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Rdm, RdmModes, ::testing::Values(0, 1, 2), [](const auto &info) {
  return std::string(info.param == 0   ? "Locked"
                     : info.param == 1 ? "ThreadDomain"
                                       : "AutoProgress");
});

TEST(Rdm, BlockedReadersWake) {
  Options options = defaults();
  options.tx_cq.wait_obj = FI_WAIT_UNSPEC;
  Node a(options), b(options);
  const fi_addr_t to = a.insert(b);
  Bytes in(100), out = pattern(100, 1);
  must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, mark(1)));
  std::thread reader([&] {
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_sread(b.cq, &entry, 1, nullptr, 20000), 1);
    EXPECT_EQ(entry.op_context, mark(1));
  });
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 5, mark(2)));
  fi_cq_tagged_entry entry{};
  EXPECT_EQ(fi_cq_sread(a.cq, &entry, 1, nullptr, 20000), 1);
  reader.join();
  EXPECT_EQ(in, out);
}

TEST(Rdm, ThreadsShareAnEndpoint) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kThreads = 4, kEach = 300;
  std::atomic<size_t> sent{0}, received{0};
  const Bytes out = pattern(70000, 4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kEach; ++i) {
        const size_t size = i % 10 == 0 ? 70000 : 100;
        while (fi_tsend(a.ep, out.data(), size, nullptr, to, t, mark(t)) == -FI_EAGAIN)
          fi_cq_read(a.cq, nullptr, 0);
        fi_cq_tagged_entry entry;
        while (sent < kThreads * kEach && fi_cq_read(a.cq, &entry, 1) == 1) ++sent;
      }
      fi_cq_tagged_entry entry;
      while (sent < kThreads * kEach)
        if (fi_cq_read(a.cq, &entry, 1) == 1) ++sent;
    });
    threads.emplace_back([&, t] {
      Bytes in(70000);
      for (size_t i = 0; i < kEach; ++i) {
        must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, t, 0, mark(t)));
        fi_cq_tagged_entry entry;
        // Any of the threads may get a completion.
        if (fi_cq_read(b.cq, &entry, 1) == 1) ++received;
      }
      fi_cq_tagged_entry entry;
      while (received < kThreads * kEach)
        if (fi_cq_read(b.cq, &entry, 1) == 1) ++received;
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(sent, kThreads * kEach);
  EXPECT_EQ(received, kThreads * kEach);
}

// ---- names ----

TEST(Rdm, AStrangerGetsANameWhenItIsInserted) {
  Node a, b, c;
  const Bytes out = pattern(100, 8);
  Bytes in(100);
  const fi_addr_t a_to_b = a.insert(b), c_to_b = c.insert(b);
  // b has neither a nor c in its address vector, and tells their messages apart all the same.
  must(fi_tsend(a.ep, out.data(), 100, nullptr, a_to_b, 1, nullptr));
  must(fi_tsend(c.ep, out.data(), 50, nullptr, c_to_b, 1, nullptr));
  must(fi_tsend(a.ep, out.data(), 99, nullptr, a_to_b, 2, nullptr));
  must(fi_tsend(c.ep, out.data(), 49, nullptr, c_to_b, 2, nullptr));
  must(fi_trecv(b.ep, in.data(), 100, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(0)));
  EXPECT_EQ(wait(b, mark(0), {&a, &b, &c}).source, FI_ADDR_NOTAVAIL);
  until(
      {&a, &b, &c}, [&] { return false; }, std::chrono::milliseconds(10));
  const fi_addr_t c_at_b = b.insert(c), a_at_b = b.insert(a);
  must(fi_trecv(b.ep, in.data(), 100, nullptr, c_at_b, 2, 0, mark(1)));
  Completion got = wait(b, mark(1), {&a, &b, &c});
  EXPECT_EQ(got.len, 49u);
  EXPECT_EQ(got.source, c_at_b);
  must(fi_trecv(b.ep, in.data(), 100, nullptr, a_at_b, 2, 0, mark(2)));
  got = wait(b, mark(2), {&a, &b, &c});
  EXPECT_EQ(got.len, 99u);
  EXPECT_EQ(got.source, a_at_b);

  // After its removal c has no name again, and d gets its index.
  must(fi_av_remove(b.av, const_cast<fi_addr_t *>(&c_at_b), 1, 0));
  Node d;
  const fi_addr_t d_at_b = b.insert(d);
  EXPECT_EQ(d_at_b, c_at_b);
  const fi_addr_t d_to_b = d.insert(b);
  must(fi_tsend(c.ep, out.data(), 10, nullptr, c_to_b, 3, nullptr));
  must(fi_tsend(d.ep, out.data(), 20, nullptr, d_to_b, 3, nullptr));
  must(fi_trecv(b.ep, in.data(), 100, nullptr, d_at_b, 3, 0, mark(3)));
  EXPECT_EQ(wait(b, mark(3), {&a, &b, &c, &d}).len, 20u);
  must(fi_trecv(b.ep, in.data(), 100, nullptr, FI_ADDR_UNSPEC, 3, 0, mark(4)));
  got = wait(b, mark(4), {&a, &b, &c, &d});
  EXPECT_EQ(got.len, 10u);
  EXPECT_EQ(got.source, FI_ADDR_NOTAVAIL);
  // What b sends to the index goes to d.
  must(fi_tsend(b.ep, out.data(), 30, nullptr, d_at_b, 4, nullptr));
  must(fi_trecv(d.ep, in.data(), 100, nullptr, FI_ADDR_UNSPEC, 4, 0, mark(5)));
  EXPECT_EQ(wait(d, mark(5), {&b, &d}).len, 30u);
  EXPECT_EQ(fi_tsend(b.ep, out.data(), 30, nullptr, 4711, 4, nullptr), -FI_EINVAL);
}

// ---- memory ----

TEST(Rdm, RemoteMemory) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  Bytes target(100000), local = pattern(100000, 9), back(100000);
  Handle<fid_mr> region;
  must(fi_mr_reg(b.domain, target.data(), target.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0,
                 region.out(), nullptr));
  const uint64_t key = fi_mr_key(region);
  must(fi_writedata(a.ep, local.data(), local.size(), nullptr, 0x1234, to, 0, key, mark(1)));
  EXPECT_EQ(wait(a, mark(1), {&a, &b}).flags, uint64_t(FI_WRITE | FI_RMA));
  std::optional<Completion> told;
  ASSERT_TRUE(until({&a, &b}, [&] { return (told = b.take(nullptr)).has_value(); }));
  EXPECT_EQ(told->data, 0x1234u);
  EXPECT_EQ(told->flags, uint64_t(FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA));
  EXPECT_EQ(target, local);
  must(fi_read(a.ep, back.data(), back.size(), nullptr, to, 0, key, mark(2)));
  EXPECT_EQ(wait(a, mark(2), {&a, &b}).flags, uint64_t(FI_READ | FI_RMA));
  EXPECT_EQ(back, local);

  // Injected, to four places by one call.
  Bytes small = pattern(128, 10);
  iovec iov{small.data(), small.size()};
  fi_rma_iov places[4];
  for (size_t i = 0; i < 4; ++i) places[i] = {i * 1000, 32, key};
  fi_msg_rma msg{};
  msg.msg_iov = &iov;
  msg.iov_count = 1;
  msg.addr = to;
  msg.rma_iov = places;
  msg.rma_iov_count = 4;
  msg.context = mark(3);
  msg.data = 9;
  must(fi_writemsg(a.ep, &msg,
                   FI_INJECT | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA | FI_COMPLETION));
  std::ranges::fill(small, uint8_t(0));
  EXPECT_EQ(wait(a, mark(3), {&a, &b}).err, 0);
  const Bytes wanted = pattern(128, 10);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_TRUE(std::equal(wanted.begin() + ptrdiff_t(i * 32),
                           wanted.begin() + ptrdiff_t(i * 32 + 32),
                           target.begin() + ptrdiff_t(i * 1000)));

  // A wrong key fails its own operation.
  must(fi_read(a.ep, back.data(), 10, nullptr, to, 0, key + 1, mark(4)));
  EXPECT_EQ(wait(a, mark(4), {&a, &b}).err, FI_EACCES);
  std::ranges::fill(back, uint8_t(0));
  must(fi_read(a.ep, back.data(), 10, nullptr, to, 0, key, mark(5)));
  EXPECT_EQ(wait(a, mark(5), {&a, &b}).err, 0);
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + 10, target.begin()));
}

TEST(Rdm, DeliveryIsAcknowledged) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  for (size_t size : {size_t(100), size_t(100000)}) {
    const Bytes out = pattern(size, 11);
    Bytes in(size);
    iovec iov{const_cast<uint8_t *>(out.data()), size};
    fi_msg_tagged msg{};
    msg.msg_iov = &iov;
    msg.iov_count = 1;
    msg.addr = to;
    msg.tag = 1;
    msg.context = mark(1);
    must(fi_tsendmsg(a.ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION));
    // The receiver makes no progress.
    EXPECT_FALSE(until(
        {&a}, [&] { return !a.done.empty(); }, std::chrono::milliseconds(20)));
    must(fi_trecv(b.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(2)));
    EXPECT_EQ(wait(b, mark(2), {&a, &b}).len, size);
    EXPECT_EQ(wait(a, mark(1), {&a, &b}).err, 0);
    EXPECT_EQ(in, out);
  }
}

}  // namespace
}  // namespace weft::conformance
