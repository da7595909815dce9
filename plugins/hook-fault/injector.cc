// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/hook-fault/injector.h"

#include <weft/sdk/unit/log.h>

#include <cstring>

namespace weft::fault {

Injector::Injector(const weft_instance *instance, Rules rules, size_t memory)
    : instance_(instance), rules_(std::move(rules)), memory_(memory) {
  for (const Rule &rule : rules_.rules) concerned_ |= rule.operations;
  for (size_t i = 0; i < rules_.rules.size(); ++i)
    counters_.declare("rule " + std::to_string(i + 1) + ": " + rules_.rules[i].text,
                      "calls that this rule changed");
  counters_.declare("not_applicable",
                    "calls that went on unchanged, because the rule that they met "
                    "could not be applied");
}

// ---- which rule applies ----

Injector::Verdict Injector::judge(Calls &calls, uint64_t ordinal, Operation operation, size_t size,
                                  fi_addr_t peer) {
  const uint64_t call = ++calls.seen[operation];
  for (size_t i = 0; i < rules_.rules.size(); ++i) {
    const Rule &rule = rules_.rules[i];
    if (!rule.is_for(operation)) continue;
    if (operation != kCqRead && (size < rule.least || size > rule.most)) continue;
    if (rule.peer != UINT64_MAX && rule.peer != peer) continue;
    if (rule.nth != 0 && rule.nth != call) continue;
    if (rule.every != 0 && call % rule.every != 0) continue;
    if (calls.fired[i] >= rule.times) continue;
    if (rule.probability < 1 &&
        chance(rules_.seed, ordinal, operation, call, uint32_t(i)) >= rule.probability)
      continue;
    return {&rule, i, call};
  }
  return {};
}

void Injector::note(Calls &calls, const Verdict &verdict) {
  ++calls.fired[verdict.index];
  counters_[verdict.index].add();
}

void Injector::note_not_applicable(const Rule &rule) {
  counters_[rules_.rules.size()].add();
  WEFT_INFO(instance_, FI_LOG_EP_DATA, "rule \"%s\" is not applicable to this operation",
            rule.text.c_str());
}

// A call that the provider refused with -FI_EAGAIN does not count. The number of attempts depends
// on timing, and the faults must not.
ssize_t Injector::counted(EndpointState &endpoint, Operation operation, ssize_t rc) {
  if (rc == -FI_EAGAIN) {
    std::lock_guard lock(mutex_);
    --endpoint.calls.seen[operation];
  }
  return rc;
}

// The provider refused the call that the rule changed: the rule has not fired.
ssize_t Injector::undone(EndpointState &endpoint, const Verdict &verdict, Operation operation,
                         ssize_t rc) {
  std::lock_guard lock(mutex_);
  --endpoint.calls.fired[verdict.index];
  if (rc == -FI_EAGAIN) --endpoint.calls.seen[operation];
  return rc;
}

// ---- actions without a copy ----

std::optional<ssize_t> Injector::refuse(EndpointState &endpoint, const Attempt &attempt,
                                        const Verdict &verdict) {
  const Rule &rule = *verdict.rule;
  std::unique_lock lock(mutex_);
  switch (rule.action) {
    case Action::kFail:
      note(endpoint.calls, verdict);
      return -static_cast<ssize_t>(rule.number);
    case Action::kAgain:
      note(endpoint.calls, verdict);
      return -FI_EAGAIN;
    case Action::kFull:
      if (endpoint.tx == nullptr && endpoint.rx == nullptr) {
        note_not_applicable(rule);
        return {};
      }
      note(endpoint.calls, verdict);
      endpoint.full = any_full_ = true;
      return -FI_EAGAIN;
    case Action::kError:
      return complete_with_error(endpoint, attempt, verdict, lock);
    default:
      return {};
  }
}

std::optional<ssize_t> Injector::complete_with_error(EndpointState &endpoint,
                                                     const Attempt &attempt, const Verdict &verdict,
                                                     std::unique_lock<std::mutex> &lock) {
  if (!can_make_up(endpoint, attempt)) {
    note_not_applicable(*verdict.rule);
    return {};
  }
  note(endpoint.calls, verdict);
  QueueState *queue = make_up(endpoint, attempt, static_cast<int>(verdict.rule->number));
  fid_cntr *counter = attempt.is_receive() ? endpoint.rx_counter : endpoint.tx_counter;
  lock.unlock();
  if (counter != nullptr) (void)counter->ops->adderr(counter, 1);
  wake(queue);
  return 0;
}

void Injector::kill(Link link, EndpointState &endpoint, const Verdict &verdict) {
  const int rc = link.next.cm != nullptr && endpoint.ep->fid.fclass == FI_CLASS_EP
                     ? link.next.cm->shutdown(endpoint.ep, 0)
                     : -FI_ENOSYS;
  std::lock_guard lock(mutex_);
  if (rc == 0)
    note(endpoint.calls, verdict);
  else
    note_not_applicable(*verdict.rule);
}

// ---- dropped and copied messages ----

bool Injector::can_drop(const EndpointState &endpoint, const Attempt &attempt) const {
  return !completes(endpoint, attempt) || can_make_up(endpoint, attempt) ||
         endpoint.tx_counter != nullptr;
}

void Injector::drop(EndpointState &endpoint, const Attempt &attempt,
                    std::unique_lock<std::mutex> &lock) {
  const bool has_entry = completes(endpoint, attempt) && can_make_up(endpoint, attempt);
  QueueState *queue = has_entry ? make_up(endpoint, attempt, 0) : nullptr;
  fid_cntr *counter = attempt.is_injected() ? nullptr : endpoint.tx_counter;
  lock.unlock();
  if (counter != nullptr) (void)counter->ops->add(counter, 1);
  if (queue != nullptr) wake(queue);
}

namespace {

size_t copy_size(const Attempt &attempt, const Rule &rule) {
  return rule.action == Action::kTruncate ? std::min<uint64_t>(attempt.size, rule.number)
                                          : attempt.size;
}

}  // namespace

// The hook must recognize the completion of the copy, and a counter must not count a duplicate.
bool Injector::can_copy(const EndpointState &endpoint, const Attempt &attempt, const Rule &rule,
                        bool described) const {
  const bool injected = attempt.is_injected();
  const bool recognizable = injected || (can_make_up(endpoint, attempt) && !described);
  const bool counted_twice =
      rule.action == Action::kDuplicate && endpoint.tx_counter != nullptr && !injected;
  const size_t size = copy_size(attempt, rule);
  return recognizable && !counted_twice && size <= memory_ && copied_ <= memory_ - size;
}

std::unique_ptr<Copy> Injector::copy_of(const EndpointState &endpoint, const Attempt &attempt,
                                        const Verdict &verdict, const iovec *iov, size_t count) {
  const Rule &rule = *verdict.rule;
  const size_t size = copy_size(attempt, rule);
  auto copy = std::make_unique<Copy>();
  copy->context = attempt.context;
  copy->owner = &endpoint;
  copy->hides_completion = rule.action == Action::kDuplicate;
  copy->bytes.resize(size);
  for (size_t i = 0, at = 0; i < count && at < size; ++i) {
    const size_t part = std::min(iov[i].iov_len, size - at);
    if (part != 0) std::memcpy(copy->bytes.data() + at, iov[i].iov_base, part);
    at += part;
  }
  if (rule.action == Action::kCorrupt && size > 0) {
    const uint64_t random = mixed(rules_.seed, endpoint.ordinal, attempt.operation, verdict.call,
                                  static_cast<uint32_t>(verdict.index) + 1000);
    copy->bytes[(random >> 3) % size] ^= static_cast<char>(1u << (random & 7));
  }
  copied_ += size;
  return copy;
}

}  // namespace weft::fault
