// SPDX-License-Identifier: BSD-2-Clause
// Shared transmit contexts (fi_endpoint.3, SHARED CONTEXTS, fi_stx_context): operations are posted
// to the endpoints and report to their queues; the endpoints share the attributes of the context.
#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance::rdm {
namespace {

Info stx_info(const std::function<void(fi_info &)> &change = {}) {
  return ask([&](fi_info &hints) {
    hints.ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT;
    if (change) change(hints);
  });
}

#define STX_NEEDED()        \
  covers("fi_stx_context"); \
  if (!stx_info()) GTEST_SKIP() << stack() << " does not offer shared transmit contexts"

// An application with endpoints that send through one context.
struct Sharing : Application {
  explicit Sharing(size_t endpoints, fi_tx_attr *attr = nullptr) : Application(Options()) {
    const Info found = stx_info();
    open_fabric(found.get());
    fi_av_attr av_attr{};
    av_attr.type = FI_AV_TABLE;
    must(fi_av_open(domain, &av_attr, av.out(), nullptr));
    must(fi_stx_context(domain, attr != nullptr ? attr : info->tx_attr, stx.out(), this));
    for (size_t i = 0; i < endpoints; ++i) add();
  }
  struct Member {
    Handle<fid_cq> tx_cq, rx_cq;
    Handle<fid_ep> ep;
  };
  Member &make() {
    members.emplace_back();
    Member &member = members.back();
    must(fi_cq_open(domain, &options.tx_cq, member.tx_cq.out(), nullptr));
    must(fi_cq_open(domain, &options.rx_cq, member.rx_cq.out(), nullptr));
    must(fi_endpoint(domain, info.get(), member.ep.out(), nullptr));
    must(fi_ep_bind(member.ep, av.fid(), 0));
    must(fi_ep_bind(member.ep, member.tx_cq.fid(), FI_TRANSMIT));
    must(fi_ep_bind(member.ep, member.rx_cq.fid(), FI_RECV));
    return member;
  }
  void add() {
    Member &member = make();
    must(fi_ep_bind(member.ep, stx.fid(), 0));
    must(fi_enable(member.ep));
  }
  void progress() {
    for (Member &member : members) {
      fi_cq_read(member.tx_cq, nullptr, 0);
      fi_cq_read(member.rx_cq, nullptr, 0);
    }
  }
  // Sends that are over; their completions are read.
  size_t ended() {
    size_t count = 0;
    for (Member &member : members)
      while (poll(member.tx_cq)) ++count;
    return count;
  }
  fi_addr_t insert(const std::string &address) {
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    must(insert_address(av, address, &to, 0, nullptr) == 1 ? 0 : -FI_EINVAL);
    return to;
  }

  Handle<fid_stx> stx;
  std::vector<Member> members;
};

struct SharingDriver final : Driver {
  explicit SharingDriver(Sharing &sharing, Node &peer) : sharing(sharing), peer(peer) {}
  void progress() override {
    sharing.progress();
    if (!peer_sleeps) peer.progress();
  }
  std::optional<Completion> next(fid_cq *cq) override { return poll(cq); }
  Sharing &sharing;
  Node &peer;
  bool peer_sleeps = false;
};

TEST(RdmStx, FiGetinfoSaysSo) {
  STX_NEEDED();
  const Info info = stx_info();
  EXPECT_EQ(info->ep_attr->tx_ctx_cnt, FI_SHARED_CONTEXT);
  EXPECT_GT(info->domain_attr->max_ep_stx_ctx, 1u);
  EXPECT_EQ(find_info(Options())->ep_attr->tx_ctx_cnt, 1u);
}

TEST(RdmStx, EachEndpointReportsToItsOwnQueue) {
  STX_NEEDED();
  Node peer{Options()};
  Sharing many(3);
  const fi_addr_t to = many.insert(peer.name());
  SharingDriver drive(many, peer);
  for (size_t round = 0; round < 2; ++round)
    for (size_t i = 0; i < 3; ++i) {
      std::vector<uint8_t> out = pattern(100 + 20000 * round, unsigned(i)), in(out.size());
      must(fi_trecv(peer.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, i, 0, &in));
      drive.post([&] {
        return fi_tsend(many.members[i].ep, out.data(), out.size(), nullptr, to, i, &out);
      });
      EXPECT_EQ(drive.wait(peer.rx_cq).context, &in);
      EXPECT_EQ(drive.wait(many.members[i].tx_cq).context, &out);
      EXPECT_EQ(in, out);
      for (size_t other = 0; other < 3; ++other)
        EXPECT_FALSE(poll(many.members[other].tx_cq)) << other;
    }
}

// Operations to a peer that does not answer stay in flight, or are over at once.
TEST(RdmStx, TheSizeIsThatOfAllEndpointsTogether) {
  STX_NEEDED();
  const Info info = stx_info();
  constexpr size_t kSize = 8;
  fi_tx_attr attr = *info->tx_attr;
  attr.size = kSize;
  std::vector<uint8_t> out(64);  // may be read until fi_close
  Node peer{Options()};
  Sharing many(0, &attr);
  many.info->tx_attr->size = kSize;
  many.add();
  many.add();
  const fi_addr_t to = many.insert(peer.name());
  SharingDriver drive(many, peer);
  drive.peer_sleeps = true;
  size_t posted = 0;
  for (size_t i = 0; i < 4 * kSize; ++i) {
    const ssize_t rc =
        fi_tsend(many.members[i % 2].ep, out.data(), out.size(), nullptr, to, 1, &out);
    if (rc == -FI_EAGAIN) continue;
    ASSERT_EQ(rc, 0);
    ++posted;
  }
  EXPECT_TRUE(posted == kSize || many.ended() == posted) << posted;
  size_t size = 0, length = sizeof size;
  must(fi_getopt(many.stx.fid(), FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &size, &length));
  EXPECT_EQ(size, kSize);
  // When they have gone there is room again.
  drive.peer_sleeps = false;
  std::vector<uint8_t> in(64);
  for (size_t i = 0; i < posted; ++i)
    must(fi_trecv(peer.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  for (size_t i = 0; i < posted; ++i) EXPECT_EQ(drive.wait(peer.rx_cq).err, 0);
  must(fi_trecv(peer.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 2, 0, &in));
  drive.post(
      [&] { return fi_tsend(many.members[0].ep, out.data(), out.size(), nullptr, to, 2, &out); });
  EXPECT_EQ(drive.wait(peer.rx_cq).tag, 2u);
}

// As Sandia OpenSHMEM does with the endpoint that its peers reach first.
TEST(RdmStx, ItMayFollowAfterEnable) {
  STX_NEEDED();
  constexpr size_t kSize = 8, kBefore = 3;
  fi_tx_attr attr = *stx_info()->tx_attr;
  attr.size = kSize;
  std::vector<uint8_t> out(64), in(64);
  Node peer{Options()};
  Sharing many(0, &attr);
  many.info->tx_attr->size = kSize;
  many.add();
  many.info->ep_attr->tx_ctx_cnt = 1;
  fid_ep *const late = many.make().ep;
  must(fi_enable(late));
  const fi_addr_t to = many.insert(peer.name());
  SharingDriver drive(many, peer);
  drive.peer_sleeps = true;
  const auto send = [&](fid_ep *ep) {
    return fi_tsend(ep, out.data(), out.size(), nullptr, to, 1, &out);
  };
  for (size_t i = 0; i < kBefore; ++i) must(int(send(late)));
  ASSERT_EQ(fi_ep_bind(late, many.stx.fid(), 0), 0);
  EXPECT_EQ(fi_ep_bind(late, many.stx.fid(), 0), -FI_EBUSY) << "it has one";
  // What is under way has places, too.
  size_t posted = kBefore;
  for (size_t i = 0; i < 4 * kSize; ++i) {
    const ssize_t rc = send(many.members[i % 2].ep);
    if (rc == -FI_EAGAIN) continue;
    ASSERT_EQ(rc, 0);
    ++posted;
  }
  EXPECT_TRUE(posted == kSize || many.ended() == posted) << posted;
  drive.peer_sleeps = false;
  for (size_t i = 0; i < posted; ++i)
    must(fi_trecv(peer.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  for (size_t i = 0; i < posted; ++i) EXPECT_EQ(drive.wait(peer.rx_cq).err, 0);
  for (size_t i = 0; i < kBefore && posted == kSize; ++i)
    EXPECT_EQ(drive.wait(many.members[1].tx_cq).context, &out);
  // Each of them has room again.
  const auto exchange = [&](fid_ep *ep) {
    must(fi_trecv(peer.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    drive.post([&] { return send(ep); });
    EXPECT_EQ(drive.wait(peer.rx_cq).tag, 1u);
  };
  exchange(many.members[0].ep);
  exchange(late);
  // The context ends before an endpoint that was not opened for it, but not before one that was.
  EXPECT_EQ(fi_close(many.stx.fid()), -FI_EBUSY);
  exchange(many.members[0].ep);
  exchange(late);
  many.members[0].ep.reset();
  many.stx.reset();
  exchange(late);
}

// An application that only injects does nothing else that makes progress.
TEST(RdmStx, InjectingAloneMakesRoom) {
  STX_NEEDED();
  constexpr size_t kSize = 8;
  fi_tx_attr attr = *stx_info()->tx_attr;
  attr.size = kSize;
  std::vector<uint64_t> in(10 * kSize);
  Node peer{Options()};
  Sharing many(0, &attr);
  many.info->tx_attr->size = kSize;
  many.add();
  many.add();
  const fi_addr_t to = many.insert(peer.name());
  for (uint64_t &word : in)
    must(fi_trecv(peer.ep, &word, 8, nullptr, FI_ADDR_UNSPEC, uint64_t(&word - in.data()), 0,
                  &word));
  for (uint64_t i = 0; i < in.size(); ++i) {
    const Deadline deadline;
    const uint64_t word = i + 1;
    ssize_t rc = 0;
    while ((rc = fi_tinject(many.members[i % 2].ep, &word, 8, to, i)) == -FI_EAGAIN &&
           !deadline.passed())
      fi_cq_read(peer.rx_cq, nullptr, 0);
    ASSERT_EQ(rc, 0) << "message " << i;
  }
  SharingDriver drive(many, peer);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(drive.wait(peer.rx_cq).err, 0);
  for (uint64_t i = 0; i < in.size(); ++i) EXPECT_EQ(in[i], i + 1);
}

TEST(RdmStx, SharedReceivesBesideIt) {
  STX_NEEDED();
  if (!stx_info([](fi_info &hints) { hints.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; }))
    GTEST_SKIP() << stack() << " does not offer both";
  Node peer{Options()};
  Sharing many(0);
  Handle<fid_ep> srx;
  must(fi_srx_context(many.domain, many.info->rx_attr, srx.out(), nullptr));
  for (int i = 0; i < 2; ++i) {
    Sharing::Member &member = many.make();
    must(fi_ep_bind(member.ep, many.stx.fid(), 0));
    must(fi_ep_bind(member.ep, srx.fid(), 0));
    must(fi_enable(member.ep));
  }
  SharingDriver drive(many, peer);
  for (size_t i = 0; i < 2; ++i) {
    const fi_addr_t at = peer.insert(address_of([&](void *buffer, size_t *size) {
      return fi_getname(many.members[i].ep.fid(), buffer, size);
    }));
    std::vector<uint8_t> out = pattern(100, unsigned(i)), in(100);
    must(fi_trecv(srx, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in));
    drive.post([&] { return fi_tsend(peer.ep, out.data(), out.size(), nullptr, at, 7, &out); });
    EXPECT_EQ(drive.wait(many.members[i].rx_cq).context, &in);
    drive.wait(peer.tx_cq);
    EXPECT_EQ(in, out);
  }
  many.members.clear();
}

TEST(RdmStx, WrongCallsSaySo) {
  STX_NEEDED();
  Sharing many(1);
  EXPECT_EQ(many.stx->fid.fclass, size_t(FI_CLASS_STX_CTX));
  EXPECT_EQ(many.stx->fid.context, &many);
  EXPECT_EQ(fi_close(many.stx.fid()), -FI_EBUSY) << "an endpoint is bound";
  Sharing::Member &member = many.make();
  EXPECT_EQ(fi_enable(member.ep), -FI_EINVAL) << "it was opened to share a context";
  EXPECT_EQ(fi_ep_bind(member.ep, many.stx.fid(), FI_TRANSMIT), -FI_EBADFLAGS);
  must(fi_ep_bind(member.ep, many.stx.fid(), 0));
  EXPECT_EQ(fi_ep_bind(member.ep, many.stx.fid(), 0), -FI_EBUSY) << "it has one";
  EXPECT_EQ(fi_ep_bind(many.members[0].ep, many.stx.fid(), 0), -FI_EBUSY) << "so has this one";
  // Less than the endpoint has.
  fi_tx_attr small = *many.info->tx_attr;
  small.caps = FI_MSG | FI_SEND;
  Handle<fid_stx> less;
  must(fi_stx_context(many.domain, &small, less.out(), nullptr));
  Sharing::Member &third = many.make();
  EXPECT_EQ(fi_ep_bind(third.ep, less.fid(), 0), -FI_EINVAL) << "it has no FI_TAGGED";
  // Of another domain.
  Sharing others(0);
  EXPECT_EQ(fi_ep_bind(third.ep, others.stx.fid(), 0), -FI_EDOMAIN);
  fid_stx *none = nullptr;
  fi_tx_attr more = *many.info->tx_attr;
  more.size = size_t(1) << 40;
  EXPECT_EQ(fi_stx_context(many.domain, &more, &none, nullptr), -FI_EINVAL);
  many.members.clear();
}

}  // namespace
}  // namespace weft::conformance::rdm
