// SPDX-License-Identifier: BSD-2-Clause
// The control side of a connected endpoint (fi_cm.3): connecting, accepting, ending.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/shared_receive.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {

Result<sdk::Address> Endpoint::bind_to(const sdk::Address &local) {
  bound_.reset();  // the new name may be the same
  WEFT_TRY(bound_, named_socket(local, domain_.fabric().settings(), dscp_));
  return local_name(bound_.get(), local);
}

Result<void> Endpoint::start_connect(const sdk::Address &to, std::string_view data) {
  WEFT_TRY(const sdk::SockAddr peer, sdk::SockAddr::from(to));
  sdk::SockAddr local;
  if (local_.size() != 0) {
    WEFT_TRY(local, sdk::SockAddr::from(local_));
  }
  if (local.family() != peer.family()) bound_.reset();
  int fd = bound_.release();
  if (fd >= 0) {
    if (auto marked = sdk::set_dscp(fd, peer.family(), dscp_); !marked) {
      ::close(fd);
      return marked;
    }
  } else {
    WEFT_TRY(fd, open_socket(peer.family(), domain_.fabric().settings(), dscp_));
    if (local.family() == peer.family() && !(local.is_any() && local.port() == 0)) {
      if (auto bound = bind_socket(fd, local); !bound) {
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
  connect_data_ = data;
  answer_ = std::make_unique<ConnectReader>(ConnectRole::kActive);
  state_ = State::kConnecting;
  step_ = Step::kHandshake;
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
  if (const auto name = socket_name(socket_)) local_ = *name;
  apply_peer_settings(socket_, domain_.fabric().settings());
  give_time();
  exchange_ = keys_.exchange(ConnectRole::kActive, socket_);
  if (exchange_ == nullptr) return request();
  step_ = Step::kProof;
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
  const size_t n = encode_connect(ConnectType::kRequest, bytes_of(connect_data_), message,
                                  ByteOrder::kNative, is_hidden() ? kConnectRefuses : uint8_t{0});
  // An empty socket takes the message whole. Stock libfabric reads it by one call.
  if (::send(socket_, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(n))
    return connect_failed(FI_ECONNRESET, {}, FI_ECONNRESET);
  connect_data_ = {};
  step_ = Step::kAnswer;
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
    const std::unique_ptr<ConnectReader> answer = std::move(answer_);
    const std::string_view data = text_of(answer->private_bytes());
    if (answer->header().type == ConnectType::kReject)
      return connect_failed(FI_ECONNREFUSED, data, FI_ECONNREFUSED);
    refuses_ = answer->header().features == kConnectRefusesToo;
    return become_connected(answer->header().order, data);
  }
}

void Endpoint::become_connected(ByteOrder order, std::string_view data) {
  engine_.set_deadline(*this, 0);
  order_ = order;
  reader_.start(source_ ? EndpointKind::kMsgTagged : EndpointKind::kMsg, order);
  state_ = State::kConnected;
  watch();
  report_connected(data);
}

// FI_ECONNRESET as the cause says that the peer closed the connection instead of answering.
void Endpoint::connect_failed(int error, std::string_view data, int cause) {
  drop_socket();
  exchange_.reset();
  state_ = State::kDisconnected;
  flush_operations(FI_ECANCELED);
  report_failure(error, std::string(data), cause);
}

// The peer is to end the connection, which it does when it notices. What has come from it before
// waits for the receives of an application as long as these take.
void Endpoint::on_mute() {
  if (!is_hidden()) return;
  engine_.set_deadline(*this, sdk::now_ns() + domain_.fabric().settings().handshake_timeout_ns);
}

void Endpoint::on_deadline() {
  if (state_ == State::kConnected) return disconnect(FI_ECONNRESET, true);
  if (state_ != State::kConnecting) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "connect to %s: %s within %llu ms (tcp connect_timeout_ms): is the address right, and "
            "is a firewall between?",
            peer_.to_string().c_str(),
            step_ == Step::kHandshake ? "no connection"
            : step_ == Step::kProof   ? "the peer did not prove our auth_key"
                                      : "the peer did not answer the request",
            (unsigned long long)(domain_.fabric().settings().connect_timeout_ns / 1'000'000u));
  connect_failed(FI_ETIMEDOUT, {}, FI_ETIMEDOUT);
}

Result<void> Endpoint::start_accept(std::unique_ptr<sdk::ConnectRequest> accepted,
                                    std::string_view data) {
  auto &request = static_cast<ConnectRequest &>(*accepted);
  // It has the passive endpoint's class.
  const auto name = socket_name(request.socket.get());
  const auto marked = sdk::set_dscp(request.socket.get(), name ? name->family() : AF_INET, dscp_);
  if (!marked && dscp_ != 0) return marked;
  std::array<uint8_t, kMaxConnectSize> message;
  const uint8_t features = is_hidden() ? connect_features_of_answer(request.features) : uint8_t{0};
  const size_t n =
      encode_connect(ConnectType::kAccept, bytes_of(data), message, ByteOrder::kNative, features);
  if (::send(request.socket.get(), message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(n)) {
    // The requester is gone. The event queue reports that, not this call (fi_cm.3).
    connect_failed(FI_ECONNRESET, {}, FI_ECONNRESET);
    return {};
  }
  socket_ = request.socket.release();
  engine_.add(*this, socket_, kInput, EPOLLRDHUP | EPOLLET);
  domain_.fabric().counters().connections_accepted.add();
  refuses_ = features == kConnectRefusesToo;
  become_connected(request.order, {});
  return {};
}

void Endpoint::hang_up() {
  flush_output();
  // Both sides get FI_SHUTDOWN: the caller may wait for it before fi_close.
  disconnect(FI_ECANCELED, true);
}

void Endpoint::rejected(Reject reject) {
  domain_.fabric().counters().frames_rejected.add();
  // Where the endpoint itself refused a frame, refuse() has logged why.
  if (reject != Reject::kRefused)
    WEFT_WARN_SPARSE(instance(), FI_LOG_EP_DATA, "stream from %s: %s; the connection is closed",
                     peer_name().c_str(), text(reject));
  disconnect(FI_EPROTO, true);
}

void Endpoint::failed(int error, const char *doing) {
  // A peer that closes with unread bytes resets the connection. That needs no warning.
  if (error != FI_ECONNRESET)
    WEFT_WARN_SPARSE(instance(), FI_LOG_EP_DATA, "%s %s: %s", doing, peer_name().c_str(),
                     strerror(error));
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
  if (event && connected) report_shutdown();
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
