// SPDX-License-Identifier: BSD-2-Clause
// Server: a socket on which other processes of the same user ask this one for something, one
// request and one answer per connection, both text that ends with the sender's side of the stream.
//
// Example:
//    weft::Result<std::unique_ptr<weft::ControlServer>> serve(const std::string &folder) {
//      return weft::ControlServer::listen(
//          folder + "/1234.sock", [](std::string_view request) { return std::string(request); });
//    }
//
// The handler runs in the server's own thread, which sleeps in poll() otherwise and takes no
// signals. Who asks is checked by the kernel (SO_PEERCRED): the same effective user, or root. A
// peer that dawdles is dropped after `kPatience`, one that says more than `kMaxRequest` bytes at
// once. Not for bulk data, and no protocol: core/control/requests.h is that.
#ifndef WEFT_CORE_CONTROL_SERVER_H
#define WEFT_CORE_CONTROL_SERVER_H

#include <pthread.h>
#include <weft/result.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace weft {

class ControlServer {
 public:
  using Handler = std::function<std::string(std::string_view request)>;
  static constexpr size_t kMaxRequest = 64 * 1024;
  static constexpr std::chrono::seconds kPatience{2};

  // What stands at the path is taken for the leftover of a process that is gone, and removed.
  // Errors: the path is too long or its folder missing, no descriptors, no thread.
  static Result<std::unique_ptr<ControlServer>> listen(std::string path, Handler handler);
  ~ControlServer();  // waits for a request that is being answered, and removes the socket
  ControlServer(const ControlServer &) = delete;
  ControlServer &operator=(const ControlServer &) = delete;

  const std::string &path() const { return path_; }

  // In the child of a fork, which has the descriptors but not the thread: lets go of them, and of
  // nothing else.
  void abandon_in_child() noexcept;

 private:
  ControlServer(std::string path, Handler handler);
  Result<void> start();
  void serve() noexcept;
  void answer(int connection) noexcept;

  std::string path_;
  Handler handler_;
  int listener_ = -1;
  int stop_ = -1;  // eventfd
  bool bound_ = false, running_ = false;
  pthread_t thread_{};
};

}  // namespace weft

#endif
