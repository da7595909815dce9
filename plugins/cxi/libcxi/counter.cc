// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/counter.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace weft::cxi {
namespace {

constexpr std::chrono::seconds kPatience{1};  // with a NIC that does not answer

}  // namespace

Result<std::unique_ptr<LibcxiCounter>> LibcxiCounter::open(LibcxiLni &lni) {
  std::unique_ptr<LibcxiCounter> counter(new LibcxiCounter(lni));
  if (const int rc = lni.library().alloc_ct(lni.handle(), &counter->own_, &counter->counter_);
      rc != 0)
    return fail(-rc, "cxi: no counter: %s: its service may have no more", strerror(-rc));
  lni.set_counter(counter->counter_->number, counter.get());
  return counter;
}

LibcxiCounter::~LibcxiCounter() {
  if (counter_ == nullptr) return;
  lni_.set_counter(counter_->number, nullptr);
  lni_.library().destroy_ct(counter_);
}

void LibcxiCounter::command(CounterOp op) const {
  lni_.command_counter([&](uint8_t *command) {
    put(command, CounterCommand::op, uint64_t(op));
    put(command, CounterCommand::ct, counter_->number);
  });
}

uint64_t LibcxiCounter::read() const {
  const std::lock_guard guard(mutex_);
  __atomic_fetch_and(word_, ~kWritten, __ATOMIC_ACQ_REL);
  command(CounterOp::kGet);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  uint64_t word = 0;
  while (((word = __atomic_load_n(word_, __ATOMIC_ACQUIRE)) & kWritten) == 0)
    if (std::chrono::steady_clock::now() > end) break;
  return word;
}

uint64_t LibcxiCounter::success() const {
  const uint64_t word = read();
  return get(&word, CounterWord::success);
}

uint64_t LibcxiCounter::failure() const {
  const uint64_t word = read();
  return get(&word, CounterWord::failure);
}

void LibcxiCounter::add(uint64_t success) {
  lni_.library().ring(counter_->doorbell + abi::kAddSuccess, success & kMaxSuccess);
}

void LibcxiCounter::add_failure(uint64_t failure) {
  lni_.library().ring(counter_->doorbell + abi::kAddFailure, std::min(failure, kMaxFailure));
}

void LibcxiCounter::set(std::optional<uint64_t> success, std::optional<uint64_t> failure) {
  lni_.command_counter([&](uint8_t *command) {
    put(command, CounterCommand::op, uint64_t(CounterOp::kSet));
    put(command, CounterCommand::ct, counter_->number);
    put(command, CounterCommand::sets_success, success.has_value());
    put(command, CounterCommand::success, success.value_or(0));
    put(command, CounterCommand::sets_failure, failure.has_value());
    put(command, CounterCommand::failure, std::min(failure.value_or(0), kMaxFailure));
  });
}

void LibcxiCounter::write_back_to(uint64_t *word) {
  const std::lock_guard guard(mutex_);
  word_ = word != nullptr ? word : &own_;
  lni_.library().ct_wb_update(counter_, word_);
}

void LibcxiCounter::request_write_back() {
  command(CounterOp::kGet);
}

void LibcxiCounter::cancel() {
  note_write_back(0);
  command(CounterOp::kCancel);
}

}  // namespace weft::cxi
