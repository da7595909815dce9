// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/mr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_endpoint.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "plugin-api/sdk/test_instance.h"
#include "weft/sdk/eq.h"

namespace weft::sdk {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kRemote = FI_REMOTE_READ | FI_REMOTE_WRITE;

// The regions of a domain. The destructor closes the open ones.
struct Table {
  explicit Table(MrTable::Mode mode = {}) : table(domain.context, mode) {}
  ~Table() {
    for (Mr *mr : regions) EXPECT_EQ(fi_close(mr->base()), 0);
    EXPECT_EQ(table.size(), 0u);
  }
  Result<Mr *> try_reg(const std::vector<iovec> &iov, uint64_t key = 0, uint64_t access = kRemote,
                       uint64_t flags = 0) {
    fi_mr_attr attr{};
    attr.mr_iov = iov.data();
    attr.iov_count = iov.size();
    attr.access = access;
    attr.requested_key = key;
    attr.context = this;
    return table.reg(attr, flags);
  }
  Mr *reg(const std::vector<iovec> &iov, uint64_t key = 0, uint64_t access = kRemote,
          uint64_t flags = 0) {
    auto opened = try_reg(iov, key, access, flags);
    if (!opened) {
      ADD_FAILURE() << opened.error().text;
      return nullptr;
    }
    regions.push_back(*opened);
    return *opened;
  }
  int close(Mr *mr) {
    const int rc = fi_close(mr->base());
    if (rc == 0) std::erase(regions, mr);
    return rc;
  }
  MrReject resolve(uint64_t key, uint64_t address, uint64_t length,
                   uint64_t access = FI_REMOTE_WRITE) {
    Guard guard(domain.engine.lock());
    iovec out[8];
    const auto found = table.resolve(key, address, length, access, out, 8);
    EXPECT_EQ(found.mr == nullptr, found.reject != MrReject::kNone);
    return found.reject;
  }

  TestDomain domain;
  MrTable table;
  std::vector<Mr *> regions;
};

iovec at(void *base, size_t length) {
  return {base, length};
}
uint64_t address(const void *p) {
  return reinterpret_cast<uintptr_t>(p);
}

// ---- registering ----

TEST(MrReg, GivesTheObjectAndTheKey) {
  Table t;
  char memory[64];
  Mr *mr = t.reg({at(memory, sizeof memory)}, 17);
  EXPECT_EQ(mr->base()->fclass, size_t(FI_CLASS_MR));
  EXPECT_EQ(mr->base()->context, &t);
  EXPECT_EQ(fi_mr_key(mr->c()), 17u);
  EXPECT_EQ(mr->key(), 17u);
  EXPECT_NE(fi_mr_desc(mr->c()), nullptr);
  EXPECT_EQ(mr->access(), kRemote);
  EXPECT_TRUE(mr->enabled());
  EXPECT_EQ(t.domain.context.children.load(), 1u);
}

TEST(MrReg, AKeyIsUsedOnce) {
  Table t;
  char memory[64];
  Mr *mr = t.reg({at(memory, 64)}, 5);
  auto again = t.try_reg({at(memory, 64)}, 5);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, FI_ENOKEY);
  EXPECT_THAT(again.error().text, HasSubstr("0x5"));
  t.reg({at(memory, 64)}, 6);
  EXPECT_EQ(t.close(mr), 0);
  t.reg({at(memory, 64)}, 5);
}

TEST(MrReg, ProviderKeysAreRandomAndDistinct) {
  Table t({.provider_keys = true});
  char memory[64];
  std::set<uint64_t> keys;
  uint64_t all_set = ~UINT64_C(0), all_clear = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t key = t.reg({at(memory, 64)}, 5)->key();  // what was asked for is ignored
    EXPECT_NE(key, FI_KEY_NOTAVAIL);
    keys.insert(key);
    all_set &= key;
    all_clear |= key;
  }
  EXPECT_EQ(keys.size(), 1000u);
  EXPECT_EQ(all_set, 0u) << "each bit is 0 in some";
  EXPECT_EQ(all_clear, ~UINT64_C(0)) << "and 1 in others";
}

TEST(MrReg, WhatIsWrongIsSaid) {
  Table t({.iov_limit = 2});
  char memory[64];
  const iovec good = at(memory, 64);
  const auto code = [&](Result<Mr *> opened) {
    EXPECT_FALSE(opened);
    return opened ? 0 : opened.error().code;
  };
  EXPECT_EQ(code(t.try_reg({})), FI_EINVAL);
  EXPECT_EQ(code(t.try_reg({good, good, good})), FI_EINVAL);
  EXPECT_EQ(code(t.try_reg({good}, 0, UINT64_C(1) << 63)), FI_EINVAL);
  EXPECT_EQ(code(t.try_reg({good}, 0, kRemote, FI_PEEK)), FI_EBADFLAGS);
  EXPECT_EQ(code(t.try_reg({at(memory, SIZE_MAX)})), FI_EINVAL) << "past the end of all memory";
  EXPECT_EQ(code(t.try_reg({at(nullptr, SIZE_MAX), at(nullptr, 1)})), FI_EINVAL) << "too long";
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
  t.reg({good}) /* the key was not kept */;
}

TEST(MrReg, ReadsNoFurtherThanAnOldCallersStruct) {
  // fi_mr.3: the authorization key counts from API 1.5, the interface with FI_HMEM only.
  Table t;
  char memory[64];
  const iovec iov = at(memory, 64);
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

TEST(MrReg, ManyThreadsMayDoIt) {
  Table t({.provider_keys = true});
  std::vector<std::unique_ptr<Sleeper>> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.push_back(std::make_unique<Sleeper>([&] {
      char memory[16];
      for (int k = 0; k < 200; ++k) {
        auto opened = t.try_reg({at(memory, sizeof memory)});
        ASSERT_TRUE(opened);
        EXPECT_EQ(t.resolve((*opened)->key(), 0, 16), MrReject::kNone);
        EXPECT_EQ(fi_close((*opened)->base()), 0);
      }
    }));
  for (auto &thread : threads) EXPECT_TRUE(thread->eventually_done());
}

// ---- the way to memory ----

TEST(MrResolve, SaysWhyNot) {
  Table t({.enable_needed = true});
  char memory[64];
  t.reg({at(memory, 64)}, 1, FI_REMOTE_READ);
  Mr *closed = t.reg({at(memory, 64)}, 2, kRemote, FI_RMA_EVENT);
  EXPECT_EQ(t.resolve(3, 0, 8), MrReject::kNoKey);
  EXPECT_EQ(t.resolve(3, 0, 0), MrReject::kNoKey) << "not even nothing";
  EXPECT_EQ(t.resolve(1, 0, 8, FI_REMOTE_WRITE), MrReject::kAccess);
  EXPECT_EQ(t.resolve(1, 0, 8, kRemote), MrReject::kAccess);
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

TEST(MrResolve, OffsetsAreInBounds) {
  Table t;
  char memory[64];
  t.reg({at(memory, 64)}, 1);
  const auto ok = [&](uint64_t offset, uint64_t length) {
    return t.resolve(1, offset, length) == MrReject::kNone;
  };
  EXPECT_TRUE(ok(0, 64));
  EXPECT_TRUE(ok(63, 1));
  EXPECT_TRUE(ok(0, 0));
  EXPECT_TRUE(ok(64, 0)) << "nothing, at the end";
  EXPECT_FALSE(ok(65, 0));
  EXPECT_FALSE(ok(0, 65));
  EXPECT_FALSE(ok(64, 1));
  EXPECT_FALSE(ok(1, 64));
  EXPECT_FALSE(ok(UINT64_MAX, 1));
  EXPECT_FALSE(ok(UINT64_MAX, 2)) << "wraps around to 1";
  EXPECT_FALSE(ok(1, UINT64_MAX));
  EXPECT_FALSE(ok(UINT64_MAX, UINT64_MAX));
  EXPECT_FALSE(ok(address(memory), 8)) << "an address is no offset";
}

TEST(MrResolve, VirtualAddressesAreInBounds) {
  Table t({.virtual_addresses = true});
  char memory[66];
  t.reg({at(memory + 1, 64)}, 1);
  const auto ok = [&](uint64_t where, uint64_t length) {
    return t.resolve(1, where, length) == MrReject::kNone;
  };
  EXPECT_TRUE(ok(address(memory + 1), 64));
  EXPECT_TRUE(ok(address(memory + 65), 0));
  EXPECT_FALSE(ok(address(memory), 1));
  EXPECT_FALSE(ok(address(memory), 66));
  EXPECT_FALSE(ok(address(memory + 65), 1));
  EXPECT_FALSE(ok(address(memory + 2), 64));
  EXPECT_FALSE(ok(0, 1));
  EXPECT_FALSE(ok(address(memory + 1), UINT64_MAX));
  EXPECT_FALSE(ok(UINT64_MAX, 2));
}

TEST(MrResolve, AnEmptyRegionHasNothing) {
  for (const bool virtual_addresses : {false, true}) {
    Table t({.virtual_addresses = virtual_addresses});
    char memory[4];
    t.reg({at(memory, 0)}, 1);
    const uint64_t base = virtual_addresses ? address(memory) : 0;
    EXPECT_EQ(t.resolve(1, base, 0), MrReject::kNone);
    EXPECT_EQ(t.resolve(1, base, 1), MrReject::kRange);
  }
}

TEST(MrResolve, ARegionMayEndWhereMemoryEnds) {
  Table t({.virtual_addresses = true});
  t.reg({at(reinterpret_cast<void *>(UINTPTR_MAX - 15), 15)}, 1);
  EXPECT_EQ(t.resolve(1, UINTPTR_MAX - 15, 15), MrReject::kNone);
  EXPECT_EQ(t.resolve(1, UINTPTR_MAX - 15, 16), MrReject::kRange);
  EXPECT_EQ(t.resolve(1, UINTPTR_MAX - 1, 3), MrReject::kRange);
}

TEST(MrResolve, AnyRangeOfAnyBuffersIsWhatItSays) {
  // Against a model: a table with the address of each byte.
  std::mt19937_64 random(20240117);
  const auto below = [&](uint64_t n) { return random() % n; };
  std::vector<char> memory(256);
  for (int round = 0; round < 300; ++round) {
    const bool virtual_addresses = below(2) != 0;
    Table t({.virtual_addresses = virtual_addresses});
    std::vector<iovec> iov;
    std::vector<char *> bytes;
    for (uint64_t i = 1 + below(4); i != 0; --i) {
      const uint64_t from = below(200), length = below(5) == 0 ? 0 : below(50);
      iov.push_back(at(memory.data() + from, length));
      for (uint64_t k = 0; k < length; ++k) bytes.push_back(memory.data() + from + k);
    }
    t.reg(iov, 1);
    const uint64_t base = virtual_addresses ? address(iov[0].iov_base) : 0;
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

// ---- counters ----

struct Counter {
  explicit Counter(TestDomain &domain, enum fi_cntr_events events = FI_CNTR_EVENTS_COMP) {
    fi_cntr_attr attr{};
    attr.events = events;
    cntr = *Cntr::open(domain.context, &attr, nullptr);
  }
  ~Counter() { EXPECT_EQ(fi_close(cntr->base()), 0); }
  uint64_t value() { return fi_cntr_read(cntr->c()); }
  Cntr *cntr;
};

TEST(MrCounter, CountsWhatPeersDo) {
  TestDomain domain;
  Counter writes(domain), reads(domain, FI_CNTR_EVENTS_BYTES), both(domain);
  MrTable table(domain.context, {});
  char memory[64];
  const iovec iov = at(memory, 64);
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  Mr *mr = *table.reg(attr, FI_RMA_EVENT);
  attr.requested_key = 1;
  Mr *other = *table.reg(attr, 0);
  mr->count_remote(FI_REMOTE_WRITE, 10);  // no counter is bound
  EXPECT_EQ(fi_mr_bind(mr->c(), writes.cntr->base(), FI_REMOTE_WRITE), 0);
  EXPECT_EQ(fi_mr_bind(mr->c(), reads.cntr->base(), FI_REMOTE_READ), 0);
  EXPECT_EQ(fi_mr_bind(other->c(), both.cntr->base(), FI_REMOTE_READ | FI_REMOTE_WRITE), 0);
  {
    Guard guard(domain.engine.lock());
    mr->count_remote(FI_REMOTE_WRITE, 10);
    mr->count_remote(FI_REMOTE_READ, 20);
    other->count_remote(FI_REMOTE_WRITE, 1);
    other->count_remote(FI_REMOTE_READ, 1);
  }
  EXPECT_EQ(writes.value(), 1u);
  EXPECT_EQ(reads.value(), 20u);
  EXPECT_EQ(both.value(), 2u);
  EXPECT_EQ(fi_close(both.cntr->base()), -FI_EBUSY);
  EXPECT_EQ(fi_close(other->base()), 0);
  EXPECT_EQ(both.cntr->users.load(), 0u);
  EXPECT_EQ(fi_close(mr->base()), 0);
}

// Regions of a layer (weft/sdk/carrier.h): in every mode only one peer can reach them.
TEST(MrHolder, OnlyItsPeerReachesARegion) {
  for (const int mode : {0, int(FI_MR_PROV_KEY), int(FI_MR_ENDPOINT), int(FI_MR_RMA_EVENT)}) {
    SCOPED_TRACE(mode);
    TestDomain domain;
    MrTable table(domain.context, MrTable::Mode::of(mode));
    char memory[64];
    const iovec iov = at(memory, 64);
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
    EXPECT_GT(*keys.rbegin() - *keys.begin(), UINT64_C(1) << 32) << "keys that can be guessed";
    iovec out[4];
    const uint64_t key = *keys.begin();
    const auto reject = [&](uint64_t holder, uint64_t access) {
      return table.resolve(key, 0, 64, access, out, 4, holder).reject;
    };
    EXPECT_EQ(reject(first, FI_REMOTE_READ), MrReject::kNone);
    EXPECT_EQ(reject(first, FI_REMOTE_WRITE), MrReject::kAccess);
    EXPECT_EQ(reject(second, FI_REMOTE_READ), MrReject::kNoKey);
    EXPECT_EQ(reject(0, FI_REMOTE_READ), MrReject::kNoKey);
    for (Mr *mr : regions) EXPECT_EQ(fi_close(mr->base()), 0);
  }
}

TEST(MrBind, WhatIsWrongIsRefusedWhole) {
  TestDomain domain, other_domain;
  Counter counter(domain), second(domain), other(other_domain);
  MrTable table(domain.context, {});
  char memory[64];
  const iovec iov = at(memory, 64);
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  Mr *mr = *table.reg(attr, 0);
  EXPECT_EQ(fi_mr_bind(mr->c(), nullptr, FI_REMOTE_WRITE), -FI_EINVAL);
  EXPECT_EQ(fi_mr_bind(mr->c(), mr->base(), FI_REMOTE_WRITE), -FI_EINVAL);
  EXPECT_EQ(fi_mr_bind(mr->c(), counter.cntr->base(), 0), -FI_EBADFLAGS);
  EXPECT_EQ(fi_mr_bind(mr->c(), counter.cntr->base(), FI_REMOTE_WRITE | FI_SEND), -FI_EBADFLAGS);
  EXPECT_EQ(fi_mr_bind(mr->c(), other.cntr->base(), FI_REMOTE_WRITE), -FI_EINVAL);
  EXPECT_EQ(fi_mr_bind(mr->c(), counter.cntr->base(), FI_REMOTE_READ), 0);
  EXPECT_EQ(fi_mr_bind(mr->c(), second.cntr->base(), kRemote), -FI_EBUSY);
  EXPECT_EQ(second.cntr->users.load(), 0u) << "not half of it either";
  EXPECT_EQ(fi_mr_bind(mr->c(), second.cntr->base(), FI_REMOTE_WRITE), 0);
  struct fid endpoint {};
  endpoint.fclass = FI_CLASS_EP;
  EXPECT_EQ(fi_mr_bind(mr->c(), &endpoint, 0), 0) << "allowed, and means nothing here";
  EXPECT_EQ(fi_mr_bind(mr->c(), &endpoint, FI_TRANSMIT), -FI_EBADFLAGS);
  EXPECT_EQ(fi_close(mr->base()), 0);
}

TEST(MrBind, AnotherProvidersCounterOfTheSameTableIsRefused) {
  // The same instance, another domain: counting would happen under the wrong lock.
  TestDomain domain;
  Engine second_engine(true);
  DomainContext second;
  second.instance = domain.instance.c();
  second.engine = &second_engine;
  Cntr *cntr = *Cntr::open(second, nullptr, nullptr);
  MrTable table(domain.context, {});
  char memory[64];
  const iovec iov = at(memory, 64);
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  Mr *mr = *table.reg(attr, 0);
  EXPECT_EQ(fi_mr_bind(mr->c(), cntr->base(), FI_REMOTE_WRITE), -FI_EINVAL);
  EXPECT_EQ(fi_close(mr->base()), 0);
  EXPECT_EQ(fi_close(cntr->base()), 0);
}

TEST(MrBind, NotAfterEnabling) {
  TestDomain domain;
  Counter counter(domain);
  MrTable table(domain.context, {.enable_needed = true});
  char memory[64];
  const iovec iov = at(memory, 64);
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  Mr *mr = *table.reg(attr, FI_RMA_EVENT);
  EXPECT_FALSE(mr->enabled());
  EXPECT_EQ(fi_mr_bind(mr->c(), counter.cntr->base(), FI_REMOTE_READ), 0);
  EXPECT_EQ(fi_mr_enable(mr->c()), 0);
  EXPECT_TRUE(mr->enabled());
  EXPECT_EQ(fi_mr_bind(mr->c(), counter.cntr->base(), FI_REMOTE_WRITE), -FI_EOPBADSTATE);
  attr.requested_key = 1;
  Mr *plain = *table.reg(attr, 0);
  EXPECT_TRUE(plain->enabled());
  EXPECT_EQ(fi_close(plain->base()), 0);
  EXPECT_EQ(fi_close(mr->base()), 0);
}

// ---- every mr_mode ----

struct Endpoint final : Object<Endpoint, fid_ep> {
  explicit Endpoint(const weft_instance *instance, size_t fclass = FI_CLASS_EP)
      : Object(instance, fclass, nullptr) {}
};

TEST(MrMode, BitsBecomeWhatTheTableDoes) {
  const auto text = [](int mr_mode) {
    const MrTable::Mode mode = MrTable::Mode::of(mr_mode);
    return std::string(mode.virtual_addresses ? "v" : "") + (mode.provider_keys ? "k" : "") +
           (mode.enable_needed ? "r" : "") + (mode.endpoint_needed ? "e" : "");
  };
  EXPECT_EQ(text(0), "");
  EXPECT_EQ(text(FI_MR_BASIC), "vk");
  EXPECT_EQ(text(FI_MR_SCALABLE), "");
  EXPECT_EQ(text(FI_MR_VIRT_ADDR), "v");
  EXPECT_EQ(text(FI_MR_PROV_KEY), "k");
  EXPECT_EQ(text(FI_MR_RMA_EVENT), "r");
  EXPECT_EQ(text(FI_MR_ENDPOINT), "e");
  EXPECT_EQ(text(FI_MR_LOCAL | FI_MR_RAW | FI_MR_ALLOCATED | FI_MR_MMU_NOTIFY | FI_MR_HMEM |
                 FI_MR_COLLECTIVE),
            "");
}

// An application that registers memory under one value of mr_mode. It does all that fi_mr.3 asks
// for under that mode, and nothing else.
class ModeApplication {
 public:
  explicit ModeApplication(int mode)
      : mode_(mode), table_(domain_.context, MrTable::Mode::of(mode)) {}

  void run() {
    using Self = ModeApplication;
    for (const auto part : {&Self::open, &Self::enable, &Self::exchange_key,
                            &Self::write_from_a_peer, &Self::register_again, &Self::close}) {
      (this->*part)();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  bool basic() const { return mode_ == FI_MR_BASIC; }
  bool bits() const { return !basic() && mode_ != FI_MR_SCALABLE; }
  bool has(int bit) const { return bits() && (mode_ & bit) != 0; }
  bool provider_chooses_the_key() const { return basic() || has(FI_MR_PROV_KEY); }
  bool counted() const { return bits(); }  // every set of bits allows the flag FI_RMA_EVENT

  MrTable::Access resolve(uint64_t key, uint64_t where, uint64_t length) {
    Guard guard(domain_.engine.lock());
    return table_.resolve(key, where, length, FI_REMOTE_WRITE, out_, 4);
  }

  void open() {
    attr_.mr_iov = iov_;
    attr_.iov_count = 4;
    attr_.access = kRemote | (has(FI_MR_LOCAL) ? FI_SEND | FI_RECV | FI_READ | FI_WRITE : 0) |
                   (has(FI_MR_COLLECTIVE) ? FI_COLLECTIVE : 0);
    attr_.requested_key = 0x8000000000000001;
    auto opened = table_.reg(attr_, counted() ? FI_RMA_EVENT : 0);
    ASSERT_TRUE(opened) << opened.error().text;
    mr_ = *opened;
    EXPECT_NE(fi_mr_desc(mr_->c()), nullptr);
    key_ = fi_mr_key(mr_->c());
    base_ = basic() || has(FI_MR_VIRT_ADDR) ? address(iov_[0].iov_base) : 0;
  }

  void enable() {
    const bool disabled = has(FI_MR_RMA_EVENT) || has(FI_MR_ENDPOINT);
    EXPECT_EQ(resolve(key_, base_, 1).reject, disabled ? MrReject::kDisabled : MrReject::kNone);
    if (counted()) {
      EXPECT_EQ(fi_mr_bind(mr_->c(), counter_.cntr->base(), FI_REMOTE_WRITE), 0);
    }
    if (has(FI_MR_ENDPOINT)) {
      EXPECT_EQ(fi_mr_bind(mr_->c(), endpoint_.base(), 0), 0);
    }
    if (disabled) {
      EXPECT_EQ(fi_mr_enable(mr_->c()), 0);
    }
    if (has(FI_MR_MMU_NOTIFY)) {
      EXPECT_EQ(fi_mr_refresh(mr_->c(), iov_, 4, 0), 0);
    }
  }

  // The peer's key: the region's own one, or one that fi_mr_map_raw makes from the raw key.
  void exchange_key() {
    if (has(FI_MR_RAW)) {
      uint8_t raw_key[8];
      size_t size = sizeof raw_key;
      uint64_t told = 1;
      ASSERT_EQ(fi_mr_raw_attr(mr_->c(), &told, raw_key, &size, 0), 0);
      EXPECT_EQ(told, base_);
      struct fi_mr_map_raw map {
        0, told, raw_key, size, &key_
      };
      key_ = 0;
      ASSERT_EQ(MrTable::map_raw(&map), 0);
    }
    EXPECT_EQ(key_ != attr_.requested_key, provider_chooses_the_key());
  }

  // 11 bytes from offset 8 on lie in three of the buffers.
  void write_from_a_peer() {
    const auto found = resolve(key_, base_ + 8, 11);
    ASSERT_EQ(found.reject, MrReject::kNone) << text_of(found.reject);
    EXPECT_EQ(found.mr, mr_);
    ASSERT_EQ(found.count, 3u);
    EXPECT_EQ(out_[0].iov_base, memory_ + 28);
    EXPECT_EQ(out_[0].iov_len, 2u);
    EXPECT_EQ(out_[1].iov_base, memory_ + 40);
    EXPECT_EQ(out_[1].iov_len, 6u);
    EXPECT_EQ(out_[2].iov_base, memory_);
    EXPECT_EQ(out_[2].iov_len, 3u);
    EXPECT_EQ(resolve(key_, base_ + 20, 1).reject, MrReject::kRange);
    EXPECT_EQ(resolve(key_ ^ 1, base_, 1).reject, MrReject::kNoKey);
    {
      Guard guard(domain_.engine.lock());
      found.mr->count_remote(FI_REMOTE_WRITE, 11);
    }
    EXPECT_EQ(counter_.value(), counted() ? 1u : 0u);
  }

  // Another region with the same requested key.
  void register_again() {
    auto again = table_.reg(attr_, 0);
    if (provider_chooses_the_key()) {
      ASSERT_TRUE(again) << again.error().text;
      EXPECT_NE((*again)->key(), key_);
      EXPECT_EQ(fi_close((*again)->base()), 0);
    } else {
      ASSERT_FALSE(again);
      EXPECT_EQ(again.error().code, FI_ENOKEY);
    }
  }

  void close() {
    EXPECT_EQ(fi_close(mr_->base()), 0);
    EXPECT_EQ(resolve(key_, base_, 1).reject, MrReject::kNoKey);
    EXPECT_EQ(table_.size(), 0u);
  }

  const int mode_;
  TestDomain domain_;
  Counter counter_{domain_};
  Endpoint endpoint_{domain_.instance.c()};
  MrTable table_;
  char memory_[64];
  // Four buffers in no order: 10, 0, 6 and 4 bytes.
  const iovec iov_[4] = {at(memory_ + 20, 10), at(memory_, 0), at(memory_ + 40, 6), at(memory_, 4)};
  fi_mr_attr attr_{};
  Mr *mr_ = nullptr;
  uint64_t key_ = 0, base_ = 0;
  iovec out_[4];
};

TEST(MrMode, AnApplicationThatFollowsItsModeReachesItsMemory) {
  constexpr int kBits[] = {FI_MR_LOCAL,    FI_MR_RAW,        FI_MR_VIRT_ADDR, FI_MR_ALLOCATED,
                           FI_MR_PROV_KEY, FI_MR_MMU_NOTIFY, FI_MR_RMA_EVENT, FI_MR_ENDPOINT,
                           FI_MR_HMEM,     FI_MR_COLLECTIVE};
  std::vector<int> modes = {FI_MR_BASIC, FI_MR_SCALABLE};
  for (unsigned set = 0; set < 1u << std::size(kBits); ++set) {
    int mode = 0;
    for (size_t i = 0; i < std::size(kBits); ++i)
      if (set >> i & 1) mode |= kBits[i];
    modes.push_back(mode);
  }
  for (const int mode : modes) {
    SCOPED_TRACE("mr_mode " + std::to_string(mode));
    ModeApplication(mode).run();
    if (HasFatalFailure()) return;
  }
}

TEST(MrMode, AKeyIsAny64BitNumber) {
  // domain_attr.mr_key_size is 8.
  Table t(MrTable::Mode::of(0));
  char memory[8];
  for (const uint64_t key : {UINT64_C(0), UINT64_C(1) << 63, UINT64_MAX, UINT64_C(1) << 32}) {
    EXPECT_EQ(fi_mr_key(t.reg({at(memory, 8)}, key)->c()), key);
    EXPECT_EQ(t.resolve(key, 0, 8), MrReject::kNone);
  }
}

TEST(MrMode, ALocalRegionIsNotForPeers) {
  // FI_MR_LOCAL: the buffers of sends and receives are registered too, each with its key.
  Table t(MrTable::Mode::of(FI_MR_LOCAL | FI_MR_PROV_KEY));
  char memory[8];
  Mr *first = t.reg({at(memory, 8)}, 0, FI_SEND | FI_RECV | FI_READ | FI_WRITE);
  Mr *second = t.reg({at(memory, 8)}, 0, FI_SEND | FI_RECV);
  EXPECT_NE(fi_mr_desc(first->c()), fi_mr_desc(second->c()));
  for (const uint64_t access : {uint64_t(FI_REMOTE_READ), uint64_t(FI_REMOTE_WRITE), kRemote})
    EXPECT_EQ(t.resolve(first->key(), 0, 8, access), MrReject::kAccess);
}

TEST(MrEndpoint, IsBoundBeforeTheRegionIsEnabled) {
  Table t(MrTable::Mode::of(FI_MR_ENDPOINT));
  TestInstance another;
  char memory[64];
  Mr *mr = t.reg({at(memory, 64)}, 1);
  Endpoint endpoint(t.domain.instance.c()), scalable(t.domain.instance.c(), FI_CLASS_SEP),
      foreign(another.c());
  Counter counter(t.domain);
  EXPECT_FALSE(mr->enabled());
  EXPECT_EQ(fi_mr_enable(mr->c()), -FI_EOPBADSTATE) << "no endpoint";
  EXPECT_EQ(fi_mr_bind(mr->c(), foreign.base(), 0), -FI_EINVAL) << "of another provider";
  EXPECT_EQ(fi_mr_bind(mr->c(), endpoint.base(), FI_TRANSMIT), -FI_EBADFLAGS);
  EXPECT_EQ(fi_mr_enable(mr->c()), -FI_EOPBADSTATE) << "still none";
  EXPECT_EQ(t.resolve(1, 0, 8), MrReject::kDisabled);
  EXPECT_EQ(fi_mr_bind(mr->c(), endpoint.base(), 0), 0);
  EXPECT_EQ(fi_mr_bind(mr->c(), scalable.base(), 0), 0) << "and to one more";
  EXPECT_EQ(fi_mr_refresh(mr->c(), nullptr, 0, 0), 0);
  EXPECT_EQ(t.resolve(1, 0, 8), MrReject::kDisabled) << "refreshing does not enable";
  EXPECT_EQ(fi_mr_enable(mr->c()), 0);
  EXPECT_EQ(t.resolve(1, 0, 8), MrReject::kNone);
  EXPECT_EQ(fi_mr_bind(mr->c(), endpoint.base(), 0), -FI_EOPBADSTATE) << "too late";
  EXPECT_EQ(fi_mr_bind(mr->c(), counter.cntr->base(), FI_REMOTE_WRITE), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_mr_enable(mr->c()), 0) << "again";
  EXPECT_EQ(t.close(mr), 0);
  Mr *never = t.reg({at(memory, 64)}, 1);
  EXPECT_EQ(t.close(never), 0) << "one that was never enabled";
}

// ---- closing ----

TEST(MrClose, TheOwnersOfPinsAreAskedToRelease) {
  Table t;
  char memory[64];
  Mr *mr = t.reg({at(memory, 64)}, 1);
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
  Mr *free = t.reg({at(memory, 64)}, 1);
  EXPECT_EQ(t.close(free), 0);
  EXPECT_EQ(asked.size(), 2u) << "a region without pins is closed without the call";
}

TEST(MrClose, ItsEventGoesWithIt) {
  TestDomain domain;
  fid_fabric fabric{};
  fabric.fid.fclass = FI_CLASS_FABRIC;
  std::atomic<size_t> children{0};
  Eq *eq = *Eq::open(domain.instance.c(), &fabric.fid, children, nullptr, nullptr);
  MrTable table(domain.context, {});
  table.eq = eq;
  char memory[64];
  const iovec iov = at(memory, 64);
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
  Table t;
  char memory[64];
  Mr *mr = t.reg({at(memory, 64)});
  const iovec iov = at(memory, 8);
  EXPECT_EQ(fi_mr_refresh(mr->c(), &iov, 1, 0), 0);
  EXPECT_EQ(fi_mr_refresh(mr->c(), nullptr, 0, 0), 0) << "all of it";
  EXPECT_EQ(fi_mr_refresh(mr->c(), nullptr, 1, 0), -FI_EINVAL);
  EXPECT_EQ(fi_mr_refresh(mr->c(), &iov, 1, FI_PEEK), -FI_EBADFLAGS);
  EXPECT_EQ(fi_control(mr->base(), FI_REFRESH, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_control(mr->base(), FI_GETWAIT, nullptr), -FI_ENOSYS);
}

TEST(MrControl, ARawKeyBecomesTheKeyAgain) {
  for (const bool virtual_addresses : {false, true}) {
    Table t({.virtual_addresses = virtual_addresses});
    char memory[64];
    Mr *mr = t.reg({at(memory, 64)}, 0x0123456789abcdef);
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
    EXPECT_EQ(base, virtual_addresses ? address(memory) : 0);
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
