// SPDX-License-Identifier: BSD-2-Clause
#include "local_peer.h"

#include <absl/strings/str_cat.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "control.h"

namespace weft::bench {

std::string beside_this_program(const char *name) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) fail("cannot read /proc/self/exe: %s", error.message());
  return self.parent_path() / name;
}

LocalPeer::LocalPeer(const Options &options, int cpu, const SharedLine *line) {
  Fd listener = listen("127.0.0.1", 0);
  port_ = local_port(listener.get());
  const pid_t parent = getpid();
  const std::string self = beside_this_program("weft-bench");
  pid_ = fork();
  if (pid_ < 0) fail("fork: %s", strerror(errno));
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  if (!options.server_library_path.empty()) {
    setenv("LD_LIBRARY_PATH", options.server_library_path.c_str(), 1);
  }
  fcntl(listener.get(), F_SETFD, 0);
  if (line != nullptr) fcntl(line->fd(), F_SETFD, 0);
  const std::string fd = absl::StrCat(listener.get());
  const std::string line_fd = absl::StrCat(line != nullptr ? line->fd() : -1);
  const std::string cpu_text = absl::StrCat(cpu);
  const std::string timeout = std::to_string(options.timeout);
  execl(self.c_str(), "weft-bench", "--server", "--listen-fd", fd.c_str(), "--cpu",
        cpu_text.c_str(), "--timeout", timeout.c_str(), "--line-fd", line_fd.c_str(),
        static_cast<char *>(nullptr));
  dprintf(STDERR_FILENO, "weft-bench: cannot start the peer: %s\n", strerror(errno));
  _exit(127);
}

LocalPeer::~LocalPeer() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string LocalPeer::fate(double seconds) {
  if (pid_ <= 0) return fate_;
  const uint64_t deadline = now_ns() + static_cast<uint64_t>(seconds * 1e9);
  int status = 0;
  pid_t got;
  while ((got = waitpid(pid_, &status, WNOHANG)) == 0 && now_ns() < deadline) sched_yield();
  if (got != pid_) return "";
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    fate_ = absl::StrCat("the peer was ended by signal ", WTERMSIG(status), " (",
                         strsignal(WTERMSIG(status)), ")");
  } else if (WEXITSTATUS(status) != 0) {
    fate_ = absl::StrCat("the peer ended with status ", WEXITSTATUS(status));
  }
  return fate_;
}

}  // namespace weft::bench
