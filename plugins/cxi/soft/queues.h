// SPDX-License-Identifier: BSD-2-Clause
// The command queues of the NIC in software: transfers in order, and commands that counters fire.
//
// Example:
//    // What an engine does when an operation of a queue is done; its lock is held.
//    inline void on_done(SoftTransmitQueue &queue) { queue.done(); }
//
// Not for what a transfer does: engine.h.
#ifndef WEFT_PLUGINS_CXI_SOFT_QUEUES_H
#define WEFT_PLUGINS_CXI_SOFT_QUEUES_H

#include <cstddef>
#include <deque>

#include "plugins/cxi/nic/nic.h"
#include "plugins/cxi/soft/engine.h"

namespace weft::cxi {

class SoftTransmitQueue final : public TransmitQueue {
 public:
  SoftTransmitQueue(Engine &engine, SoftLni &lni, size_t depth, const Profile &profile)
      : engine_(engine), lni_(lni), depth_(depth), profile_(profile) {}
  // What has not left is dropped. What has left reports to nobody, and its memory is touched no
  // more.
  ~SoftTransmitQueue() override;

  // ---- with the engine's lock held ----
  void done() { --in_flight_; }
  void run();  // starts what may start

  // ---- TransmitQueue ----
  int post(const Transfer &transfer) override;
  int fence() override;
  Result<void> set_profile(const Profile &profile) override;
  void flush() override;

 private:
  Engine &engine_;
  SoftLni &lni_;
  const size_t depth_;
  Profile profile_;
  std::deque<Operation *> posted_;
  size_t flushed_ = 0;  // of those: they may start
  size_t in_flight_ = 0;
};

class SoftTriggerQueue final : public TriggerQueue {
 public:
  SoftTriggerQueue(Engine &engine, SoftLni &lni, const Profile &profile)
      : engine_(engine), lni_(lni), profile_(profile) {}
  ~SoftTriggerQueue() override;

  // ---- with the engine's lock held ----
  void fire(const Trigger &trigger);
  void drop();  // one of its commands will not fire

  // ---- TriggerQueue ----
  int post(const Trigger &trigger) override;
  size_t pending() const override;

 private:
  Engine &engine_;
  SoftLni &lni_;
  const Profile profile_;
  size_t pending_ = 0;
};

}  // namespace weft::cxi

#endif
