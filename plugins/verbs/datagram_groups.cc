// SPDX-License-Identifier: BSD-2-Clause
// The multicast groups of a datagram endpoint: joining, and the way of sends to them.
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plugins/verbs/datagram_endpoint.h"
#include "plugins/verbs/fabric.h"

namespace weft::verbs {

Result<GroupMembership> DatagramEndpoint::check_join(const void *addr, uint64_t flags) {
  WEFT_TRY(const sdk::Address address, sdk::read_address(addr_format_, addr));
  sdk::Guard guard(own_lock);
  if (!enabled()) return fail(FI_EOPBADSTATE, "the endpoint is not enabled");
  if (!(caps() & FI_MULTICAST))
    return fail(FI_EOPNOTSUPP, "the endpoint was opened without FI_MULTICAST");
  if (flags & ~caps()) return fail(FI_EOPNOTSUPP, "the endpoint was not opened for this direction");
  if (eq() == nullptr)
    return fail(FI_ENOEQ,
                "no event queue is bound to the endpoint, and FI_JOIN_COMPLETE is reported there "
                "(fi_cm.3): fi_ep_bind one");
  const DatagramName name = DatagramName::of(address);
  if (address.format() != FI_ADDR_IB_UD || !name.is_group())
    return fail(FI_EINVAL,
                "%s is no multicast group: a multicast GID (ff.. or that of an IPv4 group), and "
                "the queue pair number ffffff",
                address.to_string().c_str());
  const uint64_t wanted = flags != 0 ? flags : caps() & (FI_SEND | FI_RECV);
  GroupMembership membership{
      .name = name, .sends = (wanted & FI_SEND) != 0, .receives = (wanted & FI_RECV) != 0};
  for (const Joined &joined : groups_)
    if (joined.group != nullptr && membership.receives && joined.group->receives() &&
        std::memcmp(&joined.group->name().gid, &name.gid, sizeof name.gid) == 0)
      return fail(FI_EADDRINUSE, "the endpoint receives from %s already",
                  address.to_string().c_str());
  const auto free = std::ranges::find(groups_, nullptr, &Joined::group);
  membership.number = size_t(free - groups_.begin());
  return membership;
}

int DatagramEndpoint::join(const void *addr, uint64_t flags, struct fid_mc **mc, void *context) {
  if (addr == nullptr || mc == nullptr) return -FI_EINVAL;
  if (flags & FI_COLLECTIVE) return -FI_ENOSYS;
  if (flags & ~uint64_t(FI_SEND | FI_RECV)) return -FI_EBADFLAGS;
  sdk::Guard guard(domain_.fabric().engine().lock());
  const auto refuse = [&](const Error &error) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL, "fi_join: %s", error.text.c_str());
    return -error.code;
  };
  const auto membership = check_join(addr, flags);
  if (!membership) return refuse(membership.error());
  const auto group = Group::open(*this, *membership, context);
  if (!group) return refuse(group.error());
  {
    sdk::Guard own(own_lock);
    if (membership->number == groups_.size()) groups_.emplace_back();
    groups_[membership->number] = {.group = *group, .remote = {}, .joins = membership->sends};
  }
  *mc = (*group)->c();
  (*group)->start();
  return 0;
}

Result<void> DatagramEndpoint::reach(const Group &group, const ibv_ah_attr &wire) {
  ibv_ah_attr attr = wire;
  attr.grh.sgid_index = group_source_index(gids_, gid_index_, group.name());
  sdk::Guard own(own_lock);
  destroy_retired(false);
  ibv_ah *const handle = ibv_create_ah(domain_.pd(), &attr);
  if (handle == nullptr) return fail(errno, "ibv_create_ah: %s", strerror(errno));
  Joined &joined = groups_[group.number()];
  if (joined.remote.handle != nullptr) retired_.push_back({joined.remote.handle, newest_number()});
  joined.remote = {handle, kGroupQueuePair};
  joined.joins = false;
  return {};
}

void DatagramEndpoint::unreach(const Group &group) {
  sdk::Guard own(own_lock);
  Joined &joined = groups_[group.number()];
  if (joined.remote.handle != nullptr) retired_.push_back({joined.remote.handle, newest_number()});
  joined.remote = {};
  joined.joins = false;
}

void DatagramEndpoint::forget(Group &group) {
  unreach(group);
  eq()->forget(group.base());
  sdk::Guard own(own_lock);
  groups_[group.number()] = {};
}

const DatagramEndpoint::Remote *DatagramEndpoint::group_remote(fi_addr_t dest, ssize_t &rc) const {
  rc = -FI_EINVAL;
  const uint64_t number = dest - kGroupBase;
  if (number >= groups_.size()) return nullptr;
  const Joined &joined = groups_[number];
  if (joined.remote.handle != nullptr) return &joined.remote;
  if (joined.joins) rc = -FI_EAGAIN;  // until FI_JOIN_COMPLETE
  return nullptr;
}

}  // namespace weft::verbs
