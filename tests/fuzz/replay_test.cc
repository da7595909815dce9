// SPDX-License-Identifier: BSD-2-Clause
// The replacement of libFuzzer in ordinary builds: it runs every file of a corpus. A file that
// crashes, that cannot be read or that is not there is a failure.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/paths.h"

namespace weft::fuzz {
namespace {

namespace fs = std::filesystem;

class Replay : public ::testing::Test {
 protected:
  Replay() {
    std::string name = (fs::temp_directory_path() / "weft-replay-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    corpus_ = name;
  }
  ~Replay() override { fs::remove_all(corpus_); }

  void add(const fs::path &name, const std::string &bytes) {
    fs::create_directories((corpus_ / name).parent_path());
    std::ofstream(corpus_ / name, std::ios::binary) << bytes;
  }
  struct Result {
    bool passed;
    std::string said;
  };
  static Result run(const fs::path &what) {
    const std::string command =
        test::built("fuzz/fuzz_replay_target") + " '" + what.string() + "' 2>&1";
    Result result{};
    FILE *const pipe = popen(command.c_str(), "r");
    char line[1000];
    while (std::fgets(line, sizeof line, pipe) != nullptr) result.said += line;
    const int status = pclose(pipe);
    result.passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return result;
  }
  fs::path corpus_;
};

TEST_F(Replay, RunsEveryFile) {
  add("a", "1");
  add("empty", "");
  add("deeper/down/b", std::string("\0\n\xff", 3));
  const Result result = run(corpus_);
  EXPECT_TRUE(result.passed) << result.said;
  EXPECT_NE(result.said.find("3 inputs"), std::string::npos) << result.said;
}

TEST_F(Replay, FailsIfAnInputCrashes) {
  for (const char *name : {"a", "b", "z"}) {
    for (const char *each : {"a", "b", "z"}) add(each, each == std::string(name) ? "x" : "1");
    const Result result = run(corpus_);
    EXPECT_FALSE(result.passed) << name;
    EXPECT_NE(result.said.find(name), std::string::npos) << "does not say which";
  }
}

TEST_F(Replay, FailsWithoutAnInput) {
  EXPECT_FALSE(run(corpus_).passed) << "an empty corpus";
  EXPECT_FALSE(run(corpus_ / "nothing").passed) << "a corpus that is not there";
}

}  // namespace
}  // namespace weft::fuzz
