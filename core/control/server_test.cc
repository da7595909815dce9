// SPDX-License-Identifier: BSD-2-Clause
#include "core/control/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace weft {
namespace {

using testing::HasSubstr;

class Server : public testing::Test {
 protected:
  Server() {
    char folder[] = "/tmp/weft-control-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~Server() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/1.sock"; }

  int connected() const {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0) return fd;
    close(fd);
    return -1;
  }
  static std::string all_of(int fd) {
    std::string text;
    char piece[1000];
    for (ssize_t got; (got = recv(fd, piece, sizeof piece, 0)) > 0;)
      text.append(piece, size_t(got));
    close(fd);
    return text;
  }
  std::string ask(std::string_view request) const {
    const int fd = connected();
    if (fd < 0) return "not connected";
    while (!request.empty()) {
      const ssize_t put = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
      if (put <= 0) break;
      request.remove_prefix(size_t(put));
    }
    shutdown(fd, SHUT_WR);
    return all_of(fd);
  }
  std::unique_ptr<ControlServer> listen(ControlServer::Handler handler) const {
    auto server = ControlServer::listen(path(), std::move(handler));
    EXPECT_TRUE(server.has_value()) << (server ? "" : server.error().text);
    return server ? *std::move(server) : nullptr;
  }

  std::string folder_;
};

TEST_F(Server, AnswersAndRemovesItsSocket) {
  {
    const auto server = listen([](std::string_view text) { return "<" + std::string(text) + ">"; });
    EXPECT_EQ(ask("a"), "<a>");
    EXPECT_EQ(ask(""), "<>");
    const std::string large(ControlServer::kMaxRequest, 'x');
    EXPECT_EQ(ask(large), "<" + large + ">");
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_EQ(connected(), -1);
}

TEST_F(Server, GivesALargeAnswer) {
  const std::string large(5'000'000, 'y');
  const auto server = listen([&](std::string_view) { return large; });
  EXPECT_EQ(ask("?"), large);
}

TEST_F(Server, DropsSlowAndLongRequestsAndServesTheNext) {
  const auto server = listen([](std::string_view) { return std::string("well"); });
  EXPECT_EQ(ask(std::string(ControlServer::kMaxRequest + 1, 'x')), "");
  const int silent = connected();  // never ends its request
  ASSERT_GE(silent, 0);
  EXPECT_EQ(ask("next"), "well");  // after kPatience
  EXPECT_EQ(all_of(silent), "");
  const int gone = connected();
  close(gone);
  EXPECT_EQ(ask("next"), "well");
}

TEST_F(Server, TakesTheNameOfADeadProcess) {
  std::ofstream(path()) << "left";
  const auto server = listen([](std::string_view) { return std::string("new"); });
  EXPECT_EQ(ask(""), "new");
}

TEST_F(Server, RemovesTheSocketsOfKilledProcesses) {
  const std::string left = folder_ + "/999999999.sock";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  left.copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(fd, 1), 0);
  const auto echo = [](std::string_view) { return std::string("here"); };
  {
    const auto server = listen(echo);
    EXPECT_EQ(ask("x"), "here");
    EXPECT_TRUE(std::filesystem::exists(left)) << "somebody listens, in another name space perhaps";
  }
  close(fd);
  std::ofstream(folder_ + "/note.txt") << "not a socket";
  const auto server = listen(echo);
  EXPECT_EQ(ask("x"), "here");
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/note.txt"));
}

TEST_F(Server, ReportsWhyItCannotListen) {
  const auto none = ControlServer::listen(folder_ + "/no/1.sock", nullptr);
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(none.error().text,
              HasSubstr("bind for the socket " + folder_ + "/no/1.sock: No such"));
  const auto longer = ControlServer::listen(folder_ + "/" + std::string(200, 'x'), nullptr);
  ASSERT_FALSE(longer.has_value());
  EXPECT_THAT(longer.error().text, HasSubstr("a path may have 107 bytes"));
}

TEST_F(Server, RefusesOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "becoming another user takes root";
  const auto server = listen([](std::string_view) { return std::string("secret"); });
  chmod(folder_.c_str(), 0777);
  chmod(path().c_str(), 0777);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    _exit(ask("?").empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  EXPECT_EQ(ask("?"), "secret");
}

TEST_F(Server, TakesNoSignals) {
  static volatile sig_atomic_t taken_by = 0;
  struct sigaction mine = {}, before;
  mine.sa_handler = [](int) { taken_by = gettid(); };
  sigaction(SIGUSR1, &mine, &before);
  const auto server = listen([](std::string_view) { return std::string(); });
  ask("");  // it runs
  for (int i = 0; i < 100; ++i) kill(getpid(), SIGUSR1);
  EXPECT_EQ(taken_by, gettid());
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(Server, SurvivesTheEndOfAForkedChild) {
  const auto server = listen([](std::string_view) { return std::string("alive"); });
  const pid_t child = fork();
  if (child == 0) {
    server->abandon_in_child();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ask(""), "alive");
}

// The child has the descriptors of a connection that is open while it forks.
TEST_F(Server, EndsItsAnswerThoughAForkedChildLives) {
  pid_t child = -1;
  const auto server = listen([&child](std::string_view) {
    child = fork();
    if (child == 0) {
      alarm(60);
      pause();
    }
    return std::string("whole");
  });
  const int fd = connected();
  ASSERT_GE(fd, 0);
  shutdown(fd, SHUT_WR);
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char text[16];
  EXPECT_EQ(recv(fd, text, 5, MSG_WAITALL), 5);
  EXPECT_EQ(recv(fd, text, sizeof text, 0), 0) << "the end of the answer";
  close(fd);
  ASSERT_GT(child, 0);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace weft
