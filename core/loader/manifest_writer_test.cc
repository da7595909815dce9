// SPDX-License-Identifier: BSD-2-Clause
// Tests how a manifest is written. find_units_test.cc reads back what weft-probe wrote.
#include "core/loader/manifest_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/loader/test_folder.h"

namespace weft {
namespace {

TEST(Manifest, QuotesEveryText) {
  PluginRecord record;
  record.name = "no";
  record.vendor = "a \"b\" \\ c: {}";
  EXPECT_THAT(manifest_yaml(record, "../x.so"),
              testing::AllOf(testing::HasSubstr("name: \"no\"\n"),
                             testing::HasSubstr("vendor: \"a \\\"b\\\" \\\\ c: {}\"\n"),
                             testing::HasSubstr("library: \"../x.so\"\n")));
}

TEST(Manifest, OnlyALayerSaysHowManyProvidersItTakes) {
  PluginRecord record;
  UnitInfo &unit = record.units.emplace_back();
  unit.kind = WEFT_KIND_PROVIDER;
  EXPECT_THAT(manifest_yaml(record, "x.so"), testing::Not(testing::HasSubstr("inner_")));
  unit.kind = WEFT_KIND_LAYER;
  unit.inner_min = 2;
  unit.inner_max = 4;
  EXPECT_THAT(manifest_yaml(record, "x.so"),
              testing::HasSubstr("    inner_min: 2\n    inner_max: 4\n"));
}

TEST(WriteAtomically, ReplacesTheFileAndLeavesNoOther) {
  TestFolder folder;
  const std::string path = folder.at("x");
  ASSERT_TRUE(write_atomically(path, "one"));
  ASSERT_TRUE(write_atomically(path, "two"));
  EXPECT_EQ(TestFolder::read(path), "two");
  size_t files = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  EXPECT_EQ(files, 1u);
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
}

TEST(WriteAtomically, ReportsWhyItCannotWrite) {
  TestFolder folder;
  const Result<void> nowhere = write_atomically(folder.at("none/x"), "one");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, FI_ENOENT);
  std::filesystem::create_directories(folder.at("taken/deep"));
  const Result<void> taken = write_atomically(folder.at("taken"), "one");
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error().text, testing::HasSubstr("replace"));
  for (const auto &entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().filename(), "taken") << "the temporary file is gone";
}

}  // namespace
}  // namespace weft
