// SPDX-License-Identifier: BSD-2-Clause
// AnswerLimit: how many answers a second peers get that have not proven their address. An answer to
// a peer that then proves that it receives there does not count, so a crowd of honest peers is
// admitted at once. A peer can prove its address again and again, so these are limited too, at ten
// times the rate.
//
// Example (statements):
//    AnswerLimit limit(/*per_second=*/1000);
//    uint64_t now = 5'000'000'000;
//    bool answers = limit.allows(now);  // an RTS of anybody; then a challenge leaves
//    limit.on_proven();                 // a connect with that challenge's token
//
// Not for the number of peers (peer_table.h).
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_ANSWER_LIMIT_H
#define WEFT_PLUGINS_RXD_PROTOCOL_ANSWER_LIMIT_H

#include <cstdint>

namespace weft::rxd {

class AnswerLimit {
 public:
  static constexpr uint64_t kPeriodNs = 1'000'000'000;
  static constexpr uint32_t kMostProven = 10;  // limit of all answers, in multiples of the rate

  explicit AnswerLimit(uint32_t per_second) : rate_(per_second) {}

  // Whether one more answer may leave; it counts.
  bool allows(uint64_t now) {
    if (now - from_ >= kPeriodNs) {
      from_ = now;
      answers_ = proven_ = 0;
    }
    if (answers_ >= rate_ || answers_ + proven_ >= uint64_t{kMostProven} * rate_) return false;
    ++answers_;
    return true;
  }
  // A peer that was answered has proven its address.
  void on_proven() {
    if (answers_ == 0) return;
    --answers_;
    ++proven_;
  }

 private:
  const uint32_t rate_;
  uint64_t from_ = 0;     // begin of the second that is counted
  uint64_t answers_ = 0;  // to peers that have not proven their address
  uint64_t proven_ = 0;   // to peers that then proved it
};

}  // namespace weft::rxd

#endif
