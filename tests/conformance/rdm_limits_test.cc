// SPDX-License-Identifier: BSD-2-Clause
// What an application may do beyond the sizes of its queues, contexts and vectors, without progress
// in between: as many as it likes, as long as there is memory (docs/limits.md). A transmit may have
// to wait, but only for what the application does anyway.
#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"
#include "tests/conformance/watchdog.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kQueueSize = 16;
constexpr size_t kAroundTheSize[] = {kQueueSize - 1, kQueueSize, kQueueSize + 1, 10 * kQueueSize};
constexpr size_t kBufferBytes = 100, kMessageBytes = 64,
                 kLeastBytes = 64;  // bytes: a buffer takes one message

enum class Take : uint8_t { kUntagged, kTagged, kAnyTag, kMulti };
enum class Where : uint8_t { kEndpoint, kSharedContext };

struct LimitKind {
  Take take;
  Where where;
  bool is_tagged() const { return take == Take::kTagged || take == Take::kAnyTag; }
};

std::string name_of_kind(const ::testing::TestParamInfo<LimitKind> &info) {
  static constexpr const char *kTakes[] = {"Untagged", "Tagged", "AnyTag", "Multi"};
  static constexpr const char *kWheres[] = {"", "Shared"};
  return std::string(kWheres[size_t(info.param.where)]) + kTakes[size_t(info.param.take)];
}

Options limited(const LimitKind &kind) {
  Options options;
  options.caps = FI_MSG | FI_TAGGED | (kind.take == Take::kMulti ? FI_MULTI_RECV : 0);
  options.rx_size = options.tx_size = kQueueSize;
  return options;
}

// Receives of one kind, and the messages for them, which are numbered.
class RdmLimits : public ::testing::TestWithParam<LimitKind> {
 protected:
  using Buffer = std::array<uint8_t, kBufferBytes>;

  void SetUp() override {
    Options receiver = limited(GetParam());
    receiver.shared_receive = GetParam().where == Where::kSharedContext;
    if (!find_info(receiver)) GTEST_SKIP() << stack() << " does not offer it";
  }
  void open(size_t count, size_t rx_cq_size = 0) {
    net_.reset();
    in_.assign(count, {});
    net_.emplace(0);
    Options receiver = limited(GetParam());
    receiver.shared_receive = GetParam().where == Where::kSharedContext;
    receiver.rx_cq.size = rx_cq_size;
    receiver.rx_cq.format = FI_CQ_FORMAT_TAGGED;
    net_->add(limited(GetParam()));
    net_->add(receiver);
    to_ = receiver.shared_receive ? (*net_)[1].srx.get() : (*net_)[1].ep.get();
    size_t minimum = kLeastBytes;
    if (GetParam().take == Take::kMulti)
      must(fi_setopt(&to_->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &minimum, sizeof minimum));
  }
  ssize_t receive(size_t i) {
    void *const at = in_[i].data();
    switch (GetParam().take) {
      case Take::kUntagged:
        return watchdog_.call("fi_recv", [&] {
          return fi_recv(to_, at, kBufferBytes, nullptr, FI_ADDR_UNSPEC, &in_[i]);
        });
      case Take::kTagged:
        return watchdog_.call("fi_trecv", [&] {
          return fi_trecv(to_, at, kBufferBytes, nullptr, FI_ADDR_UNSPEC, i, 0, &in_[i]);
        });
      case Take::kAnyTag:
        return watchdog_.call("fi_trecv", [&] {
          return fi_trecv(to_, at, kBufferBytes, nullptr, FI_ADDR_UNSPEC, 0, 0xffff, &in_[i]);
        });
      default: {
        const iovec iov{at, kBufferBytes};
        fi_msg message{};
        message.msg_iov = &iov;
        message.iov_count = 1;
        message.addr = FI_ADDR_UNSPEC;
        message.context = &in_[i];
        return watchdog_.call("fi_recvmsg",
                              [&] { return fi_recvmsg(to_, &message, FI_MULTI_RECV); });
      }
    }
  }
  // Without progress in between.
  void receive_all() {
    for (size_t i = 0; i < in_.size(); ++i) ASSERT_EQ(receive(i), 0) << "receive " << i;
  }
  void send(size_t i) {
    std::array<uint8_t, kMessageBytes> out{};
    out[0] = uint8_t(i);
    out[1] = uint8_t(i >> 8);
    fid_ep *const ep = (*net_)[0].ep;
    const fi_addr_t to = net_->at(0, 1);
    net_->post([&] {
      return watchdog_.call("fi_inject", [&] {
        return GetParam().is_tagged() ? fi_tinject(ep, out.data(), kMessageBytes, to, i)
                                      : fi_inject(ep, out.data(), kMessageBytes, to);
      });
    });
  }
  // What it causes is read meanwhile: a full queue would hold the sender back.
  void send_all() {
    done_.clear();
    for (size_t i = 0; i < in_.size(); ++i) {
      send(i);
      while (const auto done = poll((*net_)[1].rx_cq)) done_.push_back(*done);
    }
  }
  Completion next() {
    if (done_.empty()) return net_->wait((*net_)[1].rx_cq);
    const Completion first = done_.front();
    done_.pop_front();
    return first;
  }
  // Each receive has the message of its place. They may complete in another order.
  void expect_all() {
    std::vector<bool> seen(in_.size());
    for (size_t count = 0; count < in_.size();) {
      const Completion done = next();
      ASSERT_EQ(done.err, 0) << fi_strerror(done.err) << ": completion " << count;
      if (done.flags == FI_MULTI_RECV) continue;  // where a buffer ends
      const auto i = size_t(static_cast<Buffer *>(done.context) - in_.data());
      ASSERT_LT(i, in_.size());
      ASSERT_FALSE(seen[i]) << "receive " << i << " has completed twice";
      seen[i] = true;
      ++count;
      ASSERT_EQ(done.len, kMessageBytes);
      ASSERT_EQ(in_[i][0] | in_[i][1] << 8, int(i)) << "another message";
    }
    net_->settle();
    if (const auto more = poll((*net_)[1].rx_cq)) {
      EXPECT_EQ(more->flags, uint64_t(FI_MULTI_RECV)) << "more than were sent";
    }
  }

  std::vector<Buffer> in_;  // outlives the endpoints
  std::optional<Net> net_;
  fid_ep *to_ = nullptr;
  std::deque<Completion> done_;  // read already
  Watchdog watchdog_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, RdmLimits,
                         ::testing::Values(LimitKind{Take::kUntagged, Where::kEndpoint},
                                           LimitKind{Take::kTagged, Where::kEndpoint},
                                           LimitKind{Take::kAnyTag, Where::kEndpoint},
                                           LimitKind{Take::kMulti, Where::kEndpoint},
                                           LimitKind{Take::kUntagged, Where::kSharedContext},
                                           LimitKind{Take::kTagged, Where::kSharedContext},
                                           LimitKind{Take::kMulti, Where::kSharedContext}),
                         name_of_kind);

TEST_P(RdmLimits, ReceivesAreTakenBeyondTheSize) {
  covers("limits");
  for (const size_t count : kAroundTheSize) {
    SCOPED_TRACE(count);
    open(count);
    receive_all();
    if (HasFatalFailure()) return;
    EXPECT_EQ(receives_left(to_), ssize_t(kQueueSize - std::min(kQueueSize, count)));
    send_all();
    expect_all();
    if (HasFatalFailure()) return;
  }
}

// Each completes at once, and the completion queue has no room for all of them.
TEST_P(RdmLimits, ReceivesOfWaitingMessagesAreTakenBeyondTheSize) {
  covers("limits");
  for (const size_t count : kAroundTheSize) {
    SCOPED_TRACE(count);
    open(count, /*rx_cq_size=*/8);
    send_all();
    net_->settle();
    receive_all();
    if (HasFatalFailure()) return;
    expect_all();
    if (HasFatalFailure()) return;
  }
}

// More than any queue is long by itself, and than a NIC has list entries.
TEST_P(RdmLimits, ThousandsOfReceives) {
  covers("limits");
  if (GetParam().take == Take::kAnyTag ||
      (GetParam().is_tagged() && GetParam().where != Where::kEndpoint))
    GTEST_SKIP() << "no other code than for the others";
  open(is_matched_by_a_nic(FI_EP_RDM) ? 17'000 : 9'000);
  receive_all();
  if (HasFatalFailure()) return;
  send_all();
  expect_all();
}

// ---- transmits ----

// What a program does while there is no room to send. The peer makes progress.
enum class Waits : uint8_t { kTxQueue, kRxQueue, kCounter, kInjecting };

class RdmTransmits : public ::testing::TestWithParam<Waits> {};

std::string name_of_waits(const ::testing::TestParamInfo<Waits> &info) {
  static constexpr const char *kNames[] = {"TxQueue", "RxQueue", "Counter", "Injecting"};
  return kNames[size_t(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Waits, RdmTransmits,
                         ::testing::Values(Waits::kTxQueue, Waits::kRxQueue, Waits::kCounter,
                                           Waits::kInjecting),
                         name_of_waits);

TEST_P(RdmTransmits, GetRoomByWhateverTheProgramWaitsWith) {
  covers("limits");
  const Waits waits = GetParam();
  Options options;
  options.caps = FI_MSG | FI_TAGGED;
  options.tx_size = kQueueSize;
  options.tx_cq_flags = waits == Waits::kTxQueue ? 0 : FI_SELECTIVE_COMPLETION;
  Watchdog watchdog;
  for (const size_t count : kAroundTheSize) {
    SCOPED_TRACE(count);
    std::vector<uint64_t> in(count), out(count);
    Net net(2, options, [](Node &node) { node.count(FI_SEND); });
    Node &a = net[0], &b = net[1];
    for (size_t i = 0; i < count; ++i)
      must(fi_trecv(b.ep, &in[i], 8, nullptr, FI_ADDR_UNSPEC, i, 0, &in[i]));
    size_t sent = 0;
    const auto wait = [&] {
      if (waits == Waits::kRxQueue)
        watchdog.call("fi_cq_read", [&] { return fi_cq_read(a.rx_cq, nullptr, 0); });
      if (waits == Waits::kCounter)
        watchdog.call("fi_cntr_read", [&] { return fi_cntr_read(a.counters[0]); });
      if (waits == Waits::kTxQueue && poll(a.tx_cq)) ++sent;
      watchdog.call("fi_cq_read", [&] { return fi_cq_read(b.rx_cq, nullptr, 0); });
    };
    for (size_t i = 0; i < count; ++i) {
      out[i] = i + 1;
      const Deadline deadline;
      ssize_t rc = 0;
      const auto send = [&] {
        return waits == Waits::kInjecting
                   ? fi_tinject(a.ep, &out[i], 8, net.at(0, 1), i)
                   : fi_tsend(a.ep, &out[i], 8, nullptr, net.at(0, 1), i, &out[i]);
      };
      while ((rc = watchdog.call("fi_tsend", send)) == -FI_EAGAIN && !deadline.passed()) wait();
      ASSERT_EQ(rc, 0) << "message " << i;
    }
    for (size_t i = 0; i < count; ++i) {
      const Completion done = net.wait(b.rx_cq);
      ASSERT_EQ(done.err, 0) << fi_strerror(done.err);
      ASSERT_EQ(done.context, &in[i]);
    }
    EXPECT_EQ(in, out);
    for (; waits == Waits::kTxQueue && sent < count; ++sent) ASSERT_EQ(net.wait(a.tx_cq).err, 0);
  }
}

// ---- vectors and queues ----

TEST(RdmSizes, AnAddressVectorTakesMoreThanItsCount) {
  covers("limits");
  Node node{Options()};
  const std::string name = node.name();
  if (!node.keys.empty()) GTEST_SKIP() << "an address has one entry for each key";
  for (const size_t count : kAroundTheSize) {
    fi_av_attr attr{};
    attr.type = node.info->domain_attr->av_type != FI_AV_UNSPEC ? node.info->domain_attr->av_type
                                                                : FI_AV_TABLE;
    attr.count = kQueueSize;
    Handle<fid_av> av;
    must(fi_av_open(node.domain, &attr, av.out(), nullptr));
    for (size_t i = 0; i < count; ++i) {
      fi_addr_t to = FI_ADDR_NOTAVAIL;
      ASSERT_EQ(insert_address(av, name, &to, 0, nullptr), 1) << "address " << i;
      ASSERT_EQ(to, attr.type == FI_AV_TABLE ? i : to);
    }
  }
}

TEST(RdmSizes, AnEventQueueTakesMoreThanItsSize) {
  covers("limits");
  Node node{Options()};
  for (const size_t count : kAroundTheSize) {
    fi_eq_attr attr = Options::eq_attr();
    attr.size = kQueueSize;
    attr.flags = FI_WRITE;
    Handle<fid_eq> eq;
    must(fi_eq_open(node.fabric, &attr, eq.out(), nullptr));
    for (size_t i = 0; i < count; ++i) {
      fi_eq_entry entry{};
      entry.data = i;
      ASSERT_EQ(fi_eq_write(eq, FI_NOTIFY, &entry, sizeof entry, 0), ssize_t(sizeof entry)) << i;
    }
    for (size_t i = 0; i < count; ++i) {
      fi_eq_entry entry{};
      uint32_t event = 0;
      ASSERT_EQ(fi_eq_read(eq, &event, &entry, sizeof entry, 0), ssize_t(sizeof entry)) << i;
      ASSERT_EQ(entry.data, i);
    }
  }
}

TEST(RdmSizes, ADomainHasManyQueuesAndCounters) {
  covers("limits");
  Node node{Options()};
  std::vector<Handle<fid_cq>> queues(300);
  std::vector<Handle<fid_cntr>> counters(300);
  for (size_t i = 0; i < queues.size(); ++i) {
    fi_cq_attr attr = Options::cq_attr();
    ASSERT_EQ(fi_cq_open(node.domain, &attr, queues[i].out(), nullptr), 0) << i;
    fi_cntr_attr counts{};
    ASSERT_EQ(fi_cntr_open(node.domain, &counts, counters[i].out(), nullptr), 0) << i;
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
