// SPDX-License-Identifier: BSD-2-Clause
// The control side of a connected endpoint (fi_cm.3): connecting, accepting, ending.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/shared_receive.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {

int Endpoint::setname(void *addr, size_t len) {
  auto address = sdk::read_sock_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(engine_.lock());
  if (enabled()) return -FI_EOPBADSTATE;
  local_ = *address;
  bound_.reset();
  return 0;
}

int Endpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(engine_.lock());
  if (local_.size() == 0) return -FI_EADDRNOTAVAIL;
  return sdk::write_address(local_, addr_format_, addr, len);
}

int Endpoint::getpeer(void *addr, size_t *len) {
  sdk::Guard guard(engine_.lock());
  if (state_ != State::kConnected) return -FI_ENOTCONN;
  return sdk::write_address(peer_, addr_format_, addr, len);
}

int Endpoint::connect(const void *addr, const void *param, size_t len) {
  if (addr == nullptr || (param == nullptr && len != 0)) return -FI_EINVAL;
  len = std::min(len, kPrivateDataSize);  // fi_cm.3, NOTES: the rest is silently dropped
  auto peer = sdk::read_sock_address(addr_format_, addr);
  Result<void> started;
  if (!peer) {
    started = tl::unexpected(peer.error());
  } else {
    sdk::Guard guard(engine_.lock());
    started = start_connect(*peer, param, len);
  }
  if (started) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_connect: %s", started.error().text.c_str());
  return -started.error().code;
}

Result<void> Endpoint::start_connect(const sdk::SockAddr &peer, const void *param, size_t len) {
  if (request_ != nullptr)
    return fail(
        FI_EOPBADSTATE,
        "this endpoint was opened for a connection request: call fi_accept, not fi_connect");
  if (state_ != State::kIdle)
    return fail(FI_EISCONN, "the endpoint is connected or connecting already");
  WEFT_CHECK(enable());
  if (bound_.get() >= 0 && local_.family() != peer.family()) bound_.reset();
  int fd = bound_.release();
  if (fd < 0) {
    WEFT_TRY(fd, open_socket(peer.family(), domain_.fabric().settings()));
    if (local_.size() != 0 && local_.family() == peer.family() &&
        !(local_.is_any() && local_.port() == 0)) {
      if (auto bound = bind_socket(fd, local_); !bound) {
        ::close(fd);
        return bound;
      }
    }
  }
  if (::connect(fd, peer.c(), peer.size()) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    ::close(fd);
    return fail(error, "connect to %s: %s", peer.to_string().c_str(), strerror(error));
  }
  socket_ = fd;
  peer_ = peer;
  const auto *bytes = static_cast<const uint8_t *>(param);
  connect_data_.assign(bytes, bytes + len);
  answer_ = std::make_unique<ConnectReader>(ConnectRole::kActive);
  state_ = State::kConnecting;
  engine_.add(*this, fd, EPOLLOUT, EPOLLOUT);
  if (const uint64_t timeout = domain_.fabric().settings().connect_timeout_ns; timeout != 0)
    engine_.set_deadline(*this, connect_deadline_ = sdk::now_ns() + timeout);
  return {};
}

void Endpoint::on_connecting() {
  pollfd p{socket_, POLLOUT, 0};
  if (::poll(&p, 1, 0) <= 0) return;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return connect_failed(error, {}, error);
  local_ = socket_name(socket_).value_or(local_);
  apply_peer_settings(socket_, domain_.fabric().settings());
  give_time();
  exchange_ = keys_.exchange(ConnectRole::kActive);
  if (exchange_ == nullptr) return request();
  state_ = State::kProving;
  watch();
  prove();
}

void Endpoint::prove() {
  int error = 0;
  const Progress progress = advance(socket_, *exchange_, error);
  if (progress == Progress::kWaits) return;
  const std::unique_ptr<KeyExchange> exchange = std::move(exchange_);
  if (progress == Progress::kDone) return request();
  const bool refused = progress == Progress::kRefused;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "connect to %s: %s", peer_.to_string().c_str(),
            refused
                ? KeyExchange::text(*exchange->rejected())
                : "the connection ended before the peer proved our auth_key: does it have one?");
  connect_failed(refused ? FI_EACCES : error, {}, FI_EACCES);
}

void Endpoint::request() {
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n = encode_connect(ConnectType::kRequest, connect_data_, message);
  // An empty socket takes the message whole. Stock libfabric reads it by one call.
  if (::send(socket_, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(n))
    return connect_failed(FI_ECONNRESET, {}, FI_ECONNRESET);
  connect_data_ = {};
  state_ = State::kRequested;
  give_time();
  watch();
  on_requested();
}

// After a step that we made late, for want of progress: the peer gets time for its next answer.
void Endpoint::give_time() {
  const uint64_t now = sdk::now_ns();
  if (connect_deadline_ != 0 && now >= connect_deadline_)
    engine_.set_deadline(*this, now + kLateAnswerNs);
}

void Endpoint::on_requested() {
  for (;;) {
    const std::span<uint8_t> space = answer_->space();
    const ssize_t n = ::recv(socket_, space.data(), space.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n == 0) return connect_failed(FI_ECONNREFUSED, {}, FI_ECONNRESET);
    if (n < 0) {
      const int error = errno;
      return connect_failed(error, {}, error);
    }
    answer_->on_read(size_t(n));
    if (auto refusal = answer_->rejected()) {
      WEFT_WARN(instance(), FI_LOG_EP_CTRL, "connect to %s: %s", peer_.to_string().c_str(),
                text(*refusal));
      return connect_failed(FI_ECONNREFUSED, {}, FI_ECONNREFUSED);
    }
    if (!answer_->done()) continue;
    const auto bytes = answer_->private_bytes();
    if (answer_->header().type == ConnectType::kReject)
      return connect_failed(FI_ECONNREFUSED,
                            std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size()),
                            FI_ECONNREFUSED);
    const std::unique_ptr<ConnectReader> answer = std::move(answer_);
    return become_connected(answer->header().order, bytes);
  }
}

void Endpoint::become_connected(ByteOrder order, std::span<const uint8_t> private_data) {
  engine_.set_deadline(*this, 0);
  order_ = order;
  reader_.start(source_ ? EndpointKind::kMsgTagged : EndpointKind::kMsg, order);
  state_ = State::kConnected;
  watch();
  if (eq() != nullptr) eq()->push_cm(FI_CONNECTED, base(), nullptr, std::as_bytes(private_data));
}

void Endpoint::connect_failed(int error, std::string private_data, int cause) {
  drop_socket();
  exchange_.reset();
  state_ = State::kDisconnected;
  flush_operations(FI_ECANCELED);
  if (eq() != nullptr)
    eq()->push_error({.fid = base(),
                      .context = context(),
                      .err = error,
                      .prov_errno = cause,
                      .err_data = std::move(private_data)});
}

void Endpoint::on_deadline() {
  if (state_ < State::kConnecting || state_ > State::kRequested) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "connect to %s: %s within %llu ms (tcp connect_timeout_ms): is the address right, and "
            "is a firewall between?",
            peer_.to_string().c_str(),
            state_ == State::kConnecting ? "no connection"
            : state_ == State::kProving  ? "the peer did not prove our auth_key"
                                         : "the peer did not answer the request",
            (unsigned long long)(domain_.fabric().settings().connect_timeout_ns / 1'000'000u));
  connect_failed(FI_ETIMEDOUT, {}, FI_ETIMEDOUT);
}

int Endpoint::accept(const void *param, size_t len) {
  if (param == nullptr && len != 0) return -FI_EINVAL;
  len = std::min(len, kPrivateDataSize);
  sdk::Guard guard(engine_.lock());
  if (request_ == nullptr || state_ != State::kIdle) return -FI_EOPBADSTATE;
  if (auto enabled = enable(); !enabled) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_accept: %s", enabled.error().text.c_str());
    return -enabled.error().code;
  }
  const std::unique_ptr<ConnectRequest> request = std::move(request_);
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n =
      encode_connect(ConnectType::kAccept, {static_cast<const uint8_t *>(param), len}, message);
  if (::send(request->fd, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(n)) {
    // The requester is gone. The event queue reports that, not this call (fi_cm.3).
    connect_failed(FI_ECONNRESET, {}, FI_ECONNRESET);
    return 0;
  }
  socket_ = std::exchange(request->fd, -1);
  engine_.add(*this, socket_, EPOLLIN, EPOLLRDHUP | EPOLLET);
  domain_.fabric().counters().connections_accepted.add();
  become_connected(request->order, {});
  return 0;
}

int Endpoint::shutdown(uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  sdk::Guard guard(engine_.lock());
  if (state_ != State::kConnected) return not_connected();
  flush_output();
  // Both sides get FI_SHUTDOWN: the caller may wait for it before fi_close.
  disconnect(FI_ECANCELED, true);
  return 0;
}

void Endpoint::rejected(Reject reject) {
  domain_.fabric().counters().frames_rejected.add();
  // Where the endpoint itself refused a frame, refuse() has logged why.
  if (reject != Reject::kRefused)
    WEFT_WARN(instance(), FI_LOG_EP_DATA, "stream from %s: %s; the connection is closed",
              peer_name().c_str(), text(reject));
  disconnect(FI_EPROTO, true);
}

void Endpoint::failed(int error, const char *doing) {
  // A peer that closes with unread bytes resets the connection. That needs no warning.
  if (error != FI_ECONNRESET)
    WEFT_WARN(instance(), FI_LOG_EP_DATA, "%s %s: %s", doing, peer_name().c_str(), strerror(error));
  disconnect(error, true);
}

void Endpoint::drop_socket() {
  engine_.remove(*this);
  close_socket();
}

void Endpoint::disconnect(int error, bool event) {
  const bool connected = state_ == State::kConnected;
  drop_socket();
  state_ = State::kDisconnected;
  request_.reset();
  if (connected && error != FI_ECANCELED) domain_.fabric().counters().connections_lost.add();
  flush_operations(error);
  if (event && connected && !shutdown_told_ && eq() != nullptr) {
    shutdown_told_ = true;
    eq()->push_cm(FI_SHUTDOWN, base(), nullptr, {});
  }
}

void Endpoint::flush_operations(int error) {
  fail_operations(error);
  sdk::RecvQueue &queue = recv_queue();
  queue.stop_waiting(*this);
  if (current_recv_ != nullptr) {
    sdk::PostedRecv *r = std::exchange(current_recv_, nullptr);
    if (r->flags & FI_MULTI_RECV) --r->users;
    if (r->users == 0 && r->popped) {
      report_cancelled(*r);
      queue.release(r);
    }
  }
  if (srx_ == nullptr) {
    while (own_recvs_.front() != nullptr) {
      sdk::PostedRecv *r = own_recvs_.pop();
      report_cancelled(*r);
      own_recvs_.release(r);
    }
  }
}

}  // namespace weft::tcp
