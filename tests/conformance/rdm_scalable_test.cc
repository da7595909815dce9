// SPDX-License-Identifier: BSD-2-Clause
// Scalable endpoints (fi_endpoint.3, SCALABLE ENDPOINTS): contexts with queues, counters and
// attributes of their own behind one address, named by fi_rx_addr (fi_av.3).
#include <netinet/in.h>
#include <rdma/fi_atomic.h>
#include <unistd.h>
#include <weft/plugin.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "tests/conformance/process.h"
#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/text_addresses.h"

namespace weft::conformance::rdm {
namespace {

constexpr int kBits = 8;  // fi_av_attr.rx_ctx_bits

Options scalable_options(uint64_t caps = 0) {
  Options options;
  options.caps |= FI_NAMED_RX_CTX | caps;
  return options;
}

Info scalable_info(const conformance::Options &options, size_t tx, size_t rx) {
  Info hints = make_hints(options);
  hints->ep_attr->tx_ctx_cnt = tx;
  hints->ep_attr->rx_ctx_cnt = rx;
  return get_info(options.node.c_str(), nullptr, FI_SOURCE, hints.get(), options.api);
}

// An application with a scalable endpoint, whose contexts have a queue each.
struct Scalable : Application {
  struct Shape {
    size_t tx = 4, rx = 4;
    bool open = true;  // the contexts
  };
  explicit Scalable(const Options &wanted = scalable_options()) : Scalable(wanted, Shape()) {}
  Scalable(const Options &wanted, const Shape &shape) : Application(wanted) {
    const Info found = scalable_info(options, shape.tx, shape.rx);
    if (!found) throw std::runtime_error("fi_getinfo offers no such contexts");
    open_fabric(found.get());
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.rx_ctx_bits = kBits;
    must(fi_av_open(domain, &attr, av.out(), nullptr));
    must(fi_scalable_ep(domain, info.get(), ep.out(), this));
    must(fi_scalable_ep_bind(ep, av.fid(), 0));
    if (!shape.open) return;
    for (size_t i = 0; i < shape.tx; ++i) open_tx(int(i));
    for (size_t i = 0; i < shape.rx; ++i) open_rx(int(i));
    must(fi_enable(ep));
  }
  fid_ep *open_tx(int index, fi_tx_attr *attr = nullptr) {
    Side &side = tx[size_t(index)];
    must(fi_tx_context(ep, index, attr, side.ep.out(), nullptr));
    if (!side.cq) must(fi_cq_open(domain, &options.tx_cq, side.cq.out(), nullptr));
    must(fi_ep_bind(side.ep, side.cq.fid(), FI_TRANSMIT));
    must(fi_enable(side.ep));
    return side.ep;
  }
  fid_ep *open_rx(int index, fi_rx_attr *attr = nullptr) {
    Side &side = rx[size_t(index)];
    must(fi_rx_context(ep, index, attr, side.ep.out(), nullptr));
    if (!side.cq) must(fi_cq_open(domain, &options.rx_cq, side.cq.out(), nullptr));
    must(fi_ep_bind(side.ep, side.cq.fid(), FI_RECV));
    must(fi_enable(side.ep));
    return side.ep;
  }
  fi_addr_t insert(const std::string &address) {
    fi_addr_t to = FI_ADDR_NOTAVAIL;
    must(insert_address(av, address, &to, 0, nullptr) == 1 ? 0 : -FI_EINVAL);
    return to;
  }
  void progress() {
    for (auto *sides : {&tx, &rx})
      for (auto &[index, side] : *sides) fi_cq_read(side.cq, nullptr, 0);
  }

  struct Side {
    Handle<fid_cq> cq;
    Handle<fid_ep> ep;
  };
  std::map<size_t, Side> tx, rx;
};

struct Drive final : Driver {
  explicit Drive(std::vector<Scalable *> all, Node *plain = nullptr)
      : all(std::move(all)), plain(plain) {}
  void progress() override {
    for (Scalable *one : all) one->progress();
    if (plain != nullptr) plain->progress();
  }
  std::optional<Completion> next(fid_cq *cq) override { return poll(cq); }  // with its source
  std::vector<Scalable *> all;
  Node *plain;
};

// Endpoints of cxi are targets of others' contexts (FI_NAMED_RX_CTX), and have none.
bool offers_contexts(uint64_t caps) {
  const Info info = find_info(scalable_options(caps));
  return info && info->domain_attr->max_ep_tx_ctx > 1 && info->domain_attr->max_ep_rx_ctx > 1;
}

#define SCALABLE_NEEDED(caps) \
  covers("FI_NAMED_RX_CTX");  \
  if (!offers_contexts(caps)) \
  GTEST_SKIP() << stack() << " does not offer contexts with " << caps_text(caps)

void exchange(Driver &drive, fid_ep *from, fid_cq *from_cq, fi_addr_t dest, fid_ep *to,
              fid_cq *to_cq, size_t size = 100, uint64_t tag = 1,
              fi_addr_t source = FI_ADDR_NOTAVAIL) {
  std::vector<uint8_t> out = pattern(size, unsigned(tag)), in(size);
  must(fi_trecv(to, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, tag, 0, &in));
  drive.post([&] { return fi_tsend(from, out.data(), out.size(), nullptr, dest, tag, &out); });
  const Completion received = drive.wait(to_cq), sent = drive.wait(from_cq);
  EXPECT_EQ(received.err, 0);
  EXPECT_EQ(received.context, &in);
  EXPECT_EQ(received.source, source);
  EXPECT_EQ(sent.context, &out);
  EXPECT_EQ(sent.err, 0);
  EXPECT_EQ(in, out);
}

TEST(RdmScalable, FiGetinfoSaysHowManyContexts) {
  SCALABLE_NEEDED(0);
  const Info info = scalable_info(scalable_options(), 2, 3);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->ep_attr->tx_ctx_cnt, 2u);
  EXPECT_EQ(info->ep_attr->rx_ctx_cnt, 3u);
  EXPECT_GE(info->domain_attr->max_ep_tx_ctx, 2u);
  EXPECT_GE(info->domain_attr->max_ep_rx_ctx, 3u);
  EXPECT_TRUE(info->caps & FI_NAMED_RX_CTX);
  // Not to whom did not ask.
  const Info plain = find_info(Options());
  EXPECT_EQ(plain->ep_attr->tx_ctx_cnt, 1u);
  EXPECT_EQ(plain->ep_attr->rx_ctx_cnt, 1u);
  EXPECT_FALSE(plain->caps & FI_NAMED_RX_CTX);
  EXPECT_FALSE(
      ask([&](fi_info &h) { h.ep_attr->tx_ctx_cnt = info->domain_attr->max_ep_tx_ctx + 1; }));
}

TEST(RdmScalable, EachContextOfAPeerIsReached) {
  SCALABLE_NEEDED(0);
  Scalable a, b;
  const fi_addr_t to = a.insert(b.name());
  Drive drive({&a, &b});
  for (size_t from = 0; from < 4; ++from)
    for (size_t at = 0; at < 4; ++at)
      exchange(drive, a.tx[from].ep, a.tx[from].cq, fi_rx_addr(to, int(at), kBits), b.rx[at].ep,
               b.rx[at].cq, 100 + at, 1 + at);
  // Without a context: the first one.
  exchange(drive, a.tx[3].ep, a.tx[3].cq, to, b.rx[0].ep, b.rx[0].cq);
}

TEST(RdmScalable, MessagesOfAllSizesInBothDirections) {
  SCALABLE_NEEDED(0);
  Scalable a, b;
  const fi_addr_t to_b = a.insert(b.name()), to_a = b.insert(a.name());
  Drive drive({&a, &b});
  for (size_t size : edges()) {
    if (size > a.info->ep_attr->max_msg_size) continue;
    exchange(drive, a.tx[1].ep, a.tx[1].cq, fi_rx_addr(to_b, 2, kBits), b.rx[2].ep, b.rx[2].cq,
             size);
    exchange(drive, b.tx[2].ep, b.tx[2].cq, fi_rx_addr(to_a, 3, kBits), a.rx[3].ep, a.rx[3].cq,
             size);
  }
}

TEST(RdmScalable, TheSourceOfAMessageIsTheEndpoint) {
  SCALABLE_NEEDED(FI_SOURCE);
  Scalable a(scalable_options(FI_SOURCE)), b(scalable_options(FI_SOURCE));
  const fi_addr_t to = a.insert(b.name()), from = b.insert(a.name());
  Drive drive({&a, &b});
  for (size_t i = 0; i < 4; ++i)
    exchange(drive, a.tx[i].ep, a.tx[i].cq, fi_rx_addr(to, 1, kBits), b.rx[1].ep, b.rx[1].cq, 100,
             1, from);
}

// The endpoint of the sender is asked whether it has the context, and has no open receive context.
TEST(RdmScalable, ASenderThatReceivesNothingHasAName) {
  SCALABLE_NEEDED(FI_SOURCE);
  Scalable a(scalable_options(FI_SOURCE), {.tx = 2, .rx = 1, .open = false});
  Scalable b(scalable_options(FI_SOURCE));
  must(fi_enable(a.ep));
  for (int i = 0; i < 2; ++i) a.open_tx(i);
  const fi_addr_t to = a.insert(b.name()), from = b.insert(a.name());
  Drive drive({&a, &b});
  exchange(drive, a.tx[1].ep, a.tx[1].cq, to, b.rx[0].ep, b.rx[0].cq, 100, 1, from);
}

// Nor when it has closed its first receive context.
TEST(RdmScalable, ASenderWhoseFirstContextIsClosedHasAName) {
  SCALABLE_NEEDED(FI_SOURCE);
  Scalable a(scalable_options(FI_SOURCE)), b(scalable_options(FI_SOURCE));
  const std::string name = a.name();
  const fi_addr_t to = a.insert(b.name()), from = b.insert(name);
  Drive drive({&a, &b});
  exchange(drive, b.tx[0].ep, b.tx[0].cq, from, a.rx[0].ep, a.rx[0].cq, 100, 1, to);
  a.rx[0].ep.reset();
  for (size_t i = 0; i < 2; ++i)
    exchange(drive, a.tx[1].ep, a.tx[1].cq, fi_rx_addr(to, int(i), kBits), b.rx[i].ep, b.rx[i].cq,
             100, 1, from);
  a.open_rx(0);
  EXPECT_EQ(a.name(), name);
  exchange(drive, b.tx[1].ep, b.tx[1].cq, from, a.rx[0].ep, a.rx[0].cq, 100, 1, to);
}

TEST(RdmScalable, ReceivesFromOneEndpoint) {
  SCALABLE_NEEDED(FI_DIRECTED_RECV | FI_SOURCE);
  const Options options = scalable_options(FI_DIRECTED_RECV | FI_SOURCE);
  Scalable a(options), b(options), c(options);
  const fi_addr_t a_to_b = a.insert(b.name()), c_to_b = c.insert(b.name());
  const fi_addr_t from_a = b.insert(a.name()), from_c = b.insert(c.name());
  Drive drive({&a, &b, &c});
  std::vector<uint8_t> out_a = pattern(64, 1), out_c = pattern(64, 2), in_a(64), in_c(64);
  // The receives name contexts of the senders' endpoints; those that send are others.
  must(fi_trecv(b.rx[1].ep, in_c.data(), 64, nullptr, fi_rx_addr(from_c, 3, kBits), 9, 0, &in_c));
  must(fi_trecv(b.rx[1].ep, in_a.data(), 64, nullptr, from_a, 9, 0, &in_a));
  for (auto &[from, to, out] : {std::tuple(&a, a_to_b, &out_a), std::tuple(&c, c_to_b, &out_c)}) {
    drive.post([&, from = from, to = to, out = out] {
      return fi_tsend(from->tx[2].ep, out->data(), 64, nullptr, fi_rx_addr(to, 1, kBits), 9, out);
    });
    const Completion done = drive.wait(b.rx[1].cq);
    EXPECT_EQ(done.context, from == &a ? &in_a : &in_c);
    EXPECT_EQ(done.source, from == &a ? from_a : from_c);
    drive.wait(from->tx[2].cq);
  }
  EXPECT_EQ(in_a, out_a);
  EXPECT_EQ(in_c, out_c);
}

TEST(RdmScalable, APlainEndpointAndAScalableOne) {
  SCALABLE_NEEDED(FI_SOURCE);
  Scalable a(scalable_options(FI_SOURCE));
  Options options = scalable_options(FI_SOURCE);
  Node plain(options);
  const fi_addr_t to_plain = a.insert(plain.name()), to_a = plain.insert(a.name());
  Drive drive({&a}, &plain);
  exchange(drive, plain.ep, plain.tx_cq, to_a, a.rx[0].ep, a.rx[0].cq, 100, 1, to_plain);
  for (size_t i = 0; i < 4; ++i)
    exchange(drive, a.tx[i].ep, a.tx[i].cq, to_plain, plain.ep, plain.rx_cq, 100, 1, to_a);
}

// A peer of the vector comes first, one that is not in it later.
TEST(RdmScalable, AStrangerAfterAPeerOfTheVector) {
  SCALABLE_NEEDED(FI_SOURCE);
  Scalable a(scalable_options(FI_SOURCE));
  Node plain(scalable_options(FI_SOURCE)), stranger(scalable_options(FI_SOURCE));
  const fi_addr_t to_plain = a.insert(plain.name());
  for (Node *from : {&plain, &stranger}) {
    const fi_addr_t to_a = from->insert(a.name());
    Drive drive({&a}, from);
    exchange(drive, from->ep, from->tx_cq, to_a, a.rx[0].ep, a.rx[0].cq, 100, 1,
             from == &plain ? to_plain : FI_ADDR_NOTAVAIL);
  }
}

TEST(RdmScalable, APlainEndpointNamesContexts) {
  SCALABLE_NEEDED(0);
  Scalable a;
  Node plain(scalable_options(), nullptr, [](Node &) {});
  Handle<fid_av> av;
  fi_av_attr attr{};
  attr.type = FI_AV_TABLE;
  attr.rx_ctx_bits = kBits;
  must(fi_av_open(plain.domain, &attr, av.out(), nullptr));
  Handle<fid_cq> cq;
  must(fi_cq_open(plain.domain, &plain.options.tx_cq, cq.out(), nullptr));
  Handle<fid_ep> ep;
  must(fi_endpoint(plain.domain, plain.info.get(), ep.out(), nullptr));
  must(fi_ep_bind(ep, av.fid(), 0));
  must(fi_ep_bind(ep, cq.fid(), FI_TRANSMIT | FI_RECV));
  must(fi_enable(ep));
  const std::string name = a.name();
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(insert_address(av, name, &to, 0, nullptr), 1);
  Drive drive({&a}, &plain);
  for (size_t i = 0; i < 4; ++i)
    exchange(drive, ep, cq, fi_rx_addr(to, int(i), kBits), a.rx[i].ep, a.rx[i].cq);
  ep.reset();
}

TEST(RdmScalable, RemoteMemoryThroughEachContext) {
  SCALABLE_NEEDED(FI_RMA);
  const Options options = scalable_options(FI_RMA);
  Scalable a(options), b(options);
  const fi_addr_t to = a.insert(b.name());
  Drive drive({&a, &b});
  std::vector<uint8_t> memory(4096, 0xee);
  fid_mr *const region =
      b.expose(memory.data(), memory.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 7);
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<uint8_t> out = pattern(1000, unsigned(i + 1));
    std::vector<uint8_t> back(1000);
    const uint64_t at = b.base_of(memory.data()) + 1000 * i;
    const fi_addr_t dest = fi_rx_addr(to, int(i), kBits);
    fid_ep *const ep = a.tx[i].ep;
    drive.post([&] {
      return fi_write(ep, out.data(), out.size(), nullptr, dest, at, fi_mr_key(region), nullptr);
    });
    EXPECT_EQ(drive.wait(a.tx[i].cq).err, 0);
    drive.post([&] {
      return fi_read(ep, back.data(), back.size(), nullptr, dest, at, fi_mr_key(region), nullptr);
    });
    EXPECT_EQ(drive.wait(a.tx[i].cq).err, 0);
    EXPECT_EQ(back, out);
    EXPECT_EQ(std::memcmp(memory.data() + 1000 * i, out.data(), out.size()), 0);
  }
  // A region that is closed is closed for all of them.
  const uint64_t key = fi_mr_key(region), at = b.base_of(memory.data());
  b.regions.clear();
  for (size_t i = 0; i < 4; ++i) {
    std::vector<uint8_t> back(8);
    drive.post([&] {
      return fi_read(a.tx[i].ep, back.data(), back.size(), nullptr, fi_rx_addr(to, int(i), kBits),
                     at, key, nullptr);
    });
    EXPECT_NE(drive.wait(a.tx[i].cq).err, 0);
  }
}

TEST(RdmScalable, ContextsCountForThemselves) {
  SCALABLE_NEEDED(0);
  Scalable a(scalable_options(), {.tx = 2, .rx = 2, .open = false}), b;
  std::array<Handle<fid_cntr>, 2> sent;
  for (int i = 0; i < 2; ++i) {
    fi_cntr_attr attr{};
    must(fi_cntr_open(a.domain, &attr, sent[size_t(i)].out(), nullptr));
    Scalable::Side &side = a.tx[size_t(i)];
    must(fi_tx_context(a.ep, i, nullptr, side.ep.out(), nullptr));
    must(fi_cq_open(a.domain, &a.options.tx_cq, side.cq.out(), nullptr));
    must(fi_ep_bind(side.ep, side.cq.fid(), FI_TRANSMIT));
    must(fi_ep_bind(side.ep, sent[size_t(i)].fid(), FI_SEND));
    must(fi_enable(side.ep));
  }
  const fi_addr_t to = a.insert(b.name());
  Drive drive({&a, &b});
  for (int i = 0; i < 3; ++i)
    exchange(drive, a.tx[1].ep, a.tx[1].cq, fi_rx_addr(to, 3, kBits), b.rx[3].ep, b.rx[3].cq);
  drive.wait_count(sent[1], 3);
  EXPECT_EQ(fi_cntr_read(sent[0]), 0u);
  a.tx.clear();
}

TEST(RdmScalable, ContextsHaveAttributesOfTheirOwn) {
  SCALABLE_NEEDED(0);
  Scalable a(scalable_options(), {.tx = 2, .rx = 1, .open = false}), b;
  fi_tx_attr attr{};
  attr.size = 16;
  attr.op_flags = FI_COMPLETION;
  fid_ep *const small = a.open_tx(0, &attr), *const usual = a.open_tx(1);
  EXPECT_EQ(attr.size, 16u);
  EXPECT_NE(attr.iov_limit, 0u);
  const auto size_of = [](fid_ep *ep) {
    size_t size = 0, length = sizeof size;
    must(fi_getopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &size, &length));
    return size;
  };
  EXPECT_EQ(size_of(small), 16u);
  EXPECT_EQ(size_of(usual), a.info->tx_attr->size);
  const fi_addr_t to = a.insert(b.name());
  Drive drive({&a, &b});
  exchange(drive, small, a.tx[0].cq, to, b.rx[0].ep, b.rx[0].cq);
  exchange(drive, usual, a.tx[1].cq, to, b.rx[0].ep, b.rx[0].cq);
  // More than the endpoint has.
  fid_ep *none = nullptr;
  fi_rx_attr more{};
  more.caps = FI_ATOMIC | FI_COLLECTIVE;
  EXPECT_EQ(fi_rx_context(a.ep, 0, &more, &none, nullptr), -FI_EINVAL);
}

// Some ports of the row are taken: another row will do. The first one is the application's choice:
// it is had when it is free. Those that were taken before are taken twice.
TEST(RdmScalable, AnEndpointGetsItsPortsWhenTheyAreFree) {
  SCALABLE_NEEDED(0);
  constexpr uint16_t kBefore = 3;
  for (int attempt = 0; attempt < 50; ++attempt) {
    Scalable late(scalable_options(), {.open = false}), peer;
    sockaddr_in wanted;
    {
      const Scalable first;
      const std::string taken = first.name();
      if (taken.size() != sizeof wanted) GTEST_SKIP() << stack() << " has no IPv4 addresses";
      std::memcpy(&wanted, taken.data(), sizeof wanted);
      ASSERT_EQ(fi_setname(late.ep.fid(), &wanted, sizeof wanted), -FI_EADDRINUSE);
      wanted.sin_port = htons(uint16_t(ntohs(wanted.sin_port) - kBefore));
      const int rc = fi_setname(late.ep.fid(), &wanted, sizeof wanted);
      if (rc == -FI_EADDRINUSE) continue;  // another program has the first one
      ASSERT_EQ(rc, 0);
      sockaddr_in got;
      size_t length = sizeof got;
      must(fi_getname(late.ep.fid(), &got, &length));
      EXPECT_NE(got.sin_port, wanted.sin_port);
    }
    if (fi_setname(late.ep.fid(), &wanted, sizeof wanted) != 0) continue;
    sockaddr_in got;
    size_t length = sizeof got;
    must(fi_getname(late.ep.fid(), &got, &length));
    if (got.sin_port != wanted.sin_port) continue;  // another program has one of them
    for (int i = 0; i < 4; ++i) late.open_rx(i), late.open_tx(i);
    must(fi_enable(late.ep));
    const fi_addr_t to = peer.insert(late.name()), back = late.insert(peer.name());
    Drive drive({&late, &peer});
    for (size_t i = 0; i < 4; ++i) {
      exchange(drive, peer.tx[i].ep, peer.tx[i].cq, fi_rx_addr(to, int(i), kBits), late.rx[i].ep,
               late.rx[i].cq);
      exchange(drive, late.tx[i].ep, late.tx[i].cq, fi_rx_addr(back, int(i), kBits), peer.rx[i].ep,
               peer.rx[i].cq);
    }
    return;
  }
  FAIL() << "the ports before an endpoint are never free";
}

TEST(RdmScalable, AContextIsOpenedAgain) {
  SCALABLE_NEEDED(0);
  Scalable a, b;
  const std::string name = b.name();
  const fi_addr_t to = a.insert(name);
  Drive drive({&a, &b});
  exchange(drive, a.tx[1].ep, a.tx[1].cq, fi_rx_addr(to, 2, kBits), b.rx[2].ep, b.rx[2].cq);
  a.tx[1].ep.reset();
  a.open_tx(1);
  exchange(drive, a.tx[1].ep, a.tx[1].cq, fi_rx_addr(to, 2, kBits), b.rx[2].ep, b.rx[2].cq);
  EXPECT_EQ(b.name(), name);
}

TEST(RdmScalable, WrongCallsSaySo) {
  SCALABLE_NEEDED(0);
  Scalable a(scalable_options(), {.tx = 2, .rx = 2, .open = false});
  fid_ep *none = nullptr;
  for (int index : {-1, 2, 1000}) {
    EXPECT_EQ(fi_tx_context(a.ep, index, nullptr, &none, nullptr), -FI_EINVAL) << index;
    EXPECT_EQ(fi_rx_context(a.ep, index, nullptr, &none, nullptr), -FI_EINVAL) << index;
  }
  EXPECT_EQ(fi_scalable_ep_bind(a.ep, a.av.fid(), 0), -FI_EBUSY) << "it has one";
  Handle<fid_cq> cq;
  must(fi_cq_open(a.domain, &a.options.tx_cq, cq.out(), nullptr));
  EXPECT_EQ(fi_scalable_ep_bind(a.ep, cq.fid(), FI_TRANSMIT), -FI_EINVAL) << "contexts report";
  EXPECT_EQ(fi_close(a.av.fid()), -FI_EBUSY);

  Handle<fid_ep> tx, rx;
  must(fi_tx_context(a.ep, 0, nullptr, tx.out(), this));
  must(fi_rx_context(a.ep, 1, nullptr, rx.out(), nullptr));
  EXPECT_EQ(tx->fid.fclass, size_t(FI_CLASS_TX_CTX));
  EXPECT_EQ(rx->fid.fclass, size_t(FI_CLASS_RX_CTX));
  EXPECT_EQ(tx->fid.context, this);
  EXPECT_EQ(fi_tx_context(a.ep, 0, nullptr, &none, nullptr), -FI_EBUSY) << "it is open";
  EXPECT_EQ(fi_enable(tx), -FI_ENOCQ) << "nothing is bound";
  EXPECT_EQ(fi_enable(rx), -FI_ENOCQ);
  char byte = 0;
  EXPECT_EQ(fi_send(tx, &byte, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
  Handle<fid_cq> rx_cq;
  must(fi_cq_open(a.domain, &a.options.rx_cq, rx_cq.out(), nullptr));
  must(fi_ep_bind(tx, cq.fid(), FI_TRANSMIT));
  must(fi_ep_bind(rx, rx_cq.fid(), FI_RECV));
  must(fi_enable(tx));
  must(fi_enable(rx));
  EXPECT_LT(fi_recv(tx, &byte, 1, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  EXPECT_LT(fi_trecv(tx, &byte, 1, nullptr, FI_ADDR_UNSPEC, 0, 0, nullptr), 0);
  const fi_addr_t self = a.insert(a.name());
  EXPECT_LT(fi_send(rx, &byte, 1, nullptr, self, nullptr), 0);
  EXPECT_LT(fi_tsend(rx, &byte, 1, nullptr, self, 0, nullptr), 0);
  EXPECT_LT(fi_send(tx, &byte, 1, nullptr, fi_rx_addr(self, 200, kBits), nullptr), 0)
      << "no endpoint has so many";
  EXPECT_LT(fi_send(a.ep, &byte, 1, nullptr, self, nullptr), 0) << "no call for the endpoint";

  EXPECT_EQ(fi_close(a.ep.fid()), -FI_EBUSY) << "contexts are open";
  tx.reset();
  EXPECT_EQ(fi_close(a.ep.fid()), -FI_EBUSY) << "one is open";
  rx.reset();
  a.ep.reset();

  fi_info *const info = a.info.get();
  const size_t count =
      std::exchange(info->ep_attr->tx_ctx_cnt, info->domain_attr->max_ep_tx_ctx + 1);
  EXPECT_EQ(fi_scalable_ep(a.domain, info, &none, nullptr), -FI_EINVAL);
  info->ep_attr->tx_ctx_cnt = count;
  must(fi_scalable_ep(a.domain, info, a.ep.out(), nullptr));
  EXPECT_EQ(fi_enable(a.ep), -FI_ENOAV);
}

TEST(RdmScalable, AnAddressVectorThatProcessesShare) {
  SCALABLE_NEEDED(FI_SOURCE);
  const std::string name = "scalable-" + std::to_string(getpid());
  Scalable a(scalable_options(FI_SOURCE)), b(scalable_options(FI_SOURCE));
  Scalable c(scalable_options(FI_SOURCE), {.tx = 1, .rx = 1, .open = false});
  // A second endpoint of c, with a vector of that name, which a has written to.
  fi_av_attr attr{};
  attr.type = FI_AV_TABLE;
  attr.rx_ctx_bits = kBits;
  attr.name = name.c_str();
  Handle<fid_av> writer, reader;
  must(fi_av_open(a.domain, &attr, writer.out(), nullptr));
  attr.map_addr = nullptr;
  must(fi_av_open(c.domain, &attr, reader.out(), nullptr));
  c.ep.reset();
  must(fi_scalable_ep(c.domain, c.info.get(), c.ep.out(), nullptr));
  must(fi_scalable_ep_bind(c.ep, reader.fid(), 0));
  c.open_tx(0);
  const std::string peer = b.name();
  fi_addr_t to = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(insert_address(writer, peer, &to, 0, nullptr), 1);
  Drive drive({&a, &b, &c});
  exchange(drive, c.tx[0].ep, c.tx[0].cq, fi_rx_addr(to, 2, kBits), b.rx[2].ep, b.rx[2].cq);
  c.tx.clear();
  c.ep.reset();
}

// Each context opens the file of such a vector. Where some find no descriptor, none has it, and the
// endpoint takes another one.
TEST(RdmScalable, AVectorThatNotAllContextsCanOpen) {
  SCALABLE_NEEDED(0);
  if (!can_be_out_of_descriptors()) GTEST_SKIP() << "UBSan needs descriptors itself";
  if (!in_fresh_process({kNoControl})) return;
  const std::string name = "scalable-" + std::to_string(getpid());
  Scalable b;
  int refused = 0;
  for (int left = 0;; ++left) {
    ASSERT_LT(left, 32);
    Scalable a(scalable_options(), {.tx = 2, .rx = 2, .open = false});
    a.ep.reset();
    must(fi_scalable_ep(a.domain, a.info.get(), a.ep.out(), nullptr));
    for (size_t i : {0, 1}) must(fi_tx_context(a.ep, int(i), nullptr, a.tx[i].ep.out(), nullptr));
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    attr.rx_ctx_bits = kBits;
    attr.name = name.c_str();
    Handle<fid_av> shared;
    must(fi_av_open(a.domain, &attr, shared.out(), nullptr));
    int rc = 0;
    {
      NoDescriptors none;
      for (int i = 0; i < left; ++i) none.give_one();
      rc = fi_scalable_ep_bind(a.ep, shared.fid(), 0);
    }
    if (rc == 0) {
      a.tx.clear();
      a.ep.reset();
      break;
    }
    ++refused;
    shared.reset();  // nobody has it
    must(fi_scalable_ep_bind(a.ep, a.av.fid(), 0));
    for (auto &[index, side] : a.tx) {
      must(fi_cq_open(a.domain, &a.options.tx_cq, side.cq.out(), nullptr));
      must(fi_ep_bind(side.ep, side.cq.fid(), FI_TRANSMIT));
      must(fi_enable(side.ep));
    }
    Drive drive({&a, &b});
    exchange(drive, a.tx[1].ep, a.tx[1].cq, fi_rx_addr(a.insert(b.name()), 2, kBits), b.rx[2].ep,
             b.rx[2].cq);
  }
  EXPECT_GE(refused, 2) << "each of two contexts needs one";
}

TEST(RdmScalable, AContextThatThePeerDoesNotHave) {
  SCALABLE_NEEDED(0);
  // Without connections only a timeout shows it.
  if (!in_fresh_process({"FI_OFI_RXD_PEER_TIMEOUT_MS=300"})) return;
  std::vector<uint8_t> out(8);
  Scalable a, b;
  const fi_addr_t to = a.insert(b.name());
  Drive drive({&a, &b});
  // Behind the receive contexts are the ports of those that transmit.
  for (int index : {4, 7}) {
    drive.post([&] {
      return fi_send(a.tx[0].ep, out.data(), out.size(), nullptr, fi_rx_addr(to, index, kBits),
                     &out);
    });
    EXPECT_NE(drive.wait(a.tx[0].cq).err, 0) << index;
  }
}

TEST(RdmScalable, ARemovedPeerIsGoneForAllContexts) {
  SCALABLE_NEEDED(FI_SOURCE);
  const Options options = scalable_options(FI_SOURCE);
  Scalable a(options), b(options), c(options);
  fi_addr_t to = a.insert(b.name());
  const fi_addr_t from = b.insert(a.name());
  Drive drive({&a, &b, &c});
  exchange(drive, a.tx[1].ep, a.tx[1].cq, fi_rx_addr(to, 2, kBits), b.rx[2].ep, b.rx[2].cq, 100, 1,
           from);
  must(fi_av_remove(a.av, &to, 1, 0));
  char byte = 0;
  EXPECT_EQ(fi_send(a.tx[1].ep, &byte, 1, nullptr, fi_rx_addr(to, 2, kBits), nullptr), -FI_EINVAL);
  const fi_addr_t again = a.insert(c.name());
  EXPECT_EQ(again, to) << "the index is free";
  const fi_addr_t from_a = c.insert(a.name());
  exchange(drive, a.tx[1].ep, a.tx[1].cq, fi_rx_addr(again, 2, kBits), c.rx[2].ep, c.rx[2].cq, 100,
           1, from_a);
}

TEST(RdmScalable, ASenderIsNamedWhenItIsInserted) {
  SCALABLE_NEEDED(FI_SOURCE);
  const Options options = scalable_options(FI_SOURCE);
  Scalable a(options), b(options);
  const fi_addr_t to = a.insert(b.name());
  Drive drive({&a, &b});
  exchange(drive, a.tx[2].ep, a.tx[2].cq, fi_rx_addr(to, 1, kBits), b.rx[1].ep, b.rx[1].cq);
  const fi_addr_t from = b.insert(a.name());
  // Its endpoint is asked first whether it has this context.
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  const Deadline deadline(kPatience);
  while (source != from && !deadline.passed()) {
    char byte = 0;
    must(fi_recv(b.rx[1].ep, &byte, 1, nullptr, FI_ADDR_UNSPEC, &byte));
    drive.post([&] { return fi_inject(a.tx[2].ep, "x", 1, fi_rx_addr(to, 1, kBits)); });
    source = drive.wait(b.rx[1].cq).source;
    drive.progress();
  }
  EXPECT_EQ(source, from);
}

TEST(RdmScalable, AThreadSleepsUntilItsContextHasAMessage) {
  SCALABLE_NEEDED(0);
  Options options = scalable_options();
  options.progress = FI_PROGRESS_AUTO;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
  Scalable a(options), b(options);
  const fi_addr_t to = a.insert(b.name());
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  must(fi_trecv(b.rx[2].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
  std::thread sleeper([&] {
    fi_cq_tagged_entry entry{};
    EXPECT_EQ(fi_cq_sread(b.rx[2].cq, &entry, 1, nullptr, int(patience().count())), 1);
    EXPECT_EQ(entry.op_context, &in);
  });
  Drive drive({&a});
  drive.post([&] {
    return fi_tsend(a.tx[1].ep, out.data(), out.size(), nullptr, fi_rx_addr(to, 2, kBits), 1, &out);
  });
  drive.wait(a.tx[1].cq);
  sleeper.join();
  EXPECT_EQ(in, out);
}

// Contexts may share a queue and a counter, whatever locks they have.
TEST(RdmScalable, ContextsShareAQueueAndACounter) {
  SCALABLE_NEEDED(0);
  Scalable a(scalable_options(), {.tx = 3, .rx = 1, .open = false}), b;
  Handle<fid_cq> cq;
  Handle<fid_cntr> cntr;
  must(fi_cq_open(a.domain, &a.options.tx_cq, cq.out(), nullptr));
  fi_cntr_attr attr{};
  must(fi_cntr_open(a.domain, &attr, cntr.out(), nullptr));
  for (int i = 0; i < 3; ++i) {
    Handle<fid_ep> &ep = a.tx[size_t(i)].ep;
    must(fi_tx_context(a.ep, i, nullptr, ep.out(), nullptr));
    must(fi_ep_bind(ep, cq.fid(), FI_TRANSMIT));
    must(fi_ep_bind(ep, cntr.fid(), FI_SEND));
    must(fi_enable(ep));
  }
  const fi_addr_t to = a.insert(b.name());
  struct Reader final : Driver {
    void progress() override {
      fi_cq_read(cq, nullptr, 0);
      b->progress();
    }
    std::optional<Completion> next(fid_cq *of) override { return poll(of); }
    fid_cq *cq;
    Scalable *b;
  } drive;
  drive.cq = cq;
  drive.b = &b;
  for (size_t i = 0; i < 6; ++i)
    exchange(drive, a.tx[i % 3].ep, cq, fi_rx_addr(to, int(i % 4), kBits), b.rx[i % 4].ep,
             b.rx[i % 4].cq, i < 3 ? 100 : 30000);
  drive.wait_count(cntr, 6);
  EXPECT_EQ(fi_cntr_readerr(cntr), 0u);
  EXPECT_EQ(fi_close(cq.fid()), -FI_EBUSY);
  a.tx.clear();
}

TEST(RdmScalable, AThreadSleepsForSeveralContexts) {
  SCALABLE_NEEDED(0);
  Options options = scalable_options();
  options.progress = FI_PROGRESS_MANUAL;
  Scalable a(options), b(options, {.tx = 1, .rx = 2, .open = false});
  Handle<fid_cq> cq;
  fi_cq_attr attr = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
  must(fi_cq_open(b.domain, &attr, cq.out(), nullptr));
  for (int i = 0; i < 2; ++i) {
    Handle<fid_ep> &ep = b.rx[size_t(i)].ep;
    must(fi_rx_context(b.ep, i, nullptr, ep.out(), nullptr));
    must(fi_ep_bind(ep, cq.fid(), FI_RECV));
    must(fi_enable(ep));
  }
  const fi_addr_t to = a.insert(b.name());
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  for (int i : {1, 0}) {
    must(fi_trecv(b.rx[size_t(i)].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    std::thread sleeper([&] {
      fi_cq_tagged_entry entry{};
      EXPECT_EQ(fi_cq_sread(cq, &entry, 1, nullptr, int(patience().count())), 1);
      EXPECT_EQ(entry.op_context, &in);
    });
    Drive drive({&a});
    drive.post([&] {
      return fi_tsend(a.tx[1].ep, out.data(), out.size(), nullptr, fi_rx_addr(to, i, kBits), 1,
                      &out);
    });
    drive.wait(a.tx[1].cq);
    sleeper.join();
    EXPECT_EQ(in, out);
  }
  b.rx.clear();
}

TEST(RdmScalable, ARegionCountsWhatComesThroughContexts) {
  SCALABLE_NEEDED(FI_RMA | FI_RMA_EVENT);
  const Options options = scalable_options(FI_RMA | FI_RMA_EVENT);
  Scalable a(options), b(options);
  const fi_addr_t to = a.insert(b.name());
  Drive drive({&a, &b});
  std::vector<uint8_t> memory(100);
  Handle<fid_cntr> cntr;
  fi_cntr_attr attr{};
  must(fi_cntr_open(b.domain, &attr, cntr.out(), nullptr));
  fid_mr *const region = b.expose(memory.data(), memory.size(), FI_REMOTE_WRITE, 7, FI_RMA_EVENT);
  must(fi_mr_bind(region, cntr.fid(), FI_REMOTE_WRITE));
  if (b.info->domain_attr->mr_mode & FI_MR_RMA_EVENT) must(fi_mr_enable(region));
  const std::vector<uint8_t> out = pattern(100, 1);
  for (size_t i = 0; i < 4; ++i) {
    drive.post([&] {
      return fi_write(a.tx[i].ep, out.data(), out.size(), nullptr, fi_rx_addr(to, int(i), kBits),
                      b.base_of(memory.data()), fi_mr_key(region), nullptr);
    });
    EXPECT_EQ(drive.wait(a.tx[i].cq).err, 0);
  }
  drive.wait_count(cntr, 4);
  b.regions.clear();
}

uint64_t counter_of(fid_fabric *fabric, const std::string &name) {
  weft_counters_ops *ops = nullptr;
  must(fi_open_ops(&fabric->fid, WEFT_COUNTERS_OPS, 0, reinterpret_cast<void **>(&ops), nullptr));
  std::vector<weft_counter> all(ops->read(&fabric->fid, nullptr, 0));
  ops->read(&fabric->fid, all.data(), all.size());
  for (const weft_counter &counter : all)
    if (counter.name == name) return counter.value;
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

// Each thread has a context of each kind at both ends. None ever waits for the lock of another.
TEST(RdmScalable, ThreadsOnContextsDoNotWaitForEachOther) {
  SCALABLE_NEEDED(0);
  constexpr size_t kThreads = 4, kEach = 300;
  Options options = scalable_options();
  options.threading = FI_THREAD_SAFE;
  options.progress = FI_PROGRESS_MANUAL;
  Scalable a(options), b(options);
  const fi_addr_t to = a.insert(b.name());
  {
    Drive drive({&a, &b});
    for (size_t i = 0; i < kThreads; ++i)
      exchange(drive, a.tx[i].ep, a.tx[i].cq, fi_rx_addr(to, int(i), kBits), b.rx[i].ep,
               b.rx[i].cq);
  }
  const uint64_t before =
      counter_of(a.fabric, "locks_contended") + counter_of(b.fabric, "locks_contended");
  std::atomic<size_t> bad{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    fid_ep *const tx = a.tx[i].ep, *const rx = b.rx[i].ep;
    fid_cq *const tx_cq = a.tx[i].cq, *const rx_cq = b.rx[i].cq;
    threads.emplace_back([&, i, tx, rx, tx_cq, rx_cq] {
      const Deadline deadline;
      const fi_addr_t dest = fi_rx_addr(to, int(i), kBits);
      for (size_t n = 0; n < kEach && bad == 0; ++n) {
        uint64_t out = n << 8 | i, in = 0;
        if (fi_trecv(rx, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, n, 0, nullptr) != 0) ++bad;
        bool sent = false, done_tx = false, done_rx = false;
        while (!(done_tx && done_rx)) {
          if (!sent) {
            const ssize_t rc = fi_tsend(tx, &out, sizeof out, nullptr, dest, n, nullptr);
            sent = rc == 0;
            if (rc != 0 && rc != -FI_EAGAIN) ++bad;
          }
          fi_cq_tagged_entry entry;
          done_tx |= fi_cq_read(tx_cq, &entry, 1) == 1;
          done_rx |= fi_cq_read(rx_cq, &entry, 1) == 1;
          if (bad != 0 || deadline.passed()) break;
        }
        if (in != out) ++bad;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(counter_of(a.fabric, "locks_contended") + counter_of(b.fabric, "locks_contended"),
            before);
}

// The same, while the address vector changes.
TEST(RdmScalable, TheVectorChangesUnderTraffic) {
  SCALABLE_NEEDED(0);
  Options options = scalable_options();
  options.threading = FI_THREAD_SAFE;
  Scalable a(options), b(options), c(options);
  const fi_addr_t to = a.insert(b.name());
  const std::string name = c.name();
  std::atomic<bool> stop{false};
  std::atomic<size_t> bad{0};
  std::thread changer([&] {
    while (!stop) {
      fi_addr_t at = FI_ADDR_NOTAVAIL;
      if (insert_address(a.av, name, &at, 0, nullptr) != 1) ++bad;
      if (fi_av_remove(a.av, &at, 1, 0) != 0) ++bad;
    }
  });
  Drive drive({&a, &b});
  for (size_t i = 0; i < 40; ++i)
    exchange(drive, a.tx[i % 4].ep, a.tx[i % 4].cq, fi_rx_addr(to, int(i / 4 % 4), kBits),
             b.rx[i / 4 % 4].ep, b.rx[i / 4 % 4].cq);
  stop = true;
  changer.join();
  EXPECT_EQ(bad, 0u);
}

}  // namespace
}  // namespace weft::conformance::rdm
