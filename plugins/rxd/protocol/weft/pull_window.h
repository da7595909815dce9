// SPDX-License-Identifier: BSD-2-Clause
// PullWindow: how far ahead of what has arrived a receiver asks for the data of long messages
// (docs/rxd-protocol.md, section 7). It is twice what came in the last round trip, and the messages
// that arrive at the same time share it.
//
// Example:
//    // Data of a message came. True: the sender is to be told the new limit.
//    inline bool on_data(PullWindow &window, uint64_t bytes, uint64_t arrived, uint64_t target,
//                        uint64_t &limit) {
//      window.arrived(bytes);
//      const uint64_t before = limit;
//      limit = window.limit(before, arrived, target, /*messages=*/1);
//      return limit != before;
//    }
//
// Times in ns. Not for how many packets the peer may have in flight, though share() says what the
// channel should allow.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_PULL_WINDOW_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_PULL_WINDOW_H

#include <algorithm>
#include <cstdint>

#include "plugins/rxd/protocol/channel.h"
#include "plugins/rxd/protocol/weft/credit.h"

namespace weft::rxd {

// The pull window, at least: bytes that are asked for beyond those that have arrived.
inline constexpr uint64_t kMinPullWindow = 256 << 10;

class PullWindow {
 public:
  // `datagram`: the size that is expected, until a larger one comes.
  explicit PullWindow(uint32_t datagram) : largest_(datagram) {}

  uint64_t bytes() const { return window_; }
  // A datagram came. True: it is the largest so far, and share() is another one.
  bool saw(size_t datagram) {
    if (datagram <= largest_) return false;
    largest_ = uint32_t(datagram);
    return true;
  }
  // A packet came that is processed now; `trip`: the round trip, 0 if it is not known.
  void on_packet(uint64_t now, uint64_t trip) {
    if (trip == 0 || now - epoch_at_ < trip) return;
    window_ = std::clamp(2 * came_, std::max(kMinPullWindow, kMinPackets * largest_), kMost);
    epoch_at_ = now;
    came_ = 0;
  }
  void arrived(uint64_t n) { came_ += n; }  // bytes of a message that has a receive

  // The limit for a message of which `asked` bytes were asked for, `arrived` have come, and
  // `target` are wanted, while so many messages arrive. `asked` again: a new one is not worth
  // while.
  uint64_t limit(uint64_t asked, uint64_t arrived, uint64_t target, uint32_t messages) const {
    const uint64_t ahead = std::max<uint64_t>(window_ / std::max(messages, 1U), kPrefix);
    const uint64_t limit = std::min(target, arrived + ahead);
    const bool is_little = limit <= asked || (limit - asked < ahead / 4 && limit != target);
    return is_little ? asked : limit;
  }
  // Packets that the peer may have in flight, if so many peers share the room in the socket.
  uint32_t share(uint64_t room, uint32_t peers) const {
    return uint32_t(std::min<uint64_t>(room / largest_ / std::max(peers, 1U), kWindow));
  }

 private:
  static constexpr uint64_t kMinPackets = 128;  // with fewer large ones both sides wait in turns
  static constexpr uint64_t kMost = 16 << 20;

  uint64_t window_ = kMinPullWindow;
  uint64_t epoch_at_ = 0, came_ = 0;  // since when it counts the bytes that come, and these
  uint32_t largest_;                  // bytes of the largest datagram that came
};

}  // namespace weft::rxd

#endif
