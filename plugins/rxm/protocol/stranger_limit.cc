// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/stranger_limit.h"

#include <weft/sdk/peer/crowd.h>

#include <algorithm>
#include <utility>

namespace weft::rxm {

namespace {

constexpr uint64_t kSilenceNs = 1'000'000'000;  // then a silent stranger has to make room
// Times kSilenceNs, for one that has sent messages: what it is sending just then is lost.
constexpr int kPatientLooks = 10;

}  // namespace

// Counts, for each connection, how many looks in a row have found nothing new.
void StrangerLimit::look(uint64_t now) {
  if (now - looked_at_ < kSilenceNs) return;
  looked_at_ = now;
  for (Connection *c : peers_.connections()) {
    if (c == nullptr) continue;
    const uint64_t use = c->idleness.last_use();
    Silence &silence = c->silence;
    const bool useless = std::exchange(silence.seen_use_, use) == use;
    silence.looks_ = useless ? uint8_t(std::min(silence.looks_ + 1, kPatientLooks)) : 0;
  }
}

// Whether the connection of a stranger may be closed without asking it: nothing that it has sent
// waits for this side, and either it never sent a whole message, or it has been useless for long
// and cannot be asked to part, or does not answer.
bool StrangerLimit::is_silent(const Connection &c, uint64_t now) {
  if (!c.heard_) return now - c.started_at_ >= kSilenceNs;
  if (!c.answers.empty() || c.departed.count() != 0 || c.arriving.has_rendezvous() ||
      c.arriving.has_matchless())
    return false;
  const int looks = c.silence.seen_use_ == c.idleness.last_use() ? c.silence.looks_ : 0;
  if (!c.useful_) return looks >= 1;
  const bool cannot_be_asked =
      c.level_ == 0 || c.idleness.has_asked() || c.arriving.has_unfinished();
  return cannot_be_asked && looks >= kPatientLooks;
}

StrangerLimit::Leaver StrangerLimit::first_to_leave(uint64_t now) {
  look(now);
  const auto is_one = [](const Peer *p) {
    return p != nullptr && p->open_ != 0 && p->is_stranger();
  };
  sdk::Crowd of_silent;
  for (const Peer *p : peers_.all())
    if (is_one(p)) of_silent.add(p->address_);
  sdk::Crowd of_idle = of_silent;
  Leaver leaver;
  for (Peer *p : peers_.all()) {
    if (!is_one(p) || !p->queue_.empty()) continue;
    Connection *c = p->main_ != nullptr ? p->main_ : p->connections_;
    while (c->link_ == nullptr) c = c->next_;
    if (is_silent(*c, now)) {
      if (of_silent.goes_before(p->address_, c->idleness.last_use())) leaver.silent = p;
    } else if (c->may_part() && c->heard_ &&
               of_idle.goes_before(p->address_, c->idleness.last_use())) {
      leaver.idle = c;
    }
  }
  return leaver;
}

}  // namespace weft::rxm
