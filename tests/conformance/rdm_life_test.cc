// SPDX-License-Identifier: BSD-2-Clause
// The life of a reliable datagram endpoint and what belongs to it (fi_endpoint.3, fi_domain.3,
// fi_av.3, fi_cq.3): the order of open, bind, enable, use and close, and the errno of a wrong one.
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "tests/conformance/rdm_harness.h"
#include "tests/conformance/signals.h"

namespace weft::conformance::rdm {
namespace {

// The objects of a node without its endpoint; tests open and bind that by themselves.
struct Parts {
  explicit Parts(const Options &options = {}) : info(find_info(options, FI_SOURCE)) {
    must(fi_fabric(info->fabric_attr, fabric.out(), nullptr));
    must(fi_domain(fabric, info.get(), domain.out(), nullptr));
    fi_av_attr attr{};
    attr.type = FI_AV_TABLE;
    must(fi_av_open(domain, &attr, av.out(), nullptr));
    fi_cq_attr cq_attr = Options::cq_attr();
    must(fi_cq_open(domain, &cq_attr, cq.out(), nullptr));
    must(fi_endpoint(domain, info.get(), ep.out(), this));
  }
  Info info;
  Handle<fid_fabric> fabric;
  Handle<fid_domain> domain;
  Handle<fid_av> av;
  Handle<fid_cq> cq;
  Handle<fid_ep> ep;
};

TEST(RdmLife, EnableNeedsAnAddressVector) {
  covers("life cycle");
  Parts p;
  must(fi_ep_bind(p.ep, p.cq.fid(), FI_TRANSMIT | FI_RECV));
  EXPECT_LT(fi_enable(p.ep), 0);
  must(fi_ep_bind(p.ep, p.av.fid(), 0));
  EXPECT_EQ(fi_enable(p.ep), 0) << "what was missing is there now";
}

TEST(RdmLife, EnableNeedsQueues) {
  covers("life cycle");
  Parts p;
  must(fi_ep_bind(p.ep, p.av.fid(), 0));
  EXPECT_EQ(fi_enable(p.ep), -FI_ENOCQ);
  must(fi_ep_bind(p.ep, p.cq.fid(), FI_TRANSMIT));
  EXPECT_EQ(fi_enable(p.ep), -FI_ENOCQ) << "none for receives";
  must(fi_ep_bind(p.ep, p.cq.fid(), FI_RECV));
  EXPECT_EQ(fi_enable(p.ep), 0);
}

TEST(RdmLife, UseBeforeEnableIsRefused) {
  covers("life cycle");
  Parts p;
  char byte = 0;
  must(fi_ep_bind(p.ep, p.av.fid(), 0));
  must(fi_ep_bind(p.ep, p.cq.fid(), FI_TRANSMIT | FI_RECV));
  EXPECT_EQ(fi_send(p.ep, &byte, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_tsend(p.ep, &byte, 1, nullptr, 0, 0, nullptr), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_inject(p.ep, &byte, 1, 0), -FI_EOPBADSTATE);
}

// Where software keeps receives (fi_cm.3: a receive may be posted at any time).
TEST(RdmLife, ReceivesMayComeBeforeEnable) {
  covers("life cycle");
  if (is_matched_by_a_nic(FI_EP_RDM)) GTEST_SKIP() << "a device has no receives before fi_enable";
  if (stack().ends_with("off_coll")) GTEST_SKIP() << "the endpoint beneath keeps them";
  char tagged = 0, untagged = 0, never = 0;
  {
    Parts p;
    EXPECT_EQ(fi_recv(p.ep, &never, 1, nullptr, FI_ADDR_UNSPEC, &never), -FI_EOPBADSTATE)
        << "nothing would tell of it";
    must(fi_ep_bind(p.ep, p.cq.fid(), FI_TRANSMIT | FI_RECV));
    must(fi_ep_bind(p.ep, p.av.fid(), 0));
    EXPECT_EQ(fi_recv(p.ep, &never, 1, nullptr, FI_ADDR_UNSPEC, &never), 0);
  }  // closed without ever being enabled
  Parts p;
  must(fi_ep_bind(p.ep, p.cq.fid(), FI_TRANSMIT | FI_RECV));
  must(fi_ep_bind(p.ep, p.av.fid(), 0));
  EXPECT_EQ(fi_trecv(p.ep, &tagged, 1, nullptr, FI_ADDR_UNSPEC, 7, 0, &tagged), 0);
  EXPECT_EQ(fi_recv(p.ep, &never, 1, nullptr, FI_ADDR_UNSPEC, &never), 0);
  EXPECT_EQ(fi_cancel(p.ep.fid(), &never), 0);
  Handle<fid_ep> alias;
  must(fi_ep_alias(p.ep, alias.out(), FI_RECV));
  EXPECT_EQ(fi_recv(alias, &untagged, 1, nullptr, FI_ADDR_UNSPEC, &untagged), 0);
  must(fi_enable(p.ep));
  const std::string name =
      address_of([&](void *buffer, size_t *size) { return fi_getname(p.ep.fid(), buffer, size); });
  const char *text = name.c_str();
  const bool is_text = p.info->addr_format == FI_ADDR_STR;
  fi_addr_t self = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(
      fi_av_insert(p.av, is_text ? static_cast<const void *>(&text) : text, 1, &self, 0, nullptr),
      1);
  const Deadline deadline;
  const auto send = [&](const std::function<ssize_t()> &call) {
    ssize_t rc;
    do {
      rc = call();
      fi_cq_read(p.cq, nullptr, 0);
    } while (rc == -FI_EAGAIN && !deadline.passed());
    EXPECT_EQ(rc, 0) << error_text(rc);
  };
  send([&] { return fi_inject(p.ep, "u", 1, self); });
  send([&] { return fi_tinject(p.ep, "t", 1, self, 7); });
  size_t arrived = 0;
  while (arrived < 2 && !deadline.passed()) {
    const auto done = poll_cq(p.cq);
    if (!done) continue;
    if (done->context == &never) {
      EXPECT_EQ(done->err, FI_ECANCELED);
      continue;
    }
    EXPECT_EQ(done->err, 0);
    ++arrived;
  }
  EXPECT_EQ(arrived, 2u);
  EXPECT_EQ(untagged, 'u');
  EXPECT_EQ(tagged, 't');
}

// The call has no context of its own, so the error has that of the endpoint.
TEST(RdmLife, AnInjectedMessageThatFailsTellsOfItsEndpoint) {
  covers("errors of messages");
  Node node{Options()};
  const fi_addr_t nobody = node.insert(address_at(node.options, 1));
  const Deadline deadline;
  ssize_t rc;
  do {
    rc = fi_inject(node.ep, "x", 1, nobody);
    if (rc == -FI_EAGAIN) node.progress();
  } while (rc == -FI_EAGAIN && !deadline.passed());
  if (rc != 0) GTEST_SKIP() << "the call says it itself: " << error_text(rc);
  std::optional<Done> done;
  while (!(done = poll_cq(node.tx_cq)) && !deadline.passed()) node.progress();
  if (!done) GTEST_SKIP() << "the peer is still waited for";
  EXPECT_NE(done->err, 0);
  EXPECT_EQ(done->context, &node);
  EXPECT_EQ(done->flags & (FI_SEND | FI_MSG), uint64_t(FI_SEND | FI_MSG));
}

TEST(RdmLife, BindsAfterEnableAreRefused) {
  covers("life cycle");
  Node node{Options()};
  Handle<fid_cq> cq;
  fi_cq_attr attr = Options::cq_attr();
  must(fi_cq_open(node.domain, &attr, cq.out(), nullptr));
  EXPECT_LT(fi_ep_bind(node.ep, cq.fid(), FI_TRANSMIT), 0);
  EXPECT_LT(fi_ep_bind(node.ep, &node.av->fid, 0), 0);
}

TEST(RdmLife, SecondBindsAreRefused) {
  covers("life cycle");
  Parts p;
  must(fi_ep_bind(p.ep, p.av.fid(), 0));
  must(fi_ep_bind(p.ep, p.cq.fid(), FI_TRANSMIT | FI_RECV));
  Handle<fid_av> av;
  fi_av_attr av_attr{};
  av_attr.type = FI_AV_TABLE;
  must(fi_av_open(p.domain, &av_attr, av.out(), nullptr));
  Handle<fid_cq> cq;
  fi_cq_attr cq_attr = Options::cq_attr();
  must(fi_cq_open(p.domain, &cq_attr, cq.out(), nullptr));
  EXPECT_LT(fi_ep_bind(p.ep, av.fid(), 0), 0) << "another address vector";
  EXPECT_LT(fi_ep_bind(p.ep, cq.fid(), FI_TRANSMIT), 0) << "another queue for sends";
  EXPECT_LT(fi_ep_bind(p.ep, cq.fid(), FI_RECV), 0) << "another queue for receives";
  EXPECT_EQ(fi_enable(p.ep), 0);
}

TEST(RdmLife, ObjectsOfOtherDomainsAreRefused) {
  covers("life cycle");
  Parts p, other;
  EXPECT_EQ(fi_ep_bind(p.ep, other.av.fid(), 0), -FI_EDOMAIN);
  EXPECT_EQ(fi_ep_bind(p.ep, other.cq.fid(), FI_TRANSMIT), -FI_EDOMAIN);
}

TEST(RdmLife, BindsOfTheWrongClassOrFlagsAreRefused) {
  covers("life cycle");
  Parts p;
  EXPECT_LT(fi_ep_bind(p.ep, p.domain.fid(), 0), 0);
  EXPECT_LT(fi_ep_bind(p.ep, p.ep.fid(), 0), 0);
  EXPECT_LT(fi_ep_bind(p.ep, p.cq.fid(), uint64_t(1) << 59), 0) << "an unknown flag";
}

// An object in use cannot be closed, and still works after the attempt.
TEST(RdmLife, ObjectsInUseAreBusy) {
  covers("life cycle");
  Net net(2);
  EXPECT_EQ(fi_close(&net[0].fabric->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&net[0].domain->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(&net[0].av->fid), -FI_EBUSY);
  EXPECT_EQ(fi_close(net[0].tx_cq.fid()), -FI_EBUSY);
  EXPECT_EQ(fi_close(net[0].rx_cq.fid()), -FI_EBUSY);
  net.exchange(0, 1);
  net.exchange(1, 0, 100000);
}

TEST(RdmLife, ARegionKeepsItsDomainBusy) {
  covers("life cycle");
  RDM_NEEDS(FI_RMA);
  Options options;
  options.caps |= FI_RMA;
  Parts p(options);
  char buffer[64];
  Handle<fid_mr> region;
  must(fi_mr_reg(p.domain, buffer, sizeof buffer, FI_REMOTE_READ, 0, 1, 0, region.out(), nullptr));
  p.ep.reset();
  p.cq.reset();
  p.av.reset();
  EXPECT_EQ(fi_close(p.domain.fid()), -FI_EBUSY);
}

// fi_endpoint.3: outstanding operations are discarded without a completion.
TEST(RdmLife, CloseDiscardsOutstandingOperations) {
  covers("life cycle");
  std::vector<std::vector<uint8_t>> in(20, std::vector<uint8_t>(200000)), out = in;
  Net net(2);
  net.exchange(0, 1);
  for (size_t i = 0; i < 20; ++i) {
    must(fi_trecv(net[0].ep, in[i].data(), in[i].size(), nullptr, FI_ADDR_UNSPEC, 7, 0, &in[i]));
    net.post([&] {
      return fi_tsend(net[0].ep, out[i].data(), out[i].size(), nullptr, net.at(0, 1), 8, &out[i]);
    });
  }
  net[0].ep.reset();
  EXPECT_FALSE(poll(net[0].rx_cq).has_value());
}

TEST(RdmLife, AnEndpointThatWasNeverEnabledCloses) {
  covers("life cycle");
  Parts p;
  must(fi_ep_bind(p.ep, p.av.fid(), 0));
}

TEST(RdmLife, ConnectionCallsAreNotForDatagrams) {
  covers("life cycle");
  Net net(2);
  const std::string to = net[1].name();
  EXPECT_LT(fi_connect(net[0].ep, to.data(), nullptr, 0), 0);
  EXPECT_LT(fi_accept(net[0].ep, nullptr, 0), 0);
  char buffer[64];
  size_t size = sizeof buffer;
  EXPECT_LT(fi_getpeer(net[0].ep, buffer, &size), 0);
}

TEST(RdmLife, TheNameIsTheAddressThatPeersInsert) {
  covers("life cycle");
  Net net(2);
  char little[4];
  size_t size = sizeof little;
  EXPECT_EQ(fi_getname(net[0].ep.fid(), little, &size), -FI_ETOOSMALL);
  EXPECT_EQ(size, net[0].name().size());
  EXPECT_NE(net[0].name(), net[1].name());
}

TEST(RdmLife, WhatTheInfoLeavesOutIsOfItsDomain) {
  covers("names");
  Parts p;
  const Info bare(fi_dupinfo(p.info.get()));
  bare->ep_attr->type = FI_EP_UNSPEC;
  free(std::exchange(bare->src_addr, nullptr));
  bare->src_addrlen = 0;
  Handle<fid_ep> ep;
  must(fi_endpoint(p.domain, bare.get(), ep.out(), nullptr));
  must(fi_ep_bind(ep, p.av.fid(), 0));
  must(fi_ep_bind(ep, p.cq.fid(), FI_TRANSMIT | FI_RECV));
  must(fi_enable(ep));
  const std::string name =
      address_of([&](void *buffer, size_t *size) { return fi_getname(ep.fid(), buffer, size); });
  const char *text = name.c_str();
  const bool is_text = p.info->addr_format == FI_ADDR_STR;
  fi_addr_t self = FI_ADDR_NOTAVAIL;
  EXPECT_EQ(
      fi_av_insert(p.av, is_text ? static_cast<const void *>(&text) : text, 1, &self, 0, nullptr),
      1);
}

// fi_endpoint.3: a name is the endpoint's from fi_setname on, and fi_getname tells it before
// fi_enable.
TEST(RdmLife, AnEndpointHasItsNameBeforeItIsEnabled) {
  covers("names");
  NEEDS_IPV4_ADDRESSES();
  Parts p, other;
  const auto name_of = [](Parts &parts) {
    return address_of([&](void *to, size_t *size) { return fi_getname(parts.ep.fid(), to, size); });
  };
  const auto rename = [](Parts &parts, std::string name) {
    return fi_setname(parts.ep.fid(), name.data(), name.size());
  };
  const std::string any(static_cast<const char *>(p.info->src_addr), p.info->src_addrlen);
  must(rename(p, any));
  const std::string name = name_of(p);
  EXPECT_EQ(rename(other, name), -FI_EADDRINUSE);
  must(rename(p, name));
  EXPECT_EQ(name_of(p), name);
  EXPECT_NE(port_of(name), "0");
  sockaddr_in elsewhere{};
  std::memcpy(&elsewhere, name.data(), sizeof elsewhere);
  elsewhere.sin_addr.s_addr = htonl(0xcb00714d);  // 203.0.113.77 is nobody's
  EXPECT_EQ(fi_setname(other.ep.fid(), &elsewhere, sizeof elsewhere), -FI_EADDRNOTAVAIL);
  must(rename(other, any));
  for (Parts *parts : {&p, &other}) {
    const std::string before = name_of(*parts);
    must(fi_ep_bind(parts->ep, parts->av.fid(), 0));
    must(fi_ep_bind(parts->ep, parts->cq.fid(), FI_TRANSMIT | FI_RECV));
    must(fi_enable(parts->ep));
    EXPECT_EQ(name_of(*parts), before);
  }
}

TEST(RdmLife, OptionsOfTheEndpoint) {
  covers("life cycle");
  Net net(1);
  size_t value = 0, size = 1;
  EXPECT_EQ(fi_getopt(net[0].ep.fid(), FI_OPT_ENDPOINT, 987654, &value, &size), -FI_ENOPROTOOPT);
  size = sizeof value;
  EXPECT_EQ(fi_setopt(net[0].ep.fid(), FI_OPT_ENDPOINT, 987654, &value, size), -FI_ENOPROTOOPT);
  // fi_endpoint.3: where there is no CUDA, and no endpoint without FI_HMEM has it.
  const bool permitted = false;
  EXPECT_EQ(fi_setopt(net[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CUDA_API_PERMITTED, &permitted,
                      sizeof permitted),
            -FI_EINVAL);
}

// Two endpoints share a domain and its address vector; each is a peer of its own.
TEST(RdmLife, EndpointsShareADomain) {
  covers("shared domain");
  Net net(1);
  Node other(Options{}, &net[0]);
  const fi_addr_t to = net[0].insert(other.name()), self = net[0].insert(net[0].name());
  for (size_t size : {8, 20000, 200000}) {
    std::vector<uint8_t> out = pattern(size, 1), in(size), back(size);
    must(fi_trecv(other.ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 1, 0, &in));
    must(fi_trecv(net[0].ep, back.data(), size, nullptr, FI_ADDR_UNSPEC, 2, 0, &back));
    const auto both = [&](const std::function<ssize_t()> &operation) {
      net.post([&] {
        other.progress();
        return operation();
      });
    };
    both([&] { return fi_tsend(net[0].ep, out.data(), size, nullptr, to, 1, &out); });
    both([&] { return fi_tsend(other.ep, out.data(), size, nullptr, self, 2, &out); });
    for (fid_cq *cq :
         {other.rx_cq.get(), other.tx_cq.get(), net[0].rx_cq.get(), net[0].tx_cq.get()}) {
      std::optional<Completion> got;
      EXPECT_TRUE(net.until([&] {
        other.progress();
        return (got = poll(cq)).has_value();
      }));
      EXPECT_EQ(got->err, 0);
    }
    EXPECT_EQ(in, out);
    EXPECT_EQ(back, out);
  }
}

TEST(RdmLife, OpenAndCloseLeaveNoDescriptors) {
  covers("life cycle");
  if (!in_fresh_process({kNoControl})) return;
  {
    Net warm(2);
    warm.exchange(0, 1);
  }
  const int before = count_descriptors();
  for (int i = 0; i < 20; ++i) {
    Net net(3);
    net.exchange(0, 1, 20000);
    net.exchange(1, 2);
  }
  EXPECT_EQ(count_descriptors(), before);
}

// ---- signals ----

TEST(RdmSignals, EndBlockingCalls) {
  covers("wait objects");
  for (const enum fi_progress progress : {FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO}) {
    SCOPED_TRACE(fi_tostr(&progress, FI_TYPE_PROGRESS));
    Options options;
    options.progress = progress;
    if (!find_info(options)) continue;
    Net net(2, options);
    net.exchange(0, 1);
    signals_end_blocking_calls(net[0]);
  }
}

// ---- a peer that is killed ----

constexpr uint64_t kVictimKey = 7;
constexpr size_t kVictimSizes[] = {8, 4000, 200'000};

// Sends wait for the peer, too.
Options against_a_victim() {
  Options options;
  options.caps |= FI_RMA;
  Options with_atomics = options;
  with_atomics.caps |= FI_ATOMIC;
  if (find_info(with_atomics)) options = with_atomics;
  options.tx_op_flags = FI_DELIVERY_COMPLETE;
  return options;
}

// The other process: makes progress until it is stopped or killed.
void be_the_victim(int parent) {
  std::vector<uint8_t> memory(kVictimSizes[2]);
  Node node(against_a_victim());
  fid_mr *const region =
      node.expose(memory.data(), memory.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, kVictimKey);
  tell_text(parent, node.name());
  tell(parent, node.base_of(memory.data()));
  tell(parent, fi_mr_key(region));
  for (;;) node.progress();
}

// Each has its address before the first one is killed: none gets one that has become free.
struct Victim {
  explicit Victim(Child &child)
      : name(hear_text(child.socket())), base(hear(child.socket())), key(hear(child.socket())) {}
  const std::string name;
  const uint64_t base, key;
};

struct Survivor : Driver {
  // The peer is not the first of the address vector: what an error entry leaves out reads as 0.
  explicit Survivor(const Victim &victim)
      : buffer(kVictimSizes[2]),
        node(against_a_victim()),
        self(node.insert(node.name())),
        to(node.insert(victim.name)),
        base(victim.base),
        key(victim.key) {
    post([&] { return write(8); });
    EXPECT_EQ(wait(node.tx_cq).err, 0);
  }
  void progress() override { node.progress(); }
  ssize_t write(size_t size, void *context = nullptr) {
    return fi_write(node.ep, buffer.data(), size, nullptr, to, base, key, context);
  }
  // Long messages, of which the peer's program will read nothing: it has no receive. A write behind
  // them says that they are there. How many wait for a receive then.
  size_t announce() {
    size_t waiting = 2;
    post([&] { return fi_send(node.ep, buffer.data(), kVictimSizes[2], nullptr, to, nullptr); });
    post(
        [&] { return fi_tsend(node.ep, buffer.data(), kVictimSizes[2], nullptr, to, 1, nullptr); });
    post([&] { return write(8, this); });
    for (Completion done = wait(node.tx_cq); done.context != this; done = wait(node.tx_cq)) {
      EXPECT_EQ(done.err, 0);
      --waiting;
    }
    return waiting;
  }
  // Every kind of operation in every size. How many were accepted.
  size_t start_all() {
    size_t accepted = 0;
    const auto start = [&](const auto &call) { accepted += attempt(call) == 0; };
    uint8_t *const at = buffer.data();
    fid_ep *const ep = node.ep;
    for (const size_t n : kVictimSizes) {
      start([&] { return fi_send(ep, at, n, nullptr, to, nullptr); });
      start([&] { return fi_tsend(ep, at, n, nullptr, to, 1, nullptr); });
      start([&] { return write(n); });
      start([&] { return fi_read(ep, at, n, nullptr, to, base, key, nullptr); });
      if (!(node.info->caps & FI_ATOMIC)) continue;
      start(
          [&] { return fi_atomic(ep, at, 1, nullptr, to, base, key, FI_UINT64, FI_SUM, nullptr); });
      start([&] {
        return fi_fetch_atomic(ep, at, 1, nullptr, at + 8, nullptr, to, base, key, FI_UINT64,
                               FI_SUM, nullptr);
      });
    }
    return accepted;
  }
  // What is canceled ends with that, whatever keeps it from its end: programs know no other error
  // for it. What had ended before the cancel has its own.
  void cancel_all() {
    uint8_t *const at = buffer.data();
    fid_ep *const ep = node.ep;
    char contexts[3 * std::size(kVictimSizes)] = {};
    std::map<void *, bool> canceled;
    char *next = contexts;
    const auto start = [&](const auto &call) {
      char *const context = next++;
      if (attempt([&] { return call(context); }) != 0) return;
      const ssize_t rc = fi_cancel(&ep->fid, context);
      EXPECT_TRUE(rc == 0 || rc == -FI_ENOENT) << rc;
      canceled[context] = rc == 0;
    };
    for (const size_t n : kVictimSizes) {
      start([&](void *context) { return fi_tsend(ep, at, n, nullptr, to, 1, context); });
      start([&](void *context) { return write(n, context); });
      start([&](void *context) { return fi_read(ep, at, n, nullptr, to, base, key, context); });
    }
    for (size_t i = canceled.size(); i > 0 && !::testing::Test::HasFailure(); --i) {
      const Completion done = wait(node.tx_cq);
      ASSERT_TRUE(canceled.contains(done.context));
      EXPECT_NE(done.err, 0);
      EXPECT_EQ(done.err == FI_ECANCELED, canceled[done.context]) << fi_strerror(done.err);
    }
  }
  void expect_failures(size_t count) {
    for (size_t i = 0; i < count; ++i) EXPECT_NE(wait(node.tx_cq).err, 0) << i << " of " << count;
  }

  std::vector<uint8_t> buffer;
  Node node;
  const fi_addr_t self, to;
  const uint64_t base, key;
};

// What was under way, and what the application starts afterwards, fails soon: nobody waits for a
// timeout where the network says that the process is gone.
TEST(RdmLife, OperationsTowardAKilledPeerEnd) {
  covers("life cycle");
  NEEDS_PROCESSES();
  // No timeout is as short as the test's patience.
  if (!in_fresh_process({"FI_OFI_RXD_PEER_TIMEOUT_MS=120000"})) return;
  Child first(be_the_victim), second(be_the_victim), third(be_the_victim);
  const Victim one(first), two(second), three(third);
  {
    Survivor survivor(one);
    first.kill();
    survivor.expect_failures(survivor.start_all());
    survivor.cancel_all();
    survivor.expect_failures(survivor.start_all());
    survivor.cancel_all();
  }
  {
    Survivor survivor(three);
    const size_t waiting = survivor.announce();
    third.kill();
    survivor.expect_failures(waiting);
    survivor.expect_failures(survivor.start_all());
  }
  Survivor survivor(two);
  second.stop();
  const size_t under_way = survivor.start_all();
  second.kill();
  survivor.expect_failures(under_way);
  survivor.expect_failures(survivor.start_all());
}

// ---- a sender that makes no more calls ----

constexpr uint64_t kBursts = 40, kFew = 4, kLast = 20;
constexpr uint64_t kMessages = kBursts * kFew + kLast;

// Ways to send messages without a wait for a completion of the last of them.
enum class Way { kInject, kBehindSends, kCounted, kSelective };
constexpr Way kWays[] = {Way::kInject, Way::kBehindSends, Way::kCounted, Way::kSelective};

// The other process. Its library learns that progress follows soon upon a burst. After the last
// burst none does: the process exits, and closes nothing, or waits for something else.
void send_and_be_quiet(int parent, Way way, bool exits) {
  Options options;
  if (way == Way::kCounted) options.tx_op_flags = FI_DELIVERY_COMPLETE;
  if (!find_info(options)) options.tx_op_flags = 0;
  if (way == Way::kCounted || way == Way::kSelective) options.tx_cq_flags = FI_SELECTIVE_COMPLETION;
  static Node *node;  // reachable to the end
  node = new Node(options, nullptr, [way](Node &n) {
    if (way == Way::kCounted) n.count(FI_SEND);
  });
  tell_text(parent, node->name());
  const fi_addr_t to = node->insert(hear_text(parent));
  const uint64_t out = 42;
  uint64_t tag = 0;
  const auto send = [&] {
    const bool injects = way == Way::kInject || (way == Way::kBehindSends && tag % 2 == 1);
    ssize_t rc;
    do {
      rc = injects ? fi_tinject(node->ep, &out, sizeof out, to, tag)
                   : fi_tsend(node->ep, &out, sizeof out, nullptr, to, tag, nullptr);
      if (rc == -FI_EAGAIN) node->progress();
    } while (rc == -FI_EAGAIN);
    must(rc);
    ++tag;
  };
  for (uint64_t burst = 0; burst < kBursts; ++burst) {
    for (uint64_t i = 0; i < kFew; ++i) send();
    node->progress();
    if (burst != 0) continue;
    // The first messages arrive: nothing else waits for a connection.
    while (!can_hear(parent)) node->progress();
    hear(parent);
  }
  while (tag < kMessages) send();
  if (exits) exit(0);
  hear(parent);
}

TEST(RdmLife, MessagesLeaveThoughTheirSenderMakesNoMoreCalls) {
  covers("life cycle");
  NEEDS_PROCESSES();
  if (stack().find("ofi_rxd") != std::string::npos)
    GTEST_SKIP()
        << "datagrams need their sender: it sets their pace, and repeats those that are lost";
  if (!in_fresh_process()) return;
  for (const Way way : kWays) {
    for (const bool exits : {false, true}) {
      const std::string what = "way " + std::to_string(int(way)) + (exits ? ", exits" : "");
      Child sender([=](int parent) { send_and_be_quiet(parent, way, exits); });
      Child receiver([what](int parent) {
        Node node{Options()};
        node.insert(hear_text(parent));
        tell_text(parent, node.name());
        struct Receiving : Driver {
          explicit Receiving(Node &n) : node(n) {}
          void progress() override { node.progress(); }
          Node &node;
        } receiving(node);
        uint64_t in;
        fi_cq_tagged_entry entry;
        for (uint64_t tag = 0; tag < kMessages; ++tag) {
          must(fi_trecv(node.ep, &in, sizeof in, nullptr, FI_ADDR_UNSPEC, tag, 0, nullptr));
          if (!receiving.until([&] { return fi_cq_read(node.rx_cq, &entry, 1) == 1; }))
            throw std::runtime_error(what + ": message " + std::to_string(tag) + " does not come");
          if (tag + 1 == kFew) tell(parent, 0);
        }
        tell(parent, 0);
      });
      tell_text(receiver.socket(), hear_text(sender.socket()));
      tell_text(sender.socket(), hear_text(receiver.socket()));
      hear(receiver.socket());
      tell(sender.socket(), 0);
      hear(receiver.socket());
      if (!exits) tell(sender.socket(), 0);
      sender.join();
      receiver.join();
    }
  }
}

}  // namespace
}  // namespace weft::conformance::rdm
