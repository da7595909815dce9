// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/loader/index.h"
#include "core/loader/loader.h"
#include "core/loader/manifest_writer.h"
#include "core/loader/test_loader.h"
#include "core/loader/verdict_cache.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class VerdictTest : public LoaderTest {};

TEST_F(VerdictTest, CheckProbesAndEndsAQuarantine) {
  NEEDS_PROBE();
  install();
  Loader loader(options());
  const std::string library = folder_.at("weft/toy.so");
  ASSERT_TRUE(loader.quarantine(library, "for a test"));
  ASSERT_EQ(loader.plugins().size(), 1u);
  EXPECT_EQ(loader.plugins()[0].state, "quarantined");
  EXPECT_EQ(loader.plugins()[0].reason, "for a test");
  const PluginStatus status = loader.check(library);
  EXPECT_EQ(status.state, "probed") << status.reason;
  EXPECT_THAT(status.units, ElementsAre("toy", "toylayer", "absent", "hook1", "hook2"));
  EXPECT_EQ(loader.plugins()[0].state, "probed");
  EXPECT_EQ(loader.check(folder_.at("none.so")).state, "rejected");
  EXPECT_FALSE(loader.quarantine(folder_.at("none.so"), "x"));
  EXPECT_FALSE(loader.unquarantine(folder_.at("none.so")));
}

TEST_F(VerdictTest, AQuarantineIsStrongerThanTheIndex) {
  NEEDS_PROBE();
  install();
  refresh();
  {
    Loader loader(options());
    ASSERT_TRUE(loader.quarantine(folder_.at("weft/toy.so"), "it bites"));
  }
  std::filesystem::remove(log_);
  Loader loader(options());
  DecisionRecord why;
  EXPECT_EQ(loader.load("toy", why), nullptr);
  EXPECT_THAT(why.decisions()[0].reason, HasSubstr("quarantined: it bites"));
  EXPECT_EQ(log(), "");
}

TEST_F(VerdictTest, AFileWhoseModeWasMendedIsUsed) {
  NEEDS_PROBE();
  install();
  const std::string library = folder_.at("weft/toy.so");
  const auto loads = [&] {
    Loader loader(options());
    DecisionRecord why;
    return loader.load("toy", why) != nullptr ? "loaded" : why.decisions()[0].reason;
  };
  std::filesystem::permissions(library, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  refresh();
  EXPECT_THAT(loads(), HasSubstr("everybody can write"));
  std::filesystem::permissions(library, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::remove);
  EXPECT_EQ(loads(), "loaded") << "by what the index says";
  PluginRecord record;
  record.library = library;
  ASSERT_TRUE(stamp_of(library, record.library_stamp));
  record.verdict = Verdict::kRejected;
  record.rejection = {Stage::kTrust, "everybody can write to the file", "chmod o-w", false};
  ASSERT_TRUE(VerdictCache(options().quarantine_file, {}).remember(record));
  EXPECT_EQ(loads(), "loaded") << "by what was remembered";
}

// A plugin that was too slow once is probed again later. Until a probe succeeds, it is not opened
// in this process.
TEST_F(VerdictTest, AQuarantineForASlowProbeEnds) {
  NEEDS_PROBE();
  install();
  const LoaderOptions impatient = with_slow_probe();
  const auto loads = [](const LoaderOptions &with) {
    Loader loader(with);
    DecisionRecord why;
    const bool loaded = loader.load("toy", why) != nullptr;
    if (!loaded) {
      EXPECT_THAT(why.to_text(), HasSubstr("quarantined: "));
    }
    return loaded;
  };
  EXPECT_FALSE(loads(impatient));
  EXPECT_FALSE(loads(options())) << "not at once";
  // As if the minute were over.
  PluginRecord record = VerdictCache(options().quarantine_file, {}).all().at(0);
  EXPECT_EQ(record.failures, 1u);
  Index index;
  record.retry_at = 1;
  index.plugins = {record};
  ASSERT_TRUE(write_atomically(options().quarantine_file, write_index(index, "")));
  LoaderOptions no_probe = options();
  no_probe.probe_program.clear();
  no_probe.unprobed_allow = true;
  EXPECT_FALSE(loads(no_probe));
  EXPECT_FALSE(loads(impatient)) << "slow again";
  record = VerdictCache(options().quarantine_file, {}).all().at(0);
  EXPECT_EQ(record.failures, 2u);
  EXPECT_FALSE(loads(options())) << "not at once";
  record.retry_at = 1;
  index.plugins = {record};
  ASSERT_TRUE(write_atomically(options().quarantine_file, write_index(index, "")));
  EXPECT_TRUE(loads(options()));
  EXPECT_EQ(VerdictCache(options().quarantine_file, {}).all().at(0).verdict, Verdict::kOk);
}

}  // namespace
}  // namespace weft
