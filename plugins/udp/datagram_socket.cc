// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/datagram_socket.h"

#include <sys/socket.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "plugins/udp/fabric.h"
#include "plugins/udp/provider.h"
#include "plugins/udp/socket.h"

namespace weft::udp {

DatagramSocket::DatagramSocket(Domain &domain, const fi_info &info, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      EndpointCore(domain.shared(), sdk::PeerKind::kUnconnected, info, {}, &tx_, &rx_),
      udp_domain_(domain),
      addr_format_(info.addr_format) {
  sdk::fill_tables(*this);
  c()->rma = sdk::c_table(sdk::rma_ops<Nothing>());
  c()->tagged = sdk::c_table(sdk::tagged_ops<Nothing>());
  c()->atomic = sdk::c_table(sdk::atomic_ops<Nothing>());
}

Result<DatagramSocket *> DatagramSocket::open(Domain &domain, const fi_info &info, void *context) {
  std::unique_ptr<DatagramSocket, void (*)(DatagramSocket *)> ep(
      new DatagramSocket(domain, info, context), [](DatagramSocket *e) { delete e; });
  ep->local_ =
      sdk::SockAddr::any(sdk::family_of(info.addr_format) == AF_INET6 ? AF_INET6 : AF_INET);
  if (info.src_addr != nullptr) {
    WEFT_TRY(ep->local_, sdk::read_sock_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  WEFT_TRY(ep->dscp_, sdk::endpoint_dscp(info, domain.fabric().api_version(), domain.dscp()));
  WEFT_CHECK(ep->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return ep.release();
}

int DatagramSocket::said(const char *call, const Result<void> &done) const {
  if (done) return 0;
  WEFT_WARN(udp_domain_.instance(), FI_LOG_EP_CTRL, "%s: %s", call, done.error().text.c_str());
  return -done.error().code;
}

int DatagramSocket::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_AV || fid->fclass == FI_CLASS_EQ) return bind_object(fid, flags);
  WEFT_WARN(udp_domain_.instance(), FI_LOG_EP_CTRL,
            "fi_ep_bind: socket endpoints report no transfers, so they take an address vector and "
            "an event queue only (fi_endpoint.3, SOCKET ENDPOINTS)");
  return -FI_EINVAL;
}

Result<void> DatagramSocket::bind_to(const sdk::SockAddr &address) {
  WEFT_TRY(UniqueFd fd, open_socket(address.family(), udp_domain_.fabric().settings()));
  if (dscp_ != 0) WEFT_CHECK(sdk::set_dscp(fd.get(), address.family(), dscp_));
  socket_.reset();  // the new port may be the same
  name_ = {};
  WEFT_CHECK(bind_socket(fd.get(), address));
  if (auto done = send_groups_from(fd.get(), address); !done)
    WEFT_INFO(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
  name_ = sdk::socket_name(fd.get()).value_or(address);
  socket_ = std::move(fd);
  return {};
}

Result<void> DatagramSocket::enable() {
  if (enabled()) return {};
  if (av() == nullptr)
    return fail(FI_ENOAV, "no address vector is bound to the endpoint: fi_ep_bind one");
  if (socket_.get() < 0) WEFT_CHECK(bind_to(local_));
  av()->add_user(*this);
  set_enabled();
  return {};
}

int DatagramSocket::control(int command, void *arg) {
  if (command != FI_ENABLE && command != FI_GETWAIT)
    return control_flags(command, arg, FI_COMPLETION | FI_INJECT);
  sdk::Guard guard(lock());
  if (command == FI_ENABLE) return said("fi_enable", enable());
  if (arg == nullptr) return -FI_EINVAL;
  if (!enabled()) return -FI_EOPBADSTATE;
  *static_cast<int *>(arg) = socket_.get();
  return 0;
}

int DatagramSocket::setname(void *addr, size_t len) {
  const auto address = sdk::read_sock_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(lock());
  if (enabled()) return -FI_EOPBADSTATE;
  if (const int rc = said("fi_setname", bind_to(*address)); rc != 0) return rc;
  local_ = *address;
  return 0;
}

// The first of fi_setname, this call and fi_enable binds the socket.
int DatagramSocket::getname(void *addr, size_t *len) {
  sdk::Guard guard(lock());
  if (socket_.get() < 0) {
    if (const int rc = said("fi_getname", bind_to(local_)); rc != 0) return rc;
  }
  return sdk::write_address(name_, addr_format_, addr, len);
}

int DatagramSocket::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  retire();
  {
    sdk::Guard guard(lock());
    const bool was_enabled = enabled();
    detach();
    release(was_enabled ? this : nullptr);
  }
  core_domain_.children.fetch_sub(1);
  delete this;
  return 0;
}

ssize_t DatagramSocket::transmit(const iovec *iov, size_t count, fi_addr_t dest, uint64_t) {
  sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  const auto peer = av()->address(av()->index_of(dest));
  if (!peer) return -FI_EINVAL;
  const sdk::SockAddr to = sdk::SockAddr::of(*peer);
  msghdr message{};
  message.msg_name = const_cast<sockaddr *>(to.c());
  message.msg_namelen = to.size();
  message.msg_iov = const_cast<iovec *>(iov);
  message.msg_iovlen = count;
  for (int refused = 0;;) {
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return n;
    // The network tells of an earlier datagram, which is nothing to this one.
    if (errno == EINTR || (errno == ECONNREFUSED && ++refused < 8)) continue;
    return sdk::socket_error(errno);
  }
}

ssize_t DatagramSocket::receive(const iovec *iov, size_t count, uint64_t flags) {
  sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  msghdr message{};
  message.msg_iov = const_cast<iovec *>(iov);
  message.msg_iovlen = count;
  const int peek = flags & FI_PEEK ? MSG_PEEK : 0;
  for (int refused = 0;;) {
    const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | peek);
    if (n >= 0) return n;
    if (errno == EINTR || (errno == ECONNREFUSED && ++refused < 8)) continue;
    return sdk::socket_error(errno);
  }
}

}  // namespace weft::udp
