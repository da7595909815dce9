// SPDX-License-Identifier: BSD-2-Clause
#include <gtest/gtest.h>
#include <weft/sdk/progress/replies.h>

namespace weft::sdk {
namespace {

struct Answerer {
  Replies replies;
  uint64_t pass = 0;
  // The peer is told of its messages, as often as `times`; true: it might have waited.
  bool hear(unsigned times = 1) {
    ++pass;
    for (unsigned i = 0; i < times; ++i) replies.told(pass);
    return replies.expected();
  }
  bool answer() {
    const bool waits = hear();
    replies.sent(pass);
    return waits;
  }
};

TEST(Replies, AreExpectedAfterTwoInARow) {
  Answerer app;
  EXPECT_FALSE(app.answer());
  EXPECT_FALSE(app.answer());
  EXPECT_TRUE(app.answer());
  EXPECT_TRUE(app.hear(3)) << "of several messages at once";
  EXPECT_FALSE(app.hear()) << "one did not come";
  app.replies.sent(app.pass);
  EXPECT_FALSE(app.hear());
}

TEST(Replies, AMessageOfALaterPassIsNone) {
  Answerer app;
  app.answer();
  app.answer();
  EXPECT_TRUE(app.hear());
  app.replies.sent(app.pass + 1);
  EXPECT_FALSE(app.hear());
}

TEST(Replies, MessagesThatFollowNothingCountForNothing) {
  Answerer app;
  for (int i = 0; i < 5; ++i) app.replies.sent(++app.pass);
  EXPECT_FALSE(app.hear());
  app.replies.sent(app.pass);
  for (int i = 0; i < 5; ++i) app.replies.sent(++app.pass);
  EXPECT_FALSE(app.hear());
  app.replies.sent(app.pass);
  EXPECT_TRUE(app.hear());
}

}  // namespace
}  // namespace weft::sdk
