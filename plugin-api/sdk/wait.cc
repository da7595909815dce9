// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/wait.h>

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <weft/sdk/engine.h>

#include <algorithm>
#include <cerrno>

namespace weft::sdk {

WaitObject::~WaitObject() {
  if (epoll_ >= 0) ::close(epoll_);
  if (event_ >= 0) ::close(event_);
}

Result<void> WaitObject::open(enum fi_wait_obj type) {
  switch (type) {
    case FI_WAIT_NONE:
    case FI_WAIT_UNSPEC:
    case FI_WAIT_FD:
    case FI_WAIT_YIELD:
    case FI_WAIT_POLLFD:
    case FI_WAIT_SET:
      break;
    case FI_WAIT_MUTEX_COND:
      mutex_cond_ = std::make_unique<MutexCond>();
      live_ = true;
      break;
    default:
      return fail(FI_EINVAL, "wait_obj %d: not one of enum fi_wait_obj", int(type));
  }
  type_ = type;
  return {};
}

bool WaitObject::watch(const WaitSource &source, int op) {
  std::optional<Guard> guard;
  if (!source.held) guard.emplace(source.engine->lock());
  const int fd = source.cm ? source.engine->cm_wait_fd() : source.engine->wait_fd();
  if (fd < 0) return false;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_, op, fd, &event) == 0 || errno == EEXIST;
}

void WaitObject::add_source(WaitSource source) {
  if (std::ranges::find(sources_, source) != sources_.end()) return;
  sources_.push_back(source);
  if (epoll_ >= 0) watch(source, EPOLL_CTL_ADD);
}

void WaitObject::remove_source(WaitSource source) {
  if (std::erase(sources_, source) != 0 && epoll_ >= 0) watch(source, EPOLL_CTL_DEL);
}

void WaitObject::raise() {
  signalled_ = true;
  if (event_ >= 0) {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = write(event_, &one, sizeof one);
  }
  if (mutex_cond_) {
    pthread_mutex_lock(&mutex_cond_->mutex);
    pthread_cond_broadcast(&mutex_cond_->cond);
    pthread_mutex_unlock(&mutex_cond_->mutex);
  }
}

void WaitObject::lower() {
  signalled_ = false;
  uint64_t count;
  if (event_ >= 0) [[maybe_unused]]
    ssize_t n = read(event_, &count, sizeof count);
}

int WaitObject::fd() {
  if (epoll_ >= 0) return epoll_;
  if (event_ < 0) event_ = eventfd(signalled_ ? 1 : 0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_ < 0) return -errno;
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return -errno;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = event_;
  bool watched = epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &event) == 0;
  for (const WaitSource &source : sources_) watched = watch(source, EPOLL_CTL_ADD) && watched;
  if (!watched) {
    const int error = errno;
    ::close(epoll_);
    epoll_ = -1;
    return error != 0 ? -error : -FI_EMFILE;
  }
  live_ = true;
  return epoll_;
}

int WaitObject::get(void *arg) {
  if (arg == nullptr) return -FI_EINVAL;
  if (type_ == FI_WAIT_MUTEX_COND) {
    auto *out = static_cast<struct fi_mutex_cond *>(arg);
    out->mutex = &mutex_cond_->mutex;
    out->cond = &mutex_cond_->cond;
    return 0;
  }
  if (type_ != FI_WAIT_FD && type_ != FI_WAIT_POLLFD && type_ != FI_WAIT_UNSPEC) return -FI_ENODATA;
  const int epoll = fd();
  if (epoll < 0) return epoll;
  if (type_ == FI_WAIT_POLLFD) {
    auto *out = static_cast<struct fi_wait_pollfd *>(arg);
    const size_t room = out->nfds;
    out->nfds = 1;
    out->change_index = 1;
    if (room < 1) return -FI_ETOOSMALL;
    out->fd[0] = {epoll, POLLIN, 0};
    return 0;
  }
  *static_cast<int *>(arg) = epoll;
  return 0;
}

void WaitObject::block(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  ::poll(&p, 1, timeout_ms);
}

Deadline::Deadline(int timeout_ms) {
  if (timeout_ms >= 0) at_ns_ = now_ns() + uint64_t(timeout_ms) * 1'000'000u;
}

bool Deadline::passed() const { return at_ns_ && now_ns() >= *at_ns_; }

int Deadline::left_ms() const {
  if (!at_ns_) return -1;
  const uint64_t now = now_ns();
  if (now >= *at_ns_) return 0;
  return int(std::min<uint64_t>((*at_ns_ - now + 999'999u) / 1'000'000u, 1u << 30));
}

}  // namespace weft::sdk
