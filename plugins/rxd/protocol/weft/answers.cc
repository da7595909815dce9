// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/answers.h"

#include <algorithm>

#include "plugins/rxd/protocol/device_copies.h"

namespace weft::rxd {

bool Answers::done(uint32_t id, uint16_t status, bool counts) {
  Answer *a = add(Answer::Kind::kDone, id, counts);
  if (a == nullptr) return false;
  a->status = status;
  return true;
}

Answer *Answers::add(Answer::Kind kind, uint32_t id, bool counts) {
  Answer *a = link_.pools.answers.take();
  if (a == nullptr) {
    link_.no_memory("no memory for an answer");
    return nullptr;
  }
  a->kind = kind;
  a->failed = false;
  a->count = 0;
  a->status = 0;
  a->id = id;
  a->packets = 0;
  a->length = a->sent = 0;
  a->result = nullptr;
  a->counts = counts;
  if (counts) ++owed_;
  link_.want_room();
  (kind == Answer::Kind::kRead ? reads_ : short_).append(*a);
  return a;
}

void Answers::free(Answer &a) {
  if (a.result != nullptr) link_.pools.results.give(a.result);
  a.result = nullptr;
  link_.pools.answers.give(&a);
}

// ---- output ----

void Answers::add(wire::Writer &w) {
  while (Answer *a = short_.first) {
    if (a->kind == Answer::Kind::kResult) {
      if (w.room() < wire::kResultFrameSize + a->length) return;
      w.result({.status = a->status, .id = a->id}, a->length);
      if (a->length != 0) w.payload({a->result->bytes, size_t(a->length)});
    } else if (!w.done({.status = a->status, .id = a->id})) {
      return;
    }
    short_.pop();
    if (a->counts) --owed_;
    free(*a);
  }
}

void Answers::drop_failed() {
  while (reads_.first != nullptr && reads_.first->failed) {
    Answer *a = reads_.first;
    reads_.pop();
    a->sent = a->length;
    --owed_;
    if (a->packets == 0) free(*a);
  }
}

bool Answers::add_data(OutPacket &p, wire::Writer &w, uint64_t most) {
  Answer &a = *reads_.first;
  const uint64_t n = std::min(most, a.length - a.sent);
  if (w.size() != 0 && n < a.length - a.sent && most < kWorthwhile) return false;
  p.last = uint16_t(w.size());
  w.data({.answers = true, .id = a.id, .offset = a.sent}, n);
  p.answer = &a;
  p.offset = a.sent;
  p.length = uint32_t(n);
  ++a.packets;
  a.sent += n;
  reads_.pop();
  if (a.sent == a.length) {
    --owed_;
  } else {
    reads_.append(a);  // several take turns
  }
  return true;
}

void Answers::refuse(OutPacket &p, uint16_t status) {
  Answer &a = *p.answer;
  wire::Writer w({p.bytes + OutPacket::kHead + p.last, wire::kDataFrameSize});
  w.done({.status = status, .id = a.id});
  p.used = uint16_t(p.last + w.size());
  p.length = 0;
  a.failed = true;
  if (a.ahead != nullptr) link_.copies()->end(a.ahead);
  release(p);
  p.answer = nullptr;
}

// ---- the end ----

void Answers::end_copies() {
  for (Answer *a = reads_.first; a != nullptr; a = a->next) link_.copies()->end(a->ahead);
}

void Answers::clear() {
  for (List *list : {&short_, &reads_})
    while (Answer *a = list->first) {
      list->pop();
      free(*a);
    }
}

}  // namespace weft::rxd
