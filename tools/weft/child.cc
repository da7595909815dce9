// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/child.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
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

}  // namespace

Result<ChildResult> run_child(const std::vector<std::string> &command,
                              const std::map<std::string, std::string> &environment,
                              milliseconds limit) {
  Pipe out, err;
  if (!out.open() || !err.open())
    return fail(errno, "cannot open a pipe: %s (open files: see `ulimit -n`)",
                std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const absl::Cleanup destroy_actions = [&] { posix_spawn_file_actions_destroy(&actions); };
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.end(1), 1);
  posix_spawn_file_actions_adddup2(&actions, err.end(1), 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  const absl::Cleanup destroy_attributes = [&] { posix_spawnattr_destroy(&attributes); };
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<std::string> arguments = command, variables = merged_environment(environment);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, command[0].c_str(), &actions, &attributes,
                                pointers(arguments).data(), pointers(variables).data());
  if (error != 0)
    return fail(error, "cannot run %s: %s: reinstall weft", command[0].c_str(),
                std::strerror(error));
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
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace weft::cli
