// SPDX-License-Identifier: BSD-2-Clause
// Two processes that claim the same address: which one gets the connection. Any process on a host
// can name any port of it while it connects. So we connect to the address ourselves, by a second
// Connection called the rival: the process that listens there is the owner.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {

namespace {

constexpr uint64_t kDoubtNs = 100'000'000;  // in which the end of a dead link arrives

}  // namespace

// Both sides connect at once, and the peer's request counts. Our request goes on as a rival,
// because the requester may be another process on the peer's host. The peer itself refuses our
// request.
void Core::accept_beside(Connection &attempt, Request &request, const ConnectData &data) {
  counters_.crossed.add_alone();
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
  counters_.contested.add_alone();
  c.contested_ = true;
  contested_.push_back(&c);
  // Ask in the middle of the requester's pause, because requests that cross are both refused. Wait
  // longer each time, because asking costs the owner something.
  c.contest_at_ = carrier_.now_ns() + pause_after(c.contests_++) / 2;
  arm();
}

// Connects to the process that listens at the address. If it has our connection already, it refuses
// (RejectReason::kAlready), and the claim was false. If it accepts, it does not know the old
// connection, and the rival replaces that.
void Core::ask_owner(Connection &c) {
  if (down_ || c.own_) return;
  if (c.state_ == State::kIdle) return connect(c);  // the old connection has ended meanwhile
  if (c.state_ != State::kAccepting && c.state_ != State::kConnected) return;
  Connection &rival = *make(c.address_, true);
  rival.rival_ = &c;
  c.rival_ = &rival;
  connect(rival);
}

// Our request is accepted although the requester's crossed it. Either the owner accepted it, and
// the requester lied. Or an earlier process accepted it and died, and the requester is the owner:
// then this link ends within kDoubtNs. If a network that failed meanwhile keeps that end from us,
// the owner's link is closed, and what was under way on it fails. The owner connects again, and is
// accepted when the dead link is found out.
// Meanwhile operations wait, also those that are queued already: the application may answer a
// message of the owner, and the requester must not get the answer. They wait from the owner's first
// packet on (hear), which may arrive before the news that our request is accepted.
void Core::doubt(Connection &attempt) {
  attempt.rival_->doubted_ = true;
  attempt.accepted_ = true;
  if (!std::exchange(attempt.contested_, true)) contested_.push_back(&attempt);
  attempt.contest_at_ = carrier_.now_ns() + kDoubtNs;
  arm();
}

// There is no doubt any more: the requester is the owner.
void Core::trust(Connection &c) {
  c.doubted_ = false;
  if (c.first_ != nullptr) block(c);
}

// The rival is accepted and replaces the old connection, which brings nothing more.
void Core::replace(Connection &rival) {
  Connection &old = *rival.rival_;
  // Whether what waits has not been sent on the old link.
  const bool fresh = old.state_ != State::kConnected || old.asked_ || old.agreed_ || old.doubted_;
  counters_.replaced.add_alone();
  inherit(rival, old);
  drop_link(old, FI_ECONNRESET);
  if (!fresh) return fail_queue(old, FI_ECONNRESET);
  fail_begun(old, FI_ECONNRESET);
  hand_over(old, rival);
}

// Makes the rival the connection that is found by address and by index.
void Core::inherit(Connection &rival, Connection &old) {
  old.rival_ = rival.rival_ = nullptr;
  const uint32_t index = old.index_;
  by_address_.find(rival.address_)->second = &rival;
  if (index != kNoIndex) peers_.set(index, &rival);
  rename(rival, index, false);
  rename(old, kNoIndex, true);
  rival.shares_name_ = true;
  old.shares_name_ = false;
  if (is_stranger(rival)) {
    // The other may have said that it is a context, and is not: the owner of the address may have a
    // name.
    rival.place_ = old.place_;
    if (const uint32_t its = upper_.index_of(rival.address_); its != kNoIndex) name(rival, its);
  }
  adopt(rival);
  if (must_wait(rival)) hold(rival);
}

// Counts the messages that are saved with the source of `c` on `c`, so that a peer that reconnects
// again and again cannot occupy more memory.
void Core::adopt(Connection &c) {
  upper_.receiver().visit_unexpected(source_of(c), [&](sdk::Unexpected &unexpected) {
    auto &m = static_cast<RxMessage &>(unexpected);
    Connection &before = *m.from;
    // Contexts of one endpoint are one source, and have a connection each.
    if (&before == &c || before.address_ != c.address_) return;
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
