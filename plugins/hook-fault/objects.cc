// SPDX-License-Identifier: BSD-2-Clause
// The life of the objects that the hook is on: attached, bound, copied by an alias, closed.
#include "plugins/hook-fault/injector.h"

namespace weft::fault {

EndpointState::~EndpointState() {
  if (injector != nullptr) injector->forget(this);
}
QueueState::~QueueState() {
  if (injector != nullptr) injector->forget(this);
}

std::unique_ptr<State> Injector::enter(fid_ep *ep) {
  auto state = std::make_unique<EndpointState>();
  state->ep = ep;
  state->injector = this;
  state->calls.fired.resize(rules_.rules.size());
  std::lock_guard lock(mutex_);
  state->ordinal = ++ordinals_;
  endpoints_.push_back(state.get());
  return state;
}

std::unique_ptr<State> Injector::enter(fid_cq *cq) {
  auto state = std::make_unique<QueueState>();
  state->cq = cq;
  state->injector = this;
  state->calls.fired.resize(rules_.rules.size());
  std::lock_guard lock(mutex_);
  state->ordinal = ++ordinals_;
  return state;
}

void Injector::forget(EndpointState *endpoint) {
  std::lock_guard lock(mutex_);
  std::erase(endpoints_, endpoint);
  for (QueueState *queue : {endpoint->tx, endpoint->rx}) {
    if (queue != nullptr) std::erase(queue->endpoints, endpoint);
  }
  std::erase_if(copies_, [&](const auto &one) {
    if (one.second->owner != endpoint) return false;
    copied_ -= one.second->bytes.size();
    return true;
  });
  for (const Held &held : endpoint->held) copied_ -= held.copy->bytes.size();
}

void Injector::forget(QueueState *queue) {
  std::lock_guard lock(mutex_);
  for (EndpointState *endpoint : queue->endpoints) {
    if (endpoint->tx == queue) endpoint->tx = nullptr;
    if (endpoint->rx == queue) endpoint->rx = nullptr;
  }
}

namespace {

void add_endpoint(QueueState &queue, EndpointState *endpoint) {
  std::vector<EndpointState *> &users = queue.endpoints;
  if (std::find(users.begin(), users.end(), endpoint) == users.end()) users.push_back(endpoint);
}

}  // namespace

void Injector::note_bound(Link link, EndpointState &endpoint, struct fid *other, uint64_t flags) {
  std::lock_guard lock(mutex_);
  if (other->fclass == FI_CLASS_CQ) {
    auto *queue = state_at<QueueState>(link, other);
    if (queue == nullptr) return;
    const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
    if ((flags & FI_TRANSMIT) != 0) {
      endpoint.tx = queue;
      endpoint.tx_selective = selective;
    }
    if ((flags & FI_RECV) != 0) {
      endpoint.rx = queue;
      endpoint.rx_selective = selective;
    }
    add_endpoint(*queue, &endpoint);
  } else if (other->fclass == FI_CLASS_CNTR) {
    if ((flags & FI_SEND) != 0) endpoint.tx_counter = reinterpret_cast<fid_cntr *>(other);
    if ((flags & FI_RECV) != 0) endpoint.rx_counter = reinterpret_cast<fid_cntr *>(other);
  }
}

void Injector::note_alias(const EndpointState &original, EndpointState &alias, uint64_t flags) {
  std::lock_guard lock(mutex_);
  alias.tx = original.tx;
  alias.rx = original.rx;
  alias.tx_selective = original.tx_selective;
  alias.rx_selective = original.rx_selective;
  alias.tx_counter = original.tx_counter;
  alias.rx_counter = original.rx_counter;
  alias.default_completes =
      (flags & FI_TRANSMIT) != 0 ? (flags & FI_COMPLETION) != 0 : original.default_completes;
  for (QueueState *queue : {alias.tx, alias.rx}) {
    if (queue != nullptr) add_endpoint(*queue, &alias);
  }
}

void Injector::begin_close(EndpointState &endpoint) {
  flush(endpoint, true);
  std::unique_lock lock(mutex_);
  endpoint.closing = true;
  idle_.wait(lock, [&] { return endpoint.busy == 0; });
}

void Injector::close_failed(EndpointState &endpoint) {
  std::lock_guard lock(mutex_);
  endpoint.closing = false;
}

}  // namespace weft::fault
