// SPDX-License-Identifier: BSD-2-Clause
#include "startup.h"

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control.h"

namespace weft::bench {

namespace {

constexpr uint32_t kWarmUp = 3;

std::string run_once(const std::string &probe, const std::string &provider,
                     double timeout_seconds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe: %s", strerror(errno));
  Fd reader(ends[0]), writer(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) fail("fork: %s", strerror(errno));
  if (pid == 0) {
    dup2(writer.get(), STDOUT_FILENO);
    if (!provider.empty()) setenv("FI_PROVIDER", provider.c_str(), 1);
    char start[32];
    char *argv[] = {const_cast<char *>(probe.c_str()), start, nullptr};
    // The clock is read right before exec, so that fork is not part of the time.
    snprintf(start, sizeof start, "%llu", static_cast<unsigned long long>(now_ns()));
    execv(argv[0], argv);
    dprintf(STDOUT_FILENO, "error: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
  }
  writer.reset();
  const uint64_t deadline = now_ns() + static_cast<uint64_t>(timeout_seconds * 1e9);
  std::string text;
  bool late = false;
  for (;;) {
    const uint64_t now = now_ns();
    late = now >= deadline;
    if (late) break;
    pollfd p = {reader.get(), POLLIN, 0};
    if (poll(&p, 1, static_cast<int>((deadline - now) / 1000000 + 1)) <= 0) continue;
    char chunk[1024];
    const ssize_t n = read(reader.get(), chunk, sizeof chunk);
    if (n > 0) text.append(chunk, static_cast<size_t>(n));
    if (n == 0) break;
  }
  if (late) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (late) fail("%s did not finish within %g s", probe, timeout_seconds);
  if (absl::StartsWith(text, "error: ")) fail("%s: %s", probe, text.substr(7));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fail("%s ended with status 0x%x", probe, status);
  }
  return text;
}

}  // namespace

StartupResult measure_startup(const std::string &probe, const std::string &provider, uint32_t count,
                              double timeout_seconds) {
  StartupResult result;
  for (uint32_t i = 0; i < count + kWarmUp; ++i) {
    const std::string line = run_once(probe, provider, timeout_seconds);
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    uint64_t ns = 0;
    if (!absl::SimpleAtoi(parts.first, &ns) || ns == 0) fail("%s printed '%s'", probe, line);
    if (i >= kWarmUp) result.ns.add(ns);
    result.library = std::string(absl::StripSuffix(parts.second, "\n"));
  }
  result.ns.sort();
  return result;
}

}  // namespace weft::bench
