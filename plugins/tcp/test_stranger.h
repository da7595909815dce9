// SPDX-License-Identifier: BSD-2-Clause
// Raw sockets that send any bytes to an endpoint of tcp, one by one or in a crowd.
//
// Example:
//    inline void disturb(const sockaddr_in &endpoint) {
//      Stranger stranger(endpoint, hello(/*port=*/7000, /*process=*/1));  // "" for FI_EP_MSG
//      stranger.message(/*length=*/8, /*sent=*/3);  // the other 5 bytes never come
//      Crowd crowd(endpoint, 600, [](int i) { return hello(uint16_t(1 + i), 1); });
//      while (!crowd.is_there()) {  // here: progress of the endpoint
//      }
//    }
//
// Not for peers that keep to the protocol.
#ifndef WEFT_PLUGINS_TCP_TEST_STRANGER_H
#define WEFT_PLUGINS_TCP_TEST_STRANGER_H

#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::conformance {

template <class T>
std::string little(T value) {
  return {reinterpret_cast<const char *>(&value), sizeof value};
}
template <class T>
std::string big(T value) {
  const std::string bytes = little(value);
  return {bytes.rbegin(), bytes.rend()};
}

// The hello of a process with this port on this host.
inline std::string hello(uint16_t port, uint32_t process) {
  return std::string("\1\0", 2) + big(port) + big(process);
}

inline std::string connect_message(char type, const std::string &data) {
  return std::string{3, type} + big(uint16_t(data.size())) + std::string(20, '\0') +
         little(uint64_t(1)) + data;
}
inline std::string request(const std::string &data) {
  return connect_message(0, data);
}

class Stranger {
 public:
  // Connects, and asks with this private data.
  Stranger(const sockaddr_in &to, const std::string &data) : Stranger(to) { say(request(data)); }
  // Only connects.
  explicit Stranger(const sockaddr_in &to) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || ::connect(fd_, reinterpret_cast<const sockaddr *>(&to), sizeof to) != 0)
      throw std::runtime_error(std::string("connect: ") + strerror(errno));
  }
  ~Stranger() { ::close(fd_); }
  Stranger(const Stranger &) = delete;
  Stranger &operator=(const Stranger &) = delete;

  void say(const std::string &bytes) {
    [[maybe_unused]] const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // A message, of whose payload only `sent` bytes follow.
  void message(uint64_t length, size_t sent) {
    say(std::string("\3\0\0\0\0\0\20\0", 8) + little(uint64_t(16 + length)) +
        std::string(sent, 'x'));
  }
  // A write of 8 bytes that waits for its acknowledgement, with a key that is nobody's.
  void bad_write() {
    say(std::string("\3\4\4\0\0\1\50\0", 8) + little(uint64_t(48)) + little(uint64_t(0)) +
        little(uint64_t(8)) + little(uint64_t(0x6e6f626f6479)) + std::string(8, 'x'));
  }
  // A read of 8 bytes.
  void read(uint64_t address, uint64_t key) {
    say(std::string("\3\2\0\0\0\1\50\0", 8) + little(uint64_t(40)) + little(address) +
        little(uint64_t(8)) + little(key));
  }
  // The answer, if there is one: 1 accept, 6 reject, 0 the end of the connection.
  std::optional<int> answer() {
    uint8_t bytes[40];
    const ssize_t n = ::recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0) return {};
    return n < 2 ? 0 : bytes[1];
  }
  // Drops what has come, and tells how many bytes; nullopt: nothing comes any more.
  std::optional<size_t> drop() {
    char scrap[65536];
    size_t all = 0;
    for (;;) {
      const ssize_t n = ::recv(fd_, scrap, sizeof scrap, MSG_DONTWAIT);
      if (n > 0) {
        all += size_t(n);
      } else if (all != 0 || (n < 0 && errno == EAGAIN)) {
        return all;
      } else {
        return {};
      }
    }
  }

 private:
  int fd_;
};

// A listener at a port above `above`.
class Host {
 public:
  explicit Host(uint16_t above) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (uint16_t port = 65535; port > above; --port) {
      address_.sin_port = htons(port);
      if (::bind(fd_, reinterpret_cast<const sockaddr *>(&address_), sizeof address_) == 0 &&
          ::listen(fd_, 8) == 0)
        return;
    }
    throw std::runtime_error("no port to listen at");
  }
  ~Host() { ::close(fd_); }
  Host(const Host &) = delete;
  Host &operator=(const Host &) = delete;

  const sockaddr_in &address() const { return address_; }
  uint16_t port() const { return ntohs(address_.sin_port); }
  // Accepts the request that has arrived, as this process, and closes the connection.
  bool accept_and_die(uint32_t process) {
    const int fd = ::accept(fd_, nullptr, nullptr);
    char bytes[200];
    const bool asked = fd >= 0 && ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0;
    const std::string answer = connect_message(1, hello(port(), process));
    const bool answered =
        asked && ::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) == ssize_t(answer.size());
    ::close(fd);
    return answered;
  }

 private:
  int fd_;
  sockaddr_in address_{};
};

// Limits the descriptors of this process, at most to the hard limit.
inline void limit_descriptors(rlim_t count) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(count, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A process that holds many connections and sends only a request on each, or what it is told.
class Crowd {
 public:
  Crowd(const sockaddr_in &to, int count, const std::function<std::string(int)> &data)
      : Crowd(to, count, [&data](Stranger &stranger, int i) { stranger.say(request(data(i))); }) {}
  Crowd(const sockaddr_in &to, int count, const std::function<void(Stranger &, int)> &speak) {
    int ready[2];
    if (::pipe(ready) != 0 || ::pipe(end_) != 0) throw std::runtime_error("pipe");
    child_ = ::fork();
    if (child_ == 0) {
      ::close(end_[1]);
      limit_descriptors(4096);
      for (int i = 0; i < count; ++i) {
        try {
          speak(*new Stranger(to), i);  // which stays until the process ends
        } catch (const std::exception &) {
          break;
        }
      }
      char byte = 'x';
      [[maybe_unused]] ssize_t n = ::write(ready[1], &byte, 1);
      n = ::read(end_[0], &byte, 1);
      _exit(0);
    }
    ::close(ready[1]);
    ::close(end_[0]);
    ready_ = ready[0];
  }
  ~Crowd() {
    ::close(end_[1]);
    ::close(ready_);
    int status = 0;
    ::waitpid(child_, &status, 0);
  }
  Crowd(const Crowd &) = delete;
  Crowd &operator=(const Crowd &) = delete;
  bool is_there() const {
    pollfd p{ready_, POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  }

 private:
  int end_[2], ready_ = -1;
  pid_t child_ = -1;
};

}  // namespace weft::conformance

#endif
