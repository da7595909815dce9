// SPDX-License-Identifier: BSD-2-Clause
#include "raw_udp.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

namespace weft::bench {

namespace {

constexpr size_t kPosted = 4096;   // Power of two, more than any window.
constexpr int kBuffer = 64 << 20;  // Bytes: windows of 16 MiB, and what the kernel adds.
constexpr int kAtLeast = 32 << 20;

// A socket address of a numeric host and a port.
addrinfo *resolve(const std::string &host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo *found = nullptr;
  const int rc = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (rc != 0) fail("raw UDP socket: %s: %s", host, gai_strerror(rc));
  return found;
}

void set(int fd, int level, int option, int value, const char *name) {
  if (setsockopt(fd, level, option, &value, sizeof value) != 0)
    fail("raw UDP socket: setsockopt(%s): %s", name, strerror(errno));
}

}  // namespace

RawUdpTransport::RawUdpTransport(const std::string &host, Watch *watch)
    : watch_(watch), posted_(kPosted) {
  addrinfo *address = resolve(host, 0);
  const absl::Cleanup free_address = [address] { freeaddrinfo(address); };
  socket_.reset(socket(address->ai_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket_.get() < 0 || bind(socket_.get(), address->ai_addr, address->ai_addrlen) != 0)
    fail("raw UDP socket: bind to %s: %s", host, strerror(errno));
  const int fd = socket_.get(), size = kBuffer;
  for (const auto &[force, option] :
       {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, {SO_SNDBUFFORCE, SO_SNDBUF}}) {
    if (setsockopt(fd, SOL_SOCKET, force, &size, sizeof size) != 0)
      setsockopt(fd, SOL_SOCKET, option, &size, sizeof size);
  }
  set(fd, IPPROTO_UDP, UDP_SEGMENT, kDatagram, "UDP_SEGMENT");
}

void RawUdpTransport::connect(const std::string &host, uint16_t port) {
  addrinfo *address = resolve(host, port);
  const absl::Cleanup free_address = [address] { freeaddrinfo(address); };
  if (::connect(socket_.get(), address->ai_addr, address->ai_addrlen) != 0)
    fail("raw UDP socket: connect to %s: %s", host, strerror(errno));
}

void RawUdpTransport::begin(Arena &, const Spec &spec) {
  if (head_ != tail_ || have_ != 0) fail("raw UDP socket: a message was lost");
  received_ = 0;
  const bool large = spec.size > kDatagram;
  set(socket_.get(), IPPROTO_UDP, UDP_GRO, large, "UDP_GRO");
  int granted = 0;
  socklen_t length = sizeof granted;
  getsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &granted, &length);
  if (spec.size * spec.window > static_cast<size_t>(kAtLeast) / 4 && granted < kAtLeast)
    fail(
        "raw UDP socket: a receive buffer of %d bytes does not hold a window: run this as root, "
        "or raise net.core.rmem_max to %d",
        granted, kBuffer);
}

void RawUdpTransport::post_receive(Slot &slot, size_t size) {
  slot.busy = true;
  slot.expected = static_cast<uint32_t>(size);
  posted_[tail_++ % kPosted] = &slot;
}

void RawUdpTransport::send(Slot &slot, size_t size, bool) {
  for (size_t at = 0, polls = 0; at < size;) {
    const ssize_t n =
        ::send(socket_.get(), slot.data + at, std::min(size - at, kCall), MSG_NOSIGNAL);
    if (n >= 0) {
      at += static_cast<size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) {
      const int failure = errno;
      watch_->blame_peer();
      fail("raw UDP socket: send: %s", strerror(failure));
    } else if (++polls % 8192 == 0) {
      watch_->check_call();
    }
  }
}

int RawUdpTransport::progress() {
  if (head_ == tail_) return 0;
  Slot &slot = *posted_[head_ % kPosted];
  const size_t room = slot.expected - have_;
  const ssize_t n = recv(socket_.get(), slot.data + have_, room, MSG_TRUNC);
  if (n < 0) {
    if (errno == EAGAIN || errno == EINTR) return 0;
    const int failure = errno;
    watch_->blame_peer();
    fail("raw UDP socket: recv: %s", strerror(failure));
  }
  if (static_cast<size_t>(n) > room) fail("raw UDP socket: a datagram was lost");
  have_ += static_cast<size_t>(n);
  if (have_ < slot.expected) return 0;
  have_ = 0;
  ++head_;
  ++received_;
  slot.busy = false;
  return 1;
}

}  // namespace weft::bench
