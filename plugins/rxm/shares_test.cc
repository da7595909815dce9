// SPDX-License-Identifier: BSD-2-Clause
// One peer must not disturb the others: a peer that sends more than is received, and a process that
// claims the address of a peer. Over tcp, with real connections.
#include <arpa/inet.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <unistd.h>

#include <cstdlib>

#include "plugins/rxm/test_peer.h"
#include "plugins/rxm/wire/connect_data.h"

namespace weft::conformance {
namespace {

// Exchanges messages in both directions, small and large.
void talk(Peer &a, Peer &b, fi_addr_t b_at_a, fi_addr_t a_at_b, uint64_t tag) {
  for (const size_t size : {8, 16384, 300000}) {
    const Bytes out = content(size, unsigned(tag));
    Bytes at_a(size), at_b(size);
    must(fi_trecv(a.ep, at_a.data(), size, nullptr, FI_ADDR_UNSPEC, tag, 0, &at_a));
    must(fi_trecv(b.ep, at_b.data(), size, nullptr, FI_ADDR_UNSPEC, tag, 0, &at_b));
    const auto send = [&](Peer &from, fi_addr_t to) {
      ssize_t rc = -FI_EAGAIN;
      until({&a, &b}, [&] {
        rc = fi_tsend(from.ep, out.data(), size, nullptr, to, tag, &from);
        return rc != -FI_EAGAIN;
      });
      must(rc);
    };
    send(a, b_at_a);
    send(b, a_at_b);
    for (Peer *peer : {&a, &b}) ASSERT_EQ(wait(*peer, peer, {&a, &b}).err, 0);
    ASSERT_EQ(wait(a, &at_a, {&a, &b}).err, 0);
    ASSERT_EQ(wait(b, &at_b, {&a, &b}).err, 0);
    ASSERT_EQ(at_a, out);
    ASSERT_EQ(at_b, out);
  }
}

// The environment sets a small pool and a low limit for copies (CMakeLists.txt).
TEST(RxmShares, AnUnreceivedPeerDoesNotStopTheOthers) {
  const char *limit = std::getenv("FI_OFI_RXM_UNEXPECTED_LIMIT");
  if (limit == nullptr || std::string(limit) != "64K") GTEST_SKIP() << "without the limit";
  for (const bool known : {true, false}) {
    SCOPED_TRACE(known ? "in the address vector" : "a stranger");
    Peer a, honest, hasty;
    const fi_addr_t to_honest = a.insert(honest), to_a = honest.insert(a);
    if (known) a.insert(hasty);
    const fi_addr_t from_hasty = hasty.insert(a);
    talk(a, honest, to_honest, to_a, 1);
    const Bytes out = content(8000, 5);
    size_t sent = 0;
    for (size_t refused = 0; sent < 8000 && refused < 2000;) {
      const ssize_t rc =
          fi_tsend(hasty.ep, out.data(), out.size(), nullptr, from_hasty, 1000 + sent, mark(sent));
      ASSERT_TRUE(rc == 0 || rc == -FI_EAGAIN) << rc;
      rc == 0 ? void(++sent) : void(++refused);
      a.progress();
      hasty.progress();
    }
    EXPECT_LT(sent, 8000u) << "nothing stopped the sender";
    for (uint64_t tag = 2; tag < 20; ++tag) talk(a, honest, to_honest, to_a, tag);
    Bytes in(out.size());
    for (size_t i = 0; i < sent; ++i) {
      must(fi_trecv(a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1000 + i, 0, &in));
      ASSERT_EQ(wait(a, &in, {&a, &hasty}).len, out.size());
      ASSERT_EQ(in, out);
    }
    EXPECT_TRUE(until({&a, &hasty}, [&] { return hasty.done.size() == sent; }));
    for (const Entry &entry : hasty.done) EXPECT_EQ(entry.err, 0);
    EXPECT_TRUE(a.done.empty());
    EXPECT_TRUE(honest.done.empty());
  }
}

// A connection of the provider beneath, with any port and process in its request.
class Claimant {
 public:
  Claimant(const Peer &target, uint16_t port, uint32_t process) {
    Info hints = make_hints(FI_MSG);
    hints->ep_attr->type = FI_EP_MSG;
    hints->addr_format = FI_SOCKADDR_IN;
    std::free(hints->fabric_attr->prov_name);
    hints->fabric_attr->prov_name = strdup("tcp");
    Info info = get_info("127.0.0.1", nullptr, FI_SOURCE, hints.get(), FI_VERSION(2, 0));
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    must(fi_domain(fabric, info.get(), domain.out(), nullptr));
    fi_eq_attr eq_attr{};
    must(fi_eq_open(fabric, &eq_attr, eq.out(), nullptr));
    fi_cq_attr cq_attr{};
    must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
    must(fi_endpoint(domain, info.get(), ep.out(), nullptr));
    must(fi_ep_bind(ep, &eq->fid, 0));
    must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    must(fi_enable(ep));
    const rxm::ConnectBytes data = rxm::encode(rxm::ConnectData{
        .port = port, .eager_limit = 16384, .receive_count = 255, .process = process});
    must(fi_connect(ep, &target.name, data.data(), data.size()));
  }
  // Returns FI_CONNECTED, or 0 if refused.
  uint32_t answer(std::initializer_list<Peer *> peers) {
    uint32_t event = 0;
    ssize_t n = -FI_EAGAIN;
    EXPECT_TRUE(until(peers, [&] {
      fi_eq_cm_entry entry;
      n = fi_eq_read(eq, &event, &entry, sizeof entry, 0);
      return n != -FI_EAGAIN;
    }));
    return n > 0 ? event : 0;
  }

  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_eq> eq;
  Handle<fid_cq> cq;
  Handle<fid_ep> ep;
};

TEST(RxmShares, AStrangerCannotReplaceALivePeer) {
  Peer a, b;
  const fi_addr_t to_b = a.insert(b), to_a = b.insert(a);
  talk(a, b, to_b, to_a, 1);
  for (uint32_t process = 1; process < 6; ++process) {
    Claimant claimant(a, ntohs(b.name.sin_port), process);
    EXPECT_EQ(claimant.answer({&a, &b}), 0u) << "a stranger has got the name of a peer";
    talk(a, b, to_b, to_a, 1 + process);
  }
  EXPECT_TRUE(a.done.empty());
  EXPECT_TRUE(b.done.empty());
}

// Strangers that connect and send nothing do not keep others out.
TEST(RxmShares, SilentStrangersMakeRoom) {
  const char *limit = std::getenv("FI_OFI_RXM_MAX_UNNAMED_PEERS");
  if (limit == nullptr || std::string(limit) != "4") GTEST_SKIP() << "without the limit";
  Peer a, b;
  std::vector<std::unique_ptr<Claimant>> silent;
  size_t accepted = 0;
  for (uint16_t n = 0; n < 12; ++n) {
    silent.push_back(std::make_unique<Claimant>(a, uint16_t(1000 + n), n));
    accepted += silent.back()->answer({&a}) == FI_CONNECTED;
  }
  EXPECT_EQ(accepted, 4u);
  const fi_addr_t to_a = b.insert(a);
  Bytes out = content(100, 1), in(100);
  must(fi_trecv(a.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  must(fi_tsend(b.ep, out.data(), out.size(), nullptr, to_a, 1, &out));
  EXPECT_EQ(wait(b, &out, {&a, &b}).err, 0);
  EXPECT_EQ(wait(a, &in, {&a, &b}).err, 0);
  EXPECT_EQ(in, out);
}

}  // namespace
}  // namespace weft::conformance
