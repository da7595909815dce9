// SPDX-License-Identifier: BSD-2-Clause
// FI_CXI_MR_MATCH_EVENTS: the NIC tells of each access of a peer to a region, and closing a region
// waits for those that have begun.
#include <rdma/fi_cxi_ext.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/conformance/process.h"
#include "tests/conformance/rdm_harness.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kLarge = size_t{16} << 20;
constexpr uint64_t kKeys[] = {7, 200};  // optimized and standard

Options with_rma() {
  Options options;
  options.caps |= FI_RMA;
  return options;
}

Handle<fid_mr> open_region(Application &owner, void *memory, size_t length, uint64_t key) {
  Handle<fid_mr> region;
  must(fi_mr_reg(owner.domain, memory, length, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, key, 0,
                 region.out(), nullptr));
  must(fi_mr_bind(region, owner.ep.fid(), 0));
  must(fi_mr_enable(region));
  return region;
}

// The NIC's thread may be writing there, as peers do to memory that is polled.
__attribute__((no_sanitize("thread"))) bool holds(const volatile uint8_t &memory, uint8_t value) {
  return memory == value;
}

// Writes all of a region, as often as it is told, and says how each has ended.
void write_for_ever(int socket) {
  Net net(1, with_rma());
  const fi_addr_t target = net[0].insert(hear_text(socket));
  std::vector<uint8_t> out(kLarge);
  while (const uint64_t key = hear(socket)) {
    std::memset(out.data(), int(hear(socket)), out.size());
    net.post([&] {
      return fi_write(net[0].ep, out.data(), out.size(), nullptr, target, 0, key, nullptr);
    });
    tell(socket, uint64_t(net.wait(net[0].tx_cq).err));
  }
}

// Closes a region as soon as its first byte has come. Returns what became of the peer's write.
uint64_t close_early(Net &net, Child &writer, uint64_t key, uint8_t value,
                     std::vector<uint8_t> &memory) {
  const int socket = writer.socket();
  Handle<fid_mr> region = open_region(net[0], memory.data(), memory.size(), key);
  tell(socket, key);
  tell(socket, value);
  EXPECT_TRUE(net.until([&] { return holds(memory[0], value); }));
  region.reset();
  const std::vector<uint8_t> closed = memory;
  EXPECT_TRUE(net.until([&] { return can_hear(socket); }));
  const uint64_t result = hear(socket);
  // A write that begins now finds nothing.
  tell(socket, key);
  tell(socket, uint8_t(value + 100));
  EXPECT_TRUE(net.until([&] { return can_hear(socket); }));
  EXPECT_NE(hear(socket), 0u);
  EXPECT_TRUE(memory == closed);
  return result;
}

TEST(CxiMatchEvents, WhatHasBegunEndsWellBeforeTheRegionIsClosed) {
  if (!in_fresh_process({"FI_CXI_MR_MATCH_EVENTS=1"})) return;
  Child writer(write_for_ever);
  Net net(1, with_rma());
  tell_text(writer.socket(), net[0].name());
  std::vector<uint8_t> memory(kLarge);
  uint8_t value = 0;
  for (const uint64_t key : kKeys) {
    EXPECT_EQ(close_early(net, writer, key, ++value, memory), 0u);
    EXPECT_TRUE(memory == std::vector<uint8_t>(memory.size(), value)) << "key " << key;
  }
  tell(writer.socket(), 0);
  writer.join();
}

TEST(CxiMatchEvents, WithoutThemItIsCutOff) {
  if (!in_fresh_process()) return;
  Child writer(write_for_ever);
  Net net(1, with_rma());
  tell_text(writer.socket(), net[0].name());
  std::vector<uint8_t> memory(kLarge);
  uint8_t value = 0;
  bool was_cut = false;
  for (int i = 0; i < 20 && !was_cut; ++i) {
    const uint64_t result = close_early(net, writer, kKeys[i % 2], ++value, memory);
    EXPECT_TRUE(result == 0 || result == FI_EIO) << result;
    was_cut = result != 0;
  }
  EXPECT_TRUE(was_cut) << "in one of the cases";
  tell(writer.socket(), 0);
  writer.join();
}

// A peer that is killed in the middle of its write keeps nobody waiting.
TEST(CxiMatchEvents, APeerThatIsKilledHasEnded) {
  if (!in_fresh_process({"FI_CXI_MR_MATCH_EVENTS=1"})) return;
  Child writer(write_for_ever);
  Net net(1, with_rma());
  tell_text(writer.socket(), net[0].name());
  std::vector<uint8_t> memory(kLarge);
  Handle<fid_mr> region = open_region(net[0], memory.data(), memory.size(), 200);
  tell(writer.socket(), 200);
  tell(writer.socket(), 1);
  ASSERT_TRUE(net.until([&] { return holds(memory[0], 1); }));
  writer.kill();
  region.reset();
}

// How many of `wanted` writes of a peer succeed while the owner of the region does nothing; what
// the others say. Afterwards it is awake, and one more succeeds.
size_t writes_to_a_sleeper(Net &net, Application &owner, fi_addr_t to, size_t wanted) {
  uint64_t word = 0;
  Handle<fid_mr> region = open_region(owner, &word, sizeof word, 200);
  size_t good = 0;
  const auto write = [&](uint64_t value) {
    net.post(
        [&] { return fi_write(net[0].ep, &value, sizeof value, nullptr, to, 0, 200, nullptr); });
    const int err = net.wait(net[0].tx_cq).err;
    EXPECT_TRUE(err == 0 || err == FI_EIO) << err;
    return err == 0;
  };
  for (size_t i = 0; i < wanted; ++i) good += write(i) ? 1 : 0;
  EXPECT_EQ(word, good - 1) << "what was refused is not there";
  for (int i = 0; i < 1000; ++i) owner.progress();
  EXPECT_TRUE(write(4711));
  EXPECT_EQ(word, 4711u);
  return good;
}

constexpr size_t kAccesses = 2000;  // more than there are places for their events

TEST(CxiMatchEvents, TheOwnerMustMakeProgress) {
  if (!in_fresh_process({"FI_CXI_MR_MATCH_EVENTS=1", "FI_CXI_CTRL_RX_EQ_MAX_SIZE=4K"})) return;
  Net net(2, with_rma());
  net.set_asleep(1, true);
  const size_t good = writes_to_a_sleeper(net, net[1], net.at(0, 1), kAccesses);
  EXPECT_LT(good, kAccesses);
  EXPECT_GT(good, kAccesses / 4);
}

TEST(CxiMatchEvents, WithoutThemNoAccessNeedsIt) {
  if (!in_fresh_process({"FI_CXI_CTRL_RX_EQ_MAX_SIZE=4K"})) return;
  Net net(2, with_rma());
  net.set_asleep(1, true);
  EXPECT_EQ(writes_to_a_sleeper(net, net[1], net.at(0, 1), kAccesses), kAccesses);
}

TEST(CxiMatchEvents, ADomainMayHaveThemAlone) {
  if (!in_fresh_process({"FI_CXI_CTRL_RX_EQ_MAX_SIZE=4K"})) return;
  Net net(1, with_rma());
  Application owner(with_rma());
  const Info found = find_info(with_rma(), FI_SOURCE);
  owner.open_fabric(found.get());
  bool value = true;
  must(fi_control(owner.domain.fid(), FI_OPT_CXI_SET_MR_MATCH_EVENTS, &value));
  fi_av_attr attr{};
  must(fi_av_open(owner.domain, &attr, owner.av.out(), nullptr));
  owner.open_queues();
  must(fi_endpoint(owner.domain, owner.info.get(), owner.ep.out(), nullptr));
  owner.bind_queues();
  must(fi_enable(owner.ep));
  EXPECT_LT(writes_to_a_sleeper(net, owner, net[0].insert(owner.name()), kAccesses), kAccesses);
  value = false;
  EXPECT_EQ(fi_control(owner.domain.fid(), FI_OPT_CXI_SET_MR_MATCH_EVENTS, &value), -FI_EINVAL);
  EXPECT_EQ(fi_control(owner.domain.fid(), FI_OPT_CXI_GET_MR_MATCH_EVENTS, &value), 0);
  EXPECT_TRUE(value);
}

}  // namespace
}  // namespace weft::conformance::rdm
