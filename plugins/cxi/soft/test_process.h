// SPDX-License-Identifier: BSD-2-Clause
// For tests with several processes: a folder of their own, and a process that is killed at the end.
//
// Example (statements):
//    const TestFolder folder;
//    TestProcess other([&](const auto &ready) {
//      if (access(folder.path.c_str(), W_OK) == 0) ready();
//      pause();
//    });  // throws, unless the other process gets ready
//    other.kill_it();
#ifndef WEFT_PLUGINS_CXI_SOFT_TEST_PROCESS_H
#define WEFT_PLUGINS_CXI_SOFT_TEST_PROCESS_H

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

namespace weft::cxi {

class TestFolder {
 public:
  TestFolder() {
    char name[] = "/tmp/weft_cxi_XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
    path = name;
  }
  ~TestFolder() { std::filesystem::remove_all(path); }
  std::string path;
};

class TestProcess {
 public:
  explicit TestProcess(const std::function<void(const std::function<void()> &ready)> &body) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      try {
        body([&] {
          const char good = 1;
          if (write(ends[1], &good, 1) != 1) _exit(1);
        });
      } catch (const std::exception &error) {
        std::fprintf(stderr, "child process: %s\n", error.what());
      }
      _exit(2);
    }
    close(ends[1]);
    char good = 0;
    const bool told = read(ends[0], &good, 1) == 1;
    close(ends[0]);
    if (!told) throw std::runtime_error("the other process failed");
  }
  ~TestProcess() { kill_it(); }
  void kill_it() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // It stops itself (SIGSTOP).
  void wait_until_it_stops() { waitpid(pid_, nullptr, WUNTRACED); }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

}  // namespace weft::cxi

#endif
