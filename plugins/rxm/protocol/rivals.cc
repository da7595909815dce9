// SPDX-License-Identifier: BSD-2-Clause
// Two processes that say that they are at the same address: who of them it is.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

namespace {

constexpr uint64_t kDoubtNs = 100'000'000;  // how long the end of a link may take to get here

}  // namespace

// Both ask at once, and the peer's request counts. Ours goes on as a rival, because the requester
// may be somebody else on the peer's host: the peer itself refuses ours.
void Core::accept_beside(Connection &attempt, Request &request, const ConnectData &data) {
  Connection &c = *make(attempt.address_, true);
  inherit(c, attempt);
  hand_over(attempt, c);
  c.rival_ = &attempt;
  attempt.rival_ = &c;
  attempt.crossed_ = true;
  accept(c, request, data);
  if (c.state_ == State::kIdle && c.rival_ != nullptr) inherit(attempt, c);
}

void Core::contest(Connection &c) {
  if (c.contested_ || c.rival_ != nullptr || down_) return;
  c.contested_ = true;
  contested_.push_back(&c);
  // In the middle of the requester's pause: requests of both sides that cross are both refused.
  // Each time later than the time before, because it costs the owner something.
  c.contest_at_ = carrier_.now_ns() + pause_after(c.contests_++) / 2;
  arm();
}

// The owner of an address is who listens there. One that has our connection already says so
// (RejectReason::kAlready), and the other claim was false; one that accepts knows nothing of it.
void Core::ask_owner(Connection &c) {
  if (down_ || c.own_) return;
  if (c.state_ == State::kIdle) return connect(c);  // the old one has ended meanwhile
  if (c.state_ != State::kAccepting && c.state_ != State::kConnected) return;
  Connection &rival = *make(c.address_, true);
  rival.rival_ = &c;
  c.rival_ = &rival;
  connect(rival);
}

// Accepted, but by whom? The owner, while the requester lied; or by one who had the address before
// the requester, and is dead. Then the link ends.
void Core::doubt(Connection &attempt) {
  attempt.accepted_ = true;
  if (!std::exchange(attempt.contested_, true)) contested_.push_back(&attempt);
  attempt.contest_at_ = carrier_.now_ns() + kDoubtNs;
  arm();
}

// The rival is accepted: it gets the other's place. Of that nothing more will come.
void Core::replace(Connection &rival) {
  Connection &old = *rival.rival_;
  const bool fresh = old.state_ != State::kConnected || old.asked_ || old.agreed_;
  inherit(rival, old);
  drop_link(old, FI_ECONNRESET);
  if (fresh) return hand_over(old, rival);  // nothing of it has gone the other way
  fail_queue(old, FI_ECONNRESET);
}

// The rival is the connection with that address from now on.
void Core::inherit(Connection &rival, Connection &old) {
  old.rival_ = rival.rival_ = nullptr;
  const uint32_t index = old.index_;
  by_address_.find(rival.address_)->second = &rival;
  if (index != kNoIndex) peers_.set(index, &rival);
  rename(rival, index, false);
  rename(old, kNoIndex, true);
  rival.shares_name_ = true;
  old.shares_name_ = false;
  adopt(rival);
  if (must_wait(rival)) hold(rival);
}

// What is saved under its name is its own from now on, and counts as kept by it: who comes again
// may not keep any more.
void Core::adopt(Connection &c) {
  upper_.receiver().visit_unexpected(source_of(c), [&](sdk::Unexpected &unexpected) {
    auto &m = static_cast<RxMessage &>(unexpected);
    Connection &before = *m.from;
    if (&before == &c) return;
    const auto buffers = size_t(std::count_if(
        m.parts.begin(), m.parts.end(), [](const auto &part) { return part.buffer != nullptr; }));
    before.buffers_ -= buffers;
    before.charged_ -= m.charged;
    if (is_stranger(before)) {
      strangers_buffers_ -= buffers;
      strangers_charged_ -= m.charged;
    }
    m.from = &c;
    ++c.kept_;
    c.buffers_ += buffers;
    c.charged_ += m.charged;
    if (is_stranger(c)) {
      strangers_buffers_ += buffers;
      strangers_charged_ += m.charged;
    }
    if (--before.kept_ == 0 && before.state_ == State::kIdle) note_unused(before);
  });
}

}  // namespace weft::rxm
