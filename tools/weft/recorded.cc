// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/recorded.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/runtime_dir.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace weft::cli {
namespace {

enum class Lock { kOurs, kAnothers, kNone };

sdk::UniqueFd open_folder(const std::string &path) {
  return sdk::UniqueFd(
      open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

// Of a folder that is gone, it is another's: that one has removed it.
Lock lock(const sdk::UniqueFd &folder) {
  struct stat found = {};
  if (flock(folder.get(), LOCK_EX | LOCK_NB) != 0)
    return errno == EWOULDBLOCK ? Lock::kAnothers : Lock::kNone;
  return fstat(folder.get(), &found) == 0 && found.st_nlink == 0 ? Lock::kAnothers : Lock::kOurs;
}

// Removes the folders of processes that were killed: who uses one holds its lock.
void sweep(const std::string &runtime, const std::string &prefix) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(runtime, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->path().filename().string().starts_with(prefix)) continue;
    std::error_code ignored;
    const sdk::UniqueFd folder = open_folder(it->path().string());
    if (lock(folder) == Lock::kOurs) std::filesystem::remove_all(it->path(), ignored);
  }
}

}  // namespace

Result<std::unique_ptr<RunFolder>> RunFolder::create(const std::string &name) {
  WEFT_TRY(const std::string runtime, runtime_directory());
  sweep(runtime, absl::StrCat(name, "-"));
  for (;;) {
    std::string path = absl::StrCat(runtime, "/", name, "-XXXXXX");
    if (mkdtemp(path.data()) == nullptr) {
      const int code = errno;
      return fail(code, "%s: %s", path.c_str(), strerror(code));
    }
    // A process that sweeps may have come between. Where there are no locks none sweeps.
    sdk::UniqueFd folder = open_folder(path);
    if (lock(folder) != Lock::kAnothers)
      return std::unique_ptr<RunFolder>(new RunFolder(path, std::move(folder)));
  }
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> RunFolder::files() const {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path_, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file(error)) found.push_back(it->path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<int> run_command(const std::vector<std::string> &command,
                        const std::function<void()> &prepare) {
  std::vector<char *> arguments;
  for (const std::string &word : command) arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, &before);
  std::fflush(nullptr);
  const pid_t child = fork();
  const int code = errno;
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    prepare();
    execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "weft: %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
  }
  int raw = 0;
  while (child > 0 && waitpid(child, &raw, 0) < 0 && errno == EINTR) {
  }
  // A signal that arrived meanwhile was meant for the command.
  timespec now{};
  while (sigtimedwait(&signals, nullptr, &now) > 0) {
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return fail(code, "fork: %s", strerror(code));
  return WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
}

}  // namespace weft::cli
