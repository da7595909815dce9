// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;

using Variables = std::map<std::string, std::string>;

struct Captured {
  explicit Captured(Variables variables)
      : environment{std::move(variables), "", false},
        log(environment, [this](std::string_view line) {
          const std::lock_guard lock(mutex);
          lines.emplace_back(line);
        }) {}
  std::mutex mutex;
  std::vector<std::string> lines;
  Environment environment;
  Log log;
};

TEST(Log, ShowsNothingButNoticesByDefault) {
  for (const Variables &unset : {Variables{}, Variables{{"FI_LOG_LEVEL", ""}}}) {
    Captured c(unset);
    for (int level = FI_LOG_WARN; level < FI_LOG_MAX; ++level) {
      EXPECT_FALSE(c.log.enabled("tcp", static_cast<fi_log_level>(level), FI_LOG_CQ));
      uint64_t showtime = 0;
      EXPECT_FALSE(c.log.ready("tcp", static_cast<fi_log_level>(level), FI_LOG_CQ, &showtime));
      c.log.say(static_cast<fi_log_level>(level), FI_LOG_CORE, "f", 1, "not asked for");
    }
    EXPECT_THAT(c.lines, IsEmpty());
    c.log.notice("a file is wrong");
    EXPECT_THAT(c.lines, ElementsAre("libfabric: a file is wrong\n"));
  }
}

TEST(Log, ShowsWarningsIfTheLevelSaysSo) {
  Captured c(Variables{{"FI_LOG_LEVEL", "warn"}});
  EXPECT_TRUE(c.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CQ));
  EXPECT_FALSE(c.log.enabled("tcp", FI_LOG_TRACE, FI_LOG_CQ));
  c.log.say(FI_LOG_WARN, FI_LOG_CORE, "f", 1, "mind this");
  c.log.say(FI_LOG_INFO, FI_LOG_CORE, "f", 1, "not this");
  EXPECT_THAT(c.lines, ElementsAre(HasSubstr("core:core:f():1<warn> mind this\n")));
}

TEST(Log, ALevelShowsItselfAndLowerOnes) {
  Captured c(Variables{{"FI_LOG_LEVEL", "Info"}});
  EXPECT_TRUE(c.log.enabled(nullptr, FI_LOG_TRACE, FI_LOG_CORE));
  EXPECT_TRUE(c.log.enabled(nullptr, FI_LOG_INFO, FI_LOG_CORE));
  EXPECT_FALSE(c.log.enabled(nullptr, FI_LOG_DEBUG, FI_LOG_CORE));
}

TEST(Log, OutOfRangeArgumentsAreNotShown) {
  Captured c(Variables{{"FI_LOG_LEVEL", "debug"}});
  EXPECT_FALSE(c.log.enabled("tcp", static_cast<fi_log_level>(-1), FI_LOG_CORE));
  EXPECT_FALSE(c.log.enabled("tcp", static_cast<fi_log_level>(77), FI_LOG_CORE));
  EXPECT_FALSE(c.log.enabled("tcp", FI_LOG_WARN, static_cast<fi_log_subsys>(77)));
  c.log.write("tcp", static_cast<fi_log_level>(77), static_cast<fi_log_subsys>(-5), nullptr, 1,
              "odd");
  EXPECT_THAT(c.lines, ElementsAre(HasSubstr("tcp:?:():1<?> odd\n")));
}

TEST(Log, ABadLevelGivesOneNoticeAndTheDefault) {
  Captured c(Variables{{"FI_LOG_LEVEL", "wran"}});
  EXPECT_THAT(c.lines, ElementsAre(testing::AllOf(HasSubstr("libfabric: FI_LOG_LEVEL=wran"),
                                                  HasSubstr("did you mean \"warn\"?"))));
  EXPECT_FALSE(c.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
  for (const char *word : {"error", "none", "silent", "0"}) {
    Captured other(Variables{{"FI_LOG_LEVEL", word}});
    EXPECT_THAT(other.lines,
                ElementsAre(testing::AllOf(HasSubstr("known are warn, trace, info, debug"),
                                           HasSubstr("nothing is logged but mistakes"))));
    EXPECT_FALSE(other.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
  }
}

TEST(Log, ProvidersAreListedOrExcluded) {
  Captured listed(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_PROV", "tcp, ofi_rxm"}});
  EXPECT_TRUE(listed.log.enabled("TCP", FI_LOG_WARN, FI_LOG_CORE));
  EXPECT_TRUE(listed.log.enabled("rxm", FI_LOG_WARN, FI_LOG_CORE, "ofi_rxm"));
  EXPECT_FALSE(listed.log.enabled("udp", FI_LOG_WARN, FI_LOG_CORE));
  EXPECT_FALSE(listed.log.enabled(nullptr, FI_LOG_WARN, FI_LOG_CORE));
  Captured excluded(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_PROV", "^tcp"}});
  EXPECT_FALSE(excluded.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
  EXPECT_TRUE(excluded.log.enabled(nullptr, FI_LOG_WARN, FI_LOG_CORE));
  Captured empty(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_PROV", " ^ ,"}});
  EXPECT_TRUE(empty.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
}

TEST(Log, SubsystemsAreListedOrExcluded) {
  Captured listed(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_SUBSYS", "cq,ep_ctrl"}});
  EXPECT_TRUE(listed.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CQ));
  EXPECT_TRUE(listed.log.enabled("tcp", FI_LOG_WARN, FI_LOG_EP_CTRL));
  EXPECT_FALSE(listed.log.enabled("tcp", FI_LOG_WARN, FI_LOG_EQ));
  Captured excluded(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_SUBSYS", "^cntr"}});
  EXPECT_FALSE(excluded.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CNTR));
  EXPECT_TRUE(excluded.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
  Captured wrong(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_SUBSYS", "fabrik"}});
  EXPECT_THAT(wrong.lines, ElementsAre(HasSubstr("did you mean \"fabric\"?")));
  EXPECT_TRUE(wrong.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
}

TEST(Log, LinesHaveTheFormatOfStock) {
  Captured c(Variables{});
  c.log.write("tcp", FI_LOG_INFO, FI_LOG_EP_CTRL, "connect", 12, "to 10.0.0.1\n");
  c.log.write(nullptr, FI_LOG_WARN, FI_LOG_CORE, "f", 1, "evil \x1b[2J bytes\nlibfabric: a lie");
  EXPECT_THAT(
      c.lines,
      ElementsAre(
          MatchesRegex("libfabric:[0-9]+:[0-9]+::tcp:ep_ctrl:connect\\(\\):12<info> to 10.0.0.1\n"),
          MatchesRegex("libfabric:[0-9]+:[0-9]+::core:core:f\\(\\):1<warn> evil \\\\x1b\\[2J bytes "
                       "libfabric: a lie\n")));
}

TEST(Log, NoticeIsShownOnce) {
  Captured c(Variables{{"FI_LOG_PROV", "tcp"}});
  c.log.notice("look here");
  c.log.notice("look here");
  c.log.notice("and here\n");
  c.log.notice("no interface a\nlibfabric: a lie");
  EXPECT_THAT(c.lines, ElementsAre("libfabric: look here\n", "libfabric: and here\n",
                                   "libfabric: no interface a libfabric: a lie\n"));
}

TEST(Log, ReadyIsTrueOncePerInterval) {
  Captured slow(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_INTERVAL", "3600000"}});
  uint64_t showtime = 0;
  EXPECT_TRUE(slow.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime));
  EXPECT_FALSE(slow.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime));
  EXPECT_FALSE(slow.log.ready("tcp", FI_LOG_DEBUG, FI_LOG_CQ, &showtime));
  uint64_t other = 0;
  EXPECT_TRUE(slow.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &other));
  Captured always(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_INTERVAL", "0"}});
  EXPECT_TRUE(always.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime) || showtime > 0);
  Captured wrong(Variables{{"FI_LOG_INTERVAL", "2s"}});
  EXPECT_THAT(wrong.lines, ElementsAre(HasSubstr("FI_LOG_INTERVAL=2s")));
}

TEST(Log, ReadyIsTrueForOneOfManyThreads) {
  Captured c(Variables{{"FI_LOG_LEVEL", "warn"}, {"FI_LOG_INTERVAL", "3600000"}});
  uint64_t showtime = 0;
  std::atomic<int> spoke{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; i++) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; k++)
        spoke += c.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime) ? 1 : 0;
    });
  }
  for (auto &thread : threads) thread.join();
  EXPECT_EQ(spoke, 1);
}

// ---- an application's own log ----

std::vector<std::string> imported_lines;
uint64_t seen_flags = 0;
int imported_enabled(const fi_provider *prov, fi_log_level, fi_log_subsys, uint64_t flags) {
  imported_lines.push_back(std::string("enabled ") + prov->name);
  seen_flags = flags;
  return 1;
}
void imported_log(const fi_provider *prov, fi_log_level, fi_log_subsys, const char *, int line,
                  const char *msg) {
  imported_lines.push_back(std::string(prov->name) + ":" + std::to_string(line) + ":" + msg);
}

TEST(Log, ImportedLogTakesOver) {
  imported_lines.clear();
  Captured c(Variables{{"FI_LOG_PROV", "udp"}});
  static fi_ops_log ops = {sizeof(fi_ops_log), imported_enabled, nullptr, imported_log};
  static fid_logging logging{};
  EXPECT_EQ(c.log.import(nullptr), -FI_EINVAL);
  EXPECT_EQ(c.log.import(&logging), -FI_EINVAL);
  logging.fid.fclass = FI_CLASS_LOG;
  logging.ops = &ops;
  ASSERT_EQ(c.log.import(&logging), 0);
  EXPECT_TRUE(c.log.enabled("tcp", FI_LOG_DEBUG, FI_LOG_CQ));
  EXPECT_EQ(seen_flags, FI_LOG_PROV_FILTERED);
  EXPECT_TRUE(c.log.enabled("udp", FI_LOG_DEBUG, FI_LOG_CQ));
  EXPECT_EQ(seen_flags, 0u);
  c.log.write("tcp", FI_LOG_INFO, FI_LOG_CQ, "f", 3, "text");
  c.log.notice("mind this");
  EXPECT_THAT(imported_lines,
              ElementsAre("enabled tcp", "enabled udp", "tcp:3:text\n", "core:0:mind this\n"));
  EXPECT_THAT(c.lines, IsEmpty());
}

TEST(Log, MissingImportedCallsFallBackToTheOwnLog) {
  Captured c(Variables{{"FI_LOG_LEVEL", "warn"}});
  static fi_ops_log ops = {sizeof(fi_ops_log), nullptr, nullptr, nullptr};
  static fid_logging logging{{FI_CLASS_LOG, nullptr, nullptr}, &ops};
  ASSERT_EQ(c.log.import(&logging), 0);
  uint64_t showtime = 0;
  EXPECT_FALSE(c.log.enabled("tcp", FI_LOG_DEBUG, FI_LOG_CQ));
  EXPECT_TRUE(c.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime));
  c.log.write("tcp", FI_LOG_WARN, FI_LOG_CQ, "f", 3, "text");
  EXPECT_EQ(c.lines.size(), 1u);
}

// Closing an imported log gives the library its own log back, and nothing of the import is read
// afterwards.
TEST(Log, ClosingAnImportRestoresTheOwnLog) {
  imported_lines.clear();
  Captured c(Variables{{"FI_LOG_LEVEL", "warn"}});
  for (int round = 1; round <= 3; ++round) {
    auto ops = std::make_unique<fi_ops_log>(
        fi_ops_log{sizeof(fi_ops_log), nullptr, nullptr, imported_log});
    auto logging = std::make_unique<fid_logging>();
    logging->fid.fclass = FI_CLASS_LOG;
    logging->ops = ops.get();
    ASSERT_EQ(c.log.import(logging.get()), 0);
    c.log.write("tcp", FI_LOG_WARN, FI_LOG_CQ, "f", round, "to the application");
    EXPECT_EQ(fi_close(&logging->fid), 0);
    logging.reset();
    ops.reset();
    c.log.write("tcp", FI_LOG_WARN, FI_LOG_CQ, "f", round, "to stderr");
    EXPECT_EQ(imported_lines.size(), static_cast<size_t>(round));
    EXPECT_EQ(c.lines.size(), static_cast<size_t>(round));
  }
}

TEST(Log, TheLastOfSeveralImportsCounts) {
  imported_lines.clear();
  Captured c(Variables{});
  fi_ops_log ops = {sizeof(fi_ops_log), nullptr, nullptr, imported_log};
  fi_ops_log silent = {
      sizeof(fi_ops_log), nullptr, nullptr,
      [](const fi_provider *, fi_log_level, fi_log_subsys, const char *, int, const char *) {}};
  fid_logging first{{FI_CLASS_LOG, nullptr, nullptr}, &silent};
  fid_logging second{{FI_CLASS_LOG, nullptr, nullptr}, &ops};
  ASSERT_EQ(c.log.import(&first), 0);
  ASSERT_EQ(c.log.import(&second), 0);
  EXPECT_EQ(fi_close(&first.fid), 0);
  c.log.write("tcp", FI_LOG_WARN, FI_LOG_CQ, "f", 7, "text");
  EXPECT_THAT(imported_lines, ElementsAre("tcp:7:text\n"));
  EXPECT_EQ(fi_close(&second.fid), 0);
  EXPECT_EQ(fi_close(&second.fid), 0) << "closed twice";
  EXPECT_THAT(c.lines, IsEmpty());
}

TEST(Log, AnImportedFidHasAFullTable) {
  Captured c(Variables{});
  fi_ops_log ops = {sizeof(fi_ops_log), nullptr, nullptr, imported_log};
  fid_logging logging{{FI_CLASS_LOG, nullptr, nullptr}, &ops};
  ASSERT_EQ(c.log.import(&logging), 0);
  struct fid *fid = &logging.fid;
  void *found = nullptr;
  char text[64];
  EXPECT_EQ(fi_control(fid, FI_ENABLE, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fid->ops->bind(fid, fid, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_open_ops(fid, "none", 0, &found, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fi_set_ops(fid, "none", 0, nullptr, nullptr), -FI_ENOSYS);
  EXPECT_EQ(fid->ops->tostr(fid, text, sizeof text), 0);
  EXPECT_EQ(fi_close(fid), 0);
}

// A program that was built with an older header has a shorter table.
TEST(Log, ReadsNothingBehindAShortImport) {
  imported_lines.clear();
  Captured c(Variables{{"FI_LOG_LEVEL", "warn"}});
  fi_ops_log ops = {offsetof(fi_ops_log, log), nullptr, nullptr, imported_log};
  fid_logging logging{{FI_CLASS_LOG, nullptr, nullptr}, &ops};
  ASSERT_EQ(c.log.import(&logging), 0);
  c.log.write("tcp", FI_LOG_WARN, FI_LOG_CQ, "f", 7, "text");
  EXPECT_THAT(imported_lines, IsEmpty());
  EXPECT_EQ(c.lines.size(), 1u);
  EXPECT_EQ(fi_close(&logging.fid), 0);
}

}  // namespace
}  // namespace weft
