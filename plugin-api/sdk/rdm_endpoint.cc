// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/rdm_endpoint.h>
#include <weft/sdk/transfer.h>

#include <algorithm>
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

size_t size_or(size_t asked, size_t standard) {
  return asked != 0 ? asked : standard;
}

RdmLimits limits_of(const fi_info &info, RdmLimits limits) {
  if (info.tx_attr != nullptr) {
    limits.tx_size = size_or(info.tx_attr->size, limits.tx_size);
    limits.inject_size =
        std::max(limits.inject_size, std::min(info.tx_attr->inject_size, limits.max_inject_size));
  }
  if (info.rx_attr != nullptr) limits.rx_size = size_or(info.rx_attr->size, limits.rx_size);
  return limits;
}

}  // namespace

uint64_t order_of(const fi_info &info) {
  return (info.tx_attr != nullptr ? info.tx_attr->msg_order : 0) |
         (info.rx_attr != nullptr ? info.rx_attr->msg_order : 0);
}

RdmEndpoint::RdmEndpoint(DomainContext &domain, ReceiverSink &sink, const fi_info &info,
                         const RdmLimits &limits)
    : domain_(domain),
      caps_(with_directions(info.caps)),
      limits_(limits_of(info, limits)),
      tx_flags_(info.tx_attr != nullptr ? info.tx_attr->op_flags : 0),
      rx_flags_(info.rx_attr != nullptr ? info.rx_attr->op_flags : 0),
      receiver_(sink, {.size = limits_.rx_size,
                       .directed = (info.caps & FI_DIRECTED_RECV) != 0,
                       .source = (info.caps & FI_SOURCE) != 0,
                       .source_err = (info.caps & FI_SOURCE_ERR) != 0}),
      wants_shared_(wants_shared_receive(info)) {}

int RdmEndpoint::bind_object(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  Guard guard(lock());
  switch (fid->fclass) {
    case FI_CLASS_AV: {
      if (enabled_) return -FI_EOPBADSTATE;
      if (!Av::is_mine(fid, FI_CLASS_AV, domain_.instance)) return -FI_EINVAL;
      if (flags != 0) return -FI_EBADFLAGS;
      if (av_ != nullptr) return -FI_EBUSY;
      if (&Av::from(fid)->engine() != domain_.engine) return -FI_EINVAL;  // another domain's
      bindings_.hold(Av::from(fid)->users);
      av_ = receiver_.av = Av::from(fid);
      return 0;
    }
    case FI_CLASS_EQ: {
      if (!Eq::is_mine(fid, FI_CLASS_EQ, domain_.instance)) return -FI_EINVAL;
      if (flags != 0) return -FI_EBADFLAGS;
      if (eq_ != nullptr) return -FI_EBUSY;
      bindings_.hold(Eq::from(fid)->users);
      eq_ = Eq::from(fid);
      return 0;
    }
    case FI_CLASS_CQ:
      return bindings_.bind_cq(fid, flags, {tx_cq_, tx_selective_},
                               {receiver_.cq, receiver_.selective});
    case FI_CLASS_CNTR:
      return bindings_.bind_cntr(fid, flags,
                                 {{FI_SEND, send_},
                                  {FI_RECV, receiver_.cntr},
                                  {FI_READ, read_},
                                  {FI_WRITE, write_},
                                  {FI_REMOTE_READ, remote_read_},
                                  {FI_REMOTE_WRITE, remote_write_}});
    case FI_CLASS_SRX_CTX: {
      if (enabled_) return -FI_EOPBADSTATE;
      SharedReceiveContext *srx = SharedReceiveContext::find(domain_, fid);
      if (srx == nullptr) return -FI_EINVAL;  // of another domain, or for connected endpoints
      if (flags != 0) return -FI_EBADFLAGS;
      if (shared_ != nullptr) return -FI_EBUSY;
      // The context must have the capabilities of the endpoint (fi_endpoint.3).
      if ((caps_ & (FI_MSG | FI_TAGGED)) & ~srx->caps()) return -FI_EINVAL;
      bindings_.hold(srx->users);
      shared_ = srx;
      return 0;
    }
    case FI_CLASS_MR:
      return 0;  // regions belong to the domain
    default:
      return -FI_EINVAL;
  }
}

Result<void> RdmEndpoint::check_bindings() const {
  if (av_ == nullptr)
    return fail(FI_ENOAV,
                "fi_enable: this endpoint is unconnected and needs an address vector: "
                "fi_ep_bind it first");
  const bool sends = caps_ & FI_SEND,
             asks = caps_ & (FI_RMA | FI_ATOMIC) && caps_ & (FI_READ | FI_WRITE);
  if ((sends || asks) && tx_cq_ == nullptr && !send_ && !read_ && !write_)
    return fail(FI_ENOCQ, "fi_enable: no completion queue or counter is bound for transmits");
  if (caps_ & FI_RECV && receiver_.cq == nullptr && receiver_.cntr == nullptr)
    return fail(FI_ENOCQ, "fi_enable: no completion queue or counter is bound for receives");
  WEFT_CHECK(check_shared_receive(wants_shared_, shared_ != nullptr));
  if (shared_ != nullptr && !shared_->receiver().takes(av_))
    return fail(FI_EINVAL,
                "fi_enable: endpoints that share a receive context must have the same address "
                "vector (fi_endpoint.3, SHARED CONTEXTS), and this one has another");
  return {};
}

void RdmEndpoint::set_enabled() {
  if (shared_ != nullptr) receiver_.share(shared_->receiver());
  enabled_ = true;
}

int RdmEndpoint::control_flags(int command, void *arg) {
  Guard guard(lock());
  return control_op_flags(command, arg, kSendFlags, &tx_flags_, &rx_flags_);
}

ssize_t RdmEndpoint::cancel(void *context) {
  Guard guard(lock());
  return receiver_.cancel(context);
}

int RdmEndpoint::getopt(int level, int name, void *value, size_t *length) {
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  Guard guard(lock());
  switch (name) {
    case FI_OPT_MIN_MULTI_RECV:
      return get_option(receiver_.min_multi_recv(), value, length);
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
      return -FI_ENOPROTOOPT;
  }
}

int RdmEndpoint::setopt(int level, int name, const void *value, size_t length) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  Guard guard(lock());
  return set_option(receiver_.min_multi_recv(), value, length);
}

ssize_t RdmEndpoint::rx_size_left() {
  Guard guard(lock());
  return enabled_ ? ssize_t(receiver_.left()) : -FI_EOPBADSTATE;
}

ssize_t RdmEndpoint::check_atomic(AtomicRequest &request) const {
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

void RdmEndpoint::finish_tx(Done done) {
  if (done.err == 0) return succeed_tx(done.context, done.flags, done.length, done.report);
  if (Cntr *cntr = tx_cntr(done.flags)) cntr->add_error();
  if (tx_cq_ == nullptr) return;
  tx_cq_->push_error({.context = done.context,
                      .flags = done.flags,
                      .tag = done.tag,
                      .err = done.err,
                      .prov_errno = done.prov_errno != 0 ? done.prov_errno : done.err,
                      .err_data = std::move(done.err_data)});
}

void RdmEndpoint::report_remote_write(uint64_t length, uint64_t data, uint32_t source,
                                      bool atomic) {
  if (receiver_.cq == nullptr) return;
  const bool named = caps_ & FI_SOURCE && av_ != nullptr && source < Matcher::kFirstUnnamed;
  receiver_.cq->push({.flags = FI_REMOTE_CQ_DATA | FI_REMOTE_WRITE | (atomic ? FI_ATOMIC : FI_RMA),
                      .len = length,
                      .data = data,
                      .src_addr = named ? av_->reported(source) : FI_ADDR_NOTAVAIL});
}

void RdmEndpoint::detach() {
  tx_cq_ = nullptr;
  receiver_.cq = nullptr;
  receiver_.cntr = nullptr;
  send_ = read_ = write_ = remote_read_ = remote_write_ = nullptr;
}

void RdmEndpoint::release(AvUser *user) {
  receiver_.leave();
  shared_ = nullptr;
  if (av_ != nullptr && user != nullptr) av_->remove_user(*user);
  av_ = receiver_.av = nullptr;
  bindings_.release();
  eq_ = nullptr;
}

}  // namespace weft::sdk
