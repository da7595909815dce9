// SPDX-License-Identifier: BSD-2-Clause
// Relay: tells eventfds when another descriptor is readable, by a thread, where a set of epoll
// cannot: the kernel lets a descriptor be in few sets that are in others (500 two deep, 100 three
// deep, 10 five deep; EINVAL beyond), however many wait.
//
//   Relay relay;
//   int rc = relay.arm(engine_fd, event);       // written once, when engine_fd is readable
//   relay.forget(event);                       // not written any more when this returns
//
// Its thread comes with the first arm(). It takes no lock but its own, which may be taken with any
// other held. Not for the usual few: those are woken by the kernel alone.
#ifndef WEFT_SDK_RELAY_H
#define WEFT_SDK_RELAY_H

#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace weft::sdk {

class Relay {
 public:
  Relay() = default;
  ~Relay();
  Relay(const Relay &) = delete;
  Relay &operator=(const Relay &) = delete;

  int arm(int source, int target);  // 0 or -FI_E...
  void forget(int target);

 private:
  int start();
  void run();

  std::mutex mutex_;
  std::map<int, std::vector<int>> armed_;  // targets of each source
  bool stop_ = false;
  int control_ = -1;
  std::thread thread_;
};

}  // namespace weft::sdk

#endif
