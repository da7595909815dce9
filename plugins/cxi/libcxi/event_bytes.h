// SPDX-License-Identifier: BSD-2-Clause
// EventBytes: the ring of bytes in which the hardware writes events, as its process reads it.
//
// Example:
//    // How many events have come. Their places are the NIC's again.
//    inline size_t drain(EventBytes &events) {
//      size_t count = 0;
//      while (events.next() != nullptr) ++count;
//      events.acknowledge(events.position());
//      return count;
//    }
//
// An event is there when its last byte has a return code; what was read is cleared before the NIC
// hears of it. One thread at a time. Not for what an event says: decode.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_EVENT_BYTES_H
#define WEFT_PLUGINS_CXI_LIBCXI_EVENT_BYTES_H

#include <cstdint>

#include "plugins/cxi/libcxi/library.h"
#include "plugins/cxi/libcxi/words.h"

namespace weft::cxi {

class EventBytes {
 public:
  static constexpr size_t kBlock = 64;  // what the NIC counts in; the first has its status
  // Blocks that the NIC keeps free, and its status.
  static constexpr size_t kOwnBlocks = 2;

  EventBytes(const Library &library, abi::EventQueue &queue);

  // The next event, or null. The bytes are valid until they are acknowledged.
  const uint8_t *next();
  // Behind the last event that next() has returned.
  size_t position() const { return read_; }
  void acknowledge(size_t position);

  bool has_dropped() const;
  // The queue has crossed its fill level since the last call.
  bool take_crossing();
  // The next event makes the wait object readable, or none does.
  void set_interrupt(bool on);

 private:
  const uint8_t *at_read() const;
  void advance(size_t bytes);
  void tell();

  const Library &library_;
  uint8_t *const ring_;
  const size_t bytes_;
  uint64_t *const reader_;
  uint64_t told_ = 0;  // EventReader
  size_t read_ = kBlock, acknowledged_ = kBlock;
  uint64_t seen_ns_ = 0, seen_seconds_ = 0;
};

}  // namespace weft::cxi

#endif
