// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/progress.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <weft/sdk/progress/quiet_thread.h>

#include <algorithm>
#include <cerrno>

#include "plugins/cxi/soft/neighbours.h"

namespace weft::cxi {
namespace {

// How often it looks whether others poll. Many looks in a row that found them make it look less.
constexpr int kFirstLookMs = 1, kLastLookMs = 8;

}  // namespace

Progress::~Progress() {
  if (!thread_.joinable()) return;
  if (process_ != ::getpid()) {  // a child after fork() does not have it
    thread_.detach();
    return;
  }
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

Result<void> Progress::start() {
  stop_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop_.get() < 0) return fail(errno, "cxi: no eventfd for the NIC's thread: see `ulimit -n`");
  if (const int rc = sdk::start_quiet_thread(thread_, [this] { run(); }); rc != 0)
    return fail(-rc, "cxi: no thread for the NIC: see `ulimit -u`");
  process_ = ::getpid();
  return {};
}

bool Progress::sleep(bool watches, int timeout_ms) {
  pollfd fds[2] = {{stop_.get(), POLLIN, 0}, {neighbours_.wait_fd(), POLLIN, 0}};
  ::poll(fds, watches ? 2 : 1, timeout_ms);
  return (fds[0].revents & POLLIN) == 0;
}

void Progress::run() {
  int look_ms = kFirstLookMs;
  while (true) {
    const uint64_t seen = polls_.load(std::memory_order_relaxed);
    if (!sleep(false, look_ms)) return;
    if (polls_.load(std::memory_order_relaxed) != seen) {
      look_ms = std::min(2 * look_ms, kLastLookMs);
      continue;
    }
    look_ms = kFirstLookMs;
    do {
      neighbours_.poll();
      if (!sleep(true, -1)) return;
    } while (polls_.load(std::memory_order_relaxed) == seen);
  }
}

}  // namespace weft::cxi
