// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_RDM: messages that arrive before their receive is posted. The receiver saves them within
// limits; long tagged ones are announced, and fetched when a receive wants them.
#include <algorithm>
#include <cstring>
#include <thread>

#include "plugins/tcp/test_node.h"
#include "tests/conformance/counters.h"

namespace weft::conformance {
namespace {

using rdm::Completion, rdm::Options;

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
  // In the reverse order of sending.
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

// After a large message the endpoint stages less before it knows the next header.
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

// More messages than there are rendezvous numbers: the rest wait at the sender, in order.
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

// In reverse order: the receiver fetches what it can save, so that the announcement that it waits
// for gets through.
TEST(Rdm, MoreLargeMessagesThanRendezvousNumbersInReverseOrder) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kCount = 400, kSize = 70000;
  const Bytes out = pattern(kSize + kCount, 3);
  for (size_t i = 0; i < kCount; ++i)
    must(fi_tsend(a.ep, out.data() + i, kSize, nullptr, to, i, mark(i)));
  std::vector<Bytes> in(kCount, Bytes(kSize));
  // Half of the receives one after the other, while messages are in flight; the rest at once.
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

// More than the receiver saves: when it has saved much it says so, and gets announcements.
TEST(Rdm, MoreThanTheSavedLimitInReverseOrder) {
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
    // When all is received, long messages come without an announcement again: the send completes
    // before the receive is posted.
    must(fi_tsend(a.ep, out.data(), kSize, nullptr, to, 99, mark(99)));
    EXPECT_EQ(wait(a, mark(99), {&a, &b}).err, 0);
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, 99, 0, mark(99)));
    EXPECT_EQ(wait(b, mark(99), {&a, &b}).len, kSize);
  }
}

// The receiver has said that it has room, then makes no progress until the kernel takes no more.
// The message that it receives first is behind all others.
void exceed_the_limit_in_a_pause(size_t count, size_t size) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  const Bytes out = pattern(size, 3);
  Bytes in(size);
  for (int times = 0; times < 20; ++times) {
    must(fi_trecv(b.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)));
    must(fi_tsend(a.ep, out.data(), size, nullptr, to, 1, mark(0)));
    EXPECT_EQ(wait(b, mark(1), {&a, &b}).len, size);
    EXPECT_EQ(wait(a, mark(0), {&a, &b}).err, 0);
  }
  for (size_t i = 0; i < count; ++i)
    must(fi_tsend(a.ep, out.data(), size, nullptr, to, i, mark(i)));
  for (int idle = 0; idle < 100; ++idle) {
    const size_t before = a.done.size();
    a.progress();
    if (a.done.size() != before) idle = 0;
  }
  EXPECT_GE(a.done.size() * size, 2u << 20) << "little was sent unannounced";
  for (size_t i = count; i-- > 0;) {
    must(fi_trecv(b.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
    EXPECT_EQ(wait(b, mark(i), {&a, &b}).len, size);
  }
}

TEST(Rdm, MoreThanTheSavedLimitAfterAPause) {
  exceed_the_limit_in_a_pause(64, 1 << 20);
}

// The kernel holds more than the limit when the receiver says that it has no room any more.
TEST(Rdm, MoreThanTheSavedLimitIsUnderWay) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_SIZE=256K", "FI_TCP_MAX_SAVED_PER_PEER=1M"})) return;
  exceed_the_limit_in_a_pause(256, 256 << 10);
}

// The same with many senders.
TEST(Rdm, ManySendersExceedTheSavedLimit) {
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
  // One message of each peer first: the receiver tells some of them that it has room for more.
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

// The receiver saves less than one message.
TEST(Rdm, AMessageLongerThanTheSavedLimit) {
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

// The sender closes in the middle: matched messages whose data is missing fail, and fetched ones
// can be received.
TEST(Rdm, ASenderDiesAmongAnnouncements) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_SIZE=64K", "FI_TCP_CLOSE_LINGER_MS=0"})) return;
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
  // The sender makes no more progress.
  a.reset();
  EXPECT_EQ(wait(b, mark(0), {&b}).err, FI_ECONNRESET);
  // Fetched messages can be received. Announced ones keep their places, and their receives fail.
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

// The receives are posted when the sender has begun to close.
TEST(Rdm, AnnouncedMessagesArriveThoughTheirSenderCloses) {
  if (!in_fresh_process({"FI_TCP_CLOSE_LINGER_MS=60000"})) return;
  const size_t sizes[] = {65536, 65537, 1 << 20, 9 << 20, 300000, 8 << 20};
  constexpr size_t kCount = 24;
  for (const uint64_t level : {uint64_t{0}, uint64_t(FI_DELIVERY_COMPLETE)}) {
    SCOPED_TRACE(level);
    rdm::Options options = defaults();
    options.tx_op_flags = level;
    std::vector<Bytes> out, in;
    Node b(options);
    auto a = std::make_unique<Node>(options);
    const fi_addr_t to = a->insert(b);
    for (size_t i = 0; i < kCount; ++i) {
      out.push_back(pattern(sizes[i % std::size(sizes)], unsigned(i)));
      in.emplace_back(out.back().size());
      must(fi_tsend(a->ep, out[i].data(), out[i].size(), nullptr, to, i, mark(i)));
    }
    // The announcements leave.
    must(fi_tsend(a->ep, nullptr, 0, nullptr, to, kCount, mark(kCount)));
    must(fi_trecv(b.ep, nullptr, 0, nullptr, FI_ADDR_UNSPEC, kCount, 0, mark(kCount)));
    EXPECT_EQ(wait(b, mark(kCount), {a.get(), &b}).err, 0);
    const std::jthread closes([&] { a.reset(); });
    for (size_t i = 0; i < kCount; ++i) {
      must(fi_trecv(b.ep, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
      EXPECT_EQ(wait(b, mark(i), {&b}).err, 0) << i;
      EXPECT_TRUE(in[i] == out[i]) << i;
    }
  }
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
    // Until the last one has arrived.
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
    // The sends of discarded messages complete as well.
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

// A receiver that posts nothing saves no more than its limit. The sender gets -FI_EAGAIN in the
// end, other senders notice nothing, and all messages arrive when receives are posted.
TEST(Rdm, ASlowReceiverSavesABoundedAmount) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED_PER_PEER=64K", "FI_TCP_MAX_SAVED=256K",
                         "FI_TCP_RECV_BUFFER=32K", "FI_TCP_SEND_BUFFER=32K"}))
    return;
  Node slow, a, b;
  const fi_addr_t a_to_slow = a.insert(slow), b_to_slow = b.insert(slow);
  constexpr size_t kSize = 3000;
  const Bytes out = pattern(kSize + 10000, 6);
  size_t sent = 0;
  // Until the sender gets -FI_EAGAIN in spite of progress.
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
  // Another sender gets through.
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

// A message above all limits waits in the socket for its receive; the message behind it arrives
// afterwards.
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

// The same through a shared receive context.
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

// The data of an announced message comes behind messages that the receiver has no room for. It must
// arrive all the same.
TEST(Rdm, AnAnnouncedMessageOvertakesMessagesWithoutRoom) {
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

uint64_t long_saved(const Node &node) {
  return read_counters(node.fabric).at("long_saved");
}

// Who posts the next receive when it has seen that the last one has ended.
TEST(Rdm, ALongMessageRightBehindAnotherIsNotCopied) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  constexpr size_t kCount = 50, kSize = 40000;
  const Bytes out = pattern(kSize + kCount, 3);
  Bytes in(kSize);
  const auto post = [&](size_t i) {
    must(fi_trecv(b.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
  };
  post(0);
  for (size_t i = 0; i < kCount; ++i)
    must(fi_tsend(a.ep, out.data() + i, kSize, nullptr, to, i, mark(i)));
  size_t got = 0;
  for (const Deadline deadline(kPatience); got < kCount && !deadline.passed();) {
    a.progress();
    const auto completion = rdm::poll(b.cq);
    if (!completion) continue;
    EXPECT_EQ(completion->context, mark(got));
    EXPECT_EQ(completion->len, kSize);
    ASSERT_TRUE(std::equal(in.begin(), in.end(), out.begin() + ptrdiff_t(got))) << got;
    if (++got < kCount) post(got);
  }
  EXPECT_EQ(got, kCount);
  EXPECT_EQ(long_saved(b), 0u);
}

// It holds up what is behind it for one progress only.
TEST(Rdm, ALongMessageWithoutAReceiveMakesWay) {
  Node a, b;
  const fi_addr_t to = a.insert(b);
  const Bytes out = pattern(40000, 3);
  Bytes in(out.size()), small(8);
  for (size_t i = 0; i < 5; ++i)
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 1, mark(i)));
  must(fi_tsend(a.ep, out.data(), small.size(), nullptr, to, 2, mark(5)));
  must(fi_trecv(b.ep, small.data(), small.size(), nullptr, FI_ADDR_UNSPEC, 2, 0, mark(6)));
  EXPECT_EQ(wait(b, mark(6), {&a, &b}).len, small.size());
  EXPECT_EQ(long_saved(b), 5u);
  for (size_t i = 0; i < 5; ++i) {
    must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(7)));
    EXPECT_EQ(wait(b, mark(7), {&a, &b}).len, in.size());
    EXPECT_EQ(in, out);
  }
}

// The application has polled, and now waits, while a long message waits for a progress.
TEST(Rdm, ALongMessageWithoutAReceiveWakesWhoWaits) {
  Options options = defaults();
  options.tx_cq.wait_obj = FI_WAIT_FD;
  Node a, b(options);
  const fi_addr_t to = a.insert(b);
  const Bytes out = pattern(40000, 3);
  Bytes in(out.size()), small(8);
  for (size_t round = 0; round < 20; ++round) {
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 1, mark(0)));
    must(fi_tsend(a.ep, out.data(), small.size(), nullptr, to, 2, mark(1)));
    EXPECT_EQ(wait(a, mark(1), {&a, &b}).err, 0);
    must(fi_trecv(b.ep, small.data(), small.size(), nullptr, FI_ADDR_UNSPEC, 2, 0, mark(2)));
    if (round % 2 == 0) b.progress();
    if (!b.take(mark(2))) {
      fi_cq_tagged_entry entry{};
      ASSERT_EQ(fi_cq_sread(b.cq, &entry, 1, nullptr, int(kPatience.count())), 1);
      EXPECT_EQ(entry.op_context, mark(2));
    }
    must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(3)));
    EXPECT_EQ(wait(b, mark(3), {&a, &b}).len, in.size());
    EXPECT_EQ(in, out);
    EXPECT_EQ(wait(a, mark(0), {&a, &b}).err, 0);
  }
}

}  // namespace
}  // namespace weft::conformance
