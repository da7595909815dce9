// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/queues.h"

#include <cstring>

#include "plugins/cxi/nic/service.h"
#include "plugins/cxi/soft/counter.h"
#include "plugins/cxi/soft/lni.h"

namespace weft::cxi {

SoftTransmitQueue::~SoftTransmitQueue() {
  const EngineGuard guard(engine_.lock);
  for (Operation *const operation : posted_) engine_.give_back(*operation);
  engine_.forget(*this);
}

int SoftTransmitQueue::post(const Transfer &transfer) {
  const EngineGuard guard(engine_.lock);
  Operation *const operation = posted_.size() < depth_ ? engine_.new_operation() : nullptr;
  if (operation == nullptr) return -FI_EAGAIN;
  operation->transfer = transfer;
  operation->transfer.vni = profile_.vni;
  operation->transfer.high_rate = profile_.type == ProfileType::kHighRatePut;
  operation->lni = &lni_;
  operation->queue = this;
  if (transfer.inline_bytes != nullptr && transfer.length <= kMaxInline) {
    if (transfer.length != 0)
      std::memcpy(operation->inline_bytes, transfer.inline_bytes, transfer.length);
    operation->transfer.inline_bytes = operation->inline_bytes;
  }
  posted_.push_back(operation);
  return 0;
}

int SoftTransmitQueue::fence() {
  const EngineGuard guard(engine_.lock);
  Operation *const operation = posted_.size() < depth_ ? engine_.new_operation() : nullptr;
  if (operation == nullptr) return -FI_EAGAIN;
  operation->is_fence = true;
  posted_.push_back(operation);
  return 0;
}

Result<void> SoftTransmitQueue::set_profile(const Profile &profile) {
  WEFT_CHECK(check_profile(lni_.service(), profile));
  const EngineGuard guard(engine_.lock);
  profile_ = profile;
  return {};
}

void SoftTransmitQueue::flush() {
  const EngineGuard guard(engine_.lock);
  flushed_ = posted_.size();
  run();
  engine_.settle();
}

void SoftTransmitQueue::run() {
  while (flushed_ != 0) {
    Operation &operation = *posted_.front();
    if (operation.is_fence && in_flight_ != 0) return;
    posted_.pop_front();
    --flushed_;
    if (operation.is_fence) {
      engine_.give_back(operation);
      continue;
    }
    ++in_flight_;
    engine_.start(operation);
  }
}

SoftTriggerQueue::~SoftTriggerQueue() {
  const EngineGuard guard(engine_.lock);
  lni_.forget(*this);
  while (pending_ != 0) drop();
}

int SoftTriggerQueue::post(const Trigger &trigger) {
  const EngineGuard guard(engine_.lock);
  if (!lni_.pool().take(Resource::kTriggered)) return -FI_ENOSPC;
  ++pending_;
  static_cast<SoftCounter *>(trigger.counter)->wait(*this, trigger);
  engine_.settle();
  return 0;
}

size_t SoftTriggerQueue::pending() const {
  const EngineGuard guard(engine_.lock);
  return pending_;
}

void SoftTriggerQueue::drop() {
  --pending_;
  lni_.pool().give(Resource::kTriggered);
}

void SoftTriggerQueue::fire(const Trigger &trigger) {
  drop();
  auto *const target = static_cast<SoftCounter *>(trigger.target);
  switch (trigger.kind) {
    case Trigger::Kind::kSet:
      return target->store(trigger.value, std::nullopt);
    case Trigger::Kind::kAdd:
      return target->count(true, trigger.value);
    case Trigger::Kind::kWriteBack:
      return target->write_back();
    case Trigger::Kind::kEvent:
      static_cast<EventRing *>(trigger.eq)
          ->post({.type = EventType::kTriggered,
                  .counter = trigger.counter,
                  .threshold = trigger.threshold});
      return;
    case Trigger::Kind::kTransfer:
      break;
  }
  Operation *const operation = engine_.new_operation();
  if (operation == nullptr) {
    if (trigger.transfer.eq != nullptr)
      static_cast<EventRing *>(trigger.transfer.eq)
          ->post({.type = EventType::kCommandFailure,
                  .rc = Rc::kNoSpace,
                  .user_ptr = trigger.transfer.user_ptr});
    return;
  }
  operation->transfer = trigger.transfer;
  operation->transfer.vni = profile_.vni;
  operation->transfer.high_rate = profile_.type == ProfileType::kHighRatePut;
  operation->lni = &lni_;
  engine_.start_later(*operation);
}

}  // namespace weft::cxi
