// SPDX-License-Identifier: BSD-2-Clause
// Core: construction, and the two ways to end it.
#include "plugins/rxm/protocol/core.h"

#include <rdma/fi_errno.h>

#include <vector>

namespace weft::rxm {
Core::Core(Carrier &carrier, Upper &upper, const Settings &settings)
    : carrier_(carrier), upper_(upper), settings_(settings) {}

void Core::shut_down(int err) {
  down_ = true;
  for (Peer *p : std::vector(peers_.all()))
    if (p != nullptr) end_all(*p, err);
}

bool Core::has_queued() const {
  for (const Peer *p : peers_.all())
    if (p != nullptr && !p->queue_.empty()) return true;
  for (const Connection *c : peers_.connections()) {
    if (c == nullptr) continue;
    if (!c->answers.empty()) return true;
    // The application cannot wait for what it has injected.
    for (const TxOp *op = c->departed.first_awaited(); op != nullptr; op = op->following)
      if (op->until != Tell::kNothing && !op->report) return true;
  }
  return false;
}

bool Core::has_unasked() const {
  for (const Peer *p : peers_.all())
    for (const TxOp *op = p != nullptr ? p->queue_.first() : nullptr; op != nullptr; op = op->next)
      if (!op->report) return true;
  for (const Connection *c : peers_.connections())
    for (const TxOp *op = c != nullptr ? c->departed.first_awaited() : nullptr; op != nullptr;
         op = op->following)
      if (op->until != Tell::kNothing && !op->report) return true;
  return false;
}

void Core::abandon() {
  down_ = true;
  for (Connection *c : peers_.connections()) {
    if (c == nullptr) continue;
    c->set_link(nullptr);
    c->set_state(State::kEnded);
  }
}

}  // namespace weft::rxm
