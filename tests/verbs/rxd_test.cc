// SPDX-License-Identifier: BSD-2-Clause
// rxd over the datagrams of queue pairs: what the device decides, and plugins/rxd/rdm_test.cc does
// not know.
#include <rdma/fi_atomic.h>

#include "tests/conformance/rdm_harness.h"
#include "tests/verbs/network.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kAllCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;

// Endpoints of this device. Their domain is that of its datagrams.
Options on(const std::string &device, uint64_t caps = FI_MSG | FI_TAGGED) {
  Options options;
  options.domain = device + "-dgram";
  options.caps = caps;
  return options;
}

// ---- what fi_getinfo says ----

TEST(RxdOverVerbs, TheInfoIsOfRxdAndOfTheDevice) {
  const Info info = find_info(on("dbl0", kAllCaps));
  ASSERT_NE(info, nullptr);
  EXPECT_STREQ(info->fabric_attr->prov_name, "verbs;ofi_rxd");
  EXPECT_STREQ(info->domain_attr->name, "dbl0-dgram");
  ASSERT_NE(info->nic, nullptr);
  EXPECT_STREQ(info->nic->device_attr->name, "dbl0");
  EXPECT_EQ(info->addr_format, uint32_t(FI_ADDR_IB_UD));
  EXPECT_EQ(info->ep_attr->protocol, uint32_t(FI_PROTO_RXD));
  // What the device demands is taken over: prefixes, and registered memory.
  EXPECT_EQ(info->mode, 0u);
  EXPECT_EQ(info->ep_attr->msg_prefix_size, 0u);
  EXPECT_EQ(info->domain_attr->mr_mode, 0);
  EXPECT_EQ(info->ep_attr->max_msg_size, SIZE_MAX);
  EXPECT_EQ(info->caps & kAllCaps, kAllCaps);
}

// A host has no datagram endpoint that could be found by its name.
TEST(RxdOverVerbs, AHostIsNoName) {
  Options options = on("dbl0");
  options.node = kAddress;
  EXPECT_EQ(find_info(options), nullptr);
}

TEST(RxdOverVerbs, AtomicsFitIntoThePackets) {
  for (const auto &[device, bytes] : {std::pair{"dbl0", 1024u}, {"narrow", 848u}}) {
    Net net(1, on(device, kAllCaps));
    size_t count = 0;
    must(fi_atomicvalid(net[0].ep, FI_UINT64, FI_SUM, &count));
    EXPECT_EQ(count, bytes / 8) << device;
    must(fi_compare_atomicvalid(net[0].ep, FI_UINT64, FI_CSWAP, &count));
    EXPECT_EQ(count, bytes / 16) << device;
  }
}

// ---- transfers ----

TEST(RxdOverVerbs, MessagesOfAllSizesOnEveryDevice) {
  for (const char *device : {"dbl0", "narrow", "plain", "small"}) {
    SCOPED_TRACE(device);
    Net net(2, on(device));
    for (const size_t size : edges()) {
      net.exchange(0, 1, size, size);
      net.exchange(1, 0, size, size + 1);
    }
    net.exchange(0, 1, 3'000'000, 1);
  }
}

// What both take is the smaller size.
TEST(RxdOverVerbs, DevicesWithDifferentPacketsTalk) {
  Net net(0);
  net.add(on("dbl0", kAllCaps));
  net.add(on("narrow", kAllCaps));
  for (const size_t size : edges()) {
    net.exchange(0, 1, size, size);
    net.exchange(1, 0, size, size + 1);
  }
  // The larger one may offer more than the smaller one takes, or could answer: that fails, and the
  // connection goes on.
  std::vector<uint64_t> target(128, 1), operand(128, 2), result(128);
  fid_mr *const mr =
      net[1].expose(target.data(), 1024, FI_REMOTE_READ | FI_REMOTE_WRITE, /*key=*/7);
  const auto fetch = [&](size_t count, enum fi_op op) {
    net.post([&] {
      return fi_fetch_atomic(net[0].ep, operand.data(), count, nullptr, result.data(), nullptr,
                             net.at(0, 1), net[1].base_of(target.data()), fi_mr_key(mr), FI_UINT64,
                             op, &result);
    });
    return net.wait(net[0].tx_cq).err;
  };
  EXPECT_EQ(fetch(106, FI_SUM), 0);
  EXPECT_EQ(fetch(128, FI_SUM), FI_EMSGSIZE);
  EXPECT_EQ(fetch(128, FI_ATOMIC_READ), FI_EMSGSIZE);
  EXPECT_EQ(fetch(100, FI_ATOMIC_READ), 0);
  EXPECT_EQ(result[0], 3u);
  net.exchange(0, 1);
}

TEST(RxdOverVerbs, RemoteAccessAndAtomics) {
  for (const char *device : {"dbl0", "narrow", "small"}) {
    SCOPED_TRACE(device);
    Net net(2, on(device, kAllCaps));
    std::vector<uint8_t> target(300'000), out = pattern(300'000, 3), back(300'000);
    fid_mr *const mr =
        net[1].expose(target.data(), target.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 7);
    const uint64_t at = net[1].base_of(target.data()), key = fi_mr_key(mr);
    net.post([&] {
      return fi_write(net[0].ep, out.data(), out.size(), nullptr, net.at(0, 1), at, key, &out);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(target, out);
    net.post([&] {
      return fi_read(net[0].ep, back.data(), back.size(), nullptr, net.at(0, 1), at, key, &back);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(back, out);
    uint64_t before = 0, one = 1, old = 0;
    std::memcpy(&before, target.data(), sizeof before);
    net.post([&] {
      return fi_fetch_atomic(net[0].ep, &one, 1, nullptr, &old, nullptr, net.at(0, 1), at, key,
                             FI_UINT64, FI_SUM, &old);
    });
    EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
    EXPECT_EQ(old, before);
    std::memcpy(&old, target.data(), sizeof old);
    EXPECT_EQ(old, before + 1);
  }
}

TEST(RxdOverVerbs, LostAndDoubledDatagrams) {
  Net net(2, on("dbl0"));
  network().fail(verbs_double::DatagramFaults{.lost = 30, .duplicated = 30});
  for (uint64_t tag = 0; tag < 100; ++tag) net.exchange(0, 1, 100 * tag, tag);
  net.exchange(1, 0, 1'000'000, 1);
}

// ---- queues that are full ----

// Beyond the posted receives datagrams are lost. Nothing is: the sender sends them again.
TEST(RxdOverVerbs, MoreArrivesThanReceivesArePosted) {
  for (const char *device : {"dbl0", "small"}) {
    SCOPED_TRACE(device);
    constexpr size_t kCount = 800, kSize = 2000;
    Options options = on(device);
    options.tx_size = 1024;
    Net net(2, options);
    net.exchange(0, 1);
    net.set_asleep(1, true);
    const std::vector<uint8_t> out = pattern(kSize, 5);
    for (size_t i = 0; i < kCount; ++i)
      net.post([&] {
        return fi_tsend(net[0].ep, out.data(), kSize, nullptr, net.at(0, 1), i,
                        const_cast<uint8_t *>(out.data()));
      });
    net.settle();
    net.set_asleep(1, false);
    for (size_t i = 0; i < kCount; ++i) {
      std::vector<uint8_t> in(kSize);
      must(fi_trecv(net[1].ep, in.data(), kSize, nullptr, FI_ADDR_UNSPEC, i, 0, &in));
      EXPECT_EQ(net.wait(net[1].rx_cq).err, 0);
      EXPECT_EQ(net.wait(net[0].tx_cq).err, 0);
      ASSERT_EQ(in, out) << i;
    }
  }
}

// ---- peers and devices that go away ----

// A host does not answer any more: the operations to it time out, others do not notice. It comes
// back as another endpoint, because a queue pair has a number of its own.
TEST(RxdOverVerbs, APeerThatVanishesCostsItsOwnOperationsOnly) {
  if (!in_fresh_process({"FI_OFI_RXD_PEER_TIMEOUT_MS=1000"})) return;
  Net net(0);
  net.add(on("dbl0"));
  net.add(on("dbl1"));
  net.add(on("dbl0"));
  net.exchange(0, 1);
  net.exchange(0, 2);
  device(kOther).vanish();
  net.set_asleep(1, true);
  std::vector<uint8_t> lost = pattern(100'000, 1);
  net.post([&] {
    return fi_tsend(net[0].ep, lost.data(), lost.size(), nullptr, net.at(0, 1), 1, &lost);
  });
  for (uint64_t tag = 0; tag < 20; ++tag) net.exchange(0, 2, 5000, tag);
  const Completion failed = net.wait(net[0].tx_cq);
  EXPECT_EQ(failed.err, FI_ETIMEDOUT);
  EXPECT_EQ(failed.context, &lost);
  net.exchange(0, 2);
  device(kOther).vanish(false);
  net.add(on("dbl1"));
  net.exchange(0, 3, 70'000);
  net.exchange(3, 2, 70'000);
}

// The device of one endpoint goes. All its operations fail at once, the posted and the later ones;
// its peers see it time out; what others do goes on.
TEST(RxdOverVerbs, ADeviceThatGoesAwayFailsItsOwnEndpointOnly) {
  if (!in_fresh_process({"FI_OFI_RXD_PEER_TIMEOUT_MS=1000"})) return;
  Net net(0);
  net.add(on("mortal"));
  net.add(on("dbl0"));
  net.add(on("dbl0"));
  net.exchange(0, 1);
  net.exchange(1, 2);
  std::vector<uint8_t> unasked = pattern(1'000'000, 1), back = pattern(1'000'000, 2);
  net.post([&] {
    return fi_tsend(net[0].ep, unasked.data(), unasked.size(), nullptr, net.at(0, 1), 9, &unasked);
  });
  net.post([&] {
    return fi_tsend(net[1].ep, back.data(), back.size(), nullptr, net.at(1, 0), 9, &back);
  });
  net.settle();
  device(kMortal).remove();
  const Completion here = net.wait(net[0].tx_cq);
  EXPECT_EQ(here.err, FI_EIO);
  EXPECT_EQ(here.context, &unasked);
  EXPECT_EQ(fi_tsend(net[0].ep, unasked.data(), 100, nullptr, net.at(0, 2), 9, &unasked), -FI_EIO);
  const Completion there = net.wait(net[1].tx_cq);
  EXPECT_EQ(there.err, FI_ETIMEDOUT);
  EXPECT_EQ(there.context, &back);
  for (const size_t size : edges()) net.exchange(1, 2, size, size);
}

// The pools are registered when the endpoint is enabled, and never again.
TEST(RxdOverVerbs, BuffersAreRegisteredOnce) {
  Net net(2, on("dbl0"));
  net.exchange(0, 1, 1'000'000);
  const uint64_t before = network().calls("ibv_reg_mr");
  for (uint64_t tag = 0; tag < 50; ++tag) net.exchange(0, 1, tag * 10'000, tag);
  EXPECT_EQ(network().calls("ibv_reg_mr"), before);
}

TEST(RxdOverVerbs, AFailedRegistrationIsAnErrorOfEnable) {
  network().fail({.call = "ibv_reg_mr", .error = ENOMEM});
  EXPECT_ANY_THROW(Net(1, on("dbl0")));
  Net net(2, on("dbl0"));
  net.exchange(0, 1);
}

}  // namespace
}  // namespace weft::conformance::rdm
