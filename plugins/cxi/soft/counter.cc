// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/counter.h"

#include <algorithm>
#include <utility>

#include "plugins/cxi/soft/lni.h"
#include "plugins/cxi/soft/queues.h"

namespace weft::cxi {

SoftCounter::SoftCounter(Engine &engine, SoftLni &lni) : engine_(engine), lni_(lni) {
  const EngineGuard guard(engine_.lock);
  lni_.add(*this);
}

SoftCounter::~SoftCounter() {
  const EngineGuard guard(engine_.lock);
  lni_.remove(*this);
  lni_.forget(*this);
  for (const auto &[threshold, waiting] : waiting_) waiting.queue->drop();
  engine_.forget(*this);
}

void SoftCounter::count(bool success, uint64_t amount, bool writes_back) {
  if (success) {
    const uint64_t now = success_.load(std::memory_order_relaxed) + amount;
    success_.store(now & kMaxSuccess, std::memory_order_release);
  } else {
    const uint64_t now = failure_.load(std::memory_order_relaxed) + amount;
    failure_.store(std::min(now, kMaxFailure), std::memory_order_release);
  }
  if (writes_back || !success) write_back();
  if (!waiting_.empty() && is_reached(waiting_.begin()->first)) engine_.fired(*this);
}

void SoftCounter::store(std::optional<uint64_t> success, std::optional<uint64_t> failure) {
  if (success) success_.store(*success & kMaxSuccess, std::memory_order_release);
  if (failure) failure_.store(std::min(*failure, kMaxFailure), std::memory_order_release);
  write_back();
  if (!waiting_.empty() && is_reached(waiting_.begin()->first)) engine_.fired(*this);
}

void SoftCounter::wait(SoftTriggerQueue &queue, const Trigger &trigger) {
  waiting_.emplace(trigger.threshold, Waiting{&queue, trigger});
  if (is_reached(trigger.threshold)) engine_.fired(*this);
}

void SoftCounter::fire() {
  while (!waiting_.empty() && is_reached(waiting_.begin()->first)) {
    const Waiting waiting = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    waiting.queue->fire(waiting.trigger);
  }
}

void SoftCounter::forget(const SoftTriggerQueue &queue) {
  std::erase_if(waiting_, [&](const auto &one) { return one.second.queue == &queue; });
}

template <class IsLost>
void SoftCounter::drop_if(IsLost is_lost) {
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    if (!is_lost(one->second.trigger)) {
      ++one;
      continue;
    }
    one->second.queue->drop();
    one = waiting_.erase(one);
  }
}

void SoftCounter::forget(const EventQueue &eq) {
  drop_if([&](Trigger &trigger) {
    if (trigger.transfer.eq == &eq) trigger.transfer.eq = nullptr;
    return trigger.eq == &eq;
  });
}

void SoftCounter::forget(const Counter &counter) {
  drop_if([&](Trigger &trigger) {
    if (trigger.transfer.counter == &counter) trigger.transfer.counter = nullptr;
    return trigger.target == &counter;
  });
}

uint64_t SoftCounter::read(const std::atomic<uint64_t> &part) const {
  if (word_.load(std::memory_order_acquire) != nullptr) {
    const EngineGuard guard(engine_.lock);
    write_back();
  }
  return part.load(std::memory_order_acquire);
}

void SoftCounter::write_back() const {
  uint64_t *const word = word_.load(std::memory_order_relaxed);
  if (word == nullptr) return;
  const uint64_t now = success_.load(std::memory_order_relaxed) |
                       failure_.load(std::memory_order_relaxed) << 48 | kWritten;
  __atomic_store_n(word, now, __ATOMIC_RELEASE);  // the process reads it meanwhile
}

void SoftCounter::add(uint64_t success) {
  const EngineGuard guard(engine_.lock);
  count(true, success);
  engine_.settle();
}

void SoftCounter::add_failure(uint64_t failure) {
  const EngineGuard guard(engine_.lock);
  count(false, failure);
  engine_.settle();
}

void SoftCounter::set(std::optional<uint64_t> success, std::optional<uint64_t> failure) {
  const EngineGuard guard(engine_.lock);
  store(success, failure);
  engine_.settle();
}

void SoftCounter::write_back_to(uint64_t *word) {
  const EngineGuard guard(engine_.lock);
  word_.store(word, std::memory_order_release);
}

void SoftCounter::request_write_back() {
  const EngineGuard guard(engine_.lock);
  write_back();
}

void SoftCounter::cancel() {
  const EngineGuard guard(engine_.lock);
  for (const auto &[threshold, waiting] : std::exchange(waiting_, {})) waiting.queue->drop();
}

}  // namespace weft::cxi
