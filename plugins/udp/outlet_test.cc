// SPDX-License-Identifier: BSD-2-Clause
// Outlet over a real socket of this host: what leaves in which order, alone and cut by the kernel.
#include "plugins/udp/outlet.h"

#include <gtest/gtest.h>

#include <random>

#include "plugin-api/sdk/testing/test_rounds.h"
#include "plugins/udp/socket.h"
#include "plugins/udp/test_socket.h"

namespace weft::udp {
namespace {

class OutletTest : public ::testing::Test, public OutletSink {
 protected:
  OutletTest() { open(); }
  void open(bool offload = true) {
    outlet_ = std::make_unique<Outlet>(*this, *scratch_, counters_, offload);
    outlet_->open(socket_.fd());
  }
  bool push(const Bytes &bytes, const sdk::SockAddr &to, bool copy = false, size_t parts = 1,
            void *context = nullptr) {
    Datagram &d = *outlet_->next();
    d.to = to;
    d.count = 0;
    d.length = bytes.size();
    d.report = true;
    d.context = context;
    for (size_t i = 0, at = 0; i < parts; ++i) {
      const size_t end = bytes.size() * (i + 1) / parts;
      d.iov[d.count++] = {const_cast<uint8_t *>(bytes.data()) + at, end - at};
      at = end;
    }
    return outlet_->push(copy);
  }
  static void expect(TestSocket &at, const Bytes &bytes) {
    const auto got = at.receive();
    ASSERT_TRUE(got.has_value()) << "a datagram of " << bytes.size() << " is missing";
    ASSERT_EQ(*got, bytes);
  }
  void on_sent(const Datagram &d, int error) override { told_.push_back({d.context, error}); }

  std::unique_ptr<Outlet::Scratch> scratch_ = std::make_unique<Outlet::Scratch>();
  Counters counters_;
  TestSocket socket_, peer_, other_;
  std::unique_ptr<Outlet> outlet_;
  std::vector<std::pair<void *, int>> told_;
};

// The kernel reports the error of an earlier datagram in the next call. The datagram of that call
// goes out all the same.
TEST_F(OutletTest, AnErrorOfAnEarlierDatagramLosesNoLaterOne) {
  ASSERT_TRUE(tell_errors(socket_.fd()));
  outlet_->expect_errors();
  sdk::SockAddr nobody;
  {
    TestSocket gone;
    nobody = gone.name();
  }
  const Bytes bytes = pattern(200, 1);
  const iovec iov{const_cast<uint8_t *>(bytes.data()), bytes.size()};
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(outlet_->send(nobody, &iov, 1), 0);
    ASSERT_EQ(outlet_->send(peer_.name(), &iov, 1), 0);
    expect(peer_, bytes);
    ASSERT_EQ(outlet_->send(nobody, &iov, 1), 0);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(push(bytes, i % 2 == 0 ? peer_.name() : other_.name()));
    ASSERT_EQ(outlet_->flush(), 0);
    for (int i = 0; i < 5; ++i) expect(i % 2 == 0 ? peer_ : other_, bytes);
  }
  for (const auto &[context, error] : told_) EXPECT_EQ(error, 0);
}

TEST_F(OutletTest, SendsASingleDatagramAtOnce) {
  Bytes bytes = pattern(1000, 1);
  const iovec iov[2] = {{bytes.data(), 400}, {bytes.data() + 400, 600}};
  EXPECT_EQ(outlet_->send(peer_.name(), iov, 1), 0);
  EXPECT_EQ(outlet_->send(peer_.name(), iov, 2), 0);
  EXPECT_EQ(outlet_->send(peer_.name(), nullptr, 0), 0);
  expect(peer_, Bytes(bytes.begin(), bytes.begin() + 400));
  expect(peer_, bytes);
  expect(peer_, {});
  EXPECT_EQ(outlet_->send(sdk::SockAddr::any(AF_INET6, 7), iov, 1), -EAFNOSUPPORT);
}

TEST_F(OutletTest, SendsEqualNeighboursAsOneMessage) {
  std::vector<Bytes> all;
  for (unsigned i = 0; i < 40; ++i) all.push_back(pattern(i == 39 ? 500 : 1200, i));
  for (auto &bytes : all) ASSERT_TRUE(push(bytes, peer_.name(), false, 1 + bytes[0] % 4, &bytes));
  EXPECT_EQ(outlet_->size(), 40u);
  EXPECT_EQ(outlet_->flush(), 0);
  EXPECT_TRUE(outlet_->empty());
  EXPECT_EQ(counters_.segmented_sends.value(), 1u);
  ASSERT_EQ(told_.size(), 40u);
  for (size_t i = 0; i < all.size(); ++i) {
    expect(peer_, all[i]);
    EXPECT_EQ(told_[i], (std::pair<void *, int>{&all[i], 0}));
  }
  EXPECT_FALSE(peer_.receive());
}

TEST_F(OutletTest, SplitsAtEachNewSizeOrPeerAndKeepsTheOrder) {
  const size_t sizes[] = {100, 100, 50, 100, 100, 200, 0, 0, 100, 100, 100};
  std::vector<Bytes> all;
  for (size_t size : sizes) all.push_back(pattern(size, unsigned(all.size())));
  for (auto &bytes : all) ASSERT_TRUE(push(bytes, peer_.name()));
  for (auto &bytes : all) ASSERT_TRUE(push(bytes, other_.name()));
  EXPECT_EQ(outlet_->flush(), 0);
  for (auto &bytes : all) expect(peer_, bytes);
  for (auto &bytes : all) expect(other_, bytes);
  EXPECT_EQ(counters_.segmented_sends.value(), 6u);
}

TEST_F(OutletTest, SplitsAtTheLargestMessage) {
  std::vector<Bytes> all;
  for (unsigned i = 0; i < 10; ++i) all.push_back(pattern(20000, i));
  for (auto &bytes : all) ASSERT_TRUE(push(bytes, peer_.name()));
  EXPECT_EQ(outlet_->flush(), 0);
  for (auto &bytes : all) expect(peer_, bytes);
  EXPECT_EQ(counters_.segmented_sends.value(), 3u);
}

// A socket without checksums cannot have its messages cut.
TEST_F(OutletTest, SendsOneByOneIfTheKernelRefusesToCut) {
  const int on = 1;
  ASSERT_EQ(setsockopt(socket_.fd(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on), 0);
  std::vector<Bytes> all;
  for (unsigned i = 0; i < 30; ++i) all.push_back(pattern(i < 15 ? 900 : 300, i));
  for (int round = 0; round < 3; ++round) {
    for (auto &bytes : all) ASSERT_TRUE(push(bytes, peer_.name()));
    EXPECT_EQ(outlet_->flush(), 0);
    for (auto &bytes : all) expect(peer_, bytes);
    EXPECT_FALSE(peer_.receive());
  }
  EXPECT_EQ(counters_.segmented_sends.value(), 0u);
  EXPECT_EQ(told_.size(), 90u);
  for (const auto &[context, error] : told_) EXPECT_EQ(error, 0);
}

TEST_F(OutletTest, WithoutOffloadNothingIsCut) {
  open(false);
  std::vector<Bytes> all(20, pattern(1000, 1));
  for (auto &bytes : all) ASSERT_TRUE(push(bytes, peer_.name()));
  EXPECT_EQ(outlet_->flush(), 0);
  for (auto &bytes : all) expect(peer_, bytes);
  EXPECT_EQ(counters_.segmented_sends.value(), 0u);
}

// A failed datagram is reported and does not delay others.
TEST_F(OutletTest, AFailedDatagramDoesNotDelayOthers) {
  const Bytes bytes = pattern(100, 1);
  const auto nowhere = *sdk::SockAddr::from_ip("255.255.255.255", 9);
  char a, b, c, d;
  ASSERT_TRUE(push(bytes, peer_.name(), false, 1, &a));
  ASSERT_TRUE(push(bytes, nowhere, false, 1, &b));
  ASSERT_TRUE(push(bytes, nowhere, false, 1, &c));
  ASSERT_TRUE(push(bytes, peer_.name(), false, 1, &d));
  EXPECT_EQ(outlet_->flush(), 0);
  using Told = std::vector<std::pair<void *, int>>;
  const int error = told_.at(1).second;
  EXPECT_TRUE(error == EACCES || error == ENETUNREACH) << error;
  EXPECT_EQ(told_, (Told{{&a, 0}, {&b, error}, {&c, error}, {&d, 0}}));
  expect(peer_, bytes);
  expect(peer_, bytes);
  EXPECT_FALSE(peer_.receive());
}

TEST_F(OutletTest, TheCallerGetsTheResultOfTheLastOfABatch) {
  const Bytes bytes = pattern(100, 1);
  char a, b;
  ASSERT_TRUE(push(bytes, peer_.name(), false, 1, &a));
  ASSERT_TRUE(push(bytes, peer_.name(), false, 1, &b));
  EXPECT_EQ(outlet_->flush_with_last(), 0);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].first, &a);
  ASSERT_TRUE(push(bytes, peer_.name(), false, 1, &a));
  ASSERT_TRUE(push(bytes, *sdk::SockAddr::from_ip("255.255.255.255", 9), false, 1, &b));
  const int rc = outlet_->flush_with_last();
  EXPECT_TRUE(rc == -EACCES || rc == -ENETUNREACH) << rc;
  EXPECT_EQ(told_.size(), 2u);
  EXPECT_TRUE(outlet_->empty());
}

TEST_F(OutletTest, CopiesOnPushOrKeep) {
  std::vector<Bytes> all, mine;
  for (unsigned i = 0; i < 20; ++i) all.push_back(pattern(i * 7, i));
  mine = all;
  for (size_t i = 0; i < mine.size(); ++i) {
    const bool copy = i % 2 == 0;
    ASSERT_TRUE(push(mine[i], peer_.name(), copy, 3));
    if (copy) std::fill(mine[i].begin(), mine[i].end(), 0xdd);
  }
  outlet_->keep();
  for (auto &bytes : mine) std::fill(bytes.begin(), bytes.end(), 0xdd);
  EXPECT_EQ(outlet_->flush(), 0);
  for (const auto &bytes : all) expect(peer_, bytes);
}

TEST_F(OutletTest, DropsDatagramsWithoutACopy) {
  const Bytes bytes = pattern(100, 1), copied = pattern(50, 2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(push(bytes, peer_.name()));
    ASSERT_TRUE(push(copied, peer_.name(), true));
  }
  outlet_->forget_borrowed();
  EXPECT_EQ(outlet_->size(), 3u);
  EXPECT_EQ(outlet_->flush(), 0);
  for (int i = 0; i < 3; ++i) expect(peer_, copied);
  EXPECT_FALSE(peer_.receive());
  EXPECT_EQ(told_.size(), 3u);
}

// docs/man/weft-udp.7, Memory.
TEST(OutletBudget, MemoryIsAsDocumented) {
  EXPECT_LE(sizeof(Outlet), 128u);
  EXPECT_LE(sizeof(Outlet::Scratch), 10u << 10);
  EXPECT_LE(sizeof(Datagram) * Outlet::kCapacity, 9u << 10);
}

class OutletRandom : public OutletTest, public ::testing::WithParamInterface<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, OutletRandom, ::testing::Range(0u, sdk::rounds(30)));

TEST_P(OutletRandom, EveryDatagramArrivesOnceAndInOrder) {
  std::mt19937 random(GetParam());
  const auto below = [&](size_t n) { return size_t(random() % n); };
  TestSocket *peers[] = {&peer_, &other_};
  for (int round = 0; round < 40; ++round) {
    std::vector<Bytes> all, at[2];
    const size_t count = 1 + below(Outlet::kCapacity);
    all.reserve(count);
    size_t size = 1 + below(1472), to = 0;
    for (size_t i = 0; i < count; ++i) {
      if (below(6) == 0) size = below(8) == 0 ? below(30000) : below(1473);
      if (below(6) == 0) to = below(2);
      all.push_back(pattern(size, unsigned(random())));
      at[to].push_back(all.back());
      ASSERT_TRUE(push(all.back(), peers[to]->name(), below(3) == 0, 1 + below(4)));
      if (below(10) == 0) outlet_->keep();
    }
    EXPECT_EQ(outlet_->flush(), 0);
    for (size_t p = 0; p < 2; ++p) {
      for (const auto &bytes : at[p]) ASSERT_NO_FATAL_FAILURE(expect(*peers[p], bytes));
      ASSERT_FALSE(peers[p]->receive());
    }
  }
}

}  // namespace
}  // namespace weft::udp
