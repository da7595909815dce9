// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/endpoint.h"

#include <weft/sdk/alias.h>
#include <weft/sdk/log.h>
#include <weft/sdk/ops.h>

#include <algorithm>
#include <new>
#include <utility>

namespace weft::rxd {

Endpoint::Endpoint(Domain &domain, const fi_info &info, const sdk::SockAddr &local,
                   std::string auth_key, void *context)
    : Object(domain.instance(), FI_CLASS_EP, context),
      RdmEndpoint(domain.shared(), *this, info,
                  {.tx_size = domain.fabric().layer().options().tx_size,
                   .rx_size = domain.fabric().layer().options().rx_size,
                   .inject_size = kInjectSize,
                   .max_msg_size = INT64_MAX,
                   .atomic_size = kMaxAtomicSize}),
      domain_(domain),
      addr_format_(info.addr_format),
      auth_key_(std::move(auth_key)),
      local_(local),
      lower_(domain, *this) {
  fill_tables(*this);
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
    return fail(FI_EINVAL, "fi_endpoint: there is no address to receive at: info->src_addr");
  const fi_info &from = info.src_addr != nullptr ? info : domain.inner_info();
  WEFT_TRY(const sdk::SockAddr local,
           sdk::read_address(from.addr_format, from.src_addr, from.src_addrlen));
  WEFT_TRY(sdk::AuthKey key, sdk::auth_key(info, ""));
  if (key.empty()) key = domain.auth_key();
  auto *ep = new (std::nothrow) Endpoint(domain, info, local, {key.begin(), key.end()}, context);
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
  WEFT_CHECK(lower_.open(local_));
  const Options &options = domain_.fabric().layer().options();
  core_.emplace(lower_, *this,
                Settings{.tx_size = limits().tx_size,
                         .first_datagram = std::min<size_t>(1472, lower_.max_datagram()),
                         .checksum = options.checksum,
                         .unexpected_limit = options.unexpected_limit,
                         .peer_timeout_ns = options.peer_timeout_ns,
                         .max_stock_peers = options.max_stock_peers,
                         .max_unnamed_peers = options.max_unnamed_peers,
                         .stock_peers = options.stock_peers,
                         .auth_key = auth_key_});
  local_ = lower_.name();
  core_->set_own_address(lower_.reachable());
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

// What was sent is the endpoint's to deliver, and its peers are told that it goes.
void Endpoint::linger() {
  const uint64_t end = sdk::now_ns() + domain_.fabric().layer().options().close_linger_ns;
  core_->part();
  while (!core_->parted() && sdk::now_ns() < end) {
    lower_.on_poll();
    if (!core_->parted()) lower_.wait(end);
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
      core_->shut_down(FI_ECANCELED);
      // The receiver's own end would be too late: it needs this object whole.
      receiver().visit_unexpected(sdk::Matcher::kAnySource, [this](sdk::Unexpected &m) {
        receiver().forget(m);
        discard(m);
      });
      domain_.engine().remove(lower_);
      core_.reset();  // closes its paths
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

void Endpoint::fill(TxOp &op, uint64_t flags, bool report, void *context) const {
  op.tagged = false;
  op.has_data = flags & FI_REMOTE_CQ_DATA;
  op.transmit = flags & FI_TRANSMIT_COMPLETE;
  op.delivery = flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE);
  op.fence = flags & FI_FENCE;
  op.more = flags & FI_MORE;
  op.report = report;
  op.count = 0;
  op.vector_count = 0;
  op.result_count = 0;
  op.context = context;
  op.data = 0;
  op.tag = 0;
}

ssize_t Endpoint::go(TxOp &op, uint32_t index, bool own) {
  const bool more = op.more;
  int rc;
  try {
    if (own) core_->own_data(op);
    if (core_->knows(index)) {
      rc = core_->start(op, index, nullptr);
    } else {
      const std::optional<sdk::SockAddr> address = av()->address(index);
      rc = address ? core_->start(op, index, &*address) : -FI_EINVAL;
    }
  } catch (const std::bad_alloc &) {
    rc = -FI_ENOMEM;
  }
  if (rc != 0) {
    core_->give(op);
  } else if (more) {
    domain_.engine().mark_dirty(lower_);  // goes with the next progress, whoever makes it
  }
  return rc;
}

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  uint32_t index;
  ssize_t rc;
  TxOp *op = take(request.dest, index, rc);
  if (op == nullptr) return rc;
  fill(*op, request.flags, request.report, request.context);
  op->kind = TxOp::Kind::kMessage;
  op->tagged = request.tagged;
  op->cq_flags = FI_SEND | (request.tagged ? FI_TAGGED : FI_MSG);
  op->length = request.length;
  op->tag = request.tag;
  op->data = request.data;
  op->count = uint8_t(request.count);
  std::copy_n(request.iov, request.count, op->iov);
  return go(*op, index, request.flags & FI_INJECT);
}

ssize_t Endpoint::start(const sdk::RmaRequest &request) {
  uint32_t index;
  ssize_t rc;
  TxOp *op = take(request.dest, index, rc);
  if (op == nullptr) return rc;
  fill(*op, request.flags, request.report, request.context);
  op->kind = request.write ? TxOp::Kind::kWrite : TxOp::Kind::kRead;
  op->cq_flags = FI_RMA | (request.write ? FI_WRITE : FI_READ);
  op->length = request.length;
  op->data = request.data;
  op->count = uint8_t(request.count);
  std::copy_n(request.iov, request.count, op->iov);
  op->vector_count = uint8_t(request.rma_count);
  for (size_t i = 0; i < request.rma_count; ++i)
    op->vectors[i] = {request.rma[i].addr, request.rma[i].len, request.rma[i].key};
  return go(*op, index, request.flags & FI_INJECT);
}

ssize_t Endpoint::start(const sdk::AtomicRequest &request) {
  if (request.flags & FI_REMOTE_CQ_DATA) return -FI_EOPNOTSUPP;  // the packets have no room for it
  uint32_t index;
  ssize_t rc;
  TxOp *op = take(request.dest, index, rc);
  if (op == nullptr) return rc;
  fill(*op, request.flags, request.report, request.context);
  op->kind = TxOp::Kind::kAtomic;
  op->atomic = request.kind;
  op->datatype = uint8_t(request.datatype);
  op->op = uint8_t(request.op);
  op->cq_flags = FI_ATOMIC | (request.kind == sdk::AtomicKind::kWrite ? FI_WRITE : FI_READ);
  const size_t element = sdk::datatype_size(request.datatype);
  op->vector_count = uint8_t(request.rma_count);
  for (size_t i = 0; i < request.rma_count; ++i)
    op->vectors[i] = {request.rma[i].addr, request.rma[i].count * element, request.rma[i].key};
  const size_t bytes = size_t(request.elements) * element;  // at most kMaxAtomicSize, with compares
  uint8_t values[kMaxAtomicSize];
  size_t length = 0;
  if (request.op != FI_ATOMIC_READ)
    length += sdk::ioc_gather(values, bytes, request.operands, request.operand_count, element);
  if (request.kind == sdk::AtomicKind::kCompare)
    length +=
        sdk::ioc_gather(values + length, bytes, request.compares, request.compare_count, element);
  op->length = length;
  op->iov[0] = {values, length};
  op->count = 1;
  op->result_count = uint8_t(request.result_count);
  std::copy_n(request.results, request.result_count, op->results);
  return go(*op, index, true);
}

int Endpoint::atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return sdk::atomic_query_count(sdk::AtomicKind::kWrite, sdk::raw(datatype), sdk::raw(op),
                                 kAtomicLimits, count);
}

int Endpoint::fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return sdk::atomic_query_count(sdk::AtomicKind::kFetch, sdk::raw(datatype), sdk::raw(op),
                                 kAtomicLimits, count);
}

int Endpoint::compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return sdk::atomic_query_count(sdk::AtomicKind::kCompare, sdk::raw(datatype), sdk::raw(op),
                                 kAtomicLimits, count);
}

// ---- what others tell ----

void Endpoint::deliver(sdk::Unexpected &message, sdk::Receive &receive) {
  core_->deliver(static_cast<Incoming &>(message), receive);
}

void Endpoint::discard(sdk::Unexpected &message) {
  if (core_) core_->discard(static_cast<Incoming &>(message));
}

std::string Endpoint::source_address(const sdk::Message &message) {
  const sdk::SockAddr *address = core_->address_of(message.source);
  if (address == nullptr) return {};
  return {reinterpret_cast<const char *>(address->c()), address->size()};
}

void Endpoint::on_av_removed(uint32_t index) {
  core_->forget(index);
}

void Endpoint::on_av_inserted(uint32_t index, const sdk::SockAddr &address) {
  core_->introduce(index, address);
}

void Endpoint::on_done(TxOp &op, int err) {
  uint64_t length = op.length;
  if (op.kind == TxOp::Kind::kAtomic) {
    length = 0;
    for (size_t i = 0; i < op.vector_count; ++i) length += op.vectors[i].length;
  }
  if (err == 0) return succeed_tx(op.context, op.cq_flags, length, op.report);
  finish_tx({.context = op.context,
             .flags = op.cq_flags,
             .length = length,
             .tag = op.tag,
             .report = op.report,
             .err = err});
}

uint32_t Endpoint::index_of(const sdk::SockAddr &address) {
  const uint32_t index = av()->find(address);
  return index == sdk::Av::kNone ? kNoIndex : index;
}

// Counters that are bound to the regions themselves (fi_mr_bind).
void Endpoint::count_regions(uint64_t access, std::span<const RmaVector> where) {
  for (const RmaVector &vector : where) {
    iovec ignored[sdk::Receive::kIovLimit];
    const sdk::MrTable::Access found = domain_.regions().resolve(
        vector.key, vector.address, vector.length, access, ignored, std::size(ignored));
    if (found.mr != nullptr) found.mr->count_remote(access, vector.length);
  }
}

void Endpoint::on_remote_write(uint32_t source, uint64_t length, bool has_data, uint64_t data,
                               std::span<const RmaVector> where) {
  count_remote(FI_REMOTE_WRITE, length);
  count_regions(FI_REMOTE_WRITE, where);
  if (has_data) report_remote_write(length, data, source);
}

void Endpoint::on_remote_read(uint64_t length, std::span<const RmaVector> where) {
  count_remote(FI_REMOTE_READ, length);
  count_regions(FI_REMOTE_READ, where);
}

void Endpoint::on_remote_atomic(uint64_t access, uint64_t length,
                                std::span<const RmaVector> where) {
  for (uint64_t one : {FI_REMOTE_WRITE, FI_REMOTE_READ}) {
    if ((access & one) == 0) continue;
    count_remote(one, length);
    count_regions(one, where);
  }
}

void Endpoint::warn(const char *text) {
  WEFT_WARN(instance(), FI_LOG_EP_CTRL, "%s", text);
}

}  // namespace weft::rxd
