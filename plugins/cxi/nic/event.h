// SPDX-License-Identifier: BSD-2-Clause
// Event: what a NIC tells its process, as a plain value, and EventQueue, where it tells it.
//
// Example:
//    // The lengths of the messages that have arrived so far.
//    inline uint64_t take_arrived(EventQueue &queue) {
//      uint64_t bytes = 0;
//      size_t taken = 0;
//      for (; const Event *const event = queue.peek(taken); ++taken)
//        if (event->type == EventType::kPut) bytes += event->mlength;
//      queue.ack(taken);
//      return bytes;
//    }
//
// Which fields mean something depends on the type; the others are zero. Not for completions of
// libfabric: several events may make one of those.
#ifndef WEFT_PLUGINS_CXI_NIC_EVENT_H
#define WEFT_PLUGINS_CXI_NIC_EVENT_H

#include <cstddef>
#include <cstdint>

#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

class Portal;
class Counter;

struct Event {
  EventType type = EventType::kError;
  Rc rc = Rc::kOk;
  List list = List::kPriority;  // where a request has matched
  bool auto_unlinked = false;   // the entry is gone with this event
  bool rendezvous = false;      // of a rendezvous put; of a reply: to the NIC's own Get
  bool get_issued = false;      // kRendezvous: the NIC reads the rest by itself
  bool nic_auto = false;        // kStateChange: not asked for

  uint64_t user_ptr = 0;  // kAck, kReply: of the command

  // At a target.
  Portal *portal = nullptr;
  uint16_t buffer_id = 0;  // of the entry
  Vni vni = 0;
  uint32_t initiator = 0;  // match_id()
  uint64_t match_bits = 0, header_data = 0;
  uint64_t start = 0;  // where the bytes are, or begin
  uint64_t remote_offset = 0;
  uint32_t mlength = 0;  // bytes that have moved
  uint32_t head = 0;     // of those: of a RequestHeader (List::kRequest)
  uint32_t rlength = 0;  // bytes that the initiator asked for
  uint8_t rendezvous_id = 0;
  uint32_t entries_used = 0, entries_max = 0;  // of the service's pool of list entries

  // kStateChange.
  PortalState state = PortalState::kReset;
  Reason reason = Reason::kEqFull;

  // kTriggered: which command it was.
  Counter *counter = nullptr;
  uint64_t threshold = 0;
};

// What the user_ptr of a reply says whose Get the NIC has issued by itself.
struct RendezvousReply {
  Nid nid = 0;
  Pid pid = 0;
  uint8_t id = 0;
  uint16_t buffer_id = 0;

  static constexpr RendezvousReply of(uint64_t user_ptr) {
    return {.nid = Nid(user_ptr & kMaxNid),
            .pid = Pid(user_ptr >> 20 & kAnyPid),
            .id = uint8_t(user_ptr >> 40),
            .buffer_id = uint16_t(user_ptr >> 48)};
  }
  constexpr uint64_t user_ptr() const {
    return uint64_t{nid} | uint64_t{pid} << 20 | uint64_t{id} << 40 | uint64_t{buffer_id} << 48;
  }
};

// A ring of events. One thread reads it at a time; the NIC writes it.
class EventQueue {
 public:
  virtual ~EventQueue() = default;
  // The event `skip` places behind the oldest that was not acknowledged; null: there is none.
  virtual const Event *peek(size_t skip) = 0;
  // The oldest `count` are read: their places are free.
  virtual void ack(size_t count) = 0;
  // Events were lost because no place was free. The queue cannot be trusted any more.
  virtual bool has_dropped() const = 0;
  // The queue was fuller than its limit at some time since the last call.
  virtual bool take_saturation() = 0;
  // Places that messages of peers must leave free. False: there are not as many.
  virtual bool reserve(size_t places) = 0;
  virtual void unreserve(size_t places) = 0;
  // The descriptor that arm() makes readable with the next event; -1: opened without one.
  virtual int wait_fd() const = 0;
  // False: there is an event already.
  virtual bool arm() = 0;
};

struct EventQueueOptions {
  size_t places = 0;            // one for each event; one more than can be filled
  size_t reserved = 0;          // as of reserve()
  unsigned fill_percent = 100;  // take_saturation()
  bool waits = false;           // with a descriptor
};

}  // namespace weft::cxi

#endif
