// SPDX-License-Identifier: BSD-2-Clause
#include "tools/fi_pingpong/control.h"

#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "tools/fi_pingpong/failure.h"

namespace weft::pingpong {
namespace {

// False when the deadline passed first.
bool wait_for(int fd, short events, const Deadline &deadline) {
  while (true) {
    pollfd entry = {fd, events, 0};
    const int ret = poll(&entry, 1, deadline.milliseconds());
    if (ret > 0) {
      return true;
    }
    if (ret < 0 && errno != EINTR) {
      fail(errno, "poll: %s", std::strerror(errno));
    }
    if (deadline.passed()) {
      return false;
    }
  }
}

}  // namespace

void Control::listen() {
  const uint16_t port = options_.src_port != 0 ? options_.src_port : kDefaultPort;
  Socket socket_fd(
      socket(options_.ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) {
    fail(errno, "cannot make a control socket: %s", std::strerror(errno));
  }
  bind(socket_fd, port);
  if (::listen(socket_fd.fd(), 10) != 0) {
    fail(errno, "cannot listen on control port %u: %s", port, std::strerror(errno));
  }
  listener_ = std::move(socket_fd);
  debug("control: listening on port %u", port);
}

void Control::accept() {
  // A server waits for its client without a limit, unless --timeout is given.
  std::optional<Deadline> deadline;
  if (options_.timeout_given) {
    deadline.emplace(options_.timeout);
  }
  while (true) {
    if (!wait_for(listener_.fd(), POLLIN, deadline.value_or(Deadline(std::chrono::hours(1)))) &&
        deadline) {
      fail(ETIMEDOUT, "no client connected within %d s", options_.timeout.count());
    }
    Socket accepted(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.valid()) {
      peer_ = std::move(accepted);
      break;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      fail(errno, "accept on the control port: %s", std::strerror(errno));
    }
  }
  listener_ = Socket();
  no_delay();
  debug("control: a client connected");
}

void Control::connect() {
  const uint16_t port = options_.dst_port != 0 ? options_.dst_port : kDefaultPort;
  addrinfo want = {};
  want.ai_family = options_.ipv6 ? AF_INET6 : AF_UNSPEC;
  want.ai_socktype = SOCK_STREAM;
  addrinfo *raw = nullptr;
  const int ret = getaddrinfo(options_.server.c_str(), absl::StrCat(port).c_str(), &want, &raw);
  if (ret != 0) {
    fail(EHOSTUNREACH, "cannot resolve the server's name '%s': %s", options_.server,
         gai_strerror(ret));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(raw, &freeaddrinfo);
  int last_error = EHOSTUNREACH;
  for (const addrinfo *address = raw; address != nullptr; address = address->ai_next) {
    Socket socket_fd(socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_fd.valid()) {
      last_error = errno;
      continue;
    }
    if (options_.src_port != 0) {
      bind(socket_fd, options_.src_port, address->ai_family);
    }
    last_error = connect_one(socket_fd, *address);
    if (last_error == 0) {
      peer_ = std::move(socket_fd);
      no_delay();
      debug("control: connected to %s port %u", options_.server, port);
      return;
    }
  }
  fail(last_error,
       "cannot connect to the server's control port %s:%u: %s; is "
       "fi_pingpong running there, and is -B there the same as -P here?",
       options_.server, port, std::strerror(last_error));
}

void Control::send(std::string_view bytes, const char *what) {
  const Deadline deadline(options_.timeout);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(peer_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(peer_.fd(), POLLOUT, deadline)) {
        timed_out("sending", what);
      }
    } else if (errno != EINTR) {
      fail(errno, "control: sending %s: %s", what, std::strerror(errno));
    }
  }
}

std::string Control::receive(size_t length, const char *what) {
  const Deadline deadline(options_.timeout);
  std::string bytes(length, '\0');
  size_t have = 0;
  while (have < length) {
    const ssize_t got = recv(peer_.fd(), bytes.data() + have, length - have, 0);
    if (got > 0) {
      have += static_cast<size_t>(got);
    } else if (got == 0) {
      fail(ECONNABORTED, "control: the peer closed the connection before it sent %s", what);
    } else if (errno == EAGAIN) {
      if (progress_) {
        progress_();
      }
      const bool ready = wait_for(peer_.fd(), POLLIN,
                                  progress_ ? Deadline(std::chrono::milliseconds(1)) : deadline);
      if (!ready && deadline.passed()) {
        timed_out("waiting for", what);
      }
    } else if (errno != EINTR) {
      fail(errno, "control: waiting for %s: %s", what, std::strerror(errno));
    }
  }
  return bytes;
}

Control::State Control::peek() const {
  pollfd entry = {peer_.fd(), POLLIN | POLLRDHUP, 0};
  if (poll(&entry, 1, 0) <= 0) {
    return {false, false};
  }
  char byte;
  return {recv(peer_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0,
          (entry.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0};
}

void Control::send_name(const std::string &name, uint32_t format) {
  const uint32_t length = htonl(static_cast<uint32_t>(name.size()));
  std::string bytes(reinterpret_cast<const char *>(&length), sizeof(length));
  bytes.append(reinterpret_cast<const char *>(&format), sizeof(format));
  send(bytes + name, "the endpoint's address");
  debug("control: sent an address of %d bytes, format %s", name.size(),
        fi_tostr(&format, FI_TYPE_ADDR_FORMAT));
}

std::string Control::receive_name(uint32_t *format) {
  constexpr uint32_t kMaxName = 4096;
  uint32_t length = 0;
  std::memcpy(&length, receive(sizeof(length), "the length of its address").data(), sizeof(length));
  length = ntohl(length);
  if (length == 0 || length > kMaxName) {
    fail(EPROTO,
         "control: the peer announced an address of %u bytes; it is not "
         "fi_pingpong, or its -e differs from the one here",
         length);
  }
  std::memcpy(format, receive(sizeof(*format), "its address format").data(), sizeof(*format));
  std::string name = receive(length, "its address");
  debug("control: received an address of %u bytes, format %s", length,
        fi_tostr(format, FI_TYPE_ADDR_FORMAT));
  return name;
}

void Control::sync() {
  if (options_.is_server()) {
    expect(std::string_view("q", 2), "the start of a test");
    send(std::string_view("a", 2), "the answer to the start of a test");
  } else {
    send(std::string_view("q", 2), "the start of a test");
    expect(std::string_view("a", 2), "the answer to the start of a test");
  }
}

uint64_t Control::exchange_count(uint64_t received) {
  constexpr size_t kCountLength = 10;
  constexpr std::string_view kAnswer("cnt ok", 7);
  if (!options_.is_server()) {
    std::string bytes = absl::StrCat(received);
    bytes.resize(kCountLength, '\0');
    send(bytes, "the number of answers");
    expect(kAnswer, "the confirmation of the number of answers");
    return received;
  }
  const std::string bytes = receive(kCountLength, "the number of answers");
  uint64_t count = 0;
  if (!absl::SimpleAtoi(bytes.substr(0, bytes.find('\0')), &count)) {
    fail(EPROTO, "control: expected the number of answers, got '%s'", absl::CHexEscape(bytes));
  }
  send(kAnswer, "the confirmation of the number of answers");
  return count;
}

void Control::bind(const Socket &socket_fd, uint16_t port, int family) const {
  if (family == 0) {
    family = options_.ipv6 ? AF_INET6 : AF_INET;
  }
  const int on = 1;
  setsockopt(socket_fd.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  const bool is_v6 = family == AF_INET6;
  const sockaddr *address =
      is_v6 ? reinterpret_cast<sockaddr *>(&v6) : reinterpret_cast<sockaddr *>(&v4);
  if (::bind(socket_fd.fd(), address, is_v6 ? sizeof(v6) : sizeof(v4)) != 0) {
    fail(errno,
         "cannot bind the control socket to port %u: %s; choose another "
         "with -B",
         port, std::strerror(errno));
  }
}

int Control::connect_one(const Socket &socket_fd, const addrinfo &address) const {
  if (::connect(socket_fd.fd(), address.ai_addr, address.ai_addrlen) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS && errno != EINTR) {
    return errno;
  }
  if (!wait_for(socket_fd.fd(), POLLOUT, Deadline(options_.timeout))) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(socket_fd.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

void Control::no_delay() const {
  const int on = 1;
  setsockopt(peer_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

void Control::expect(std::string_view expected, const char *what) {
  const std::string bytes = receive(expected.size(), what);
  if (bytes != expected) {
    fail(EPROTO,
         "control: expected %s, got '%s'; both sides must be started with the "
         "same -e, -I, -S and -p",
         what, absl::CHexEscape(bytes));
  }
}

void Control::timed_out(const char *doing, const char *what) const {
  fail(ETIMEDOUT, "control: %s %s: the peer was silent for %d s", doing, what,
       options_.timeout.count());
}

}  // namespace weft::pingpong
