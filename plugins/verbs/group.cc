// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/group.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <weft/sdk/ip/interfaces.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "plugins/verbs/datagram_endpoint.h"
#include "plugins/verbs/fabric.h"

namespace weft::verbs {
namespace {

sdk::SockAddr ip_of(const DatagramName &name) {
  if (name.is_ipv4()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, name.gid.raw + 12, sizeof v4.sin_addr);
    return sdk::SockAddr(v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  std::memcpy(&v6.sin6_addr, name.gid.raw, sizeof v6.sin6_addr);
  return sdk::SockAddr(v6);
}

// An address of the device, of the group's family where it has one.
Result<sdk::SockAddr> local_for(const DeviceFacts &facts, const sdk::SockAddr &group) {
  if (facts.addresses.empty())
    return fail(FI_EADDRNOTAVAIL, "%s has no IP address, and librdmacm joins groups by one",
                facts.name.c_str());
  const auto same = std::ranges::find_if(facts.addresses, [&](const sdk::SockAddr &address) {
    return address.family() == group.family();
  });
  return same != facts.addresses.end() ? *same : facts.addresses.front();
}

int join_by(rdma_cm_id *id, const sdk::SockAddr &group, bool receives) {
  sockaddr *const address = const_cast<sockaddr *>(group.c());
  if (receives) return rdma_join_multicast(id, address, nullptr);
  rdma_cm_join_mc_attr_ex attr{};
  attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attr.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  attr.addr = address;
  if (rdma_join_multicast_ex(id, &attr, nullptr) == 0) return 0;
  // A subnet without send-only members. Nothing arrives as long as no queue pair is attached.
  return errno == EOPNOTSUPP ? rdma_join_multicast(id, address, nullptr) : -1;
}

}  // namespace

Group::Group(DatagramEndpoint &ep, const GroupMembership &membership, void *context)
    : Object(ep.instance(), FI_CLASS_MC, context),
      ep_(ep),
      membership_(membership),
      address_(ip_of(membership.name)) {
  sdk::fill_tables(*this);
  c()->fi_addr = kGroupBase + membership.number;
}

Result<Group *> Group::open(DatagramEndpoint &ep, const GroupMembership &membership,
                            void *context) {
  std::unique_ptr<Group, void (*)(Group *)> made(new Group(ep, membership, context), [](Group *g) {
    g->leave();
    delete g;
  });
  WEFT_CHECK(made->join());
  WEFT_CHECK(made->publish(ep.base()));
  return made.release();
}

// RDMA CM refuses IPv6 groups over RoCE v2.
bool Group::is_by_ip() const {
  return ep_.domain().device().facts.transport == Transport::kRoce && !membership_.name.is_ipv4();
}

Result<void> Group::join() {
  WEFT_TRY(const sdk::SockAddr local, local_for(ep_.domain().device().facts, address_));
  return is_by_ip() ? join_in_ip(local) : join_by_manager(local);
}

Result<void> Group::join_by_manager(const sdk::SockAddr &local) {
  const DeviceFacts &facts = ep_.domain().device().facts;
  WEFT_TRY(id_, ep_.domain().fabric().channel().make_id(*this, RDMA_PS_UDP));
  if (rdma_bind_addr(id_, const_cast<sockaddr *>(local.c())) != 0)
    return fail(errno, "rdma_bind_addr to %s: %s", local.ip().c_str(), strerror(errno));
  if (id_->verbs != ep_.domain().device().verbs)
    return fail(FI_EADDRNOTAVAIL, "%s is an address of another device than %s", local.ip().c_str(),
                facts.name.c_str());
  if (join_by(id_, address_, membership_.receives) == 0) return {};
  return fail(errno, "rdma_join_multicast of %s on %s: %s", address_.ip().c_str(),
              facts.name.c_str(), strerror(errno));
}

// Without it neither this host's IP nor a switch that knows who is in a group lets datagrams
// through.
Result<void> Group::join_in_ip(const sdk::SockAddr &local) {
  if (!membership_.receives) return {};
  WEFT_TRY(const auto interfaces, sdk::list_interfaces());
  const auto own = std::ranges::find_if(interfaces, [&](const sdk::Interface &interface) {
    return interface.address.ip() == local.ip();
  });
  if (own == interfaces.end()) return {};  // the device is not of this network namespace
  ip_member_ = sdk::UniqueFd(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ipv6_mreq request{};
  std::memcpy(&request.ipv6mr_multiaddr, membership_.name.gid.raw, sizeof request.ipv6mr_multiaddr);
  request.ipv6mr_interface = own->index;
  if (setsockopt(ip_member_.get(), IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request) == 0)
    return {};
  return fail(errno, "joining %s on %s: %s", address_.ip().c_str(), own->name.c_str(),
              strerror(errno));
}

void Group::start() {
  ep_.domain().fabric().device_events().join(*this);
  if (!is_by_ip()) return;  // an event comes
  ibv_ah_attr wire{};
  wire.port_num = ep_.domain().device().facts.port;
  wire.is_global = 1;
  wire.grh.dgid = membership_.name.gid;
  wire.grh.hop_limit = kHopLimit;
  joined(wire);
}

void Group::joined(const ibv_ah_attr &wire) {
  auto entered = enter(wire);
  if (!entered) return end(entered.error().code, entered.error().text);
  ep_.eq()->push(FI_JOIN_COMPLETE, base(), 0);
}

void Group::on_device_gone(const ibv_context &device) {
  if (&device == ep_.domain().device().verbs) end(FI_ENODEV, "the device is gone");
}

void Group::on_event(const ChannelEvent &event) {
  switch (event.type) {
    case RDMA_CM_EVENT_MULTICAST_JOIN:
      return joined(event.group);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return end(FI_ENODEV, "the device is gone");
    case RDMA_CM_EVENT_MULTICAST_ERROR: {
      const int error = event.status < 0 ? -event.status : FI_EIO;
      return end(error, strerror(error));
    }
    default:
      return;
  }
}

Result<void> Group::enter(const ibv_ah_attr &wire) {
  wire_gid_ = wire.grh.dgid;
  wire_lid_ = wire.dlid;
  if (membership_.receives && !attached_) {
    if (const int error = ibv_attach_mcast(ep_.queue_pair(), &wire_gid_, wire_lid_); error != 0)
      return fail(error, "ibv_attach_mcast: %s", strerror(error));
    attached_ = true;
  }
  return membership_.sends ? ep_.reach(*this, wire) : Result<void>();
}

void Group::end(int error, const std::string &why) {
  leave();  // the kernel gives up a device only when all identifiers on it are gone
  if (std::exchange(ended_, true)) return;
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_join: the group %s on %s: %s", address_.ip().c_str(),
            ep_.domain().device().facts.name.c_str(), why.c_str());
  ep_.unreach(*this);
  ep_.eq()->push_error({.fid = base(), .context = context(), .err = error, .prov_errno = error});
}

void Group::leave() {
  if (std::exchange(attached_, false)) ibv_detach_mcast(ep_.queue_pair(), &wire_gid_, wire_lid_);
  if (id_ != nullptr) rdma_destroy_id(std::exchange(id_, nullptr));  // leaves the group
}

int Group::close() {
  retire();
  sdk::Guard guard(ep_.domain().fabric().engine().lock());
  leave();
  ep_.domain().fabric().device_events().leave(*this);
  ep_.forget(*this);
  delete this;
  return 0;
}

}  // namespace weft::verbs
