// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/command_ring.h"

#include <bit>
#include <cstring>

namespace weft::cxi {

CommandRing::CommandRing(const Library &library, const abi::CommandQueue &queue, Use use)
    : library_(library),
      slots_(queue.commands),
      doorbell_(queue.doorbell),
      count_(queue.size32),
      use_(use),
      write_(kFirst),
      told_(kFirst),
      read_(kFirst) {}

unsigned CommandRing::read_slot() const {
  static_assert(QueueStatus::read.bit == 0 && QueueStatus::read.width == 16);
  const auto *const status = reinterpret_cast<const uint16_t *>(slots_);
  return 2 * unsigned{__atomic_load_n(status, __ATOMIC_ACQUIRE)};
}

// A place of 64 bytes stays free: a full ring must not look empty.
unsigned CommandRing::free() const {
  const unsigned used = write_ >= read_ ? write_ - read_ : count_ - kFirst + write_ - read_;
  return count_ - kFirst - used - 2;
}

bool CommandRing::has_room() {
  if (free() >= kMost) return true;
  read_ = read_slot();
  return free() >= kMost;
}

void CommandRing::advance(unsigned slots) {
  write_ += slots;
  if (write_ >= count_) write_ = kFirst;
}

CommandSize CommandRing::size_of(size_t bytes) {
  if (bytes <= kSlot) return CommandSize::k32;
  return CommandSize(std::bit_width((bytes - 1) / kSlot));
}

uint8_t *CommandRing::add(CommandSize size) {
  const unsigned slots = 1u << unsigned(size);
  while (write_ % slots != 0) {
    uint8_t *const gap = slots_ + size_t{write_} * kSlot;
    std::memset(gap, 0, CommandHead::kBytes);
    if (use_ == Use::kTriggers) {  // which takes nothing shorter than 64 bytes
      put(gap, CommandHead::kind, uint64_t(CommandKind::kCounter));
      put(gap, CommandHead::size, uint64_t(CommandSize::k64));
    }
    advance(use_ == Use::kTriggers ? 2 : 1);
  }
  uint8_t *const command = slots_ + size_t{write_} * kSlot;
  std::memset(command, 0, size_t{slots} * kSlot);
  put(command, CommandHead::size, uint64_t(size));
  advance(slots);
  return command;
}

void CommandRing::ring() {
  if (write_ == told_) return;
  if (write_ % 2 != 0) add(CommandSize::k32);
  told_ = write_;
  library_.ring(doorbell_, write_ / 2);
}

}  // namespace weft::cxi
