// SPDX-License-Identifier: BSD-2-Clause
// Group: one member of a group of processes that do collective operations (fi_collective.3), as a
// state machine: no socket and no clock.
//
// Example:
//    // The member takes part in a barrier.
//    inline int barrier(Group &group, uint64_t now) {
//      return group.start(now, {.task = {.coll = FI_BARRIER}, .token = 7});
//    }
//
// Members start operations in the same order, so each knows by a number which one a message is for
// (the sequence). Operations do not wait for each other. Joining is an operation, too: an allgather
// of the numbers by which members know the group.
//
// Who waits in vain asks those that it waits for (kProbe), each `probe` ns: what is sent to a
// member that is gone fails, and one that has left says so. A member that only takes its time is
// waited for, until `deadline`. When one is gone, an operation cannot end: it fails, and so do all
// that follow. The member that knows it tells those at distances of powers of two (kAbort), and so
// does each that hears of it first: all know it after a few hops, even if some of them are gone.
//
// Not for finding the group that a packet is for: groups.h.
#ifndef WEFT_PLUGINS_COLL_GROUP_GROUP_H
#define WEFT_PLUGINS_COLL_GROUP_GROUP_H

#include <cstdint>
#include <list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plugins/coll/group/operation.h"
#include "plugins/coll/schedule/choice.h"

namespace weft::coll {

struct GroupLimits {
  uint64_t probe = 500'000'000;  // ns without news, before a member asks; and between two questions
  uint64_t deadline = 0;         // ns after which an operation fails in any case; 0: never
};

// CPUs by their number and the first one. Members with the same first one are taken to share them:
// they are not bound, or bound to the same part of the host.
struct Cpus {
  uint16_t count = 0, first = 0;  // count 0: unknown
};

// Who is in a group, and which of them this is.
struct GroupPlace {
  std::vector<uint64_t> peers;  // by rank
  uint32_t rank = 0;
  uint64_t membership = 0;  // the same number at all members
  bool one_host = false;    // all members are on one, as far as this one knows
  Cpus cpus;                // that this one may use
};

class Group {
 public:
  // From the oldest operation under way to the newest. Tags tell twice as many apart.
  static constexpr uint64_t kWindow = 1024;
  enum class State : uint8_t { kWaiting, kJoining, kJoined, kFailed };

  Group(uint32_t number, GroupPlace place, const GroupLimits &limits, const Choice &choice,
        Carrier &carrier);
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;

  uint32_t number() const { return number_; }
  uint32_t rank() const { return place_.rank; }
  uint32_t size() const { return uint32_t(place_.peers.size()); }
  const GroupPlace &place() const { return place_; }
  State state() const { return state_; }
  Placement placement() const { return placement_; }  // the same at all members
  bool is_idle() const { return active_.empty(); }
  bool is_from_member(const Packet &packet, const std::string &source) const;
  // Whether a packet that names no group here is for this one.
  bool is_told_by(const Packet &packet, const std::string &source) const;

  void join(uint64_t now);
  // 0; -FI_EAGAIN: the oldest operation is kWindow operations back, or it has not joined yet;
  // -FI_ENOTCONN: a member is gone; -FI_EINVAL.
  int start(uint64_t now, const Call &call);
  // What is under way is canceled. The group may go when it is idle.
  void leave();

  // `length`: of a message that has arrived.
  void on_done(uint64_t now, Flight &flight, Failure failure, size_t length);
  bool on_packet(const Packet &packet, const std::string &source);  // false: it was dropped
  void on_told(uint32_t rank, PacketType type, bool reached);
  // It was left, and a member asks for it.
  void answer(const Packet &probe) { tell(probe.from_rank, PacketType::kGone, probe.from); }
  uint64_t deadline() const;  // 0: none
  void on_time(uint64_t now);

 private:
  struct Hello {  // what joining members say: 28 bytes, little-endian
    static constexpr uint32_t kSize = 28;
    uint64_t membership = 0, table = 0;
    uint32_t number = 0;
    uint16_t version = 0, one_host = 0;  // one_host: 1 if the member says so
    Cpus cpus;
    void write(uint8_t *at) const;
    static Hello read(const uint8_t *at);
  };

  Operation &take(uint64_t now);
  void advance(Operation &operation);
  void begin_round(Operation &operation);
  void post(Operation &operation, Flight &flight, const Transfer &transfer);
  void end(Operation &operation);
  void end_join(Ended &one);
  Placement placement_of(const std::vector<Hello> &all) const;
  void fail(Failure why, uint32_t culprit);
  void tell(uint32_t rank, PacketType type);
  void tell(uint32_t rank, PacketType type, uint32_t number);  // of the group there
  void probe(Operation &operation);

  const uint32_t number_;
  const GroupPlace place_;
  const GroupLimits limits_;
  const Choice &choice_;
  Carrier &carrier_;
  State state_ = State::kWaiting;
  Placement placement_ = Placement::kHosts;
  std::vector<uint32_t> numbers_;  // of the group, at each member
  std::vector<uint8_t> hello_, hellos_;
  std::list<Operation> active_, spare_;
  uint64_t next_ = 0;  // sequence
  Failure broken_by_ = Failure::kNone;
  uint32_t culprit_ = 0;
  std::set<std::pair<uint32_t, PacketType>> told_;  // by rank: under way
};

}  // namespace weft::coll

#endif
