// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/encode.h"

#include <algorithm>
#include <cstring>

namespace weft::cxi {
namespace {

bool is_amo(Op op) {
  return op == Op::kAtomic || op == Op::kFetchAtomic;
}
bool is_fetching(Op op) {
  return op == Op::kFetchAtomic;
}
bool is_answered(Op op) {  // by a reply, and not by an acknowledgement
  return op == Op::kGet || op == Op::kFetchAtomic;
}
bool has_match_bits(const Transfer &t) {
  return t.match_bits != 0 || t.header_data != 0;
}

// A message has match bits and no offset in its command; another put has it the other way round.
bool is_message(const Transfer &t) {
  return !t.restricted && t.remote_offset == 0;
}

bool is_small_amo(const Transfer &t) {
  return !is_fetching(t.op) && t.amo_op != AmoOp::kCswap && t.amo_op != AmoOp::kAxor &&
         t.amo_type != AmoType::kDoubleComplex && t.amo_type != AmoType::kUint128;
}

AmoOp amo_op_of(const Transfer &t, const TransferNames &names) {
  return t.pcie ? names.pcie_op : t.amo_op;
}

// The flags that the state of inline commands and commands of their own have at the same bits.
template <class Word>
void put_flags(uint8_t *command, const Transfer &t, const TransferNames &names) {
  put(command, Word::send_disable, 1);
  put(command, Word::success_disable, t.success_disable || t.eq == nullptr);
  put(command, Word::ct_reply, t.counter != nullptr && is_answered(t.op));
  put(command, Word::ct_ack, t.counter != nullptr && !is_answered(t.op));
  put(command, Word::ct_bytes, t.counts_bytes);
  put(command, Word::restricted, t.restricted);
  put(command, Word::flush, t.flush);
  put(command, Word::index_low, low_index(t.to.index));
  put(command, Word::ct, names.ct);
  put(command, Word::eq, names.eq);
}

uint32_t address_of(const Transfer &t) {
  return fabric_address(t.to.nid, t.to.pid, t.to.index);
}

}  // namespace

bool is_inline(const Transfer &t) {
  if (t.inline_bytes == nullptr && (t.op != Op::kPut || t.length != 0)) return false;
  if (is_amo(t.op)) return !has_match_bits(t);
  if (t.op != Op::kPut) return false;
  if (t.restricted) return t.length <= kMaxInline && !has_match_bits(t);
  if (t.length > kMaxInlineUnrestricted) return false;
  return is_message(t) || !has_match_bits(t);
}

void TransferWriter::write(CommandRing &ring, const Transfer &t, const TransferNames &names) {
  if (!is_inline(t)) {
    write_dma(ring.add(is_amo(t.op) ? CommandSize::k128 : CommandSize::k64), t, names);
    return;
  }
  write_state(ring, t, names);
  if (is_amo(t.op))
    write_inline_amo(ring, t, names);
  else
    write_inline_put(ring, t, names);
}

void TransferWriter::write_state(CommandRing &ring, const Transfer &t, const TransferNames &names) {
  std::array<uint8_t, InlineState::kBytes> state{};
  uint8_t *const at = state.data();
  put(at, InlineState::kind, uint64_t(CommandKind::kInline));
  put(at, InlineState::size, uint64_t(CommandSize::k32));
  put(at, InlineState::op, uint64_t(DmaOp::kState));
  put(at, InlineState::bytes, InlineState::kBytes);
  put_flags<InlineState>(at, t, names);
  put(at, InlineState::write_lac, names.result_lac);
  put(at, InlineState::initiator, t.initiator);
  if (!is_message(t) || is_amo(t.op)) put(at, InlineState::user_ptr, t.user_ptr);
  if (state == state_) return;
  state_ = state;
  std::memcpy(ring.add(CommandSize::k32), at, state.size());
}

void TransferWriter::write_inline_put(CommandRing &ring, const Transfer &t,
                                      const TransferNames &names) {
  const size_t head = is_message(t) ? InlineMessage::kBytes : InlinePut::kBytes;
  CommandSize size = CommandRing::size_of(head + t.length);
  if (is_message(t)) size = std::max(size, CommandSize::k64);
  uint8_t *const command = ring.add(size);
  put(command, CommandHead::kind, uint64_t(CommandKind::kInline));
  put(command, InlinePut::bytes, head + t.length);
  put(command, InlinePut::address, address_of(t));
  if (is_message(t)) {
    put(command, CommandHead::op, uint64_t(DmaOp::kSmallMessage));
    put(command, InlineMessage::match_bits, t.match_bits);
    put(command, InlineMessage::header_data, t.header_data);
    put(command, InlineMessage::user_ptr, t.user_ptr);
  } else {
    put(command, CommandHead::op, uint64_t(DmaOp::kPut));
    put(command, InlinePut::remote_offset, names.remote_offset);
  }
  if (t.length != 0) std::memcpy(command + head, t.inline_bytes, t.length);
}

void TransferWriter::write_inline_amo(CommandRing &ring, const Transfer &t,
                                      const TransferNames &names) {
  uint64_t operand[2] = {};
  std::memcpy(operand, t.inline_bytes, std::min<size_t>(t.length, sizeof operand));
  const bool is_small = is_small_amo(t);
  uint8_t *const command = ring.add(is_small ? CommandSize::k32 : CommandSize::k64);
  put(command, CommandHead::kind, uint64_t(CommandKind::kInline));
  put(command, CommandHead::op, uint64_t(t.op));
  put(command, InlinePut::address, address_of(t));
  put(command, InlinePut::remote_offset, names.remote_offset);
  if (is_small) {
    put(command, InlinePut::bytes, SmallAmo::kBytes);
    put(command, SmallAmo::amo_op, uint64_t(amo_op_of(t, names)));
    put(command, SmallAmo::amo_type, uint64_t(t.amo_type));
    put(command, SmallAmo::operand, operand[0]);
    return;
  }
  put(command, InlinePut::bytes, InlineAmo::kBytes);
  put(command, InlineAmo::result, names.result);
  put(command, InlineAmo::amo_op, uint64_t(amo_op_of(t, names)));
  put(command, InlineAmo::amo_type, uint64_t(t.amo_type));
  put(command, InlineAmo::cswap, uint64_t(t.cswap));
  put(command, InlineAmo::operand_low, operand[0]);
  put(command, InlineAmo::operand_high, operand[1]);
  put(command, InlineAmo::operand2_low, t.operand2[0]);
  put(command, InlineAmo::operand2_high, t.operand2[1]);
}

void write_dma(uint8_t *command, const Transfer &t, const TransferNames &names) {
  put(command, CommandHead::kind, uint64_t(CommandKind::kDma));
  put(command, CommandHead::size, uint64_t(is_amo(t.op) ? CommandSize::k128 : CommandSize::k64));
  put(command, CommandHead::op, uint64_t(t.op));
  put_flags<Dma>(command, t, names);
  put(command, Dma::lac, names.lac);
  put(command, Dma::address, address_of(t));
  put(command, Dma::remote_offset, names.remote_offset);
  put(command, Dma::local, names.local);
  put(command, Dma::length, t.length);
  if (is_amo(t.op)) {
    put(command, DmaAmo::initiator, t.initiator);
    put(command, DmaAmo::match_bits, t.match_bits);
    put(command, DmaAmo::header_data, t.header_data);
    put(command, DmaAmo::user_ptr, t.user_ptr);
    put(command, DmaAmo::result, names.result);
    put(command, DmaAmo::write_lac, names.result_lac);
    put(command, DmaAmo::amo_op, uint64_t(amo_op_of(t, names)));
    put(command, DmaAmo::amo_type, uint64_t(t.amo_type));
    put(command, DmaAmo::cswap, uint64_t(t.cswap));
    put(command, DmaAmo::operand2_low, t.operand2[0]);
    put(command, DmaAmo::operand2_high, t.operand2[1]);
    return;
  }
  put(command, FullDma::initiator, t.initiator);
  put(command, FullDma::match_bits, t.match_bits);
  put(command, FullDma::header_data, t.header_data);
  put(command, FullDma::user_ptr, t.user_ptr);
  if (t.op != Op::kRendezvousPut) return;
  put(command, FullDma::eager_length, std::min(t.eager_length, t.length));
  put(command, FullDma::rendezvous_id, t.rendezvous_id);
  put(command, FullDma::offset_for_get, 1);  // the target reads on from the remote offset
}

void write_append(uint8_t *command, List list, const Entry &entry, const EntryNames &names) {
  using T = TargetCommand;
  put(command, T::kind, uint64_t(CommandKind::kQueue));
  put(command, T::op, uint64_t(TargetOp::kAppend));
  put(command, T::list, uint64_t(list));
  put(command, T::portal, names.portal);
  put(command, T::ct_bytes, entry.counts_bytes);
  put(command, T::ct_overflow, entry.counts_overflow);
  put(command, T::ct_comm, entry.counter != nullptr);
  put(command, T::unlink_disable, entry.unlink_disable);
  put(command, T::success_disable, entry.success_disable);
  put(command, T::comm_disable, entry.comm_disable);
  put(command, T::link_disable, entry.link_disable);
  put(command, T::unexpected_disable, entry.unexpected_header_disable);
  put(command, T::use_once, entry.use_once);
  put(command, T::no_truncate, entry.no_truncate);
  put(command, T::manage_local, entry.manage_local);
  put(command, T::op_get, entry.op_get);
  put(command, T::op_put, entry.op_put);
  put(command, T::ct, names.ct);
  put(command, T::buffer_id, entry.buffer_id);
  put(command, T::lac, names.lac);
  put(command, T::restart, entry.restart_sequence);
  put(command, T::start, names.start);
  put(command, T::length, std::min(names.length, T::length.max()));
  // Rounded up: an entry may end a little early, and never late.
  const uint64_t unit = uint64_t{1} << names.min_free_shift;
  put(command, T::min_free, std::min((entry.min_free + unit - 1) / unit, T::min_free.max()));
  put(command, T::match_id, entry.match_id);
  put(command, T::match_bits, entry.match_bits);
  put(command, T::ignore_bits, entry.ignore_bits);
}

}  // namespace weft::cxi
