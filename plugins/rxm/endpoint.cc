// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/endpoint.h"

#include <sys/resource.h>
#include <unistd.h>
#include <weft/sdk/transfers/levels.h>

#include <algorithm>

namespace weft::rxm {
namespace {

sdk::EndpointLimits limits_for(const Domain &domain, const Options &options) {
  const fi_info &inner = domain.inner_info();
  return {.tx_size = options.tx_size,
          .rx_size = options.rx_size,
          .inject_size = inject_size(inner),
          .max_inject_size = kMaxInjectSize,
          .max_msg_size = std::min<uint64_t>(inner.ep_attr->max_msg_size, INT64_MAX),
          .atomic_size = domain.atomic_limits().write,
          .early_receives = true,
          .may_buffer = true};
}

// By default half of the descriptors of the process. The other half is for peers in the address
// vector, and for other files of the process.
size_t max_strangers(const Options &options) {
  if (options.max_unnamed_peers != 0) return options.max_unnamed_peers;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return std::max<size_t>(limit.rlim_cur / 2, 1);
}

// For sends, reads, writes and atomics: the earlier operations that each stays behind without
// waiting. Sends and atomics are packets, which arrive in order and behind earlier writes. The
// inner provider keeps reads behind reads and writes, and writes behind writes.
using sdk::OrderKind;
constexpr sdk::OrderRules kNativeOrder = {
    sdk::kinds(OrderKind::kSend, OrderKind::kWrite, OrderKind::kAtomic),
    sdk::kinds(OrderKind::kRead, OrderKind::kWrite), sdk::kinds(OrderKind::kWrite),
    sdk::kinds(OrderKind::kAtomic, OrderKind::kWrite)};

// After an injected operation the caller may reuse its memory when the call returns. If the
// operation ends within the call, the inner provider's FI_INJECT is enough. If it is reported, or
// has a higher completion level, it outlives the call, and its data must be copied.
void take_flags(TxOp &op, uint64_t flags) {
  op.flags = flags;
  op.inject = flags & FI_INJECT;
}
bool outlives_call(const TxOp &op) {
  return op.inject && (op.report || op.flags & sdk::kRemoteLevels);
}

}  // namespace

Endpoint::Endpoint(Domain &domain, const fi_info &info, const sdk::Address &local, void *context)
    : LayerEndpoint(domain, info, limits_for(domain, domain.fabric().layer().options()),
                    kNativeOrder, local, context),
      ExitDuty(domain.engine(), domain.fabric().layer().options().close_linger_ns),
      inject_room_(inject_room(domain.inner_info())) {
  lower_.set_class(sdk::endpoint_class(info, domain.fabric().api_version()));
}

Result<Endpoint *> Endpoint::open(Domain &domain, const fi_info &info, void *context) {
  WEFT_TRY(const sdk::Address local, sdk::local_address(info, domain.inner_info()));
  return start(new Endpoint(domain, info, local, context));
}

Result<void> Endpoint::begin() {
  WEFT_CHECK(lower_.open(local_, receiver().remote_write, receiver().remote_read));
  local_ = lower_.address();
  part_.reset();  // of a core that could not be enabled
  core_.emplace(lower_, *this,
                Settings{.process = uint32_t(getpid()),
                         .eager_limit = uint32_t(options().buffer_size),
                         .sar_limit = options().sar_limit,
                         .rendezvous_write = options().rendezvous_write,
                         .tx_size = limits().tx_size,
                         .inject_limit = lower_.inject_limit(),
                         .iov_limit = lower_.iov_limit(),
                         .receive_count = lower_.receive_count(),
                         .credits = !lower_.shares_receives(),
                         .asker_first = domain().inner_info().ep_attr->protocol == FI_PROTO_IWARP,
                         .max_connections = options().max_connections,
                         .unexpected_limit = options().unexpected_limit,
                         .connect_timeout_ns = options().connect_timeout_ns,
                         .max_strangers = max_strangers(options()),
                         .descriptors = domain().inner_modes().local_memory,
                         .hmem = domain().hmem(),
                         .place = context_place(),
                         .last_place = last_place(),
                         .only_transmits = only_transmits(),
                         .bare = lower_.carries_bare()});
  core_->set_own_address(local_);
  lower_.serve(*core_, receiver());
  part_.emplace(domain().fabric().stats(), core_->counters());
  return {};
}

int Endpoint::bind(struct fid *fid, uint64_t flags) {
  const int rc = bind_object(fid, flags);
  if (rc != 0) return rc;
  sdk::Guard guard(lock());
  if (!enabled()) return 0;
  const auto counted = lower_.count_remote(receiver().remote_write, receiver().remote_read);
  return counted ? 0 : -counted.error().code;
}

// Gives operations that wait for a connection a chance to be sent (close_linger_ms), and injected
// packets that the inner provider reads where they are.
void Endpoint::end() {
  linger([this] { return !core_->has_queued() && !lower_.has_injected(); });
  settle();
  core_->abandon();
}

// ---- operations ----

bool Endpoint::must_own(const TxOp &op) const {
  return outlives_call(op) || (op.inject && op.length > inject_room_);
}

size_t Endpoint::most_first() const {
  return options().rendezvous_write ? 0 : SIZE_MAX;
}

// The application's regions are the layer's. Calls of the inner provider need its descriptors.
template <class Request>
void Endpoint::take_descriptors(TxOp &op, const Request &request) {
  if (!domain().inner_modes().local_memory) return;
  const bool given = domain().shared().keeps_descriptors && request.desc != nullptr;
  for (size_t i = 0; i < request.count; ++i)
    op.desc[i] = given ? domain().inner_descriptor(request.desc[i]) : nullptr;
}

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  return launch(request, [&](TxOp &op) {
    take_flags(op, request.flags);
    take_descriptors(op, request);
    const bool delivered = request.flags & FI_DELIVERY_COMPLETE || keeper_.awaits_messages();
    core_->prepare_message(op, request.tagged, request.flags & FI_REMOTE_CQ_DATA,
                           request.flags & FI_MATCH_COMPLETE ? Tell::kMatched
                           : delivered                       ? Tell::kDelivered
                                                             : Tell::kNothing);
    return must_own(op) && !core_->own_data(op) ? -FI_EFAULT : 0;
  });
}

ssize_t Endpoint::start(const sdk::RmaRequest &request) {
  // The inner provider carries the data of a write (cq_data_size). iWARP has none.
  if (request.flags & FI_REMOTE_CQ_DATA && domain().inner_info().domain_attr->cq_data_size == 0)
    return -FI_EINVAL;
  return launch(request, [&](TxOp &op) {
    op.form = request.write ? TxOp::Form::kWrite : TxOp::Form::kRead;
    take_flags(op, request.flags);
    take_descriptors(op, request);
    return must_own(op) && !core_->own_data(op) ? -FI_EFAULT : 0;
  });
}

ssize_t Endpoint::start(const sdk::AtomicRequest &request) {
  if (request.flags & FI_REMOTE_CQ_DATA) return -FI_EOPNOTSUPP;  // the packets have no field for it
  return launch(request, [&](TxOp &op) {
    op.flags = request.flags;
    const size_t element = sdk::datatype_size(request.datatype);
    return core_->prepare_atomic(op, request, element) ? 0 : -FI_EFAULT;
  });
}

// ---- remote accesses of peers ----

void Endpoint::on_remote_atomic(uint64_t access, std::span<const RmaVector> where) {
  uint64_t bytes = 0;
  for (const RmaVector &vector : where) bytes += vector.length;
  receiver().count_remote(sdk::counted_as(access), bytes);
  for (uint64_t one : {FI_REMOTE_WRITE, FI_REMOTE_READ}) {
    if ((access & one) == 0) continue;
    for (const RmaVector &vector : where) domain().count_remote(one, vector.key, vector.length);
  }
}

bool Endpoint::persist(std::span<const RmaVector> where) {
  return std::ranges::all_of(
      where, [this](const RmaVector &v) { return domain().persist(v.key, v.address, v.length); });
}

void Endpoint::on_remote_write(Connection *from, uint64_t length, uint64_t data) {
  report_remote_write(length, data,
                      from != nullptr ? core_->source_of(*from) : sdk::Matcher::kUnknownSource);
}

// It has no context any more: as with injected ones, the endpoint's is told.
void Endpoint::on_lost(uint64_t flags, int err) {
  tx().finish({.context = c()->fid.context, .flags = flags, .err = err});
}

}  // namespace weft::rxm
