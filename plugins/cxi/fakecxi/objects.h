// SPDX-License-Identifier: BSD-2-Clause
// What the double hands out: the library's structures, and behind them objects of the NIC in
// software, which commands and events name by numbers.
//
// Example:
//    // What a command means that names a counter.
//    inline Counter *counter_of(FakeLni &lni, unsigned number) { return lni.counters.at(number); }
//
// Not for what commands say: commands.h.
#ifndef WEFT_PLUGINS_CXI_FAKECXI_OBJECTS_H
#define WEFT_PLUGINS_CXI_FAKECXI_OBJECTS_H

#include <weft/sdk/progress/unique_fd.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "plugins/cxi/fakecxi/world.h"
#include "plugins/cxi/libcxi/words.h"
#include "plugins/cxi/soft/event_ring.h"

namespace weft::cxi {

// Objects by number, 1 and up. Thread-safe; what a number names lives as long as its owner says.
template <class T>
class Numbers {
 public:
  static constexpr unsigned kMost = 2047;
  unsigned add(T *object) {  // 0: there are too many
    const std::lock_guard guard(mutex_);
    if (objects_.size() == kMost) return 0;
    do {
      last_ = last_ % kMost + 1;
    } while (objects_.contains(last_));
    objects_[last_] = object;
    numbers_[object] = last_;
    return last_;
  }
  void remove(unsigned number) {
    const std::lock_guard guard(mutex_);
    numbers_.erase(objects_[number]);
    objects_.erase(number);
  }
  T *at(unsigned number) const {
    const std::lock_guard guard(mutex_);
    const auto found = objects_.find(number);
    return found != objects_.end() ? found->second : nullptr;
  }
  unsigned number_of(const T *object) const {
    const std::lock_guard guard(mutex_);
    const auto found = numbers_.find(object);
    return found != numbers_.end() ? found->second : 0;
  }

 private:
  mutable std::mutex mutex_;
  unsigned last_ = 0;
  std::map<unsigned, T *> objects_;
  std::map<const T *, unsigned> numbers_;
};

struct FakeMapping : abi::Mapping {
  FakeLni *lni = nullptr;
  Memory memory;
};

struct FakeLni : abi::Lni {
  FakeDevice *device = nullptr;
  std::unique_ptr<cxi::Lni> lni;
  Numbers<cxi::EventQueue> event_queues;
  Numbers<cxi::Counter> counters;
  Numbers<cxi::Portal> portals;

  // What an address of a LAC is: of this process, and by whose leave. Thread-safe.
  static constexpr uint32_t kNone = UINT32_MAX - 1;  // of Memory: was never mapped
  struct Place {
    Memory memory;
    uint64_t address = 0;
  };
  Place find(unsigned lac, uint64_t address, uint64_t length) const;
  void add(FakeMapping &mapping);
  void remove(FakeMapping &mapping);
  uint64_t next_address(uint64_t length);

  // A communication profile by its number.
  int add_profile(const Profile &profile);  // or -errno
  void remove_profile(unsigned lcid);
  Profile profile(unsigned lcid) const;

 private:
  mutable std::mutex mutex_;
  std::vector<FakeMapping *> mappings_;
  uint64_t next_ = uint64_t{1} << 52;
  std::map<unsigned, Profile> profiles_;
};

struct FakeDomain : abi::Domain {
  std::unique_ptr<Endpoint> endpoint;
};
struct FakePortal : abi::Portal {
  FakeLni *lni = nullptr;
  std::unique_ptr<cxi::Portal> portal;
};
struct FakePortalMap {};

// Ready for POLLPRI where an event has come.
class FakeWait {
 public:
  bool open();
  int fd() const { return reader_.get(); }
  void signal();
  void clear();

 private:
  sdk::UniqueFd writer_, reader_;
  std::mutex mutex_;
  bool is_set_ = false;
};

// An event queue in the process's memory. The events come from one of the NIC in software.
struct FakeEventQueue final : abi::EventQueue, EventSink, Doorbell {
  FakeLni *lni = nullptr;
  FakeWait *wait = nullptr;
  std::unique_ptr<cxi::EventQueue> queue;
  uint64_t reader = 0;  // the register

  // ---- EventSink ----
  void on_event(const Event &event) override;
  void on_lost() override;
  // ---- Doorbell ----
  void rung(uint64_t value) override;

 private:
  void write(const uint8_t *event, size_t size);
  void write_raw(const uint8_t *event, size_t size);
  size_t payload() const { return bytes - 64; }

  std::mutex mutex_;
  uint64_t written_ = 0, read_ = 0;  // bytes behind the status, all rounds
  std::deque<uint64_t> ends_;        // of the events that were not read
  bool interrupts_ = false;
};

struct FakeCounter : abi::Counter {
  FakeLni *lni = nullptr;
  std::unique_ptr<cxi::Counter> counter;
  alignas(256) uint8_t page[256] = {};
  struct Register final : Doorbell {
    cxi::Counter *counter = nullptr;
    FakeDevice *device = nullptr;
    bool success = true;
    void rung(uint64_t value) override;
  } success, failure;
};

}  // namespace weft::cxi

#endif
