// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/objects/cntr.h>

#include <weft/sdk/devices/cntr_source.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/sets.h>
#include <weft/sdk/transfers/deferred.h>

#include <mutex>
#include <new>
#include <utility>

#include "exported.h"
#include "feeder.h"
#include "peer.h"

namespace weft::sdk {

namespace {

Result<void> can_import(const fi_cntr_attr &attr, bool of_device) {
  if (of_device)
    return fail(FI_EINVAL, "fi_cntr_open: FI_PEER: a device counts by itself, on its own counter");
  if (attr.events != FI_CNTR_EVENTS_COMP)
    return fail(
        FI_EINVAL,
        "fi_cntr_open: FI_PEER: an owner counts operations (FI_CNTR_EVENTS_COMP), no bytes");
  if (raw(attr.wait_obj) != FI_WAIT_NONE && raw(attr.wait_obj) != FI_WAIT_UNSPEC)
    return fail(FI_EINVAL,
                "fi_cntr_open: FI_PEER: fi_cntr_attr.wait_obj %d: one waits on the owner's counter",
                raw(attr.wait_obj));
  return {};
}

}  // namespace

struct Cntr::Device final : DeviceEngine<CntrSource> {
  using DeviceEngine::DeviceEngine;
};

Cntr::Cntr(DomainContext &domain, const fi_cntr_attr &attr, void *context, fid_peer_cntr *owner,
           std::unique_ptr<Device> device, std::unique_ptr<CntrStore> store)
    : Object(domain.instance, FI_CLASS_CNTR, owner != nullptr ? owner : context),
      domain_(domain),
      device_(std::move(device)),
      store_(std::move(store)),
      import_(owner != nullptr ? std::make_unique<Import>(*this, owner) : nullptr),
      engine_(device_ != nullptr ? &device_->engine : domain.engine),
      bytes_(attr.events == FI_CNTR_EVENTS_BYTES) {
  c()->fid.ops = const_cast<fi_ops *>(fid_ops<Cntr>());
  c()->ops = const_cast<fi_ops_cntr *>(owner == nullptr ? cntr_ops<Cntr>() : imported_ops());
  if (import_ != nullptr) wait_.set_listener(import_.get());
  if (device_ != nullptr) device_->yield_as(*domain.engine);
}

Cntr::~Cntr() = default;

Result<Cntr *> Cntr::open(DomainContext &domain, const fi_cntr_attr *attr, void *context) {
  return open(domain, attr, context, nullptr, nullptr);
}

Result<Cntr *> Cntr::open(DomainContext &domain, const fi_cntr_attr *attr, void *context,
                          std::unique_ptr<CntrSource> source, bool locked) {
  return open(domain, attr, context, std::make_unique<Device>(std::move(source), locked), nullptr);
}

Result<Cntr *> Cntr::open(DomainContext &domain, const fi_cntr_attr *attr, void *context,
                          std::unique_ptr<CntrStore> store) {
  return open(domain, attr, context, nullptr, std::move(store));
}

Result<Cntr *> Cntr::open(DomainContext &domain, const fi_cntr_attr *attr, void *context,
                          std::unique_ptr<Device> device, std::unique_ptr<CntrStore> store) {
  const fi_cntr_attr defaults{};
  if (attr == nullptr) attr = &defaults;
  if (raw(attr->events) != FI_CNTR_EVENTS_COMP && raw(attr->events) != FI_CNTR_EVENTS_BYTES)
    return fail(FI_EINVAL, "fi_cntr_attr.events %d: not one of enum fi_cntr_events",
                raw(attr->events));
  if (attr->flags & ~uint64_t(FI_PEER))
    return fail(FI_EBADFLAGS, "fi_cntr_attr.flags %#llx: only FI_PEER is known",
                (unsigned long long)attr->flags);
  fid_peer_cntr *owner = nullptr;
  if (attr->flags & FI_PEER) {
    WEFT_TRY(owner, peer_cntr(context));
    WEFT_CHECK(can_import(*attr, device != nullptr || store != nullptr));
  }
  Cntr *cntr =
      new (std::nothrow) Cntr(domain, *attr, context, owner, std::move(device), std::move(store));
  if (cntr == nullptr) return fail(FI_ENOMEM, "no memory for a counter");
  Engine &engine = cntr->engine();
  auto opened = cntr->wait_.open(raw(attr->wait_obj));
  if (opened && attr->wait_obj == FI_WAIT_SET)
    opened = WaitSet::check(attr->wait_set, domain.instance);
  if (opened) {
    Guard guard(engine.lock());
    cntr->wait_.add_source({.engine = &engine, .held = true});
    if (cntr->device_ != nullptr) cntr->device_->start();
  }
  if (opened && attr->wait_obj == FI_WAIT_SET) {
    cntr->wait_set_ = WaitSet::from(attr->wait_set);
    opened = cntr->wait_set_->join(cntr->base(), {.engine = &engine}, cntr->wait_);
  }
  if (opened) opened = cntr->publish(domain.fid);
  if (!opened) {
    if (cntr->wait_set_ != nullptr) cntr->wait_set_->leave(cntr->base(), {.engine = &engine});
    delete cntr;
    return tl::unexpected(opened.error());
  }
  domain.children.fetch_add(1, std::memory_order_relaxed);
  return cntr;
}

// After every change: clear() asks for the next.
void Cntr::Import::on_notify() {
  cntr_.wait_.clear();
  for (const uint64_t now = cntr_.value(); value_ != now; ++value_) owner_->owner_ops->inc(owner_);
  for (const uint64_t now = cntr_.errors(); errors_ != now; ++errors_)
    owner_->owner_ops->incerr(owner_);
}

const fi_ops_cntr *Cntr::imported_ops() {
  static const fi_ops_cntr table = [] {
    fi_ops_cntr ops = *cntr_ops<Cntr>();
    const auto absent = []<class Op>(Op &op) { op = &ops_detail::ObjectOp<Cntr, Op>::absent; };
    absent(ops.add);
    absent(ops.set);
    absent(ops.wait);
    absent(ops.adderr);
    absent(ops.seterr);
    return ops;
  }();
  return &table;
}

void Cntr::count_in_store(uint64_t amount) {
  store_->count(amount);
  changed();
}

void Cntr::count_error_in_store() {
  store_->count_errors(1);
  changed();
}

uint64_t Cntr::value() const {
  if (store_ != nullptr) return store_->value();
  return device_ != nullptr ? device_->source->value() : value_.load(std::memory_order_relaxed);
}

uint64_t Cntr::errors() const {
  if (store_ != nullptr) return store_->errors();
  return device_ != nullptr ? device_->source->errors() : errors_.load(std::memory_order_relaxed);
}

// ---- what waits for a threshold ----

uint64_t Cntr::reached() const {
  uint64_t sum;
  return __builtin_add_overflow(value(), errors(), &sum) ? UINT64_MAX : sum;
}

// Behind others with the same threshold.
void Cntr::await(Deferred &deferred) {
  deferred.turn_ = deferred_.emplace(deferred.origin_.trigger.threshold, &deferred);
  deferred.waits_ = true;
  awaited_.store(true, std::memory_order_relaxed);
}

void Cntr::leave(Deferred &deferred) {
  deferred_.erase(deferred.turn_);
  deferred.waits_ = false;
  awaited_.store(!deferred_.empty(), std::memory_order_relaxed);
}

void Cntr::collect_due() {
  const uint64_t now = reached();
  while (!deferred_.empty() && deferred_.begin()->first <= now) {
    Deferred &due = *deferred_.begin()->second;
    leave(due);
    domain_.deferred->on_due(due);
  }
}

void Cntr::tell_deferred() {
  collect_due();
  domain_.deferred->schedule();
}

void Cntr::change(uint64_t value, bool adds) {
  value_.store(adds ? value_.load(std::memory_order_relaxed) + value : value,
               std::memory_order_relaxed);
  changed();
}

bool Cntr::is_turn_over(Engine &engine, uint64_t now) {
  const bool found = last_read_.load(std::memory_order_relaxed) != now;
  if (found) last_read_.store(now, std::memory_order_relaxed);
  return engine.is_turn_over(found);
}

uint64_t Cntr::read() {
  uint64_t now;
  bool over;
  if (device_ != nullptr) {
    now = value();
    over = is_turn_over(device_->engine, now);
  } else {
    EngineGuard held(engine_);
    held.engine.progress();
    now = value();
    over = is_turn_over(held.engine, now);
  }
  if (over) [[unlikely]]
    device_ != nullptr ? device_->engine.give_way() : Engine::give_way(engine_);
  return now;
}

uint64_t Cntr::readerr() {
  if (device_ != nullptr) return errors();
  EngineGuard held(engine_);
  held.engine.progress();
  return errors();
}

int Cntr::update(Which which, uint64_t value, bool add) {
  EngineGuard held(engine_);
  const bool is_value = which == Which::kValue;
  if (add && store_ == nullptr) value += is_value ? this->value() : errors();
  if (store_ != nullptr && add) {
    is_value ? store_->count(value) : store_->count_errors(value);
  } else if (store_ != nullptr) {
    is_value ? store_->set(value) : store_->set_errors(value);
  } else if (device_ != nullptr) {
    is_value ? device_->source->set(value) : device_->source->set_errors(value);
  } else {
    (is_value ? value_ : errors_).store(value, std::memory_order_relaxed);
  }
  // No protocol is in its midst: what is due starts now.
  const bool awaited = awaited_.load(std::memory_order_relaxed);
  if (awaited) collect_due();
  changed();
  if (awaited) domain_.deferred->run();
  return 0;
}

int Cntr::add(uint64_t value) {
  return update(Which::kValue, value, true);
}
int Cntr::set(uint64_t value) {
  return update(Which::kValue, value, false);
}
int Cntr::adderr(uint64_t value) {
  return update(Which::kErrors, value, true);
}
int Cntr::seterr(uint64_t value) {
  return update(Which::kErrors, value, false);
}

bool Cntr::has_changed() {
  if (device_ != nullptr || store_ != nullptr) {
    const uint64_t now = value(), failed = errors();
    changed_ |= now != seen_value_ || failed != seen_errors_;
    seen_value_ = now;
    seen_errors_ = failed;
  }
  return std::exchange(changed_, false);
}

int Cntr::wait(uint64_t threshold, int timeout) {
  if (wait_.type() == FI_WAIT_SET) return -FI_EINVAL;
  const Deadline deadline(timeout);
  // Programs wait on counters without a wait object, too, although fi_cntr.3 forbids it: fabtests'
  // own of triggered operations, which are made for providers that allow it.
  const bool yields = wait_.type() == FI_WAIT_YIELD || !wait_.can_block();
  Engine &engine = EngineGuard::hold(engine_);  // it does not change while a thread waits
  std::unique_lock lock(engine.lock(), std::adopt_lock);
  WaitObject::Waiter waiter(wait_);
  YieldingWait yielding;
  bool interrupted = false;
  const uint64_t errors = this->errors();
  for (;;) {
    engine.progress();
    if (value() >= threshold) return 0;
    if (this->errors() != errors) return -FI_EAVAIL;
    if (deadline.passed()) return -FI_ETIMEDOUT;
    if (interrupted) return -FI_EINTR;
    waiter.looked();
    const int rc = yields ? 0 : waiter.prepare(instance(), FI_LOG_CNTR, "fi_cntr_wait");
    if (rc != 0) return rc;
    lock.unlock();
    interrupted = !(yields ? yielding.yield() : waiter.block(deadline.left_ms()));
    lock.lock();
  }
}

// ---- a counter that several lanes report to ----

class CntrFeeder final : public Feeder {
 public:
  CntrFeeder(DomainContext &lane, Cntr &to) : Feeder(lane, to.engine()), to_(to) {
    fi_cntr_attr attr{};
    attr.events = to.bytes_ ? FI_CNTR_EVENTS_BYTES : FI_CNTR_EVENTS_COMP;
    cntr = new Cntr(lane, attr, nullptr, nullptr, nullptr, std::make_unique<Store>(*this));
  }
  ~CntrFeeder() { delete cntr; }
  Cntr *cntr;

 private:
  // The lane's counter only passes on what it counts.
  struct Store final : CntrStore {
    explicit Store(CntrFeeder &to) : feeder(to) {}
    uint64_t value() override { return 0; }
    uint64_t errors() override { return 0; }
    void set(uint64_t) override {}
    void set_errors(uint64_t) override {}
    void count(uint64_t amount) override {
      feeder.put([&] { feeder.value_ += amount; });
    }
    void count_errors(uint64_t amount) override {
      feeder.put([&] { feeder.errors_ += amount; });
    }
    CntrFeeder &feeder;
  };
  void empty() override {
    if (const uint64_t n = std::exchange(value_, 0); n != 0) to_.add_events(n, n);
    for (; errors_ != 0; --errors_) to_.add_error();
  }

  Cntr &to_;
  uint64_t value_ = 0, errors_ = 0;
};

Cntr *Cntr::reached_from(DomainContext &from) {
  if (come_to(from)) return this;
  EngineGuard held(engine_);
  for (const auto &feeder : feeders_)
    if (&feeder->lane() == &from) return feeder->cntr;
  feeders_.push_back(std::make_unique<CntrFeeder>(from, *this));
  feeders_.back()->start();
  return feeders_.back()->cntr;
}

bool Cntr::come_to(DomainContext &to) {
  if (is_under(*to.engine)) return true;
  return change_engine(engine_, *to.engine, wait_, [&] {
    if (users.load() != 0 || wait_.awaited() || wait_set_ != nullptr || !feeders_.empty() ||
        !deferred_.empty())
      return false;
    move_home(home_, to);
    return true;
  });
}

int Cntr::close() {
  const bool defers = domain_.deferred != nullptr && can_defer();
  if (defers) {  // what is due may be about to change this counter
    EngineGuard held(engine_);
    domain_.deferred->run();
  }
  if (users.load() != 0) return -FI_EBUSY;
  if (defers) {
    EngineGuard held(engine_);
    domain_.deferred->forget(*this);
  }
  if (wait_set_ != nullptr) wait_set_->leave(base(), {.engine = &engine()});
  {
    EngineGuard held(engine_);
    for (const auto &feeder : feeders_) feeder->stop();
  }
  feeders_.clear();
  retire();
  if (home_ != nullptr) home_->children.fetch_sub(1);
  domain_.children.fetch_sub(1, std::memory_order_relaxed);
  delete this;
  return 0;
}

int Cntr::control(int command, void *arg) {
  if (command == FI_EXPORT_FID) return import_ == nullptr ? export_fid(*this, arg) : -FI_ENOSYS;
  EngineGuard held(engine_);
  return wait_.control(command, arg);
}

int Cntr::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  return store_ != nullptr ? store_->open_ops(name, flags, ops) : -FI_ENOSYS;
}

bool Cntr::poll() {
  EngineGuard held(engine_);
  held.engine.progress();
  return has_changed();
}

int Cntr::trywait() {
  EngineGuard held(engine_);
  held.engine.progress();
  if (has_changed()) return -FI_EAGAIN;
  wait_.clear();
  const int rc = wait_.arm(instance(), FI_LOG_CNTR);
  return rc == 0 ? wait_.arm_relays() : rc;
}

}  // namespace weft::sdk
