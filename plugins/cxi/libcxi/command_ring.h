// SPDX-License-Identifier: BSD-2-Clause
// CommandRing: a command queue of the hardware, as its process writes it: slots of 32 bytes, in
// which a command of 2^n slots begins at a multiple of its size.
//
// Example:
//    // What follows in the queue waits for all before it.
//    inline bool fence(CommandRing &ring) {
//      if (!ring.has_room()) return false;
//      uint8_t *const command = ring.add(CommandSize::k64);
//      put(command, CommandHead::kind, uint64_t(CommandKind::kQueue));
//      put(command, CommandHead::op, uint64_t(QueueOp::kFence));
//      ring.ring();  // the NIC may read it
//      return true;
//    }
//
// One thread at a time. Not for what commands say: encode.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_COMMAND_RING_H
#define WEFT_PLUGINS_CXI_LIBCXI_COMMAND_RING_H

#include <cstdint>

#include "plugins/cxi/libcxi/library.h"
#include "plugins/cxi/libcxi/words.h"

namespace weft::cxi {

class CommandRing {
 public:
  enum class Use : uint8_t { kTransmit, kTriggers, kTarget };
  static constexpr unsigned kSlot = 32, kFirst = 8;  // the NIC's own slots are in front
  // Slots that has_room() asks for: what one operation needs at most, with the gaps before it.
  static constexpr unsigned kMost = 24;

  CommandRing(const Library &library, const abi::CommandQueue &queue, Use use);

  // False: the NIC has to read some commands first.
  bool has_room();
  // A new command, zero but for its size, behind gaps where it must not begin yet. There is room.
  uint8_t *add(CommandSize size);
  // Bytes of an inline command, head and all, to its size.
  static CommandSize size_of(size_t bytes);
  // What was added is the NIC's.
  void ring();
  // Whether it has read all that was rung.
  bool is_drained() const { return read_slot() == told_; }

 private:
  unsigned read_slot() const;
  unsigned free() const;
  void advance(unsigned slots);

  const Library &library_;
  uint8_t *const slots_;
  uint64_t *const doorbell_;
  const unsigned count_;
  const Use use_;
  unsigned write_, told_, read_;
};

}  // namespace weft::cxi

#endif
