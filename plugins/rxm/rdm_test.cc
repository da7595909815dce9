// SPDX-License-Identifier: BSD-2-Clause
// rxm over the public API, with several endpoints in one process: behaviour that comes from the
// connections of the inner provider. Behaviour of all unconnected endpoints is tested in
// tests/conformance.
#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_tagged.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <thread>

#include "plugins/rxm/test_peer.h"

extern "C" [[gnu::weak]] size_t __sanitizer_get_current_allocated_bytes();

namespace weft::conformance {
namespace {

// Bytes of heap in use.
size_t allocated() {
  if (__sanitizer_get_current_allocated_bytes != nullptr)
    return __sanitizer_get_current_allocated_bytes();
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Sizes near each border between the forms of a message: one packet, segments, rendezvous.
const size_t kSizes[] = {0,     1,     63,    64,    65,    4096,   16320,  16383,
                         16384, 16385, 32768, 65536, 65537, 131073, 1000000};

TEST(Rxm, EverySizeArrivesExpectedAndUnexpected) {
  for (bool expected : {true, false}) {
    Peer a, b;
    const fi_addr_t to = a.insert(b);
    b.insert(a);
    for (size_t size : kSizes) {
      const Bytes out = content(size, unsigned(size));
      for (uint64_t level : {UINT64_C(0), uint64_t(FI_TRANSMIT_COMPLETE),
                             uint64_t(FI_DELIVERY_COMPLETE), uint64_t(FI_MATCH_COMPLETE)}) {
        Bytes in(size);
        const auto post = [&] {
          must(fi_trecv(b.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, size, 0, mark(1)));
        };
        if (expected) post();
        iovec iov{const_cast<uint8_t *>(out.data()), size};
        const fi_msg_tagged msg{.msg_iov = &iov,
                                .desc = nullptr,
                                .iov_count = 1,
                                .addr = to,
                                .tag = size,
                                .ignore = 0,
                                .context = mark(2),
                                .data = 99 + size};
        must(fi_tsendmsg(a.ep, &msg, FI_COMPLETION | FI_REMOTE_CQ_DATA | level));
        for (int i = 0; i < 50; ++i) {
          a.progress();
          b.progress();
        }
        // A message that is saved is delivered (fi_cq.3), and not matched.
        if (!expected && level == FI_MATCH_COMPLETE) {
          EXPECT_TRUE(a.done.empty());
        }
        if (!expected) post();
        const Entry got = wait(b, mark(1), {&a, &b});
        EXPECT_EQ(got.err, 0);
        EXPECT_EQ(got.len, size);
        EXPECT_EQ(got.data, 99 + size);
        EXPECT_EQ(got.flags, uint64_t(FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA));
        EXPECT_EQ(in, out);
        EXPECT_EQ(wait(a, mark(2), {&a, &b}).err, 0);
      }
    }
  }
}

TEST(Rxm, ScatteredMemoryOnBothSides) {
  Peer a, b;
  const fi_addr_t to = a.insert(b);
  for (size_t size : {size_t(40), size_t(16384), size_t(60000), size_t(300000)}) {
    const Bytes out = content(size, 3);
    Bytes in(size);
    iovec from[4], into[4];
    const size_t cut = size / 4;
    for (size_t i = 0; i < 4; ++i) {
      from[i] = {const_cast<uint8_t *>(out.data()) + i * cut, i == 3 ? size - 3 * cut : cut};
      // Other boundaries than those of the sender.
      const size_t at = i * (size / 5);
      into[i] = {in.data() + at, i == 3 ? size - at : size / 5};
    }
    must(fi_recvv(b.ep, into, nullptr, 4, FI_ADDR_UNSPEC, mark(1)));
    must(fi_sendv(a.ep, from, nullptr, 4, to, mark(2)));
    EXPECT_EQ(wait(b, mark(1), {&a, &b}).len, size);
    EXPECT_EQ(wait(a, mark(2), {&a, &b}).err, 0);
    EXPECT_EQ(in, out);
  }
}

TEST(Rxm, RegionsAreWrittenAndRead) {
  PeerOptions options;
  options.caps |= FI_SOURCE;
  Peer a(options), b(options);
  const fi_addr_t to = a.insert(b);
  const fi_addr_t back = b.insert(a);
  Bytes memory(100000);
  must(fi_mr_reg(b.domain, memory.data(), memory.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0,
                 b.mr.out(), nullptr));
  const uint64_t key = fi_mr_key(b.mr), base = b.base_of(memory.data());
  const Bytes out = content(50000, 4);
  must(fi_writedata(a.ep, out.data(), out.size(), nullptr, 0x77, to, base + 100, key, mark(1)));
  EXPECT_EQ(wait(a, mark(1), {&a, &b}).err, 0);
  const Entry event = wait(b, nullptr, {&a, &b});
  EXPECT_EQ(event.flags, uint64_t(FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
  EXPECT_EQ(event.data, 0x77u);
  EXPECT_EQ(event.from, back);
  EXPECT_EQ(std::memcmp(memory.data() + 100, out.data(), out.size()), 0);
  Bytes in(out.size());
  must(fi_read(a.ep, in.data(), in.size(), nullptr, to, base + 100, key, mark(2)));
  EXPECT_EQ(wait(a, mark(2), {&a, &b}).err, 0);
  EXPECT_EQ(in, out);
  const uint64_t one = 1;
  uint64_t before = 5;
  std::memset(memory.data(), 0, 8);
  must(fi_fetch_atomic(a.ep, &one, 1, nullptr, &before, nullptr, to, base, key, FI_UINT64, FI_SUM,
                       mark(3)));
  EXPECT_EQ(wait(a, mark(3), {&a, &b}).err, 0);
  EXPECT_EQ(before, 0u);
  EXPECT_EQ(memory[0], 1);
  // Outside of the region the atomic fails, and the connection still works.
  must(fi_fetch_atomic(a.ep, &one, 1, nullptr, &before, nullptr, to, base + memory.size() - 4, key,
                       FI_UINT64, FI_SUM, mark(4)));
  EXPECT_EQ(wait(a, mark(4), {&a, &b}).err, FI_EACCES);
  must(fi_read(a.ep, in.data(), 8, nullptr, to, base, key, mark(5)));
  EXPECT_EQ(wait(a, mark(5), {&a, &b}).err, 0);
}

TEST(Rxm, StrangersAreReportedByTheirAddress) {
  PeerOptions options;
  options.caps |= FI_SOURCE | FI_SOURCE_ERR;
  Peer a, b(options);
  const fi_addr_t to = a.insert(b);
  Bytes in(10);
  must(fi_recv(b.ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, mark(1)));
  must(fi_send(a.ep, in.data(), 10, nullptr, to, mark(2)));
  const Entry got = wait(b, mark(1), {&a, &b});
  EXPECT_EQ(got.err, FI_EADDRNOTAVAIL);
  ASSERT_GE(got.err_data.size(), sizeof(sockaddr_in));
  sockaddr_in from;
  std::memcpy(&from, got.err_data.data(), sizeof from);
  EXPECT_EQ(from.sin_port, a.name.sin_port);
  // Messages after the insertion have its index.
  const fi_addr_t index = b.insert(from);
  must(fi_recv(b.ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, mark(3)));
  must(fi_send(a.ep, in.data(), 10, nullptr, to, mark(4)));
  EXPECT_EQ(wait(b, mark(3), {&a, &b}).from, index);
}

TEST(Rxm, ASendToAClosedPeerFailsAndTheNextSendTriesAgain) {
  Peer a;
  sockaddr_in address{};
  {
    Peer gone;
    address = gone.name;
  }
  const fi_addr_t to = a.insert(address);
  Bytes bytes(10);
  must(fi_send(a.ep, bytes.data(), 10, nullptr, to, mark(1)));
  EXPECT_EQ(wait(a, mark(1), {&a}).err, FI_ECONNREFUSED);
  PeerOptions options;
  options.port = ntohs(address.sin_port);
  Peer back(options);
  must(fi_recv(back.ep, bytes.data(), 10, nullptr, FI_ADDR_UNSPEC, mark(2)));
  must(fi_send(a.ep, bytes.data(), 10, nullptr, to, mark(3)));
  EXPECT_EQ(wait(back, mark(2), {&a, &back}).len, 10u);
  EXPECT_EQ(wait(a, mark(3), {&a, &back}).err, 0);
}

// One of three peers is killed during traffic. Only operations with it fail, and the others reach
// it again when it is back at its address.
TEST(Rxm, AKilledPeerFailsOnlyItsOwnOperations) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const auto start = [&pipes](uint16_t port) {
    const pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PeerOptions options;
    options.port = port;
    Peer victim(options);
    if (write(pipes[1], &victim.name, sizeof victim.name) < 0) _exit(1);
    Bytes in(10);
    must(fi_recv(victim.ep, in.data(), 10, nullptr, FI_ADDR_UNSPEC, mark(0)));
    for (;;) victim.progress();
  };
  pid_t child = start(0);
  sockaddr_in name{};
  ASSERT_EQ(read(pipes[0], &name, sizeof name), ssize_t(sizeof name));
  {
    Peer a, b;
    const fi_addr_t victim = a.insert(name), to_b = a.insert(b), victim_b = b.insert(name);
    Bytes large(1000000), small(10);
    // Large messages wait for a receive that is never posted.
    for (size_t i = 0; i < 3; ++i) {
      must(fi_send(a.ep, small.data(), 10, nullptr, victim, mark(10)));
      wait(a, mark(10), {&a, &b});
      must(fi_tsend(a.ep, large.data(), large.size(), nullptr, victim, 1, mark(i)));
      must(fi_tsend(b.ep, large.data(), large.size(), nullptr, victim_b, 1, mark(i)));
    }
    for (int i = 0; i < 1000; ++i) {
      a.progress();
      b.progress();
    }
    EXPECT_TRUE(a.done.empty() && b.done.empty());
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NE(wait(a, mark(i), {&a, &b}).err, 0);
      EXPECT_NE(wait(b, mark(i), {&a, &b}).err, 0);
    }
    must(fi_recv(b.ep, small.data(), 10, nullptr, FI_ADDR_UNSPEC, mark(20)));
    must(fi_send(a.ep, small.data(), 10, nullptr, to_b, mark(21)));
    EXPECT_EQ(wait(b, mark(20), {&a, &b}).err, 0);
    child = start(ntohs(name.sin_port));
    sockaddr_in again{};
    ASSERT_EQ(read(pipes[0], &again, sizeof again), ssize_t(sizeof again));
    EXPECT_EQ(again.sin_port, name.sin_port);
    iovec iov{small.data(), 10};
    const fi_msg msg{.msg_iov = &iov,
                     .desc = nullptr,
                     .iov_count = 1,
                     .addr = victim,
                     .context = mark(30),
                     .data = 0};
    must(fi_sendmsg(a.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE));
    EXPECT_EQ(wait(a, mark(30), {&a, &b}).err, 0) << "the restarted peer is reached";
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ::close(pipes[0]);
  ::close(pipes[1]);
}

// A peer sends more messages than there are buffers, and closes at once.
TEST(Rxm, MessagesSentBeforeTheEndArrive) {
  constexpr size_t kCount = 500;
  Peer b;
  {
    Peer a;
    const fi_addr_t to = a.insert(b);
    for (size_t i = 0; i < kCount; ++i) {
      const Bytes out = content(3000, unsigned(i));
      must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, i, mark(i)));
      EXPECT_EQ(wait(a, mark(i), {&a, &b}).err, 0);
      if (i == 3) break;  // the receiver makes no progress from here on
    }
    Bytes out = content(3000, 0);
    for (size_t i = 4; i < kCount; ++i) {
      must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, i, mark(i)));
      EXPECT_EQ(wait(a, mark(i), {&a}).err, 0);
    }
  }
  Bytes in(3000);
  for (size_t i = 0; i < kCount; ++i) {
    must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, i, 0, mark(i)));
    const Entry got = wait(b, mark(i), {&b});
    ASSERT_EQ(got.err, 0);
    ASSERT_EQ(got.len, in.size());
    ASSERT_EQ(in, content(3000, i < 4 ? unsigned(i) : 0)) << i;
  }
}

TEST(Rxm, ABlockedReaderWakesAndUsesNoProcessor) {
  PeerOptions options;
  options.wait = FI_WAIT_FD;
  Peer a(options), b(options);
  const fi_addr_t to = a.insert(b);
  Bytes in(200000), out = content(200000, 9);
  for (int round = 0; round < 20; ++round) {
    must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, mark(1)));
    std::thread reader([&] {
      fi_cq_tagged_entry entry{};
      EXPECT_EQ(fi_cq_sread(b.cq, &entry, 1, nullptr, 30000), 1);
    });
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 5, mark(2)));
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_sread(a.cq, &entry, 1, nullptr, 30000), 1);
    reader.join();
    EXPECT_EQ(in, out);
  }
  rusage before, after;
  fi_cq_tagged_entry entry{};
  getrusage(RUSAGE_THREAD, &before);
  EXPECT_EQ(fi_cq_sread(a.cq, &entry, 1, nullptr, 100), -FI_EAGAIN);
  getrusage(RUSAGE_THREAD, &after);
  const auto us = [](const rusage &r) {
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1'000'000 + r.ru_utime.tv_usec +
           r.ru_stime.tv_usec;
  };
  EXPECT_LT(us(after) - us(before), 15'000);
}

TEST(Rxm, WithAutomaticProgressAThreadReceives) {
  PeerOptions options;
  options.progress = FI_PROGRESS_AUTO;
  Peer a(options), b(options);
  const fi_addr_t to = a.insert(b);
  // Large enough for a rendezvous: it completes only if the receiver makes progress by itself.
  Bytes in(1'000'000), out = content(in.size(), 2);
  must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, mark(1)));
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 5, mark(2)));
  EXPECT_EQ(wait(a, mark(2), {&a}).err, 0);
  EXPECT_EQ(wait(b, mark(1), {&b}).len, out.size());
  EXPECT_EQ(in, out);
}

size_t open_sockets() {
  size_t count = 0;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(entry, gone).string().starts_with("socket:");
  }
  return count;
}

// With a limit of one connection every peer gives up its earlier connection, while the other side
// may be sending.
TEST(Rxm, ConnectionsBeyondALimitEndWithoutLoss) {
  const char *limit = std::getenv("FI_OFI_RXM_MAX_CONNECTIONS");
  if (limit == nullptr || std::string(limit) != "1") GTEST_SKIP() << "without the limit";
  std::deque<Peer> peers(4);
  Peer &a = peers[0];
  std::vector<fi_addr_t> to, back;
  for (Peer &peer : peers) {
    to.push_back(a.insert(peer));
    back.push_back(peer.insert(a));
  }
  const auto progress_until = [&](const std::function<bool()> &condition) {
    return until({&a, &peers[1], &peers[2], &peers[3]}, condition);
  };
  std::vector<Bytes> in(2, Bytes(20000));
  size_t sockets = 0;
  for (size_t round = 0; round < 90; ++round) {
    const size_t n = 1 + round % 3;
    Peer &b = peers[n];
    const Bytes out = content(round % 2 == 0 ? 20000 : 64, unsigned(round));
    must(fi_trecv(b.ep, in[0].data(), 20000, nullptr, FI_ADDR_UNSPEC, round, 0, mark(1)));
    must(fi_trecv(a.ep, in[1].data(), 20000, nullptr, FI_ADDR_UNSPEC, round, 0, mark(2)));
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to[n], round, mark(3)));
    must(fi_tsend(b.ep, out.data(), out.size(), nullptr, back[n], round, mark(4)));
    ASSERT_TRUE(progress_until([&] { return a.done.size() == 2 && b.done.size() == 2; })) << round;
    for (Peer *peer : {&a, &b}) {
      for (const Entry &entry : peer->done) EXPECT_EQ(entry.err, 0) << round;
      peer->done.clear();
    }
    for (size_t i : {0, 1})
      EXPECT_EQ(Bytes(in[i].begin(), in[i].begin() + ptrdiff_t(out.size())), out) << round;
    if (round == 0) sockets = open_sockets();
  }
  EXPECT_TRUE(progress_until([&] { return open_sockets() <= sockets; }))
      << open_sockets() << ", " << sockets << " with one connection";
}

// The sender is stopped long before the receiver's memory is used up. All messages arrive when
// receives are posted.
TEST(Rxm, UnreceivedMessagesAreBoundedUnderALimit) {
  const char *limit = std::getenv("FI_OFI_RXM_UNEXPECTED_LIMIT");
  if (limit == nullptr || std::string(limit) != "1M") GTEST_SKIP() << "without the limit";
  Peer a, b;
  const fi_addr_t to = a.insert(b);
  Bytes out = content(8000, 5), in(8000);
  size_t sent = 0, refused = 0;
  const size_t before = allocated();
  while (sent < 8000 && refused < 2000) {
    const ssize_t rc = fi_tsend(a.ep, out.data(), out.size(), nullptr, to, sent, mark(sent));
    ASSERT_TRUE(rc == 0 || rc == -FI_EAGAIN) << rc;
    rc == 0 ? void(++sent) : void(++refused);
    a.progress();
    b.progress();
  }
  EXPECT_LT(sent, 8000u) << "nothing stopped the sender";
  // The receiver's copies, the sender's operations in both layers, and the records of this test.
  size_t most = (1u << 20) + 1024 * (650 + 350) + (1u << 19);
#ifdef __SANITIZE_THREAD__
  most += most / 4;  // it counts blocks as large as it makes them
#endif
  EXPECT_LE(allocated() - before, most);
  for (size_t i = 0; i < sent; ++i) {
    must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, i, 0, &in));
    ASSERT_EQ(wait(b, &in, {&a, &b}).len, out.size());
    ASSERT_EQ(in, out);
  }
  EXPECT_TRUE(until({&a, &b}, [&] { return a.done.size() == sent; }));
  for (const Entry &entry : a.done) EXPECT_EQ(entry.err, 0);
}

// All peers connect to each other. The first round allocates what each endpoint needs once.
TEST(Rxm, AnIdleConnectionCostsEachSideFourKilobytesAtMost) {
  constexpr size_t kPeers = 24;
  std::deque<Peer> peers(kPeers);
  std::vector<std::vector<fi_addr_t>> index(kPeers);
  for (size_t i = 0; i < kPeers; ++i)
    for (Peer &peer : peers) index[i].push_back(peers[i].insert(peer));
  // A rendezvous, so that both ends have allocated all that a message needs.
  Bytes bytes(100000), into(bytes.size());
  const auto send = [&](size_t from, size_t to) {
    Peer &a = peers[from], &b = peers[to];
    must(fi_trecv(b.ep, into.data(), into.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, mark(1)));
    must(fi_tsend(a.ep, bytes.data(), bytes.size(), nullptr, index[from][to], 1, mark(2)));
    EXPECT_EQ(wait(b, mark(1), {&a, &b}).err, 0);
    EXPECT_EQ(wait(a, mark(2), {&a, &b}).err, 0);
  };
  const auto connect = [&](size_t one, size_t other) {
    send(one, other);
    send(other, one);
  };
  for (size_t i = 0; i < kPeers; ++i) connect(i, (i + 1) % kPeers);
  const size_t before = allocated();
  size_t ends = 0;
  for (size_t i = 0; i < kPeers; ++i) {
    for (size_t j = i + 2; j < kPeers; ++j) {
      if (i == 0 && j == kPeers - 1) continue;  // connected in the first round
      connect(i, j);
      ends += 2;
    }
  }
  const size_t each = (allocated() - before) / ends;
  RecordProperty("bytes", int(each));
  EXPECT_GT(each, 100u) << "the measurement saw no memory";
#ifdef __SANITIZE_THREAD__  // its locks are larger (weft/sdk/progress/lock.h)
  EXPECT_LE(each, 4608u);
#else
  EXPECT_LE(each, 4096u);
#endif
}

TEST(Rxm, ThousandsInsertedCostNothingAndOneOfThemIsReached) {
  Peer a, b;
  std::vector<sockaddr_in> many(20000);
  for (size_t i = 0; i < many.size(); ++i) {
    many[i].sin_family = AF_INET;
    many[i].sin_addr.s_addr = htonl(0x0a000000 + uint32_t(i));
    many[i].sin_port = htons(1);
  }
  many[15000] = b.name;
  std::vector<fi_addr_t> names(many.size());
  const size_t before = allocated();
  ASSERT_EQ(fi_av_insert(a.av, many.data(), many.size(), names.data(), 0, nullptr),
            int(many.size()));
  // The address vector needs an address and a hash entry for each.
  EXPECT_LE(allocated() - before, many.size() * (8 + 16)) << "bytes before: " << before;
  Bytes bytes(10);
  must(fi_recv(b.ep, bytes.data(), 10, nullptr, FI_ADDR_UNSPEC, mark(1)));
  must(fi_inject(a.ep, bytes.data(), 10, names[15000]));
  EXPECT_EQ(wait(b, mark(1), {&a, &b}).len, 10u);
}

}  // namespace
}  // namespace weft::conformance
