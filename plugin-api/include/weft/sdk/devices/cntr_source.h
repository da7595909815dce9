// SPDX-License-Identifier: BSD-2-Clause
// CntrSource: the counter of a device behind a Cntr (cntr.h), which reads it straight. CntrStore: a
// counter that provider and device raise together.
//
// Example:
//    #include <atomic>
//    class Source final : public CntrSource {
//     public:
//      explicit Source(volatile uint64_t *page) : page_(page) {}  // the device writes it
//      uint64_t value() override { return page_[0] + base_; }
//      uint64_t errors() override { return page_[1] + error_base_; }
//      void set(uint64_t value) override { base_ = value - page_[0]; }
//      void set_errors(uint64_t errors) override { error_base_ = errors - page_[1]; }
//      int wait_fd() override;
//      bool arm() override;
//     private:
//      volatile uint64_t *const page_;
//      std::atomic<uint64_t> base_{0}, error_base_{0};
//    };
//
// A Cntr with a source has an engine, and so a lock, of its own. value() and errors() are called by
// any thread without a lock, the rest with that lock held. The source goes with its counter. Not
// for providers that count in software: they call Cntr::add_events().
#ifndef WEFT_SDK_DEVICES_CNTR_SOURCE_H
#define WEFT_SDK_DEVICES_CNTR_SOURCE_H

#include <rdma/fi_errno.h>
#include <weft/sdk/devices/device_engine.h>

#include <cstdint>

namespace weft::sdk {

// Where a counter has its numbers, if not in the Cntr itself: a store that a device may change,
// too. A Cntr with a store is one of its domain as any other: its calls come with the domain's lock
// held, but for value() and errors(). What changes the store by itself tells the counter
// (Cntr::look()).
class CntrStore {
 public:
  virtual ~CntrStore() = default;
  virtual uint64_t value() = 0;   // operations or bytes, as the counter was opened for
  virtual uint64_t errors() = 0;  // operations
  virtual void set(uint64_t value) = 0;
  virtual void set_errors(uint64_t errors) = 0;
  // What Cntr::add_events() and add_error() add, and fi_cntr_add and fi_cntr_adderr: nothing that
  // the device counts meanwhile is lost.
  virtual void count(uint64_t amount) = 0;
  virtual void count_errors(uint64_t amount) = 0;
  // fi_open_ops of the counter, without its lock. 0 or -FI_E...
  virtual int open_ops(const char *name, uint64_t flags, void **ops) {
    (void)name, (void)flags, (void)ops;
    return -FI_ENOSYS;
  }
};

// arm() is false where there was a change since the last look at the values.
class CntrSource : public DeviceSource {
 public:
  virtual uint64_t value() = 0;   // operations or bytes, as the counter was opened for
  virtual uint64_t errors() = 0;  // operations
  virtual void set(uint64_t value) = 0;
  virtual void set_errors(uint64_t errors) = 0;
};

}  // namespace weft::sdk

#endif
