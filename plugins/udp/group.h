// SPDX-License-Identifier: BSD-2-Clause
// A multicast group that an endpoint has joined (fi_join): its address, and the socket that
// receives its datagrams.
//
// Example:
//    // What fi_join does, with the endpoint's lock held. fi_close of the fid leaves the group.
//    inline Result<fid_mc *> join(Endpoint &ep, const sdk::SockAddr &address, size_t number) {
//      WEFT_TRY(Group *group, Group::open(ep, address, /*sends=*/true, /*receives=*/true, number,
//                                         /*context=*/nullptr));
//      return group->c();  // a send to its fi_addr, kGroupBase + number, goes to all members
//    }
//
// A socket that is bound to an address of this host gets no datagrams of groups. So a group has a
// socket of its own, bound to the group's address, unless the endpoint is bound to all addresses
// and to the group's port. Sending needs no membership, so a send-only member has none. Not for
// collective groups.
#ifndef WEFT_PLUGINS_UDP_GROUP_H
#define WEFT_PLUGINS_UDP_GROUP_H

#include <rdma/fi_cm.h>
#include <weft/result.h>
#include <weft/sdk/objects/fid.h>

#include <memory>

#include "plugins/udp/inlet.h"

namespace weft::udp {

class Endpoint;

// The fi_addr_t of groups are kGroupBase plus a number. No address vector returns such values.
inline constexpr fi_addr_t kGroupBase = UINT64_C(1) << 62;

class Group final : public sdk::Object<Group, fid_mc> {
 public:
  // Needs the lock. `group` has a port.
  static Result<Group *> open(Endpoint &ep, const sdk::SockAddr &group, bool sends, bool receives,
                              size_t number, void *context);

  const sdk::SockAddr &address() const { return address_; }
  bool sends() const { return sends_; }
  Inlet *inlet() { return inlet_.get(); }  // null: the endpoint's own
  size_t number() const { return number_; }

  // fi_ops
  int close();

 private:
  Group(Endpoint &ep, const sdk::SockAddr &address, bool sends, size_t number, void *context);
  ~Group() = default;
  Result<void> enter();
  void leave();

  Endpoint &ep_;
  const sdk::SockAddr address_;
  const bool sends_;
  const size_t number_;
  bool is_member_ = false;
  std::unique_ptr<Inlet> inlet_;
};

}  // namespace weft::udp

#endif
