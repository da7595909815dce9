// SPDX-License-Identifier: BSD-2-Clause
// FI_HMEM over the C API: transfers from, to and between memory of devices, which faults when the
// processor touches it (tests/hmem). The sizes are those around which the protocol changes.
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_trigger.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/rdm_harness.h"
#include "tests/hmem/device.h"

namespace weft::conformance::rdm {
namespace {

using hmem::DeviceMemory;

constexpr uint64_t kAllCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_HMEM;

Options with_devices(uint64_t caps = kAllCaps) {
  Options options;
  options.caps = caps;
  options.mr_mode = FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_HMEM;
  return options;
}

#define NEEDS_DEVICE()                                                            \
  do {                                                                            \
    covers("FI_HMEM");                                                            \
    if (!hmem::have_device()) GTEST_SKIP() << "WEFT_TEST_CUDA names no library";  \
    if (!find_info(with_devices())) GTEST_SKIP() << stack() << " has no FI_HMEM"; \
  } while (0)

std::vector<size_t> device_sizes() {
  std::vector<size_t> sizes = edges();
  for (const size_t size : {0, 1, 192, 193, 2048, 4096, 4097, 18433, 18434, 65537, 1000000})
    sizes.push_back(size);
  std::ranges::sort(sizes);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

// A region of a device's memory.
fid_mr *expose(Node &node, const DeviceMemory &memory, uint64_t access, uint64_t key,
               int device = 0) {
  const iovec iov{memory.data(), memory.size()};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = access;
  attr.requested_key = key;
  attr.iface = FI_HMEM_CUDA;
  attr.device.cuda = device;
  node.regions.emplace_back();
  must(fi_mr_regattr(node.domain, &attr, 0, node.regions.back().out()));
  node.enable(node.regions.back());
  return node.regions.back();
}

// -FI_E... of a registration.
int try_expose(Node &node, const void *at, size_t size, enum fi_hmem_iface iface, int device = 0,
               uint64_t flags = 0) {
  const iovec iov{const_cast<void *>(at), size};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = FI_REMOTE_READ;
  attr.requested_key = 4711;
  attr.iface = iface;
  attr.device.cuda = device;
  Handle<fid_mr> region;
  return fi_mr_regattr(node.domain, &attr, flags, region.out());
}

struct Place {
  bool sends_device, receives_device;
};

class CxiHmem : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override { NEEDS_DEVICE(); }
};
INSTANTIATE_TEST_SUITE_P(FromAndTo, CxiHmem,
                         ::testing::Values(Place{true, true}, Place{true, false},
                                           Place{false, true}),
                         [](const auto &info) {
                           return std::string(info.param.sends_device ? "Device" : "Host") + "To" +
                                  (info.param.receives_device ? "Device" : "Host");
                         });

// A buffer of either kind.
class Buffer {
 public:
  Buffer(bool on_device, std::vector<uint8_t> bytes) : host_(std::move(bytes)) {
    if (on_device) device_ = std::make_unique<DeviceMemory>(host_);
  }
  uint8_t *data() { return device_ ? device_->data() : host_.data(); }
  size_t size() const { return host_.size(); }
  std::vector<uint8_t> read() const { return device_ ? device_->read() : host_; }
  const DeviceMemory *device() const { return device_.get(); }

 private:
  std::vector<uint8_t> host_;
  std::unique_ptr<DeviceMemory> device_;
};

TEST_P(CxiHmem, MessagesThatAreAwaited) {
  const Options options = with_devices();
  for (const size_t size : device_sizes()) {
    Buffer out(GetParam().sends_device, pattern(size, 1)),
        in(GetParam().receives_device, std::vector<uint8_t>(size));
    Net net(2, options);
    must(fi_trecv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 5, 0, &in));
    net.post([&] { return fi_tsend(net[0].ep, out.data(), size, nullptr, net.at(0, 1), 5, &out); });
    const Completion received = net.wait(net[1].rx_cq);
    EXPECT_EQ(received.err, 0);
    EXPECT_EQ(received.len, size);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(in.read(), out.read()) << size;
  }
}

TEST_P(CxiHmem, MessagesThatComeTooEarly) {
  const Options options = with_devices();
  Net net(2, options);
  for (const size_t size : device_sizes()) {
    Buffer out(GetParam().sends_device, pattern(size, 2)),
        in(GetParam().receives_device, std::vector<uint8_t>(size));
    net.post([&] { return fi_send(net[0].ep, out.data(), size, nullptr, net.at(0, 1), &out); });
    net.settle();
    must(fi_recv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, &in));
    EXPECT_EQ(net.wait(net[1].rx_cq).len, size);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(in.read(), out.read()) << size;
  }
}

// What software takes over from the NIC: a look at the message does that.
TEST_P(CxiHmem, MessagesThatWereLookedAt) {
  Net net(2, with_devices());
  for (const size_t size : device_sizes()) {
    Buffer out(GetParam().sends_device, pattern(size, 3)),
        in(GetParam().receives_device, std::vector<uint8_t>(size));
    net.post(
        [&] { return fi_tsend(net[0].ep, out.data(), size, nullptr, net.at(0, 1), 9, nullptr); });
    fi_msg_tagged look{};
    look.addr = FI_ADDR_UNSPEC;
    look.tag = 9;
    look.context = &look;
    for (bool found = false; !found;) {
      net.post([&] { return fi_trecvmsg(net[1].ep, &look, FI_PEEK); });
      found = net.wait(net[1].rx_cq).err == 0;
    }
    must(fi_trecv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 9, 0, &in));
    EXPECT_EQ(net.wait(net[1].rx_cq).len, size);
    net.wait(net[0].tx_cq);
    EXPECT_EQ(in.read(), out.read()) << size;
  }
}

TEST_P(CxiHmem, WritesAndReads) {
  Net net(2, with_devices());
  uint64_t key = 0;
  for (const size_t size : device_sizes()) {
    if (size == 0) continue;
    Buffer own(GetParam().sends_device, pattern(size, 4)),
        target(GetParam().receives_device, std::vector<uint8_t>(size)),
        back(GetParam().sends_device, std::vector<uint8_t>(size));
    // Keys below 100 are of optimized regions.
    key += key < 3 ? 1 : 100;
    const uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
    if (target.device() != nullptr)
      expose(net[1], *target.device(), access, key);
    else
      net[1].expose(target.data(), size, access, key);
    net.post([&] {
      return fi_write(net[0].ep, own.data(), size, nullptr, net.at(0, 1), 0, key, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(target.read(), own.read()) << size;
    net.post([&] {
      return fi_read(net[0].ep, back.data(), size, nullptr, net.at(0, 1), 0, key, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(back.read(), own.read()) << size;
    net[1].regions.clear();
  }
}

class CxiHmemAlone : public ::testing::Test {
 protected:
  void SetUp() override { NEEDS_DEVICE(); }
};

TEST_F(CxiHmemAlone, InjectedBytesMayChangeAtOnce) {
  Net net(2, with_devices());
  const size_t most = net[0].info->tx_attr->inject_size;
  ASSERT_GT(most, 0u);
  DeviceMemory out(pattern(most, 5)), in(most), target(most);
  expose(net[1], target, FI_REMOTE_WRITE, 200);
  must(fi_recv(net[1].ep, in.data(), most, nullptr, FI_ADDR_UNSPEC, nullptr));
  net.post([&] { return fi_inject(net[0].ep, out.data(), most, net.at(0, 1)); });
  net.post([&] { return fi_inject_write(net[0].ep, out.data(), most, net.at(0, 1), 0, 200); });
  out.write(std::vector<uint8_t>(most));
  net.wait(net[1].rx_cq);
  EXPECT_EQ(in.read(), pattern(most, 5));
  EXPECT_TRUE(net.until([&] { return target.read() == pattern(most, 5); }));
}

TEST_F(CxiHmemAlone, ABufferForManyMessages) {
  Options options = with_devices(kAllCaps | FI_MULTI_RECV);
  Net net(2, options);
  std::vector<uint8_t> all;
  const DeviceMemory in(200000);
  const iovec iov{in.data(), in.size()};
  fi_msg message{};
  message.msg_iov = &iov;
  message.iov_count = 1;
  message.addr = FI_ADDR_UNSPEC;
  // Some come before the buffer.
  std::vector<std::unique_ptr<DeviceMemory>> sent;
  for (const size_t size : {100, 5000, 30000, 1, 50000, 3000}) {
    sent.push_back(std::make_unique<DeviceMemory>(pattern(size, unsigned(size))));
    const DeviceMemory &out = *sent.back();
    net.post([&] { return fi_send(net[0].ep, out.data(), size, nullptr, net.at(0, 1), nullptr); });
    if (sent.size() == 3) {
      net.settle();
      must(fi_recvmsg(net[1].ep, &message, FI_MULTI_RECV));
    }
  }
  // A short one may be done before a longer one that came first.
  for (size_t i = 0; i < sent.size(); ++i) {
    const Completion part = net.wait(net[1].rx_cq);
    ASSERT_EQ(part.err, 0);
    const auto at = size_t(static_cast<uint8_t *>(part.buf) - in.data());
    const auto is_it = [&](const auto &one) { return one->size() == part.len; };
    const auto found = std::ranges::find_if(sent, is_it);
    ASSERT_NE(found, sent.end());
    EXPECT_EQ(in.read(at, part.len), (*found)->read());
    net.wait(net[0].tx_cq);
  }
}

TEST_F(CxiHmemAlone, AtomicsOfAllKinds) {
  Net net(2, with_devices());
  const auto word = [](uint64_t value) {
    std::vector<uint8_t> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  };
  DeviceMemory target(word(5)), operand(word(7)), compare(word(12)), result(word(0));
  expose(net[1], target, FI_REMOTE_READ | FI_REMOTE_WRITE, 300);
  const fi_addr_t peer = net.at(0, 1);
  net.post([&] {
    return fi_atomic(net[0].ep, operand.data(), 1, nullptr, peer, 0, 300, FI_UINT64, FI_SUM,
                     nullptr);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(target.read(), word(12));
  net.post([&] {
    return fi_compare_atomic(net[0].ep, operand.data(), 1, nullptr, compare.data(), nullptr,
                             result.data(), nullptr, peer, 0, 300, FI_UINT64, FI_CSWAP, nullptr);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(target.read(), word(7));
  EXPECT_EQ(result.read(), word(12));
  net.post([&] {
    return fi_fetch_atomic(net[0].ep, nullptr, 1, nullptr, result.data(), nullptr, peer, 0, 300,
                           FI_UINT64, FI_ATOMIC_READ, nullptr);
  });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(result.read(), word(7));
  net.post([&] {
    return fi_inject_atomic(net[0].ep, operand.data(), 1, peer, 0, 300, FI_UINT64, FI_SUM);
  });
  EXPECT_TRUE(net.until([&] { return target.read() == word(14); }));
}

// The bytes are those of the moment when the counter fires.
TEST_F(CxiHmemAlone, DeferredWork) {
  Options options = with_devices(kAllCaps | FI_TRIGGER);
  Net net(2, options);
  Handle<fid_cntr> trigger, done;
  must(fi_cntr_open(net[0].domain, nullptr, trigger.out(), nullptr));
  must(fi_cntr_open(net[0].domain, nullptr, done.out(), nullptr));
  for (const size_t size : {100, 10000, 100000}) {
    DeviceMemory out(size), in(size);
    must(fi_recv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, nullptr));
    const iovec iov{out.data(), size};
    fi_op_msg op{};
    op.ep = net[0].ep;
    op.msg.msg_iov = &iov;
    op.msg.iov_count = 1;
    op.msg.addr = net.at(0, 1);
    fi_deferred_work work{};
    work.threshold = fi_cntr_read(trigger) + 1;
    work.triggering_cntr = trigger;
    work.completion_cntr = done;
    work.op_type = FI_OP_SEND;
    work.op.msg = &op;
    const uint64_t before = fi_cntr_read(done);
    must(fi_control(net[0].domain.fid(), FI_QUEUE_WORK, &work));
    out.write(pattern(size, 6));
    must(fi_cntr_add(trigger, 1));
    EXPECT_EQ(net.wait(net[1].rx_cq).len, size);
    net.wait_count(done, before + 1);
    EXPECT_EQ(in.read(), pattern(size, 6));
  }
}

TEST_F(CxiHmemAlone, ARegionThatIsNotWhatItSaysIsRefused) {
  Net net(1, with_devices());
  const std::vector<uint8_t> host(100);
  const DeviceMemory memory(100, 1);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_CUDA, 1), 0);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_CUDA, 1, FI_HMEM_DEVICE_ONLY), 0);
  EXPECT_EQ(try_expose(net[0], host.data(), 100, FI_HMEM_SYSTEM), 0);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_SYSTEM), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_CUDA, 0), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], memory.data(), 200, FI_HMEM_CUDA, 1), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_ZE, 1), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], host.data(), 100, FI_HMEM_CUDA), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], host.data(), 100, FI_HMEM_SYSTEM, 0, FI_HMEM_DEVICE_ONLY),
            -FI_EINVAL);
}

// A descriptor says where a buffer is; nobody asks the driver. What is none is ignored.
TEST_F(CxiHmemAlone, ADescriptorSparesTheQuestion) {
  if (!hmem::have_double()) GTEST_SKIP() << "counts calls of the double";
  Net net(2, with_devices());
  DeviceMemory out(pattern(1000, 7)), in(1000);
  fid_mr *const sends = expose(net[0], out, FI_SEND, 400);
  fid_mr *const receives = expose(net[1], in, FI_RECV, 401);
  const uint64_t before = hmem::count("queries");
  must(fi_recv(net[1].ep, in.data(), 1000, fi_mr_desc(receives), FI_ADDR_UNSPEC, nullptr));
  net.post([&] {
    return fi_send(net[0].ep, out.data(), 1000, fi_mr_desc(sends), net.at(0, 1), nullptr);
  });
  net.wait(net[1].rx_cq);
  net.wait(net[0].tx_cq);
  EXPECT_EQ(hmem::count("queries"), before);
  EXPECT_EQ(in.read(), out.read());
  int nothing = 0;
  must(fi_recv(net[1].ep, in.data(), 1000, &nothing, FI_ADDR_UNSPEC, nullptr));
  net.post([&] { return fi_send(net[0].ep, out.data(), 1000, &nothing, net.at(0, 1), nullptr); });
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  net.wait(net[0].tx_cq);
}

TEST_F(CxiHmemAlone, WithoutTheCapabilityNobodyAsks) {
  if (!hmem::have_double()) GTEST_SKIP() << "counts calls of the double";
  Options options = with_devices(FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC);
  const Info info = find_info(options);
  EXPECT_EQ((info->caps | info->tx_attr->caps | info->rx_attr->caps) & FI_HMEM, 0u);
  Net net(2, options);
  const uint64_t before = hmem::count("queries");
  for (const size_t size : device_sizes()) net.exchange(0, 1, size);
  EXPECT_EQ(hmem::count("queries"), before);
  int p2p = FI_HMEM_P2P_ENABLED;
  EXPECT_EQ(fi_setopt(net[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &p2p, sizeof p2p),
            -FI_ENOPROTOOPT);
}

TEST_F(CxiHmemAlone, OptionsOfAnEndpoint) {
  Net net(1, with_devices());
  const auto set = [&](int name, auto value) {
    return fi_setopt(net[0].ep.fid(), FI_OPT_ENDPOINT, name, &value, sizeof value);
  };
  EXPECT_EQ(set(FI_OPT_FI_HMEM_P2P, int{FI_HMEM_P2P_DISABLED}), 0);
  EXPECT_EQ(set(FI_OPT_FI_HMEM_P2P, int{FI_HMEM_P2P_REQUIRED}), -FI_EOPNOTSUPP);
  int value = 0;
  size_t length = sizeof value;
  must(fi_getopt(net[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, &value, &length));
  EXPECT_EQ(value, FI_HMEM_P2P_DISABLED);
  EXPECT_EQ(set(FI_OPT_CUDA_API_PERMITTED, true), 0);
  EXPECT_EQ(set(FI_OPT_CUDA_API_PERMITTED, false), -FI_EOPNOTSUPP);
}

// A device that fails ends the operation with an error at the one who touched it, and nothing else.
TEST_F(CxiHmemAlone, ACopyThatFails) {
  if (!hmem::have_double()) GTEST_SKIP() << "the double fails by request";
  for (const size_t size : {1000, 100000}) {
    Net net(2, with_devices());
    DeviceMemory out(pattern(size, 8)), in(size);
    must(fi_recv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, nullptr));
    hmem::fail_after(0);
    net.post([&] { return fi_send(net[0].ep, out.data(), size, nullptr, net.at(0, 1), nullptr); });
    const int sent = net.wait(net[0].tx_cq).err;
    if (sent == 0) {
      EXPECT_EQ(net.wait(net[1].rx_cq).err, FI_EIO);
    }
    hmem::fail_no_more();
    EXPECT_EQ(fi_inject(net[0].ep, out.data() + size - 1, 1, net.at(0, 1)), 0);
  }
}

TEST_F(CxiHmemAlone, ABufferThatEndsTooEarly) {
  Net net(2, with_devices());
  DeviceMemory out(100);
  EXPECT_EQ(fi_inject(net[0].ep, out.data(), 150, net.at(0, 1)), -FI_EFAULT);
  for (const size_t size : {150, 5000, 100000})
    EXPECT_EQ(fi_send(net[0].ep, out.data(), size, nullptr, net.at(0, 1), nullptr), -FI_EFAULT);
  // A receive may be longer than what comes.
  for (const size_t size : {100, 101}) {
    const std::vector<uint8_t> sent = pattern(size, 3);
    must(fi_recv(net[1].ep, out.data(), 5000, nullptr, FI_ADDR_UNSPEC, nullptr));
    net.post([&] { return fi_send(net[0].ep, sent.data(), size, nullptr, net.at(0, 1), nullptr); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err == 0, size == 100) << size;
    net.wait(net[0].tx_cq);
  }
}

TEST_F(CxiHmemAlone, SharedMemoryIsCopiedByTheProcessorUpToTheThreshold) {
  if (!hmem::have_double()) GTEST_SKIP() << "counts calls of the double";
  if (!in_fresh_process({"FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD=100"})) return;
  Net net(2, with_devices());
  DeviceMemory out(200, 0, DeviceMemory::Kind::kManaged), in(200);
  out.write(pattern(200, 9));
  const auto copies_of = [&](size_t size) {
    std::vector<uint8_t> host(size);
    must(fi_recv(net[1].ep, host.data(), size, nullptr, FI_ADDR_UNSPEC, nullptr));
    const uint64_t before = hmem::count("copies");
    net.post([&] { return fi_send(net[0].ep, out.data(), size, nullptr, net.at(0, 1), nullptr); });
    net.wait(net[1].rx_cq);
    net.wait(net[0].tx_cq);
    EXPECT_EQ(host, out.read(0, size));
    return hmem::count("copies") - before;
  };
  EXPECT_EQ(copies_of(100), 0u);
  EXPECT_GE(copies_of(101), 1u);
}

TEST_F(CxiHmemAlone, BuffersAreRegisteredWithTheDevice) {
  if (!hmem::have_double()) GTEST_SKIP() << "counts calls of the double";
  const hmem::CurrentContext current;
  {
    const uint64_t before = hmem::count("registrations");
    Net net(1, with_devices());
    EXPECT_GE(hmem::count("registrations"), before + 3);
  }
  EXPECT_EQ(hmem::count("registered"), 0u);
}

TEST_F(CxiHmemAlone, BuffersAreNotRegisteredWhereThatIsOff) {
  if (!hmem::have_double()) GTEST_SKIP() << "counts calls of the double";
  if (!in_fresh_process({"FI_CXI_DISABLE_HOST_REGISTER=1"})) return;
  const hmem::CurrentContext current;
  Net net(1, with_devices());
  EXPECT_EQ(hmem::count("registrations"), 0u);
}

TEST(CxiHmemMissing, WithoutADeviceTheCapabilityIsNotThere) {
  if (!in_fresh_process({"FI_CXI_LIBCUDA=libno-such-driver.so"})) return;
  EXPECT_FALSE(find_info(with_devices()));
  EXPECT_TRUE(find_info(with_devices(FI_MSG)));
}

// Reductions of values on devices.
TEST_F(CxiHmemAlone, CollectiveOperations) {
  Options options = with_devices(kAllCaps | FI_COLLECTIVE);
  options.event_queue = true;
  Net net(2, options);
  std::vector<Handle<fid_av_set>> sets(2);
  std::vector<Handle<fid_mc>> groups(2);
  for (size_t i = 0; i < 2; ++i) {
    fi_av_set_attr attr{};
    attr.start_addr = attr.end_addr = FI_ADDR_NOTAVAIL;
    must(fi_av_set(net[i].av, &attr, sets[i].out(), nullptr));
    for (const size_t j : {0, 1}) must(fi_av_set_insert(sets[i], net.at(i, j)));
    must(fi_join_collective(net[i].ep, FI_ADDR_NOTAVAIL, sets[i], 0, groups[i].out(), nullptr));
  }
  for (size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(net.until([&] {
      uint32_t event = 0;
      fi_eq_entry entry{};
      return fi_eq_read(net[i].eq, &event, &entry, sizeof entry, 0) == sizeof entry &&
             event == FI_JOIN_COMPLETE;
    }));
  DeviceMemory operand(pattern(8, 1)), result(8), other(8);
  for (size_t i = 0; i < 2; ++i)
    must(fi_allreduce(net[i].ep, operand.data(), 1, nullptr, (i == 0 ? result : other).data(),
                      nullptr, fi_mc_addr(groups[i]), FI_UINT64, FI_BOR, 0, nullptr));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(net.wait(net[i].tx_cq).err, 0);
  EXPECT_EQ(result.read(), operand.read());
  EXPECT_EQ(other.read(), operand.read());
}

// The memory of another process, in both directions: its owner copies.
TEST_F(CxiHmemAlone, AnotherProcessesDevice) {
  if (!in_fresh_process()) return;
  constexpr size_t kSize = 300000;
  Child child([](int socket) {
    Node node(with_devices());
    DeviceMemory memory(pattern(kSize, 10)), in(kSize);
    expose(node, memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 500);
    const fi_addr_t parent = node.insert(hear_text(socket));
    (void)parent;
    must(fi_recv(node.ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, nullptr));
    tell_text(socket, node.name());
    std::optional<Completion> received;
    while (!(received = poll(node.rx_cq))) {
    }
    if (received->err != 0 || in.read() != pattern(kSize, 11)) throw std::runtime_error("message");
    tell(socket, 1);
    while (!can_hear(socket)) node.progress();
    if (memory.read() != pattern(kSize, 12)) throw std::runtime_error("write");
    tell(socket, 2);
  });
  Net net(1, with_devices());
  tell_text(child.socket(), net[0].name());
  const fi_addr_t peer = net[0].insert(hear_text(child.socket()));
  DeviceMemory message(pattern(kSize, 11)), in(kSize), out(pattern(kSize, 12));
  net.post([&] { return fi_read(net[0].ep, in.data(), kSize, nullptr, peer, 0, 500, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(in.read(), pattern(kSize, 10));
  net.post([&] { return fi_send(net[0].ep, message.data(), kSize, nullptr, peer, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  EXPECT_EQ(hear(child.socket()), 1u);
  net.post([&] { return fi_write(net[0].ep, out.data(), kSize, nullptr, peer, 0, 500, nullptr); });
  EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
  tell(child.socket(), 3);
  EXPECT_EQ(hear(child.socket()), 2u);
  child.join();
}

}  // namespace
}  // namespace weft::conformance::rdm
