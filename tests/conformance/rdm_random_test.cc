// SPDX-License-Identifier: BSD-2-Clause
// Random schedules: several senders, and one receiver that posts its receives and reads its
// completions when it likes. Every message arrives once, with its bytes, and those of one sender in
// their order, whatever the stack has to do for lack of room.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kSenders = 3, kRoom = 70'000, kHead = 16;
constexpr size_t kMessageSizes[] = {kHead, kHead + 1, 100, 300, 4000, 17'000, 20'000, 65'000};

struct Sent {
  std::vector<uint8_t> bytes;
};

struct Received {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kRoom);
  bool tagged = false;
  size_t source = 0;  // of tagged ones
};

class Schedule {
 public:
  Schedule(unsigned seed, size_t messages)
      : random_(seed), messages_(messages), net_(kSenders + 1, options()) {}

  void run() {
    size_t to_send = messages_, to_post = messages_;
    // How long each mood lasts is chosen at random: bursts of sends, of receives, of sleep.
    for (size_t steps = 0; to_send + to_post != 0 && !HasFailed();) {
      const size_t mood = below(6), length = 1 + below(mood == 5 ? 3 : 40);
      for (size_t i = 0; i < length && to_send + to_post != 0; ++i, ++steps) {
        switch (mood) {
          case 0:
          case 1:
          case 2:
            if (to_send != 0 && send()) --to_send;
            break;
          case 3:
            if (to_post != 0 && post()) --to_post;
            break;
          case 4:
            for (size_t s = 1; s <= kSenders; ++s) read(s);
            break;
          default:
            read(0);
        }
      }
      if (steps > messages_ * 400) {
        // A mood may have nothing to do for want of another: all of them now.
        for (size_t n = 0; n <= kSenders; ++n) read(n);
        steps = 0;
      }
    }
    EXPECT_TRUE(net_.until([&] {
      for (size_t n = 0; n <= kSenders; ++n) read(n);
      return (sent_ == messages_ && arrived_ == messages_) || HasFailed();
    })) << sent_
        << " sends and " << arrived_ << " receives of " << messages_ << " have completed";
    net_.settle();
    for (size_t n = 0; n <= kSenders; ++n) read(n);
    EXPECT_EQ(arrived_, messages_) << "more than were sent";
    check_order();
  }

 private:
  static Options options() {
    Options options;
    options.one_cq = true;
    options.tx_size = 64;
    options.rx_size = 64;
    return options;
  }
  static bool HasFailed() { return ::testing::Test::HasFailure(); }
  size_t below(size_t limit) { return random_() % limit; }

  // What is still wanted of each kind, so that each message finds a receive in the end.
  bool send() {
    const size_t s = 1 + below(kSenders);
    const bool tagged = below(2) == 0;
    auto message = std::make_unique<Sent>();
    const size_t size = kMessageSizes[below(std::size(kMessageSizes))];
    uint64_t &number = (tagged ? tagged_sent_ : untagged_sent_)[s - 1];
    message->bytes = pattern(size, unsigned(s * 7919 + number));
    const uint64_t head[2] = {s << 1 | tagged, number};
    std::memcpy(message->bytes.data(), head, kHead);
    const fi_addr_t to = net_.at(s, 0);
    fid_ep *const ep = net_[s].ep;
    const ssize_t rc =
        tagged ? fi_tsend(ep, message->bytes.data(), size, nullptr, to, s, message.get())
               : fi_send(ep, message->bytes.data(), size, nullptr, to, message.get());
    if (rc == -FI_EAGAIN) {
      read(s);
      return false;
    }
    EXPECT_EQ(rc, 0) << error_text(rc);
    ++number;
    messages_alive_.push_back(std::move(message));
    return true;
  }

  // One receive for each message: of a tag where there are more messages with it than receives.
  bool post() {
    auto receive = std::make_unique<Received>();
    const size_t s = 1 + below(kSenders);
    // While a receive of a kind would never be used, none is posted.
    if (tagged_posted_[s - 1] < tagged_sent_[s - 1]) {
      receive->tagged = true;
      receive->source = s;
    } else {
      uint64_t untagged = 0;
      for (const uint64_t n : untagged_sent_) untagged += n;
      if (untagged_posted_ >= untagged) return false;
    }
    fid_ep *const ep = net_[0].ep;
    const ssize_t rc = receive->tagged ? fi_trecv(ep, receive->bytes.data(), kRoom, nullptr,
                                                  FI_ADDR_UNSPEC, s, 0, receive.get())
                                       : fi_recv(ep, receive->bytes.data(), kRoom, nullptr,
                                                 FI_ADDR_UNSPEC, receive.get());
    if (rc == -FI_EAGAIN) {
      read(0);
      return false;
    }
    EXPECT_EQ(rc, 0) << error_text(rc);
    ++(receive->tagged ? tagged_posted_[s - 1] : untagged_posted_);
    order_.push_back(std::move(receive));
    return true;
  }

  void read(size_t node) {
    net_[node].progress();
    while (const auto done = poll(net_[node].tx_cq)) {
      EXPECT_EQ(done->err, 0) << fi_strerror(done->err);
      if (done->flags & FI_SEND) {
        ++sent_;
        continue;
      }
      ++arrived_;
      check(*static_cast<Received *>(done->context), done->len);
      if (HasFailed()) return;
    }
  }

  void check(const Received &receive, size_t length) {
    uint64_t head[2];
    ASSERT_GE(length, kHead);
    std::memcpy(head, receive.bytes.data(), kHead);
    const size_t s = head[0] >> 1;
    ASSERT_TRUE(s >= 1 && s <= kSenders && (head[0] & 1) == receive.tagged);
    std::vector<uint8_t> expected = pattern(length, unsigned(s * 7919 + head[1]));
    std::memcpy(expected.data(), head, kHead);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), receive.bytes.begin()))
        << length << " bytes, message " << head[1] << " of sender " << s;
  }

  // Receives were posted in this order, so each kind got the messages of a sender in theirs.
  void check_order() {
    std::array<uint64_t, kSenders> tagged{}, untagged{};
    for (const auto &receive : order_) {
      uint64_t head[2];
      std::memcpy(head, receive->bytes.data(), kHead);
      const size_t s = head[0] >> 1;
      ASSERT_TRUE(s >= 1 && s <= kSenders);
      ASSERT_EQ(head[1], (receive->tagged ? tagged : untagged)[s - 1]++)
          << (receive->tagged ? "tagged" : "untagged") << ", sender " << s;
      if (receive->tagged) {
        ASSERT_EQ(receive->source, s);
      }
    }
  }

  std::mt19937 random_;
  const size_t messages_;
  std::vector<std::unique_ptr<Sent>> messages_alive_;  // outlive the endpoints
  std::vector<std::unique_ptr<Received>> order_;
  Net net_;
  std::array<uint64_t, kSenders> tagged_sent_{}, untagged_sent_{}, tagged_posted_{};
  uint64_t untagged_posted_ = 0;
  size_t sent_ = 0, arrived_ = 0;
};

TEST(RdmRandom, SeveralSendersAndASlowReceiver) {
  RDM_NEEDS(FI_MSG | FI_TAGGED);
  const char *const one = std::getenv("WEFT_TEST_SEED");
  const unsigned begin = one != nullptr ? unsigned(std::atoi(one)) : 1;
  const unsigned end = one != nullptr ? begin : 8;
  for (unsigned seed = begin; seed <= end && !HasFailure(); ++seed) {
    SCOPED_TRACE("WEFT_TEST_SEED=" + std::to_string(seed));
    Schedule(seed, 400).run();
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
