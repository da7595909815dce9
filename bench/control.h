// SPDX-License-Identifier: BSD-2-Clause
//
// The control connection between the two processes of a benchmark: one line of JSON per message
// over an ordinary TCP socket, for parameters, addresses and results.
//
// Example (statements):
//     Control control(dial("host", 47747, 10.0));
//     control.send({{"do", "run"}, {"size", 64}});
//     nlohmann::json reply = control.receive(10.0);
//
// Not for benchmark traffic: nothing is sent here while a measurement runs.
#ifndef WEFT_BENCH_CONTROL_H
#define WEFT_BENCH_CONTROL_H

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "bench.h"

namespace weft::bench {

// A file descriptor with one owner.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd &&other) noexcept : fd_(other.release()) {}
  Fd &operator=(Fd &&other) noexcept {
    reset(other.release());
    return *this;
  }
  int get() const { return fd_; }
  int release() {
    int fd = fd_;
    fd_ = -1;
    return fd;
  }
  void reset(int fd = -1);

 private:
  int fd_;
};

// A listening TCP socket; `host` empty means every address (IPv4 and IPv6), port 0 means any.
Fd listen(const std::string &host, uint16_t port);
uint16_t local_port(int fd);
// The numeric address of this end of a connected socket.
std::string local_host(int fd);
Fd accept_one(int listener, double seconds);
Fd dial(const std::string &host, uint16_t port, double seconds);

class Control {
 public:
  explicit Control(Fd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }

  void send(const nlohmann::json &message);
  // The next message of the peer; throws the text of an {"error": ...} that the peer sent, and when
  // the peer is gone or silent for `seconds`.
  nlohmann::json receive(double seconds);
  // Returns false if the peer has closed the connection before another message.
  bool receive(double seconds, nlohmann::json *message);
  // Throws if the peer has gone or has reported an error; never blocks.
  void check_peer();
  // Whether receive() would find something, a message or the end, within `seconds`.
  bool readable(double seconds = 0);

 private:
  bool take_line(std::string *line);

  Fd fd_;
  std::string buffer_;
};

}  // namespace weft::bench

#endif  // WEFT_BENCH_CONTROL_H
