// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/passive_endpoint.h"

#include <sys/socket.h>
#include <unistd.h>
#include <weft/sdk/log.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/options.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/socket.h"

namespace weft::tcp {

PassiveEndpoint::PassiveEndpoint(Fabric &fabric, sdk::InfoList info, void *context)
    : Object(fabric.instance(), FI_CLASS_PEP, context),
      fabric_(fabric),
      info_(std::move(info)),
      backlog_(fabric.settings().backlog),
      acceptor_(fabric.instance(), fabric.engine(), fabric.settings(), fabric.counters(), *this,
                0) {
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
    WEFT_TRY(local, sdk::read_sock_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  WEFT_TRY(const Keys keys, Keys::of(info, nullptr, fabric.settings(), fabric.api_version()));
  sdk::InfoList copy(fabric.instance()->core);
  if (auto added = copy.add_copy(&info); !added) return tl::unexpected(added.error());
  auto *pep = new (std::nothrow) PassiveEndpoint(fabric, std::move(copy), context);
  if (pep == nullptr) return fail(FI_ENOMEM, "no memory for a passive endpoint");
  pep->local_ = local;
  pep->acceptor_.set_keys(keys);
  if (auto published = pep->publish(fabric.base()); !published) {
    delete pep;
    return tl::unexpected(published.error());
  }
  fabric.children.fetch_add(1);
  sdk::Guard guard(fabric.engine().lock());
  fabric.remember(pep);
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
  if (acceptor_.listening()) return -FI_EOPBADSTATE;
  backlog_ = *static_cast<int *>(arg);
  return 0;
}

int PassiveEndpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return sdk::get_option(kPrivateDataSize, value, length);
}

int PassiveEndpoint::setname(void *addr, size_t len) {
  auto address = sdk::read_sock_address(info_.front()->addr_format, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(fabric_.engine().lock());
  if (acceptor_.listening() || taken_) return -FI_EOPBADSTATE;
  // Bound from here on, for either side of a connection (fi_endpoint.3).
  if (auto bound = acceptor_.bind(*address); !bound) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_setname: %s", bound.error().text.c_str());
    return -bound.error().code;
  }
  local_ = acceptor_.name();
  return 0;
}

Result<PassiveEndpoint::Address> PassiveEndpoint::give_address() {
  if (acceptor_.listening())
    return fail(
        FI_EOPBADSTATE,
        "fi_endpoint: info->handle is a passive endpoint that listens at %s: its address is "
        "in use",
        local_.to_string().c_str());
  if (taken_)
    return fail(
        FI_EINVAL,
        "fi_endpoint: info->handle is a passive endpoint whose address another endpoint has");
  taken_ = true;
  return Address{local_, acceptor_.release()};
}

int PassiveEndpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(fabric_.engine().lock());
  return sdk::write_address(local_, info_.front()->addr_format, addr, len);
}

int PassiveEndpoint::listen() {
  sdk::Guard guard(fabric_.engine().lock());
  if (acceptor_.listening() || taken_) return -FI_EOPBADSTATE;
  if (eq_ == nullptr) return -FI_ENOEQ;
  auto started = start_listening();
  if (started) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_listen: %s", started.error().text.c_str());
  return -started.error().code;
}

Result<void> PassiveEndpoint::start_listening() {
  if (!acceptor_.bound()) WEFT_CHECK(acceptor_.bind(local_));
  if (auto listening = acceptor_.listen(backlog_); !listening) {
    acceptor_.close();
    return listening;
  }
  max_requests_ = std::max<size_t>(descriptor_limit() / 2, 1);
  local_ = acceptor_.name();
  return {};
}

// Each request has a descriptor, even if the application does not read the event queue.
bool PassiveEndpoint::takes_more(size_t unfinished) {
  if (fabric_.requests() + unfinished < max_requests_) return true;
  if (fabric_.requests() >= max_requests_ && !std::exchange(crowd_told_, true))
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "%zu connection requests at %s wait for fi_accept or fi_reject, half of what `ulimit "
              "-n` allows: the next ones wait in the kernel",
              fabric_.requests(), local_.to_string().c_str());
  return false;
}

void PassiveEndpoint::on_accept_failure(int error, const std::string &reason) {
  eq_->push_error(
      {.fid = base(), .context = context(), .err = error, .prov_errno = error, .err_data = reason});
}

void PassiveEndpoint::on_request(int fd, const ConnectReader &reader) {
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
                               ConnectRequest(fabric_, base(), fd, reader.header().order)
                         : nullptr;
  if (request == nullptr) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "a connection request is dropped: %s",
              filled ? "no memory" : filled.error().text.c_str());
    fabric_.counters().accept_failures.add();
    ::close(fd);
    return;
  }
  (*info)->handle = request->base();
  fabric_.remember(request);
  const auto bytes = reader.private_bytes();
  eq_->push_cm(FI_CONNREQ, base(), list.release(), std::as_bytes(bytes));
}

int PassiveEndpoint::reject(fid_t handle, const void *param, size_t len) {
  if (handle == nullptr || (param == nullptr && len != 0)) return -FI_EINVAL;
  len = std::min(len, kPrivateDataSize);  // fi_cm.3, NOTES: the rest is silently dropped
  sdk::Guard guard(fabric_.engine().lock());
  const std::unique_ptr<ConnectRequest> request(fabric_.take(handle));
  if (request == nullptr) return -FI_EINVAL;
  std::array<uint8_t, kMaxConnectSize> message;
  const size_t n =
      encode_connect(ConnectType::kReject, {static_cast<const uint8_t *>(param), len}, message);
  // An answer to a requester that is gone may be lost.
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
    acceptor_.close();
    fabric_.forget(this);
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
