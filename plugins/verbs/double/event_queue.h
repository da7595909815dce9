// SPDX-License-Identifier: BSD-2-Clause
// Events with a descriptor that is readable while there are any: completion channels, asynchronous
// events, event channels.
//
// Example (statements):
//    EventQueue<int> events;
//    events.push(7);                          // poll() finds events.fd() readable
//    const std::optional<int> first = events.pop();  // and not any more
//
// Every event writes to the descriptor, so edge-triggered epoll wakes up for each. It has no lock
// of its own: all calls need the lock of the world.
#ifndef WEFT_PLUGINS_VERBS_DOUBLE_EVENT_QUEUE_H
#define WEFT_PLUGINS_VERBS_DOUBLE_EVENT_QUEUE_H

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace weft::verbs_double {

template <class T>
class EventQueue {
 public:
  EventQueue() : fd_(eventfd(0, EFD_CLOEXEC)) {}
  ~EventQueue() {
    if (fd_ >= 0) close(fd_);
  }
  EventQueue(const EventQueue &) = delete;
  EventQueue &operator=(const EventQueue &) = delete;

  int fd() const { return fd_; }  // -1 if the process had no descriptor left

  void push(T event) {
    events_.push_back(std::move(event));
    const uint64_t one = 1;
    if (write(fd_, &one, sizeof one) < 0) return;  // only if 2^64 events were never read
  }

  std::optional<T> pop() {
    if (events_.empty()) return std::nullopt;
    std::optional<T> event(std::move(events_.front()));
    events_.pop_front();
    settle();
    return event;
  }

  // Takes out the events for which `picks` is true.
  template <class Picks>
  std::deque<T> take(Picks picks) {
    const auto kept = std::stable_partition(events_.begin(), events_.end(),
                                            [&](const T &event) { return !picks(event); });
    std::deque<T> taken(kept, events_.end());
    events_.erase(kept, events_.end());
    if (!taken.empty()) settle();
    return taken;
  }

  const std::deque<T> &events() const { return events_; }

 private:
  void settle() {
    uint64_t count;
    if (events_.empty() && read(fd_, &count, sizeof count) < 0) return;  // it never blocks here
  }

  int fd_;
  std::deque<T> events_;
};

}  // namespace weft::verbs_double

#endif
