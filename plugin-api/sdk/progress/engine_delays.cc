// SPDX-License-Identifier: BSD-2-Clause
// Output that waits for the next progress, and leaves though there is none: Engine::flush_later().
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/fork_mark.h>
#include <weft/sdk/progress/quiet_thread.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "exit.h"

namespace weft::sdk {

// A thread. When the process exits, Exit does its work.
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

  explicit Delays(Engine &engine) : engine_(engine), state_(std::make_unique<State>()) {}
  void run();

  Engine &engine_;
  std::unique_ptr<State> state_;
  const ForkMark mark_;
};

std::unique_ptr<Engine::Delays, Engine::EndDelays> Engine::Delays::start(Engine &engine) {
  std::unique_ptr<Delays, EndDelays> delays(new Delays(engine));
  if (start_quiet_thread(delays->state_->thread, [d = delays.get()] { d->run(); }) != 0)
    return nullptr;
  Exit::own().add(engine);
  return delays;
}

Engine::Delays::~Delays() {
  if (mark_.is_child()) {
    Exit::own().remove_in_child(engine_);
    static auto *const left = new std::vector<std::unique_ptr<State>>;  // nobody can destroy them
    left->push_back(std::move(state_));
    return;
  }
  Exit::own().remove(engine_);
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

// ---- the engine ----

void Engine::EndDelays::operator()(Delays *delays) const {
  delete delays;
}

bool Engine::flush_later(Handler &handler) {
  if (handler.later_) return true;
  if (!spinning()) return false;
  lock_.need();
  has_lent_ = false;
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
