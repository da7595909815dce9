// SPDX-License-Identifier: BSD-2-Clause
// CntrSource: the counter of a device behind a Cntr (cntr.h), which reads it straight.
//
// Example:
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
//      uint64_t base_ = 0, error_base_ = 0;
//    };
//
// A Cntr with a source has an engine, and so a lock, of its own. value() and errors() are called by
// any thread without a lock, the rest with that lock held. The source goes with its counter. Not
// for providers that count in software: they call Cntr::add_events().
#ifndef WEFT_SDK_CNTR_SOURCE_H
#define WEFT_SDK_CNTR_SOURCE_H

#include <cstdint>

namespace weft::sdk {

class CntrSource {
 public:
  virtual ~CntrSource() = default;
  virtual uint64_t value() = 0;   // operations or bytes, as the counter was opened for
  virtual uint64_t errors() = 0;  // operations
  virtual void set(uint64_t value) = 0;
  virtual void set_errors(uint64_t errors) = 0;
  // The descriptor that arm() makes readable; negative: -FI_E...: the counter cannot be waited for.
  virtual int wait_fd() = 0;
  // Asks the device to make the descriptor readable with the next change, and takes back what made
  // it readable before. False: there was a change since the last look at the values.
  virtual bool arm() = 0;
};

}  // namespace weft::sdk

#endif
