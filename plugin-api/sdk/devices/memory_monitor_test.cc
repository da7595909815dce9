// SPDX-License-Identifier: BSD-2-Clause
// What the kernel tells of changes of memory, as a cache of registrations sees it.
#include "weft/sdk/devices/memory_monitor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstdlib>

#include "plugin-api/sdk/devices/mappings.h"
#include "plugin-api/sdk/testing/test_child.h"
#include "plugin-api/sdk/testing/test_engine.h"
#include "plugin-api/sdk/testing/test_region_cache.h"

namespace weft::sdk {
namespace {

using testing::HasSubstr;

// ---- ways of changing memory: `change` gets pages of which the cache knows the middle ones ----

struct Way {
  const char *name;
  void (*change)(Pages &pages);
};

constexpr Way kWays[] = {
    {"munmap",
     [](Pages &p) {
       p.unmap(3, 1);
       p.map(3, 1);
     }},
    {"mmap", [](Pages &p) { p.map(0, p.count); }},
    {"MADV_DONTNEED", [](Pages &p) { madvise(p.page(3), page_bytes(), MADV_DONTNEED); }},
    {"MADV_FREE", [](Pages &p) { madvise(p.page(3), page_bytes(), MADV_FREE); }},
    {"mremap",
     [](Pages &p) {
       Pages away(1);
       ASSERT_EQ(
           mremap(p.page(3), page_bytes(), page_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, away.at),
           away.at);
       p.map(3, 1);
     }},
    {"mremap onto it",
     [](Pages &p) {
       Pages from(1);
       ASSERT_EQ(
           mremap(from.at, page_bytes(), page_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, p.page(3)),
           p.page(3));
       from.gone(0, 1);
     }},
    {"mremap that shrinks",
     [](Pages &p) {
       ASSERT_EQ(mremap(p.at, p.count * page_bytes(), 3 * page_bytes(), 0), p.at);
       p.map(3, p.count - 3);
     }},
    {"mremap that leaves an empty mapping",
     [](Pages &p) {
       void *const moved = mremap(p.page(2), 3 * page_bytes(), 3 * page_bytes(),
                                  MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
       ASSERT_NE(moved, MAP_FAILED);
       munmap(moved, 3 * page_bytes());
     }},
};

class MonitorWays : public testing::TestWithParam<Way> {};

TEST_P(MonitorWays, EndTheRegion) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(8);
  for (int round = 0; round < 20; ++round) {
    EXPECT_FALSE(test.hit(pages.iov(2, 3)));
    EXPECT_TRUE(test.hit(pages.iov(2, 3)));
    GetParam().change(pages);
    number_pages(pages.iov(0, 8));
  }
  EXPECT_FALSE(test.hit(pages.iov(2, 3)));
  EXPECT_EQ(test.counters.changed.value(), 20u);
  EXPECT_EQ(test.counters.uncached.value(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, MonitorWays, testing::ValuesIn(kWays), [](const auto &info) {
  std::string name = info.param.name;
  for (char &c : name) c = c == ' ' ? '_' : c;
  return name;
});

TEST(MemoryMonitor, TheEndOfTheHeapIsWatched) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  const size_t bytes = 4 * page_bytes();
  auto *const top = static_cast<char *>(sbrk(intptr_t(2 * bytes)));
  ASSERT_NE(top, reinterpret_cast<void *>(-1));
  auto *const at = reinterpret_cast<char *>((uintptr_t(top) + bytes) & ~(page_bytes() - 1));
  const iovec memory{at, page_bytes()};
  number_pages(memory);
  EXPECT_FALSE(test.hit(memory));
  EXPECT_TRUE(test.hit(memory));
  ASSERT_NE(sbrk(-intptr_t(2 * bytes)), reinterpret_cast<void *>(-1));
  ASSERT_EQ(sbrk(intptr_t(2 * bytes)), top);
  number_pages(memory);
  EXPECT_FALSE(test.hit(memory));
  sbrk(-intptr_t(2 * bytes));
}

TEST(MemoryMonitor, ProtectionDoesNotChangeMemory) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(4);
  test.hit(pages.iov(0, 4));
  mprotect(pages.page(1), page_bytes(), PROT_READ);
  mprotect(pages.page(1), page_bytes(), PROT_READ | PROT_WRITE);
  EXPECT_TRUE(test.hit(pages.iov(0, 4)));
}

// mremap onto a mapping has two events: what was there is gone, and what moved. The second comes
// when the first was read. In between, all has moved already, and there is nothing to read.
class BetweenEvents final : public MemoryMonitor::Watcher {
 public:
  BetweenEvents(MemoryMonitor &monitor, const MemoryRange &second)
      : monitor_(monitor), second_(second) {}
  void on_change(const MemoryRange &range) override {
    const bool first = ++told_ == 1;
    second_told_ = second_told_ || range.overlaps(second_);
    if (first) stale_ = monitor_.current() && !second_told_;
  }
  MemoryRange first_in(const MemoryRange &) const override { return {}; }

  int told_ = 0;
  bool second_told_ = false, stale_ = false;

 private:
  MemoryMonitor &monitor_;
  const MemoryRange second_;
};

TEST(MemoryMonitor, IsNotCurrentBetweenTheEventsOfACall) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  for (int round = 0; round < 100; ++round) {
    Pages pages(3);
    const MemoryRange from = MemoryRange::pages_of(pages.iov(0, 1));
    const MemoryRange to = MemoryRange::pages_of(pages.iov(2, 1));
    BetweenEvents watcher(*test.monitor, from);
    test.monitor->add(watcher);
    ASSERT_TRUE(test.monitor->watch(from));
    ASSERT_TRUE(test.monitor->watch(to));
    ASSERT_EQ(
        mremap(pages.at, page_bytes(), page_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.page(2)),
        pages.page(2));
    pages.gone(0, 1);
    test.monitor->remove(watcher);
    EXPECT_TRUE(watcher.second_told_);
    ASSERT_FALSE(watcher.stale_);
  }
}

// ---- what is refused ----

TEST(MemoryMonitor, SharedMemoryAndFilesAreNotCached) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages shared(2, MAP_SHARED | MAP_ANONYMOUS);
  EXPECT_FALSE(test.hit(shared.iov(0, 2)));
  EXPECT_FALSE(test.hit(shared.iov(0, 2)));
  const int fd = memfd_create("pages", 0);
  ASSERT_EQ(ftruncate(fd, off_t(2 * page_bytes())), 0);
  void *const at = mmap(nullptr, 2 * page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  close(fd);
  EXPECT_FALSE(test.hit({at, 2 * page_bytes()}));
  EXPECT_FALSE(test.hit({at, 2 * page_bytes()}));
  munmap(at, 2 * page_bytes());
  // Half of it.
  Pages pages(4);
  mmap(pages.page(2), page_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
       -1, 0);
  EXPECT_FALSE(test.hit(pages.iov(0, 4)));
  EXPECT_FALSE(test.hit(pages.iov(0, 4)));
  EXPECT_EQ(test.counters.uncached.value(), 6u);
  EXPECT_FALSE(next_watched()) << "and nothing stays watched";
}

TEST(MemoryMonitor, MemoryThatIsDroppedIsNotWatched) {
  TestCache test({.count = 2});
  WEFT_NEEDS_MONITOR(test);
  Pages pages(64);
  for (size_t i = 0; i < 64; i += 2) test.hit(pages.iov(i, 1));
  size_t watched = 0;
  for (size_t i = 0; i < 64; ++i) {
    MemoryRange rest{uintptr_t(pages.page(i)), uintptr_t(pages.page(i + 1))};
    const std::lock_guard lock(test.monitor->lock());
    test.monitor->unwatch(rest);
  }
  while (const auto range = next_watched()) {
    ASSERT_LT(watched += range->bytes() / page_bytes(), 3u);
    pages.unmap((range->start - uintptr_t(pages.at)) / page_bytes(), range->bytes() / page_bytes());
  }
  EXPECT_EQ(watched, 2u);
}

// ---- without permission ----

// What open() says where the kernel refuses the call.
std::string refusal(int error) {
  return in_child([error]() -> std::string {
    const sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | uint32_t(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{.len = 4, .filter = const_cast<sock_filter *>(code)};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
      return "no filter";
    const auto opened = MemoryMonitor::open();
    return opened ? "opened" : std::to_string(opened.error().code) + " " + opened.error().text;
  });
}

TEST(MemoryMonitor, SaysWhyItMayNot) {
  const std::string forbidden = refusal(EPERM);
  EXPECT_THAT(forbidden, HasSubstr(std::to_string(FI_EPERM) + " memory monitor: userfaultfd: "));
  EXPECT_THAT(forbidden, HasSubstr("filter of system calls"));
  EXPECT_THAT(refusal(ENOSYS), HasSubstr("Function not implemented"));
}

// ---- fork ----

// A child that lives until its end of the pipe is closed, and then says whether all was well.
class Child {
 public:
  explicit Child(const std::function<bool()> &act) {
    if (pipe(pipe_) != 0) return;
    child_ = fork();
    if (child_ != 0) return;
    close(pipe_[1]);
    const bool well = act();
    char byte;
    (void)!read(pipe_[0], &byte, 1);
    _exit(well ? 0 : 1);
  }
  bool end() {
    close(pipe_[1]);
    close(pipe_[0]);
    int status = 1;
    return waitpid(child_, &status, 0) == child_ && status == 0;
  }

 private:
  int pipe_[2];
  pid_t child_ = -1;
};

TEST(MemoryMonitor, AChildRegistersWithoutTheCache) {
  TestCache test;
  WEFT_NEEDS_MONITOR(test);
  Pages pages(4);
  test.hit(pages.iov(0, 4));
  const auto used = test->get(pages.iov(0, 1), FI_SEND);
  Child child([&] {
    munmap(pages.page(3), page_bytes());  // nobody waits
    const bool kept = test.hit(pages.iov(0, 2));
    test->put(*used);
    test.cache.reset();
    test.monitor.reset();
    return !kept;
  });
  EXPECT_TRUE(test.hit(pages.iov(0, 4))) << "the parent's memory is the same";
  pages.unmap(1, 1);
  pages.map(1, 1);
  number_pages(pages.iov(1, 1));
  EXPECT_FALSE(test.hit(pages.iov(0, 4)));
  test->put(*used);
  EXPECT_TRUE(child.end());
}

// The child has the descriptor too, so closing it ends nothing by itself.
TEST(MemoryMonitor, NobodyWaitsForAMonitorThatIsClosed) {
  auto test = std::make_unique<TestCache>();
  WEFT_NEEDS_MONITOR(*test);
  Pages pages(8);
  pages.unmap(4, 4);
  test->hit(pages.iov(2, 2));
  Child child([] { return true; });
  // It grows, which is no event, and what it grows by is watched.
  ASSERT_EQ(mremap(pages.page(2), 2 * page_bytes(), 6 * page_bytes(), 0), pages.page(2));
  test.reset();
  EXPECT_FALSE(next_watched());
  pages.unmap(2, 6);  // would not return
  EXPECT_TRUE(child.end());
}

}  // namespace
}  // namespace weft::sdk
