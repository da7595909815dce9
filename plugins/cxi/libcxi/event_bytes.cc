// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/event_bytes.h"

#include <cstring>

namespace weft::cxi {

EventBytes::EventBytes(const Library &library, abi::EventQueue &queue)
    : library_(library), ring_(queue.events), bytes_(queue.bytes), reader_(queue.state_address) {
  put(&told_, EventReader::interrupt_off, 1);
}

const uint8_t *EventBytes::at_read() const {
  const uint8_t *const event = ring_ + read_;
  // The size is in the same byte of all events, and may be there before the rest.
  const uint8_t byte = __atomic_load_n(event + EventHead::kSizeByte, __ATOMIC_RELAXED);
  const size_t size = byte & 3;
  if (size == 0) return nullptr;
  const uint8_t last = __atomic_load_n(event + bytes_of(EventSize(size)) - 1, __ATOMIC_ACQUIRE);
  return (last & EventHead::kRcMask) != 0 ? event : nullptr;
}

void EventBytes::advance(size_t bytes) {
  read_ += bytes;
  if (read_ >= bytes_) read_ = kBlock;
}

const uint8_t *EventBytes::next() {
  while (const uint8_t *const event = at_read()) {
    advance(bytes_of(EventSize(get(event, EventHead::size))));
    const uint64_t type = get(event, EventHead::type);
    if (type != kNullEvent && type != kTimestampEvent) return event;
  }
  return nullptr;
}

void EventBytes::acknowledge(size_t position) {
  if (position < acknowledged_) {
    std::memset(ring_ + acknowledged_, 0, bytes_ - acknowledged_);
    acknowledged_ = kBlock;
  }
  std::memset(ring_ + acknowledged_, 0, position - acknowledged_);
  acknowledged_ = position;
  tell();
}

void EventBytes::tell() {
  put(&told_, EventReader::read, acknowledged_ / kBlock);
  library_.ring(reader_, told_);
}

void EventBytes::set_interrupt(bool on) {
  put(&told_, EventReader::interrupt_off, on ? 0 : 1);
  tell();
}

bool EventBytes::has_dropped() const {
  constexpr size_t kByte = EventStatus::dropped.bit / 8;
  return (__atomic_load_n(ring_ + kByte, __ATOMIC_RELAXED) & 1) != 0;
}

// The NIC has written a whole status where both copies of the time agree.
bool EventBytes::take_crossing() {
  uint8_t status[EventStatus::kBytes];
  for (size_t i = 0; i != sizeof status; i += sizeof(uint64_t)) {
    const uint64_t part =
        __atomic_load_n(reinterpret_cast<const uint64_t *>(ring_ + i), __ATOMIC_ACQUIRE);
    std::memcpy(status + i, &part, sizeof part);
  }
  const uint64_t ns = get(status, EventStatus::ns), seconds = get(status, EventStatus::seconds);
  if (ns != get(status, EventStatus::ns_copy) ||
      seconds != get(status, EventStatus::seconds_copy) ||
      (ns == seen_ns_ && seconds == seen_seconds_))
    return false;
  seen_ns_ = ns;
  seen_seconds_ = seconds;
  return get(status, EventStatus::crossed) != 0;
}

}  // namespace weft::cxi
