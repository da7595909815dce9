// SPDX-License-Identifier: BSD-2-Clause
// Credits: how many packets the peer of one connection has receives for, and how many of our
// receives it does not know of yet. Numbers alone.
//
// Example:
//    // A packet that the carrier takes with `send`. False: it has to wait.
//    inline bool give(Credits &credits, bool (*send)()) {
//      if (!credits.has_room() || !send()) return false;
//      credits.spend();
//      return true;
//    }
//
// Without flow control there is always room, and nothing is told. Not for who waits: sender.h.
#ifndef WEFT_PLUGINS_RXM_PROTOCOL_CREDITS_H
#define WEFT_PLUGINS_RXM_PROTOCOL_CREDITS_H

#include <algorithm>
#include <cstdint>

namespace weft::rxm {

class Credits {
 public:
  // Both sides use them, or not.
  void use(bool both) { used_ = both; }
  bool used() const { return used_; }

  // ---- of the peer ----
  // The last one is reserved for a packet that tells of our receives.
  bool has_room() const { return !used_ || left_ > kReserved; }
  void spend() {
    if (used_) --left_;
  }
  void grant(uint64_t count) { left_ += count; }

  // ---- of ours ----
  void repost(uint32_t count) {
    if (used_) untold_ += count;
  }
  // Whether the peer is to be told: of `receives`, half are there again.
  bool owes(uint32_t receives) const { return used_ && untold_ >= std::max(1u, receives / 2); }
  bool may_tell() const { return left_ != 0; }
  uint64_t untold() const { return untold_; }
  void told() {
    --left_;
    untold_ = 0;
  }

 private:
  static constexpr uint64_t kReserved = 1;

  bool used_ = false;
  uint64_t left_ = 1, untold_ = 0;
};

}  // namespace weft::rxm

#endif
