// SPDX-License-Identifier: BSD-2-Clause
// Completion levels (fi_cq.3, fi_cntr.3): every operation, while the target sleeps.
#include <algorithm>
#include <array>
#include <thread>

#include "tests/conformance/levels.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

class RdmLevels : public ::testing::TestWithParam<std::tuple<uint64_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(Levels, RdmLevels,
                         ::testing::Combine(::testing::Values(FI_INJECT_COMPLETE,
                                                              FI_TRANSMIT_COMPLETE,
                                                              FI_DELIVERY_COMPLETE),
                                            ::testing::Bool()));

TEST_P(RdmLevels, HoldForEveryOperation) {
  const uint64_t level = std::get<0>(GetParam());
  const bool counts = std::get<1>(GetParam());
  covers(fi_tostr(&level, FI_TYPE_OP_FLAGS));
  Options options;
  options.tx_op_flags = level;
  options.progress = FI_PROGRESS_MANUAL;
  for (const uint64_t more : {FI_RMA, FI_ATOMIC}) {
    Options with = options;
    with.caps |= more;
    if (find_info(with)) options = with;
  }
  if (!find_info(options)) GTEST_SKIP() << "fi_getinfo does not offer this level";
  std::array<fid_cntr *, 3> counters{};
  Net net(2, options, [&](Node &node) {
    if (!counts || counters[0] != nullptr) return;
    counters = {node.count(FI_SEND), node.count(FI_WRITE), node.count(FI_READ)};
  });
  net.exchange(0, 1);
  LevelTest test{.level = level};
  test.initiator = &net[0];
  test.target = &net[1];
  test.to = net.at(0, 1);
  test.counters = counters;
  test.driver = &net;
  test.let_target_sleep = [&](bool sleeps) { net.set_asleep(1, sleeps); };
  test.run();
}

// The target replies to some messages at once. Of the last one it reads the completion, and calls
// nothing more: the initiator is told all the same, though it may expect another reply.
TEST(RdmDelivery, IsToldThoughTheTargetMakesNoMoreCalls) {
  for (const uint64_t level : {FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE}) {
    covers(fi_tostr(&level, FI_TYPE_OP_FLAGS));
    Options options;
    options.tx_op_flags = level;
    if (!find_info(options)) continue;
    SCOPED_TRACE(fi_tostr(&level, FI_TYPE_OP_FLAGS));
    std::vector<uint8_t> out = pattern(300, 1), in(300);
    Net net(2, options);
    net.exchange(0, 1);
    net.exchange(1, 0);
    const auto send = [&](size_t from, size_t to) {
      must(fi_trecv(net[to].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, nullptr));
      net.post([&] {
        return fi_tsend(net[from].ep, out.data(), out.size(), nullptr, net.at(from, to), 7,
                        nullptr);
      });
      net.set_asleep(1, to == 1);  // until it has read the completion, and not from then on
      EXPECT_EQ(net.wait(net[to].rx_cq).err, 0);
    };
    for (int replies = 0; replies < 6; ++replies) {
      send(0, 1);
      send(1, 0);
      EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
      EXPECT_EQ(net.wait(net[1].tx_cq).err, 0);
    }
    send(0, 1);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
}

// The word of their end comes when the sender is gone, or closes: the target has no receive before.
class RdmInjected : public ::testing::TestWithParam<std::tuple<uint64_t, bool, size_t>> {};
INSTANTIATE_TEST_SUITE_P(
    Levels, RdmInjected,
    ::testing::Combine(::testing::Values(FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
                                         FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE),
                       ::testing::Bool(), ::testing::Values(0, 40, SIZE_MAX)));

TEST_P(RdmInjected, ArriveThoughTheirSenderCloses) {
  const uint64_t level = std::get<0>(GetParam());
  const bool tagged = std::get<1>(GetParam());
  covers(fi_tostr(&level, FI_TYPE_OP_FLAGS));
  Options options;
  options.tx_op_flags = level;
  if (!find_info(options)) GTEST_SKIP() << "fi_getinfo does not offer this level";
  fid_cntr *sent = nullptr;
  std::vector<std::vector<uint8_t>> in;
  Net net(2, options, [&](Node &node) {
    if (sent == nullptr) sent = node.count(FI_SEND);
  });
  net.exchange(0, 1);
  const size_t size = std::min(std::get<2>(GetParam()), net[0].info->tx_attr->inject_size);
  std::vector<uint8_t> out = pattern(size, 1);
  size_t count = 0;
  for (; count < 300; ++count) {
    const ssize_t rc = tagged ? fi_tinject(net[0].ep, out.data(), size, net.at(0, 1), count)
                              : fi_inject(net[0].ep, out.data(), size, net.at(0, 1));
    if (rc == -FI_EAGAIN) break;
    must(rc);
  }
  EXPECT_GT(count, 10u);
  net.set_asleep(0, true);
  const std::jthread closes([&] { net[0].ep.reset(); });
  in.assign(count, std::vector<uint8_t>(size));
  const auto post = [&](size_t i) {
    net.post([&] {
      return tagged ? fi_trecv(net[1].ep, in[i].data(), size, nullptr, FI_ADDR_UNSPEC, i, 0, &in[i])
                    : fi_recv(net[1].ep, in[i].data(), size, nullptr, FI_ADDR_UNSPEC, &in[i]);
    });
  };
  // If the first one waits for its receive, it comes when the sender has begun to close. That does
  // not wait long, so there are receives for all others before they are looked at.
  for (size_t i = 0; i < count && !HasFailure(); ++i) {
    if (i == 0) post(i);
    for (size_t k = 1; i == 1 && k < count; ++k) post(k);
    const Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.err, 0) << i << " of " << count;
    EXPECT_EQ(*static_cast<std::vector<uint8_t> *>(got.context), out);
  }
}

// What has completed arrives, though the target reads it late, and sends something meanwhile.
TEST(RdmClosing, WhatHasCompletedArrivesThoughItsSenderCloses) {
  covers("life cycle");
  constexpr size_t kCount = 60, kSize = 60'000;
  Net net(2);
  net.exchange(0, 1);
  net.exchange(1, 0);
  std::vector<std::vector<uint8_t>> out;
  for (size_t i = 0; i < kCount; ++i) out.push_back(pattern(kSize, unsigned(i)));
  net.set_asleep(1, true);
  size_t posted = 0, completed = 0, vain = 0;
  while (vain < 3000 && completed < kCount) {
    if (posted < kCount &&
        fi_send(net[0].ep, out[posted].data(), kSize, nullptr, net.at(0, 1), nullptr) == 0)
      ++posted;
    const std::optional<Completion> done = poll(net[0].tx_cq);
    EXPECT_EQ(done ? done->err : 0, 0);
    completed += done.has_value();
    vain = done ? 0 : vain + 1;
  }
  std::thread closes([&] { net[0].ep.reset(); });
  net.set_asleep(0, true);
  net.set_asleep(1, false);
  const uint8_t word = 1;
  std::vector<uint8_t> in(kSize);
  for (size_t i = 0; i < completed; ++i) {
    (void)fi_inject(net[1].ep, &word, sizeof word, net.at(1, 0));  // the sender may be gone
    must(fi_recv(net[1].ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, nullptr));
    ASSERT_EQ(net.wait(net[1].rx_cq).err, 0) << i << " of " << completed;
    EXPECT_TRUE(in == out[i]) << i;
  }
  closes.join();
}

}  // namespace
}  // namespace weft::conformance::rdm
