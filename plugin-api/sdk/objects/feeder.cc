// SPDX-License-Identifier: BSD-2-Clause
#include "feeder.h"

#include <rdma/fi_errno.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace weft::sdk {

Feeder::Feeder(DomainContext &lane, Engine &home) : lane_(lane), home_(home) {
  lane_.children.fetch_add(1);
}

Feeder::~Feeder() {
  if (event_ >= 0) ::close(event_);
  lane_.children.fetch_sub(1);
}

// With the mutex held. The descriptor is there when a thread has blocked.
void Feeder::wake() {
  filled_ = true;
  if (event_ < 0 || woken_) return;
  woken_ = true;
  eventfd_write(event_, 1);
}

void Feeder::take() {
  const std::lock_guard alone(mutex_);
  if (woken_) {
    eventfd_t count;
    eventfd_read(event_, &count);
    woken_ = false;
  }
  if (!filled_) return;
  filled_ = false;
  empty();
}

// Lanes that feed each other, without locks (FI_THREAD_DOMAIN), would drive each other for ever.
void Feeder::drive() {
  static thread_local bool drives = false;
  if (drives || !lane_.engine->lock().try_lock()) return;
  const std::lock_guard guard(lane_.engine->lock(), std::adopt_lock);
  drives = true;
  const struct End {
    ~End() { drives = false; }
  } end;
  lane_.engine->progress();
  on_progress();
}

void Feeder::on_poll() {
  drive();
  take();
}

int Feeder::wait_fds(std::vector<int> &fds) {
  constexpr int kTries = 10'000;  // another thread holds the lane for microseconds
  if (event_ < 0) {
    const int made = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (made < 0) return -errno;
    const std::lock_guard alone(mutex_);
    event_ = made;
    if (filled_) wake();
  }
  fds.push_back(event_);
  for (int i = 0; i < kTries; ++i) {
    if (!lane_.engine->lock().try_lock()) {
      sched_yield();
      continue;
    }
    const std::lock_guard guard(lane_.engine->lock(), std::adopt_lock);
    const int fd = lane_.engine->wait_fd();
    if (fd < 0) return fd;
    fds.push_back(fd);
    return 0;
  }
  return -FI_EAGAIN;
}

// Who holds the lane now will put in what happens, and wakes us.
bool Feeder::may_wait() {
  drive();
  const std::lock_guard alone(mutex_);
  return !filled_;
}

}  // namespace weft::sdk
