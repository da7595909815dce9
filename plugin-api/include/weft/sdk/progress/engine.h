// SPDX-License-Identifier: BSD-2-Clause
// Engine: the progress engine of a domain or a fabric. It owns the lock of its objects, knows their
// file descriptors, and moves their protocols on: when an application reads a CQ, an EQ or a
// counter, or in a thread of its own.
//
// Example:
//    class Socket final : public Handler {
//     public:
//      Socket(Engine &engine, int fd) {
//        Guard guard(engine.lock());
//        engine.add(*this, fd, EPOLLIN, 0);
//      }
//      void on_event(uint32_t events) override;  // reads, without blocking
//    };
//    void read_queue(Engine &engine) {
//      Guard guard(engine.lock());
//      engine.progress();
//    }
//
// A spinning reader of one or two descriptors needs no epoll: the engine tries them directly, since
// the first read shows whether there is input. The epoll sets come into being with more
// descriptors, with two whose order matters, or when a thread wants to block. Call everything here
// with the lock held, except start_thread() and stop_thread(). An exception of a handler (no
// memory) leaves progress(); the engine's thread drops it and tries again. Not a general event
// loop: no nesting, no priorities.
#ifndef WEFT_SDK_PROGRESS_ENGINE_H
#define WEFT_SDK_PROGRESS_ENGINE_H

#include <sys/epoll.h>
#include <weft/result.h>
#include <weft/sdk/progress/interruptions.h>
#include <weft/sdk/progress/lock.h>
#include <weft/sdk/progress/patience.h>
#include <weft/sdk/progress/turn.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace weft::sdk {

class Engine;
class ExitDuty;
class Relay;

uint64_t now_ns();  // CLOCK_MONOTONIC

// Leaves the processor to others; `turn` learns what that cost. Without a lock held.
void give_way(Turn &turn);

// One file descriptor and the code that serves it. Registered with at most one engine.
class Handler {
 public:
  // The descriptor may be ready: EPOLLIN and EPOLLOUT as asked for, EPOLLERR, EPOLLHUP, EPOLLRDHUP
  // as they come. A handler that wants nothing (0) is not called. The engine also calls without
  // knowing that the descriptor is ready (direct polling), so reads and writes must not block.
  //
  // Handlers that want EPOLLET are served in the order in which their bytes came, as far as the
  // kernel tells: what reached a peer first takes effect first, although it came by another
  // connection. Such a handler is told of new bytes once. It reads all, or calls rearm().
  virtual void on_event(uint32_t events) = 0;
  // Staged output should go out now (mark_dirty).
  virtual void on_flush() {}
  virtual void on_deadline() {}

 protected:
  ~Handler() = default;

 private:
  friend class Engine;
  int fd_ = -1;
  uint32_t want_ = 0;     // EPOLLIN | EPOLLOUT for threads that drive the data path
  uint32_t cm_want_ = 0;  // for threads that only wait for connection events
  int index_ = -1;
  bool dirty_ = false;
  bool later_ = false;
  uint64_t deadline_ = 0;
};

// An object that makes progress only when it is called, such as a queue of the provider beneath a
// layer. It may let go of the lock in its calls, and take it again, if it is the engine's only
// poller, and comes and goes while nobody else uses the engine: then other threads make progress
// meanwhile.
//
// Example:
//    #include <rdma/fi_eq.h>
//    class Below : public Poller {
//     public:
//      Below(Engine &engine, fid_cq *cq) : cq_(cq) { engine.add_poller(*this); }
//      void on_poll() override {
//        fi_cq_entry entry;
//        while (fi_cq_read(cq_, &entry, 1) > 0) on_done(entry.op_context);
//      }
//      void on_done(void *context);
//     private:
//      fid_cq *cq_;
//    };
//
// Each progress() polls it, so a spinning reader pays for nothing else. The engine asks for its
// descriptors only when a thread wants to block. Not for an object with a descriptor: that is a
// Handler.
class Poller {
 public:
  virtual void on_poll() = 0;
  // Adds the descriptors, level-triggered. After may_wait() has returned true, they are readable
  // while there is something to do. Several pollers may name the same. 0, or -FI_E...
  virtual int wait_fds(std::vector<int> &fds) = 0;
  // Arms the descriptors (fi_trywait). False: something happened since on_poll(). If the
  // descriptors have changed, it calls Engine::rewatch().
  virtual bool may_wait() = 0;

 protected:
  ~Poller() = default;
};

class Engine {
 public:
  // `locked`: false only if the application promised to serialize everything (FI_THREAD_DOMAIN) and
  // the engine gets no thread (progress.h).
  explicit Engine(bool locked);
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  Lock &lock() { return lock_; }

  void add(Handler &handler, int fd, uint32_t want, uint32_t cm_want);
  void change(Handler &handler, uint32_t want, uint32_t cm_want);
  void remove(
      Handler &handler);  // also forgets its deadline and dirtiness; the descriptor stays open
  // A handler with EPOLLET has left something to do: it is served again, behind the others.
  void rearm(Handler &handler);

  void add_poller(Poller &poller);
  void remove_poller(Poller &poller);  // before its descriptors are closed
  void rewatch(Poller &poller);        // its descriptors have changed

  // The next progress, at the latest, calls on_flush. A handler that marks itself in its on_flush
  // can do nothing now, so it does not wake the thread: the code that removes the obstacle calls
  // flush().
  void mark_dirty(Handler &handler) {
    if (handler.dirty_) return;
    handler.dirty_ = true;
    dirty_.push_back(&handler);
    if (threaded_ && &handler != turn_) kick();
  }
  // on_flush comes with the next progress(), not in the rest of this one; or from a thread, if
  // there is none for kDelayNs, and within twice that time; or as the process exits. Until then the
  // handler may have more to send, which leaves with it. From the first such call on the lock is
  // needed. False: nobody is sure to call progress() soon, or there is no thread, so it should
  // flush now.
  bool flush_later(Handler &handler);
  static constexpr uint64_t kDelayNs = 5'000'000;
  void set_deadline(Handler &handler, uint64_t at_ns);  // 0: none

  // A handler read something. It is likely to have more soon, so the others may wait for a turn.
  void had_input() { input_ = true; }

  // Moves on everything that can be moved on without blocking.
  void progress();
  // The same for a thread that waits on cm_wait_fd(): also handles the events that made that
  // descriptor readable. Data traffic does not pay for it.
  void progress_cm();
  void flush() {
    if (!dirty_.empty()) flush_dirty();
  }

  // Counts progress: two calls with the same result have no progress in between.
  uint64_t rounds() const { return rounds_; }
  // Counts the calls of progress() alone: an application that has sent since the last one has done
  // so before it read a queue again.
  uint64_t passes() const { return passes_; }
  // No thread ever blocked here, and the engine has none of its own: all readers spin, so output
  // may wait for the next progress().
  bool spinning() const { return !waited_ && !threaded_.load(std::memory_order_relaxed); }

  // Whether the second and later messages since the last progress may wait for the next
  // (patience.h). posted(): there is such a message, before it waits or after it went out.
  bool may_wait() const { return patience_.may_wait(); }
  void posted() {
    if (patience_.wants_time()) patience_.posted(now_ns());
  }
  void sent() { patience_.sent(); }  // so much output waited that it was sent
  // Before anything is posted: output may wait until progress first comes late.
  void expect_progress() { patience_ = Patience(true); }

  // A thread that reads a queue or a counter and has found nothing `reads` times in a row leaves
  // the processor to others: a peer may need it to send what the thread waits for. Where nobody
  // wants it that costs little; where peers share it, it happens sooner (turn.h). The default is
  // some 50 us; a unit whose reads take longer or less time has another (yield_after_param()). 0:
  // never; so it is for a domain beneath a layer, whose lock is held meanwhile
  // (WEFT_READ_BY_LAYER).
  static constexpr unsigned kReadsOfATurn = 128;
  void yield_after(unsigned reads) { turn_of_readers_.set(reads); }
  unsigned yields_after() const { return turn_of_readers_.most(); }
  Turn &turn_of_readers() { return turn_of_readers_; }
  // What the parameter says for objects of this instance; the default if its unit has none.
  static unsigned reads_of_a_turn(const weft_instance *instance);
  // After each such read, by any thread. True: give_way(), as soon as no lock is held.
  bool is_turn_over(bool found) { return turn_of_readers_.is_over(found); }
  void give_way() { sdk::give_way(turn_of_readers_); }
  // The same where the engine that `place` names may be another one, or gone, afterwards.
  static void give_way(const std::atomic<Engine *> &place);

  // A descriptor that is readable while progress() has something to do. Negative: -FI_E...
  int wait_fd();
  // The same for threads that wait for connection events only (an EQ), so that data traffic does
  // not wake them.
  int cm_wait_fd();

  // The kernel limits how many epoll sets that are in other sets a descriptor may be in. So these
  // two may be put into kMaxWatches sets only; further waiters are woken by a Relay. By any thread;
  // relay() with the lock held.
  bool has_watch(bool cm) const { return watches_[cm] < kMaxWatches; }
  bool take_watch(bool cm) {
    if (watches_[cm].fetch_add(1) < kMaxWatches) return true;
    give_watch(cm);
    return false;
  }
  void give_watch(bool cm) { watches_[cm].fetch_sub(1); }
  Relay &relay();

  // FI_PROGRESS_AUTO: a thread that makes progress by itself until stop_thread(). Without the lock
  // held; by any thread, many times.
  Result<void> start_thread();
  void stop_thread();
  bool threaded() const { return threaded_; }

  // In a child after fork(): closes its copies of the descriptors of its parent's engine, and of
  // those handlers that are registered. The kernel's sets are the parent's, too, and stay as they
  // are.
  void close_copies();

 private:
  friend class Exit;
  friend class ExitDuty;
  static constexpr size_t kDirect = 2;
  static constexpr int kMaxWatches = 8;
  struct Polled {
    Poller *poller;
    bool watched = false;
    std::vector<int> fds{};  // in the epoll set
  };
  class Delays;
  struct EndDelays {  // the class is known in one file only
    void operator()(Delays *delays) const;
  };
  struct Inner {
    int uses = 0;
    bool relayed = false;
  };

  void on_exit();  // exit.h, and what follows (exit_duty.h)
  void lend(ExitDuty &duty);
  void take_back(ExitDuty &duty);
  void look_at_duties();
  void poll_pollers();
  void arm_pollers();
  void arm_relay();
  int watch_poller(Polled &polled);
  void unwatch_poller(Polled &polled);
  int watch_inner(int fd);
  void flush_dirty();
  void end_delay();
  void note_progress();  // for the patience
  void run_deadlines();
  void poll_direct();
  bool poll_hot();
  void poll_set(int epoll);
  void register_in(int epoll, Handler &handler, uint32_t had, uint32_t want);
  // Whether all handlers are tried, in any order.
  bool polls_directly() const { return handlers_.size() <= kDirect && ordered_ <= 1; }
  void note_order(uint32_t had, uint32_t want);
  int ensure_set(int &epoll, bool cm);
  void arm_timer();
  void kick();
  void run(int epoll);

  Lock lock_;
  std::vector<Handler *> handlers_;  // holes (null) only while iterating
  size_t ordered_ = 0;               // of these, with EPOLLET
  std::vector<Handler *> dirty_, flushing_;
  Handler *turn_ = nullptr;  // its on_flush is running
  // With flush_later(): the handlers that wait, and what watches over them.
  std::vector<Handler *> later_;
  std::unique_ptr<Delays, EndDelays> delays_;
  std::vector<ExitDuty *> duties_;  // that owe something
  bool has_lent_ = false;           // the lock is needed for them alone
  std::vector<Polled> pollers_;
  std::map<int, Inner> inner_;  // descriptors of pollers
  size_t relayed_ = 0;          // of these, watched by relay_, which writes nudge_
  int nudge_ = -1;
  std::unique_ptr<Relay> relay_;
  std::atomic<int> watches_[2] = {0, 0};
  bool again_ = false;  // the timer was set off, so that a thread that blocks returns at once
  std::set<std::pair<uint64_t, Handler *>> deadlines_;
  epoll_event events_[64];
  int event_count_ = 0;
  static constexpr unsigned kAlone = 8;
  Handler *hot_ = nullptr;  // the last handler that had input,
  unsigned alone_ = 0;      // and how often in a row it was the only one, up to kAlone
  unsigned skipped_ = 0;
  bool input_ = false;
  Turn turn_of_readers_{kReadsOfATurn};
  uint64_t rounds_ = 0, passes_ = 0;
  Patience patience_;
  Interruptions interruptions_;
  bool waited_ = false;
  bool iterating_ = false;
  bool holes_ = false;
  int epoll_ = -1, cm_epoll_ = -1, timer_ = -1, wake_ = -1;
  uint64_t timer_at_ = 0;
  std::atomic<bool> threaded_{false};
  std::atomic<bool> stop_{false};
  std::mutex thread_mutex_;  // of starting and stopping; taken before the lock
  std::thread thread_;
};

// Locks the engine that `place` names, and whose lock guards the object that it belongs to. The
// object may have got another engine while this thread waited.
class EngineGuard {
 public:
  explicit EngineGuard(const std::atomic<Engine *> &place) : engine(hold(place)) {}
  ~EngineGuard() { engine.lock().unlock(); }
  EngineGuard(const EngineGuard &) = delete;
  EngineGuard &operator=(const EngineGuard &) = delete;

  static Engine &hold(const std::atomic<Engine *> &place) {
    for (;;) {
      Engine &engine = *place.load(std::memory_order_acquire);
      engine.lock().lock();
      if (place.load(std::memory_order_relaxed) == &engine) [[likely]]
        return engine;
      engine.lock().unlock();
    }
  }
  Engine &engine;
};

}  // namespace weft::sdk

#endif
