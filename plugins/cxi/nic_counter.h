// SPDX-License-Identifier: BSD-2-Clause
// NicCounter: the numbers of a counter are in the NIC, which fires commands when it reaches a
// threshold (deferred.h), and sets counters itself. It stops at kMaxFailure errors: from there on
// they are those that software has been told of.
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

#include <weft/sdk/devices/cntr_source.h>

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
  // An operation has failed, and the NIC has counted it.
  void on_error_in_nic() {
    if (late_ != 0)
      --late_;
    else
      told_.fetch_add(1, std::memory_order_relaxed);
  }
  // The commands that have not fired are gone: those with a higher threshold than what it returns.
  uint64_t take_back_commands();

  // ---- sdk::CntrStore ----
  uint64_t value() override { return counter_->success(); }
  uint64_t errors() override;
  void set(uint64_t value) override;
  void set_errors(uint64_t errors) override;
  // What software counts is written back at once: nobody asks the NIC for it.
  void count(uint64_t amount) override {
    counter_->add(amount);
    if (writes_back_) counter_->request_write_back();
  }
  void count_errors(uint64_t amount) override;
  int open_ops(const char *name, uint64_t, void **ops) override {
    return open_counter_ops(name, ops);
  }

 private:
  NicCounter(Domain &domain, std::unique_ptr<Counter> counter)
      : domain_(domain), counter_(std::move(counter)) {}
  uint64_t reached() const { return counter_->success() + counter_->failure(); }
  void tell_errors(uint64_t in_nic, uint64_t errors);

  Domain &domain_;
  std::unique_ptr<Counter> counter_;
  std::atomic<bool> writes_back_{false};
  std::atomic<uint64_t> told_{0};  // errors that software knows of
  uint64_t late_ = 0;  // of those that are told, or overwritten, whose events are to come
};

}  // namespace weft::cxi

#endif
