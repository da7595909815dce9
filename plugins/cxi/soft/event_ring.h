// SPDX-License-Identifier: BSD-2-Clause
// EventRing: an event queue in memory. The engine writes it with its lock held, and the process
// reads it without.
//
// Example (statements):
//    EventRing ring({.places = 8, .reserved = 1});
//    ring.post({.type = EventType::kAck, .user_ptr = 7});
//    const uint64_t which = ring.peek(0)->user_ptr;
//    ring.ack(1);
//    const bool all_taken = ring.peek(0) == nullptr && which == 7;
//
// Not for what an event means.
#ifndef WEFT_PLUGINS_CXI_SOFT_EVENT_RING_H
#define WEFT_PLUGINS_CXI_SOFT_EVENT_RING_H

#include <weft/sdk/memory/lazy_array.h>
#include <weft/sdk/progress/unique_fd.h>

#include <atomic>

#include "plugins/cxi/nic/event.h"

namespace weft::cxi {

// Who hears of each event in place of a reader: what brings them to another ring.
class EventSink {
 public:
  // The engine's lock is held.
  virtual void on_event(const Event &event) = 0;
  virtual void on_lost() = 0;

 protected:
  ~EventSink() = default;
};

class EventRing : public EventQueue {
 public:
  // With `options.waits` it has a descriptor from the first wait_fd() on, unless the process has
  // none left.
  explicit EventRing(const EventQueueOptions &options);

  // ---- for the engine, with its lock held ----
  // Whether a message of a peer may make `events` events.
  bool has_room(size_t events) const { return free() >= reserved_ + held_ + events; }
  // Places for events that will come for certain.
  void hold(size_t events) { held_ += events; }
  void unhold(size_t events) { held_ -= events; }
  // Never fails: without a place the event is lost, and has_dropped().
  void post(const Event &event);
  // Before there are events.
  void set_sink(EventSink &sink) { sink_ = &sink; }

  // ---- EventQueue ----
  const Event *peek(size_t skip) override;
  void ack(size_t count) override;
  bool has_dropped() const override { return dropped_.load(std::memory_order_relaxed); }
  bool take_saturation() override {
    return saturated_.load(std::memory_order_relaxed) &&
           saturated_.exchange(false, std::memory_order_relaxed);
  }
  bool reserve(size_t places) override;
  void unreserve(size_t places) override { reserved_ -= places; }
  int wait_fd() const override;
  bool arm() override;

 private:
  size_t free() const {
    const uint64_t used =
        written_.load(std::memory_order_relaxed) - read_.load(std::memory_order_acquire);
    return size_t(capacity_ - used);
  }

  const size_t capacity_, limit_;
  size_t mask_;
  sdk::LazyArray<Event> ring_;  // of mask_ + 1 places
  std::atomic<size_t> reserved_;
  size_t held_ = 0;
  std::atomic<uint64_t> written_{0}, read_{0};
  std::atomic<bool> dropped_{false}, saturated_{false}, armed_{false};
  EventSink *sink_ = nullptr;
  const bool waits_;
  mutable sdk::UniqueFd wait_;  // made by the thread that reads; used when that has armed it
};

}  // namespace weft::cxi

#endif
