// SPDX-License-Identifier: BSD-2-Clause
// The words that a Cassini and its process exchange, as tables of fields: commands, which the
// process writes into a command queue, and events, which the NIC writes into an event queue.
//
// Example (statements):
//    uint8_t command[64] = {};  // a put of 100 bytes
//    put(command, FullDma::kind, uint64_t(CommandKind::kDma));
//    put(command, FullDma::op, uint64_t(DmaOp::kPut));
//    put(command, FullDma::length, 100);
//    const bool is_put = get(command, FullDma::op) == uint64_t(DmaOp::kPut);
//
// Who writes commands and who reads them (the double of the tests) share these tables, and nothing
// else. `kAll` has the fields of a word once more, for tests. Not for the meaning of a field:
// nic/command.h and nic/event.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_WORDS_H
#define WEFT_PLUGINS_CXI_LIBCXI_WORDS_H

#include <cstddef>
#include <cstdint>

#include "plugins/cxi/libcxi/bit_field.h"

namespace weft::cxi {

// ---- what a command begins with ----

enum class CommandKind : uint8_t { kInline = 0, kDma = 1, kCounter = 2, kQueue = 3 };
enum class CommandSize : uint8_t { k32 = 0, k64 = 1, k128 = 2, k256 = 3 };  // bytes
enum class DmaOp : uint8_t {                                                // of kInline and kDma
  kNone = 0,
  kPut = 1,
  kGet = 2,
  kRendezvousPut = 3,
  kAtomic = 4,
  kFetchAtomic = 5,
  kSmallMessage = 7,
  kState = 10,
};
enum class CounterOp : uint8_t {
  kNone = 0,
  kSet = 1,
  kGet = 2,  // writes back
  kAdd = 3,
  kCancel = 4,
  kTriggerDma = 5,
  kTriggerSet = 6,
  kTriggerAdd = 7,
  kTriggerEvent = 8,
};
enum class QueueOp : uint8_t { kNone = 0, kFence = 1, kProfile = 2 };
enum class TargetOp : uint8_t {  // of kQueue, in a target queue
  kAppend = 8,
  kSearch = 9,
  kSearchAndDelete = 10,
  kUnlink = 11,
  kSetState = 12,
};

struct CommandHead {
  static constexpr size_t kBytes = 8;
  static constexpr Field kind{0, 2}, size{2, 2}, op{4, 4};
  static constexpr Field kAll[] = {kind, size, op};
};

// ---- commands of a transmit queue ----

// What the inline commands behind it have in common.
struct InlineState : CommandHead {
  static constexpr size_t kBytes = 32;
  static constexpr Field bytes{8, 8}, write_lac{16, 3}, send_disable{19, 1}, success_disable{20, 1},
      ct_send{21, 1}, ct_reply{22, 1}, ct_ack{23, 1}, ct_bytes{24, 1}, get_with_local_flag{25, 1},
      restricted{26, 1}, reduction{27, 1}, flush{28, 1}, offset_for_get{29, 1}, initiator{32, 32},
      index_low{64, 5}, user_ptr{128, 64}, ct{224, 11}, eq{240, 11};
  static constexpr Field kAll[] = {kind,
                                   size,
                                   op,
                                   bytes,
                                   write_lac,
                                   send_disable,
                                   success_disable,
                                   ct_send,
                                   ct_reply,
                                   ct_ack,
                                   ct_bytes,
                                   get_with_local_flag,
                                   restricted,
                                   reduction,
                                   flush,
                                   offset_for_get,
                                   initiator,
                                   index_low,
                                   user_ptr,
                                   ct,
                                   eq};
};

// A put whose bytes stand behind it.
struct InlinePut : CommandHead {
  static constexpr size_t kBytes = 16;
  static constexpr Field bytes{8, 8}, address{32, 32}, remote_offset{64, 56};
  static constexpr Field kAll[] = {kind, size, op, bytes, address, remote_offset};
};

// A put with match bits, whose bytes stand behind it.
struct InlineMessage : CommandHead {
  static constexpr size_t kBytes = 32;
  static constexpr Field bytes{8, 8}, address{32, 32}, match_bits{64, 64}, header_data{128, 64},
      user_ptr{192, 64};
  static constexpr Field kAll[] = {kind,    size,       op,          bytes,
                                   address, match_bits, header_data, user_ptr};
};

struct InlineAmo : InlinePut {
  static constexpr size_t kBytes = 64;
  static constexpr Field result{128, 57}, amo_op{192, 4}, amo_type{200, 4}, cswap{208, 3},
      operand_low{256, 64}, operand_high{320, 64}, operand2_low{384, 64}, operand2_high{448, 64};
  static constexpr Field kAll[] = {kind,          size,         op,           bytes,        address,
                                   remote_offset, result,       amo_op,       amo_type,     cswap,
                                   operand_low,   operand_high, operand2_low, operand2_high};
};

// The same in 32 bytes, where nothing comes back and one operand of 8 bytes is all.
struct SmallAmo : InlinePut {
  static constexpr size_t kBytes = 32;
  static constexpr Field amo_op{128, 4}, amo_type{136, 4}, operand{192, 64};
  static constexpr Field kAll[] = {kind,          size,   op,       bytes,  address,
                                   remote_offset, amo_op, amo_type, operand};
};

// What all commands have that take their bytes from memory.
struct Dma : CommandHead {
  static constexpr Field index_low{8, 5}, lac{16, 3}, send_disable{19, 1}, success_disable{20, 1},
      ct_send{21, 1}, ct_reply{22, 1}, ct_ack{23, 1}, ct_bytes{24, 1}, get_with_local_flag{25, 1},
      restricted{26, 1}, reduction{27, 1}, flush{28, 1}, offset_for_get{29, 1}, address{32, 32},
      remote_offset{64, 56}, local{128, 57}, length{192, 32}, ct{224, 11}, eq{240, 11};
};

struct FullDma : Dma {
  static constexpr size_t kBytes = 64;
  static constexpr Field eager_length{256, 20}, rendezvous_id{280, 8}, initiator{288, 32},
      match_bits{320, 64}, header_data{384, 64}, user_ptr{448, 64};
  static constexpr Field kAll[] = {kind,
                                   size,
                                   op,
                                   index_low,
                                   lac,
                                   send_disable,
                                   success_disable,
                                   ct_send,
                                   ct_reply,
                                   ct_ack,
                                   ct_bytes,
                                   get_with_local_flag,
                                   restricted,
                                   reduction,
                                   flush,
                                   offset_for_get,
                                   address,
                                   remote_offset,
                                   local,
                                   length,
                                   ct,
                                   eq,
                                   eager_length,
                                   rendezvous_id,
                                   initiator,
                                   match_bits,
                                   header_data,
                                   user_ptr};
};

struct DmaAmo : Dma {
  static constexpr size_t kBytes = 96;
  static constexpr Field initiator{288, 32}, match_bits{320, 64}, header_data{384, 64},
      user_ptr{448, 64}, result{512, 57}, amo_op{576, 4}, amo_type{584, 4}, cswap{592, 3},
      write_lac{608, 3}, operand2_low{640, 64}, operand2_high{704, 64};
  static constexpr Field kAll[] = {kind,
                                   size,
                                   op,
                                   index_low,
                                   lac,
                                   send_disable,
                                   success_disable,
                                   ct_send,
                                   ct_reply,
                                   ct_ack,
                                   ct_bytes,
                                   get_with_local_flag,
                                   restricted,
                                   reduction,
                                   flush,
                                   offset_for_get,
                                   address,
                                   remote_offset,
                                   local,
                                   length,
                                   ct,
                                   eq,
                                   initiator,
                                   match_bits,
                                   header_data,
                                   user_ptr,
                                   result,
                                   amo_op,
                                   amo_type,
                                   cswap,
                                   write_lac,
                                   operand2_low,
                                   operand2_high};
};

// Of a counter. A transfer that it fires stands behind these 24 bytes, in a command of 128.
struct CounterCommand : CommandHead {
  static constexpr size_t kBytes = 24;
  static constexpr Field ct{16, 11}, trigger_ct{32, 11}, eq{48, 11}, success{64, 48},
      failure{112, 7}, sets_success{126, 1}, sets_failure{127, 1}, threshold{128, 48};
  static constexpr Field kAll[] = {kind,    size,    op,           ct,           trigger_ct, eq,
                                   success, failure, sets_success, sets_failure, threshold};
};

struct QueueCommand : CommandHead {
  static constexpr size_t kBytes = 64;
  static constexpr Field profile{32, 4};
  static constexpr Field kAll[] = {kind, size, op, profile};
};

// ---- commands of a target queue ----

struct TargetCommand : CommandHead {
  static constexpr size_t kBytes = 64;
  static constexpr Field list{8, 2}, portal{16, 11}, ct_bytes{32, 1}, ct_overflow{33, 1},
      ct_comm{34, 1}, unlink_disable{35, 1}, success_disable{36, 1}, comm_disable{37, 1},
      link_disable{38, 1}, unrestricted_end_ro{39, 1}, unrestricted_body_ro{40, 1},
      unexpected_disable{41, 1}, use_once{42, 1}, no_truncate{43, 1}, manage_local{44, 1},
      op_get{45, 1}, op_put{46, 1}, ct{48, 11}, buffer_id{64, 16}, lac{80, 3}, restart{88, 1},
      start{128, 57}, length{192, 56}, min_free{256, 24}, match_id{288, 32}, match_bits{320, 64},
      ignore_bits{384, 64};
  static constexpr Field kAll[] = {kind,
                                   size,
                                   op,
                                   list,
                                   portal,
                                   ct_bytes,
                                   ct_overflow,
                                   ct_comm,
                                   unlink_disable,
                                   success_disable,
                                   comm_disable,
                                   link_disable,
                                   unrestricted_end_ro,
                                   unrestricted_body_ro,
                                   unexpected_disable,
                                   use_once,
                                   no_truncate,
                                   manage_local,
                                   op_get,
                                   op_put,
                                   ct,
                                   buffer_id,
                                   lac,
                                   restart,
                                   start,
                                   length,
                                   min_free,
                                   match_id,
                                   match_bits,
                                   ignore_bits};
};

struct StateCommand : CommandHead {
  static constexpr size_t kBytes = 64;
  static constexpr Field state{8, 3}, portal{16, 11}, current{64, 57}, drops{128, 24};
  static constexpr Field kAll[] = {kind, size, op, state, portal, current, drops};
};

// ---- what the NIC writes beside events ----

struct QueueStatus {
  static constexpr size_t kBytes = 8;
  static constexpr Field read{0, 16}, rejected{16, 16}, failed_command{32, 8}, rc{48, 6},
      failed_32{61, 1}, failed_low_latency{62, 1}, low_latency_off{63, 1};
  static constexpr Field kAll[] = {read,      rejected,           failed_command, rc,
                                   failed_32, failed_low_latency, low_latency_off};
};

struct CounterWord {
  static constexpr size_t kBytes = 8;
  static constexpr Field success{0, 48}, failure{48, 7}, written{63, 1};
  static constexpr Field kAll[] = {success, failure, written};
};

struct EventStatus {
  static constexpr size_t kBytes = 64;
  static constexpr Field ns_copy{0, 30}, seconds_copy{64, 48}, crossed{112, 1}, threshold{116, 2},
      dropped{120, 1}, drop_sequence{124, 1}, free{128, 26}, reserved{160, 26}, write{192, 26},
      uses_b{224, 1}, ns{416, 30}, seconds{448, 48};
  static constexpr Field kAll[] = {ns_copy, seconds_copy,  crossed, threshold,
                                   dropped, drop_sequence, free,    reserved,
                                   write,   uses_b,        ns,      seconds};
};

// What the process tells of an event queue.
struct EventReader {
  static constexpr size_t kBytes = 8;
  static constexpr Field read{0, 26}, reads_b{31, 1}, interrupt_off{32, 1},
      status_interrupt_off{33, 1}, drop_sequence{40, 1};
  static constexpr Field kAll[] = {read, reads_b, interrupt_off, status_interrupt_off,
                                   drop_sequence};
};

// ---- events ----

enum class EventSize : uint8_t { kNone = 0, k16 = 1, k32 = 2, k64 = 3 };  // bytes
constexpr size_t bytes_of(EventSize size) {
  return size_t{8} << unsigned(size);
}
// Types that the process does not see (nic/words.h has the others).
inline constexpr uint64_t kTimestampEvent = 29, kSwitchEvent = 30, kNullEvent = 31;

// Of all of them. The last byte has the return code: 0 says that the event is not there yet.
struct EventHead {
  static constexpr size_t kBytes = 16;
  static constexpr Field size{112, 2}, type{114, 5};
  static constexpr Field kAll[] = {size, type};
  static constexpr size_t kSizeByte = 14;
  static constexpr uint8_t kRcMask = 0x3f;
};

struct InitiatorEvent : EventHead {
  static constexpr size_t kBytes = 16;
  static constexpr Field user_ptr{0, 64}, mlength{64, 32}, list{96, 2}, rendezvous{100, 1},
      retry{101, 1}, target_error{102, 1}, rc{120, 6};
  static constexpr Field kAll[] = {user_ptr,     mlength, list, rendezvous, retry,
                                   target_error, size,    type, rc};
};
// The same with the time.
struct LongInitiatorEvent : InitiatorEvent {
  static constexpr size_t kBytes = 32;
  static constexpr Field ns{128, 30}, seconds{192, 48}, rc{248, 6};
  static constexpr Field kAll[] = {user_ptr, mlength, list, rendezvous, retry, target_error,
                                   size,     type,    ns,   seconds,    rc};
};

struct TriggerEvent : EventHead {
  static constexpr size_t kBytes = 16;
  static constexpr Field threshold{0, 48}, ct{64, 11}, rc{120, 6};
  static constexpr Field kAll[] = {threshold, ct, size, type, rc};
};

struct FailureEvent : EventHead {
  static constexpr size_t kBytes = 16;
  static constexpr Field queue{0, 10}, is_target{10, 1}, place{16, 16}, command{32, 8}, rc{120, 6};
  static constexpr Field kAll[] = {queue, is_target, place, command, size, type, rc};
};

struct TargetEvent : EventHead {
  static constexpr size_t kBytes = 64;
  static constexpr Field header_data{0, 64}, initiator{64, 32}, portal{96, 11}, list{120, 2},
      rendezvous{122, 1}, get_issued{123, 1}, auto_unlinked{124, 1}, match_bits{128, 64},
      buffer_id{192, 16}, vni{208, 16}, ns{224, 30}, seconds_low{254, 2}, mlength{256, 32},
      rlength{288, 32}, remote_offset{320, 56}, start{384, 57}, entries_used{448, 16},
      entries_max{464, 16}, amo_type{480, 4}, amo_op{484, 4}, cswap{488, 3}, rendezvous_id{496, 8},
      rc{504, 6};
  // Of a change of state, where others have the initiator.
  static constexpr Field state{64, 3}, reason{72, 4}, nic_auto{80, 1};
  static constexpr Field kAll[] = {
      header_data, initiator,     portal,        size,      type,         list,        rendezvous,
      get_issued,  auto_unlinked, match_bits,    buffer_id, vni,          ns,          seconds_low,
      mlength,     rlength,       remote_offset, start,     entries_used, entries_max, amo_type,
      amo_op,      cswap,         rendezvous_id, rc};
};

struct ShortTargetEvent : EventHead {
  static constexpr size_t kBytes = 32;
  static constexpr Field header_data{0, 64}, initiator{64, 32}, portal{96, 11}, list{120, 2},
      auto_unlinked{124, 1}, match_bits{128, 64}, buffer_id{192, 16}, vni{208, 16}, length{224, 20},
      rc{248, 6};
  static constexpr Field kAll[] = {header_data,   initiator,  portal,    size, type,   list,
                                   auto_unlinked, match_bits, buffer_id, vni,  length, rc};
};

// ---- addresses of the fabric ----

// A portal of a process: its index has 3 bits here, and 5 beside the address (index_low).
constexpr uint32_t fabric_address(uint32_t nid, uint32_t pid, uint8_t index) {
  return nid << 12 | uint32_t{index} >> 5 << 9 | pid;
}
constexpr uint8_t low_index(uint8_t index) {
  return index & 31;
}
struct FabricPlace {
  uint32_t nid = 0;
  uint16_t pid = 0;
  uint8_t index = 0;
};
constexpr FabricPlace place_of(uint32_t address, uint8_t index_low) {
  return {address >> 12, uint16_t(address & 511), uint8_t((address >> 9 & 7) << 5 | index_low)};
}

}  // namespace weft::cxi

#endif
