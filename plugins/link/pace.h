// SPDX-License-Identifier: BSD-2-Clause
// Pace: how often the network is looked at while messages come through memory. A look at it costs a
// system call, about as much as a whole message of the other kind.
//
// Example (statements):
//    weft::link::Pace pace;
//    for (uint64_t local = 0, network = 0;;) {
//      if (pace.is_turn_of_network(local, network)) break;
//    }
//
// After something came through memory the network is left out, but for one look of kShare, until
// kShare looks have found nothing; if it has something, it is looked at each time again. By any
// thread, without a lock: where several look, one may be left out more or less. Not for threads
// that are about to sleep, which look at both.
#ifndef WEFT_PLUGINS_LINK_PACE_H
#define WEFT_PLUGINS_LINK_PACE_H

#include <atomic>
#include <cstdint>

namespace weft::link {

class Pace {
 public:
  static constexpr unsigned kShare = 32;

  // `local`, `network`: how many events there were of each until now.
  bool is_turn_of_network(uint64_t local, uint64_t network) {
    if (network != network_.load(std::memory_order_relaxed)) {
      network_.store(network, std::memory_order_relaxed);
      local_.store(local, std::memory_order_relaxed);
      left_.store(0, std::memory_order_relaxed);
      return true;
    }
    if (local != local_.load(std::memory_order_relaxed)) {
      local_.store(local, std::memory_order_relaxed);
      left_.store(kShare, std::memory_order_relaxed);
    }
    const unsigned left = left_.load(std::memory_order_relaxed);
    if (left == 0) return true;
    left_.store(left - 1, std::memory_order_relaxed);
    const unsigned skipped = skipped_.load(std::memory_order_relaxed) + 1;
    skipped_.store(skipped, std::memory_order_relaxed);
    return skipped % kShare == 0;
  }

 private:
  std::atomic<uint64_t> local_{0}, network_{0};
  std::atomic<unsigned> left_{0}, skipped_{0};
};

}  // namespace weft::link

#endif
