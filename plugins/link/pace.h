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
// After something came through memory the network is left out, but for one look of kLeastShare.
// Each of these looks that finds nothing halves how often there is one, down to one of kMostShare;
// so it is until kFruitless looks have found nothing through memory either. That is some
// microseconds, which a peer with a far core needs for its answer. If the network has
// something, it is looked at each time again. By any thread, without a lock: where several look,
// one may be left out more or less. Not for threads that are about to sleep, which look at both.
#ifndef WEFT_PLUGINS_LINK_PACE_H
#define WEFT_PLUGINS_LINK_PACE_H

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace weft::link {

class Pace {
 public:
  static constexpr unsigned kLeastShare = 32, kMostShare = 1024, kFruitless = 256;

  // `local`, `network`: how many events there were of each until now.
  bool is_turn_of_network(uint64_t local, uint64_t network) {
    if (network != network_.load(std::memory_order_relaxed)) [[unlikely]] {
      network_.store(network, std::memory_order_relaxed);
      local_.store(local, std::memory_order_relaxed);
      left_.store(0, std::memory_order_relaxed);
      share_.store(kLeastShare, std::memory_order_relaxed);
      return true;
    }
    unsigned left = left_.load(std::memory_order_relaxed);
    if (local != local_.load(std::memory_order_relaxed)) {
      local_.store(local, std::memory_order_relaxed);
      left = kFruitless;
    }
    if (left == 0) return true;
    left_.store(left - 1, std::memory_order_relaxed);
    const unsigned skipped = skipped_.load(std::memory_order_relaxed) + 1;
    const unsigned share = share_.load(std::memory_order_relaxed);
    skipped_.store(skipped < share ? skipped : 0, std::memory_order_relaxed);
    if (skipped < share) [[likely]]
      return false;
    share_.store(std::min(2 * share, kMostShare), std::memory_order_relaxed);
    return true;
  }

 private:
  std::atomic<uint64_t> local_{0}, network_{0};
  std::atomic<unsigned> left_{0}, skipped_{0}, share_{kLeastShare};
};

}  // namespace weft::link

#endif
