// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/endpoint.h"

#include <algorithm>
#include <utility>

#include "plugins/rxd/protocol/device_copies.h"

namespace weft::rxd {
namespace {

// The protocol keeps the order of messages among themselves and of atomics among themselves. The
// fields are sends, reads, writes, atomics.
constexpr sdk::OrderRules kNativeOrder = {sdk::kinds(sdk::OrderKind::kSend), 0, 0,
                                          sdk::kinds(sdk::OrderKind::kAtomic)};

}  // namespace

Endpoint::Endpoint(Domain &domain, const fi_info &info, const sdk::Address &local,
                   std::string auth_key, void *context)
    : LayerEndpoint(domain, info,
                    {.tx_size = domain.fabric().layer().options().tx_size,
                     .rx_size = domain.fabric().layer().options().rx_size,
                     .inject_size = kInjectSize,
                     .max_inject_size = kMaxInjectSize,
                     .max_msg_size = kMaxMessageSize,
                     .atomic_size = domain.atomic_limits().write,
                     .early_receives = true,
                     .may_buffer = true},
                    kNativeOrder, local, context),
      auth_key_(std::move(auth_key)) {
  lower_.set_class(sdk::endpoint_class(info, domain.fabric().api_version()));
}

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  WEFT_TRY(const sdk::Address local, sdk::local_address(info, domain.inner_info()));
  WEFT_TRY(sdk::AuthKey key, sdk::auth_key(info, "", domain.fabric().api_version()));
  if (key.empty()) key = domain.auth_key();
  return start(new Endpoint(domain, info, local, {key.begin(), key.end()}, context));
}

Result<void> Endpoint::begin() {
  WEFT_CHECK(lower_.open(local_));
  local_ = lower_.name();
  drop_core();  // one that could not be enabled
  core_.emplace(lower_, *this,
                Settings{.tx_size = limits().tx_size,
                         .first_datagram = domain().first_datagram(),
                         .checksum = options().checksum,
                         .unexpected_limit = options().unexpected_limit,
                         .peer_timeout_ns = options().peer_timeout_ns,
                         .max_stock_peers = options().max_stock_peers,
                         .max_unnamed_peers = options().max_unnamed_peers,
                         .stock_peers = lower_.stock_peers(),
                         .auth_key = auth_key_,
                         .hmem = domain().hmem(),
                         .place = context_place(),
                         .last_place = last_place(),
                         .only_transmits = only_transmits()});
  core_->set_own_address(lower_.reachable());
  if (core_->copies() != nullptr) domain().copies().push_back(core_->copies());
  part_.emplace(domain().fabric().stats(), core_->counters());
  return {};
}

// Sends close to all peers once everything is acknowledged. Waits for the answers if the domain's
// budget for waiting in vain permits it.
void Endpoint::end() {
  const uint64_t left = domain().linger_budget().left(sdk::now_ns(), options().close_linger_ns);
  core_->part(left >= kPartingNs);
  linger([this] { return core_->parted(); }, [this] { return core_->unanswered() != 0; });
  core_->shut_down(FI_ECANCELED);
}

void Endpoint::shut() {
  drop_core();  // closes the paths
  lower_.shut();
}

void Endpoint::drop_core() {
  part_.reset();
  if (core_) std::erase(domain().copies(), core_->copies());
  core_.reset();
}

// ---- operations ----

// Injected data, and data of a device, which no datagram can be sent from. Long ones of a device
// the core copies as it sends them.
template <class Request>
ssize_t Endpoint::own_if_needed(TxOp &op, const Request &request) {
  const bool injects = (request.flags & FI_INJECT) != 0;
  if (op.kind == TxOp::Kind::kRead || (!injects && !is_devices(request.iov, request.count)))
    return 0;
  if (!injects && op.length > DeviceCopies::kShort) {
    op.on_device = op.more = true;  // WeftConversation::begin_copies() decides when it leaves
    return 0;
  }
  if (core_->own_data(op)) return 0;
  if (injects) return -FI_EFAULT;
  report(op, 0, FI_EIO);
  return 1;
}

bool Endpoint::is_devices(const iovec *iov, size_t count) {
  const sdk::Hmem *const hmem = domain().hmem();
  return hmem != nullptr && std::any_of(iov, iov + count, [hmem](const iovec &one) {
           return bool(hmem->find(one.iov_base, one.iov_len));
         });
}

template <class Request, class Fill>
ssize_t Endpoint::launch(const Request &request, Fill fill) {
  const uint64_t flags = request.flags;
  const ssize_t rc = LayerEndpoint::launch(request, [&](TxOp &op) {
    op.has_data = flags & FI_REMOTE_CQ_DATA;
    op.transmit = flags & FI_TRANSMIT_COMPLETE || keeper_.awaits_messages();
    op.delivery = flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE);
    op.weft_only = flags & (FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE);
    op.more = flags & FI_MORE;
    return fill(op);
  });
  // The next progress call of any caller sends it.
  if (rc == 0 && flags & FI_MORE) domain().engine().mark_dirty(lower_);
  return rc;
}

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  return launch(request, [&](TxOp &op) {
    op.kind = TxOp::Kind::kMessage;
    op.tagged = request.tagged;
    return own_if_needed(op, request);
  });
}

ssize_t Endpoint::start(const sdk::RmaRequest &request) {
  return launch(request, [&](TxOp &op) {
    op.kind = request.write ? TxOp::Kind::kWrite : TxOp::Kind::kRead;
    return own_if_needed(op, request);
  });
}

ssize_t Endpoint::start(const sdk::AtomicRequest &request) {
  if (request.flags & FI_REMOTE_CQ_DATA) return -FI_EOPNOTSUPP;  // the packets have no room for it
  return launch(request, [&](TxOp &op) {
    op.kind = TxOp::Kind::kAtomic;
    op.atomic = request.kind;
    op.datatype = uint8_t(request.datatype);
    op.op = uint8_t(request.op);
    const size_t element = sdk::datatype_size(request.datatype);
    op.vector_count = uint8_t(request.rma_count);
    for (size_t i = 0; i < request.rma_count; ++i)
      op.vectors[i] = {request.rma[i].addr, request.rma[i].count * element, request.rma[i].key};
    const size_t bytes = size_t(request.elements) * element;  // with compares: kMaxAtomicSize
    uint8_t values[kMaxAtomicSize];
    size_t length = 0;
    const auto take = [&](const fi_ioc *ioc, size_t count) {
      if (domain().hmem() == nullptr) {
        length += sdk::ioc_gather(values + length, bytes, ioc, count, element);
        return true;
      }
      iovec iov[sdk::kIovLimit];
      for (size_t i = 0; i < count; ++i) iov[i] = {ioc[i].addr, ioc[i].count * element};
      const bool good = sdk::hmem_gather(domain().hmem(), values + length, iov, count, 0, bytes);
      length += bytes;
      return good;
    };
    if (request.op != FI_ATOMIC_READ && !take(request.operands, request.operand_count))
      return -FI_EFAULT;
    if (request.kind == sdk::AtomicKind::kCompare && !take(request.compares, request.compare_count))
      return -FI_EFAULT;
    op.length = length;
    op.iov[0] = {values, length};
    op.count = 1;
    op.result_count = uint8_t(request.result_count);
    std::copy_n(request.results, request.result_count, op.results);
    return core_->own_data(op) ? 0 : -FI_EFAULT;
  });
}

// ---- events from the core ----

void Endpoint::on_done(TxOp &op, int err) {
  uint64_t length = op.length;
  if (op.kind == TxOp::Kind::kAtomic) {
    length = 0;
    for (size_t i = 0; i < op.vector_count; ++i) length += op.vectors[i].length;
  }
  report(op, length, err);
}

// Counters that are bound to the regions themselves (fi_mr_bind).
void Endpoint::count_regions(uint64_t access, std::span<const RmaVector> where) {
  for (const RmaVector &vector : where) {
    iovec ignored[sdk::kIovLimit];
    const sdk::MrTable::Access found =
        domain().regions().resolve(vector.key, vector.address, vector.length, access, ignored,
                                   std::size(ignored), {.endpoint = number()});
    if (found.mr != nullptr) found.mr->count_remote(access, vector.length);
  }
}

uint16_t Endpoint::persist(std::span<const RmaVector> where) {
  sdk::MrTable &regions = domain().regions();
  if (!regions.has_persistent()) return 0;
  for (const RmaVector &v : where)
    if (!regions.persist(v.key, v.address, v.length, {.endpoint = number()})) return FI_EIO;
  return 0;
}

void Endpoint::on_remote_write(uint32_t source, uint64_t length, bool has_data, uint64_t data,
                               std::span<const RmaVector> where) {
  receiver().count_remote(FI_REMOTE_WRITE, length);
  count_regions(FI_REMOTE_WRITE, where);
  if (has_data) report_remote_write(length, data, source);
}

void Endpoint::on_remote_read(uint64_t length, std::span<const RmaVector> where) {
  receiver().count_remote(FI_REMOTE_READ, length);
  count_regions(FI_REMOTE_READ, where);
}

void Endpoint::on_remote_atomic(uint64_t access, uint64_t length,
                                std::span<const RmaVector> where) {
  receiver().count_remote(sdk::counted_as(access), length);
  for (uint64_t one : {FI_REMOTE_WRITE, FI_REMOTE_READ})
    if ((access & one) != 0) count_regions(one, where);
}

}  // namespace weft::rxd
