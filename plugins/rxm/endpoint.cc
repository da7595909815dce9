// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/endpoint.h"

#include <unistd.h>
#include <weft/sdk/alias.h>
#include <weft/sdk/log.h>
#include <weft/sdk/ops.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace weft::rxm {
namespace {

sdk::RdmLimits limits_for(Domain &domain) {
  const Options &options = domain.fabric().layer().options();
  const fi_info &inner = domain.inner_info();
  const size_t inject = inner.tx_attr->inject_size;
  return {.tx_size = options.tx_size,
          .rx_size = options.rx_size,
          .inject_size = std::min<size_t>(inject > kHeaderSize ? inject - kHeaderSize : 0, 64),
          .max_msg_size = inner.ep_attr->max_msg_size,
          .atomic_size = atomic_limits(domain).write};
}

}  // namespace

sdk::AtomicLimits atomic_limits(Domain &domain) {
  const size_t room = domain.fabric().layer().options().buffer_size - kAtomicVectorsSize;
  return {.write = room, .fetch = room, .compare = room / 2};
}

Endpoint::Endpoint(Domain &domain, const fi_info &info, const sdk::SockAddr &local, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      RdmEndpoint(domain.shared(), *this, info, limits_for(domain)),
      domain_(domain),
      addr_format_(info.addr_format),
      local_(local),
      lower_(domain, *this) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Endpoint>());
  c()->ops = const_cast<fi_ops_ep *>(sdk::ep_ops<Endpoint>());
  c()->cm = const_cast<fi_ops_cm *>(sdk::cm_ops<Endpoint>());
  c()->msg = const_cast<fi_ops_msg *>(sdk::msg_ops<Endpoint>());
  c()->rma = const_cast<fi_ops_rma *>(sdk::rma_ops<Endpoint>());
  c()->tagged = const_cast<fi_ops_tagged *>(sdk::tagged_ops<Endpoint>());
  c()->atomic = const_cast<fi_ops_atomic *>(sdk::atomic_ops<Endpoint>());
  c()->collective = const_cast<fi_ops_collective *>(sdk::collective_ops<Endpoint>());
}

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  if (info.ep_attr->type != FI_EP_RDM && info.ep_attr->type != FI_EP_UNSPEC)
    return fail(FI_EINVAL, "fi_endpoint: type %d: this layer has FI_EP_RDM",
                int(info.ep_attr->type));
  for (size_t size : {info.tx_attr != nullptr ? info.tx_attr->size : 0,
                      info.rx_attr != nullptr ? info.rx_attr->size : 0})
    if (size > kMaxQueueSize)
      return fail(FI_EINVAL, "fi_endpoint: a queue of %zu: at most %zu", size, kMaxQueueSize);
  if (info.src_addr == nullptr && domain.inner_info().src_addr == nullptr)
    return fail(FI_EINVAL, "fi_endpoint: there is no address to listen at: info->src_addr");
  const fi_info &from = info.src_addr != nullptr ? info : domain.inner_info();
  WEFT_TRY(const sdk::SockAddr local,
           sdk::read_address(from.addr_format, from.src_addr, from.src_addrlen));
  auto *ep = new (std::nothrow) Endpoint(domain, info, local, context);
  if (ep == nullptr) return fail(FI_ENOMEM, "no memory for an endpoint");
  if (auto published = ep->publish(domain.base()); !published) {
    delete ep;
    return tl::unexpected(published.error());
  }
  domain.shared().children.fetch_add(1);
  return ep;
}

// ---- life ----

Result<void> Endpoint::enable() {
  if (enabled()) return {};
  WEFT_CHECK(check_bindings());
  WEFT_CHECK(lower_.open(local_, remote_cntr(FI_REMOTE_WRITE), remote_cntr(FI_REMOTE_READ)));
  local_ = lower_.address();
  const Options &options = domain_.fabric().layer().options();
  core_.emplace(lower_, *this,
                Settings{.process = uint32_t(getpid()),
                         .eager_limit = uint32_t(options.buffer_size),
                         .sar_limit = options.sar_limit,
                         .rendezvous_write = options.rendezvous_write,
                         .tx_size = limits().tx_size,
                         .inject_limit = lower_.inject_limit(),
                         .iov_limit = lower_.iov_limit(),
                         .receive_count = lower_.receive_count(),
                         .credits = !lower_.shares_receives(),
                         .max_connections = options.max_connections,
                         .unexpected_limit = options.unexpected_limit,
                         .connect_timeout_ns = options.connect_timeout_ns});
  core_->set_own_address(local_);
  av()->add_user(*this, true);
  domain_.engine().add_poller(lower_);
  set_enabled();
  return {};
}

int Endpoint::control(int command, void *arg) {
  if (command == FI_ALIAS) return sdk::Alias<Endpoint>::open(*this, arg);
  if (command != FI_ENABLE) return control_flags(command, arg);
  sdk::Guard guard(lock());
  auto done = enable();
  if (done) return 0;
  lower_.shut();
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", done.error().text.c_str());
  return -done.error().code;
}

// Operations that wait for a connection go out first: what was injected is the endpoint's to
// deliver.
void Endpoint::linger() {
  const uint64_t end = sdk::now_ns() + domain_.fabric().layer().options().close_linger_ns;
  while (core_->has_queued()) {
    const uint64_t now = sdk::now_ns();
    if (now >= end) return;
    lower_.on_poll();
    if (core_->has_queued()) lower_.wait(int(std::min<uint64_t>((end - now) / 1'000'000u + 1, 10)));
  }
}

int Endpoint::close() {
  if (aliases.load() != 0) return -FI_EBUSY;
  retire();
  {
    sdk::Guard guard(lock());
    // Completions of what is outstanding could name an endpoint that is gone (fi_endpoint.3).
    detach();
    if (enabled()) {
      linger();
      domain_.engine().remove_poller(lower_);
      domain_.engine().set_deadline(lower_, 0);
      core_->abandon();
      // The receiver's own end would be too late: it needs this object whole.
      receiver().visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
        receiver().forget(m);
        discard(m);
      });
      lower_.shut();
    }
    release(enabled() ? this : nullptr);
  }
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

int Endpoint::setname(void *addr, size_t len) {
  auto address = sdk::read_address(addr_format_, addr, len);
  if (!address) return -address.error().code;
  sdk::Guard guard(lock());
  if (enabled()) return -FI_EOPBADSTATE;
  local_ = *address;
  return 0;
}

int Endpoint::getname(void *addr, size_t *len) {
  sdk::Guard guard(lock());
  if (!enabled()) return -FI_EOPBADSTATE;
  return sdk::write_address(local_, addr_format_, addr, len);
}

ssize_t Endpoint::tx_size_left() {
  sdk::Guard guard(lock());
  return enabled() ? ssize_t(limits().tx_size - core_->in_flight()) : -FI_EOPBADSTATE;
}

// ---- operations ----

TxOp *Endpoint::take(fi_addr_t dest, uint32_t &index, ssize_t &rc) {
  rc = -FI_EAGAIN;
  if (tx_cq_full()) return nullptr;
  index = av()->peer_of(dest);
  if (index == sdk::Av::kNone) {
    rc = -FI_EINVAL;
    return nullptr;
  }
  TxOp *op = core_->take();
  if (op != nullptr) return op;
  // Whoever only injects never makes progress.
  lower_.on_poll();
  return core_->take();
}

ssize_t Endpoint::go(TxOp &op, uint32_t index) {
  int rc;
  if (core_->knows(index)) {
    rc = core_->start(op, index, nullptr);
  } else {
    const std::optional<sdk::SockAddr> address = av()->address(index);
    rc = address ? core_->start(op, index, &*address) : -FI_EINVAL;
  }
  if (rc != 0) core_->give(op);
  return rc;
}

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  uint32_t index;
  ssize_t rc;
  TxOp *op = take(request.dest, index, rc);
  if (op == nullptr) return rc;
  op->report = request.report;
  op->context = request.context;
  op->cq_flags = FI_SEND | (request.tagged ? FI_TAGGED : FI_MSG);
  op->length = request.length;
  op->tag = request.tag;
  op->data = request.data;
  op->flags = request.flags;
  op->fence = request.flags & FI_FENCE;
  op->inject = request.flags & FI_INJECT;
  op->count = uint8_t(request.count);
  std::copy_n(request.iov, request.count, op->iov);
  core_->prepare_message(*op, request.tagged, request.flags & FI_REMOTE_CQ_DATA,
                         request.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE));
  // One that is reported must be waited for.
  if (op->inject && (op->report || request.flags & kLevelFlags & ~FI_INJECT_COMPLETE))
    core_->own_data(*op);
  return go(*op, index);
}

ssize_t Endpoint::start(const sdk::RmaRequest &request) {
  uint32_t index;
  ssize_t rc;
  TxOp *op = take(request.dest, index, rc);
  if (op == nullptr) return rc;
  op->form = request.write ? TxOp::Form::kWrite : TxOp::Form::kRead;
  op->report = request.report;
  op->context = request.context;
  op->cq_flags = FI_RMA | (request.write ? FI_WRITE : FI_READ);
  op->length = request.length;
  op->data = request.data;
  op->flags = request.flags;
  op->fence = request.flags & FI_FENCE;
  op->inject = request.flags & FI_INJECT;
  op->count = uint8_t(request.count);
  std::copy_n(request.iov, request.count, op->iov);
  op->rma_count = uint8_t(request.rma_count);
  for (size_t i = 0; i < request.rma_count; ++i)
    op->vectors[i] = {request.rma[i].addr, request.rma[i].len, request.rma[i].key};
  if (op->inject && (op->report || request.flags & kLevelFlags & ~FI_INJECT_COMPLETE))
    core_->own_data(*op);
  return go(*op, index);
}

ssize_t Endpoint::start(const sdk::AtomicRequest &request) {
  if (request.flags & FI_REMOTE_CQ_DATA) return -FI_EOPNOTSUPP;  // the packets have no room for it
  uint32_t index;
  ssize_t rc;
  TxOp *op = take(request.dest, index, rc);
  if (op == nullptr) return rc;
  op->report = request.report;
  op->context = request.context;
  op->cq_flags = FI_ATOMIC | (request.kind == sdk::AtomicKind::kWrite ? FI_WRITE : FI_READ);
  op->flags = request.flags;
  op->fence = request.flags & FI_FENCE;
  core_->prepare_atomic(*op, request, sdk::datatype_size(request.datatype));
  return go(*op, index);
}

int Endpoint::atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return sdk::atomic_query_count(sdk::AtomicKind::kWrite, sdk::raw(datatype), sdk::raw(op),
                                 atomic_limits(domain_), count);
}

int Endpoint::fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return sdk::atomic_query_count(sdk::AtomicKind::kFetch, sdk::raw(datatype), sdk::raw(op),
                                 atomic_limits(domain_), count);
}

int Endpoint::compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return sdk::atomic_query_count(sdk::AtomicKind::kCompare, sdk::raw(datatype), sdk::raw(op),
                                 atomic_limits(domain_), count);
}

// ---- what others tell ----

void Endpoint::deliver(sdk::Unexpected &message, sdk::Receive &receive) {
  core_->deliver(static_cast<RxMessage &>(message), receive);
}

void Endpoint::discard(sdk::Unexpected &message) {
  if (core_) core_->discard(static_cast<RxMessage &>(message));
}

std::string Endpoint::source_address(const sdk::Message &message) {
  if (message.source < sdk::Matcher::kFirstUnnamed) return {};
  const Connection *c = core_->find(message.source - sdk::Matcher::kFirstUnnamed);
  if (c == nullptr) return {};
  return {reinterpret_cast<const char *>(c->address().c()), c->address().size()};
}

void Endpoint::on_av_removed(uint32_t index) {
  core_->forget(index);
}

void Endpoint::on_av_inserted(uint32_t index, const sdk::SockAddr &address) {
  core_->introduce(index, address);
}

void Endpoint::on_done(TxOp &op, int err) {
  if (err == 0) return succeed_tx(op.context, op.cq_flags, op.length, op.report);
  finish_tx({.context = op.context,
             .flags = op.cq_flags,
             .length = op.length,
             .tag = op.tag,
             .report = op.report,
             .err = err});
}

uint32_t Endpoint::index_of(const sdk::SockAddr &address) {
  const uint32_t index = av()->find(address);
  return index == sdk::Av::kNone ? kNoIndex : index;
}

void Endpoint::warn(const char *text) {
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", text);
}

void Endpoint::on_remote_atomic(uint64_t access, uint64_t bytes) {
  if (access & FI_REMOTE_WRITE) count_remote(FI_REMOTE_WRITE, bytes);
  if (access & FI_REMOTE_READ) count_remote(FI_REMOTE_READ, bytes);
}

void Endpoint::on_remote_write(Connection *from, uint64_t length, uint64_t data) {
  report_remote_write(length, data,
                      from != nullptr ? core_->source_of(*from) : sdk::Matcher::kUnknownSource);
}

}  // namespace weft::rxm
