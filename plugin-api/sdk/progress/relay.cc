// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/progress/relay.h>

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include <weft/sdk/progress/quiet_thread.h>

namespace weft::sdk {

Relay::~Relay() {
  if (thread_.joinable()) {
    {
      std::lock_guard guard(mutex_);
      stop_ = true;
      eventfd_write(control_, 1);
    }
    thread_.join();
  }
  if (control_ >= 0) ::close(control_);
}

int Relay::start() {
  if (control_ < 0) control_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (control_ < 0) return -errno;
  return start_quiet_thread(thread_, [this] { run(); });
}

int Relay::arm(int source, int target) {
  std::lock_guard guard(mutex_);
  if (!thread_.joinable()) {
    if (const int rc = start(); rc != 0) return rc;
  }
  std::vector<int> &targets = armed_[source];
  if (std::ranges::find(targets, target) != targets.end()) return 0;
  targets.push_back(target);
  // A source with other targets is polled already.
  if (targets.size() == 1) eventfd_write(control_, 1);
  return 0;
}

void Relay::forget(int target) {
  std::lock_guard guard(mutex_);
  for (auto it = armed_.begin(); it != armed_.end();) {
    std::erase(it->second, target);
    // A source without targets is not polled any more: it may be closed next.
    it = it->second.empty() ? armed_.erase(it) : std::next(it);
  }
}

void Relay::run() {
  std::vector<pollfd> fds;
  std::unique_lock lock(mutex_);
  while (!stop_) {
    fds.assign(1, {control_, POLLIN, 0});
    for (const auto &[source, targets] : armed_) fds.push_back({source, POLLIN, 0});
    lock.unlock();
    ::poll(fds.data(), nfds_t(fds.size()), -1);
    lock.lock();
    eventfd_t count;
    eventfd_read(control_, &count);
    for (const pollfd &fd : fds) {
      if (fd.revents == 0) continue;
      const auto at = armed_.find(fd.fd);
      if (at == armed_.end()) continue;
      for (const int target : at->second) eventfd_write(target, 1);
      armed_.erase(at);
    }
  }
}

}  // namespace weft::sdk
