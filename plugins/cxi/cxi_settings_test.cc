// SPDX-License-Identifier: BSD-2-Clause
// What the parameters of cxi, its aliases of endpoints and its telemetry do, over the C API.
#include <rdma/fi_cxi_ext.h>

#include <string>
#include <string_view>
#include <vector>

#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kStandardKey = 200, kOptimizedKey = 7;
struct Writer {
  explicit Writer(const Options &options) : net(2, options), counted(net[1].domain) {
    net[1].expose(window, sizeof window, FI_REMOTE_READ | FI_REMOTE_WRITE, kOptimizedKey);
    net[1].expose(other, sizeof other, FI_REMOTE_READ | FI_REMOTE_WRITE, kStandardKey);
    for (const unsigned number :
         {kPlecHits, kUnrestricted, kRestricted, kHostFetches, kFlushes, kHighRateAcks})
      counted(number);
  }
  void write(fid_ep *ep, uint64_t key, uint64_t flags = 0) {
    const iovec from{&value, 8};
    const fi_rma_iov target{0, 8, key};
    fi_msg_rma message{};
    message.msg_iov = &from;
    message.iov_count = 1;
    message.addr = net.at(0, 1);
    message.rma_iov = &target;
    message.rma_iov_count = 1;
    net.post([&] { return fi_writemsg(ep, &message, flags | FI_COMPLETION); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  }
  uint64_t window[4] = {}, other[4] = {}, value = 5;
  Net net;
  Counted counted;
};

TEST(CxiTelemetry, TheNicCountsWhatPacketsItGets) {
  Options options = with(FI_RMA | FI_ATOMIC);
  options.order = FI_ORDER_SAS;  // short packets have none
  Writer w(options);
  w.write(w.net[0].ep, kOptimizedKey);
  EXPECT_EQ(w.counted(kRestricted), 1u);
  EXPECT_EQ(w.counted(kUnrestricted), 0u);
  EXPECT_EQ(w.counted(kPlecHits), 1u);
  w.write(w.net[0].ep, kStandardKey);
  EXPECT_EQ(w.counted(kRestricted), 0u);
  EXPECT_EQ(w.counted(kUnrestricted), 1u);
  w.write(w.net[0].ep, kOptimizedKey, FI_CXI_HRP);
  EXPECT_EQ(w.counted(kHighRateAcks), 1u);
  w.write(w.net[0].ep, kStandardKey, FI_DELIVERY_COMPLETE);
  EXPECT_EQ(w.counted(kFlushes), 1u);
  EXPECT_EQ(w.counted(kHighRateAcks), 0u);
  uint64_t old = 0;
  w.net.post([&] {
    return fi_fetch_atomic(w.net[0].ep, &w.value, 1, nullptr, &old, nullptr, w.net.at(0, 1), 0,
                           kStandardKey, FI_UINT64, FI_SUM, nullptr);
  });
  EXPECT_EQ(w.net.wait(w.net[0].tx_cq).err, 0);
  EXPECT_EQ(w.counted(kHostFetches), 1u);
}

// Its own process: the log is asked for in the environment.
TEST(CxiTelemetry, TheLogSaysByHowMuchItHasGrown) {
  if (!in_fresh_process({"FI_LOG_LEVEL=warn", "FI_CXI_TELEMETRY=lpe_put_cmds,no_such_counter"}))
    return;
  testing::internal::CaptureStderr();
  {
    Writer w(with(FI_RMA));
    w.write(w.net[0].ep, kStandardKey);
    w.write(w.net[0].ep, kStandardKey);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("telemetry: no_such_counter is not counted here"), std::string::npos) << log;
  EXPECT_NE(log.find("telemetry of cxi0: lpe_put_cmds +2"), std::string::npos) << log;
}

// ---- parameters ----

TEST(CxiParameters, AChoiceIsOneOfThose) {
  if (!in_fresh_process({"FI_CXI_LLRING_MODE=sometimes"})) return;
  expect_told("llring_mode is \"sometimes\"");
}

TEST(CxiParameters, AllCountersInOneAreNone) {
  if (!in_fresh_process({"FI_CXI_TELEMETRY=ALL-in-binary"})) return;
  expect_told("ALL-in-binary");
}

TEST(CxiParameters, OnDemandPagingNeedsNoAllocatedMemory) {
  if (!in_fresh_process({"FI_CXI_ODP=1", "FI_PROVIDER=cxi"})) return;
  Options options = with(FI_RMA);
  fi_info *all = nullptr;
  must(fi_getinfo(kApi, nullptr, nullptr, 0, nullptr, &all));
  size_t on_demand = 0, pinned = 0;
  for (const fi_info *info = all; info != nullptr; info = info->next)
    if (std::string_view(info->fabric_attr->prov_name) == "cxi")
      (info->domain_attr->mr_mode & FI_MR_ALLOCATED ? pinned : on_demand) += 1;
  fi_freeinfo(all);
  EXPECT_EQ(on_demand, 2u * 2 * 2);
  EXPECT_EQ(pinned, 2u * 2 * 2) << "two kinds of keys on two NICs, with one VNI or several";
  const Info info =
      ask([](fi_info &hints) { hints.domain_attr->mr_mode = FI_MR_ENDPOINT; }, options);
  ASSERT_TRUE(info);
  EXPECT_FALSE(info->domain_attr->mr_mode & FI_MR_ALLOCATED);
}

TEST(CxiParameters, WithoutItMemoryIsAllocated) {
  EXPECT_FALSE(
      ask([](fi_info &hints) { hints.domain_attr->mr_mode = FI_MR_ENDPOINT; }, with(FI_RMA)));
}

// ---- values of before ----

void older(fi_info &hints) {
  hints.addr_format = FI_ADDR_OPX;
  hints.ep_attr->protocol = FI_PROTO_OPX;
}

TEST(CxiCompat, WhoAsksForTheOlderValuesGetsThem) {
  const Info info = ask(older);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->addr_format, uint32_t(FI_ADDR_OPX));
  EXPECT_EQ(info->ep_attr->protocol, uint32_t(FI_PROTO_OPX));
  EXPECT_EQ(ask()->addr_format, uint32_t(FI_ADDR_CXI));
  Options options;
  options.addr_format = FI_ADDR_OPX;
  options.protocol = FI_PROTO_OPX;
  Net net(2, options);
  net.exchange(0, 1);
  net.exchange(1, 0, 100'000);
}
TEST(CxiCompat, ZeroTurnsThemOff) {
  if (!in_fresh_process({"FI_CXI_COMPAT=0"})) return;
  EXPECT_FALSE(ask(older));
  EXPECT_TRUE(ask());
}
TEST(CxiCompat, TwoTurnsTheOthersOff) {
  if (!in_fresh_process({"FI_CXI_COMPAT=2"})) return;
  EXPECT_TRUE(ask(older));
  EXPECT_FALSE(ask([](fi_info &hints) { hints.addr_format = FI_ADDR_CXI; }));
  EXPECT_FALSE(ask([](fi_info &hints) { hints.ep_attr->protocol = FI_PROTO_CXI_RNR; }));
}

// ---- hybrid matching, before the NIC must ----

// Messages of a sender and receives, in the order of `receives_first`. What the log says of who
// matches.
std::string log_of_messages(size_t messages, bool receives_first) {
  testing::internal::CaptureStderr();
  Options options;
  options.rx_size = 16;
  options.tx_size = 1024;
  Net net(2, options);
  std::vector<std::vector<uint8_t>> in(messages, std::vector<uint8_t>(300));
  const auto receive = [&](size_t i) {
    net.post([&] {
      return fi_trecv(net[1].ep, in[i].data(), 300, nullptr, FI_ADDR_UNSPEC, i, 0, &in[i]);
    });
  };
  size_t posted = 0;
  if (receives_first)
    while (posted < messages) receive(posted++);
  const std::vector<uint8_t> out = pattern(300, 1);
  for (size_t i = 0; i < messages; ++i) {
    net.post(
        [&] { return fi_tsend(net[0].ep, out.data(), 300, nullptr, net.at(0, 1), i, nullptr); });
    net.progress();  // software hears of each message
  }
  for (size_t i = 0; i < messages; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  for (size_t done = 0; done < messages; ++done) {
    if (posted < messages) receive(posted++);
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  }
  for (const auto &bytes : in) EXPECT_EQ(bytes, out);
  return testing::internal::GetCapturedStderr();
}

TEST(CxiHybrid, ManyMessagesGoToSoftware) {
  if (!in_fresh_process({"FI_CXI_RX_MATCH_MODE=hybrid", "FI_LOG_LEVEL=info",
                         "FI_CXI_HYBRID_UNEXPECTED_MSG_PREEMPTIVE=1"}))
    return;
  EXPECT_NE(log_of_messages(100, false).find("because more messages wait than rx_attr.size"),
            std::string::npos);
}
TEST(CxiHybrid, ManyReceivesGoToSoftware) {
  if (!in_fresh_process({"FI_CXI_RX_MATCH_MODE=hybrid", "FI_LOG_LEVEL=info",
                         "FI_CXI_HYBRID_POSTED_RECV_PREEMPTIVE=1"}))
    return;
  EXPECT_NE(log_of_messages(100, true).find("because more receives are posted than rx_attr.size"),
            std::string::npos);
}
TEST(CxiHybrid, MessagesGoToSoftwareWhenEntriesAreShort) {
  if (!in_fresh_process({"FI_CXI_RX_MATCH_MODE=hybrid", "FI_LOG_LEVEL=info",
                         "FI_CXI_HYBRID_PREEMPTIVE=1", "FI_CXI_SOFT_LIST_ENTRIES=64",
                         "FI_CXI_SOFT_DEVICES=cxi0=127.0.0.41"}))
    return;
  EXPECT_NE(log_of_messages(100, false).find("because list entries are short"), std::string::npos);
}
TEST(CxiHybrid, ReceivesGoToSoftwareWhenEntriesAreShort) {
  if (!in_fresh_process({"FI_CXI_RX_MATCH_MODE=hybrid", "FI_LOG_LEVEL=info",
                         "FI_CXI_HYBRID_RECV_PREEMPTIVE=1", "FI_CXI_SOFT_LIST_ENTRIES=128",
                         "FI_CXI_SOFT_DEVICES=cxi0=127.0.0.45"}))
    return;
  testing::internal::CaptureStderr();
  Net net(2);
  std::vector<std::vector<uint8_t>> in(110, std::vector<uint8_t>(8));
  const auto receive = [&](size_t i) {
    must(fi_trecv(net[1].ep, in[i].data(), 8, nullptr, FI_ADDR_UNSPEC, i, 0, nullptr));
  };
  const auto send = [&](size_t i) {
    must(fi_tsend(net[0].ep, in[i].data(), 8, nullptr, net.at(0, 1), i, nullptr));
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  };
  for (size_t i = 0; i < 100; ++i) receive(i);
  // How few entries there are comes with the events of messages.
  for (size_t i = 0; i < 10; ++i) {
    send(i);
    EXPECT_EQ(net.wait(net[1].rx_cq).tag, i);
    receive(100 + i);
  }
  for (size_t i = 10; i < 110; ++i) send(i);
  for (size_t i = 10; i < 110; ++i) EXPECT_EQ(net.wait(net[1].rx_cq).tag, i);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("because list entries are short"), std::string::npos) << log;
}
TEST(CxiHybrid, WithoutTheseTheNicMatches) {
  if (!in_fresh_process({"FI_CXI_RX_MATCH_MODE=hybrid", "FI_LOG_LEVEL=info"})) return;
  EXPECT_EQ(log_of_messages(100, true).find("software matches"), std::string::npos);
}

// ---- aliases ----

class CxiAlias : public testing::Test {
 protected:
  fid_ep *alias_of(fid_ep *ep) {
    fid_ep *alias = nullptr;
    must(fi_ep_alias(ep, &alias, FI_TRANSMIT));
    return alias;
  }
};

TEST_F(CxiAlias, HasAnOrderOfItsOwn) {
  Options options = with(FI_RMA);
  options.order = FI_ORDER_SAS | FI_ORDER_RMA_WAW;
  Writer w(options);
  fid_ep *const alias = alias_of(w.net[0].ep);
  w.write(alias, kOptimizedKey);
  EXPECT_EQ(w.counted(kRestricted), 0u) << "at first it has the endpoint's";
  uint64_t order = FI_ORDER_SAS;
  EXPECT_EQ(fi_set_val(&alias->fid, FI_OPT_CXI_SET_MSG_ORDER, &order), 0);
  w.write(alias, kOptimizedKey);
  EXPECT_EQ(w.counted(kRestricted), 1u);
  w.write(w.net[0].ep, kOptimizedKey);
  EXPECT_EQ(w.counted(kRestricted), 0u) << "the endpoint keeps its own";
  order = UINT64_C(1) << 40;
  EXPECT_EQ(fi_set_val(&alias->fid, FI_OPT_CXI_SET_MSG_ORDER, &order), -FI_EINVAL);
  EXPECT_EQ(fi_set_val(&alias->fid, FI_OPT_CXI_SET_MSG_ORDER, nullptr), -FI_EINVAL);
  must(fi_close(&alias->fid));
}

TEST_F(CxiAlias, HasATrafficClassOfItsOwn) {
  Writer w(with(FI_RMA));
  fid_ep *const alias = alias_of(w.net[0].ep);
  for (uint32_t tclass :
       {FI_TC_LOW_LATENCY, FI_TC_DEDICATED_ACCESS, FI_TC_BULK_DATA, FI_TC_BEST_EFFORT}) {
    EXPECT_EQ(fi_set_val(&alias->fid, FI_OPT_CXI_SET_TCLASS, &tclass), 0);
    w.write(alias, kStandardKey);
    w.net.exchange(0, 1);
  }
  EXPECT_EQ(w.other[0], 5u);
  for (uint32_t tclass : {uint32_t(FI_TC_NETWORK_CTRL), fi_tc_dscp_set(8), 77u})
    EXPECT_EQ(fi_set_val(&alias->fid, FI_OPT_CXI_SET_TCLASS, &tclass), -FI_EINVAL);
  uint32_t tclass = FI_TC_LOW_LATENCY;
  EXPECT_NE(fi_set_val(w.net[0].ep.fid(), FI_OPT_CXI_SET_TCLASS, &tclass), 0)
      << "the endpoint has that of its fi_info";
  must(fi_close(&alias->fid));
}

TEST_F(CxiAlias, AnEndpointHasTheClassThatWasAskedFor) {
  const Info info = ask([](fi_info &hints) { hints.tx_attr->tclass = FI_TC_LOW_LATENCY; });
  ASSERT_TRUE(info);
  EXPECT_EQ(info->tx_attr->tclass, uint32_t(FI_TC_LOW_LATENCY));
  EXPECT_FALSE(ask([](fi_info &hints) { hints.tx_attr->tclass = FI_TC_SCAVENGER; }));
}

}  // namespace
}  // namespace weft::conformance::rdm
