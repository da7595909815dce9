// SPDX-License-Identifier: BSD-2-Clause
// What regions are bound to, counters and endpoints, and what each mr_mode asks of an application.
#include <gtest/gtest.h>
#include <rdma/fi_endpoint.h>

#include <iterator>
#include <string>
#include <vector>

#include "plugin-api/sdk/testing/test_mr.h"
#include "weft/sdk/memory/mr.h"
#include "weft/sdk/objects/cntr.h"
#include "weft/sdk/objects/ops.h"

namespace weft::sdk::mr_bind_test {
namespace {

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

TEST(MrCounter, CountsRemoteAccess) {
  TestDomain domain;
  Counter writes(domain), reads(domain, FI_CNTR_EVENTS_BYTES), both(domain);
  MrTable table(domain.context, {});
  char memory[64];
  const iovec iov = iov_at(memory, 64);
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

TEST(MrBind, RefusesInvalidArgumentsAndChangesNothing) {
  TestDomain domain, other_domain;
  Counter counter(domain), second(domain), other(other_domain);
  MrTable table(domain.context, {});
  char memory[64];
  const iovec iov = iov_at(memory, 64);
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
  EXPECT_EQ(fi_mr_bind(mr->c(), second.cntr->base(), kRemoteAccess), -FI_EBUSY);
  EXPECT_EQ(second.cntr->users.load(), 0u) << "neither of the two is bound";
  EXPECT_EQ(fi_mr_bind(mr->c(), second.cntr->base(), FI_REMOTE_WRITE), 0);
  struct fid endpoint {};
  endpoint.fclass = FI_CLASS_EP;
  EXPECT_EQ(fi_mr_bind(mr->c(), &endpoint, 0), 0) << "allowed, without an effect in this mode";
  EXPECT_EQ(fi_mr_bind(mr->c(), &endpoint, kRemoteAccess), 0) << "as Sandia OpenSHMEM does";
  EXPECT_EQ(fi_mr_bind(mr->c(), &endpoint, FI_TRANSMIT), -FI_EBADFLAGS);
  EXPECT_EQ(fi_close(mr->base()), 0);
}

TEST(MrBind, RefusesACounterOfAnotherDomain) {
  // The same instance, another domain: counting would happen under the wrong lock.
  TestDomain domain;
  Engine second_engine(true);
  DomainContext second;
  second.instance = domain.instance.c();
  second.engine = &second_engine;
  Cntr *cntr = *Cntr::open(second, nullptr, nullptr);
  MrTable table(domain.context, {});
  char memory[64];
  const iovec iov = iov_at(memory, 64);
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  Mr *mr = *table.reg(attr, 0);
  EXPECT_EQ(fi_mr_bind(mr->c(), cntr->base(), FI_REMOTE_WRITE), -FI_EDOMAIN);
  EXPECT_EQ(fi_close(mr->base()), 0);
  EXPECT_EQ(fi_close(cntr->base()), 0);
}

TEST(MrBind, IsRefusedAfterEnabling) {
  TestDomain domain;
  Counter counter(domain);
  MrTable table(domain.context, {.enable_needed = true});
  char memory[64];
  const iovec iov = iov_at(memory, 64);
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
  Endpoint(TestDomain &domain, uint64_t number, size_t fclass = FI_CLASS_EP)
      : Object(domain.instance.c(), fclass, nullptr), said_{&domain.context, number} {
    c()->fid.ops = c_table(fid_ops<Endpoint>());
  }
  int close() { return 0; }  // of the test's frame
  int control(int command, void *arg) {
    if (command != kGetEndpointNumber) return -FI_ENOSYS;
    *static_cast<EndpointNumber *>(arg) = said_;
    return 0;
  }
  const EndpointNumber said_;
};

TEST(MrMode, BitsSelectWhatTheTableDoes) {
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
    return table_.resolve(key, where, length, FI_REMOTE_WRITE, out_, 4, {.endpoint = 5});
  }

  void open() {
    attr_.mr_iov = iov_;
    attr_.iov_count = 4;
    attr_.access = kRemoteAccess | (has(FI_MR_LOCAL) ? FI_SEND | FI_RECV | FI_READ | FI_WRITE : 0) |
                   (has(FI_MR_COLLECTIVE) ? FI_COLLECTIVE : 0);
    attr_.requested_key = 0x8000000000000001;
    auto opened = table_.reg(attr_, counted() ? FI_RMA_EVENT : 0);
    ASSERT_TRUE(opened) << opened.error().text;
    mr_ = *opened;
    EXPECT_NE(fi_mr_desc(mr_->c()), nullptr);
    key_ = fi_mr_key(mr_->c());
    base_ = basic() || has(FI_MR_VIRT_ADDR) ? address_of(iov_[0].iov_base) : 0;
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
  Endpoint endpoint_{domain_, 5};
  MrTable table_;
  char memory_[64];
  // Four buffers in no order: 10, 0, 6 and 4 bytes.
  const iovec iov_[4] = {iov_at(memory_ + 20, 10), iov_at(memory_, 0), iov_at(memory_ + 40, 6),
                         iov_at(memory_, 4)};
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
  TestRegions t(MrTable::Mode::of(0));
  char memory[8];
  for (const uint64_t key : {UINT64_C(0), UINT64_C(1) << 63, UINT64_MAX, UINT64_C(1) << 32}) {
    EXPECT_EQ(fi_mr_key(t.reg({iov_at(memory, 8)}, key)->c()), key);
    EXPECT_EQ(t.resolve(key, 0, 8), MrReject::kNone);
  }
}

TEST(MrMode, ALocalRegionIsNotForPeers) {
  // FI_MR_LOCAL: the buffers of sends and receives are registered too, each with its key.
  TestRegions t(MrTable::Mode::of(FI_MR_LOCAL | FI_MR_PROV_KEY));
  char memory[8];
  Mr *first = t.reg({iov_at(memory, 8)}, 0, FI_SEND | FI_RECV | FI_READ | FI_WRITE);
  Mr *second = t.reg({iov_at(memory, 8)}, 0, FI_SEND | FI_RECV);
  EXPECT_NE(fi_mr_desc(first->c()), fi_mr_desc(second->c()));
  for (const uint64_t access : {uint64_t(FI_REMOTE_READ), uint64_t(FI_REMOTE_WRITE), kRemoteAccess})
    EXPECT_EQ(t.resolve(first->key(), 0, 8, access), MrReject::kNoKey);
}

TEST(MrEndpoint, IsBoundBeforeTheRegionIsEnabled) {
  TestRegions t(MrTable::Mode::of(FI_MR_ENDPOINT));
  TestDomain another;
  char memory[64];
  Mr *mr = t.reg({iov_at(memory, 64)}, 1);
  Endpoint endpoint(t.domain, 1), alias(t.domain, 1), scalable(t.domain, 2, FI_CLASS_SEP),
      foreign(another, 1);
  Counter counter(t.domain);
  const auto reject = [&](uint64_t number) {
    Guard guard(t.domain.engine.lock());
    iovec out[4];
    return t.table.resolve(1, 0, 8, FI_REMOTE_WRITE, out, 4, {.endpoint = number}).reject;
  };
  EXPECT_FALSE(mr->enabled());
  EXPECT_EQ(fi_mr_enable(mr->c()), -FI_EOPBADSTATE) << "no endpoint";
  EXPECT_EQ(fi_mr_bind(mr->c(), foreign.base(), 0), -FI_EINVAL) << "of another provider";
  EXPECT_EQ(fi_mr_bind(mr->c(), endpoint.base(), FI_TRANSMIT), -FI_EBADFLAGS);
  EXPECT_EQ(fi_mr_enable(mr->c()), -FI_EOPBADSTATE) << "still none";
  EXPECT_EQ(t.resolve(1, 0, 8), MrReject::kDisabled);
  EXPECT_EQ(fi_mr_bind(mr->c(), endpoint.base(), 0), 0);
  EXPECT_EQ(fi_mr_bind(mr->c(), alias.base(), 0), 0) << "the same endpoint";
  EXPECT_EQ(fi_mr_bind(mr->c(), scalable.base(), 0), -FI_EBUSY) << "a second endpoint";
  EXPECT_EQ(fi_mr_refresh(mr->c(), nullptr, 0, 0), 0);
  EXPECT_EQ(reject(1), MrReject::kDisabled) << "refreshing does not enable";
  EXPECT_EQ(fi_mr_enable(mr->c()), 0);
  EXPECT_EQ(reject(1), MrReject::kNone);
  EXPECT_EQ(reject(2), MrReject::kNoKey) << "through another endpoint";
  EXPECT_EQ(fi_mr_bind(mr->c(), endpoint.base(), 0), -FI_EOPBADSTATE) << "too late";
  EXPECT_EQ(fi_mr_bind(mr->c(), counter.cntr->base(), FI_REMOTE_WRITE), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_mr_enable(mr->c()), 0) << "again";
  EXPECT_EQ(t.close(mr), 0);
  Mr *never = t.reg({iov_at(memory, 64)}, 1);
  EXPECT_EQ(t.close(never), 0) << "one that was never enabled";
}

}  // namespace
}  // namespace weft::sdk::mr_bind_test
