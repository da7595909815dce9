// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/transfers/receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "plugin-api/sdk/testing/test_receiver.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// ---- plain receives ----

class ReceiverTest : public ReceiverFixture {};

TEST_F(ReceiverTest, APostedReceiveGetsTheMessage) {
  ASSERT_EQ(trecv(buf, 64, 7, 1), 0);
  EXPECT_EQ(receiver->posted(), 1u);
  Message m = message(7, 2);
  m.has_data = true;
  m.data = 99;
  arrive(m, "hello");
  const Entry e = entry();
  EXPECT_EQ(e.context, 1u);
  EXPECT_EQ(e.flags, kTagged | FI_REMOTE_CQ_DATA);
  EXPECT_EQ(e.len, 5u);
  EXPECT_EQ(e.buf, nullptr);
  EXPECT_EQ(e.data, 99u);
  EXPECT_EQ(e.tag, 7u);
  EXPECT_EQ(e.src, 2u);
  EXPECT_EQ(e.err, 0);
  EXPECT_STREQ(buf, "hello");
  EXPECT_EQ(receiver->posted(), 0u);
  EXPECT_EQ(received(), 1u);
  EXPECT_EQ(failed(), 0u);
}

TEST_F(ReceiverTest, AnUnexpectedMessageIsDeliveredLater) {
  arrive(message(0xa7, 1), "tagged");
  arrive(untagged(3), "plain");
  EXPECT_EQ(receiver->unexpected(), 2u);
  EXPECT_THAT(entries(), IsEmpty());
  ASSERT_EQ(recv(buf, 64, 1), 0);
  ASSERT_EQ(trecv(buf2, 64, 0xb7, 2, 0xf0), 0);
  EXPECT_STREQ(buf, "plain");
  EXPECT_STREQ(buf2, "tagged");
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].flags, kMsg);
  EXPECT_EQ(all[0].src, 3u);
  EXPECT_EQ(all[0].tag, 0u);
  EXPECT_EQ(all[1].flags, kTagged);
  EXPECT_EQ(all[1].tag, 0xa7u) << "the sender's tag";
  EXPECT_EQ(receiver->unexpected(), 0u);
}

TEST_F(ReceiverTest, TaggedAndUntaggedDoNotMatch) {
  ASSERT_EQ(recv(buf, 64, 1), 0);
  arrive(message(0), "tagged");
  ASSERT_EQ(trecv(buf2, 64, 5, 2, ~uint64_t(0)), 0);
  EXPECT_THAT(contexts(), ElementsAre(2));
  EXPECT_EQ(receiver->posted(), 1u);
}

TEST_F(ReceiverTest, ReceivesAndMessagesKeepTheirOrder) {
  for (size_t i = 1; i <= 8; ++i) ASSERT_EQ(trecv(buf, 64, 7, i, i % 2), 0);
  for (int i = 0; i < 8; ++i) arrive(message(7), "x");
  EXPECT_THAT(contexts(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  for (int i = 0; i < 8; ++i) arrive(message(7), std::string(size_t(i), 'x'));
  for (size_t i = 1; i <= 8; ++i) ASSERT_EQ(trecv(buf, 64, 7, i), 0);
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(all[i].len, i);
}

TEST_F(ReceiverTest, BytesAreScattered) {
  const iovec iov[] = {{buf, 2}, {nullptr, 0}, {buf2, 3}, {buf + 100, 50}};
  ASSERT_EQ(post({.iov = iov, .count = 4, .context = ctx(1)}), 0);
  arrive(untagged(), "abcdefgh");
  EXPECT_EQ(entry().len, 8u);
  EXPECT_STREQ(buf, "ab");
  EXPECT_STREQ(buf2, "cde");
  EXPECT_STREQ(buf + 100, "fgh");
}

TEST_F(ReceiverTest, AReceiveOfZeroBytesTakesAnEmptyMessage) {
  ASSERT_EQ(post({.context = ctx(1)}), 0);
  arrive(untagged(), "");
  EXPECT_EQ(entry().err, 0);
}

TEST_F(ReceiverTest, WrongArgumentsAreRefused) {
  const iovec five[5] = {{buf, 1}, {buf, 1}, {buf, 1}, {buf, 1}, {buf, 1}};
  EXPECT_EQ(post({.iov = five, .count = 5}), -FI_EINVAL);
  EXPECT_EQ(post({.iov = nullptr, .count = 1}), -FI_EINVAL);
  const iovec too_long[] = {{buf, SIZE_MAX}, {buf, 2}};
  EXPECT_EQ(post({.iov = too_long, .count = 2}), -FI_EINVAL);
  const iovec nowhere{nullptr, 8};
  EXPECT_EQ(post({.iov = &nowhere, .count = 1}), -FI_EINVAL);
  EXPECT_EQ(post({.iov = five, .count = 2, .flags = FI_MULTI_RECV}), -FI_EINVAL);
  EXPECT_EQ(recv(buf, 1, 1, FI_INJECT), -FI_EBADFLAGS);
  EXPECT_EQ(recv(buf, 1, 1, uint64_t(1) << 40), -FI_EBADFLAGS);
  EXPECT_EQ(recv(buf, 1, 1, FI_MORE | FI_COMPLETION | FI_TRANSMIT_COMPLETE), 0);
  EXPECT_EQ(receiver->posted(), 1u);
  EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(ReceiverTest, TakesReceivesBeyondTheRequestedSize) {
  make({.size = 3});
  EXPECT_EQ(receiver->size(), 3u);
  EXPECT_EQ(receiver->left(), 3u);
  ASSERT_EQ(recv(buf, 1, 1), 0);
  ASSERT_EQ(trecv(buf, 1, 7, 2), 0);
  ASSERT_EQ(recv(buf, 1, 3, FI_MULTI_RECV), 0);
  EXPECT_EQ(receiver->left(), 0u);
  for (size_t i = 4; i < 100; ++i) ASSERT_EQ(trecv(buf, 1, i, i), 0);
  EXPECT_EQ(receiver->left(), 0u);
  EXPECT_EQ(receiver->posted(), 99u);
  for (size_t i = 4; i < 100; ++i) {
    arrive(message(i), "x");
    ASSERT_EQ(entry().context, i == 7 ? 2u : i) << "the oldest";
  }
  arrive(message(7), "x");
  EXPECT_EQ(entry().context, 7u);
  EXPECT_EQ(receiver->left(), 1u);
}

TEST_F(ReceiverTest, WithoutMemoryAReceiveIsRefused) {
  NoMoreMemory no_more;
  EXPECT_EQ(recv(buf, 1, 1), -FI_ENOMEM);
}

TEST_F(ReceiverTest, AClaimThatFindsNoMemoryCanBeRepeated) {
  arrive(message(7), "x");
  ASSERT_EQ(look(7, 1, FI_PEEK | FI_CLAIM), 0);
  EXPECT_EQ(entry().err, 0);
  {
    NoMoreMemory no_more;
    EXPECT_EQ(trecv(buf, 1, 7, 1, 0, FI_CLAIM), -FI_ENOMEM);
  }
  EXPECT_EQ(trecv(buf, 1, 7, 1, 0, FI_CLAIM), 0);
  EXPECT_THAT(contexts(), ElementsAre(1));
}

TEST_F(ReceiverTest, ALongMessageIsTruncated) {
  ASSERT_EQ(trecv(buf, 4, 7, 1), 0);
  arrive(message(7, 1), "abcdefg");
  arrive(message(8), "abcdefg");
  ASSERT_EQ(trecv(buf2, 6, 8, 2), 0);
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].err, FI_ETRUNC);
  EXPECT_EQ(all[0].context, 1u);
  EXPECT_EQ(all[0].flags, kTagged);
  EXPECT_EQ(all[0].len, 4u);
  EXPECT_EQ(all[0].olen, 3u);
  EXPECT_EQ(all[0].tag, 7u);
  EXPECT_EQ(all[0].src, 1u);
  EXPECT_EQ(all[1].err, FI_ETRUNC);
  EXPECT_EQ(all[1].len, 6u);
  EXPECT_EQ(all[1].olen, 1u);
  EXPECT_STREQ(buf, "abcd");
  EXPECT_STREQ(buf2, "abcdef");
  EXPECT_EQ(received(), 0u);
  EXPECT_EQ(failed(), 2u);
}

TEST_F(ReceiverTest, AnErrorOfTheProtocolIsReported) {
  hold = true;
  ASSERT_EQ(recv(buf, 64, 1), 0);
  arrive(untagged(), "abc");
  EXPECT_EQ(receiver->posted(), 0u);
  finish(0, FI_ECONNRESET);
  const Entry e = entry();
  EXPECT_EQ(e.err, FI_ECONNRESET);
  EXPECT_EQ(e.context, 1u);
  EXPECT_EQ(e.flags, kMsg);
  EXPECT_EQ(e.olen, 0u);
  EXPECT_EQ(failed(), 1u);
}

TEST_F(ReceiverTest, WithoutAQueueTheCounterCounts) {
  receiver->cq = nullptr;
  ASSERT_EQ(recv(buf, 2, 1), 0);
  ASSERT_EQ(recv(buf, 2, 1), 0);
  ASSERT_EQ(recv(buf, 64, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "ab");
  arrive(untagged(), "abc");
  arrive(untagged(), "abc");
  EXPECT_EQ(look(3, 1, FI_PEEK), 0);
  EXPECT_EQ(cancel(7), -FI_ENOENT);
  EXPECT_EQ(received(), 2u);
  EXPECT_EQ(failed(), 1u);
  EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(ReceiverTest, APeekInVainMakesProgress) {
  struct Network final : Poller {
    explicit Network(std::function<void()> poll_) : poll(std::move(poll_)) {}
    void on_poll() override {
      std::exchange(poll, [] {})();
    }
    int wait_fds(std::vector<int> &) override { return 0; }
    bool may_wait() override { return true; }
    std::function<void()> poll;
  };
  Network network([&] { came(message(7), "abc"); });
  domain.engine.add_poller(network);
  ASSERT_EQ(look(8, 1, FI_PEEK), 0);  // the poll brings a message with tag 7
  ASSERT_EQ(look(7, 2, FI_PEEK), 0);
  domain.engine.remove_poller(network);
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].err, FI_ENOMSG);
  EXPECT_EQ(all[1].context, 2u);
  EXPECT_EQ(all[1].err, 0);
  EXPECT_EQ(all[1].len, 3u);
  EXPECT_EQ(look(7, 3, FI_PEEK | FI_DISCARD), 0);
}

TEST_F(ReceiverTest, ASelectiveQueueGetsReceivesThatAskForIt) {
  receiver->selective = true;
  ASSERT_EQ(recv(buf, 64, 1), 0);
  ASSERT_EQ(recv(buf, 64, 2, FI_COMPLETION), 0);
  ASSERT_EQ(recv(buf, 1, 3), 0);
  for (int i = 0; i < 3; ++i) arrive(untagged(), "abc");
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].context, 2u);
  EXPECT_EQ(all[1].context, 3u);
  EXPECT_EQ(all[1].err, FI_ETRUNC);
  EXPECT_EQ(received(), 2u);
}

// ---- sources ----

TEST_F(ReceiverTest, AnUnknownSenderHasNoName) {
  for (int i = 0; i < 3; ++i) ASSERT_EQ(recv(buf, 64, 1), 0);
  arrive(untagged(Matcher::kUnknownSource), "x");
  arrive(untagged(Matcher::kFirstUnnamed + 5), "x");
  arrive(untagged(3), "x");
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].src, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(all[1].src, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(all[2].src, 3u);
}

TEST_F(ReceiverTest, WithoutTheCapabilityNoSenderHasAName) {
  make({});
  ASSERT_EQ(recv(buf, 64, 1), 0);
  arrive(untagged(3), "x");
  EXPECT_EQ(entry().src, FI_ADDR_NOTAVAIL);
}

TEST_F(ReceiverTest, AnUnknownSenderCanBeAnErrorWithItsAddress) {
  make({.source = true, .source_err = true});
  for (int i = 1; i < 4; ++i) ASSERT_EQ(trecv(buf, 4, 7, i), 0);
  arrive(message(7, Matcher::kFirstUnnamed + 5), "abc");
  arrive(message(7, 2), "abc");
  arrive(message(7, Matcher::kFirstUnnamed + 5), "abcdef");
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].err, FI_EADDRNOTAVAIL);
  EXPECT_EQ(all[0].err_data, "address of 5");
  EXPECT_EQ(all[0].len, 3u);
  EXPECT_EQ(all[0].flags, kTagged);
  EXPECT_STREQ(buf, "abcd");
  EXPECT_EQ(all[1].err, 0);
  EXPECT_EQ(all[2].err, FI_ETRUNC) << "the truncation is reported first";
  EXPECT_EQ(received(), 2u) << "the data did arrive";
  EXPECT_EQ(failed(), 1u);
}

TEST_F(ReceiverTest, ADirectedReceiveWaitsForItsSource) {
  make({.directed = true, .source = true});
  ASSERT_EQ(trecv(buf, 64, 7, 1, 0, 0, 2), 0);
  ASSERT_EQ(trecv(buf, 64, 7, 2, 0xff, 0, 1), 0);
  ASSERT_EQ(recv(buf, 64, 3, 0, 3), 0);
  arrive(message(7, 3), "x");
  arrive(message(7, Matcher::kUnknownSource), "x");
  arrive(untagged(2), "x");
  EXPECT_THAT(contexts(), IsEmpty());
  arrive(message(7, 1), "x");
  arrive(message(7, 2), "x");
  arrive(untagged(3), "x");
  EXPECT_THAT(contexts(), ElementsAre(2, 1, 3));
  // The earlier messages are still there. FI_ADDR_UNSPEC takes any source.
  ASSERT_EQ(trecv(buf, 64, 7, 4, 0, 0, 3), 0);
  ASSERT_EQ(trecv(buf, 64, 7, 5), 0);
  ASSERT_EQ(recv(buf, 64, 6), 0);
  EXPECT_THAT(contexts(), ElementsAre(4, 5, 6));
}

TEST_F(ReceiverTest, ADirectedReceiveNeedsAKnownPeer) {
  make({.directed = true});
  EXPECT_EQ(recv(buf, 64, 1, 0, 77), -FI_EINVAL);
  receiver->av = nullptr;
  EXPECT_EQ(recv(buf, 64, 1, 0, 1), -FI_EINVAL);
  EXPECT_EQ(recv(buf, 64, 1), 0);
}

TEST_F(ReceiverTest, WithoutTheCapabilityTheSourceIsIgnored) {
  ASSERT_EQ(recv(buf, 64, 1, 0, 77), 0);
  arrive(untagged(3), "x");
  EXPECT_THAT(contexts(), ElementsAre(1));
}

TEST_F(ReceiverTest, MessagesOfASenderThatGetsItsNameAreDelivered) {
  make({.directed = true, .source = true});
  const uint32_t unnamed = Matcher::kFirstUnnamed + 1;
  for (const char *bytes : {"a", "b", "c"}) arrive(message(7, unnamed), bytes);
  arrive(message(8, unnamed), "d");
  arrive(untagged(unnamed), "e");
  arrive(message(7, unnamed + 1), "f");
  ASSERT_EQ(trecv(buf, 64, 7, 1, 0, 0, 2), 0);
  ASSERT_EQ(trecv(buf2, 64, 7, 2, 0, 0, 2), 0);
  EXPECT_THAT(entries(), IsEmpty());
  receiver->rename_source(unnamed, 2);
  const std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].context, 1u);
  EXPECT_EQ(all[0].src, 2u);
  EXPECT_EQ(all[1].context, 2u);
  EXPECT_STREQ(buf, "a");
  EXPECT_STREQ(buf2, "b");
  EXPECT_EQ(receiver->unexpected(), 4u);
  for (size_t i = 3; i <= 4; ++i) ASSERT_EQ(trecv(buf, 64, 7, i, 0xf, 0, 2), 0);
  ASSERT_EQ(recv(buf, 64, 5, 0, 2), 0);
  EXPECT_THAT(contexts(), ElementsAre(3, 4, 5));
}

TEST_F(ReceiverTest, ADeliveryMayRemoveOtherMessages) {
  make({.directed = true});
  const uint32_t unnamed = Matcher::kFirstUnnamed;
  for (uint64_t tag = 0; tag < 6; ++tag) arrive(message(tag, unnamed), "x");
  ASSERT_EQ(trecv(buf, 64, 1, 1, 0, 0, 2), 0);
  ASSERT_EQ(trecv(buf, 64, 3, 2, 0, 0, 2), 0);
  // At the first delivery the connection breaks: its unfetched messages are dropped.
  on_deliver = [this] {
    on_deliver = nullptr;
    EXPECT_EQ(drop(2), 4u);
  };
  receiver->rename_source(unnamed, 2);
  EXPECT_THAT(contexts(), ElementsAre(1, 2));
  EXPECT_EQ(receiver->unexpected(), 0u);
}

TEST_F(ReceiverTest, MessagesOfARemovedPeerAreDropped) {
  arrive(message(7, 1), "a");
  arrive(message(8, 2), "b");
  arrive(untagged(1), "c");
  arrive(message(9, 1), "d");
  ASSERT_EQ(look(9, 5, FI_PEEK | FI_CLAIM), 0);
  EXPECT_EQ(entry().err, 0);
  EXPECT_EQ(receiver->unexpected(), 4u);
  EXPECT_EQ(drop(1), 3u);
  EXPECT_EQ(receiver->unexpected(), 1u);
  ASSERT_EQ(trecv(buf, 64, 9, 5, 0, FI_CLAIM), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG);
}

// ---- the end ----

TEST_F(ReceiverTest, CancelTakesBackOneReceive) {
  ASSERT_EQ(trecv(buf, 64, 7, 1), 0);
  ASSERT_EQ(trecv(buf, 64, 7, 2, 0xff), 0);
  ASSERT_EQ(recv(buf, 64, 3), 0);
  EXPECT_EQ(cancel(9), -FI_ENOENT);
  EXPECT_EQ(cancel(2), 0);
  Entry e = entry();
  EXPECT_EQ(e.err, FI_ECANCELED);
  EXPECT_EQ(e.context, 2u);
  EXPECT_EQ(e.flags, kTagged);
  EXPECT_EQ(e.tag, 7u);
  EXPECT_EQ(cancel(2), -FI_ENOENT);
  EXPECT_EQ(cancel(3), 0);
  EXPECT_EQ(entry().flags, kMsg);
  EXPECT_EQ(failed(), 2u);
  EXPECT_EQ(receiver->left(), 1023u);
  arrive(message(7), "x");
  EXPECT_THAT(contexts(), ElementsAre(1));
  EXPECT_EQ(cancel(1), -FI_ENOENT);
}

TEST_F(ReceiverTest, AReceiveWithoutAContextIsNotCancelled) {
  ASSERT_EQ(recv(buf, 64, 0), 0);
  EXPECT_EQ(cancel(0), -FI_ENOENT);
}

TEST_F(ReceiverTest, AReceiveInProgressIsNotCancelled) {
  hold = true;
  ASSERT_EQ(recv(buf, 64, 1), 0);
  arrive(untagged(), "x");
  EXPECT_EQ(cancel(1), -FI_ENOENT);
  finish(0);
  EXPECT_EQ(entry().err, 0);
}

TEST_F(ReceiverTest, WhenTheEndpointGoesDownReceivesFail) {
  hold = true;
  ASSERT_EQ(trecv(buf, 64, 7, 1), 0);
  ASSERT_EQ(trecv(buf, 64, 7, 2, 1), 0);
  ASSERT_EQ(recv(buf, 64, 3), 0);
  ASSERT_EQ(recv(buf, 64, 4, FI_MULTI_RECV), 0);
  ASSERT_EQ(recv(buf2, 64, 5, FI_MULTI_RECV), 0);
  arrive(message(7), "being received");
  arrive(untagged(), "being received");
  arrive(untagged(), "being received");
  receiver->fail_posted(FI_ECANCELED);
  EXPECT_EQ(receiver->posted(), 0u);
  std::vector<Entry> all = entries();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].context, 2u);
  EXPECT_EQ(all[0].err, FI_ECANCELED);
  EXPECT_EQ(all[1].context, 5u);
  EXPECT_EQ(all[1].flags, kMsg | FI_MULTI_RECV);
  while (!held.empty()) finish(0, FI_ECANCELED);
  EXPECT_THAT(contexts(), ElementsAre(1, 3, 4, 4));
  EXPECT_EQ(receiver->left(), 1024u);
}

TEST_F(ReceiverTest, UnfetchedMessagesAreDiscardedAtTheEnd) {
  arrive(message(7), "tagged");
  arrive(untagged(), "plain");
  arrive(message(8), "claimed");
  ASSERT_EQ(look(8, 1, FI_PEEK | FI_CLAIM), 0);
  ASSERT_EQ(trecv(buf, 64, 9, 1), 0);
  receiver.reset();
  EXPECT_THAT(discarded, ElementsAre("tagged", "plain", "claimed"));
}

// ---- what it costs ----

TEST_F(ReceiverTest, NothingIsAllocatedInSteadyState) {
  struct Quiet : ReceiverSink {
    Receiver *receiver = nullptr;
    void deliver(Unexpected &m, Receive &r) override {
      receiver->complete(r, m.message, m.message.length, 0);
    }
    void discard(Unexpected &) override {}
  } sink;
  Receiver quiet(sink, {.directed = true, .source = true});
  sink.receiver = &quiet;
  quiet.cq = cq_;
  quiet.cntr = cntr_;
  quiet.av = av_;
  const iovec iov{buf, 64};
  std::vector<Unexpected> saved(64);
  Guard guard(domain.engine.lock());
  size_t before = 0;
  for (int round = 0; round < 10; ++round) {
    if (round == 2) before = allocations();
    for (uint64_t tag = 0; tag < 64; ++tag)
      ASSERT_EQ(quiet.post({.tagged = true,
                            .iov = &iov,
                            .count = 1,
                            .src = tag % 2 ? 1 : FI_ADDR_UNSPEC,
                            .tag = tag,
                            .ignore = tag % 3 == 0 ? UINT64_C(1) << 60 : 0}),
                0);
    for (uint64_t tag = 0; tag < 64; ++tag) {
      Message m = message(tag, 1);
      m.length = 64;
      Receive *r = quiet.match(m);
      ASSERT_NE(r, nullptr);
      quiet.complete(*r, m, 64, 0);
    }
    for (uint64_t tag = 0; tag < 64; ++tag) {
      saved[tag].message = message(tag, 1);
      quiet.save(saved[tag]);
    }
    for (uint64_t tag = 0; tag < 64; ++tag)
      ASSERT_EQ(quiet.post({.tagged = true, .iov = &iov, .count = 1, .tag = tag}), 0);
    ASSERT_EQ(quiet.post({.iov = &iov, .count = 1, .flags = FI_MULTI_RECV}), 0);
    for (int i = 0; i < 64; ++i) {
      Message m = untagged(1);
      m.length = 1;
      Receive *r = quiet.match(m);
      if (r == nullptr) break;
      quiet.complete(*r, m, 1, 0);
    }
    ASSERT_EQ(quiet.posted(), 0u);
    ASSERT_EQ(quiet.unexpected(), 0u);
    domain.engine.lock().unlock();
    fi_cq_tagged_entry e[16];
    while (fi_cq_read(cq_->c(), e, 16) > 0) {
    }
    domain.engine.lock().lock();
  }
  EXPECT_EQ(allocations(), before);
}

}  // namespace
}  // namespace weft::sdk
