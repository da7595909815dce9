// SPDX-License-Identifier: BSD-2-Clause
// A shared receive context that is lent to another provider (fi_peer.3, PEER SRX): what the peer is
// given, and what it is called for.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fi_ext.h>
#include <rdma/providers/fi_peer.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/objects/shared_receive.h>

#include <optional>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk::lent_receives_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kCaps = FI_MSG | FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV;

// An endpoint of the owner, which gets no messages itself.
struct Local final : ReceiverSink {
  Local(TestDomain &domain, Av *av) : receiver(*this, {.directed = true, .source = true}) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    receiver.cq = *Cq::open(domain.context, &attr, nullptr);
    receiver.av = av;
  }
  ~Local() {
    receiver.leave();
    fi_close(receiver.cq->base());
  }
  void deliver(Unexpected &, Receive &) override { ADD_FAILURE(); }
  void discard(Unexpected &) override { ADD_FAILURE(); }
  // "5", "multi 5", "error 5"
  std::vector<std::string> told() {
    std::vector<std::string> all;
    fi_cq_tagged_entry e{};
    fi_cq_err_entry error{};
    for (ssize_t n; (n = fi_cq_read(receiver.cq->c(), &e, 1)) != -FI_EAGAIN;) {
      if (n == -FI_EAVAIL) {
        EXPECT_EQ(fi_cq_readerr(receiver.cq->c(), &error, 0), 1);
        all.push_back("error " + std::to_string(reinterpret_cast<size_t>(error.op_context)));
      } else {
        all.push_back((e.flags & FI_MULTI_RECV ? "multi " : "") +
                      std::to_string(reinterpret_cast<size_t>(e.op_context)));
      }
    }
    return all;
  }
  Receiver receiver;
};

class LentReceivesTest : public ::testing::Test {
 protected:
  LentReceivesTest() {
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    av = *Av::open(domain.context, FI_SOCKADDR_IN, &attr, nullptr);
    sockaddr_in peers[2] = {};
    for (int i = 0; i < 2; ++i) {
      peers[i].sin_family = AF_INET;
      peers[i].sin_port = htons(uint16_t(1000 + i));
      peers[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    fi_addr_t names[2];
    EXPECT_EQ(av->insert(peers, 2, names, 0, nullptr), 2);
    srx = *SharedReceiveContext::open(domain.context, nullptr,
                                      {.caps = kCaps, .size = 8, .min_multi_recv = 4}, nullptr);
    struct fid *fid = nullptr;
    EXPECT_EQ(fi_export_fid(srx->base(), 0, &fid, this), 0);
    lent = reinterpret_cast<fid_peer_srx *>(fid);
    EXPECT_EQ(fid->context, this);
    *lent->peer_ops = {.size = sizeof(fi_ops_srx_peer),
                       .start_msg = start,
                       .start_tag = start,
                       .discard_msg = discard,
                       .discard_tag = discard};
    called.clear();
    local.emplace(domain, av);
    local->receiver.share(srx->receiver());
  }
  ~LentReceivesTest() override {
    local.reset();
    EXPECT_EQ(fi_close(srx->base()), -FI_EBUSY);
    EXPECT_EQ(fi_close(&lent->ep_fid.fid), 0);
    EXPECT_EQ(fi_close(srx->base()), 0);
    fi_close(av->base());
  }
  // The owner's lock is free while it calls: a peer may wait for a thread that has to have it.
  static int start(fi_peer_rx_entry *entry) {
    note("start ", *entry);
    return 0;
  }
  static int discard(fi_peer_rx_entry *entry) {
    note("discard ", *entry);
    return 0;
  }
  static void note(const char *what, const fi_peer_rx_entry &entry) {
    auto &test = *static_cast<LentReceivesTest *>(entry.srx->ep_fid.fid.context);
    Lock &lock = test.domain.engine.lock();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
    called.push_back(what + std::to_string(reinterpret_cast<size_t>(entry.peer_context)));
  }

  // 0: there is a receive.
  int get(size_t number, uint64_t tag, fi_addr_t from = FI_ADDR_UNSPEC, size_t size = 4) {
    fi_peer_match_attr attr{.addr = from, .msg_size = size, .tag = tag};
    const int rc = lent->owner_ops->get_tag(lent, &attr, &entries[number]);
    if (entries[number] != nullptr) entries[number]->peer_context = ctx(number);
    return rc;
  }
  void queue(size_t number) { EXPECT_EQ(lent->owner_ops->queue_tag(entries[number]), 0); }
  void arrive(size_t number, uint64_t tag, fi_addr_t from = FI_ADDR_UNSPEC) {
    ASSERT_EQ(get(number, tag, from), -FI_ENOENT);
    queue(number);
  }
  void free(size_t number) { lent->owner_ops->free_entry(entries[number]); }
  ssize_t trecv(uint64_t tag, size_t context, uint64_t flags = 0, fi_addr_t from = FI_ADDR_UNSPEC) {
    fi_msg_tagged m{};
    const iovec iov{buf, sizeof buf};
    m.msg_iov = &iov;
    m.iov_count = 1;
    m.tag = tag;
    m.addr = from;
    m.context = ctx(context);
    return fi_trecvmsg(srx->c(), &m, flags);
  }
  ssize_t left() { return srx->c()->ops->rx_size_left(srx->c()); }

  TestDomain domain;
  Av *av = nullptr;
  SharedReceiveContext *srx = nullptr;
  fid_peer_srx *lent = nullptr;
  std::optional<Local> local;
  fi_peer_rx_entry *entries[8] = {};
  char buf[64] = {};
  static inline std::vector<std::string> called;
};

TEST_F(LentReceivesTest, APostedReceiveIsGivenAtOnce) {
  ASSERT_EQ(trecv(7, 5, FI_COMPLETION), 0);
  ASSERT_EQ(get(1, 7), 0);
  EXPECT_EQ(entries[1]->context, ctx(5));
  ASSERT_EQ(entries[1]->count, 1u);
  EXPECT_EQ(entries[1]->iov[0].iov_base, buf);
  EXPECT_EQ(entries[1]->iov[0].iov_len, sizeof buf);
  EXPECT_EQ(entries[1]->flags, uint64_t(FI_RECV | FI_TAGGED | FI_COMPLETION));
  EXPECT_EQ(left(), 7);
  EXPECT_EQ(fi_close(&lent->ep_fid.fid), -FI_EBUSY);
  free(1);
  EXPECT_EQ(left(), 8);
  EXPECT_THAT(called, IsEmpty());
  EXPECT_THAT(local->told(), IsEmpty()) << "the peer tells of it";
}

TEST_F(LentReceivesTest, AQueuedMessageIsStarted) {
  arrive(1, 7);
  arrive(2, 8);
  arrive(3, 7);
  ASSERT_EQ(trecv(8, 5), 0);
  EXPECT_THAT(called, ElementsAre("start 2"));
  EXPECT_EQ(entries[2]->context, ctx(5));
  ASSERT_EQ(trecv(7, 6), 0);
  ASSERT_EQ(trecv(7, 7), 0);
  EXPECT_THAT(called, ElementsAre("start 2", "start 1", "start 3")) << "in their order";
  for (size_t i : {1, 2, 3}) free(i);
}

TEST_F(LentReceivesTest, AReceiveThatComesBetweenGetAndQueueIsFound) {
  ASSERT_EQ(get(1, 7), -FI_ENOENT);
  ASSERT_EQ(trecv(7, 5), 0);
  EXPECT_THAT(called, IsEmpty());
  queue(1);
  EXPECT_THAT(called, ElementsAre("start 1"));
  free(1);
}

TEST_F(LentReceivesTest, MessagesThatThePeerGivesUpAreForgotten) {
  ASSERT_EQ(get(1, 7), -FI_ENOENT);
  free(1);
  arrive(2, 7);
  free(2);
  ASSERT_EQ(trecv(7, 5), 0);
  EXPECT_THAT(called, IsEmpty());
  ASSERT_EQ(fi_cancel(srx->base(), ctx(5)), 0);
  EXPECT_THAT(local->told(), ElementsAre("error 5"));
}

TEST_F(LentReceivesTest, IsPeekedClaimedAndDiscarded) {
  arrive(1, 7);
  arrive(2, 8);
  ASSERT_EQ(trecv(9, 3, FI_PEEK), 0);
  ASSERT_EQ(trecv(7, 4, FI_PEEK | FI_CLAIM), 0);
  ASSERT_EQ(trecv(8, 5, FI_PEEK | FI_DISCARD), 0);
  EXPECT_THAT(local->told(), ElementsAre("error 3", "4", "5"));
  EXPECT_THAT(called, ElementsAre("discard 2"));
  ASSERT_EQ(trecv(7, 4, FI_CLAIM), 0);
  EXPECT_THAT(called, ElementsAre("discard 2", "start 1"));
  free(1);
  free(2);
}

TEST_F(LentReceivesTest, DirectedReceivesKnowTheSource) {
  arrive(1, 7, 0);
  ASSERT_EQ(trecv(7, 5, 0, 1), 0);
  EXPECT_THAT(called, IsEmpty());
  ASSERT_EQ(get(2, 7, 1), 0);
  EXPECT_EQ(entries[2]->context, ctx(5));
  ASSERT_EQ(trecv(7, 6, 0, 0), 0);
  EXPECT_THAT(called, ElementsAre("start 1"));
  free(1);
  free(2);
}

TEST_F(LentReceivesTest, ASourceGetsItsNameLater) {
  arrive(1, 7);
  arrive(2, 7);
  arrive(3, 8);
  ASSERT_EQ(trecv(8, 5, 0, 1), 0);
  EXPECT_THAT(called, IsEmpty());
  lent->owner_ops->foreach_unspec_addr(lent, [](fi_peer_rx_entry *entry) -> fi_addr_t {
    return entry->peer_context == ctx(2) ? FI_ADDR_UNSPEC : 1;
  });
  EXPECT_THAT(called, ElementsAre("start 3"));
  ASSERT_EQ(trecv(7, 6, 0, 1), 0);
  EXPECT_THAT(called, ElementsAre("start 3", "start 1"));
  ASSERT_EQ(trecv(7, 7), 0);
  EXPECT_THAT(called, ElementsAre("start 3", "start 1", "start 2"));
  for (size_t i : {1, 2, 3}) free(i);
}

TEST_F(LentReceivesTest, TheEntrySaysThatItsMessageEndsABuffer) {
  fi_msg m{};
  const iovec iov{buf, 10};
  m.msg_iov = &iov;
  m.iov_count = 1;
  m.addr = FI_ADDR_UNSPEC;
  m.context = ctx(5);
  ASSERT_EQ(fi_recvmsg(srx->c(), &m, FI_MULTI_RECV), 0);
  const auto get_msg = [&](size_t number) {
    fi_peer_match_attr attr{.addr = FI_ADDR_UNSPEC, .msg_size = 4, .tag = 0};
    return lent->owner_ops->get_msg(lent, &attr, &entries[number]);
  };
  ASSERT_EQ(get_msg(1), 0);
  EXPECT_EQ(entries[1]->iov[0].iov_base, buf);
  EXPECT_EQ(entries[1]->flags & FI_MULTI_RECV, 0u);
  free(1);
  ASSERT_EQ(get_msg(2), 0);  // 2 bytes are left, which are too few
  EXPECT_EQ(entries[2]->iov[0].iov_base, buf + 4);
  EXPECT_NE(entries[2]->flags & FI_MULTI_RECV, 0u);
  free(2);
  EXPECT_THAT(local->told(), IsEmpty());
  EXPECT_EQ(left(), 8);
  // Where another part is still under way, an endpoint of the owner tells the end.
  ASSERT_EQ(fi_recvmsg(srx->c(), &m, FI_MULTI_RECV), 0);
  ASSERT_EQ(get_msg(1), 0);
  ASSERT_EQ(get_msg(2), 0);
  EXPECT_EQ(entries[2]->flags & FI_MULTI_RECV, 0u);
  free(2);
  EXPECT_THAT(local->told(), IsEmpty());
  free(1);
  EXPECT_THAT(local->told(), ElementsAre("multi 5"));
}

// Without an endpoint of the owner nobody tells of what belongs to no message.
TEST_F(LentReceivesTest, ABufferNeedsAnEndpointThatTellsItsEnd) {
  local.reset();
  fi_msg m{};
  const iovec iov{buf, 10};
  m.msg_iov = &iov;
  m.iov_count = 1;
  m.addr = FI_ADDR_UNSPEC;
  EXPECT_EQ(fi_recvmsg(srx->c(), &m, FI_MULTI_RECV), -FI_EOPNOTSUPP);
  EXPECT_EQ(trecv(7, 5, 0, 1), -FI_EINVAL) << "a directed receive needs an address vector";
  ASSERT_EQ(trecv(7, 5), 0);
  ASSERT_EQ(get(1, 7), 0);
  free(1);
  local.emplace(domain, av);
  EXPECT_TRUE(srx->receiver().takes(av));
  local->receiver.share(srx->receiver());
}

TEST_F(LentReceivesTest, BadCallsGetErrors) {
  fi_peer_rx_entry *entry = nullptr;
  EXPECT_EQ(lent->owner_ops->get_tag(lent, nullptr, &entry), -FI_EINVAL);
  fi_peer_match_attr attr{};
  EXPECT_EQ(lent->owner_ops->get_msg(lent, &attr, nullptr), -FI_EINVAL);
  struct fid *again = nullptr;
  EXPECT_EQ(fi_export_fid(srx->base(), FI_PEER, &again, nullptr), -FI_EBADFLAGS);
  EXPECT_EQ(fi_export_fid(srx->base(), 0, nullptr, nullptr), -FI_EINVAL);
  ASSERT_EQ(fi_export_fid(srx->base(), 0, &again, nullptr), 0) << "to a second peer";
  EXPECT_EQ(fi_close(again), 0);
}

}  // namespace
}  // namespace weft::sdk::lent_receives_test
