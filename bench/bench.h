// SPDX-License-Identifier: BSD-2-Clause
//
// What all parts of the benchmark share: errors, the clock, the description of one measurement, the
// message buffers, and the watch that ends a process that spins in vain.
//
// Example:
//     template <class Transport>
//     void await_one(Transport &transport, Watch &watch) {
//       watch.start("ping-pong", 30.0);  // transport.slow_check() calls watch.check_call()
//       spin_until(transport, [&] { return transport.received() == 1; });
//     }
//
// Not for use outside bench/: the benchmark shares no code with the library that it measures.
#ifndef WEFT_BENCH_BENCH_H
#define WEFT_BENCH_BENCH_H

#include <absl/strings/str_format.h>
#include <stdio.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::bench {

// Every failure of the benchmark; the text says what happened and what the user can do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Out of line: it stands in the loops that are timed.
template <class... Args>
[[noreturn, gnu::noinline, gnu::cold]] void fail(const absl::FormatSpec<Args...> &format,
                                                 const Args &...args) {
  throw Error(absl::StrFormat(format, args...));
}

inline uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// The exit status of a program whose main is `body`; a failure is told, and is 1.
template <class Body>
int run_program(const char *name, Body body) {
  try {
    return body();
  } catch (const std::exception &failure) {
    absl::FPrintF(stderr, "%s: %s\n", name, failure.what());
    return 1;
  }
}

// The middle one of `values`, of which there is at least one.
inline double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

enum class Test { kLat, kBw, kRate, kWriteLat, kWriteBw, kReadLat, kReadBw, kOverlap };

const char *test_name(Test test);
bool parse_test(const std::string &name, Test *test);
inline bool is_latency(Test t) {
  return t == Test::kLat || t == Test::kWriteLat || t == Test::kReadLat;
}
inline bool is_write(Test t) {
  return t == Test::kWriteLat || t == Test::kWriteBw;
}
inline bool is_read(Test t) {
  return t == Test::kReadLat || t == Test::kReadBw;
}

// What both sides must agree on before a measurement starts.
struct Spec {
  Test test = Test::kLat;
  size_t size = 0;
  // Messages of one window; 1 for the latency tests.
  uint32_t window = 1;
  // The receiver acknowledges every `ack_every` messages and the sender never runs more than
  // `window` messages ahead of the last acknowledgement. Equal to `window`: send all, wait once.
  uint32_t ack_every = 1;
  // Round trips, or windows.
  uint64_t iterations = 0;
  bool check = false;
  // Announce that more messages of the window follow (FI_MORE; one gathered write on the socket).
  bool more = false;
  bool inject = false;

  uint64_t messages() const { return iterations * window; }
};

// One message buffer. `data` is 64-byte aligned and has 64 writable bytes in front of it. The raw
// socket puts its header there, so that header and payload leave in one write.
struct Slot {
  void *context[8];  // The library's, while an operation is pending (struct fi_context2).
  char *data = nullptr;
  void *desc = nullptr;
  uint32_t expected = 0;  // Bytes of the message that a posted receive waits for.
  bool receive = false;
  bool busy = false;
};

// The buffers of one measurement: `tx` and `rx` message slots, plus small ones for
// acknowledgements. Both sides build the same geometry, so an offset in one arena is valid in the
// peer's.
class Arena {
 public:
  static constexpr uint32_t kControlSlots = 16;
  static constexpr uint32_t kControlSize = 8;

  explicit Arena(const Spec &spec);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  char *base() const { return base_; }
  size_t length() const { return length_; }
  uint32_t depth() const { return depth_; }
  bool fits(const Spec &spec) const;
  // Every slot idle, as it must be between two measurements.
  void reset();

  Slot &tx(uint64_t i) { return tx_[i % tx_.size()]; }
  Slot &rx(uint64_t i) { return rx_[i % rx_.size()]; }
  Slot &control_tx(uint64_t i) { return control_tx_[i % kControlSlots]; }
  Slot &control_rx(uint64_t i) { return control_rx_[i % kControlSlots]; }
  void for_each(void (*visit)(Slot &, void *), void *argument);

 private:
  size_t size_;
  uint32_t depth_;
  size_t length_ = 0;
  char *base_ = nullptr;
  std::vector<Slot> tx_, rx_, control_tx_, control_rx_;
};

// The pattern that the data check expects. It depends on the message's number and the byte's place,
// so the check sees a lost, repeated, torn or shifted message.
void fill_pattern(char *data, size_t size, uint64_t message);
// Number of bytes before the first wrong one; `size` if all are right.
size_t check_pattern(const char *data, size_t size, uint64_t message);
void expect_pattern(const char *data, size_t size, uint64_t message);

// Durations in nanoseconds of the iterations of one run.
class Samples {
 public:
  void reserve(size_t n) { ns_.reserve(n); }
  void add(uint64_t ns) { ns_.push_back(ns); }
  void clear() { ns_.clear(); }
  size_t count() const { return ns_.size(); }
  void sort();
  // After sort(); 0 <= fraction <= 1, nearest rank.
  uint64_t percentile(double fraction) const;
  double total() const;

 private:
  std::vector<uint64_t> ns_;
};

class Control;

// For loops that spin: a deadline, and a check that the peer is still there.
class Watch {
 public:
  explicit Watch(Control *control) : control_(control) {}
  void start(const char *what, double seconds);
  // Throws when the deadline has passed or the peer has died or reported an error.
  void check_call();
  void check_deadline() const;
  // After a failure of the transport: if the peer has died or has reported an error, throws that,
  // because it explains more. Waits up to 250 ms for it.
  void blame_peer();

 private:
  Control *control_;
  const char *what_ = "set-up";
  double seconds_ = 0;
  uint64_t deadline_ = 0;
};

// Polls `transport` until `done()`. Every 8192 polls it checks the deadline and the peer, too
// seldom to show in a percentile.
template <class Transport, class Done>
inline void spin_until(Transport &transport, Done done) {
  uint32_t polls = 0;
  while (!done()) {
    transport.progress();
    if (++polls == 8192) {
      polls = 0;
      transport.slow_check();
    }
  }
}

}  // namespace weft::bench

#endif  // WEFT_BENCH_BENCH_H
