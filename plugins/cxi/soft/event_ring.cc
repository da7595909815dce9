// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/event_ring.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <bit>
#include <new>

namespace weft::cxi {

EventRing::EventRing(const EventQueueOptions &options)
    : capacity_(std::max<size_t>(options.places, 2) - 1),
      limit_(capacity_ * std::clamp(options.fill_percent, 1u, 100u) / 100),
      mask_(std::bit_ceil(capacity_) - 1),
      ring_(sdk::make_lazy_array<Event>(mask_ + 1)),
      reserved_(std::min(options.reserved, capacity_)),
      waits_(options.waits) {
  if (ring_ == nullptr) throw std::bad_alloc();
}

int EventRing::wait_fd() const {
  if (waits_ && wait_.get() < 0) wait_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return wait_.get();
}

void EventRing::post(const Event &event) {
  const size_t room = free();
  if (room == 0) {
    dropped_.store(true, std::memory_order_relaxed);
    if (sink_ != nullptr) sink_->on_lost();
    return;
  }
  const uint64_t at = written_.load(std::memory_order_relaxed);
  ring_[at & mask_] = event;
  // Ordered before the look at `armed_`, as arm() orders its store before its look at the ring.
  written_.store(at + 1, std::memory_order_seq_cst);
  if (capacity_ - room + 1 >= limit_ && limit_ != capacity_)
    saturated_.store(true, std::memory_order_relaxed);
  if (sink_ != nullptr) sink_->on_event(event);
  if (armed_.load(std::memory_order_seq_cst) && armed_.exchange(false)) {
    eventfd_write(wait_.get(), 1);
  }
}

const Event *EventRing::peek(size_t skip) {
  const uint64_t at = read_.load(std::memory_order_relaxed) + skip;
  if (at >= written_.load(std::memory_order_acquire)) return nullptr;
  return &ring_[at & mask_];
}

void EventRing::ack(size_t count) {
  read_.store(read_.load(std::memory_order_relaxed) + count, std::memory_order_release);
}

bool EventRing::reserve(size_t places) {
  if (reserved_ + places >= capacity_) return false;
  reserved_ += places;
  return true;
}

bool EventRing::arm() {
  if (wait_fd() < 0) return false;
  eventfd_t count;
  eventfd_read(wait_.get(), &count);
  armed_.store(true, std::memory_order_seq_cst);
  if (read_.load(std::memory_order_relaxed) == written_.load(std::memory_order_seq_cst))
    return true;
  armed_.store(false, std::memory_order_relaxed);
  return false;
}

}  // namespace weft::cxi
