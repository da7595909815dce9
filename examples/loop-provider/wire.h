// SPDX-License-Identifier: BSD-2-Clause
// The "hardware" of the loop provider: a wire within the process. Each endpoint has a Port, in
// which packets for it wait. It knows nothing of OFI: replace it by your device.
//
// Example:
//    bool say(loop::Wire &wire, const loop::Port &from, uint16_t to) {
//      const std::shared_ptr<loop::Port> port = wire.find(to);
//      return port != nullptr && port->put({.from = from.number(), .bytes = "hello"});
//    }
//
// All calls may come from any thread. Not for other processes.
#ifndef WEFT_EXAMPLES_LOOP_PROVIDER_WIRE_H
#define WEFT_EXAMPLES_LOOP_PROVIDER_WIRE_H

#include <sys/eventfd.h>
#include <unistd.h>
#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace loop {

struct Packet {
  uint16_t from = 0;
  bool tagged = false, has_data = false;
  uint64_t tag = 0, data = 0;
  std::string bytes;
};

class Port {
 public:
  static constexpr size_t kRoom = 256;  // packets

  Port(uint16_t number, weft::sdk::UniqueFd event) : number_(number), event_(std::move(event)) {}
  uint16_t number() const { return number_; }

  // False: there is no room now.
  bool put(Packet packet) {
    const std::lock_guard guard(mutex_);
    if (packets_.size() >= kRoom) return false;
    packets_.push_back(std::move(packet));
    if (std::exchange(armed_, false)) eventfd_write(event_.get(), 1);
    return true;
  }
  // The oldest; null: none. It stays where it is until pop(). Both are the owner's alone.
  Packet *front() {
    const std::lock_guard guard(mutex_);
    return packets_.empty() ? nullptr : &packets_.front();
  }
  void pop() {
    const std::lock_guard guard(mutex_);
    packets_.pop_front();
  }
  // Makes the descriptor readable with the next packet. False: there is one already.
  bool arm() {
    const std::lock_guard guard(mutex_);
    if (!packets_.empty()) return false;
    eventfd_t count;
    eventfd_read(event_.get(), &count);
    armed_ = true;
    return true;
  }
  int fd() const { return event_.get(); }

 private:
  const uint16_t number_;
  const weft::sdk::UniqueFd event_;
  std::mutex mutex_;
  std::deque<Packet> packets_;  // references stay valid while others are put behind
  bool armed_ = false;
};

class Wire {
 public:
  // A port with this number; 0: with any that is free.
  weft::Result<std::shared_ptr<Port>> open(uint16_t wanted) {
    const std::lock_guard guard(mutex_);
    uint16_t number = wanted;
    if (wanted == 0) {
      for (int tries = 0; number == 0 || ports_.contains(number); number = ++last_)
        if (++tries > UINT16_MAX)
          return weft::fail(FI_EADDRNOTAVAIL, "loop: all %d ports are in use: close endpoints",
                            UINT16_MAX);
    } else if (ports_.contains(wanted)) {
      return weft::fail(FI_EADDRINUSE,
                        "loop: an endpoint has port %d already: choose another, or 0 for any",
                        wanted);
    }
    weft::sdk::UniqueFd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event.get() < 0)
      return weft::fail(errno, "loop: eventfd: %s: see `ulimit -n`", strerror(errno));
    return ports_.emplace(number, std::make_shared<Port>(number, std::move(event))).first->second;
  }
  void close(const Port &port) {
    const std::lock_guard guard(mutex_);
    ports_.erase(port.number());
  }
  // Null: nobody has this port.
  std::shared_ptr<Port> find(uint16_t number) {
    const std::lock_guard guard(mutex_);
    const auto found = ports_.find(number);
    return found != ports_.end() ? found->second : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<uint16_t, std::shared_ptr<Port>> ports_;
  uint16_t last_ = 0;
};

}  // namespace loop

#endif
