// SPDX-License-Identifier: BSD-2-Clause
// Packet and Reply: what an engine sends to another for one operation, and what comes back.
//
// Example:
//    inline Reply refuse(const Packet &packet, Rc rc) {
//      return {.token = packet.token, .rc = rc};
//    }
//
// They are values with a pointer to the bytes, which are valid while the operation lasts. Not the
// form that they have between processes.
#ifndef WEFT_PLUGINS_CXI_SOFT_PACKET_H
#define WEFT_PLUGINS_CXI_SOFT_PACKET_H

#include <weft/sdk/memory/hmem.h>

#include <cstddef>
#include <cstdint>

#include "plugins/cxi/nic/command.h"
#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

struct Reply;

// Who is told of a reply that comes later, with the engine's lock held.
class Asker {
 public:
  virtual void on_late(const Reply &reply) = 0;
  // Room for a packet that waits, until it waits no more. False: its sender has had its share.
  virtual bool take_room(size_t bytes) = 0;
  virtual void give_room(size_t bytes) = 0;

 protected:
  ~Asker() = default;
};

struct Packet {
  Op op = Op::kPut;
  Vni vni = 0;
  Nid source = 0;
  Address to;
  uint64_t token = 0;  // what the initiator calls the operation
  uint64_t match_bits = 0, header_data = 0, remote_offset = 0;
  uint32_t initiator = 0;
  uint32_t length = 0;        // of the operation
  uint32_t eager_length = 0;  // of Op::kRendezvousPut: what has come along
  uint8_t rendezvous_id = 0;
  bool restricted = false, flush = false;
  bool is_answer = false;  // Transfer::is_answer, for this process alone
  AmoOp amo_op = AmoOp::kSum;
  AmoType amo_type = AmoType::kUint64;
  Cswap cswap = Cswap::kEq;
  bool pcie = false;
  uint64_t operand2[2] = {};
  const void *bytes = nullptr;            // of a put, or the operand of an atomic
  const sdk::HmemPlace *place = nullptr;  // of those, where they are a device's
  Asker *asker = nullptr;                 // null: the packet cannot wait at a lossless portal
};

// Bytes that come along.
inline uint32_t bytes_behind(const Packet &packet) {
  switch (packet.op) {
    case Op::kGet:
      return 0;
    case Op::kRendezvousPut:
      return packet.eager_length < packet.length ? packet.eager_length : packet.length;
    default:
      return packet.length;
  }
}

struct Reply {
  uint64_t token = 0;
  Rc rc = Rc::kOk;  // kNone: the packet waits, and its asker is told of the reply
  List list = List::kPriority;
  uint32_t mlength = 0;
  const void *bytes = nullptr;            // of a get: `mlength` of them
  const sdk::HmemPlace *place = nullptr;  // of those, where they are a device's
  uint64_t fetched[2] = {};               // of an atomic: the old value
};

}  // namespace weft::cxi

#endif
