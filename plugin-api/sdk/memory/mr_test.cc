// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/memory/mr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_mr.h"
#include "weft/sdk/objects/eq.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- registering ----

TEST(MrReg, GivesTheObjectAndTheKey) {
  TestRegions t;
  char memory[64];
  Mr *mr = t.reg({iov_at(memory, sizeof memory)}, 17);
  EXPECT_EQ(mr->base()->fclass, size_t(FI_CLASS_MR));
  EXPECT_EQ(mr->base()->context, &t);
  EXPECT_EQ(fi_mr_key(mr->c()), 17u);
  EXPECT_EQ(mr->key(), 17u);
  EXPECT_NE(fi_mr_desc(mr->c()), nullptr);
  EXPECT_EQ(mr->access(), kRemoteAccess);
  EXPECT_TRUE(mr->enabled());
  EXPECT_EQ(t.domain.context.children.load(), 1u);
}

TEST(MrReg, RefusesAKeyThatIsInUse) {
  TestRegions t;
  char memory[64];
  Mr *mr = t.reg({iov_at(memory, 64)}, 5);
  auto again = t.try_reg({iov_at(memory, 64)}, 5);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, FI_ENOKEY);
  EXPECT_THAT(again.error().text, HasSubstr("0x5"));
  t.reg({iov_at(memory, 64)}, 6);
  EXPECT_EQ(t.close(mr), 0);
  t.reg({iov_at(memory, 64)}, 5);
}

// No peer reaches it by its key, so any number of them may have the same one, and leave it to a
// region that peers do reach.
TEST(MrReg, WhatNoPeerReachesTakesNoKey) {
  TestRegions t;
  char memory[64];
  Mr *const first = t.reg({iov_at(memory, 64)}, 5, FI_SEND | FI_RECV);
  Mr *const second = t.reg({iov_at(memory, 64)}, 5, FI_READ | FI_WRITE);
  EXPECT_EQ(fi_mr_key(second->c()), 5u);
  Mr *const open = t.reg({iov_at(memory, 64)}, 5, FI_REMOTE_READ);
  EXPECT_FALSE(t.try_reg({iov_at(memory, 64)}, 5, FI_REMOTE_WRITE));
  EXPECT_EQ(t.close(first), 0);
  EXPECT_EQ(t.close(second), 0);
  EXPECT_FALSE(t.try_reg({iov_at(memory, 64)}, 5, FI_REMOTE_WRITE)) << "it is still there";
  EXPECT_EQ(t.close(open), 0);
  t.reg({iov_at(memory, 64)}, 5);
}

TEST(MrReg, ProviderKeysAreRandomAndDistinct) {
  TestRegions t({.provider_keys = true});
  char memory[64];
  std::set<uint64_t> keys;
  uint64_t all_set = ~UINT64_C(0), all_clear = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t key = t.reg({iov_at(memory, 64)}, 5)->key();  // the requested key is ignored
    EXPECT_NE(key, FI_KEY_NOTAVAIL);
    keys.insert(key);
    all_set &= key;
    all_clear |= key;
  }
  EXPECT_EQ(keys.size(), 1000u);
  EXPECT_EQ(all_set, 0u) << "each bit is 0 in some";
  EXPECT_EQ(all_clear, ~UINT64_C(0)) << "and 1 in others";
}

TEST(MrReg, RefusesInvalidArguments) {
  TestRegions t({.iov_limit = 2});
  char memory[64];
  const iovec good = iov_at(memory, 64);
  const auto code = [&](Result<Mr *> opened) {
    EXPECT_FALSE(opened);
    return opened ? 0 : opened.error().code;
  };
  EXPECT_EQ(code(t.try_reg({})), FI_EINVAL);
  EXPECT_EQ(code(t.try_reg({good, good, good})), FI_EINVAL);
  EXPECT_EQ(code(t.try_reg({good}, 0, UINT64_C(1) << 63)), FI_EINVAL);
  EXPECT_EQ(code(t.try_reg({good}, 0, kRemoteAccess, FI_PEEK)), FI_EBADFLAGS);
  EXPECT_EQ(code(t.try_reg({iov_at(memory, SIZE_MAX)})), FI_EINVAL) << "past the end of all memory";
  EXPECT_EQ(code(t.try_reg({iov_at(nullptr, SIZE_MAX), iov_at(nullptr, 1)})), FI_EINVAL)
      << "too long";
  fi_mr_attr attr{};
  attr.mr_iov = &good;
  attr.iov_count = 1;
  attr.offset = 1;
  EXPECT_EQ(code(t.table.reg(attr, 0)), FI_EINVAL);
  attr.offset = 0;
  attr.mr_iov = nullptr;
  EXPECT_EQ(code(t.table.reg(attr, 0)), FI_EINVAL);
  t.domain.instance.refuse = true;
  EXPECT_EQ(code(t.try_reg({good})), FI_EOTHER);
  EXPECT_EQ(t.table.size(), 0u);
  EXPECT_EQ(t.domain.context.children.load(), 0u);
  t.domain.instance.refuse = false;
  t.reg({good});  // the key is still free
}

TEST(MrReg, ReadsOnlyTheFieldsOfAnOldCallersStruct) {
  // fi_mr.3: the authorization key counts from API 1.5, the interface with FI_HMEM only.
  TestRegions t;
  char memory[64];
  const iovec iov = iov_at(memory, 64);
  const size_t size = offsetof(fi_mr_attr, auth_key_size);
  const std::unique_ptr<void, void (*)(void *)> old(std::malloc(size), std::free);
  std::memset(old.get(), 0, size);
  auto *attr = static_cast<fi_mr_attr *>(old.get());
  attr->mr_iov = &iov;
  attr->iov_count = 1;
  attr->access = FI_REMOTE_READ;
  auto opened = t.table.reg(*attr, 0);
  ASSERT_TRUE(opened) << opened.error().text;
  EXPECT_EQ(t.close(*opened), 0);
  fi_mr_attr odd{};
  odd.mr_iov = &iov;
  odd.iov_count = 1;
  put(odd.iface, 12345);
  opened = t.table.reg(odd, 0);
  ASSERT_TRUE(opened) << opened.error().text;
  EXPECT_EQ(t.close(*opened), 0);
}

TEST(MrReg, ManyThreadsRegisterAtOnce) {
  TestRegions t({.provider_keys = true});
  std::vector<std::unique_ptr<Sleeper>> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.push_back(std::make_unique<Sleeper>([&] {
      char memory[16];
      for (int k = 0; k < 200; ++k) {
        auto opened = t.try_reg({iov_at(memory, sizeof memory)});
        ASSERT_TRUE(opened);
        EXPECT_EQ(t.resolve((*opened)->key(), 0, 16), MrReject::kNone);
        EXPECT_EQ(fi_close((*opened)->base()), 0);
      }
    }));
  for (auto &thread : threads) EXPECT_TRUE(thread->eventually_done());
}

// ---- from a key to memory ----

TEST(MrResolve, GivesTheReasonOfARejection) {
  TestRegions t({.enable_needed = true});
  char memory[64];
  t.reg({iov_at(memory, 64)}, 1, FI_REMOTE_READ);
  Mr *closed = t.reg({iov_at(memory, 64)}, 2, kRemoteAccess, FI_RMA_EVENT);
  EXPECT_EQ(t.resolve(3, 0, 8), MrReject::kNoKey);
  EXPECT_EQ(t.resolve(3, 0, 0), MrReject::kNoKey) << "for zero bytes too";
  EXPECT_EQ(t.resolve(1, 0, 8, FI_REMOTE_WRITE), MrReject::kAccess);
  EXPECT_EQ(t.resolve(1, 0, 8, kRemoteAccess), MrReject::kAccess);
  EXPECT_EQ(t.resolve(1, 0, 8, FI_REMOTE_READ), MrReject::kNone);
  EXPECT_EQ(t.resolve(2, 0, 8), MrReject::kDisabled);
  EXPECT_EQ(fi_mr_enable(closed->c()), 0);
  EXPECT_EQ(t.resolve(2, 0, 8), MrReject::kNone);
  EXPECT_EQ(t.resolve(2, 60, 8), MrReject::kRange);
  std::set<std::string> texts;
  for (const auto reject : {MrReject::kNone, MrReject::kNoKey, MrReject::kDisabled,
                            MrReject::kAccess, MrReject::kRange, static_cast<MrReject>(77)})
    texts.insert(text_of(reject));
  EXPECT_EQ(texts.size(), 6u);
}

TEST(MrResolve, ChecksTheBoundsOfOffsets) {
  TestRegions t;
  char memory[64];
  t.reg({iov_at(memory, 64)}, 1);
  const auto ok = [&](uint64_t offset, uint64_t length) {
    return t.resolve(1, offset, length) == MrReject::kNone;
  };
  EXPECT_TRUE(ok(0, 64));
  EXPECT_TRUE(ok(63, 1));
  EXPECT_TRUE(ok(0, 0));
  EXPECT_TRUE(ok(64, 0)) << "zero bytes at the end";
  EXPECT_FALSE(ok(65, 0));
  EXPECT_FALSE(ok(0, 65));
  EXPECT_FALSE(ok(64, 1));
  EXPECT_FALSE(ok(1, 64));
  EXPECT_FALSE(ok(UINT64_MAX, 1));
  EXPECT_FALSE(ok(UINT64_MAX, 2)) << "wraps around to 1";
  EXPECT_FALSE(ok(1, UINT64_MAX));
  EXPECT_FALSE(ok(UINT64_MAX, UINT64_MAX));
  EXPECT_FALSE(ok(address_of(memory), 8)) << "an address is no offset";
}

TEST(MrResolve, ChecksTheBoundsOfVirtualAddresses) {
  TestRegions t({.virtual_addresses = true});
  char memory[66];
  t.reg({iov_at(memory + 1, 64)}, 1);
  const auto ok = [&](uint64_t where, uint64_t length) {
    return t.resolve(1, where, length) == MrReject::kNone;
  };
  EXPECT_TRUE(ok(address_of(memory + 1), 64));
  EXPECT_TRUE(ok(address_of(memory + 65), 0));
  EXPECT_FALSE(ok(address_of(memory), 1));
  EXPECT_FALSE(ok(address_of(memory), 66));
  EXPECT_FALSE(ok(address_of(memory + 65), 1));
  EXPECT_FALSE(ok(address_of(memory + 2), 64));
  EXPECT_FALSE(ok(0, 1));
  EXPECT_FALSE(ok(address_of(memory + 1), UINT64_MAX));
  EXPECT_FALSE(ok(UINT64_MAX, 2));
}

TEST(MrResolve, AnEmptyRegionAllowsZeroBytesOnly) {
  for (const bool virtual_addresses : {false, true}) {
    TestRegions t({.virtual_addresses = virtual_addresses});
    char memory[4];
    t.reg({iov_at(memory, 0)}, 1);
    const uint64_t base = virtual_addresses ? address_of(memory) : 0;
    EXPECT_EQ(t.resolve(1, base, 0), MrReject::kNone);
    EXPECT_EQ(t.resolve(1, base, 1), MrReject::kRange);
  }
}

TEST(MrResolve, ARegionMayEndWhereMemoryEnds) {
  TestRegions t({.virtual_addresses = true});
  t.reg({iov_at(reinterpret_cast<void *>(UINTPTR_MAX - 15), 15)}, 1);
  EXPECT_EQ(t.resolve(1, UINTPTR_MAX - 15, 15), MrReject::kNone);
  EXPECT_EQ(t.resolve(1, UINTPTR_MAX - 15, 16), MrReject::kRange);
  EXPECT_EQ(t.resolve(1, UINTPTR_MAX - 1, 3), MrReject::kRange);
}

TEST(MrResolve, AgreesWithAModelForRandomRanges) {
  // Against a model: a table with the address of each byte.
  std::mt19937_64 random(20240117);
  const auto below = [&](uint64_t n) { return random() % n; };
  std::vector<char> memory(256);
  for (int round = 0; round < 300; ++round) {
    const bool virtual_addresses = below(2) != 0;
    TestRegions t({.virtual_addresses = virtual_addresses});
    std::vector<iovec> iov;
    std::vector<char *> bytes;
    for (uint64_t i = 1 + below(4); i != 0; --i) {
      const uint64_t from = below(200), length = below(5) == 0 ? 0 : below(50);
      iov.push_back(iov_at(memory.data() + from, length));
      for (uint64_t k = 0; k < length; ++k) bytes.push_back(memory.data() + from + k);
    }
    t.reg(iov, 1);
    const uint64_t base = virtual_addresses ? address_of(iov[0].iov_base) : 0;
    for (int i = 0; i < 100; ++i) {
      const uint64_t offset = below(bytes.size() + 3), length = below(bytes.size() + 3);
      iovec out[5] = {};
      Guard guard(t.domain.engine.lock());
      const auto found = t.table.resolve(1, base + offset, length, FI_REMOTE_READ, out, 4);
      if (offset + length > bytes.size()) {
        ASSERT_EQ(found.reject, MrReject::kRange);
        continue;
      }
      ASSERT_EQ(found.reject, MrReject::kNone);
      ASSERT_LE(found.count, 4u);
      uint64_t at_byte = offset;
      for (size_t k = 0; k < found.count; ++k) {
        ASSERT_NE(out[k].iov_len, 0u);
        for (size_t b = 0; b < out[k].iov_len; ++b)
          ASSERT_EQ(static_cast<char *>(out[k].iov_base) + b, bytes[at_byte++]);
      }
      ASSERT_EQ(at_byte, offset + length);
      // With too few iovecs the call fails and writes nothing behind them.
      if (found.count > 1) {
        iovec little[5] = {};
        const auto none =
            t.table.resolve(1, base + offset, length, FI_REMOTE_READ, little, found.count - 1);
        ASSERT_EQ(none.reject, MrReject::kRange);
        ASSERT_EQ(little[found.count - 1].iov_base, nullptr);
      }
    }
  }
}

// Regions of a layer (weft/sdk/layers/carrier.h): in every mode only one peer can reach them.
TEST(MrHolder, OnlyItsPeerReachesARegion) {
  for (const int mode : {0, int(FI_MR_PROV_KEY), int(FI_MR_ENDPOINT), int(FI_MR_RMA_EVENT)}) {
    SCOPED_TRACE(mode);
    TestDomain domain;
    MrTable table(domain.context, MrTable::Mode::of(mode));
    char memory[64];
    const iovec iov = iov_at(memory, 64);
    fi_mr_attr attr{};
    attr.mr_iov = &iov;
    attr.iov_count = 1;
    attr.access = FI_REMOTE_READ;
    const uint64_t first = table.new_holder(), second = table.new_holder();
    EXPECT_NE(first, 0u);
    EXPECT_NE(first, second);
    std::vector<Mr *> regions;
    std::set<uint64_t> keys;
    for (int i = 0; i < 100; ++i) {
      regions.push_back(*table.reg(attr, 0, first));
      keys.insert(regions.back()->key());
    }
    EXPECT_EQ(keys.size(), 100u);
    EXPECT_GT(*keys.rbegin() - *keys.begin(), UINT64_C(1) << 32) << "such keys can be guessed";
    iovec out[4];
    const uint64_t key = *keys.begin();
    const auto reject = [&](uint64_t holder, uint64_t access) {
      return table.resolve(key, 0, 64, access, out, 4, {.holder = holder}).reject;
    };
    EXPECT_EQ(reject(first, FI_REMOTE_READ), MrReject::kNone);
    EXPECT_EQ(reject(first, FI_REMOTE_WRITE), MrReject::kAccess);
    EXPECT_EQ(reject(second, FI_REMOTE_READ), MrReject::kNoKey);
    EXPECT_EQ(reject(0, FI_REMOTE_READ), MrReject::kNoKey);
    for (Mr *mr : regions) EXPECT_EQ(fi_close(mr->base()), 0);
  }
}

// ---- closing ----

TEST(MrClose, AsksTheOwnersOfPinsToRelease) {
  TestRegions t;
  char memory[64];
  Mr *mr = t.reg({iov_at(memory, 64)}, 1);
  EXPECT_FALSE(t.table.on_close);
  mr->pins = 2;
  EXPECT_EQ(t.close(mr), -FI_EBUSY) << "no on_close is set";
  EXPECT_EQ(t.resolve(1, 0, 8), MrReject::kNone);
  std::vector<Mr *> asked;
  t.table.on_close = [&](Mr &pinned) {
    asked.push_back(&pinned);
    --pinned.pins;
  };
  EXPECT_EQ(t.close(mr), -FI_EBUSY) << "one pin is left";
  EXPECT_EQ(t.close(mr), 0);
  EXPECT_THAT(asked, ElementsAre(mr, mr));
  EXPECT_EQ(t.resolve(1, 0, 8), MrReject::kNoKey);
  Mr *free = t.reg({iov_at(memory, 64)}, 1);
  EXPECT_EQ(t.close(free), 0);
  EXPECT_EQ(asked.size(), 2u) << "a region without pins is closed without the call";
}

TEST(MrClose, DropsItsUnreadEvent) {
  TestDomain domain;
  fid_fabric fabric{};
  fabric.fid.fclass = FI_CLASS_FABRIC;
  std::atomic<size_t> children{0};
  Eq *eq = *Eq::open(domain.instance.c(), &fabric.fid, children, nullptr, nullptr);
  MrTable table(domain.context, {});
  table.eq = eq;
  char memory[64];
  const iovec iov = iov_at(memory, 64);
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  Mr *mr = *table.reg(attr, 0);
  eq->push(FI_MR_COMPLETE, mr->base(), mr->key());
  EXPECT_EQ(fi_close(mr->base()), 0);
  uint32_t event;
  fi_eq_entry entry;
  EXPECT_EQ(fi_eq_read(eq->c(), &event, &entry, sizeof entry, 0), -FI_EAGAIN);
  EXPECT_EQ(fi_close(eq->base()), 0);
}

// ---- control ----

TEST(MrControl, RefreshIsAllowedAndUnknownCommandsAreNot) {
  TestRegions t;
  char memory[64];
  Mr *mr = t.reg({iov_at(memory, 64)});
  const iovec iov = iov_at(memory, 8);
  EXPECT_EQ(fi_mr_refresh(mr->c(), &iov, 1, 0), 0);
  EXPECT_EQ(fi_mr_refresh(mr->c(), nullptr, 0, 0), 0) << "all of it";
  EXPECT_EQ(fi_mr_refresh(mr->c(), nullptr, 1, 0), -FI_EINVAL);
  EXPECT_EQ(fi_mr_refresh(mr->c(), &iov, 1, FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(fi_control(mr->base(), FI_REFRESH, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_control(mr->base(), FI_GETWAIT, nullptr), -FI_ENOSYS);
}

TEST(MrControl, ARawKeyMapsBackToTheKey) {
  for (const bool virtual_addresses : {false, true}) {
    TestRegions t({.virtual_addresses = virtual_addresses});
    char memory[64];
    Mr *mr = t.reg({iov_at(memory, 64)}, 0x0123456789abcdef);
    uint8_t raw_key[16] = {};
    uint64_t base = 1;
    size_t size = 4;
    EXPECT_EQ(fi_mr_raw_attr(mr->c(), &base, raw_key, &size, 0), -FI_ETOOSMALL);
    ASSERT_EQ(size, 8u);
    EXPECT_EQ(fi_mr_raw_attr(mr->c(), &base, nullptr, &size, 0), -FI_EINVAL);
    EXPECT_EQ(fi_mr_raw_attr(mr->c(), &base, raw_key, &size, 1), -FI_EBADFLAGS);
    EXPECT_EQ(fi_mr_raw_attr(mr->c(), &base, raw_key, nullptr, 0), -FI_EINVAL);
    EXPECT_EQ(fi_control(mr->base(), FI_GET_RAW_MR, nullptr), -FI_EINVAL);
    size = sizeof raw_key;
    ASSERT_EQ(fi_mr_raw_attr(mr->c(), &base, raw_key, &size, 0), 0);
    EXPECT_EQ(size, 8u);
    EXPECT_EQ(base, virtual_addresses ? address_of(memory) : 0);
    EXPECT_EQ(raw_key[0], 0x01) << "the same on every host";
    EXPECT_EQ(raw_key[8], 0);
    uint64_t key = 0;
    struct fi_mr_map_raw map {
      0, base, raw_key, 8, &key
    };
    EXPECT_EQ(MrTable::map_raw(&map), 0);
    EXPECT_EQ(key, mr->key());
    map.key_size = 9;
    EXPECT_EQ(MrTable::map_raw(&map), -FI_EINVAL);
    EXPECT_EQ(MrTable::map_raw(nullptr), -FI_EINVAL);
  }
}

}  // namespace
}  // namespace weft::sdk
