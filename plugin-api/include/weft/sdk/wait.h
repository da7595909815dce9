// SPDX-License-Identifier: BSD-2-Clause
// WaitObject: what a CQ, EQ, counter or wait set blocks on, in all forms of enum fi_wait_obj
// (fi_cq.3, fi_poll.3).
//
//   WaitObject wait;
//   WEFT_CHECK(wait.open(attr.wait_obj));
//   wait.add_source({&engine, false});
//   wait.notify();                     // something to read now; cheap when nobody ever waited
//   wait.clear();                      // nothing to read any more
//
// Descriptors come into being when somebody first waits, so that a process that only spins pays
// nothing. It does not look at the queue: the owner tells it. The owner serializes all calls but
// block(). One whose sources are not `held` has two locks, since an engine's lock is taken where
// notify() is called and again inside of the calls about descriptors: one for notify(), clear(),
// Waiter and prepare(), and one, taken before an engine's, for all others; there prepare() with
// both comes first.
#ifndef WEFT_SDK_WAIT_H
#define WEFT_SDK_WAIT_H

#include <poll.h>
#include <rdma/fi_eq.h>
#include <rdma/providers/fi_log.h>
#include <weft/plugin.h>
#include <weft/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace weft::sdk {

class Engine;

struct WaitSource {
  Engine *engine = nullptr;
  bool cm = false;    // connection events only
  bool held = false;  // the owner calls all with this engine's lock held
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

  // False: somebody may be asleep already, and there is no descriptor to wake him by what happens
  // there; notify() lets him find out.
  bool add_source(WaitSource source);
  void remove_source(WaitSource source);

  void notify() {
    if (!live_) return;
    ++changes_;
    looked_ = 0;
    if (!signalled_) raise();
  }
  // By a reader that does not sleep and found nothing. Threads that do sleep, and were woken, have
  // still to look.
  void clear() {
    if (signalled_ && waiters_ == 0) lower();
  }

  bool awaited() const { return waiters_ != 0; }

  // A thread in a blocking call, as long as that lasts.
  class Waiter {
   public:
    explicit Waiter(WaitObject &object) : object_(object) { ++object_.waiters_; }
    ~Waiter();
    Waiter(const Waiter &) = delete;
    Waiter &operator=(const Waiter &) = delete;
    // What is here is not what this thread waits for: it will sleep until there is more. The last
    // one to say so lowers the object.
    void looked();

   private:
    WaitObject &object_;
    uint64_t at_ = ~UINT64_C(0);  // changes_ when it looked
  };

  int prepare();  // what notify() needs; 0 or -FI_E...
  // Makes the descriptor exist. Readable while notified or while a source has something to do.
  // Negative: -FI_E...
  int fd();
  // The same for a call of the API; the first failure is logged.
  int fd_for(const weft_instance *instance, enum fi_log_subsys subsys, const char *call);
  // fi_trywait: somebody is going to block on what control() gave. 0 or -FI_E...
  int arm(const weft_instance *instance, enum fi_log_subsys subsys);
  // fi_control(FI_GETWAIT): int *, struct fi_wait_pollfd * or struct fi_mutex_cond *, by type;
  // FI_GETWAITOBJ: enum fi_wait_obj *.
  int control(int command, void *arg);
  // Sleeps until the descriptor (from fd()) is readable or `timeout_ms` (negative: for ever) is
  // over. No lock may be held.
  static void block(int fd, int timeout_ms);

 private:
  class Condition;
  struct Watched {
    WaitSource source;
    int fd = -1;  // of the engine, as it is in the epoll set; negative: not yet
  };

  void raise();
  void lower();
  int watch(Watched &watched);

  enum fi_wait_obj type_ = FI_WAIT_NONE;
  bool live_ = false;  // prepared: somebody may be waiting
  bool signalled_ = false;
  bool complete_ = false;  // all sources are in the epoll set
  bool told_ = false;      // that there is no descriptor
  unsigned waiters_ = 0, looked_ = 0;
  uint64_t changes_ = 0;
  int event_ = -1;
  int epoll_ = -1;
  std::vector<Watched> sources_;
  std::unique_ptr<Condition> condition_;
};

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
