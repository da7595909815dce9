// SPDX-License-Identifier: BSD-2-Clause
// A socket on which other processes of the same user send requests to this one. Each connection
// carries one request and one answer. Both are text and end when the sender shuts its side down.
//
// Example:
//    weft::Result<std::unique_ptr<weft::ControlServer>> serve(const std::string &folder) {
//      return weft::ControlServer::listen(
//          folder + "/1234.sock", [](std::string_view request) { return std::string(request); });
//    }
//
// The handler runs in the server's own thread, which otherwise sleeps in poll() and takes no
// signals. Peers of the same effective user and of root are served (SO_PEERCRED). A peer is dropped
// when its request is not complete after `kPatience`, or longer than `kMaxRequest` bytes. Not for
// bulk data. The requests are those of core/control/requests.h.
#ifndef WEFT_CORE_CONTROL_SERVER_H
#define WEFT_CORE_CONTROL_SERVER_H

#include <pthread.h>
#include <weft/result.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace weft {

class ControlServer {
 public:
  using Handler = std::function<std::string(std::string_view request)>;
  static constexpr size_t kMaxRequest = 64 * 1024;
  static constexpr std::chrono::seconds kPatience{2};

  // A file at the path is removed: a process that is gone has left it.
  // Errors: the path is too long or its folder missing, no descriptors, no thread.
  static Result<std::unique_ptr<ControlServer>> listen(std::string path, Handler handler);
  ~ControlServer();  // waits for the current request, and removes the socket
  ControlServer(const ControlServer &) = delete;
  ControlServer &operator=(const ControlServer &) = delete;

  const std::string &path() const { return path_; }

  // Around a fork (pthread_atfork). The child has no server thread, so what that thread had begun
  // would stay half done there: locks, and objects that it works on. So a fork waits for the end of
  // the current request, for at most kPatience. after_fork() is for the parent.
  void before_fork() noexcept;
  void after_fork() noexcept;
  // For the child of a fork, which has the descriptors but not the thread: closes them, and does
  // nothing else.
  void abandon_in_child() noexcept;

 private:
  class Answering;

  ControlServer(std::string path, Handler handler);
  Result<void> start();
  void serve() noexcept;
  void answer(int connection) noexcept;

  std::string path_;
  Handler handler_;
  int listener_ = -1;
  int stop_ = -1;  // eventfd
  bool bound_ = false, running_ = false;
  std::mutex state_;  // of answering_; a fork holds it
  std::condition_variable idle_;
  bool answering_ = false;  // the handler runs
  pthread_t thread_{};
};

}  // namespace weft

#endif
