// SPDX-License-Identifier: BSD-2-Clause
// What a process tells its NIC, as commands of the hardware.
//
// Example:
//    // A put from memory, which the NIC may read at once.
//    inline bool send(TransferWriter &writer, CommandRing &ring, const Transfer &put,
//                     const TransferNames &names) {
//      if (!ring.has_room()) return false;
//      writer.write(ring, put, names);
//      ring.ring();
//      return true;
//    }
//
// Short puts and atomics bring their bytes along, where the form of such a command has a place for
// all that the transfer says; else the NIC reads them from memory. Not for events: decode.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_ENCODE_H
#define WEFT_PLUGINS_CXI_LIBCXI_ENCODE_H

#include <array>
#include <cstdint>

#include "plugins/cxi/libcxi/command_ring.h"
#include "plugins/cxi/libcxi/words.h"
#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

// What the hardware calls that which a transfer names: 0 is none.
struct TransferNames {
  uint16_t ct = 0, eq = 0;
  uint8_t lac = 0, result_lac = 0;
  uint64_t local = 0, result = 0;  // addresses in their LAC
  uint64_t remote_offset = 0;
  AmoOp pcie_op = AmoOp::kSwap;  // that stands for the host's fetch-and-add
};

// Whether the bytes of a transfer come with its command.
bool is_inline(const Transfer &transfer);

class TransferWriter {
 public:
  // There is room in the ring.
  void write(CommandRing &ring, const Transfer &transfer, const TransferNames &names);

 private:
  void write_state(CommandRing &ring, const Transfer &transfer, const TransferNames &names);
  void write_inline_put(CommandRing &ring, const Transfer &transfer, const TransferNames &names);
  void write_inline_amo(CommandRing &ring, const Transfer &transfer, const TransferNames &names);

  // What the last inline commands had in common.
  std::array<uint8_t, InlineState::kBytes> state_{};
};

// A transfer as `command`, which reads its bytes from memory: FullDma, or DmaAmo of an atomic.
void write_dma(uint8_t *command, const Transfer &transfer, const TransferNames &names);

struct EntryNames {
  uint16_t portal = 0, ct = 0;
  uint8_t lac = 0;
  uint64_t start = 0, length = 0;
  unsigned min_free_shift = 0;
};
void write_append(uint8_t *command, List list, const Entry &entry, const EntryNames &names);

}  // namespace weft::cxi

#endif
