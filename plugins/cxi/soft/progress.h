// SPDX-License-Identifier: BSD-2-Clause
// Progress: the thread of a process that serves its NICs in software where nobody else does: a
// Cassini reads, writes and matches while its process computes, and programs rely on it.
//
// Example:
//    inline Result<void> serve(Progress &progress) { return progress.start(); }
//
// While others poll, it only looks now and then whether they still do. When they have stopped, it
// sleeps until a neighbour has something for the NIC. Not for completions: the process reads those.
#ifndef WEFT_PLUGINS_CXI_SOFT_PROGRESS_H
#define WEFT_PLUGINS_CXI_SOFT_PROGRESS_H

#include <sys/types.h>
#include <weft/result.h>
#include <weft/sdk/progress/unique_fd.h>

#include <atomic>
#include <cstdint>
#include <thread>

namespace weft::cxi {

class Neighbours;

class Progress {
 public:
  explicit Progress(Neighbours &neighbours) : neighbours_(neighbours) {}
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  Result<void> start();
  // Somebody else polls.
  void on_poll() {
    polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

 private:
  void run();
  bool sleep(bool watches, int timeout_ms);  // false: the thread is to end

  Neighbours &neighbours_;
  std::atomic<uint64_t> polls_{0};
  sdk::UniqueFd stop_;
  std::thread thread_;
  pid_t process_ = -1;
};

}  // namespace weft::cxi

#endif
