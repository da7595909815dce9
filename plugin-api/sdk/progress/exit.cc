// SPDX-License-Identifier: BSD-2-Clause
#include "exit.h"

#include <sched.h>
#include <weft/sdk/progress/exit_duty.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace weft::sdk {
namespace {

constexpr int kMostSleepMs = 10;  // a retry of a connection is no descriptor's event

// Another thread may hold the lock, or the caller of exit(), a signal's handler, has interrupted
// the one that does.
template <class TryLock>
bool lock_soon(TryLock try_lock) {
  for (const uint64_t end = now_ns() + 10 * Engine::kDelayNs;;) {
    if (try_lock()) return true;
    if (now_ns() >= end) return false;
    ::sched_yield();
  }
}

// An engine that serves one thread alone has no lock, and then nothing to do here: see
// Engine::lend().
bool take(Lock &lock) {
  return lock_soon([&] { return lock.try_lock_if_needed(); });
}

}  // namespace

// It lives longer than any object that the exit destroys.
Exit &Exit::own() {
  static Exit *const exit = new Exit;
  return *exit;
}

// exit() runs what is registered while it runs. So a plugin that is done works again if one above
// it still sends.
void Exit::arm() {
  if (!std::exchange(armed_, true)) std::atexit(run);
}

void Exit::add(Engine &engine) {
  const std::lock_guard guard(mutex_);
  late_.push_back({&engine, {}});
  arm();
}

void Exit::remove(Engine &engine) {
  const std::lock_guard guard(mutex_);
  std::erase_if(late_, [&](const Late &late) { return late.engine == &engine; });
}

void Exit::remove_in_child(Engine &engine) {
  if (!lock_soon([this] { return mutex_.try_lock(); })) return;
  remove(engine);
  mutex_.unlock();
}

void Exit::add(ExitDuty &duty) {
  const std::lock_guard guard(mutex_);
  duties_.push_back(&duty);
  arm();
}

void Exit::remove(ExitDuty &duty) {
  const std::lock_guard guard(mutex_);
  std::erase(duties_, &duty);
}

void Exit::run() {
  Exit &exit = own();
  if (!lock_soon([&] { return exit.mutex_.try_lock(); })) return;
  exit.armed_ = false;
  for (size_t i = 0; i < exit.late_.size(); ++i) exit.flush(exit.late_[i]);
  const uint64_t begin = now_ns();
  std::vector<pollfd> fds;
  for (;;) {
    fds.clear();
    bool waits = false;
    for (size_t i = 0; i < exit.duties_.size(); ++i)
      waits = exit.work(*exit.duties_[i], begin, fds) || waits;
    if (!waits) break;
    exit.mutex_.unlock();  // another thread may be about to settle a duty
    ::poll(fds.data(), nfds_t(fds.size()), kMostSleepMs);
    exit.mutex_.lock();
  }
  exit.mutex_.unlock();
}

void Exit::flush(const Late &late) {
  if (late.mark.is_child()) return;  // what waits is the parent's
  Lock &lock = late.engine->lock();
  if (!take(lock)) return;
  try {
    late.engine->on_exit();
    late.engine->flush();
  } catch (...) {
    // No memory.
  }
  lock.unlock();
}

// True: it is to be called again.
bool Exit::work(ExitDuty &duty, uint64_t begin, std::vector<pollfd> &fds) {
  const uint64_t now = now_ns();
  if (duty.mark_.is_child() || now - begin >= duty.most_ns_) return false;
  Engine &engine = duty.owner_;
  if (!take(engine.lock())) return false;
  bool waits = false;
  try {
    engine.on_exit();
    engine.progress();
    waits = duty.owes(true);
    if (waits) {
      if (const int fd = engine.wait_fd(); fd >= 0) fds.push_back({fd, POLLIN, 0});
    } else {
      engine.progress();  // what it has given to a provider beneath leaves there
    }
  } catch (...) {
    waits = false;  // no memory
  }
  engine.lock().unlock();
  return waits;
}

// ---- duties ----

void ExitDuty::enlist() {
  try {
    owner_.lend(*this);
    Exit::own().add(*this);
    is_listed_ = true;
  } catch (const std::bad_alloc &) {
    owner_.take_back(*this);  // what waits has begun: exit() will not see to it
  }
}

void ExitDuty::leave() {
  is_listed_ = false;
  Exit::own().remove(*this);
  owner_.take_back(*this);
}

// ---- the engine ----

void Engine::on_exit() {
  waited_ = true;  // what is sent from now on waits for nobody
  has_lent_ = false;
  end_delay();
}

// The exit may be another thread's than the one that an engine without a lock serves. So it has a
// lock as long as exit() may have something to do.
void Engine::lend(ExitDuty &duty) {
  duties_.push_back(&duty);
  if (lock_.needed()) return;
  lock_.need();
  has_lent_ = true;
}

void Engine::take_back(ExitDuty &duty) {
  std::erase(duties_, &duty);
}

// Not each time: there may be many peers to ask.
void Engine::look_at_duties() {
  constexpr uint64_t kEvery = 1024;
  if (passes_ % kEvery != 0) return;
  for (size_t i = duties_.size(); i-- > 0;)
    if (!duties_[i]->owes(false)) duties_[i]->settle();
  if (duties_.empty() && std::exchange(has_lent_, false)) lock_.spare();
}

}  // namespace weft::sdk
