// SPDX-License-Identifier: BSD-2-Clause
// Simulated time for tests: a clock that moves from event to event.
//
// Example (statements):
//    TestTime time(1'000'000'000);
//    bool arrived = false;
//    time.after(15'000, [&] { arrived = true; });  // ns
//    bool in_time = time.run_until([&] { return arrived; }, 1'000'000);
//    in_time = in_time && time.now == 1'000'015'000;
//
// Events at the same time happen in the order in which they were made. Not thread-safe.
#ifndef WEFT_PLUGIN_API_SDK_TEST_TIME_H
#define WEFT_PLUGIN_API_SDK_TEST_TIME_H

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace weft::sdk {

// In nanoseconds.
inline constexpr uint64_t kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;

class TestTime {
 public:
  explicit TestTime(uint64_t begin) : now(begin) {}

  void after(uint64_t delay, std::function<void()> run) {
    events_.push({now + delay, ++numbers_, std::move(run)});
  }
  // Runs the next event. Returns false if there is none.
  bool step() {
    if (events_.empty()) return false;
    Event event = std::move(const_cast<Event &>(events_.top()));
    events_.pop();
    now = std::max(now, event.at);
    event.run();
    return true;
  }
  // The time of the next event; UINT64_MAX if there is none.
  uint64_t next() const { return events_.empty() ? UINT64_MAX : events_.top().at; }
  // Runs events until `over` holds. Returns false if it does not hold within `most` ns. The clock
  // stops at the last event.
  template <class F>
  bool run_until(F over, uint64_t most) {
    const uint64_t end = now + most;
    while (!over()) {
      if (events_.empty() || next() > end) return false;
      step();
    }
    return true;
  }
  // Runs all events of the next `time` ns. The clock stops at the end of that time.
  void run_for(uint64_t time) {
    const uint64_t end = now + time;
    run_until([] { return false; }, time);
    now = end;
  }

  uint64_t now;  // ns; a test may advance it

 private:
  struct Event {
    uint64_t at, number;
    std::function<void()> run;
    bool operator>(const Event &o) const { return at != o.at ? at > o.at : number > o.number; }
  };
  uint64_t numbers_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace weft::sdk

#endif
