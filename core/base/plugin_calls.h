// SPDX-License-Identifier: BSD-2-Clause
// The calls into code of plugins that have not returned: who waits for a plugin, or crashed in one,
// can tell which.
//
// Example:
//    int ask(weft::PluginCalls &calls, const weft::UnitInfo &unit, int (*getinfo)()) {
//      const weft::PluginCalls::Inside inside(&calls, unit, "getinfo");
//      return getinfo();
//    }
//
// Only for what a plugin does while stacks are chosen: a call costs a lock. Not for the data path.
#ifndef WEFT_CORE_BASE_PLUGIN_CALLS_H
#define WEFT_CORE_BASE_PLUGIN_CALLS_H

#include <chrono>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/unit.h"

namespace weft {

class PluginCalls {
 public:
  using Clock = std::chrono::steady_clock;

  struct Call {
    std::string unit, library;
    const char *name = "";  // "getinfo"
    Clock::time_point since;
    std::thread::id thread;
  };

  // Gets each call when it begins, and the one around it when it ends, in the thread of the call.
  // `unit` NULL: this thread has none left. It must not call back.
  using Listener = void (*)(void *arg, const char *unit, const char *library, const char *call);
  void listen(Listener listener, void *arg);

  // The innermost call of a thread.
  std::optional<Call> innermost(std::thread::id thread) const;

  // A call, from construction to destruction. `calls` may be null.
  class Inside {
   public:
    Inside(PluginCalls *calls, const UnitInfo &unit, const char *name)
        : Inside(calls, unit.name, unit.library, name) {}
    Inside(PluginCalls *calls, const std::string &unit, const std::string &library,
           const char *name);
    ~Inside();
    Inside(const Inside &) = delete;
    Inside &operator=(const Inside &) = delete;

   private:
    PluginCalls *const calls_;
    std::list<Call>::iterator call_;
  };

 private:
  const Call *last_of(std::thread::id thread) const;
  void tell(const Call *call) const;

  mutable std::mutex mutex_;
  std::list<Call> open_;
  Listener listener_ = nullptr;
  void *arg_ = nullptr;
};

}  // namespace weft

#endif
