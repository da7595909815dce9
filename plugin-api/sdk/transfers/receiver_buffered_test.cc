// SPDX-License-Identifier: BSD-2-Clause
// Buffered receives (FI_BUFFERED_RECV) of a receiver: order, failures, and room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_receiver.h"
#include "plugin-api/sdk/transfers/buffered_receives.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::string kLong(70'000, 'x');

class ReceiverBuffered : public ReceiverFixture {
 protected:
  ReceiverBuffered() { make({.size = 8, .directed = true, .source = true, .buffered = true}); }

  // Of a long message: its first bytes are there when `first` says so, or will never be.
  int read_first(Unexpected &m, void *to, size_t n) override {
    if (first != 0) return first;
    std::memcpy(to, static_cast<Saved &>(m).bytes.data(), n);
    return 0;
  }
  size_t most_first() const override { return 1000; }
  void on_more() {
    Guard guard(domain.engine.lock());
    receiver->visit_unexpected(Matcher::kAnySource, [this](Unexpected &m) {
      if (m.waits_for_bytes()) receiver->on_more(m);
    });
  }
  ssize_t settle(const Entry &told, uint64_t flags, bool tagged = false, size_t size = sizeof buf) {
    const iovec iov{buf, size};
    return post(
        {.tagged = tagged, .iov = &iov, .count = 1, .flags = flags, .context = ctx(told.context)});
  }
  static std::string text(const Entry &e) {
    return {static_cast<const char *>(e.buf), e.flags & FI_MORE ? 0 : e.len};
  }
  std::vector<std::string> texts() {
    std::vector<std::string> all;
    for (const Entry &e : entries()) all.push_back(text(e));
    return all;
  }
  int first = 0;
};

TEST_F(ReceiverBuffered, AMessageIsToldOfAndClaimed) {
  arrive(untagged(2), "hello");
  const Entry told = entry();
  EXPECT_EQ(told.flags, kMsg);
  EXPECT_EQ(told.src, 2u);
  EXPECT_EQ(text(told), "hello");
  reinterpret_cast<fi_recv_context *>(told.context)->context = ctx(5);
  ASSERT_EQ(settle(told, FI_CLAIM), 0);
  const Entry done = entry();
  EXPECT_EQ(done.context, 5u);
  EXPECT_EQ(done.flags, kMsg | FI_CLAIM);
  EXPECT_EQ(std::string(buf, done.len), "hello");
  EXPECT_EQ(settle(told, FI_CLAIM), -FI_EINVAL);
  EXPECT_EQ(received(), 2u);
}

TEST_F(ReceiverBuffered, ASecondClaimIsFoundOutWhenTheNoticeIsFree) {
  arrive(untagged(), "one");
  const Entry one = entry();
  ASSERT_EQ(settle(one, FI_DISCARD), 0);
  for (int i = 0; i < 10; ++i) arrive(untagged(), "other");
  EXPECT_EQ(entries().size(), 10u);
  EXPECT_EQ(settle(one, FI_DISCARD), -FI_EINVAL);
}

TEST_F(ReceiverBuffered, UntaggedMessagesOfASourceKeepTheirOrder) {
  hold = true;
  arrive(untagged(1), "a");
  arrive(untagged(2), "b");
  arrive(untagged(1), "c");
  arrive(untagged(1), "d");
  finish(2);  // c
  finish(1);  // b
  EXPECT_THAT(texts(), ElementsAre("b")) << "c waits for a";
  finish(0);
  EXPECT_THAT(texts(), ElementsAre("a", "c"));
  finish(0);
  EXPECT_THAT(texts(), ElementsAre("d"));
}

TEST_F(ReceiverBuffered, AFailedMessageHoldsNobodyUp) {
  hold = true;
  for (const char *text : {"a", "b", "c"}) arrive(untagged(1), text);
  finish(2);
  finish(1, FI_ECONNRESET);
  EXPECT_THAT(texts(), IsEmpty());
  finish(0, FI_ECONNRESET);
  EXPECT_THAT(texts(), ElementsAre("c"));
  EXPECT_EQ(failed(), 0u) << "no receive of the application has failed";
}

TEST_F(ReceiverBuffered, ATagFailsWithItsMessage) {
  hold = true;
  ASSERT_EQ(trecv(nullptr, 0, 7, 3), 0);
  arrive(message(7), "a");
  finish(0, FI_ECONNRESET);
  const Entry e = entry();
  EXPECT_EQ(e.err, FI_ECONNRESET);
  EXPECT_EQ(e.context, 3u);
  EXPECT_EQ(failed(), 1u);
}

TEST_F(ReceiverBuffered, ALongMessageStaysWithTheProtocol) {
  ASSERT_EQ(receiver->buffered()->set_min(10), 0);
  ASSERT_EQ(trecv(nullptr, 0, 7, 3), 0);
  arrive(message(7), kLong);
  Entry told = entry();
  EXPECT_EQ(told.flags, kTagged | FI_MORE);
  EXPECT_EQ(told.len, kLong.size());
  EXPECT_EQ(std::string(static_cast<const char *>(told.buf), 10), kLong.substr(0, 10));
  ASSERT_EQ(settle(told, FI_CLAIM, true), 0);
  const Entry done = entry();
  EXPECT_EQ(done.context, 3u) << "the tag's context, unless the application sets another";
  EXPECT_EQ(done.err, FI_ETRUNC);
  EXPECT_EQ(done.olen, kLong.size() - sizeof buf);
  arrive(untagged(), kLong);
  told = entry();
  ASSERT_EQ(settle(told, FI_DISCARD), 0);
  EXPECT_EQ(discarded.size(), 1u);
}

TEST_F(ReceiverBuffered, FirstBytesMayComeLater) {
  ASSERT_EQ(receiver->buffered()->set_min(10), 0);
  first = -FI_EAGAIN;
  arrive(untagged(), kLong);
  arrive(untagged(), "behind");
  EXPECT_THAT(texts(), IsEmpty());
  on_more();
  EXPECT_THAT(texts(), IsEmpty());
  first = 0;
  on_more();
  EXPECT_THAT(texts(), ElementsAre("", "behind"));
}

TEST_F(ReceiverBuffered, FirstBytesMayNeverCome) {
  ASSERT_EQ(receiver->buffered()->set_min(10), 0);
  first = -FI_EAGAIN;
  ASSERT_EQ(trecv(nullptr, 0, 7, 3), 0);
  arrive(message(7), kLong);
  arrive(untagged(), kLong);
  arrive(untagged(), "behind");
  first = -FI_ECONNRESET;
  on_more();
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(text(all[0]), "behind");
  EXPECT_EQ(all[1].context, 3u);
  EXPECT_EQ(all[1].err, FI_ECONNRESET);
  EXPECT_EQ(discarded.size(), 2u);
}

TEST_F(ReceiverBuffered, TheRestOfAMessageMayBeLost) {
  arrive(untagged(1), kLong);
  arrive(untagged(1), "short");
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(drop(1), 1u);
  ASSERT_EQ(settle(all[0], FI_CLAIM), 0);
  EXPECT_EQ(entry().err, FI_ECONNABORTED);
  ASSERT_EQ(settle(all[1], FI_CLAIM), 0);
  EXPECT_EQ(entry().err, 0) << "this one is here";
}

TEST_F(ReceiverBuffered, AFullQueueMakesMessagesWait) {
  narrow(2);
  for (const char *text : {"a", "b", "c", "d", "e"}) arrive(untagged(), text);
  arrive(untagged(), kLong);
  std::vector<std::string> all;
  for (int i = 0; i < 10 && all.size() != 6; ++i)
    for (std::string &one : texts()) all.push_back(one);
  EXPECT_THAT(all, ElementsAre("a", "b", "c", "d", "e", ""));
}

TEST_F(ReceiverBuffered, WhatWaitsGoesWithTheEndpoint) {
  narrow(2);
  for (int i = 0; i < 5; ++i) arrive(untagged(), i % 2 ? kLong : "short");
  ASSERT_EQ(trecv(nullptr, 0, 7, 3), 0);
  arrive(message(7), "tagged");
  receiver.reset();
  EXPECT_FALSE(discarded.empty());
}

TEST_F(ReceiverBuffered, AMessageOfAStrangerMeetsItsTagWhenItGetsAName) {
  ASSERT_EQ(trecv(nullptr, 0, 7, 3, 0, 0, 2), 0);
  arrive(message(7, Matcher::kFirstUnnamed), "a");
  EXPECT_THAT(texts(), IsEmpty());
  {
    Guard guard(domain.engine.lock());
    receiver->rename_source(Matcher::kFirstUnnamed, 2);
  }
  const Entry told = entry();
  EXPECT_EQ(text(told), "a");
  EXPECT_EQ(told.src, 2u);
}

// Its number as a sender without a name may be another's by then.
TEST_F(ReceiverBuffered, AClaimNamesTheSenderThatItsNoticeNamed) {
  arrive(untagged(Matcher::kFirstUnnamed), "a");
  const Entry told = entry();
  {
    Guard guard(domain.engine.lock());
    receiver->rename_source(Matcher::kFirstUnnamed, 2);
  }
  ASSERT_EQ(settle(told, FI_CLAIM), 0);
  EXPECT_EQ(entry().src, told.src);
}

TEST_F(ReceiverBuffered, PeekLooksAtWhatHasNoTag) {
  arrive(message(7), "a");
  ASSERT_EQ(look(7, 1, FI_PEEK), 0);
  EXPECT_EQ(entry().len, 1u);
  ASSERT_EQ(look(7, 2, FI_PEEK | FI_CLAIM), 0);
  EXPECT_EQ(entry().context, 2u);
  const iovec iov{buf, sizeof buf};
  ASSERT_EQ(post({.tagged = true, .iov = &iov, .count = 1, .flags = FI_CLAIM, .context = ctx(2)}),
            0);
  const Entry done = entry();
  EXPECT_EQ(done.context, 2u);
  EXPECT_EQ(done.flags, kTagged | FI_CLAIM);
}

TEST_F(ReceiverBuffered, ACancelledTagTakesNothing) {
  ASSERT_EQ(trecv(nullptr, 0, 7, 3), 0);
  ASSERT_EQ(cancel(3), 0);
  EXPECT_EQ(entry().err, FI_ECANCELED);
  arrive(message(7), "a");
  EXPECT_THAT(texts(), IsEmpty());
}

TEST_F(ReceiverBuffered, OptionsHaveLimits) {
  BufferedReceives &b = *receiver->buffered();
  EXPECT_EQ(b.set_min(1001), -FI_EMSGSIZE) << "the protocol cannot";
  EXPECT_EQ(b.set_min(1000), 0);
  EXPECT_EQ(b.set_limit(999), -FI_EMSGSIZE);
  EXPECT_EQ(b.set_limit(SIZE_MAX), 0);
  EXPECT_EQ(b.limit(), BufferedReceives::kMostLimit);
}

}  // namespace
}  // namespace weft::sdk
