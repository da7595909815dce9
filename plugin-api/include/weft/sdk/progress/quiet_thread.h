// SPDX-License-Identifier: BSD-2-Clause
// start_quiet_thread: a thread of a plugin, which takes no signals: those belong to the
// application's threads.
//
// Example:
//    int start(std::thread &thread) {
//      return weft::sdk::start_quiet_thread(thread, [] { /* work */ });
//    }
//
// Not for the progress of a domain: Engine::start_thread() (engine.h).
#ifndef WEFT_SDK_PROGRESS_QUIET_THREAD_H
#define WEFT_SDK_PROGRESS_QUIET_THREAD_H

#include <pthread.h>
#include <rdma/fi_errno.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

namespace weft::sdk {

// 0, or -FI_EAGAIN: there may be no more threads.
template <class F>
int start_quiet_thread(std::thread &thread, F run) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int rc = 0;
  try {
    thread = std::thread(std::move(run));
  } catch (const std::system_error &) {
    rc = -FI_EAGAIN;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return rc;
}

}  // namespace weft::sdk

#endif
