// SPDX-License-Identifier: BSD-2-Clause
// What the environment variables of fi_cxi(7) do, each in a process of its own, over the C API.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/cxi/settings.h"
#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kOptimized = 7, kStandard = 200;

// Messages that come before their receives, all of which arrive.
void send_before_receives(Net &net, size_t messages, size_t bytes) {
  std::vector<uint8_t> in(bytes);
  const std::vector<uint8_t> out = pattern(bytes, 1);
  for (size_t i = 0; i < messages; ++i)
    net.post(
        [&] { return fi_tsend(net[0].ep, out.data(), bytes, nullptr, net.at(0, 1), i, nullptr); });
  net.settle();
  for (size_t i = 0; i < messages; ++i) {
    net.post([&] {
      return fi_trecv(net[1].ep, in.data(), bytes, nullptr, FI_ADDR_UNSPEC, i, 0, nullptr);
    });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(in, out);
    std::fill(in.begin(), in.end(), 0);
  }
  for (size_t i = 0; i < messages; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

// The names of the NICs that fi_getinfo lists.
std::vector<std::string> nics() {
  std::vector<std::string> names;
  fi_info *all = nullptr;
  must(fi_getinfo(kApi, nullptr, nullptr, 0, make_hints(Options()).get(), &all));
  for (const fi_info *info = all; info != nullptr; info = info->next)
    names.emplace_back(info->domain_attr->name);
  fi_freeinfo(all);
  return names;
}

// ---- what there is ----

TEST(CxiVariables, DeviceNameLeavesTheOthersOut) {
  if (!in_fresh_process({"FI_CXI_DEVICE_NAME=cxi1,cxi7", "WEFT_TEST_NODE=cxi1"})) return;
  EXPECT_EQ(nics(), std::vector<std::string>{"cxi1"});
  Net net(2);
  net.exchange(0, 1);
}

TEST(CxiVariables, SizesOfQueuesAreThoseOfWhoNamesNone) {
  if (!in_fresh_process({"FI_CXI_DEFAULT_TX_SIZE=64", "FI_CXI_DEFAULT_RX_SIZE=32"})) return;
  const Info usual = ask();
  ASSERT_TRUE(usual);
  EXPECT_EQ(usual->tx_attr->size, 64u);
  EXPECT_EQ(usual->rx_attr->size, 32u);
  const Info larger = ask([](fi_info &hints) {
    hints.tx_attr->size = 2000;
    hints.rx_attr->size = 3000;
  });
  ASSERT_TRUE(larger);
  EXPECT_GE(larger->tx_attr->size, 2000u);
  EXPECT_GE(larger->rx_attr->size, 3000u);
  EXPECT_FALSE(ask([](fi_info &hints) { hints.tx_attr->size = 16385; }));
  EXPECT_FALSE(ask([](fi_info &hints) { hints.rx_attr->size = 15361; }));
}

// How many writes the endpoint takes while nobody reads completions.
size_t writes_taken(Net &net) {
  static uint64_t window = 0, value = 1;
  net[1].expose(&window, 8, FI_REMOTE_WRITE, kStandard);
  size_t taken = 0;
  while (taken < 4096 &&
         fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kStandard, nullptr) == 0)
    ++taken;
  for (size_t i = 0; i < taken; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  net.post(
      [&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kStandard, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  return taken;
}

TEST(CxiVariables, AQueueOfEventsThatIsFullToItsPercentTakesNoMore) {
  if (!in_fresh_process({"FI_CXI_CQ_FILL_PERCENT=2"})) return;
  Net net(2, with(FI_RMA));
  EXPECT_LE(writes_taken(net), 200u);
}
TEST(CxiVariables, WithoutALimitAQueueOfEventsTakesAll) {
  if (!in_fresh_process({"FI_CXI_CQ_FILL_PERCENT=100"})) return;
  Net net(2, with(FI_RMA));
  EXPECT_GE(writes_taken(net), 1024u);
}

TEST(CxiVariables, AQueueWithoutASizeHasTheDefault) {
  if (!in_fresh_process({"FI_CXI_DEFAULT_CQ_SIZE=8"})) return;
  Options options;
  options.tx_size = 1024;
  Net net(2, options);
  std::vector<uint8_t> out(8);
  size_t taken = 0;
  for (; taken < 512; ++taken) {
    if (fi_tinject(net[1].ep, out.data(), 8, net.at(1, 0), 1) != 0) break;
    if (fi_tsend(net[0].ep, out.data(), 8, nullptr, net.at(0, 1), 1, nullptr) != 0) break;
    fi_cq_read(net[1].tx_cq, nullptr, 0);  // progress of another application alone
    fi_cntr_read(net[0].count(0));
  }
  EXPECT_LT(taken, 512u) << "as its completions are not read";
  for (size_t i = 0; i < taken; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}

// ---- messages ----

TEST(CxiVariables, TheThresholdDividesShortFromLong) {
  if (!in_fresh_process({"FI_CXI_RDZV_THRESHOLD=4096", "FI_CXI_RDZV_GET_MIN=100"})) return;
  Net net(2);
  Counted counted(net[1].domain);
  counted(kRendezvousPuts);
  net.exchange(0, 1, 4196);
  EXPECT_EQ(counted(kRendezvousPuts), 0u);
  net.exchange(0, 1, 4197);
  EXPECT_EQ(counted(kRendezvousPuts), 1u);
}
TEST(CxiVariables, AShortMessageFitsIntoABuffer) {
  if (!in_fresh_process(
          {"FI_CXI_RDZV_THRESHOLD=60K", "FI_CXI_RDZV_GET_MIN=8K", "FI_CXI_OFLOW_BUF_SIZE=64K"}))
    return;
  expect_told("oflow_buf_size");
}
TEST(CxiVariables, ReadsOfSoftwareWaitForEachOther) {
  if (!in_fresh_process({"FI_CXI_RDZV_PROTO=alt_read", "FI_CXI_SW_RX_TX_INIT_MAX=64"})) return;
  Options options;
  options.tx_size = 1024;
  Net net(2, options);
  send_before_receives(net, 300, 40'000);
}
TEST(CxiVariables, FewSmallOverflowBuffersAreEnough) {
  if (!in_fresh_process({"FI_CXI_OFLOW_BUF_SIZE=32K", "FI_CXI_OFLOW_BUF_MIN_POSTED=1",
                         "FI_CXI_OFLOW_BUF_MAX_CACHED=1", "FI_CXI_RDZV_THRESHOLD=2K"}))
    return;
  Net net(2);
  for (int round = 0; round < 3; ++round) send_before_receives(net, 200, 2000);
}
TEST(CxiVariables, BuffersHaveOlderNames) {
  if (!in_fresh_process({"FI_CXI_OFLOW_BUF_SIZE=32K", "FI_CXI_OFLOW_BUF_COUNT=1",
                         "FI_CXI_OFLOW_BUF_MAX_CACHED=0", "FI_CXI_REQ_BUF_MAX_COUNT=1",
                         "FI_CXI_RDZV_THRESHOLD=2K"}))
    return;
  Net net(2);
  for (int round = 0; round < 3; ++round) send_before_receives(net, 200, 2000);
}
TEST(CxiVariables, FewSmallRequestBuffersAreEnough) {
  if (!in_fresh_process({"FI_CXI_RX_MATCH_MODE=software", "FI_CXI_REQ_BUF_SIZE=32K",
                         "FI_CXI_REQ_BUF_MIN_POSTED=1", "FI_CXI_REQ_BUF_MAX_CACHED=1",
                         "FI_CXI_RDZV_THRESHOLD=2K"}))
    return;
  Net net(2);
  for (int round = 0; round < 3; ++round) send_before_receives(net, 200, 2000);
}
TEST(CxiVariables, FlowControlNeedsNoPause) {
  if (!in_fresh_process({"FI_CXI_FC_RETRY_USEC_DELAY=0", "FI_CXI_SOFT_LIST_ENTRIES=60",
                         "FI_CXI_SOFT_DEVICES=cxi0=127.0.0.44"}))
    return;
  Net net(2);
  send_before_receives(net, 200, 300);
}
TEST(CxiVariables, EachEventMayBeAcknowledgedForItself) {
  if (!in_fresh_process({"FI_CXI_EQ_ACK_BATCH_SIZE=1"})) return;
  Net net(2);
  for (const size_t bytes : {0, 100, 20'000, 1'000'000}) net.exchange(0, 1, bytes);
}
TEST(CxiVariables, WithoutTimeAMessageWithoutAReceiveFailsAtOnce) {
  if (!in_fresh_process({"FI_CXI_RNR_MAX_TIMEOUT_US=0"})) return;
  Options options;
  options.protocol = FI_PROTO_CXI_RNR;
  Net net(2, options);
  std::vector<uint8_t> out(8);
  net.post([&] { return fi_tsend(net[0].ep, out.data(), 8, nullptr, net.at(0, 1), 1, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, FI_EIO);
}

// ---- regions ----

// One write to a region with this key, and what kind of packet it was.
uint64_t short_packets_for(uint64_t key) {
  Options options = with(FI_RMA);
  options.order = FI_ORDER_SAS;
  Net net(2, options);
  uint64_t window = 0, value = 3;
  net[1].expose(&window, 8, FI_REMOTE_WRITE, key);
  Counted counted(net[1].domain);
  counted(kRestricted);
  net.post([&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, key, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(window, 3u);
  return counted(kRestricted);
}
TEST(CxiVariables, OptimizedRegionsGetShortPackets) {
  EXPECT_EQ(short_packets_for(kOptimized), 1u);
  EXPECT_EQ(short_packets_for(kStandard), 0u);
}
TEST(CxiVariables, WithoutOptimizedRegionsAllPacketsAreOrdinary) {
  if (!in_fresh_process({"FI_CXI_OPTIMIZED_MRS=0"})) return;
  EXPECT_EQ(short_packets_for(kOptimized), 0u);
}

TEST(CxiVariables, ADomainBeginsWithWhatTheEnvironmentSays) {
  if (!in_fresh_process({"FI_CXI_MR_MATCH_EVENTS=1", "FI_CXI_PROV_KEY_CACHE=0"})) return;
  Options options = with(FI_RMA);
  options.mr_mode = FI_MR_PROV_KEY;
  Net net(2, options);
  bool value = false;
  EXPECT_EQ(fi_control(net[0].domain.fid(), FI_OPT_CXI_GET_MR_MATCH_EVENTS, &value), 0);
  EXPECT_TRUE(value);
  EXPECT_EQ(fi_control(net[0].domain.fid(), FI_OPT_CXI_GET_PROV_KEY_CACHE, &value), 0);
  EXPECT_FALSE(value);
  // Nobody writes there any more when the region is closed.
  uint64_t window = 0, one = 1;
  const uint64_t key = fi_mr_key(net[1].expose(&window, 8, FI_REMOTE_WRITE, 0));
  for (int i = 0; i < 20; ++i)
    net.post([&] { return fi_write(net[0].ep, &one, 8, nullptr, net.at(0, 1), 0, key, nullptr); });
  net[1].regions.clear();
  window = 5;
  for (int i = 0; i < 20; ++i) net.wait(net[0].tx_cq);
  EXPECT_EQ(window, 5u);
}

TEST(CxiVariables, ForcedOnDemandPagingIsForAll) {
  if (!in_fresh_process({"FI_CXI_FORCE_ODP=1"})) return;
  const Info info =
      ask([](fi_info &hints) { hints.domain_attr->mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED; },
          with(FI_RMA));
  ASSERT_TRUE(info);
  EXPECT_FALSE(info->domain_attr->mr_mode & FI_MR_ALLOCATED);
}

// ---- control messages ----

TEST(CxiVariables, ControlEventsAreForAllProcesses) {
  cxi::Settings settings;
  EXPECT_EQ(settings.control_events(), 8192u);
  settings.universe_size = 10'000;
  EXPECT_EQ(settings.control_events(), 40'000u);
  settings.ctrl_rx_eq_max_size = 1 << 20;
  EXPECT_EQ(settings.control_events(), (1u << 20) / 64);
  settings.ctrl_rx_eq_max_size = 4096;
  EXPECT_EQ(settings.control_events(), 2048u) << "what is sent must have its places";
}
TEST(CxiVariables, ManyProcessesAndLittleMemory) {
  if (!in_fresh_process({"FI_UNIVERSE_SIZE=100000", "FI_CXI_CTRL_RX_EQ_MAX_SIZE=4K"})) return;
  Net net(2, with(FI_RMA));
  uint64_t window = 0, value = 3;
  net[1].expose(&window, 8, FI_REMOTE_WRITE, kStandard);
  net.post(
      [&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kStandard, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
}
TEST(CxiVariables, ANumberOfProcessesThatIsNoneIsTold) {
  if (!in_fresh_process({"FI_UNIVERSE_SIZE=many", "FI_LOG_LEVEL=warn"})) return;
  testing::internal::CaptureStderr();
  EXPECT_TRUE(ask());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("FI_UNIVERSE_SIZE is \"many\""), std::string::npos) << log;
}

// ---- what has no effect ----

TEST(CxiVariables, WhatOnlyTheHardwareFollowsIsTaken) {
  if (!in_fresh_process({"FI_CXI_ATS=1", "FI_CXI_ATS_MLOCK_MODE=off", "FI_CXI_LLRING_MODE=always",
                         "FI_CXI_CQ_POLICY=always", "FI_CXI_DISABLE_EQ_HUGETLB=1",
                         "FI_CXI_DISABLE_CQ_HUGETLB=1", "FI_CXI_DISABLE_HOST_REGISTER=1",
                         "FI_CXI_DISABLE_HMEM_DEV_REGISTER=1", "FI_CXI_FORCE_ZE_HMEM_SUPPORT=1",
                         "FI_CXI_DISABLE_DMABUF_CUDA=1", "FI_CXI_DISABLE_DMABUF_ROCR=1",
                         "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD=1", "FI_CXI_TELEMETRY_RGID=3",
                         "FI_CXI_COLL_USE_DMA_PUT=1", "FI_LOG_LEVEL=warn"}))
    return;
  testing::internal::CaptureStderr();
  Net net(2);
  net.exchange(0, 1);
  net.exchange(1, 0, 100'000);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("FI_CXI_"), std::string::npos) << log;
}

// Those that HPE's provider has got since that page, and before it without a word there.
TEST(CxiVariables, ThoseOfOtherReleasesAreTaken) {
  if (!in_fresh_process({"FI_CXI_DISABLE_ALT_READ_CMDQ=1", "FI_CXI_CNTR_TRIG_CMDQ=1",
                         "FI_CXI_CNTR_SPIN_BEFORE_YIELD=1", "FI_CXI_DISABLE_NON_INJECT_RMA_IDC=1",
                         "FI_CXI_DISABLE_NON_INJECT_AMO_IDC=1", "FI_CXI_DISABLE_CUDA_SYNC_MEMOPS=1",
                         "FI_CXI_ENABLE_WRITEDATA=1", "FI_CXI_FORCE_DEV_REG_COPY=1",
                         "FI_CXI_MR_CACHE_EVENTS_DISABLE_POLL_NSECS=1",
                         "FI_CXI_MR_CACHE_EVENTS_DISABLE_LE_POLL_NSECS=1",
                         "FI_CXI_MR_TARGET_ORDERING=1", "FI_CXI_RNR_APPEND_RETRY_TIMEOUT_US=1",
                         "FI_LOG_LEVEL=warn"}))
    return;
  testing::internal::CaptureStderr();
  Net net(2);
  net.exchange(0, 1);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("FI_CXI_"), std::string::npos) << log;
}

}  // namespace
}  // namespace weft::conformance::rdm
