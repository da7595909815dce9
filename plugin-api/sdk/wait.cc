// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/wait.h>

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/log.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

namespace weft::sdk {

// FI_WAIT_MUTEX_COND. An application holds the mutex from fi_trywait() to pthread_cond_wait(), or
// it would miss the signal; so nobody who holds a lock that fi_trywait() takes may lock the mutex.
// A thread does that waits for the descriptor in its place, each time that fi_trywait() said that
// it is safe to block.
class WaitObject::Condition {
 public:
  Condition() = default;
  ~Condition();
  int arm(int fd);  // 0 or -FI_E...

  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

 private:
  int start(int fd);
  void run(int fd);

  int control_ = -1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

WaitObject::Condition::~Condition() {
  if (thread_.joinable()) {
    stop_ = true;
    eventfd_write(control_, 1);
    thread_.join();
  }
  if (control_ >= 0) ::close(control_);
}

int WaitObject::Condition::arm(int fd) {
  if (!thread_.joinable()) {
    if (const int rc = start(fd); rc != 0) return rc;
  }
  eventfd_write(control_, 1);
  return 0;
}

int WaitObject::Condition::start(int fd) {
  if (control_ < 0) control_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (control_ < 0) return -errno;
  // Signals belong to the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int rc = 0;
  try {
    thread_ = std::thread([this, fd] { run(fd); });
  } catch (const std::system_error &) {
    rc = -FI_EAGAIN;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return rc;
}

void WaitObject::Condition::run(int fd) {
  bool armed = false;
  for (;;) {
    pollfd fds[2] = {{control_, POLLIN, 0}, {fd, POLLIN, 0}};
    ::poll(fds, armed ? 2 : 1, -1);
    if (fds[0].revents != 0) {
      eventfd_t count;
      eventfd_read(control_, &count);
      if (stop_) return;
      armed = true;
    } else if (fds[1].revents != 0) {
      armed = false;
      pthread_mutex_lock(&mutex);
      pthread_cond_broadcast(&cond);
      pthread_mutex_unlock(&mutex);
    }
  }
}

WaitObject::WaitObject() = default;

WaitObject::~WaitObject() {
  condition_.reset();  // its thread uses the descriptor
  if (epoll_ >= 0) ::close(epoll_);
  if (event_ >= 0) ::close(event_);
}

Result<void> WaitObject::open(int type) {
  switch (type) {
    case FI_WAIT_NONE:
    case FI_WAIT_UNSPEC:
    case FI_WAIT_FD:
    case FI_WAIT_YIELD:
    case FI_WAIT_POLLFD:
    case FI_WAIT_SET:
      break;
    case FI_WAIT_MUTEX_COND:
      condition_ = std::make_unique<Condition>();
      break;
    default:
      return fail(FI_EINVAL, "wait_obj %d: not one of enum fi_wait_obj", type);
  }
  type_ = static_cast<enum fi_wait_obj>(type);
  return {};
}

int WaitObject::watch(Watched &watched) {
  if (watched.fd >= 0) return 0;
  const WaitSource &source = watched.source;
  int fd;
  {
    std::optional<Guard> guard;
    if (!source.held) guard.emplace(source.engine->lock());
    fd = source.cm ? source.engine->cm_wait_fd() : source.engine->wait_fd();
  }
  if (fd < 0) return fd;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return -errno;
  watched.fd = fd;
  return 0;
}

bool WaitObject::add_source(WaitSource source) {
  if (std::ranges::find(sources_, source, &Watched::source) != sources_.end()) return true;
  sources_.push_back({source});
  if (epoll_ >= 0 && watch(sources_.back()) != 0) complete_ = false;
  return epoll_ < 0 || complete_;
}

void WaitObject::remove_source(WaitSource source) {
  const auto it = std::ranges::find(sources_, source, &Watched::source);
  if (it == sources_.end()) return;
  if (it->fd >= 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, it->fd, nullptr);
  sources_.erase(it);
}

void WaitObject::raise() {
  signalled_ = true;
  eventfd_write(event_, 1);
}

void WaitObject::lower() {
  signalled_ = false;
  eventfd_t count;
  eventfd_read(event_, &count);
}

WaitObject::Waiter::~Waiter() {
  if (at_ == object_.changes_) --object_.looked_;
  --object_.waiters_;
}

void WaitObject::Waiter::looked() {
  if (at_ != object_.changes_) {
    at_ = object_.changes_;
    ++object_.looked_;
  }
  // Earlier, and one who was woken for what is here would find the descriptor quiet and sleep on.
  if (object_.signalled_ && object_.looked_ == object_.waiters_) object_.lower();
}

int WaitObject::prepare() {
  if (live_) return 0;
  event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_ < 0) return -errno;
  live_ = true;
  return 0;
}

int WaitObject::fd() {
  if (complete_) return epoll_;
  if (const int rc = prepare(); rc != 0) return rc;
  if (epoll_ < 0) {
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) return -errno;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = event_;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, event_, &event) != 0) {
      const int error = errno;
      ::close(epoll);
      return -error;
    }
    epoll_ = epoll;
  }
  for (Watched &watched : sources_)
    if (const int rc = watch(watched); rc != 0) return rc;
  complete_ = true;
  return epoll_;
}

int WaitObject::fd_for(const weft_instance *instance, enum fi_log_subsys subsys, const char *call) {
  const int found = fd();
  if (found >= 0 || told_) return found;
  told_ = true;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  WEFT_WARN(instance, subsys,
            "%s: no descriptor to wait on: %s; at most %llu may be open: raise `ulimit -n`", call,
            std::strerror(-found), (unsigned long long)limit.rlim_cur);
  return found;
}

int WaitObject::arm(const weft_instance *instance, enum fi_log_subsys subsys) {
  if (type_ == FI_WAIT_NONE) return -FI_EINVAL;
  if (type_ == FI_WAIT_YIELD) return 0;
  const int epoll = fd_for(instance, subsys, "fi_trywait");
  if (epoll < 0) return epoll;
  return condition_ != nullptr ? condition_->arm(epoll) : 0;
}

int WaitObject::control(int command, void *arg) {
  if (command != FI_GETWAIT && command != FI_GETWAITOBJ) return -FI_ENOSYS;
  if (arg == nullptr) return -FI_EINVAL;
  if (command == FI_GETWAITOBJ) {
    *static_cast<enum fi_wait_obj *>(arg) = type_ == FI_WAIT_UNSPEC ? FI_WAIT_FD : type_;
    return 0;
  }
  switch (type_) {
    case FI_WAIT_MUTEX_COND: {
      auto *out = static_cast<struct fi_mutex_cond *>(arg);
      out->mutex = &condition_->mutex;
      out->cond = &condition_->cond;
      return 0;
    }
    case FI_WAIT_POLLFD: {
      const int epoll = fd();
      if (epoll < 0) return epoll;
      auto *out = static_cast<struct fi_wait_pollfd *>(arg);
      const size_t room = out->nfds;
      out->nfds = 1;
      out->change_index = 1;
      if (room < 1) return -FI_ETOOSMALL;
      if (out->fd == nullptr) return -FI_EINVAL;
      out->fd[0] = {epoll, POLLIN, 0};
      return 0;
    }
    case FI_WAIT_FD:
    case FI_WAIT_UNSPEC: {
      const int epoll = fd();
      if (epoll < 0) return epoll;
      *static_cast<int *>(arg) = epoll;
      return 0;
    }
    default:
      return -FI_ENODATA;  // there is no object that an application could wait on
  }
}

void WaitObject::block(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  ::poll(&p, 1, timeout_ms);
}

Deadline::Deadline(int timeout_ms) {
  if (timeout_ms >= 0) at_ns_ = now_ns() + uint64_t(timeout_ms) * 1'000'000u;
}

bool Deadline::passed() const {
  return at_ns_ && now_ns() >= *at_ns_;
}

int Deadline::left_ms() const {
  if (!at_ns_) return -1;
  const uint64_t now = now_ns();
  if (now >= *at_ns_) return 0;
  return int(std::min<uint64_t>((*at_ns_ - now + 999'999u) / 1'000'000u, 1u << 30));
}

}  // namespace weft::sdk
