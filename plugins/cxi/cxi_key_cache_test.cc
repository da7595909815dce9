// SPDX-License-Identifier: BSD-2-Clause
// FI_CXI_PROV_KEY_CACHE: keys of the provider that need no entry of their own in the NIC.
#include <rdma/fi_cxi_ext.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plugins/cxi/test_counted.h"
#include "tests/conformance/process.h"

namespace weft::conformance::rdm {
namespace {

constexpr uint64_t kOfCache = uint64_t{1} << 62;  // in keys
constexpr size_t kRegions = 300;                  // more than there are list entries

struct KeyPair {
  explicit KeyPair(uint64_t caps = 0) : net(2, options(caps)) {}
  static Options options(uint64_t caps = 0) {
    Options all;
    all.caps |= FI_RMA | FI_ATOMIC | caps;
    all.mr_mode = FI_MR_PROV_KEY;
    return all;
  }
  // Of the second one. `rc`: of fi_mr_enable.
  Handle<fid_mr> region(void *memory, size_t length,
                        uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE, uint64_t flags = 0,
                        int *rc = nullptr) {
    Handle<fid_mr> made;
    must(fi_mr_reg(net[1].domain, memory, length, access, 0, 0, flags, made.out(), nullptr));
    must(fi_mr_bind(made, net[1].ep.fid(), 0));
    const int enabled = fi_mr_enable(made);
    if (rc == nullptr) must(enabled);
    if (rc != nullptr) *rc = enabled;
    return made;
  }
  int write(uint64_t key, uint64_t value, uint64_t offset = 0) {
    net.post([&] {
      return fi_write(net[0].ep, &value, sizeof value, nullptr, net.at(0, 1), offset, key, nullptr);
    });
    return net.wait(net[0].tx_cq).err;
  }
  int read(uint64_t key, uint64_t &value, uint64_t offset = 0) {
    net.post([&] {
      return fi_read(net[0].ep, &value, sizeof value, nullptr, net.at(0, 1), offset, key, nullptr);
    });
    return net.wait(net[0].tx_cq).err;
  }
  Net net;
};

// The hardware would refuse nothing to a key that is cached, so there are none.
#define CACHE_NEEDED() \
  if (is_over_libcxi()) GTEST_SKIP() << "the backend for the hardware caches no keys"

bool few_entries(const char *setting = "FI_CXI_PROV_KEY_CACHE=1") {
  return in_fresh_process(
      {"FI_CXI_SOFT_LIST_ENTRIES=60", "FI_CXI_SOFT_DEVICES=cxi0=127.0.0.44", setting});
}

// How many of kRegions can be open at a time.
size_t open_many(KeyPair &pair, std::vector<uint64_t> &memory, std::set<uint64_t> &keys) {
  memory.assign(kRegions, 0);
  std::vector<Handle<fid_mr>> regions;
  for (uint64_t &word : memory) {
    int rc = 0;
    regions.push_back(pair.region(&word, sizeof word, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, &rc));
    if (rc != 0) {
      EXPECT_EQ(rc, -FI_ENOSPC);
      return regions.size() - 1;
    }
    keys.insert(fi_mr_key(regions.back()));
  }
  for (size_t i = 0; i < kRegions; ++i) EXPECT_EQ(pair.write(fi_mr_key(regions[i]), 1000 + i), 0);
  for (size_t i = 0; i < kRegions; ++i) EXPECT_EQ(memory[i], 1000 + i);
  return kRegions;
}

void count_entries(bool are_cached) {
  KeyPair pair;
  std::vector<uint64_t> memory;
  std::set<uint64_t> keys, again;
  const size_t open = open_many(pair, memory, keys);
  if (are_cached) {
    EXPECT_EQ(open, kRegions);
    EXPECT_EQ(open_many(pair, memory, again), kRegions);
    EXPECT_EQ(keys, again) << "the same memory has the same keys";
    return;
  }
  EXPECT_LT(open, kRegions);
  EXPECT_LT(open_many(pair, memory, again), kRegions);
  for (const uint64_t key : again) EXPECT_FALSE(keys.contains(key));
}

TEST(CxiKeyCache, ARegionNeedsNoEntryOfTheNic) {
  CACHE_NEEDED();
  if (few_entries()) count_entries(true);
}
TEST(CxiKeyCache, NorDoesAStandardOne) {
  CACHE_NEEDED();
  if (few_entries("FI_CXI_OPTIMIZED_MRS=0")) count_entries(true);
}
TEST(CxiKeyCache, WithoutItEachRegionHasOne) {
  if (few_entries("FI_CXI_PROV_KEY_CACHE=0")) count_entries(false);
}
TEST(CxiKeyCache, MatchEventsNeedOne) {
  if (few_entries("FI_CXI_MR_MATCH_EVENTS=1")) count_entries(false);
}

TEST(CxiKeyCache, AKeyEndsWithItsRegion) {
  CACHE_NEEDED();
  KeyPair pair;
  uint64_t word = 0, seen = 0;
  Handle<fid_mr> region = pair.region(&word, sizeof word);
  const uint64_t key = fi_mr_key(region);
  EXPECT_TRUE(key & kOfCache);
  EXPECT_EQ(pair.write(key, 1), 0);
  region.reset();
  EXPECT_EQ(pair.write(key, 2), FI_EIO);
  EXPECT_EQ(pair.read(key, seen), FI_EIO);
  EXPECT_EQ(word, 1u);
  region = pair.region(&word, sizeof word);
  EXPECT_EQ(fi_mr_key(region), key);
  EXPECT_EQ(pair.write(key, 3), 0);
  EXPECT_EQ(word, 3u);
}

// Two regions of the same memory have the same key; one of them may go.
TEST(CxiKeyCache, RegionsMayOverlap) {
  CACHE_NEEDED();
  KeyPair pair;
  uint64_t words[4] = {};
  Handle<fid_mr> whole = pair.region(words, sizeof words), same = pair.region(words, sizeof words),
                 part = pair.region(words + 1, 16);
  EXPECT_EQ(fi_mr_key(whole), fi_mr_key(same));
  same.reset();
  EXPECT_EQ(pair.write(fi_mr_key(whole), 7, 24), 0);
  EXPECT_EQ(pair.write(fi_mr_key(part), 8, 8), 0);
  EXPECT_EQ(words[3], 7u);
  EXPECT_EQ(words[2], 8u);
  whole.reset();
  EXPECT_EQ(pair.write(fi_mr_key(part), 9), 0);
  EXPECT_EQ(words[1], 9u);
}

TEST(CxiKeyCache, RightsAndBoundsHold) {
  CACHE_NEEDED();
  KeyPair pair;
  uint64_t words[3] = {1, 2, 3}, seen = 0;
  const Handle<fid_mr> readable = pair.region(&words[0], 8, FI_REMOTE_READ),
                       writable = pair.region(&words[2], 8, FI_REMOTE_WRITE);
  EXPECT_EQ(pair.write(fi_mr_key(readable), 9), FI_EIO);
  EXPECT_EQ(pair.read(fi_mr_key(readable), seen), 0);
  EXPECT_EQ(seen, 1u);
  EXPECT_EQ(pair.read(fi_mr_key(writable), seen), FI_EIO);
  EXPECT_EQ(pair.write(fi_mr_key(writable), 9), 0);
  EXPECT_EQ(words[2], 9u);
  for (const uint64_t offset : {uint64_t{4}, uint64_t{8}, uint64_t{1} << 40})
    EXPECT_EQ(pair.read(fi_mr_key(readable), seen, offset), FI_EIO);
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[1], 2u);
}

TEST(CxiKeyCache, ARegionIsOpenWhenItIsEnabled) {
  CACHE_NEEDED();
  KeyPair pair;
  uint64_t word = 0;
  const Handle<fid_mr> other = pair.region(&word, 4);
  Handle<fid_mr> region;
  must(fi_mr_reg(pair.net[1].domain, &word, sizeof word, FI_REMOTE_WRITE, 0, 0, 0, region.out(),
                 nullptr));
  must(fi_mr_bind(region, pair.net[1].ep.fid(), 0));
  EXPECT_EQ(pair.write(fi_mr_key(region), 5), FI_EIO);
  must(fi_mr_enable(region));
  EXPECT_EQ(pair.write(fi_mr_key(region), 5), 0);
  EXPECT_EQ(word, 5u);
}

void reach_with_atomics_and_data() {
  KeyPair pair(FI_RMA_EVENT);
  uint64_t words[2] = {10, 20}, one = 5, before = 0;
  const Handle<fid_mr> region = pair.region(words, sizeof words);
  const uint64_t key = fi_mr_key(region);
  EXPECT_TRUE(key & kOfCache);
  pair.net.post([&] {
    return fi_fetch_atomic(pair.net[0].ep, &one, 1, nullptr, &before, nullptr, pair.net.at(0, 1), 8,
                           key, FI_UINT64, FI_SUM, nullptr);
  });
  EXPECT_EQ(pair.net.wait(pair.net[0].tx_cq).err, 0);
  EXPECT_EQ(before, 20u);
  EXPECT_EQ(words[1], 25u);
  pair.net.post([&] {
    return fi_writedata(pair.net[0].ep, &one, sizeof one, nullptr, 4711, pair.net.at(0, 1), 0, key,
                        nullptr);
  });
  EXPECT_EQ(pair.net.wait(pair.net[0].tx_cq).err, 0);
  EXPECT_EQ(pair.net.wait(pair.net[1].rx_cq).data, 4711u);
  EXPECT_EQ(words[0], 5u);
}

TEST(CxiKeyCache, AtomicsAndDataReachARegion) {
  CACHE_NEEDED();
  reach_with_atomics_and_data();
}
TEST(CxiKeyCache, AndAStandardOne) {
  CACHE_NEEDED();
  if (in_fresh_process({"FI_CXI_OPTIMIZED_MRS=0"})) reach_with_atomics_and_data();
}

// ---- what needs events has keys of its own ----

Handle<fid_mr> counted(KeyPair &pair, uint64_t &word, uint64_t flags, fid_cntr *counter) {
  Handle<fid_mr> region;
  must(fi_mr_reg(pair.net[1].domain, &word, sizeof word, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 0,
                 flags, region.out(), nullptr));
  must(fi_mr_bind(region, pair.net[1].ep.fid(), 0));
  must(fi_mr_bind(region, &counter->fid, FI_REMOTE_WRITE));
  must(fi_mr_enable(region));
  return region;
}

TEST(CxiKeyCache, ARegionWithACounterHasItsOwnKey) {
  CACHE_NEEDED();
  KeyPair pair(FI_RMA_EVENT);
  fid_cntr *const counter = pair.net[1].count(0);
  uint64_t words[2] = {};
  const Handle<fid_mr> announced = counted(pair, words[0], FI_RMA_EVENT, counter),
                       other = counted(pair, words[1], 0, counter);
  for (const fid_mr *const region : {announced.get(), other.get()}) {
    EXPECT_FALSE(region->key & kOfCache);
    EXPECT_EQ(pair.write(region->key, 6), 0);
  }
  pair.net.wait_count(counter, 2);
  // One that has the other kind of key by now keeps it.
  uint64_t third = 0;
  const Handle<fid_mr> late = pair.region(&third, sizeof third);
  EXPECT_EQ(fi_mr_bind(late, &counter->fid, FI_REMOTE_WRITE), -FI_EOPBADSTATE);
}

// A counter of the endpoint counts them all.
TEST(CxiKeyCache, TheEndpointCountsAllTheSame) {
  KeyPair pair(FI_RMA_EVENT);
  uint64_t word = 0;
  const Handle<fid_mr> region = pair.region(&word, sizeof word);
  EXPECT_EQ(pair.write(fi_mr_key(region), 1), 0);
  Handle<fid_cntr> counter;
  must(fi_cntr_open(pair.net[1].domain, nullptr, counter.out(), nullptr));
  must(fi_ep_bind(pair.net[1].ep, &counter->fid, FI_REMOTE_WRITE));
  EXPECT_EQ(pair.write(fi_mr_key(region), 2), 0);
  pair.net.wait_count(counter, 1);
  pair.net[1].ep.reset();  // it uses the counter
}

TEST(CxiKeyCache, ADomainMayGoWithout) {
  CACHE_NEEDED();
  const Options options = KeyPair::options();
  Application owner(options);
  const Info found = find_info(options, FI_SOURCE);
  owner.open_fabric(found.get());
  bool value = false;
  must(fi_control(owner.domain.fid(), FI_OPT_CXI_SET_PROV_KEY_CACHE, &value));
  uint64_t word = 0;
  Handle<fid_mr> region;
  const auto open = [&] {
    region.reset();
    must(fi_mr_reg(owner.domain, &word, sizeof word, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 0, 0,
                   region.out(), nullptr));
    return fi_mr_key(region);
  };
  const uint64_t first = open();
  EXPECT_FALSE(first & kOfCache);
  EXPECT_NE(open(), first);
  value = true;
  EXPECT_EQ(fi_control(owner.domain.fid(), FI_OPT_CXI_SET_PROV_KEY_CACHE, &value), -FI_EINVAL)
      << "there is a region";
  region.reset();
  must(fi_control(owner.domain.fid(), FI_OPT_CXI_SET_PROV_KEY_CACHE, &value));
  const uint64_t cached = open();
  EXPECT_TRUE(cached & kOfCache);
  EXPECT_EQ(fi_control(owner.domain.fid(), FI_OPT_CXI_SET_PROV_KEY_CACHE, &value), -FI_EINVAL);
  EXPECT_EQ(open(), cached);
}

}  // namespace
}  // namespace weft::conformance::rdm
