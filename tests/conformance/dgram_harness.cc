// SPDX-License-Identifier: BSD-2-Clause
#include "tests/conformance/dgram_harness.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace weft::conformance::dgram {

namespace {

[[maybe_unused]] const auto *const kStackIsThere = require_stack(Options());

[[noreturn]] void give_up(const char *what) {
  throw std::runtime_error(std::string(what) + ": " + strerror(errno));
}

}  // namespace

// Not in the header, so that every use of the options links what is above.
Options::Options() {
  type = FI_EP_DGRAM;
  caps = FI_MSG;
  tx_cq = rx_cq = cq_attr(FI_CQ_FORMAT_MSG);
}

void Net::exchange(size_t from, size_t to, size_t bytes) {
  std::vector<uint8_t> out = pattern(bytes, unsigned(bytes)), in(bytes);
  must(fi_recv((*this)[to].ep, in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, &in));
  post([&] {
    return fi_send((*this)[from].ep, out.data(), out.size(), nullptr, at(from, to), &out);
  });
  check_exchange(from, to, out, in);
}

// ---- a plain socket ----

PlainSocket::PlainSocket(int family, const std::string &to_bind)
    : fd_(::socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  if (fd_ < 0) give_up("socket");
  sockaddr_storage address{};
  socklen_t size;
  if (!to_bind.empty()) {
    std::memcpy(&address, to_bind.data(), size = socklen_t(to_bind.size()));
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  } else if (family == AF_INET6) {
    auto &in = reinterpret_cast<sockaddr_in6 &>(address);
    in.sin6_family = AF_INET6;
    in.sin6_addr = in6addr_loopback;
    size = sizeof in;
  } else {
    auto &in = reinterpret_cast<sockaddr_in &>(address);
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    size = sizeof in;
  }
  if (::bind(fd_, reinterpret_cast<const sockaddr *>(&address), size) != 0) give_up("bind");
}

PlainSocket::~PlainSocket() {
  ::close(fd_);
}

std::string PlainSocket::name() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd_, reinterpret_cast<sockaddr *>(&address), &size) != 0) give_up("getsockname");
  return {reinterpret_cast<const char *>(&address), size};
}

int PlainSocket::send(const std::string &to, const std::vector<uint8_t> &bytes) {
  sockaddr_storage address{};
  std::memcpy(&address, to.data(), to.size());
  return ::sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr *>(&address),
                  socklen_t(to.size())) < 0
             ? -errno
             : 0;
}

std::optional<std::vector<uint8_t>> PlainSocket::receive(std::string *from,
                                                         std::chrono::milliseconds patience) {
  pollfd wait{fd_, POLLIN, 0};
  if (::poll(&wait, 1, int(patience.count())) != 1) return {};
  std::vector<uint8_t> bytes(65536);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const ssize_t n =
      ::recvfrom(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr *>(&address), &size);
  if (n < 0) give_up("recvfrom");
  bytes.resize(size_t(n));
  if (from != nullptr) from->assign(reinterpret_cast<const char *>(&address), size);
  return bytes;
}

}  // namespace weft::conformance::dgram
