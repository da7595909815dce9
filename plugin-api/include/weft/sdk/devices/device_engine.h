// SPDX-License-Identifier: BSD-2-Clause
// DeviceSource: what blocking calls need of a queue or counter that a device keeps. DeviceEngine:
// the engine of such an object, so that its readers share no lock with the domain.
//
// Example:
//    class Source : public DeviceSource {
//     public:
//      virtual uint64_t read() = 0;
//    };
//    class Counter {
//     public:
//      explicit Counter(std::unique_ptr<Source> source) : device_(std::move(source), true) {
//        Guard guard(device_.engine.lock());
//        device_.start();
//      }
//      uint64_t read() { return device_.source->read(); }
//
//     private:
//      DeviceEngine<Source> device_;
//    };
//
// Not for queues of the provider beneath a layer: those are Pollers of the domain's engine.
#ifndef WEFT_SDK_DEVICES_DEVICE_ENGINE_H
#define WEFT_SDK_DEVICES_DEVICE_ENGINE_H

#include <weft/sdk/progress/engine.h>

#include <memory>
#include <utility>
#include <vector>

namespace weft::sdk {

class DeviceSource {
 public:
  virtual ~DeviceSource() = default;
  // The descriptor that arm() makes readable; negative: -FI_E...: the object cannot be waited for.
  virtual int wait_fd() = 0;
  // Asks the device to make the descriptor readable with its next event, and takes back what made
  // it readable before. False: there was an event since the last look.
  virtual bool arm() = 0;
};

template <class Source>
class DeviceEngine : public Poller {
 public:
  DeviceEngine(std::unique_ptr<Source> of, bool locked) : engine(locked), source(std::move(of)) {}
  ~DeviceEngine() {
    Guard guard(engine.lock());
    if (started_) engine.remove_poller(*this);
  }
  // Readers give way as those of the domain's engine do. A read looks at memory only, so kReads of
  // them take about as long as one there.
  static constexpr unsigned kReads = 8;
  void yield_as(const Engine &domain) { engine.yield_after(kReads * domain.yields_after()); }
  // With the lock held.
  void start() {
    engine.add_poller(*this);
    started_ = true;
  }

  void on_poll() override {}  // it is read where it is
  int wait_fds(std::vector<int> &fds) override {
    const int fd = source->wait_fd();
    if (fd < 0) return fd;
    fds.push_back(fd);
    return 0;
  }
  bool may_wait() override { return source->arm(); }

  Engine engine;
  const std::unique_ptr<Source> source;

 private:
  bool started_ = false;
};

}  // namespace weft::sdk

#endif
