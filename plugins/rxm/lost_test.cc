// SPDX-License-Identifier: BSD-2-Clause
// What ends with its connection over tcp: each operation that fails is told once, also one that had
// completed, and nothing is told of what is no operation of the application.
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "plugins/rxm/test_peer.h"
#include "plugins/rxm/test_raw_peer.h"
#include "tests/conformance/counters.h"

namespace weft::conformance {
namespace {

using Told = std::map<uint64_t, size_t>;  // how many errors have these flags

constexpr uint64_t kMessage = FI_SEND | FI_MSG, kTagged = FI_SEND | FI_TAGGED,
                   kWrite = FI_WRITE | FI_RMA;

bool writes_large_messages() {
  const char *const set = std::getenv("FI_OFI_RXM_USE_RNDV_WRITE");
  return set != nullptr && std::string(set) == "1";
}

// Takes the errors that have the endpoint's context.
Told take_told(Peer &peer) {
  Told told;
  std::erase_if(peer.done, [&](const Entry &entry) {
    if (entry.context != &peer) return false;
    EXPECT_NE(entry.err, 0);
    ++told[entry.flags];
    return true;
  });
  return told;
}

void expect_end(Peer &peer, size_t context, bool succeeds, int line = __builtin_LINE()) {
  SCOPED_TRACE(line);
  EXPECT_EQ(wait(peer, mark(context), {&peer}).err == 0, succeeds);
}

// Waits for the next `count` frames.
void read_frames(Peer &a, RawPeer &peer, size_t count) {
  size_t got = 0;
  ASSERT_TRUE(until({&a}, [&] { return (got += peer.frame().has_value()) == count; }))
      << got << " of " << count << " frames";
}

void settle(Peer &a) {
  for (int i = 0; i < 200; ++i) a.progress();
}

// A write completes when it has left, and with it the messages behind it. The peer, which knows no
// refusal, ends the connection without an acknowledgement.
TEST(RxmLost, EachOperationBehindAWriteIsToldOnce) {
  for (const uint8_t level : {0, 1}) {
    SCOPED_TRACE(int(level));
    const bool has_segments = level != 0;
    Peer a;
    RawPeer peer(a, {.level = level});
    const fi_addr_t to = a.insert(peer.address());
    const Bytes out = content(200'000, 1);
    const uint64_t one = 1;
    must(fi_write(a.ep, out.data(), 8, nullptr, to, 0, 77, mark(0)));
    expect_end(a, 0, true);
    must(fi_send(a.ep, out.data(), 10, nullptr, to, mark(1)));
    must(fi_tsend(a.ep, out.data(), 10, nullptr, to, 5, mark(2)));
    must(fi_tinject(a.ep, out.data(), 10, to, 5));
    must(fi_tsend(a.ep, out.data(), 60'000, nullptr, to, 5, mark(3)));
    must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 5, mark(4)));
    must(fi_atomic(a.ep, &one, 1, nullptr, to, 0, 77, FI_UINT64, FI_SUM, mark(5)));
    expect_end(a, 1, true);
    expect_end(a, 2, true);
    if (has_segments) expect_end(a, 3, true);
    read_frames(a, peer, 1 + 3 + (has_segments ? 4 : 1) + 2);
    peer.close();
    if (!has_segments) expect_end(a, 3, false);
    expect_end(a, 4, false);
    expect_end(a, 5, false);
    settle(a);
    EXPECT_EQ(take_told(a), (Told{{kWrite, 1}, {kMessage, 1}, {kTagged, has_segments ? 3 : 2}}));
    EXPECT_TRUE(a.done.empty());
  }
}

// The sender of a large message writes it to the receiver's memory, by two writes.
TEST(RxmLost, AMessageThatWasWrittenIsToldOnce) {
  if (!writes_large_messages()) GTEST_SKIP() << "the receiver reads large messages";
  Peer a;
  RawPeer peer(a, {});
  const fi_addr_t to = a.insert(peer.address());
  const Bytes out = content(200'000, 1);
  must(fi_tsend(a.ep, out.data(), out.size(), nullptr, to, 5, mark(0)));
  std::optional<std::string> announced;
  ASSERT_TRUE(until({&a}, [&] { return (announced = peer.frame()).has_value(); }));
  rxm::WireHeader header = rxm::header_of(rxm::PacketType::kWriteTarget, 0);
  header.message = RawPeer::packet_of(*announced).message;
  const rxm::RmaVector room[] = {{0, 100'000, 77}, {0, 100'000, 78}};
  rxm::WireVectors vectors;
  rxm::encode_vectors(room, vectors);
  peer.packet(header, vectors);
  expect_end(a, 0, true);
  read_frames(a, peer, 3);
  peer.close();
  ASSERT_TRUE(until({&a}, [&] { return read_counters(a.fabric).at("connections_lost") != 0; }));
  settle(a);
  EXPECT_EQ(take_told(a), (Told{{kTagged, 1}}));
  EXPECT_TRUE(a.done.empty());
}

struct AtomicOfOne {
  rxm::RmaVector where[rxm::kMaxVectors];
  uint64_t operand;
};

// A peer asks for a sum of 1 to memory.
void ask_for_sum(RawPeer &peer, uint64_t address, uint64_t key) {
  rxm::WireHeader header = rxm::header_of(rxm::PacketType::kAtomic, 0);
  header.op = uint8_t(rxm::PacketOp::kAtomic);
  header.atomic.datatype = FI_UINT64;
  header.atomic.operation = FI_SUM;
  header.atomic.vectors = 1;
  header.size = sizeof(AtomicOfOne);
  peer.packet(header, AtomicOfOne{{{address, 1, key}}, 1});
}

// A long message is read from the peer's memory when the connection ends. The answer to an atomic
// has left behind the read.
TEST(RxmLost, WhoReceivesIsToldOfItsReceiveAlone) {
  if (writes_large_messages()) GTEST_SKIP() << "the sender writes large messages";
  Peer a;
  RawPeer peer(a, {});
  a.insert(peer.address());
  Bytes in(200'000);
  must(fi_trecv(a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 5, 0, mark(0)));
  rxm::WireHeader header = rxm::header_of(rxm::PacketType::kRendezvous, 0);
  header.op = uint8_t(rxm::PacketOp::kTagged);
  header.size = in.size();
  header.tag = 5;
  const rxm::RmaVector memory[] = {{0, in.size(), 77}};
  rxm::WireVectors vectors;
  rxm::encode_vectors(memory, vectors);
  peer.packet(header, vectors);
  read_frames(a, peer, 1);
  ask_for_sum(peer, 0, /*key=*/12345);  // nobody's: the answer says so
  read_frames(a, peer, 1);
  peer.close();
  expect_end(a, 0, false);
  settle(a);
  EXPECT_TRUE(a.done.empty()) << a.done.size() << " more";
}

// Injected messages wait for room in the socket when the connection ends. So does an answer, which
// is no message.
TEST(RxmLost, AnInjectedMessageIsTold) {
  constexpr size_t kCount = 1000;
  Peer a;
  RawPeer peer(a, {.receive_buffer = 4096});
  const fi_addr_t to = a.insert(peer.address());
  alignas(8) uint64_t counter = 0;
  must(fi_mr_reg(a.domain, &counter, sizeof counter, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 42, 0,
                 a.mr.out(), nullptr));
  const Bytes out = content(16384, 1);
  for (size_t i = 0; i < kCount; ++i)
    must(fi_send(a.ep, out.data(), out.size(), nullptr, to, mark(i)));
  must(fi_inject(a.ep, out.data(), 10, to));
  must(fi_injectdata(a.ep, out.data(), 10, 1, to));
  must(fi_tinject(a.ep, out.data(), 10, to, 5));
  must(fi_tinject(a.ep, out.data(), 64, to, 5));
  must(fi_tinjectdata(a.ep, out.data(), 0, 1, to, 5));
  ask_for_sum(peer, a.base_of(&counter), fi_mr_key(a.mr));
  ASSERT_TRUE(until({&a}, [&] { return counter == 1; }));
  EXPECT_LT(a.done.size(), kCount) << "there is room in the socket";
  EXPECT_EQ(take_told(a), Told{});
  peer.close();
  ASSERT_TRUE(until({&a}, [&] { return read_counters(a.fabric).at("connections_lost") != 0; }));
  settle(a);
  EXPECT_EQ(take_told(a), (Told{{kMessage, 2}, {kTagged, 3}}));
  EXPECT_EQ(a.done.size(), kCount);
  EXPECT_TRUE(std::ranges::any_of(a.done, [](const Entry &entry) { return entry.err != 0; }));
}

// The endpoint itself closes the connection of a peer that breaks the protocol. Each message has
// reached the peer, or is told.
TEST(RxmLost, AnInjectedMessageToAPeerThatIsLeftIsTold) {
  if (!in_fresh_process({"FI_TCP_CLOSE_LINGER_MS=0", "FI_TCP_SEND_BUFFER=64K"})) return;
  Peer a;
  RawPeer peer(a, {.receive_buffer = 4096});
  const fi_addr_t to = a.insert(peer.address());
  const Bytes out = content(64, 1);
  size_t sent = 0;
  for (ssize_t rc = 0; rc == 0; sent += rc == 0) {
    rc = fi_inject(a.ep, out.data(), out.size(), to);
    ASSERT_TRUE(rc == 0 || rc == -FI_EAGAIN) << rc;
  }
  const rxm::WireHeader header = rxm::header_of(rxm::PacketType::kReadDone, 0);
  peer.packet(header, uint64_t(0));
  ASSERT_TRUE(until({&a}, [&] { return read_counters(a.fabric).at("protocol_violations") != 0; }));
  settle(a);
  size_t received = 0;
  ASSERT_TRUE(until({&a}, [&] {
    while (peer.frame()) ++received;
    return peer.is_over();
  }));
  const Told told = take_told(a);
  EXPECT_EQ(told, (Told{{kMessage, sent - received}}));
  EXPECT_GT(sent, received);
  EXPECT_TRUE(a.done.empty());
}

// Everything has arrived when the peer closes its endpoint.
TEST(RxmLost, NothingIsToldOfAnEndBehindAllMessages) {
  Peer a;
  const Bytes out = content(64, 1), large = content(200'000, 2);
  {
    Peer b;
    const fi_addr_t to_b = a.insert(b), to_a = b.insert(a);
    Bytes in(out.size()), into(large.size());
    for (size_t i = 0; i < 100; ++i) {
      for (Peer *const to : {&a, &b})
        must(fi_trecv(to->ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, i, 0, mark(0)));
      must(fi_tinject(a.ep, out.data(), out.size(), to_b, i));
      must(fi_tinject(b.ep, out.data(), out.size(), to_a, i));
      for (Peer *const to : {&a, &b}) EXPECT_EQ(wait(*to, mark(0), {&a, &b}).err, 0);
    }
    must(fi_recv(a.ep, into.data(), into.size(), nullptr, FI_ADDR_UNSPEC, mark(1)));
    must(fi_send(b.ep, large.data(), large.size(), nullptr, to_a, mark(2)));
    EXPECT_EQ(wait(a, mark(1), {&a, &b}).err, 0);
    EXPECT_EQ(wait(b, mark(2), {&a, &b}).err, 0);
  }
  ASSERT_TRUE(until({&a}, [&] { return read_counters(a.fabric).at("connections_lost") != 0; }));
  settle(a);
  EXPECT_TRUE(a.done.empty());
}

}  // namespace
}  // namespace weft::conformance
