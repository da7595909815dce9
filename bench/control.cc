// SPDX-License-Identifier: BSD-2-Clause
#include "control.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace weft::bench {

namespace {

constexpr size_t kMaxLine = 1 << 20;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList lookup(const std::string &host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo *found = nullptr;
  const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), absl::StrCat(port).c_str(),
                             &hints, &found);
  if (rc != 0) fail("cannot resolve host '%s': %s", host, gai_strerror(rc));
  return AddressList(found, &freeaddrinfo);
}

// Waits until `fd` is ready for `events`; false when the time is over.
bool wait_for(int fd, short events, uint64_t deadline_ns) {
  for (;;) {
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return false;
    pollfd p = {fd, events, 0};
    const int rc =
        poll(&p, 1, static_cast<int>(std::min<uint64_t>((deadline_ns - now) / 1000000 + 1, 60000)));
    if (rc > 0) return true;
    if (rc < 0 && errno != EINTR) fail("poll: %s", strerror(errno));
  }
}

uint64_t deadline_in(double seconds) {
  return now_ns() + static_cast<uint64_t>(seconds * 1e9);
}

}  // namespace

void Fd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

Fd listen(const std::string &host, uint16_t port) {
  const AddressList list = lookup(host, port, AI_PASSIVE);
  // Without a name prefer the IPv6 wildcard, which also takes IPv4 connections.
  std::vector<addrinfo *> order;
  for (addrinfo *a = list.get(); a != nullptr; a = a->ai_next) order.push_back(a);
  std::stable_sort(order.begin(), order.end(), [&](addrinfo *a, addrinfo *b) {
    return host.empty() && a->ai_family == AF_INET6 && b->ai_family != AF_INET6;
  });
  int failure = 0;
  for (addrinfo *a : order) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1, off = 0;
    if (fd.get() < 0) {
      failure = errno;
      continue;
    }
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) {
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd.get(), 16) == 0) return fd;
    failure = errno;
  }
  fail("cannot listen on port %u: %s (is another server running? --port chooses another)", port,
       strerror(failure));
}

uint16_t local_port(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) != 0) {
    fail("getsockname: %s", strerror(errno));
  }
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 *>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in *>(&address)->sin_port);
}

std::string local_host(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  char name[NI_MAXHOST];
  if (getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) != 0) {
    fail("getsockname: %s", strerror(errno));
  }
  const int rc = getnameinfo(reinterpret_cast<sockaddr *>(&address), length, name, sizeof name,
                             nullptr, 0, NI_NUMERICHOST);
  if (rc != 0) fail("getnameinfo: %s", gai_strerror(rc));
  absl::string_view host = name;
  // An IPv4 peer of the IPv6 wildcard listener: return the plain IPv4 form.
  if (absl::StrContains(host, '.')) absl::ConsumePrefix(&host, "::ffff:");
  return std::string(host);
}

Fd accept_one(int listener, double seconds) {
  const uint64_t deadline = deadline_in(seconds);
  for (;;) {
    if (!wait_for(listener, POLLIN, deadline)) {
      fail("no peer connected within %g s (--timeout sets the limit)", seconds);
    }
    Fd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() >= 0) return fd;
    if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
      fail("accept: %s", strerror(errno));
    }
  }
}

Fd dial(const std::string &host, uint16_t port, double seconds) {
  const uint64_t deadline = deadline_in(seconds);
  const AddressList list = lookup(host, port, 0);
  int failure = ETIMEDOUT;
  for (addrinfo *a = list.get(); a != nullptr; a = a->ai_next) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) {
      failure = errno;
      continue;
    }
    if (connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0) {
      failure = errno;
      if (failure != EINPROGRESS) continue;
      if (!wait_for(fd.get(), POLLOUT, deadline)) {
        failure = ETIMEDOUT;
        continue;
      }
      socklen_t length = sizeof failure;
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &length);
      if (failure != 0) continue;
    }
    fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  fail("cannot connect to %s port %u: %s (is `weft-bench --server` running there?)", host, port,
       strerror(failure));
}

void Control::send(const nlohmann::json &message) {
  const std::string line = message.dump() + "\n";
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::send(fd_.get(), line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      fail("the peer is gone: %s while sending on the control connection", strerror(errno));
    }
    done += static_cast<size_t>(n);
  }
}

bool Control::take_line(std::string *line) {
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) return false;
  *line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return true;
}

bool Control::receive(double seconds, nlohmann::json *message) {
  const uint64_t deadline = deadline_in(seconds);
  std::string line;
  while (!take_line(&line)) {
    if (!wait_for(fd_.get(), POLLIN, deadline)) {
      fail("no answer from the peer within %g s (--timeout sets the limit)", seconds);
    }
    char chunk[4096];
    const ssize_t n = recv(fd_.get(), chunk, sizeof chunk, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("the peer is gone: %s on the control connection", strerror(errno));
    if (n == 0) {
      if (buffer_.empty()) return false;
      fail("the peer closed the control connection in the middle of a message");
    }
    buffer_.append(chunk, static_cast<size_t>(n));
    if (buffer_.size() > kMaxLine) {
      fail("the peer sent a control message of more than %d bytes: not a weft-bench?", kMaxLine);
    }
  }
  *message = nlohmann::json::parse(line, nullptr, false);
  if (!message->is_object()) fail("the peer sent no JSON object: not a weft-bench?");
  if (message->contains("error")) {
    fail("the peer failed: %s", message->value("error", "(no text)"));
  }
  return true;
}

nlohmann::json Control::receive(double seconds) {
  nlohmann::json message;
  if (!receive(seconds, &message)) {
    fail("the peer is gone: it closed the control connection (did it crash?)");
  }
  return message;
}

bool Control::readable(double seconds) {
  if (buffer_.find('\n') != std::string::npos) return true;
  pollfd p = {fd_.get(), POLLIN, 0};
  return poll(&p, 1, static_cast<int>(seconds * 1e3)) > 0;
}

void Control::check_peer() {
  char chunk[4096];
  const ssize_t n = recv(fd_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
  if (n == 0) fail("the peer is gone: it closed the control connection (did it crash?)");
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
    fail("the peer is gone: %s on the control connection", strerror(errno));
  }
  buffer_.append(chunk, static_cast<size_t>(n));
  // A result stays in the buffer for receive(). An error ends the wait now.
  const size_t end = buffer_.find('\n');
  if (end == std::string::npos) return;
  const auto message = nlohmann::json::parse(buffer_.substr(0, end), nullptr, false);
  if (message.is_object() && message.contains("error")) {
    fail("the peer failed: %s", message.value("error", "(no text)"));
  }
}

}  // namespace weft::bench
