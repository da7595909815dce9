// SPDX-License-Identifier: BSD-2-Clause
// Feeder: what happens in a lane (scalable.h) for a queue or a counter under another lock, because
// contexts of several lanes report to it. The lane's side puts it in under a lock that both sides
// take last; each progress of the queue's engine takes it out.
//
// Example:
//    #include <utility>
//    class Sum final : public Feeder {
//     public:
//      using Feeder::Feeder;
//      void add(uint64_t n) {  // with the lane's lock held
//        put([&] { waiting_ += n; });
//      }
//      uint64_t sum() const { return sum_; }  // with the lock of its home held, like all else
//
//     private:
//      void empty() override { sum_ += std::exchange(waiting_, 0); }  // alone
//      uint64_t waiting_ = 0, sum_ = 0;
//    };
//
// It drives the lane, too, when nobody else does: a thread that reads the queue makes progress for
// all contexts that report there. For that it never waits for a lane's lock, so that two lanes can
// feed each other.
#ifndef WEFT_SDK_OBJECTS_FEEDER_H
#define WEFT_SDK_OBJECTS_FEEDER_H

#include <weft/sdk/objects/cq.h>
#include <weft/sdk/progress/engine.h>

#include <mutex>
#include <vector>

namespace weft::sdk {

class Feeder : public Poller {
 public:
  Feeder(DomainContext &lane, Engine &home);
  virtual ~Feeder();
  Feeder(const Feeder &) = delete;
  Feeder &operator=(const Feeder &) = delete;

  const DomainContext &lane() const { return lane_; }
  // With the lock of the home held; stop() before the destructor.
  void start() { home_.add_poller(*this); }
  void stop() { home_.remove_poller(*this); }

  // Poller
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;

 protected:
  template <class Change>
  void put(Change change) {
    const std::lock_guard alone(mutex_);
    change();
    wake();
  }
  // Gives on what was put in; with both locks held.
  virtual void empty() = 0;
  // Of empty(): something is left, for which there is no room.
  void leave_filled() { filled_ = true; }
  // With the lane's lock held, after its progress.
  virtual void on_progress() {}

 private:
  void drive();
  void wake();
  void take();

  DomainContext &lane_;
  Engine &home_;
  std::mutex mutex_;
  bool filled_ = false, woken_ = false;
  int event_ = -1;
};

}  // namespace weft::sdk

#endif
