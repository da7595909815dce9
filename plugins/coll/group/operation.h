// SPDX-License-Identifier: BSD-2-Clause
// Operation: a collective operation under way at one member: its schedule, its buffers, and what
// is in flight. And Carrier: what it needs of the world.
//
// Example:
//    // A carrier that sends at once, and whose receives end later.
//    class Sender : public Carrier {
//     public:
//      bool post(Flight &flight) override {
//        if (!flight.sends) return false;  // on_done() says when it is there
//        put(flight.peer, flight.tag, {flight.bytes, flight.length});
//        return true;
//      }
//     private:
//      void put(uint64_t peer, uint64_t tag, std::span<const uint8_t> bytes);
//    };
//
// Not for the order of operations, nor for what becomes of one that fails: group.h.
#ifndef WEFT_PLUGINS_COLL_GROUP_OPERATION_H
#define WEFT_PLUGINS_COLL_GROUP_OPERATION_H

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugins/coll/group/packet.h"
#include "plugins/coll/schedule/schedule.h"

namespace weft::coll {

class Group;
struct Operation;

// A message that is sent or received. It stays where it is until it has ended.
struct Flight {
  Operation *operation = nullptr;
  bool sends = false, under_way = false;
  uint32_t rank = 0;  // of the other member
  uint64_t peer = 0;  // the same, as GroupPlace calls it
  uint64_t tag = 0;
  uint8_t *bytes = nullptr;
  size_t length = 0;
  void *carrier = nullptr;  // the carrier's own
};

// What an application asks for. Of `task` rank, size and algorithm are the group's business.
struct Call {
  Task task;
  int op = 0, datatype = 0;
  const void *operand = nullptr;
  void *result = nullptr;
  uint64_t token = 0;  // what the application calls it
};

struct Ended {
  uint64_t token = 0;
  bool is_join = false;  // Groups::on_joined() wants to know of it
  Failure failure = Failure::kNone;
  uint32_t culprit = 0;  // kGone: who is gone
  uint64_t bytes = 0;
};

class Carrier {
 public:
  // True: it has ended well already. Else Group::on_done() tells of it, but not from in here.
  virtual bool post(Flight &flight) = 0;
  // A receive, that is not wanted any more. It ends with on_done() in any case.
  virtual void cancel(Flight &flight) = 0;
  // Groups::on_told() follows when it has left, or cannot reach the member, but not from in here.
  virtual void tell(Group &group, uint32_t rank, const Packet &packet) = 0;
  virtual void ended(Group &group, const Ended &one) = 0;
  // Whether it is the address of the peer: that of the sender of a packet.
  virtual bool is_at(uint64_t peer, const std::string &address) const = 0;

 protected:
  ~Carrier() = default;
};

struct Operation {
  Group *group = nullptr;
  bool active = false, is_join = false;
  std::optional<Schedule> schedule;
  Call call;
  uint64_t sequence = 0;
  uint32_t next = 0;  // round to start
  Round round;
  std::vector<Flight> flights;
  uint32_t under_way = 0;
  Failure failure = Failure::kNone;
  uint64_t since = 0, news = 0;  // ns
  std::vector<uint8_t> scratch;
  std::vector<uint8_t> kept;  // the operand, where the result is the same memory

  // 0, or -FI_E...: the arguments make no sense.
  int prepare(const Call &wanted, const Task &task);
  uint8_t *bytes_of(const Slice &slice);
  void run(const std::vector<LocalStep> &steps);
};

}  // namespace weft::coll

#endif
