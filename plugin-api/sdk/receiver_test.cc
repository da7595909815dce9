// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/receiver.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <weft/sdk/av.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/test_allocations.h"
#include "plugin-api/sdk/test_instance.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kTagged = FI_RECV | FI_TAGGED, kMsg = FI_RECV | FI_MSG;

void *ctx(size_t i) {
  return reinterpret_cast<void *>(i);
}

// What a protocol keeps of a message that nobody waited for.
struct Saved : Unexpected {
  std::string bytes;
};

// One entry of the queue, an error or not.
struct Entry {
  size_t context = 0;
  uint64_t flags = 0;
  size_t len = 0;
  const void *buf = nullptr;
  uint64_t data = 0, tag = 0;
  fi_addr_t src = FI_ADDR_NOTAVAIL;
  int err = 0;
  size_t olen = 0;
  std::string err_data;
};

// A receiver with the smallest protocol: messages arrive whole. Delivered messages complete at
// once, or, with `hold`, by finish().
class Fixture : public ::testing::Test, public ReceiverSink {
 protected:
  Fixture() { make({.source = true}); }
  ~Fixture() override {
    receiver.reset();
    EXPECT_EQ(saved_, 0u) << "messages neither delivered nor discarded";
    if (av_ != nullptr) fi_close(av_->base());
    if (cntr_ != nullptr) fi_close(cntr_->base());
    if (cq_ != nullptr) fi_close(cq_->base());
  }

  void make(const ReceiverSettings &settings) {
    receiver = std::make_unique<Receiver>(*this, settings);
    if (cq_ == nullptr) {
      fi_cq_attr cq_attr{};
      cq_attr.format = FI_CQ_FORMAT_TAGGED;
      cq_ = *Cq::open(domain.context, &cq_attr, nullptr);
      cntr_ = *Cntr::open(domain.context, nullptr, nullptr);
      fi_av_attr av_attr{};
      av_attr.type = FI_AV_TABLE;
      av_ = *Av::open(domain.context, FI_SOCKADDR_IN, &av_attr, nullptr);
      sockaddr_in peers[4] = {};
      for (int i = 0; i < 4; ++i) {
        peers[i].sin_family = AF_INET;
        peers[i].sin_port = htons(uint16_t(1000 + i));
        peers[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      }
      fi_addr_t names[4];
      EXPECT_EQ(av_->insert(peers, 4, names, 0, nullptr), 4);
      EXPECT_THAT(names, ElementsAre(0, 1, 2, 3));
    }
    receiver->cq = cq_;
    receiver->cntr = cntr_;
    receiver->av = av_;
  }
  // From now on the queue has so few entries.
  void narrow(size_t size) {
    fi_close(cq_->base());
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    attr.size = size;
    receiver->cq = cq_ = *Cq::open(domain.context, &attr, nullptr);
  }

  // ---- the application ----
  ssize_t post(RecvRequest request) {
    Guard guard(domain.engine.lock());
    return receiver->post(request);
  }
  ssize_t recv(void *buf, size_t len, size_t context, uint64_t flags = 0,
               fi_addr_t src = FI_ADDR_UNSPEC) {
    const iovec iov{buf, len};
    return post({.iov = &iov, .count = 1, .src = src, .flags = flags, .context = ctx(context)});
  }
  ssize_t trecv(void *buf, size_t len, uint64_t tag, size_t context, uint64_t ignore = 0,
                uint64_t flags = 0, fi_addr_t src = FI_ADDR_UNSPEC) {
    const iovec iov{buf, len};
    return post({.tagged = true,
                 .iov = &iov,
                 .count = 1,
                 .src = src,
                 .tag = tag,
                 .ignore = ignore,
                 .flags = flags,
                 .context = ctx(context)});
  }
  ssize_t look(uint64_t tag, size_t context, uint64_t flags, uint64_t ignore = 0,
               fi_addr_t src = FI_ADDR_UNSPEC) {
    return post({.tagged = true,
                 .src = src,
                 .tag = tag,
                 .ignore = ignore,
                 .flags = flags,
                 .context = ctx(context)});
  }
  ssize_t cancel(size_t context) {
    Guard guard(domain.engine.lock());
    return receiver->cancel(ctx(context));
  }
  std::vector<Entry> entries() {
    std::vector<Entry> all;
    for (;;) {
      fi_cq_tagged_entry e{};
      fi_addr_t src = 0;
      const ssize_t n = fi_cq_readfrom(cq_->c(), &e, 1, &src);
      if (n == 1) {
        all.push_back({.context = reinterpret_cast<size_t>(e.op_context),
                       .flags = e.flags,
                       .len = e.len,
                       .buf = e.buf,
                       .data = e.data,
                       .tag = e.tag,
                       .src = src});
      } else if (n == -FI_EAVAIL) {
        fi_cq_err_entry f{};
        EXPECT_EQ(fi_cq_readerr(cq_->c(), &f, 0), 1);
        all.push_back({.context = reinterpret_cast<size_t>(f.op_context),
                       .flags = f.flags,
                       .len = f.len,
                       .buf = f.buf,
                       .data = f.data,
                       .tag = f.tag,
                       .src = f.src_addr,
                       .err = f.err,
                       .olen = f.olen,
                       .err_data{static_cast<const char *>(f.err_data), f.err_data_size}});
      } else {
        EXPECT_EQ(n, -FI_EAGAIN);
        return all;
      }
    }
  }
  // The only one there must be.
  Entry entry() {
    std::vector<Entry> all = entries();
    EXPECT_EQ(all.size(), 1u);
    return all.size() == 1 ? all[0] : Entry{.err = -1};
  }
  std::vector<size_t> contexts() {
    std::vector<size_t> all;
    for (const Entry &e : entries()) all.push_back(e.context);
    return all;
  }

  // ---- the protocol ----
  static Message message(uint64_t tag, uint32_t source = 0) {
    return {.tagged = true, .source = source, .tag = tag};
  }
  static Message untagged(uint32_t source = 0) { return {.source = source}; }
  void arrive(Message m, std::string bytes) {
    Guard guard(domain.engine.lock());
    came(m, std::move(bytes));
  }
  void came(Message m, std::string bytes) {  // the same, with the lock held
    m.length = bytes.size();
    if (Receive *r = receiver->match(m)) return place(*r, m, bytes);
    auto *s = new Saved;
    s->bytes = std::move(bytes);
    s->message = m;
    ++saved_;
    receiver->save(*s);
  }
  void place(Receive &r, const Message &m, std::string bytes, int err = 0) {
    if (hold) return held.push_back({&r, m, std::move(bytes)});
    size_t done = 0;
    for (size_t i = 0; i < r.count; ++i) {
      const size_t n = std::min(r.iov[i].iov_len, bytes.size() - done);
      if (n != 0) std::memcpy(r.iov[i].iov_base, bytes.data() + done, n);
      done += n;
    }
    EXPECT_EQ(done, std::min(r.length, bytes.size()));
    receiver->complete(r, m, done, err);
  }
  // Completes what was held, the i-th that is still there.
  void finish(size_t i, int err = 0) {
    Guard guard(domain.engine.lock());
    const Held h = held[i];
    held.erase(held.begin() + long(i));
    hold = false;
    place(*h.receive, h.message, h.bytes, err);
    hold = true;
  }
  void deliver(Unexpected &m, Receive &r) override {
    auto &s = static_cast<Saved &>(m);
    EXPECT_FALSE(s.queued);
    const Message about = s.message;
    const std::string bytes = s.bytes;
    --saved_;
    delete &s;
    if (auto call = on_deliver) call();
    place(r, about, bytes);
  }
  void discard(Unexpected &m) override {
    auto &s = static_cast<Saved &>(m);
    EXPECT_FALSE(s.queued);
    discarded.push_back(s.bytes);
    --saved_;
    delete &s;
  }
  std::string source_address(const Message &m) override {
    return "address of " + std::to_string(m.source - Matcher::kFirstUnnamed);
  }
  // A peer is gone: its messages are dropped.
  size_t drop(uint32_t source) {
    size_t n = 0;
    receiver->visit_unexpected(source, [&](Unexpected &m) {
      receiver->forget(m);
      --saved_;
      delete static_cast<Saved *>(&m);
      ++n;
    });
    return n;
  }

  struct Held {
    Receive *receive;
    Message message;
    std::string bytes;
  };
  TestDomain domain;
  std::unique_ptr<Receiver> receiver;
  bool hold = false;
  std::vector<Held> held;
  std::vector<std::string> discarded;
  std::function<void()> on_deliver;
  char buf[256] = {}, buf2[256] = {};
  uint64_t received() { return cntr_->read(); }
  uint64_t failed() { return cntr_->readerr(); }
  Cq *cq_ = nullptr;
  Cntr *cntr_ = nullptr;
  Av *av_ = nullptr;

 private:
  size_t saved_ = 0;
};

// ---- plain receives ----

class ReceiverTest : public Fixture {};

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

TEST_F(ReceiverTest, TaggedAndUntaggedDoNotMeet) {
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

TEST_F(ReceiverTest, AReceiveOfNothingTakesAnEmptyMessage) {
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

TEST_F(ReceiverTest, AsManyArePostedAsWereAskedFor) {
  make({.size = 3});
  EXPECT_EQ(receiver->left(), 3u);
  ASSERT_EQ(recv(buf, 1, 1), 0);
  ASSERT_EQ(trecv(buf, 1, 7, 2), 0);
  ASSERT_EQ(recv(buf, 1, 3, FI_MULTI_RECV), 0);
  EXPECT_EQ(recv(buf, 1, 4), -FI_EAGAIN);
  EXPECT_EQ(receiver->left(), 0u);
  arrive(message(7), "x");
  EXPECT_EQ(receiver->left(), 1u);
  EXPECT_EQ(recv(buf, 1, 4), 0);
}

TEST_F(ReceiverTest, WhatIsTooLongIsTruncated) {
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
  ASSERT_EQ(look(8, 1, FI_PEEK), 0);  // not the one that it brings
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

TEST_F(ReceiverTest, ASelectiveQueueGetsWhatAsksForIt) {
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

TEST_F(ReceiverTest, WithoutTheCapabilityNobodyHasAName) {
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
  EXPECT_EQ(all[2].err, FI_ETRUNC) << "that the data is not whole is worse";
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
  // Those from before are still there; FI_ADDR_UNSPEC is anybody.
  ASSERT_EQ(trecv(buf, 64, 7, 4, 0, 0, 3), 0);
  ASSERT_EQ(trecv(buf, 64, 7, 5), 0);
  ASSERT_EQ(recv(buf, 64, 6), 0);
  EXPECT_THAT(contexts(), ElementsAre(4, 5, 6));
}

TEST_F(ReceiverTest, ADirectedReceiveNamesAPeerThatThereIs) {
  make({.directed = true});
  EXPECT_EQ(recv(buf, 64, 1, 0, 77), -FI_EINVAL);
  receiver->av = nullptr;
  EXPECT_EQ(recv(buf, 64, 1, 0, 1), -FI_EINVAL);
  EXPECT_EQ(recv(buf, 64, 1), 0);
}

TEST_F(ReceiverTest, WithoutTheCapabilityTheSourceIsNotLookedAt) {
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

TEST_F(ReceiverTest, WhatIsDeliveredMayTakeOthersWithIt) {
  make({.directed = true});
  const uint32_t unnamed = Matcher::kFirstUnnamed;
  for (uint64_t tag = 0; tag < 6; ++tag) arrive(message(tag, unnamed), "x");
  ASSERT_EQ(trecv(buf, 64, 1, 1, 0, 0, 2), 0);
  ASSERT_EQ(trecv(buf, 64, 3, 2, 0, 0, 2), 0);
  // At the first delivery the connection breaks, and with it all that was not fetched.
  on_deliver = [this] {
    on_deliver = nullptr;
    EXPECT_EQ(drop(2), 4u);
  };
  receiver->rename_source(unnamed, 2);
  EXPECT_THAT(contexts(), ElementsAre(1, 2));
  EXPECT_EQ(receiver->unexpected(), 0u);
}

TEST_F(ReceiverTest, ThePeerThatIsGoneTakesItsMessages) {
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

// ---- multi-receive buffers ----

class MultiReceive : public Fixture {
 protected:
  MultiReceive() { receiver->min_multi_recv() = 16; }
  // What an entry says, in words.
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

TEST_F(MultiReceive, TheLastToCompleteReleases) {
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

TEST_F(MultiReceive, WhatDoesNotFitGoesToTheNextBuffer) {
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
  arrive(untagged(), std::string(40, 'b'));  // nobody's
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

TEST_F(MultiReceive, WhatWasSavedGoesFirst) {
  for (const char *bytes : {"a", "bb", "ccc"}) arrive(untagged(), bytes);
  ASSERT_EQ(recv(buf, 64, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "dddd");
  EXPECT_THAT(story(), ElementsAre("1:a", "1:bb", "1:ccc", "1:dddd"));
}

TEST_F(MultiReceive, WhatWasSavedMayFillIt) {
  for (const char *bytes : {"aaaa", "bbbb", "cccc"}) arrive(untagged(), bytes);
  ASSERT_EQ(recv(buf, 20, 1, FI_MULTI_RECV), 0);
  EXPECT_THAT(story(), ElementsAre("1:aaaa", "1:bbbb", "1:released"));
  EXPECT_EQ(receiver->unexpected(), 1u);
  EXPECT_EQ(receiver->posted(), 0u);
  EXPECT_EQ(receiver->left(), 1024u);
  ASSERT_EQ(recv(buf, 64, 2), 0);
  EXPECT_EQ(entry().len, 4u);
}

TEST_F(MultiReceive, WhatWasSavedAndTakesLongerKeepsIt) {
  for (const char *bytes : {"aaaa", "bbbb"}) arrive(untagged(), bytes);
  hold = true;
  ASSERT_EQ(recv(buf, 20, 1, FI_MULTI_RECV), 0);
  ASSERT_EQ(held.size(), 2u);
  finish(1);
  finish(0);
  EXPECT_THAT(story(), ElementsAre("1:bbbb", "1:aaaa+released"));
}

TEST_F(MultiReceive, ASavedMessageThatDoesNotFitEndsIt) {
  arrive(untagged(), "aa");
  arrive(untagged(), std::string(40, 'b'));
  ASSERT_EQ(recv(buf, 32, 1, FI_MULTI_RECV), 0);
  EXPECT_THAT(story(), ElementsAre("1:aa", "1:released"));
  EXPECT_EQ(receiver->unexpected(), 1u);
}

// A message that comes while older ones are delivered does not overtake them.
TEST_F(MultiReceive, NothingOvertakesWhatWasSaved) {
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

TEST_F(MultiReceive, TheReleaseIsSaidToASelectiveQueueToo) {
  receiver->selective = true;
  ASSERT_EQ(recv(buf, 20, 1, FI_MULTI_RECV), 0);
  ASSERT_EQ(recv(buf2, 20, 2, FI_MULTI_RECV | FI_COMPLETION), 0);
  for (const char *bytes : {"aaaa", "bbbb", "cccc", "dddd"}) arrive(untagged(), bytes);
  EXPECT_THAT(story(), ElementsAre("1:released", "2:cccc", "2:dddd+released"));
}

TEST_F(MultiReceive, AnErrorOfThelastMessageIsFollowedByTheRelease) {
  hold = true;
  ASSERT_EQ(recv(buf, 18, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "aaaa");
  finish(0, FI_EIO);
  EXPECT_THAT(story(), ElementsAre("1:error " + std::to_string(FI_EIO), "1:released"));
}

TEST_F(MultiReceive, CancelEndsIt) {
  const std::string cancelled = "1:error " + std::to_string(FI_ECANCELED) + "+released";
  ASSERT_EQ(recv(buf, 64, 1, FI_MULTI_RECV), 0);
  arrive(untagged(), "aa");
  EXPECT_EQ(cancel(1), 0);
  EXPECT_THAT(story(), ElementsAre("1:aa", cancelled));
  EXPECT_EQ(cancel(1), -FI_ENOENT);
  EXPECT_EQ(failed(), 1u);
  // In use: after what is being received.
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

// ---- looking ----

TEST_F(ReceiverTest, APeekThatFindsNothingSaysSo) {
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
  EXPECT_EQ(failed(), 0u) << "whoever polls by peeking is not to find its counter full of errors";
}

TEST_F(ReceiverTest, APeekTellsAboutTheMessage) {
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

TEST_F(ReceiverTest, APeekLooksAtItsSource) {
  make({.directed = true});
  arrive(message(7, 1), "x");
  ASSERT_EQ(look(7, 1, FI_PEEK, 0, 2), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG);
  ASSERT_EQ(look(7, 1, FI_PEEK, 0, 1), 0);
  EXPECT_EQ(entry().err, 0);
  EXPECT_EQ(look(7, 1, FI_PEEK, 0, 99), -FI_EINVAL);
}

TEST_F(ReceiverTest, APeekNeedsNoPlaceAmongTheReceives) {
  make({.size = 1});
  ASSERT_EQ(recv(buf, 1, 1), 0);
  ASSERT_EQ(look(7, 2, FI_PEEK), 0);
  EXPECT_EQ(entry().err, FI_ENOMSG);
}

TEST_F(ReceiverTest, ASelectiveQueueIsToldOfPeeksThatAskForIt) {
  receiver->selective = true;
  arrive(message(7), "x");
  ASSERT_EQ(look(7, 1, FI_PEEK), 0);
  ASSERT_EQ(look(7, 2, FI_PEEK | FI_COMPLETION), 0);
  ASSERT_EQ(look(8, 3, FI_PEEK), 0);  // errors always
  EXPECT_THAT(contexts(), ElementsAre(2, 3));
}

TEST_F(ReceiverTest, AClaimedMessageWaitsForItsClaim) {
  arrive(message(7, 1), "first");
  arrive(message(7, 1), "second");
  ASSERT_EQ(look(7, 1, FI_PEEK | FI_CLAIM), 0);
  Entry e = entry();
  EXPECT_EQ(e.err, 0);
  EXPECT_EQ(e.len, 5u);
  EXPECT_EQ(receiver->unexpected(), 2u);
  // Nobody else gets it.
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

TEST_F(ReceiverTest, ClaimsAreFoundByTheirContexts) {
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

TEST_F(ReceiverTest, AClaimThatFindsNoPlaceCanBeRepeated) {
  make({.size = 1});
  arrive(message(7), "x");
  ASSERT_EQ(look(7, 1, FI_PEEK | FI_CLAIM), 0);
  EXPECT_EQ(entry().err, 0);
  ASSERT_EQ(recv(buf, 1, 2), 0);
  EXPECT_EQ(trecv(buf, 1, 7, 1, 0, FI_CLAIM), -FI_EAGAIN);
  EXPECT_EQ(cancel(2), 0);
  EXPECT_EQ(trecv(buf, 1, 7, 1, 0, FI_CLAIM), 0);
  EXPECT_THAT(contexts(), ElementsAre(2, 1));
}

TEST_F(ReceiverTest, WhatIsDiscardedIsGone) {
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

TEST_F(ReceiverTest, FlagsThatMakeNoSenseAreRefused) {
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

TEST_F(ReceiverTest, WhatIsBeingReceivedIsNotCancelled) {
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

TEST_F(ReceiverTest, WhatNobodyFetchedIsDiscardedAtTheEnd) {
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

// ---- a queue that is read slowly ----

class NarrowQueue : public Fixture {
 protected:
  static constexpr size_t kSize = 4, kMessages = 30;
  NarrowQueue() {
    receiver->min_multi_recv() = 1;
    narrow(kSize);
  }
  // What the queue holds, which is no more than it was opened for.
  std::vector<fi_cq_tagged_entry> read() {
    std::vector<fi_cq_tagged_entry> all(2 * kMessages);
    const ssize_t n = fi_cq_read(cq_->c(), all.data(), all.size());
    EXPECT_LE(n, ssize_t(kSize)) << "the queue has grown";
    all.resize(n > 0 ? size_t(n) : 0);
    return all;
  }
  void save(const char *prefix = "") {
    for (size_t i = 0; i < kMessages; ++i) arrive(untagged(), prefix + std::to_string(i));
  }
};

TEST_F(NarrowQueue, AMultiReceiveBufferTakesWhatWasSavedAsItIsRead) {
  save();
  ASSERT_EQ(recv(buf, sizeof buf, 1, FI_MULTI_RECV), 0);
  EXPECT_EQ(receiver->unexpected(), kMessages - kSize);
  // What comes now is behind the rest of it, and takes no receive that is posted now.
  arrive(untagged(), "last");
  EXPECT_EQ(recv(buf2, sizeof buf2, 2), -FI_EAGAIN);
  EXPECT_EQ(look(0, 3, FI_PEEK), -FI_EAGAIN);
  std::string all;
  for (std::vector<fi_cq_tagged_entry> some = read(); !some.empty(); some = read())
    for (const fi_cq_tagged_entry &e : some) all.append(static_cast<char *>(e.buf), e.len);
  std::string expected;
  for (size_t i = 0; i < kMessages; ++i) expected += std::to_string(i);
  EXPECT_EQ(all, expected + "last");
  EXPECT_EQ(receiver->unexpected(), 0u);
  EXPECT_EQ(receiver->posted(), 1u);
  EXPECT_EQ(recv(buf2, sizeof buf2, 2), 0);
}

// Those who ask for room before they take a message from the wire leave it there.
TEST_F(NarrowQueue, WhatTheBufferWillTakeWaitsOutsideIfItCan) {
  save();
  ASSERT_EQ(trecv(buf2, sizeof buf2, 7, 1), 0);
  ASSERT_EQ(recv(buf, sizeof buf, 2, FI_MULTI_RECV), 0);
  Guard guard(domain.engine.lock());
  bool full = false;
  EXPECT_EQ(receiver->match(untagged(), &full), nullptr);
  EXPECT_TRUE(full);
  full = false;
  EXPECT_EQ(receiver->match(message(8), &full), nullptr);
  EXPECT_FALSE(full) << "a message for nobody is saved";
  Receive *r = receiver->match(message(7), &full);
  ASSERT_NE(r, nullptr) << "older receives go on";
  receiver->complete(*r, message(7), 0, 0);
}

TEST_F(NarrowQueue, ABufferThatWaitsForRoomIsCancelled) {
  for (const bool closes : {false, true}) {
    save();
    ASSERT_EQ(recv(buf, sizeof buf, 1, FI_MULTI_RECV), 0);
    {
      Guard guard(domain.engine.lock());
      closes ? receiver->fail_posted(FI_ECANCELED) : void();
    }
    EXPECT_EQ(cancel(1), closes ? -FI_ENOENT : 0);
    const std::vector<Entry> all = entries();
    ASSERT_EQ(all.size(), kSize + 1);
    EXPECT_EQ(all.back().err, FI_ECANCELED);
    EXPECT_EQ(all.back().flags, kMsg | FI_MULTI_RECV);
    EXPECT_EQ(receiver->left(), 1024u);
    EXPECT_EQ(receiver->unexpected(), kMessages - kSize);
    drop(0);
  }
}

TEST_F(NarrowQueue, TheEndOfTheEndpointIsTheEndOfTheBuffer) {
  save();
  ASSERT_EQ(recv(buf, sizeof buf, 1, FI_MULTI_RECV), 0);
  receiver.reset();
  while (!read().empty()) {
  }
}

TEST_F(NarrowQueue, WhatWouldCompleteAtOnceIsPostedWhenThereIsRoom) {
  for (uint64_t i = 0; i < kMessages; ++i) arrive(message(i), "x");
  size_t done = 0;
  for (uint64_t i = 0; i < kMessages;) {
    const ssize_t rc = trecv(buf, sizeof buf, i, i + 1);
    if (rc == 0) {
      ++i;
      continue;
    }
    ASSERT_EQ(rc, -FI_EAGAIN);
    EXPECT_EQ(receiver->left(), 1024u);
    EXPECT_EQ(trecv(buf2, sizeof buf2, 1000 + i, 1000), 0) << "what has to wait anyway may do so";
    EXPECT_EQ(cancel(1000), 0);
    done += read().size();
    EXPECT_EQ(entry().err, FI_ECANCELED);
  }
  EXPECT_EQ(done + read().size(), kMessages);
}

TEST_F(NarrowQueue, LooksWaitForRoom) {
  for (uint64_t i = 0; i < kMessages; ++i) arrive(message(i), "x");
  const auto fill = [&] {
    for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(look(1, 1, FI_PEEK), 0);
  };
  fill();
  for (const uint64_t flags :
       {uint64_t(FI_PEEK), uint64_t(FI_PEEK | FI_CLAIM), uint64_t(FI_PEEK | FI_DISCARD)}) {
    EXPECT_EQ(look(2, 2, flags), -FI_EAGAIN) << flags;
    EXPECT_EQ(look(1000, 2, flags), -FI_EAGAIN) << flags;
  }
  EXPECT_EQ(receiver->unexpected(), kMessages);
  EXPECT_THAT(discarded, IsEmpty());
  read();
  EXPECT_EQ(look(2, 2, FI_PEEK | FI_CLAIM), 0);
  read();
  fill();
  EXPECT_EQ(look(0, 2, FI_CLAIM), -FI_EAGAIN);
  EXPECT_EQ(look(0, 2, FI_CLAIM | FI_DISCARD), -FI_EAGAIN);
  read();
  EXPECT_EQ(look(0, 2, FI_CLAIM | FI_DISCARD), 0);
  EXPECT_EQ(discarded.size(), 1u);
}

// What reports nothing needs no room.
TEST_F(NarrowQueue, ASelectiveQueueHoldsNobodyBackWhoDoesNotReport) {
  receiver->selective = true;
  save();
  ASSERT_EQ(recv(buf, sizeof buf, 1, FI_MULTI_RECV), 0);
  EXPECT_EQ(receiver->unexpected(), 0u);
}

// ---- anything, in any order ----

class Storm : public Fixture, public ::testing::WithParamInterface<int> {};

// Every receive ends once, every message is received once or discarded, each buffer is released
// once, and bytes land where the completion says.
TEST_P(Storm, NothingIsLostOrDoubled) {
  std::mt19937 random{unsigned(GetParam())};
  const auto below = [&](unsigned n) { return unsigned(random() % n); };
  make({.size = 20, .directed = true, .source = true});
  receiver->min_multi_recv() = 6;
  // Every other application has a small queue, and reads it now and then.
  const bool slow = GetParam() % 2 != 0;
  if (slow) narrow(3);
  hold = !slow;
  struct Op {
    bool multi, tagged;
    std::vector<char> memory;
  };
  std::map<size_t, Op> open;  // by context
  size_t next = 1, arrived = 0, taken = 0, cancelled = 0, errors = 0;

  const auto check = [&] {
    for (const Entry &e : entries()) {
      const auto it = open.find(e.context);
      ASSERT_NE(it, open.end()) << "an entry for what is over";
      Op &op = it->second;
      bool over = !op.multi || e.flags & FI_MULTI_RECV;
      if (e.err == FI_ENOMSG) {
        over = true;
      } else if (e.err == FI_ECANCELED) {
        ++errors;
      } else if (e.flags != FI_MULTI_RECV) {
        ++taken;
        const char *at = op.multi ? static_cast<const char *>(e.buf) : op.memory.data();
        ASSERT_GE(at, op.memory.data());
        ASSERT_LE(at + e.len, op.memory.data() + op.memory.size());
        // A message is its tag and its source, again and again.
        for (size_t i = 0; i < e.len; ++i) {
          ASSERT_EQ(at[i], char(i % 2 ? e.src : e.tag + (op.tagged ? 'a' : 'A'))) << e.len;
        }
        ASSERT_TRUE(e.err == 0 || e.err == FI_ETRUNC);
      }
      if (!over) continue;
      open.erase(it);
    }
  };

  for (int step = 0; step < 3000; ++step) {
    const unsigned what = below(100);
    const bool tagged = below(2);
    if (what < 35) {
      const bool multi = below(4) == 0;
      const size_t size = 1 + below(multi ? 40 : 12);
      Op &op = open[next] = {multi, tagged, std::vector<char>(size)};
      const iovec iov{op.memory.data(), size};
      const fi_addr_t src = below(2) ? FI_ADDR_UNSPEC : below(4);
      const ssize_t rc = post({.tagged = tagged,
                               .iov = &iov,
                               .count = 1,
                               .src = src,
                               .tag = below(4),
                               .ignore = below(3) == 0 ? 3u : 0u,
                               .flags = multi ? uint64_t(FI_MULTI_RECV) : 0,
                               .context = ctx(next)});
      if (rc == 0) {
        ++next;
      } else {
        ASSERT_EQ(rc, -FI_EAGAIN);
        open.erase(next);
      }
    } else if (what < 70) {
      Message m{.tagged = tagged, .source = below(4), .tag = tagged ? below(4) : 0};
      std::string bytes(below(10), 0);
      for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = char(i % 2 ? m.source : m.tag + (tagged ? 'a' : 'A'));
      ++arrived;
      arrive(m, bytes);
    } else if (what < 92) {
      for (unsigned n = below(4); n != 0 && !held.empty(); --n)
        finish(below(unsigned(held.size())));
    } else if (what < 96) {
      if (open.empty()) continue;
      const ssize_t rc = cancel(std::next(open.begin(), below(unsigned(open.size())))->first);
      ASSERT_TRUE(rc == 0 || rc == -FI_ENOENT);
      if (rc == 0) ++cancelled;
    } else if (what < 98) {
      check();
      open[next] = {false, true, {}};
      const size_t before = discarded.size();
      ASSERT_EQ(look(below(4), next, FI_PEEK | FI_DISCARD, below(2) ? 3 : 0), 0);
      if (discarded.size() != before) {
        const Entry *mine = nullptr;
        // Reported at once: not a message that was taken.
        std::vector<Entry> all = entries();
        for (const Entry &e : all)
          if (e.context == next) mine = &e;
        ASSERT_NE(mine, nullptr);
        ASSERT_EQ(mine->err, 0);
        open.erase(next);
        ASSERT_EQ(all.size(), 1u);
      }
      ++next;
    }
    if (!slow || below(8) == 0) check();
    if (HasFatalFailure()) return;
  }
  check();
  while (!held.empty()) finish(below(unsigned(held.size())));
  cancelled += receiver->posted();
  receiver->fail_posted(FI_ECANCELED);
  check();
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(receiver->left(), 20u);
  EXPECT_EQ(arrived, taken + discarded.size() + receiver->unexpected());
  EXPECT_GT(taken, 300u);
  EXPECT_EQ(errors, cancelled);
  EXPECT_GT(cancelled, 10u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Storm, ::testing::Range(0, 60));

}  // namespace
}  // namespace weft::sdk
