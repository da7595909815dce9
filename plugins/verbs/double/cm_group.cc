// SPDX-License-Identifier: BSD-2-Clause
// Multicast through the connection manager.
#include <algorithm>

#include "plugins/verbs/double/cm.h"

namespace weft::verbs_double {

namespace {

constexpr int kNotSupported = 524;  // ENOTSUPP of the kernel, which refuses IPv6 over RoCE v2 so

// The group's identifier: RoCE v2 maps an IPv4 address to ::ffff:a.b.c.d, InfiniBand to a multicast
// GID; an IPv6 address is one.
ibv_gid group_of(const SocketAddress &address, bool infiniband) {
  ibv_gid gid = address.gid();
  if (address.family() == AF_INET && infiniband) {
    gid.raw[0] = 0xff;
    gid.raw[1] = 0x0e;
  }
  return gid;
}

bool is_multicast(const SocketAddress &address) {
  if (address.family() == AF_INET6) return address.gid().raw[0] == 0xff;
  return address.family() == AF_INET && (address.gid().raw[12] & 0xf0) == 0xe0;
}

void tell_joined(CmId &id, const CmGroup &group, int error) {
  CmMessage message;
  message.to = id.side->serial;
  QueuedEvent &event = message.event;
  event.type = error == 0 ? RDMA_CM_EVENT_MULTICAST_JOIN : RDMA_CM_EVENT_MULTICAST_ERROR;
  event.status = -error;
  event.is_ud = true;
  event.context = group.context;
  event.group = group.gid;
  event.ud.qp_num = kGroupQp;
  event.ud.qkey = RDMA_UDP_QKEY;
  event.ud.ah_attr.port_num = 1;
  event.ud.ah_attr.is_global = 1;
  event.ud.ah_attr.grh.dgid = group.gid;
  event.ud.ah_attr.grh.hop_limit = 1;
  event.ud.ah_attr.grh.sgid_index = 0;
  for (const ibv_gid_entry &entry : id.side->adapter->gids) {
    const ibv_gid own = id.side->src.gid();
    if (std::memcmp(entry.gid.raw, own.raw, sizeof own.raw) == 0) {
      event.ud.ah_attr.grh.sgid_index = static_cast<uint8_t>(entry.gid_index);
    }
  }
  id.world.cm->send(std::move(message));
}

int join(CmId &id, const sockaddr *address, void *context, bool receives) {
  const SocketAddress wanted = SocketAddress::of(address);
  if (!is_multicast(wanted)) return EINVAL;
  if (id.side->adapter == nullptr || id.ps == RDMA_PS_TCP) return EINVAL;
  const DeviceOptions &options = id.side->adapter->options;
  if (wanted.family() == AF_INET6 && !options.infiniband) return kNotSupported;
  const CmGroup group = {wanted, group_of(wanted, options.infiniband), context, receives};
  const bool is_known = std::any_of(id.groups.begin(), id.groups.end(), [&](const CmGroup &joined) {
    return joined.address.same_host(wanted);
  });
  if (is_known) return EADDRINUSE;
  id.groups.push_back(group);
  int error = 0;
  if (!options.features.multicast) error = EOPNOTSUPP;
  if (id.groups.size() > static_cast<size_t>(options.limits.max_mcast_grp)) error = ENOMEM;
  tell_joined(id, group, error);
  return 0;
}

}  // namespace

// When the program fetches the event, librdmacm attaches the queue pair.
void attach_joined(CmId &id, const ibv_gid &gid) {
  const auto group = std::find_if(id.groups.begin(), id.groups.end(), [&](const CmGroup &joined) {
    return std::memcmp(joined.gid.raw, gid.raw, sizeof gid.raw) == 0;
  });
  if (group == id.groups.end() || !group->attached || id.qp == nullptr) return;
  std::vector<Qp *> &members = id.side->adapter->groups[{gid}];
  if (std::find(members.begin(), members.end(), &of(id.qp)) == members.end()) {
    members.push_back(&of(id.qp));
  }
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

int rdma_join_multicast(rdma_cm_id *ibv, sockaddr *address, void *context) {
  CmId &id = of(ibv);
  {
    const Entry entry(id.world, Call::k_rdma_join_multicast);
    const int error = entry.error() != 0 ? entry.error() : join(id, address, context, true);
    if (error != 0) return failed(error);
  }
  return complete(id);
}

int rdma_join_multicast_ex(rdma_cm_id *ibv, rdma_cm_join_mc_attr_ex *attr, void *context) {
  CmId &id = of(ibv);
  {
    const Entry entry(id.world, Call::k_rdma_join_multicast);
    constexpr uint32_t kNeeded = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    int error = entry.error();
    if (error == 0 && attr->comp_mask != kNeeded) error = EINVAL;
    if (error == 0 && attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) error = EINVAL;
    const bool receives = attr->join_flags == RDMA_MC_JOIN_FLAG_FULLMEMBER;
    if (error == 0) error = join(id, attr->addr, context, receives);
    if (error != 0) return failed(error);
  }
  return complete(id);
}

int rdma_leave_multicast(rdma_cm_id *ibv, sockaddr *address) {
  CmId &id = of(ibv);
  const Entry entry(id.world, Call::k_rdma_leave_multicast);
  if (entry.error() != 0) return failed(entry.error());
  const SocketAddress wanted = SocketAddress::of(address);
  const auto group = std::find_if(id.groups.begin(), id.groups.end(), [&](const CmGroup &joined) {
    return joined.address.same_host(wanted);
  });
  if (group == id.groups.end()) return failed(EADDRNOTAVAIL);
  if (id.qp != nullptr) {
    auto &groups = id.side->adapter->groups;
    if (const auto members = groups.find({group->gid}); members != groups.end()) {
      std::erase(members->second, &of(id.qp));
      if (members->second.empty()) groups.erase(members);
    }
  }
  id.groups.erase(group);
  return 0;
}

}  // extern "C"
