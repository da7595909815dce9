// SPDX-License-Identifier: BSD-2-Clause
// An endpoint's life: opening, its name, options, groups, closing. Its data path is in endpoint.cc.
#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "plugins/udp/endpoint.h"
#include "plugins/udp/fabric.h"
#include "plugins/udp/group.h"
#include "plugins/udp/provider.h"
#include "plugins/udp/socket.h"

namespace weft::udp {

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  if (info.ep_attr->type != FI_EP_DGRAM && info.ep_attr->type != FI_EP_UNSPEC)
    return fail(
        FI_EINVAL,
        "fi_endpoint: udp has endpoints of type FI_EP_DGRAM only: open the fabric, too, from "
        "the fi_info that has the type");
  for (size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                      info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > kMaxQueueSize)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: at most %zu", size, kMaxQueueSize);
  if (info.ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT)
    return fail(FI_EINVAL, "fi_endpoint: udp has no shared receive contexts");
  if (sdk::has_auth_keys(domain.fabric().api_version()) && info.ep_attr->auth_key_size != 0)
    return fail(FI_EOPNOTSUPP,
                "fi_endpoint: udp sends plain datagrams and cannot honour ep_attr.auth_key; the "
                "layer rxd over it can");
  sdk::SockAddr local =
      sdk::SockAddr::any(sdk::family_of(info.addr_format) == AF_INET6 ? AF_INET6 : AF_INET);
  if (info.src_addr != nullptr) {
    WEFT_TRY(local, sdk::read_sock_address(info.addr_format, info.src_addr, info.src_addrlen));
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
  WEFT_TRY(ep->dscp_, sdk::endpoint_dscp(info, domain.fabric().api_version(), domain.dscp()));
  WEFT_CHECK(ep->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return ep.release();
}

Result<void> Endpoint::bind_to(const sdk::SockAddr &address) {
  WEFT_TRY(UniqueFd fd, open_socket(address.family(), settings()));
  if (dscp_ != 0) WEFT_CHECK(sdk::set_dscp(fd.get(), address.family(), dscp_));
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
  auto address = sdk::read_sock_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(lock());
  if (enabled()) return -FI_EOPBADSTATE;
  if (auto bound = bind_to(*address); !bound) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_setname: %s", bound.error().text.c_str());
    return -bound.error().code;
  }
  local_ = *address;
  return 0;
}

// The first of fi_setname, this call and fi_enable binds the socket.
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
  WEFT_CHECK(check_bindings(false));
  if (inlet_.fd() < 0) WEFT_CHECK(bind_to(local_));
  av()->add_user(*this, true);
  inlet_.listen();
  set_enabled();
  return {};
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
    release(was_enabled ? this : nullptr);
  }
  core_domain_.children.fetch_sub(1);
  delete this;
  return 0;
}

int Endpoint::getopt(int level, int name, void *value, size_t *length) {
  switch (name) {
    case FI_OPT_TX_SIZE:
    case FI_OPT_RX_SIZE:
    case FI_OPT_MAX_MSG_SIZE:
    case FI_OPT_INJECT_MSG_SIZE:
    case FI_OPT_FI_HMEM_P2P:
      return get_limit(level, name, value, length);
    default:
      return -FI_ENOPROTOOPT;
  }
}

int Endpoint::setopt(int level, int name, const void *value, size_t length) {
  sdk::Guard guard(lock());
  return set_hmem_option(level, name, value, length);
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

// ---- for layers above ----

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

int Endpoint::next_arrival(void *address, size_t *length) {
  if (inlet_.fd() < 0) return -FI_EOPBADSTATE;
  const auto arrival = inlet_.next_arrival(name_);
  return arrival ? sdk::write_address(*arrival, addr_format_, address, length) : -FI_EAGAIN;
}

// ---- groups ----

int Endpoint::join(const void *addr, uint64_t flags, struct fid_mc **mc, void *context) {
  if (addr == nullptr || mc == nullptr) return -FI_EINVAL;
  if (flags & FI_COLLECTIVE) return -FI_ENOSYS;
  if (flags & ~uint64_t(FI_SEND | FI_RECV)) return -FI_EBADFLAGS;
  auto address = sdk::read_sock_address(addr_format_, addr);
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
