// SPDX-License-Identifier: BSD-2-Clause
// The control connection of fi_pingpong: a TCP stream beside the endpoints. Either side may be
// another implementation's program. All of it, in order:
//
//   server -> client   name: length (4 bytes, big endian), address format (4 bytes, host order),
//                      the address
//   client -> server   name, the same form; only for connectionless endpoints
//   then for each message size
//     client -> server "q\0", server -> client "a\0", the messages of the test on the endpoints,
//     client -> server number of answers that it got (10 bytes, decimal, zero padded),
//     server -> client "cnt ok\0"
//
// Example (statements):
//     Options options;
//     options.server = "first-host";
//     Control control(options);
//     control.connect();
//     uint32_t format = FI_FORMAT_UNSPEC;
//     const std::string name = control.receive_name(&format);
//
// Errors are thrown as Failure. The timed messages do not use this connection.
#ifndef WEFT_TOOLS_FI_PINGPONG_CONTROL_H
#define WEFT_TOOLS_FI_PINGPONG_CONTROL_H

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "tools/fi_pingpong/options.h"

namespace weft::pingpong {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  explicit Deadline(Clock::duration after) : at_(Clock::now() + after) {}
  bool passed() const { return Clock::now() >= at_; }
  // For poll(2): at least 1 while there is time left, so that it also sleeps through the last
  // fraction of a millisecond.
  int milliseconds() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
  }

 private:
  Clock::time_point at_;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

class Control {
 public:
  explicit Control(const Options &options) : options_(options) {}

  // Server: opens the port, then waits for the client.
  void listen();
  void accept();
  // Client.
  void connect();

  void send_name(const std::string &name, uint32_t format);
  std::string receive_name(uint32_t *format);
  // Both sides return at about the same time.
  void sync();
  // Returns how many answers reached the client.
  uint64_t exchange_count(uint64_t received);

  struct State {
    bool pending;  // bytes have arrived that receive() has not taken yet
    bool closed;   // the peer has closed its end, whether or not bytes are pending
  };
  State peek() const;

  // `progress` is called while this side waits for a control message: the endpoint needs progress.
  void on_wait(std::function<void()> progress) { progress_ = std::move(progress); }

 private:
  void send(std::string_view bytes, const char *what);
  std::string receive(size_t length, const char *what);
  void expect(std::string_view expected, const char *what);
  void bind(const Socket &socket_fd, uint16_t port, int family = 0) const;
  // Returns 0 or the error number.
  int connect_one(const Socket &socket_fd, const addrinfo &address) const;
  void no_delay() const;
  [[noreturn]] void timed_out(const char *doing, const char *what) const;

  const Options &options_;
  std::function<void()> progress_;
  Socket listener_;
  Socket peer_;
};

}  // namespace weft::pingpong

#endif
