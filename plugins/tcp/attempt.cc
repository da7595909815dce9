// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/attempt.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/unit/log.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/tcp/peer.h"
#include "plugins/tcp/socket.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {

using sdk::PeerLink;

Attempt::~Attempt() {
  peer_.endpoint.engine().remove(*this);
  if (socket_ >= 0) ::close(socket_);
}

Result<void> Attempt::connect() {
  const Settings &settings = peer_.endpoint.settings();
  const std::string to = peer_.address.to_string();
  WEFT_TRY(const int fd, open_socket(peer_.address.family(), settings, peer_.endpoint.dscp()));
  // The peer identifies us by the source address, so it must be the endpoint's.
  sdk::SockAddr from = peer_.endpoint.name();
  if (!from.is_any() && from.family() == peer_.address.family()) {
    from.set_port(0);
    if (auto bound = bind_socket(fd, from); !bound) {
      ::close(fd);
      return bound;
    }
  }
  if (::connect(fd, peer_.address.c(), peer_.address.size()) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    ::close(fd);
    return fail(error, "connect to %s: %s", to.c_str(), strerror(error));
  }
  if (socket_ >= 0) wait_until(0);  // the object has a socket of an earlier try
  socket_ = fd;
  requested_ = false;
  exchange_.reset();
  answer_ = ConnectReader(ConnectRole::kActive);
  sdk::Engine &engine = peer_.endpoint.engine();
  engine.add(*this, fd, EPOLLOUT, EPOLLOUT);
  deadline_ = probe_ ? sdk::now_ns() + settings.handshake_timeout_ns : peer_.link.deadline();
  engine.set_deadline(*this, deadline_);
  return {};
}

void Attempt::become_probe() {
  probe_ = true;
  deadline_ = sdk::now_ns() + peer_.endpoint.settings().handshake_timeout_ns;
  peer_.endpoint.engine().set_deadline(*this, deadline_);
}

void Attempt::become_attempt() {
  probe_ = false;
  deadline_ = peer_.link.deadline();
  peer_.endpoint.engine().set_deadline(*this, deadline_);
}

void Attempt::wait_until(uint64_t at_ns) {
  sdk::Engine &engine = peer_.endpoint.engine();
  engine.remove(*this);
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  engine.set_deadline(*this, at_ns);
}

void Attempt::failed(PeerLink::Refusal refusal, int error) {
  Peer &peer = peer_;
  if (!probe_) return peer.attempt_failed(refusal, error);
  // A probe: the process at the peer's address has a stream with us, or there is none. Nothing
  // changes.
  peer.probe_ended();  // this
}

void Attempt::warn(const char *what) const {
  if (probe_) return;  // the application did not ask for it
  WEFT_WARN(peer_.endpoint.instance(), FI_LOG_EP_CTRL, "connect to %s: %s",
            peer_.address.to_string().c_str(), what);
}

void Attempt::on_event(uint32_t) {
  if (requested_) return on_answer();
  if (exchange_ != nullptr) return prove();
  pollfd p{socket_, POLLOUT, 0};
  if (::poll(&p, 1, 0) <= 0) return;
  on_connected();
}

short Attempt::awaited() const {
  return requested_ || exchange_ != nullptr ? POLLIN : POLLOUT;
}

// After a step that we made late, for want of progress: the peer gets time for its next answer.
void Attempt::give_time() {
  const uint64_t now = sdk::now_ns();
  if (deadline_ != 0 && now >= deadline_)
    peer_.endpoint.engine().set_deadline(*this, now + kLateAnswerNs);
}

void Attempt::on_connected() {
  Peer &peer = peer_;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  // A reset comes from a host that is up, but too busy.
  if (error != 0)
    return failed(
        error == ECONNRESET ? PeerLink::Refusal::kHungUp : PeerLink::Refusal::kUnreachable, error);
  give_time();
  exchange_ = peer.endpoint.keys().exchange(ConnectRole::kActive, socket_);
  if (exchange_ == nullptr) return request();
  peer.endpoint.engine().change(*this, EPOLLIN, EPOLLIN);
  prove();
}

void Attempt::prove() {
  int error = 0;
  const Progress progress = advance(socket_, *exchange_, error);
  if (progress == Progress::kWaits) return;
  const std::unique_ptr<KeyExchange> exchange = std::move(exchange_);
  if (progress == Progress::kDone) return request();
  const bool refused = progress == Progress::kRefused;
  warn(refused ? KeyExchange::text(*exchange->rejected())
               : "the connection ended before the peer proved our auth_key: does it have one?");
  failed(PeerLink::Refusal::kUnreachable, refused ? FI_EACCES : error);
}

void Attempt::request() {
  Peer &peer = peer_;
  RdmHello hello = peer.endpoint.hello(peer.endpoint.name().port());
  hello.version = kRdmVersion;
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n = encode_connect(ConnectType::kRequest, encode_hello(hello), message);
  // An empty socket takes the message whole. Stock libfabric reads it by one call.
  if (::send(socket_, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t(n))
    return failed(PeerLink::Refusal::kHungUp, FI_ECONNRESET);
  requested_ = true;
  give_time();
  peer.endpoint.engine().change(*this, EPOLLIN, EPOLLIN);
  on_answer();
}

void Attempt::on_answer() {
  Peer &peer = peer_;
  for (;;) {
    const std::span<uint8_t> space = answer_.space();
    const ssize_t n = ::recv(socket_, space.data(), space.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return failed(PeerLink::Refusal::kHungUp, FI_ECONNRESET);
    answer_.on_read(size_t(n));
    if (auto refusal = answer_.rejected()) {
      warn(text(*refusal));
      return failed(PeerLink::Refusal::kUnreachable, FI_ECONNREFUSED);
    }
    if (answer_.done()) break;
  }
  peer.endpoint.on_answer_of(peer, answer_.header().last_place);
  if (answer_.header().type == ConnectType::kReject) {
    // A reject without private data is final. Every other reject repeats the private data of the
    // request.
    if (!answer_.private_bytes().empty())
      return failed(PeerLink::Refusal::kRejected, FI_ECONNREFUSED);
    warn(
        "refused: does it have an auth_key that we lack, or fewer receive contexts than fi_rx_addr "
        "was told?");
    return failed(PeerLink::Refusal::kUnreachable, FI_ECONNREFUSED);
  }
  const auto hello = parse_hello(answer_.private_bytes());
  if (!hello) {
    warn(text(hello.error()));
    return failed(PeerLink::Refusal::kUnreachable, FI_ECONNREFUSED);
  }
  const Terms terms = terms_of(answer_.header().order, hello->version, hello->features);
  peer.endpoint.engine().remove(*this);
  const int fd = std::exchange(socket_, -1);
  peer.accepted(fd, terms, hello->process);  // deletes this
}

void Attempt::on_deadline() {
  Peer &peer = peer_;
  if (socket_ < 0) {
    const PeerLink::Next next = peer.link.on_time(sdk::now_ns(), peer.wanted());
    if (next != PeerLink::Next::kNothing) return peer.follow(next);
    peer.attempt.reset();
    peer.endpoint.check(peer);
    return;
  }
  if (probe_) return failed(PeerLink::Refusal::kUnreachable, FI_ETIMEDOUT);
  WEFT_WARN(peer.endpoint.instance(), FI_LOG_EP_CTRL,
            "connect to %s: %s within %llu ms (tcp connect_timeout_ms): is the address right, and "
            "is a firewall between?",
            peer.address.to_string().c_str(),
            requested_ ? "the peer did not answer the request" : "no connection",
            (unsigned long long)(peer.endpoint.settings().connect_timeout_ns / 1'000'000u));
  failed(PeerLink::Refusal::kUnreachable, FI_ETIMEDOUT);
}

}  // namespace weft::tcp
