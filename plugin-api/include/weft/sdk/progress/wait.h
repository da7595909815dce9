// SPDX-License-Identifier: BSD-2-Clause
// WaitObject: what a CQ, EQ, counter or wait set blocks on, in all forms of enum fi_wait_obj
// (fi_cq.3, fi_poll.3).
//
// Example:
//    #include <weft/sdk/progress/lock.h>
//    struct Queue {  // of one engine; its lock is held but in block()
//      int open(Engine &engine, int wait_obj) {
//        if (!wait.open(wait_obj)) return -FI_ENOSYS;
//        wait.add_source({.engine = &engine, .held = true});
//        return 0;
//      }
//      void push() {
//        ++entries;
//        wait.notify();  // cheap when no thread waits
//      }
//      int sread(const weft_instance *instance, Lock &lock, int timeout) {
//        const Deadline deadline(timeout);
//        Guard guard(lock);
//        WaitObject::Waiter waiter(wait);
//        while (entries == 0) {
//          if (deadline.passed()) return -FI_EAGAIN;
//          waiter.looked();  // from here on notify() wakes this thread
//          if (waiter.prepare(instance, FI_LOG_CQ, "fi_cq_sread") != 0) return -FI_EMFILE;
//          lock.unlock();
//          const bool slept = waiter.block(deadline.left_ms());
//          lock.lock();
//          if (!slept && entries == 0) return -FI_EINTR;
//        }
//        if (--entries == 0) wait.clear();
//        return 0;
//      }
//      WaitObject wait;
//      int entries = 0;
//    };
//
// A thread in a blocking call polls a descriptor of its own together with those of the sources, so
// that ten thousand objects cost nothing and no set of epoll is in too many other sets. An object
// has a descriptor only if the application asks for one (FI_GETWAIT): a set of its own event and
// the sources' descriptors. If an engine is in many such sets already, the descriptor is the event
// alone, which a Relay writes. WaitObject does not look at the queue: the owner, its queue or
// counter, calls notify() and clear().
//
// Locks: the owner serializes all calls but block(). If all sources are `held`, the engine's lock
// does that. Else there are two locks, because an engine's lock may be held where notify() is
// called, and is taken inside of the calls about descriptors. One is for notify(), clear(),
// looked() and the life of a Waiter. The other, taken before an engine's, is for the other calls. A
// call that needs both says so.
#ifndef WEFT_SDK_PROGRESS_WAIT_H
#define WEFT_SDK_PROGRESS_WAIT_H

#include <poll.h>
#include <rdma/fi_eq.h>
#include <rdma/providers/fi_log.h>
#include <signal.h>
#include <weft/plugin.h>
#include <weft/result.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace weft::sdk {

class Engine;
class Relay;

struct WaitSource {
  Engine *engine = nullptr;
  bool cm = false;    // connection events only
  bool held = false;  // the owner makes all calls with this engine's lock held
  friend bool operator==(const WaitSource &, const WaitSource &) = default;
};

class WaitObject {
 public:
  WaitObject();
  ~WaitObject();
  WaitObject(const WaitObject &) = delete;
  WaitObject &operator=(const WaitObject &) = delete;

  Result<void> open(int type);  // enum fi_wait_obj, as the application gave it
  enum fi_wait_obj type() const { return type_; }
  // Whether the blocking calls of the API are allowed (fi_cq.3, fi_cq_sread).
  bool can_block() const { return type_ != FI_WAIT_NONE && type_ != FI_WAIT_SET; }

  // False: no descriptor can wake a waiter when this source has something to do. Then the caller
  // uses notify(), so that waiters look. It does so for threads in blocking calls (awaited()), too.
  bool add_source(WaitSource source);
  void remove_source(WaitSource source);  // with both locks

  void notify() {
    if (!quiet_) return;
    raise();
  }
  // A reader found nothing.
  void clear() {
    if (raised_ || !armed_.empty()) lower();
  }
  bool awaited() const { return !waiters_.empty(); }

  // Also told of the first notify() after a clear(): the wait set that the object is in.
  class Listener {
   public:
    virtual void on_notify() = 0;

   protected:
    ~Listener() = default;
  };
  void set_listener(Listener *listener) {
    listener_ = listener;
    quiet_ = true;
  }

  // A thread in a blocking call, as long as the call lasts.
  class Waiter {
   public:
    explicit Waiter(WaitObject &object);
    ~Waiter();
    Waiter(const Waiter &) = delete;
    Waiter &operator=(const Waiter &) = delete;
    // The thread found nothing that it waits for: from here on notify() wakes it.
    void looked();
    // Collects the descriptors that block() polls; with the lock of sources. 0 or -FI_E...; the
    // object's first failure is logged.
    int prepare(const weft_instance *instance, enum fi_log_subsys subsys, const char *call);
    // Sleeps until notify(), a source has something to do, or `timeout_ms` (negative: for ever) is
    // over. No lock may be held. False: a signal's handler has run in this thread, which ends the
    // blocking calls of the API (fi_cq.3, fi_eq.3), by -FI_EINTR as with stock libfabric.
    bool block(int timeout_ms);

   private:
    friend class WaitObject;
    struct Place;  // of the thread
    static Place &place();

    WaitObject &object_;
    int event_ = -1;
    bool quiet_ = false;   // has looked, and was not notified since
    bool raised_ = false;  // the event was written
  };

  // Makes the event that notify() writes for the descriptor; with both locks. 0 or -FI_E...
  int prepare();
  // Makes the descriptor exist. Readable while notified or while a source has something to do.
  // After prepare(). Negative: -FI_E...
  int fd();
  // fi_trywait: the application is going to block on what control() gave it. 0 or -FI_E... After
  // prepare(); then arm_relays() follows, with both locks.
  int arm(const weft_instance *instance, enum fi_log_subsys subsys);
  int arm_relays();
  // fi_control(FI_GETWAIT): int *, struct fi_wait_pollfd * or struct fi_mutex_cond *, by type;
  // FI_GETWAITOBJ: enum fi_wait_obj *. After prepare().
  int control(int command, void *arg);

 private:
  class Condition;
  struct Watched {
    WaitSource source;
    int fd = -1;             // of the engine; negative: not asked for yet
    Relay *relay = nullptr;  // in place of being in the set
  };

  void raise();
  void lower();
  static int find(const WaitSource &source);
  int watch(Watched &watched);
  void unwatch(Watched &watched);
  int said(const weft_instance *instance, enum fi_log_subsys subsys, const char *call, int rc);

  enum fi_wait_obj type_ = FI_WAIT_NONE;
  bool quiet_ = false;     // a waiter, the event or the listener needs the next notify()
  bool raised_ = false;    // the event was written, or the listener told
  bool complete_ = false;  // all sources are watched
  bool told_ = false;      // logged that there is no descriptor
  int event_ = -1;
  int epoll_ = -1;
  uint64_t changes_ = 1;  // of the descriptors
  std::vector<Watched> sources_;
  std::vector<Relay *> armed_;  // those that may write the event
  std::vector<Waiter *> waiters_;
  Listener *listener_ = nullptr;
  std::unique_ptr<Condition> condition_;
};

// For blocking calls that look again and again (FI_WAIT_YIELD). No system call of theirs sleeps, so
// a signal would interrupt none. From the first yield() on, signals wait for the next one.
class YieldingWait {
 public:
  YieldingWait() = default;
  ~YieldingWait();
  YieldingWait(const YieldingWait &) = delete;
  YieldingWait &operator=(const YieldingWait &) = delete;
  // Gives the processor away. No lock may be held. False: as with Waiter::block().
  bool yield();

 private:
  bool holds_signals_ = false;
  sigset_t before_;
};

// Gives an object, whose lock is that of the engine in `place`, to another engine. Without a lock
// held. False: `idle()`, called with the locks of both, says that the object is in use.
bool change_engine(std::atomic<Engine *> &place, Engine &to, WaitObject &wait,
                   const std::function<bool()> &idle);

// A point in time until which a caller with a millisecond timeout (negative: for ever) waits.
class Deadline {
 public:
  explicit Deadline(int timeout_ms);
  bool passed() const;
  int left_ms() const;  // -1: for ever; rounded up

 private:
  std::optional<uint64_t> at_ns_;
};

}  // namespace weft::sdk

#endif
