// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/passive_endpoint.h"

#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/log.h>
#include <weft/sdk/ops.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {
namespace {

constexpr int kAcceptsPerTurn = 64;
constexpr uint64_t kAcceptPauseNs = 100'000'000;  // after running out of descriptors

}  // namespace

PassiveEndpoint::PassiveEndpoint(Fabric &fabric, sdk::InfoList info, void *context)
    : Object(fabric.instance(), FI_CLASS_PEP, context),
      fabric_(fabric),
      info_(std::move(info)),
      backlog_(fabric.settings().backlog) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<PassiveEndpoint>());
  c()->ops = const_cast<fi_ops_ep *>(sdk::ep_ops<PassiveEndpoint>());
  c()->cm = const_cast<fi_ops_cm *>(sdk::cm_ops<PassiveEndpoint>());
}

Result<PassiveEndpoint *> PassiveEndpoint::open(Fabric &fabric, const fi_info &info,
                                                void *context) {
  if (info.ep_attr != nullptr && info.ep_attr->type != FI_EP_MSG &&
      info.ep_attr->type != FI_EP_UNSPEC)
    return fail(FI_EINVAL, "fi_passive_ep: type %d: this provider has FI_EP_MSG",
                int(info.ep_attr->type));
  sdk::SockAddr local =
      sdk::SockAddr::any(sdk::family_of(info.addr_format) == AF_INET6 ? AF_INET6 : AF_INET);
  if (info.src_addr != nullptr) {
    WEFT_TRY(local, sdk::read_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  sdk::InfoList copy(fabric.instance()->core);
  if (auto added = copy.add_copy(&info); !added) return tl::unexpected(added.error());
  auto *pep = new (std::nothrow) PassiveEndpoint(fabric, std::move(copy), context);
  if (pep == nullptr) return fail(FI_ENOMEM, "no memory for a passive endpoint");
  pep->local_ = local;
  if (auto published = pep->publish(fabric.base()); !published) {
    delete pep;
    return tl::unexpected(published.error());
  }
  fabric.children.fetch_add(1);
  return pep;
}

int PassiveEndpoint::bind(struct fid *fid, uint64_t flags) {
  if (!sdk::Eq::is_mine(fid, FI_CLASS_EQ, instance()) || flags != 0) return -FI_EINVAL;
  if (eq_ != nullptr) return -FI_EBUSY;
  eq_ = sdk::Eq::from(fid);
  eq_->users.fetch_add(1);
  eq_->add_source(fabric_.engine());
  return 0;
}

int PassiveEndpoint::control(int command, void *arg) {
  if (command != FI_BACKLOG) return -FI_ENOSYS;
  if (arg == nullptr || *static_cast<int *>(arg) < 0) return -FI_EINVAL;
  sdk::Guard guard(fabric_.engine().lock());
  if (listening_) return -FI_EOPBADSTATE;
  backlog_ = *static_cast<int *>(arg);
  return 0;
}

int PassiveEndpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return put_option(kPrivateDataSize, value, length);
}

int PassiveEndpoint::setname(void *addr, size_t len) {
  auto address = sdk::read_address(info_.front()->addr_format, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(fabric_.engine().lock());
  if (listening_) return -FI_EOPBADSTATE;
  local_ = *address;
  return 0;
}

int PassiveEndpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(fabric_.engine().lock());
  return sdk::write_address(local_, info_.front()->addr_format, addr, len);
}

int PassiveEndpoint::listen() {
  sdk::Guard guard(fabric_.engine().lock());
  if (listening_) return -FI_EOPBADSTATE;
  if (eq_ == nullptr) return -FI_ENOEQ;
  auto started = start_listening();
  if (started) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_listen: %s", started.error().text.c_str());
  return -started.error().code;
}

Result<void> PassiveEndpoint::start_listening() {
  WEFT_TRY(const int fd, open_socket(local_.family(), fabric_.settings()));
  Result<void> bound;
  const Settings &settings = fabric_.settings();
  if (local_.port() == 0 && settings.port_low != 0) {
    // From the range that a firewall lets through, the first that is free.
    for (unsigned port = settings.port_low; port <= settings.port_high; ++port) {
      sdk::SockAddr candidate = local_;
      candidate.set_port(uint16_t(port));
      bound = bind_socket(fd, candidate);
      if (bound || bound.error().code != FI_EADDRINUSE) break;
    }
  } else {
    bound = bind_socket(fd, local_);
  }
  if (bound && ::listen(fd, backlog_) != 0) {
    const int error = errno;
    bound = fail(error, "listen on %s: %s", local_.to_string().c_str(), strerror(error));
  }
  if (!bound) {
    ::close(fd);
    return bound;
  }
  fd_ = fd;
  listening_ = true;
  local_ = socket_name(fd).value_or(local_);
  fabric_.engine().add(*this, fd, EPOLLIN, EPOLLIN);
  return {};
}

void PassiveEndpoint::on_event(uint32_t) {
  accept_some();
}

void PassiveEndpoint::accept_some() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const int error = errno;
      // These are about one connection that is gone already, or nothing at all (accept(2)).
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      if (error == EINTR || error == ECONNABORTED || error == EPROTO) continue;
      return accept_failed(error);
    }
    failure_told_ = false;
    if (strangers_.size() >= fabric_.settings().max_handshakes) {
      fabric_.stats().add(Stat::kConnectionsRefusedFlood);
      ::close(fd);
      continue;
    }
    apply_settings(fd, fabric_.settings());
    apply_peer_settings(fd, fabric_.settings());
    strangers_.emplace_back(*this, fd);
    Stranger &stranger = strangers_.back();
    stranger.self_ = std::prev(strangers_.end());
    fabric_.engine().add(stranger, fd, EPOLLIN, EPOLLIN);
    fabric_.engine().set_deadline(stranger,
                                  sdk::now_ns() + fabric_.settings().handshake_timeout_ns);
  }
}

void PassiveEndpoint::accept_failed(int error) {
  fabric_.stats().add(Stat::kAcceptFailures);
  // The connection stays in the kernel's backlog. Polling it on and on would only burn the
  // processor.
  fabric_.engine().change(*this, 0, 0);
  fabric_.engine().set_deadline(*this, sdk::now_ns() + kAcceptPauseNs);
  if (failure_told_) return;
  failure_told_ = true;
  const std::string reason = descriptor_error(error);
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "accept on %s: %s", local_.to_string().c_str(),
            reason.c_str());
  eq_->push_error(
      {.fid = base(), .context = context(), .err = error, .prov_errno = error, .err_data = reason});
}

void PassiveEndpoint::on_deadline() {
  fabric_.engine().change(*this, EPOLLIN, EPOLLIN);
}

void PassiveEndpoint::Stranger::on_event(uint32_t) {
  for (;;) {
    const std::span<uint8_t> space = reader_.space();
    const ssize_t n = ::recv(fd_, space.data(), space.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return pep_.dismiss(*this, Stat::kConnectionsRefusedVersion);
    reader_.on_read(size_t(n));
    if (auto refusal = reader_.rejected()) {
      WEFT_INFO(pep_.instance(), FI_LOG_EP_CTRL, "a connection is refused: %s", text(*refusal));
      return pep_.dismiss(*this, Stat::kConnectionsRefusedVersion);
    }
    if (reader_.done()) return pep_.introduce(*this);
  }
}

void PassiveEndpoint::Stranger::on_deadline() {
  pep_.dismiss(*this, Stat::kConnectionsRefusedTimeout);
}

void PassiveEndpoint::forget(Stranger &stranger) {
  fabric_.engine().remove(stranger);
  strangers_.erase(stranger.self_);
}

void PassiveEndpoint::dismiss(Stranger &stranger, Stat why) {
  fabric_.stats().add(why);
  const int fd = stranger.fd_;
  forget(stranger);
  ::close(fd);
}

void PassiveEndpoint::introduce(Stranger &stranger) {
  const int fd = stranger.fd_;
  sdk::InfoList list(instance()->core);
  auto info = list.add_copy(info_.front());
  const auto local = socket_name(fd), peer = socket_peer(fd);
  Result<void> filled;
  if (!info) {
    filled = tl::unexpected(info.error());
  } else if (!local || !peer) {
    filled = fail(FI_ENOTCONN, "the requester is gone");
  } else {
    filled = sdk::set_info_address((*info)->src_addr, (*info)->src_addrlen, (*info)->addr_format,
                                   *local);
    if (filled)
      filled = sdk::set_info_address((*info)->dest_addr, (*info)->dest_addrlen,
                                     (*info)->addr_format, *peer);
  }
  auto *request = filled ? new (std::nothrow)
                               ConnectRequest(fabric_, base(), fd, stranger.reader_.header().order)
                         : nullptr;
  if (request == nullptr) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "a connection request is dropped: %s",
              filled ? "no memory" : filled.error().text.c_str());
    return dismiss(stranger, Stat::kAcceptFailures);
  }
  (*info)->handle = request->base();
  fabric_.remember(request);
  const auto bytes = stranger.reader_.private_bytes();
  eq_->push_cm(FI_CONNREQ, base(), list.release(), std::as_bytes(bytes));
  forget(stranger);
}

int PassiveEndpoint::reject(fid_t handle, const void *param, size_t len) {
  if (handle == nullptr || len > kPrivateDataSize || (param == nullptr && len != 0))
    return -FI_EINVAL;
  sdk::Guard guard(fabric_.engine().lock());
  const std::unique_ptr<ConnectRequest> request(fabric_.take(handle));
  if (request == nullptr) return -FI_EINVAL;
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n =
      encode_connect(ConnectType::kReject, {static_cast<const uint8_t *>(param), len}, message);
  // A requester that is gone needs no answer.
  [[maybe_unused]] const ssize_t sent =
      ::send(request->fd, message.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(request->fd, SHUT_WR);
  return 0;
}

int PassiveEndpoint::close() {
  if (eq_ != nullptr) eq_->remove_source(fabric_.engine());
  retire();
  {
    sdk::Guard guard(fabric_.engine().lock());
    while (!strangers_.empty()) {
      Stranger &stranger = strangers_.front();
      const int fd = stranger.fd_;
      forget(stranger);
      ::close(fd);
    }
    fabric_.engine().remove(*this);
    if (fd_ >= 0) ::close(fd_);
    fabric_.drop_requests_of(base());
  }
  if (eq_ != nullptr) {
    eq_->forget(base());
    eq_->users.fetch_sub(1);
  }
  fabric_.children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::tcp
