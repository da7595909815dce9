// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/call_watch.h"

#include <signal.h>

#include <algorithm>
#include <exception>
#include <set>

namespace weft {

CallWatch::CallWatch(const PluginCalls &calls, std::chrono::milliseconds patience, Tell tell)
    : calls_(calls), patience_(patience), tell_(std::move(tell)) {
  // The application's signals are for its own threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::exception &) {  // no more threads, or no memory
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

CallWatch::~CallWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void CallWatch::run() {
  const auto pause = std::max(patience_ / 4, std::chrono::milliseconds(1));
  std::set<PluginCalls::Clock::time_point> told;  // when those began that were told
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, pause, [this] { return end_; })) {
    try {
      const std::optional<PluginCalls::Call> call = calls_.innermost(watched_);
      if (!call || PluginCalls::Clock::now() - call->since < patience_) continue;
      if (told.insert(call->since).second) tell_(*call);
    } catch (const std::exception &) {  // no memory for a line; the application goes on
    }
  }
}

}  // namespace weft
