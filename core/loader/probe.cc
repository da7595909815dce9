// SPDX-License-Identifier: BSD-2-Clause
#include "core/loader/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/loader/file_trust.h"
#include "core/loader/index.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return left <= 0 ? 0 : static_cast<int>(std::min<int64_t>(left, 1 << 30));
}

// Blocks SIGCHLD until the child is reaped: a handler of the application that waits for any child
// must not reap this one.
class HoldChildSignal {
 public:
  HoldChildSignal() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, &old_);
  }
  ~HoldChildSignal() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
  HoldChildSignal(const HoldChildSignal &) = delete;
  HoldChildSignal &operator=(const HoldChildSignal &) = delete;

 private:
  sigset_t old_;
};

// 0 and *pid, or an errno.
int spawn(const ProbeOptions &options, const std::string &library, int report_fd, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  if (const int error = posix_spawn_file_actions_init(&actions); error != 0) return error;
  if (const int error = posix_spawnattr_init(&attributes); error != 0) {
    posix_spawn_file_actions_destroy(&actions);
    return error;
  }
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  // The report's descriptor first: in a process that closed 0 to 2 it may be one of them.
  int error = posix_spawn_file_actions_adddup2(&actions, report_fd, kProbeReportFd);
  for (int fd = 0; fd < 3 && error == 0; ++fd)
    error = posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
  if (error == 0) error = posix_spawn_file_actions_addclosefrom_np(&actions, kProbeReportFd + 1);
#endif
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  std::string program = options.program, verb = "--probe", file = library;
  char *const argv[] = {program.data(), verb.data(), file.data(), nullptr};
  char *const nothing[] = {nullptr};
  if (error == 0)
    error = posix_spawn(pid, program.c_str(), &actions, &attributes, argv,
                        options.secure ? nothing : environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Reads until the end or the deadline; false: the deadline passed first.
bool read_report(int fd, Clock::time_point deadline, std::string &report) {
  std::array<char, 4096> buffer;
  for (;;) {
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, left_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return true;
    if (report.size() < kMaxIndexSize) report.append(buffer.data(), static_cast<size_t>(n));
  }
}

constexpr const char *kPassingRemedy =
    "it is tried again later, and at once when the file changes or with `weft plugin check`; "
    "plugins.probe_budget_ms of the configuration gives a slow machine more time";

// The kernel sends these to a process that uses too much memory or time. The machine may be at
// fault, not the plugin.
bool is_passing(int signal) {
  return signal == SIGKILL || signal == SIGXCPU;
}

// Ends the child's process group and reaps the child. Empty: it had exited with status 0.
std::string reap(pid_t pid, bool &passing) {
  // A child that is already exiting keeps its exit status.
  kill(-pid, SIGKILL);
  int status = 0;
  const auto deadline = Clock::now() + milliseconds(1000);
  pid_t got = 0;
  while ((got = waitpid(pid, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
    if (Clock::now() >= deadline) return "cannot be killed (it hangs in the kernel)";
    poll(nullptr, 0, 1);
  }
  if (got < 0)
    return {};  // the application ignores SIGCHLD, so the kernel reaped it: only the report is left
  passing = WIFSIGNALED(status) && is_passing(WTERMSIG(status));
  if (WIFSIGNALED(status))
    return std::string("was killed by signal ") + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  if (WEXITSTATUS(status) != 0)
    return "ended the process with status " + std::to_string(WEXITSTATUS(status));
  return {};
}

PluginRecord not_probed(const std::string &library, std::string cause) {
  PluginRecord record;
  record.library = library;
  record.rejection = {Stage::kTrust, "it could not be probed: " + std::move(cause),
                      "reinstall weft; weft-probe belongs beside the plugins", false};
  return record;
}

}  // namespace

PluginRecord judge_report(std::string_view report, const std::string &ending,
                          const std::string &library, bool passing) {
  Stage stage = Stage::kDlopen;
  std::string unit;
  // A child that failed before it opened the plugin (no libstdc++, no memory) proves nothing
  // about the plugin.
  if (!report.starts_with(kProbeMark))
    return not_probed(library, "weft-probe " + (ending.empty() ? "wrote no report" : ending) +
                                   " before it opened the file");
  while (report.starts_with(kProbeMark)) {
    const size_t newline = report.find('\n');
    if (newline == std::string_view::npos) break;
    const std::string_view mark = report.substr(kProbeMark.size(), newline - kProbeMark.size());
    const size_t tab = mark.find('\t');
    stage_from_name(mark.substr(0, tab), stage);
    unit = tab == std::string_view::npos ? std::string() : std::string(mark.substr(tab + 1));
    report.remove_prefix(newline + 1);
  }
  PluginRecord record;
  record.library = library;
  if (ending.empty()) {
    if (Result<Index> parsed = parse_index(report, ""); parsed && parsed->plugins.size() == 1) {
      record = std::move(parsed->plugins.front());
      record.library = library;
      if (record.verdict != Verdict::kUnprobed) return record;
    }
  }
  record = {};
  record.library = library;
  record.verdict = Verdict::kQuarantined;
  record.rejection = {stage,
                      "when it was probed, the plugin " +
                          (ending.empty() ? "ended the process with status 0" : ending) +
                          " in the stage " + std::string(stage_name(stage)) +
                          (unit.empty() ? "" : " of its unit " + unit),
                      passing ? kPassingRemedy : kAskVendor, true, passing};
  return record;
}

PluginRecord probe_in_child(const ProbeOptions &options, const std::string &library) {
  FileStamp stamp;
  if (!stamp_of(library, stamp)) return not_probed(library, strerror(errno));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return not_probed(library, strerror(errno));
  const HoldChildSignal hold;
  pid_t pid = 0;
  const int error = spawn(options, library, ends[1], &pid);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return not_probed(library, "cannot start " + options.program + ": " + strerror(error));
  }
  std::string report;
  const bool in_time = read_report(ends[0], Clock::now() + options.budget, report);
  close(ends[0]);
  bool passing = false;
  std::string ending = reap(pid, passing);
  if (!in_time) {
    ending = "did not come back within " + std::to_string(options.budget.count()) + " ms";
    passing = true;
  }
  PluginRecord record = judge_report(report, ending, library, passing);
  record.library_stamp = stamp;
  return record;
}

}  // namespace weft
