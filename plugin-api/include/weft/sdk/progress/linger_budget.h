// SPDX-License-Identifier: BSD-2-Clause
// LingerBudget: how long fi_close of endpoints may wait for peers that do not answer:
// close_linger_ms of the provider or layer, for all endpoints of a domain together. A tenth of the
// time that passes is given back. Waiting for peers that answer costs nothing.
//
// Example:
//    #include <weft/sdk/progress/engine.h>
//    // In fi_close. `most`: close_linger_ms, in ns.
//    void wait(LingerBudget &budget, uint64_t most, bool (*is_answered)()) {
//      const uint64_t begin = now_ns(), end = budget.until(begin, most);
//      while (!is_answered() && now_ns() < end) {
//      }
//      if (!is_answered()) budget.spend(now_ns() - begin);
//    }
//
// One for each domain, with the engine's lock held. It does not wait itself.
#ifndef WEFT_SDK_PROGRESS_LINGER_BUDGET_H
#define WEFT_SDK_PROGRESS_LINGER_BUDGET_H

#include <algorithm>
#include <cstdint>

namespace weft::sdk {

class LingerBudget {
 public:
  // ns that may be waited now, `most` at first.
  uint64_t left(uint64_t now, uint64_t most) {
    if (looked_at_ == 0) left_ = most;
    left_ = std::min(most, left_ + (now - std::min(now, looked_at_)) / 10);
    looked_at_ = now;
    return left_;
  }
  // Until when may be waited. A peer gets some time to answer in any case.
  uint64_t until(uint64_t now, uint64_t most) {
    return now + std::max(left(now, most), std::min(kLeast, most));
  }
  void spend(uint64_t ns) { left_ -= std::min(left_, ns); }

 private:
  static constexpr uint64_t kLeast = 2'000'000;  // ns
  uint64_t left_ = 0, looked_at_ = 0;
};

}  // namespace weft::sdk

#endif
