// SPDX-License-Identifier: BSD-2-Clause
// How far apart two CPUs are: the time that a cache line takes from one to the other and back.
//
// The host of a virtual machine moves its CPUs. Two CPUs that were threads of one core a second ago
// may be in different sockets now, and their exchanges take several times as long. The guest cannot
// see that, so both sides of --local measure it, before and after each size.
//
// Example (statements):
//     SharedLine line;                 // the other side: SharedLine(Fd(inherited)).answer(10.0)
//     const double ns = line.ask(10.0);
#ifndef WEFT_BENCH_DISTANCE_H
#define WEFT_BENCH_DISTANCE_H

#include <atomic>
#include <cstdint>

#include "control.h"

namespace weft::bench {

// One cache line in memory that two processes share.
class SharedLine {
 public:
  SharedLine();                    // makes the memory
  explicit SharedLine(Fd shared);  // the memory of an inherited fd()
  ~SharedLine();
  SharedLine(const SharedLine &) = delete;
  SharedLine &operator=(const SharedLine &) = delete;

  int fd() const { return fd_.get(); }

  // ask() returns the nanoseconds of an undisturbed round trip; the other side must be in answer().
  // Both throw an Error if the other side is silent for `seconds`.
  double ask(double seconds);
  void answer(double seconds);

 private:
  void map();
  void await(uint64_t value, uint64_t deadline_ns) const;

  Fd fd_;
  std::atomic<uint64_t> *ball_ = nullptr;  // odd: a question that waits for its answer
};

}  // namespace weft::bench

#endif
