// SPDX-License-Identifier: BSD-2-Clause
// Shared receive contexts: which endpoint takes a receive, which queue gets the completion, and
// what remains when an endpoint is closed.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/objects/shared_receive.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::sdk::shared_receive_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kCaps = FI_MSG | FI_TAGGED | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV;

struct Saved : Unexpected {
  std::string bytes;
};

struct Entry {
  size_t context = 0;
  uint64_t flags = 0;
  size_t len = 0;
  fi_addr_t src = FI_ADDR_NOTAVAIL;
  int err = 0;
};

// An endpoint with the smallest protocol: messages arrive whole.
class Member final : public ReceiverSink {
 public:
  Member(TestDomain &domain, Av *av, bool directed = true)
      : receiver(*this, {.directed = directed, .source = true}), domain_(domain) {
    fi_cq_attr attr{};
    attr.format = FI_CQ_FORMAT_TAGGED;
    receiver.cq = cq_ = *Cq::open(domain.context, &attr, nullptr);
    receiver.cntr = cntr_ = *Cntr::open(domain.context, nullptr, nullptr);
    receiver.av = av;
  }
  ~Member() {
    receiver.cq = nullptr;
    receiver.cntr = nullptr;
    receiver.visit_unexpected(Matcher::kAnySource, [this](Unexpected &m) {
      receiver.forget(m);
      discard(m);
    });
    receiver.leave();
    EXPECT_EQ(saved, 0) << "messages neither delivered nor discarded";
    fi_close(cntr_->base());
    fi_close(cq_->base());
  }

  void arrive(Message m, std::string bytes) {
    Guard guard(domain_.engine.lock());
    m.length = bytes.size();
    if (Receive *r = receiver.match(m)) return place(*r, m, bytes);
    auto *s = new Saved;
    s->bytes = std::move(bytes);
    s->message = m;
    ++saved;
    receiver.save(*s);
  }
  void place(Receive &r, const Message &m, const std::string &bytes) {
    const size_t n = std::min(r.length, bytes.size());
    if (n != 0) std::memcpy(r.iov[0].iov_base, bytes.data(), n);
    receiver.complete(r, m, n, 0);
  }
  void deliver(Unexpected &m, Receive &r) override {
    auto &s = static_cast<Saved &>(m);
    const Message about = s.message;
    const std::string bytes = s.bytes;
    --saved;
    delete &s;
    place(r, about, bytes);
  }
  void discard(Unexpected &m) override {
    --saved;
    delete static_cast<Saved *>(&m);
  }
  void on_shared_receive() override { ++told; }

  std::vector<Entry> entries() {
    std::vector<Entry> all;
    for (;;) {
      fi_cq_tagged_entry e{};
      fi_addr_t src = FI_ADDR_NOTAVAIL;
      const ssize_t n = fi_cq_readfrom(cq_->c(), &e, 1, &src);
      if (n == 1) {
        all.push_back({reinterpret_cast<size_t>(e.op_context), e.flags, e.len, src, 0});
      } else if (n == -FI_EAVAIL) {
        fi_cq_err_entry f{};
        EXPECT_EQ(fi_cq_readerr(cq_->c(), &f, 0), 1);
        all.push_back({reinterpret_cast<size_t>(f.op_context), f.flags, f.len, f.src_addr, f.err});
      } else {
        EXPECT_EQ(n, -FI_EAGAIN);
        return all;
      }
    }
  }
  std::vector<size_t> contexts() {
    std::vector<size_t> all;
    for (const Entry &e : entries()) all.push_back(e.context);
    return all;
  }
  uint64_t received() { return cntr_->read(); }
  uint64_t failed() { return cntr_->readerr(); }

  Receiver receiver;
  int saved = 0, told = 0;

 private:
  TestDomain &domain_;
  Cq *cq_;
  Cntr *cntr_;
};

Message tagged(uint64_t tag, uint32_t source = 0) {
  return {.tagged = true, .source = source, .tag = tag};
}

class SharedReceiveTest : public ::testing::Test {
 protected:
  SharedReceiveTest() {
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    av = *Av::open(domain.context, FI_SOCKADDR_IN, &attr, nullptr);
    sockaddr_in peers[4] = {};
    for (int i = 0; i < 4; ++i) {
      peers[i].sin_family = AF_INET;
      peers[i].sin_port = htons(uint16_t(1000 + i));
      peers[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    fi_addr_t names[4];
    EXPECT_EQ(av->insert(peers, 4, names, 0, nullptr), 4);
    open({.caps = kCaps, .size = 8, .min_multi_recv = 4});
    for (auto *member : {&a, &b}) {
      member->emplace(domain, av);
      (*member)->receiver.share(srx->receiver());
    }
  }
  ~SharedReceiveTest() override {
    a.reset();
    b.reset();
    EXPECT_EQ(fi_close(srx->base()), 0);
    EXPECT_TRUE(domain.context.shared_receives.empty());
    fi_close(av->base());
  }
  void open(const SharedReceiveOffer &offer, const fi_rx_attr *attr = nullptr) {
    srx = *SharedReceiveContext::open(domain.context, attr, offer, nullptr);
  }
  // fi_rx_size_left is deprecated, but still works.
  ssize_t left() { return srx->c()->ops->rx_size_left(srx->c()); }
  ssize_t trecv(uint64_t tag, size_t context, fi_addr_t src = FI_ADDR_UNSPEC) {
    return fi_trecv(srx->c(), buf, sizeof buf, nullptr, src, tag, 0, ctx(context));
  }
  ssize_t look(uint64_t tag, size_t context, uint64_t flags) {
    fi_msg_tagged m{};
    const iovec iov{buf, sizeof buf};
    m.msg_iov = &iov;
    m.iov_count = 1;
    m.tag = tag;
    m.addr = FI_ADDR_UNSPEC;
    m.context = ctx(context);
    return fi_trecvmsg(srx->c(), &m, flags);
  }
  ssize_t multi_recv(size_t bytes, size_t context) {
    fi_msg m{};
    const iovec iov{buf, bytes};
    m.msg_iov = &iov;
    m.iov_count = 1;
    m.addr = FI_ADDR_UNSPEC;
    m.context = ctx(context);
    return fi_recvmsg(srx->c(), &m, FI_MULTI_RECV);
  }

  TestDomain domain;
  Av *av = nullptr;
  SharedReceiveContext *srx = nullptr;
  std::optional<Member> a, b;
  char buf[64] = {};
};

TEST_F(SharedReceiveTest, AMessageCompletesInTheQueueOfItsEndpoint) {
  ASSERT_EQ(trecv(7, 1), 0);
  ASSERT_EQ(trecv(7, 2), 0);
  ASSERT_EQ(fi_recv(srx->c(), buf, sizeof buf, nullptr, FI_ADDR_UNSPEC, ctx(3)), 0);
  b->arrive(tagged(7, 2), "abc");
  a->arrive({.source = 1}, "ab");
  a->arrive(tagged(7, 3), "a");
  const std::vector<Entry> at_a = a->entries(), at_b = b->entries();
  ASSERT_EQ(at_a.size(), 2u);
  ASSERT_EQ(at_b.size(), 1u);
  EXPECT_EQ(at_b[0].context, 1u);
  EXPECT_EQ(at_b[0].len, 3u);
  EXPECT_EQ(at_b[0].src, 2u);
  EXPECT_EQ(at_a[0].context, 3u);
  EXPECT_EQ(at_a[0].flags, FI_RECV | FI_MSG);
  EXPECT_EQ(at_a[1].context, 2u);
  EXPECT_EQ(at_a[1].src, 3u);
  EXPECT_EQ(a->received(), 2u);
  EXPECT_EQ(b->received(), 1u);
  EXPECT_EQ(a->told, 3) << "each post is announced: a stalled endpoint may wait for it";
  EXPECT_EQ(left(), 8);
}

TEST_F(SharedReceiveTest, SavedMessagesAreDeliveredInOrderThroughTheirEndpoints) {
  a->arrive(tagged(1), "first");
  b->arrive(tagged(1), "second");
  a->arrive(tagged(2), "other");
  ASSERT_EQ(trecv(1, 1), 0);
  EXPECT_STREQ(buf, "first");
  EXPECT_THAT(a->contexts(), ElementsAre(1));
  ASSERT_EQ(trecv(1, 2), 0);
  EXPECT_EQ(std::string(buf, 6), "second");
  EXPECT_THAT(b->contexts(), ElementsAre(2));
  EXPECT_EQ(a->receiver.unexpected(), 1u);
}

TEST_F(SharedReceiveTest, ReceivesArePostedToTheContextOnly) {
  Guard guard(domain.engine.lock());
  const iovec iov{buf, sizeof buf};
  EXPECT_EQ(a->receiver.post({.iov = &iov, .count = 1, .context = ctx(1)}), -FI_EOPNOTSUPP);
}

TEST_F(SharedReceiveTest, TakesMoreReceivesThanItsSize) {
  for (size_t i = 0; i < 80; ++i) ASSERT_EQ(trecv(i, i + 1), 0);
  EXPECT_EQ(left(), 0);
  for (size_t i = 0; i < 80; ++i) a->arrive(tagged(i), "x");
  EXPECT_EQ(a->contexts().size(), 80u);
  EXPECT_EQ(left(), 8);
}

TEST_F(SharedReceiveTest, ADirectedReceiveTakesFromItsPeerAtAnyEndpoint) {
  ASSERT_EQ(trecv(1, 1, 3), 0);
  b->arrive(tagged(1, 2), "x");
  EXPECT_THAT(b->contexts(), IsEmpty());
  b->arrive(tagged(1, 3), "y");
  EXPECT_THAT(b->contexts(), ElementsAre(1));
  EXPECT_EQ(trecv(1, 1, 99), -FI_EINVAL) << "no such address";
}

// Each endpoint numbers its unnamed peers itself. Naming a peer of one leaves the other unchanged.
TEST_F(SharedReceiveTest, APeerIsRenamedAtOneEndpointOnly) {
  a->arrive(tagged(1, Matcher::kFirstUnnamed), "of a");
  b->arrive(tagged(1, Matcher::kFirstUnnamed), "of b");
  ASSERT_EQ(trecv(1, 1, 3), 0);
  EXPECT_THAT(a->contexts(), IsEmpty());
  {
    Guard guard(domain.engine.lock());
    b->receiver.rename_source(Matcher::kFirstUnnamed, 3);
  }
  EXPECT_THAT(b->contexts(), ElementsAre(1));
  ASSERT_EQ(trecv(1, 2), 0);
  const std::vector<Entry> left = a->entries();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].src, FI_ADDR_NOTAVAIL);
}

TEST_F(SharedReceiveTest, PeekAndClaimFindMessagesOfAllEndpoints) {
  ASSERT_EQ(look(5, 1, FI_PEEK), 0);
  std::vector<Entry> all = a->entries();
  ASSERT_EQ(all.size(), 1u) << "one of the endpoints reports that there is none";
  EXPECT_EQ(all[0].err, FI_ENOMSG);
  b->arrive(tagged(5, 1), "abcd");
  ASSERT_EQ(look(5, 2, FI_PEEK | FI_CLAIM), 0);
  all = b->entries();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].len, 4u);
  EXPECT_EQ(all[0].src, 1u);
  ASSERT_EQ(look(5, 3, FI_PEEK), 0);
  EXPECT_EQ(a->entries().at(0).err, FI_ENOMSG);
  ASSERT_EQ(look(5, 2, FI_CLAIM), 0);
  EXPECT_THAT(b->contexts(), ElementsAre(2));
  b->arrive(tagged(6, 1), "abcd");
  ASSERT_EQ(look(6, 4, FI_PEEK | FI_DISCARD), 0);
  EXPECT_THAT(b->contexts(), ElementsAre(4));
  EXPECT_EQ(b->saved, 0);
}

TEST_F(SharedReceiveTest, ACancelIsReportedByOneEndpoint) {
  ASSERT_EQ(trecv(1, 1), 0);
  EXPECT_EQ(fi_cancel(srx->base(), ctx(2)), -FI_ENOENT);
  EXPECT_EQ(fi_cancel(srx->base(), ctx(1)), 0);
  const std::vector<Entry> all = a->entries();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].err, FI_ECANCELED);
  EXPECT_EQ(a->failed(), 1u);
  EXPECT_EQ(left(), 8);
}

TEST_F(SharedReceiveTest, AMultiReceiveBufferTakesMessagesOfAllEndpoints) {
  ASSERT_EQ(multi_recv(12, 1), 0);
  a->arrive({}, "abcd");
  b->arrive({}, "efgh");
  EXPECT_EQ(std::string(buf, 8), "abcdefgh");
  EXPECT_EQ(a->entries().at(0).flags, FI_RECV | FI_MSG);
  EXPECT_EQ(b->entries().at(0).flags, FI_RECV | FI_MSG);
  a->arrive({}, "ij");
  EXPECT_EQ(a->entries().at(0).flags, FI_RECV | FI_MSG | FI_MULTI_RECV) << "less than 4 are left";
  EXPECT_EQ(left(), 8);
}

TEST_F(SharedReceiveTest, AClosedEndpointLeavesTheOthersTheirReceivesAndMessages) {
  ASSERT_EQ(trecv(1, 1), 0);
  ASSERT_EQ(trecv(2, 2), 0);
  a->arrive(tagged(9), "of a");
  b->arrive(tagged(9), "of b");
  Message m = tagged(1);
  m.length = 1;
  ASSERT_NE(a->receiver.match(m), nullptr) << "a message of a's is on its way";
  a.reset();
  EXPECT_EQ(left(), 7) << "its receive is free again, b's still posted";
  b->arrive(tagged(2), "x");
  EXPECT_THAT(b->contexts(), ElementsAre(2));
  ASSERT_EQ(trecv(9, 3), 0);
  EXPECT_EQ(std::string(buf, 4), "of b");
  EXPECT_THAT(b->contexts(), ElementsAre(3));
}

TEST_F(SharedReceiveTest, ABufferIsReleasedWhenItsLastEndpointCloses) {
  ASSERT_EQ(multi_recv(8, 1), 0);
  Message m;
  m.length = 6;
  ASSERT_NE(a->receiver.match(m), nullptr) << "it takes 6 of 8 bytes: less than 4 are left";
  a.reset();
  const std::vector<Entry> all = b->entries();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].context, 1u);
  EXPECT_EQ(all[0].flags, FI_MULTI_RECV);
  EXPECT_EQ(left(), 8);
}

TEST_F(SharedReceiveTest, OptionsAndFlags) {
  size_t value = 0, length = sizeof value;
  EXPECT_EQ(fi_getopt(srx->base(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), 0);
  EXPECT_EQ(value, 4u);
  value = 16;
  EXPECT_EQ(fi_setopt(srx->base(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, sizeof value),
            0);
  EXPECT_EQ(a->receiver.min_multi_recv(), 16u);
  EXPECT_EQ(fi_setopt(srx->base(), FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 1), -FI_EINVAL);
  EXPECT_EQ(fi_getopt(srx->base(), FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &value, &length),
            -FI_ENOPROTOOPT);
  EXPECT_EQ(fi_control(srx->base(), FI_ENABLE, nullptr), 0);
  uint64_t flags = FI_RECV | FI_COMPLETION;
  EXPECT_EQ(fi_control(srx->base(), FI_SETOPSFLAG, &flags), 0);
  flags = FI_RECV;
  EXPECT_EQ(fi_control(srx->base(), FI_GETOPSFLAG, &flags), 0);
  EXPECT_EQ(flags, FI_COMPLETION);
  flags = FI_TRANSMIT;
  EXPECT_EQ(fi_control(srx->base(), FI_GETOPSFLAG, &flags), -FI_EINVAL);
  EXPECT_EQ(fi_send(srx->c(), buf, 1, nullptr, 0, nullptr), -FI_ENOSYS);
}

TEST_F(SharedReceiveTest, AFailedOpenGivesTheReason) {
  fi_rx_attr attr{};
  attr.caps = FI_MSG | FI_ATOMIC;
  auto opened = SharedReceiveContext::open(domain.context, &attr, {.caps = kCaps}, nullptr);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, FI_EINVAL);
  EXPECT_NE(opened.error().text.find("rx_attr.caps"), std::string::npos);
  attr = {};
  attr.size = 100;
  opened =
      SharedReceiveContext::open(domain.context, &attr, {.caps = kCaps, .max_size = 99}, nullptr);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().text.find("at most 99"), std::string::npos);
  attr = {};
  attr.op_flags = FI_INJECT;
  opened = SharedReceiveContext::open(domain.context, &attr, {.caps = kCaps}, nullptr);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, FI_EBADFLAGS);
}

TEST_F(SharedReceiveTest, IsFoundInItsDomainOnly) {
  EXPECT_EQ(SharedReceiveContext::find(domain.context, srx->base()), srx);
  EXPECT_EQ(SharedReceiveContext::find(domain.context, av->base()), nullptr);
  TestDomain other;
  EXPECT_EQ(SharedReceiveContext::find(other.context, srx->base()), nullptr);
  srx->users.fetch_add(1);
  EXPECT_EQ(fi_close(srx->base()), -FI_EBUSY);
  srx->users.fetch_sub(1);
}

TEST_F(SharedReceiveTest, WithoutTaggedMessagesThereAreNoTaggedReceives) {
  fi_rx_attr attr{};
  attr.caps = FI_MSG | FI_RECV;
  SharedReceiveContext *plain =
      *SharedReceiveContext::open(domain.context, &attr, {.caps = kCaps}, nullptr);
  EXPECT_EQ(fi_trecv(plain->c(), buf, 1, nullptr, FI_ADDR_UNSPEC, 0, 0, nullptr), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_recv(plain->c(), buf, 1, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  EXPECT_EQ(fi_close(plain->base()), 0);
}

}  // namespace
}  // namespace weft::sdk::shared_receive_test
