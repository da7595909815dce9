// SPDX-License-Identifier: BSD-2-Clause
#include "core/select/call_watch.h"

#include <signal.h>

#include <system_error>

namespace weft {

CallWatch::CallWatch(const PluginCalls &calls, std::chrono::milliseconds patience, Tell tell)
    : calls_(calls), patience_(patience), tell_(std::move(tell)) {
  // The application's signals are for its own threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error &) {  // no more threads
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
  PluginCalls::Clock::time_point told{};
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, patience_ / 4, [this] { return end_; })) {
    const std::optional<PluginCalls::Call> call = calls_.innermost(watched_);
    if (!call || call->since == told || PluginCalls::Clock::now() - call->since < patience_)
      continue;
    told = call->since;
    tell_(*call);
  }
}

}  // namespace weft
