// SPDX-License-Identifier: BSD-2-Clause
// What applications say to defer something: struct fi_deferred_work, and the contexts of calls with
// FI_TRIGGER.
#include <rdma/fi_errno.h>
#include <rdma/fi_trigger.h>
#include <weft/sdk/transfers/deferred.h>
#include <weft/sdk/transfers/deferred_request.h>
#include <weft/sdk/unit/log.h>

#include <memory>
#include <utility>

namespace weft::sdk {
namespace {

// FI_OP_CNTR_ADD and FI_OP_CNTR_SET.
class DeferredChange final : public Deferred {
 public:
  DeferredChange(const Origin &origin, Cntr &target, uint64_t value, bool adds)
      : Deferred(origin), target_(target), value_(value), adds_(adds) {
    target_.users.fetch_add(1);
  }
  ~DeferredChange() override { target_.users.fetch_sub(1); }

 private:
  ssize_t start() override {
    target_.change(value_, adds_);
    return 0;
  }
  void fail(int) override {}

  Cntr &target_;
  const uint64_t value_;
  const bool adds_;
};

// The counter, if its domain can watch it and change it by itself.
Result<Cntr *> find_counter(const DomainContext &domain, fid_cntr *cntr, const char *what) {
  if (cntr == nullptr || !Cntr::is_mine(&cntr->fid, FI_CLASS_CNTR, domain.instance))
    return fail(FI_EINVAL, "%s names no counter of this provider", what);
  Cntr *const own = Cntr::from(cntr);
  if (&own->domain() != &domain)
    return fail(FI_EDOMAIN, "%s names a counter of another domain", what);
  if (!own->can_defer())
    return fail(FI_ENOSYS, "%s names a counter of a device or of another provider (FI_PEER)", what);
  return own;
}

int refuse(const DomainContext &domain, enum fi_log_subsys subsys, const Error &error) {
  WEFT_WARN(domain.instance, subsys, "%s", error.text.c_str());
  return -error.code;
}

Result<fid_ep *> checked(fid_ep *endpoint) {
  if (endpoint == nullptr || endpoint->fid.ops == nullptr)
    return fail(FI_EINVAL, "fi_control: the work names no endpoint");
  return endpoint;
}

// What the work asks of which endpoint.
Result<fid_ep *> read_transfer(const fi_deferred_work &work, DeferredCall &call) {
  const auto filled = [](ssize_t rc, fid_ep *endpoint) -> Result<fid_ep *> {
    if (rc != 0) return fail(int(-rc), "fi_control: the vectors of the work do not fit together");
    return checked(endpoint);
  };
  const int type = raw(work.op_type);
  switch (type) {
    case FI_OP_SEND:
      return filled(fill(call.request.emplace<SendRequest>(), work.op.msg->msg, work.op.msg->flags),
                    work.op.msg->ep);
    case FI_OP_TSEND:
      return filled(
          fill(call.request.emplace<SendRequest>(), work.op.tagged->msg, work.op.tagged->flags),
          work.op.tagged->ep);
    case FI_OP_RECV:
      call.request = recv_request(work.op.msg->msg, work.op.msg->flags);
      return checked(work.op.msg->ep);
    case FI_OP_TRECV:
      call.request = recv_request(work.op.tagged->msg, work.op.tagged->flags);
      return checked(work.op.tagged->ep);
    case FI_OP_READ:
    case FI_OP_WRITE: {
      auto &request = call.request.emplace<RmaRequest>();
      request.write = type == FI_OP_WRITE;
      return filled(fill(request, work.op.rma->msg, work.op.rma->flags), work.op.rma->ep);
    }
    case FI_OP_ATOMIC: {
      fill(call.request.emplace<AtomicRequest>(), work.op.atomic->msg, work.op.atomic->flags);
      return checked(work.op.atomic->ep);
    }
    case FI_OP_FETCH_ATOMIC: {
      const fi_op_fetch_atomic &op = *work.op.fetch_atomic;
      fill(call.request.emplace<AtomicRequest>(AtomicRequest{.kind = AtomicKind::kFetch,
                                                             .results = op.fetch.msg_iov,
                                                             .result_desc = op.fetch.desc,
                                                             .result_count = op.fetch.iov_count}),
           op.msg, op.flags);
      return checked(op.ep);
    }
    case FI_OP_COMPARE_ATOMIC: {
      const fi_op_compare_atomic &op = *work.op.compare_atomic;
      fill(call.request.emplace<AtomicRequest>(AtomicRequest{.kind = AtomicKind::kCompare,
                                                             .compares = op.compare.msg_iov,
                                                             .compare_desc = op.compare.desc,
                                                             .compare_count = op.compare.iov_count,
                                                             .results = op.fetch.msg_iov,
                                                             .result_desc = op.fetch.desc,
                                                             .result_count = op.fetch.iov_count}),
           op.msg, op.flags);
      return checked(op.ep);
    }
    default:
      return fail(FI_EINVAL, "fi_control: op_type %d of the work is not one of enum fi_op_type",
                  type);
  }
}

}  // namespace

ssize_t read_trigger(const DomainContext &domain, void *context, Trigger &trigger) {
  const auto *const triggered = static_cast<const fi_triggered_context *>(context);
  if (triggered == nullptr)
    return refuse(domain, FI_LOG_EP_DATA,
                  {FI_EINVAL, "FI_TRIGGER: the context must be a struct fi_triggered_context"});
  switch (raw(triggered->event_type)) {
    case FI_TRIGGER_THRESHOLD:
      break;
    case FI_TRIGGER_XPU:
      return refuse(domain, FI_LOG_EP_DATA,
                    {FI_ENOSYS,
                     "FI_TRIGGER: FI_TRIGGER_XPU: no device can start operations of this provider; "
                     "use FI_TRIGGER_THRESHOLD with a counter"});
    default:
      return refuse(domain, FI_LOG_EP_DATA,
                    {FI_EINVAL,
                     "FI_TRIGGER: event_type of the struct fi_triggered_context is not one of enum "
                     "fi_trigger_event"});
  }
  const fi_trigger_threshold &asked = triggered->trigger.threshold;
  if (domain.deferred == nullptr) {  // a device counts by itself
    if (asked.cntr == nullptr || !Cntr::is_mine(&asked.cntr->fid, FI_CLASS_CNTR, domain.instance))
      return refuse(domain, FI_LOG_EP_DATA,
                    {FI_EINVAL, "FI_TRIGGER: the context names no counter"});
    trigger = {Cntr::from(asked.cntr), asked.threshold};
    return 0;
  }
  const auto cntr = find_counter(domain, asked.cntr, "FI_TRIGGER: the context");
  if (!cntr) return refuse(domain, FI_LOG_EP_DATA, cntr.error());
  trigger = {*cntr, asked.threshold};
  return 0;
}

int DeferredQueue::control(int command, void *arg) {
  const auto *const work = static_cast<const fi_deferred_work *>(arg);
  switch (command) {
    case FI_QUEUE_WORK:
      return work != nullptr ? queue(*work) : -FI_EINVAL;
    case FI_CANCEL_WORK: {
      if (work == nullptr) return -FI_EINVAL;
      const Guard guard(domain_.engine->lock());
      return cancel(*work);
    }
    case FI_FLUSH_WORK:
      return flush(work != nullptr ? work->triggering_cntr : nullptr);
    default:
      return -FI_ENOSYS;
  }
}

int DeferredQueue::queue(const fi_deferred_work &work) {
  const auto refused = [this](const Error &error) { return refuse(domain_, FI_LOG_DOMAIN, error); };
  if (work.op.msg == nullptr) return refused({FI_EINVAL, "fi_control: the work has no operation"});
  const auto cntr =
      find_counter(domain_, work.triggering_cntr, "fi_control: triggering_cntr of the work");
  if (!cntr) return refused(cntr.error());
  DeferredCall call{.domain = &domain_, .origin = {}, .request = {}};
  call.origin.trigger = {*cntr, work.threshold};
  call.origin.work = &work;
  const int type = raw(work.op_type);
  if (type == FI_OP_CNTR_ADD || type == FI_OP_CNTR_SET) return queue_change(work, call.origin);
  if (work.completion_cntr != nullptr) {
    const auto completion =
        find_counter(domain_, work.completion_cntr, "fi_control: completion_cntr of the work");
    if (!completion) return refused(completion.error());
    call.origin.completion = *completion;
  }
  const auto endpoint = read_transfer(work, call);
  if (!endpoint) return refused(endpoint.error());
  return fi_control(&(*endpoint)->fid, kQueueDeferred, &call);
}

int DeferredQueue::queue_change(const fi_deferred_work &work, const Deferred::Origin &origin) {
  const auto refused = [this](const Error &error) { return refuse(domain_, FI_LOG_DOMAIN, error); };
  if (work.completion_cntr != nullptr)
    return refused(
        {FI_EINVAL, "fi_control: completion_cntr of work that changes a counter must be NULL"});
  const auto target = find_counter(domain_, work.op.cntr->cntr, "fi_control: op.cntr of the work");
  if (!target) return refused(target.error());
  const bool adds = raw(work.op_type) == FI_OP_CNTR_ADD;
  const Guard guard(domain_.engine->lock());
  return int(add(std::make_unique<DeferredChange>(origin, **target, work.op.cntr->value, adds)));
}

int DeferredQueue::flush(fid_cntr *triggering) {
  const Cntr *cntr = nullptr;
  if (triggering != nullptr) {
    const auto found =
        find_counter(domain_, triggering, "fi_control: triggering_cntr of FI_FLUSH_WORK");
    if (!found) return refuse(domain_, FI_LOG_DOMAIN, found.error());
    cntr = *found;
  }
  const Guard guard(domain_.engine->lock());
  drop_works(cntr);
  return 0;
}

}  // namespace weft::sdk
