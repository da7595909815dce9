// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/child.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Pipe {
 public:
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  bool open() { return pipe2(ends_.data(), O_CLOEXEC) == 0; }
  int end(size_t which) const { return ends_[which]; }
  void close_end(size_t which) {
    if (ends_[which] >= 0) close(ends_[which]);
    ends_[which] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::vector<std::string> merged_environment(const std::map<std::string, std::string> &added) {
  std::vector<std::string> all;
  for (char **entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (added.find(text.substr(0, text.find('='))) == added.end()) all.push_back(text);
  }
  for (const auto &[name, value] : added) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

std::vector<char *> pointers(std::vector<std::string> &texts) {
  std::vector<char *> list;
  for (std::string &text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// Reads both until both are at their end; false: the deadline passed first.
bool collect(Pipe &out, Pipe &err, Clock::time_point deadline, ChildResult &result) {
  std::array<char, 4096> buffer;
  while (out.end(0) >= 0 || err.end(0) >= 0) {
    pollfd waits[2] = {{out.end(0), POLLIN, 0}, {err.end(0), POLLIN, 0}};
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    const int ready = left <= 0 ? 0 : poll(waits, 2, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    for (size_t i = 0; i < 2; ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      Pipe &pipe = i == 0 ? out : err;
      std::string &text = i == 0 ? result.out : result.err;
      const ssize_t got = read(pipe.end(0), buffer.data(), buffer.size());
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0)
        pipe.close_end(0);
      else if (text.size() < kMaxChildOutput)
        text.append(buffer.data(), static_cast<size_t>(got));
    }
  }
  return true;
}

// Whether `fd` is at `place` as well, and stays there in the program.
bool put(int fd, int place) {
  return fd == place ? fcntl(fd, F_SETFD, 0) == 0 : dup2(fd, place) == place;
}

// The child becomes the program, in a process group of its own. The program ends with `parent`; the
// children of the program see to that themselves. Only what is safe behind fork() is called.
[[noreturn]] void be_the_program(const Pipe &out, const Pipe &err, const Pipe &failure,
                                 pid_t parent, const char *program, char *const *arguments,
                                 char *const *variables) {
  const auto give_up = [&] {
    const int error = errno;
    (void)!write(failure.end(1), &error, sizeof error);
    _exit(127);
  };
  setpgid(0, 0);  // all of it can be killed at once
  if (!end_with(parent)) give_up();
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || !put(nothing, 0) || !put(out.end(1), 1) || !put(err.end(1), 2)) give_up();
  execve(program, arguments, variables);
  give_up();
  _exit(127);
}

// The errno for which a child has not become its program; 0: it has.
int failure_of(Pipe &failure) {
  failure.close_end(1);
  int error = 0;
  ssize_t got;
  do got = read(failure.end(0), &error, sizeof error);
  while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

}  // namespace

bool end_with(pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (getppid() == parent) return true;
  errno = ESRCH;
  return false;
}

Result<ChildResult> run_child(const std::vector<std::string> &command,
                              const std::map<std::string, std::string> &environment,
                              milliseconds limit) {
  Pipe out, err, failure;
  if (!out.open() || !err.open() || !failure.open())
    return fail(errno, "cannot open a pipe: %s (open files: see `ulimit -n`)",
                std::strerror(errno));
  std::vector<std::string> arguments = command, variables = merged_environment(environment);
  const std::vector<char *> argument_list = pointers(arguments),
                            variable_list = pointers(variables);
  const pid_t self = getpid(), pid = fork();
  if (pid == 0)
    be_the_program(out, err, failure, self, command[0].c_str(), argument_list.data(),
                   variable_list.data());
  if (pid < 0) return fail(errno, "cannot run %s: %s", command[0].c_str(), std::strerror(errno));
  setpgid(pid, pid);  // whoever comes first
  if (const int error = failure_of(failure); error != 0) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return fail(error, "cannot run %s: %s: reinstall weft", command[0].c_str(),
                std::strerror(error));
  }
  out.close_end(1);
  err.close_end(1);
  ChildResult result;
  const bool in_time = collect(out, err, Clock::now() + limit, result);
  if (!in_time) kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time)
    return fail(FI_ETIMEDOUT, "%s did not come back within %lld ms", command[0].c_str(),
                static_cast<long long>(limit.count()));
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace weft::cli
