// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace weft::cxi {
namespace {

constexpr size_t kPiece = size_t{64} << 10;  // bytes that are read or written at once
constexpr int kPieces = 16;                  // of one connection, before it is another's turn

}  // namespace

bool Link::open(sdk::UniqueFd fd, int epoll) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = this}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd.get(), &event) != 0) return false;
  watched_ = EPOLLIN;
  fd_ = std::move(fd);
  process_ = ::getpid();
  epoll_ = epoll;
  return true;
}

void Link::hang_up() {
  if (!is_open() || process_ != ::getpid()) return;
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd_.get(), nullptr);
  ::shutdown(fd_.get(), SHUT_RDWR);
}

bool Link::read() {
  std::array<uint8_t, kPiece> piece;
  for (int i = 0; i < kPieces && stream.wants_input(); ++i) {
    const ssize_t n = ::recv(fd_.get(), piece.data(), piece.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    has_input = has_moved = true;
    if (stream.on_bytes(std::span(piece).first(size_t(n)))) return false;
    if (size_t(n) != piece.size()) return true;
  }
  return true;
}

bool Link::write() {
  for (int i = 0; i < kPieces; ++i) {
    if (begin_ == end_) {
      if (made_ == nullptr) made_ = std::make_unique_for_overwrite<uint8_t[]>(kPiece);
      begin_ = 0;
      end_ = stream.output({made_.get(), kPiece});
      if (end_ == 0) {
        watch(false);
        return true;
      }
    }
    const ssize_t n = ::send(fd_.get(), made_.get() + begin_, end_ - begin_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0) {
      begin_ += size_t(n);
      has_moved = true;
    }
    if (begin_ != end_) break;
  }
  watch(true);
  return true;
}

// What the socket wakes for. While the stream wants no input, of the peer only its end counts.
void Link::watch(bool output) {
  const uint32_t wanted = (stream.wants_input() ? EPOLLIN : EPOLLRDHUP) | (output ? EPOLLOUT : 0u);
  if (std::exchange(watched_, wanted) == wanted) return;
  epoll_event event{.events = wanted, .data = {.ptr = this}};
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd_.get(), &event);
}

}  // namespace weft::cxi
