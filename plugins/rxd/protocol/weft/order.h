// SPDX-License-Identifier: BSD-2-Clause
// Order: when packets of a weft peer are processed. It knows which operations of the peer have
// begun here, and keeps the packets that must wait: because packets before them are missing, or
// because the application does not read its completions (docs/rxd-protocol.md, section 5).
//
// Example:
//    // A packet that is the next one, or not. False: it counts as lost.
//    inline bool on_packet(Link &link, Order &order, const wire::Packet &packet, uint64_t number,
//                          std::span<const uint8_t> bytes, Buffer &buffer,
//                          const Order::Process &process) {
//      if (order.has_begun(packet)) return process(packet, Order::Frames::kAll);
//      return order.keep(link, number, bytes, buffer, /*answered=*/false);
//    }
//
// Not for acknowledgements: a packet that is kept has arrived.
#ifndef WEFT_PLUGINS_RXD_PROTOCOL_WEFT_ORDER_H
#define WEFT_PLUGINS_RXD_PROTOCOL_WEFT_ORDER_H

#include <cstdint>
#include <functional>
#include <span>

#include "plugins/rxd/protocol/weft/link.h"

namespace weft::rxd {

class Order {
 public:
  Order() = default;
  Order(const Order &) = delete;
  Order &operator=(const Order &) = delete;

  // Which frames of a packet are processed. Answers can be before the others.
  enum class Frames : uint8_t { kAll, kAnswers, kOthers };
  // Processes a packet. False: the conversation is over.
  using Process = std::function<bool(const wire::Packet &packet, Frames which)>;
  static bool is_answer(const wire::FrameReader &frames);
  // Whether the packet may cause a completion here: of a receive, or of a write with data.
  static bool reports(const wire::Packet &packet);

  // The next operation of the peer begins. False: it is another one.
  bool begin(uint32_t id) {
    if (id != next_id_) return false;
    ++next_id_;
    return true;
  }
  // Whether all operations of the peer that the packet's data frames name have begun here.
  bool has_begun(const wire::Packet &packet) const;

  // ---- packets that wait ----
  bool empty() const { return kept_ == nullptr; }
  // Whether packets wait until the application reads its completions.
  bool is_stalled() const { return stalled_; }
  void stall() { stalled_ = true; }
  // Keeps the packet. False: there is no room. `answered`: its answers are processed by the caller.
  bool keep(Link &link, uint64_t number, std::span<const uint8_t> bytes, Buffer &buffer,
            bool answered);
  // Processes what need not wait any more.
  void take(Link &link, const Process &process);
  void clear(Link &link);

 private:
  static constexpr uint32_t kMaxKept = 256;

  Kept *kept_ = nullptr;  // in the order of their numbers
  uint32_t count_ = 0;
  uint32_t next_id_ = 0;  // of the peer's operations
  bool stalled_ = false;
};

}  // namespace weft::rxd

#endif
