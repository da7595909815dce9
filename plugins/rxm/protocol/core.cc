// SPDX-License-Identifier: BSD-2-Clause
// Core: construction, the two ways to end it, and timeouts.
#include "plugins/rxm/protocol/core.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstdio>

namespace weft::rxm {
namespace {

constexpr size_t kMostReserve = 8;

}  // namespace

Core::Core(Carrier &carrier, Upper &upper, const Settings &settings)
    : carrier_(carrier),
      upper_(upper),
      settings_(settings),
      reserve_(std::clamp<size_t>(settings.receive_count / 16, 1, kMostReserve)),
      ops_(settings.tx_size),
      segments_(SIZE_MAX),
      controls_(SIZE_MAX),
      messages_(SIZE_MAX) {}

Core::~Core() {
  for (TxOp *op : op_slots_) conceal_all(*op);
  for (Connection *c : slots_) {
    if (c == nullptr) continue;
    for (RxMessage *m = c->messages_.first; m != nullptr; m = m->following)
      while (m->exposed != 0) carrier_.conceal(*m->registrations[--m->exposed]);
    delete c;
  }
}

void Core::shut_down(int err) {
  down_ = true;
  for (Connection *c : slots_) {
    if (c == nullptr) continue;
    drop_link(*c, err);
    fail_queue(*c, err);
  }
}

bool Core::has_queued() const {
  for (const Connection *c : slots_) {
    if (c == nullptr) continue;
    if (c->first_ != nullptr || c->control_ != nullptr) return true;
    // The application cannot wait for what it has injected.
    for (const TxOp *op = c->in_flight_.first; op != nullptr; op = op->following)
      if (op->until != Tell::kNothing && !op->report) return true;
  }
  return false;
}

bool Core::has_unasked() const {
  for (const Connection *c : slots_) {
    if (c == nullptr) continue;
    for (const TxOp *op = c->first_; op != nullptr; op = op->next)
      if (!op->report) return true;
    for (const TxOp *op = c->in_flight_.first; op != nullptr; op = op->following)
      if (op->until != Tell::kNothing && !op->report) return true;
  }
  return false;
}

void Core::abandon() {
  down_ = true;
  for (Connection *c : slots_) {
    if (c == nullptr) continue;
    c->link_ = nullptr;
    c->state_ = State::kIdle;
  }
}

void Core::arm() {
  uint64_t first = 0;
  for (const Connection *c : retrying_)
    if (first == 0 || c->retry_at_ < first) first = c->retry_at_;
  for (const Connection *c : contested_)
    if (first == 0 || c->contest_at_ < first) first = c->contest_at_;
  if (first == deadline_) return;
  deadline_ = first;
  carrier_.set_deadline(first);
}

void Core::on_deadline() {
  deadline_ = 0;
  const uint64_t now = carrier_.now_ns();
  std::vector<Connection *> due;
  for (Connection *c : retrying_)
    if (c->retry_at_ <= now) due.push_back(c);
  for (Connection *c : due) {
    stop_waiting(*c);
    c->state_ = State::kIdle;
    if (c->first_ == nullptr) {  // no operation needs it any more
      note_unused(*c);
    } else if (now - c->started_at_ >= settings_.connect_timeout_ns) {
      char text[300];
      std::snprintf(
          text, sizeof text,
          "no connection to %s: it postponed the connection or hung up, or the port for it was in "
          "use here, %u times within %llu ms (ofi_rxm connect_timeout_ms)",
          c->address_.to_string().c_str(), c->attempts_,
          (unsigned long long)(settings_.connect_timeout_ns / 1'000'000u));
      counters_.timeouts.add_alone();
      upper_.warn(text);
      fail(*c, FI_ETIMEDOUT);
    } else {
      connect(*c);
    }
  }
  due.clear();
  for (Connection *c : contested_)
    if (c->contest_at_ <= now) due.push_back(c);
  for (Connection *c : due) {
    if (!std::exchange(c->contested_, false)) continue;
    std::erase(contested_, c);
    note_unused(*c);
    if (!std::exchange(c->accepted_, false)) {
      ask_owner(*c);
    } else {
      if (c->rival_ != nullptr) replace(*c);
      establish(*c);
    }
  }
  arm();
}

}  // namespace weft::rxm
