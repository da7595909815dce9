// SPDX-License-Identifier: BSD-2-Clause
// FI_HMEM of cxi: what only cxi has of it. tests/hmem has the rest.
#include <rdma/fi_collective.h>
#include <rdma/fi_cxi_ext.h>
#include <rdma/fi_trigger.h>

#include <vector>

#include "tests/hmem/rdm_hmem.h"

namespace weft::conformance::rdm {
namespace {

class CxiHmemAlone : public ::testing::Test {
 protected:
  void SetUp() override { NEEDS_DEVICE(); }
};

// The bytes are those of the moment when the counter fires.
TEST_F(CxiHmemAlone, DeferredWork) {
  Options options = with_devices(kHmemCaps | FI_TRIGGER);
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

// Reductions of values on devices.
TEST_F(CxiHmemAlone, CollectiveOperations) {
  Options options = with_devices(kHmemCaps | FI_COLLECTIVE);
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

}  // namespace
}  // namespace weft::conformance::rdm
