// SPDX-License-Identifier: BSD-2-Clause
// Collective operations on memory of devices, which faults when the processor touches it.
#include <cstring>
#include <deque>
#include <numeric>

#include "plugins/coll/test_team.h"
#include "tests/hmem/rdm_hmem.h"

namespace weft::conformance::rdm {
namespace {

constexpr size_t kMembers = 3;

Options with_devices_and_groups() {
  Options options = with_devices(FI_MSG | FI_TAGGED | FI_HMEM | FI_COLLECTIVE);
  options.event_queue = true;
  return options;
}

#define NEEDS_DEVICE_AND_GROUPS()                                                   \
  do {                                                                              \
    covers("FI_HMEM");                                                              \
    if (!hmem::have_device()) GTEST_SKIP() << "WEFT_TEST_CUDA names no library";    \
    if (!find_info(with_devices_and_groups())) FAIL() << stack() << ": no FI_HMEM"; \
  } while (0)

using Numbers = std::vector<uint64_t>;

std::vector<uint8_t> bytes_of(const Numbers &numbers) {
  const auto *const bytes = reinterpret_cast<const uint8_t *>(numbers.data());
  return {bytes, bytes + numbers.size() * sizeof numbers[0]};
}

Numbers read(const DeviceMemory &memory) {
  const std::vector<uint8_t> bytes = memory.read();
  Numbers numbers(bytes.size() / sizeof(uint64_t));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

Numbers counted(size_t count, uint64_t first) {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// What member i has, and what it gets: each in memory of a device.
struct Buffers {
  Buffers(size_t given, size_t gotten) {
    for (size_t i = 0; i < kMembers; ++i) {
      in.emplace_back(bytes_of(counted(given, 100 * i)));
      out.emplace_back(bytes_of(Numbers(gotten)));
    }
  }
  std::deque<DeviceMemory> in, out;
};

void finish(CollTeam &team) {
  for (size_t i = 0; i < kMembers; ++i) EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, 0);
}

TEST(CollHmem, AnAllreduceOfShortAndLongVectors) {
  NEEDS_DEVICE_AND_GROUPS();
  CollTeam team(kMembers, with_devices_and_groups());
  for (const size_t count : {1, 100, 100000}) {
    Buffers buffers(count, count);
    for (size_t i = 0; i < kMembers; ++i)
      must(fi_allreduce(team.net[i].ep, buffers.in[i].data(), count, nullptr, buffers.out[i].data(),
                        nullptr, team.at(i), FI_UINT64, FI_SUM, 0, &team));
    finish(team);
    Numbers sums(count);
    for (size_t k = 0; k < count; ++k) sums[k] = 300 + 3 * k;
    for (size_t i = 0; i < kMembers; ++i) EXPECT_EQ(read(buffers.out[i]), sums) << count;
  }
}

TEST(CollHmem, TheOperandMayBeTheResult) {
  NEEDS_DEVICE_AND_GROUPS();
  CollTeam team(kMembers, with_devices_and_groups());
  Buffers buffers(10, 10);
  for (size_t i = 0; i < kMembers; ++i)
    must(fi_allreduce(team.net[i].ep, buffers.in[i].data(), 10, nullptr, buffers.in[i].data(),
                      nullptr, team.at(i), FI_UINT64, FI_MAX, 0, &team));
  finish(team);
  for (size_t i = 0; i < kMembers; ++i) EXPECT_EQ(read(buffers.in[i]), counted(10, 200));
}

TEST(CollHmem, ABroadcastFromADeviceToDevicesAndTheHost) {
  NEEDS_DEVICE_AND_GROUPS();
  CollTeam team(kMembers, with_devices_and_groups());
  Buffers buffers(50, 50);
  Numbers host(50);
  void *const data[kMembers] = {buffers.out[0].data(), buffers.in[1].data(), host.data()};
  for (size_t i = 0; i < kMembers; ++i)
    must(fi_broadcast(team.net[i].ep, data[i], 50, nullptr, team.at(i), team.net.at(i, 1),
                      FI_UINT64, 0, &team));
  finish(team);
  EXPECT_EQ(read(buffers.out[0]), counted(50, 100));
  EXPECT_EQ(read(buffers.in[1]), counted(50, 100));
  EXPECT_EQ(host, counted(50, 100));
}

TEST(CollHmem, SlicesOfAllMembers) {
  NEEDS_DEVICE_AND_GROUPS();
  CollTeam team(kMembers, with_devices_and_groups());
  Buffers gathered(4, 4 * kMembers), exchanged(2 * kMembers, 2 * kMembers);
  for (size_t i = 0; i < kMembers; ++i) {
    must(fi_allgather(team.net[i].ep, gathered.in[i].data(), 4, nullptr, gathered.out[i].data(),
                      nullptr, team.at(i), FI_UINT64, 0, &team));
    must(fi_alltoall(team.net[i].ep, exchanged.in[i].data(), 2, nullptr, exchanged.out[i].data(),
                     nullptr, team.at(i), FI_UINT64, 0, &team));
  }
  finish(team);
  finish(team);
  for (size_t i = 0; i < kMembers; ++i) {
    Numbers all, mine;
    for (size_t k = 0; k < kMembers; ++k) {
      for (const uint64_t one : counted(4, 100 * k)) all.push_back(one);
      for (const uint64_t one : counted(2, 100 * k + 2 * i)) mine.push_back(one);
    }
    EXPECT_EQ(read(gathered.out[i]), all);
    EXPECT_EQ(read(exchanged.out[i]), mine);
  }
}

// A scatter, a gather and a reduction: the buffers of one member are longer.
TEST(CollHmem, BuffersOfTheRootAlone) {
  NEEDS_DEVICE_AND_GROUPS();
  CollTeam team(kMembers, with_devices_and_groups());
  Buffers parts(5 * kMembers, 5), back(5, 5 * kMembers), sums(5, 5);
  for (size_t i = 0; i < kMembers; ++i) {
    const fi_addr_t root = team.net.at(i, 2);
    void *const given = i == 2 ? parts.in[2].data() : nullptr;
    void *const gathered = i == 2 ? back.out[2].data() : nullptr;
    void *const reduced = i == 2 ? sums.out[2].data() : nullptr;
    must(fi_scatter(team.net[i].ep, given, 5, nullptr, parts.out[i].data(), nullptr, team.at(i),
                    root, FI_UINT64, 0, &team));
    must(fi_gather(team.net[i].ep, back.in[i].data(), 5, nullptr, gathered, nullptr, team.at(i),
                   root, FI_UINT64, 0, &team));
    must(fi_reduce(team.net[i].ep, sums.in[i].data(), 5, nullptr, reduced, nullptr, team.at(i),
                   root, FI_UINT64, FI_MIN, 0, &team));
  }
  for (int k = 0; k < 3; ++k) finish(team);
  for (size_t i = 0; i < kMembers; ++i) EXPECT_EQ(read(parts.out[i]), counted(5, 200 + 5 * i)) << i;
  Numbers all;
  for (size_t k = 0; k < kMembers; ++k)
    for (const uint64_t one : counted(5, 100 * k)) all.push_back(one);
  EXPECT_EQ(read(back.out[2]), all);
  EXPECT_EQ(read(sums.out[2]), counted(5, 0));
}

TEST(CollHmem, ABufferThatIsTooShortIsRefused) {
  NEEDS_DEVICE_AND_GROUPS();
  CollTeam team(kMembers, with_devices_and_groups());
  DeviceMemory in(std::vector<uint8_t>(64)), out(std::vector<uint8_t>(64));
  EXPECT_EQ(fi_allreduce(team.net[0].ep, in.data(), 1 << 20, nullptr, out.data(), nullptr,
                         team.at(0), FI_UINT64, FI_SUM, 0, &team),
            -FI_EFAULT);
}

TEST(CollHmem, ADeviceThatFailsFailsTheOperation) {
  NEEDS_DEVICE_AND_GROUPS();
  if (!hmem::have_double()) GTEST_SKIP() << "a real device does not fail when it is told to";
  CollTeam team(kMembers, with_devices_and_groups());
  Buffers buffers(10, 10);
  for (size_t i = 0; i < kMembers; ++i)
    must(fi_allreduce(team.net[i].ep, buffers.in[i].data(), 10, nullptr, buffers.out[i].data(),
                      nullptr, team.at(i), FI_UINT64, FI_SUM, 0, &team));
  hmem::fail_after(0);
  EXPECT_EQ(fi_allreduce(team.net[0].ep, buffers.in[0].data(), 10, nullptr, buffers.out[0].data(),
                         nullptr, team.at(0), FI_UINT64, FI_SUM, 0, &team),
            -FI_EIO);
  for (size_t i = 0; i < kMembers; ++i)
    EXPECT_EQ(team.net.wait(team.net[i].tx_cq).err, FI_EIO) << i;
  hmem::fail_no_more();
}

TEST(CollHmem, GroupsNeedTheDevicesLibrary) {
  NEEDS_DEVICE_AND_GROUPS();
  Net net(1, with_devices_and_groups());
  const bool forbidden = false;
  EXPECT_EQ(fi_setopt(net[0].ep.fid(), FI_OPT_ENDPOINT, FI_OPT_CUDA_API_PERMITTED, &forbidden,
                      sizeof forbidden),
            -FI_EOPNOTSUPP);
}

}  // namespace
}  // namespace weft::conformance::rdm
