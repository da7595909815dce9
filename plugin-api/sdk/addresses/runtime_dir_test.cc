// SPDX-License-Identifier: BSD-2-Clause
// Whose the runtime folder is, though other users take its names. They are made by root alone.
#include <weft/runtime_dir.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace weft {
namespace {

class RuntimeDir : public ::testing::Test {
 protected:
  RuntimeDir() {
    char name[] = "/tmp/weft_runtime_XXXXXX";
    parent_ = mkdtemp(name);
    path_ = parent_ + "/weft-" + std::to_string(geteuid());
  }
  ~RuntimeDir() override { std::filesystem::remove_all(parent_); }
  static void take(const std::string &path, mode_t mode = 0700) {
    ASSERT_EQ(mkdir(path.c_str(), mode), 0);
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  }

  std::string parent_, path_;
};

TEST_F(RuntimeDir, IsMadeForThisUserAlone) {
  EXPECT_EQ(detail::usual_directory(path_).value(), path_);
  struct stat made = {};
  ASSERT_EQ(lstat(path_.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 07777, 0700u);
  EXPECT_EQ(detail::usual_directory(path_).value(), path_);
}

TEST_F(RuntimeDir, WhatIsOursAndOthersMayReadIsRefused) {
  ASSERT_EQ(mkdir(path_.c_str(), 0755), 0);
  const auto refused = detail::usual_directory(path_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, FI_EACCES);
  EXPECT_THAT(refused.error().text, ::testing::HasSubstr(path_));
}

TEST_F(RuntimeDir, ANameThatAnotherUserHasTakenIsPassedOver) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes folders of others";
  take(path_, 0777);
  take(path_ + ".1");
  ASSERT_EQ(symlink("/", (path_ + ".2").c_str()), 0);
  ASSERT_EQ(lchown((path_ + ".2").c_str(), 12345, 12345), 0);
  const std::string own = path_ + ".3";
  EXPECT_EQ(detail::usual_directory(path_).value(), own);
  EXPECT_EQ(detail::usual_directory(path_).value(), own) << "the next process finds it";
  // What others do later changes nothing.
  ASSERT_EQ(rmdir(path_.c_str()), 0);
  ASSERT_EQ(rmdir((path_ + ".1").c_str()), 0);
  EXPECT_EQ(detail::usual_directory(path_).value(), own);
  take(path_ + ".x");
  take(path_ + ".1x");
  EXPECT_EQ(detail::usual_directory(path_).value(), own);
}

}  // namespace
}  // namespace weft
