// SPDX-License-Identifier: BSD-2-Clause
// SoftCounter: a counter of the NIC in software, and the commands that it fires.
//
// Example:
//    // What an acknowledgement does; the engine's lock is held.
//    inline void acknowledge(SoftCounter &counter, const Reply &reply) {
//      counter.count(reply.rc == Rc::kOk, 1);
//    }
//
// Not for counters of libfabric, which may add to what this one has.
#ifndef WEFT_PLUGINS_CXI_SOFT_COUNTER_H
#define WEFT_PLUGINS_CXI_SOFT_COUNTER_H

#include <atomic>
#include <map>
#include <memory>

#include "plugins/cxi/nic/nic.h"
#include "plugins/cxi/soft/engine.h"

namespace weft::cxi {

class SoftTriggerQueue;

class SoftCounter final : public Counter {
 public:
  SoftCounter(Engine &engine, SoftLni &lni);
  ~SoftCounter() override;

  // ---- with the engine's lock held ----
  void count(bool success, uint64_t amount, bool writes_back = false);
  void write_back() const;
  void store(std::optional<uint64_t> success, std::optional<uint64_t> failure);
  void wait(SoftTriggerQueue &queue, const Trigger &trigger);
  void forget(const SoftTriggerQueue &queue);
  // What its commands name ends: a command for it is dropped, one that reports to it reports less.
  void forget(const EventQueue &eq);
  void forget(const Counter &counter);
  void fire();  // those whose threshold is reached, the lowest first

  // ---- Counter ----
  uint64_t success() const override { return read(success_); }
  uint64_t failure() const override { return read(failure_); }
  void add(uint64_t success) override;
  void add_failure(uint64_t failure) override;
  void set(std::optional<uint64_t> success, std::optional<uint64_t> failure) override;
  void write_back_to(uint64_t *word) override;
  void request_write_back() override;
  void cancel() override;

 private:
  struct Waiting {
    SoftTriggerQueue *queue;
    Trigger trigger;
  };
  template <class IsLost>
  void drop_if(IsLost is_lost);
  uint64_t read(const std::atomic<uint64_t> &part) const;
  bool is_reached(uint64_t threshold) const {
    return success_.load(std::memory_order_relaxed) + failure_.load(std::memory_order_relaxed) >=
           threshold;
  }

  Engine &engine_;
  SoftLni &lni_;
  std::atomic<uint64_t> success_{0}, failure_{0};
  std::atomic<uint64_t *> word_{nullptr};
  std::multimap<uint64_t, Waiting> waiting_;  // by threshold
  bool queued_ = false;                       // Engine::fired()

  friend class Engine;
};

}  // namespace weft::cxi

#endif
