// SPDX-License-Identifier: BSD-2-Clause
// Turn: how often threads read in vain before they leave their processor to others.
//
// Example (statements):
//    weft::sdk::Turn turn(128);
//    const bool found = false;  // a read has found something
//    if (turn.is_over(found)) turn.gave_way(1'500);  // after sched_yield(), which took as many ns
//
// It begins with turns of the most reads. Where others want the processor and soon give it back,
// they wait, too: one of them may be the peer that has to answer, and what this thread reads
// meanwhile is in vain. So turns become shorter. A thread that is alone gets longer ones, because
// each yield costs something. Turns are the longest at once where a yield is no help: what the
// thread waits for came while it had the processor, so the peer has another one; the thread does
// not wait, because it starts transfers between reads; or somebody kept the processor for a time
// slice, so it computes.
//
// It has no clock. By any thread, without a lock: where several read at once, a turn may have a few
// reads more or less.
#ifndef WEFT_SDK_PROGRESS_TURN_H
#define WEFT_SDK_PROGRESS_TURN_H

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace weft::sdk {

class Turn {
 public:
  // The most reads of a turn. 0: it is never over.
  explicit Turn(unsigned most) { set(most); }
  // Before anybody reads.
  void set(unsigned most) {
    most_ = most;
    length_.store(most != 0 ? most : kNever, std::memory_order_relaxed);
  }
  unsigned most() const { return most_; }
  unsigned least() const { return (most_ + kShare - 1) / kShare; }
  // What is found after fewer reads, the yield before may have brought.
  unsigned soon() const { return std::max(least() / 2, 1u); }

  static constexpr unsigned kShare = 16;  // a turn is not shorter than this part of the longest
  static constexpr uint64_t kSwitchNs = 1'000;   // a yield that took less gave way to nobody
  static constexpr uint64_t kSliceNs = 500'000;  // one that took more, to who does not yield

  // After each read. True: the thread yields, when it holds no lock.
  bool is_over(bool found) {
    const unsigned empty = empty_.load(std::memory_order_relaxed);
    if (found) {
      if (empty != 0) empty_.store(0, std::memory_order_relaxed);
      if (empty >= soon()) lengthen();
      return false;
    }
    const bool over = empty + 1 >= length_.load(std::memory_order_relaxed);
    empty_.store(over ? 0 : empty + 1, std::memory_order_relaxed);
    return over;
  }
  // The application started a transfer.
  void works() {
    if (empty_.load(std::memory_order_relaxed) >= soon()) lengthen();
  }
  // The yield after a turn took `ns`.
  void gave_way(uint64_t ns) {
    const unsigned length = length_.load(std::memory_order_relaxed);
    if (length == kNever) return;
    const unsigned next = ns < kSwitchNs  ? std::min(2 * length, most_)
                          : ns < kSliceNs ? std::max(length / 2, least())
                                          : most_;
    if (next != length) length_.store(next, std::memory_order_relaxed);
  }

 private:
  static constexpr unsigned kNever = ~0u;
  void lengthen() {
    if (most_ != 0) length_.store(most_, std::memory_order_relaxed);
  }
  unsigned most_ = 0;
  std::atomic<unsigned> length_{kNever}, empty_{0};
};

}  // namespace weft::sdk

#endif
