// SPDX-License-Identifier: BSD-2-Clause
// Addresses of the connection manager: binding and ports, resolving, rdma_getaddrinfo(3).
#include <netdb.h>

#include <algorithm>
#include <cstdlib>

#include "plugins/verbs/double/cm.h"

namespace weft::verbs_double {

bool Cm::is_port_free(const CmSide &side, const SocketAddress &address) const {
  return std::none_of(sides.begin(), sides.end(), [&](const auto &entry) {
    const CmSide &other = *entry.second;
    if (!other.owns_port || other.ps != side.ps || &other == &side) return false;
    if (other.src.port() != address.port()) return false;
    if (other.reuses_address && side.reuses_address && other.state != CmState::kListening) {
      return false;
    }
    return other.src.is_any() || address.is_any() || other.src.same_host(address);
  });
}

int Cm::bind(CmSide &side, const SocketAddress &address) {
  Adapter *adapter = nullptr;
  if (address.family() == AF_IB && side.ps != RDMA_PS_TCP) return EPROTONOSUPPORT;
  if (address.family() == AF_IB && address.service() != 0 &&
      (address.service() & RDMA_IB_IP_PS_MASK) != RDMA_IB_IP_PS_TCP) {
    return EPROTONOSUPPORT;
  }
  if (!address.is_any()) {
    adapter = world.adapter_of(address);
    if (adapter == nullptr) return address.is_loopback() ? ENODEV : EADDRNOTAVAIL;
  }
  SocketAddress wanted = address;
  if (wanted.port() == 0) {
    constexpr int kPorts = 16384;
    int tries = 0;
    do {
      if (++tries > kPorts) return EADDRNOTAVAIL;
      wanted.set_port(next_port);
      next_port = next_port == 40960 + kPorts - 1 ? 40960 : static_cast<uint16_t>(next_port + 1);
    } while (!is_port_free(side, wanted));
  } else if (!is_port_free(side, wanted)) {
    return EADDRINUSE;
  }
  side.src = wanted;
  side.owns_port = true;
  side.adapter = adapter;
  side.state = CmState::kBound;
  return 0;
}

CmSide *Cm::listener_for(rdma_port_space ps, const SocketAddress &address) const {
  CmSide *of_any = nullptr;
  for (const auto &[serial, side] : sides) {
    if (side->state != CmState::kListening || side->ps != ps) continue;
    if (side->src.port() != address.port()) continue;
    if (side->src.same_host(address)) return side.get();
    const bool takes_family =
        side->src.family() == address.family() ||
        (side->src.family() == AF_INET6 && address.family() == AF_INET && !side->only_its_family);
    if (side->src.is_any() && takes_family) of_any = side.get();
  }
  return of_any;
}

namespace {

// The side learns its device and both addresses. 0, or an errno for the event.
int resolve_to(Cm &cm, CmSide &side, const SocketAddress &destination) {
  side.dst = destination;
  Adapter *target = cm.world.adapter_of(destination);
  if (side.adapter != nullptr && side.adapter->removed) return ENODEV;
  if (target == nullptr) return ETIMEDOUT;
  if (side.adapter == nullptr) {
    side.adapter = target;
    const uint16_t port = side.src.port();
    side.src = destination;
    side.src.set_port(port);
  }
  return 0;
}

void tell_resolved(Cm &cm, CmSide &side, rdma_cm_event_type type, int error) {
  CmMessage message;
  message.to = side.serial;
  message.event.type = type;
  message.event.status = -error;
  cm.send(std::move(message));
}

rdma_addrinfo *copy_address(rdma_addrinfo *info, const sockaddr *address, socklen_t size,
                            bool is_source) {
  auto *copy = static_cast<sockaddr *>(std::calloc(1, sizeof(sockaddr_storage)));
  std::memcpy(copy, address, size);
  (is_source ? info->ai_src_addr : info->ai_dst_addr) = copy;
  (is_source ? info->ai_src_len : info->ai_dst_len) = size;
  return info;
}

}  // namespace

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

int rdma_resolve_addr(rdma_cm_id *ibv, sockaddr *source, sockaddr *destination, int) {
  CmId &id = of(ibv);
  {
    const Entry entry(id.world, Call::k_rdma_resolve_addr);
    if (entry.error() != 0) return failed(entry.error());
    Cm &cm = *id.world.cm;
    CmSide &side = *id.side;
    if (side.state != CmState::kIdle && side.state != CmState::kBound) return failed(EINVAL);
    const SocketAddress to = SocketAddress::of(destination);
    if (to.family() == AF_UNSPEC) return failed(EAFNOSUPPORT);
    if (to.is_any()) return failed(EINVAL);
    if (side.state == CmState::kIdle) {
      SocketAddress from = SocketAddress::of(source);
      if (from.family() == AF_UNSPEC) from.storage.ss_family = to.family();  // any address
      if (const int error = cm.bind(side, from); error != 0) return failed(error);
    }
    if (side.src.family() != to.family()) return failed(EINVAL);
    side.state = CmState::kAddrQuery;
    const int error = resolve_to(cm, side, to);
    tell_resolved(cm, side, error == 0 ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR,
                  error);
  }
  return complete(id);
}

int rdma_resolve_route(rdma_cm_id *ibv, int) {
  CmId &id = of(ibv);
  {
    const Entry entry(id.world, Call::k_rdma_resolve_route);
    if (entry.error() != 0) return failed(entry.error());
    CmSide &side = *id.side;
    if (side.state != CmState::kAddrResolved) return failed(EINVAL);
    side.state = CmState::kRouteQuery;
    const Adapter *target = id.world.adapter_of(side.dst);
    const bool works = target != nullptr && !side.adapter->removed;
    tell_resolved(*id.world.cm, side,
                  works ? RDMA_CM_EVENT_ROUTE_RESOLVED : RDMA_CM_EVENT_ROUTE_ERROR,
                  works ? 0 : ETIMEDOUT);
  }
  return complete(id);
}

int rdma_getaddrinfo(const char *node, const char *service, const rdma_addrinfo *hints,
                     rdma_addrinfo **result) {
  if (World *world = World::current(); world != nullptr) {
    const Entry entry(*world, Call::k_rdma_getaddrinfo);
    if (entry.error() != 0) return failed(entry.error());
  }
  if (node == nullptr && service == nullptr && hints == nullptr) return failed(EINVAL);
  const int flags = hints != nullptr ? hints->ai_flags : 0;
  const bool is_passive = (flags & RAI_PASSIVE) != 0;
  addrinfo wanted = {};
  if ((flags & RAI_PASSIVE) != 0) wanted.ai_flags |= AI_PASSIVE;
  if ((flags & RAI_NUMERICHOST) != 0) wanted.ai_flags |= AI_NUMERICHOST;
  if ((flags & RAI_FAMILY) != 0) wanted.ai_family = hints->ai_family;
  const rdma_port_space ps = hints != nullptr && hints->ai_port_space != 0
                                 ? static_cast<rdma_port_space>(hints->ai_port_space)
                             : hints != nullptr && hints->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP
                                                                                   : RDMA_PS_TCP;
  wanted.ai_socktype = ps == RDMA_PS_TCP ? SOCK_STREAM : SOCK_DGRAM;

  auto *info = static_cast<rdma_addrinfo *>(std::calloc(1, sizeof(rdma_addrinfo)));
  info->ai_flags = flags;
  info->ai_port_space = ps;
  info->ai_qp_type = ps == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD;
  if (hints != nullptr && hints->ai_qp_type != 0) info->ai_qp_type = hints->ai_qp_type;
  if (node != nullptr || service != nullptr) {
    addrinfo *found = nullptr;
    if (const int error = getaddrinfo(node, service, &wanted, &found); error != 0) {
      rdma_freeaddrinfo(info);
      return error;
    }
    info->ai_family = found->ai_family;
    copy_address(info, found->ai_addr, found->ai_addrlen, is_passive);
    freeaddrinfo(found);
  } else if (hints->ai_dst_addr != nullptr) {
    info->ai_family = hints->ai_dst_addr->sa_family;
    copy_address(info, hints->ai_dst_addr, hints->ai_dst_len, false);
  }
  if (!is_passive && hints != nullptr && hints->ai_src_addr != nullptr) {
    copy_address(info, hints->ai_src_addr, hints->ai_src_len, true);
  }
  *result = info;
  return 0;
}

void rdma_freeaddrinfo(rdma_addrinfo *info) {
  while (info != nullptr) {
    rdma_addrinfo *next = info->ai_next;
    std::free(info->ai_src_addr);
    std::free(info->ai_dst_addr);
    std::free(info);
    info = next;
  }
}

}  // extern "C"
