// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/byte_stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <cerrno>
#include <cstring>

#include "plugins/tcp/socket.h"

namespace weft::tcp {

ByteStream::ByteStream(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      ConnectedCore(domain.shared(), domain.fabric().connections(), domain.engine(), base(), info,
                    {}, &tx_, &rx_),
      domain_(domain),
      engine_(domain.engine()) {
  sdk::fill_tables(*this);
  c()->rma = sdk::c_table(sdk::rma_ops<Nothing>());
  c()->tagged = sdk::c_table(sdk::tagged_ops<Nothing>());
  c()->atomic = sdk::c_table(sdk::atomic_ops<Nothing>());
}

Result<ByteStream *> ByteStream::open(Domain &domain, const fi_info &info, void *context) {
  std::unique_ptr<ByteStream, void (*)(ByteStream *)> ep(new ByteStream(domain, info, context),
                                                         [](ByteStream *e) { delete e; });
  WEFT_TRY(ep->dscp_, sdk::endpoint_dscp(info, domain.fabric().api_version(), domain.dscp()));
  {
    sdk::Guard guard(domain.fabric().engine().lock());
    WEFT_TRY(const sdk::Connections::Named named, ep->find_names(info));
    auto *const listener = dynamic_cast<StreamListener *>(named.passive);
    if ((named.passive != nullptr && listener == nullptr) ||
        (named.request != nullptr && dynamic_cast<StreamRequest *>(named.request) == nullptr))
      return fail(FI_EINVAL,
                  "fi_endpoint: info->handle is of FI_EP_MSG, and the endpoint of "
                  "FI_EP_SOCK_STREAM");
    WEFT_CHECK(ep->publish(domain.base()));
    if (ep->take_names(named) != nullptr) ep->bound_ = listener->release_socket();
  }
  domain.shared().children.fetch_add(1);
  return ep.release();
}

int ByteStream::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_EQ) return bind_connected(fid, flags);
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "fi_ep_bind: socket endpoints report no transfers, so they take an event queue only "
            "(fi_endpoint.3, SOCKET ENDPOINTS)");
  return -FI_EINVAL;
}

Result<void> ByteStream::enable() {
  if (enabled()) return {};
  if (eq() == nullptr)
    return fail(FI_ENOEQ, "fi_enable: no event queue is bound, and connections are reported there");
  set_enabled();
  return {};
}

int ByteStream::control(int command, void *arg) {
  if (command != FI_GETWAIT) return control_connected(command, arg, FI_COMPLETION | FI_INJECT);
  if (arg == nullptr) return -FI_EINVAL;
  sdk::Guard guard(lock());
  if (socket_.get() < 0) return -FI_ENOTCONN;
  *static_cast<int *>(arg) = socket_.get();
  return 0;
}

int ByteStream::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return sdk::get_option(size_t(0), value, length);
}

int ByteStream::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  leave_event_queue();
  retire();
  {
    sdk::Guard guard(lock());
    detach();
    engine_.remove(*this);
    if (eq() != nullptr) eq()->forget(base());
    release(nullptr);
  }
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

// ---- connections ----

Result<sdk::Address> ByteStream::bind_to(const sdk::Address &local) {
  bound_.reset();  // the new name may be the same
  WEFT_TRY(bound_, named_socket(local, domain_.fabric().settings(), dscp_));
  return local_name(bound_.get(), local);
}

Result<void> ByteStream::start_connect(const sdk::Address &to, std::string_view) {
  WEFT_TRY(const sdk::SockAddr peer, sdk::SockAddr::from(to));
  sdk::SockAddr local;
  if (local_.size() != 0) {
    WEFT_TRY(local, sdk::SockAddr::from(local_));
  }
  if (local.family() != peer.family()) bound_.reset();
  sdk::UniqueFd fd = std::move(bound_);
  if (fd.get() < 0) {
    WEFT_TRY(const int opened, open_socket(peer.family(), domain_.fabric().settings()));
    fd.reset(opened);
    if (local.family() == peer.family() && !(local.is_any() && local.port() == 0))
      WEFT_CHECK(bind_socket(fd.get(), local));
  }
  WEFT_CHECK(sdk::set_dscp(fd.get(), peer.family(), dscp_));
  if (::connect(fd.get(), peer.c(), peer.size()) != 0 && errno != EINPROGRESS)
    return fail(errno, "connect to %s: %s", peer.to_string().c_str(), strerror(errno));
  socket_ = std::move(fd);
  state_ = State::kConnecting;
  engine_.add(*this, socket_.get(), EPOLLOUT, EPOLLOUT);
  if (const uint64_t timeout = domain_.fabric().settings().connect_timeout_ns; timeout != 0)
    engine_.set_deadline(*this, sdk::now_ns() + timeout);
  return {};
}

Result<void> ByteStream::start_accept(std::unique_ptr<sdk::ConnectRequest> accepted,
                                      std::string_view) {
  socket_ = std::move(static_cast<StreamRequest &>(*accepted).socket);
  const auto name = socket_name(socket_.get());
  // It has the listener's class.
  const auto marked = sdk::set_dscp(socket_.get(), name ? name->family() : AF_INET, dscp_);
  if (!marked && dscp_ != 0) return marked;
  domain_.fabric().counters().connections_accepted.add();
  engine_.add(*this, socket_.get(), EPOLLRDHUP, EPOLLRDHUP);
  become_connected();
  return {};
}

void ByteStream::on_event(uint32_t) {
  if (state_ == State::kConnecting) return on_connecting();
  pollfd p{socket_.get(), POLLRDHUP, 0};
  if (::poll(&p, 1, 0) <= 0) return;
  // What came before can still be received, and what is sent may still arrive.
  engine_.remove(*this);
  report_shutdown();
}

void ByteStream::on_connecting() {
  pollfd p{socket_.get(), POLLOUT, 0};
  if (::poll(&p, 1, 0) <= 0) return;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return connect_failed(error);
  if (const auto name = socket_name(socket_.get())) local_ = *name;
  apply_peer_settings(socket_.get(), domain_.fabric().settings());
  engine_.set_deadline(*this, 0);
  engine_.change(*this, EPOLLRDHUP, EPOLLRDHUP);
  become_connected();
}

void ByteStream::become_connected() {
  state_ = State::kConnected;
  report_connected({});
}

void ByteStream::connect_failed(int error) {
  engine_.remove(*this);
  socket_.reset();
  state_ = State::kDisconnected;
  report_failure(error, {}, error);
}

void ByteStream::on_deadline() {
  if (state_ != State::kConnecting) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL,
            "connect to %s: no connection within %llu ms (tcp connect_timeout_ms): is the address "
            "right, and is a firewall between?",
            peer_.to_string().c_str(),
            (unsigned long long)(domain_.fabric().settings().connect_timeout_ns / 1'000'000u));
  connect_failed(FI_ETIMEDOUT);
}

// The peer gets all that was sent, and may go on sending.
void ByteStream::hang_up() {
  ::shutdown(socket_.get(), SHUT_WR);
  state_ = State::kDisconnected;
  engine_.remove(*this);
  report_shutdown();
}

// ---- transfers ----

ssize_t ByteStream::transmit(const iovec *iov, size_t count, fi_addr_t, uint64_t flags) {
  sdk::Guard guard(lock());
  if (state_ != State::kConnected) return not_connected();
  msghdr message{};
  message.msg_iov = const_cast<iovec *>(iov);
  message.msg_iovlen = count;
  const int more = flags & FI_MORE ? MSG_MORE : 0;
  for (;;) {
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | more);
    if (n >= 0) return n;
    if (errno != EINTR) return sdk::socket_error(errno);
  }
}

ssize_t ByteStream::receive(const iovec *iov, size_t count, uint64_t flags) {
  sdk::Guard guard(lock());
  // After fi_shutdown the peer may still send.
  if (socket_.get() < 0 || state_ < State::kConnected) return not_connected();
  msghdr message{};
  message.msg_iov = const_cast<iovec *>(iov);
  message.msg_iovlen = count;
  const int peek = flags & FI_PEEK ? MSG_PEEK : 0;
  for (;;) {
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | peek);
    if (n >= 0) return n;
    if (errno != EINTR) return sdk::socket_error(errno);
  }
}

}  // namespace weft::tcp
