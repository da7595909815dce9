// SPDX-License-Identifier: BSD-2-Clause
// Output that waits for the next progress, and leaves though there is none: Engine::flush_later().
#include <sched.h>
#include <unistd.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/quiet_thread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

namespace weft::sdk {
namespace {

// The process exits, and another thread may hold the lock, or the caller of exit(), a signal's
// handler, has interrupted the one that does.
template <class Mutex>
std::unique_lock<Mutex> lock_soon(Mutex &mutex) {
  std::unique_lock<Mutex> lock(mutex, std::try_to_lock);
  for (const uint64_t end = now_ns() + 10 * Engine::kDelayNs; !lock && now_ns() < end;) {
    ::sched_yield();
    (void)lock.try_lock();
  }
  return lock;
}

}  // namespace

// A thread, and what the exit of the process does in its place.
class Engine::Delays {
 public:
  // With the engine's lock held. Null: there may be no more threads.
  static std::unique_ptr<Delays, EndDelays> start(Engine &engine);
  // Without it.
  ~Delays();
  void begin() {
    if (state_->idle) [[unlikely]]
      state_->begins.notify_one();
  }

 private:
  // Who is in a child that was forked has neither the thread nor a way to destroy a condition for
  // which it waited.
  struct State {
    std::thread thread;
    std::condition_variable_any begins;
    bool idle = false;  // the thread waits for `begins`
    bool ends = false;  // the thread is to end
  };
  // The engines of the process. exit() ends the threads, so it sends what waits for them.
  struct Exit {
    std::mutex mutex;
    std::vector<Delays *> all;
    std::vector<std::unique_ptr<State>> left;  // of the parent: nobody can destroy them
  };

  explicit Delays(Engine &engine) : engine_(engine), state_(std::make_unique<State>()) {}
  void run();
  void flush_at_exit();
  static Exit &exit();
  static void on_exit();

  Engine &engine_;
  std::unique_ptr<State> state_;
  const pid_t process_ = ::getpid();
};

std::unique_ptr<Engine::Delays, Engine::EndDelays> Engine::Delays::start(Engine &engine) {
  std::unique_ptr<Delays, EndDelays> delays(new Delays(engine));
  if (start_quiet_thread(delays->state_->thread, [d = delays.get()] { d->run(); }) != 0)
    return nullptr;
  Exit &exit = Delays::exit();
  const std::lock_guard guard(exit.mutex);
  exit.all.push_back(delays.get());
  return delays;
}

Engine::Delays::~Delays() {
  Exit &exit = Delays::exit();
  if (process_ != ::getpid()) {
    // A thread of the parent may have held the mutex, which nobody gives back in the child: then exit()
    // does not get it, either.
    if (const auto guard = lock_soon(exit.mutex)) {
      std::erase(exit.all, this);
      exit.left.push_back(std::move(state_));
    }
    (void)state_.release();
    return;
  }
  {
    const std::lock_guard guard(exit.mutex);
    std::erase(exit.all, this);
  }
  if (!state_->thread.joinable()) return;
  {
    const Guard guard(engine_.lock_);
    state_->ends = true;
    state_->begins.notify_one();
  }
  state_->thread.join();
}

void Engine::Delays::run() {
  std::unique_lock guard(engine_.lock_);
  while (!state_->ends) {
    if (engine_.later_.empty()) {
      state_->idle = true;
      state_->begins.wait(guard);
      state_->idle = false;
      continue;
    }
    const uint64_t passes = engine_.passes_;
    state_->begins.wait_for(guard, std::chrono::nanoseconds(kDelayNs),
                            [this] { return state_->ends; });
    if (passes != engine_.passes_) continue;  // progress() has flushed what waited then
    try {
      engine_.end_delay();
      engine_.flush();
    } catch (...) {
      // No memory. There is no caller to tell; progress() tries again.
    }
  }
}

// It lives longer than any object that the exit destroys.
Engine::Delays::Exit &Engine::Delays::exit() {
  static Exit *const all = [] {
    std::atexit(on_exit);
    return new Exit;
  }();
  return *all;
}

void Engine::Delays::on_exit() {
  Exit &all = exit();
  const auto guard = lock_soon(all.mutex);
  if (!guard) return;
  for (Delays *const delays : all.all) delays->flush_at_exit();
}

void Engine::Delays::flush_at_exit() {
  if (process_ != ::getpid()) return;  // what waits is the parent's
  const auto guard = lock_soon(engine_.lock_);
  if (!guard) return;
  try {
    engine_.end_delay();
    engine_.flush();
  } catch (...) {
    // No memory.
  }
}

// ---- the engine ----

void Engine::EndDelays::operator()(Delays *delays) const {
  delete delays;
}

bool Engine::flush_later(Handler &handler) {
  if (handler.later_) return true;
  if (!spinning()) return false;
  lock_.need();
  if (delays_ == nullptr && (delays_ = Delays::start(*this)) == nullptr) return false;
  later_.push_back(&handler);
  handler.later_ = true;
  delays_->begin();
  return true;
}

void Engine::end_delay() {
  for (Handler *const handler : later_) {
    handler->later_ = false;
    mark_dirty(*handler);
  }
  later_.clear();
}

}  // namespace weft::sdk
