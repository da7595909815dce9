// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/sets.h>

#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/ops.h>

#include <algorithm>
#include <new>

namespace weft::sdk {
namespace {

// Calls f with the queue or counter behind a fid; -FI_EINVAL if it is none of this provider's.
template <class F>
int with_queue(const weft_instance *instance, struct fid *fid, F f) {
  if (Cq::is_mine(fid, FI_CLASS_CQ, instance)) return f(*Cq::from(fid));
  if (Eq::is_mine(fid, FI_CLASS_EQ, instance)) return f(*Eq::from(fid));
  if (Cntr::is_mine(fid, FI_CLASS_CNTR, instance)) return f(*Cntr::from(fid));
  return -FI_EINVAL;
}

// Progress for a member that poll() has no room to return.
void move_on(Eq &eq) {
  eq.poll();
}
template <class Queue>
void move_on(Queue &queue) {
  Guard guard(queue.engine().lock());
  queue.engine().progress();
}

}  // namespace

int trywait(const weft_instance *instance, struct fid **fids, int count) {
  if (count < 0 || (count > 0 && fids == nullptr)) return -FI_EINVAL;
  for (int i = 0; i < count; ++i) {
    const int rc = WaitSet::is_mine(fids[i], FI_CLASS_WAIT, instance)
                       ? WaitSet::from(fids[i])->trywait()
                       : with_queue(instance, fids[i], [](auto &queue) { return queue.trywait(); });
    if (rc != 0) return rc;
  }
  return 0;
}

WaitSet::WaitSet(const weft_instance *instance, std::atomic<size_t> &children)
    : Object(instance, FI_CLASS_WAIT, nullptr), children_(children) {
  c()->fid.ops = const_cast<fi_ops *>(fid_ops<WaitSet>());
  c()->ops = const_cast<fi_ops_wait *>(wait_ops<WaitSet>());
}

Result<WaitSet *> WaitSet::open(const weft_instance *instance, struct fid *fabric,
                                std::atomic<size_t> &children, const fi_wait_attr *attr) {
  if (attr != nullptr && attr->flags != 0)
    return fail(FI_EBADFLAGS, "fi_wait_attr.flags %#llx: must be 0",
                (unsigned long long)attr->flags);
  const int type = attr != nullptr ? raw(attr->wait_obj) : FI_WAIT_UNSPEC;
  if (type != FI_WAIT_UNSPEC && type != FI_WAIT_FD)
    return fail(FI_ENOSYS, "fi_wait_attr.wait_obj %d: a wait set has FI_WAIT_UNSPEC or FI_WAIT_FD",
                type);
  WaitSet *set = new (std::nothrow) WaitSet(instance, children);
  if (set == nullptr) return fail(FI_ENOMEM, "no memory for a wait set");
  auto opened = set->wait_.open(FI_WAIT_FD);
  if (opened) opened = set->publish(fabric);
  if (!opened) {
    delete set;
    return tl::unexpected(opened.error());
  }
  children.fetch_add(1, std::memory_order_relaxed);
  return set;
}

Result<void> WaitSet::check(struct fid_wait *set, const weft_instance *instance) {
  if (set == nullptr || !is_mine(&set->fid, FI_CLASS_WAIT, instance))
    return fail(FI_EINVAL, "wait_obj FI_WAIT_SET: wait_set is no wait set of this provider");
  return {};
}

Result<void> WaitSet::join(struct fid *fid, WaitSource source, WaitObject &wait) {
  {
    std::lock_guard guard(sources_mutex_);
    try {
      members_.push_back(fid);
    } catch (const std::bad_alloc &) {
      return fail(FI_ENOMEM, "wait set: no memory");
    }
  }
  if (source.engine != nullptr) add_source(source);
  wait.set_listener(this);
  return {};
}

void WaitSet::leave(struct fid *fid, WaitSource source) {
  {
    std::lock_guard guard(sources_mutex_);
    if (std::erase(members_, fid) == 0) return;
  }
  if (source.engine != nullptr) remove_source(source);
}

void WaitSet::add_source(WaitSource source) {
  std::lock_guard guard(sources_mutex_);
  for (auto &[known, count] : sources_) {
    if (known != source) continue;
    ++count;
    return;
  }
  sources_.emplace_back(source, 1);
  const bool watched = wait_.add_source(source);
  std::lock_guard notifying(mutex_);
  if (!watched || wait_.awaited()) wait_.notify();
}

void WaitSet::remove_source(WaitSource source) {
  std::lock_guard guard(sources_mutex_);
  const auto it = std::ranges::find(sources_, source, &std::pair<WaitSource, size_t>::first);
  if (it == sources_.end() || --it->second != 0) return;
  sources_.erase(it);
  std::lock_guard notifying(mutex_);
  wait_.remove_source(source);
}

void WaitSet::on_notify() {
  std::lock_guard guard(mutex_);
  wait_.notify();
}

int WaitSet::trywait_members() {
  std::vector<struct fid *> members;
  {
    std::lock_guard guard(sources_mutex_);
    members = members_;
  }
  return sdk::trywait(instance(), members.data(), int(members.size()));
}

int WaitSet::prepare() {
  std::lock_guard guard(mutex_);
  return wait_.prepare();
}

int WaitSet::trywait() {
  {
    std::lock_guard guard(mutex_);
    wait_.clear();
  }
  if (const int rc = trywait_members(); rc != 0) return rc;
  std::lock_guard guard(sources_mutex_);
  if (const int rc = prepare(); rc != 0) return rc;
  if (const int rc = wait_.arm(instance(), FI_LOG_FABRIC); rc != 0) return rc;
  std::lock_guard notifying(mutex_);
  return wait_.arm_relays();
}

int WaitSet::wait(int timeout) {
  const Deadline deadline(timeout);
  std::unique_lock lock(mutex_);
  WaitObject::Waiter waiter(wait_);
  bool interrupted = false;
  for (;;) {
    // From here on it is told of what happens; what happened before, the members know.
    waiter.looked();
    lock.unlock();
    int rc = trywait_members();
    if (rc == 0 && deadline.passed()) rc = -FI_ETIMEDOUT;
    if (rc == 0 && interrupted) rc = -FI_EINTR;
    if (rc == 0) {
      std::lock_guard guard(sources_mutex_);
      rc = waiter.prepare(instance(), FI_LOG_FABRIC, "fi_wait");
    }
    if (rc == 0) interrupted = !waiter.block(deadline.left_ms());
    lock.lock();
    if (rc != 0) return rc == -FI_EAGAIN ? 0 : rc;
  }
}

int WaitSet::close() {
  {
    std::lock_guard guard(sources_mutex_);
    if (!members_.empty()) return -FI_EBUSY;
  }
  retire();
  children_.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

int WaitSet::control(int command, void *arg) {
  if (command != FI_GETWAIT && command != FI_GETWAITOBJ) return -FI_ENOSYS;
  std::lock_guard guard(sources_mutex_);
  if (const int rc = prepare(); rc != 0) return rc;
  return wait_.control(command, arg);
}

PollSet::PollSet(DomainContext &domain)
    : Object(domain.instance, FI_CLASS_POLL, nullptr), domain_(domain) {
  c()->fid.ops = const_cast<fi_ops *>(fid_ops<PollSet>());
  c()->ops = const_cast<fi_ops_poll *>(poll_ops<PollSet>());
}

Result<PollSet *> PollSet::open(DomainContext &domain, const fi_poll_attr *attr) {
  if (attr != nullptr && attr->flags != 0)
    return fail(FI_EBADFLAGS, "fi_poll_attr.flags %#llx: must be 0",
                (unsigned long long)attr->flags);
  PollSet *set = new (std::nothrow) PollSet(domain);
  if (set == nullptr) return fail(FI_ENOMEM, "no memory for a poll set");
  if (auto published = set->publish(domain.fid); !published) {
    delete set;
    return tl::unexpected(published.error());
  }
  domain.children.fetch_add(1, std::memory_order_relaxed);
  return set;
}

int PollSet::poll(void **context, int count) {
  if (count < 0 || (count > 0 && context == nullptr)) return -FI_EINVAL;
  const int n = poll_members(context, count);
  if (domain_.engine->is_turn_over(n != 0)) domain_.engine->give_way();
  return n;
}

int PollSet::poll_members(void **context, int count) {
  std::lock_guard guard(mutex_);
  int n = 0;
  for (struct fid *fid : members_) {
    // All make progress (fi_poll.3). poll() reports a change once, so a member without a place in
    // `context` is not asked.
    const int ready = with_queue(instance(), fid, [room = n < count](auto &queue) {
      if (room) return int(queue.poll());
      move_on(queue);
      return 0;
    });
    if (ready > 0) context[n++] = fid->context;
  }
  return n;
}

int PollSet::poll_add(struct fid *event, uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  std::lock_guard guard(mutex_);
  return with_queue(instance(), event, [&](auto &queue) {
    if (std::ranges::find(members_, event) != members_.end()) return -FI_EALREADY;
    members_.push_back(event);
    queue.users.fetch_add(1);
    return 0;
  });
}

int PollSet::poll_del(struct fid *event, uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  std::lock_guard guard(mutex_);
  const auto it = std::ranges::find(members_, event);
  if (it == members_.end()) return -FI_EINVAL;
  members_.erase(it);
  return with_queue(instance(), event, [](auto &queue) {
    queue.users.fetch_sub(1);
    return 0;
  });
}

int PollSet::close() {
  {
    std::lock_guard guard(mutex_);
    if (!members_.empty()) return -FI_EBUSY;
  }
  retire();
  domain_.children.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

}  // namespace weft::sdk
