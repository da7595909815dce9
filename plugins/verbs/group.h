// SPDX-License-Identifier: BSD-2-Clause
// A multicast group that a datagram endpoint has joined (fi_join).
//
// Example:
//    // What fi_join does, with the lock of connections held. fi_close of the fid leaves the group.
//    inline Result<fid_mc *> join(DatagramEndpoint &ep, const DatagramName &name, size_t number) {
//      WEFT_TRY(Group *const group, Group::open(ep, {.name = name, .number = number}, nullptr));
//      group->start();     // the endpoint must know it by its number
//      return group->c();  // FI_JOIN_COMPLETE says that it is there
//    }
//
// The name of a group is an FI_ADDR_IB_UD: a GID, and the queue pair number of all groups. The GID
// of an IPv4 group is ::ffff:a.b.c.d, that of an IPv6 group its address. librdmacm joins, and says
// which GID and LID the group has on the wire; the queue pair of the endpoint is attached to those.
// The kernel joins no IPv6 groups over RoCE: there a socket joins in IP, and the name is the GID.
// All members have the queue key of datagram endpoints (kQueueKey). Not for collective groups.
#ifndef WEFT_PLUGINS_VERBS_GROUP_H
#define WEFT_PLUGINS_VERBS_GROUP_H

#include <infiniband/verbs.h>
#include <rdma/fi_cm.h>
#include <rdma/rdma_cma.h>
#include <weft/result.h>
#include <weft/sdk/ip/sock_addr.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/progress/unique_fd.h>

#include <string>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/datagram_name.h"
#include "plugins/verbs/device_events.h"

namespace weft::verbs {

class DatagramEndpoint;

// The fi_addr_t of groups are kGroupBase plus a number. No address vector returns such values.
inline constexpr fi_addr_t kGroupBase = UINT64_C(1) << 62;

struct GroupMembership {
  DatagramName name{};
  bool sends = true, receives = true;
  size_t number = 0;  // among the groups of its endpoint
};

class Group final : public sdk::Object<Group, fid_mc>, private ChannelUser, private DeviceUser {
 public:
  // Needs the lock of connections. Joining goes on when this has returned; start() comes when the
  // endpoint knows the group.
  static Result<Group *> open(DatagramEndpoint &ep, const GroupMembership &membership,
                              void *context);

  void start();
  size_t number() const { return membership_.number; }
  bool receives() const { return membership_.receives; }
  const DatagramName &name() const { return membership_.name; }

  // fi_ops
  int close();

 private:
  Group(DatagramEndpoint &ep, const GroupMembership &membership, void *context);
  ~Group() = default;
  Result<void> join();
  bool is_by_ip() const;
  Result<void> join_in_ip(const sdk::SockAddr &local);
  Result<void> join_by_manager(const sdk::SockAddr &local);
  void leave();
  void on_event(const ChannelEvent &event) override;
  void joined(const ibv_ah_attr &wire);
  // DeviceUser
  void on_device_event(ibv_event_type) override {}
  void on_notice() override {}
  void on_device_gone(const ibv_context &device) override;
  Result<void> enter(const ibv_ah_attr &wire);
  void end(int error, const std::string &why);

  DatagramEndpoint &ep_;
  const GroupMembership membership_;
  sdk::SockAddr address_;
  rdma_cm_id *id_ = nullptr;
  sdk::UniqueFd ip_member_;
  bool attached_ = false, ended_ = false;
  ibv_gid wire_gid_{};
  uint16_t wire_lid_ = 0;
};

}  // namespace weft::verbs

#endif
