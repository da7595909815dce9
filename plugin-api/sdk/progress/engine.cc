// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/progress/engine.h>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#include <weft/sdk/progress/relay.h>
#include <weft/sdk/unit/params.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <weft/sdk/progress/quiet_thread.h>

namespace weft::sdk {

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1'000'000'000u + uint64_t(t.tv_nsec);
}

Engine::Engine(bool locked) : lock_(locked) {}

Engine::~Engine() {
  stop_thread();
  delays_.reset();
  relay_.reset();  // its thread uses the descriptors
  for (int fd : {epoll_, cm_epoll_, timer_, wake_, nudge_})
    if (fd >= 0) close(fd);
}

void Engine::close_copies() {
  // A thread of the parent may have been in the midst of it, and is not here to end what it began.
  if (!lock_.try_lock()) return;
  for (Handler *const handler : handlers_)
    if (handler != nullptr && handler->fd_ >= 0) close(std::exchange(handler->fd_, -1));
  for (int *const fd : {&epoll_, &cm_epoll_, &timer_, &wake_, &nudge_})
    if (*fd >= 0) close(std::exchange(*fd, -1));
  lock_.unlock();
}

void Engine::register_in(int epoll, Handler &handler, uint32_t had, uint32_t want) {
  if (had == want) return;
  // A handler that wants nothing is not in the set at all: epoll reports EPOLLHUP and EPOLLERR
  // unasked, and a handler that ignores them would keep every blocked reader awake.
  const int op = had == 0 ? EPOLL_CTL_ADD : want == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  epoll_event event{};
  event.events = want;
  event.data.ptr = &handler;
  // Fails if the system's table of watches is full (ENOSPC, fs.epoll.max_user_watches); it cannot
  // be reported from here.
  epoll_ctl(epoll, op, handler.fd_, &event);
}

void Engine::note_order(uint32_t had, uint32_t want) {
  ordered_ += size_t((want & EPOLLET) != 0) - size_t((had & EPOLLET) != 0);
}

void Engine::add(Handler &handler, int fd, uint32_t want, uint32_t cm_want) {
  handler.fd_ = fd;
  handler.want_ = want;
  handler.cm_want_ = cm_want;
  handler.index_ = int(handlers_.size());
  handlers_.push_back(&handler);
  note_order(0, want);
  if (epoll_ >= 0) {
    register_in(epoll_, handler, 0, want);
  } else if (!polls_directly()) {
    ensure_set(epoll_, false);
  }
  if (cm_epoll_ >= 0) register_in(cm_epoll_, handler, 0, cm_want);
}

void Engine::rearm(Handler &handler) {
  if (handler.index_ < 0 || epoll_ < 0 || handler.want_ == 0) return;
  epoll_event event{};
  event.events = handler.want_;
  event.data.ptr = &handler;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, handler.fd_, &event);
}

void Engine::change(Handler &handler, uint32_t want, uint32_t cm_want) {
  if (handler.index_ < 0) return;
  if (epoll_ >= 0) register_in(epoll_, handler, handler.want_, want);
  if (cm_epoll_ >= 0) register_in(cm_epoll_, handler, handler.cm_want_, cm_want);
  note_order(handler.want_, want);
  handler.want_ = want;
  handler.cm_want_ = cm_want;
  if (epoll_ < 0 && !polls_directly()) ensure_set(epoll_, false);
}

void Engine::remove(Handler &handler) {
  set_deadline(handler, 0);
  if (handler.dirty_) {
    handler.dirty_ = false;
    std::erase(dirty_, &handler);
    std::replace(flushing_.begin(), flushing_.end(), &handler, static_cast<Handler *>(nullptr));
  }
  if (handler.later_) {
    handler.later_ = false;
    std::erase(later_, &handler);
  }
  if (handler.index_ < 0) return;
  if (epoll_ >= 0) register_in(epoll_, handler, handler.want_, 0);
  if (cm_epoll_ >= 0) register_in(cm_epoll_, handler, handler.cm_want_, 0);
  note_order(handler.want_, 0);
  if (hot_ == &handler) hot_ = nullptr, alone_ = 0;
  for (int i = 0; i < event_count_; ++i)
    if (events_[i].data.ptr == &handler) events_[i].data.ptr = nullptr;
  const auto index = size_t(handler.index_);
  if (iterating_) {
    handlers_[index] = nullptr;
    holes_ = true;
  } else {
    handlers_[index] = handlers_.back();
    handlers_[index]->index_ = int(index);
    handlers_.pop_back();
  }
  handler.index_ = -1;
  handler.fd_ = -1;
}

void Engine::set_deadline(Handler &handler, uint64_t at_ns) {
  if (handler.deadline_ == at_ns) return;
  if (handler.deadline_ != 0) deadlines_.erase({handler.deadline_, &handler});
  handler.deadline_ = at_ns;
  if (at_ns != 0) deadlines_.insert({at_ns, &handler});
  if (epoll_ >= 0 || cm_epoll_ >= 0) arm_timer();
}

void Engine::arm_timer() {
  const uint64_t at = deadlines_.empty() ? 0 : deadlines_.begin()->first;
  if (timer_ < 0 || at == timer_at_) return;
  timer_at_ = at;
  itimerspec spec{};
  spec.it_value.tv_sec = time_t(at / 1'000'000'000u);
  spec.it_value.tv_nsec = long(at % 1'000'000'000u);
  timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
}

void Engine::run_deadlines() {
  const uint64_t now = now_ns();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto due = *deadlines_.begin();
    Handler *const handler = due.second;
    if (handler->index_ >= 0 && handler->want_ != 0) {
      // Its input may have come in time, and this call is late because the application computed.
      handler->on_event(handler->want_ & (EPOLLIN | EPOLLOUT));
      if (deadlines_.empty() || *deadlines_.begin() != due) continue;
    }
    deadlines_.erase(deadlines_.begin());
    handler->deadline_ = 0;
    handler->on_deadline();
  }
  if (epoll_ >= 0 || cm_epoll_ >= 0) arm_timer();
}

void Engine::note_progress() {
  if (!patience_.pending()) return;
  const uint64_t now = now_ns();
  patience_.progressed(now, patience_.is_late(now) && interruptions_.any());
}

void Engine::flush_dirty() {
  // The caller may find completions and make no progress: for output this counts as progress.
  ++rounds_;
  note_progress();
  // Handlers may mark themselves or others while they flush: those come next time.
  flushing_.swap(dirty_);
  const struct EndOfTurn {
    Handler *&turn;
    ~EndOfTurn() { turn = nullptr; }
  } end{turn_};
  for (size_t i = 0; i < flushing_.size(); ++i) {
    // Its entry goes first: if it throws, the next swap brings back only the entries behind it.
    turn_ = std::exchange(flushing_[i], nullptr);
    if (turn_ == nullptr) continue;
    turn_->dirty_ = false;
    turn_->on_flush();
  }
  flushing_.clear();
}

unsigned Engine::reads_of_a_turn(const weft_instance *instance) {
  const weft_value *const value = params_detail::value_of(instance, "yield_after");
  return value != nullptr ? unsigned(value->number) : kReadsOfATurn;
}

namespace {

[[gnu::noinline]] uint64_t yield() {  // the ns that it took
  const uint64_t began = now_ns();
  ::sched_yield();
  return now_ns() - began;
}

}  // namespace

void give_way(Turn &turn) {
  turn.gave_way(yield());
}

void Engine::give_way(const std::atomic<Engine *> &place) {
  const uint64_t ns = yield();
  EngineGuard(place).engine.turn_of_readers_.gave_way(ns);
}

void Engine::poll_direct() {
  iterating_ = true;
  for (size_t i = 0; i < handlers_.size(); ++i) {
    Handler *handler = handlers_[i];
    if (handler != nullptr && handler->want_ != 0)
      handler->on_event(handler->want_ & (EPOLLIN | EPOLLOUT));
  }
  iterating_ = false;
  if (!holes_) return;
  holes_ = false;
  std::erase(handlers_, nullptr);
  for (size_t i = 0; i < handlers_.size(); ++i) handlers_[i]->index_ = int(i);
}

// If all input comes from one peer, its handler is polled first, which saves polling the set. If it
// has nothing, the set is polled at once: an application that yields its core after an empty read
// would otherwise yield several times before it saw other input. False: the handler had nothing, or
// it is the turn of the others.
bool Engine::poll_hot() {
  if (alone_ < kAlone || (hot_->want_ & EPOLLIN) == 0 || ++skipped_ % 4 == 0) return false;
  input_ = false;
  hot_->on_event(EPOLLIN);
  return input_;
}

void Engine::poll_set(int epoll) {
  event_count_ = epoll_wait(epoll, events_, int(std::size(events_)), 0);
  for (int i = 0; i < event_count_; ++i) {
    auto *handler = static_cast<Handler *>(events_[i].data.ptr);
    if (handler == nullptr) continue;  // the timer, the wake-up, or removed meanwhile
    if (events_[i].events & EPOLLIN) {
      alone_ = handler == hot_ ? std::min(alone_ + 1, kAlone) : 0;
      hot_ = handler;
    }
    handler->on_event(events_[i].events);
  }
  event_count_ = 0;
}

void Engine::add_poller(Poller &poller) {
  pollers_.push_back({&poller});
  if (epoll_ < 0) return;
  // As with handlers, a full table of watches cannot be reported from here.
  watch_poller(pollers_.back());
  arm_pollers();
}

void Engine::remove_poller(Poller &poller) {
  for (Polled &polled : pollers_)
    if (polled.poller == &poller) unwatch_poller(polled);
  std::erase_if(pollers_, [&](const Polled &polled) { return polled.poller == &poller; });
  arm_relay();
}

void Engine::rewatch(Poller &poller) {
  for (Polled &polled : pollers_) {
    if (polled.poller != &poller || !polled.watched) continue;
    unwatch_poller(polled);
    watch_poller(polled);
  }
  arm_relay();
}

int Engine::watch_poller(Polled &polled) {
  std::vector<int> fds;
  if (const int rc = polled.poller->wait_fds(fds); rc < 0) return rc;
  polled.watched = true;
  for (const int fd : fds) {
    if (const int rc = watch_inner(fd); rc < 0) {
      unwatch_poller(polled);
      return rc;
    }
    polled.fds.push_back(fd);
  }
  return 0;
}

void Engine::unwatch_poller(Polled &polled) {
  polled.watched = false;
  for (const int fd : polled.fds) {
    const auto at = inner_.find(fd);
    if (--at->second.uses != 0) continue;
    if (at->second.relayed) {
      --relayed_;
      if (relay_ != nullptr) relay_->forget(nudge_);  // and arm_relay() follows
    } else {
      epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    }
    inner_.erase(at);
  }
  polled.fds.clear();
}

int Engine::watch_inner(int fd) {
  if (const auto at = inner_.find(fd); at != inner_.end()) {
    ++at->second.uses;
    return 0;
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0) {
    inner_[fd] = {.uses = 1};
    return 0;
  }
  if (errno != EINVAL && errno != ELOOP) return -errno;
  if (nudge_ < 0) {
    const int nudge = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (nudge < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, nudge, &event) != 0) {
      const int error = errno;
      if (nudge >= 0) close(nudge);
      return -error;
    }
    nudge_ = nudge;
  }
  inner_[fd] = {.uses = 1, .relayed = true};
  ++relayed_;
  return 0;
}

Relay &Engine::relay() {
  if (relay_ == nullptr) relay_ = std::make_unique<Relay>();
  return *relay_;
}

void Engine::poll_pollers() {
  if (again_) {
    again_ = false;
    timer_at_ = ~UINT64_C(0);
    arm_timer();
  }
  for (const Polled &polled : pollers_) polled.poller->on_poll();
  if (waited_) arm_pollers();
}

// Events of the inner provider must wake the next thread that blocks. If new events keep coming
// while the pollers are armed, they are polled a few times; then the timer wakes the thread at
// once.
void Engine::arm_pollers() {
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds; ++round) {
    bool quiet = true;
    for (const Polled &polled : pollers_) quiet = polled.poller->may_wait() && quiet;
    if (quiet) return arm_relay();
    for (const Polled &polled : pollers_) polled.poller->on_poll();
  }
  if (timer_ < 0) return;
  again_ = true;
  itimerspec now{};
  now.it_value.tv_nsec = 1;
  timerfd_settime(timer_, 0, &now, nullptr);
}

void Engine::arm_relay() {
  if (relayed_ == 0) return;
  eventfd_t count;
  eventfd_read(nudge_, &count);
  // If the relay has no thread, the event stays raised, so that no caller sleeps.
  for (const auto &[fd, inner] : inner_)
    if (inner.relayed && relay().arm(fd, nudge_) != 0) eventfd_write(nudge_, 1);
}

void Engine::progress() {
  ++rounds_;
  ++passes_;
  note_progress();
  if (!later_.empty()) end_delay();
  flush();
  if (!pollers_.empty()) poll_pollers();
  if (!deadlines_.empty()) run_deadlines();
  if (polls_directly() || epoll_ < 0) {  // no descriptor for an epoll set: slow, but right
    if (!handlers_.empty()) poll_direct();
  } else if (ordered_ > 1 || !poll_hot()) {
    poll_set(epoll_);
  }
  flush();
  if (!duties_.empty()) [[unlikely]]
    look_at_duties();
}

void Engine::progress_cm() {
  progress();
  if (cm_epoll_ < 0) return;
  poll_set(cm_epoll_);
  flush();
}

int Engine::ensure_set(int &epoll, bool cm) {
  if (epoll >= 0) return epoll;
  if (timer_ < 0) {
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer_ < 0) return -errno;
  }
  const int fd = epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) return -errno;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (epoll_ctl(fd, EPOLL_CTL_ADD, timer_, &event) < 0) {
    const int error = errno;
    close(fd);
    return -error;
  }
  epoll = fd;
  for (Handler *handler : handlers_)
    if (handler != nullptr) register_in(fd, *handler, 0, cm ? handler->cm_want_ : handler->want_);
  timer_at_ = 0;
  arm_timer();
  return epoll;
}

int Engine::wait_fd() {
  waited_ = true;
  if (!later_.empty()) end_delay();
  flush();
  const int epoll = ensure_set(epoll_, false);
  if (epoll < 0) return epoll;
  bool added = false;
  for (Polled &polled : pollers_) {
    if (polled.watched) continue;
    if (const int rc = watch_poller(polled); rc < 0) return rc;
    added = true;
  }
  if (added) arm_pollers();
  return epoll;
}

int Engine::cm_wait_fd() {
  waited_ = true;
  if (!later_.empty()) end_delay();
  flush();
  return ensure_set(cm_epoll_, true);
}

void Engine::kick() {
  const uint64_t one = 1;
  // The counter cannot overflow in practice, and a full one is readable all the same.
  [[maybe_unused]] ssize_t n = write(wake_, &one, sizeof one);
}

Result<void> Engine::start_thread() {
  std::lock_guard starting(thread_mutex_);
  if (threaded_) return {};
  if (!lock_.needed())
    return fail(
        FI_EINVAL,
        "progress thread: the application serializes all calls by itself (FI_THREAD_DOMAIN)");
  int epoll;
  {
    Guard guard(lock_);
    if (wake_ < 0) wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_ < 0) return fail(errno, "progress thread: no eventfd (see `ulimit -n`)");
    epoll = wait_fd();
    if (epoll < 0) return fail(-epoll, "progress thread: no epoll descriptor (see `ulimit -n`)");
    // From here on mark_dirty() wakes the thread, which may be asleep as soon as it exists.
    threaded_ = true;
  }
  stop_ = false;
  if (const int rc = start_quiet_thread(thread_, [this, epoll] { run(epoll); }); rc != 0) {
    threaded_ = false;
    return fail(-rc, "progress thread: the system gives no more threads (see `ulimit -u`)");
  }
  return {};
}

void Engine::run(int epoll) {
  pollfd fds[2] = {{epoll, POLLIN, 0}, {wake_, POLLIN, 0}};
  while (!stop_) {
    ::poll(fds, 2, -1);
    uint64_t count;
    while (read(wake_, &count, sizeof count) > 0) {
    }
    Guard guard(lock_);
    try {
      progress();
    } catch (...) {
      // No memory. There is no caller to tell; the next round tries again.
    }
  }
}

void Engine::stop_thread() {
  std::lock_guard stopping(thread_mutex_);
  if (!threaded_) return;
  stop_ = true;
  kick();
  thread_.join();
  threaded_ = false;
}

}  // namespace weft::sdk
