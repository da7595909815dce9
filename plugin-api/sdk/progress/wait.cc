// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/progress/wait.h>

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/relay.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <weft/sdk/progress/quiet_thread.h>

namespace weft::sdk {

// FI_WAIT_MUTEX_COND. An application holds the mutex from fi_trywait() to pthread_cond_wait(), or
// it would miss the signal. So code that holds a lock which fi_trywait() takes must not lock the
// mutex. A thread of its own locks it: it waits for the descriptor each time that fi_trywait() has
// said that it is safe to block, and then signals the condition.
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
  return start_quiet_thread(thread_, [this, fd] { run(fd); });
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
  for (Watched &watched : sources_) unwatch(watched);
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

// ---- sources ----

int WaitObject::find(const WaitSource &source) {
  std::optional<Guard> guard;
  if (!source.held) guard.emplace(source.engine->lock());
  return source.cm ? source.engine->cm_wait_fd() : source.engine->wait_fd();
}

int WaitObject::watch(Watched &watched) {
  if (watched.fd >= 0) return 0;
  const WaitSource &source = watched.source;
  const int fd = find(source);
  if (fd < 0) return fd;
  if (epoll_ >= 0 && source.engine->take_watch(source.cm)) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) {
      watched.fd = fd;
      return 0;
    }
    const int error = errno;
    source.engine->give_watch(source.cm);
    if (error != EINVAL && error != ELOOP) return -error;
  }
  watched.relay = &source.engine->relay();
  watched.fd = fd;
  return 0;
}

void WaitObject::unwatch(Watched &watched) {
  if (watched.fd < 0) return;
  if (watched.relay != nullptr) {
    watched.relay->forget(event_);
    std::erase(armed_, watched.relay);
  } else {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, watched.fd, nullptr);
    watched.source.engine->give_watch(watched.source.cm);
  }
}

bool WaitObject::add_source(WaitSource source) {
  if (std::ranges::find(sources_, source, &Watched::source) != sources_.end()) return true;
  sources_.push_back({source});
  ++changes_;
  if (!complete_) return true;
  complete_ = epoll_ >= 0 && watch(sources_.back()) == 0 && sources_.back().relay == nullptr;
  return complete_;
}

void WaitObject::remove_source(WaitSource source) {
  const auto it = std::ranges::find(sources_, source, &Watched::source);
  if (it == sources_.end()) return;
  unwatch(*it);
  sources_.erase(it);
  ++changes_;
}

bool change_engine(std::atomic<Engine *> &place, Engine &to, WaitObject &wait,
                   const std::function<bool()> &idle) {
  for (;;) {
    Engine &from = *place.load(std::memory_order_acquire);
    if (&from == &to) return true;
    std::scoped_lock both(from.lock(), to.lock());
    if (place.load(std::memory_order_relaxed) != &from) continue;
    if (!idle()) return false;
    wait.remove_source({.engine = &from, .held = true});
    place.store(&to, std::memory_order_release);
    wait.add_source({.engine = &to, .held = true});
    return true;
  }
}

// ---- waking ----

void WaitObject::raise() {
  quiet_ = false;
  if (!raised_ && (event_ >= 0 || listener_ != nullptr)) {
    raised_ = true;
    if (event_ >= 0) eventfd_write(event_, 1);
    if (listener_ != nullptr) listener_->on_notify();
  }
  for (Waiter *waiter : waiters_) {
    if (!std::exchange(waiter->quiet_, false)) continue;
    waiter->raised_ = true;
    if (waiter->event_ >= 0) eventfd_write(waiter->event_, 1);
  }
}

void WaitObject::lower() {
  for (Relay *relay : armed_) relay->forget(event_);
  armed_.clear();
  raised_ = false;
  quiet_ = true;
  eventfd_t count;
  if (event_ >= 0) eventfd_read(event_, &count);
}

namespace {

// From here on signals wait for a look. `before` is what the thread goes back to.
void hold_signals(sigset_t &before) {
  sigset_t all;
  sigfillset(&all);
  // What the thread does itself must not wait.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&all, signal);
  pthread_sigmask(SIG_BLOCK, &all, &before);
}

// Runs the handlers of those that came.
bool has_signals(const sigset_t &before) {
  const timespec at_once{};
  return ::ppoll(nullptr, 0, &at_once, &before) < 0 && errno == EINTR;
}

}  // namespace

// A thread's descriptor serves all of its blocking calls: a thread is in one at a time.
struct WaitObject::Waiter::Place {
  ~Place() {
    if (event >= 0) ::close(event);
  }
  int event = -1;
  pid_t process = 0;  // a child of fork() must not share its parent's
  std::vector<pollfd> fds;
  // Of the blocking call that the thread is in.
  bool has_blocked = false, holds_signals = false;
  sigset_t before;
};

WaitObject::Waiter::Place &WaitObject::Waiter::place() {
  static thread_local Place place;
  if (place.event < 0 || place.process != getpid()) {
    if (place.event >= 0) ::close(place.event);
    place.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    place.process = getpid();
  }
  return place;
}

WaitObject::Waiter::Waiter(WaitObject &object) : object_(object) {
  if (object.type_ != FI_WAIT_YIELD) event_ = place().event;
  if (event_ >= 0) place().has_blocked = false;
  object_.waiters_.push_back(this);
}

WaitObject::Waiter::~Waiter() {
  std::erase(object_.waiters_, this);
  eventfd_t count;
  if (raised_ && event_ >= 0) eventfd_read(event_, &count);
  if (event_ < 0 || !std::exchange(place().holds_signals, false)) return;
  pthread_sigmask(SIG_SETMASK, &place().before, nullptr);
}

void WaitObject::Waiter::looked() {
  eventfd_t count;
  if (std::exchange(raised_, false) && event_ >= 0) eventfd_read(event_, &count);
  quiet_ = object_.quiet_ = true;
}

int WaitObject::Waiter::prepare(const weft_instance *instance, enum fi_log_subsys subsys,
                                const char *call) {
  if (event_ < 0) return object_.said(instance, subsys, call, -EMFILE);
  std::vector<pollfd> &fds = place().fds;
  fds.assign(1, {event_, POLLIN, 0});
  for (const Watched &watched : object_.sources_) {
    const int fd = find(watched.source);
    if (fd < 0) return object_.said(instance, subsys, call, fd);
    fds.push_back({fd, POLLIN, 0});
  }
  return 0;
}

bool WaitObject::Waiter::block(int timeout_ms) {
  Place &here = place();
  pollfd *const fds = here.fds.data();
  const auto count = nfds_t(here.fds.size());
  if (!std::exchange(here.has_blocked, true))
    return ::poll(fds, count, timeout_ms) >= 0 || errno != EINTR;
  // Woken in vain, the caller has looked again. A source may have something to do all the time:
  // then no poll sleeps, and signals come in between. So they wait for the next one.
  if (!std::exchange(here.holds_signals, true)) hold_signals(here.before);
  const timespec time{.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1'000'000L};
  const int rc = ::ppoll(fds, count, timeout_ms < 0 ? nullptr : &time, &here.before);
  // Where a descriptor is ready it has not looked for them.
  return rc < 0 ? errno != EINTR : !has_signals(here.before);
}

YieldingWait::~YieldingWait() {
  if (holds_signals_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool YieldingWait::yield() {
  if (!std::exchange(holds_signals_, true)) hold_signals(before_);
  sched_yield();
  return !has_signals(before_);
}

// ---- the descriptor ----

int WaitObject::prepare() {
  if (event_ >= 0) return 0;
  event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event_ < 0) return -errno;
  quiet_ = true;
  return 0;
}

int WaitObject::fd() {
  if (complete_) return epoll_ >= 0 ? epoll_ : event_;
  if (const int rc = prepare(); rc != 0) return rc;
  // The event alone is enough if a relay writes it and the source is the only one.
  const bool alone = sources_.size() == 1 && sources_[0].source.held &&
                     !sources_[0].source.engine->has_watch(sources_[0].source.cm);
  if (epoll_ < 0 && !alone) {
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
  return epoll_ >= 0 ? epoll_ : event_;
}

int WaitObject::said(const weft_instance *instance, enum fi_log_subsys subsys, const char *call,
                     int rc) {
  if (std::exchange(told_, true)) return rc;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  WEFT_WARN(instance, subsys,
            "%s: no descriptor to wait on: %s; at most %llu may be open: raise `ulimit -n`", call,
            std::strerror(-rc), (unsigned long long)limit.rlim_cur);
  return rc;
}

int WaitObject::arm(const weft_instance *instance, enum fi_log_subsys subsys) {
  switch (type_) {
    case FI_WAIT_NONE:
      return -FI_EINVAL;
    case FI_WAIT_YIELD:
    case FI_WAIT_SET:  // the set has its own
      return 0;
    case FI_WAIT_POLLFD:
      if (const int rc = prepare(); rc != 0) return said(instance, subsys, "fi_trywait", rc);
      for (const Watched &watched : sources_)
        if (const int fd = find(watched.source); fd < 0)
          return said(instance, subsys, "fi_trywait", fd);
      return 0;
    default: {
      const int fd = this->fd();
      if (fd < 0) return said(instance, subsys, "fi_trywait", fd);
      return condition_ != nullptr ? condition_->arm(fd) : 0;
    }
  }
}

int WaitObject::arm_relays() {
  for (const Watched &watched : sources_) {
    if (watched.relay == nullptr) continue;
    if (const int rc = watched.relay->arm(watched.fd, event_); rc != 0) return rc;
    if (std::ranges::find(armed_, watched.relay) == armed_.end()) armed_.push_back(watched.relay);
  }
  return 0;
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
      auto *out = static_cast<struct fi_wait_pollfd *>(arg);
      if (const int rc = prepare(); rc != 0) return rc;
      const size_t room = std::exchange(out->nfds, 1 + sources_.size());
      out->change_index = changes_;
      if (room < out->nfds) return -FI_ETOOSMALL;
      if (out->fd == nullptr) return -FI_EINVAL;
      out->fd[0] = {event_, POLLIN, 0};
      for (size_t i = 0; i < sources_.size(); ++i) {
        const int fd = find(sources_[i].source);
        if (fd < 0) return fd;
        out->fd[1 + i] = {fd, POLLIN, 0};
      }
      return 0;
    }
    case FI_WAIT_FD:
    case FI_WAIT_UNSPEC: {
      const int fd = this->fd();
      if (fd < 0) return fd;
      *static_cast<int *>(arg) = fd;
      return 0;
    }
    default:
      return -FI_ENODATA;  // there is no object that an application could wait on
  }
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
