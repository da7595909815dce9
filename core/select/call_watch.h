// SPDX-License-Identifier: BSD-2-Clause
// Tells the user which plugin a fi_getinfo() waits for, if one does not return.
//
// Example:
//    #include <cstdio>
//    int ask(weft::PluginCalls &calls, int (*getinfo)()) {
//      const weft::CallWatch watch(calls, std::chrono::seconds(2),
//                                  [](const weft::PluginCalls::Call &call) {
//                                    std::fprintf(stderr, "waits for %s\n", call.unit.c_str());
//                                  });
//      return getinfo();
//    }
//
// A thread, which sleeps until the watch ends or a call of the thread that made the watch is
// overdue. Nothing ends the call: code of a plugin cannot be interrupted safely. Where no thread
// can be had, nobody watches.
#ifndef WEFT_CORE_SELECT_CALL_WATCH_H
#define WEFT_CORE_SELECT_CALL_WATCH_H

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/base/plugin_calls.h"

namespace weft {

class CallWatch {
 public:
  using Tell = std::function<void(const PluginCalls::Call &call)>;

  // `tell` is called in the thread of the watch, once for each call that takes longer.
  CallWatch(const PluginCalls &calls, std::chrono::milliseconds patience, Tell tell);
  ~CallWatch();
  CallWatch(const CallWatch &) = delete;
  CallWatch &operator=(const CallWatch &) = delete;

  // False: no thread could be had.
  bool watches() const { return thread_.joinable(); }

 private:
  void run();

  const PluginCalls &calls_;
  const std::chrono::milliseconds patience_;
  const Tell tell_;
  const std::thread::id watched_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace weft

#endif
