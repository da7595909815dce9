// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/cntr.h>

#include <sched.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/sets.h>

#include <mutex>
#include <new>
#include <utility>

namespace weft::sdk {

Cntr::Cntr(DomainContext &domain, const fi_cntr_attr &attr, void *context)
    : Object(domain.instance, FI_CLASS_CNTR, context),
      domain_(domain),
      bytes_(attr.events == FI_CNTR_EVENTS_BYTES) {
  c()->fid.ops = const_cast<fi_ops *>(fid_ops<Cntr>());
  c()->ops = const_cast<fi_ops_cntr *>(cntr_ops<Cntr>());
}

Result<Cntr *> Cntr::open(DomainContext &domain, const fi_cntr_attr *attr, void *context) {
  const fi_cntr_attr defaults{};
  if (attr == nullptr) attr = &defaults;
  if (raw(attr->events) != FI_CNTR_EVENTS_COMP && raw(attr->events) != FI_CNTR_EVENTS_BYTES)
    return fail(FI_EINVAL, "fi_cntr_attr.events %d: not one of enum fi_cntr_events",
                raw(attr->events));
  if (attr->flags != 0)
    return fail(FI_EBADFLAGS, "fi_cntr_attr.flags %#llx: must be 0",
                (unsigned long long)attr->flags);
  Cntr *cntr = new (std::nothrow) Cntr(domain, *attr, context);
  if (cntr == nullptr) return fail(FI_ENOMEM, "no memory for a counter");
  auto opened = cntr->wait_.open(raw(attr->wait_obj));
  if (opened && attr->wait_obj == FI_WAIT_SET)
    opened = WaitSet::check(attr->wait_set, domain.instance);
  if (opened) {
    Guard guard(domain.engine->lock());
    cntr->wait_.add_source({.engine = domain.engine, .held = true});
  }
  if (opened && attr->wait_obj == FI_WAIT_SET) {
    cntr->wait_set_ = WaitSet::from(attr->wait_set);
    opened = cntr->wait_set_->join(cntr->base(), {.engine = domain.engine}, cntr->wait_);
  }
  if (opened) opened = cntr->publish(domain.fid);
  if (!opened && cntr->wait_set_ != nullptr)
    cntr->wait_set_->leave(cntr->base(), {.engine = domain.engine});
  if (!opened) {
    delete cntr;
    return tl::unexpected(opened.error());
  }
  domain.children.fetch_add(1, std::memory_order_relaxed);
  return cntr;
}

uint64_t Cntr::read() {
  Guard guard(domain_.engine->lock());
  domain_.engine->progress();
  return value_.load(std::memory_order_relaxed);
}

uint64_t Cntr::readerr() {
  Guard guard(domain_.engine->lock());
  domain_.engine->progress();
  return errors_.load(std::memory_order_relaxed);
}

int Cntr::update(std::atomic<uint64_t> &what, uint64_t value, bool add) {
  Guard guard(domain_.engine->lock());
  what.store(add ? what.load(std::memory_order_relaxed) + value : value, std::memory_order_relaxed);
  changed();
  return 0;
}

int Cntr::add(uint64_t value) {
  return update(value_, value, true);
}
int Cntr::set(uint64_t value) {
  return update(value_, value, false);
}
int Cntr::adderr(uint64_t value) {
  return update(errors_, value, true);
}
int Cntr::seterr(uint64_t value) {
  return update(errors_, value, false);
}

int Cntr::wait(uint64_t threshold, int timeout) {
  if (!wait_.can_block()) return -FI_EINVAL;
  const Deadline deadline(timeout);
  const bool yields = wait_.type() == FI_WAIT_YIELD;
  Engine &engine = *domain_.engine;
  std::unique_lock lock(engine.lock());
  WaitObject::Waiter waiter(wait_);
  const uint64_t errors = errors_.load(std::memory_order_relaxed);
  for (;;) {
    engine.progress();
    if (value_.load(std::memory_order_relaxed) >= threshold) return 0;
    if (errors_.load(std::memory_order_relaxed) != errors) return -FI_EAVAIL;
    if (deadline.passed()) return -FI_ETIMEDOUT;
    waiter.looked();
    const int rc = yields ? 0 : waiter.prepare(instance(), FI_LOG_CNTR, "fi_cntr_wait");
    if (rc != 0) return rc;
    lock.unlock();
    if (yields) {
      sched_yield();
    } else {
      waiter.block(deadline.left_ms());
    }
    lock.lock();
  }
}

int Cntr::close() {
  if (users.load() != 0) return -FI_EBUSY;
  if (wait_set_ != nullptr) wait_set_->leave(base(), {.engine = domain_.engine});
  retire();
  domain_.children.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

int Cntr::control(int command, void *arg) {
  Guard guard(domain_.engine->lock());
  return wait_.control(command, arg);
}

bool Cntr::poll() {
  Guard guard(domain_.engine->lock());
  domain_.engine->progress();
  return std::exchange(changed_, false);
}

int Cntr::trywait() {
  Guard guard(domain_.engine->lock());
  domain_.engine->progress();
  if (std::exchange(changed_, false)) return -FI_EAGAIN;
  wait_.clear();
  const int rc = wait_.arm(instance(), FI_LOG_CNTR);
  return rc == 0 ? wait_.arm_relays() : rc;
}

}  // namespace weft::sdk
