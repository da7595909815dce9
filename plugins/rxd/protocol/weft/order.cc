// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/order.h"

#include <utility>

namespace weft::rxd {

bool Order::is_answer(const wire::FrameReader &frames) {
  switch (frames.kind()) {
    case wire::FrameKind::kPull:
    case wire::FrameKind::kDone:
    case wire::FrameKind::kResult:
      return true;
    case wire::FrameKind::kData:
      return frames.data().answers;
    default:
      return false;
  }
}

bool Order::reports(const wire::Packet &packet) {
  if (packet.header.has(wire::kFlagOrdered)) return true;
  wire::FrameReader frames(packet);
  while (frames.next())
    if (frames.kind() == wire::FrameKind::kData && !frames.data().answers) return true;
  return false;
}

bool Order::has_begun(const wire::Packet &packet) const {
  wire::FrameReader frames(packet);
  while (frames.next()) {
    if (frames.kind() == wire::FrameKind::kData && !frames.data().answers &&
        int32_t(frames.id() - next_id_) >= 0)
      return false;
  }
  return true;
}

bool Order::keep(Link &link, uint64_t number, std::span<const uint8_t> bytes, Buffer &buffer,
                 bool answered) {
  if (count_ == kMaxKept || link.core.carrier().buffers_low()) return false;
  Kept *k = link.pools.kept.take();
  if (k == nullptr) return false;
  k->number = number;
  k->bytes = bytes;
  k->buffer = &buffer;
  k->answered = answered;
  Kept **at = &kept_;
  while (*at != nullptr && (*at)->number < number) at = &(*at)->next;
  k->next = *at;
  *at = k;
  ++count_;
  return true;
}

void Order::take(Link &link, const Process &process) {
  stalled_ = false;
  for (Kept **at = &kept_; *at != nullptr;) {
    Kept *k = *at;
    // It was parsed when it came, so this cannot fail.
    const auto packet = wire::parse(k->bytes);
    const bool ordered = packet->header.has(wire::kFlagOrdered);
    const bool due = k->number < link.channel.next();
    if (ordered ? !due : !has_begun(*packet)) {
      if (due) {
        link.violated("data of an operation that was never begun");
        return;
      }
      at = &k->next;
      continue;
    }
    if (link.core.full() && reports(*packet)) {
      stalled_ = true;
      link.want_room();
      for (; k != nullptr; k = k->next)
        if (!std::exchange(k->answered, true) && !process(*wire::parse(k->bytes), Frames::kAnswers))
          return;
      return;
    }
    *at = k->next;
    --count_;
    const bool goes_on = process(*packet, k->answered ? Frames::kOthers : Frames::kAll);
    link.core.carrier().release(*k->buffer);
    link.pools.kept.give(k);
    if (!goes_on) return;
    if (ordered)
      at = &kept_;  // earlier kept packets may have waited for an operation that began here
  }
}

void Order::clear(Link &link) {
  while (Kept *k = kept_) {
    kept_ = k->next;
    link.core.carrier().release(*k->buffer);
    link.pools.kept.give(k);
  }
  count_ = 0;
}

}  // namespace weft::rxd
