// SPDX-License-Identifier: BSD-2-Clause
// Buffers that take many messages (fi_msg.3, FI_MULTI_RECV; fi_endpoint.3, FI_OPT_MIN_MULTI_RECV).
#include <algorithm>
#include <cstring>
#include <deque>
#include <random>

#include "tests/conformance/devices.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

class RdmMultiRecv : public ::testing::Test {
 protected:
  static Options with_multi_recv() {
    Options options;
    options.caps = FI_MSG | FI_MULTI_RECV;
    return options;
  }
  static void send(Net &net, std::vector<uint8_t> &out) {
    net.post(
        [&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), &out); });
    net.wait(net[0].tx_cq);
  }
  static void set_minimum(Node &node, size_t bytes) {
    must(fi_setopt(node.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &bytes, sizeof bytes));
  }
};

TEST_F(RdmMultiRecv, MessagesFillABufferUntilTooLittleIsLeft) {
  RDM_NEEDS(FI_MSG | FI_MULTI_RECV);
  Net net(2, with_multi_recv(), [](Node &node) { set_minimum(node, 64); });
  size_t minimum = 0, length = sizeof minimum;
  must(fi_getopt(net[1].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &minimum, &length));
  EXPECT_EQ(minimum, 64u);
  for (size_t size : {1, 50, 64, 100, 5000, 40000}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> buffer(size * 5 +
                                63);  // after five messages less than the minimum is left
    post_multi(net[1].ep, buffer);
    const size_t expected = (buffer.size() - 64) / size + 1;
    size_t used = 0;
    for (size_t i = 0; i < expected; ++i) {
      const bool last = i + 1 == expected;
      std::vector<uint8_t> out = pattern(size, unsigned(i));
      send(net, out);
      const Completion got = net.wait(net[1].rx_cq);
      ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
      EXPECT_EQ(got.context, &buffer);
      EXPECT_EQ(got.len, size);
      auto *at = static_cast<uint8_t *>(got.buf);
      ASSERT_GE(at, buffer.data() + used) << "over an earlier message";
      ASSERT_LE(at + size, buffer.data() + buffer.size());
      EXPECT_TRUE(std::equal(out.begin(), out.end(), at));
      used = size_t(at - buffer.data()) + size;
      bool released = got.flags & FI_MULTI_RECV;
      if (last && !released) {  // the release may be a completion of its own
        const Completion release = net.wait(net[1].rx_cq);
        EXPECT_EQ(release.context, &buffer);
        released = release.flags & FI_MULTI_RECV;
      }
      EXPECT_EQ(released, last) << "message " << i << " of " << expected;
    }
  }
}

// A queue without room at the moment in which the last message of a buffer is complete: whatever it
// is that has to wait, nothing is told of a buffer after its release.
TEST_F(RdmMultiRecv, NothingFollowsTheReleaseOfABuffer) {
  RDM_NEEDS(FI_MSG | FI_TAGGED | FI_MULTI_RECV);
  constexpr size_t kLonger = 300'000, kRest = 20'000, kShort = 100, kMostOthers = 24;
  std::vector<uint8_t> buffer(kLonger + kRest), longer = pattern(kLonger, 1),
                                                shorter = pattern(kShort, 2), in(kShort);
  for (size_t others = 0; others < kMostOthers; ++others) {
    SCOPED_TRACE(others);
    Options options = with_multi_recv();
    options.caps |= FI_TAGGED;
    options.rx_cq.size = 8;
    Net net(2, options, [](Node &node) { set_minimum(node, kRest); });
    post_multi(net[1].ep, buffer);
    for (size_t i = 0; i < others; ++i)
      must(fi_trecv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    const auto post_send = [&](std::vector<uint8_t> &out) {
      net.post(
          [&] { return fi_send(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), &out); });
    };
    net.set_asleep(1, true);
    post_send(longer);
    post_send(shorter);
    for (size_t i = 0; i < others; ++i)
      net.post([&] {
        return fi_tsend(net[0].ep, shorter.data(), kShort, nullptr, net.at(0, 1), 1, &shorter);
      });
    net.set_asleep(1, false);
    // Nobody reads the queue meanwhile.
    for (int round = 0; round < 2000; ++round) {
      net.progress();
      while (poll_cq(net[0].tx_cq)) {
      }
    }
    size_t messages = 0, received = 0;
    bool is_released = false;
    EXPECT_TRUE(net.until([&] {
      while (poll_cq(net[0].tx_cq)) {
      }
      while (const auto done = poll_cq(net[1].rx_cq)) {
        EXPECT_EQ(done->err, 0);
        if (done->context != &buffer) {
          ++received;
          continue;
        }
        EXPECT_FALSE(is_released) << "a message of " << done->len << " bytes";
        messages += done->len != 0;
        is_released |= (done->flags & FI_MULTI_RECV) != 0;
      }
      return messages == 2 && is_released && received == others;
    }));
  }
}

// A message that does not fit ends with an error, and uses the buffer up; or it waits for a larger
// buffer, as a NIC has it, and a smaller message uses this one up. Neither message is lost.
TEST_F(RdmMultiRecv, ABufferThatIsTooSmallIsReleasedOnce) {
  RDM_NEEDS(FI_MSG | FI_MULTI_RECV);
  std::vector<uint8_t> tight(64), roomy(1000), large = pattern(100, 1), small = pattern(40, 2);
  Net net(2, with_multi_recv(), [](Node &node) { set_minimum(node, 32); });
  post_multi(net[1].ep, tight);
  send(net, large);
  send(net, small);
  bool released = false;
  unsigned large_told = 0, small_told = 0;
  const auto next = [&](std::vector<uint8_t> &buffer) {
    const Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.context, &buffer) << "something followed the release";
    if (got.err != 0) {
      EXPECT_EQ(got.err, FI_ETRUNC);
      ++large_told;
    } else if (got.flags & FI_RECV) {
      ++(got.len == small.size() ? small_told : large_told);
    }
    released |= (got.flags & FI_MULTI_RECV) != 0;
  };
  while (!released) next(tight);
  post_multi(net[1].ep, roomy);
  while (large_told + small_told < 2) next(roomy);
  EXPECT_EQ(large_told, 1u);
  EXPECT_EQ(small_told, 1u);
}

TEST_F(RdmMultiRecv, TheNextBufferTakesOver) {
  RDM_NEEDS(FI_MSG | FI_MULTI_RECV);
  std::vector<std::vector<uint8_t>> buffers(4, std::vector<uint8_t>(1000));
  Net net(2, with_multi_recv(), [](Node &node) { set_minimum(node, 100); });
  for (auto &buffer : buffers) post_multi(net[1].ep, buffer);
  size_t released = 0, messages = 0;
  for (unsigned i = 0; i < 40; ++i) {
    std::vector<uint8_t> out = pattern(100, i);
    send(net, out);
    for (bool got_message = false; !got_message;) {
      const Completion got = net.wait(net[1].rx_cq);
      ASSERT_EQ(got.err, 0);
      if (got.len == 100) {
        EXPECT_EQ(0, std::memcmp(got.buf, out.data(), 100)) << "message " << i;
        got_message = true;
        ++messages;
      }
      if (got.flags & FI_MULTI_RECV) {
        EXPECT_EQ(got.context, &buffers[released]) << "released out of turn";
        ++released;
      }
    }
  }
  EXPECT_EQ(messages, 40u);
  net.settle();
  while (auto got = poll(net[1].rx_cq)) released += bool(got->flags & FI_MULTI_RECV);
  EXPECT_EQ(released, 4u);
}

TEST_F(RdmMultiRecv, UnexpectedMessagesGoIntoOneBuffer) {
  RDM_NEEDS(FI_MSG | FI_MULTI_RECV);
  std::vector<std::vector<uint8_t>> out;
  std::vector<uint8_t> buffer(1 << 16);
  Net net(2, with_multi_recv(), [](Node &node) { set_minimum(node, 64); });
  for (unsigned i = 0; i < 20; ++i) out.push_back(pattern(60, i));
  for (auto &bytes : out)
    net.post([&] { return fi_inject(net[0].ep, bytes.data(), bytes.size(), net.at(0, 1)); });
  net.settle();
  post_multi(net[1].ep, buffer);
  for (unsigned i = 0; i < 20; ++i) {
    const Completion got = net.wait(net[1].rx_cq);
    ASSERT_EQ(got.err, 0);
    EXPECT_EQ(got.len, 60u);
    EXPECT_EQ(0, std::memcmp(got.buf, out[i].data(), 60)) << "message " << i;
  }
}

// Empty messages use up no buffer: the completion queue bounds their number (fi_domain.3,
// FI_RM_ENABLED).
TEST_F(RdmMultiRecv, EmptyMessagesDoNotFillAQueueBeyondItsSize) {
  RDM_NEEDS(FI_MSG | FI_MULTI_RECV);
  constexpr size_t kQueue = 32, kMessages = 20000, kSlack = 512;  // what was read at once
  Options options = with_multi_recv();
  options.rx_cq.size = kQueue;
  std::vector<uint8_t> buffer(1 << 20);
  std::vector<fi_cq_tagged_entry> entries(kMessages);
  Net net(2, options);
  post_multi(net[1].ep, buffer);
  // Until the peers are connected, nothing comes however often they progress.
  net.post([&] { return fi_inject(net[0].ep, nullptr, 0, net.at(0, 1)); });
  ASSERT_EQ(net.wait(net[1].rx_cq).err, 0);
  size_t sent = 0, received = 0;
  for (int quiet = 0; quiet < 500 && sent < kMessages; ++quiet) {
    while (sent < kMessages && fi_inject(net[0].ep, nullptr, 0, net.at(0, 1)) == 0) {
      ++sent;
      quiet = 0;
    }
    // Progress, without a read of this queue.
    for (size_t i : {0, 1}) fi_cq_read(net[i].tx_cq, nullptr, 0);
  }
  const ssize_t n = fi_cq_read(net[1].rx_cq, entries.data(), entries.size());
  ASSERT_GT(n, 0);
  EXPECT_LE(size_t(n), kQueue + kSlack);
  received = size_t(n);
  EXPECT_TRUE(net.until([&] {
    while (const auto done = poll(net[1].rx_cq)) received += done->err == 0;
    return received == sent;
  })) << received
      << " of " << sent;
}

constexpr size_t kMany = 10000, kMost = 20000;

std::vector<uint8_t> numbered(uint32_t number, size_t size) {
  std::vector<uint8_t> bytes = pattern(std::max(size, sizeof number), number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

// Sends kMany messages of all sizes to the address that it hears, and waits for a word.
void send_many(const Options &options, int socket) {
  constexpr size_t kWindow = 300;
  std::deque<std::vector<uint8_t>> out;
  std::minstd_rand random(1);
  Node node(options);
  const fi_addr_t to = node.insert(hear_text(socket));
  size_t completed = 0;
  const Deadline deadline;
  while ((completed < kMany || !can_hear(socket)) && !deadline.passed()) {
    if (out.size() < kMany && out.size() - completed < kWindow) {
      const size_t most = random() % 2 == 0 ? kMost : 3000;
      out.push_back(numbered(uint32_t(out.size()), 1 + random() % most));
      const auto &bytes = out.back();
      if (fi_send(node.ep, bytes.data(), bytes.size(), nullptr, to, nullptr) != 0) out.pop_back();
    }
    node.progress();
    while (const auto done = poll(node.tx_cq)) {
      EXPECT_EQ(done->err, 0) << fi_strerror(done->err);
      ++completed;
    }
  }
  EXPECT_EQ(completed, kMany);
}

// Messages of all sizes, by each protocol of the stack, come from another process into few buffers,
// which are posted again when they are full. They are read in bursts, so what tells of one message
// stands between news of others, and the numbers of messages come again.
TEST_F(RdmMultiRecv, ManyMessagesUnderWayKeepApart) {
  RDM_NEEDS(FI_MSG | FI_MULTI_RECV);
  if (has_devices_inside()) GTEST_SKIP() << "no other process reaches these devices";
  if (!in_fresh_process()) return;
  Child sender([](int socket) { send_many(with_multi_recv(), socket); });
  std::vector<std::vector<uint8_t>> buffers(3, std::vector<uint8_t>(500000));
  Node node(with_multi_recv(), nullptr, [](Node &one) { set_minimum(one, kMost); });
  for (auto &buffer : buffers) post_multi(node.ep, buffer);
  tell_text(sender.socket(), node.name());
  std::vector<char> arrived(kMany);
  size_t received = 0;
  const auto check = [&](const Completion &got) {
    ASSERT_EQ(got.err, 0) << fi_strerror(got.err);
    auto &buffer = *static_cast<std::vector<uint8_t> *>(got.context);
    if (got.flags & FI_RECV) {
      const auto *const at = static_cast<const uint8_t *>(got.buf);
      uint32_t number = 0;
      ASSERT_TRUE(at >= buffer.data() && at + got.len <= buffer.data() + buffer.size());
      ASSERT_GE(got.len, sizeof number);
      std::memcpy(&number, at, sizeof number);
      ASSERT_LT(number, kMany);
      ASSERT_FALSE(arrived[number]) << "message " << number << " came twice";
      arrived[number] = true;
      ++received;
      const std::vector<uint8_t> expected = numbered(number, got.len);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), at, at + got.len))
          << "message " << number << " of " << got.len << " bytes";
    }
    if (got.flags & FI_MULTI_RECV) post_multi(node.ep, buffer);
  };
  const Deadline deadline;
  for (size_t round = 0; received < kMany; ++round) {
    ASSERT_FALSE(deadline.passed()) << received << " came";
    node.progress();
    if (round % 200 < 100) continue;
    while (const auto got = poll(node.rx_cq)) ASSERT_NO_FATAL_FAILURE(check(*got));
  }
  tell(sender.socket(), 1);
  sender.join();
}

TEST_F(RdmMultiRecv, CancelReturnsTheBuffer) {
  RDM_NEEDS(FI_MSG | FI_MULTI_RECV);
  std::vector<uint8_t> buffer(1000), out = pattern(10, 1), in(10);
  Net net(2, with_multi_recv(), [](Node &node) { set_minimum(node, 64); });
  post_multi(net[1].ep, buffer);
  send(net, out);
  EXPECT_EQ(net.wait(net[1].rx_cq).len, 10u);
  EXPECT_EQ(fi_cancel(net[1].ep.fid(), &buffer), 0);
  const Completion got = net.wait(net[1].rx_cq);
  EXPECT_EQ(got.err, FI_ECANCELED);
  EXPECT_EQ(got.context, &buffer);
  must(fi_recv(net[1].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  send(net, out);
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
}

}  // namespace
}  // namespace weft::conformance::rdm
