// SPDX-License-Identifier: BSD-2-Clause
// What fi_cxi(7) promises of objects and calls and no other test shows, over the C API:
// docs/cxi-features.md says which test is for what.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kKey = 200;
constexpr uint64_t kAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

// ---- what is offered ----

TEST(CxiObjects, OnlyReliableDatagramsAndNoScalableEndpoints) {
  for (const enum fi_ep_type type : {FI_EP_MSG, FI_EP_DGRAM}) {
    EXPECT_FALSE(ask([&](fi_info &hints) { hints.ep_attr->type = type; })) << type;
  }
  Net net(1);
  fid_ep *scalable = nullptr;
  EXPECT_EQ(fi_scalable_ep(net[0].domain, net[0].info.get(), &scalable, nullptr), -FI_ENOSYS);
}

TEST(CxiObjects, EachCapabilityIsGranted) {
  for (const uint64_t one : std::initializer_list<uint64_t>{
           FI_MSG, FI_TAGGED, FI_RMA, FI_ATOMIC, FI_MULTI_RECV, FI_SOURCE,
           FI_SOURCE | FI_SOURCE_ERR, FI_NAMED_RX_CTX, FI_RMA | FI_RMA_EVENT, FI_FENCE,
           FI_DIRECTED_RECV, FI_TRIGGER, FI_COLLECTIVE}) {
    const Info info = ask([&](fi_info &hints) { hints.caps = FI_MSG | one; });
    ASSERT_TRUE(info) << caps_text(one);
    EXPECT_EQ(info->caps & one, one) << caps_text(one);
    EXPECT_EQ(info->mode, 0u) << "it asks for no mode";
    EXPECT_EQ(info->domain_attr->resource_mgmt, FI_RM_ENABLED);
  }
}

// What MPICH's ofi netmod (ofi_capability_sets.h) and GASNet's ofi-conduit (its README) need of a
// provider, beside the modes of regions that cxi has (fi_cxi.7).
TEST(CxiObjects, MpichAndGasnetAreAnswered) {
  constexpr uint64_t kAccesses = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  constexpr uint64_t kMessages = FI_MSG | FI_MULTI_RECV | FI_SEND | FI_RECV;
  constexpr uint64_t kAtomicOrder =
      FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
  constexpr int kClientKeys = FI_MR_ENDPOINT | FI_MR_ALLOCATED;
  constexpr int kProviderKeys = kClientKeys | FI_MR_PROV_KEY;
  const struct {
    const char *who;
    uint64_t caps, mode;
    int mr_mode;
    enum fi_threading threading;
    uint64_t order, op_flags;
  } rows[] = {
      {"MPICH", FI_TAGGED | FI_RMA | FI_ATOMIC | kMessages | kAccesses, FI_CONTEXT | FI_ASYNC_IOV,
       kProviderKeys | FI_MR_VIRT_ADDR, FI_THREAD_DOMAIN, FI_ORDER_SAS | kAtomicOrder,
       FI_DELIVERY_COMPLETE},
      {"MPICH with its own keys", FI_TAGGED | FI_RMA | FI_ATOMIC | kMessages | kAccesses,
       FI_CONTEXT, kClientKeys, FI_THREAD_DOMAIN, FI_ORDER_SAS | kAtomicOrder,
       FI_DELIVERY_COMPLETE},
      {"MPICH without RMA", FI_TAGGED | FI_RMA | FI_READ | FI_REMOTE_READ | kMessages,
       FI_CONTEXT | FI_CONTEXT2, kProviderKeys | FI_MR_VIRT_ADDR, FI_THREAD_SAFE, FI_ORDER_SAS, 0},
      {"GASNet", FI_RMA | FI_MSG | FI_MULTI_RECV, FI_CONTEXT, kProviderKeys | FI_MR_VIRT_ADDR,
       FI_THREAD_SAFE, 0, FI_DELIVERY_COMPLETE},
      {"GASNet with one thread", FI_RMA | FI_MSG | FI_MULTI_RECV, 0, kClientKeys, FI_THREAD_DOMAIN,
       0, FI_DELIVERY_COMPLETE}};
  for (const auto &row : rows) {
    for (const uint32_t minor : {5u, 9u, 13u, FI_MINOR(kApi)}) {
      const uint32_t api = FI_VERSION(1, minor);
      SCOPED_TRACE(row.who + (" with 1." + std::to_string(minor)));
      Options options;
      options.api = api;
      const Info hints = make_hints(options);
      hints->caps = row.caps;
      hints->mode = row.mode;
      hints->domain_attr->mr_mode = row.mr_mode;
      hints->domain_attr->threading = row.threading;
      hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
      hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
      hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
      hints->domain_attr->av_type = FI_AV_TABLE;
      hints->domain_attr->cq_data_size = 4;
      hints->tx_attr->msg_order = hints->rx_attr->msg_order = row.order;
      hints->tx_attr->op_flags = row.op_flags;
      Info found;
      ASSERT_EQ(try_info(found, nullptr, nullptr, 0, hints.get(), api), 0);
      EXPECT_EQ(row.caps & ~found->caps, 0u);
      EXPECT_EQ(found->domain_attr->mr_mode & ~row.mr_mode, 0);
      EXPECT_EQ(row.order & ~found->tx_attr->msg_order, 0u);
      EXPECT_EQ(found->tx_attr->op_flags, row.op_flags);
      EXPECT_GE(found->domain_attr->cq_data_size, 4u);
    }
  }
}

TEST(CxiObjects, WhatIsOfAnySizeIsOrdered) {
  const Info info = ask();
  ASSERT_TRUE(info);
  EXPECT_EQ(info->ep_attr->max_order_raw_size, SIZE_MAX);
  EXPECT_EQ(info->ep_attr->max_order_war_size, SIZE_MAX);
  EXPECT_EQ(info->ep_attr->max_order_waw_size, SIZE_MAX);
  const uint64_t all = FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW |
                       FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_RAR;
  EXPECT_EQ(info->tx_attr->msg_order & all, all);
}

// fi_cxi.7, "Address vectors": what they are not.
TEST(CxiObjects, AVectorRefusesWhatItCannotBe) {
  const struct {
    const char *what;
    uint64_t flags;
    int rx_ctx_bits;
    const char *name;
    int rc;
  } rows[] = {{"unknown", FI_MORE, 0, nullptr, -FI_EBADFLAGS},
              {"asynchronous", FI_EVENT, 0, nullptr, -FI_EBADFLAGS},
              {"another process's", FI_READ, 0, "cxi-vector", -FI_EBADFLAGS},
              {"shared", 0, 0, "cxi-vector", -FI_ENOSYS},
              {"one of contexts", 0, 1, nullptr, -FI_EINVAL},
              {"one of too many contexts", 0, 64, nullptr, -FI_EINVAL}};
  Net net(1);
  for (const auto &row : rows) {
    SCOPED_TRACE(row.what);
    fi_av_attr attr{};
    attr.flags = row.flags;
    attr.rx_ctx_bits = row.rx_ctx_bits;
    attr.name = row.name;
    Handle<fid_av> vector;
    EXPECT_EQ(fi_av_open(net[0].domain, &attr, vector.out(), nullptr), row.rc);
  }
  EXPECT_FALSE(ask([](fi_info &hints) { hints.caps |= FI_SHARED_AV; }));
  EXPECT_FALSE(ask([](fi_info &hints) { hints.domain_attr->caps |= FI_SHARED_AV; }));
}

// fi_cq.3, fi_eq.3: prov_errno is the provider's, and so is its text.
TEST(CxiObjects, QueuesKnowTheErrorsOfTheNic) {
  Net net(2, with(FI_RMA));
  fi_eq_attr attr = Options::eq_attr();
  Handle<fid_eq> eq;
  must(fi_eq_open(net[0].fabric, &attr, eq.out(), nullptr));
  fid_cq *const cq = net[0].tx_cq;
  constexpr int kNoEntry = 18;  // of the NIC
  const std::pair<int, const char *> rows[] = {
      {kNoEntry, "the target has no entry that matches: no receive, or no region with this key"},
      {FI_CXI_ERRNO_RED_OP_MISMATCH, "reduction: the members disagree on the operation"},
      {FI_CXI_ERRNO_JOIN_SERVER_ERR, "join: the fabric manager has refused"},
      {ENODEV, strerror(ENODEV)},
      {0, strerror(0)}};
  for (const auto &[code, text] : rows) {
    char room[100], little[5];
    EXPECT_STREQ(fi_cq_strerror(cq, code, nullptr, room, sizeof room), text);
    EXPECT_STREQ(room, text);
    EXPECT_STREQ(fi_eq_strerror(eq, code, nullptr, room, sizeof room), text);
    EXPECT_STREQ(fi_cq_strerror(cq, code, nullptr, nullptr, 0), text);
    EXPECT_STREQ(fi_eq_strerror(eq, code, nullptr, little, sizeof little),
                 std::string(text, 4).c_str());
  }
  for (int code = FI_CXI_ERRNO_RED_FIRST; code < FI_CXI_ERRNO_RED_LAST; ++code)
    EXPECT_TRUE(std::string_view(fi_cq_strerror(cq, code, nullptr, nullptr, 0)).starts_with("red"));
  for (int code = FI_CXI_ERRNO_JOIN_FIRST; code <= FI_CXI_ERRNO_JOIN_FAIL_RDMA; ++code)
    EXPECT_TRUE(
        std::string_view(fi_eq_strerror(eq, code, nullptr, nullptr, 0)).starts_with("join"));
  uint64_t value = 0;
  net.post([&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 0, kKey, nullptr); });
  const Completion failed = net.wait(cq);
  EXPECT_EQ(failed.err, FI_EIO);
  EXPECT_EQ(failed.prov_errno, kNoEntry);
}

// fi_cxi.7: FI_ENOTCONN says that there is no endpoint. One that does not know the key is there.
void expect_unknown_keys(const std::vector<uint64_t> &keys, int mr_mode) {
  Options options = with(FI_RMA | FI_ATOMIC);
  options.mr_mode = mr_mode;
  Net net(2, options);
  net.exchange(0, 1);
  uint64_t value = 0;
  fid_ep *const ep = net[0].ep;
  const fi_addr_t to = net.at(0, 1);
  const auto errors_of = [&](uint64_t key) {
    std::vector<Completion> errors;
    const auto start = [&](const auto &call) {
      net.post(call);
      errors.push_back(net.wait(net[0].tx_cq));
    };
    start([&] { return fi_write(ep, &value, 8, nullptr, to, 0, key, nullptr); });
    start([&] { return fi_read(ep, &value, 8, nullptr, to, 0, key, nullptr); });
    start([&] { return fi_writedata(ep, &value, 8, nullptr, 1, to, 0, key, nullptr); });
    start(
        [&] { return fi_atomic(ep, &value, 1, nullptr, to, 0, key, FI_UINT64, FI_SUM, nullptr); });
    return errors;
  };
  for (const uint64_t key : keys) {
    SCOPED_TRACE(key);
    for (const Completion &error : errors_of(key)) {
      EXPECT_EQ(error.err, FI_EIO);
      EXPECT_EQ(error.prov_errno, 18) << "no entry matches";
    }
  }
  net.exchange(0, 1);
  net[1].ep.reset();
  for (const uint64_t key : keys) {
    SCOPED_TRACE(key);
    for (const Completion &error : errors_of(key)) EXPECT_EQ(error.err, FI_ENOTCONN);
  }
}

TEST(CxiObjects, AnUnknownKeyIsNoMissingEndpoint) {
  expect_unknown_keys({0, 7, 99, 100, 200, UINT32_MAX}, 0);
  constexpr uint64_t kOfProvider = uint64_t{1} << 63, kCached = uint64_t{1} << 62,
                     kOptimized = uint64_t{1} << 61;
  expect_unknown_keys({7, 200, kOfProvider, kOfProvider | kOptimized,
                       kOfProvider | kCached | kOptimized | 0x1000, kOfProvider | kCached | 0x1000},
                      FI_MR_PROV_KEY);
}

// ---- regions ----

// fi_cxi.7: "An RMA initiator can work concurrently with client and provider generated keys."
TEST(CxiRegions, AnInitiatorUsesBothKindsOfKeys) {
  Net net(2, with(FI_RMA));
  Options of_provider = with(FI_RMA);
  of_provider.mr_mode = FI_MR_PROV_KEY;
  net.add(of_provider);
  uint64_t windows[2] = {}, value = 7;
  const uint64_t keys[2] = {fi_mr_key(net[1].expose(&windows[0], 8, kAccess, kKey)),
                            fi_mr_key(net[2].expose(&windows[1], 8, kAccess, kKey))};
  EXPECT_EQ(keys[0], kKey);
  EXPECT_GT(keys[1], UINT32_MAX);
  for (size_t round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 2; ++i) {
      net.post([&] {
        return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, i + 1), 0, keys[i], nullptr);
      });
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(windows[0], value);
    EXPECT_EQ(windows[1], value);
    ++value;
  }
}

TEST(CxiRegions, ADescriptorMayBeGiven) {
  Net net(2, with(FI_RMA | FI_ATOMIC));
  fi_cxi_dom_ops *ops = nullptr;
  must(fi_open_ops(net[0].domain.fid(), FI_CXI_DOM_OPS_6, 0, reinterpret_cast<void **>(&ops),
                   nullptr));
  must(ops->enable_hybrid_mr_desc(net[0].domain.fid(), true));
  uint64_t window[2] = {}, local[2] = {5, 3};
  net[1].expose(window, sizeof window, kAccess, kKey);
  void *const descriptor = fi_mr_desc(net[0].expose(local, sizeof local, FI_READ | FI_WRITE, kKey));
  ASSERT_NE(descriptor, nullptr);
  for (void *const given : {descriptor, static_cast<void *>(nullptr)}) {
    net.post(
        [&] { return fi_write(net[0].ep, &local[0], 8, given, net.at(0, 1), 0, kKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    net.post([&] {
      return fi_atomic(net[0].ep, &local[1], 1, given, net.at(0, 1), 0, kKey, FI_UINT64, FI_SUM,
                       nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(window[0], 8u);
  }
}

// ---- settings of one domain ----

// What endpoints of a domain match by, and what size their buffers have, before there is one.
TEST(CxiOverrides, ADomainMayMatchByItself) {
  Options options;
  const Info info = find_info(options, FI_SOURCE);
  ASSERT_TRUE(info);
  Application app(options);
  app.open_fabric(info.get());
  fid *const domain = app.domain.fid();
  char mode[16] = "";
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_GET_RX_MATCH_MODE_OVERRIDE, mode), 0);
  EXPECT_STREQ(mode, "hardware");
  char software[] = "software", wrong[] = "softwares";
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE, wrong), -FI_EINVAL);
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE, software), 0);
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_GET_RX_MATCH_MODE_OVERRIDE, mode), 0);
  EXPECT_STREQ(mode, "software");
  size_t size = 0;
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_REQ_BUF_SIZE_OVERRIDE, &size), -FI_EINVAL);
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_GET_REQ_BUF_SIZE_OVERRIDE, &size), 0);
  EXPECT_EQ(size, size_t{12} << 20);
  size = 100'000;
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_REQ_BUF_SIZE_OVERRIDE, &size), 0);
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_GET_REQ_BUF_SIZE_OVERRIDE, &size), 0);
  EXPECT_EQ(size, 100'000u);
  // Endpoints live by that, and it stays as it is while there are some.
  fi_cxi_dom_ops *ops = nullptr;
  must(fi_open_ops(domain, FI_CXI_DOM_OPS_6, 0, reinterpret_cast<void **>(&ops), nullptr));
  must(fi_endpoint(app.domain, info.get(), app.ep.out(), nullptr));
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_RX_MATCH_MODE_OVERRIDE, software), -FI_EINVAL);
  EXPECT_EQ(fi_control(domain, FI_OPT_CXI_SET_REQ_BUF_SIZE_OVERRIDE, &size), -FI_EINVAL);
  app.open_queues();
  app.bind_queues();
  fi_av_attr attr{};
  must(fi_av_open(app.domain, &attr, app.av.out(), nullptr));
  must(fi_ep_bind(app.ep, app.av.fid(), 0));
  must(fi_enable(app.ep));
  fi_addr_t self = 0;
  must(fi_av_insert(app.av, app.name().data(), 1, &self, 0, nullptr) == 1 ? 0 : -FI_EINVAL);
  std::vector<uint8_t> out = pattern(1000, 1), in(1000);
  must(fi_tsend(app.ep, out.data(), out.size(), nullptr, self, 1, nullptr));
  app.progress();
  must(fi_trecv(app.ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr));
  const Deadline deadline;
  while (in != out && !deadline.passed()) app.progress();
  EXPECT_EQ(in, out);
}

// ---- messages ----

// fi_cxi.7, Messaging: 256 of FI_MSG at a time, and many more of FI_TAGGED.
TEST(CxiMessages, LongOnesOfEachKindHaveNumbersOfTheirOwn) {
  constexpr size_t kNumbers = 256, kBytes = 40'000;
  Options options;
  options.tx_size = 1024;
  std::vector<uint8_t> out = pattern(kBytes, 1), in(kBytes);
  Net net(2, options);
  fid_ep *const ep = net[0].ep;
  for (size_t i = 0; i < kNumbers; ++i)
    net.post([&] { return fi_send(ep, out.data(), kBytes, nullptr, net.at(0, 1), nullptr); });
  net.settle();
  EXPECT_EQ(fi_send(ep, out.data(), kBytes, nullptr, net.at(0, 1), nullptr), -FI_EAGAIN);
  for (size_t i = 0; i < 2 * kNumbers; ++i)
    net.post([&] { return fi_tsend(ep, out.data(), kBytes, nullptr, net.at(0, 1), 1, nullptr); });
  EXPECT_EQ(fi_send(ep, out.data(), kBytes, nullptr, net.at(0, 1), nullptr), -FI_EAGAIN);
  for (size_t i = 0; i < 3 * kNumbers; ++i) {
    net.post([&] {
      return i < kNumbers
                 ? fi_recv(net[1].ep, in.data(), kBytes, nullptr, FI_ADDR_UNSPEC, nullptr)
                 : fi_trecv(net[1].ep, in.data(), kBytes, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr);
    });
    EXPECT_EQ(net.wait(net[1].rx_cq).len, kBytes);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    ASSERT_EQ(in, out);
    std::fill(in.begin(), in.end(), 0);
  }
}

// ---- fork ----

// The NIC in software has no page of its own, so what a child or its parent copies on writing
// misleads it not; a child opens anew. The variables are of HPE's library.
TEST(CxiFork, ParentAndChildGoTheirWays) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not let a child of fork() start threads";
#endif
  if (!in_fresh_process({"CXI_FORK_SAFE=1", "CXI_FORK_SAFE_HP=1"})) return;
  Net net(2, with(FI_RMA));
  std::vector<uint64_t> window(1024);
  net[1].expose(window.data(), window.size() * 8, kAccess, kKey);
  net.exchange(0, 1);
  {
    Child child([&](int socket) {
      std::fill(window.begin(), window.end(), 9);
      Net own(2);
      own.exchange(0, 1);
      own.exchange(1, 0, 100'000);
      tell(socket, 1);
      hear(socket);
    });
    EXPECT_EQ(hear(child.socket()), 1u);
    window[0] = 1;  // both have written
    uint64_t value = 7;
    net.post(
        [&] { return fi_write(net[0].ep, &value, 8, nullptr, net.at(0, 1), 8, kKey, nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(window[0], 1u);
    EXPECT_EQ(window[1], 7u);
    EXPECT_EQ(window[2], 0u);
    tell(child.socket(), 2);
    child.join();
  }
  net.exchange(1, 0, 100'000);
}

}  // namespace
}  // namespace weft::conformance::rdm
