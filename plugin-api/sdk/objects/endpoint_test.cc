// SPDX-License-Identifier: BSD-2-Clause
// What endpoints are made of (EndpointCore, TxContext, RxContext), composed in every way: one side
// or both, connected or not, with the engine's lock or its own.
#include <gtest/gtest.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/objects/endpoint_number.h>
#include <weft/sdk/objects/ops.h>

#include <memory>
#include <vector>

#include "plugin-api/sdk/testing/test_av.h"
#include "plugin-api/sdk/testing/test_cq.h"
#include "plugin-api/sdk/testing/test_eq.h"
#include "weft/sdk/objects/cntr.h"

namespace weft::sdk {
namespace {

enum class Sides { kBoth, kTransmit, kReceive };

fi_info info_of(uint64_t caps) {
  fi_info info{};
  info.caps = caps;
  return info;
}

class Composed final : public Object<Composed, fid_ep>, public EndpointCore {
 public:
  Composed(TestDomain &domain, PeerKind kind, Sides sides, const fi_info &info, Lock *own = nullptr)
      : Object(domain.instance.c(), FI_CLASS_EP, nullptr),
        EndpointCore(domain.context, kind, info, {.inject_size = 64, .atomic_size = 128},
                     sides != Sides::kReceive ? &tx : nullptr,
                     sides != Sides::kTransmit ? &rx : nullptr, own) {
    c()->fid.ops = c_table(fid_ops<Composed>());
  }
  ~Composed() {
    detach();
    release(nullptr);
  }
  int close() { return -FI_EBUSY; }  // it goes with its variable
  int control(int command, void *arg) { return control_flags(command, arg, FI_COMPLETION); }
  int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
  int enable(bool shares = false) {
    const auto checked = check_bindings(shares);
    if (!checked) return -checked.error().code;
    set_enabled();
    return 0;
  }
  using EndpointCore::detach;
  using EndpointCore::get_limit;
  using EndpointCore::release;

  TxContext tx;
  RxContext rx;
};

class Cntrs {
 public:
  explicit Cntrs(TestDomain &domain) {
    auto opened = Cntr::open(domain.context, nullptr, nullptr);
    if (opened) cntr = *opened;
  }
  ~Cntrs() { EXPECT_EQ(fi_close(cntr->base()), 0); }
  Cntr *cntr = nullptr;
};

constexpr uint64_t kAll = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE;

TEST(EndpointCore, BindsQueuesToTheSidesThatItHas) {
  TestDomain domain;
  for (const Sides sides : {Sides::kBoth, Sides::kTransmit, Sides::kReceive}) {
    TestCq queue(domain, cq_attr());
    const fi_info info = info_of(kAll);
    Composed ep(domain, PeerKind::kUnconnected, sides, info);
    const bool tx = sides != Sides::kReceive, rx = sides != Sides::kTransmit;
    EXPECT_EQ(ep.bind(queue.cq->base(), 0), -FI_EBADFLAGS);
    EXPECT_EQ(ep.bind(queue.cq->base(), FI_TRANSMIT | FI_READ), -FI_EBADFLAGS);
    EXPECT_EQ(ep.bind(queue.cq->base(), FI_TRANSMIT | FI_SELECTIVE_COMPLETION),
              tx ? 0 : -FI_EINVAL);
    EXPECT_EQ(ep.bind(queue.cq->base(), FI_RECV), rx ? 0 : -FI_EINVAL);
    EXPECT_EQ(ep.bind(queue.cq->base(), FI_TRANSMIT), tx ? -FI_EBUSY : -FI_EINVAL);
    EXPECT_EQ(ep.bind(queue.cq->base(), FI_TRANSMIT | FI_RECV),
              sides == Sides::kBoth ? -FI_EBUSY : -FI_EINVAL);
    EXPECT_EQ(ep.tx.cq, tx ? queue.cq : nullptr);
    EXPECT_EQ(ep.tx.selective, tx);
    EXPECT_EQ(ep.rx.cq, rx ? queue.cq : nullptr);
    EXPECT_FALSE(ep.rx.selective);
    EXPECT_EQ(fi_close(queue.cq->base()), -FI_EBUSY);
  }
}

TEST(EndpointCore, BindsCountersToTheSidesThatItHas) {
  TestDomain domain;
  Cntrs one(domain), two(domain);
  const fi_info info = info_of(kAll);
  Composed both(domain, PeerKind::kUnconnected, Sides::kBoth, info);
  EXPECT_EQ(both.bind(one.cntr->base(), FI_SEND | FI_REMOTE_WRITE), 0);
  EXPECT_EQ(both.bind(two.cntr->base(), FI_RECV | FI_SEND), -FI_EBUSY);
  EXPECT_EQ(both.rx.cntr, nullptr) << "a bind that fails binds nothing";
  EXPECT_EQ(both.bind(two.cntr->base(), FI_RECV), 0);
  EXPECT_EQ(both.bind(two.cntr->base(), 0), -FI_EBADFLAGS);
  EXPECT_EQ(both.bind(two.cntr->base(), FI_TAGGED), -FI_EBADFLAGS);
  EXPECT_EQ(both.tx.send, one.cntr);
  EXPECT_EQ(both.rx.remote_write, one.cntr);
  Composed sends(domain, PeerKind::kUnconnected, Sides::kTransmit, info);
  EXPECT_EQ(sends.bind(one.cntr->base(), FI_RECV), -FI_EBADFLAGS);
  EXPECT_EQ(sends.bind(one.cntr->base(), FI_WRITE | FI_READ), 0);
  Composed receives(domain, PeerKind::kUnconnected, Sides::kReceive, info);
  EXPECT_EQ(receives.bind(one.cntr->base(), FI_WRITE), -FI_EBADFLAGS);
}

TEST(EndpointCore, RefusesObjectsOfOtherDomainsAndKinds) {
  TestDomain domain, other;
  TestCq foreign(other, cq_attr());
  Cntrs foreign_counter(other);
  Vector vector;  // of a third one
  const fi_info info = info_of(kAll);
  Composed ep(domain, PeerKind::kUnconnected, Sides::kBoth, info);
  EXPECT_EQ(ep.bind(nullptr, 0), -FI_EINVAL);
  EXPECT_EQ(ep.bind(foreign.cq->base(), FI_TRANSMIT), -FI_EINVAL);
  EXPECT_EQ(ep.bind(foreign_counter.cntr->base(), FI_SEND), -FI_EINVAL);
  EXPECT_EQ(ep.bind(&vector.c->fid, 0), -FI_EINVAL);
  EXPECT_EQ(ep.bind(ep.base(), 0), -FI_EINVAL);
}

TEST(EndpointCore, AnUnconnectedEndpointNeedsAVectorBeforeItIsEnabled) {
  Vector vector;
  const fi_info info = info_of(FI_MSG | FI_SEND);
  TestCq queue(vector.domain, cq_attr());
  Composed ep(vector.domain, PeerKind::kUnconnected, Sides::kBoth, info);
  EXPECT_EQ(ep.enable(), -FI_ENOAV);
  EXPECT_EQ(ep.bind(&vector.c->fid, FI_SEND), -FI_EBADFLAGS);
  EXPECT_EQ(ep.bind(&vector.c->fid, 0), 0);
  EXPECT_EQ(ep.bind(&vector.c->fid, 0), -FI_EBUSY);
  EXPECT_EQ(ep.rx.av, vector.av);
  EXPECT_EQ(ep.enable(), -FI_ENOCQ);
  EXPECT_EQ(ep.bind(queue.cq->base(), FI_TRANSMIT), 0);
  EXPECT_EQ(ep.enable(), 0) << "it does not receive";
  EXPECT_EQ(ep.bind(&vector.c->fid, 0), -FI_EOPBADSTATE);
  EXPECT_EQ(ep.bind(queue.cq->base(), FI_RECV), 0) << "queues may come later";
  EXPECT_EQ(fi_close(&vector.c->fid), -FI_EBUSY);
  ep.release(nullptr);
  EXPECT_EQ(ep.rx.av, nullptr);
}

TEST(EndpointCore, AConnectedEndpointNeedsAnEventQueueAndTakesNoVector) {
  Vector vector;
  const fi_info info = info_of(FI_MSG | FI_RECV);
  TestCq queue(vector.domain, cq_attr());
  Composed ep(vector.domain, PeerKind::kConnected, Sides::kBoth, info);
  EXPECT_EQ(ep.bind(&vector.c->fid, 0), -FI_EINVAL);
  EXPECT_EQ(ep.enable(), -FI_ENOEQ);
  TestEq foreign;  // of another instance
  EXPECT_EQ(ep.bind(foreign.eq->base(), 0), -FI_EINVAL);
}

TEST(EndpointCore, ASharedContextThatWasAskedForMustBeBound) {
  Vector vector;
  fi_ep_attr attr{};
  attr.rx_ctx_cnt = FI_SHARED_CONTEXT;
  fi_info info = info_of(FI_MSG | FI_SEND);
  info.ep_attr = &attr;
  TestCq queue(vector.domain, cq_attr());
  Composed ep(vector.domain, PeerKind::kUnconnected, Sides::kBoth, info);
  ASSERT_EQ(ep.bind(&vector.c->fid, 0), 0);
  ASSERT_EQ(ep.bind(queue.cq->base(), FI_TRANSMIT), 0);
  EXPECT_EQ(ep.enable(), -FI_EINVAL);
  EXPECT_EQ(ep.enable(/*shares=*/true), 0);
}

// A thread that has the engine's lock does not keep others from an endpoint with its own.
TEST(EndpointCore, ItsOwnLockIsTheOneThatItTakes) {
  TestDomain domain;
  const fi_info info = info_of(kAll);
  Lock own;
  Composed ep(domain, PeerKind::kUnconnected, Sides::kBoth, info, &own);
  EXPECT_EQ(&ep.lock(), &own);
  uint64_t flags = FI_TRANSMIT;
  {
    Guard guard(domain.engine.lock());
    EXPECT_EQ(fi_control(ep.base(), FI_GETOPSFLAG, &flags), 0);
  }
  bool done = false;
  own.lock();
  Sleeper sleeper([&] {
    uint64_t of = FI_RECV;
    fi_control(ep.base(), FI_GETOPSFLAG, &of);
    Guard guard(own);
    done = true;
  });
  EXPECT_FALSE(done);
  own.unlock();
  EXPECT_TRUE(sleeper.eventually_done());
}

TEST(EndpointCore, ItsNumberIsItsOwnAndOfItsDomain) {
  TestDomain domain, other;
  const fi_info info = info_of(kAll);
  Composed one(domain, PeerKind::kUnconnected, Sides::kBoth, info);
  Composed two(domain, PeerKind::kUnconnected, Sides::kBoth, info);
  EXPECT_NE(one.number(), two.number());
  uint64_t number = 0;
  EXPECT_EQ(endpoint_number(domain.context, one.base(), number), 0);
  EXPECT_EQ(number, one.number());
  EXPECT_EQ(endpoint_number(other.context, one.base(), number), -FI_EDOMAIN);
}

TEST(EndpointCore, LimitsAreTheApplicationsWithinWhatTheProviderHas) {
  TestDomain domain;
  fi_tx_attr tx{};
  tx.size = 7;
  tx.inject_size = 1000;  // more than there is
  fi_info info = info_of(kAll);
  info.tx_attr = &tx;
  Composed ep(domain, PeerKind::kUnconnected, Sides::kBoth, info);
  const auto option = [&](int name) {
    size_t value = 0, length = sizeof value;
    const int rc = ep.get_limit(FI_OPT_ENDPOINT, name, &value, &length);
    return rc == 0 ? ssize_t(value) : rc;
  };
  EXPECT_EQ(option(FI_OPT_TX_SIZE), 7);
  EXPECT_EQ(option(FI_OPT_RX_SIZE), 1024);
  EXPECT_EQ(option(FI_OPT_INJECT_MSG_SIZE), 64);
  EXPECT_EQ(option(FI_OPT_MAX_ATOMIC_SIZE), 128);
  EXPECT_EQ(option(FI_OPT_CM_DATA_SIZE), -FI_ENOPROTOOPT);
  EXPECT_EQ(ep.check_length(65, FI_INJECT), -FI_EMSGSIZE);
  EXPECT_EQ(ep.check_length(65, 0), 0);
}

// ---- how the contexts report ----

TEST(Contexts, ReportToTheQueueAndToTheCounterOfTheKind) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
  Cntrs sends(domain), writes(domain);
  TxContext tx;
  tx.cq = queue.cq;
  tx.send = sends.cntr;
  tx.write = writes.cntr;
  {
    Guard guard(domain.engine.lock());
    tx.succeed(ctx(1), FI_SEND | FI_MSG, 8, true);
    tx.succeed(ctx(2), FI_WRITE | FI_RMA, 8, false);
    tx.finish({.context = ctx(3), .flags = FI_WRITE | FI_RMA, .report = false, .err = FI_EIO});
    tx.finish({.context = ctx(4), .flags = FI_READ | FI_RMA});
    tx.detach();
    tx.succeed(ctx(5), FI_SEND | FI_MSG, 8, true);
    tx.finish({.context = ctx(6), .flags = FI_SEND | FI_MSG, .err = FI_EIO});
  }
  EXPECT_EQ(queue.next(), 1);
  EXPECT_EQ(queue.next(), -1003) << "errors are told, wanted or not";
  EXPECT_EQ(queue.next(), 4);
  EXPECT_EQ(queue.next(), -FI_EAGAIN) << "nothing after detach()";
  EXPECT_EQ(fi_cntr_read(sends.cntr->c()), 1u);
  EXPECT_EQ(fi_cntr_read(writes.cntr->c()), 1u);
  EXPECT_EQ(fi_cntr_readerr(writes.cntr->c()), 1u);
}

TEST(Contexts, SayWhatTheProviderSaidOfAnError) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
  TxContext tx;
  tx.cq = queue.cq;
  for (const int said : {0, 77}) {
    {
      Guard guard(domain.engine.lock());
      tx.finish({.context = ctx(1), .flags = FI_SEND | FI_MSG, .err = FI_EIO, .prov_errno = said});
    }
    fi_cq_err_entry entry{};
    ASSERT_EQ(fi_cq_readerr(queue.cq->c(), &entry, 0), 1);
    EXPECT_EQ(entry.err, FI_EIO);
    EXPECT_EQ(entry.prov_errno, said != 0 ? said : FI_EIO);
  }
}

TEST(Contexts, SayWhichCallsReport) {
  TxContext tx;
  EXPECT_TRUE(tx.reports(0));
  EXPECT_FALSE(tx.reports(FI_COMPLETION | TxContext::kSilent));
  tx.selective = true;
  EXPECT_FALSE(tx.reports(0));
  EXPECT_TRUE(tx.reports(FI_COMPLETION));
  RxContext rx;
  EXPECT_TRUE(rx.reports(0));
  rx.selective = true;
  EXPECT_FALSE(rx.reports(0));
  EXPECT_FALSE(tx.has_target());
  EXPECT_FALSE(tx.is_full());
}

TEST(Contexts, WhatPeersDoIsCountedByItsKind) {
  TestDomain domain;
  TestCq queue(domain, cq_attr());
  Cntrs reads(domain), writes(domain), receives(domain);
  RxContext rx;
  rx.cq = queue.cq;
  rx.cntr = receives.cntr;
  rx.remote_read = reads.cntr;
  rx.remote_write = writes.cntr;
  {
    Guard guard(domain.engine.lock());
    rx.count_remote(FI_REMOTE_READ, 8);
    rx.count_remote(FI_REMOTE_WRITE, 8);
    rx.count_remote(FI_REMOTE_WRITE, 8);
    rx.report_remote_write(8, 99, FI_ADDR_NOTAVAIL);
    rx.fail(ctx(5), FI_RECV | FI_MSG, FI_ECANCELED);
  }
  EXPECT_EQ(fi_cntr_read(reads.cntr->c()), 1u);
  EXPECT_EQ(fi_cntr_read(writes.cntr->c()), 2u);
  EXPECT_EQ(fi_cntr_readerr(receives.cntr->c()), 1u);
  fi_cq_tagged_entry entry{};
  ASSERT_EQ(fi_cq_read(queue.c(), &entry, 1), 1);
  EXPECT_EQ(entry.data, 99u);
  EXPECT_EQ(entry.flags, uint64_t(FI_REMOTE_CQ_DATA | FI_REMOTE_WRITE | FI_RMA));
  EXPECT_EQ(queue.next(), -1005);
  EXPECT_EQ(queue.last_error, FI_ECANCELED);
}

}  // namespace
}  // namespace weft::sdk
