// SPDX-License-Identifier: BSD-2-Clause
// Completions of reliable datagram endpoints (fi_cq.3, fi_cntr.3, fi_endpoint.3): formats, what a
// queue leaves out, completion levels, counters, and readers that block.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

ssize_t tsend(Net &net, std::vector<uint8_t> &out, uint64_t tag = 1) {
  return fi_tsend(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), tag, &out);
}
void trecv(Node &node, std::vector<uint8_t> &in, uint64_t tag = 1) {
  must(fi_trecv(node.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, &in));
}

// ---- formats ----

class RdmCqFormat : public ::testing::TestWithParam<enum fi_cq_format> {};
INSTANTIATE_TEST_SUITE_P(Formats, RdmCqFormat,
                         ::testing::Values(FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_MSG,
                                           FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_TAGGED));

TEST_P(RdmCqFormat, EntriesHaveTheSizeOfTheirFormat) {
  covers(fi_tostr(&GetParam(), FI_TYPE_CQ_FORMAT));
  Options options;
  options.rx_cq.format = GetParam();
  std::vector<uint8_t> out = pattern(50, 1);
  Net net(2, options);
  constexpr size_t kCount = 5;
  std::vector<std::vector<uint8_t>> in(kCount, std::vector<uint8_t>(100));
  for (size_t i = 0; i < kCount; ++i) trecv(net[1], in[i], i);
  for (size_t i = 0; i < kCount; ++i) {
    net.post([&] {
      return fi_tsenddata(net[0].ep, out.data(), 50, nullptr, 100 + i, net.at(0, 1), i, nullptr);
    });
  }
  const size_t entry_sizes[] = {0, sizeof(fi_cq_entry), sizeof(fi_cq_msg_entry),
                                sizeof(fi_cq_data_entry), sizeof(fi_cq_tagged_entry)};
  const size_t entry_size = entry_sizes[GetParam()];
  std::vector<char> buffer(entry_size * kCount + 8, 0x5a);
  size_t got = 0;
  EXPECT_TRUE(net.until([&] {
    const ssize_t n = fi_cq_read(net[1].rx_cq, buffer.data() + got * entry_size, kCount - got);
    if (n > 0) got += size_t(n);
    return got == kCount;
  }));
  EXPECT_EQ(buffer[entry_size * kCount], 0x5a) << "written behind the entries";
  for (size_t i = 0; i < kCount; ++i) {
    fi_cq_tagged_entry entry{};
    std::memcpy(&entry, buffer.data() + i * entry_size, entry_size);
    EXPECT_EQ(entry.op_context, &in[i]);
    if (GetParam() >= FI_CQ_FORMAT_MSG) {
      EXPECT_EQ(entry.flags & (FI_RECV | FI_TAGGED), uint64_t(FI_RECV | FI_TAGGED));
      EXPECT_EQ(entry.len, 50u);
    }
    if (GetParam() >= FI_CQ_FORMAT_DATA) {
      EXPECT_EQ(entry.data, 100 + i);
    }
    if (GetParam() >= FI_CQ_FORMAT_TAGGED) {
      EXPECT_EQ(entry.tag, i);
    }
  }
}

// ---- what is left out ----

TEST(RdmCompletion, ASelectiveQueueReportsOnlyRequestedCompletions) {
  covers("FI_SELECTIVE_COMPLETION");
  Options options;
  options.tx_cq_flags = options.rx_cq_flags = FI_SELECTIVE_COMPLETION;
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  Net net(2, options);
  for (bool ask : {false, true, false}) {
    const iovec to{in.data(), in.size()}, from{out.data(), out.size()};
    fi_msg_tagged receive{};
    receive.msg_iov = &to;
    receive.iov_count = 1;
    receive.addr = FI_ADDR_UNSPEC;
    receive.context = &in;
    fi_msg_tagged send = receive;
    send.msg_iov = &from;
    send.addr = net.at(0, 1);
    send.context = &out;
    std::fill(in.begin(), in.end(), 0);
    must(fi_trecvmsg(net[1].ep, &receive, ask ? FI_COMPLETION : 0));
    net.post([&] { return fi_tsendmsg(net[0].ep, &send, ask ? FI_COMPLETION : 0); });
    EXPECT_TRUE(net.until([&] { return in == out; }));
    if (ask) {
      EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
      EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
    }
    net.settle();
    EXPECT_FALSE(poll(net[0].tx_cq).has_value());
    EXPECT_FALSE(poll(net[1].rx_cq).has_value());
  }
}

// fi_cq.3: a selective queue reports errors, too.
TEST(RdmCompletion, ASelectiveQueueReportsEveryError) {
  covers("FI_SELECTIVE_COMPLETION");
  Options options;
  options.rx_cq_flags = FI_SELECTIVE_COMPLETION;
  std::vector<uint8_t> out = pattern(100, 1), in(10);
  Net net(2, options);
  const iovec to{in.data(), in.size()};
  fi_msg_tagged receive{};
  receive.msg_iov = &to;
  receive.iov_count = 1;
  receive.addr = FI_ADDR_UNSPEC;
  receive.tag = 1;
  receive.context = &in;
  must(fi_trecvmsg(net[1].ep, &receive, 0));
  net.post([&] { return tsend(net, out); });
  const Completion got = net.wait(net[1].rx_cq);
  EXPECT_EQ(got.err, FI_ETRUNC);
  EXPECT_EQ(got.context, &in);
}

// fi_endpoint.3: FI_COMPLETION among the endpoint's op_flags holds for every operation.
TEST(RdmCompletion, OpFlagsAskForAll) {
  covers("FI_SELECTIVE_COMPLETION");
  Options options;
  options.tx_cq_flags = FI_SELECTIVE_COMPLETION;
  options.tx_op_flags = FI_COMPLETION;
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  Net net(2, options);
  trecv(net[1], in);
  net.post([&] { return tsend(net, out); });
  EXPECT_EQ(net.wait(net[0].tx_cq).context, &out);
  net.wait(net[1].rx_cq);
}

TEST(RdmCompletion, OneQueueTakesBoth) {
  Options options;
  options.one_cq = true;
  Net net(2, options);
  for (size_t size : {8, 20000, 200000}) {
    net.exchange(0, 1, size);
    net.exchange(1, 0, size);
  }
}

// ---- levels ----

class RdmLevel : public ::testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Levels, RdmLevel,
                         ::testing::Values(FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE,
                                           FI_DELIVERY_COMPLETE, FI_MATCH_COMPLETE));

TEST_P(RdmLevel, TheBufferIsFreeAndTheMessageArrives) {
  const uint64_t level = GetParam();
  covers(fi_tostr(&level, FI_TYPE_OP_FLAGS));
  Options options;
  options.tx_op_flags = level;
  if (!find_info(options)) GTEST_SKIP() << "fi_getinfo does not offer this level";
  Net net(2, options);
  for (size_t size : edges()) {
    SCOPED_TRACE(size);
    const std::vector<uint8_t> sent = pattern(size, 1);
    std::vector<uint8_t> out = sent, in(size);
    trecv(net[1], in);
    net.post([&] { return tsend(net, out); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    std::fill(out.begin(), out.end(), 0xdd);  // every level gives the buffer back
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(in, sent);
  }
}

// An empty message, by which programs say how far they are.
TEST_P(RdmLevel, AMessageOfNoPieces) {
  Options options;
  options.tx_op_flags = GetParam();
  if (!find_info(options)) GTEST_SKIP() << "fi_getinfo does not offer this level";
  Net net(2, options);
  fi_msg message{};
  for (int i = 0; i < 3; ++i) {
    message.addr = FI_ADDR_UNSPEC;
    must(fi_recvmsg(net[1].ep, &message, FI_COMPLETION));
    message.addr = net.at(0, 1);
    net.post([&] { return fi_sendmsg(net[0].ep, &message, GetParam() | FI_COMPLETION); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    const Completion got = net.wait(net[1].rx_cq);
    EXPECT_EQ(got.err, 0);
    EXPECT_EQ(got.len, 0u);
  }
}

// A completion of FI_DELIVERY_COMPLETE waits for the target.
TEST(RdmCompletion, DeliveryWaitsForTheTarget) {
  covers("FI_DELIVERY_COMPLETE");
  Options options;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  options.progress = FI_PROGRESS_MANUAL;
  if (!find_info(options)) GTEST_SKIP() << "no FI_DELIVERY_COMPLETE";
  if (is_matched_by_a_nic(FI_EP_RDM)) GTEST_SKIP() << "the target's NIC needs no progress";
  Net net(2, options);
  net.exchange(0, 1);  // connected
  for (size_t size : {8, 20000, 200000}) {
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    trecv(net[1], in);
    net.set_asleep(1, true);
    net.post([&] { return tsend(net, out); });
    net.settle();
    EXPECT_FALSE(poll(net[0].tx_cq).has_value())
        << size << " bytes delivered without progress of the target";
    net.set_asleep(1, false);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(in, out);
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  }
}

// A completion of FI_MATCH_COMPLETE waits for the receive, although the target makes progress; what
// needs no receive goes on meanwhile.
TEST(RdmCompletion, AMatchWaitsForTheReceive) {
  covers("FI_MATCH_COMPLETE");
  Options options;
  options.tx_op_flags = FI_MATCH_COMPLETE;
  if (!find_info(options)) GTEST_SKIP() << "no FI_MATCH_COMPLETE";
  options.tx_op_flags = 0;
  Net net(2, options);
  net.exchange(0, 1);  // connected
  for (const uint64_t flags : {uint64_t(0), uint64_t(FI_INJECT)}) {
    for (const bool tagged : {true, false}) {
      for (const size_t size : {0, 8, 128, 20000, 200000}) {
        if (flags & FI_INJECT && size > net[0].info->tx_attr->inject_size) continue;
        SCOPED_TRACE(::testing::Message()
                     << size << " bytes, tagged " << tagged << ", flags " << flags);
        const std::vector<uint8_t> sent = pattern(size, 1);
        std::vector<uint8_t> out = sent, in(size);
        const iovec iov{out.data(), size};
        fi_msg_tagged message{};
        message.msg_iov = &iov;
        message.iov_count = 1;
        message.addr = net.at(0, 1);
        message.tag = 77;
        message.context = &out;
        fi_msg untagged{};
        untagged.msg_iov = &iov;
        untagged.iov_count = 1;
        untagged.addr = message.addr;
        untagged.context = &out;
        const uint64_t how = FI_MATCH_COMPLETE | FI_COMPLETION | flags;
        net.post([&] {
          return tagged ? fi_tsendmsg(net[0].ep, &message, how)
                        : fi_sendmsg(net[0].ep, &untagged, how);
        });
        if (flags & FI_INJECT) std::fill(out.begin(), out.end(), 0xdd);
        net.settle();
        EXPECT_FALSE(poll(net[0].tx_cq).has_value()) << "there is no receive yet";
        net.exchange(0, 1, 100, 5);
        must(tagged ? fi_trecv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 77, 0, &in)
                    : fi_recv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
        const Completion done = net.wait(net[0].tx_cq);
        EXPECT_EQ(done.err, 0);
        EXPECT_EQ(done.context, &out);
        EXPECT_EQ(net.wait(net[1].rx_cq).context, &in);
        EXPECT_EQ(in, sent);
      }
    }
  }
}

// More messages than a protocol has numbers for wait for their receives; another message passes.
TEST(RdmCompletion, ManyMatchesWait) {
  covers("FI_MATCH_COMPLETE");
  Options options;
  options.tx_op_flags = FI_MATCH_COMPLETE;
  if (!find_info(options)) GTEST_SKIP() << "no FI_MATCH_COMPLETE";
  options.tx_op_flags = 0;
  Net net(2, options);
  net.exchange(0, 1);
  constexpr size_t kMany = 400;
  std::vector<uint64_t> out(kMany), in(kMany);
  size_t posted = 0;
  const auto post = [&] {
    for (; posted < kMany; ++posted) {
      out[posted] = posted;
      const iovec iov{&out[posted], 8};
      fi_msg_tagged message{};
      message.msg_iov = &iov;
      message.iov_count = 1;
      message.addr = net.at(0, 1);
      message.tag = 1000 + posted;
      const ssize_t rc = fi_tsendmsg(net[0].ep, &message, FI_MATCH_COMPLETE | FI_COMPLETION);
      if (rc == -FI_EAGAIN) break;
      must(rc);
    }
  };
  post();
  EXPECT_GE(posted, 100u);
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq).has_value());
  net.exchange(0, 1, 200000, 5);
  // The receives come in another order than the messages.
  for (size_t done = 0; done < kMany;) {
    const size_t from = done, to = std::min(posted, from + 100);
    for (size_t i = to; i > from; --i)
      must(fi_trecv(net[1].ep, &in[i - 1], 8, nullptr, FI_ADDR_UNSPEC, 1000 + i - 1, 0, nullptr));
    for (; done < to; ++done) {
      EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
      EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    }
    post();
  }
  EXPECT_EQ(in, out);
}

// FI_FENCE: begins when what was sent to the same peer before is complete, and holds nothing to
// another peer.
TEST(RdmCompletion, AFenceWaitsForWhatWasSentBefore) {
  covers("FI_FENCE");
  Options options;
  options.caps |= FI_FENCE;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  options.progress = FI_PROGRESS_MANUAL;
  if (!find_info(options)) GTEST_SKIP() << "no FI_FENCE with FI_DELIVERY_COMPLETE";
  if (is_matched_by_a_nic(FI_EP_RDM)) GTEST_SKIP() << "the target's NIC needs no progress";
  options.tx_op_flags = 0;
  Net net(3, options);
  EXPECT_NE(net[0].info->caps & FI_FENCE, 0u);
  net.exchange(0, 1);  // connected
  net.exchange(0, 2);
  std::vector<uint8_t> out = pattern(64, 1), in(64), other(64);
  int contexts[3];
  for (int i = 0; i < 2; ++i) trecv(net[1], in);
  trecv(net[2], other);
  net.set_asleep(1, true);
  const iovec iov{out.data(), out.size()};
  const auto send = [&](size_t to, uint64_t flags, int &context) {
    fi_msg_tagged message{};
    message.msg_iov = &iov;
    message.iov_count = 1;
    message.addr = net.at(0, to);
    message.tag = 1;
    message.context = &context;
    net.post([&] { return fi_tsendmsg(net[0].ep, &message, flags | FI_COMPLETION); });
  };
  send(1, FI_DELIVERY_COMPLETE, contexts[0]);
  send(1, FI_FENCE, contexts[1]);
  send(2, FI_FENCE, contexts[2]);
  EXPECT_EQ(net.wait(net[0].tx_cq).context, &contexts[2]) << "to another peer";
  EXPECT_EQ(net.wait(net[2].rx_cq).err, 0);
  net.settle();
  EXPECT_FALSE(poll(net[0].tx_cq).has_value()) << "the fenced one must wait for the first";
  net.set_asleep(1, false);
  EXPECT_EQ(net.wait(net[0].tx_cq).context, &contexts[0]);
  EXPECT_EQ(net.wait(net[0].tx_cq).context, &contexts[1]);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
}

// ---- counters ----

TEST(RdmCompletion, CountersCountSendsAndReceives) {
  covers("counters");
  fid_cntr *sends[2], *receives[2];
  int i = 0;
  Net net(2, {}, [&](Node &node) {
    sends[i] = node.count(FI_SEND);
    receives[i++] = node.count(FI_RECV);
  });
  for (int round = 0; round < 10; ++round) net.exchange(0, 1, round % 2 ? 10 : 30000);
  net.wait_count(sends[0], 10);
  net.wait_count(receives[1], 10);
  net.settle();
  EXPECT_EQ(fi_cntr_read(sends[0]), 10u);
  EXPECT_EQ(fi_cntr_read(receives[1]), 10u);
  EXPECT_EQ(fi_cntr_read(receives[0]), 0u);
  EXPECT_EQ(fi_cntr_read(sends[1]), 0u);
  // An injected message has no completion, but it is counted (fi_cntr.3).
  std::vector<uint8_t> out = pattern(8, 1), in(8);
  trecv(net[1], in);
  net.post([&] { return fi_tinject(net[0].ep, out.data(), 8, net.at(0, 1), 1); });
  net.wait_count(sends[0], 11);
  net.wait(net[1].rx_cq);
  // Errors are counted separately.
  std::vector<uint8_t> little(2);
  trecv(net[1], little);
  net.post([&] { return fi_tinject(net[0].ep, out.data(), 8, net.at(0, 1), 1); });
  EXPECT_EQ(net.wait(net[1].rx_cq).err, FI_ETRUNC);
  EXPECT_EQ(fi_cntr_readerr(receives[1]), 1u);
  EXPECT_EQ(fi_cntr_read(receives[1]), 11u);
}

TEST(RdmCompletion, ABlockedCounterWakes) {
  covers("counters");
  fid_cntr *receives = nullptr;
  int i = 0;
  Net net(2, {}, [&](Node &node) {
    fi_cntr_attr attr{};
    attr.wait_obj = FI_WAIT_UNSPEC;
    if (i++ == 1) receives = node.count(FI_RECV, attr);
  });
  net.exchange(0, 1);
  std::vector<uint8_t> out = pattern(64, 1), in(64);
  trecv(net[1], in);
  net.set_asleep(1, true);
  std::atomic<int> rc{1};
  std::thread waiter([&] { rc = fi_cntr_wait(receives, 2, 20000); });
  net.post([&] { return tsend(net, out); });
  EXPECT_TRUE(net.until([&] { return rc.load() != 1; }));
  waiter.join();
  EXPECT_EQ(rc.load(), 0);
  EXPECT_EQ(in, out);
  EXPECT_EQ(fi_cntr_wait(receives, 3, 1), -FI_ETIMEDOUT);
}

// ---- readers that block ----

class RdmWait : public ::testing::TestWithParam<enum fi_wait_obj> {
 protected:
  static const char *name() {
    switch (GetParam()) {
      case FI_WAIT_UNSPEC:
        return "FI_WAIT_UNSPEC";
      case FI_WAIT_FD:
        return "FI_WAIT_FD";
      case FI_WAIT_POLLFD:
        return "FI_WAIT_POLLFD";
      case FI_WAIT_YIELD:
        return "FI_WAIT_YIELD";
      default:
        return "?";
    }
  }
  // Whether the stack opens such a queue.
  static bool opens() {
    Node node{Options()};
    Handle<fid_cq> cq;
    fi_cq_attr attr = Options::cq_attr(FI_CQ_FORMAT_TAGGED, GetParam());
    return fi_cq_open(node.domain, &attr, cq.out(), nullptr) == 0;
  }
  static Options options() {
    Options options;
    options.rx_cq.wait_obj = options.tx_cq.wait_obj = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Objects, RdmWait,
                         ::testing::Values(FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_POLLFD,
                                           FI_WAIT_YIELD));
#define WAIT_NEEDED() \
  covers(name());     \
  if (!opens()) GTEST_SKIP() << name() << " is not supported"

TEST_P(RdmWait, ABlockedReaderWakes) {
  WAIT_NEEDED();
  Net net(2, options());
  net.exchange(0, 1);
  for (size_t size : {8, 20000, 200000}) {
    std::vector<uint8_t> out = pattern(size, 1), in(size);
    trecv(net[1], in);
    net.set_asleep(1, true);
    std::atomic<ssize_t> rc{0};
    fi_cq_tagged_entry entry{};
    std::thread reader([&] { rc = fi_cq_sread(net[1].rx_cq, &entry, 1, nullptr, 20000); });
    net.post([&] { return tsend(net, out); });
    EXPECT_TRUE(net.until([&] { return rc.load() != 0; }));
    reader.join();
    ASSERT_EQ(rc.load(), 1) << error_text(rc.load());
    EXPECT_EQ(entry.op_context, &in);
    EXPECT_EQ(in, out);
    net.set_asleep(1, false);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
}

TEST_P(RdmWait, SreadTimesOut) {
  WAIT_NEEDED();
  Net net(2, options());
  fi_cq_tagged_entry entry{};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(fi_cq_sread(net[1].rx_cq, &entry, 1, nullptr, 20), -FI_EAGAIN);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(15));
  EXPECT_EQ(fi_cq_sread(net[1].rx_cq, &entry, 1, nullptr, 0), -FI_EAGAIN);
}

TEST_P(RdmWait, ASignalWakesTheReader) {
  WAIT_NEEDED();
  Net net(1, options());
  std::atomic<bool> woke{false};
  std::atomic<ssize_t> rc{1};
  std::thread reader([&] {
    fi_cq_tagged_entry entry;
    rc = fi_cq_sread(net[0].rx_cq, &entry, 1, nullptr, 20000);
    woke = true;
  });
  const int signalled = fi_cq_signal(net[0].rx_cq);
  if (signalled == 0) {
    // The reader may not block yet: the signal is kept, or sent again.
    while (!woke) {
      fi_cq_signal(net[0].rx_cq);
      std::this_thread::yield();
    }
  }
  reader.join();
  EXPECT_EQ(signalled, 0) << error_text(signalled);
  EXPECT_TRUE(rc.load() == -FI_EAGAIN || rc.load() == 0 || rc.load() == -FI_ECANCELED)
      << error_text(rc.load());
}

TEST_P(RdmWait, WaitingCostsNoTime) {
  WAIT_NEEDED();
  if (GetParam() == FI_WAIT_YIELD) GTEST_SKIP() << "a yielding reader does not sleep";
  covers("idle");
  Net net(2, options());
  net.exchange(0, 1);
  net.settle();
  while (poll(net[1].rx_cq) || poll(net[0].tx_cq)) {
  }
  constexpr auto kLimit = std::chrono::milliseconds(25);
  const auto wait = [&] {
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_sread(net[1].rx_cq, &entry, 1, nullptr, 100), -FI_EAGAIN);
  };
  EXPECT_LT(cpu_time_of(kLimit, wait), kLimit);
}

// fi_poll.3: fi_trywait says whether a thread may block on the descriptor.
TEST(RdmCompletion, TheDescriptorOfAQueueWakesPoll) {
  covers("FI_WAIT_FD");
  Options options;
  options.rx_cq.wait_obj = FI_WAIT_FD;
  Net net(2, options);
  net.exchange(0, 1);
  int fd = -1;
  must(fi_control(net[1].rx_cq.fid(), FI_GETWAIT, &fd));
  std::vector<uint8_t> out = pattern(20000, 1), in(20000);
  trecv(net[1], in);
  net.set_asleep(1, true);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    const Deadline deadline;
    struct fid *fids[] = {net[1].rx_cq.fid()};
    while (!done && !deadline.passed()) {
      if (fi_trywait(net[1].fabric, fids, 1) == 0) {
        pollfd p{fd, POLLIN, 0};
        ::poll(&p, 1, deadline.left_ms());
      }
      fi_cq_tagged_entry entry;
      done = fi_cq_read(net[1].rx_cq, &entry, 1) == 1;
    }
  });
  net.post([&] { return tsend(net, out); });
  EXPECT_TRUE(net.until([&] { return done.load(); }));
  reader.join();
  EXPECT_EQ(in, out);
  net.set_asleep(1, false);
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

// A call that finds no room makes progress, and may take what would have woken a thread that
// sleeps. What comes next has to wake it all the same.
TEST(RdmCompletion, ACallThatMakesProgressTakesNoWakeUp) {
  covers("FI_WAIT_FD");
  constexpr uint64_t kNobodys = 7;  // the tag of messages without a receive
  constexpr size_t kMostSends = 5000;
  std::vector<uint8_t> longer(100'000), out = pattern(100, 1), in(100);
  Options options;
  options.tx_size = 8;
  options.rx_cq.wait_obj = FI_WAIT_FD;
  Net net(2, options);
  net.exchange(0, 1);
  const auto send_more = [&] {
    return fi_tsend(net[1].ep, longer.data(), longer.size(), nullptr, net.at(1, 0), kNobodys,
                    nullptr);
  };
  size_t sends = 0;
  while (sends < kMostSends && send_more() == 0) ++sends;
  if (sends == kMostSends) GTEST_SKIP() << "there is always room";
  trecv(net[1], in);
  int fd = -1;
  must(fi_control(net[1].rx_cq.fid(), FI_GETWAIT, &fd));
  struct fid *fids[] = {net[1].rx_cq.fid()};
  net.set_asleep(1, true);
  ASSERT_TRUE(net.until([&] { return fi_trywait(net[1].fabric, fids, 1) == 0; }));
  const auto is_woken = [fd] {
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, 0) > 0;
  };
  net.post([&] { return tsend(net, out, kNobodys); });
  ASSERT_TRUE(net.until(is_woken));
  for (int call = 0; call < 5; ++call) (void)send_more();
  net.post([&] { return tsend(net, out); });
  EXPECT_TRUE(net.until(is_woken));
  net.set_asleep(1, false);
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace weft::conformance::rdm
