// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_RDM over the public API: several endpoints in one process, and what is special about theirs
// having one stream per pair: who connects, what is kept for receives that are not posted, and what
// remains when a peer goes.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "plugins/tcp/test_node.h"
#include "plugins/tcp/wire/connect_message.h"
#include "plugins/tcp/wire/rdm_message.h"

namespace weft::conformance {
namespace {

using rdm::Completion, rdm::Options;

// ---- exchange ----

class RdmModes : public ::testing::TestWithParam<int> {};

// Everybody sends to everybody, itself too, before anybody has made any progress.
TEST_P(RdmModes, EverybodyToEverybodyAtOnce) {
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

// ---- what nobody has posted a receive for ----

TEST(Rdm, UnexpectedMessagesAreFoundInAnyOrder) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  const size_t sizes[] = {0, 10, 5000, 60000, 65536, 65537, 200000, 1000000};
  constexpr size_t kCount = std::size(sizes);
  std::vector<Bytes> out, in;
  for (size_t i = 0; i < kCount; ++i) {
    out.push_back(pattern(sizes[i], unsigned(i)));
    in.emplace_back(sizes[i]);
    must(fi_tsenddata(a.ep, out[i].data(), out[i].size(), nullptr, 77 + i, to, i, mark(i)));
  }
  // The last that was sent is taken first.
  for (size_t i = kCount; i-- > 0;) {
    must(fi_trecv(b.ep, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
    const Completion got = wait(b, mark(i), {&a, &b});
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.len, sizes[i]);
    EXPECT_EQ(got.data, 77 + i);
    EXPECT_EQ(got.flags, uint64_t(FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
    EXPECT_EQ(in[i], out[i]);
    EXPECT_EQ(wait(a, mark(i), {&a, &b}).err, 0);
  }
}

// Large ones in a row, which are read with less room in front, and others among them.
TEST(Rdm, LargeMessagesOfChangingSizes) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kRoom = 200000;
  const Bytes out = pattern(kRoom, 17);
  const size_t sizes[] = {16384, 16385, 65536, 20000, 40000,  39999, 3,     50000, 70000,
                          70001, 69999, 16384, 0,     200000, 65536, 65537, 1,     60000};
  constexpr size_t kCount = std::size(sizes);
  for (const bool in_a_row : {false, true}) {
    std::vector<Bytes> in(kCount, Bytes(kRoom));
    for (size_t i = 0; i < kCount; ++i)
      must(fi_trecv(b.ep, in[i].data(), kRoom, nullptr, FI_ADDR_UNSPEC, i % 3, 0, mark(i)));
    for (size_t i = 0; i < kCount; ++i) {
      must(fi_tsend(a.ep, out.data(), sizes[i], nullptr, to, i % 3, mark(i)));
      if (!in_a_row) until({&a, &b}, [&] { return b.done.size() > i; });
    }
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(wait(b, mark(i), {&a, &b}).len, sizes[i]);
      EXPECT_EQ(wait(a, mark(i), {&a, &b}).err, 0);
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + ptrdiff_t(sizes[i]), in[i].begin())) << i;
    }
  }
}

// More announced messages than there are numbers for: those behind wait, in order.
TEST(Rdm, MoreLargeMessagesThanRendezvousNumbers) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kCount = 600, kSize = 70000;
  const Bytes out = pattern(kSize + kCount, 3);
  for (size_t i = 0; i < kCount; ++i)
    must(fi_tsend(a.ep, out.data() + i, kSize, nullptr, to, 9, mark(i)));
  until(
      {&a, &b}, [&] { return false; }, std::chrono::milliseconds(20));
  Bytes in(kSize);
  for (size_t i = 0; i < kCount; ++i) {
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 9, 0, mark(i)));
    EXPECT_EQ(wait(b, mark(i), {&a, &b}).len, kSize);
    ASSERT_TRUE(std::equal(in.begin(), in.end(), out.begin() + ptrdiff_t(i))) << i;
    EXPECT_EQ(wait(a, mark(i), {&a, &b}).err, 0);
  }
}

// The last first: the receiver fetches what it can keep, so that the announcement that it waits for
// gets through.
TEST(Rdm, MoreLargeMessagesThanRendezvousNumbersBackwards) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kCount = 400, kSize = 70000;
  const Bytes out = pattern(kSize + kCount, 3);
  for (size_t i = 0; i < kCount; ++i)
    must(fi_tsend(a.ep, out.data() + i, kSize, nullptr, to, i, mark(i)));
  std::vector<Bytes> in(kCount, Bytes(kSize));
  // Half of the receives while messages are on their way, one after the other; the rest at once.
  for (size_t i = kCount; i-- > 0;) {
    must(fi_trecv(b.ep, in[i].data(), kSize, nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
    if (i >= kCount / 2) {
      EXPECT_EQ(wait(b, mark(i), {&a, &b}).len, kSize);
    }
  }
  for (size_t i = 0; i < kCount; ++i) {
    if (i < kCount / 2) {
      EXPECT_EQ(wait(b, mark(i), {&a, &b}).len, kSize);
    }
    ASSERT_TRUE(std::equal(in[i].begin(), in[i].end(), out.begin() + ptrdiff_t(i))) << i;
    EXPECT_EQ(wait(a, mark(i), {&a, &b}).err, 0);
  }
}

// More than the receiver keeps: once it keeps much it says so, and gets announcements.
TEST(Rdm, MoreThanIsKeptBackwards) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kCount = 64, kSize = 1 << 20;
  const Bytes out = pattern(kSize + kCount, 3);
  Bytes in(kSize);
  for (int times = 0; times < 2; ++times) {
    for (size_t i = 0; i < kCount; ++i)
      must(fi_tsend(a.ep, out.data() + i, kSize, nullptr, to, i, mark(i)));
    for (size_t i = kCount; i-- > 0;) {
      must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
      EXPECT_EQ(wait(b, mark(i), {&a, &b}).len, kSize);
      ASSERT_TRUE(std::equal(in.begin(), in.end(), out.begin() + ptrdiff_t(i))) << i;
    }
    for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(wait(a, mark(i), {&a, &b}).err, 0);
    // When all is received long messages come unasked again: nobody waits for the receiver.
    must(fi_tsend(a.ep, out.data(), kSize, nullptr, to, 99, mark(99)));
    EXPECT_EQ(wait(a, mark(99), {&a, &b}).err, 0);
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 99, 0, mark(99)));
    EXPECT_EQ(wait(b, mark(99), {&a, &b}).len, kSize);
  }
}

// The receiver has said that it has room; then it is away for a while, or there are many senders,
// or it keeps less than one message.
TEST(Rdm, MoreThanIsKeptAfterARest) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kCount = 64, kSize = 1 << 20;
  const Bytes out = pattern(kSize, 3);
  Bytes in(kSize);
  for (int times = 0; times < 20; ++times) {
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)));
    must(fi_tsend(a.ep, out.data(), kSize, nullptr, to, 1, mark(0)));
    EXPECT_EQ(wait(b, mark(1), {&a, &b}).len, kSize);
    EXPECT_EQ(wait(a, mark(0), {&a, &b}).err, 0);
  }
  for (size_t i = 0; i < kCount; ++i)
    must(fi_tsend(a.ep, out.data(), kSize, nullptr, to, i, mark(i)));
  until(
      {&a}, [] { return false; }, std::chrono::milliseconds(50));
  EXPECT_FALSE(a.done.empty()) << "nothing was sent unannounced";
  for (size_t i = kCount; i-- > 0;) {
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
    EXPECT_EQ(wait(b, mark(i), {&a, &b}).len, kSize);
  }
}

TEST(Rdm, ManySendMoreThanIsKept) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED=64M"})) return;
  constexpr size_t kPeers = 6, kCount = 20, kSize = 1 << 20;
  Node b;
  std::vector<std::unique_ptr<Node>> peers;
  std::vector<fi_addr_t> to, from;
  const Bytes out = pattern(kSize, 3);
  Bytes in(kSize);
  const auto receive = [&](size_t peer, size_t tag) {
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, from[peer], tag, 0, mark(1000)));
    std::optional<Completion> got;
    for (const Deadline deadline(kPatience); !got && !deadline.passed();) {
      for (const auto &p : peers) p->progress();
      b.progress();
      got = b.take(mark(1000));
    }
    ASSERT_TRUE(got) << "peer " << peer << " tag " << tag;
    EXPECT_EQ(got->len, kSize);
  };
  for (size_t k = 0; k < kPeers; ++k) {
    peers.push_back(std::make_unique<Node>());
    to.push_back(peers[k]->insert(b));
    from.push_back(b.insert(*peers[k]));
  }
  // One of each first: some are told that there is room for more.
  for (size_t k = 0; k < kPeers; ++k) {
    must(fi_tsend(peers[k]->ep, out.data(), kSize, nullptr, to[k], 99, mark(99)));
    receive(k, 99);
  }
  for (size_t k = 0; k < kPeers; ++k)
    for (size_t i = 0; i < kCount; ++i)
      must(fi_tsend(peers[k]->ep, out.data(), kSize, nullptr, to[k], i, mark(i)));
  for (size_t k = kPeers; k-- > 0;)
    for (size_t i = kCount; i-- > 0;) receive(k, i);
}

TEST(Rdm, LongerThanWhatIsKept) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_PER_PEER=4M"})) return;
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kSize = 6 << 20;
  const Bytes out = pattern(kSize, 3);
  Bytes in(kSize);
  for (size_t i = 0; i < 3; ++i) must(fi_tsend(a.ep, out.data(), kSize, nullptr, to, i, mark(i)));
  for (size_t i = 3; i-- > 0;) {
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
    EXPECT_EQ(wait(b, mark(i), {&a, &b}).len, kSize);
  }
}

// The same where the sender goes away in the middle: what is not here is gone, what was matched
// fails, and nothing else.
TEST(Rdm, ASenderDiesAmongAnnouncements) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_SIZE=64K"})) return;
  Node b;
  auto a = std::make_unique<Node>();
  const fi_addr_t to = a->insert(b);
  constexpr size_t kCount = 200, kSize = 70000;
  const Bytes out = pattern(kSize, 3);
  for (size_t i = 0; i < kCount; ++i)
    must(fi_tsend(a->ep, out.data(), kSize, nullptr, to, i, mark(i)));
  until(
      {a.get(), &b}, [&] { return false; }, std::chrono::milliseconds(10));
  Bytes in(kSize);
  must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 0, 0, mark(0)));
  // The sender is not moved any more.
  a.reset();
  EXPECT_EQ(wait(b, mark(0), {&b}).err, FI_ECONNRESET);
  // What was fetched is here to be received; what was only announced keeps its place and fails.
  size_t here = 0;
  for (size_t i = 1; i < kCount; ++i) {
    fi_msg_tagged msg{};
    msg.addr = FI_ADDR_UNSPEC;
    msg.tag = i;
    msg.context = mark(i);
    must(fi_trecvmsg(b.ep, &msg, FI_PEEK));
    const Completion peeked = wait(b, mark(i), {&b});
    if (peeked.err != 0) continue;
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, i, 0, mark(1000)));
    const Completion got = wait(b, mark(1000), {&b});
    if (got.err != 0) {
      EXPECT_EQ(got.err, FI_ECONNRESET);
      continue;
    }
    ++here;
    EXPECT_EQ(got.len, kSize);
    EXPECT_EQ(in, out);
  }
  EXPECT_LT(here, kCount / 2);
}

// Many threads on one endpoint.
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
        // Somebody gets each completion.
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

TEST(Rdm, PeekClaimAndDiscard) {
  Node a, b;
  const fi_addr_t to = a.insert(b), from = b.insert(a);
  for (size_t size : {size_t(100), size_t(200000)}) {
    const Bytes out = pattern(size, 4);
    for (uint64_t tag : {1, 2, 3})
      must(fi_tsend(a.ep, out.data(), size, nullptr, to, tag, mark(tag)));
    Bytes in(size);
    iovec iov{in.data(), in.size()};
    const auto look = [&](uint64_t tag, uint64_t flags, void *context) {
      fi_msg_tagged msg{};
      msg.msg_iov = &iov;
      msg.iov_count = 1;
      msg.addr = from;
      msg.tag = tag;
      msg.context = context;
      must(fi_trecvmsg(b.ep, &msg, flags));
      return wait(b, context, {&a, &b});
    };
    fi_context claimed{};
    // Until the last is here.
    ASSERT_TRUE(until({&a, &b}, [&] { return look(3, FI_PEEK, mark(90)).err == 0; }));
    EXPECT_EQ(look(1, FI_PEEK, mark(91)).len, size);
    EXPECT_EQ(look(1, FI_PEEK | FI_CLAIM, &claimed).len, size);
    EXPECT_EQ(look(1, FI_PEEK, mark(92)).err, FI_ENOMSG);
    EXPECT_EQ(look(2, FI_PEEK | FI_DISCARD, mark(93)).len, size);
    EXPECT_EQ(look(2, FI_PEEK, mark(94)).err, FI_ENOMSG);
    EXPECT_EQ(look(1, FI_CLAIM, &claimed).len, size);
    EXPECT_EQ(in, out);
    std::ranges::fill(in, uint8_t(0));
    must(fi_trecv(b.ep, in.data(), size, nullptr, from, 3, 0, mark(95)));
    EXPECT_EQ(wait(b, mark(95), {&a, &b}).len, size);
    EXPECT_EQ(in, out);
    // What was discarded has left the sender all the same.
    for (uint64_t tag : {1, 2, 3}) EXPECT_EQ(wait(a, mark(tag), {&a, &b}).err, 0);
  }
}

TEST(Rdm, TooLongMessagesAreCutAndTheNextIsWhole) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  for (bool late : {false, true}) {
    for (size_t size : {size_t(1000), size_t(100000)}) {
      const Bytes out = pattern(size, 5);
      Bytes in(300);
      const auto receive = [&](size_t n) {
        must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(n)));
      };
      if (!late) receive(0);
      must(fi_tsend(a.ep, out.data(), size, nullptr, to, 1, mark(2)));
      must(fi_tsend(a.ep, out.data(), 300, nullptr, to, 1, mark(3)));
      if (late) {
        until(
            {&a, &b}, [&] { return false; }, std::chrono::milliseconds(5));
        receive(0);
      }
      const Completion cut = wait(b, mark(0), {&a, &b});
      EXPECT_EQ(cut.err, FI_ETRUNC);
      EXPECT_EQ(cut.len, 300u);
      EXPECT_EQ(cut.olen, size - 300);
      EXPECT_TRUE(std::equal(in.begin(), in.end(), out.begin()));
      receive(1);
      EXPECT_EQ(wait(b, mark(1), {&a, &b}).err, 0);
      EXPECT_EQ(wait(a, mark(2), {&a, &b}).err, 0);
      EXPECT_EQ(wait(a, mark(3), {&a, &b}).err, 0);
    }
  }
}

// A receiver that posts nothing holds no more than it may, the sender gets -FI_EAGAIN at last, and
// others are not touched; nothing is lost when receives come.
TEST(Rdm, WhatASlowReceiverKeepsIsBounded) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_PER_PEER=64K", "FI_TCP_MAX_SAVED=256K",
                         "FI_TCP_RECV_BUFFER=32K", "FI_TCP_SEND_BUFFER=32K"}))
    return;
  Node slow, a, b;
  const fi_addr_t a_to_slow = a.insert(slow), b_to_slow = b.insert(slow);
  constexpr size_t kSize = 3000;
  const Bytes out = pattern(kSize + 10000, 6);
  size_t sent = 0;
  // Until the sender is held back for good.
  for (int idle = 0; idle < 300;) {
    const ssize_t rc = fi_tsend(a.ep, out.data() + sent, kSize, nullptr, a_to_slow, 1, mark(1));
    if (rc == 0) {
      ++sent;
      idle = 0;
    } else {
      ASSERT_EQ(rc, -FI_EAGAIN);
      ++idle;
      for (Node *node : {&slow, &a}) node->progress();
    }
    ASSERT_LT(sent, 5000u);
  }
  EXPECT_GT(sent, 20u);
  // Somebody else gets through.
  Bytes in(kSize);
  must(fi_tsend(b.ep, out.data(), kSize, nullptr, b_to_slow, 2, mark(2)));
  must(fi_trecv(slow.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 2, 0, mark(2)));
  EXPECT_EQ(wait(slow, mark(2), {&slow, &a, &b}).len, kSize);
  for (size_t i = 0; i < sent; ++i) {
    must(fi_trecv(slow.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(3)));
    ASSERT_EQ(wait(slow, mark(3), {&slow, &a}).len, kSize);
    ASSERT_TRUE(std::equal(in.begin(), in.end(), out.begin() + ptrdiff_t(i))) << i;
  }
  for (size_t i = 0; i < sent; ++i) EXPECT_EQ(wait(a, mark(1), {&slow, &a}).err, 0);
}

// One that is larger than all limits waits in the socket, and does not keep others from theirs.
TEST(Rdm, AMessageBeyondTheLimitsWaitsForItsReceive) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_PER_PEER=10000"})) return;
  Node a, b;
  const fi_addr_t to = a.insert(b);
  const Bytes out = pattern(50000, 7);
  Bytes in(50000);
  must(fi_send(a.ep, out.data(), out.size(), nullptr, to, mark(1)));
  must(fi_tsend(a.ep, out.data(), 10, nullptr, to, 1, mark(2)));
  until(
      {&a, &b}, [&] { return false; }, std::chrono::milliseconds(10));
  must(fi_recv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, mark(3)));
  EXPECT_EQ(wait(b, mark(3), {&a, &b}).len, out.size());
  EXPECT_EQ(in, out);
  must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(4)));
  EXPECT_EQ(wait(b, mark(4), {&a, &b}).len, 10u);
}

// The same through a shared receive context, where others may take what is posted.
TEST(Rdm, AMessageBeyondTheLimitsWaitsForASharedReceive) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_PER_PEER=10000"})) return;
  Options options = defaults();
  Node a;
  options.shared_receive = true;
  Node b(options);
  const fi_addr_t to = a.insert(b);
  const Bytes out = pattern(50000, 7);
  std::vector<Bytes> in(3, Bytes(50000));
  for (size_t i = 0; i < in.size(); ++i)
    must(fi_send(a.ep, out.data(), out.size(), nullptr, to, mark(i)));
  until(
      {&a, &b}, [&] { return false; }, std::chrono::milliseconds(10));
  for (size_t i = 0; i < in.size(); ++i) {
    must(fi_recv(b.srx, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, mark(10 + i)));
    EXPECT_EQ(wait(b, mark(10 + i), {&a, &b}).len, out.size());
    EXPECT_EQ(in[i], out);
  }
}

// The data of an announced message comes behind what the receiver has no more room for. Whoever
// waits for it must get it.
TEST(Rdm, AnAnnouncedMessageOvertakesWhatHasNoPlace) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_PER_PEER=40K", "FI_TCP_TX_SIZE=2000"})) return;
  Node a, b;
  const fi_addr_t to_b = a.insert(b), to_a = b.insert(a);
  const Bytes out = pattern(100000, 19);
  Bytes in(100000), small(100);
  constexpr size_t kSmall = 1000;
  for (Node *node : {&a, &b}) {
    const fi_addr_t to = node == &a ? to_b : to_a;
    must(fi_tsend(node->ep, out.data(), out.size(), nullptr, to, 1, mark(1)));
    for (size_t i = 0; i < kSmall; ++i)
      must(fi_tsend(node->ep, out.data() + i, 100, nullptr, to, 2, mark(2)));
  }
  until(
      {&a, &b}, [&] { return false; }, std::chrono::milliseconds(20));
  for (Node *node : {&a, &b}) {
    must(fi_trecv(node->ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(3)));
    EXPECT_EQ(wait(*node, mark(3), {&a, &b}).len, out.size());
    EXPECT_EQ(in, out);
  }
  for (Node *node : {&a, &b}) {
    for (size_t i = 0; i < kSmall; ++i) {
      must(fi_trecv(node->ep, small.data(), 100, nullptr, FI_ADDR_UNSPEC, 2, 0, mark(4)));
      ASSERT_EQ(wait(*node, mark(4), {&a, &b}).len, 100u);
      ASSERT_TRUE(std::equal(small.begin(), small.end(), out.begin() + ptrdiff_t(i))) << i;
    }
  }
}

// ---- who is who ----

TEST(Rdm, AStrangerGetsANameWhenHeIsInserted) {
  Node a, b, c;
  const Bytes out = pattern(100, 8);
  Bytes in(100);
  const fi_addr_t a_to_b = a.insert(b), c_to_b = c.insert(b);
  // b knows neither. Two strangers are two.
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

  // Removed, it is a stranger again; its index is another's.
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
  // And what is sent to the index goes to the new one.
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

  // Four places at once, by value.
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

  // A key that is none: no answer in the protocol, so the stream ends; the next one is new.
  must(fi_read(a.ep, back.data(), 10, nullptr, to, 0, key + 1, mark(4)));
  EXPECT_EQ(wait(a, mark(4), {&a, &b}).err, FI_ECONNRESET);
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
    // Nobody moves the receiver.
    EXPECT_FALSE(until(
        {&a}, [&] { return !a.done.empty(); }, std::chrono::milliseconds(20)));
    must(fi_trecv(b.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(2)));
    EXPECT_EQ(wait(b, mark(2), {&a, &b}).len, size);
    EXPECT_EQ(wait(a, mark(1), {&a, &b}).err, 0);
    EXPECT_EQ(in, out);
  }
}

// ---- peers that go, come back, or never were ----

sockaddr_in nobody() {
  // A port that was free a moment ago and that nobody listens on.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr *>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size), 0);
  ::close(fd);
  return address;
}

TEST(Rdm, WhoIsNotThereFailsWhatIsSentToHimOnly) {
  Node a, b;
  const fi_addr_t to_nobody = a.insert(nobody()), to_b = a.insert(b);
  const Bytes out = pattern(1000, 12);
  Bytes in(1000);
  for (int round = 0; round < 2; ++round) {
    must(fi_tsend(a.ep, out.data(), 1000, nullptr, to_nobody, 1, mark(1)));
    must(fi_tsend(a.ep, out.data(), 1000, nullptr, to_b, 1, mark(2)));
    must(fi_tsend(a.ep, out.data(), 1000, nullptr, to_nobody, 1, mark(3)));
    must(fi_trecv(b.ep, in.data(), 1000, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(4)));
    for (size_t lost : {1u, 3u}) {
      const Completion failed = wait(a, mark(lost), {&a, &b});
      EXPECT_EQ(failed.err, FI_ECONNREFUSED);
      EXPECT_EQ(failed.flags, uint64_t(FI_SEND | FI_TAGGED));
    }
    EXPECT_EQ(wait(a, mark(2), {&a, &b}).err, 0);
    EXPECT_EQ(wait(b, mark(4), {&a, &b}).len, 1000u);
    EXPECT_EQ(in, out);
  }
}

TEST(Rdm, WhatWaitsForAStreamIsBounded) {
  Options options = defaults();
  options.tx_size = 16;
  Node a(options);
  // Somebody who takes connections and never says anything.
  const int mute = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(mute, reinterpret_cast<sockaddr *>(&address), size), 0);
  ASSERT_EQ(::getsockname(mute, reinterpret_cast<sockaddr *>(&address), &size), 0);
  ASSERT_EQ(::listen(mute, 8), 0);
  const fi_addr_t to = a.insert(address);
  const Bytes out = pattern(10, 13);
  for (size_t i = 0; i < 16; ++i) must(fi_tsend(a.ep, out.data(), 10, nullptr, to, 1, mark(i)));
  EXPECT_EQ(fi_tsend(a.ep, out.data(), 10, nullptr, to, 1, nullptr), -FI_EAGAIN);
  EXPECT_FALSE(until(
      {&a}, [&] { return !a.done.empty(); }, std::chrono::milliseconds(20)));
  // It goes away: all of them fail, and only then is there room.
  ::close(mute);
  for (size_t i = 0; i < 16; ++i) EXPECT_NE(wait(a, mark(i), {&a}).err, 0);
  must(fi_tsend(a.ep, out.data(), 10, nullptr, to, 1, mark(20)));
  EXPECT_EQ(wait(a, mark(20), {&a}).err, FI_ECONNREFUSED);
}

TEST(Rdm, APeerThatComesBackAtItsAddressIsFoundAgain) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_SIZE=64K"})) return;
  Node a, other;
  auto b = std::make_unique<Node>();
  const sockaddr_in place = b->name;
  const fi_addr_t to_b = a.insert(*b), to_other = a.insert(other);
  const Bytes out = pattern(100000, 14);
  Bytes in(100000);
  for (int life = 0; life < 3; ++life) {
    for (size_t size : {size_t(50), size_t(100000)}) {
      must(fi_tsend(a.ep, out.data(), size, nullptr, to_b, 1, mark(1)));
      must(fi_trecv(b->ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(2)));
      EXPECT_EQ(wait(*b, mark(2), {&a, b.get()}).len, size);
      EXPECT_EQ(wait(a, mark(1), {&a, b.get()}).err, 0);
    }
    // Nobody will ever ask for this one.
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to_b, 2, mark(3)));
    until(
        {&a, b.get()}, [&] { return false; }, std::chrono::milliseconds(5));
    b.reset();
    EXPECT_EQ(wait(a, mark(3), {&a}).err, FI_ECONNRESET);
    must(fi_tsend(a.ep, out.data(), 10, nullptr, to_b, 3, mark(4)));
    EXPECT_EQ(wait(a, mark(4), {&a}).err, FI_ECONNREFUSED);
    must(fi_tsend(a.ep, out.data(), 10, nullptr, to_other, 3, mark(5)));
    must(fi_trecv(other.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 3, 0, mark(6)));
    EXPECT_EQ(wait(other, mark(6), {&a, &other}).len, 10u);
    EXPECT_EQ(wait(a, mark(5), {&a, &other}).err, 0);
    b = std::make_unique<Node>(defaults_at(place));
    EXPECT_EQ(std::memcmp(&b->name, &place, sizeof place), 0);
  }
}

TEST(Rdm, ClosingDeliversWhatWasInjected) {
  Node b;
  Bytes in(100);
  constexpr size_t kCount = 50;
  {
    Node a;
    const fi_addr_t to = a.insert(b);
    for (size_t i = 0; i < kCount; ++i) {
      const Bytes out = pattern(64, unsigned(i));
      must(fi_tinject(a.ep, out.data(), 64, to, i));
    }
    // Both have to move on until there is a stream; b does so by itself.
    std::thread mover([&] {
      for (size_t i = 0; i < kCount; ++i) {
        must(fi_trecv(b.ep, in.data(), 100, nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
        EXPECT_EQ(wait(b, mark(i), {&b}).len, 64u);
        EXPECT_TRUE(std::equal(in.begin(), in.begin() + 64, pattern(64, unsigned(i)).begin()));
      }
    });
    a.ep.reset();
    mover.join();
  }
}

size_t count_sockets() {
  size_t count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int type;
    socklen_t size = sizeof type;
    if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM) ++count;
  }
  return count;
}

TEST(Rdm, ConnectionsBeyondTheLimitAreClosedAndMadeAgain) {
  if (!in_fresh_process({"FI_TCP_MAX_CONNECTIONS=3"})) return;
  constexpr size_t kPeers = 10;
  Node hub;
  std::vector<std::unique_ptr<Node>> peers;
  std::vector<fi_addr_t> to;
  for (size_t i = 0; i < kPeers; ++i) {
    peers.push_back(std::make_unique<Node>());
    to.push_back(hub.insert(*peers[i]));
    peers[i]->insert(hub);
  }
  const Bytes out = pattern(100000, 15);
  Bytes in(100000);
  size_t most = 0;
  const size_t before = count_sockets();  // the listeners'
  for (size_t round = 0; round < 5; ++round) {
    for (size_t i = 0; i < kPeers; ++i) {
      const size_t size = round % 2 == 0 ? 100 : 100000;
      must(fi_tsend(hub.ep, out.data(), size, nullptr, to[i], round, mark(1)));
      must(
          fi_trecv(peers[i]->ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, round, 0, mark(2)));
      EXPECT_EQ(wait(*peers[i], mark(2), {&hub, peers[i].get()}).len, size);
      must(fi_tsend(peers[i]->ep, out.data(), size, nullptr, 0, round, mark(3)));
      must(fi_trecv(hub.ep, in.data(), in.size(), nullptr, to[i], round, 0, mark(4)));
      EXPECT_EQ(wait(hub, mark(4), {&hub, peers[i].get()}).len, size);
      EXPECT_EQ(wait(hub, mark(1), {&hub, peers[i].get()}).err, 0);
      EXPECT_EQ(wait(*peers[i], mark(3), {&hub, peers[i].get()}).err, 0);
      for (auto &peer : peers) peer->progress();
      hub.progress();
      most = std::max(most, count_sockets() - before);
    }
  }
  // Both ends are in this process, and one connection more may be on its way out.
  EXPECT_LE(most, 2u * (3 + 1));
  EXPECT_GE(most, 2u * 3);
}

// Kill one of four in the middle of traffic: the others are told about it only, go on among
// themselves, and reach it when it is back.
TEST(Rdm, KilledInTheMiddleOfTraffic) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_SIZE=64K"})) return;
  enum : uint64_t { kGo = 1 };
  constexpr size_t kSize = 100000;
  const auto victim = [](sockaddr_in at) {
    return [at](int socket) {
      Options options = defaults_at(at);
      options.progress = FI_PROGRESS_AUTO;
      Node node(options);
      tell_text(socket, std::string(reinterpret_cast<const char *>(&node.name), sizeof node.name));
      Bytes in(kSize);
      for (;;) {
        must(fi_trecv(node.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)));
        wait(node, mark(1), {&node});
      }
    };
  };
  auto child = std::make_unique<Child>(victim({}));
  const std::string text = hear_text(child->socket());
  sockaddr_in address;
  std::memcpy(&address, text.data(), sizeof address);

  Node a, b;
  const fi_addr_t a_to_b = a.insert(b), a_to_v = a.insert(address), b_to_v = b.insert(address);
  const Bytes out = pattern(kSize, 16);
  Bytes in(kSize);
  std::map<Node *, fi_addr_t> to = {{&a, a_to_v}, {&b, b_to_v}};
  for (auto [node, index] : to) {
    for (size_t i = 0; i < 10; ++i) {
      must(fi_tsend(node->ep, out.data(), kSize, nullptr, index, 1, mark(1)));
      EXPECT_EQ(wait(*node, mark(1), {&a, &b}).err, 0);
    }
    // Nobody receives these: they are in flight when it dies.
    for (size_t i = 0; i < 5; ++i)
      must(fi_tsend(node->ep, out.data(), kSize, nullptr, index, 2, mark(2)));
  }
  child->kill();
  for (auto [node, index] : to) {
    for (size_t i = 0; i < 5; ++i) {
      const int err = wait(*node, mark(2), {&a, &b}).err;
      EXPECT_TRUE(err == FI_ECONNRESET || err == FI_ECONNREFUSED) << err;
    }
  }
  must(fi_tsend(a.ep, out.data(), kSize, nullptr, a_to_b, 3, mark(3)));
  must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 3, 0, mark(4)));
  EXPECT_EQ(wait(b, mark(4), {&a, &b}).len, kSize);
  EXPECT_EQ(wait(a, mark(3), {&a, &b}).err, 0);
  EXPECT_EQ(in, out);
  EXPECT_TRUE(a.done.empty() && b.done.empty());
}

// Anything at any time, with limits that are reached all the while: endpoints that send, receive
// late or in wild order, disappear and come back. Every operation of an endpoint that lives ends
// once, and what arrives is what was sent.
TEST(Rdm, RandomTrafficAndRestarts) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_SIZE=4K", "FI_TCP_MAX_SAVED_PER_PEER=40K",
                         "FI_TCP_MAX_SAVED=100K", "FI_TCP_MAX_CONNECTIONS=2",
                         "FI_TCP_CLOSE_LINGER_MS=0", "FI_LOG_LEVEL="}))
    return;
  constexpr size_t kNodes = 4, kRoom = 60000;
  const Bytes source = pattern(kRoom + 256, 18);
  uint64_t state = 4711;
  const auto below = [&state](uint64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % limit;
  };
  struct Receive {
    Bytes bytes = Bytes(kRoom);
    bool posted = false;
  };
  struct Player {
    std::vector<std::unique_ptr<Receive>> receives;  // outlive the endpoint
    std::unique_ptr<Node> node;
    fi_addr_t to[kNodes] = {};
    size_t sending = 0;
  };
  Player players[kNodes];
  const auto revive = [&](size_t i) {
    Options options = defaults();
    if (players[i].node != nullptr) options = defaults_at(players[i].node->name);
    players[i].node.reset();
    players[i] = {};
    players[i].node = std::make_unique<Node>(options);
    for (size_t k = 0; k < 8; ++k) players[i].receives.push_back(std::make_unique<Receive>());
  };
  for (size_t i = 0; i < kNodes; ++i) revive(i);
  const auto introduce = [&](size_t i) {
    for (size_t k = 0; k < kNodes; ++k)
      players[i].to[k] = players[i].node->insert(*players[k].node);
  };
  for (size_t i = 0; i < kNodes; ++i) introduce(i);

  size_t arrived = 0, failed = 0;
  const auto progress = [&](Player &player) {
    player.node->progress();
    for (; !player.node->done.empty(); player.node->done.pop_front()) {
      const Completion &e = player.node->done.front();
      if (e.flags & FI_SEND) {
        ASSERT_GT(player.sending, 0u);
        --player.sending;
        failed += e.err != 0 ? 1 : 0;
        continue;
      }
      auto *receive = static_cast<Receive *>(e.context);
      ASSERT_TRUE(receive->posted);
      receive->posted = false;
      if (e.err != 0) continue;  // its sender went away in the middle
      ++arrived;
      // The tag says what it is: where in the source it begins, and how long it is.
      ASSERT_EQ(e.len, e.tag >> 8);
      const auto *begin = source.data() + (e.tag & 0xff);
      ASSERT_TRUE(std::equal(begin, begin + e.len, receive->bytes.begin()));
    }
  };
  const size_t sizes[] = {0, 1, 100, 4000, 5000, 20000, 60000};
  for (int step = 0; step < 20000 && !HasFatalFailure(); ++step) {
    const size_t i = below(kNodes);
    Player &player = players[i];
    switch (below(8)) {
      case 0:
      case 1:
      case 2: {
        const size_t to = below(kNodes);
        // To itself nothing is received while it is held back: no more than it can keep.
        if (player.sending > 60) break;
        const uint64_t size = to == i ? below(100) : sizes[below(std::size(sizes))];
        const uint64_t at = below(256);
        const ssize_t rc = fi_tsend(player.node->ep, source.data() + at, size, nullptr,
                                    player.to[to], size << 8 | at, nullptr);
        if (rc == 0) ++player.sending;
        ASSERT_TRUE(rc == 0 || rc == -FI_EAGAIN) << rc;
        break;
      }
      case 3:
      case 4: {
        Receive &receive = *player.receives[below(player.receives.size())];
        if (receive.posted) break;
        must(fi_trecv(player.node->ep, receive.bytes.data(), kRoom, nullptr, FI_ADDR_UNSPEC, 0,
                      ~UINT64_C(0), &receive));
        receive.posted = true;
        break;
      }
      case 5:
        if (below(150) == 0) {
          revive(i);
          introduce(i);
        }
        break;
      default:
        progress(player);
    }
  }
  // Everybody receives whatever comes, until nobody has anything on its way.
  const bool over = [&] {
    for (const Deadline deadline; !deadline.passed();) {
      size_t sending = 0;
      for (Player &player : players) {
        for (auto &receive : player.receives) {
          if (receive->posted) continue;
          must(fi_trecv(player.node->ep, receive->bytes.data(), kRoom, nullptr, FI_ADDR_UNSPEC, 0,
                        ~UINT64_C(0), receive.get()));
          receive->posted = true;
        }
        progress(player);
        sending += player.sending;
      }
      if (sending == 0 || HasFatalFailure()) return true;
    }
    return false;
  }();
  EXPECT_TRUE(over);
  EXPECT_GT(arrived, 500u);
  EXPECT_LT(failed, arrived);
}

// ---- time ----

TEST(Rdm, AComputationMayTakeLongerThanTheTimeToConnect) {
  if (!in_fresh_process({"FI_TCP_CONNECT_TIMEOUT_MS=50"})) return;
  Node a, b;
  const fi_addr_t to = a.insert(b);
  const Bytes out = pattern(100, 1);
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 1, mark(1)));
  for (const Deadline computation(std::chrono::milliseconds(100)); !computation.passed();) {
  }
  EXPECT_EQ(wait(a, mark(1), {&a, &b}).err, 0);
}

// A peer that is busy hangs up, and is asked again: also by one that closes.
TEST(Rdm, WhatIsInjectedWaitsForAnotherTry) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  must(::bind(fd, reinterpret_cast<sockaddr *>(&at), sizeof at));
  must(::listen(fd, 8));
  must(::getsockname(fd, reinterpret_cast<sockaddr *>(&at), &size));
  std::string heard;
  std::thread peer([&] {
    const auto next = [&] {
      pollfd p{fd, POLLIN, 0};
      return ::poll(&p, 1, 5000) > 0 ? ::accept(fd, nullptr, nullptr) : -1;
    };
    ::close(next());
    const int again = next();
    if (again < 0) return;
    std::array<uint8_t, tcp::kMaxConnectSize> accept;
    const size_t n = tcp::encode_connect(
        tcp::ConnectType::kAccept,
        tcp::encode_hello({.version = tcp::answer_to(tcp::kRdmVersion), .port = 1}), accept);
    char bytes[4096];
    ssize_t got = ::recv(again, bytes, tcp::kConnectHeaderSize + tcp::kHelloSize, MSG_WAITALL);
    ::send(again, accept.data(), n, MSG_NOSIGNAL);
    while ((got = ::recv(again, bytes, sizeof bytes, 0)) > 0) heard.append(bytes, size_t(got));
    ::close(again);
  });
  {
    Node a;
    must(fi_tinject(a.ep, "the last word", 13, a.insert(at), 1));
  }
  peer.join();
  ::close(fd);
  EXPECT_NE(heard.find("the last word"), std::string::npos);
}

}  // namespace
}  // namespace weft::conformance
