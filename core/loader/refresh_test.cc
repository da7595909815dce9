// SPDX-License-Identifier: BSD-2-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "core/loader/loader.h"
#include "core/loader/test_loader.h"

namespace weft {
namespace {

using testing::HasSubstr;

class RefreshTest : public LoaderTest {};

TEST_F(RefreshTest, TheLibraryOverridesItsManifest) {
  install();
  NEEDS_PROBE();
  folder_.copy(toy_plugin(2), "weft/toy.so");
  refresh();
  Loader loader(index_only());
  DecisionRecord why;
  ASSERT_NE(loader.load("toy", why), nullptr) << why.to_text();
  EXPECT_EQ(loader.find("toy")->params[0].name, "eager_limit");
}

TEST_F(RefreshTest, ReportsFilesThatAreNoPlugins) {
  install();
  folder_.write("weft/junk.so", "junk");
  const RefreshReport report = refresh();
  EXPECT_EQ(report.plugins, 1u);
  const Decision *trouble = report.troubles.last("junk.so");
  ASSERT_NE(trouble, nullptr);
  EXPECT_THAT(trouble->reason, HasSubstr("not an ELF file"));
  EXPECT_FALSE(Loader::refresh(options(), folder_.at("nowhere")));
}

TEST_F(RefreshTest, ReportsAFolderThatCannotBeWritten) {
  const bool root = geteuid() == 0;  // root can write everywhere: the test takes another user
  if (root) {
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
    ASSERT_EQ(chown(folder_.at("weft").c_str(), 12345, 12345), 0);
  }
  ASSERT_EQ(chmod(folder_.at("weft").c_str(), 0555), 0);
  if (root) {
    ASSERT_EQ(seteuid(12345), 0);
  }
  const Result<RefreshReport> report = Loader::refresh(options(), folder_.at("weft"));
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  chmod(folder_.at("weft").c_str(), 0755);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().text, HasSubstr("make the folder writable"));
}

TEST_F(RefreshTest, KeepsNoFailureThatMayPass) {
  NEEDS_PROBE();
  install();
  const LoaderOptions impatient = with_slow_probe();
  ASSERT_TRUE(Loader::refresh(impatient, folder_.at("weft")));
  Loader loader(options());
  DecisionRecord why;
  EXPECT_NE(loader.load("toy", why), nullptr) << why.to_text();
}

}  // namespace
}  // namespace weft
