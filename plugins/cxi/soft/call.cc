// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/call.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/cxi/soft/network.h"

namespace weft::cxi {
namespace {

// How long whoever heard us at the door may be silent, before another one is tried. It grows by an
// eighth each time, for a host that is slow: 14 tries in 1.5 seconds and 23 in five, so that half
// of a host's processes may be stopped.
constexpr std::chrono::milliseconds kFirstPause{40};
constexpr unsigned kMaxHops = 8;  // between owners that have just changed

bool is_nobody_home(int code) {
  return code == ECONNRESET || code == EPIPE;
}

}  // namespace

Call::Call(const Target &target, unsigned timeout_ms)
    : target_(target),
      end_(Clock::now() + std::chrono::milliseconds(timeout_ms)),
      port_(target.door),
      pause_(kFirstPause) {}

void Call::unwatch() {
  if (fd_.get() >= 0) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd_.get(), nullptr);
}

void Call::close() {
  unwatch();
  fd_.reset();
}

sdk::UniqueFd Call::take() {
  unwatch();
  return std::exchange(fd_, sdk::UniqueFd());
}

std::string Call::place() const {
  return text_of_address(address_of(target_.from, target_.to.nid)) + ", port ";
}

std::string Call::name() const {
  return text_of_address(target_.from) + " to " + place() + std::to_string(owner_port_);
}

Call::State Call::fail_with(Rc why, std::string text) {
  close();
  why_ = why;
  text_ = std::move(text);
  return State::kFailed;
}

Call::State Call::start(Clock::time_point now, int epoll, void *data) {
  has_said_ = false;
  have_ = 0;
  next_try_ = now + pause_;
  pause_ += pause_ / 8;
  close();
  epoll_ = epoll;
  fd_ = call_at(target_.from, address_of(target_.from, target_.to.nid), port_);
  if (fd_.get() < 0) return fail_with(Rc::kUndeliverable);
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLET, .data = {.ptr = data}};
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd_.get(), &event) != 0)
    return fail_with(Rc::kUndeliverable);
  return State::kWaits;
}

// A process that ends resets its callers. The door may have others, or the address a new owner.
Call::State Call::on_error(int code) {
  const bool is_at_door = port_ == target_.door;
  if (!is_at_door && (is_nobody_home(code) || code == ECONNREFUSED)) port_ = target_.door;
  if ((is_at_door && !is_nobody_home(code)) || ++hops_ > kMaxHops)
    return fail_with(Rc::kUndeliverable);
  close();
  return State::kWaits;
}

Call::State Call::on_answer() {
  const auto hello = parse_hello(answer_);
  if (!hello)
    return fail_with(Rc::kUndeliverable,
                     place() + std::to_string(port_) + ": the answer is " + text_of(hello.error()));
  switch (hello->kind) {
    case Hello::Kind::kWelcome:
      owner_port_ = hello->port;
      peer_key_ = hello->key;
      return State::kWelcome;
    case Hello::Kind::kElsewhere:
      if (++hops_ > kMaxHops) return fail_with(Rc::kUndeliverable);
      close();
      port_ = hello->port;
      next_try_ = {};  // at once
      return State::kWaits;
    case Hello::Kind::kRefused:
      return fail_with(hello->rc);
    default:
      return fail_with(Rc::kUndeliverable,
                       place() + std::to_string(port_) + ": answered by a call");
  }
}

Call::State Call::advance(Clock::time_point now, int epoll, void *data) {
  if (now >= end_) return fail_with(Rc::kUndeliverable);
  while (true) {
    const bool is_next = now >= next_try_ && (fd_.get() < 0 || port_ == target_.door);
    if (is_next) {
      if (start(now, epoll, data) == State::kFailed) return State::kFailed;
    } else if (fd_.get() < 0) {
      return State::kWaits;
    }
    ssize_t n;
    if (!has_said_) {
      std::array<uint8_t, kHelloSize> hello;
      write_hello(
          {.kind = Hello::Kind::kCall, .vni = target_.vni, .to = target_.to, .key = target_.key},
          hello);
      n = ::send(fd_.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
      has_said_ = n == ssize_t(hello.size());
      if (n >= 0 && !has_said_) return fail_with(Rc::kUndeliverable);
    } else {
      n = ::recv(fd_.get(), answer_.data() + have_, answer_.size() - have_, 0);
      if (n == 0) {
        n = -1;
        errno = ECONNRESET;
      }
      have_ += size_t(std::max<ssize_t>(n, 0));
    }
    State state = State::kWaits;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return State::kWaits;
    if (n < 0) state = on_error(errno);
    if (have_ == answer_.size()) state = on_answer();
    if (state != State::kWaits) return state;
  }
}

}  // namespace weft::cxi
