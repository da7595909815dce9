// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/file_trust.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

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

TEST_F(FileTrust, RefusesWhatOthersCanWriteTo) {
  mode(0666);
  expect_refused({}, "everybody can write to the file", "chmod o-w");
  mode(0644);
  chmod(folder_.at("sub").c_str(), 0777);
  expect_refused({}, "everybody can write to the folder", "chmod o-w");
  chmod(folder_.at("sub").c_str(), 01777);  // as /tmp: nobody can replace what is not theirs
  EXPECT_TRUE(check_trust(file_, {}));
  chmod(folder_.at("sub").c_str(), 0755);
  chmod(folder_.path().c_str(), 0777);
  expect_refused({}, "everybody can write to the folder", "chmod o-w");
  EXPECT_FALSE(check_trusted_folder(folder_.at("sub"), {})) << "a folder above";
}

// Others can put a hard link to any file into such a folder.
TEST_F(FileTrust, RefusesAHardLinkInASharedFolder) {
  ASSERT_EQ(link(file_.c_str(), folder_.at("sub/y.so").c_str()), 0);
  for (const mode_t shared : {01777, 01775}) {
    chmod(folder_.at("sub").c_str(), shared);
    expect_refused({}, "has 2 names", "a folder of your own");
  }
  chmod(folder_.at("sub").c_str(), 0755);
  EXPECT_TRUE(check_trust(file_, {}));
}

TEST_F(FileTrust, AGroupMayWriteToFilesOfThisUserOnly) {
  mode(0664);
  EXPECT_TRUE(check_trust(file_, {}));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(chown(file_.c_str(), 12345, 12345), 0);
  const TrustRules rules = {.library_owner = 12345};
  mode(0664);
  expect_refused(rules, "group 12345 can write to the file", "chmod g-w");
  mode(0644);
  EXPECT_TRUE(check_trust(file_, rules));
  expect_refused({}, "belongs to user 12345", "a copy of your own");
}

// One folder, link or file of another user on the way is enough to refuse a file.
TEST_F(FileTrust, RefusesAPathThroughFilesOfOthers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(mkdir(folder_.at("other").c_str(), 0755), 0);
  ASSERT_EQ(symlink("../sub/x.so", folder_.at("other/file.so").c_str()), 0);
  ASSERT_EQ(symlink("sub", folder_.at("folder").c_str()), 0);
  ASSERT_EQ(symlink((folder_.path() + "/folder").c_str(), folder_.at("far").c_str()), 0);
  const std::string ways[] = {file_, folder_.at("other/file.so"), folder_.at("folder/x.so"),
                              folder_.at("far/../other/file.so"), folder_.at("far/x.so")};
  for (const std::string &way : ways) EXPECT_TRUE(check_trust(way, {})) << way;
  struct Owned {
    const char *what;
    std::vector<size_t> spoiled;  // of `ways`
  };
  const Owned owned[] = {{"sub/x.so", {0, 1, 2, 3, 4}}, {"sub", {0, 1, 2, 3, 4}}, {"other", {1, 3}},
                         {"other/file.so", {1, 3}},     {"folder", {2, 3, 4}},    {"far", {3, 4}}};
  for (const Owned &one : owned) {
    for (const uid_t owner : {uid_t{12345}, uid_t{0}}) {
      ASSERT_EQ(lchown(folder_.at(one.what).c_str(), owner, owner), 0);
      for (size_t i = 0; i < std::size(ways); ++i) {
        const bool spoiled = owner != 0 && std::count(one.spoiled.begin(), one.spoiled.end(), i);
        EXPECT_EQ(check_trust(ways[i], {}).has_value(), !spoiled) << one.what << ": " << ways[i];
        EXPECT_EQ(read_trusted(ways[i], {}, 5).has_value(), !spoiled)
            << one.what << ": " << ways[i];
      }
    }
  }
  ASSERT_EQ(chown(folder_.path().c_str(), 12345, 12345), 0);
  expect_refused({}, "the folder", "a copy of your own");
  ASSERT_EQ(chown(folder_.path().c_str(), 0, 0), 0);
  // In a folder like /tmp each file is judged by itself.
  chmod(folder_.at("sub").c_str(), 01777);
  EXPECT_TRUE(check_trust(file_, {}));
  ASSERT_EQ(chown(file_.c_str(), 12345, 12345), 0);
  expect_refused({}, "belongs to user 12345", "a copy of your own");
}

TEST_F(FileTrust, RefusesALoopOfLinks) {
  ASSERT_EQ(symlink("b", folder_.at("a").c_str()), 0);
  ASSERT_EQ(symlink("a", folder_.at("b").c_str()), 0);
  EXPECT_THAT(check_trust(folder_.at("a"), {}).error().cause, HasSubstr("too many links"));
  EXPECT_FALSE(check_trusted_folder(folder_.at("b"), {}));
}

TEST_F(FileTrust, TrustsTheOwnerOfTheLibraryFolder) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  for (const char *own : {"", "sub", "sub/x.so"})
    ASSERT_EQ(chown(folder_.at(own).c_str(), 12345, 12345), 0);
  const TrustRules rules = trust_rules(false, folder_.at("sub"));
  EXPECT_EQ(rules.library_owner, 12345u);
  EXPECT_TRUE(check_trust(file_, rules));
  EXPECT_FALSE(check_trust(file_, {}));
  EXPECT_FALSE(check_trust(file_, trust_rules(true, folder_.at("sub"))));
  ASSERT_EQ(chown(file_.c_str(), 12346, 12346), 0);
  EXPECT_FALSE(check_trust(file_, rules));
  // In a folder where everybody can put files, that user is not trusted.
  ASSERT_EQ(chown(file_.c_str(), 12345, 12345), 0);
  chmod(folder_.at("sub").c_str(), 01777);
  EXPECT_FALSE(check_trust(file_, rules));
}

// A user trusts its own files and root's. Users of its group may write to folders above.
TEST_F(FileTrust, AUserTrustsItsOwnFilesAndThoseOfRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  chmod(folder_.path().c_str(), 0755);
  const std::string own = folder_.write("own/x.so", "own");
  const std::string shared = folder_.write("project/own/x.so", "own");
  for (const std::string &path : {folder_.at("own"), own, folder_.at("project/own"), shared})
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  ASSERT_EQ(chown(folder_.at("project").c_str(), 0, 23456), 0);
  chmod(folder_.at("project").c_str(), 02775);
  const auto as = [&](uid_t user, gid_t group, const std::string &path) {
    const pid_t child = fork();
    if (child == 0) {
      const bool changed = setgroups(0, nullptr) == 0 && setresgid(group, group, group) == 0 &&
                           setresuid(user, user, user) == 0;
      _exit(!changed ? 2 : check_trust(path, {}) ? 1 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
  };
  EXPECT_TRUE(as(12345, 12345, own));
  EXPECT_TRUE(as(12345, 12345, file_)) << "root's";
  EXPECT_FALSE(as(12346, 12346, own));
  EXPECT_TRUE(as(12345, 23456, shared)) << "a folder above that the user's group can write to";
  EXPECT_FALSE(as(12345, 12345, shared)) << "a group of others";
  EXPECT_FALSE(check_trust(own, {})) << "root trusts nobody else";
}

// Another thread exchanges the files all the time: what is read is never the other user's file.
TEST_F(FileTrust, ReadsTheFileThatWasJudged) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string good = folder_.write("good.so", "good"), bad = folder_.write("bad.so", "evil");
  ASSERT_EQ(chown(bad.c_str(), 12345, 12345), 0);
  const std::string way = folder_.at("way.so"), spare = folder_.at("spare");
  ASSERT_EQ(link(good.c_str(), way.c_str()), 0);
  std::atomic<bool> done{false};
  std::thread swapper([&] {
    for (size_t i = 0; !done; ++i) {
      const std::string &next = i % 2 == 0 ? bad : good;
      unlink(spare.c_str());
      const int made =
          i % 4 < 2 ? link(next.c_str(), spare.c_str()) : symlink(next.c_str(), spare.c_str());
      if (made == 0) rename(spare.c_str(), way.c_str());
    }
  });
  size_t passed = 0, refused = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((passed < 1000 || refused < 1000) && std::chrono::steady_clock::now() < deadline) {
    const Checked<std::string> text = read_trusted(way, {}, 5);
    if (text) {
      EXPECT_EQ(*text, "good");
    }
    ++(text ? passed : refused);
  }
  done = true;
  swapper.join();
  EXPECT_GT(passed, 0u);
  EXPECT_GT(refused, 0u);
}

TEST_F(FileTrust, WithRaisedPrivilegesTrustsOnlyRoot) {
  if (geteuid() != 0) {
    expect_refused({.secure = true}, "belongs to user", "chown root");
    return;
  }
  // The folders above are those of this machine; /tmp is sticky.
  EXPECT_TRUE(check_trust(file_, {.secure = true}));
  mode(0664);
  expect_refused({.secure = true}, "can write to the file", "chmod g-w");
  mode(0644);
  ASSERT_EQ(chown(folder_.at("sub").c_str(), 12345, 12345), 0);
  EXPECT_TRUE(check_trust(file_, {.library_owner = 12345}));
  expect_refused({.secure = true, .library_owner = 12345}, "the folder", "chown root");
}

TEST_F(FileTrust, RefusesMissingFilesAndDevices) {
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
