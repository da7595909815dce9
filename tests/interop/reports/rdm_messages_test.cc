// SPDX-License-Identifier: BSD-2-Clause
// Public reports about messages of reliable datagram endpoints: completions, cancelling, shared
// buffers, progress and waiting. reports.toml says who reported what.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "tests/conformance/harness.h"
#include "tests/interop/reports/strangers.h"

namespace weft::conformance::rdm {
namespace {

ssize_t tsend(Net &net, size_t from, size_t to, std::vector<uint8_t> &out, uint64_t tag = 1) {
  return fi_tsend(net[from].ep, out.data(), out.size(), nullptr, net.at(from, to), tag, &out);
}

void trecv(Node &node, std::vector<uint8_t> &in, uint64_t tag = 1,
           fi_addr_t from = FI_ADDR_UNSPEC) {
  must(fi_trecv(node.ep, in.data(), in.size(), nullptr, from, tag, 0, &in));
}

bool has_counters() {
  return find_info()->domain_attr->cntr_cnt != 0;
}

// With automatic progress each side waits for its own long send, while the other makes no call.
TEST(ReportedProgress, BothSendLongMessagesAndWaitInTurn) {
  Options options;
  options.progress = FI_PROGRESS_AUTO;
  NEEDS_OFFER(options, "FI_PROGRESS_AUTO");
  std::vector<uint8_t> out[2], in[2];
  for (size_t i : {0, 1}) {
    out[i] = pattern(up_to_limit(i == 0 ? 1 << 20 : 300000, options), unsigned(i));
    in[1 - i].resize(out[i].size());
  }
  Net net(2, options);
  for (size_t i : {0, 1}) net.post([&] { return tsend(net, i, 1 - i, out[i]); });
  for (size_t i : {0, 1}) trecv(net[i], in[i]);
  for (size_t i : {0, 1}) {
    net.set_asleep(1 - i, true);
    EXPECT_EQ(net.wait(net[i].tx_cq).err, 0) << "the send of " << i;
    net.set_asleep(1 - i, false);
  }
  for (size_t i : {0, 1}) {
    EXPECT_EQ(net.wait(net[i].rx_cq).err, 0);
    EXPECT_EQ(in[i], out[1 - i]);
  }
}

// fi_cq.3: an FI_ETRUNC entry tells how much is missing. What fits is there.
TEST(ReportedCompletion, ATruncatedMessageFillsItsReceive) {
  Net net(2);
  for (size_t size : {100, 20000, 1 << 20}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), in(size / 2);
    trecv(net[1], in);
    net.post([&] { return tsend(net, 0, 1, out); });
    const Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.err, FI_ETRUNC);
    EXPECT_EQ(got.context, &in);
    EXPECT_EQ(got.olen, size - in.size());
    EXPECT_TRUE(std::equal(in.begin(), in.end(), out.begin()));
    net.wait(net[0].tx_cq);
    net.exchange(0, 1, size);
  }
}

TEST(ReportedCompletion, TheInjectFlagCompletesTheInjectCallDoesNot) {
  for (const uint64_t selective : {uint64_t(0), uint64_t(FI_SELECTIVE_COMPLETION)}) {
    SCOPED_TRACE(selective);
    Options options;
    options.tx_cq_flags = selective;
    Net net(2, options);
    std::vector<uint8_t> in(8), out = pattern(8, 1);
    const iovec iov{out.data(), out.size()};
    fi_msg_tagged message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = net.at(0, 1);
    message.tag = 1;
    message.context = &out;
    for (const uint64_t asked : {uint64_t(0), uint64_t(FI_COMPLETION)}) {
      trecv(net[1], in);
      net.post([&] { return fi_tsendmsg(net[0].ep, &message, FI_INJECT | asked); });
      EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
      if (selective == 0 || asked != 0) {
        EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
      }
      net.settle();
      EXPECT_FALSE(poll(net[0].tx_cq).has_value());
    }
    trecv(net[1], in);
    net.post([&] { return fi_tinject(net[0].ep, out.data(), 8, net.at(0, 1), 1); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    net.settle();
    EXPECT_FALSE(poll(net[0].tx_cq).has_value()) << "of fi_tinject";
  }
}

TEST(ReportedCompletion, CountersCountWhatAQueueDoesNotReport) {
  if (!has_counters()) GTEST_SKIP() << "no counters";
  Options options;
  options.tx_cq_flags = FI_SELECTIVE_COMPLETION;
  fid_cntr *sends[2];
  int i = 0;
  Net net(2, options, [&](Node &node) { sends[i++] = node.count(FI_SEND); });
  std::vector<uint8_t> in(8), out = pattern(8, 1);
  const iovec iov{out.data(), out.size()};
  fi_msg_tagged message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = net.at(0, 1);
  message.tag = 1;
  for (int round = 0; round < 3; ++round) {
    trecv(net[1], in);
    net.post([&] { return fi_tsendmsg(net[0].ep, &message, 0); });
    net.wait(net[1].rx_cq);
  }
  net.wait_count(sends[0], 3);
  EXPECT_FALSE(poll(net[0].tx_cq).has_value());
}

// Whether a message waited for its receive or not, and whether the receive ended well: the flags
// say what it was.
TEST(ReportedCompletion, FlagsTellWhatEnded) {
  Net net(2);
  std::vector<uint8_t> in(8), out = pattern(8, 1);
  const auto receive = [&](bool tagged) {
    must(tagged ? fi_trecv(net[1].ep, in.data(), 8, nullptr, FI_ADDR_UNSPEC, 1, 0, &in)
                : fi_recv(net[1].ep, in.data(), 8, nullptr, FI_ADDR_UNSPEC, &in));
  };
  for (const bool tagged : {true, false})
    for (const bool early : {true, false}) {
      SCOPED_TRACE(tagged);
      const uint64_t kind = tagged ? FI_TAGGED : FI_MSG;
      if (early) receive(tagged);
      net.post([&] {
        return tagged ? tsend(net, 0, 1, out)
                      : fi_send(net[0].ep, out.data(), 8, nullptr, net.at(0, 1), &out);
      });
      net.settle();
      if (!early) receive(tagged);
      EXPECT_EQ(net.wait(net[1].rx_cq).flags & (FI_RECV | FI_SEND | kind), FI_RECV | kind);
      EXPECT_EQ(net.wait(net[0].tx_cq).flags & (FI_RECV | FI_SEND | kind), FI_SEND | kind);
      receive(tagged);
      must(fi_cancel(net[1].ep.fid(), &in));
      const Completion cancelled = net.wait(net[1].rx_cq);
      EXPECT_EQ(cancelled.err, FI_ECANCELED);
      EXPECT_EQ(cancelled.flags & (FI_RECV | kind), FI_RECV | kind);
    }
}

// A receive that is cancelled leaves the message to the next one, and the sender, which waits for
// its delivery, has one completion.
TEST(ReportedCancel, AMessageMeetsTheReceiveBehindACancelledOne) {
  Options options;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  NEEDS_OFFER(options, "FI_DELIVERY_COMPLETE");
  for (size_t size : {64, 100000}) {
    SCOPED_TRACE(size);
    std::vector<uint8_t> out = pattern(size, 1), cancelled(size), in(size);
    Net net(2, options);
    trecv(net[1], cancelled);
    must(fi_cancel(net[1].ep.fid(), &cancelled));
    const Completion first = net.wait(net[1].rx_cq);
    EXPECT_EQ(first.err, FI_ECANCELED);
    EXPECT_EQ(first.context, &cancelled);
    net.post([&] { return tsend(net, 0, 1, out); });
    net.settle();
    trecv(net[1], in);
    EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
    EXPECT_EQ(in, out);
    EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
    net.settle();
    EXPECT_FALSE(poll(net[0].tx_cq).has_value() || poll(net[1].rx_cq).has_value());
  }
}

// -FI_EAGAIN would ask the application to call again, for ever.
TEST(ReportedCancel, OfAContextThatNobodyHasIsNotAgain) {
  Net net(2);
  std::vector<uint8_t> in(8);
  trecv(net[1], in, 77);
  int nothing = 0;
  for (int i = 0; i < 3; ++i) {
    const ssize_t rc = fi_cancel(net[1].ep.fid(), &nothing);
    EXPECT_TRUE(rc == 0 || rc == -FI_ENOENT) << error_text(rc);
  }
  EXPECT_FALSE(poll(net[1].rx_cq).has_value());
  std::vector<uint8_t> out = pattern(8, 1);
  net.post([&] { return tsend(net, 0, 1, out, 77); });
  EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
  net.wait(net[0].tx_cq);
}

// Many senders fill shared buffers. Every payload is whole, and after a buffer was released nothing
// more comes into it.
class ReportedMultiRecv : public ::testing::Test {
 protected:
  static constexpr size_t kSenders = 3, kMessages = 900, kSlots = 8, kMost = 3000;
  struct Buffer {
    std::vector<uint8_t> bytes = std::vector<uint8_t>(32768);
    bool posted = false;
  };
  static Options with_multi_recv() {
    Options options;
    options.caps = FI_MSG | FI_MULTI_RECV;
    return options;
  }
  static std::vector<uint8_t> message(uint32_t number) {
    std::vector<uint8_t> bytes = pattern(4 + number * 977 % (kMost - 4), number);
    std::memcpy(bytes.data(), &number, sizeof number);
    return bytes;
  }
  static void post(Node &node, Buffer &buffer) {
    const iovec iov{buffer.bytes.data(), buffer.bytes.size()};
    fi_msg message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = FI_ADDR_UNSPEC;
    message.context = &buffer;
    must(fi_recvmsg(node.ep, &message, FI_MULTI_RECV));
    buffer.posted = true;
  }
  void send_one(Net &net) {
    const auto slot = std::find_if(std::begin(slots_), std::end(slots_),
                                   [](const auto &bytes) { return bytes.empty(); });
    if (sent_ == kMessages || slot == std::end(slots_)) return;
    *slot = message(uint32_t(sent_));
    const size_t from = 1 + sent_ % kSenders;
    const ssize_t rc =
        fi_send(net[from].ep, slot->data(), slot->size(), nullptr, net.at(from, 0), &*slot);
    if (rc == -FI_EAGAIN) return slot->clear();
    must(rc);
    ++sent_;
  }
  void take_sent(Net &net) {
    for (size_t from = 1; from <= kSenders; ++from)
      if (const auto done = poll(net[from].tx_cq)) {
        EXPECT_EQ(done->err, 0);
        static_cast<std::vector<uint8_t> *>(done->context)->clear();
      }
  }
  void take_received(Net &net) {
    const auto got = poll(net[0].rx_cq);
    if (!got) return;
    auto *buffer = static_cast<Buffer *>(got->context);
    ASSERT_EQ(got->err, 0) << fi_strerror(got->err);
    ASSERT_TRUE(buffer->posted) << "a message in a buffer that was released";
    if (got->flags & FI_RECV) {
      uint32_t number = 0;
      std::memcpy(&number, got->buf, sizeof number);
      const std::vector<uint8_t> expected = message(number);
      ASSERT_EQ(got->len, expected.size()) << "of message " << number;
      EXPECT_EQ(std::memcmp(got->buf, expected.data(), expected.size()), 0) << number;
      ++received_;
    }
    if (got->flags & FI_MULTI_RECV) post(net[0], *buffer);
  }

  size_t sent_ = 0, received_ = 0;
  std::vector<uint8_t> slots_[kSlots];
};

TEST_F(ReportedMultiRecv, EveryPayloadIsWholeAndAReleasedBufferIsLeftAlone) {
  RDM_NEEDS(FI_MSG | FI_MULTI_RECV);
  Buffer buffers[3];
  Net net(1 + kSenders, with_multi_recv(), [](Node &node) {
    const size_t least = kMost;
    must(fi_setopt(node.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least));
  });
  for (Buffer &buffer : buffers) post(net[0], buffer);
  EXPECT_TRUE(net.until([&] {
    send_one(net);
    take_sent(net);
    take_received(net);
    return received_ == kMessages || HasFatalFailure();
  })) << received_
      << " of " << kMessages;
}

// The queue's descriptor rests once everything was read.
TEST(ReportedWait, TheDescriptorRestsAfterAMessage) {
  Options options;
  options.rx_cq.wait_obj = FI_WAIT_FD;
  NEEDS_OFFER(options, "FI_WAIT_FD");
  Net net(2, options);
  net.exchange(0, 1);
  net.settle();
  int fd = -1;
  must(fi_control(net[1].rx_cq.fid(), FI_GETWAIT, &fd));
  int woken = 0;
  for (int i = 0; i < 50; ++i) {
    struct fid *fids[] = {net[1].rx_cq.fid()};
    pollfd p{fd, POLLIN, 0};
    woken += fi_trywait(net[1].fabric, fids, 1) != 0 || ::poll(&p, 1, 2) != 0;
    EXPECT_FALSE(poll(net[1].rx_cq).has_value());
  }
  EXPECT_LT(woken, 10) << "of 50 waits";
}

// A program that only sleeps at its queue's descriptor: messages and remote writes in turn.
class ReportedBlocking : public ::testing::Test {
 protected:
  static constexpr int kRounds = 100;
  static Options with_descriptor() {
    Options options;
    options.caps = FI_MSG | FI_TAGGED | FI_RMA;
    options.one_cq = true;
    options.tx_cq.wait_obj = FI_WAIT_FD;
    return options;
  }
  // Sleeps until the queue has so many completions more.
  static void sleep_for(Node &node, int completions) {
    const Deadline deadline;
    int fd = -1;
    must(fi_control(node.tx_cq.fid(), FI_GETWAIT, &fd));
    while (completions > 0) {
      if (deadline.passed()) throw std::runtime_error("no completion came");
      if (const auto done = poll(node.tx_cq)) {
        if (done->err != 0) throw std::runtime_error(fi_strerror(done->err));
        --completions;
        continue;
      }
      struct fid *fids[] = {node.tx_cq.fid()};
      pollfd p{fd, POLLIN, 0};
      if (fi_trywait(node.fabric, fids, 1) == 0) ::poll(&p, 1, deadline.left_ms());
    }
  }
  static void repeat(Node &node, const std::function<ssize_t()> &operation) {
    const Deadline deadline;
    ssize_t rc = 0;
    while ((rc = operation()) == -FI_EAGAIN && !deadline.passed()) node.progress();
    must(rc);
  }
  struct Window {
    std::vector<uint8_t> bytes = std::vector<uint8_t>(30000);
    uint64_t base = 0, key = 0;
  };
  // Writes to the peer and tells it; or waits for the peer, which does that.
  static void write_and_tell(Node &node, fi_addr_t peer, const Window &window, Window &out,
                             int round) {
    out.bytes = pattern(window.bytes.size(), unsigned(round));
    repeat(node, [&] {
      return fi_write(node.ep, out.bytes.data(), out.bytes.size(), nullptr, peer, window.base,
                      window.key, nullptr);
    });
    sleep_for(node, 1);
    repeat(node, [&] { return fi_tsend(node.ep, nullptr, 0, nullptr, peer, 1, nullptr); });
    sleep_for(node, 1);
  }
};

TEST_F(ReportedBlocking, RemoteWritesAndMessagesGoOnWhileBothSleep) {
  RDM_NEEDS(FI_RMA);
  Options options = with_descriptor();
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  NEEDS_OFFER(options, "FI_DELIVERY_COMPLETE");
  Window windows[2], outs[2];
  Net net(2, options);
  for (size_t i : {0, 1}) {
    fid_mr *mr =
        net[i].expose(windows[i].bytes.data(), windows[i].bytes.size(), FI_REMOTE_WRITE, 10 + i);
    windows[i].base = net[i].base_of(windows[i].bytes.data());
    windows[i].key = fi_mr_key(mr);
  }
  std::atomic<int> finished{0};
  const auto play = [&](size_t me) {
    for (int round = 0; round < kRounds; ++round) {
      if (round % 2 == int(me)) {
        write_and_tell(net[me], net.at(me, 1 - me), windows[1 - me], outs[me], round);
      } else {
        must(fi_trecv(net[me].ep, nullptr, 0, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr));
        sleep_for(net[me], 1);
        EXPECT_EQ(windows[me].bytes, pattern(windows[me].bytes.size(), unsigned(round)));
      }
    }
    ++finished;
    const Deadline deadline;  // the other may wait for an answer
    while (finished < 2 && !deadline.passed()) net[me].progress();
  };
  in_two_threads([&] { play(0); }, [&] { play(1); });
}

// A program of an old API has a shorter error entry: what lies behind it is not the library's.
TEST(ReportedCompletion, AnOldProgramsErrorEntryIsNotOverrun) {
  Options options;
  options.api = FI_VERSION(1, 4);
  if (!find_info(options, FI_SOURCE, options.api)) GTEST_SKIP() << "not offered to API 1.4";
  Net net(2, options);
  std::vector<uint8_t> in(8);
  trecv(net[1], in);
  must(fi_cancel(net[1].ep.fid(), &in));
  fi_cq_tagged_entry entry{};
  ASSERT_TRUE(net.until([&] { return fi_cq_read(net[1].rx_cq, &entry, 1) == -FI_EAVAIL; }));
  constexpr size_t kOldSize = offsetof(fi_cq_err_entry, err_data_size);
  struct {
    fi_cq_err_entry error;
    uint8_t behind[64];
  } memory;
  std::memset(&memory, 0x5a, sizeof memory);
  ASSERT_EQ(fi_cq_readerr(net[1].rx_cq, &memory.error, 0), 1);
  EXPECT_EQ(memory.error.op_context, &in);
  EXPECT_EQ(memory.error.err, FI_ECANCELED);
  const auto *bytes = reinterpret_cast<const uint8_t *>(&memory);
  EXPECT_TRUE(std::all_of(bytes + kOldSize, bytes + sizeof memory,
                          [](uint8_t byte) { return byte == 0x5a; }));
}

// fi_endpoint.3: -FI_ENOPROTOOPT is the answer for an option that a provider does not have, and
// -FI_EINVAL that for CUDA's where there is none.
TEST(ReportedCompletion, OptionsThatAProviderLacksAreRefusedByTheirName) {
  Net net(1);
  const bool no = false;
  for (int option : {int(FI_OPT_SHARED_MEMORY_PERMITTED), int(FI_OPT_CUDA_API_PERMITTED), 9999}) {
    SCOPED_TRACE(option);
    const int rc = fi_setopt(net[0].ep.fid(), FI_OPT_ENDPOINT, option, &no, sizeof no);
    EXPECT_TRUE(rc == -FI_ENOPROTOOPT || (rc == 0 && option != 9999) ||
                (rc == -FI_EINVAL && option == FI_OPT_CUDA_API_PERMITTED))
        << error_text(rc);
  }
}

TEST(ReportedWait, SignalOfAQueueThatNobodyWaitsForIsHarmless) {
  Net net(2);
  for (size_t i : {0, 1}) {
    const int rc = fi_cq_signal(net[i].rx_cq);
    EXPECT_LE(rc, 0) << "and no crash";
  }
  net.exchange(0, 1);
}

// Open MPI asks for the length with a buffer of one byte.
TEST(ReportedName, FirstItsLengthThenItsBytes) {
  Net net(1);
  char little = 0;
  size_t size = 1;
  EXPECT_EQ(fi_getname(net[0].ep.fid(), &little, &size), -FI_ETOOSMALL);
  ASSERT_GT(size, 1u);
  std::string name(size, '\0');
  EXPECT_EQ(fi_getname(net[0].ep.fid(), name.data(), &size), 0);
  EXPECT_EQ(size, name.size());
  EXPECT_EQ(name, net[0].name());
}

}  // namespace
}  // namespace weft::conformance::rdm
