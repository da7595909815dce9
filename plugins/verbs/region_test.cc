// SPDX-License-Identifier: BSD-2-Clause
// Registered memory over the double: the cache of registrations, dma-bufs, bindings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <weft/plugin.h>
#include <weft/sdk/devices/memory_monitor.h>

#include <map>
#include <thread>

#include "plugins/verbs/test_link.h"

namespace weft::verbs {
namespace {

using testing::HasSubstr;

std::map<std::string, uint64_t> memory_counters(fid_fabric *fabric) {
  weft_counters_ops *ops = nullptr;
  EXPECT_EQ(fi_open_ops(&fabric->fid, WEFT_COUNTERS_OPS, 0, (void **)&ops, nullptr), 0);
  std::vector<weft_counter> all(ops->read(&fabric->fid, nullptr, 0));
  ops->read(&fabric->fid, all.data(), all.size());
  std::map<std::string, uint64_t> values;
  for (const weft_counter &counter : all) values[counter.name] = counter.value;
  return values;
}

size_t page() {
  return size_t(sysconf(_SC_PAGESIZE));
}

// Whole pages of private memory.
class Pages {
 public:
  explicit Pages(size_t count, int flags = MAP_PRIVATE | MAP_ANONYMOUS) : size_(count * page()) {
    at_ = static_cast<char *>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, -1, 0));
    EXPECT_NE(at_, MAP_FAILED);
    std::memset(at_, 0, size_);
  }
  ~Pages() { munmap(at_, size_); }
  Pages(const Pages &) = delete;
  Pages &operator=(const Pages &) = delete;
  // Other memory at the same addresses.
  void replace() {
    EXPECT_EQ(
        mmap(at_, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
        at_);
  }
  char *data() const { return at_; }
  size_t size() const { return size_; }

 private:
  size_t size_;
  char *at_;
};

constexpr uint64_t kAllAccess =
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

fid_mr *register_at(fid_domain *domain, void *data, size_t size, uint64_t access = kAllAccess) {
  fid_mr *mr = nullptr;
  EXPECT_EQ(fi_mr_reg(domain, data, size, access, 0, 0, 0, &mr, nullptr), 0) << test_log();
  return mr;
}
void unregister(fid_mr *mr) {
  EXPECT_EQ(fi_close(&mr->fid), 0);
}

LinkOptions with_cache(size_t count = 1024) {
  LinkOptions options;
  options.settings.caches_regions = true;
  options.settings.cache_limits.count = count;
  return options;
}

#define CACHE_NEEDED()                                                        \
  if (const auto monitor = sdk::MemoryMonitor::open(); !monitor) {            \
    GTEST_SKIP() << "the kernel watches no memory: " << monitor.error().text; \
  }

// ---- the cache ----

TEST(VerbsRegions, AreRegisteredEachTimeWithoutACache) {
  Link link;
  Pages memory(4);
  for (int i = 0; i < 3; ++i) unregister(register_at(link.a.domain, memory.data(), memory.size()));
  EXPECT_EQ(link.node.network.calls("ibv_reg_mr"), 3u);
  EXPECT_EQ(link.node.network.calls("ibv_dereg_mr"), 3u);
  auto counters = memory_counters(link.a.fabric);
  EXPECT_EQ(counters["registrations"], 3u);
  EXPECT_EQ(counters["mr_cache_hits"] + counters["mr_cache_misses"], 0u);
}

TEST(VerbsRegions, AreFoundAgain) {
  CACHE_NEEDED();
  Link link(with_cache());
  Pages memory(4);
  for (int i = 0; i < 3; ++i) unregister(register_at(link.a.domain, memory.data(), memory.size()));
  EXPECT_EQ(link.node.network.calls("ibv_reg_mr"), 1u);
  EXPECT_EQ(link.node.network.calls("ibv_dereg_mr"), 0u);
  auto counters = memory_counters(link.a.fabric);
  EXPECT_EQ(counters["registrations"], 1u);
  EXPECT_EQ(counters["mr_cache_misses"], 1u);
  EXPECT_EQ(counters["mr_cache_hits"], 2u);
}

// Data goes by a region of the cache as by any: keys, descriptors, both sides.
TEST(VerbsRegions, OfTheCacheCarryData) {
  CACHE_NEEDED();
  Link link(with_cache());
  Pages from(2), to(2);
  for (int round = 0; round < 3; ++round) {
    from.data()[100] = char('a' + round);
    fid_mr *const local = register_at(link.a.domain, from.data() + 100, 1000);
    fid_mr *const remote = register_at(link.b.domain, to.data() + 50, 1000);
    ASSERT_EQ(fi_write(link.a.ep, from.data() + 100, 1000, fi_mr_desc(local), 0,
                       reinterpret_cast<uintptr_t>(to.data() + 50), fi_mr_key(remote), nullptr),
              0);
    link.a.completion();
    EXPECT_EQ(to.data()[50], 'a' + round);
    unregister(local);
    unregister(remote);
  }
  EXPECT_EQ(link.node.network.calls("ibv_reg_mr"), 2u);
}

// The device of the old registration would write to pages that are gone.
TEST(VerbsRegions, WhoseMemoryHasChangedAreRegisteredAnew) {
  CACHE_NEEDED();
  Link link(with_cache());
  Pages memory(4);
  fid_mr *mr = register_at(link.a.domain, memory.data(), memory.size());
  const uint64_t key = fi_mr_key(mr);
  unregister(mr);
  memory.replace();
  mr = register_at(link.a.domain, memory.data(), memory.size());
  EXPECT_NE(fi_mr_key(mr), key);
  unregister(mr);
  EXPECT_EQ(link.node.network.calls("ibv_reg_mr"), 2u);
  EXPECT_EQ(memory_counters(link.a.fabric)["mr_cache_changed"], 1u);
}

TEST(VerbsRegions, MakeRoomForOthersAndAreNotCountedTwice) {
  CACHE_NEEDED();
  Link link(with_cache(2));
  Pages memory(8);
  const auto at = [&](size_t index) {
    return register_at(link.a.domain, memory.data() + index * page(), page());
  };
  fid_mr *const first = at(0), *const second = at(2), *const third = at(4);
  for (fid_mr *mr : {first, second, third}) unregister(mr);
  unregister(at(4));
  auto counters = memory_counters(link.a.fabric);
  EXPECT_EQ(counters["mr_cache_misses"], 3u);
  EXPECT_EQ(counters["mr_cache_uncached"], 1u) << "two were in use";
  EXPECT_EQ(counters["mr_cache_evicted"], 1u);
  EXPECT_EQ(counters["registrations"], 4u);
}

TEST(VerbsRegions, OfSharedMemoryGoPastTheCache) {
  CACHE_NEEDED();
  Link link(with_cache());
  Pages shared(1, MAP_SHARED | MAP_ANONYMOUS);
  for (int i = 0; i < 2; ++i) unregister(register_at(link.a.domain, shared.data(), shared.size()));
  EXPECT_EQ(link.node.network.calls("ibv_reg_mr"), 2u);
  EXPECT_EQ(memory_counters(link.a.fabric)["mr_cache_uncached"], 2u);
}

TEST(VerbsRegions, ThatTheDeviceRefusesAreAnErrorWithACacheToo) {
  CACHE_NEEDED();
  Link link(with_cache());
  Pages memory(1);
  link.node.network.fail({.call = "ibv_reg_mr", .error = ENOMEM, .count = 2});
  fid_mr *mr = nullptr;
  EXPECT_EQ(fi_mr_reg(link.a.domain, memory.data(), 1, FI_SEND, 0, 0, 0, &mr, nullptr), -FI_ENOMEM);
  EXPECT_THAT(link.node.log(), HasSubstr("ulimit -l"));
  unregister(register_at(link.a.domain, memory.data(), 1));
}

// Threads that register, transfer nothing, and change their memory meanwhile.
TEST(VerbsRegions, OfManyThreads) {
  CACHE_NEEDED();
  Link link(with_cache(64));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Pages memory(4);
      for (int i = 0; i < 200; ++i) {
        fid_mr *const mr =
            register_at(link.a.domain, memory.data() + size_t(i % 4) * page(), page() / 2);
        memory.data()[size_t(i % 4) * page()] = char(t);
        unregister(mr);
        if (i % 50 == 49) memory.replace();
      }
    });
  for (std::thread &thread : threads) thread.join();
  auto counters = memory_counters(link.a.fabric);
  EXPECT_EQ(counters["mr_cache_hits"] + counters["mr_cache_misses"] + counters["mr_cache_uncached"],
            800u);
  EXPECT_GT(counters["mr_cache_hits"], 0u);
}

// ---- memory of devices: a file in memory, at addresses that the process cannot read ----

class FakeDeviceMemory {
 public:
  explicit FakeDeviceMemory(size_t pages) : size_(pages * page()), fd_(memfd_create("dev", 0)) {
    EXPECT_EQ(ftruncate(fd_, off_t(size_)), 0);
    seen_ = static_cast<char *>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    unreadable_ = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~FakeDeviceMemory() {
    munmap(seen_, size_);
    munmap(unreadable_, size_);
    close(fd_);
  }
  FakeDeviceMemory(const FakeDeviceMemory &) = delete;
  FakeDeviceMemory &operator=(const FakeDeviceMemory &) = delete;
  char *seen() const { return seen_; }  // by the test
  char *base() const { return static_cast<char *>(unreadable_); }
  fi_mr_dmabuf buffer(size_t offset, size_t size) const { return {fd_, offset, size, base()}; }

 private:
  const size_t size_;
  const int fd_;
  char *seen_;
  void *unreadable_;
};

int register_dmabuf(fid_domain *domain, const fi_mr_dmabuf &buffer, fid_mr **mr,
                    fi_hmem_iface iface = FI_HMEM_CUDA) {
  fi_mr_attr attr{};
  attr.dmabuf = &buffer;
  attr.iov_count = 1;
  attr.access = kAllAccess;
  attr.iface = iface;
  return fi_mr_regattr(domain, &attr, FI_MR_DMABUF, mr);
}

LinkOptions with_device_memory() {
  LinkOptions options;
  options.caps = FI_MSG | FI_RMA | FI_ATOMIC | FI_HMEM;
  return options;
}

TEST(VerbsDeviceMemory, IsSentReceivedReadAndWritten) {
  Link link(with_device_memory());
  ASSERT_NE(link.a.info->caps & FI_HMEM, 0u);
  EXPECT_NE(link.a.info->domain_attr->mr_mode & FI_MR_HMEM, 0);
  FakeDeviceMemory at_a(2), at_b(2);
  fid_mr *a = nullptr, *b = nullptr;
  ASSERT_EQ(register_dmabuf(link.a.domain, at_a.buffer(page(), page()), &a), 0) << test_log();
  ASSERT_EQ(register_dmabuf(link.b.domain, at_b.buffer(100, 1000), &b), 0) << test_log();
  char *const from = at_a.base() + page(), *const to = at_b.base() + 100;
  std::strcpy(at_a.seen() + page(), "from a device");
  // Short enough to be inline, but the processor cannot read it.
  ASSERT_EQ(fi_recv(link.b.ep, to, 1000, fi_mr_desc(b), 0, nullptr), 0);
  ASSERT_EQ(fi_send(link.a.ep, from, 14, fi_mr_desc(a), 0, nullptr), 0);
  EXPECT_EQ(link.b.completion().len, 14u);
  link.a.completion();
  EXPECT_STREQ(at_b.seen() + 100, "from a device");
  const uint64_t target = reinterpret_cast<uintptr_t>(to + 500);
  ASSERT_EQ(fi_write(link.a.ep, from, 5, fi_mr_desc(a), 0, target, fi_mr_key(b), nullptr), 0);
  link.a.completion();
  EXPECT_STREQ(at_b.seen() + 600, "from ");
  ASSERT_EQ(fi_read(link.a.ep, from + 50, 3, fi_mr_desc(a), 0, target, fi_mr_key(b), nullptr), 0);
  link.a.completion();
  EXPECT_EQ(std::string(at_a.seen() + page() + 50, 3), "fro");
  unregister(a);
  unregister(b);
}

// What the processor would have to read is refused, not read.
TEST(VerbsDeviceMemory, IsNotInjectedAndNoOperandOfAtomics) {
  Link link(with_device_memory());
  FakeDeviceMemory memory(1);
  fid_mr *mr = nullptr;
  ASSERT_EQ(register_dmabuf(link.a.domain, memory.buffer(0, 100), &mr), 0) << test_log();
  void *desc = fi_mr_desc(mr);
  iovec iov{memory.base(), 8};
  fi_msg message{};
  message.msg_iov = &iov;
  message.desc = &desc;
  message.iov_count = 1;
  EXPECT_EQ(fi_sendmsg(link.a.ep, &message, FI_INJECT), -FI_EOPNOTSUPP);
  Buffer result(link.a, 8), target(link.b, 8);
  EXPECT_EQ(fi_fetch_atomic(link.a.ep, memory.base(), 1, desc, result.data(), result.desc(), 0,
                            target.address(), target.key(), FI_UINT64, FI_SUM, nullptr),
            -FI_EOPNOTSUPP);
  EXPECT_FALSE(link.a.try_completion());
  std::memset(memory.seen(), 7, 8);
  ASSERT_EQ(fi_atomic(link.a.ep, memory.base(), 1, desc, 0, target.address(), target.key(),
                      FI_UINT64, FI_ATOMIC_WRITE, nullptr),
            0);
  link.a.completion();
  EXPECT_EQ(target.data()[7], 7);
  unregister(mr);
}

TEST(VerbsDeviceMemory, IsRefusedWithAReason) {
  Link link(with_device_memory());
  FakeDeviceMemory memory(1);
  fid_mr *mr = nullptr;
  EXPECT_EQ(register_dmabuf(link.a.domain, memory.buffer(0, 0), &mr), -FI_EINVAL);
  EXPECT_EQ(register_dmabuf(link.a.domain, memory.buffer(SIZE_MAX, 16), &mr), -FI_EINVAL);
  EXPECT_EQ(register_dmabuf(link.a.domain, memory.buffer(0, 2 * page()), &mr), -FI_EINVAL);
  fi_mr_dmabuf closed = memory.buffer(0, 16);
  closed.fd = -1;
  EXPECT_EQ(register_dmabuf(link.a.domain, closed, &mr), -EBADF);
  // A pointer alone: the device cannot reach what the kernel cannot.
  iovec iov{reinterpret_cast<void *>(0x1000), 16};
  fi_mr_attr attr{};
  attr.mr_iov = &iov;
  attr.iov_count = 1;
  attr.access = FI_SEND;
  attr.iface = FI_HMEM_CUDA;
  EXPECT_EQ(fi_mr_regattr(link.a.domain, &attr, 0, &mr), -FI_EFAULT);
  EXPECT_THAT(link.node.log(), HasSubstr("FI_MR_DMABUF"));
}

TEST(VerbsDeviceMemory, NeedsADomainThatWasOpenedForIt) {
  Link link;
  EXPECT_EQ(link.a.info->caps & FI_HMEM, 0u) << "nobody asked";
  FakeDeviceMemory memory(1);
  fid_mr *mr = nullptr;
  EXPECT_EQ(register_dmabuf(link.a.domain, memory.buffer(0, 16), &mr), -FI_EOPNOTSUPP);
  EXPECT_THAT(link.node.log(), HasSubstr("FI_HMEM"));
}

TEST(VerbsDeviceMemory, IsNotOfferedWhereTheDeviceHasNone) {
  LinkOptions options = with_device_memory();
  options.device.features.dmabuf = false;
  Link link(options);
  EXPECT_EQ(link.a.info->caps & FI_HMEM, 0u);
  EXPECT_EQ(link.a.info->domain_attr->mr_mode & FI_MR_HMEM, 0);
  FakeDeviceMemory memory(1);
  fid_mr *mr = nullptr;
  EXPECT_EQ(register_dmabuf(link.a.domain, memory.buffer(0, 16), &mr), -FI_EOPNOTSUPP);
  EXPECT_THAT(link.node.log(), HasSubstr("has no dma-buf"));
}

// ---- bindings ----

// Without FI_MR_ENDPOINT a region belongs to its domain: every endpoint of it reaches the region,
// bound or not.
TEST(VerbsRegions, BelongToTheDomainAndBindingsChangeNothing) {
  Link link;
  EXPECT_EQ(link.a.info->domain_attr->mr_mode & FI_MR_ENDPOINT, 0);
  Pages memory(1);
  fid_mr *const mr = register_at(link.b.domain, memory.data(), page());
  EXPECT_EQ(fi_mr_bind(mr, &link.b.ep->fid, 0), 0);
  EXPECT_EQ(fi_mr_bind(mr, &link.b.ep->fid, 0), 0);
  EXPECT_EQ(fi_mr_bind(mr, &link.b.ep->fid, FI_TRANSMIT), -FI_EBADFLAGS);
  EXPECT_EQ(fi_mr_bind(mr, &link.b.cq->fid, 0), -FI_EOPNOTSUPP);
  EXPECT_EQ(fi_mr_enable(mr), 0);
  EXPECT_EQ(fi_mr_bind(mr, &link.b.ep->fid, 0), 0);
  ASSERT_EQ(fi_inject_write(link.a.ep, "x", 1, 0, reinterpret_cast<uintptr_t>(memory.data()),
                            fi_mr_key(mr)),
            0);
  EXPECT_EQ(memory.data()[0], 'x');
  unregister(mr);
}

}  // namespace
}  // namespace weft::verbs
