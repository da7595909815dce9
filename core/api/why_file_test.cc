// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/why_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/api/process.h"
#include "core/loader/test_folder.h"

namespace weft {
namespace {

using Lines = std::vector<nlohmann::json>;

// The lines of each file, which is one per process.
std::map<std::string, Lines> lines_in(const std::string &folder) {
  std::map<std::string, Lines> all;
  for (const auto &entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);)
      all[entry.path()].push_back(nlohmann::json::parse(line));
  }
  return all;
}

TEST(WhyFile, BeginsWithTheProcess) {
  const TestFolder folder;
  WhyFile file(folder.path(), "/lib");
  file.begin();
  file.begin();
  file.write(R"({"call": "getinfo"})");
  const auto all = lines_in(folder.path());
  ASSERT_EQ(all.size(), 1u);
  const Lines &lines = all.begin()->second;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["call"], "process");
  EXPECT_EQ(lines[0]["pid"], getpid());
  EXPECT_EQ(lines[0]["library_folder"], "/lib");
  EXPECT_EQ(lines[1]["call"], "getinfo");
  struct stat status;
  ASSERT_EQ(stat(all.begin()->first.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(WhyFile, AForkedProcessHasAFileOfItsOwn) {
  const TestFolder folder;
  WhyFile file(folder.path(), "/lib");
  file.write(R"({"of": "parent"})");
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = 3; fd < 256; ++fd) close(fd);  // as daemons do
    file.write(R"({"of": "child"})");
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  file.write(R"({"of": "parent"})");
  const auto all = lines_in(folder.path());
  ASSERT_EQ(all.size(), 2u);
  for (const auto &[path, lines] : all) {
    const bool of_child = lines[0]["pid"] == child;
    ASSERT_EQ(lines.size(), of_child ? 2u : 3u);
    EXPECT_EQ(lines[1]["of"], of_child ? "child" : "parent");
    if (of_child) {
      EXPECT_EQ(lines[0]["parent"], getpid());
    }
  }
}

TEST(WhyFile, IgnoresFilesThatCannotBeWritten) {
  const TestFolder folder;
  WhyFile("", "").write("{}");
  WhyFile("relative", "").write("{}");
  WhyFile(folder.at("none"), "").write("{}");
  EXPECT_FALSE(std::filesystem::exists("relative"));
  EXPECT_TRUE(lines_in(folder.path()).empty());
}

// In a folder that others may write to. The name is known: the host's and the process's number.
TEST(WhyFile, WritesIntoNoFileOfOthersAndNoOtherOfOurs) {
  const TestFolder folder;
  WhyFile(folder.path(), "").write("{}");
  ASSERT_EQ(lines_in(folder.path()).size(), 1u);
  const std::string path = lines_in(folder.path()).begin()->first;
  const auto expect_refused = [&](const char *what) {
    const auto before = std::filesystem::file_size(path);
    WhyFile(folder.path(), "").write("{}");
    EXPECT_EQ(std::filesystem::file_size(path), before) << what;
  };
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    expect_refused("of another user");
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  }
  ASSERT_EQ(link(path.c_str(), folder.at("private").c_str()), 0);
  expect_refused("linked here");
  std::filesystem::remove(folder.at("private"));
  const auto before = std::filesystem::file_size(path);
  WhyFile(folder.path(), "").write("{}");
  EXPECT_GT(std::filesystem::file_size(path), before) << "ours alone";
}

// Without the line about the process, nobody could tell whose lines these are.
TEST(WhyFile, BeginsWithTheProcessAlsoIfMadeLate) {
  const TestFolder folder;
  WhyFile file(folder.at("later"), "/lib");
  file.write(R"({"of": "before"})");
  ASSERT_EQ(mkdir(folder.at("later").c_str(), 0700), 0);
  file.write(R"({"of": "after"})");
  const auto all = lines_in(folder.at("later"));
  ASSERT_EQ(all.size(), 1u);
  const Lines &lines = all.begin()->second;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["call"], "process");
  EXPECT_EQ(lines[1]["of"], "after");
}

TEST(WhyFile, WritesOnlyIfAskedFor) {
  const TestFolder folder;
  EXPECT_EQ(Process(Environment{{}, "/lib", false}).why, nullptr);
  EXPECT_EQ(Process(Environment{{{"WEFT_WHY", ""}}, "/lib", false}).why, nullptr);
  EXPECT_NE(Process(Environment{{{"WEFT_WHY", folder.path()}}, "/lib", false}).why, nullptr);
  EXPECT_EQ(lines_in(folder.path()).size(), 1u);
}

}  // namespace
}  // namespace weft
