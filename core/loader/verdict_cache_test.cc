// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/verdict_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/loader/index.h"
#include "core/loader/test_folder.h"

namespace weft {
namespace {

PluginRecord verdict(const std::string &library, Verdict verdict, uint64_t size = 10) {
  PluginRecord record;
  record.library = library;
  record.library_stamp = {size, 99};
  record.verdict = verdict;
  record.rejection.cause = "because";
  return record;
}

class Cache : public testing::Test {
 protected:
  TestFolder folder_;
  const std::string file_ = folder_.at("deep/cache/quarantine");
};

TEST_F(Cache, RemembersAcrossProcesses) {
  {
    VerdictCache cache(file_, {});
    EXPECT_EQ(cache.find("/a.so", {10, 99}), nullptr);
    ASSERT_TRUE(cache.remember(verdict("/a.so", Verdict::kOk)));
    ASSERT_TRUE(cache.remember(verdict("/b.so", Verdict::kQuarantined)));
  }
  VerdictCache cache(file_, {});
  ASSERT_NE(cache.find("/a.so", {10, 99}), nullptr);
  EXPECT_EQ(cache.find("/a.so", {10, 99})->verdict, Verdict::kOk);
  EXPECT_EQ(cache.find("/b.so", {10, 99})->rejection.cause, "because");
  EXPECT_EQ(cache.find("/a.so", {11, 99}), nullptr) << "another size";
  EXPECT_EQ(cache.find("/a.so", {10, 98}), nullptr) << "another time";
}

TEST_F(Cache, TheLastVerdictStands) {
  VerdictCache cache(file_, {});
  ASSERT_TRUE(cache.remember(verdict("/a.so", Verdict::kQuarantined)));
  ASSERT_TRUE(cache.remember(verdict("/a.so", Verdict::kOk)));
  EXPECT_EQ(cache.all().size(), 1u);
  EXPECT_EQ(cache.find("/a.so", {10, 99})->verdict, Verdict::kOk);
}

TEST_F(Cache, Forgets) {
  VerdictCache cache(file_, {});
  ASSERT_TRUE(cache.remember(verdict("/a.so", Verdict::kQuarantined)));
  ASSERT_TRUE(cache.forget("/a.so"));
  EXPECT_EQ(cache.find("/a.so", {10, 99}), nullptr);
  const Result<void> again = cache.forget("/a.so");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, FI_ENOENT);
  EXPECT_EQ(VerdictCache(file_, {}).all().size(), 0u);
}

PluginRecord passing(const std::string &library, uint64_t size = 10) {
  PluginRecord record = verdict(library, Verdict::kQuarantined, size);
  record.rejection.misbehaved = record.rejection.passing = true;
  return record;
}

// After a slow probe the next one comes after a minute, then after twice the time, at most a day.
TEST_F(Cache, AQuarantineThatMayPassIsProbedAgainLater) {
  int64_t now = 1'000'000;
  const auto due = [&] {
    VerdictCache cache(file_, {}, [&] { return now; });
    const PluginRecord *known = cache.find("/a.so", {10, 99});
    EXPECT_TRUE(known != nullptr && known->verdict == Verdict::kQuarantined);
    EXPECT_TRUE(known->rejection.passing);
    return known != nullptr && cache.is_due(*known);
  };
  int64_t wait = 60;
  for (int failures = 1; failures <= 40; ++failures) {
    ASSERT_TRUE(VerdictCache(file_, {}, [&] { return now; }).remember(passing("/a.so")));
    EXPECT_FALSE(due());
    now += wait - 1;
    EXPECT_FALSE(due()) << failures << " failures";
    ++now;
    EXPECT_TRUE(due()) << failures << " failures";
    wait = std::min<int64_t>(2 * wait, 86400);
  }
  // After a success, or when the file changes, the counting begins again.
  ASSERT_TRUE(
      VerdictCache(file_, {}, [&] { return now; }).remember(verdict("/a.so", Verdict::kOk)));
  ASSERT_TRUE(VerdictCache(file_, {}, [&] { return now; }).remember(passing("/a.so")));
  now += 60;
  EXPECT_TRUE(due());
}

TEST_F(Cache, AWrongClockKeepsNoPluginOut) {
  int64_t now = INT64_C(4'000'000'000);
  const auto cache = [&] { return VerdictCache(file_, {}, [&] { return now; }); };
  ASSERT_TRUE(cache().remember(passing("/a.so")));
  now = 1'800'000'000;
  VerdictCache later = cache();
  const PluginRecord *known = later.find("/a.so", {10, 99});
  ASSERT_NE(known, nullptr);
  EXPECT_TRUE(later.is_due(*known));
}

TEST_F(Cache, OtherQuarantinesStayUntilTheFileChanges) {
  const std::string plugin = folder_.write("x.so", "first");
  PluginRecord record = verdict(plugin, Verdict::kQuarantined);
  ASSERT_TRUE(stamp_of(plugin, record.library_stamp));
  int64_t now = 1;
  const VerdictCache::Clock clock = [&] { return now; };
  ASSERT_TRUE(VerdictCache(file_, {}, clock).remember(record));
  ASSERT_TRUE(VerdictCache(file_, {}, clock).remember(verdict("/gone.so", Verdict::kQuarantined)));
  now += 100'000'000;
  VerdictCache cache(file_, {}, clock);
  const PluginRecord *known = cache.find(plugin, record.library_stamp);
  ASSERT_NE(known, nullptr);
  EXPECT_FALSE(cache.is_due(*known));
  EXPECT_EQ(cache.all().size(), 2u);
  folder_.write("x.so", "another");
  VerdictCache later(file_, {}, clock);
  const std::vector<PluginRecord> left = later.all();
  ASSERT_EQ(left.size(), 1u) << "entries about files that changed are dropped";
  EXPECT_EQ(left[0].library, "/gone.so");
}

TEST_F(Cache, WritesNothingWhereOthersCanPutALink) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_TRUE(VerdictCache(file_, {}).remember(verdict("/a.so", Verdict::kOk)));
  ASSERT_EQ(chown(folder_.at("deep").c_str(), 12345, 12345), 0);
  EXPECT_FALSE(VerdictCache(file_, {}).remember(verdict("/b.so", Verdict::kOk)));
  EXPECT_EQ(VerdictCache(file_, {}).find("/a.so", {10, 99}), nullptr);
}

TEST_F(Cache, RemembersInThisProcessIfItCannotWrite) {
  for (const std::string &path : {std::string(), std::string("/proc/nowhere/quarantine")}) {
    VerdictCache cache(path, {});
    EXPECT_FALSE(cache.remember(verdict("/a.so", Verdict::kQuarantined)));
    EXPECT_FALSE(cache.remember(verdict("/b.so", Verdict::kQuarantined)));
    EXPECT_NE(cache.find("/a.so", {10, 99}), nullptr);
    EXPECT_NE(cache.find("/b.so", {10, 99}), nullptr);
  }
}

TEST_F(Cache, ADamagedOrUntrustedFileCountsAsEmpty) {
  ASSERT_TRUE(VerdictCache(file_, {}).remember(verdict("/a.so", Verdict::kOk)));
  chmod(file_.c_str(), 0666);
  EXPECT_EQ(VerdictCache(file_, {}).find("/a.so", {10, 99}), nullptr);
  folder_.write("deep/cache/quarantine", "rubbish\n");
  VerdictCache cache(file_, {});
  EXPECT_EQ(cache.find("/a.so", {10, 99}), nullptr);
  ASSERT_TRUE(cache.remember(verdict("/b.so", Verdict::kOk)));
  EXPECT_NE(VerdictCache(file_, {}).find("/b.so", {10, 99}), nullptr);
}

// Each writer is a process, and writes through one object that lives on, as a Loader's does, or
// through a new one each time, as `weft plugin quarantine` does.
TEST_F(Cache, ManyWritersLoseNothing) {
  constexpr int kWriters = 6, kEach = 20;
  std::vector<pid_t> writers;
  for (int w = 0; w < kWriters; ++w) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      VerdictCache lasting(file_, {});
      bool good = true;
      for (int i = 0; i < kEach; ++i) {
        const PluginRecord record =
            verdict("/w" + std::to_string(w) + "-" + std::to_string(i) + ".so",
                    i % 2 == 0 ? Verdict::kOk : Verdict::kQuarantined);
        good &=
            bool(w % 2 == 0 ? lasting.remember(record) : VerdictCache(file_, {}).remember(record));
      }
      _exit(good ? 0 : 1);
    }
    writers.push_back(pid);
  }
  for (const pid_t pid : writers) {
    int status = 1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(VerdictCache(file_, {}).all().size(), size_t(kWriters * kEach));
  std::vector<std::string> files;
  for (const auto &entry : std::filesystem::directory_iterator(folder_.at("deep/cache")))
    files.push_back(entry.path().filename());
  EXPECT_THAT(files, testing::UnorderedElementsAre("quarantine", "quarantine.lock"));
}

// A process that has found a plugin good does not say so again when it writes about another.
TEST_F(Cache, AnotherProcessQuarantinesWhatThisOneFoundGood) {
  VerdictCache loader(file_, {});
  ASSERT_TRUE(loader.remember(verdict("/a.so", Verdict::kOk)));
  ASSERT_TRUE(VerdictCache(file_, {}).remember(verdict("/a.so", Verdict::kQuarantined)));
  ASSERT_TRUE(loader.remember(verdict("/b.so", Verdict::kOk)));
  for (VerdictCache *cache : {&loader, new VerdictCache(file_, {})}) {
    const PluginRecord *known = cache->find("/a.so", {10, 99});
    ASSERT_NE(known, nullptr);
    EXPECT_EQ(known->verdict, Verdict::kQuarantined);
    if (cache != &loader) delete cache;
  }
}

// The verdict of a probe that began before the quarantine.
TEST_F(Cache, AQuarantineThatHoldsStaysUnlessSomebodyAsks) {
  int64_t now = 1'000'000;
  const auto cache = [&] { return VerdictCache(file_, {}, [&] { return now; }); };
  const auto known = [&] { return cache().find("/a.so", {10, 99})->verdict; };
  ASSERT_TRUE(cache().remember(verdict("/a.so", Verdict::kQuarantined)));
  ASSERT_TRUE(cache().remember_unless_quarantined(verdict("/a.so", Verdict::kOk)));
  EXPECT_EQ(known(), Verdict::kQuarantined);
  ASSERT_TRUE(cache().remember_unless_quarantined(verdict("/a.so", Verdict::kOk, 11)));
  EXPECT_NE(cache().find("/a.so", {11, 99}), nullptr) << "it is another file now";
  ASSERT_TRUE(cache().remember(passing("/a.so")));
  now += 61;
  ASSERT_TRUE(cache().remember_unless_quarantined(verdict("/a.so", Verdict::kOk)));
  EXPECT_EQ(known(), Verdict::kOk) << "the quarantine was due";
  ASSERT_TRUE(cache().remember(verdict("/a.so", Verdict::kQuarantined)));
  ASSERT_TRUE(cache().remember(verdict("/a.so", Verdict::kOk)));
  EXPECT_EQ(known(), Verdict::kOk) << "somebody asked for it";
}

// A process that is stopped while it writes does not stop the others.
TEST_F(Cache, WritesWithoutTheLockWhenItDoesNotGetIt) {
  ASSERT_TRUE(VerdictCache(file_, {}).remember(verdict("/a.so", Verdict::kOk)));
  const std::string lock = file_ + ".lock";
  ASSERT_EQ(chmod(lock.c_str(), 0644), 0);  // as older versions made it
  ASSERT_TRUE(VerdictCache(file_, {}).remember(verdict("/a.so", Verdict::kOk)));
  struct stat found = {};
  ASSERT_EQ(stat(lock.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u) << "no other user can open it, and hold the lock";
  const int held = open(lock.c_str(), O_RDWR);
  ASSERT_GE(held, 0);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  EXPECT_TRUE(VerdictCache(file_, {}).remember(verdict("/b.so", Verdict::kOk)));
  close(held);
  EXPECT_EQ(VerdictCache(file_, {}).all().size(), 2u);
}

TEST_F(Cache, DoesNotGrowWithoutBound) {
  Index full;
  for (int i = 0; i < 512; ++i)
    full.plugins.push_back(verdict("/" + std::to_string(i) + ".so", Verdict::kOk));
  folder_.write("deep/cache/quarantine", write_index(full, ""));
  ASSERT_TRUE(VerdictCache(file_, {}).remember(verdict("/new.so", Verdict::kOk)));
  VerdictCache cache(file_, {});
  EXPECT_EQ(cache.all().size(), 512u);
  EXPECT_EQ(cache.find("/0.so", {10, 99}), nullptr) << "the oldest makes room";
  EXPECT_NE(cache.find("/1.so", {10, 99}), nullptr);
  EXPECT_NE(cache.find("/new.so", {10, 99}), nullptr);
}

}  // namespace
}  // namespace weft
