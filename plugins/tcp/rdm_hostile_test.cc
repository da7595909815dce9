// SPDX-License-Identifier: BSD-2-Clause
// FI_EP_RDM and attackers: impostors, crowds of connections, announced bytes that never come. Raw
// sockets attack an endpoint that exchanges messages with honest peers meanwhile.
#include <arpa/inet.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "plugins/tcp/test_node.h"
#include "plugins/tcp/test_stranger.h"

namespace weft::conformance {
namespace {

// The error of the operation, or 0; -1: it never ended.
int result(Node &node, const void *context, Nodes nodes,
           std::chrono::milliseconds time = kPatience) {
  std::optional<rdm::Completion> entry;
  if (!until(
          nodes, [&] { return (entry = node.take(context)).has_value(); }, time))
    return -1;
  return entry->err;
}

int answer(Stranger &stranger, Nodes nodes) {
  std::optional<int> heard;
  until(nodes, [&] { return (heard = stranger.answer()).has_value(); });
  return heard.value_or(-1);
}

struct Link {
  explicit Link(Node &from, Node &to) : from(from), to(to), address(from.insert(to)) {}
  // A message arrives whole.
  void expect_good(size_t size = 5000) {
    const Bytes out = pattern(size, ++count);
    Bytes in(size);
    must(fi_trecv(to.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, count, 0, mark(1)));
    must(fi_tsend(from.ep, out.data(), out.size(), nullptr, address, count, mark(2)));
    EXPECT_EQ(result(to, mark(1), {&from, &to}), 0);
    EXPECT_EQ(result(from, mark(2), {&from, &to}), 0);
    EXPECT_EQ(in, out);
  }
  Node &from, &to;
  const fi_addr_t address;
  unsigned count = 0;
};

// A message without a receive is saved and acknowledged.
void expect_kept(Node &from, Node &to, size_t size) {
  const Bytes bytes = pattern(size, 1);
  const iovec iov{const_cast<uint8_t *>(bytes.data()), bytes.size()};
  fi_msg_tagged message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = from.insert(to);
  message.context = mark(1);
  must(fi_tsendmsg(from.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  EXPECT_EQ(result(from, mark(1), {&from, &to}, std::chrono::seconds(10)), 0);
}

// ---- names ----

TEST(RdmIdentity, AFalseClaimTakesNoPlace) {
  Node a, b;
  Link there(a, b), back(b, a);
  there.expect_good();
  // Messages in flight in both directions, which must not be disturbed.
  constexpr size_t kSize = 8 << 20;
  const Bytes out = pattern(kSize, 1);
  Bytes in_a(kSize), in_b(kSize);
  must(fi_trecv(a.ep, in_a.data(), kSize, nullptr, FI_ADDR_UNSPEC, 99, 0, mark(3)));
  must(fi_trecv(b.ep, in_b.data(), kSize, nullptr, FI_ADDR_UNSPEC, 99, 0, mark(3)));
  must(fi_tsend(a.ep, out.data(), kSize, nullptr, there.address, 99, mark(4)));
  must(fi_tsend(b.ep, out.data(), kSize, nullptr, back.address, 99, mark(4)));
  std::vector<std::unique_ptr<Stranger>> impostors;
  for (uint32_t i = 0; i < 20; ++i) {
    impostors.push_back(std::make_unique<Stranger>(
        a.name, hello(ntohs(b.name.sin_port), uint32_t(getpid()) + 1 + i)));
    if (i % 2 == 0) impostors.back()->message(8, 8);
    if (i % 5 == 0) {
      EXPECT_EQ(answer(*impostors.back(), {&a, &b}), 6);
    }
  }
  for (Node *node : {&a, &b}) {
    EXPECT_EQ(result(*node, mark(3), {&a, &b}), 0);
    EXPECT_EQ(result(*node, mark(4), {&a, &b}), 0);
  }
  EXPECT_EQ(in_a, out);
  EXPECT_EQ(in_b, out);
  there.expect_good();
  back.expect_good();
  EXPECT_TRUE(a.done.empty());
}

TEST(RdmIdentity, ThePeerItselfGetsThePlaceThatAnImpostorTook) {
  Node a, b;
  const fi_addr_t to_b = a.insert(b);
  Stranger impostor(a.name, hello(ntohs(b.name.sin_port), uint32_t(getpid()) + 1));
  EXPECT_EQ(answer(impostor, {&a, &b}), 1) << "b itself had not connected yet";
  Link back(b, a);
  for (int i = 0; i < 5; ++i) back.expect_good();
  // A message to b reaches b.
  const Bytes out = pattern(100, 1);
  Bytes in(100);
  must(fi_trecv(b.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, mark(1)));
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to_b, 5, mark(2)));
  EXPECT_EQ(result(b, mark(1), {&a, &b}), 0);
  EXPECT_EQ(in, out);
}

TEST(RdmIdentity, AnImpostorCrossesARequestToThePeer) {
  Node one, other;
  Node &low = ntohs(one.name.sin_port) < ntohs(other.name.sin_port) ? one : other;
  Node &high = &low == &one ? other : one;
  const Bytes out = pattern(100, 1);
  must(fi_tsend(low.ep, out.data(), out.size(), nullptr, low.insert(high), 77, mark(9)));
  for (int i = 0; i < 100; ++i) low.progress();
  Stranger impostor(low.name, hello(ntohs(high.name.sin_port), uint32_t(getpid()) + 1));
  // The peer accepts, and sends, before the impostor's request is read.
  const Bytes back = pattern(100, 2);
  Bytes in(100);
  must(fi_trecv(low.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, mark(1)));
  for (int i = 0; i < 100; ++i) high.progress();
  must(fi_tsend(high.ep, back.data(), back.size(), nullptr, high.insert(low), 5, mark(2)));
  EXPECT_EQ(result(high, mark(2), {&high}), 0);
  EXPECT_EQ(result(low, mark(1), {&low, &high}), 0);
  EXPECT_EQ(in, back);
}

TEST(RdmIdentity, TheImpostorGoesWhileThePeerIsAsked) {
  for (int i = 0; i < 20; ++i) {
    Node a, b;
    a.insert(b);
    auto impostor =
        std::make_unique<Stranger>(a.name, hello(ntohs(b.name.sin_port), uint32_t(getpid()) + 1));
    EXPECT_EQ(answer(*impostor, {&a}), 1);
    // The request of b makes a probe; b accepts the probe, and sends.
    Link back(b, a);
    const Bytes out = pattern(100, 1);
    Bytes in(100);
    must(fi_trecv(a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, mark(1)));
    must(fi_tsend(b.ep, out.data(), out.size(), nullptr, back.address, 5, mark(2)));
    until(
        {&a, &b}, [&] { return !b.done.empty(); }, std::chrono::milliseconds(i));
    impostor.reset();
    EXPECT_EQ(result(b, mark(2), {&a, &b}), 0);
    EXPECT_EQ(result(a, mark(1), {&a, &b}), 0);
  }
}

// The accept of the first process is read only when the second process sends its request.
TEST(RdmIdentity, ThePeerAcceptsAndIsRestarted) {
  Node a;
  Host host(ntohs(a.name.sin_port));
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  must(fi_av_insert(a.av, &host.address(), 1, &peer, 0, nullptr) - 1);
  const Bytes out = pattern(8, 1);
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, peer, 77, mark(9)));
  for (int i = 0; i < 100; ++i) a.progress();
  Stranger second(a.name);
  for (int i = 0; i < 100; ++i) a.progress();
  second.say(request(hello(host.port(), 2)));
  ASSERT_TRUE(host.accept_and_die(1));
  EXPECT_EQ(answer(second, {&a}), 1);
  for (int i = 0; i < 3; ++i) {
    Bytes in(8);
    must(fi_recv(a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, mark(1)));
    second.message(8, 8);
    EXPECT_EQ(result(a, mark(1), {&a}), 0);
  }
}

// All that the first process sent is read before its connection ends, also long messages that have
// no receive yet and are read one in each progress.
TEST(RdmIdentity, AnotherProcessComesBehindLongMessages) {
  Node a;
  constexpr size_t kCount = 3, kSize = 16384;  // all of it fits into the first window of TCP
  sockaddr_in peer = a.name;
  peer.sin_port = htons(4242);
  a.insert(peer);
  auto first = std::make_unique<Stranger>(a.name, hello(4242, 1));
  EXPECT_EQ(answer(*first, {&a}), 1);
  Stranger second(a.name);
  for (int i = 0; i < 100; ++i) a.progress();
  for (size_t i = 0; i < kCount; ++i) first->message(kSize, kSize);
  first.reset();
  second.say(request(hello(4242, 2)));
  EXPECT_EQ(answer(second, {&a}), 1);
  second.message(8, 8);
  Bytes in(kSize);
  for (size_t i = 0; i <= kCount; ++i) {
    must(fi_recv(a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, mark(1)));
    std::optional<rdm::Completion> got;
    ASSERT_TRUE(until({&a}, [&] { return (got = a.take(mark(1))).has_value(); })) << i;
    EXPECT_EQ(got->err, 0);
    EXPECT_EQ(got->len, i < kCount ? kSize : 8u);
  }
}

// A process of b's host says that it is a context of b, which has none. b is asked; if it does not
// answer, it has none either.
TEST(RdmIdentity, AFalseContextTakesNoName) {
  for (const bool answers : {true, false}) {
    Node a, b;
    const fi_addr_t from_b = a.insert(b);
    Bytes of_b(8), of_any(8);
    must(fi_recv(a.ep, of_b.data(), of_b.size(), nullptr, from_b, mark(1)));
    must(fi_recv(a.ep, of_any.data(), of_any.size(), nullptr, FI_ADDR_UNSPEC, mark(2)));
    constexpr uint16_t kPlace = 3;
    const std::string claim = hello(uint16_t(ntohs(b.name.sin_port) + kPlace),
                                    uint32_t(getpid()) | uint32_t{kPlace} << 27);
    const Nodes both = {&a, &b}, alone = {&a};
    const Nodes nodes = answers ? both : alone;
    std::unique_ptr<Stranger> liar;
    size_t asked = 0;
    ASSERT_TRUE(until(nodes, [&] {
      liar = std::make_unique<Stranger>(a.name, claim);
      ++asked;
      return answer(*liar, nodes) == 1;
    }));
    EXPECT_GT(asked, 1u) << "it was believed at once";
    liar->message(8, 8);
    const rdm::Completion got = wait(a, mark(2), nodes);
    EXPECT_EQ(got.source, FI_ADDR_NOTAVAIL);
    EXPECT_TRUE(a.done.empty());
    must(fi_send(b.ep, "12345678", 8, nullptr, b.insert(a), mark(3)));
    EXPECT_EQ(wait(a, mark(1), {&a, &b}).source, from_b);
  }
}

// ---- crowds ----

std::string by_number(int i) {
  return hello(uint16_t(1 + i), 1);
}

TEST(RdmStrangers, StrangersLeaveDescriptorsForNamedPeers) {
  if (!in_fresh_process({"FI_TCP_HANDSHAKE_TIMEOUT_MS=500"})) return;
  limit_descriptors(256);
  Node a, b, c;
  Crowd crowd(a.name, 600, by_number);
  ASSERT_TRUE(until({&a, &b, &c}, [&] { return crowd.is_there(); }));
  until(
      {&a, &b, &c}, [] { return false; }, std::chrono::milliseconds(300));
  // a reaches others, and peers in its address vector reach a.
  Link out(a, b);
  a.insert(c);
  Link in(c, a);
  out.expect_good();
  in.expect_good();
  // The process can still open a file.
  const int fd = ::dup(0);
  EXPECT_GE(fd, 0) << strerror(errno);
  ::close(fd);
}

// They would hold their places for ten minutes.
TEST(RdmStrangers, SilentConnectionsDoNotKeepPeersOut) {
  if (!in_fresh_process({"FI_TCP_HANDSHAKE_TIMEOUT_MS=600000"})) return;
  limit_descriptors(256);
  Node a, b;
  Crowd crowd(a.name, 600, [](Stranger &, int) {});
  ASSERT_TRUE(until({&a, &b}, [&] { return crowd.is_there(); }));
  a.insert(b);
  Link in(b, a);
  in.expect_good();
}

TEST(RdmStrangers, AMessageThatNeverEndsKeepsNoPlace) {
  if (!in_fresh_process({"FI_TCP_MAX_UNNAMED_PEERS=4"})) return;
  Node a, b;
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (uint16_t port = 1; port <= 4; ++port) {
    strangers.push_back(std::make_unique<Stranger>(a.name, hello(port, 1)));
    EXPECT_EQ(answer(*strangers.back(), {&a}), 1);
    if (port % 2 == 0) {
      strangers.back()->say("\3");
    } else {
      strangers.back()->message(1 << 20, 1);
    }
  }
  Link in(b, a);  // a does not know b
  in.expect_good();
}

TEST(RdmStrangers, IdleStrangersMakeRoomForNewOnes) {
  if (!in_fresh_process({"FI_TCP_MAX_UNNAMED_PEERS=20", "FI_TCP_HANDSHAKE_TIMEOUT_MS=200"})) return;
  Node a, b;
  Crowd crowd(a.name, 100, by_number);
  ASSERT_TRUE(until({&a, &b}, [&] { return crowd.is_there(); }));
  until(
      {&a, &b}, [] { return false; }, std::chrono::milliseconds(100));
  Link in(b, a);  // a does not know b
  in.expect_good();
}

TEST(RdmStrangers, AFloodOfBadOnesIsNoFloodOfLogLines) {
  if (!in_fresh_process({"FI_LOG_LEVEL=warn"})) return;
  constexpr uint16_t kMany = 100;
  testing::internal::CaptureStderr();
  {
    Node a;
    for (uint16_t port = 1; port <= kMany; ++port) {
      Stranger stranger(a.name, hello(port, 1));
      EXPECT_EQ(answer(stranger, {&a}), 1);
      stranger.say(std::string(64, '\xff'));
      EXPECT_EQ(answer(stranger, {&a}), 0);
    }
  }
  const std::string log = testing::internal::GetCapturedStderr();
  std::vector<std::string> lines;
  std::istringstream all(log);
  for (std::string line; std::getline(all, line);)
    if (line.find("the connection is closed") != std::string::npos) lines.push_back(line);
  ASSERT_GE(lines.size(), 8u) << log;
  EXPECT_LT(lines.size(), size_t{kMany / 2}) << log;
  EXPECT_TRUE(lines[0].ends_with("the connection is closed")) << lines[0];
  EXPECT_NE(lines[7].find("of further such lines"), std::string::npos) << lines[7];
}

// A stranger whose idle connection a closes, and that does not close its side.
TEST(RdmStrangers, AStrangerThatDoesNotCloseKeepsNoPlace) {
  if (!in_fresh_process({"FI_TCP_MAX_UNNAMED_PEERS=4", "FI_TCP_MAX_CONNECTIONS=1",
                         "FI_TCP_HANDSHAKE_TIMEOUT_MS=200"}))
    return;
  Node a, b, c;
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (uint16_t port = 1; port <= 4; ++port) {
    strangers.push_back(std::make_unique<Stranger>(a.name, hello(port, 1)));
    EXPECT_EQ(answer(*strangers.back(), {&a}), 1);
  }
  Link out(a, c);  // a closes the last stranger's connection, too
  out.expect_good();
  Link in(b, a);  // a does not know b
  in.expect_good();
}

// Its message stays saved, but its connection no longer counts.
TEST(RdmStrangers, AStrangerThatLeftAMessageHoldsNoConnection) {
  if (!in_fresh_process({"FI_TCP_MAX_UNNAMED_PEERS=4"})) return;
  Node a, b;
  const auto is_accepted = [&](uint16_t port) {
    Stranger stranger(a.name, hello(port, 1));
    stranger.message(8, 8);
    return answer(stranger, {&a}) == 1;
  };
  for (uint16_t port = 1; port <= 20; ++port)
    ASSERT_TRUE(until({&a}, [&] { return is_accepted(port); })) << port;
  Link in(b, a);  // a does not know b
  in.expect_good();
  // They come back, all at once, and the limit still holds.
  std::vector<std::unique_ptr<Stranger>> again;
  for (uint16_t port = 1; port <= 20; ++port)
    again.push_back(std::make_unique<Stranger>(a.name, hello(port, 1)));
  size_t accepted = 0;
  for (auto &stranger : again) accepted += answer(*stranger, {&a, &b}) == 1;
  EXPECT_LE(accepted, 4U);
}

// ---- announced bytes ----

TEST(RdmStrangers, AnnouncedBytesTakeNoRoom) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED=1M", "FI_TCP_MAX_SAVED_PER_PEER=512K"})) return;
  Node a, b;
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (uint16_t i = 0; i < 10; ++i) {
    strangers.push_back(std::make_unique<Stranger>(a.name, hello(uint16_t(1 + i), 1)));
    EXPECT_EQ(answer(*strangers.back(), {&a}), 1);
    strangers.back()->message(500'000, 10);
  }
  until(
      {&a}, [] { return false; }, std::chrono::milliseconds(50));
  // The message of another peer outside the address vector is saved and acknowledged.
  expect_kept(b, a, 60000);
}

TEST(RdmStrangers, StrangersLeaveRoomForMessagesOfNamedPeers) {
  if (!in_fresh_process({"FI_TCP_MAX_SAVED=1M", "FI_TCP_MAX_SAVED_PER_PEER=512K"})) return;
  Node a, b;
  a.insert(b);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (uint16_t i = 0; i < 10; ++i) {
    strangers.push_back(std::make_unique<Stranger>(a.name, hello(uint16_t(1 + i), 1)));
    EXPECT_EQ(answer(*strangers.back(), {&a}), 1);
    // Half of a message, and never the rest.
    strangers.back()->message(400'000, 200'000);
    until(
        {&a}, [] { return false; }, std::chrono::milliseconds(10));
  }
  expect_kept(b, a, 20000);
  // Messages of peers that are gone hold no room: there is some for a peer outside the vector.
  strangers.clear();
  Node c;
  expect_kept(c, a, 20000);
}

// ---- refused accesses ----

// Toward a peer whose protocol has no refusal the target ends its half of the connection. What the
// peer sends before it notices arrives, though the target has something to send itself, which goes
// by the next connection.
TEST(RdmStrangers, ARefusedAccessLosesNothingOfEitherSide) {
  Node a;
  Host host(ntohs(a.name.sin_port));
  const fi_addr_t to = a.insert(host.address());
  auto peer = std::make_unique<Stranger>(a.name, hello(host.port(), 7));
  EXPECT_EQ(answer(*peer, {&a}), 1);
  const Bytes out = pattern(100, 1);
  Bytes in(8);
  must(fi_recv(a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, mark(1)));
  peer->bad_write();
  ASSERT_TRUE(until({&a}, [&] { return !peer->drop(); }));
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 5, mark(2)));
  peer->message(8, 8);
  EXPECT_EQ(result(a, mark(1), {&a}), 0);
  EXPECT_FALSE(a.take(mark(2))) << "it waits";
  peer.reset();
  EXPECT_TRUE(until({&a}, [&] { return host.accept_and_die(7); }));
}

// A write completes when it has left, and so do the messages behind it. The peer, whose protocol
// has no refusal, ends the connection without an acknowledgement: each of them may be lost.
TEST(RdmStrangers, WhatEndsWithTheConnectionOfAWriteIsToldByItsKind) {
  Node a;
  auto peer = std::make_unique<Stranger>(a.name, hello(4242, 7));
  EXPECT_EQ(answer(*peer, {&a}), 1);
  sockaddr_in address = a.name;
  address.sin_port = htons(4242);
  const fi_addr_t to = a.insert(address);
  const Bytes out = pattern(100, 1);
  must(fi_write(a.ep, out.data(), 8, nullptr, to, 0, 77, mark(1)));
  must(fi_send(a.ep, out.data(), out.size(), nullptr, to, mark(2)));
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 5, mark(3)));
  must(fi_tinject(a.ep, out.data(), 8, to, 5));
  for (size_t i = 1; i <= 3; ++i) EXPECT_EQ(result(a, mark(i), {&a}), 0) << i;
  peer.reset();
  std::map<uint64_t, size_t> told;
  const auto of_endpoint = static_cast<rdm::Node *>(&a);
  ASSERT_TRUE(until({&a}, [&] {
    while (const auto error = a.take(of_endpoint)) {
      EXPECT_NE(error->err, 0);
      ++told[error->flags];
    }
    return told[FI_SEND | FI_TAGGED] == 2;
  })) << told.size();
  EXPECT_EQ(told, (std::map<uint64_t, size_t>{
                      {FI_WRITE | FI_RMA, 1}, {FI_SEND | FI_MSG, 1}, {FI_SEND | FI_TAGGED, 2}}));
  EXPECT_TRUE(a.done.empty());
}

}  // namespace
}  // namespace weft::conformance
