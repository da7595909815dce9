// SPDX-License-Identifier: BSD-2-Clause
// Kept packets: those that cannot be processed yet, because packets before them are missing or
// because the application does not read its completions.
#include <algorithm>
#include <utility>

#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

constexpr uint32_t kMaxKept = 256;  // packets that came too early

}  // namespace

// Whether the packet may cause a completion here: of a receive, or of a write with data.
bool WeftConversation::reports(const wire::Packet &packet) {
  if (packet.header.has(wire::kFlagOrdered)) return true;
  wire::FrameReader frames(packet);
  while (frames.next())
    if (frames.kind() == wire::FrameKind::kData && !frames.data().answers) return true;
  return false;
}

bool WeftConversation::keep(uint64_t number, std::span<const uint8_t> bytes, Buffer &buffer,
                            bool answered) {
  if (kept_count_ == kMaxKept || core_.carrier().buffers_low()) return false;
  Kept *k = pools_.kept.take();
  if (k == nullptr) return false;
  k->number = number;
  k->bytes = bytes;
  k->buffer = &buffer;
  k->answered = answered;
  Kept **at = &kept_;
  while (*at != nullptr && (*at)->number < number) at = &(*at)->next;
  k->next = *at;
  *at = k;
  ++kept_count_;
  return true;
}

void WeftConversation::take_kept() {
  stalled_ = false;
  for (Kept **at = &kept_; *at != nullptr;) {
    Kept *k = *at;
    // It was parsed when it came, so this cannot fail.
    const auto packet = wire::parse(k->bytes);
    const bool ordered = packet->header.has(wire::kFlagOrdered);
    const bool due = k->number < channel_.next();
    if (ordered ? !due : !begun_here(*packet)) {
      if (due) {
        fail("data of an operation that was never begun");
        return;
      }
      at = &k->next;
      continue;
    }
    if (core_.full() && reports(*packet)) {
      stalled_ = resumes_ = true;
      core_.want_room(peer_);
      for (; k != nullptr; k = k->next)
        if (!std::exchange(k->answered, true) && !process(*wire::parse(k->bytes), Frames::kAnswers))
          return;
      return;
    }
    *at = k->next;
    --kept_count_;
    const bool goes_on = process(*packet, k->answered ? Frames::kOthers : Frames::kAll);
    core_.carrier().release(*k->buffer);
    pools_.kept.give(k);
    if (!goes_on) return;
    if (ordered)
      at = &kept_;  // earlier kept packets may have waited for an operation that began here
  }
}

// The application may have read its completions: end what waits for copies, process kept packets.
void WeftConversation::resume() {
  if (core_.full()) return core_.want_room(peer_);
  resumes_ = false;
  const bool stalled = stalled_;
  if (stalled) take_kept();
  end_landings();
  end_settled();
  // The peer may wait for a new limit or for credit.
  if (stalled && !peer_.losing) send_acknowledgement(core_.carrier().now_ns());
}

}  // namespace weft::rxd
