// SPDX-License-Identifier: BSD-2-Clause
// Completions: those that the hook makes up, those of its copies, and reads of the queues.
#include <cstring>

#include "plugins/hook-fault/injector.h"

namespace weft::fault {

// Whether the caller gets a completion for the operation.
bool Injector::completes(const EndpointState &endpoint, const Attempt &attempt) const {
  if (attempt.is_injected()) return false;
  const bool receive = attempt.is_receive();
  if (!(receive ? endpoint.rx_selective : endpoint.tx_selective)) return true;
  return attempt.flagged ? (attempt.flags & FI_COMPLETION) != 0
                         : !receive && endpoint.default_completes;
}

// Whether the endpoint has a queue for the operation whose format is known. With the mutex held.
bool Injector::can_make_up(const EndpointState &endpoint, const Attempt &attempt) const {
  const QueueState *queue = attempt.is_receive() ? endpoint.rx : endpoint.tx;
  return queue != nullptr && queue->stride != 0;
}

// Adds a completion that the provider does not know of. With the mutex held.
QueueState *Injector::make_up(EndpointState &endpoint, const Attempt &attempt, int err) {
  QueueState *queue = attempt.is_receive() ? endpoint.rx : endpoint.tx;
  fi_cq_err_entry entry{};
  entry.op_context = attempt.context;
  entry.flags = attempt.kind;
  entry.tag = attempt.tag;
  entry.err = err;
  entry.prov_errno = err;
  entry.src_addr = FI_ADDR_NOTAVAIL;
  queue->made_up.push_back(entry);
  return queue;
}

// Wakes threads that wait for the queue. Without the mutex.
void Injector::wake(QueueState *queue) {
  const weft_hook_link *link = link_at(instance_->hook_slot, &queue->cq->fid);
  if (link != nullptr && link->next.cq->signal != nullptr) (void)link->next.cq->signal(queue->cq);
}

bool Injector::has_made_up(const QueueState &queue) {
  std::lock_guard lock(mutex_);
  return !queue.made_up.empty();
}

bool Injector::has_error_first(QueueState &queue) {
  std::lock_guard lock(mutex_);
  return !queue.made_up.empty() && queue.made_up.front().err != 0;
}

// ---- reads ----

// Applies the rules to a read of the queue and sends held messages that are due. Nothing: the read
// goes on.
std::optional<ssize_t> Injector::before_read(QueueState &queue) {
  std::vector<EndpointState *> waiting;
  {
    std::lock_guard lock(mutex_);
    for (EndpointState *endpoint : queue.endpoints) {
      endpoint->full = false;
      ++endpoint->clock;
    }
    if (queue.overrun) return -FI_EOVERRUN;
    const Verdict verdict = judge(queue.calls, queue.ordinal, kCqRead, 0, 0);
    if (verdict.rule != nullptr) {
      note(queue.calls, verdict);
      switch (verdict.rule->action) {
        case Action::kFail:
          return -static_cast<ssize_t>(verdict.rule->number);
        case Action::kOverrun:
          queue.overrun = true;
          return -FI_EOVERRUN;
        default:
          return -FI_EAGAIN;
      }
    }
    waiting = pinned(queue.endpoints);
  }
  flush_pinned(waiting, false);
  return {};
}

// Appends made-up completions to `have` entries.
ssize_t Injector::add_made_up(QueueState &queue, char *entries, size_t have, size_t room,
                              fi_addr_t *src) {
  std::lock_guard lock(mutex_);
  while (have < room && !queue.made_up.empty() && queue.made_up.front().err == 0) {
    const fi_cq_err_entry &made = queue.made_up.front();
    fi_cq_tagged_entry entry{};
    entry.op_context = made.op_context;
    entry.flags = made.flags;
    entry.tag = made.tag;
    std::memcpy(entries + have * queue.stride, &entry, queue.stride);
    if (src != nullptr) src[have] = FI_ADDR_NOTAVAIL;
    ++have;
    queue.made_up.pop_front();
  }
  if (have > 0) return static_cast<ssize_t>(have);
  return !queue.made_up.empty() ? -FI_EAVAIL : -FI_EAGAIN;
}

// Puts the caller's contexts back, and removes the completions of duplicates. Returns how many
// entries are left.
size_t Injector::restore(QueueState &queue, char *entries, size_t count, fi_addr_t *src) {
  {
    std::lock_guard lock(mutex_);
    if (copies_.empty() || queue.stride == 0) return count;
  }
  size_t left = 0;
  for (size_t i = 0; i < count; ++i) {
    char *const entry = entries + i * queue.stride;
    void *context;
    std::memcpy(&context, entry, sizeof context);
    const std::unique_ptr<Copy> copy = take_copy(context);
    if (copy != nullptr && copy->hides_completion) continue;
    if (copy != nullptr) std::memcpy(entry, &copy->context, sizeof context);
    if (left != i) {
      std::memcpy(entries + left * queue.stride, entry, queue.stride);
      if (src != nullptr) src[left] = src[i];
    }
    ++left;
  }
  return left;
}

// ---- errors ----

namespace {

// The entry says that there is no err_data, whatever buffer the caller gave.
void give_error(const fi_cq_err_entry &made, fi_cq_err_entry *entry) {
  entry->op_context = made.op_context;
  entry->flags = made.flags;
  entry->len = entry->olen = 0;
  entry->buf = nullptr;
  entry->data = 0;
  entry->tag = made.tag;
  entry->err = made.err;
  entry->prov_errno = made.prov_errno;
  entry->err_data_size = 0;
}

}  // namespace

// The provider has an error. Drops it if it is that of a duplicate, else keeps it for the caller's
// fi_cq_readerr. Returns 0 if there is no error for the caller.
ssize_t Injector::sort_error(Link link, QueueState &queue) {
  {
    std::lock_guard lock(mutex_);
    if (copies_.empty()) return -FI_EAVAIL;
  }
  fi_cq_err_entry entry{};
  const ssize_t rc = link.next.cq->readerr(queue.cq, &entry, 0);
  if (rc <= 0) return rc == -FI_EAGAIN ? 0 : rc;
  const std::unique_ptr<Copy> copy = take_copy(entry.op_context);
  if (copy != nullptr && copy->hides_completion) return 0;
  if (copy != nullptr) entry.op_context = copy->context;
  entry.err_data = nullptr;
  std::lock_guard lock(mutex_);
  queue.made_up.push_front(entry);
  return -FI_EAVAIL;
}

ssize_t Injector::read_error(Link link, fid_cq *cq, fi_cq_err_entry *entry, uint64_t flags) {
  QueueState &queue = queue_of(link);
  {
    std::lock_guard lock(mutex_);
    if (!queue.made_up.empty() && queue.made_up.front().err != 0) {
      const fi_cq_err_entry made = queue.made_up.front();
      queue.made_up.pop_front();
      give_error(made, entry);
      return 1;
    }
  }
  const ssize_t rc = link.next.cq->readerr(cq, entry, flags);
  if (rc <= 0) return rc;
  const std::unique_ptr<Copy> copy = take_copy(entry->op_context);
  if (copy == nullptr) return rc;
  if (copy->hides_completion) return -FI_EAGAIN;
  entry->op_context = copy->context;
  return rc;
}

}  // namespace weft::fault
