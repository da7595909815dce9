// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_errno.h>
#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/objects/options.h>
#include <weft/sdk/objects/scalable.h>
#include <weft/sdk/objects/shared_transmit.h>
#include <weft/sdk/transfers/transfer.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <utility>

namespace weft::sdk {
namespace {

// Without a direction a capability means all of them (fi_getinfo.3).
uint64_t with_directions(uint64_t caps) {
  constexpr uint64_t kMessage = FI_SEND | FI_RECV;
  constexpr uint64_t kMemory = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if ((caps & (FI_MSG | FI_TAGGED)) != 0 && (caps & kMessage) == 0) caps |= kMessage;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kMemory) == 0) caps |= kMemory;
  return caps;
}

// The part of `caps` that a context has which was opened with these of its own.
uint64_t of_context(uint64_t caps, uint64_t own) {
  return own == 0 ? caps : caps & with_directions(own);
}

size_t size_or(size_t asked, size_t standard) {
  return asked != 0 ? asked : standard;
}

EndpointLimits limits_of(const fi_info &info, EndpointLimits limits) {
  if (info.tx_attr != nullptr) {
    limits.tx_size = size_or(info.tx_attr->size, limits.tx_size);
    limits.inject_size =
        std::max(limits.inject_size, std::min(info.tx_attr->inject_size, limits.max_inject_size));
  }
  if (info.rx_attr != nullptr) limits.rx_size = size_or(info.rx_attr->size, limits.rx_size);
  return limits;
}

}  // namespace

uint64_t next_endpoint_number() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

int endpoint_number(const DomainContext &domain, struct fid *endpoint, uint64_t &number) {
  EndpointNumber said;
  if (fi_control(endpoint, kGetEndpointNumber, &said) != 0) return -FI_EINVAL;
  if (said.domain != &domain) return -FI_EDOMAIN;
  number = said.number;
  return 0;
}

uint64_t order_of(const fi_info &info) {
  return (info.tx_attr != nullptr ? info.tx_attr->msg_order : 0) |
         (info.rx_attr != nullptr ? info.rx_attr->msg_order : 0);
}

bool wants_shared_receive(const fi_info &info) {
  return info.ep_attr != nullptr && info.ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT;
}

bool wants_shared_transmit(const fi_info &info) {
  return info.ep_attr != nullptr && info.ep_attr->tx_ctx_cnt == FI_SHARED_CONTEXT;
}

EndpointCore::EndpointCore(DomainContext &domain, PeerKind kind, const fi_info &info,
                           const EndpointLimits &limits, TxContext *tx, RxContext *rx, Lock *lock)
    : core_domain_(domain),
      lock_(lock != nullptr ? *lock : domain.engine->lock()),
      tx_(tx),
      rx_(rx),
      caps_(with_directions(info.caps)),
      tx_caps_(of_context(caps_, info.tx_attr != nullptr ? info.tx_attr->caps : 0)),
      rx_caps_(of_context(caps_, info.rx_attr != nullptr ? info.rx_attr->caps : 0)),
      lane_(domain.lane),
      number_(domain.lane != nullptr ? domain.lane->number : next_endpoint_number()),
      limits_(limits_of(info, limits)),
      kind_(kind),
      wants_shared_(wants_shared_receive(info)),
      wants_shared_tx_(wants_shared_transmit(info)) {}

EndpointCore::~EndpointCore() {
  if (lane_ == nullptr || !lane_->open.load()) return;
  if (lane_->closed != nullptr)
    lane_->closed(*lane_);  // its port is free
  else
    lane_->open.store(false);
}

uint8_t EndpointCore::context_place() const {
  return lane_ != nullptr ? lane_->place : 0;
}

uint8_t EndpointCore::last_place() const {
  return lane_ != nullptr && lane_->place == 0 ? lane_->last_place : 0;
}

bool EndpointCore::only_transmits() const {
  return lane_ != nullptr && lane_->fclass == FI_CLASS_TX_CTX;
}

// ---- bindings ----

int EndpointCore::bind_object(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  // Queues and counters belong to the domain that the application knows. A context of a scalable
  // endpoint reports to what feeds them, if their lock is not that of its lane.
  Cq *cq = nullptr;
  Cntr *cntr = nullptr;
  if (fid->fclass == FI_CLASS_CQ) {
    if (!Cq::is_mine(fid, FI_CLASS_CQ, core_domain_.instance)) return -FI_EINVAL;
    if (&Cq::from(fid)->domain() != &core_domain_.known()) return -FI_EDOMAIN;
    cq = Cq::from(fid)->reached_from(core_domain_);
  } else if (fid->fclass == FI_CLASS_CNTR) {
    if (!Cntr::is_mine(fid, FI_CLASS_CNTR, core_domain_.instance)) return -FI_EINVAL;
    if (&Cntr::from(fid)->domain() != &core_domain_.known()) return -FI_EDOMAIN;
    cntr = Cntr::from(fid)->reached_from(core_domain_);
  }
  std::unique_lock guard(lock_);
  // Another context may have taken it meanwhile.
  if ((cq != nullptr && !cq->is_under(*core_domain_.engine)) ||
      (cntr != nullptr && !cntr->is_under(*core_domain_.engine))) {
    guard.unlock();
    return bind_object(fid, flags);
  }
  switch (fid->fclass) {
    case FI_CLASS_AV:
      return bind_av(fid, flags);
    case FI_CLASS_EQ:
      return bind_eq(fid, flags);
    case FI_CLASS_CQ:
      return bind_cq(Cq::from(fid), cq, flags);
    case FI_CLASS_CNTR:
      return bind_cntr(Cntr::from(fid), cntr, flags);
    case FI_CLASS_STX_CTX:
      return bind_stx(fid, flags);
    case FI_CLASS_MR:
      return 0;  // regions belong to the domain
    default:
      return -FI_EINVAL;
  }
}

int EndpointCore::bind_av(struct fid *fid, uint64_t flags) {
  if (kind_ == PeerKind::kConnected) return -FI_EINVAL;
  if (enabled_) return -FI_EOPBADSTATE;
  if (!Av::is_mine(fid, FI_CLASS_AV, core_domain_.instance)) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (av_ != nullptr) return -FI_EBUSY;
  Av *const av = Av::from(fid);
  if (&av->engine() != core_domain_.engine) return -FI_EDOMAIN;
  hold(av->users);
  av_ = av;
  if (rx_ != nullptr) rx_->av = av;
  return 0;
}

int EndpointCore::bind_eq(struct fid *fid, uint64_t flags) {
  if (kind_ == PeerKind::kConnected && enabled_) return -FI_EOPBADSTATE;
  if (!Eq::is_mine(fid, FI_CLASS_EQ, core_domain_.instance)) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (kind_ == PeerKind::kConnected && Eq::from(fid)->is_imported()) return -FI_EOPNOTSUPP;
  if (eq_ != nullptr) return -FI_EBUSY;
  hold(Eq::from(fid)->users);
  eq_ = Eq::from(fid);
  return 0;
}

// `outer` is the application's, which may not close it, `cq` to report to.
int EndpointCore::bind_cq(Cq *outer, Cq *cq, uint64_t flags) {
  if (flags & ~uint64_t(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) ||
      !(flags & (FI_TRANSMIT | FI_RECV)))
    return -FI_EBADFLAGS;
  const bool tx = flags & FI_TRANSMIT, rx = flags & FI_RECV;
  if ((tx && tx_ == nullptr) || (rx && rx_ == nullptr)) return -FI_EINVAL;
  if ((tx && tx_->cq != nullptr) || (rx && rx_->cq != nullptr)) return -FI_EBUSY;
  hold(outer->users);
  const bool selective = flags & FI_SELECTIVE_COMPLETION;
  if (tx) {
    tx_->cq = cq;
    tx_->selective = selective;
  }
  if (rx) {
    rx_->cq = cq;
    rx_->selective = selective;
  }
  return 0;
}

int EndpointCore::bind_cntr(Cntr *outer, Cntr *cntr, uint64_t flags) {
  struct Place {
    uint64_t event;
    Cntr **cntr;  // null: no such side
  };
  const std::initializer_list<Place> places = {
      {FI_SEND, tx_ != nullptr ? &tx_->send : nullptr},
      {FI_READ, tx_ != nullptr ? &tx_->read : nullptr},
      {FI_WRITE, tx_ != nullptr ? &tx_->write : nullptr},
      {FI_RECV, rx_ != nullptr ? &rx_->cntr : nullptr},
      {FI_REMOTE_READ, rx_ != nullptr ? &rx_->remote_read : nullptr},
      {FI_REMOTE_WRITE, rx_ != nullptr ? &rx_->remote_write : nullptr}};
  uint64_t known = 0;
  for (const Place &place : places) {
    if (place.cntr == nullptr) continue;
    known |= place.event;
    if (flags & place.event && *place.cntr != nullptr) return -FI_EBUSY;
  }
  if (flags == 0 || flags & ~known) return -FI_EBADFLAGS;
  hold(outer->users);
  for (const Place &place : places)
    if (flags & place.event) *place.cntr = cntr;
  return 0;
}

// May come after fi_enable where the endpoint was not opened for one: from then on its operations
// take places there, also those that are under way.
int EndpointCore::bind_stx(struct fid *fid, uint64_t flags) {
  if (!SharedTransmit::is_mine(fid, FI_CLASS_STX_CTX, core_domain_.instance)) return -FI_EINVAL;
  SharedTransmit *const stx = SharedTransmit::from(fid);
  if (&stx->domain() != &core_domain_) return -FI_EDOMAIN;
  if (tx_ == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (tx_->shared != nullptr) return -FI_EBUSY;
  if (const char *const why = stx->refusal(caps_, limits_.tx_size, limits_.inject_size)) {
    WEFT_WARN(core_domain_.instance, FI_LOG_EP_CTRL, "fi_ep_bind: %s (fi_endpoint.3)", why);
    return -FI_EINVAL;
  }
  stx->join(*this);
  tx_->shared = stx;
  return 0;
}

Result<void> EndpointCore::check_bindings(bool shares) const {
  if (kind_ == PeerKind::kUnconnected && av_ == nullptr)
    return fail(FI_ENOAV,
                "fi_enable: this endpoint is unconnected and needs an address vector: "
                "fi_ep_bind it first");
  if (kind_ == PeerKind::kConnected && eq_ == nullptr)
    return fail(FI_ENOEQ,
                "fi_enable: an FI_EP_MSG endpoint needs an event queue: fi_ep_bind it first");
  const bool sends = tx_caps_ & FI_SEND,
             asks = tx_caps_ & (FI_RMA | FI_ATOMIC) && tx_caps_ & (FI_READ | FI_WRITE);
  if (tx_ != nullptr && (sends || asks) && !tx_->has_target())
    return fail(FI_ENOCQ, "fi_enable: no completion queue or counter is bound for transmits");
  if (rx_ != nullptr && rx_caps_ & FI_RECV && !rx_->has_target())
    return fail(FI_ENOCQ, "fi_enable: no completion queue or counter is bound for receives");
  if (wants_shared_tx_ && (tx_ == nullptr || tx_->shared == nullptr))
    return fail(FI_EINVAL,
                "fi_enable: the endpoint was opened with tx_ctx_cnt = FI_SHARED_CONTEXT: "
                "fi_ep_bind a shared transmit context (fi_stx_context) first");
  if (wants_shared_ && !shares)
    return fail(FI_EINVAL,
                "fi_enable: the endpoint was opened with rx_ctx_cnt = FI_SHARED_CONTEXT: "
                "fi_ep_bind a shared receive context (fi_srx_context) first");
  return {};
}

void EndpointCore::detach() {
  if (DeferredQueue *const queue = deferred_queue()) queue->forget(*this);
  if (tx_ != nullptr) tx_->detach();
  if (rx_ != nullptr) rx_->detach();
}

void EndpointCore::release(AvUser *user) {
  if (DeferredQueue *const queue = deferred_queue()) queue->abandon(*this);
  if (av_ != nullptr && user != nullptr) av_->remove_user(*user);
  av_ = nullptr;
  if (rx_ != nullptr) rx_->av = nullptr;
  for (std::atomic<size_t> *users : bound_) users->fetch_sub(1);
  bound_.clear();
  eq_ = nullptr;
  if (tx_ != nullptr && tx_->shared != nullptr) std::exchange(tx_->shared, nullptr)->leave(*this);
}

void EndpointCore::fail_transfer(void *context, uint64_t flags, int err) {
  if (flags & FI_RECV)
    rx_->fail(context, flags, err);
  else
    tx_->finish({.context = context, .flags = flags, .err = err});
}

ssize_t EndpointCore::cancel_deferred(void *context) {
  DeferredQueue *const queue = deferred_queue();
  if (queue == nullptr || context == nullptr) return -FI_ENOENT;
  const Guard guard(lock_);
  return queue->cancel(*this, context);
}

// ---- options ----

int EndpointCore::control_flags(int command, void *arg, uint64_t tx_known) {
  if (command == kGetEndpointNumber && arg != nullptr) {
    *static_cast<EndpointNumber *>(arg) = {&core_domain_.known(), number_};
    return 0;
  }
  Guard guard(lock_);
  const uint64_t trigger = has_trigger() ? FI_TRIGGER : 0;
  return control_op_flags(command, arg, tx_known | trigger, tx_ != nullptr ? &tx_->flags : nullptr,
                          rx_ != nullptr ? &rx_->flags : nullptr, kRecvFlags | trigger);
}

int EndpointCore::get_limit(int level, int name, void *value, size_t *length) const {
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  switch (name) {
    case FI_OPT_TX_SIZE:
      return get_option(limits_.tx_size, value, length);
    case FI_OPT_RX_SIZE:
      return get_option(limits_.rx_size, value, length);
    case FI_OPT_MAX_MSG_SIZE:
    case FI_OPT_MAX_TAGGED_SIZE:
    case FI_OPT_MAX_RMA_SIZE:
      return get_option(limits_.max_msg_size, value, length);
    case FI_OPT_MAX_ATOMIC_SIZE:
      return get_option(limits_.atomic_size, value, length);
    case FI_OPT_INJECT_MSG_SIZE:
    case FI_OPT_INJECT_TAGGED_SIZE:
    case FI_OPT_INJECT_RMA_SIZE:
      return get_option(limits_.inject_size, value, length);
    case FI_OPT_INJECT_ATOMIC_SIZE:
      return get_option(std::min(limits_.inject_size, limits_.atomic_size), value, length);
    default:
      return hmem_options_.get(core_domain_.devices, name, value, length);
  }
}

int EndpointCore::set_hmem_option(int level, int name, const void *value, size_t length) {
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  return hmem_options_.set(core_domain_.devices, name, value, length);
}

ssize_t EndpointCore::check_atomic(AtomicRequest &request) const {
  if (!atomic_valid(request.kind, request.op, request.datatype)) return -FI_EOPNOTSUPP;
  const bool reads = request.kind != AtomicKind::kWrite;
  const bool takes = request.op != FI_ATOMIC_READ;  // has operands
  if (request.rma == nullptr || request.rma_count == 0 || request.rma_count > kIovLimit)
    return -FI_EINVAL;
  uint64_t remote = 0;
  for (size_t i = 0; i < request.rma_count; ++i)
    if (__builtin_add_overflow(remote, uint64_t(request.rma[i].count), &remote)) return -FI_EINVAL;
  if (remote == 0) return -FI_EINVAL;
  const auto agrees = [remote](const fi_ioc *ioc, size_t count) {
    if (ioc == nullptr || count == 0 || count > kIovLimit) return false;
    uint64_t n = 0;
    for (size_t i = 0; i < count; ++i)
      if (ioc[i].addr == nullptr || __builtin_add_overflow(n, uint64_t(ioc[i].count), &n))
        return false;
    return n == remote;
  };
  if (takes && !agrees(request.operands, request.operand_count)) return -FI_EINVAL;
  if (reads && !agrees(request.results, request.result_count)) return -FI_EINVAL;
  const bool compares = request.kind == AtomicKind::kCompare;
  if (compares && !agrees(request.compares, request.compare_count)) return -FI_EINVAL;
  uint64_t bytes;
  if (__builtin_mul_overflow(remote, uint64_t(datatype_size(request.datatype)), &bytes) ||
      bytes > (compares ? limits_.atomic_size / 2 : limits_.atomic_size))
    return -FI_EMSGSIZE;
  if (request.flags & FI_INJECT && bytes > limits_.inject_size) return -FI_EMSGSIZE;
  request.elements = remote;
  return 0;
}

}  // namespace weft::sdk
