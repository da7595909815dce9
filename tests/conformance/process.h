// SPDX-License-Identifier: BSD-2-Clause
// Tests that need processes: one of their own, that no earlier test has touched, or children.
//
// Example:
//     #include <gtest/gtest.h>
//     TEST(Example, AChildAnswers) {
//       if (!in_fresh_process({"FI_TCP_IFACE=lo"})) return;
//       Child child([](int socket) { tell(socket, 42); });
//       EXPECT_EQ(hear(child.socket()), 42u);
//       child.join();
//     }
//
// What a process does with the library is the test's business.
#ifndef WEFT_TESTS_CONFORMANCE_PROCESS_H
#define WEFT_TESTS_CONFORMANCE_PROCESS_H

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>

namespace weft::conformance {

// Runs the calling test in a process of its own, in which the environment has `variables`
// ("NAME=value") from the start and in which no earlier test has touched the library. True: this is
// that process, go on with the body. False: it ran; return.
bool in_fresh_process(std::initializer_list<const char *> variables = {});
bool is_fresh_process();  // of such a test: before the test itself begins

// A child process made by fork, for tests that are in a fresh process, before they use the library.
// It talks to its parent over a socket, in whole numbers, and its exit status must be 0 unless it
// was killed.
class Child {
 public:
  explicit Child(const std::function<void(int socket)> &body);
  ~Child();
  int socket() const { return socket_; }
  pid_t pid() const { return pid_; }
  void kill();
  void stop();   // SIGSTOP: when this returns, none of its threads runs
  void go_on();  // after stop()
  void join();   // waits for its end, which must be a good one

 private:
  int wait();
  pid_t pid_ = -1;
  int socket_ = -1;
};
// A child that is forked in the midst of a test, has what the test has, and ends with exits(0), one
// of kForkedEnds: exit runs what is registered for the end of a process. The caller waits for its
// end, which must be a good one, and soon.
inline constexpr void (*kForkedEnds[])(int) = {_exit, exit};
void in_forked_child(const std::function<void()> &body, void (*exits)(int));
void tell(int socket, uint64_t value);
uint64_t hear(int socket);  // throws when nothing comes
bool can_hear(int socket);  // something came
void tell_text(int socket, const std::string &text);
std::string hear_text(int socket);

}  // namespace weft::conformance

#endif
