// SPDX-License-Identifier: BSD-2-Clause
// LibcxiEventQueue: an event queue of the hardware, in memory of this process.
//
// Example:
//    inline Result<std::unique_ptr<EventQueue>> small_queue(LibcxiLni &lni) {
//      WEFT_TRY(std::unique_ptr<LibcxiEventQueue> queue,
//               LibcxiEventQueue::open(lni, {.places = 64}));
//      return queue;
//    }
//
// The hardware counts in blocks of 64 bytes, of which an event has one or a part; the ring has
// whole pages, so there is more room than was asked for. Not for what events mean.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_EVENT_QUEUE_H
#define WEFT_PLUGINS_CXI_LIBCXI_EVENT_QUEUE_H

#include <weft/sdk/progress/unique_fd.h>

#include <memory>
#include <optional>
#include <vector>

#include "plugins/cxi/libcxi/event_bytes.h"
#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class LibcxiLni;

class LibcxiEventQueue final : public EventQueue {
 public:
  // What the hardware can keep free of peers' messages.
  static constexpr size_t kMaxReserved = (1 << 14) - 1;

  static Result<std::unique_ptr<LibcxiEventQueue>> open(LibcxiLni &lni,
                                                        const EventQueueOptions &options);
  ~LibcxiEventQueue() override;

  abi::EventQueue *handle() const { return queue_; }
  uint16_t number() const { return uint16_t(queue_->number); }

  // ---- EventQueue ----
  const Event *peek(size_t skip) override;
  void ack(size_t count) override;
  bool has_dropped() const override { return bytes_->has_dropped(); }
  bool take_saturation() override { return bytes_->take_crossing(); }
  bool reserve(size_t places) override;
  void unreserve(size_t places) override;
  int wait_fd() const override { return waits_.get(); }
  bool arm() override;

 private:
  struct Decoded {
    Event event;
    size_t end;  // in the ring
  };
  explicit LibcxiEventQueue(LibcxiLni &lni) : lni_(lni) {}
  Result<void> make_ring(const EventQueueOptions &options);
  Result<void> make_wait();
  bool decode_next();

  LibcxiLni &lni_;
  void *memory_ = nullptr;
  size_t length_ = 0;
  abi::Mapping *mapping_ = nullptr;
  abi::WaitObject *wait_ = nullptr;
  sdk::UniqueFd waits_;  // readable where the wait object says so in its own way
  abi::EventQueue *queue_ = nullptr;
  std::optional<EventBytes> bytes_;
  std::vector<Decoded> decoded_;  // from `first_` on: not acknowledged
  size_t first_ = 0;
};

}  // namespace weft::cxi

#endif
