// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "core/loader/index.h"
#include "core/loader/side_effects.h"
#include "core/loader/test_folder.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

std::string report_of(Verdict verdict) {
  Index index;
  PluginRecord &record = index.plugins.emplace_back();
  record.library = "/what/the/child/says.so";
  record.verdict = verdict;
  record.rejection = {Stage::kNegotiate, "bad magic", "ask", false};
  return "at\ttrust\nat\tdlopen\nat\tnegotiate\n" + write_index(index, "");
}

TEST(Report, OfAChildThatEndedWellIsBelieved) {
  const PluginRecord record = judge_report(report_of(Verdict::kRejected), "", "/real.so");
  EXPECT_EQ(record.verdict, Verdict::kRejected);
  EXPECT_EQ(record.rejection.cause, "bad magic");
  EXPECT_EQ(record.library, "/real.so");
}

TEST(Report, OfAChildThatCrashedIsNotBelieved) {
  const PluginRecord record =
      judge_report(report_of(Verdict::kOk), "was killed by signal 11", "/real.so");
  EXPECT_EQ(record.verdict, Verdict::kQuarantined);
  EXPECT_EQ(record.rejection.stage, Stage::kNegotiate);
  EXPECT_THAT(record.rejection.cause, HasSubstr("was killed by signal 11 in the stage negotiate"));
  EXPECT_FALSE(record.rejection.remedy.empty());
}

TEST(Report, CutShortOrSpoiledMeansQuarantine) {
  const std::string report = report_of(Verdict::kOk);
  const size_t first_mark = report.find('\n') + 1;
  for (size_t size = first_mark; size < report.size(); ++size)
    EXPECT_EQ(judge_report(report.substr(0, size), "", "/x.so").verdict, Verdict::kQuarantined)
        << size;
  EXPECT_EQ(judge_report(report + "more", "", "/x.so").verdict, Verdict::kQuarantined);
  EXPECT_EQ(judge_report(report_of(Verdict::kUnprobed), "", "/x.so").verdict,
            Verdict::kQuarantined);
}

TEST(Report, OfAChildThatFailedEarlyIsNoVerdict) {
  const PluginRecord record = judge_report("", "ended the process with status 127", "/x.so");
  EXPECT_EQ(record.verdict, Verdict::kUnprobed);
  EXPECT_THAT(record.rejection.cause, HasSubstr("status 127"));
}

class Spawned : public testing::Test {
 protected:
  void SetUp() override {
    if (count_threads() != 1) GTEST_SKIP() << "this build starts threads of its own; no probing";
  }
  // A probe program that runs `script` with the plugin's path as $2 and its report on descriptor 3.
  ProbeOptions program(const std::string &script, milliseconds budget = milliseconds(5000)) {
    const std::string path = folder_.write("probe", "#!/bin/bash\n" + script + "\n");
    chmod(path.c_str(), 0755);
    return {.program = path, .budget = budget};
  }
  TestFolder folder_;
  const std::string plugin_ = folder_.write("x.so", "plugin");
};

TEST_F(Spawned, GetsOnlyItsArgumentsAndTheReport) {
  const int extra = dup(2);  // a descriptor of the application, not close-on-exec
  const PluginRecord record =
      probe_in_child(program("printf 'at\\tinit\\n' >&3; ls /proc/$$/fd > " + folder_.at("fds") +
                             "; echo \"$1 $2\" > " + folder_.at("args") + "; kill -9 $$"),
                     plugin_);
  close(extra);
  EXPECT_EQ(record.verdict, Verdict::kQuarantined);
  EXPECT_EQ(record.rejection.stage, Stage::kInit);
  EXPECT_THAT(record.rejection.cause, HasSubstr("killed by signal 9"));
  EXPECT_EQ(TestFolder::read(folder_.at("args")), "--probe " + plugin_ + "\n");
  EXPECT_EQ(TestFolder::read(folder_.at("fds")), "0\n1\n2\n255\n3\n");  // 255: the shell's script
  EXPECT_EQ(record.library_stamp.size, 6u);
}

TEST_F(Spawned, IsKilledWithItsChildrenWhenTheTimeIsOver) {
  const std::string script =
      "printf 'at\\tdlopen\\n' >&3; sleep 1000 & echo $! > " + folder_.at("pid") + "; wait";
  const auto start = std::chrono::steady_clock::now();
  // As much time as it takes until there is a child.
  PluginRecord record;
  milliseconds budget(50);
  for (;; budget *= 2) {
    record = probe_in_child(program(script, budget), plugin_);
    if (!TestFolder::read(folder_.at("pid")).empty() || budget > milliseconds(10'000)) break;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(record.verdict, Verdict::kQuarantined);
  EXPECT_THAT(record.rejection.cause,
              HasSubstr("did not come back within " + std::to_string(budget.count()) + " ms"));
  EXPECT_TRUE(record.rejection.passing) << "the machine may have been busy";
  const pid_t grandchild = std::stoi(TestFolder::read(folder_.at("pid")));
  // It was killed with the group: gone, or it ends as soon as it is scheduled.
  const int process = int(syscall(SYS_pidfd_open, grandchild, 0));
  if (process < 0) {
    EXPECT_EQ(errno, ESRCH);
    return;
  }
  pollfd ended = {process, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, 30'000), 1) << "process " << grandchild << " lives on";
  close(process);
}

TEST_F(Spawned, OnlySignalsOfTheKernelMayPass) {
  for (const auto &[signal, passing] :
       {std::pair(SIGKILL, true), {SIGXCPU, true}, {SIGSEGV, false}, {SIGABRT, false}}) {
    const PluginRecord record = probe_in_child(
        program("printf 'at\\tinit\\n' >&3; kill -" + std::to_string(signal) + " $$"), plugin_);
    EXPECT_EQ(record.verdict, Verdict::kQuarantined) << signal;
    EXPECT_EQ(record.rejection.passing, passing) << signal;
  }
}

TEST_F(Spawned, ReadsABoundedReport) {
  const PluginRecord record =
      probe_in_child(program("printf 'at\\tinit\\n' >&3; head -c 20000000 /dev/zero >&3"), plugin_);
  EXPECT_EQ(record.verdict, Verdict::kQuarantined);
}

TEST_F(Spawned, WorksWhereTheApplicationIgnoresChildren) {
  const auto old = signal(SIGCHLD, SIG_IGN);
  const PluginRecord record = probe_in_child(program("printf 'at\\tinit\\n' >&3"), plugin_);
  signal(SIGCHLD, old);
  EXPECT_EQ(record.verdict, Verdict::kQuarantined);  // no report, however it ended
}

volatile sig_atomic_t reaped = 0, called = 0;

TEST_F(Spawned, IsNotReapedByAHandlerOfTheApplication) {
  reaped = 0;
  called = 0;
  struct sigaction action {
  }, old;
  action.sa_handler = [](int) {
    const int error = errno;
    called = 1;
    while (waitpid(-1, nullptr, WNOHANG) > 0) reaped = reaped + 1;
    errno = error;
  };
  sigaction(SIGCHLD, &action, &old);
  const PluginRecord record = probe_in_child(program("printf 'at\\tinit\\n' >&3; exit 7"), plugin_);
  sigaction(SIGCHLD, &old, nullptr);
  EXPECT_THAT(record.rejection.cause, HasSubstr("ended the process with status 7"));
  EXPECT_EQ(called, 1);
  EXPECT_EQ(reaped, 0);
}

TEST_F(Spawned, GetsNoEnvironmentWithRaisedPrivileges) {
  setenv("WEFT_TEST_SECRET", "1", 1);
  ProbeOptions options = program("env > " + folder_.at("env"));
  probe_in_child(options, plugin_);
  EXPECT_THAT(TestFolder::read(folder_.at("env")), HasSubstr("WEFT_TEST_SECRET"));
  options.secure = true;
  probe_in_child(options, plugin_);
  EXPECT_THAT(TestFolder::read(folder_.at("env")), testing::Not(HasSubstr("WEFT_TEST_SECRET")));
  unsetenv("WEFT_TEST_SECRET");
}

TEST_F(Spawned, LeavesNoDescriptorBehind) {
  const size_t before = count_open_files();
  probe_in_child(program("exit 0"), plugin_);
  probe_in_child({.program = "/nonexistent"}, plugin_);
  probe_in_child(program("exit 0"), "/nonexistent");
  EXPECT_EQ(count_open_files(), before);
}

}  // namespace
}  // namespace weft
