// SPDX-License-Identifier: BSD-2-Clause
// Copies of messages that the hook sends itself, and messages that it holds.
#include "plugins/hook-fault/injector.h"

namespace weft::fault {

// Sends a copy. `kept`: the provider reads it until the operation is complete. Returns 0 if the
// provider has taken it; `copy` is null then.
ssize_t Injector::issue_copy(std::unique_ptr<Copy> &copy, const Issue &issue, bool kept) {
  Copy *const sent = copy.get();
  if (kept) {  // before another thread can read its completion
    std::lock_guard lock(mutex_);
    copies_.emplace(sent, std::move(copy));
  }
  const ssize_t rc = issue(sent->bytes.data(), sent->bytes.size(), sent);
  if (kept && rc != 0) {
    std::lock_guard lock(mutex_);
    const auto found = copies_.find(sent);
    copy = std::move(found->second);
    copies_.erase(found);
  } else if (!kept && rc == 0) {
    discard(copy);
  }
  return rc;
}

void Injector::discard(std::unique_ptr<Copy> &copy) {
  if (copy == nullptr) return;
  std::lock_guard lock(mutex_);
  copied_ -= copy->bytes.size();
  copy = nullptr;
}

// The copy that a completion with this context belongs to; null: the operation is the caller's own.
std::unique_ptr<Copy> Injector::take_copy(void *context) {
  std::lock_guard lock(mutex_);
  const auto found = copies_.find(static_cast<Copy *>(context));
  if (found == copies_.end()) return nullptr;
  std::unique_ptr<Copy> copy = std::move(found->second);
  copies_.erase(found);
  copied_ -= copy->bytes.size();
  return copy;
}

// ---- held messages ----

// With the mutex held.
void Injector::hold(EndpointState &endpoint, const Attempt &attempt, const Rule &rule,
                    std::unique_ptr<Copy> copy, Issue issue) {
  const bool after_next = rule.action == Action::kReorder;
  endpoint.held.push_back({std::move(copy), std::move(issue),
                           endpoint.clock + (after_next ? kReorderPatience : rule.number),
                           after_next, !attempt.is_injected(), completes(endpoint, attempt)});
  ++held_;
}

void Injector::tick(EndpointState &endpoint) {
  {
    std::lock_guard lock(mutex_);
    ++endpoint.clock;
    if (endpoint.held.empty()) return;
  }
  flush(endpoint, false);
}

void Injector::message_went(EndpointState &endpoint) {
  {
    std::lock_guard lock(mutex_);
    if (endpoint.held.empty()) return;
    for (Held &held : endpoint.held) {
      if (held.after_next) held.due = 0;
    }
  }
  flush(endpoint, false);
}

// Sends the messages that are due, or all that are held.
void Injector::flush(EndpointState &endpoint, bool all) {
  for (;;) {
    Held held;
    {
      std::lock_guard lock(mutex_);
      const auto due =
          std::find_if(endpoint.held.begin(), endpoint.held.end(),
                       [&](const Held &one) { return all || one.due <= endpoint.clock; });
      if (due == endpoint.held.end()) return;
      held = std::move(*due);
      endpoint.held.erase(due);
      --held_;
    }
    void *const context = held.copy->context;
    const ssize_t rc = issue_copy(held.copy, held.issue, held.kept);
    if (rc == 0) continue;
    std::unique_lock lock(mutex_);
    if (rc == -FI_EAGAIN) {  // tried again at the next step of the clock
      held.due = endpoint.clock + 1;
      endpoint.held.push_front(std::move(held));
      ++held_;
      return;
    }
    // The call returned 0 to the caller long ago, so the error must come as a completion.
    copied_ -= held.copy->bytes.size();
    if (!held.completes || endpoint.tx == nullptr) continue;
    Attempt attempt{kSend, 0, 0, context, false, 0, FI_SEND, 0};
    QueueState *queue = make_up(endpoint, attempt, static_cast<int>(-rc));
    lock.unlock();
    wake(queue);
  }
}

// Finds the endpoints that hold messages, and marks them busy: close waits until they are flushed.
// With the mutex held.
std::vector<EndpointState *> Injector::pinned(const std::vector<EndpointState *> &endpoints) {
  std::vector<EndpointState *> found;
  for (EndpointState *endpoint : endpoints) {
    if (endpoint->held.empty() || endpoint->closing) continue;
    ++endpoint->busy;
    found.push_back(endpoint);
  }
  return found;
}

void Injector::flush_pinned(const std::vector<EndpointState *> &endpoints, bool all) {
  for (EndpointState *endpoint : endpoints) {
    flush(*endpoint, all);
    std::lock_guard lock(mutex_);
    if (--endpoint->busy == 0) idle_.notify_all();
  }
}

void Injector::flush_all() {
  if (held_ == 0) return;
  std::unique_lock lock(mutex_);
  const std::vector<EndpointState *> endpoints = pinned(endpoints_);
  lock.unlock();
  flush_pinned(endpoints, true);
}

}  // namespace weft::fault
