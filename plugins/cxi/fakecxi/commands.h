// SPDX-License-Identifier: BSD-2-Clause
// FakeCommandQueue: a command queue in the process's memory, whose commands the NIC in software
// executes when its doorbell rings.
//
// Example:
//    // As the backend for the hardware does with a queue that it has written.
//    inline void publish(FakeCommandQueue &queue, unsigned place) {
//      World::the().ring(queue.doorbell, place);
//    }
//
// Not for events: objects.h.
#ifndef WEFT_PLUGINS_CXI_FAKECXI_COMMANDS_H
#define WEFT_PLUGINS_CXI_FAKECXI_COMMANDS_H

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/cxi/fakecxi/objects.h"

namespace weft::cxi {

struct FakeCommandQueue final : abi::CommandQueue, Doorbell {
  FakeLni *lni = nullptr;
  // One of them, or none: then it is a target queue.
  std::unique_ptr<TransmitQueue> transmits;
  std::unique_ptr<TriggerQueue> triggers;

  int open(FakeLni &owner, const abi::CommandQueueOptions &options);  // 0 or -errno
  ~FakeCommandQueue();
  // ---- Doorbell ----
  void rung(uint64_t value) override;

 private:
  bool execute(const uint8_t *command);  // false: not now
  void on_inline(const uint8_t *command);
  void on_dma(const uint8_t *command);
  bool on_counter(const uint8_t *command);
  bool on_trigger(const uint8_t *command, CounterOp op);
  void on_queue(const uint8_t *command);
  void on_target(const uint8_t *command);
  void on_append(const uint8_t *command, cxi::Portal &portal);
  void post(const Transfer &transfer);
  template <class Word>
  void take_flags(const uint8_t *word, Transfer &transfer) const;
  Transfer dma_of(const uint8_t *command) const;
  void take_amo_op(uint64_t op, Transfer &transfer) const;

  std::vector<uint8_t> memory_, page_;
  std::array<uint8_t, InlineState::kBytes> state_{};
  unsigned read_ = 8;  // the next slot of 32 bytes
};

}  // namespace weft::cxi

#endif
