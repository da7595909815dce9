// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/nic_counter.h"

#include <algorithm>

#include "plugins/cxi/domain.h"

namespace weft::cxi {

Result<std::unique_ptr<NicCounter>> NicCounter::open(Domain &domain) {
  const sdk::Guard guard(domain.engine().lock());
  WEFT_TRY(std::unique_ptr<Counter> counter, domain.lni().counter());
  ++domain.nic_counters;
  return std::unique_ptr<NicCounter>(new NicCounter(domain, std::move(counter)));
}

NicCounter::~NicCounter() {
  const sdk::Guard guard(domain_.engine().lock());
  domain_.deferred().forget(*this);
  counter_.reset();  // before the NIC may be another one (Domain::take_service)
  --domain_.nic_counters;
}

uint64_t NicCounter::errors() {
  const uint64_t in_nic = counter_->failure();
  if (in_nic < Counter::kMaxFailure) return in_nic;
  return std::max(in_nic, told_.load(std::memory_order_relaxed));
}

// Which commands it has fired, it says until it is set back.
void NicCounter::set(uint64_t value) {
  if (domain_.deferred().waits_for(*this)) domain_.deferred().note_fired(*this, reached());
  counter_->set(value, std::nullopt);
}

void NicCounter::set_errors(uint64_t errors) {
  if (domain_.deferred().waits_for(*this)) domain_.deferred().note_fired(*this, reached());
  tell_errors(counter_->failure(), errors);
  counter_->set(std::nullopt, std::min(errors, Counter::kMaxFailure));
}

// What only the NIC has counted so far is told before it stops.
void NicCounter::count_errors(uint64_t amount) {
  const uint64_t in_nic = counter_->failure();
  if (in_nic < Counter::kMaxFailure && amount >= Counter::kMaxFailure - in_nic)
    tell_errors(in_nic, in_nic);
  counter_->add_failure(std::min(amount, Counter::kMaxFailure));
  told_.fetch_add(amount, std::memory_order_relaxed);
  if (writes_back_) counter_->request_write_back();
}

void NicCounter::tell_errors(uint64_t in_nic, uint64_t errors) {
  const uint64_t told = told_.exchange(errors);
  if (in_nic < Counter::kMaxFailure && in_nic > told) late_ += in_nic - told;
}

uint64_t NicCounter::take_back_commands() {
  uint64_t before, now = reached();
  do {
    before = now;
    counter_->cancel();
    now = reached();
  } while (now != before);
  return now;
}

}  // namespace weft::cxi
