// SPDX-License-Identifier: BSD-2-Clause
// FI_HMEM over connected endpoints: transfers from, to and between memory of devices, which faults
// when the processor touches it.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/conformance/harness.h"
#include "tests/hmem/device.h"

namespace weft::conformance {
namespace {

using hmem::DeviceMemory;

Options with_devices() {
  Options options;
  options.caps = FI_MSG | FI_RMA | FI_HMEM;
  options.mr_mode = FI_MR_HMEM;
  return options;
}

const size_t kSizes[] = {1, 100, 4096, 65537, 1000000};

// A region of a device's memory.
fid_mr *expose(Side &side, const DeviceMemory &memory, uint64_t key) {
  const iovec iov{memory.data(), memory.size()};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_READ | FI_REMOTE_WRITE;
  attr.requested_key = key;
  attr.iface = FI_HMEM_CUDA;
  side.regions.emplace_back();
  must(fi_mr_regattr(side.domain, &attr, 0, side.regions.back().out()));
  side.enable(side.regions.back());
  return side.regions.back();
}

class MsgHmem : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!hmem::have_device()) GTEST_SKIP() << "WEFT_TEST_CUDA names no library";
    if (!find_info(with_devices())) GTEST_SKIP() << stack() << " has no FI_HMEM";
  }
};

TEST_F(MsgHmem, MessagesFromAndToDevices) {
  Pair pair(with_devices());
  EXPECT_NE(pair.a.info->caps & FI_HMEM, 0u);
  for (const bool posted_first : {true, false}) {
    for (const size_t size : kSizes) {
      const DeviceMemory out(pattern(size, 1)), in(size);
      std::vector<uint8_t> host(size);
      const auto receive = [&] {
        must(fi_recv(pair.b.ep, in.data(), size, nullptr, 0, nullptr));
        must(fi_recv(pair.b.ep, host.data(), size, nullptr, 0, nullptr));
      };
      if (posted_first) receive();
      for (int i = 0; i < 2; ++i)
        pair.post([&] { return fi_send(pair.a.ep, out.data(), size, nullptr, 0, nullptr); });
      if (!posted_first) receive();
      for (int i = 0; i < 2; ++i) {
        const Done done = pair.wait(pair.b.rx_cq);
        EXPECT_EQ(done.err, 0);
        EXPECT_EQ(done.len, size);
        EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
      }
      EXPECT_EQ(in.read(), pattern(size, 1));
      EXPECT_EQ(host, pattern(size, 1));
      must(fi_recv(pair.b.ep, in.data(), size, nullptr, 0, nullptr));
      host = pattern(size, 2);
      pair.post([&] { return fi_send(pair.a.ep, host.data(), size, nullptr, 0, nullptr); });
      EXPECT_EQ(pair.wait(pair.b.rx_cq).len, size);
      pair.wait(pair.a.tx_cq);
      EXPECT_EQ(in.read(), host);
    }
  }
}

// Copies from the memory of a sender may be under way when it closes: they end before that. The one
// that receives makes no progress, so the socket has room for a part of the message only.
TEST_F(MsgHmem, ASenderThatClosesLeavesItsMemoryAlone) {
  constexpr size_t kLarge = 32 << 20;
  Pair pair(with_devices());
  auto large = std::make_unique<DeviceMemory>(kLarge);
  must(fi_send(pair.a.ep, large->data(), kLarge, nullptr, 0, nullptr));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(poll(pair.a.tx_cq), std::nullopt);
  pair.a.ep.reset();
  large.reset();
  // Its device goes on to copy for others.
  Pair other(with_devices());
  const DeviceMemory out(pattern(1000000, 1)), in(1000000);
  must(fi_recv(other.b.ep, in.data(), in.size(), nullptr, 0, nullptr));
  other.post([&] { return fi_send(other.a.ep, out.data(), out.size(), nullptr, 0, nullptr); });
  EXPECT_EQ(other.wait(other.b.rx_cq).err, 0);
  EXPECT_EQ(in.read(), out.read());
}

TEST_F(MsgHmem, WritesAndReads) {
  Pair pair(with_devices());
  uint64_t number = 0;
  for (const size_t size : kSizes) {
    const DeviceMemory own(pattern(size, 4)), target(size), back(size);
    fid_mr *const region = expose(pair.b, target, ++number);
    const uint64_t at = pair.b.base_of(target.data()), key = fi_mr_key(region);
    pair.post([&] { return fi_write(pair.a.ep, own.data(), size, nullptr, 0, at, key, nullptr); });
    EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
    EXPECT_TRUE(pair.until([&] { return target.read() == own.read(); })) << size;
    pair.post([&] { return fi_read(pair.a.ep, back.data(), size, nullptr, 0, at, key, nullptr); });
    EXPECT_EQ(pair.wait(pair.a.tx_cq).err, 0);
    EXPECT_EQ(back.read(), own.read()) << size;
    pair.b.regions.clear();
  }
}

TEST_F(MsgHmem, InjectedBytesMayChangeAtOnce) {
  Pair pair(with_devices());
  const size_t most = pair.a.info->tx_attr->inject_size;
  DeviceMemory out(pattern(most, 5)), in(most);
  must(fi_recv(pair.b.ep, in.data(), most, nullptr, 0, nullptr));
  pair.post([&] { return fi_inject(pair.a.ep, out.data(), most, 0); });
  out.write(std::vector<uint8_t>(most));
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
  EXPECT_EQ(in.read(), pattern(most, 5));
}

TEST_F(MsgHmem, BuffersAndRegionsThatAreNotWhatTheySay) {
  Pair pair(with_devices());
  const DeviceMemory memory(100);
  std::vector<uint8_t> host(100);
  EXPECT_EQ(fi_send(pair.a.ep, memory.data(), 5000, nullptr, 0, nullptr), -FI_EFAULT);
  Handle<fid_mr> region;
  EXPECT_EQ(
      fi_mr_reg(pair.a.domain, memory.data(), 100, FI_REMOTE_READ, 0, 1, 0, region.out(), nullptr),
      -FI_EINVAL)
      << "it does not say that this is a device's";
  const iovec iov{host.data(), host.size()};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_READ;
  attr.iface = FI_HMEM_CUDA;
  EXPECT_EQ(fi_mr_regattr(pair.a.domain, &attr, 0, region.out()), -FI_EINVAL);
}

// A receive whose device fails ends with an error, and the next one takes the next message.
TEST_F(MsgHmem, ACopyThatFails) {
  if (!hmem::have_double()) GTEST_SKIP() << "the double fails by request";
  Pair pair(with_devices());
  std::vector<uint8_t> out = pattern(1000, 8);
  const DeviceMemory in(1000), next(1000);
  must(fi_recv(pair.b.ep, in.data(), 1000, nullptr, 0, nullptr));
  must(fi_recv(pair.b.ep, next.data(), 1000, nullptr, 0, nullptr));
  hmem::fail_after(0);
  pair.post([&] { return fi_send(pair.a.ep, out.data(), 1000, nullptr, 0, nullptr); });
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, FI_EIO);
  hmem::fail_no_more();
  pair.post([&] { return fi_send(pair.a.ep, out.data(), 1000, nullptr, 0, nullptr); });
  EXPECT_EQ(pair.wait(pair.b.rx_cq).err, 0);
  EXPECT_EQ(next.read(), out);
}

TEST_F(MsgHmem, OptionsOfAnEndpoint) {
  Pair pair(with_devices());
  const auto set = [&](int name, auto value) {
    return fi_setopt(pair.a.ep.fid(), FI_OPT_ENDPOINT, name, &value, sizeof value);
  };
  EXPECT_EQ(set(FI_OPT_FI_HMEM_P2P, int{FI_HMEM_P2P_DISABLED}), 0);
  EXPECT_EQ(set(FI_OPT_FI_HMEM_P2P, int{FI_HMEM_P2P_REQUIRED}), -FI_EOPNOTSUPP);
  int value = 0;
  size_t length = sizeof value;
  must(fi_getopt(pair.a.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &value, &length));
  EXPECT_EQ(value, FI_HMEM_P2P_DISABLED);
  EXPECT_EQ(set(FI_OPT_CUDA_API_PERMITTED, true), 0);
  EXPECT_EQ(set(FI_OPT_CUDA_API_PERMITTED, false), -FI_EOPNOTSUPP);
}

TEST_F(MsgHmem, WithoutTheCapabilityThereAreNoOptions) {
  Pair pair;
  EXPECT_EQ(pair.a.info->caps & FI_HMEM, 0u);
  int p2p = FI_HMEM_P2P_ENABLED;
  EXPECT_EQ(fi_setopt(pair.a.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, sizeof p2p),
            -FI_ENOPROTOOPT);
  size_t length = sizeof p2p;
  EXPECT_EQ(fi_getopt(pair.a.ep.fid(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, &length),
            -FI_ENOPROTOOPT);
}

}  // namespace
}  // namespace weft::conformance
