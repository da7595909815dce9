// SPDX-License-Identifier: BSD-2-Clause
// Relay: a thread that writes eventfds when another descriptor is readable, where a set of epoll
// cannot. The kernel limits how often a descriptor may be in sets that are in other sets (500 two
// deep, 100 three deep, 10 five deep; EINVAL beyond).
//
// Example:
//    int wake(Relay &relay, int engine_fd, int event) {
//      return relay.arm(engine_fd, event);  // `event` is written once, when engine_fd is readable
//    }
//    void stop(Relay &relay, int event) {
//      relay.forget(event);  // when this returns, `event` is not written any more
//    }
//
// Its thread starts with the first arm(). It takes no lock but its own, which may be taken with any
// other held. Not for the usual few: the kernel alone wakes those.
#ifndef WEFT_SDK_PROGRESS_RELAY_H
#define WEFT_SDK_PROGRESS_RELAY_H

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
