// SPDX-License-Identifier: BSD-2-Clause
// What a process tells its NIC to do: transfers, and entries of a portal's lists.
//
// Example:
//    // A put of a whole buffer, whose acknowledgement carries `number`.
//    inline Transfer put_of(const Memory &memory, uint64_t address, uint32_t length,
//                           const Address &to, EventQueue &acks, uint64_t number) {
//      Transfer put;
//      put.to = to;
//      put.memory = memory;
//      put.local = address;
//      put.length = length;
//      put.eq = &acks;
//      put.user_ptr = number;
//      return put;
//    }
//
// Not for checks of what an application asks for: the NIC takes a command as it is, and an event
// says what was wrong.
#ifndef WEFT_PLUGINS_CXI_NIC_COMMAND_H
#define WEFT_PLUGINS_CXI_NIC_COMMAND_H

#include <cstddef>
#include <cstdint>

#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

class Counter;
class EventQueue;

struct Address {
  Nid nid = 0;
  Pid pid = 0;
  Index index = 0;
};

// Memory that is mapped for the NIC: Lni::map(). One that is unmapped is refused when it is used.
struct Memory {
  // Of an entry: all that was mapped with Lni::kRemote, by its address. Hardware cannot tell that
  // from what else is mapped: there it is all of it.
  static constexpr uint32_t kWholeLac = UINT32_MAX;
  // The same of what was lent (Lni::lend), for whom it was lent to. Hardware cannot tell that,
  // either.
  static constexpr uint32_t kLent = UINT32_MAX - 1;
  uint32_t number = 0;  // 0: none
  uint8_t lac = 0;      // logical address context, 0 to 7
};

inline constexpr uint32_t kMaxInline = 224;  // bytes of a restricted put in its command
inline constexpr uint32_t kMaxInlineUnrestricted = 192;

struct Transfer {
  Op op = Op::kPut;
  // Of the queue's communication profile, which fills them in.
  Vni vni = 0;
  bool high_rate = false;
  Address to;
  // The bytes: of `memory`, or, if `inline_bytes` is not null, those, which stay as they are until
  // the acknowledgement: not every command has a place for them.
  Memory memory;
  uint64_t local = 0;
  const void *inline_bytes = nullptr;
  uint32_t length = 0;

  uint64_t remote_offset = 0;
  uint64_t match_bits = 0, header_data = 0;
  uint32_t initiator = 0;  // match_id()
  bool restricted = false;
  bool is_answer = false;        // the peer that it goes to has caused it
  bool flush = false;            // acknowledged when the target's process can see the bytes
  bool success_disable = false;  // no event if all is well
  // The acknowledgement or reply adds 1 to the counter, or the bytes.
  Counter *counter = nullptr;
  bool counts_bytes = false;
  bool writes_back = false;     // and the NIC writes it back (Counter::write_back_to)
  bool counts_failures = true;  // DeviceFacts::counts_successes_alone
  EventQueue *eq = nullptr;     // of the acknowledgement or reply; null: none
  uint64_t user_ptr = 0;

  // Op::kRendezvousPut: `length` bytes are the message, the first of them come along. The target
  // reads the rest at `remote_offset`, an address of `memory`, and what follows of
  // kRendezvousIndex here.
  uint32_t eager_length = 0;
  uint8_t rendezvous_id = 0;

  // Op::kAtomic, Op::kFetchAtomic: one element. Operands are in the command (inline_bytes), or in
  // memory. `operand2` is the value to compare with, or the mask.
  AmoOp amo_op = AmoOp::kSum;
  AmoType amo_type = AmoType::kUint64;
  Cswap cswap = Cswap::kEq;
  uint64_t operand2[2] = {};
  bool pcie = false;  // by the host's fetch-and-add
  Memory result_memory;
  uint64_t result = 0;  // where a fetched value goes
};

// An entry of a portal's list: a receive, a buffer for unexpected messages, or a memory region.
struct Entry {
  uint16_t buffer_id = 0;
  Memory memory;
  uint64_t start = 0, length = 0;
  uint32_t match_id = kMatchAny;
  uint64_t match_bits = 0, ignore_bits = 0;
  uint64_t min_free = 0;  // manage_local: with less room left the entry is unlinked
  bool op_put = false, op_get = false;
  bool manage_local = false;  // each request takes the bytes behind those of the last one
  bool use_once = false;
  bool no_truncate = false;  // a longer request does not match
  bool unexpected_header_disable = false;
  bool link_disable = false, unlink_disable = false;  // no events
  bool comm_disable = false, success_disable = false;
  Counter *counter = nullptr;  // of requests
  bool counts_bytes = false;
  bool counts_overflow = false;   // those that take an unexpected message, too
  bool restart_sequence = false;  // appends go on after one that has failed
};

// What software gets of a message that it is to match (List::kRequest). Event::head bytes of it are
// in front of those of the message; it may be shorter than they are.
struct RequestHeader {
  uint64_t match_bits, header_data, remote_offset;
  uint32_t initiator, length;  // of the message
  uint32_t source;             // Nid
  uint16_t vni;
  uint8_t rendezvous, rendezvous_id;
};
static_assert(sizeof(RequestHeader) == 40);
inline constexpr uint32_t kMaxRequestHead = 64;

// A search of the unexpected list.
struct Criteria {
  uint16_t buffer_id = 0;
  uint32_t match_id = kMatchAny;
  uint64_t match_bits = 0, ignore_bits = 0;
  bool once = false;
};

}  // namespace weft::cxi

#endif
