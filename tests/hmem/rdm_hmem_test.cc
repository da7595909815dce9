// SPDX-License-Identifier: BSD-2-Clause
// FI_HMEM over the C API: transfers from, to and between memory of devices, which faults when the
// processor touches it. The sizes are those around which protocols change.
#include <rdma/fi_atomic.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/hmem/rdm_hmem.h"

namespace weft::conformance::rdm {
namespace {

struct Place {
  bool sends_device, receives_device;
};

class RdmHmem : public ::testing::TestWithParam<Place> {
 protected:
  void SetUp() override { NEEDS_DEVICE(); }
};
INSTANTIATE_TEST_SUITE_P(FromAndTo, RdmHmem,
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

TEST_P(RdmHmem, MessagesThatAreAwaited) {
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

TEST_P(RdmHmem, MessagesThatComeTooEarly) {
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
TEST_P(RdmHmem, MessagesThatWereLookedAt) {
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
      net.progress();
      net.post([&] { return fi_trecvmsg(net[1].ep, &look, FI_PEEK); });
      found = net.wait(net[1].rx_cq).err == 0;
    }
    must(fi_trecv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 9, 0, &in));
    EXPECT_EQ(net.wait(net[1].rx_cq).len, size);
    net.wait(net[0].tx_cq);
    EXPECT_EQ(in.read(), out.read()) << size;
  }
}

TEST_P(RdmHmem, WritesAndReads) {
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
    EXPECT_TRUE(net.until([&] { return target.read() == own.read(); })) << size;
    net.post([&] {
      return fi_read(net[0].ep, back.data(), size, nullptr, net.at(0, 1), 0, key, nullptr);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(back.read(), own.read()) << size;
    net[1].regions.clear();
  }
}

class RdmHmemAlone : public ::testing::Test {
 protected:
  void SetUp() override { NEEDS_DEVICE(); }
};

TEST_F(RdmHmemAlone, InjectedBytesMayChangeAtOnce) {
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

TEST_F(RdmHmemAlone, ABufferForManyMessages) {
  const Options options = with_devices(kHmemCaps | FI_MULTI_RECV);
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

TEST_F(RdmHmemAlone, AtomicsOfAllKinds) {
  NEEDS_OFFER(with_devices(kHmemCaps | FI_ATOMIC), "FI_ATOMIC");
  Net net(2, with_devices(kHmemCaps | FI_ATOMIC));
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

TEST_F(RdmHmemAlone, ARegionThatIsNotWhatItSaysIsRefused) {
  Net net(1, with_devices());
  const std::vector<uint8_t> host(100);
  // Of the last device, so that it is not the one that a zero means, where there are several.
  const int device = hmem::device_count() - 1, other = device == 0 ? 1 : 0;
  const DeviceMemory memory(100, device);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_CUDA, device), 0);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_CUDA, device, FI_HMEM_DEVICE_ONLY), 0);
  EXPECT_EQ(try_expose(net[0], host.data(), 100, FI_HMEM_SYSTEM), 0);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_SYSTEM), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_CUDA, other), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], memory.data(), 200, FI_HMEM_CUDA, device), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], memory.data(), 100, FI_HMEM_ZE, device), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], host.data(), 100, FI_HMEM_CUDA), -FI_EINVAL);
  EXPECT_EQ(try_expose(net[0], host.data(), 100, FI_HMEM_SYSTEM, 0, FI_HMEM_DEVICE_ONLY),
            -FI_EINVAL);
}

TEST_F(RdmHmemAlone, WithoutTheCapabilityNobodyAsks) {
  if (!hmem::have_double()) GTEST_SKIP() << "counts calls of the double";
  Options options = with_devices(kHmemCaps & ~uint64_t(FI_HMEM));
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

TEST_F(RdmHmemAlone, OptionsOfAnEndpoint) {
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

TEST_F(RdmHmemAlone, ABufferThatEndsTooEarly) {
  Net net(2, with_devices());
  DeviceMemory out(100);
  const size_t injected = std::min<size_t>(net[0].info->tx_attr->inject_size, 120);
  EXPECT_EQ(fi_inject(net[0].ep, out.data() + 101 - injected / 2, injected, net.at(0, 1)),
            -FI_EFAULT);
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

// A device that fails ends the operation with an error at the one who touched it, and nothing else.
TEST_F(RdmHmemAlone, ACopyThatFails) {
  if (!hmem::have_double()) GTEST_SKIP() << "the double fails by request";
  for (const size_t size : {1000, 100000}) {
    DeviceMemory out(pattern(size, 8)), in(size);
    Net net(2, with_devices());  // it goes first: a receive may wait
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

// In the middle of a long message: both sides hear of it, and the next message arrives.
TEST_F(RdmHmemAlone, ADeviceThatFailsInTheMiddle) {
  if (!hmem::have_double()) GTEST_SKIP() << "the double fails by request";
  constexpr size_t kSize = 4 << 20;
  DeviceMemory out(pattern(kSize, 8)), in(kSize);
  Net net(2, with_devices());
  net.exchange(0, 1);
  for (const uint64_t copies : {1, 2, 3, 5, 8, 13}) {
    must(fi_recv(net[1].ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, nullptr));
    const uint64_t before = hmem::count("copies");
    hmem::fail_after(copies);
    net.post([&] { return fi_send(net[0].ep, out.data(), kSize, nullptr, net.at(0, 1), nullptr); });
    const int sent = net.wait(net[0].tx_cq).err, received = net.wait(net[1].rx_cq).err;
    hmem::fail_no_more();
    if (hmem::count("copies") - before > copies) {
      EXPECT_NE(received, 0) << copies << ' ' << sent;
    }
    net.exchange(0, 1);
  }
}

// A copy takes some time however short it is, so there is not one for each piece that a network
// carries.
TEST_F(RdmHmemAlone, LongMessagesTakeFewCopies) {
  if (!hmem::have_double()) GTEST_SKIP() << "counts calls of the double";
  constexpr size_t kSize = 4 << 20;
  DeviceMemory out(pattern(kSize, 4)), in(kSize);
  Net net(2, with_devices());
  for (const bool is_first : {true, false}) {
    must(fi_recv(net[1].ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, nullptr));
    const uint64_t copies = hmem::count("copies");
    net.post([&] { return fi_send(net[0].ep, out.data(), kSize, nullptr, net.at(0, 1), nullptr); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    // Some datagrams of a first message are small.
    EXPECT_LE(hmem::count("copies") - copies, 2 * kSize / (64 << 10)) << is_first;
    EXPECT_EQ(in.read(), out.read());
  }
}

// A region that closes while a peer writes to it, and whose memory is freed then.
TEST_F(RdmHmemAlone, ARegionThatClosesInTheMiddle) {
  constexpr size_t kSize = 4 << 20;
  DeviceMemory out(pattern(kSize, 9));
  Net net(2, with_devices());
  for (int polls = 1; polls < 30; polls += 4) {
    for (const bool writes : {true, false}) {
      DeviceMemory memory(kSize);
      expose(net[1], memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 600);
      net.post([&] {
        return writes
                   ? fi_write(net[0].ep, out.data(), kSize, nullptr, net.at(0, 1), 0, 600, nullptr)
                   : fi_read(net[0].ep, out.data(), kSize, nullptr, net.at(0, 1), 0, 600, nullptr);
      });
      for (int i = 0; i < polls; ++i) net[i % 2].progress();
      net[1].regions.clear();
    }
    for (int i = 0; i < 2; ++i) net.wait(net[0].tx_cq);  // with success or an error
  }
}

// Receives that end without a message, and memory that is freed after them.
TEST_F(RdmHmemAlone, ReceivesThatAreCancelledOrClosed) {
  Net net(2, with_devices());
  auto cancelled = std::make_unique<DeviceMemory>(100000),
       left = std::make_unique<DeviceMemory>(100000);
  must(fi_recv(net[1].ep, cancelled->data(), 100000, nullptr, FI_ADDR_UNSPEC, cancelled.get()));
  must(fi_cancel(net[1].ep.fid(), cancelled.get()));
  EXPECT_EQ(net.wait(net[1].rx_cq).err, FI_ECANCELED);
  cancelled.reset();
  DeviceMemory out(pattern(100000, 1)), in(100000);
  must(fi_recv(net[1].ep, in.data(), 100000, nullptr, FI_ADDR_UNSPEC, nullptr));
  net.post([&] { return fi_send(net[0].ep, out.data(), 100000, nullptr, net.at(0, 1), nullptr); });
  EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
  EXPECT_EQ(in.read(), out.read());
  net.wait(net[0].tx_cq);
  must(fi_recv(net[1].ep, left->data(), 100000, nullptr, FI_ADDR_UNSPEC, nullptr));
  net[1].ep.reset();
  left.reset();
}

// What is copied meanwhile does not end the capture.
TEST_F(RdmHmemAlone, WhileTheApplicationCapturesAGraph) {
  for (const size_t size : {8, 5000, 1000000}) {
    const std::vector<uint8_t> bytes = pattern(size, 1);
    const DeviceMemory out(bytes), in(size);
    EXPECT_EQ(out.read(), bytes);  // all of it is there
    Net net(2, with_devices());
    hmem::Capture capture;
    must(fi_trecv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, 5, 0, nullptr));
    net.post([&] { return fi_tsend(net[0].ep, out.data(), size, nullptr, net.at(0, 1), 5, &net); });
    EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_TRUE(capture.end()) << size;
    EXPECT_EQ(in.read(), bytes) << size;
  }
}

// A thread of the provider copies while the application sleeps.
TEST_F(RdmHmemAlone, WithAutomaticProgress) {
  Options options = with_devices();
  options.progress = FI_PROGRESS_AUTO;
  options.rx_cq = Options::cq_attr(FI_CQ_FORMAT_TAGGED, FI_WAIT_UNSPEC);
  Net net(2, options);
  for (const size_t size : device_sizes()) {
    DeviceMemory out(pattern(size, 2)), in(size);
    net.post([&] { return fi_send(net[0].ep, out.data(), size, nullptr, net.at(0, 1), nullptr); });
    must(fi_recv(net[1].ep, in.data(), size, nullptr, FI_ADDR_UNSPEC, nullptr));
    fi_cq_tagged_entry entry{};
    ASSERT_EQ(fi_cq_sread(net[1].rx_cq, &entry, 1, nullptr, int(patience().count())), 1);
    EXPECT_EQ(in.read(), out.read()) << size;
    net.wait(net[0].tx_cq);
  }
}

// The memory of another process, in both directions: its owner copies. CUDA does not work in a
// child of a process that has used it, so the child comes first.
TEST(RdmHmemProcesses, AnotherProcessesDevice) {
  if (!in_fresh_process()) return;
  constexpr size_t kSize = 300000;
  Child child([](int socket) {
    if (hear(socket) == 0) return;
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
    for (const Deadline deadline; memory.read() != pattern(kSize, 12);) {
      node.progress();
      if (deadline.passed()) throw std::runtime_error("write");
    }
    tell(socket, 2);
  });
  const bool is_offered = hmem::have_device() && find_info(with_devices());
  tell(child.socket(), is_offered ? 1 : 0);
  if (!is_offered) child.join();
  NEEDS_DEVICE();
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
  EXPECT_TRUE(net.until([&] { return can_hear(child.socket()); }));
  EXPECT_EQ(hear(child.socket()), 2u);
  child.join();
}

}  // namespace
}  // namespace weft::conformance::rdm
