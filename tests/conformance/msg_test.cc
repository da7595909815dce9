// SPDX-License-Identifier: BSD-2-Clause
// Messages (fi_msg.3, fi_endpoint.3, fi_cq.3): every form of send and receive, completion levels,
// flow control.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "tests/conformance/harness.h"
#include "tests/conformance/signals.h"
#include "tests/conformance/watchdog.h"

namespace weft::conformance {
namespace {

constexpr uint64_t kData = 0x1122334455667788;

// A message of `parts` vectors, cut as evenly as possible. One vector is empty if there are too few
// bytes.
std::vector<iovec> cut(std::vector<uint8_t> &bytes, size_t parts) {
  std::vector<iovec> iov;
  size_t at = 0;
  for (size_t i = 0; i < parts; ++i) {
    const size_t end = bytes.size() * (i + 1) / parts;
    iov.push_back({bytes.data() + at, end - at});
    at = end;
  }
  return iov;
}

fi_msg message_of(const std::vector<iovec> &iov, void *context, uint64_t data = 0) {
  fi_msg message{};
  message.msg_iov = iov.data();
  message.iov_count = iov.size();
  message.context = context;
  message.data = data;
  return message;
}

// fi_cm.3: a receive may be posted at any time.
TEST(MsgEarly, ReceivesMayComeBeforeEnable) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device has no receives before fi_enable");
  std::map<Side *, std::vector<uint8_t>> in;
  Pair pair({}, {}, [&](Side &side) {
    std::vector<uint8_t> &own = in[&side];
    own.resize(100);
    EXPECT_EQ(fi_recv(side.ep, own.data(), own.size(), nullptr, 0, &own), 0);
  });
  std::vector<uint8_t> out = pattern(100, 1);
  for (auto [from, to] : {std::pair(&pair.a, &pair.b), std::pair(&pair.b, &pair.a)}) {
    must(fi_send(from->ep, out.data(), out.size(), nullptr, 0, &out));
    EXPECT_EQ(pair.wait(to->rx_cq).context, &in[to]);
    EXPECT_EQ(in[to], out);
  }
}

// ---- forms and sizes ----

class MsgSize : public ::testing::TestWithParam<size_t> {
 protected:
  // One message of the size by `send`, in both directions, checked at both ends.
  void transfer(const std::function<ssize_t(fid_ep *, std::vector<uint8_t> &, void *context)> &send,
                bool completes, bool with_data) {
    Pair pair;
    const size_t inject_size = pair.a.info->tx_attr->inject_size;
    if (!completes && GetParam() > inject_size) {
      std::vector<uint8_t> out(GetParam());
      const ssize_t rc = send(pair.a.ep, out, nullptr);
      EXPECT_LT(rc, 0) << "above inject_size";
      EXPECT_NE(rc, -FI_EAGAIN);
      return;
    }
    for (int round = 0; round < 3; ++round) {
      for (auto [from, to] : {std::pair(&pair.a, &pair.b), std::pair(&pair.b, &pair.a)}) {
        std::vector<uint8_t> out = pattern(GetParam(), unsigned(round)), in(GetParam() + 8, 0xee);
        must(fi_recv(to->ep, in.data(), GetParam(), nullptr, 0, &in));
        must(send(from->ep, out, &out));
        const Done received = pair.wait(to->rx_cq);
        ASSERT_EQ(received.err, 0);
        EXPECT_EQ(received.context, &in);
        EXPECT_EQ(received.len, out.size());
        EXPECT_EQ(received.flags, FI_RECV | FI_MSG | (with_data ? FI_REMOTE_CQ_DATA : 0));
        if (with_data) {
          EXPECT_EQ(received.data, to->arriving(kData));
        }
        EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
        for (size_t i = GetParam(); i < in.size(); ++i)
          ASSERT_EQ(in[i], 0xee) << "written behind the buffer";
        if (completes) {
          const Done sent = pair.wait(from->tx_cq);
          EXPECT_EQ(sent.err, 0);
          EXPECT_EQ(sent.context, &out);
          EXPECT_EQ(sent.flags & (FI_SEND | FI_MSG), uint64_t(FI_SEND | FI_MSG));
        }
      }
    }
    pair.settle();
    EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value());
    EXPECT_FALSE(poll_cq(pair.b.rx_cq).has_value());
  }
};
INSTANTIATE_TEST_SUITE_P(Bytes, MsgSize,
                         ::testing::Values(0, 1, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097, 65535,
                                           65536, 65537, 1 << 20, 5 << 20));

TEST_P(MsgSize, Send) {
  transfer([](fid_ep *ep, auto &out,
              void *context) { return fi_send(ep, out.data(), out.size(), nullptr, 0, context); },
           true, false);
}

TEST_P(MsgSize, Sendv) {
  size_t parts = 0;
  transfer(
      [&parts](fid_ep *ep, auto &out, void *context) {
        parts = parts % 4 + 1;
        const auto iov = cut(out, parts);
        return fi_sendv(ep, iov.data(), nullptr, iov.size(), 0, context);
      },
      true, false);
}

TEST_P(MsgSize, Sendmsg) {
  NEEDS_REMOTE_DATA(Options{});
  transfer(
      [](fid_ep *ep, auto &out, void *context) {
        const auto iov = cut(out, 3);
        const fi_msg message = message_of(iov, context, kData);
        return fi_sendmsg(ep, &message, FI_REMOTE_CQ_DATA | FI_COMPLETION);
      },
      true, true);
}

TEST_P(MsgSize, Senddata) {
  NEEDS_REMOTE_DATA(Options{});
  transfer(
      [](fid_ep *ep, auto &out, void *context) {
        return fi_senddata(ep, out.data(), out.size(), nullptr, kData, 0, context);
      },
      true, true);
}

TEST_P(MsgSize, Inject) {
  transfer(
      [](fid_ep *ep, auto &out, void *) {
        std::vector<uint8_t> copy = out;
        const ssize_t rc = fi_inject(ep, copy.data(), copy.size(), 0);
        std::fill(copy.begin(), copy.end(), 0xdd);  // the buffer is the caller's again
        return rc;
      },
      false, false);
}

TEST_P(MsgSize, Injectdata) {
  NEEDS_REMOTE_DATA(Options{});
  transfer(
      [](fid_ep *ep, auto &out, void *) {
        std::vector<uint8_t> copy = out;
        const ssize_t rc = fi_injectdata(ep, copy.data(), copy.size(), kData, 0);
        std::fill(copy.begin(), copy.end(), 0xdd);
        return rc;
      },
      false, true);
}

TEST_P(MsgSize, RecvvScatters) {
  Pair pair;
  for (size_t parts = 1; parts <= 4; ++parts) {
    std::vector<uint8_t> out = pattern(GetParam(), unsigned(parts)), in(GetParam());
    const auto iov = cut(in, parts);
    if (parts % 2 == 0) {
      must(fi_recvv(pair.b.ep, iov.data(), nullptr, iov.size(), 0, &in));
    } else {
      const fi_msg message = message_of(iov, &in);
      must(fi_recvmsg(pair.b.ep, &message, FI_COMPLETION));
    }
    must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &out));
    const Done done = pair.wait(pair.b.rx_cq);
    EXPECT_EQ(done.context, &in);
    EXPECT_EQ(done.len, out.size());
    EXPECT_EQ(in, out);
    pair.wait(pair.a.tx_cq);
  }
}

TEST_P(MsgSize, ArrivesThoughTheReceiveIsPostedLater) {
  NEEDS_WAITING_MESSAGES();
  Pair pair;
  std::vector<uint8_t> out = pattern(GetParam(), 1), in(GetParam());
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &out));
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.b.rx_cq).has_value());
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).len, out.size());
  EXPECT_EQ(in, out);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
}

// ---- arguments ----

TEST(Msg, TooManyVectorsAreRefused) {
  Pair pair;
  std::vector<uint8_t> bytes(100);
  const auto iov = cut(bytes, 100);
  EXPECT_EQ(fi_sendv(pair.a.ep, iov.data(), nullptr, 100, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_recvv(pair.a.ep, iov.data(), nullptr, 100, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_sendv(pair.a.ep, nullptr, nullptr, 2, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_recvv(pair.a.ep, nullptr, nullptr, 2, 0, nullptr), -FI_EINVAL);
}

TEST(Msg, LengthsThatOverflowAreRefused) {
  Pair pair;
  char byte;
  const iovec iov[2] = {{&byte, SIZE_MAX}, {&byte, 2}};
  EXPECT_LT(fi_sendv(pair.a.ep, iov, nullptr, 2, 0, nullptr), 0);
  EXPECT_LT(fi_recvv(pair.a.ep, iov, nullptr, 2, 0, nullptr), 0);
}

TEST(Msg, AboveMaxMsgSizeIsRefused) {
  Pair pair;
  char byte;
  if (pair.a.info->ep_attr->max_msg_size == SIZE_MAX)
    GTEST_SKIP() << "max_msg_size is without limit";
  const ssize_t rc =
      fi_send(pair.a.ep, &byte, pair.a.info->ep_attr->max_msg_size + 1, nullptr, 0, nullptr);
  EXPECT_LT(rc, 0);
  EXPECT_NE(rc, -FI_EAGAIN);
}

TEST(Msg, UnknownFlagsAreRefused) {
  Pair pair;
  const fi_msg message{};
  EXPECT_EQ(fi_sendmsg(pair.a.ep, &message, UINT64_C(1) << 59), -FI_EBADFLAGS);
  for (const uint64_t mark : {FI_MSG, FI_RMA, FI_TAGGED})  // which only layers may give a provider
    EXPECT_EQ(fi_sendmsg(pair.a.ep, &message, mark), -FI_EBADFLAGS);
  EXPECT_EQ(fi_recvmsg(pair.a.ep, &message, UINT64_C(1) << 59), -FI_EBADFLAGS);
}

TEST(Msg, AMessageOfNoVectorsIsEmpty) {
  Pair pair;
  const fi_msg message{};
  must(fi_recvmsg(pair.b.ep, &message, FI_COMPLETION));
  must(fi_sendmsg(pair.a.ep, &message, FI_COMPLETION));
  const Done done = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(done.err, 0);
  EXPECT_EQ(done.len, 0u);
}

// ---- truncation ----

class MsgTruncation : public ::testing::TestWithParam<std::pair<size_t, size_t>> {
};  // room, message
INSTANTIATE_TEST_SUITE_P(Sizes, MsgTruncation,
                         ::testing::Values(std::pair<size_t, size_t>(0, 1),
                                           std::pair<size_t, size_t>(10, 100),
                                           std::pair<size_t, size_t>(100, 20000),
                                           std::pair<size_t, size_t>(70000, 70001),
                                           std::pair<size_t, size_t>(1000, 3 << 20)));

TEST_P(MsgTruncation, IsAnErrorOfTheReceiveAndTheConnectionLives) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device ends the connection");
  const auto [room, size] = GetParam();
  Pair pair;
  const std::vector<uint8_t> out = pattern(size, 1);
  std::vector<uint8_t> in(room + 8, 0xee);
  must(fi_recv(pair.b.ep, in.data(), room, nullptr, 0, &in));
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr));
  const Done done = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(done.err, FI_ETRUNC);
  EXPECT_EQ(done.context, &in);
  EXPECT_EQ(done.olen, size - room);
  EXPECT_EQ(done.flags & (FI_RECV | FI_MSG), uint64_t(FI_RECV | FI_MSG));
  EXPECT_TRUE(std::equal(in.begin(), in.begin() + ptrdiff_t(room), out.begin()));
  for (size_t i = room; i < in.size(); ++i) ASSERT_EQ(in[i], 0xee);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);

  std::vector<uint8_t> next = pattern(5000, 2), got(5000);
  must(fi_recv(pair.b.ep, got.data(), got.size(), nullptr, 0, &got));
  must(fi_send(pair.a.ep, next.data(), next.size(), nullptr, 0, nullptr));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
  EXPECT_EQ(got, next);
}

TEST(Msg, TruncationOfAnAcknowledgedMessageIsStillAcknowledged) {
  NEEDS_LEVEL(FI_DELIVERY_COMPLETE);
  Pair pair;
  std::vector<uint8_t> out = pattern(1000, 1), in(10);
  const auto iov = cut(out, 1);
  const fi_msg message = message_of(iov, &out);
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  must(fi_sendmsg(pair.a.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  EXPECT_TRUE(is_truncation(FI_EP_MSG, pair.wait(pair.b.rx_cq).err));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &out);
}

// ---- multi-receive ----

Options multi_recv_options() {
  Options options;
  options.caps = FI_MSG | FI_RMA | FI_MULTI_RECV;
  return options;
}

TEST(MsgMultiRecv, PacksManyMessagesAndReleasesTheBuffer) {
  NEEDS_OFFER(multi_recv_options(), "FI_MULTI_RECV");
  Pair pair(multi_recv_options());
  size_t least = 256;
  must(fi_setopt(pair.b.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  std::vector<uint8_t> buffers[2] = {std::vector<uint8_t>(4096), std::vector<uint8_t>(4096)};
  for (auto &buffer : buffers) post_multi(pair.b.ep, buffer);
  constexpr int kCount = 60;
  std::deque<std::vector<uint8_t>> out;
  size_t sent = 0;
  for (int i = 0; i < kCount && sent < 2 * (4096 - 256 - 100); ++i) {
    out.push_back(pattern(size_t(1 + i * 7 % 200), unsigned(i)));
    sent += out.back().size();
    pair.post([&] {
      return fi_send(pair.a.ep, out.back().data(), out.back().size(), nullptr, 0, nullptr);
    });
  }
  std::vector<uint8_t> *current = &buffers[0];
  uint8_t *expected = buffers[0].data();
  int released = 0;
  for (const auto &message : out) {
    Done done = pair.wait(pair.b.rx_cq);
    if (!(done.flags & FI_RECV)) {  // a release of its own
      EXPECT_NE(done.flags & FI_MULTI_RECV, 0u);
      EXPECT_EQ(done.context, current);
      ++released;
      done = pair.wait(pair.b.rx_cq);
    }
    ASSERT_EQ(done.err, 0);
    if (done.context != current) {
      ASSERT_EQ(done.context, &buffers[1]);
      current = &buffers[1];
      expected = buffers[1].data();
    }
    EXPECT_EQ(done.len, message.size());
    EXPECT_GE(static_cast<uint8_t *>(done.buf), expected) << "messages do not overlap";
    expected = static_cast<uint8_t *>(done.buf) + done.len;
    ASSERT_LE(expected, current->data() + current->size());
    EXPECT_EQ(memcmp(done.buf, message.data(), message.size()), 0);
    if (done.flags & FI_MULTI_RECV) ++released;
  }
  // The first buffer is used up, and was given back once.
  EXPECT_EQ(current, &buffers[1]);
  EXPECT_EQ(released, 1);
}

TEST(MsgMultiRecv, ABufferBelowTheMinimumIsReleased) {
  NEEDS_OFFER(multi_recv_options(), "FI_MULTI_RECV");
  Pair pair(multi_recv_options());
  size_t least = 100;
  must(fi_setopt(pair.b.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  std::vector<uint8_t> buffer(150), out = pattern(60, 1);
  post_multi(pair.b.ep, buffer);
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr));
  Done done = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(done.buf, buffer.data());
  EXPECT_EQ(done.len, out.size());
  if (!(done.flags & FI_MULTI_RECV)) done = pair.wait(pair.b.rx_cq);  // separately
  EXPECT_NE(done.flags & FI_MULTI_RECV, 0u);
  EXPECT_EQ(done.context, &buffer);
}

TEST(MsgMultiRecv, IsReleasedThoughCompletionsAreSelective) {
  NEEDS_OFFER(multi_recv_options(), "FI_MULTI_RECV");
  Options options = multi_recv_options();
  options.rx_cq_flags = FI_SELECTIVE_COMPLETION;
  Pair pair(options);
  size_t least = 100;
  must(fi_setopt(pair.b.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  std::vector<uint8_t> buffer(1000), out = pattern(300, 1);
  post_multi(pair.b.ep, buffer);
  for (int i = 0; i < 4; ++i) {
    must(fi_send(pair.a.ep, out.data(), i < 3 ? 300 : 10, nullptr, 0, nullptr));
    pair.wait(pair.a.tx_cq);
  }
  const Done done = pair.wait(pair.b.rx_cq);
  EXPECT_NE(done.flags & FI_MULTI_RECV, 0u);
  EXPECT_EQ(done.context, &buffer);
}

// Empty messages use up no buffer: the completion queue bounds their number (fi_domain.3,
// FI_RM_ENABLED).
TEST(MsgMultiRecv, EmptyMessagesDoNotFillAQueueBeyondItsSize) {
  NEEDS_OFFER(multi_recv_options(), "FI_MULTI_RECV");
  constexpr size_t kQueue = 32, kMessages = 20000;
  Options options = multi_recv_options();
  options.rx_cq.size = kQueue;
  Pair pair(options);
  std::vector<uint8_t> buffer(1 << 20);
  post_multi(pair.b.ep, buffer);
  size_t sent = 0;
  for (int quiet = 0; quiet < 500 && sent < kMessages; ++quiet) {
    while (sent < kMessages && fi_inject(pair.a.ep, nullptr, 0, 0) == 0) {
      ++sent;
      quiet = 0;
    }
    // Progress, without a read of this queue.
    for (fid_cq *cq : {pair.a.tx_cq.get(), pair.b.tx_cq.get()}) fi_cq_read(cq, nullptr, 0);
  }
  std::vector<fi_cq_tagged_entry> entries(kMessages);
  const ssize_t n = fi_cq_read(pair.b.rx_cq, entries.data(), entries.size());
  ASSERT_GT(n, 0);
  EXPECT_LE(size_t(n), kQueue);
  size_t received = size_t(n);
  EXPECT_TRUE(pair.until([&] {
    while (const auto done = poll_cq(pair.b.rx_cq)) received += done->err == 0;
    return received == sent;
  })) << received
      << " of " << sent;
}

TEST(MsgMultiRecv, ThousandsOfMessages) {
  NEEDS_OFFER(multi_recv_options(), "FI_MULTI_RECV");
  Pair pair(multi_recv_options());
  constexpr int kCount = 5000, kSize = 100;
  std::vector<std::vector<uint8_t>> buffers(4, std::vector<uint8_t>(16384));
  for (auto &buffer : buffers) post_multi(pair.b.ep, buffer);
  std::vector<uint8_t> out(kSize);
  int sent = 0, received = 0;
  ASSERT_TRUE(pair.until([&] {
    while (sent < kCount) {
      memcpy(out.data(), &sent, sizeof sent);
      if (fi_inject(pair.a.ep, out.data(), out.size(), 0) != 0) break;
      ++sent;
    }
    while (auto done = poll_cq(pair.b.rx_cq)) {
      EXPECT_EQ(done->err, 0);
      if (done->flags & FI_RECV) {
        int number;
        memcpy(&number, done->buf, sizeof number);
        EXPECT_EQ(number, received);
        EXPECT_EQ(done->len, size_t(kSize));
        ++received;
      }
      if (done->flags & FI_MULTI_RECV)
        post_multi(pair.b.ep, *static_cast<std::vector<uint8_t> *>(done->context));
    }
    return received == kCount || ::testing::Test::HasFailure();
  }));
}

TEST(MsgMultiRecv, AMessageLongerThanTheWholeBufferIsCut) {
  NEEDS_OFFER(multi_recv_options(), "FI_MULTI_RECV");
  Pair pair(multi_recv_options());
  std::vector<uint8_t> buffer(500), out = pattern(700, 1);
  post_multi(pair.b.ep, buffer);
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr));
  const Done done = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(done.err, FI_ETRUNC);
  EXPECT_EQ(done.olen, 200u);
  EXPECT_EQ(memcmp(buffer.data(), out.data(), buffer.size()), 0);
}

// ---- completions ----

TEST(Msg, SelectiveCompletionReportsWhatAsksForIt) {
  Options options;
  options.tx_cq_flags = options.rx_cq_flags = FI_SELECTIVE_COMPLETION;
  Pair pair(options);
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  const auto send_iov = cut(out, 1), recv_iov = cut(in, 1);
  int quiet, loud;
  const fi_msg quiet_send = message_of(send_iov, &quiet), loud_send = message_of(send_iov, &loud);
  const fi_msg quiet_recv = message_of(recv_iov, &quiet), loud_recv = message_of(recv_iov, &loud);
  must(fi_recvmsg(pair.b.ep, &quiet_recv, 0));
  must(fi_recvmsg(pair.b.ep, &loud_recv, FI_COMPLETION));
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &quiet));
  must(fi_recvmsg(pair.b.ep, &loud_recv, FI_COMPLETION));
  must(fi_sendmsg(pair.a.ep, &quiet_send, 0));
  must(fi_sendmsg(pair.a.ep, &loud_send, FI_COMPLETION));
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &quiet));
  must(fi_sendmsg(pair.a.ep, &loud_send, FI_COMPLETION));
  for (fid_cq *cq : {pair.b.rx_cq.get(), pair.a.tx_cq.get()}) {
    EXPECT_EQ(pair.wait(cq).context, &loud);
    EXPECT_EQ(pair.wait(cq).context, &loud);
  }
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.b.rx_cq).has_value());
  EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value());
}

TEST(Msg, DefaultFlagsOfTheEndpointApplyToPlainCalls) {
  Options options;
  options.tx_cq_flags = FI_SELECTIVE_COMPLETION;
  options.tx_op_flags = FI_COMPLETION;
  Pair pair(options);
  std::vector<uint8_t> out(8), in(8);
  for (int i = 0; i < 2; ++i) must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &out));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &out);
  // fi_sendmsg's own flags replace them.
  const auto iov = cut(out, 1);
  const fi_msg message = message_of(iov, &out);
  must(fi_sendmsg(pair.a.ep, &message, 0));
  pair.wait(pair.b.rx_cq);
  pair.wait(pair.b.rx_cq);
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value());
}

class MsgLevel : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Levels, MsgLevel,
                         ::testing::Values(FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
                                           FI_DELIVERY_COMPLETE));

TEST_P(MsgLevel, CompletesOnceAndInOrder) {
  NEEDS_OFFER(Options{.tx_op_flags = GetParam()}, "this level");
  Pair pair;
  constexpr int kCount = 30;
  std::vector<std::vector<uint8_t>> out(kCount), in(kCount);
  for (int i = 0; i < kCount; ++i) {
    out[i] = pattern(size_t(i) * 700, unsigned(i));
    in[i].resize(out[i].size());
    must(fi_recv(pair.b.ep, in[i].data(), in[i].size(), nullptr, 0, &in[i]));
  }
  for (int i = 0; i < kCount; ++i) {
    const auto iov = cut(out[i], 2);
    const fi_msg message = message_of(iov, &out[i]);
    pair.post([&] { return fi_sendmsg(pair.a.ep, &message, GetParam() | FI_COMPLETION); });
  }
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &out[i]);
    EXPECT_EQ(pair.wait(pair.b.rx_cq).context, &in[i]);
    EXPECT_EQ(in[i], out[i]);
  }
}

TEST(Msg, DeliveryCompleteWaitsForTheReceive) {
  NEEDS_LEVEL(FI_DELIVERY_COMPLETE);
  Pair pair;
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  const auto iov = cut(out, 1);
  const fi_msg message = message_of(iov, &out);
  must(fi_sendmsg(pair.a.ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value()) << "no receive was posted";
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &out);
  EXPECT_EQ(in, out) << "delivered when the sender is told so";
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, &in);
}

TEST(Msg, DeliveryCompleteAsDefaultOfTheEndpoint) {
  NEEDS_LEVEL(FI_DELIVERY_COMPLETE);
  Options options;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  Pair pair(options);
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  must(fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, &out));
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value());
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &out);
  EXPECT_EQ(in, out);
}

TEST(Msg, AcknowledgementsCrossWithData) {
  NEEDS_LEVEL(FI_DELIVERY_COMPLETE);
  // Both sides stream and ask for acknowledgements of everything.
  Pair pair;
  constexpr int kCount = 300;
  std::vector<uint8_t> out = pattern(3000, 1);
  std::vector<uint8_t> in_a(3000), in_b(3000);
  const auto iov = cut(out, 1);
  const fi_msg message = message_of(iov, nullptr);
  struct Flow {
    Side *side;
    std::vector<uint8_t> *in;
    int posted = 0, received = 0, sent = 0, acknowledged = 0;
  } flows[] = {{&pair.a, &in_a}, {&pair.b, &in_b}};
  ASSERT_TRUE(pair.until([&] {
    bool done = true;
    for (Flow &f : flows) {
      while (f.posted < kCount && f.posted - f.received < 8 &&
             fi_recv(f.side->ep, f.in->data(), f.in->size(), nullptr, 0, nullptr) == 0)
        ++f.posted;
      while (f.sent < kCount &&
             fi_sendmsg(f.side->ep, &message, FI_DELIVERY_COMPLETE | FI_COMPLETION) == 0)
        ++f.sent;
      while (auto c = poll_cq(f.side->rx_cq)) f.received += c->err == 0;
      while (auto c = poll_cq(f.side->tx_cq)) f.acknowledged += c->err == 0;
      done = done && f.received == kCount && f.acknowledged == kCount;
    }
    return done;
  }));
}

TEST(Msg, InjectFlagGivesTheBufferBack) {
  Pair pair;
  std::vector<uint8_t> out = pattern(60, 1), in(60);
  const std::vector<uint8_t> expected = out;
  const auto iov = cut(out, 2);
  const fi_msg message = message_of(iov, &out);
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  must(fi_sendmsg(pair.a.ep, &message, FI_INJECT | FI_COMPLETION | FI_MORE));
  std::fill(out.begin(), out.end(), 0xdd);
  pair.wait(pair.b.rx_cq);
  EXPECT_EQ(in, expected);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &out)
      << "unlike fi_inject, the flag does not silence the completion";
}

TEST(Msg, MessagesWithFI_MORELeaveInTheEnd) {
  Pair pair;
  constexpr int kCount = 100;
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  const auto iov = cut(out, 1);
  const fi_msg message = message_of(iov, &out);
  for (int i = 0; i < kCount; ++i) must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  // The last one has FI_MORE, too; the next progress sends it all the same.
  for (int i = 0; i < kCount; ++i) must(fi_sendmsg(pair.a.ep, &message, FI_MORE | FI_COMPLETION));
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
    EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
  }
}

TEST(Msg, FenceWaitsForWhatWasSentBefore) {
  NEEDS_LEVEL(FI_DELIVERY_COMPLETE);
  Pair pair;
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  const auto iov = cut(out, 1);
  int first, second, third;
  const fi_msg acknowledged = message_of(iov, &first), fenced = message_of(iov, &second),
               last = message_of(iov, &third);
  must(fi_sendmsg(pair.a.ep, &acknowledged, FI_DELIVERY_COMPLETE | FI_COMPLETION));
  must(fi_sendmsg(pair.a.ep, &fenced, FI_FENCE | FI_COMPLETION));
  must(fi_sendmsg(pair.a.ep, &last, FI_COMPLETION));
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value())
      << "the fenced one, and what is behind it, must wait for the first";
  for (int i = 0; i < 3; ++i) must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, nullptr));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &first);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &second);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &third);
}

TEST(Msg, AMatchWaitsForTheReceive) {
  NEEDS_LEVEL(FI_MATCH_COMPLETE);
  Pair pair;
  for (const size_t size : {0, 64, 100000}) {
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    const auto iov = cut(out, 1);
    const fi_msg message = message_of(iov, &out);
    must(fi_sendmsg(pair.a.ep, &message, FI_MATCH_COMPLETE | FI_COMPLETION));
    pair.settle();
    EXPECT_FALSE(poll_cq(pair.a.tx_cq).has_value()) << "there is no receive yet";
    must(fi_recv(pair.b.ep, in.data(), size, nullptr, 0, &in));
    EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &out);
    EXPECT_EQ(pair.wait(pair.b.rx_cq).context, &in);
    EXPECT_EQ(in, out);
  }
}

TEST(Msg, FenceAfterAReadSeesItsResult) {
  Pair pair;
  std::vector<uint8_t> memory = pattern(200000, 1), got(200000), out(1), in(1);
  fid_mr *region = pair.b.expose(memory.data(), memory.size(), FI_REMOTE_READ, 7);
  must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
  must(fi_read(pair.a.ep, got.data(), got.size(), nullptr, 0, pair.b.base_of(memory.data()),
               fi_mr_key(region), &got));
  const auto iov = cut(out, 1);
  const fi_msg message = message_of(iov, &out);
  must(fi_sendmsg(pair.a.ep, &message, FI_FENCE | FI_COMPLETION));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &got);
  EXPECT_EQ(got, memory);
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &out);
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, &in);
}

// ---- cancelling ----

// Programs that know a message's length rely on what lies behind it in the buffer (MPI 4.0, 3.2.4).
TEST(Msg, BytesBehindAShorterMessageStay) {
  constexpr size_t kRoom = 100000;
  const size_t sizes[] = {65536, 65536, 20000, 65536, 1, 65536, 0, 65536, 40000, 99999};
  Pair pair;
  const std::vector<uint8_t> out = pattern(kRoom, 3);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<uint8_t>> in(std::size(sizes), std::vector<uint8_t>(kRoom, 0xaa));
    for (auto &buffer : in)
      must(fi_recv(pair.b.ep, buffer.data(), buffer.size(), nullptr, 0, &buffer));
    for (size_t size : sizes)
      pair.post([&] { return fi_send(pair.a.ep, out.data(), size, nullptr, 0, nullptr); });
    for (size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(pair.wait(pair.b.rx_cq).len, sizes[i]);
      // At once: the next message could overwrite bytes that were written beyond the end.
      for (size_t k = i; k < in.size(); ++k)
        EXPECT_EQ(std::count(in[k].begin() + long(sizes[k]), in[k].end(), 0xaa),
                  long(kRoom - sizes[k]))
            << "of message " << k;
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + long(sizes[i]), in[i].begin()));
    }
    for (size_t i = 0; i < in.size(); ++i) pair.wait(pair.a.tx_cq);
  }
}

TEST(Msg, CancelEndsAReceive) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device does not give receives back");
  Pair pair;
  char buffers[3][4];
  for (char *buffer : buffers) must(fi_recv(pair.b.ep, buffer, 4, nullptr, 0, buffer));
  EXPECT_EQ(fi_cancel(pair.b.ep.fid(), buffers[1]), 0);
  const Done done = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(done.context, buffers[1]);
  EXPECT_EQ(done.err, FI_ECANCELED);
  EXPECT_EQ(done.flags & FI_RECV, uint64_t(FI_RECV));
  // The others are still there, in order.
  must(fi_send(pair.a.ep, "one", 4, nullptr, 0, nullptr));
  must(fi_send(pair.a.ep, "two", 4, nullptr, 0, nullptr));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, buffers[0]);
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, buffers[2]);
  EXPECT_STREQ(buffers[0], "one");
  EXPECT_STREQ(buffers[2], "two");
}

TEST(Msg, CancelOfTheLastReceiveLeavesTheQueueUsable) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device does not give receives back");
  Pair pair;
  char first[4], second[4], third[4];
  must(fi_recv(pair.b.ep, first, 4, nullptr, 0, first));
  must(fi_recv(pair.b.ep, second, 4, nullptr, 0, second));
  must(fi_cancel(pair.b.ep.fid(), second));
  must(fi_cancel(pair.b.ep.fid(), first));
  must(fi_recv(pair.b.ep, third, 4, nullptr, 0, third));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, second);
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, first);
  must(fi_send(pair.a.ep, "six", 4, nullptr, 0, nullptr));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).context, third);
  EXPECT_STREQ(third, "six");
}

// fi_endpoint.3, fi_cancel: operations posted without a context cannot be cancelled.
TEST(Msg, AReceiveWithoutAContextIsNotCancelled) {
  Pair pair;
  char in[4], out[4] = "abc";
  must(fi_recv(pair.b.ep, in, 4, nullptr, 0, nullptr));
  EXPECT_EQ(fi_cancel(pair.b.ep.fid(), nullptr), -FI_ENOENT);
  must(fi_send(pair.a.ep, out, 4, nullptr, 0, out));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
}

// A cancelled multi-receive buffer is returned when the message that fills it is complete, with the
// reason.
TEST(Msg, CancelOfABufferThatIsBeingFilledWaits) {
  Options options;
  options.caps = FI_MSG | FI_MULTI_RECV;
  NEEDS_OFFER(options, "FI_MULTI_RECV");
  Pair pair(options);
  constexpr size_t kSize = 8 << 20;
  std::vector<uint8_t> buffer(2 * kSize), out = pattern(kSize, 3);
  post_multi(pair.b.ep, buffer);
  must(fi_send(pair.a.ep, out.data(), kSize, nullptr, 0, nullptr));
  for (const Deadline deadline; buffer[1] != out[1] && !deadline.passed();) pair.b.progress();
  EXPECT_EQ(fi_cancel(pair.b.ep.fid(), &buffer), 0);
  EXPECT_FALSE(poll_cq(pair.b.rx_cq).has_value());
  Done done = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(done.err, 0);
  EXPECT_EQ(done.len, kSize);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), buffer.begin()));
  done = pair.wait(pair.b.rx_cq);
  EXPECT_EQ(done.context, &buffer);
  EXPECT_EQ(done.err, FI_ECANCELED);
  EXPECT_NE(done.flags & FI_MULTI_RECV, 0u);
}

TEST(Msg, CancelOfACompletedReceiveDoesNothing) {
  Pair pair;
  char in[4], out[4] = "abc";
  must(fi_recv(pair.b.ep, in, 4, nullptr, 0, in));
  must(fi_send(pair.a.ep, out, 4, nullptr, 0, out));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
  fi_cancel(pair.b.ep.fid(), in);
  fi_cancel(pair.b.ep.fid(), &pair);
  pair.settle();
  EXPECT_FALSE(poll_cq(pair.b.rx_cq).has_value());
}

// ---- full queues ----

TEST(Msg, AFullTransmitQueueIsEAGAINAndRecovers) {
  NEEDS_WAITING_MESSAGES();
  Options options;
  options.tx_size = 16;
  Pair pair(options);
  std::vector<uint8_t> out = pattern(100000, 1), in(100000);
  int sent = 0;
  // Nothing is received: in the end neither queue nor socket takes more.
  ssize_t rc = 0;
  while (sent < 10000 &&
         (rc = fi_send(pair.a.ep, out.data(), out.size(), nullptr, 0, nullptr)) == 0)
    ++sent;
  ASSERT_EQ(rc, -FI_EAGAIN);
  EXPECT_GE(sent, 16);
  for (int received = 0; received < sent; ++received) {
    must(fi_recv(pair.b.ep, in.data(), in.size(), nullptr, 0, &in));
    EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
    EXPECT_EQ(in, out);
    std::fill(in.begin(), in.end(), 0);
  }
  for (int i = 0; i < sent; ++i) EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
  EXPECT_EQ(fi_send(pair.a.ep, out.data(), 1, nullptr, 0, nullptr), 0);
}

TEST(Msg, AFullReceiveQueueOfADeviceIsEAGAINAndRecovers) {
  if (!is_of_a_device(FI_EP_MSG)) GTEST_SKIP() << "software takes more";
  Options options;
  options.rx_size = 16;
  Pair pair(options);
  char in[4];
  int posted = 0;
  ssize_t rc = 0;
  while (posted < 100000 && (rc = fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr)) == 0)
    ++posted;
  ASSERT_EQ(rc, -FI_EAGAIN);
  EXPECT_GE(posted, 16);
  must(fi_send(pair.a.ep, "abc", 4, nullptr, 0, nullptr));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
  EXPECT_EQ(fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr), 0);
}

// Software takes as many as there is memory for, without progress in between, and before the
// application has read a completion.
TEST(Msg, ReceivesAreTakenBeyondTheSize) {
  NEEDS_SOFTWARE(FI_EP_MSG, "a device has as many as rx_attr.size says");
  covers("limits");
  constexpr size_t kLimit = 16;
  for (const bool shared : {false, true}) {
    for (const size_t count : {kLimit - 1, kLimit, kLimit + 1, 10 * kLimit, size_t(100'000)}) {
      SCOPED_TRACE(count);
      std::vector<uint32_t> in(count);
      Options options;
      options.rx_size = kLimit;
      options.rx_cq.size = 8;
      options.shared_receive = shared;
      Pair pair(options);
      Watchdog watchdog;
      fid_ep *const to = shared ? pair.b.srx.get() : pair.b.ep.get();
      const auto receive = [&](size_t i) {
        ASSERT_EQ(
            watchdog.call("fi_recv", [&] { return fi_recv(to, &in[i], 4, nullptr, 0, &in[i]); }), 0)
            << i;
      };
      // Some wait on the wire until the receives are there.
      const auto send = [&](uint32_t i) {
        pair.post([&] { return fi_inject(pair.a.ep, &i, 4, 0); });
      };
      const size_t some = std::min<size_t>(count, 200);
      for (uint32_t i = 0; i < some / 2; ++i) send(i);
      for (size_t i = 0; i < count; ++i) receive(i);
      if (::testing::Test::HasFatalFailure()) return;
      for (uint32_t i = uint32_t(some / 2); i < some; ++i) send(i);
      for (size_t i = 0; i < some; ++i) {
        const Done done = pair.wait(pair.b.rx_cq);
        ASSERT_EQ(done.err, 0);
        ASSERT_EQ(done.context, &in[i]);
        ASSERT_EQ(in[i], i);
      }
    }
  }
}

TEST(Msg, InjectingWithoutEverMakingProgressIsBoundedAndRecovers) {
  NEEDS_WAITING_MESSAGES();
  Pair pair;
  char out[100] = {}, in[100];
  ssize_t rc = 0;
  int sent = 0;
  while (sent < 10000000 && (rc = fi_inject(pair.a.ep, out, sizeof out, 0)) == 0) ++sent;
  ASSERT_EQ(rc, -FI_EAGAIN);
  int received = 0, posted = 0;
  ASSERT_TRUE(pair.until([&] {
    for (; posted < sent; ++posted)
      if (fi_recv(pair.b.ep, in, sizeof in, nullptr, 0, nullptr) != 0) break;
    while (auto done = poll_cq(pair.b.rx_cq)) received += done->err == 0;
    return received == sent;
  }));
}

// ---- flow control ----

TEST(MsgFlow, TensOfMegabytesBothWaysAtOnce) {
  NEEDS_WAITING_MESSAGES();
  // Both sides send all they can before they post receives: nothing may deadlock, nothing may be
  // lost.
  Pair pair;
  constexpr size_t kSizes[] = {100, 4000, 65536, 200000, 1000000};
  constexpr size_t kTotal = 50u << 20;  // in each direction
  struct Flow {
    Side *side;
    std::vector<std::vector<uint8_t>> out, in;
    size_t sent = 0, posted = 0, received = 0, bytes = 0;
  } flows[2];
  flows[0].side = &pair.a;
  flows[1].side = &pair.b;
  std::vector<size_t> plan;
  for (size_t total = 0; total < kTotal; total += plan.back())
    plan.push_back(kSizes[plan.size() % std::size(kSizes)]);
  std::vector<std::vector<uint8_t>> sources;
  for (size_t i = 0; i < std::size(kSizes); ++i) sources.push_back(pattern(kSizes[i], unsigned(i)));
  for (Flow &f : flows) f.in.assign(8, std::vector<uint8_t>(kSizes[std::size(kSizes) - 1]));
  const auto send_all = [&](Flow &f) {
    while (f.sent < plan.size()) {
      const auto &source = sources[f.sent % sources.size()];
      if (fi_send(f.side->ep, source.data(), source.size(), nullptr, 0, nullptr) != 0) break;
      ++f.sent;
    }
  };
  for (Flow &f : flows) send_all(f);
  pair.settle();
  ASSERT_TRUE(pair.until([&] {
    for (Flow &f : flows) {
      send_all(f);
      while (f.posted < plan.size() && f.posted - f.received < f.in.size()) {
        auto &in = f.in[f.posted % f.in.size()];
        if (fi_recv(f.side->ep, in.data(), in.size(), nullptr, 0, &in) != 0) break;
        ++f.posted;
      }
      while (poll_cq(f.side->tx_cq)) {
      }
      while (auto done = poll_cq(f.side->rx_cq)) {
        const auto &expected = sources[f.received % sources.size()];
        const auto &in = *static_cast<std::vector<uint8_t> *>(done->context);
        EXPECT_EQ(done->err, 0);
        EXPECT_EQ(done->len, expected.size());
        EXPECT_EQ(memcmp(in.data(), expected.data(), expected.size()), 0)
            << "message " << f.received;
        ++f.received;
      }
    }
    return (flows[0].received == plan.size() && flows[1].received == plan.size()) ||
           ::testing::Test::HasFailure();
  }));
}

TEST(MsgFlow, SmallMessagesWithoutReceivesBothWays) {
  NEEDS_WAITING_MESSAGES();
  Pair pair;
  // A device tries again after a while for each message that finds no receive.
  const int kCount = is_of_a_device(FI_EP_MSG) ? 500 : 20000;
  struct Flow {
    Side *side;
    int sent = 0, received = 0;
  } flows[] = {{&pair.a}, {&pair.b}};
  const auto send_all = [kCount](Flow &f) {
    while (f.sent < kCount && fi_inject(f.side->ep, &f.sent, sizeof f.sent, 0) == 0) ++f.sent;
  };
  for (Flow &f : flows) send_all(f);
  pair.settle();
  ASSERT_TRUE(pair.until([&] {
    for (Flow &f : flows) {
      send_all(f);
      int number = -1;
      if (f.received == kCount) continue;
      const ssize_t rc = fi_recv(f.side->ep, &number, sizeof number, nullptr, 0, nullptr);
      if (rc != 0) return false;
      pair.wait(f.side->rx_cq);
      EXPECT_EQ(number, f.received);
      ++f.received;
    }
    return (flows[0].received == kCount && flows[1].received == kCount) ||
           ::testing::Test::HasFailure();
  }));
}

TEST(MsgFlow, AReadIsAnsweredThoughMessagesWaitForReceives) {
  NEEDS_WAITING_MESSAGES();
  // One direction is full of messages without receives. Reads in the other direction need no
  // receive.
  Pair pair;
  std::vector<uint8_t> memory = pattern(4096, 1), got(4096);
  fid_mr *region = pair.b.expose(memory.data(), memory.size(), FI_REMOTE_READ, 7);
  std::vector<uint8_t> out(1000);
  for (int i = 0; i < 50; ++i)
    must(fi_send(pair.b.ep, out.data(), out.size(), nullptr, 0, nullptr));
  must(fi_read(pair.a.ep, got.data(), got.size(), nullptr, 0, pair.b.base_of(memory.data()),
               fi_mr_key(region), &got));
  pair.settle();
  std::vector<uint8_t> in(1000);
  for (int i = 0; i < 50; ++i) must(fi_recv(pair.a.ep, in.data(), in.size(), nullptr, 0, nullptr));
  EXPECT_EQ(pair.wait(pair.a.tx_cq).context, &got);
  EXPECT_EQ(got, memory);
}

// ---- signals ----

TEST(MsgSignals, EndBlockingCalls) {
  covers("wait objects");
  for (const enum fi_progress progress : {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO}) {
    SCOPED_TRACE(fi_tostr(&progress, FI_TYPE_PROGRESS));
    Options options;
    options.progress = progress;
    if (!find_info(options)) continue;
    const Pair pair(options);
    signals_end_blocking_calls(pair.a);
  }
}

}  // namespace
}  // namespace weft::conformance
