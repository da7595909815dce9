// SPDX-License-Identifier: BSD-2-Clause
// The endpoint of a layer whose protocol only records the calls that it gets. The layers of this
// project have conformance tests of their own.
#include "weft/sdk/layers/layer_endpoint.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <weft/sdk/objects/cq.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/sdk/testing/test_instance.h"

namespace weft::layer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kTxSize = 2;
using Notes = std::vector<std::string>;

sockaddr_in loopback(uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return in;
}

sdk::Address address(uint16_t port) {
  const sockaddr_in in = loopback(port);
  return *sdk::read_address(FI_SOCKADDR_IN, &in, sizeof in);
}

struct TxOp {
  bool report = false, fence = false, is_canceled = false;
  uint8_t count = 0, vector_count = 0;
  void *context = nullptr;
  uint64_t cq_flags = 0, length = 0, data = 0, tag = 77;
  iovec iov[sdk::kIovLimit];
  struct {
    uint64_t address, length, key;
  } vectors[sdk::kIovLimit];
};

struct Saved : sdk::Unexpected {};

class Core {
 public:
  class Upper {
   public:
    virtual void on_done(TxOp &op, int err) = 0;
    virtual sdk::Receiver &receiver() = 0;
    virtual uint32_t index_of(const sdk::Address &address) = 0;
    virtual void warn(const char *text) = 0;
    virtual void warn_of_peer(const char *text) = 0;

   protected:
    ~Upper() = default;
  };

  Core(Notes &notes, Upper &upper) : upper_(upper), notes_(notes) {}

  TxOp *take() {
    for (size_t i = 0; i < kTxSize; ++i) {
      if (taken_[i]) continue;
      taken_[i] = true;
      return &ops_[i];
    }
    return nullptr;
  }
  void give(TxOp &op) { taken_[size_t(&op - ops_.data())] = false; }
  bool cancel(const void *context) {
    for (size_t i = 0; i < kTxSize; ++i)
      if (taken_[i] && ops_[i].context == context) return ops_[i].is_canceled = true;
    return false;
  }
  int start(TxOp &op, uint32_t index, const sdk::Address *to) {
    if (to == nullptr && !knows(index)) return -FI_EINVAL;
    if (to != nullptr) notes_.push_back("first to " + std::to_string(to->port()));
    if (refuse == 0) known_ = index;
    if (refuse == 0) last = &op;
    return refuse;
  }
  bool knows(uint32_t index) const { return known_ == index; }
  size_t in_flight() const { return size_t(taken_[0]) + size_t(taken_[1]); }
  void end(TxOp &op, int err) {
    upper_.on_done(op, err);
    give(op);
  }
  void forget(uint32_t index) { notes_.push_back("forget " + std::to_string(index)); }
  void introduce(uint32_t index, const sdk::Address &who) {
    notes_.push_back("introduce " + std::to_string(index) + ": " + std::to_string(who.port()));
  }
  void deliver(Saved &, sdk::Receive &) { notes_.emplace_back("deliver"); }
  void discard(Saved &) { notes_.emplace_back("discard"); }
  const sdk::Address *address_of(uint32_t source) const {
    return source == sdk::Matcher::kFirstUnnamed ? &stranger_ : nullptr;
  }
  Upper &upper() { return upper_; }

  int refuse = 0;
  TxOp *last = nullptr;  // the operation that was started last

 private:
  Upper &upper_;
  Notes &notes_;
  std::array<TxOp, kTxSize> ops_;
  bool taken_[kTxSize] = {};
  uint32_t known_ = sdk::Av::kNone;
  const sdk::Address stranger_ = address(4444);
};

struct Options {
  uint64_t close_linger_ns = uint64_t(sdk::kPatience.count()) * 1'000'000'000;
};

// The part of a LayerDomain that an endpoint uses.
class Domain {
 public:
  struct Layer {
    Options values;
    const Options &options() const { return values; }
  };
  struct Fabric {
    Layer its;
    Layer &layer() { return its; }
  };
  const weft_instance *instance() { return test.instance.c(); }
  sdk::DomainContext &shared() { return test.context; }
  sdk::LingerBudget &linger_budget() { return linger_budget_; }
  sdk::Engine &engine() { return test.engine; }
  struct fid *base() {
    return &test.fid;
  }
  Fabric &fabric() { return fabric_; }
  sdk::AtomicLimits atomic_limits() const { return {64, 64, 32}; }

  sdk::TestDomain test;
  Notes notes;

 private:
  Fabric fabric_;
  sdk::LingerBudget linger_budget_;
};

class Lower final : public sdk::Poller, public sdk::Handler {
 public:
  class Upper {
   public:
    virtual Core &core() = 0;
    virtual bool is_full() = 0;

   protected:
    ~Upper() = default;
  };
  Lower(Domain &domain, Upper &) : domain_(domain) {}

  void wait(uint64_t) { ++waits; }
  void shut() { domain_.notes.emplace_back("lower shut"); }
  void on_poll() override {
    if (then) then();
  }
  int wait_fds(std::vector<int> &) override { return 0; }
  bool may_wait() override { return true; }
  void on_event(uint32_t) override {}

  int waits = 0;
  std::function<void()> then;

 private:
  Domain &domain_;
};

struct Parts {
  using Domain = layer_test::Domain;
  using Core = layer_test::Core;
  using Lower = layer_test::Lower;
  using Operation = TxOp;
  using Message = Saved;
};

class Endpoint final : public sdk::LayerEndpoint<Endpoint, Parts> {
 public:
  static Result<Endpoint *> open(Domain &domain, const fi_info &info, const fi_info &inner) {
    WEFT_TRY(const sdk::Address local, sdk::local_address(info, inner));
    return start(new Endpoint(domain, info, local, nullptr));
  }

  using LayerEndpoint::start;
  template <class Request>
  ssize_t start(const Request &request) {
    return launch(request, [this](TxOp &) {
      if (no_memory) throw std::bad_alloc();
      return ssize_t{0};
    });
  }

  Core &protocol() { return *core_; }
  Lower &lower() { return lower_; }

  bool no_memory = false, no_carrier = false;
  std::function<bool()> over = [] { return true; };

 private:
  friend LayerEndpoint;
  Endpoint(Domain &domain, const fi_info &info, const sdk::Address &local, void *context)
      : LayerEndpoint(domain, info,
                      {.tx_size = kTxSize, .rx_size = 4, .inject_size = 8, .atomic_size = 64},
                      {sdk::kinds(sdk::OrderKind::kSend)}, local, context) {}
  ~Endpoint() = default;

  Result<void> begin() {
    if (no_carrier) return fail(FI_EADDRINUSE, "the address is in use");
    core_.emplace(domain().notes, *this);
    return {};
  }
  void end() {
    linger(over);
    domain().notes.emplace_back("end");
  }
  void shut() { lower_.shut(); }
  void on_done(TxOp &op, int err) override { report(op, op.length, err); }
};

class LayerEndpoint : public ::testing::Test {
 protected:
  LayerEndpoint() {
    info_.caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SOURCE;
    info_.addr_format = FI_SOCKADDR_IN;
    info_.src_addr = &own_;
    info_.src_addrlen = sizeof own_;
    info_.ep_attr = &ep_attr_;
    ep_attr_.type = FI_EP_RDM;
  }
  ~LayerEndpoint() override {
    if (ep != nullptr) close();
    if (av_ != nullptr) {
      EXPECT_EQ(av_->close(), 0);
    }
    if (cq_ != nullptr) {
      EXPECT_EQ(cq_->close(), 0);
    }
  }
  void close() { EXPECT_EQ(fi_close(&std::exchange(ep, nullptr)->c()->fid), 0); }

  void open() {
    Result<Endpoint *> made = Endpoint::open(domain, info_, fi_info{});
    ASSERT_TRUE(made) << made.error().text;
    ep = *made;
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    cq_ = *sdk::Cq::open(domain.test.context, &cq_attr, nullptr);
    fi_av_attr av_attr{};
    av_ = *sdk::Av::open(domain.test.context, FI_SOCKADDR_IN, &av_attr, nullptr);
    const sockaddr_in peers[] = {loopback(1000), loopback(1001)};
    ASSERT_EQ(fi_av_insert(av_->c(), peers, 2, nullptr, 0, nullptr), 2);
    ASSERT_EQ(fi_ep_bind(ep->c(), av_->base(), 0), 0);
    ASSERT_EQ(fi_ep_bind(ep->c(), cq_->base(), FI_TRANSMIT | FI_RECV), 0);
  }
  void enable() {
    open();
    ASSERT_EQ(fi_enable(ep->c()), 0);
    domain.notes.clear();
  }
  Core &core() { return ep->protocol(); }

  Domain domain;
  Endpoint *ep = nullptr;
  sdk::Av *av_ = nullptr;
  sdk::Cq *cq_ = nullptr;
  fi_info info_{};
  fi_ep_attr ep_attr_{};
  sockaddr_in own_ = loopback(7000);
  char bytes_[32] = {};
};

TEST_F(LayerEndpoint, ReceivesAtItsOwnAddressOrTheInnerProviders) {
  const auto refused = [&](const fi_info &inner) {
    Result<sdk::Address> at = sdk::local_address(info_, inner);
    return at ? "" : std::string(at.error().code == FI_EINVAL ? at.error().text : "other");
  };
  EXPECT_EQ(sdk::local_address(info_, fi_info{})->port(), 7000);
  sockaddr_in other = loopback(7001);
  fi_info inner{};
  inner.addr_format = FI_SOCKADDR_IN;
  inner.src_addr = &other;
  inner.src_addrlen = sizeof other;
  info_.src_addr = nullptr;
  EXPECT_EQ(sdk::local_address(info_, inner)->port(), 7001);
  EXPECT_THAT(refused(fi_info{}), HasSubstr("no address"));
  fi_tx_attr tx{};
  tx.size = sdk::kMaxQueueSize + 1;
  info_.tx_attr = &tx;
  EXPECT_THAT(refused(inner), HasSubstr("at most"));
  info_.tx_attr = nullptr;
  ep_attr_.type = FI_EP_MSG;
  EXPECT_THAT(refused(inner), HasSubstr("FI_EP_RDM"));
}

TEST_F(LayerEndpoint, TheCoreMayRefuseIt) {
  domain.test.instance.refuse = true;
  EXPECT_FALSE(Endpoint::open(domain, info_, fi_info{}));
  EXPECT_EQ(domain.test.context.children.load(), 0u);
}

TEST_F(LayerEndpoint, AFailedEnableGivesTheReasonAndCanBeRepeated) {
  open();
  ep->no_carrier = true;
  EXPECT_EQ(fi_enable(ep->c()), -FI_EADDRINUSE);
  EXPECT_THAT(domain.test.instance.log(), ElementsAre(HasSubstr("the address is in use")));
  EXPECT_THAT(domain.notes, ElementsAre("lower shut"));
  EXPECT_EQ(fi_send(ep->c(), bytes_, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
  size_t size = sizeof own_;
  EXPECT_EQ(fi_getname(ep->base(), &own_, &size), -FI_EADDRINUSE);
  EXPECT_EQ(fi_setname(ep->base(), &own_, sizeof own_), -FI_EADDRINUSE);
  EXPECT_EQ(ep->tx_size_left(), -FI_EOPBADSTATE);
  ep->no_carrier = false;
  EXPECT_EQ(fi_enable(ep->c()), 0);
  EXPECT_EQ(fi_enable(ep->c()), 0);
  EXPECT_EQ(ep->tx_size_left(), ssize_t(kTxSize));
}

TEST_F(LayerEndpoint, HasTheNameThatWasSetBeforeItWasEnabled) {
  open();
  sockaddr_in name = loopback(7002);
  EXPECT_EQ(fi_setname(ep->base(), &name, 3), -FI_EINVAL);
  EXPECT_EQ(fi_setname(ep->base(), &name, sizeof name), 0);
  ASSERT_EQ(fi_enable(ep->c()), 0);
  EXPECT_EQ(fi_setname(ep->base(), &name, sizeof name), -FI_EOPBADSTATE);
  sockaddr_in got{};
  size_t size = sizeof got;
  EXPECT_EQ(fi_getname(ep->base(), &got, &size), 0);
  EXPECT_EQ(got.sin_port, htons(7002));
}

TEST_F(LayerEndpoint, CallsBecomeOperations) {
  enable();
  iovec iov[] = {{bytes_, 3}, {bytes_ + 8, 4}};
  const fi_msg_tagged tagged{.msg_iov = iov,
                             .desc = nullptr,
                             .iov_count = 2,
                             .addr = 1,
                             .tag = 9,
                             .ignore = 0,
                             .context = &iov,
                             .data = 5};
  ASSERT_EQ(fi_tsendmsg(ep->c(), &tagged, FI_FENCE | FI_REMOTE_CQ_DATA), 0);
  const TxOp &sent = *core().last;
  EXPECT_TRUE(sent.report);
  EXPECT_TRUE(sent.fence);
  EXPECT_EQ(sent.context, &iov);
  EXPECT_EQ(sent.cq_flags, uint64_t(FI_SEND | FI_TAGGED));
  EXPECT_EQ(sent.length, 7u);
  EXPECT_EQ(sent.data, 5u);
  EXPECT_EQ(sent.tag, 9u);
  ASSERT_EQ(sent.count, 2);
  EXPECT_EQ(sent.iov[1].iov_base, bytes_ + 8);
  core().end(*core().last, 0);

  const fi_rma_iov rma[] = {{100, 2, 50}, {200, 5, 51}};
  const fi_msg_rma read{.msg_iov = iov,
                        .desc = nullptr,
                        .iov_count = 2,
                        .addr = 1,
                        .rma_iov = rma,
                        .rma_iov_count = 2,
                        .context = nullptr,
                        .data = 0};
  ASSERT_EQ(fi_readmsg(ep->c(), &read, 0), 0);
  const TxOp &access = *core().last;
  EXPECT_FALSE(access.fence);
  EXPECT_EQ(access.cq_flags, uint64_t(FI_RMA | FI_READ));
  EXPECT_EQ(access.tag, 0u);  // nothing is left of the operation before
  EXPECT_EQ(access.length, 7u);
  ASSERT_EQ(access.vector_count, 2);
  EXPECT_EQ(access.vectors[1].address, 200u);
  EXPECT_EQ(access.vectors[1].length, 5u);
  EXPECT_EQ(access.vectors[1].key, 51u);
  core().end(*core().last, 0);

  const uint64_t operand = 1;
  uint64_t result;
  ASSERT_EQ(fi_atomic(ep->c(), &operand, 1, nullptr, 0, 0, 0, FI_UINT64, FI_SUM, nullptr), 0);
  EXPECT_EQ(core().last->cq_flags, uint64_t(FI_ATOMIC | FI_WRITE));
  core().end(*core().last, 0);
  ASSERT_EQ(fi_fetch_atomic(ep->c(), &operand, 1, nullptr, &result, nullptr, 0, 0, 0, FI_UINT64,
                            FI_SUM, nullptr),
            0);
  EXPECT_EQ(core().last->cq_flags, uint64_t(FI_ATOMIC | FI_READ));
  core().end(*core().last, 0);

  ASSERT_EQ(fi_inject(ep->c(), bytes_, 4, 0), 0);
  EXPECT_FALSE(core().last->report);
  core().end(*core().last, 0);
}

TEST_F(LayerEndpoint, OnlyAnUnknownPeerIsPassedWithItsAddress) {
  enable();
  ASSERT_EQ(fi_send(ep->c(), bytes_, 1, nullptr, 1, nullptr), 0);
  ASSERT_EQ(fi_send(ep->c(), bytes_, 1, nullptr, 1, nullptr), 0);
  EXPECT_THAT(domain.notes, ElementsAre("first to 1001"));
}

TEST_F(LayerEndpoint, AnOperationThatWasNotStartedIsFreed) {
  enable();
  EXPECT_EQ(fi_send(ep->c(), bytes_, 1, nullptr, 2, nullptr), -FI_EINVAL);  // no such peer
  core().refuse = -FI_EOPBADSTATE;
  EXPECT_EQ(fi_send(ep->c(), bytes_, 1, nullptr, 1, nullptr), -FI_EOPBADSTATE);
  core().refuse = 0;
  ep->no_memory = true;
  EXPECT_EQ(fi_send(ep->c(), bytes_, 1, nullptr, 1, nullptr), -FI_ENOMEM);
  EXPECT_EQ(ep->tx_size_left(), ssize_t(kTxSize));
  EXPECT_EQ(core().last, nullptr);
}

TEST_F(LayerEndpoint, WhoStartsTransfersBetweenReadsDoesNotWait) {
  enable();
  sdk::Turn &turn = domain.engine().turn_of_readers();
  for (int i = 0; i < 10; ++i) turn.gave_way(sdk::Turn::kSwitchNs);
  const auto reads_in_vain = [&](unsigned count) {
    unsigned over = 0;
    for (unsigned i = 0; i < count; ++i) over += turn.is_over(false);
    return over;
  };
  EXPECT_EQ(reads_in_vain(turn.soon()), 0u);
  EXPECT_EQ(fi_send(ep->c(), bytes_, 1, nullptr, 2, nullptr), -FI_EINVAL);
  EXPECT_EQ(reads_in_vain(turn.least() - turn.soon()), 1u) << "nothing was started";
  EXPECT_EQ(reads_in_vain(turn.soon()), 0u);
  EXPECT_EQ(fi_send(ep->c(), bytes_, 1, nullptr, 1, nullptr), 0);
  EXPECT_EQ(reads_in_vain(sdk::Engine::kReadsOfATurn - turn.soon() - 1), 0u);
  EXPECT_EQ(reads_in_vain(1), 1u);
}

TEST_F(LayerEndpoint, ASendMakesProgressWhenAllOperationsAreInUse) {
  enable();
  for (size_t i = 0; i < kTxSize; ++i) ASSERT_EQ(fi_inject(ep->c(), bytes_, 1, 0), 0);
  EXPECT_EQ(fi_inject(ep->c(), bytes_, 1, 0), -FI_EAGAIN);
  ep->lower().then = [this] { core().end(*core().last, 0); };
  EXPECT_EQ(fi_inject(ep->c(), bytes_, 1, 0), 0);
}

TEST_F(LayerEndpoint, EndedOperationsAreReported) {
  enable();
  ASSERT_EQ(fi_tsend(ep->c(), bytes_, 5, nullptr, 0, 9, &own_), 0);
  core().end(*core().last, 0);
  fi_cq_tagged_entry entry{};
  ASSERT_EQ(fi_cq_read(cq_->c(), &entry, 1), 1);
  EXPECT_EQ(entry.op_context, &own_);
  EXPECT_EQ(entry.flags, uint64_t(FI_SEND | FI_TAGGED));
  ASSERT_EQ(fi_tsend(ep->c(), bytes_, 5, nullptr, 0, 9, &own_), 0);
  core().end(*core().last, FI_ECONNRESET);
  ASSERT_EQ(fi_cq_read(cq_->c(), &entry, 1), -FI_EAVAIL);
  fi_cq_err_entry error{};
  ASSERT_EQ(fi_cq_readerr(cq_->c(), &error, 0), 1);
  EXPECT_EQ(error.err, FI_ECONNRESET);
  EXPECT_EQ(error.tag, 9u);
}

TEST_F(LayerEndpoint, WhatPeersCauseIsNoFloodOfLogLines) {
  enable();
  for (int i = 0; i < 100; ++i) {
    core().upper().warn("no connection to a peer");
    core().upper().warn_of_peer("a connection is refused");
  }
  const auto lines = domain.test.instance.log();
  const auto lines_with = [&](const char *text) {
    return std::count_if(lines.begin(), lines.end(), [&](const std::string &line) {
      return line.find(text) != std::string::npos;
    });
  };
  EXPECT_EQ(lines_with("no connection to a peer"), 100);
  EXPECT_GE(lines_with("a connection is refused"), 8);
  EXPECT_LT(lines_with("a connection is refused"), 100);
  EXPECT_GE(lines_with("of further such lines"), 1);
}

TEST_F(LayerEndpoint, TheCoreIsToldOfInsertedAndRemovedPeers) {
  enable();
  const sockaddr_in peer = loopback(1002);
  fi_addr_t index = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(av_->c(), &peer, 1, &index, 0, nullptr), 1);
  ASSERT_EQ(index, 2u);
  EXPECT_EQ(core().upper().index_of(address(1002)), 2u);
  EXPECT_EQ(core().upper().index_of(address(1003)), sdk::Av::kNone);
  ASSERT_EQ(fi_av_remove(av_->c(), &index, 1, 0), 0);
  EXPECT_THAT(domain.notes, ElementsAre("introduce 2: 1002", "forget 2"));
}

TEST_F(LayerEndpoint, UnreceivedMessagesAreDiscardedBeforeTheCarrierCloses) {
  enable();
  Saved wanted, unwanted;
  for (Saved *message : {&wanted, &unwanted}) {
    message->message = {.source = 0, .length = 1};
    core().upper().receiver().save(*message);
  }
  ASSERT_EQ(fi_recv(ep->c(), bytes_, 1, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  EXPECT_THAT(domain.notes, ElementsAre("deliver"));
  close();
  EXPECT_THAT(domain.notes, ElementsAre("deliver", "end", "discard", "lower shut"));
}

TEST_F(LayerEndpoint, AliasesKeepItOpen) {
  enable();
  fid_ep *alias = nullptr;
  ASSERT_EQ(fi_ep_alias(ep->c(), &alias, FI_TRANSMIT), 0);
  EXPECT_EQ(fi_close(ep->base()), -FI_EBUSY);
  size_t count = 0;
  EXPECT_EQ(fi_compare_atomicvalid(alias, FI_UINT64, FI_CSWAP, &count), 0);
  EXPECT_EQ(count, 4u);
  EXPECT_EQ(fi_close(&alias->fid), 0);
}

TEST_F(LayerEndpoint, LingersUntilItsOperationsEndWhileTheDomainMakesProgress) {
  enable();
  int polls = 0, other = 0;
  ep->lower().then = [&] { ++polls; };
  sdk::Event neighbour;
  {
    sdk::Guard guard(domain.engine().lock());
    domain.engine().add(neighbour, neighbour.fd(), EPOLLIN, 0);
  }
  neighbour.then = [&] { ++other; };
  neighbour.signal();
  ep->over = [&] { return polls >= 3; };
  close();
  EXPECT_EQ(polls, 3);
  EXPECT_EQ(other, 1) << "the other handlers of the domain need progress";
  sdk::Guard guard(domain.engine().lock());
  domain.engine().remove(neighbour);
}

// The endpoints of a domain share one limit for lingering in vain. 4000 closes without an answer
// wait little longer than one close may.
TEST(LingerBudget, IsSharedByTheEndpointsOfADomain) {
  constexpr uint64_t kMs = 1'000'000, kMost = 1000 * kMs;
  sdk::LingerBudget budget;
  uint64_t now = 5'000 * kMs, vain = 0;
  const auto close = [&](uint64_t wants) {
    const uint64_t waits = std::min(wants, budget.left(now, kMost));
    budget.spend(waits);
    now += waits + kMs / 10;
    vain += waits;
  };
  for (int i = 0; i < 4000; ++i) close(60 * kMs);
  EXPECT_GE(vain, kMost);
  EXPECT_LE(vain, kMost + kMost / 4);
  // Lingering in vain long ago no longer counts.
  now += 10 * kMost;
  EXPECT_EQ(budget.left(now, kMost), kMost);
  // Lingering with success does not count.
  for (int i = 0; i < 1000; ++i) now += 2 * kMs;
  EXPECT_EQ(budget.left(now, kMost), kMost);
}

TEST_F(LayerEndpoint, LingersAtMostForTheConfiguredTime) {
  enable();
  domain.fabric().layer().values.close_linger_ns = 1'000'000;
  ep->over = [] { return false; };
  close();
  EXPECT_THAT(domain.notes, ElementsAre("end", "lower shut"));
}

}  // namespace
}  // namespace weft::layer_test
