// SPDX-License-Identifier: BSD-2-Clause
// Cntr: an event counter (fi_cntr.3).
//
// Example:
//    void on_done(Cntr &cntr, uint64_t bytes, int err) {  // by the provider, engine's lock held
//      if (err == 0) cntr.add_events(1, bytes);
//      else cntr.add_error();
//    }
//
// Counts operations or bytes as it was opened for. Reading makes progress. Not a completion queue:
// it says how many operations have ended, never which.
#ifndef WEFT_SDK_CNTR_H
#define WEFT_SDK_CNTR_H

#include <weft/sdk/cq.h>

namespace weft::sdk {

class Cntr final : public Object<Cntr, fid_cntr> {
 public:
  static Result<Cntr *> open(DomainContext &domain, const fi_cntr_attr *attr, void *context);

  void add_events(uint64_t operations, uint64_t bytes) {
    value_.fetch_add(bytes_ ? bytes : operations, std::memory_order_relaxed);
    changed();
  }
  void add_error() {
    errors_.fetch_add(1, std::memory_order_relaxed);
    changed();
  }
  std::atomic<size_t> users{0};
  Engine &engine() { return *domain_.engine; }

  // fi_ops_cntr
  uint64_t read();
  uint64_t readerr();
  int add(uint64_t value);
  int set(uint64_t value);
  int wait(uint64_t threshold, int timeout);
  int adderr(uint64_t value);
  int seterr(uint64_t value);

  // fi_ops
  int close();
  int control(int command, void *arg);

  int trywait();
  bool poll();  // changed since the last poll

 private:
  Cntr(DomainContext &domain, const fi_cntr_attr &attr, void *context);
  ~Cntr() = default;
  void changed() {
    changed_ = true;
    wait_.notify();
  }
  int update(std::atomic<uint64_t> &what, uint64_t value, bool add);

  DomainContext &domain_;
  const bool bytes_;
  std::atomic<uint64_t> value_{0}, errors_{0};
  bool changed_ = false;  // since the last poll or trywait
  WaitObject wait_;
  WaitSet *wait_set_ = nullptr;  // FI_WAIT_SET: the set it joined
};

}  // namespace weft::sdk

#endif
