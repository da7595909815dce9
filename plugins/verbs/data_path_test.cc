// SPDX-License-Identifier: BSD-2-Clause
// What the provider itself costs per message: a device that does nothing stands behind its calls.
#include <gtest/gtest.h>

#include <vector>

#include "plugin-api/sdk/testing/test_allocations.h"
#include "plugins/verbs/cq.h"
#include "plugins/verbs/test_link.h"

namespace weft::verbs {
namespace {

// Takes all that is posted, and completes it in order; or reads last, as iWARP does. Replaces the
// calls of the double that libibverbs has inline in its header.
class IdleDevice {
 public:
  explicit IdleDevice(fid_cq *cq, bool reads_last = false) {
    reads_last_ = reads_last;
    late_.clear();
    ibv_context_ops &ops = CompletionQueue::of(*sdk::Cq::from(&cq->fid)).c()->context->ops;
    before_ = ops;
    ops_ = &ops;
    ops.post_send = post_send;
    ops.post_recv = post_recv;
    ops.poll_cq = poll_cq;
    put_ = taken_ = doorbells_ = requests_ = polls_ = 0;
  }
  ~IdleDevice() {
    ops_->post_send = before_.post_send;
    ops_->post_recv = before_.post_recv;
    ops_->poll_cq = before_.poll_cq;
  }
  size_t doorbells() const { return doorbells_; }
  size_t requests() const { return requests_; }
  size_t polls() const { return polls_; }
  static void end_reads() {
    for (const uint64_t id : late_) complete(id, IBV_WC_RDMA_READ);
    late_.clear();
  }
  size_t waiting() const { return put_ - taken_; }

 private:
  static constexpr size_t kRing = 1024;
  static void complete(uint64_t id, ibv_wc_opcode opcode) {
    ibv_wc &wc = ring_[put_++ % kRing];
    wc.wr_id = id;
    wc.status = IBV_WC_SUCCESS;
    wc.opcode = opcode;
    wc.wc_flags = 0;
    wc.byte_len = 64;
  }
  static int post_send(ibv_qp *, ibv_send_wr *wr, ibv_send_wr **) {
    ++doorbells_;
    for (; wr != nullptr; wr = wr->next) {
      ++requests_;
      if (!(wr->send_flags & IBV_SEND_SIGNALED)) continue;
      if (reads_last_ && wr->opcode == IBV_WR_RDMA_READ) {
        late_.push_back(wr->wr_id);
      } else {
        complete(wr->wr_id, IBV_WC_SEND);
      }
    }
    return 0;
  }
  static int post_recv(ibv_qp *, ibv_recv_wr *wr, ibv_recv_wr **) {
    complete(wr->wr_id, IBV_WC_RECV);
    return 0;
  }
  static int poll_cq(ibv_cq *, int count, ibv_wc *wc) {
    ++polls_;
    int n = 0;
    while (n < count && taken_ != put_) wc[n++] = ring_[taken_++ % kRing];
    return n;
  }

  static inline bool reads_last_;
  static inline std::vector<uint64_t> late_;
  static inline ibv_wc ring_[kRing];
  static inline size_t put_, taken_, doorbells_, requests_, polls_;
  ibv_context_ops *ops_ = nullptr;
  ibv_context_ops before_{};
};

void send_and_complete(TestSide &side, int rounds) {
  char payload[64] = {};
  fi_cq_data_entry entry{};
  for (int i = 0; i < rounds; ++i) {
    ASSERT_EQ(fi_send(side.ep, payload, sizeof payload, nullptr, 0, &side), 0);
    ASSERT_EQ(fi_cq_read(side.cq, &entry, 1), 1);
  }
}

TEST(VerbsDataPath, AllocatesNothing) {
  Link link;
  Buffer in(link.a, 64);
  const IdleDevice device(link.a.cq);
  char payload[64] = {};
  fi_cq_data_entry entries[16];
  const auto round = [&] {
    for (int i = 0; i < 8; ++i) {
      ASSERT_EQ(fi_recv(link.a.ep, in.data(), 64, in.desc(), 0, nullptr), 0);
      ASSERT_EQ(fi_send(link.a.ep, payload, 64, nullptr, 0, nullptr), 0);
      ASSERT_EQ(fi_inject(link.a.ep, payload, 64, 0), 0);
    }
    ASSERT_EQ(fi_cq_read(link.a.cq, entries, 16), 16);
    ASSERT_EQ(fi_cq_read(link.a.cq, entries, 16), -FI_EAGAIN);
  };
  for (int i = 0; i < 100; ++i) round();
  const size_t before = sdk::allocations();
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(sdk::allocations(), before);
}

TEST(VerbsDataPath, SignalsOnlyWhatIsAskedForAndOneOfHalfTheQueue) {
  Link link({.tx_size = 64});
  const IdleDevice device(link.a.cq);
  for (int i = 0; i < 31; ++i) ASSERT_EQ(fi_inject(link.a.ep, "x", 1, 0), 0);
  EXPECT_EQ(device.waiting(), 0u);
  ASSERT_EQ(fi_inject(link.a.ep, "x", 1, 0), 0);
  EXPECT_EQ(device.waiting(), 1u);
  fi_cq_data_entry entry{};
  EXPECT_EQ(fi_cq_read(link.a.cq, &entry, 1), -FI_EAGAIN);  // nobody asked for it
}

TEST(VerbsDataPath, SmallMessagesWithMoreRingOnce) {
  Link link;
  const IdleDevice device(link.a.cq);
  char payload[64] = {};
  const iovec iov{payload, sizeof payload};
  fi_msg msg{};
  msg.msg_iov = &iov;
  msg.iov_count = 1;
  for (int i = 0; i < 15; ++i) ASSERT_EQ(fi_sendmsg(link.a.ep, &msg, FI_COMPLETION | FI_MORE), 0);
  EXPECT_EQ(device.requests(), 0u);
  ASSERT_EQ(fi_sendmsg(link.a.ep, &msg, FI_COMPLETION), 0);
  EXPECT_EQ(device.requests(), 16u);
  EXPECT_EQ(device.doorbells(), 1u);
  ASSERT_EQ(fi_sendmsg(link.a.ep, &msg, FI_COMPLETION | FI_MORE), 0);
  ASSERT_EQ(fi_sendmsg(link.a.ep, &msg, FI_COMPLETION | FI_MORE | FI_INJECT), 0);
  EXPECT_EQ(device.doorbells(), 2u);  // the buffer is free when the call returns
  fi_cq_data_entry entries[18];
  const size_t polls = device.polls();
  EXPECT_EQ(fi_cq_read(link.a.cq, entries, 18), 18);
  EXPECT_EQ(device.polls(), polls + 2);  // 16 at a time
}

// On iWARP a send completes while the read before it is still under way.
TEST(VerbsDataPath, ReadsMayCompleteLast) {
  Link link({.tx_size = 16});
  Buffer place(link.a, 64);
  const IdleDevice device(link.a.cq, /*reads_last=*/true);
  fi_cq_data_entry entry{};
  int contexts[16];
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(fi_read(link.a.ep, place.data(), 64, place.desc(), 0, 0, 1, &contexts[i]), 0);
    ASSERT_EQ(fi_inject(link.a.ep, "x", 1, 0), 0);
    for (int i = 3; i < 15; ++i) {
      ASSERT_EQ(fi_send(link.a.ep, "x", 1, nullptr, 0, &contexts[i]), 0);
      ASSERT_EQ(fi_cq_read(link.a.cq, &entry, 1), 1);
      ASSERT_EQ(entry.op_context, &contexts[i]);
    }
    // The reads hold their places, and those of all that was posted behind them.
    ASSERT_EQ(fi_send(link.a.ep, "x", 1, nullptr, 0, &entry), -FI_EAGAIN);
    ASSERT_EQ(fi_cq_read(link.a.cq, &entry, 1), -FI_EAGAIN);
    IdleDevice::end_reads();
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(fi_cq_read(link.a.cq, &entry, 1), 1);
      ASSERT_EQ(entry.op_context, &contexts[i]);
      ASSERT_EQ(entry.flags, uint64_t(FI_RMA | FI_READ));
    }
  }
}

TEST(VerbsDataPath, MessagesComplete) {
  Link link;
  const IdleDevice device(link.a.cq);
  send_and_complete(link.a, 1000);
  EXPECT_EQ(device.doorbells(), 1000u);
}

}  // namespace
}  // namespace weft::verbs
