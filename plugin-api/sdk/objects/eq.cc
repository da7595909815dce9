// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/eq.h>

#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/sets.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "peer.h"

namespace weft::sdk {

Eq::Eq(const weft_instance *instance, std::atomic<size_t> &children, uint64_t flags,
       uint32_t api_version, fid_eq *owner, void *context)
    : Object(instance, FI_CLASS_EQ, context),
      children_(children),
      owner_(owner),
      writable_(flags & FI_WRITE),
      sized_(FI_VERSION_GE(api_version, FI_VERSION(1, 5))),
      turn_(Engine::reads_of_a_turn(instance)) {
  c()->fid.ops = const_cast<fi_ops *>(fid_ops<Eq>());
  c()->ops = const_cast<fi_ops_eq *>(eq_ops<Eq>());
}

Result<Eq *> Eq::open(const weft_instance *instance, struct fid *fabric,
                      std::atomic<size_t> &children, const fi_eq_attr *attr, void *context) {
  const fi_eq_attr defaults{};
  if (attr == nullptr) attr = &defaults;
  if (attr->flags & ~uint64_t(FI_WRITE | FI_AFFINITY | FI_PEER))
    return fail(FI_EBADFLAGS,
                "fi_eq_attr.flags %#llx: only FI_WRITE, FI_AFFINITY and FI_PEER are known",
                (unsigned long long)attr->flags);
  fid_eq *owner = nullptr;
  if (attr->flags & FI_PEER) {
    WEFT_TRY(owner, peer_eq(context));
    context = owner;
    if (attr->flags & FI_WRITE)
      return fail(FI_EINVAL, "fi_eq_open: FI_PEER and FI_WRITE: one writes to the owner's queue");
    if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
      return fail(FI_EINVAL,
                  "fi_eq_open: FI_PEER: fi_eq_attr.wait_obj %d: one waits on the owner's queue",
                  raw(attr->wait_obj));
  }
  const uint32_t api_version = reinterpret_cast<struct fid_fabric *>(fabric)->api_version;
  Eq *eq = new (std::nothrow) Eq(instance, children, attr->flags, api_version, owner, context);
  if (eq == nullptr) return fail(FI_ENOMEM, "no memory for an event queue");
  auto opened = eq->wait_.open(owner != nullptr ? int(FI_WAIT_NONE) : raw(attr->wait_obj));
  if (opened && attr->wait_obj == FI_WAIT_SET) opened = WaitSet::check(attr->wait_set, instance);
  if (opened && attr->wait_obj == FI_WAIT_SET) {
    eq->wait_set_ = WaitSet::from(attr->wait_set);
    opened = eq->wait_set_->join(eq->base(), {}, eq->wait_);
  }
  if (opened) opened = eq->publish(fabric);
  if (!opened && eq->wait_set_ != nullptr) eq->wait_set_->leave(eq->base(), {});
  if (!opened) {
    delete eq;
    return tl::unexpected(opened.error());
  }
  children.fetch_add(1, std::memory_order_relaxed);
  return eq;
}

void Eq::enqueue(Event event) {
  std::lock_guard guard(mutex_);
  events_.push_back(std::move(event));
  if (owner_ != nullptr) return hand_over();
  wait_.notify();
}

// To the owner of an imported queue, with the queue's lock. An event that it does not take becomes
// an error.
void Eq::hand_over() {
  while (!events_.empty() && !events_.front().error) {
    Event &e = events_.front();
    const ssize_t rc = owner_->ops->write(owner_, e.event, e.bytes.data(), e.bytes.size(), 0);
    if (rc == -FI_EAGAIN) return;
    if (rc >= 0) {
      events_.pop_front();
      continue;
    }
    fi_eq_entry entry{};
    std::memcpy(&entry, e.bytes.data(), std::min(sizeof entry, e.bytes.size()));
    e.error = true;
    e.failure = {.fid = e.fid, .context = entry.context, .data = entry.data, .err = int(-rc)};
  }
}

ssize_t Eq::read_for_owner(const void *buf, size_t len) {
  if (buf != nullptr || len != 0) return -FI_ENOSYS;
  progress();
  std::lock_guard guard(mutex_);
  hand_over();
  return !events_.empty() && events_.front().error ? -FI_EAVAIL : 0;
}

void Eq::push_cm(uint32_t event, struct fid *fid, fi_info *info, std::span<const std::byte> data) {
  fi_eq_cm_entry entry{};
  entry.fid = fid;
  entry.info = info;
  Event e{.event = event, .cm = true, .fid = fid, .info = info};
  e.bytes.resize(sizeof entry + data.size());
  std::memcpy(e.bytes.data(), &entry, sizeof entry);
  if (!data.empty()) std::memcpy(e.bytes.data() + sizeof entry, data.data(), data.size());
  enqueue(std::move(e));
}

void Eq::push(uint32_t event, struct fid *fid, uint64_t data, void *context) {
  fi_eq_entry entry{};
  entry.fid = fid;
  entry.context = context;
  entry.data = data;
  Event e{.event = event, .fid = fid};
  e.bytes.resize(sizeof entry);
  std::memcpy(e.bytes.data(), &entry, sizeof entry);
  enqueue(std::move(e));
}

void Eq::push_error(EventError error) {
  Event e{.error = true, .fid = error.fid};
  e.failure = std::move(error);
  enqueue(std::move(e));
}

void Eq::drop(Event &event) {
  if (event.info != nullptr && drop_request != nullptr)
    drop_request(std::exchange(event.info, nullptr), instance());
}

void Eq::forget(struct fid *fid, std::vector<fid_t> *requests) {
  std::deque<Event> dropped;
  {
    std::lock_guard guard(mutex_);
    for (auto it = events_.begin(); it != events_.end();) {
      if (it->fid != fid) {
        ++it;
        continue;
      }
      dropped.push_back(std::move(*it));
      it = events_.erase(it);
    }
  }
  for (Event &event : dropped) {
    if (requests != nullptr && event.info != nullptr) requests->push_back(event.info->handle);
    drop(event);
  }
}

void Eq::add_source(Engine &engine, bool data) {
  std::lock_guard guard(sources_mutex_);
  for (Source &known : sources_) {
    if (known.engine != &engine || known.data != data) continue;
    ++known.count;
    return;
  }
  sources_.push_back({&engine, data, 1});
  const bool watched = wait_.add_source({.engine = &engine, .cm = !data});
  if (wait_set_ != nullptr) wait_set_->add_source({.engine = &engine, .cm = !data});
  std::lock_guard queue(mutex_);
  if (!watched || wait_.awaited()) wait_.notify();
}

void Eq::remove_source(Engine &engine, bool data) {
  std::lock_guard guard(sources_mutex_);
  const auto it = std::ranges::find_if(
      sources_, [&](const Source &known) { return known.engine == &engine && known.data == data; });
  if (it == sources_.end() || --it->count != 0) return;
  sources_.erase(it);
  if (wait_set_ != nullptr) wait_set_->remove_source({.engine = &engine, .cm = !data});
  std::lock_guard queue(mutex_);
  wait_.remove_source({.engine = &engine, .cm = !data});
}

void Eq::progress() {
  std::lock_guard guard(sources_mutex_);
  for (const Source &source : sources_) {
    Guard locked(source.engine->lock());
    source.engine->progress_cm();
  }
}

ssize_t Eq::take(uint32_t *event, void *buf, size_t len, uint64_t flags) {
  std::lock_guard guard(mutex_);
  if (events_.empty()) {
    wait_.clear();
    return -FI_EAGAIN;
  }
  Event &e = events_.front();
  if (e.error) return -FI_EAVAIL;
  // Private data that does not fit is cut; the fixed part must fit (fi_eq.3).
  const size_t fixed = e.cm ? sizeof(fi_eq_cm_entry) : e.bytes.size();
  if (len < fixed) return -FI_ETOOSMALL;
  const size_t n = std::min(len, e.bytes.size());
  if (event != nullptr) *event = e.event;
  if (n != 0) std::memcpy(buf, e.bytes.data(), n);
  if (!(flags & FI_PEEK)) {
    events_.pop_front();
    if (events_.empty()) wait_.clear();
  }
  return ssize_t(n);
}

ssize_t Eq::read(uint32_t *event, void *buf, size_t len, uint64_t flags) {
  if (owner_ != nullptr) return read_for_owner(buf, len);
  if (buf == nullptr && len != 0) return -FI_EINVAL;
  ssize_t n = take(event, buf, len, flags);
  if (n == -FI_EAGAIN) {
    progress();
    n = take(event, buf, len, flags);
  }
  if (turn_.is_over(n != -FI_EAGAIN)) give_way(turn_);
  return n;
}

ssize_t Eq::readerr(struct fi_eq_err_entry *buf, uint64_t flags) {
  if (buf == nullptr) return -FI_EINVAL;
  std::lock_guard guard(mutex_);
  if (events_.empty() || !events_.front().error) return -FI_EAGAIN;
  EventError &error = events_.front().failure;
  buf->fid = error.fid;
  buf->context = error.context;
  buf->data = error.data;
  buf->err = error.err;
  buf->prov_errno = error.prov_errno;
  last_err_data_ = error.err_data;
  if (sized_ && buf->err_data != nullptr && buf->err_data_size > 0) {
    const size_t n = std::min(buf->err_data_size, last_err_data_.size());
    std::memcpy(buf->err_data, last_err_data_.data(), n);
    buf->err_data_size = n;
  } else {
    buf->err_data = last_err_data_.empty() ? nullptr : last_err_data_.data();
    buf->err_data_size = last_err_data_.size();
  }
  if (flags & FI_PEEK) return sizeof *buf;
  events_.pop_front();
  if (owner_ != nullptr) hand_over();
  return sizeof *buf;
}

ssize_t Eq::write(uint32_t event, const void *buf, size_t len, uint64_t) {
  if (owner_ != nullptr) return -FI_ENOSYS;
  if (!writable_) return -FI_EINVAL;  // not opened with FI_WRITE
  if (buf == nullptr && len != 0) return -FI_EINVAL;
  Event e{.event = event};
  e.bytes.resize(len);
  if (len != 0) std::memcpy(e.bytes.data(), buf, len);
  enqueue(std::move(e));
  return ssize_t(len);
}

ssize_t Eq::sread(uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags) {
  if (owner_ != nullptr) return -FI_ENOSYS;
  if (!wait_.can_block()) return -FI_EINVAL;
  const Deadline deadline(timeout);
  bool interrupted = false;
  if (wait_.type() == FI_WAIT_YIELD) {
    YieldingWait yielding;
    for (;;) {
      const ssize_t n = read(event, buf, len, flags);
      if (n != -FI_EAGAIN || deadline.passed()) return n;
      if (interrupted) return -FI_EINTR;
      interrupted = !yielding.yield();
    }
  }
  std::unique_lock lock(mutex_);
  WaitObject::Waiter waiter(wait_);
  for (;;) {
    waiter.looked();
    lock.unlock();
    const ssize_t n = read(event, buf, len, flags);
    const bool waits = n == -FI_EAGAIN && !deadline.passed();
    int rc = waits && interrupted ? -FI_EINTR : 0;
    if (waits && rc == 0) {
      {
        std::lock_guard guard(sources_mutex_);
        rc = waiter.prepare(instance(), FI_LOG_EQ, "fi_eq_sread");
      }
      // Progress may have made an event between the read and the descriptors' birth.
      if (rc == 0 && !poll()) interrupted = !waiter.block(deadline.left_ms());
    }
    lock.lock();
    if (rc != 0) return rc;
    if (!waits) return n;
  }
}

const char *Eq::strerror(int prov_errno, const void *, char *buf, size_t len) {
  const char *const said = text_of != nullptr ? text_of(prov_errno) : nullptr;
  return said != nullptr ? ops_detail::copy_text(said, buf, len)
                         : strerror_into(prov_errno, buf, len);
}

int Eq::close() {
  if (users.load() != 0) return -FI_EBUSY;
  if (wait_set_ != nullptr) wait_set_->leave(base(), {});
  retire();
  for (Event &event : events_) drop(event);
  children_.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

// For calls of the wait object that may take an engine's lock: without the queue's lock, because
// push() takes that with an engine's lock held.
template <class Call>
int Eq::with_descriptor(Call call) {
  std::lock_guard sources(sources_mutex_);
  {
    std::lock_guard guard(mutex_);
    if (const int rc = wait_.prepare(); rc != 0) return rc;
  }
  return call();
}

int Eq::control(int command, void *arg) {
  if (command == WEFT_READ_BY_LAYER) {
    turn_.set(0);
    return 0;
  }
  return with_descriptor([&] { return wait_.control(command, arg); });
}

int Eq::trywait() {
  if (poll()) return -FI_EAGAIN;
  if (wait_.type() == FI_WAIT_SET) return 0;  // the set has the descriptor
  return with_descriptor([this] {
    if (const int rc = wait_.arm(instance(), FI_LOG_EQ); rc != 0) return rc;
    std::lock_guard guard(mutex_);
    return wait_.arm_relays();
  });
}

bool Eq::poll() {
  progress();
  std::lock_guard guard(mutex_);
  if (events_.empty()) wait_.clear();
  return !events_.empty();
}

}  // namespace weft::sdk
