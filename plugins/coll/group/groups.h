// SPDX-License-Identifier: BSD-2-Clause
// Groups: all groups of an endpoint. It gives them their numbers, and finds the one that a packet
// is for.
//
// Example:
//    // fi_join_collective; Carrier::ended() says when all members have joined.
//    inline Group *join(Groups &groups, uint64_t now, const GroupPlace &place) {
//      return groups.join(now, place);
//    }
//
// Groups of the same members are joined one after the other, in the order of the calls. A group
// that was left answers those that still wait for it: its members are remembered for a while.
//
// A packet counts if it comes from the member that it names. One that comes before its group is
// joined here is kept for a while, a few of each sender.
//
// As sans-I/O as Group. Not for checks of what an application asks for.
#ifndef WEFT_PLUGINS_COLL_GROUP_GROUPS_H
#define WEFT_PLUGINS_COLL_GROUP_GROUPS_H

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "plugins/coll/group/group.h"

namespace weft::coll {

// The numbers of groups at one endpoint, or at those that share their receives.
class Numbers {
 public:
  uint32_t take();  // 0: too many are in use
  void give(uint32_t number) { used_.erase(number); }

 private:
  uint32_t last_ = 0;
  std::set<uint32_t> used_;
};

class Groups {
 public:
  static constexpr size_t kMaxEarly = 1024;             // aborts of groups that nobody joins here
  static constexpr size_t kMaxEarlyOfOne = 32;          // the same, of one sender
  static constexpr uint64_t kEarlyFor = 1'000'000'000;  // ns
  static constexpr size_t kMaxLeft = 256;               // groups that are remembered
  static constexpr size_t kMaxLeftMembers = 1u << 16;   // of all of them

  Groups(const GroupLimits &limits, const Choice &choice, Carrier &carrier)
      : limits_(limits), choice_(choice), carrier_(carrier) {}
  // Before the first group.
  void share(Numbers &numbers) { numbers_ = &numbers; }

  Group *join(uint64_t now, GroupPlace place);  // null: there are too many
  // The carrier has heard that a group has joined, or has failed to (Ended::is_join).
  void on_joined(uint64_t now, uint32_t number);
  // False: something of it is still in flight. Then on_idle() has to follow.
  bool leave(uint64_t now, Group &group);
  void on_idle(uint64_t now, Group &group);
  Group *find(uint32_t number);
  // What Carrier::tell() was given for the group is under way no more.
  void on_told(uint32_t number, uint32_t rank, PacketType type, bool reached);
  bool empty() const { return groups_.empty(); }

  // `source`: the address that the carrier knows the sender by. False: it was dropped.
  bool on_packet(uint64_t now, const Packet &packet, const std::string &source);
  size_t early() const { return early_.size(); }
  uint64_t deadline() const;  // 0: none
  void on_time(uint64_t now);

  // The number that all members of a group have for who they are: of their names, in order.
  class Membership {
   public:
    void add(const void *name, size_t bytes);
    uint64_t value() const;

   private:
    uint64_t hash_ = 0xcbf29ce484222325;
  };

 private:
  struct Early {
    uint64_t at;
    Packet packet;
    std::string source;
  };
  void begin(uint64_t now, Group &group);
  void next_join(uint64_t now, uint32_t ended, uint64_t membership);
  void forget(Group &group);
  Group *told_by(const Packet &packet, const std::string &source) const;
  void keep(Early one);
  bool answer(const Packet &packet, const std::string &source);

  const GroupLimits limits_;
  const Choice &choice_;
  Carrier &carrier_;
  Numbers own_numbers_;
  Numbers *numbers_ = &own_numbers_;
  std::map<uint32_t, std::unique_ptr<Group>> groups_;
  std::deque<uint32_t> joins_;  // in the order of the calls, until they have ended
  std::deque<Early> early_;
  std::deque<std::unique_ptr<Group>> left_;
  size_t left_members_ = 0;
};

}  // namespace weft::coll

#endif
