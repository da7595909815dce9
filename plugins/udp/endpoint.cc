// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/endpoint.h"

#include <sys/socket.h>
#include <weft/sdk/alias.h>
#include <weft/sdk/auth.h>
#include <weft/sdk/carrier.h>
#include <weft/sdk/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "plugins/udp/fabric.h"
#include "plugins/udp/group.h"
#include "plugins/udp/provider.h"
#include "plugins/udp/socket.h"

namespace weft::udp {
namespace {

constexpr uint64_t kRecvFlags = FI_COMPLETION | FI_MORE;

sdk::RdmLimits limits_of(const Settings &settings, size_t max_msg_size) {
  return {.tx_size = settings.tx_size,
          .rx_size = settings.rx_size,
          .inject_size = max_msg_size,
          .max_msg_size = max_msg_size};
}

}  // namespace

// ---- life ----

Endpoint::Endpoint(Domain &domain, const fi_info &info, size_t max_msg_size, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      RdmEndpoint(domain.shared(), *this, info,
                  limits_of(domain.fabric().settings(), max_msg_size)),
      udp_domain_(domain),
      engine_(domain.engine()),
      addr_format_(info.addr_format),
      queue_(limits().rx_size),
      inlet_(*this, domain.engine(), queue_, domain.inlet_scratch(), domain.fabric().stats(),
             domain.fabric().settings().offload),
      outlet_(*this, domain.outlet_scratch(), domain.fabric().stats(),
              domain.fabric().settings().offload) {
  set_tables(*this);
}

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  if (info.ep_attr->type != FI_EP_DGRAM && info.ep_attr->type != FI_EP_UNSPEC)
    return fail(FI_EINVAL, "fi_endpoint: udp has endpoints of type FI_EP_DGRAM only");
  for (size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                      info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > kMaxQueueSize)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: at most %zu", size, kMaxQueueSize);
  if (info.ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT ||
      info.ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT)
    return fail(FI_EINVAL, "fi_endpoint: udp has no shared contexts");
  if (sdk::has_auth_keys(domain.fabric().api_version()) && info.ep_attr->auth_key_size != 0)
    return fail(FI_EOPNOTSUPP,
                "fi_endpoint: udp sends plain datagrams and cannot honour ep_attr.auth_key; the "
                "layer rxd over it can");
  sdk::SockAddr local =
      sdk::SockAddr::any(sdk::family_of(info.addr_format) == AF_INET6 ? AF_INET6 : AF_INET);
  if (info.src_addr != nullptr) {
    WEFT_TRY(local, sdk::read_address(info.addr_format, info.src_addr, info.src_addrlen));
  }
  const size_t most = largest_datagram(local.family(), 0);
  const size_t max_msg_size =
      info.ep_attr->max_msg_size != 0 ? info.ep_attr->max_msg_size : kUsualSize;
  if (max_msg_size > most)
    return fail(FI_EINVAL,
                "fi_endpoint: ep_attr.max_msg_size %zu: a datagram has at most %zu bytes",
                max_msg_size, most);
  std::unique_ptr<Endpoint, void (*)(Endpoint *)> ep(
      new Endpoint(domain, info, max_msg_size, context), [](Endpoint *e) { delete e; });
  ep->local_ = local;
  WEFT_CHECK(ep->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return ep.release();
}

const Settings &Endpoint::settings() const {
  return udp_domain_.fabric().settings();
}

Stats &Endpoint::stats() {
  return udp_domain_.fabric().stats();
}

Result<void> Endpoint::bind_to(const sdk::SockAddr &address) {
  WEFT_TRY(UniqueFd fd, open_socket(address.family(), settings()));
  // Close the old socket first: the new port may be the same.
  inlet_.close();
  name_ = {};
  WEFT_CHECK(bind_socket(fd.get(), address));
  if (auto done = send_groups_from(fd.get(), address); !done)
    WEFT_INFO(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
  name_ = sdk::socket_name(fd.get()).value_or(address);
  outlet_.open(fd.get());
  inlet_.open(std::move(fd), names_sources());
  if (tells_unreachable_) tell_unreachable();
  return {};
}

int Endpoint::setname(void *addr, size_t len) {
  auto address = sdk::read_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(lock());
  if (enabled()) return -FI_EOPBADSTATE;
  if (inlet_.fd() >= 0) {
    if (auto bound = bind_to(*address); !bound) {
      WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_setname: %s", bound.error().text.c_str());
      return -bound.error().code;
    }
  }
  local_ = *address;
  return 0;
}

// This call or fi_enable binds the socket, whichever comes first.
int Endpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(lock());
  if (inlet_.fd() < 0) {
    if (auto bound = bind_to(local_); !bound) {
      WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_getname: %s", bound.error().text.c_str());
      return -bound.error().code;
    }
  }
  return sdk::write_address(name_, addr_format_, addr, len);
}

Result<void> Endpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings());
  if (inlet_.fd() < 0) WEFT_CHECK(bind_to(local_));
  av()->add_user(*this, true);
  inlet_.listen();
  set_enabled();
  return {};
}

int Endpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<Endpoint>::open(*this, arg);
  if (command != FI_ENABLE) return control_flags(command, arg);
  sdk::Guard guard(lock());
  auto done = enable();
  if (done) return 0;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
  return -done.error().code;
}

int Endpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  {
    sdk::Guard guard(lock());
    if (std::ranges::any_of(groups_, [](const Group *g) { return g != nullptr; })) return -FI_EBUSY;
  }
  retire();
  {
    sdk::Guard guard(lock());
    // Outstanding sends are dropped: their completions could name an endpoint that is gone, and
    // their memory may be gone already. Injected datagrams get another try.
    const bool was_enabled = enabled();
    detach();
    outlet_.forget_borrowed();
    outlet_.flush();
    engine_.remove(*this);
    inlet_.close();
    RdmEndpoint::release(was_enabled ? this : nullptr);
  }
  domain_.children.fetch_sub(1);
  delete this;
  return 0;
}

// ---- options ----

int Endpoint::getopt(int level, int name, void *value, size_t *length) {
  switch (name) {
    case FI_OPT_TX_SIZE:
    case FI_OPT_RX_SIZE:
    case FI_OPT_MAX_MSG_SIZE:
    case FI_OPT_INJECT_MSG_SIZE:
      return RdmEndpoint::getopt(level, name, value, length);
    default:
      return -FI_ENOPROTOOPT;
  }
}

int Endpoint::setopt(int, int, const void *, size_t) {
  return -FI_ENOPROTOOPT;
}

ssize_t Endpoint::rx_size_left() {
  sdk::Guard guard(lock());
  return enabled() ? ssize_t(queue_.left()) : -FI_EOPBADSTATE;
}

ssize_t Endpoint::tx_size_left() {
  sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  return ssize_t(limits().tx_size - std::min(limits().tx_size, outlet_.size()));
}

// ---- sending ----

ssize_t Endpoint::check_length(uint64_t length, uint64_t flags) {
  if (length <= limits().max_msg_size) [[likely]]
    return 0;
  if (!(flags & FI_MORE)) {
    sdk::Guard guard(lock());
    if (enabled()) finish_batch();
  }
  return -FI_EMSGSIZE;
}

const sdk::SockAddr *Endpoint::group_address(fi_addr_t dest) const {
  const size_t number = size_t(dest - kGroupBase);
  if (number >= groups_.size() || groups_[number] == nullptr || !groups_[number]->sends())
    return nullptr;
  return &groups_[number]->address();
}

// Writes the address straight into `to`: a batch has many of them.
bool Endpoint::find(const sdk::SendRequest &r, sdk::SockAddr &to) {
  if (r.dest >= kGroupBase) [[unlikely]] {
    const sdk::SockAddr *group = group_address(r.dest);
    if (group == nullptr) return false;
    to = *group;
    return true;
  }
  if (r.flags & FI_MULTICAST) return false;
  const auto address = av()->address(av()->index_of(r.dest));
  if (!address) return false;
  to = *address;
  return true;
}

// A failed call ends a batch as a successful one does.
ssize_t Endpoint::refuse(const sdk::SendRequest &r, ssize_t error) {
  if (!(r.flags & FI_MORE)) finish_batch();
  return error;
}

ssize_t Endpoint::start(const sdk::SendRequest &r) {
  if (r.flags & FI_REMOTE_CQ_DATA) return refuse(r, -FI_EOPNOTSUPP);
  if (r.report && tx_cq_full()) return refuse(r, -FI_EAGAIN);
  const bool more = r.flags & FI_MORE;
  if (!more && outlet_.empty()) return send_now(r);
  if (outlet_.full() && outlet_.flush() != 0) {
    update_output();
    return refuse(r, -FI_EAGAIN);
  }
  Datagram *const d = outlet_.next();
  if (d == nullptr) return refuse(r, -FI_ENOMEM);
  if (!find(r, d->to)) return refuse(r, -FI_EINVAL);
  d->count = uint32_t(r.count);
  std::copy_n(r.iov, r.count, d->iov);
  d->report = r.report;
  d->length = r.length;
  d->context = r.context;
  if (!more) return end_batch(d->to, r);
  if (!outlet_.push(r.flags & FI_INJECT)) return -FI_ENOMEM;
  engine_.mark_dirty(*this);
  return 0;
}

ssize_t Endpoint::send_now(const sdk::SendRequest &r) {
  sdk::SockAddr to;
  if (!find(r, to)) return -FI_EINVAL;
  const int rc = outlet_.send(to, r.iov, r.count);
  if (rc == 0) {
    succeed_tx(r.context, FI_SEND | FI_MSG, r.length, r.report);
  } else if (rc == -FI_EAGAIN) {
    stats().add(Stat::kSendsPutOff);
  } else {
    explain_failure(to, -rc);
  }
  return rc;
}

// A send that ends a batch, or comes while others wait. It is in the outlet's next place.
ssize_t Endpoint::end_batch(const sdk::SockAddr &to, const sdk::SendRequest &r) {
  outlet_.push(false);
  const int rc = outlet_.flush_with_last();
  if (rc == 0) {
    succeed_tx(r.context, FI_SEND | FI_MSG, r.length, r.report);
  } else if (rc == -FI_EAGAIN) {
    stats().add(Stat::kSendsPutOff);
    outlet_.keep();
  } else {
    explain_failure(to, -rc);
  }
  update_output();
  return rc;
}

// Gives the memory of earlier sends back to the application.
void Endpoint::finish_batch() {
  if (outlet_.empty()) return;
  if (outlet_.flush() != 0) outlet_.keep();
  update_output();
}

// Asks for EPOLLOUT while datagrams are left.
void Endpoint::update_output() {
  inlet_.want_output(!outlet_.empty());
}

void Endpoint::on_flush() {
  if (!outlet_.empty()) outlet_.flush();
  update_output();
}

void Endpoint::on_sent(const Datagram &d, int error) {
  if (error == 0) return succeed_tx(d.context, FI_SEND | FI_MSG, d.length, d.report);
  explain_failure(d.to, error);
  finish_tx({.context = d.context,
             .flags = FI_SEND | FI_MSG,
             .length = d.length,
             .report = d.report,
             .err = error});
}

// Explains errors whose number does not say enough.
void Endpoint::explain_failure(const sdk::SockAddr &to, int error) {
  if (error != EACCES || explained_broadcast_) return;
  explained_broadcast_ = true;
  WEFT_WARN(instance(), FI_LOG_EP_DATA,
            "a send to %s is refused: it is a broadcast address, to which udp does not send; use a "
            "multicast group (fi_join)",
            to.to_string().c_str());
}

// ---- receiving ----

ssize_t Endpoint::start(const sdk::RecvRequest &r) {
  if (r.flags & ~kRecvFlags) return -FI_EBADFLAGS;
  for (size_t i = 0; i < r.count && i < sdk::kIovLimit && r.iov != nullptr; ++i)
    if (r.iov[i].iov_base == nullptr && r.iov[i].iov_len != 0) return -FI_EINVAL;
  const ssize_t rc = queue_.post(r.iov, r.count, r.context, r.flags);
  if (rc != 0) return rc;
  inlet_.on_posted();
  for (Group *group : groups_)
    if (group != nullptr && group->inlet() != nullptr) group->inlet()->on_posted();
  return 0;
}

void Endpoint::on_received(sdk::PostedRecv &r, size_t placed, size_t length, uint32_t index,
                           const sdk::SockAddr &source) {
  constexpr uint64_t kFlags = FI_RECV | FI_MSG;
  const sdk::Receiver &rx = receiver();
  const bool nameless = index == sdk::Av::kNone && caps() & FI_SOURCE_ERR;
  const int error = placed < length ? FI_ETRUNC : nameless ? FI_EADDRNOTAVAIL : 0;
  const fi_addr_t from =
      caps() & FI_SOURCE && index != sdk::Av::kNone ? av()->reported(index) : FI_ADDR_NOTAVAIL;
  // A datagram of an unknown sender was received: an error entry for the queue, but not an error
  // for the counter.
  if (rx.cntr != nullptr) {
    if (placed < length) {
      rx.cntr->add_error();
    } else {
      rx.cntr->add_events(1, placed);
    }
  }
  if (rx.cq != nullptr) {
    if (error == 0) {
      if (!rx.selective || r.flags & FI_COMPLETION)
        rx.cq->push({.context = r.context, .flags = kFlags, .len = placed, .src_addr = from});
    } else {
      std::string address;
      if (nameless) address.assign(reinterpret_cast<const char *>(source.c()), source.size());
      rx.cq->push_error({.context = r.context,
                         .flags = kFlags,
                         .len = placed,
                         .olen = length - placed,
                         .err = error,
                         .prov_errno = error,
                         .err_data = std::move(address),
                         .src_addr = from});
    }
  }
  queue_.release(&r);
}

ssize_t Endpoint::cancel(void *context) {
  if (context == nullptr) return -FI_ENOENT;  // found by its context, or not at all
  sdk::Guard guard(lock());
  sdk::PostedRecv *r = queue_.remove(context);
  if (r == nullptr) return -FI_ENOENT;
  const sdk::Receiver &rx = receiver();
  if (rx.cntr != nullptr) rx.cntr->add_error();
  if (rx.cq != nullptr)
    rx.cq->push_error({.context = r->context,
                       .flags = FI_RECV | FI_MSG,
                       .err = FI_ECANCELED,
                       .prov_errno = FI_ECANCELED});
  queue_.release(r);
  return 0;
}

void Endpoint::on_socket_error(int error) {
  stats().add(Stat::kSocketErrors);
  WEFT_INFO(instance(), FI_LOG_EP_DATA, "the socket of %s reports: %s", name_.to_string().c_str(),
            strerror(error));
}

// ---- for layers above (weft/sdk/carrier.h) ----

int Endpoint::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) != WEFT_DATAGRAM_OPS) return -FI_ENOSYS;
  static const weft_datagram_ops datagram = {.size = sizeof(weft_datagram_ops),
                                             .tell_unreachable =
                                                 [](struct fid_ep *ep) {
                                                   Endpoint &self = *Endpoint::from(ep);
                                                   sdk::Guard guard(self.lock());
                                                   return self.tell_unreachable();
                                                 },
                                             .name_sources =
                                                 [](struct fid_ep *ep, int named) {
                                                   Endpoint &self = *Endpoint::from(ep);
                                                   sdk::Guard guard(self.lock());
                                                   return self.name_sources(named != 0);
                                                 }};
  *ops = const_cast<weft_datagram_ops *>(&datagram);
  return 0;
}

int Endpoint::tell_unreachable() {
  tells_unreachable_ = true;
  if (inlet_.fd() < 0) return 0;  // done when there is a socket
  if (auto done = inlet_.tell_errors(); !done) {
    WEFT_INFO(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
    return -done.error().code;
  }
  outlet_.expect_errors();
  return 0;
}

int Endpoint::name_sources(bool named) {
  if (!(caps() & FI_SOURCE) || caps() & FI_SOURCE_ERR) return -FI_EOPNOTSUPP;
  names_sources_ = named;
  inlet_.name_sources(named);
  for (Group *group : groups_)
    if (group != nullptr && group->inlet() != nullptr) group->inlet()->name_sources(named);
  return 0;
}

// Reports only that the port has no socket. Other errors of the network may be over in a moment.
void Endpoint::on_network_error(const NetworkError &error, std::span<const char> datagram) {
  if (!error.remote || error.error != ECONNREFUSED || tx_cq() == nullptr || tx_cq()->full()) return;
  const uint32_t index = av()->find(error.to);
  if (index == sdk::Av::kNone) return;
  tx_cq()->push_error({.flags = FI_SEND | FI_MSG,
                       .err = FI_ECONNREFUSED,
                       .prov_errno = ECONNREFUSED,
                       .err_data = {datagram.data(), datagram.size()},
                       .src_addr = av()->reported(index)});
}

// ---- groups ----

int Endpoint::join(const void *addr, uint64_t flags, struct fid_mc **mc, void *context) {
  if (addr == nullptr || mc == nullptr) return -FI_EINVAL;
  if (flags & FI_COLLECTIVE) return -FI_ENOSYS;
  if (flags & ~uint64_t(FI_SEND | FI_RECV)) return -FI_EBADFLAGS;
  auto address = sdk::read_address(addr_format_, addr);
  if (!address) return -address.error().code;
  sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  if (!(caps() & FI_MULTICAST)) return -FI_EOPNOTSUPP;
  if (flags & ~caps()) return -FI_EOPNOTSUPP;
  if (eq() == nullptr) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "fi_join: no event queue is bound to the endpoint, and FI_JOIN_COMPLETE is "
              "reported there (fi_cm.3): fi_ep_bind one before fi_enable");
    return -FI_ENOEQ;
  }
  if (!is_multicast(*address) || address->family() != name_.family()) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "fi_join: %s is not a multicast group that an endpoint at %s can join",
              address->to_string().c_str(), name_.to_string().c_str());
    return -FI_EINVAL;
  }
  if (address->port() == 0) address->set_port(name_.port());
  if (flags == 0) flags = caps() & (FI_SEND | FI_RECV);
  const size_t number = size_t(std::ranges::find(groups_, nullptr) - groups_.begin());
  if (number == groups_.size()) groups_.push_back(nullptr);
  auto group = Group::open(*this, *address, flags & FI_SEND, flags & FI_RECV, number, context);
  if (!group) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_join: %s", group.error().text.c_str());
    return -group.error().code;
  }
  groups_[number] = *group;
  *mc = (*group)->c();
  eq()->push(FI_JOIN_COMPLETE, (*group)->base(), 0);
  return 0;
}

void Endpoint::forget(Group &group) {
  groups_[group.number()] = nullptr;
  if (eq() != nullptr) eq()->forget(group.base());
}

}  // namespace weft::udp
