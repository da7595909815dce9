// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/file_trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/loader/test_folder.h"

namespace weft {
namespace {

using testing::HasSubstr;

class FileTrust : public testing::Test {
 protected:
  void expect_refused(const TrustRules &rules, const char *cause, const char *remedy) {
    const Checked<FileStamp> stamp = check_trust(file_, rules);
    ASSERT_FALSE(stamp) << cause;
    EXPECT_EQ(stamp.error().stage, Stage::kTrust);
    EXPECT_THAT(stamp.error().cause, HasSubstr(cause));
    EXPECT_THAT(stamp.error().remedy, HasSubstr(remedy));
  }
  void mode(mode_t mode) { ASSERT_EQ(chmod(file_.c_str(), mode), 0); }

  TestFolder folder_;
  const std::string file_ = folder_.write("sub/x.so", "12345");
};

TEST_F(FileTrust, AnOrdinaryFileHasAStamp) {
  const Checked<FileStamp> stamp = check_trust(file_, {});
  ASSERT_TRUE(stamp);
  EXPECT_EQ(stamp->size, 5u);
  FileStamp same;
  ASSERT_TRUE(stamp_of(file_, same));
  EXPECT_EQ(*stamp, same);
}

TEST_F(FileTrust, OthersMayNotWriteToFileOrFolder) {
  mode(0666);
  expect_refused({}, "everybody can write to the file", "chmod o-w");
  mode(0644);
  chmod(folder_.at("sub").c_str(), 0777);
  expect_refused({}, "everybody can write to the folder", "chmod o-w");
  chmod(folder_.at("sub").c_str(), 01777);  // as /tmp: nobody can replace what is not theirs
  EXPECT_TRUE(check_trust(file_, {}));
}

TEST_F(FileTrust, AGroupMayWriteToFilesOfThisUserOnly) {
  mode(0664);
  EXPECT_TRUE(check_trust(file_, {}));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(chown(file_.c_str(), 12345, 12345), 0);
  mode(0664);
  expect_refused({}, "group 12345 can write to the file", "chmod g-w");
  mode(0644);
  EXPECT_TRUE(check_trust(file_, {})) << "a file of another user that only this one can write to";
}

TEST_F(FileTrust, WithRaisedPrivilegesOnlyRootsFilesCount) {
  if (geteuid() != 0) {
    expect_refused({.secure = true}, "belongs to user", "chown root");
    return;
  }
  // The folders above are those of this machine; /tmp is sticky.
  EXPECT_TRUE(check_trust(file_, {.secure = true}));
  mode(0664);
  expect_refused({.secure = true}, "can write to the file", "chmod g-w");
  mode(0644);
  ASSERT_EQ(chown(folder_.path().c_str(), 12345, 12345), 0);
  expect_refused({.secure = true}, "the folder", "chown root");
  EXPECT_TRUE(check_trust(file_, {}));
}

TEST_F(FileTrust, AbsentAndOddFiles) {
  EXPECT_THAT(check_trust(folder_.at("none"), {}).error().cause, HasSubstr("no such file"));
  EXPECT_THAT(check_trust("/dev/zero", {}).error().cause, HasSubstr("a device"));
  ASSERT_EQ(mkfifo(folder_.at("pipe").c_str(), 0600), 0);
  EXPECT_THAT(check_trust(folder_.at("pipe"), {}).error().cause, HasSubstr("a pipe"));
  EXPECT_THAT(check_file(file_, {}).error().cause, HasSubstr("not an ELF file"));
}

TEST_F(FileTrust, ReadsWithinALimit) {
  EXPECT_EQ(*read_trusted(file_, {}, 5), "12345");
  EXPECT_THAT(read_trusted(file_, {}, 4).error().cause, HasSubstr("at most 4 are read"));
  mode(0666);
  EXPECT_FALSE(read_trusted(file_, {}, 5));
}

TEST_F(FileTrust, ALinkIsJudgedByWhatItPointsTo) {
  ASSERT_EQ(symlink(file_.c_str(), folder_.at("link.so").c_str()), 0);
  EXPECT_TRUE(check_trust(folder_.at("link.so"), {}));
  mode(0666);
  EXPECT_FALSE(check_trust(folder_.at("link.so"), {}));
}

}  // namespace
}  // namespace weft
