// SPDX-License-Identifier: BSD-2-Clause
// Who makes room when the number of strangers is at its limit.
#include <rdma/fi_errno.h>
#include <weft/sdk/peer/crowd.h>

#include <algorithm>
#include <utility>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

namespace {

constexpr uint64_t kSilenceNs = 1'000'000'000;  // then a silent stranger has to make room
// Times kSilenceNs, for one that has sent messages: what it is sending just then is lost.
constexpr int kPatientLooks = 10;

}  // namespace

// Counts, for each connection, how many looks in a row have found nothing new.
void Core::look_at_strangers(uint64_t now) {
  if (now - looked_at_ < kSilenceNs) return;
  looked_at_ = now;
  for (Connection *c : peers_.connections()) {
    if (c == nullptr) continue;
    const bool useless = std::exchange(c->seen_use_, c->last_use_) == c->last_use_;
    c->useless_looks_ = useless ? uint8_t(std::min(c->useless_looks_ + 1, kPatientLooks)) : 0;
  }
}

// Whether the connection of a stranger may be closed without asking it: nothing that it has sent
// waits for this side, and either it never sent a whole message, or it has been useless for long and
// cannot be asked to part, or does not answer.
bool Core::is_silent(const Connection &c, uint64_t now) {
  if (!c.heard_) return now - c.started_at_ >= kSilenceNs;
  if (c.control_ != nullptr || c.flights_ != 0 || c.messages_.first != nullptr ||
      c.matchless_.first != nullptr)
    return false;
  const int looks = c.seen_use_ == c.last_use_ ? c.useless_looks_ : 0;
  if (!c.useful_) return looks >= 1;
  const bool cannot_be_asked = c.level_ == 0 || c.asked_ || c.unfinished_.first != nullptr;
  return cannot_be_asked && looks >= kPatientLooks;
}

bool Core::may_part(const Connection &c) {
  return c.state_ == State::kConnected && c.level_ != 0 && !c.waits() && !busy(c);
}

// Closes the connections of a silent one, or asks an idle one to part: then the result is false, and
// the new stranger has to retry. Which one: weft/sdk/peer/crowd.h.
bool Core::make_room() {
  const uint64_t now = carrier_.now_ns();
  look_at_strangers(now);
  const auto is_one = [](const Peer *p) {
    return p != nullptr && p->open_ != 0 && p->is_stranger();
  };
  sdk::Crowd of_silent;
  for (const Peer *p : peers_.all())
    if (is_one(p)) of_silent.add(p->address_);
  sdk::Crowd of_idle = of_silent;
  Peer *silent = nullptr;
  Connection *idle = nullptr;
  for (Peer *p : peers_.all()) {
    if (!is_one(p) || !p->queue_.empty()) continue;
    Connection *c = p->main_ != nullptr ? p->main_ : p->connections_;
    while (c->link_ == nullptr) c = c->next_;
    if (is_silent(*c, now)) {
      if (of_silent.goes_before(p->address_, c->last_use_)) silent = p;
    } else if (may_part(*c) && c->heard_ && of_idle.goes_before(p->address_, c->last_use_)) {
      idle = c;
    }
  }
  if (silent != nullptr) {
    counters_.strangers_closed.add_alone();
    end_all(*silent, FI_ECONNABORTED);
    return true;
  }
  if (idle != nullptr) ask_to_part(*idle);
  return false;
}

}  // namespace weft::rxm
