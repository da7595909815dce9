// SPDX-License-Identifier: BSD-2-Clause
// FI_HMEM over datagrams: from and to memory of devices, which faults when the processor touches
// it.
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/conformance/dgram_harness.h"
#include "tests/hmem/device.h"

namespace weft::conformance::dgram {
namespace {

using hmem::DeviceMemory;

Options with_devices() {
  Options options;
  options.caps = FI_MSG | FI_HMEM;
  options.mr_mode = FI_MR_HMEM;
  return options;
}

class DgramHmem : public ::testing::Test {
 protected:
  void SetUp() override {
    covers("FI_HMEM");
    if (!hmem::have_device()) GTEST_SKIP() << "WEFT_TEST_CUDA names no library";
    if (!find_info(with_devices())) GTEST_SKIP() << stack() << " has no FI_HMEM";
  }
};

TEST_F(DgramHmem, DatagramsFromAndToDevices) {
  Net net(2, with_devices());
  EXPECT_NE(net[0].info->caps & FI_HMEM, 0u);
  for (const size_t size : {0, 1, 100, 1472}) {
    for (const bool from_device : {true, false}) {
      std::vector<uint8_t> host = pattern(size, 1);
      const DeviceMemory out(host), in(2000);
      must(fi_recv(net[1].ep, in.data(), 2000, nullptr, FI_ADDR_UNSPEC, &net));
      net.post([&] {
        return fi_send(net[0].ep, from_device ? out.data() : host.data(), size, nullptr,
                       net.at(0, 1), nullptr);
      });
      const Completion got = net.wait(net[1].rx_cq);
      EXPECT_EQ(got.err, 0);
      EXPECT_EQ(got.len, size);
      EXPECT_EQ(got.context, &net);
      EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
      EXPECT_EQ(in.read(0, size), host);
    }
  }
}

// Datagrams that wait for more, and vectors in memory of both kinds.
TEST_F(DgramHmem, ABatchFromDevices) {
  Net net(2, with_devices());
  constexpr size_t kCount = 40;
  std::vector<std::unique_ptr<DeviceMemory>> in;
  DeviceMemory first(100);
  std::vector<uint8_t> second(50);
  for (size_t i = 0; i < kCount; ++i) {
    in.push_back(std::make_unique<DeviceMemory>(150));
    must(fi_recv(net[1].ep, in.back()->data(), 150, nullptr, FI_ADDR_UNSPEC, nullptr));
  }
  for (size_t i = 0; i < kCount; ++i) {
    const std::vector<uint8_t> bytes = pattern(150, unsigned(i));
    first.write({bytes.begin(), bytes.begin() + 100});
    std::copy(bytes.begin() + 100, bytes.end(), second.begin());
    const iovec iov[2] = {{first.data(), 100}, {second.data(), 50}};
    fi_msg message{};
    message.msg_iov = iov;
    message.iov_count = 2;
    message.addr = net.at(0, 1);
    net.post([&] {
      return fi_sendmsg(net[0].ep, &message,
                        FI_COMPLETION | FI_INJECT | (i + 1 < kCount ? uint64_t(FI_MORE) : 0));
    });
  }
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(net.wait(net[1].rx_cq).len, 150u);
    EXPECT_EQ(in[i]->read(), pattern(150, unsigned(i))) << i;
  }
}

TEST_F(DgramHmem, ErrorsEndOneOperation) {
  Net net(2, with_devices());
  const DeviceMemory small(10), large(100), out(pattern(100, 3));
  EXPECT_EQ(fi_send(net[0].ep, out.data(), 200, nullptr, net.at(0, 1), nullptr), -FI_EFAULT);
  const auto send = [&] {
    net.post([&] { return fi_send(net[0].ep, out.data(), 100, nullptr, net.at(0, 1), nullptr); });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  };
  must(fi_recv(net[1].ep, small.data(), 10, nullptr, FI_ADDR_UNSPEC, nullptr));
  send();
  EXPECT_EQ(net.wait(net[1].rx_cq).err, FI_ETRUNC);
  EXPECT_EQ(small.read(), out.read(0, 10));
  must(fi_recv(net[1].ep, large.data(), 100, nullptr, FI_ADDR_UNSPEC, &net));
  must(fi_cancel(net[1].ep.fid(), &net));
  EXPECT_EQ(net.wait(net[1].rx_cq).err, FI_ECANCELED);
  if (hmem::have_double()) {
    must(fi_recv(net[1].ep, large.data(), 100, nullptr, FI_ADDR_UNSPEC, nullptr));
    hmem::fail_after(1);  // the sender's copy is good
    net.post([&] { return fi_send(net[0].ep, out.data(), 100, nullptr, net.at(0, 1), nullptr); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, FI_EIO);
    hmem::fail_no_more();
    net.wait(net[0].tx_cq);
  }
  must(fi_recv(net[1].ep, large.data(), 100, nullptr, FI_ADDR_UNSPEC, nullptr));
  send();
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(large.read(), out.read());
  // One that stays when the endpoint closes.
  must(fi_recv(net[1].ep, large.data(), 100, nullptr, FI_ADDR_UNSPEC, nullptr));
}

TEST_F(DgramHmem, OptionsOfAnEndpoint) {
  Net net(1, with_devices());
  int p2p = FI_HMEM_P2P_DISABLED, value = 0;
  size_t length = sizeof value;
  must(fi_setopt(net[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, sizeof p2p));
  must(fi_getopt(net[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &value, &length));
  EXPECT_EQ(value, FI_HMEM_P2P_DISABLED);
  bool permitted = false;
  EXPECT_EQ(fi_setopt(net[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CUDA_API_PERMITTED, &permitted,
                      sizeof permitted),
            -FI_EOPNOTSUPP);
  Net plain(1);
  EXPECT_EQ(plain[0].info->caps & FI_HMEM, 0u);
  EXPECT_EQ(fi_setopt(plain[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, sizeof p2p),
            -FI_ENOPROTOOPT);
}

}  // namespace
}  // namespace weft::conformance::dgram
