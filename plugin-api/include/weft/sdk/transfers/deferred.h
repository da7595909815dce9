// SPDX-License-Identifier: BSD-2-Clause
// DeferredQueue: what a domain starts when counters reach thresholds (fi_trigger.3): calls with
// FI_TRIGGER, and the work of fi_control (FI_QUEUE_WORK, FI_CANCEL_WORK, FI_FLUSH_WORK).
//
// Example:
//    // A domain that defers in software: DomainCore has such a queue.
//    int control(DeferredQueue &queue, int command, void *arg) {
//      return queue.control(command, arg);  // -FI_ENOSYS: none of its commands
//    }
//    // A provider whose device does it asks what a call with FI_TRIGGER waits for.
//    ssize_t wait_for(DomainContext &domain, void *context) {
//      Trigger trigger;
//      if (const ssize_t rc = read_trigger(domain, context, trigger); rc != 0) return rc;
//      return trigger.cntr->reached() >= trigger.threshold ? 1 : 0;
//    }
//
// What waits is in a list of its counter, by threshold. A change of the counter moves what is due
// behind all that was due before, and never starts anything by itself: it comes from the midst of a
// protocol. Then run() does, at the end of the progress, or of the fi_cntr_add; what it completes
// makes more due, which the same run() starts. An endpoint without room for an operation
// (-FI_EAGAIN) makes its later ones wait, and nobody else's.
//
// Deferred work reports to the completion counter that it names, and to the completion queue of its
// endpoint where FI_COMPLETION asks for that, or with an error. An operation of a call with
// FI_TRIGGER reports as any other.
//
// All calls are with the engine's lock held, but for control(). Not for endpoints that have a lock
// of their own, nor for counters of a device or another provider's.
#ifndef WEFT_SDK_TRANSFERS_DEFERRED_H
#define WEFT_SDK_TRANSFERS_DEFERRED_H

#include <weft/sdk/objects/contexts.h>
#include <weft/sdk/progress/engine.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>

struct fi_deferred_work;

namespace weft::sdk {

class Deferred;
class DeferredQueue;
class EndpointCore;

// When an operation starts: successes and errors together have reached the threshold.
struct Trigger {
  Cntr *cntr = nullptr;
  uint64_t threshold = 0;
};

// What the context of a call with FI_TRIGGER says. 0, or -FI_E..., with words in the log.
ssize_t read_trigger(const DomainContext &domain, void *context, Trigger &trigger);

class Deferred {
 public:
  struct Origin {
    Trigger trigger;
    const fi_deferred_work *work = nullptr;  // null: a call with FI_TRIGGER
    Cntr *completion = nullptr;              // of work
    EndpointCore *endpoint = nullptr;        // null: of counters alone
    void *context = nullptr;                 // the application's
    bool report = false;                     // of work: its success, to the completion queue
  };
  explicit Deferred(const Origin &origin);
  virtual ~Deferred();
  Deferred(const Deferred &) = delete;
  Deferred &operator=(const Deferred &) = delete;

  const Origin &origin() const { return origin_; }
  bool is_work() const { return origin_.work != nullptr; }

 protected:
  friend DeferredQueue;
  // 0, and of work of an endpoint DeferredQueue::finish() follows, or has been called; or -FI_E...
  virtual ssize_t start() = 0;
  // It cannot start, or not any more: tells who has asked for it.
  virtual void fail(int err) = 0;

 private:
  friend Cntr;
  using List = std::list<std::unique_ptr<Deferred>>;
  const Origin origin_;
  DeferredQueue *queue_ = nullptr;
  List *list_ = nullptr;  // of the queue, and where it is there
  List::iterator place_{};
  std::multimap<uint64_t, Deferred *>::iterator turn_{};  // at its counter, while it waits
  bool waits_ = false;
};

class DeferredQueue final : private Handler {
 public:
  explicit DeferredQueue(DomainContext &domain) : domain_(domain) {}
  ~DeferredQueue();

  // fi_control of the domain, without the lock. 0 or -FI_E...; -FI_ENOSYS: another command.
  int control(int command, void *arg);

  // Starts it, or lets it wait. 0, or -FI_E...: it is gone, and nobody was told.
  ssize_t add(std::unique_ptr<Deferred> deferred);
  void run();
  // fi_cancel: of calls with FI_TRIGGER. 0, and FI_ECANCELED is reported, or -FI_ENOENT.
  ssize_t cancel(const EndpointCore &endpoint, const void *context);
  // The endpoint closes: what has not started does not any more, and nobody is told.
  void forget(const EndpointCore &endpoint);
  // Its operations are gone: work that it has started has failed.
  void abandon(const EndpointCore &endpoint);
  // The counter closes. Calls are told of it (FI_ECANCELED); work is dropped.
  void forget(const Cntr &cntr);

  // ---- for counters and contexts ----
  void on_due(Deferred &deferred);  // and schedule(), or run()
  void schedule();
  // Work of an endpoint has ended: `context` of its request is gone.
  static Deferred::Origin end(void *context);
  // The same, and reports it; `done` as the provider knows it.
  static void finish(Cq *cq, TxContext::Done done);

 private:
  friend Deferred;
  using List = Deferred::List;
  // An endpoint that has no room, and what is due there.
  struct Blocked {
    const EndpointCore *endpoint;
    List due;
  };

  int queue(const fi_deferred_work &work);
  int queue_change(const fi_deferred_work &work, const Deferred::Origin &origin);
  int cancel(const fi_deferred_work &work);
  int flush(fid_cntr *triggering);
  void drop_works(const Cntr *cntr);  // null: of all counters
  bool start_first(List &list);       // false: no room
  void start_blocked();
  Blocked *blocked_at(const EndpointCore *endpoint);
  // Visits all that have not started. `visit` may erase the one that it gets.
  template <class F>
  void visit_unstarted(F visit);
  static void move(Deferred &deferred, List &to, List::iterator before);
  static void erase(Deferred &deferred) { deferred.list_->erase(deferred.place_); }
  void on_event(uint32_t) override {}
  void on_flush() override { run(); }

  DomainContext &domain_;
  List waiting_, due_, started_;
  std::list<Blocked> blocked_;
  std::unordered_multimap<const fi_deferred_work *, Deferred *> works_;  // not started
  bool running_ = false;
};

}  // namespace weft::sdk

#endif
