// SPDX-License-Identifier: BSD-2-Clause
// LibcxiCounter: a counter of a Cassini.
//
// Example:
//    inline Result<std::unique_ptr<LibcxiCounter>> open_counter(LibcxiLni &lni) {
//      return LibcxiCounter::open(lni);
//    }
//
// The numbers are in the NIC. To read them the process asks for a write-back and waits for it,
// which takes as long as a word needs to the NIC and back. It adds by a store to a register. Not
// for counters of libfabric.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_COUNTER_H
#define WEFT_PLUGINS_CXI_LIBCXI_COUNTER_H

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "plugins/cxi/libcxi/lni.h"

namespace weft::cxi {

class LibcxiCounter final : public Counter {
 public:
  static Result<std::unique_ptr<LibcxiCounter>> open(LibcxiLni &lni);
  ~LibcxiCounter() override;
  // 0: there is none.
  static uint16_t number_of(const Counter *counter) {
    return counter != nullptr
               ? uint16_t(static_cast<const LibcxiCounter *>(counter)->counter_->number)
               : uint16_t{0};
  }
  // A command in some queue writes it back at its next count: one is enough.
  bool is_written_back_behind(uint64_t count) const { return written_back_at_.load() > count; }
  void note_write_back(uint64_t at) { written_back_at_.store(at); }

  // ---- Counter ----
  uint64_t success() const override;
  uint64_t failure() const override;
  void add(uint64_t success) override;
  void add_failure(uint64_t failure) override;
  void set(std::optional<uint64_t> success, std::optional<uint64_t> failure) override;
  void write_back_to(uint64_t *word) override;
  void request_write_back() override;
  void cancel() override;
  // A double of the hardware does not see what others store.
  void *registers() const override {
    return lni_.library().doorbell == nullptr ? counter_->doorbell : nullptr;
  }

 private:
  explicit LibcxiCounter(LibcxiLni &lni) : lni_(lni) {}
  uint64_t read() const;
  void command(CounterOp op) const;

  LibcxiLni &lni_;
  abi::Counter *counter_ = nullptr;
  mutable std::mutex mutex_;
  alignas(64) mutable uint64_t own_ = 0;  // where the NIC writes, unless it is told another place
  uint64_t *word_ = &own_;
  std::atomic<uint64_t> written_back_at_{0};  // 0: no command does
};

}  // namespace weft::cxi

#endif
