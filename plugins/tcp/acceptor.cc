// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/acceptor.h"

#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/peer/crowd.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/tcp/socket.h"

namespace weft::tcp {
namespace {

constexpr int kAcceptsPerTurn = 64;
constexpr uint64_t kLongestPause = 8;
constexpr uint64_t kAcceptPauseNs = 100'000'000;  // after running out of descriptors
// A request mostly comes with its connection. A stranger that has none after this time makes room
// for others. An endpoint that was too busy to send it connects again.
constexpr uint64_t kPatienceNs = 50'000'000;

}  // namespace

Result<void> Acceptor::bind(const sdk::SockAddr &local) {
  WEFT_TRY(const int fd, open_socket(local.family(), settings_, dscp_));
  close();  // the new name may be the same
  Result<void> bound;
  if (local.port() == 0 && settings_.port_low != 0) {
    // The first free port of the range, which is the one that a firewall lets through.
    for (unsigned port = settings_.port_low; port <= settings_.port_high; ++port) {
      sdk::SockAddr candidate = local;
      candidate.set_port(uint16_t(port));
      bound = bind_socket(fd, candidate, BindFor::kListen);
      if (bound || bound.error().code != FI_EADDRINUSE) break;
    }
  } else {
    bound = bind_socket(fd, local, BindFor::kListen);
  }
  if (!bound) {
    ::close(fd);
    return bound;
  }
  socket_ = fd;
  name_ = socket_name(fd).value_or(local);
  return {};
}

Result<void> Acceptor::reserve() {
  // Where an earlier listener had the port, it may be bound once more; not with a listener.
  share_port(socket_);
  if (::listen(socket_, 0) == 0) return {};
  const int error = errno;
  return fail(error, "listen on %s: %s", name_.to_string().c_str(), strerror(error));
}

Result<void> Acceptor::listen(int backlog) {
  share_port(socket_);
  if (::listen(socket_, backlog) != 0) {
    const int error = errno;
    return fail(error, "listen on %s: %s", name_.to_string().c_str(), strerror(error));
  }
  // Most descriptors are for peers whose request is complete.
  max_strangers_ = std::clamp<size_t>(descriptor_limit() / 4, 1, settings_.max_handshakes);
  name_ = socket_name(socket_).value_or(name_);
  if (!std::exchange(listening_, true)) engine_.add(*this, socket_, EPOLLIN, EPOLLIN);
  return {};
}

void Acceptor::close() {
  while (!strangers_.empty()) ::close(forget(strangers_.front()));
  engine_.remove(*this);
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  listening_ = false;
}

int Acceptor::release() {
  if (listening_) return -1;
  share_port(socket_);  // or its connection would keep the port for a while
  return std::exchange(socket_, -1);
}

void Acceptor::on_event(uint32_t) {
  if (pause_ns_ != 0) {
    const uint64_t now = sdk::now_ns();
    if (now < next_look_) return;
    next_look_ = now + next_pause_ns_;
    next_pause_ns_ = std::min(2 * next_pause_ns_, kLongestPause * pause_ns_);
  }
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (is_full()) make_room();
    if (!has_room()) return hold();
    sockaddr_in6 from;
    socklen_t size = sizeof from;
    const int fd = ::accept4(socket_, reinterpret_cast<sockaddr *>(&from), &size,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const int error = errno;
      // No connection waits, or one connection is gone already (accept(2)).
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      if (error == EINTR || error == ECONNABORTED || error == EPROTO) continue;
      return accept_failed(error);
    }
    failure_told_ = false;
    next_pause_ns_ = pause_ns_;
    take(fd, sdk::SockAddr::from(&from, size).value_or(sdk::SockAddr()));
  }
}

void Acceptor::take(int fd, const sdk::SockAddr &from) {
  apply_settings(fd, settings_);
  apply_peer_settings(fd, settings_);
  strangers_.emplace_back(*this, fd, from);
  Stranger &stranger = strangers_.back();
  stranger.self_ = std::prev(strangers_.end());
  engine_.add(stranger, fd, EPOLLIN, EPOLLIN);
  engine_.set_deadline(stranger, stranger.useful_at_ + settings_.handshake_timeout_ns);
}

// Reads what the stranger whose turn it is to leave has sent, and closes its connection unless that
// completes its request.
void Acceptor::make_room() {
  const uint64_t now = sdk::now_ns();
  sdk::Crowd crowd;
  for (const Stranger &stranger : strangers_) crowd.add(stranger.from_);
  Stranger *first = nullptr;
  for (Stranger &stranger : strangers_)
    if (now - stranger.useful_at_ >= kPatienceNs &&
        crowd.goes_before(stranger.from_, stranger.useful_at_))
      first = &stranger;
  if (first == nullptr) return;
  first->on_event(EPOLLIN);
  if (is_full()) dismiss(*first, counters_.refused_silent);
}

// A crowd is not refused. Further connections wait in the kernel's backlog until a stranger has
// finished, it is its turn to leave, or the client has room.
void Acceptor::hold() {
  if (!std::exchange(full_, true)) counters_.accepts_held.add();
  engine_.change(*this, 0, 0);
  if (!is_full()) return;
  const auto first = std::ranges::min_element(strangers_, {}, &Stranger::useful_at_);
  engine_.set_deadline(*this, first->useful_at_ + kPatienceNs);
}

void Acceptor::go_on() {
  if (!full_ || !has_room()) return;
  full_ = false;
  engine_.change(*this, EPOLLIN, EPOLLIN);
}

void Acceptor::accept_failed(int error) {
  counters_.accept_failures.add();
  // The connection stays in the kernel's backlog. Polling it without a pause would only waste CPU
  // time.
  engine_.change(*this, 0, 0);
  engine_.set_deadline(*this, sdk::now_ns() + kAcceptPauseNs);
  if (failure_told_) return;
  failure_told_ = true;
  const std::string reason = descriptor_error(error);
  WEFT_WARN(instance_, FI_LOG_EP_CTRL, "accept on %s: %s", name_.to_string().c_str(),
            reason.c_str());
  client_.on_accept_failure(error, reason);
}

void Acceptor::on_deadline() {
  if (is_full()) make_room();
  if (full_ && !has_room()) return hold();
  full_ = false;
  engine_.change(*this, EPOLLIN, EPOLLIN);
}

void Acceptor::Stranger::on_event(uint32_t) {
  if (exchange_ != nullptr) {
    int error = 0;
    switch (advance(socket_, *exchange_, error)) {
      case Progress::kWaits:
        return;
      case Progress::kDone:
        exchange_.reset();
        useful_at_ = sdk::now_ns();
        break;
      case Progress::kRefused:
        WEFT_INFO_SPARSE(acceptor_.instance_, FI_LOG_EP_CTRL, "a connection is refused: %s",
                         KeyExchange::text(*exchange_->rejected()));
        say_no();
        return acceptor_.dismiss(*this, acceptor_.counters_.refused_key);
      case Progress::kFailed:
        return acceptor_.dismiss(*this, acceptor_.counters_.refused_key);
    }
  }
  for (;;) {
    const std::span<uint8_t> space = reader_.space();
    const ssize_t n = ::recv(socket_, space.data(), space.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return acceptor_.dismiss(*this, acceptor_.counters_.refused_version);
    reader_.on_read(size_t(n));
    if (auto refusal = reader_.rejected()) {
      WEFT_INFO_SPARSE(acceptor_.instance_, FI_LOG_EP_CTRL, "a connection is refused: %s",
                       text(*refusal));
      return acceptor_.dismiss(*this, acceptor_.counters_.refused_version);
    }
    if (!reader_.done()) continue;
    const ConnectReader request = reader_;
    Acceptor &acceptor = acceptor_;
    return acceptor.client_.on_request(acceptor.forget(*this), request);
  }
}

// A reject for a requester without keys. It would take the end of the connection alone for a sign
// of overload, and try again.
void Acceptor::Stranger::say_no() {
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n = encode_connect(ConnectType::kReject, {}, message);
  [[maybe_unused]] const ssize_t sent =
      ::send(socket_, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket_, SHUT_WR);
  // Unread bytes at close() would reset the connection.
  uint8_t rest[kMaxConnectSize];
  [[maybe_unused]] const ssize_t unread = ::recv(socket_, rest, sizeof rest, MSG_DONTWAIT);
}

void Acceptor::Stranger::on_deadline() {
  acceptor_.dismiss(*this, acceptor_.counters_.refused_timeout);
}

int Acceptor::forget(Stranger &stranger) {
  engine_.remove(stranger);
  const int fd = stranger.socket_;
  strangers_.erase(stranger.self_);
  go_on();
  return fd;
}

void Acceptor::dismiss(Stranger &stranger, sdk::Counter &why) {
  why.add();
  ::close(forget(stranger));
}

}  // namespace weft::tcp
