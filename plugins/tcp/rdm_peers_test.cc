// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_RDM: peers that are not there, leave, die or come back, and connections that are closed and
// made again.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <thread>

#include "plugins/tcp/test_node.h"
#include "plugins/tcp/wire/connect_message.h"
#include "plugins/tcp/wire/rdm_message.h"

namespace weft::conformance {
namespace {

using rdm::Completion, rdm::Options;

sockaddr_in absent() {
  // A port that was free a moment ago and has no listener.
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

TEST(Rdm, OnlySendsToAnAbsentPeerFail) {
  Node a, b;
  const fi_addr_t to_absent = a.insert(absent()), to_b = a.insert(b);
  const Bytes out = pattern(1000, 12);
  Bytes in(1000);
  for (int round = 0; round < 2; ++round) {
    must(fi_tsend(a.ep, out.data(), 1000, nullptr, to_absent, 1, mark(1)));
    must(fi_tsend(a.ep, out.data(), 1000, nullptr, to_b, 1, mark(2)));
    must(fi_tsend(a.ep, out.data(), 1000, nullptr, to_absent, 1, mark(3)));
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

TEST(Rdm, OperationsWaitingForAStreamAreBounded) {
  Options options = defaults();
  options.tx_size = 16;
  Node a(options);
  // A listener that takes connections and never answers.
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
  // The listener closes: all sends fail, and only then is there room.
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
    // No receive will ask for this one.
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

TEST(Rdm, ClosingDeliversInjectedData) {
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
    // Until there is a stream both must make progress; b does so in its own thread.
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
  const size_t before = count_sockets();  // listeners
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
  // Both ends are in this process, and one connection more may be closing.
  EXPECT_LE(most, 2u * (3 + 1));
  EXPECT_GE(most, 2u * 3);
}

// A process is killed in the middle of traffic: only the operations with it fail; the others go on.
TEST(Rdm, APeerKilledInTheMiddleOfTraffic) {
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
    // These have no receives: they are in flight when the process dies.
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

// The time limit for connecting does not run out while the application makes no progress.
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

// A busy peer closes the connection and is asked again, also by an endpoint that closes.
TEST(Rdm, InjectedDataWaitsForTheNextTry) {
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
