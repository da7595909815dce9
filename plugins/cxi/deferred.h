// SPDX-License-Identifier: BSD-2-Clause
// DeferredWork: what counters of a domain start (fi_trigger.3): deferred work, and calls with
// FI_TRIGGER. The NIC fires it, without the application.
//
// Example:
//    // fi_control of a domain.
//    inline int control(DeferredWork &deferred, int command, void *arg) {
//      auto *const work = static_cast<fi_deferred_work *>(arg);
//      return command == FI_QUEUE_WORK ? deferred.queue(*work) : deferred.cancel(*work);
//    }
//
// Operations are made by the endpoints, as those of calls are; only their command waits in the NIC.
// FI_OP_RECV and FI_OP_TRECV have a threshold of 0 (fi_cxi.7), so they are posted at once; no
// counter starts a receive. Software counts them (sdk::DeferredQueue).
//
// queue(), cancel(work) and flush() take the domain's lock; the other calls are with it held.
#ifndef WEFT_PLUGINS_CXI_DEFERRED_H
#define WEFT_PLUGINS_CXI_DEFERRED_H

#include <rdma/fi_trigger.h>
#include <weft/sdk/objects/cntr.h>
#include <weft/sdk/transfers/deferred.h>
#include <weft/sdk/transfers/transfer_requests.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "plugins/cxi/transmit.h"

namespace weft::cxi {

class CxiEndpoint;
class Domain;
class NicCounter;

class DeferredWork {
 public:
  DeferredWork(Domain &domain, sdk::DomainContext &context) : domain_(domain), receives_(context) {}

  // fi_control: FI_QUEUE_WORK, FI_CANCEL_WORK, FI_FLUSH_WORK. 0, or -FI_E...
  int queue(const fi_deferred_work &work);
  int cancel(const fi_deferred_work &work);
  int flush(fid_cntr *triggering);  // null: of all counters

  // Its queues, in place of those that it has had; no work may be under way.
  Result<void> open(Lni &lni, Vni vni);
  void read_events();
  EventQueue &events() { return *events_; }

  // ---- for endpoints and counters ----
  // What start() posts waits for the trigger: 0 or -FI_E... of start().
  template <class Start>
  ssize_t trigger(const sdk::Trigger &trigger, Start start) {
    const auto counter = find(trigger.cntr->c());
    if (!counter) return refuse(counter.error());
    const Queueing queueing{.work = nullptr,
                            .counter = *counter,
                            .threshold = trigger.threshold,
                            .completion = nullptr};
    const Turn turn(queueing);
    return start();
  }
  // fi_cancel of such a call: 0, or -FI_ENOENT.
  ssize_t cancel(const Transmit &transmit, const void *context);
  // Whether this thread is in queue() or trigger(): what an endpoint starts is to wait. The former:
  // it is deferred work.
  static bool is_queueing() { return queueing_ != nullptr; }
  static bool is_queueing_work() { return queueing_ != nullptr && queueing_->work != nullptr; }
  // -FI_ENOSPC: the NIC has no triggered command left.
  int post(Transmit &transmit, Transmit::Op &op);
  void on_done(const Transmit::Op &op);
  // Takes back what has not fired; abandon(): what has ends with the endpoint, and nobody is told.
  void forget(const Transmit &transmit);
  void abandon(const Transmit &transmit);
  void abandon(const sdk::EndpointCore &endpoint);  // its receives
  void forget(const NicCounter &counter);
  // Whether something was left for the counter to start.
  bool waits_for(const NicCounter &counter) const;
  // It has started what has a threshold of up to `reached`, whatever becomes of it now.
  void note_fired(const NicCounter &counter, uint64_t reached);

 private:
  struct Work {
    const fi_deferred_work *asked;  // null: a call
    NicCounter *counter;            // that fires it; null: it has, and may be gone
    Trigger trigger;
    Transmit *transmit = nullptr;  // null: it is of counters alone
    Transmit::Op *op = nullptr;
    sdk::Cntr *target = nullptr;  // of those
  };
  // What queue() or trigger() is asked for.
  struct Queueing {
    const fi_deferred_work *work;  // null: a call
    NicCounter *counter;
    uint64_t threshold;
    sdk::Cntr *completion;
  };
  struct Turn {
    explicit Turn(const Queueing &queueing) { queueing_ = &queueing; }
    ~Turn() { queueing_ = nullptr; }
  };

  Result<NicCounter *> find(fid_cntr *cntr) const;
  CxiEndpoint *find(fid_ep *endpoint) const;
  int refuse(const Error &error) const;
  int start(const Queueing &queueing);
  int post(CxiEndpoint &endpoint, const sdk::RecvRequest &request, const Queueing &queueing);
  int post(const Work &work);
  bool is_at_limit(const Work &work) const;
  int command(const Work &work);
  Result<TriggerQueue *> queue_for(Vni vni);
  // Takes back those for which `ends` holds and that have not fired. How many.
  template <class F>
  size_t drop_if(F ends);

  static thread_local const Queueing *queueing_;
  Domain &domain_;
  sdk::DeferredQueue receives_;
  std::unique_ptr<EventQueue> events_;
  std::map<Vni, std::unique_ptr<TriggerQueue>> queues_;
  std::list<Work> works_;
};

}  // namespace weft::cxi

#endif
