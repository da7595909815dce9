// SPDX-License-Identifier: BSD-2-Clause
// Peek, claim and discard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "plugin-api/sdk/testing/test_receiver.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ReceiverPeek : public ReceiverFixture {};

TEST_F(ReceiverPeek, APeekThatFindsNothingFails) {
  arrive(message(8), "x");
  ASSERT_EQ(look(7, 1, FI_PEEK), 0);
  Entry e = entry();
  EXPECT_EQ(e.err, FI_ENOMSG);
  EXPECT_EQ(e.context, 1u);
  EXPECT_EQ(e.flags, kTagged);
  EXPECT_EQ(e.tag, 7u);
  ASSERT_EQ(post({.flags = FI_PEEK, .context = ctx(2)}), 0);
  e = entry();
  EXPECT_EQ(e.err, FI_ENOMSG);
  EXPECT_EQ(e.flags, kMsg);
  EXPECT_EQ(failed(), 0u) << "polling by peeks must not fill the error counter";
}

TEST_F(ReceiverPeek, APeekTellsAboutTheMessage) {
  Message m = message(0x107, 2);
  m.has_data = true;
  m.data = 5;
  arrive(m, "hello");
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(look(7, 1, FI_PEEK, 0xf00), 0);
    const Entry e = entry();
    EXPECT_EQ(e.err, 0);
    EXPECT_EQ(e.context, 1u);
    EXPECT_EQ(e.flags, kTagged | FI_REMOTE_CQ_DATA);
    EXPECT_EQ(e.len, 5u);
    EXPECT_EQ(e.buf, nullptr);
    EXPECT_EQ(e.data, 5u);
    EXPECT_EQ(e.tag, 0x107u);
    EXPECT_EQ(e.src, 2u);
  }
  EXPECT_EQ(receiver->unexpected(), 1u);
  EXPECT_EQ(received(), 0u);
}

TEST_F(ReceiverPeek, APeekRespectsItsSource) {
  make({.directed = true});
  arrive(message(7, 1), "x");
  ASSERT_EQ(look(7, 1, FI_PEEK, 0, 2), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG);
  ASSERT_EQ(look(7, 1, FI_PEEK, 0, 1), 0);
  EXPECT_EQ(entry().err, 0);
  EXPECT_EQ(look(7, 1, FI_PEEK, 0, 99), -FI_EINVAL);
}

TEST_F(ReceiverPeek, APeekNeedsNoPlaceAmongTheReceives) {
  make({.size = 1});
  ASSERT_EQ(recv(buf, 1, 1), 0);
  ASSERT_EQ(look(7, 2, FI_PEEK), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG);
}

TEST_F(ReceiverPeek, ASelectiveQueueGetsPeeksThatAskForIt) {
  receiver->selective = true;
  arrive(message(7), "x");
  ASSERT_EQ(look(7, 1, FI_PEEK), 0);
  ASSERT_EQ(look(7, 2, FI_PEEK | FI_COMPLETION), 0);
  ASSERT_EQ(look(8, 3, FI_PEEK), 0);  // an error is always reported
  EXPECT_THAT(contexts(), ElementsAre(2, 3));
}

TEST_F(ReceiverPeek, AClaimedMessageWaitsForItsClaim) {
  arrive(message(7, 1), "first");
  arrive(message(7, 1), "second");
  ASSERT_EQ(look(7, 1, FI_PEEK | FI_CLAIM), 0);
  Entry e = entry();
  EXPECT_EQ(e.err, 0);
  EXPECT_EQ(e.len, 5u);
  EXPECT_EQ(receiver->unexpected(), 2u);
  // No other receive gets it.
  ASSERT_EQ(trecv(buf2, 64, 7, 2), 0);
  EXPECT_EQ(entry().len, 6u);
  EXPECT_STREQ(buf2, "second");
  ASSERT_EQ(look(7, 3, FI_PEEK), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG);
  ASSERT_EQ(trecv(buf, 64, 7, 4, 0, FI_CLAIM), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG) << "another context";
  ASSERT_EQ(post({.flags = FI_CLAIM, .context = ctx(1)}), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG) << "it is tagged";
  ASSERT_EQ(trecv(buf, 64, 7, 1, 0, FI_CLAIM), 0);
  e = entry();
  EXPECT_EQ(e.context, 1u);
  EXPECT_EQ(e.len, 5u);
  EXPECT_EQ(e.src, 1u);
  EXPECT_EQ(e.flags, kTagged);
  EXPECT_STREQ(buf, "first");
  EXPECT_EQ(receiver->unexpected(), 0u);
  ASSERT_EQ(trecv(buf, 64, 7, 1, 0, FI_CLAIM), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG) << "only once";
}

TEST_F(ReceiverPeek, ClaimsAreFoundByTheirContexts) {
  for (uint64_t tag = 1; tag <= 3; ++tag) {
    arrive(message(tag, Matcher::kFirstUnnamed), std::string(tag, 'x'));
    ASSERT_EQ(look(tag, tag, FI_PEEK | FI_CLAIM), 0);
    EXPECT_EQ(entry().src, FI_ADDR_NOTAVAIL);
  }
  receiver->rename_source(Matcher::kFirstUnnamed, 2);
  for (size_t i : {2, 3, 1}) {
    ASSERT_EQ(trecv(buf, 2, 0, i, 0, FI_CLAIM), 0);
    const Entry e = entry();
    EXPECT_EQ(e.tag, i);
    EXPECT_EQ(e.err, i == 3 ? FI_ETRUNC : 0);
    EXPECT_EQ(e.src, 2u);
  }
}

TEST_F(ReceiverPeek, ADiscardedMessageIsGone) {
  arrive(message(7), "first");
  arrive(message(7), "second");
  ASSERT_EQ(look(7, 1, FI_PEEK | FI_DISCARD), 0);
  Entry e = entry();
  EXPECT_EQ(e.err, 0);
  EXPECT_EQ(e.len, 5u);
  EXPECT_THAT(discarded, ElementsAre("first"));
  ASSERT_EQ(look(7, 2, FI_PEEK | FI_CLAIM), 0);
  EXPECT_EQ(entry().len, 6u);
  ASSERT_EQ(look(7, 3, FI_CLAIM | FI_DISCARD), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG);
  ASSERT_EQ(look(7, 2, FI_CLAIM | FI_DISCARD), 0);
  e = entry();
  EXPECT_EQ(e.err, 0);
  EXPECT_EQ(e.context, 2u);
  EXPECT_EQ(e.flags, kTagged);
  EXPECT_THAT(discarded, ElementsAre("first", "second"));
  ASSERT_EQ(look(7, 4, FI_PEEK | FI_DISCARD), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG);
  EXPECT_EQ(receiver->unexpected(), 0u);
  EXPECT_EQ(received(), 0u);
}

TEST_F(ReceiverPeek, FlagsThatMakeNoSenseAreRefused) {
  arrive(message(7), "x");
  EXPECT_EQ(look(7, 1, FI_DISCARD), -FI_EINVAL);
  EXPECT_EQ(look(7, 1, FI_PEEK | FI_CLAIM | FI_DISCARD), -FI_EINVAL);
  EXPECT_EQ(look(7, 1, FI_PEEK | FI_MULTI_RECV), -FI_EINVAL);
  EXPECT_EQ(look(7, 1, FI_CLAIM | FI_MULTI_RECV), -FI_EINVAL);
  EXPECT_EQ(look(7, 0, FI_PEEK | FI_CLAIM), -FI_EINVAL) << "a claim needs a context";
  EXPECT_EQ(look(7, 0, FI_CLAIM), -FI_EINVAL);
  EXPECT_EQ(post({.tagged = true, .count = 2, .flags = FI_CLAIM, .context = ctx(1)}), -FI_EINVAL);
  EXPECT_EQ(look(7, 0, FI_PEEK | FI_INJECT), -FI_EBADFLAGS);
  EXPECT_THAT(entries(), IsEmpty());
  EXPECT_EQ(receiver->unexpected(), 1u);
}

}  // namespace
}  // namespace weft::sdk
