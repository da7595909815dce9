// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/supervise.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/printable.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tools/weft/child.h"
#include "tools/weft/command.h"
#include "tools/weft/library.h"

namespace weft::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kPatience = 5;                    // times the budget of a probe
constexpr milliseconds kFirstPatience{10'000};  // until the child has told its own
constexpr size_t kMaxCulprits = 64;             // plugins that may be left out
constexpr const char *kRemedy =
    "ask its vendor for a repaired release; until then disable its units (providers.disable, "
    "FI_PROVIDER=^NAME), or take the file away";

struct Call {
  std::string unit, library, name;
};

struct Culprit {
  std::string unit, library, reason;
};

// ---- in the child ----

void write_line(int fd, const std::string &line) {
  for (size_t done = 0; done < line.size();) {
    const ssize_t wrote = write(fd, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;  // the parent is gone
    done += static_cast<size_t>(wrote);
  }
}

int steps_fd = -1;

void step(void *, const char *unit, const char *library, const char *call) {
  write_line(steps_fd, unit == nullptr
                           ? "end\n"
                           : absl::StrCat("in\t", unit, "\t", library, "\t", call, "\n"));
}

// How long the configuration lets a plugin take, for the parent.
void tell_patience(const Library &library) {
  const Result<Json> config = library.config();
  if (!config) return;
  for (const Json &value : array_of(*config, "values"))
    if (text_of(value, "key") == "plugins.probe_budget_ms")
      write_line(steps_fd, absl::StrCat("budget\t", text_of(value, "value"), "\n"));
}

// Runs the command after the library was told what goes before.
int run_after(const std::string &command, const Before &before, const Library *library,
              const std::function<int()> &run) {
  if (before == nullptr || library == nullptr) return run();
  const Result<void> told = before(*library);
  if (told) return run();
  absl::FPrintF(stderr, "%s: %s\n", command, printable_lines(told.error().text));
  return kExitUsage;
}

// Without a child: a plugin that hangs stops the command.
int run_here(const std::string &command, const Before &before, const std::function<int()> &run) {
  const Result<Library> library = Library::open();
  return run_after(command, before, library ? &*library : nullptr, run);
}

[[noreturn]] void be_the_child(pid_t parent, int fd, int errors,
                               const std::vector<Culprit> &culprits, const std::string &command,
                               const Before &before, const std::function<int()> &run) {
  if (!end_with(parent)) _exit(kExitUsage);
  // Nothing of the output comes out before the end, where it is not very long.
  static std::array<char, 1 << 20> buffer;
  setvbuf(stdout, buffer.data(), _IOFBF, buffer.size());
  if (errors >= 0) dup2(errors, STDERR_FILENO);
  steps_fd = fd;
  const Result<Library> library = Library::open();
  if (library) {
    library->watch(step, nullptr);
    for (const Culprit &one : culprits) library->refuse(one.library, one.reason, kRemedy);
  }
  std::exit(run_after(command, before, library ? &*library : nullptr, [&] {
    if (library) tell_patience(*library);
    return run();
  }));
}

// ---- in the parent ----

// What a child has told of its calls.
class Steps {
 public:
  void add(absl::string_view bytes) {
    absl::StrAppend(&rest_, bytes);
    for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1))
      line(absl::string_view(rest_).substr(0, end));
  }
  // 0: it is in no call.
  milliseconds patience() const { return open_ ? patience_ : milliseconds(0); }
  const Call *call() const { return open_ ? &call_ : nullptr; }

 private:
  void line(absl::string_view text) {
    const std::vector<std::string> fields = absl::StrSplit(text, '\t');
    int64_t budget = 0;
    if (fields[0] == "budget" && fields.size() == 2 && absl::SimpleAtoi(fields[1], &budget))
      patience_ = kPatience * milliseconds(budget);
    open_ = fields[0] == "in" && fields.size() == 4;
    if (open_) call_ = {fields[1], fields[2], fields[3]};
  }
  std::string rest_;
  milliseconds patience_ = kFirstPatience;
  bool open_ = false;
  Call call_;
};

struct Ending {
  int status = 0;  // as waitpid() gives it
  bool hung = false;
  Steps steps;
};

// Reads what is there; false: the child has closed its end.
bool read_steps(int fd, Steps &steps) {
  std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0;
    steps.add({buffer.data(), static_cast<size_t>(got)});
  }
}

// Until the child has ended, or one of its calls takes too long. A process that a plugin has left
// behind may keep the pipe open, so the end of the child counts by itself.
Ending wait_for(pid_t child, int fd) {
  Ending ending;
  const int process =
      static_cast<int>(syscall(SYS_pidfd_open, child, 0));  // -1: only the pipe counts
  for (bool goes_on = true; goes_on;) {
    const milliseconds patience = ending.steps.patience();
    pollfd waits[] = {{fd, POLLIN, 0}, {process, POLLIN, 0}};
    const int ready =
        poll(waits, 2, patience.count() == 0 ? -1 : static_cast<int>(patience.count()));
    if (ready < 0 && errno == EINTR) continue;
    ending.hung = ready == 0;
    if (ending.hung) kill(child, SIGKILL);
    goes_on = !ending.hung && read_steps(fd, ending.steps) && waits[1].revents == 0;
  }
  if (process >= 0) close(process);
  while (waitpid(child, &ending.status, 0) < 0 && errno == EINTR) {
  }
  return ending;
}

void print_errors(int fd) {
  if (fd < 0) return;
  std::array<char, 4096> buffer;
  std::string all;
  lseek(fd, 0, SEEK_SET);
  for (ssize_t got; (got = read(fd, buffer.data(), buffer.size())) > 0;)
    all.append(buffer.data(), static_cast<size_t>(got));
  std::fputs(printable_lines(all).c_str(), stderr);
}

// Whose fault the end of a child was; false: nobody's that is known.
bool find_culprit(const Ending &ending, Culprit &culprit) {
  const Call *call = ending.steps.call();
  if (call == nullptr) return false;
  std::string how;
  if (ending.hung)
    how = absl::StrCat("did not return from ", call->name, " within ",
                       ending.steps.patience().count(), " ms");
  else if (WIFSIGNALED(ending.status))
    how = absl::StrCat("was killed in ", call->name, " by signal ", WTERMSIG(ending.status), " (",
                       strsignal(WTERMSIG(ending.status)), ")");
  else
    how = absl::StrCat("ended the process in ", call->name, " with status ",
                       WEXITSTATUS(ending.status));
  culprit = {call->unit, call->library, absl::StrCat("when it was asked, it ", how)};
  return true;
}

}  // namespace

int supervised(const std::string &command, const Before &before, const std::function<int()> &run) {
  std::vector<Culprit> culprits;
  for (;;) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return run_here(command, before, run);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const int errors = memfd_create("stderr", MFD_CLOEXEC);
    const pid_t self = getpid(), child = fork();
    if (child < 0) return run_here(command, before, run);
    if (child == 0) be_the_child(self, ends[1], errors, culprits, command, before, run);
    close(ends[1]);
    const Ending ending = wait_for(child, ends[0]);
    close(ends[0]);
    Culprit culprit;
    const bool blamed = find_culprit(ending, culprit);
    const bool again = blamed && culprits.size() < kMaxCulprits &&
                       std::none_of(culprits.begin(), culprits.end(), [&](const Culprit &one) {
                         return one.library == culprit.library;
                       });
    if (!again) print_errors(errors);
    if (errors >= 0) close(errors);
    if (again) {
      culprits.push_back(culprit);
      continue;
    }
    if (blamed) culprits.push_back(culprit);
    for (const Culprit &one : culprits)
      absl::FPrintF(stderr, "%s: %s (%s) is left out: %s: %s\n", command, printable(one.unit),
                    printable(one.library), printable(one.reason), kRemedy);
    if (ending.hung || !WIFEXITED(ending.status)) {
      if (!blamed && WTERMSIG(ending.status) == SIGPIPE) raise(SIGPIPE);  // nobody reads any more
      if (!blamed)
        absl::FPrintF(stderr, "%s: killed by signal %d\n", command, WTERMSIG(ending.status));
      return kExitUsage;
    }
    return WEXITSTATUS(ending.status);
  }
}

}  // namespace weft::cli
