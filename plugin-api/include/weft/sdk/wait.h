// SPDX-License-Identifier: BSD-2-Clause
// WaitObject: what a CQ, EQ, counter or wait set blocks on, in all forms of enum fi_wait_obj (fi_cq.3, fi_poll.3).
//
//   WaitObject wait;
//   WEFT_CHECK(wait.open(attr.wait_obj));
//   wait.add_source({&engine, false});
//   wait.notify();                     // something to read now; cheap when nobody ever waited
//   wait.clear();                      // nothing to read any more
//
// Descriptors come into being when somebody first waits, so that a process that only spins pays nothing. The owner serializes all
// calls but block(). It does not look at the queue: the owner tells it.
#ifndef WEFT_SDK_WAIT_H
#define WEFT_SDK_WAIT_H

#include <poll.h>
#include <pthread.h>
#include <rdma/fi_eq.h>
#include <weft/result.h>

#include <memory>
#include <optional>
#include <vector>

namespace weft::sdk {

class Engine;

struct WaitSource {
  Engine *engine = nullptr;
  bool cm = false;    // connection events only
  bool held = false;  // the owner calls fd() and *_source() with this engine's lock held
  friend bool operator==(const WaitSource &, const WaitSource &) = default;
};

class WaitObject {
 public:
  WaitObject() = default;
  ~WaitObject();
  WaitObject(const WaitObject &) = delete;
  WaitObject &operator=(const WaitObject &) = delete;

  Result<void> open(enum fi_wait_obj type);
  enum fi_wait_obj type() const { return type_; }
  bool can_block() const { return type_ != FI_WAIT_NONE; }

  void add_source(WaitSource source);
  void remove_source(WaitSource source);

  void notify() {
    if (live_ && !signalled_) raise();
  }
  void clear() {
    if (signalled_) lower();
  }

  // Makes the descriptor exist. Readable while notified or while a source has something to do. Negative: -FI_E...
  int fd();
  // fi_control(FI_GETWAIT): int *, struct fi_wait_pollfd * or struct fi_mutex_cond *, by type.
  int get(void *arg);
  // Sleeps until the descriptor (from fd()) is readable or `timeout_ms` (negative: for ever) is over. No lock may be held.
  static void block(int fd, int timeout_ms);

 private:
  void raise();
  void lower();
  bool watch(const WaitSource &source, int op);

  enum fi_wait_obj type_ = FI_WAIT_NONE;
  bool live_ = false;  // descriptors or condition exist
  bool signalled_ = false;
  int event_ = -1;
  int epoll_ = -1;
  std::vector<WaitSource> sources_;
  struct MutexCond {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
  };
  std::unique_ptr<MutexCond> mutex_cond_;
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
