// SPDX-License-Identifier: BSD-2-Clause
// What a peer may send that is no peer's to send. fuzz/cxi_fuzz.cc looks for more of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "plugins/cxi/fuzz/node.h"

namespace weft::cxi {
namespace {

using fuzz::Completion;
using fuzz::kHonest;
using fuzz::kTarget;
using fuzz::Liar;
using fuzz::Network;
using fuzz::Node;
using fuzz::small_settings;
using fuzz::succeed;

struct Scene {
  explicit Scene(bool is_plain = false, const Settings &settings = small_settings(),
                 const fuzz::NodeOptions &options = {}) {
    network.is_plain = is_plain;
    target.emplace(network, kTarget, settings, options);
    liar.emplace(network, Nid{4});
  }
  Packet packet(Op op, Index index) const {
    return liar->packet(op, {.nid = kTarget, .pid = target->name().pid, .index = index});
  }
  // A long message that has the number 5, of which nothing comes along.
  Packet long_message(uint32_t length) const {
    Packet message = packet(Op::kRendezvousPut, kReceiveIndex);
    message.length = length;
    message.rendezvous_id = 5;
    return message;
  }
  // All that the NIC has asked is answered in this way.
  void answer_with(uint8_t byte) {
    liar->hear();
    while (!liar->asked.empty()) answer(liar->asked.front().length, byte);
  }
  // The oldest.
  void answer(uint32_t length, uint8_t byte) {
    liar->hear();
    ASSERT_FALSE(liar->asked.empty());
    liar->answer(0, Rc::kOk, length, std::vector<uint8_t>(length, byte));
  }
  std::vector<Completion> completions() {
    std::vector<Completion> all;
    while (const auto one = target->poll()) all.push_back(*one);
    return all;
  }

  Network network{400};
  std::optional<Node> target;
  std::optional<Liar> liar;
};

class CxiHostilePortals : public testing::TestWithParam<bool> {};

// The NIC reads the rest of such a message, and tells the owner of the portal that it has come.
TEST_P(CxiHostilePortals, ALongMessageIsForThePortalOfMessagesAlone) {
  Scene scene(/*is_plain=*/GetParam());
  std::vector<uint8_t> memory(100);
  fid_mr *const region = scene.target->open_region(memory.data(), memory.size(), FI_REMOTE_WRITE);
  for (const Index index : {kCollectiveIndex, kWriteIndex, kDoneIndex, kReadIndex, kRendezvousIndex,
                            Index(kOptimizedWriteIndex + kFirstProviderId)}) {
    for (const uint64_t bits : {uint64_t{0}, kControl, fi_mr_key(region) & ~kProviderKey}) {
      for (Pid pid = 0; pid < 64; ++pid) {
        Packet message = scene.packet(Op::kRendezvousPut, index);
        message.initiator = match_id(pid, scene.liar->nid());
        message.match_bits = bits;
        message.rendezvous_id = uint8_t(pid);
        scene.liar->say(message, {});
      }
      scene.answer_with(1);
      EXPECT_TRUE(scene.completions().empty());
    }
  }
  succeed(fi_close(&region->fid));
}
INSTANTIATE_TEST_SUITE_P(, CxiHostilePortals, testing::Bool(),
                         [](const auto &one) { return one.param ? "Hardware" : "Software"; });

// Of a sender that names itself in several ways, and uses one number for all. A NIC in software
// takes no other's name from outside; of hardware that is not known.
TEST(CxiHostile, MessagesOfOneNumberKeepApart) {
  constexpr uint32_t kLengths[] = {900'000, 100'000, 5000};
  Scene scene;
  std::vector<uint8_t> memory(1 << 20);
  const iovec all{memory.data(), memory.size()};
  fi_msg post{};
  post.msg_iov = &all;
  post.iov_count = 1;
  post.addr = FI_ADDR_UNSPEC;
  succeed(fi_recvmsg(scene.target->ep, &post, FI_MULTI_RECV));
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    Packet message = scene.long_message(kLengths[i]);
    if (i == 1) {
      message.initiator = match_id(0, 77);
      scene.network.engine.on_packet(message);
    } else {
      scene.liar->say(message, {});
    }
    EXPECT_TRUE(scene.completions().empty());
    if (i == 1) {  // both, before the third one comes
      scene.answer(kLengths[0], 1);
      scene.answer(kLengths[1], 2);
      const auto done = scene.completions();
      ASSERT_EQ(done.size(), 2u);
      EXPECT_EQ(done[0].length + done[1].length, kLengths[0] + kLengths[1]);
    }
  }
  EXPECT_TRUE(scene.completions().empty()) << "the rest of the third one is still to come";
  scene.answer(kLengths[2], 3);
  const auto done = scene.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].err, 0);
  EXPECT_EQ(done[0].length, kLengths[2]);
  ASSERT_EQ(done[0].buf, memory.data() + kLengths[0] + kLengths[1]);
  EXPECT_EQ(std::count(done[0].buf, done[0].buf + kLengths[2], uint8_t{3}), kLengths[2]);
}

TEST(CxiHostile, LessThanWasAnnouncedIsAnError) {
  for (const bool by_software : {false, true}) {
    Settings settings = small_settings();
    if (by_software) settings.match_mode = MatchMode::kSoftware;
    Scene scene(false, settings);
    std::vector<uint8_t> memory(1000);
    succeed(
        fi_recv(scene.target->ep, memory.data(), memory.size(), nullptr, FI_ADDR_UNSPEC, &scene));
    scene.liar->say(scene.long_message(1000), {});
    EXPECT_TRUE(scene.completions().empty());
    scene.answer(10, 1);
    const auto done = scene.completions();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].context, &scene);
    EXPECT_EQ(done[0].err, FI_EIO);
    EXPECT_EQ(done[0].prov_errno, int(Rc::kAddrOutOfRange));
  }
}

// A program takes that for the end of its buffer.
TEST(CxiHostile, APeerCancelsNothing) {
  Scene scene;
  std::vector<uint8_t> memory(1000);
  const iovec all{memory.data(), memory.size()};
  fi_msg post{};
  post.msg_iov = &all;
  post.iov_count = 1;
  post.addr = FI_ADDR_UNSPEC;
  succeed(fi_recvmsg(scene.target->ep, &post, FI_MULTI_RECV));
  scene.liar->say(scene.long_message(500), {});
  EXPECT_TRUE(scene.completions().empty());
  scene.liar->hear();
  ASSERT_EQ(scene.liar->asked.size(), 1u);
  scene.liar->answer(0, Rc::kCanceled, 0, {});
  const auto done = scene.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].err, FI_EHOSTUNREACH);
  EXPECT_EQ(done[0].flags & FI_MULTI_RECV, 0u);
}

// Of a message that waits only the peer whom it is for reads anything, and nobody by a key.
TEST(CxiHostile, ALongMessageIsReadByWhomItIsForAlone) {
  Settings settings = small_settings();
  settings.optimized_mrs = false;
  Scene scene(false, settings);
  Node honest(scene.network, kHonest, small_settings());
  std::vector<uint8_t> out(1000, 7), other(1000);
  fid_mr *const region = scene.target->open_region(other.data(), other.size(), FI_REMOTE_READ);
  const uint64_t key = fi_mr_key(region);
  ASSERT_NE(key & kCachedKey, 0u);
  const fi_addr_t to_honest = scene.target->insert(honest.name()),
                  to_liar = scene.target->insert({.nid = scene.liar->nid(), .pid = 1});
  for (const auto &[to, wanted] : {std::pair(to_honest, Rc::kNoTranslation), {to_liar, Rc::kOk}}) {
    succeed(fi_send(scene.target->ep, out.data(), out.size(), nullptr, to, nullptr));
    const auto read = [&](Index index, uint64_t bits, Pid pid) {
      Packet get = scene.packet(Op::kGet, index);
      get.initiator = match_id(pid, scene.liar->nid());
      get.match_bits = bits;
      get.remote_offset = reinterpret_cast<uintptr_t>(out.data()) + 500;
      get.length = 500;
      scene.liar->answers.clear();
      scene.liar->say(get, {});
      scene.liar->hear();
      return scene.liar->answers.empty() ? Rc::kNone : scene.liar->answers.back().second.rc;
    };
    EXPECT_EQ(read(kRendezvousIndex, 0, 1), wanted);
    EXPECT_EQ(read(kRendezvousIndex, 0, 2), Rc::kNoTranslation) << "another process there";
    EXPECT_EQ(read(kReadIndex, key & ~(kProviderKey | kCachedAddress), 1), Rc::kNoTranslation);
  }
  succeed(fi_close(&region->fid));
}

// With these bits a write to a region is a write to a region.
TEST(CxiHostile, WhatIsPutIntoARegionIsNoMessageOfFlowControl) {
  Settings settings = small_settings();
  settings.prov_key_cache = false;
  settings.mr_match_events = true;  // the NIC tells of all writes
  Scene scene(false, settings);
  std::vector<uint8_t> memory(10);
  fid_mr *const region = scene.target->open_region(memory.data(), 10, FI_REMOTE_WRITE);
  Packet put = scene.packet(Op::kPut, Index(kOptimizedWriteIndex + kFirstProviderId));
  put.match_bits = ControlBits{ControlType::kNotify, 3}.bits();
  scene.liar->say(put, {});
  EXPECT_TRUE(scene.completions().empty());
  scene.liar->hear();
  ASSERT_FALSE(scene.liar->answers.empty());
  EXPECT_EQ(scene.liar->answers.back().second.rc, Rc::kOk);
  EXPECT_TRUE(scene.liar->asked.empty()) << "it is answered";
  succeed(fi_close(&region->fid));
}

TEST(CxiHostile, KeysAreNoSequence) {
  Settings settings = small_settings();
  settings.prov_key_cache = settings.optimized_mrs = false;
  Scene scene(false, settings);
  std::vector<uint8_t> memory(10);
  uint64_t above = 0;  // the ids below are in use at most once
  for (int i = 0; i < 8; ++i) {
    fid_mr *const region = scene.target->open_region(memory.data(), 10, FI_REMOTE_READ);
    above |= (fi_mr_key(region) ^ kProviderKey) >> 16;
    succeed(fi_close(&region->fid));
  }
  EXPECT_GT(std::popcount(above), 20) << "of 43 bits, of eight keys";
}

// What else meets a receive uses it up, and what else meets a buffer takes room of it.
TEST(CxiHostile, OtherOperationsAreNoMessages) {
  Scene scene;
  for (const Op op : {Op::kGet, Op::kAtomic, Op::kFetchAtomic}) {
    uint64_t memory = 0;
    succeed(fi_recv(scene.target->ep, &memory, sizeof memory, nullptr, FI_ADDR_UNSPEC, &memory));
    Packet packet = scene.packet(op, kReceiveIndex);
    packet.length = sizeof memory;
    packet.amo_type = AmoType::kUint64;
    scene.liar->say(packet, {});
    const auto done = scene.completions();
    ASSERT_EQ(done.size(), 1u) << int(op);
    EXPECT_EQ(done[0].context, &memory);
    EXPECT_EQ(done[0].err, FI_EIO);
    for (int i = 0; i < 3000; ++i) {
      scene.liar->say(packet, {});
      scene.liar->hear();
      EXPECT_TRUE(scene.completions().empty());
    }
  }
  Node honest(scene.network, kHonest, small_settings());
  uint64_t in = 0, out = 7;
  succeed(fi_send(honest.ep, &out, sizeof out, nullptr, honest.insert(scene.target->name()), &out));
  EXPECT_TRUE(scene.completions().empty());
  succeed(fi_recv(scene.target->ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, &in));
  const auto done = scene.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].err, 0);
  EXPECT_EQ(in, out);
}

// FI_PROTO_CXI_RNR.
TEST(CxiHostile, AMessageThatFindsNoReceiveEndsNone) {
  Scene scene(false, small_settings(), {.protocol = FI_PROTO_CXI_RNR});
  const Protocol protocol = Protocol::rnr(fuzz::kVni);
  uint64_t in = 0;
  succeed(fi_trecv(scene.target->ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  for (const uint64_t tag : {2, 1}) {
    EXPECT_TRUE(scene.completions().empty());
    Packet message = scene.packet(Op::kPut, kRnrIndex);
    message.match_bits = protocol.sent(true, tag, fuzz::kVni);
    message.length = 1;
    scene.liar->say(message, {});
  }
  const auto done = scene.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].err, 0);
  EXPECT_EQ(done[0].length, 1u);
}

TEST(CxiHostile, AnotherPeersNoticeCannotBeMadeUp) {
  Scene scene;
  Node honest(scene.network, kHonest, small_settings());
  uint64_t out = 7;
  const iovec all{&out, sizeof out};
  fi_msg message{};
  message.msg_iov = &all;
  message.iov_count = 1;
  message.addr = scene.target->insert(honest.name());
  succeed(fi_sendmsg(scene.target->ep, &message, FI_MATCH_COMPLETE | FI_COMPLETION));
  for (uint64_t number = 0; number < kTransactions; ++number) {
    Packet notice = scene.packet(Op::kPut, kDoneIndex);
    notice.initiator = match_id(honest.name().pid, kLogical | kHonest);
    notice.match_bits = MessageBits().with_transaction(number).bits;
    scene.liar->say(notice, {});
    scene.liar->hear();
    ASSERT_TRUE(scene.completions().empty());
  }
  // Nor can the name of its NIC: the connection ends.
  Packet notice = scene.packet(Op::kPut, kDoneIndex);
  notice.initiator = match_id(honest.name().pid, kHonest);
  notice.match_bits = MessageBits().with_transaction(0).bits;
  scene.liar->say(notice, {});
  EXPECT_TRUE(scene.completions().empty());
  uint64_t in = 0;
  succeed(fi_recv(honest.ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, nullptr));
  EXPECT_TRUE(honest.poll().has_value());
  const auto done = scene.completions();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].err, 0);
}

}  // namespace
}  // namespace weft::cxi
