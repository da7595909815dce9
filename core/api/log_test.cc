// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

#include <atomic>
#include <map>
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

TEST(Log, ShowsWarningsByDefault) {
  Captured c(Variables{});
  EXPECT_TRUE(c.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CQ));
  EXPECT_FALSE(c.log.enabled("tcp", FI_LOG_TRACE, FI_LOG_CQ));
  EXPECT_FALSE(c.log.enabled("tcp", FI_LOG_DEBUG, FI_LOG_CQ));
  EXPECT_THAT(c.lines, IsEmpty());
}

TEST(Log, LevelShowsItselfAndThoseBefore) {
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

TEST(Log, MalformedLevelIsToldOnceWithTheNearestWord) {
  Captured c(Variables{{"FI_LOG_LEVEL", "wran"}});
  EXPECT_THAT(c.lines, ElementsAre(testing::AllOf(HasSubstr("libfabric: FI_LOG_LEVEL=wran"),
                                                  HasSubstr("did you mean \"warn\"?"))));
  EXPECT_TRUE(c.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
}

TEST(Log, ProvidersAreListedOrExcluded) {
  Captured listed(Variables{{"FI_LOG_PROV", "tcp, ofi_rxm"}});
  EXPECT_TRUE(listed.log.enabled("TCP", FI_LOG_WARN, FI_LOG_CORE));
  EXPECT_TRUE(listed.log.enabled("rxm", FI_LOG_WARN, FI_LOG_CORE, "ofi_rxm"));
  EXPECT_FALSE(listed.log.enabled("udp", FI_LOG_WARN, FI_LOG_CORE));
  EXPECT_FALSE(listed.log.enabled(nullptr, FI_LOG_WARN, FI_LOG_CORE));
  Captured excluded(Variables{{"FI_LOG_PROV", "^tcp"}});
  EXPECT_FALSE(excluded.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
  EXPECT_TRUE(excluded.log.enabled(nullptr, FI_LOG_WARN, FI_LOG_CORE));
  Captured empty(Variables{{"FI_LOG_PROV", " ^ ,"}});
  EXPECT_TRUE(empty.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
}

TEST(Log, SubsystemsAreListedOrExcluded) {
  Captured listed(Variables{{"FI_LOG_SUBSYS", "cq,ep_ctrl"}});
  EXPECT_TRUE(listed.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CQ));
  EXPECT_TRUE(listed.log.enabled("tcp", FI_LOG_WARN, FI_LOG_EP_CTRL));
  EXPECT_FALSE(listed.log.enabled("tcp", FI_LOG_WARN, FI_LOG_EQ));
  Captured excluded(Variables{{"FI_LOG_SUBSYS", "^cntr"}});
  EXPECT_FALSE(excluded.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CNTR));
  EXPECT_TRUE(excluded.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
  Captured wrong(Variables{{"FI_LOG_SUBSYS", "fabrik"}});
  EXPECT_THAT(wrong.lines, ElementsAre(HasSubstr("did you mean \"fabric\"?")));
  EXPECT_TRUE(wrong.log.enabled("tcp", FI_LOG_WARN, FI_LOG_CORE));
}

TEST(Log, LineHasTheKnownShape) {
  Captured c(Variables{});
  c.log.write("tcp", FI_LOG_INFO, FI_LOG_EP_CTRL, "connect", 12, "to 10.0.0.1\n");
  c.log.write(nullptr, FI_LOG_WARN, FI_LOG_CORE, "f", 1, "evil \x1b[2J bytes");
  EXPECT_THAT(
      c.lines,
      ElementsAre(
          MatchesRegex("libfabric:[0-9]+:[0-9]+::tcp:ep_ctrl:connect\\(\\):12<info> to 10.0.0.1\n"),
          MatchesRegex(
              "libfabric:[0-9]+:[0-9]+::core:core:f\\(\\):1<warn> evil \\?\\[2J bytes\n")));
}

TEST(Log, NoticeIsShownOnce) {
  Captured c(Variables{{"FI_LOG_PROV", "tcp"}});
  c.log.notice("look here");
  c.log.notice("look here");
  c.log.notice("and here");
  EXPECT_THAT(c.lines, ElementsAre("libfabric: look here\n", "libfabric: and here\n"));
}

TEST(Log, ReadySpeaksOncePerInterval) {
  Captured slow(Variables{{"FI_LOG_INTERVAL", "3600000"}});
  uint64_t showtime = 0;
  EXPECT_TRUE(slow.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime));
  EXPECT_FALSE(slow.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime));
  EXPECT_FALSE(slow.log.ready("tcp", FI_LOG_DEBUG, FI_LOG_CQ, &showtime));
  uint64_t other = 0;
  EXPECT_TRUE(slow.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &other));
  Captured always(Variables{{"FI_LOG_INTERVAL", "0"}});
  EXPECT_TRUE(always.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime) || showtime > 0);
  Captured wrong(Variables{{"FI_LOG_INTERVAL", "2s"}});
  EXPECT_THAT(wrong.lines, ElementsAre(HasSubstr("FI_LOG_INTERVAL=2s")));
}

TEST(Log, ReadyLetsOneOfManyThreadsSpeak) {
  Captured c(Variables{{"FI_LOG_INTERVAL", "3600000"}});
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

// ---- an application's own log
// ---------------------------------------------------------------------

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

TEST(Log, MissingImportedCallsKeepTheOwnBehaviour) {
  Captured c(Variables{});
  static fi_ops_log ops = {sizeof(fi_ops_log), nullptr, nullptr, nullptr};
  static fid_logging logging{{FI_CLASS_LOG, nullptr, nullptr}, &ops};
  ASSERT_EQ(c.log.import(&logging), 0);
  uint64_t showtime = 0;
  EXPECT_FALSE(c.log.enabled("tcp", FI_LOG_DEBUG, FI_LOG_CQ));
  EXPECT_TRUE(c.log.ready("tcp", FI_LOG_WARN, FI_LOG_CQ, &showtime));
  c.log.write("tcp", FI_LOG_WARN, FI_LOG_CQ, "f", 3, "text");
  EXPECT_EQ(c.lines.size(), 1u);
}

}  // namespace
}  // namespace weft
