// SPDX-License-Identifier: BSD-2-Clause
// Segmented messages that arrive.
#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

namespace {

constexpr size_t kMaxUnfinished = 64;  // segmented messages arriving at once on one connection

}  // namespace

bool Core::take_segment(Connection &c, const Packet &p, Buffer &buffer) {
  // A sender may reuse the id after the last segment, even if no receive has matched by then.
  RxMessage *m = c.unfinished_.first;
  while (m != nullptr && m->id != p.message) m = m->following;
  const bool first = p.segment == SegmentKind::kFirst;
  if (first != (m == nullptr)) {
    fail_peer(c, first ? "the first segment of a message twice" : "a segment without the first");
    return false;
  }
  bool kept = false;
  if (first) {
    // A correct peer sends all segments of a message before the next one, so it is far from this.
    if (c.unfinished_count_ == kMaxUnfinished) {
      fail_peer(c, "too many segmented messages at once");
      return false;
    }
    const sdk::Message message = message_of(c, p);
    m = new_message(c, RxMessage::Form::kSegments, message);
    if (m == nullptr) return false;
    ++c.unfinished_count_;
    m->id = p.message;
    m->tell = asked_of(c, p);
    m->receive = upper_.receiver().match(message);
    if (m->receive == nullptr) {
      counters_.saved.add_alone();
      upper_.receiver().save(*m);
    }
  } else if (p.segment_number != m->next_segment || p.size != m->message.length) {
    fail_peer(c, "a segment out of order");
    return false;
  }
  if (p.payload.size() > m->message.length - m->received ||
      (p.segment == SegmentKind::kLast) != (m->received + p.payload.size() == m->message.length)) {
    fail_peer(c, "segments that do not add up to the length of their message");
    return false;
  }
  if (m->receive != nullptr) {
    place(*m, m->received, p.payload);
  } else if (!m->discarded) {
    kept = keep(c, *m, p.payload, buffer);
  }
  m->received += p.payload.size();
  ++m->next_segment;
  if (p.segment != SegmentKind::kLast) {
    if (m->waits_for_bytes()) upper_.receiver().on_more(*m);
    return kept;
  }
  if (m->receive != nullptr) {
    finish(*m, m->err);
  } else if (m->discarded) {
    const bool awaited = m->tell != Tell::kNothing;
    free_message(*m);
    if (awaited) tell(&c, p.message);
  } else {
    unlist(*m);
    tell_saved(c, *m);
    if (m->waits_for_bytes()) upper_.receiver().on_more(*m);
  }
  return kept;
}

}  // namespace weft::rxm
