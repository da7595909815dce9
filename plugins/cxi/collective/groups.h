// SPDX-License-Identifier: BSD-2-Clause
// Groups: all groups of an endpoint. It finds the group that a packet is for.
//
// Example:
//    // fi_join_collective; GroupOutput::ended says when all members have joined.
//    inline uint64_t join(Groups &groups, uint64_t now, const GroupPlace &place) {
//      return groups.join(now, place).id();
//    }
//
// Members call a group by numbers of their own. So a child's kJoin says which membership it joins,
// and the parent takes it for the oldest of its own joins of that membership which lacks the child.
// An endpoint may join the same members several times at once: kJoin says after which other kJoin
// it comes, and waits for that one where it overtakes it. Numbers have a part that is new with each
// endpoint: what an endpoint of the same address had asked for earlier is dropped.
//
// As sans-I/O as Group. Not for checks of what an application asks for.
#ifndef WEFT_PLUGINS_CXI_COLLECTIVE_GROUPS_H
#define WEFT_PLUGINS_CXI_COLLECTIVE_GROUPS_H

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

#include "plugins/cxi/collective/group.h"

namespace weft::cxi {

class Groups {
 public:
  static constexpr size_t kMaxRequests = 65536;  // of peers, that wait for a join here
  static constexpr size_t kMaxReceived = 65536;  // that are remembered
  static constexpr size_t kMaxClosed = 4096;     // groups that are remembered

  // `incarnation`: another number for each endpoint that had this address, never 0.
  Groups(uint32_t incarnation, const GroupLimits &limits)
      : incarnation_(incarnation), limits_(limits) {}

  Group &join(uint64_t now, GroupPlace place);
  void leave(uint64_t id);
  Group *find(uint64_t id);
  bool empty() const { return groups_.empty(); }

  // What GroupOutput::asking asked for; the group may have been left.
  void on_address(uint64_t now, uint64_t id, uint32_t address);
  void on_no_address(uint64_t id, Failure why);
  void on_packet(uint64_t now, uint64_t peer, const GroupPacket &packet);
  void on_reached(const GroupPacket &packet);
  void on_lost(uint64_t now, const GroupPacket &packet);
  uint64_t deadline() const;  // 0: none
  void on_time(uint64_t now);

  // What there is to send and to report since the last call.
  void take_output(GroupOutput &output);

  // The number that all members of a group have for who they are.
  static uint64_t membership_of(const std::vector<uint64_t> &peers, uint32_t root, bool by_rank);

 private:
  struct Request {
    uint64_t peer = 0;
    GroupPacket packet;
  };
  void on_join(uint64_t now, uint64_t peer, const GroupPacket &packet);
  void match(uint64_t now, uint64_t membership, uint32_t rank);
  bool is_next(const Request &request) const;
  void remember(uint64_t id);
  uint64_t predecessor_of(const Group &group) const;
  void answer_stranger(uint64_t peer, const GroupPacket &packet, uint64_t sequence, Failure why);

  const uint32_t incarnation_;
  const GroupLimits limits_;
  uint32_t last_ = 0;
  GroupOutput output_;
  std::map<uint64_t, std::unique_ptr<Group>> groups_;  // in the order of the joins
  std::list<Request> requests_;
  std::unordered_set<uint64_t> received_;  // numbers of kJoin
  std::deque<uint64_t> received_order_;
  std::map<uint64_t, uint64_t> closed_;  // groups that were left: the first operation without us
};

}  // namespace weft::cxi

#endif
