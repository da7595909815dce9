// SPDX-License-Identifier: BSD-2-Clause
// Multi-receive buffers, and a completion queue that the application reads slowly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "plugin-api/sdk/testing/test_receiver.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// ---- multi-receive buffers ----

class MultiReceive : public ReceiverFixture {
 protected:
  MultiReceive() { receiver->min_multi_recv() = 16; }
  // An entry as text.
  static std::string said(const Entry &e) {
    std::string text = std::to_string(e.context) + ":";
    if (e.flags == FI_MULTI_RECV) return text + "released";
    if (e.err != 0) {
      text += "error " + std::to_string(e.err);
    } else {
      text += std::string(static_cast<const char *>(e.buf), e.len);
    }
    return e.flags & FI_MULTI_RECV ? text + "+released" : text;
  }
  std::vector<std::string> story() {
    std::vector<std::string> all;
    for (const Entry &e : entries()) all.push_back(said(e));
    return all;
  }
};

TEST_F(MultiReceive, MessagesArePackedUntilTooLittleIsLeft) {
  ASSERT_EQ(recv(buf, 40, 1, FI_MULTI_RECV), 0);
  arrive(untagged(2), "first");
  const Entry e = entry();
  EXPECT_EQ(e.flags, kMsg);
  EXPECT_EQ(e.buf, buf);
  EXPECT_EQ(e.len, 5u);
  EXPECT_EQ(e.src, 2u);
  EXPECT_EQ(e.context, 1u);
  arrive(untagged(), "second");
  EXPECT_EQ(receiver->posted(), 1u);
  arrive(untagged(), std::string(14, 'x'));  // leaves 15
  EXPECT_EQ(receiver->posted(), 0u);
  EXPECT_EQ(receiver->left(), 1024u);
  EXPECT_THAT(story(), ElementsAre("1:second", "1:" + std::string(14, 'x') + "+released"));
  EXPECT_EQ(std::string(buf, 11), "firstsecond");
  EXPECT_EQ(received(), 3u);
}

TEST_F(MultiReceive, ExactlyTheMinimumIsEnough) {
  ASSERT_EQ(recv(buf, 20, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "abcd");
  EXPECT_THAT(story(), ElementsAre("1:abcd"));
  arrive(untagged(), "e");
  EXPECT_THAT(story(), ElementsAre("1:e+released"));
}

TEST_F(MultiReceive, AMinimumOfNothingUsesEveryByte) {
  receiver->min_multi_recv() = 0;
  ASSERT_EQ(recv(buf, 3, 1, FI_MULTI_RECV), 0);
  for (const char *bytes : {"a", "", "b", "c"}) arrive(untagged(), bytes);
  EXPECT_THAT(story(), ElementsAre("1:a", "1:", "1:b", "1:c+released"));
}

TEST_F(MultiReceive, TheLastMessageToCompleteReleasesTheBuffer) {
  hold = true;
  ASSERT_EQ(recv(buf, 20, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "aa");
  arrive(untagged(), "bb");
  arrive(untagged(), "cc");
  EXPECT_EQ(receiver->posted(), 0u);
  EXPECT_EQ(receiver->left(), 1023u) << "it is in use";
  finish(2);
  finish(0);
  finish(0);
  EXPECT_THAT(story(), ElementsAre("1:cc", "1:aa", "1:bb+released"));
  EXPECT_EQ(receiver->left(), 1024u);
}

TEST_F(MultiReceive, AMessageThatDoesNotFitGoesToTheNextBuffer) {
  ASSERT_EQ(recv(buf, 32, 1, FI_MULTI_RECV), 0);
  ASSERT_EQ(recv(buf2, 64, 2, FI_MULTI_RECV), 0);
  arrive(untagged(), "aa");
  arrive(untagged(), std::string(40, 'b'));
  EXPECT_THAT(story(), ElementsAre("1:aa", "1:released", "2:" + std::string(40, 'b')));
  EXPECT_EQ(receiver->posted(), 1u);
}

TEST_F(MultiReceive, ABufferInUseThatIsGivenUpIsReleasedWithItsLastMessage) {
  hold = true;
  ASSERT_EQ(recv(buf, 32, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "aa");
  arrive(untagged(), std::string(40, 'b'));  // fits no buffer
  EXPECT_EQ(receiver->unexpected(), 1u);
  EXPECT_EQ(receiver->posted(), 0u);
  finish(0);
  EXPECT_THAT(story(), ElementsAre("1:aa+released"));
}

TEST_F(MultiReceive, AWholeBufferThatIsTooSmallTruncates) {
  ASSERT_EQ(recv(buf, 8, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "0123456789");
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].err, FI_ETRUNC);
  EXPECT_EQ(all[0].len, 8u);
  EXPECT_EQ(all[0].olen, 2u);
  EXPECT_EQ(all[0].buf, buf);
  EXPECT_EQ(all[0].flags, kMsg);
  EXPECT_EQ(said(all[1]), "1:released") << "an error entry does not release";
  EXPECT_EQ(all[1].err, 0);
}

TEST_F(MultiReceive, SavedMessagesGoFirst) {
  for (const char *bytes : {"a", "bb", "ccc"}) arrive(untagged(), bytes);
  ASSERT_EQ(recv(buf, 64, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "dddd");
  EXPECT_THAT(story(), ElementsAre("1:a", "1:bb", "1:ccc", "1:dddd"));
}

TEST_F(MultiReceive, SavedMessagesMayFillTheBuffer) {
  for (const char *bytes : {"aaaa", "bbbb", "cccc"}) arrive(untagged(), bytes);
  ASSERT_EQ(recv(buf, 20, 1, FI_MULTI_RECV), 0);
  EXPECT_THAT(story(), ElementsAre("1:aaaa", "1:bbbb", "1:released"));
  EXPECT_EQ(receiver->unexpected(), 1u);
  EXPECT_EQ(receiver->posted(), 0u);
  EXPECT_EQ(receiver->left(), 1024u);
  ASSERT_EQ(recv(buf, 64, 2), 0);
  EXPECT_EQ(entry().len, 4u);
}

TEST_F(MultiReceive, ASavedMessageThatTakesLongerKeepsTheBuffer) {
  for (const char *bytes : {"aaaa", "bbbb"}) arrive(untagged(), bytes);
  hold = true;
  ASSERT_EQ(recv(buf, 20, 1, FI_MULTI_RECV), 0);
  ASSERT_EQ(held.size(), 2u);
  finish(1);
  finish(0);
  EXPECT_THAT(story(), ElementsAre("1:bbbb", "1:aaaa+released"));
}

TEST_F(MultiReceive, ASavedMessageThatDoesNotFitReleasesTheBuffer) {
  arrive(untagged(), "aa");
  arrive(untagged(), std::string(40, 'b'));
  ASSERT_EQ(recv(buf, 32, 1, FI_MULTI_RECV), 0);
  EXPECT_THAT(story(), ElementsAre("1:aa", "1:released"));
  EXPECT_EQ(receiver->unexpected(), 1u);
}

// A message that comes while older ones are delivered does not overtake them.
TEST_F(MultiReceive, NoMessageOvertakesASavedOne) {
  arrive(untagged(), "a");
  arrive(untagged(), "b");
  on_deliver = [this] {
    on_deliver = nullptr;
    Message m = untagged();
    m.length = 1;
    ASSERT_EQ(receiver->match(m), nullptr);
  };
  ASSERT_EQ(recv(buf, 64, 1, FI_MULTI_RECV), 0);
  EXPECT_THAT(story(), ElementsAre("1:a", "1:b"));
}

TEST_F(MultiReceive, TaggedBuffersTakeWhatMatches) {
  make({.directed = true});
  receiver->min_multi_recv() = 16;
  ASSERT_EQ(trecv(buf, 64, 0x70, 1, 0xf, FI_MULTI_RECV, 1), 0);
  arrive(message(0x71, 1), "a");
  arrive(message(0x81, 1), "b");
  arrive(message(0x72, 2), "c");
  arrive(message(0x73, 1), "d");
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].flags, kTagged);
  EXPECT_EQ(all[0].tag, 0x71u);
  EXPECT_EQ(all[1].tag, 0x73u);
  EXPECT_EQ(std::string(buf, 2), "ad");
}

TEST_F(MultiReceive, TheReleaseIsReportedToASelectiveQueueToo) {
  receiver->selective = true;
  ASSERT_EQ(recv(buf, 20, 1, FI_MULTI_RECV), 0);
  ASSERT_EQ(recv(buf2, 20, 2, FI_MULTI_RECV | FI_COMPLETION), 0);
  for (const char *bytes : {"aaaa", "bbbb", "cccc", "dddd"}) arrive(untagged(), bytes);
  EXPECT_THAT(story(), ElementsAre("1:released", "2:cccc", "2:dddd+released"));
}

TEST_F(MultiReceive, AnErrorOfTheLastMessageIsFollowedByTheRelease) {
  hold = true;
  ASSERT_EQ(recv(buf, 18, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "aaaa");
  finish(0, FI_EIO);
  EXPECT_THAT(story(), ElementsAre("1:error " + std::to_string(FI_EIO), "1:released"));
}

TEST_F(MultiReceive, CancelReleasesTheBuffer) {
  const std::string cancelled = "1:error " + std::to_string(FI_ECANCELED) + "+released";
  ASSERT_EQ(recv(buf, 64, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "aa");
  EXPECT_EQ(cancel(1), 0);
  EXPECT_THAT(story(), ElementsAre("1:aa", cancelled));
  EXPECT_EQ(cancel(1), -FI_ENOENT);
  EXPECT_EQ(failed(), 1u);
  // In use: cancelled after the messages that are being received.
  hold = true;
  ASSERT_EQ(recv(buf, 64, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "bb");
  arrive(untagged(), "cc");
  EXPECT_EQ(cancel(1), 0);
  EXPECT_EQ(cancel(1), -FI_ENOENT);
  EXPECT_EQ(receiver->posted(), 0u);
  EXPECT_THAT(entries(), IsEmpty());
  finish(0);
  EXPECT_THAT(story(), ElementsAre("1:bb"));
  finish(0);
  EXPECT_THAT(story(), ElementsAre("1:cc", cancelled));
  EXPECT_EQ(receiver->left(), 1024u);
}

TEST_F(MultiReceive, WithoutMemoryABufferIsReleasedEarly) {
  ASSERT_EQ(recv(buf, 64, 1, FI_MULTI_RECV), 0);
  Message m = untagged();
  m.length = 4;
  {
    NoMoreMemory no_more;
    EXPECT_EQ(receiver->match(m), nullptr);
  }
  EXPECT_THAT(story(), ElementsAre("1:released"));
  EXPECT_EQ(receiver->posted(), 0u);
}

// ---- a queue that is read slowly ----

// What an application asks for is reported, whether or not it has read what was reported before.
class NarrowQueue : public ReceiverFixture {
 protected:
  static constexpr size_t kSize = 4, kMessages = 30;
  NarrowQueue() {
    receiver->min_multi_recv() = 1;
    narrow(kSize);
  }
};

TEST_F(NarrowQueue, AMultiReceiveBufferTakesAllSavedMessages) {
  std::string expected;
  for (size_t i = 0; i < kMessages; ++i) {
    arrive(untagged(), std::to_string(i));
    expected += std::to_string(i);
  }
  ASSERT_EQ(recv(buf, sizeof buf, 1, FI_MULTI_RECV), 0);
  EXPECT_EQ(receiver->unexpected(), 0u);
  EXPECT_EQ(recv(buf2, sizeof buf2, 2), 0) << "it is behind the buffer";
  EXPECT_EQ(std::string(buf, expected.size()), expected);
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), kMessages);
  for (const Entry &e : all) EXPECT_EQ(e.context, 1u);
}

// A protocol that asks for room before it takes a message from the wire leaves the message there.
TEST_F(NarrowQueue, AMessageForTheBufferStaysOnTheWireWherePossible) {
  for (size_t i = 0; i < kSize; ++i) arrive(untagged(), "x");
  ASSERT_EQ(trecv(buf2, sizeof buf2, 7, 1), 0);
  ASSERT_EQ(recv(buf, sizeof buf, 2, FI_MULTI_RECV), 0);
  Guard guard(domain.engine.lock());
  bool full = false;
  EXPECT_EQ(receiver->match(untagged(), &full), nullptr);
  EXPECT_TRUE(full);
  full = false;
  EXPECT_EQ(receiver->match(message(8), &full), nullptr);
  EXPECT_FALSE(full) << "a message without a receive may be saved";
  Receive *r = receiver->match(message(7), &full);
  ASSERT_NE(r, nullptr) << "one that takes one message goes on";
  receiver->complete(*r, message(7), 0, 0);
}

TEST_F(NarrowQueue, ReceivesPeeksAndClaimsNeedNoRoom) {
  for (uint64_t i = 0; i < kMessages; ++i) arrive(message(i), "x");
  for (uint64_t i = 0; i < kMessages; ++i) {
    if (i % 3 == 0) {
      ASSERT_EQ(trecv(buf, sizeof buf, i, i + 1), 0);
    } else {
      ASSERT_EQ(look(i, i + 1, i % 3 == 1 ? FI_PEEK | FI_CLAIM : FI_PEEK | FI_DISCARD), 0);
    }
  }
  ASSERT_EQ(look(1000, 1000, FI_PEEK), 0) << "it finds nothing, and says so";
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), kMessages + 1);
  for (size_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(all[i].context, i + 1);
    EXPECT_EQ(all[i].err, 0);
  }
  EXPECT_EQ(all.back().err, FI_ENOMSG);
  EXPECT_EQ(discarded.size(), kMessages / 3);
}

}  // namespace
}  // namespace weft::sdk
