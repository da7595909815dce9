// SPDX-License-Identifier: BSD-2-Clause
// DeviceEvents: what devices tell asynchronously (ibv_get_async_event.3), read in the fabric's
// engine.
//
// Example:
//    class QueuePair final : public DeviceUser {
//     public:
//      explicit QueuePair(DeviceEvents &events) : events_(events) {}
//      void on_device_event(ibv_event_type type) override {
//        if (type == IBV_EVENT_QP_FATAL) events_.notify(*this);
//      }
//      void on_notice() override;                            // the engine's lock is held
//      void on_device_gone(const ibv_context &) override {}  // so it is here
//
//     private:
//      DeviceEvents &events_;
//    };
//
// What is made on a device has a context (qp_context, cq_context, srq_context): null, or a
// DeviceUser, which is told of the object's events. A device is open once per process, so the
// engine of any fabric may read an event. Every event is acknowledged at once, because destroying
// its object waits for that. Not for connections: channel.h.
#ifndef WEFT_PLUGINS_VERBS_DEVICE_EVENTS_H
#define WEFT_PLUGINS_VERBS_DEVICE_EVENTS_H

#include <infiniband/verbs.h>
#include <weft/plugin.h>
#include <weft/result.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/unique_fd.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "plugins/verbs/counters.h"
#include "plugins/verbs/device.h"

namespace weft::verbs {

class DeviceUser {
 public:
  // In the thread that reads the event, without a lock of this fabric: it may set atomic flags, and
  // notify().
  virtual void on_device_event(ibv_event_type type) = 0;
  // After notify(), and when a device has failed; the engine's lock is held.
  virtual void on_notice() = 0;
  virtual void on_device_gone(const ibv_context &device) = 0;

 protected:
  ~DeviceUser() = default;

 private:
  friend class DeviceEvents;
  bool noticed_ = false;  // among the notices
};

class DeviceEvents final {
 public:
  DeviceEvents(const weft_instance *instance, Counters &counters, sdk::Engine &engine);
  ~DeviceEvents();
  DeviceEvents(const DeviceEvents &) = delete;
  DeviceEvents &operator=(const DeviceEvents &) = delete;

  // By any thread: the engine soon calls user.on_notice().
  void notify(DeviceUser &user);

  // ---- with the engine's lock held ----
  // From watch() to unwatch(), counted, its events are read.
  Result<void> watch(const Device &device);
  void unwatch(const Device &device);
  // Who is told that a device is gone. A user leaves before it goes.
  void join(DeviceUser &user);
  void leave(DeviceUser &user);
  // Reads what there is, for a caller that waits for an event.
  void read();

 private:
  struct Watched final : sdk::Handler {
    Watched(DeviceEvents &all, const Device &device)
        : events(all), verbs(device.verbs), name(device.facts.name) {}
    void on_event(uint32_t) override { events.read(*this); }

    DeviceEvents &events;
    ibv_context *const verbs;
    const std::string name;
    size_t uses = 1;
  };
  struct Mailbox final : sdk::Handler {
    explicit Mailbox(DeviceEvents &all) : events(all) {}
    void on_event(uint32_t) override { events.deliver(); }

    DeviceEvents &events;
    sdk::UniqueFd fd;  // readable while there are notices
  };

  void read(Watched &watched);
  void on_event(Watched &watched, const ibv_async_event &event);
  void deliver();
  Result<void> open_mailbox();

  const weft_instance *const instance_;
  Counters &counters_;
  sdk::Engine &engine_;
  std::vector<std::unique_ptr<Watched>> watched_;
  std::set<DeviceUser *> users_;
  Mailbox mailbox_{*this};
  std::mutex mutex_;  // of the notices; taken last
  std::vector<DeviceUser *> notices_;
};

}  // namespace weft::verbs

#endif
