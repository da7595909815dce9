// SPDX-License-Identifier: BSD-2-Clause
// Group: one member of a group of processes that do collective operations, as a state machine: no
// socket and no clock. Packets and the time come in; packets and what has ended go out.
//
// Example:
//    // The member gives its part to a sum; what it has to say is sent and reported.
//    inline void take_part(Group &group, GroupOutput &output, uint64_t now, const Partial &part) {
//      constexpr uint64_t kToken = 7;  // what the application calls the operation
//      group.start(now, part, kToken);
//      for (const GroupOutput::Sent &one : output.packets) (void)one.peer;
//      for (const GroupOutput::Ended &one : output.ended) (void)one.token;
//    }
//
// The members are a binary tree over their ranks, the root first. A member that has the operands of
// its children and its own gives them to its parent; the root has the result, which goes down. So
// operands are added in the order of the tree, not in that of arrival: the same operands give the
// same result. Packets may come in any order.
//
// Joining is the same, with nothing to add: kJoin goes up when the part of the tree below is
// complete, kJoined comes down. Where a fabric manager gives groups multicast addresses, the root
// asks it for one first (GroupOutput::asking), and kJoined has it.
//
// Who waits in vain asks those that it waits for (kProbe) after `timeout`, again and again. A
// member that only takes its time is waited for. If one is gone, or has left, the operation cannot
// end: it fails, and so do all that follow, at all members (kAbort). While members join, one that
// is not there may still come, within `patience`.
//
// Not for finding the group that a packet is for: groups.h.
#ifndef WEFT_PLUGINS_CXI_COLLECTIVE_GROUP_H
#define WEFT_PLUGINS_CXI_COLLECTIVE_GROUP_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plugins/cxi/collective/group_packet.h"

namespace weft::cxi {

struct GroupLimits {
  uint64_t timeout = 32'000'000;      // ns without news, before a member asks
  uint64_t patience = 5'000'000'000;  // ns for which a member may be absent while others join
  uint64_t limit = 0;                 // ns after which an operation fails in any case; 0: never
};

// What the groups of an endpoint have to say since it was looked at last.
struct GroupOutput {
  struct Sent {
    uint64_t peer;
    GroupPacket packet;
  };
  struct Ended {
    uint64_t group;
    bool is_join;
    uint64_t token;  // of start()
    Partial result;  // with its failure
  };
  std::vector<Sent> packets;
  std::vector<Ended> ended;
  std::vector<uint64_t> asking;  // groups that wait for on_address() or on_no_address()
};

// Who is in a group, and which of them this is.
struct GroupPlace {
  std::vector<uint64_t> peers;  // by rank
  uint32_t rank = 0, root = 0;
  uint64_t membership = 0;  // the same number at all members
  bool asks = false;        // for a multicast address
  bool discards = false;    // drops the packets of operations (COMM_KEY_RANK)
};

class Group {
 public:
  static constexpr size_t kWindow = 8;  // operations under way
  static constexpr uint32_t kChildren = 2;
  static constexpr uint64_t kNever = UINT64_MAX;
  enum class State : uint8_t { kJoining, kJoined, kFailed };

  Group(uint64_t id, GroupPlace place, const GroupLimits &limits, GroupOutput &output);
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;

  uint64_t id() const { return id_; }
  const GroupPlace &place() const { return place_; }
  State state() const { return state_; }
  // Operations before this one have ended well, those from it on have not.
  uint64_t ended_well() const { return std::min(first_unfinished_, broken_from_); }

  // None: the group has no multicast address.
  std::optional<uint32_t> address() const { return address_; }

  void begin(uint64_t now);
  bool lacks_child(uint32_t rank) const;
  // A child's kJoin is for this group.
  void adopt(uint64_t now, uint32_t rank, uint64_t id);
  bool has_neighbour(uint64_t id) const;
  // What the root asked for.
  void on_address(uint64_t now, uint32_t address);
  void on_no_address(Failure why);

  // 0; -FI_EAGAIN: kWindow operations are under way, or it has not joined yet; -FI_ENOTCONN: a
  // member is gone.
  int start(uint64_t now, const Partial &operand, uint64_t token);
  void leave();  // what is under way is canceled

  void on_packet(uint64_t now, const GroupPacket &packet);
  // What became of a packet: it is there, or its receiver is not.
  void on_reached(const GroupPacket &packet);
  void on_lost(uint64_t now, const GroupPacket &packet);

  uint64_t deadline() const { return deadline_; }  // 0: none
  void on_time(uint64_t now);

 private:
  struct Neighbour {
    uint32_t rank = 0;
    uint64_t id = 0;                // 0: not known yet
    uint64_t lost_at = 0;           // while joining: since when it is absent; 0: it is not
    uint64_t ends_before = kNever;  // it takes no part in this operation, nor in later ones
  };
  struct Slot {
    uint64_t sequence = 0;
    bool active = false;  // the application has started it
    bool sent = false;    // to the parent
    uint8_t present = 0;  // which children's operands are there
    uint64_t token = 0, since = 0;
    Partial own, children[kChildren];
  };

  Slot &slot_of(uint64_t sequence) { return slots_[sequence % kWindow]; }
  Neighbour *neighbour(uint64_t id);
  bool is_root() const { return place_.rank == place_.root; }
  uint32_t all_children() const { return (1u << children_.size()) - 1; }
  void send(const Neighbour &to, GroupPacketType type, uint64_t sequence = 0,
            const Partial &part = {});
  void consider_join(uint64_t now);
  void set_joined(uint64_t now);
  void fail_join(Failure why);
  void consider(Slot &slot);
  void finish(Slot &slot, const Partial &result);
  void end(Slot &slot, const Partial &result);
  void abort(uint64_t sequence, Failure why);
  void on_aborted(Neighbour &by, const GroupPacket &packet);
  bool is_waiting_in_vain(const Slot &slot) const;
  template <class F>
  void for_awaited(F look);
  void look_for_the_gone();
  void had_news(uint64_t now);
  uint64_t waits_since() const;

  const uint64_t id_;
  const GroupPlace place_;
  const GroupLimits limits_;
  GroupOutput &output_;
  State state_ = State::kJoining;
  bool begun_ = false, asked_ = false;
  std::optional<uint32_t> address_;
  Neighbour parent_;
  std::vector<Neighbour> children_;
  Slot slots_[kWindow];
  uint64_t next_ = 0;  // operation to start
  uint64_t first_unfinished_ = 0;
  uint64_t broken_from_ = kNever;  // operations from this one on fail
  Failure broken_by_ = Failure::kNone;
  uint64_t joined_since_ = 0;  // of begin()
  uint64_t deadline_ = 0, interval_ = 0;
};

}  // namespace weft::cxi

#endif
