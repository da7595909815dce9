// SPDX-License-Identifier: BSD-2-Clause
// For tests of what a process may not do, or of a network of its own: a child process that does it.
//
// Example:
//    #include <sys/stat.h>
//    // In a child the umask is not the test's.
//    inline std::string umask_of_a_child() {
//      return in_child([] { return std::to_string(umask(077)); });
//    }
//
// Not for a child that goes on while the test does.
#ifndef WEFT_PLUGIN_API_SDK_TEST_CHILD_H
#define WEFT_PLUGIN_API_SDK_TEST_CHILD_H

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace weft::sdk {

// What `act` says there. Empty as well if the child crashes, which fails the test.
inline std::string in_child(const std::function<std::string()> &act) {
  int channel[2];
  if (pipe(channel) != 0) {
    ADD_FAILURE() << "no pipe";
    return {};
  }
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = act();
    _exit(write(channel[1], text.data(), text.size()) == ssize_t(text.size()) ? 0 : 1);
  }
  close(channel[1]);
  std::string text;
  char some[512];
  for (ssize_t got = 0; (got = read(channel[0], some, sizeof some)) > 0;)
    text.append(some, size_t(got));
  close(channel[0]);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the child has failed";
  return text;
}

}  // namespace weft::sdk

#endif
