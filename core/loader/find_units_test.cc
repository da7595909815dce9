// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/find_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "core/loader/loader.h"
#include "core/loader/test_loader.h"

namespace weft {
namespace {

using testing::HasSubstr;

class FindUnitsTest : public LoaderTest {};

TEST_F(FindUnitsTest, ReadsManifestsWithoutOpeningALibrary) {
  install();
  // This library would be refused. Discovery does not look at it.
  folder_.write("weft/toy.so", "no library at all");
  LoaderOptions given = options();
  given.probe_program = "/nonexistent/weft-probe";
  Loader loader(given);
  expect_toy(loader, folder_.at("weft"));
  EXPECT_EQ(loader.find("toy")->manifest, folder_.at("weft/plugins.d/toy.yaml"));
  EXPECT_TRUE(loader.discovery().decisions().empty()) << loader.discovery().to_text();
}

TEST_F(FindUnitsTest, ReadsTheIndexAloneAndLoadsWithoutAProbe) {
  install();
  NEEDS_PROBE();
  EXPECT_EQ(refresh().plugins, 1u);
  std::filesystem::remove(log_);
  Loader loader(index_only());
  expect_toy(loader, folder_.at("weft"));
  EXPECT_TRUE(loader.discovery().decisions().empty()) << loader.discovery().to_text();
  DecisionRecord why;
  const LoadedUnit *toy = loader.load("toy", why);
  ASSERT_NE(toy, nullptr) << why.to_text();
  EXPECT_EQ(log(), "init\n");
}

TEST_F(FindUnitsTest, ProbesALibraryWithoutManifestAndIndex) {
  NEEDS_PROBE();
  folder_.copy(toy_plugin(), "weft/toy.so");
  Loader loader(options());
  expect_toy(loader, folder_.at("weft"));
  EXPECT_EQ(loader.find("toy")->manifest, "");
  EXPECT_EQ(log(), "init\nfini\n") << "of the child";
}

TEST_F(FindUnitsTest, OpensALibraryWithoutAManifestIfItCannotProbe) {
  folder_.copy(toy_plugin(), "weft/toy.so");
  Loader loader(without_probe());
  expect_toy(loader, folder_.at("weft"));
  EXPECT_EQ(log(), "") << "nobody chose a unit, so init() was not called";
  DecisionRecord why;
  EXPECT_NE(loader.load("toy", why), nullptr) << why.to_text();
  EXPECT_EQ(log(), "init\n");
}

TEST_F(FindUnitsTest, AnIndexMovesWithItsFolder) {
  install();
  NEEDS_PROBE();
  refresh();
  std::filesystem::rename(folder_.at("weft"), folder_.at("moved"));
  LoaderOptions moved = index_only();
  moved.folders = {folder_.at("moved")};
  Loader loader(moved);
  expect_toy(loader, folder_.at("moved"));
  DecisionRecord why;
  EXPECT_NE(loader.load("toy", why), nullptr) << why.to_text();
}

TEST_F(FindUnitsTest, FindsAManifestThatIsNewerThanTheIndex) {
  install();
  NEEDS_PROBE();
  refresh();
  std::string other = TestFolder::read(folder_.at("weft/plugins.d/toy.yaml"));
  for (const char *name : {"toylayer", "absent", "hook1", "hook2", "ofi_toy", "toy", "toybox"}) {
    const std::string quoted = std::string("\"") + name + "\"";
    for (size_t at = 0; (at = other.find(quoted, at)) != std::string::npos; at += quoted.size())
      other.insert(at + 1, "x");
  }
  folder_.write("weft/plugins.d/same.yaml", other);  // describes the same library
  {
    Loader loader(options());
    EXPECT_EQ(loader.units().size(), 5u);
    EXPECT_EQ(loader.find("toy"), nullptr) << "the first by name counts";
    ASSERT_NE(loader.discovery().last("toy.yaml"), nullptr);
    EXPECT_THAT(loader.discovery().last("toy.yaml")->reason, HasSubstr("same.yaml does already"));
  }
  std::filesystem::remove(folder_.at("weft/plugins.d/same.yaml"));
  other.replace(other.find("toy.so"), 6, "joy.so");
  folder_.write("weft/plugins.d/other.yaml", other);
  Loader loader(options());
  EXPECT_EQ(loader.units().size(), 10u) << loader.discovery().to_text();
  EXPECT_NE(loader.find("xtoy"), nullptr);
  // What did not change still comes from the index.
  Loader strict(index_only());
  EXPECT_EQ(strict.units().size(), 5u);
  EXPECT_THAT(strict.discovery().to_text(), HasSubstr("other.yaml"));
}

TEST_F(FindUnitsTest, ForgetsARemovedManifest) {
  install();
  NEEDS_PROBE();
  refresh();
  std::filesystem::remove(folder_.at("weft/plugins.d/toy.yaml"));
  std::filesystem::remove(folder_.at("weft/toy.so"));
  Loader loader(options());
  EXPECT_TRUE(loader.units().empty());
}

TEST_F(FindUnitsTest, ReportsADamagedIndexAndReadsManifests) {
  install();
  folder_.write("weft/plugins.idx", "weft-index\t3\t1.0\tx\n");
  Loader loader(options());
  expect_toy(loader, folder_.at("weft"));
  const Decision *trouble = loader.discovery().last("plugins.idx");
  ASSERT_NE(trouble, nullptr);
  EXPECT_THAT(trouble->reason, HasSubstr("line 1"));
  EXPECT_THAT(trouble->remedy.words, HasSubstr("weft plugin refresh"));
}

TEST_F(FindUnitsTest, ReportsTheLineOfABadManifest) {
  install();
  folder_.write("weft/plugins.d/toy.yaml", "manifest: 1\nname: [\n");
  Loader loader(without_probe());
  const Decision *trouble = loader.discovery().last("toy.yaml");
  ASSERT_NE(trouble, nullptr);
  EXPECT_EQ(trouble->stage, Stage::kManifest);
  EXPECT_THAT(trouble->reason, HasSubstr("line"));
  // The library itself is there, and its descriptor is read.
  EXPECT_NE(loader.find("toy"), nullptr);
}

TEST_F(FindUnitsTest, ReportsAManifestForAnotherArchitecture) {
  install();
  std::string text = TestFolder::read(folder_.at("weft/plugins.d/toy.yaml"));
  const size_t at = text.find("arch: ") + 6;
  text.replace(at, text.find('\n', at) - at, "vax");
  folder_.write("weft/plugins.d/toy.yaml", text);
  std::filesystem::remove(folder_.at("weft/toy.so"));
  Loader loader(options());
  const Decision *trouble = loader.discovery().last("toy.yaml");
  ASSERT_NE(trouble, nullptr);
  EXPECT_EQ(trouble->stage, Stage::kArchitecture);
  EXPECT_THAT(trouble->reason, HasSubstr("built for vax"));
}

TEST_F(FindUnitsTest, LeavesOutFoldersThatOthersCanWriteTo) {
  install();
  chmod(folder_.at("weft").c_str(), 0777);
  {
    Loader loader(options());
    EXPECT_TRUE(loader.units().empty());
    const Decision *trouble = loader.discovery().last("weft");
    ASSERT_NE(trouble, nullptr);
    EXPECT_EQ(trouble->stage, Stage::kTrust);
  }
  chmod(folder_.at("weft").c_str(), 0755);
  chmod(folder_.at("weft/plugins.d").c_str(), 0777);
  Loader loader(options());
  EXPECT_TRUE(loader.units().empty());
}

TEST_F(FindUnitsTest, ReportsAMissingFolder) {
  LoaderOptions given = options();
  given.folders.insert(given.folders.begin(), folder_.at("nowhere"));
  Loader loader(given);
  const Decision *trouble = loader.discovery().last("nowhere");
  ASSERT_NE(trouble, nullptr);
  EXPECT_FALSE(trouble->remedy.empty());
}

}  // namespace
}  // namespace weft
