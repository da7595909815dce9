// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/process.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/conformance/common.h"

extern char **environ;

namespace weft::conformance {

namespace {

constexpr const char *kFreshMark = "WEFT_TEST_FRESH_PROCESS";

// The exit status of a process as waitpid gives it. One that does not end is killed.
int wait_for(pid_t pid) {
  const int handle = int(syscall(SYS_pidfd_open, pid, 0));
  if (handle >= 0) {
    pollfd p{handle, POLLIN, 0};
    const Deadline deadline(2 * patience());
    int rc;
    while ((rc = ::poll(&p, 1, deadline.left_ms())) < 0 && errno == EINTR) {
    }
    if (rc == 0) ::kill(pid, SIGKILL);
    ::close(handle);
  }
  int status = -1;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return "exit status " + std::to_string(WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return std::string("killed by ") + strsignal(WTERMSIG(status));
  return "status " + std::to_string(status);
}

}  // namespace

bool is_fresh_process() {
  return std::getenv(kFreshMark) != nullptr;
}

bool in_fresh_process(std::initializer_list<const char *> variables) {
  const auto *test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  const char *mark = std::getenv(kFreshMark);
  if (mark != nullptr && mark == name) return true;

  std::vector<std::string> texts;
  for (const char *variable : variables) texts.emplace_back(variable);
  texts.push_back(std::string(kFreshMark) + "=" + name);
  std::vector<char *> environment;
  for (std::string &text : texts) environment.push_back(text.data());
  for (char **inherited = environ; *inherited != nullptr; ++inherited) {
    const std::string_view entry(*inherited);
    const std::string_view key = entry.substr(0, entry.find('=') + 1);
    // Set here, so that no old value is found first. A report of this test alone must not overwrite
    // that of all tests.
    bool ours = key == "GTEST_OUTPUT=" || key == "GTEST_TOTAL_SHARDS=";
    for (const std::string &text : texts) ours = ours || text.starts_with(key);
    if (!ours) environment.push_back(*inherited);
  }
  environment.push_back(nullptr);
  std::string program = "/proc/self/exe", filter = "--gtest_filter=" + name,
              brief = "--gtest_brief=1";
  char *arguments[] = {program.data(), filter.data(), brief.data(), nullptr};
  pid_t pid;
  const int rc =
      posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments, environment.data());
  if (rc != 0) {
    ADD_FAILURE() << "posix_spawn: " << strerror(rc);
    return false;
  }
  const int status = wait_for(pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << name << " in a process of its own: " << describe_status(status);
  return false;
}

void in_forked_child(const std::function<void()> &body, void (*exits)(int)) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    body();
    exits(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << describe_status(status);
}

Child::Child(const std::function<void(int)> &body) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    throw std::runtime_error("socketpair");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a parent that crashes leaves no child
    if (getppid() != parent) _exit(2);
    ::close(sockets[0]);
    int status = 0;
    try {
      body(sockets[1]);
    } catch (const std::exception &error) {
      fprintf(stderr, "child process: %s\n", error.what());
      status = 2;
    }
    fflush(nullptr);
    _exit(status != 0 ? status : ::testing::Test::HasFailure());
  }
  ::close(sockets[1]);
  socket_ = sockets[0];
}

int Child::wait() {
  return wait_for(std::exchange(pid_, -1));
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
  wait();
}

void Child::stop() {
  int status = 0;
  ASSERT_EQ(::kill(pid_, SIGSTOP), 0);
  ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
  ASSERT_TRUE(WIFSTOPPED(status)) << "the child process: " << describe_status(status);
}

void Child::go_on() {
  ASSERT_EQ(::kill(pid_, SIGCONT), 0);
}

void Child::join() {
  const int status = wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child process: " << describe_status(status);
}

Child::~Child() {
  if (pid_ >= 0) kill();
  if (socket_ >= 0) ::close(socket_);
}

namespace {
void read_all(int socket, void *to, size_t size) {
  const Deadline deadline;
  for (size_t done = 0; done < size;) {
    pollfd p{socket, POLLIN, 0};
    if (::poll(&p, 1, deadline.left_ms()) == 0)
      throw std::runtime_error("the other process says nothing");
    const ssize_t n = ::recv(socket, static_cast<char *>(to) + done, size - done, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) throw std::runtime_error("the other process is gone");
    done += size_t(n);
  }
}
void write_all(int socket, const void *from, size_t size) {
  ssize_t n;
  while ((n = ::send(socket, from, size, MSG_NOSIGNAL)) < 0 && errno == EINTR) {
  }
  if (n != ssize_t(size)) throw std::runtime_error("the other process is gone");
}
}  // namespace

void tell(int socket, uint64_t value) {
  write_all(socket, &value, sizeof value);
}

uint64_t hear(int socket) {
  uint64_t value;
  read_all(socket, &value, sizeof value);
  return value;
}

bool can_hear(int socket) {
  pollfd p{socket, POLLIN, 0};
  return ::poll(&p, 1, 0) > 0;
}

void tell_text(int socket, const std::string &text) {
  tell(socket, text.size());
  write_all(socket, text.data(), text.size());
}

std::string hear_text(int socket) {
  std::string text(hear(socket), '\0');
  read_all(socket, text.data(), text.size());
  return text;
}

}  // namespace weft::conformance
