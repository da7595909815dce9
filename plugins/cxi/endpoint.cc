// SPDX-License-Identifier: BSD-2-Clause
// What an application asks an endpoint for, as commands of the NIC. endpoint_life.cc: the rest.
#include "plugins/cxi/endpoint.h"

#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/cxi/amo.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kLookFlags = FI_PEEK | FI_CLAIM | FI_DISCARD;
constexpr uint64_t kExtensions =
    FI_CXI_PCIE_AMO | FI_CXI_UNRELIABLE | FI_CXI_HRP | FI_CXI_WEAK_FENCE;
constexpr uint64_t kFences = FI_FENCE | FI_CXI_WEAK_FENCE;
constexpr uint64_t kVisible = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE | FI_COMMIT_COMPLETE;

}  // namespace

ssize_t CxiEndpoint::find_peer(fi_addr_t address, Peer &peer) {
  const uint32_t index = av()->index_of(address);
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  peer = peer_of(*av()->address(index));
  if (!domain_.has_vector_keys())
    peer = peer.in(ports_.profile.vni);
  else if (!ports_.is_in(peer.vni))
    return refuse_vni(peer.vni);
  return 0;
}

// The key of the address was not in the vector when the endpoint was enabled.
ssize_t CxiEndpoint::refuse_vni(Vni vni) {
  WEFT_WARN(instance(), FI_LOG_EP_DATA,
            "an address has a key of VNI %u, which this endpoint is not in: it has the keys that "
            "its address vector had at fi_enable; insert keys before it",
            vni);
  return -FI_EINVAL;
}

Transmit::Op *CxiEndpoint::prepare(void *context, uint64_t flags, bool report, uint64_t completion,
                                   const Peer &peer, Index index, const Path &path) {
  if (tx().is_full()) return nullptr;
  Transmit::Op *op = transmit_.take();
  if (op == nullptr && !DeferredWork::is_queueing()) [[unlikely]] {
    make_progress();  // an application that only injects makes none
    op = transmit_.take();
  }
  if (op == nullptr) return nullptr;
  op->context = context;
  op->flags = completion;
  op->report = report;
  op->profile = {peer.vni, path.traffic,
                 flags & FI_CXI_HRP ? ProfileType::kHighRatePut : ProfileType::kDefault};
  op->transfer.to = {peer.nid, peer.pid, index};
  op->transfer.flush = (flags & kVisible) != 0;
  return op;
}

// Where an operation has its bytes: in the command, or in the application's buffer.
ssize_t CxiEndpoint::take_bytes(Transmit::Op &op, const Buffer &buffer, bool inject,
                                bool favour_inline) {
  Transfer &transfer = op.transfer;
  op.length = buffer.length;
  op.is_inject = inject;
  transfer.length = uint32_t(buffer.length);
  const void *const bytes = buffer.count != 0 ? buffer.iov[0].iov_base : nullptr;
  const bool is_short = favour_inline && buffer.length <= kMaxInlineUnrestricted;
  if (ports_.devices != nullptr && buffer.length != 0) {
    const void *const desc = buffer.desc != nullptr ? buffer.desc[0] : nullptr;
    // What waits for a counter takes its bytes when it leaves.
    if (const sdk::HmemPlace place = ports_.devices->find(bytes, buffer.length, desc))
      return take_device_bytes(op, buffer, place,
                               inject || (is_short && !DeferredWork::is_queueing()));
  }
  if (inject) {
    if (buffer.length != 0) std::memcpy(op.bytes, bytes, buffer.length);
    transfer.inline_bytes = op.bytes;
  } else if (is_short && buffer.length != 0) {
    transfer.inline_bytes = bytes;
  } else {
    transfer.memory = ports_.all;
    transfer.local = reinterpret_cast<uintptr_t>(bytes);
  }
  return 0;
}

ssize_t CxiEndpoint::take_device_bytes(Transmit::Op &op, const Buffer &buffer,
                                       const sdk::HmemPlace &place, bool in_command) {
  Transfer &transfer = op.transfer;
  const void *const bytes = buffer.iov[0].iov_base;
  if (buffer.length > place.bytes) return -FI_EFAULT;  // the allocation ends before
  if (in_command) {
    transfer.inline_bytes = op.bytes;
    return sdk::hmem_copy(op.bytes, nullptr, bytes, &place, buffer.length) ? 0 : -FI_EFAULT;
  }
  transfer.local = reinterpret_cast<uintptr_t>(bytes);
  auto window = ports_.lni->map_device(transfer.local, buffer.length, buffer.access, place);
  if (!window) return -window.error().code;
  op.window = transfer.memory = *window;
  return 0;
}

CxiEndpoint::Element::Element(const fi_ioc *ioc, size_t count, void *const *descs) {
  for (size_t i = 0; i < count; ++i) {
    if (ioc[i].count == 0) continue;
    address = ioc[i].addr;
    desc = descs != nullptr ? descs[i] : nullptr;
    return;
  }
}

ssize_t CxiEndpoint::take_value(void *out, const Element &element, size_t size) const {
  sdk::HmemPlace place;
  if (ports_.devices != nullptr) place = ports_.devices->find(element.address, size, element.desc);
  return sdk::hmem_copy(out, nullptr, element.address, place.or_null(), size) ? 0 : -FI_EFAULT;
}

// Where a fetched value goes.
ssize_t CxiEndpoint::place_result(Transmit::Op &op, const Element &element, size_t size) {
  op.transfer.result_memory = ports_.all;
  op.transfer.result = reinterpret_cast<uintptr_t>(element.address);
  if (ports_.devices == nullptr) return 0;
  const sdk::HmemPlace place = ports_.devices->find(element.address, size, element.desc);
  if (!place) return 0;
  auto window = ports_.lni->map_device(op.transfer.result, size, Lni::kWrite, place);
  if (!window) return -window.error().code;
  op.window = op.transfer.result_memory = *window;
  return 0;
}

// A command that waits for a counter takes its bytes from memory.
ssize_t CxiEndpoint::defer(Transmit::Op &op, uint64_t flags) {
  Transfer &transfer = op.transfer;
  if (const void *const bytes = std::exchange(transfer.inline_bytes, nullptr)) {
    transfer.memory = ports_.all;
    transfer.local = reinterpret_cast<uintptr_t>(bytes);
  }
  op.peer = {transfer.to.nid, transfer.to.pid, op.profile.vni};
  if (DeferredWork::is_queueing_work()) op.report = (flags & FI_COMPLETION) != 0;
  const int rc = domain_.deferred().post(transmit_, op);
  if (rc != 0) transmit_.give(op);
  return rc;
}

ssize_t CxiEndpoint::send_off(Transmit::Op &op, uint64_t flags) {
  if (DeferredWork::is_queueing()) return defer(op, flags);
  const bool report = op.report;
  transmit_.count_in_nic(op, transmit_.counter_of(op));
  if (const ssize_t rc = transmit_.post(op, (flags & kFences) != 0); rc != 0) {
    transmit_.give(op);
    return rc;
  }
  if (flags & FI_MORE) {
    // There may be no later call: then it leaves at the next progress.
    holds_back_ = true;
    domain_.on_held_back();
    return 0;
  }
  holds_back_ = false;
  transmit_.flush();
  domain_.on_sent(report);
  return 0;
}

// ---- messages ----

ssize_t CxiEndpoint::start(const sdk::RecvRequest &request, const Path &) {
  if (request.count > 1) return -FI_EINVAL;  // iov_limit
  if (request.tagged && request.tag >> protocol_.tag_bits != 0) return -FI_EINVAL;
  if (request.flags & kLookFlags) {
    domain_.poll_device();
    if (!inbox_.collect()) return -FI_EAGAIN;
  } else if (!inbox_.make_way()) {
    return -FI_EAGAIN;
  }
  return receiver().post(request);
}

ssize_t CxiEndpoint::start(const sdk::SendRequest &request, const Path &path) {
  if (request.flags & kExtensions) return -FI_EBADFLAGS;
  if (request.count > 1 || (request.tagged && request.tag >> protocol_.tag_bits != 0))
    return -FI_EINVAL;
  Peer peer;
  if (const ssize_t rc = find_peer(request.dest, peer); rc != 0) return rc;
  const uint64_t kind = FI_SEND | (request.tagged ? FI_TAGGED : FI_MSG);
  Transmit::Op *const op =
      prepare(request.context, request.flags, request.report, kind, peer, protocol_.index, path);
  if (op == nullptr) return -FI_EAGAIN;
  op->is_message = true;
  const bool is_long = !protocol_.is_rnr && request.length > settings().max_eager();
  const unsigned access = is_long ? Lni::kRead | Lni::kRemote : Lni::kRead;
  if (const ssize_t rc =
          take_bytes(*op, {request.iov, request.count, request.desc, request.length, access},
                     (request.flags & FI_INJECT) != 0, !settings().disable_non_inject_msg_idc);
      rc != 0) {
    transmit_.give(*op);
    return rc;
  }
  MessageBits bits{protocol_.sent(request.tagged, request.tag, peer.vni)};
  if (request.flags & FI_REMOTE_CQ_DATA) bits.bits |= protocol_.has_data;
  Transfer &transfer = op->transfer;
  bool numbered = true;
  if (protocol_.is_rnr) {
    // It goes as it is, and finds its receive or comes back.
  } else if (is_long) {
    numbered = transmit_.number_long(*op, request.tagged);
    transfer.op = Op::kRendezvousPut;
    transfer.eager_length = uint32_t(settings().rdzv_eager_size);
    transfer.rendezvous_id = uint8_t(op->number);
    transfer.remote_offset = transfer.local;
    bits = bits.with_rendezvous(op->number >> 8 & (kRendezvousHigh - 1), op->window.lac,
                                settings().alt_read ? kAltRead : 0);
  } else if (request.flags & FI_MATCH_COMPLETE) {
    numbered = transmit_.number_transaction(*op);
    bits = bits.with_transaction(op->number & (kTransactions - 1));
  }
  if (!numbered) {
    transmit_.give(*op);
    return -FI_EAGAIN;
  }
  transfer.match_bits = bits.bits;
  transfer.header_data = request.data;
  return send_off(*op, request.flags);
}

// ---- remote memory ----

ssize_t CxiEndpoint::start(const sdk::RmaRequest &request, const Path &path) {
  if (request.count > 1 || request.rma_count != 1) return -FI_EINVAL;
  Peer peer;
  if (const ssize_t rc = find_peer(request.dest, peer); rc != 0) return rc;
  RegionAt at = region_at(request.rma[0].key, request.write, domain_.regions().optimized);
  const bool tells = (request.flags & FI_REMOTE_CQ_DATA) != 0;
  // High-rate puts are short packets; unreliable ones are for atomics (fi_cxi.7).
  if (request.flags & FI_CXI_PCIE_AMO || (request.flags & FI_CXI_HRP && (!request.write || tells)))
    return -FI_EINVAL;
  if (request.flags & FI_CXI_HRP && !at.is_optimized) return -FI_EINVAL;
  if (tells)
    at = {kWriteIndex, (request.rma[0].key & ~kProviderKey) | kSolicited, false, at.offset};
  const uint64_t kind = FI_RMA | (request.write ? FI_WRITE : FI_READ);
  Transmit::Op *const op =
      prepare(request.context, request.flags, request.report, kind, peer, at.index, path);
  if (op == nullptr) return -FI_EAGAIN;
  Transfer &transfer = op->transfer;
  const bool inject = request.write && (request.flags & FI_INJECT) != 0;
  if (const ssize_t rc = take_bytes(*op,
                                    {request.iov, request.count, request.desc, request.length,
                                     request.write ? Lni::kRead : Lni::kWrite},
                                    inject, request.write);
      rc != 0) {
    transmit_.give(*op);
    return rc;
  }
  transfer.op = request.write ? Op::kPut : Op::kGet;
  transfer.match_bits = at.match_bits;
  transfer.remote_offset = at.offset + request.rma[0].addr;
  transfer.header_data = request.data;
  // Short packets, without order among each other.
  transfer.restricted = at.is_optimized && (!request.write || (path.order & FI_ORDER_RMA_WAW) == 0);
  return send_off(*op, request.flags);
}

ssize_t CxiEndpoint::take_operands(Transmit::Op &op, const sdk::AtomicRequest &request,
                                   const Amo &amo) {
  ssize_t rc = 0;
  if (!amo.has_no_operand)
    rc = take_value(op.bytes, {request.operands, request.operand_count, request.operand_desc},
                    amo.size);
  if (rc == 0 && request.kind == sdk::AtomicKind::kCompare)
    rc = take_value(op.transfer.operand2,
                    {request.compares, request.compare_count, request.compare_desc}, amo.size);
  else if (amo.is_write)
    std::memcpy(op.transfer.operand2, op.bytes, amo.size);
  if (rc == 0 && request.kind != sdk::AtomicKind::kWrite)
    rc = place_result(op, {request.results, request.result_count, request.result_desc}, amo.size);
  return rc;
}

ssize_t CxiEndpoint::start(const sdk::AtomicRequest &request, const Path &path) {
  const bool pcie = (request.flags & FI_CXI_PCIE_AMO) != 0;
  const auto amo = domain_.atomic_of(request.kind, request.op, request.datatype, pcie);
  if (!amo) return -FI_EOPNOTSUPP;
  if (request.elements != 1) return -FI_EMSGSIZE;
  const fi_rma_ioc *target = request.rma;
  while (target->count == 0) ++target;
  Peer peer;
  if (const ssize_t rc = find_peer(request.dest, peer); rc != 0) return rc;
  const bool fetches = request.kind != sdk::AtomicKind::kWrite;
  const RegionAt at = region_at(target->key, true, domain_.regions().optimized);
  // Without retries: only where nothing comes back, and to an optimized region.
  if (request.flags & FI_CXI_HRP && !(request.flags & FI_CXI_UNRELIABLE)) return -FI_EINVAL;
  if (request.flags & FI_CXI_UNRELIABLE && (fetches || !at.is_optimized)) return -FI_EINVAL;
  Transmit::Op *const op =
      prepare(request.context, request.flags, request.report,
              FI_ATOMIC | (fetches ? FI_READ : FI_WRITE), peer, at.index, path);
  if (op == nullptr) return -FI_EAGAIN;
  Transfer &transfer = op->transfer;
  transfer.op = fetches ? Op::kFetchAtomic : Op::kAtomic;
  transfer.amo_op = amo->op;
  transfer.amo_type = amo->type;
  transfer.pcie = pcie;
  transfer.cswap = amo->cswap;
  transfer.match_bits = at.match_bits;
  transfer.remote_offset = at.offset + target->addr;
  transfer.length = uint32_t(amo->size);
  op->length = amo->size;
  std::memset(op->bytes, 0, 16);
  transfer.inline_bytes = op->bytes;
  if (const ssize_t rc = take_operands(*op, request, *amo); rc != 0) {
    transmit_.give(*op);
    return rc;
  }
  op->is_inject = (request.flags & FI_INJECT) != 0;
  transfer.restricted =
      at.is_optimized &&
      (path.order & (FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR)) == 0;
  return send_off(*op, request.flags);
}

int CxiEndpoint::atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return domain_.atomic_count(sdk::AtomicKind::kWrite, sdk::raw(op), sdk::raw(datatype), count);
}
int CxiEndpoint::fetch_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return domain_.atomic_count(sdk::AtomicKind::kFetch, sdk::raw(op), sdk::raw(datatype), count);
}
int CxiEndpoint::compare_atomicvalid(enum fi_datatype datatype, enum fi_op op, size_t *count) {
  return domain_.atomic_count(sdk::AtomicKind::kCompare, sdk::raw(op), sdk::raw(datatype), count);
}

// A peer wrote to a region, with remote CQ data.
void CxiEndpoint::on_remote_data(const Event &event) {
  report_remote_write(event.mlength, event.header_data,
                      sources_.number_of(sources_.sender_of(event.initiator, event.vni)));
}

size_t CxiEndpoint::list_unexpected(fi_cq_tagged_entry *entries, size_t count, fi_addr_t *sources,
                                    size_t &found) {
  const sdk::Guard guard(lock());
  if (!enabled()) return size_t(-FI_EOPBADSTATE);
  domain_.poll_device();
  if (!inbox_.collect()) return size_t(-FI_EAGAIN);
  if (entries == nullptr || sources == nullptr) count = 0;
  found = receiver().unexpected();
  size_t written = 0;
  receiver().visit_unexpected(sdk::Matcher::kAnySource, [&](const sdk::Unexpected &one) {
    if (written == count) return;
    const sdk::Message &message = one.message;
    entries[written] = {
        .op_context = nullptr,
        .flags = (message.tagged ? FI_TAGGED : FI_MSG) | (message.has_data ? FI_REMOTE_CQ_DATA : 0),
        .len = size_t(message.length),
        .buf = nullptr,
        .data = message.data,
        .tag = message.tag};
    sources[written++] = message.source < sdk::Matcher::kFirstUnnamed
                             ? av()->reported(message.source)
                             : FI_ADDR_NOTAVAIL;
  });
  return written;
}

}  // namespace weft::cxi
