// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/transfers/deferred.h>

#include <rdma/fi_errno.h>
#include <weft/sdk/objects/endpoint.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace weft::sdk {

Deferred::Deferred(const Origin &origin) : origin_(origin) {
  if (origin_.completion != nullptr) origin_.completion->users.fetch_add(1);
}

Deferred::~Deferred() {
  if (waits_) origin_.trigger.cntr->leave(*this);
  if (queue_ != nullptr && is_work()) {
    auto [at, end] = queue_->works_.equal_range(origin_.work);
    at = std::find_if(at, end, [this](const auto &entry) { return entry.second == this; });
    if (at != end) queue_->works_.erase(at);
  }
  if (origin_.completion != nullptr) origin_.completion->users.fetch_sub(1);
}

DeferredQueue::~DeferredQueue() {
  domain_.engine->remove(*this);
  // While works_ is there. A domain that closes has none left.
  blocked_.clear();
  for (List *const list : {&waiting_, &due_, &started_}) list->clear();
}

void DeferredQueue::move(Deferred &deferred, List &to, List::iterator before) {
  to.splice(before, *deferred.list_, deferred.place_);
  deferred.list_ = &to;
}

// ---- starting ----

ssize_t DeferredQueue::add(std::unique_ptr<Deferred> owned) {
  Deferred &deferred = *owned;
  const Deferred::Origin &origin = deferred.origin_;
  const bool is_due = origin.trigger.cntr->reached() >= origin.trigger.threshold;
  waiting_.push_back(std::move(owned));
  deferred.list_ = &waiting_;
  deferred.place_ = std::prev(waiting_.end());
  deferred.queue_ = this;
  try {
    if (origin.work != nullptr) works_.emplace(origin.work, &deferred);
    if (!is_due) origin.trigger.cntr->await(deferred);
    if (is_due && origin.work == nullptr && due_.empty() &&
        blocked_at(origin.endpoint) == nullptr) {
      const ssize_t rc = deferred.start();  // as a call without FI_TRIGGER
      erase(deferred);
      return rc;
    }
  } catch (...) {
    erase(deferred);
    throw;
  }
  if (!is_due) return 0;
  move(deferred, due_, due_.end());
  run();
  return 0;
}

void DeferredQueue::on_due(Deferred &deferred) {
  move(deferred, due_, due_.end());
}

// A handler that marks itself while it is flushed does not wake the engine's thread.
void DeferredQueue::schedule() {
  if (!running_ && !due_.empty()) domain_.engine->mark_dirty(*this);
}

void DeferredQueue::run() {
  if (running_) return;
  running_ = true;
  start_blocked();
  while (!due_.empty()) {
    Deferred &first = *due_.front();
    if (Blocked *const blocked = blocked_at(first.origin_.endpoint)) {
      move(first, blocked->due, blocked->due.end());
    } else if (!start_first(due_)) {
      blocked_.push_back({first.origin_.endpoint, {}});
      move(first, blocked_.back().due, blocked_.back().due.end());
    }
  }
  running_ = false;
  if (!blocked_.empty()) domain_.engine->mark_dirty(*this);
}

void DeferredQueue::start_blocked() {
  for (auto blocked = blocked_.begin(); blocked != blocked_.end();) {
    while (!blocked->due.empty() && start_first(blocked->due)) {
    }
    blocked = blocked->due.empty() ? blocked_.erase(blocked) : std::next(blocked);
  }
}

DeferredQueue::Blocked *DeferredQueue::blocked_at(const EndpointCore *endpoint) {
  for (Blocked &blocked : blocked_)
    if (blocked.endpoint == endpoint) return &blocked;
  return nullptr;
}

// Work may end, and be gone, within its start.
bool DeferredQueue::start_first(List &list) {
  Deferred &first = *list.front();
  const bool ends_by_itself = first.is_work() && first.origin_.endpoint != nullptr;
  move(first, started_, started_.end());
  ssize_t rc;
  try {
    rc = first.start();
  } catch (const std::bad_alloc &) {
    rc = -FI_ENOMEM;
  }
  if (rc == -FI_EAGAIN) {
    move(first, list, list.begin());
    return false;
  }
  if (rc != 0) first.fail(int(-rc));
  if (!ends_by_itself) erase(first);
  return true;
}

// ---- what ends ----

Deferred::Origin DeferredQueue::end(void *context) {
  auto &deferred = *static_cast<Deferred *>(context);
  const Deferred::Origin origin = deferred.origin_;
  erase(deferred);
  return origin;
}

void DeferredQueue::finish(Cq *cq, TxContext::Done done) {
  const Deferred::Origin origin = end(done.context);
  const uint64_t flags = done.flags & ~kDeferred;
  if (cq == nullptr) {
    // Reported nowhere.
  } else if (done.err != 0) {
    cq->push_error({.context = origin.context,
                    .flags = flags,
                    .tag = done.tag,
                    .err = done.err,
                    .prov_errno = done.prov_errno != 0 ? done.prov_errno : done.err,
                    .err_data = std::move(done.err_data)});
  } else if (origin.report) {
    cq->push({.context = origin.context, .flags = flags, .len = size_t(done.length)});
  }
  if (origin.completion == nullptr) return;
  if (done.err == 0)
    origin.completion->add_events(1, done.length);
  else
    origin.completion->add_error();
}

// ---- what does not start any more ----

template <class F>
void DeferredQueue::visit_unstarted(F visit) {
  const auto each = [&](List &list) {
    for (auto at = list.begin(); at != list.end();) {
      Deferred &deferred = **at;
      ++at;
      visit(deferred);
    }
  };
  each(waiting_);
  each(due_);
  for (Blocked &blocked : blocked_) each(blocked.due);
}

ssize_t DeferredQueue::cancel(const EndpointCore &endpoint, const void *context) {
  Deferred *found = nullptr;
  visit_unstarted([&](Deferred &deferred) {
    const Deferred::Origin &origin = deferred.origin_;
    if (found == nullptr && !deferred.is_work() && origin.endpoint == &endpoint &&
        origin.context == context)
      found = &deferred;
  });
  if (found == nullptr) return -FI_ENOENT;
  found->fail(FI_ECANCELED);
  erase(*found);
  return 0;
}

void DeferredQueue::forget(const EndpointCore &endpoint) {
  visit_unstarted([&](Deferred &deferred) {
    if (deferred.origin_.endpoint == &endpoint) erase(deferred);
  });
  blocked_.remove_if([](const Blocked &blocked) { return blocked.due.empty(); });
}

void DeferredQueue::abandon(const EndpointCore &endpoint) {
  for (auto at = started_.begin(); at != started_.end();) {
    Deferred &deferred = **at;
    ++at;
    if (deferred.origin_.endpoint == &endpoint)
      finish(nullptr, {.context = &deferred, .err = FI_ECANCELED});
  }
}

// What a call is told may make other calls due, so first all are taken off.
void DeferredQueue::forget(const Cntr &cntr) {
  List gone;
  visit_unstarted([&](Deferred &deferred) {
    if (deferred.origin_.trigger.cntr == &cntr && deferred.waits_) move(deferred, gone, gone.end());
  });
  for (const std::unique_ptr<Deferred> &deferred : gone)
    if (!deferred->is_work()) deferred->fail(FI_ECANCELED);
}

void DeferredQueue::drop_works(const Cntr *cntr) {
  visit_unstarted([&](Deferred &deferred) {
    if (deferred.is_work() && (cntr == nullptr || deferred.origin_.trigger.cntr == cntr))
      erase(deferred);
  });
}

int DeferredQueue::cancel(const fi_deferred_work &work) {
  const auto [first, end] = works_.equal_range(&work);
  const auto at = std::find_if(
      first, end, [this](const auto &entry) { return entry.second->list_ != &started_; });
  if (at == end) return -FI_ENOENT;
  erase(*at->second);
  return 0;
}

}  // namespace weft::sdk
