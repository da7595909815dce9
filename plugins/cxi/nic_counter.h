// SPDX-License-Identifier: BSD-2-Clause
// NicCounter: the numbers of a counter are in the NIC, which fires commands when it reaches a
// threshold (deferred.h), and sets counters itself.
//
// Example:
//    // The NIC's part of a counter that an application has opened on this domain.
//    inline Counter &counter_of(sdk::Cntr &cntr) {
//      return static_cast<NicCounter &>(*cntr.store()).counter();
//    }
//
// Not for counters of another provider (FI_PEER).
#ifndef WEFT_PLUGINS_CXI_NIC_COUNTER_H
#define WEFT_PLUGINS_CXI_NIC_COUNTER_H

#include <weft/sdk/cntr_source.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "plugins/cxi/extensions.h"
#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class Domain;

class NicCounter final : public sdk::CntrStore {
 public:
  static Result<std::unique_ptr<NicCounter>> open(Domain &domain);
  ~NicCounter() override;

  Counter &counter() { return *counter_; }
  void write_back_to(uint64_t *word) {
    counter_->write_back_to(word);
    writes_back_ = word != nullptr;
  }
  // The commands that have not fired are gone: those with a higher threshold than what it returns.
  uint64_t take_back_commands();

  // ---- sdk::CntrStore ----
  uint64_t value() override { return counter_->success(); }
  uint64_t errors() override { return counter_->failure() + beyond_; }
  void set(uint64_t value) override { counter_->set(value, std::nullopt); }
  void set_errors(uint64_t errors) override {
    const uint64_t in_nic = std::min<uint64_t>(errors, kMostFailures);
    beyond_ = errors - in_nic;
    counter_->set(std::nullopt, in_nic);
  }
  // What software counts is written back at once: nobody asks the NIC for it.
  void count(uint64_t amount) override {
    counter_->add(amount);
    if (writes_back_) counter_->request_write_back();
  }
  void count_error() override { counter_->add_failure(1); }
  int open_ops(const char *name, uint64_t, void **ops) override {
    return open_counter_ops(name, ops);
  }

 private:
  NicCounter(Domain &domain, std::unique_ptr<Counter> counter)
      : domain_(domain), counter_(std::move(counter)) {}

  static constexpr uint64_t kMostFailures = 127;  // that the NIC counts: 7 bits

  Domain &domain_;
  std::unique_ptr<Counter> counter_;
  std::atomic<bool> writes_back_{false};
  uint64_t beyond_ = 0;  // what an application has set above that
};

}  // namespace weft::cxi

#endif
