// SPDX-License-Identifier: BSD-2-Clause
// Random calls and messages, against the rules that hold for any order of them.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_receiver.h"

namespace weft::sdk {
namespace {

// An application and its peers that do anything in any order. Every receive ends once, every
// message is received once or discarded, each buffer is released once, and the bytes land where
// the completion says.
class Storm : public ReceiverFixture, public ::testing::WithParamInterface<int> {
 protected:
  Storm() {
    make({.size = 20, .directed = true, .source = true});
    receiver->min_multi_recv() = 6;
    if (slow_) narrow(3);
    hold = !slow_;
  }
  unsigned below(unsigned n) { return unsigned(random_() % n); }

  void step() {
    const unsigned what = below(100);
    const bool tagged = below(2);
    if (what < 35) {
      post_receive(tagged);
    } else if (what < 70) {
      send_message(tagged);
    } else if (what < 92) {
      for (unsigned n = below(4); n != 0 && !held.empty(); --n) finish_one();
    } else if (what < 96) {
      cancel_one();
    } else if (what < 98) {
      peek_and_discard();
    }
    if (HasFatalFailure()) return;
    if (!slow_ || below(8) == 0) read_entries();
  }

  void post_receive(bool tagged) {
    const bool multi = below(4) == 0;
    const size_t size = 1 + below(multi ? 40 : 12);
    Op &op = open_[next_] = {multi, tagged, std::vector<char>(size)};
    const iovec iov{op.memory.data(), size};
    const fi_addr_t src = below(2) ? FI_ADDR_UNSPEC : below(4);
    const ssize_t rc = post({.tagged = tagged,
                             .iov = &iov,
                             .count = 1,
                             .src = src,
                             .tag = below(4),
                             .ignore = below(3) == 0 ? 3u : 0u,
                             .flags = multi ? uint64_t(FI_MULTI_RECV) : 0,
                             .context = ctx(next_)});
    ASSERT_EQ(rc, 0);
    ++next_;
  }
  void send_message(bool tagged) {
    Message m{.tagged = tagged, .source = below(4), .tag = tagged ? below(4) : 0};
    std::string bytes(below(10), 0);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte(i, m.tag, m.source, tagged);
    ++arrived_;
    arrive(m, bytes);
  }
  void finish_one() { finish(below(unsigned(held.size()))); }
  void cancel_one() {
    if (open_.empty()) return;
    const ssize_t rc = cancel(std::next(open_.begin(), below(unsigned(open_.size())))->first);
    ASSERT_TRUE(rc == 0 || rc == -FI_ENOENT);
    if (rc == 0) ++cancelled_;
  }
  void peek_and_discard() {
    read_entries();
    if (HasFatalFailure()) return;
    open_[next_] = {false, true, {}};
    const size_t before = discarded.size();
    ASSERT_EQ(look(below(4), next_, FI_PEEK | FI_DISCARD, below(2) ? 3 : 0), 0);
    if (discarded.size() != before) {
      // The entry is there at once. It is not a received message: read_entries() must not see it.
      const std::vector<Entry> all = entries();
      ASSERT_EQ(all.size(), 1u);
      ASSERT_EQ(all[0].context, next_);
      ASSERT_EQ(all[0].err, 0);
      open_.erase(next_);
    }
    ++next_;
  }

  // Reads the queue and checks each entry against the receive that it ends.
  void read_entries() {
    for (const Entry &e : entries()) {
      const auto it = open_.find(e.context);
      ASSERT_NE(it, open_.end()) << "an entry for a receive that has ended";
      const Op &op = it->second;
      const bool over = !op.multi || e.flags & FI_MULTI_RECV || e.err == FI_ENOMSG;
      if (e.err == FI_ECANCELED) {
        ++errors_;
      } else if (e.err != FI_ENOMSG && e.flags != FI_MULTI_RECV) {
        check_bytes(op, e);
        if (HasFatalFailure()) return;
      }
      if (over) open_.erase(it);
    }
  }
  struct Op {
    bool multi, tagged;
    std::vector<char> memory;
  };
  void check_bytes(const Op &op, const Entry &e) {
    ++taken_;
    const char *at = op.multi ? static_cast<const char *>(e.buf) : op.memory.data();
    ASSERT_GE(at, op.memory.data());
    ASSERT_LE(at + e.len, op.memory.data() + op.memory.size());
    for (size_t i = 0; i < e.len; ++i) ASSERT_EQ(at[i], byte(i, e.tag, e.src, op.tagged)) << e.len;
    ASSERT_TRUE(e.err == 0 || e.err == FI_ETRUNC);
  }
  // A message repeats its tag and its source.
  static char byte(size_t i, uint64_t tag, uint64_t source, bool tagged) {
    return char(i % 2 ? source : tag + (tagged ? 'a' : 'A'));
  }

  // Every other application has a small queue and reads it now and then.
  const bool slow_ = GetParam() % 2 != 0;
  std::mt19937 random_{unsigned(GetParam())};
  std::map<size_t, Op> open_;  // by context
  size_t next_ = 1, arrived_ = 0, taken_ = 0, cancelled_ = 0, errors_ = 0;
};

TEST_P(Storm, NothingIsLostOrDoubled) {
  for (int n = 0; n < 3000; ++n) {
    step();
    if (HasFatalFailure()) return;
  }
  read_entries();
  while (!held.empty()) finish_one();
  cancelled_ += receiver->posted();
  receiver->fail_posted(FI_ECANCELED);
  read_entries();
  EXPECT_TRUE(open_.empty());
  EXPECT_EQ(receiver->left(), 20u);
  EXPECT_EQ(arrived_, taken_ + discarded.size() + receiver->unexpected());
  EXPECT_GT(taken_, 300u);
  EXPECT_EQ(errors_, cancelled_);
  EXPECT_GT(cancelled_, 10u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Storm, ::testing::Range(0, 60));

}  // namespace
}  // namespace weft::sdk
