// SPDX-License-Identifier: BSD-2-Clause
// Statements about one endpoint without a peer that hold on every stack (fi_endpoint.3), as tables:
// the name of a row stands in promises.toml behind the name of its test.
#include <algorithm>
#include <set>
#include <string_view>

#include "tests/conformance/promises/asked.h"

namespace weft::conformance::promises {
namespace {

// A call with the errors that the page allows; none: any error.
struct Wrong {
  std::string_view name;
  int (*call)(Alone &);
  std::vector<int> errors;
};

template <class T>
int set_option(Alone &one, int name, T value, int level = FI_OPT_ENDPOINT) {
  return fi_setopt(one.ep.fid(), level, name, &value, sizeof value);
}
int get_option(Alone &one, int name, size_t room, int level = FI_OPT_ENDPOINT) {
  char value[128] = {};
  return fi_getopt(one.ep.fid(), level, name, value, &room);
}
int control(Alone &one, int command, uint64_t flags) {
  return fi_control(one.ep.fid(), command, &flags);
}
int alias(Alone &one, uint64_t flags) {
  fid_ep *made = nullptr;
  const int rc = fi_ep_alias(one.ep, &made, flags);
  if (rc == 0) fi_close(&made->fid);
  return rc;
}
int backlog(Alone &one) {
  int value = 5;
  return fi_control(one.ep.fid(), FI_BACKLOG, &value);
}
int second_queue(Alone &one, uint64_t flags) {
  Handle<fid_cq> cq;
  fi_cq_attr attr = Options::cq_attr();
  must(fi_cq_open(one.domain, &attr, cq.out(), nullptr));
  return fi_ep_bind(one.ep, cq.fid(), flags);
}

const std::vector<Wrong> &wrong_calls() {
  static const std::vector<Wrong> rows = {
      {"option_of_an_unknown_level",
       [](Alone &one) { return get_option(one, FI_OPT_CM_DATA_SIZE, 8, 777); },
       {-FI_ENOPROTOOPT}},
      {"option_that_nobody_knows",
       [](Alone &one) { return get_option(one, 12345, 8); },
       {-FI_ENOPROTOOPT}},
      {"setting_an_option_that_nobody_knows",
       [](Alone &one) { return set_option<size_t>(one, 12345, 1); },
       {-FI_ENOPROTOOPT}},
      {"size_of_private_data_is_read_only",
       [](Alone &one) { return set_option<size_t>(one, FI_OPT_CM_DATA_SIZE, 64); },
       {}},
      {"xpu_trigger",
       [](Alone &one) { return get_option(one, FI_OPT_XPU_TRIGGER, 128); },
       {-FI_EOPNOTSUPP, -FI_ENOPROTOOPT}},
      {"peer_to_peer_of_devices_that_are_not_there",
       [](Alone &one) { return set_option<int>(one, FI_OPT_FI_HMEM_P2P, FI_HMEM_P2P_REQUIRED); },
       {-FI_EOPNOTSUPP, -FI_ENOPROTOOPT}},
      {"flags_of_both_sides",
       [](Alone &one) { return control(one, FI_GETOPSFLAG, FI_TRANSMIT | FI_RECV); },
       {}},
      {"flags_of_no_side", [](Alone &one) { return control(one, FI_GETOPSFLAG, 0); }, {}},
      {"setting_flags_of_both_sides",
       [](Alone &one) { return control(one, FI_SETOPSFLAG, FI_TRANSMIT | FI_RECV); },
       {}},
      {"setting_flags_of_no_side", [](Alone &one) { return control(one, FI_SETOPSFLAG, 0); }, {}},
      {"alias_of_both_sides", [](Alone &one) { return alias(one, FI_TRANSMIT | FI_RECV); }, {}},
      {"alias_of_no_side", [](Alone &one) { return alias(one, 0); }, {}},
      {"backlog_of_an_active_endpoint", backlog, {}},
      {"a_command_that_nobody_knows", [](Alone &one) { return control(one, 12345, 0); }, {}},
      {"a_second_queue_for_sends", [](Alone &one) { return second_queue(one, FI_TRANSMIT); }, {}},
      {"a_second_queue_for_receives", [](Alone &one) { return second_queue(one, FI_RECV); }, {}},
      {"a_queue_for_nothing", [](Alone &one) { return second_queue(one, 0); }, {}},
      {"selective_for_no_side",
       [](Alone &one) { return second_queue(one, FI_SELECTIVE_COMPLETION); },
       {}},
      {"binding_a_fabric", [](Alone &one) { return fi_ep_bind(one.ep, one.fabric.fid(), 0); }, {}},
      {"binding_a_domain", [](Alone &one) { return fi_ep_bind(one.ep, one.domain.fid(), 0); }, {}},
  };
  return rows;
}

TEST(PromisesEndpoint, WrongCallsAreRefused) {
  covers("life cycle");
  Alone one;
  for (const Wrong &row : wrong_calls()) {
    const int rc = row.call(one);
    EXPECT_LT(rc, 0) << row.name;
    const bool is_any_allowed = row.errors.empty();
    EXPECT_TRUE(is_any_allowed || std::ranges::count(row.errors, rc) != 0)
        << row.name << ": " << error_text(rc);
  }
  EXPECT_EQ(fi_enable(one.ep), 0) << "nothing of that has harmed it";
}

TEST(PromisesEndpoint, EachSideHasFlagsThatCanBeRead) {
  covers("life cycle");
  Alone one;
  one.enable();
  for (const uint64_t side : {FI_TRANSMIT, FI_RECV}) {
    uint64_t flags = side;
    EXPECT_EQ(fi_control(one.ep.fid(), FI_GETOPSFLAG, &flags), 0);
    EXPECT_EQ(flags & FI_DELIVERY_COMPLETE, 0u) << "nobody asked for that";
  }
}

TEST(PromisesEndpoint, AnAliasKeepsItBusy) {
  covers("life cycle");
  Alone one;
  one.enable();
  Handle<fid_ep> other;
  must(fi_ep_alias(one.ep, other.out(), FI_TRANSMIT));
  EXPECT_EQ(fi_close(one.ep.fid()), -FI_EBUSY);
}

TEST(PromisesEndpoint, CountersOfAKindAreOne) {
  covers("life cycle");
  if (find_info(options())->domain_attr->cntr_cnt == 0) GTEST_SKIP() << stack() << " has none";
  Alone one;
  for (const uint64_t kind : {FI_SEND, FI_RECV}) {
    one.count(kind);
    Handle<fid_cntr> second;
    must(fi_cntr_open(one.domain, nullptr, second.out(), nullptr));
    EXPECT_LT(fi_ep_bind(one.ep, second.fid(), kind), 0);
  }
}

TEST(PromisesEndpoint, TheNameFitsOrSaysItsLength) {
  covers("life cycle");
  Alone one;
  one.enable();
  char name[256] = {};
  size_t length = 1;
  EXPECT_EQ(fi_getname(one.ep.fid(), name, &length), -FI_ETOOSMALL);
  ASSERT_GT(length, 1u);
  const size_t needed = length;
  length = sizeof name;
  EXPECT_EQ(fi_getname(one.ep.fid(), name, &length), 0);
  EXPECT_EQ(length, needed);
  EXPECT_EQ(name[needed], 0) << "no byte beyond";
}

// ---- fi_cancel ----

struct Receiver : Alone {
  Receiver() { enable(); }
  bool post(void *context) {
    buffers.emplace_back(64);
    return fi_recv(ep, buffers.back().data(), 64, nullptr, FI_ADDR_UNSPEC, context) == 0;
  }
  // The completions that are there after some reads.
  std::vector<Done> ended() {
    std::vector<Done> all;
    for (int i = 0; i < 100; ++i) {
      while (const auto done = poll_cq(rx_cq)) all.push_back(*done);
    }
    return all;
  }
  std::vector<std::vector<uint8_t>> buffers;
};

#define NEEDS_A_RECEIVE(receiver, context) \
  if (!receiver.post(context)) GTEST_SKIP() << stack() << " takes no receive without a peer"

TEST(PromisesCancel, OneOfSeveralWithTheSameContext) {
  covers("fi_cancel");
  Receiver one;
  int context = 0;
  NEEDS_A_RECEIVE(one, &context);
  ASSERT_TRUE(one.post(&context));
  for (size_t i = 0; i < 2; ++i) {
    const ssize_t rc = fi_cancel(one.ep.fid(), &context);
    if (rc == -FI_ENOENT && is_of_a_device(options().type))
      GTEST_SKIP() << "a device does not give receives back";
    must(rc);
    const std::vector<Done> ended = one.ended();
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_EQ(ended[0].err, FI_ECANCELED);
    EXPECT_EQ(ended[0].context, &context);
  }
}

TEST(PromisesCancel, WhatIsNotThereHasNoEntry) {
  covers("fi_cancel");
  Receiver one;
  int context = 0, other = 0;
  NEEDS_A_RECEIVE(one, &context);
  fi_cancel(one.ep.fid(), &other);
  EXPECT_TRUE(one.ended().empty());
}

TEST(PromisesCancel, WithoutAContextNothingIsFound) {
  covers("fi_cancel");
  Receiver one;
  NEEDS_A_RECEIVE(one, nullptr);
  fi_cancel(one.ep.fid(), nullptr);
  EXPECT_TRUE(one.ended().empty());
}

TEST(PromisesEndpoint, ClosingItDropsItsReceives) {
  covers("life cycle");
  Receiver one;
  int context = 0;
  NEEDS_A_RECEIVE(one, &context);
  one.ep.reset();
  EXPECT_TRUE(one.ended().empty());
}

TEST(PromisesEndpoint, AsManyReceivesAsItSaysAreTaken) {
  covers("life cycle");
  Receiver one;
  int context = 0;
  NEEDS_A_RECEIVE(one, &context);
  const ssize_t left = std::min<ssize_t>(receives_left(one.ep), 4096);
  for (ssize_t i = 0; i < left; ++i) ASSERT_TRUE(one.post(&context)) << i << " of " << left;
}

TEST(PromisesEndpoint, ManyMayBeOfOneDomain) {
  covers("life cycle");
  Alone one;
  std::vector<Handle<fid_ep>> others(8);
  for (Handle<fid_ep> &other : others)
    EXPECT_EQ(fi_endpoint(one.domain, one.info.get(), other.out(), &other), 0);
  for (Handle<fid_ep> &other : others) EXPECT_EQ(other->fid.context, &other);
}

TEST(PromisesEndpoint, FidsSayTheirClass) {
  covers("life cycle");
  Alone one;
  EXPECT_EQ(one.fabric->fid.fclass, size_t(FI_CLASS_FABRIC));
  EXPECT_EQ(one.domain->fid.fclass, size_t(FI_CLASS_DOMAIN));
  EXPECT_EQ(one.ep->fid.fclass, size_t(FI_CLASS_EP));
  EXPECT_EQ(one.tx_cq->fid.fclass, size_t(FI_CLASS_CQ));
  EXPECT_GE(one.ep->fid.ops->size, sizeof(fi_ops));
  EXPECT_GE(one.domain->fid.ops->size, sizeof(fi_ops));
}

TEST(PromisesClass, ADscpComesBack) {
  covers("traffic class");
  std::set<uint32_t> classes;
  for (uint8_t dscp = 0; dscp < 64; ++dscp) {
    const uint32_t tclass = fi_tc_dscp_set(dscp);
    EXPECT_EQ(fi_tc_dscp_get(tclass), dscp);
    classes.insert(tclass);
  }
  EXPECT_EQ(classes.size(), 64u);
  for (const uint32_t label : {FI_TC_UNSPEC, FI_TC_BEST_EFFORT, FI_TC_BULK_DATA, FI_TC_SCAVENGER})
    EXPECT_FALSE(classes.contains(label));
}

}  // namespace
}  // namespace weft::conformance::promises
