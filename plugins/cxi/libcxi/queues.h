// SPDX-License-Identifier: BSD-2-Clause
// The transmit queues of a Cassini: transfers in order, and commands that counters fire.
//
// Example:
//    inline Result<std::unique_ptr<LibcxiTransmitQueue>> open_queue(LibcxiLni &lni, Vni vni) {
//      return LibcxiTransmitQueue::open(lni, 64, {.vni = vni});
//    }
//
// Not for how a transfer is written: encode.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_QUEUES_H
#define WEFT_PLUGINS_CXI_LIBCXI_QUEUES_H

#include <memory>
#include <mutex>

#include "plugins/cxi/libcxi/encode.h"
#include "plugins/cxi/libcxi/lni.h"

namespace weft::cxi {

class LibcxiTransmitQueue final : public TransmitQueue {
 public:
  static Result<std::unique_ptr<LibcxiTransmitQueue>> open(LibcxiLni &lni, size_t depth,
                                                           const Profile &profile);

  // ---- TransmitQueue ----
  int post(const Transfer &transfer) override;
  int fence() override;
  Result<void> set_profile(const Profile &profile) override;
  void flush() override;

 private:
  explicit LibcxiTransmitQueue(LibcxiLni &lni) : lni_(lni) {}
  uint8_t *add_queue_command(QueueOp op, CommandSize aligned);

  LibcxiLni &lni_;
  std::mutex mutex_;
  std::unique_ptr<HardwareQueue> queue_;
  TransferWriter writer_;
};

class LibcxiTriggerQueue final : public TriggerQueue {
 public:
  static Result<std::unique_ptr<LibcxiTriggerQueue>> open(LibcxiLni &lni, const Profile &profile);

  // ---- TriggerQueue ----
  int post(const Trigger &trigger) override;
  size_t pending() const override;

 private:
  explicit LibcxiTriggerQueue(LibcxiLni &lni) : lni_(lni) {}
  bool take_one();
  int add(const Trigger &trigger, unsigned places);

  LibcxiLni &lni_;
  mutable std::mutex mutex_;
  std::unique_ptr<HardwareQueue> queue_;
  size_t budget_ = 0;  // commands that go without asking how many the service has left
};

}  // namespace weft::cxi

#endif
