// SPDX-License-Identifier: BSD-2-Clause
// The passive side of byte streams: each connection that the kernel has is a request.
#include <sys/socket.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "plugins/tcp/byte_stream.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {
namespace {

constexpr int kStreamsPerTurn = 64;
constexpr uint64_t kStreamPauseNs = 100'000'000;  // after running out of descriptors

}  // namespace

sdk::Address StreamRequest::local() const {
  return socket_name(socket.get()).value_or(sdk::SockAddr());
}

sdk::Address StreamRequest::peer() const {
  return socket_peer(socket.get()).value_or(sdk::SockAddr());
}

// The requester is told by the end of the connection.
void StreamRequest::reject(std::string_view) {
  socket.reset();
}

StreamListener::StreamListener(Fabric &fabric, sdk::PassiveStart start, uint8_t dscp, void *context)
    : Object(fabric.instance(), FI_CLASS_PEP, context),
      PassiveCore(fabric.connections(), base(), std::move(start), fabric.settings().backlog),
      fabric_(fabric),
      dscp_(dscp) {
  sdk::fill_tables(*this);
}

Result<StreamListener *> StreamListener::open(Fabric &fabric, const fi_info &info, void *context) {
  WEFT_TRY(sdk::PassiveStart start, sdk::PassiveStart::of(fabric.instance()->core, info));
  WEFT_TRY(const uint8_t of_domain, sdk::domain_dscp(info, fabric.api_version()));
  WEFT_TRY(const uint8_t dscp, sdk::endpoint_dscp(info, fabric.api_version(), of_domain));
  return finish_open(new (std::nothrow) StreamListener(fabric, std::move(start), dscp, context),
                     fabric.base());
}

int StreamListener::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return sdk::get_option(size_t(0), value, length);
}

Result<sdk::Address> StreamListener::bind_to(const sdk::Address &local) {
  WEFT_TRY(const sdk::SockAddr address, sdk::SockAddr::from(local));
  stop();
  WEFT_TRY(const int fd, open_socket(address.family(), fabric_.settings(), dscp_));
  sdk::UniqueFd opened(fd);
  WEFT_CHECK(bind_socket(fd, address, BindFor::kListen));
  socket_ = std::move(opened);
  return socket_name(fd).value_or(address);
}

Result<sdk::Address> StreamListener::start_listening(int backlog) {
  share_port(socket_.get());
  if (::listen(socket_.get(), backlog) != 0)
    return fail(errno, "listen on %s: %s", local().to_string().c_str(), strerror(errno));
  max_requests_ = std::max<size_t>(descriptor_limit() / 2, 1);
  fabric_.engine().add(*this, socket_.get(), EPOLLIN, EPOLLIN);
  return socket_name(socket_.get()).value_or(sdk::SockAddr());
}

// For an endpoint, whose connection would keep the port for a while.
sdk::UniqueFd StreamListener::release_socket() {
  share_port(socket_.get());
  return std::move(socket_);
}

void StreamListener::stop() {
  fabric_.engine().remove(*this);
  socket_.reset();
}

void StreamListener::on_room() {
  if (socket_.get() >= 0) fabric_.engine().change(*this, EPOLLIN, EPOLLIN);
}

void StreamListener::on_event(uint32_t) {
  for (int i = 0; i < kStreamsPerTurn; ++i) {
    // Each request has a descriptor, even if the application does not read the event queue. Further
    // connections wait in the kernel's backlog.
    if (fabric_.connections().waiting() >= max_requests_)
      return fabric_.engine().change(*this, 0, 0);
    sdk::UniqueFd fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() < 0) {
      const int error = errno;
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      if (error == EINTR || error == ECONNABORTED || error == EPROTO) continue;
      return accept_failed(error);
    }
    failure_told_ = false;
    apply_settings(fd.get(), fabric_.settings());
    apply_peer_settings(fd.get(), fabric_.settings());
    if (!report(std::make_unique<StreamRequest>(*this, std::move(fd)), {}))
      fabric_.counters().accept_failures.add();
  }
}

void StreamListener::accept_failed(int error) {
  fabric_.counters().accept_failures.add();
  fabric_.engine().change(*this, 0, 0);
  fabric_.engine().set_deadline(*this, sdk::now_ns() + kStreamPauseNs);
  if (std::exchange(failure_told_, true)) return;
  const std::string reason = descriptor_error(error);
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "accept on %s: %s", local().to_string().c_str(),
            reason.c_str());
  report_error(error, reason);
}

}  // namespace weft::tcp
