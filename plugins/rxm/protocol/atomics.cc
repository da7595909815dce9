// SPDX-License-Identifier: BSD-2-Clause
// Atomics: those of the application, and those that peers ask us to execute.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

#include "plugins/rxm/protocol/core.h"

namespace weft::rxm {
namespace {

// Elements in memory of any kind, to the host's memory and from it. False: a device has failed.
struct Elements {
  const fi_ioc *ioc;
  size_t count, size;  // of vectors; bytes of an element
  bool gather(const sdk::Hmem *hmem, void *to, size_t bytes) const {
    if (hmem == nullptr) {
      sdk::ioc_gather(to, bytes, ioc, count, size);
      return true;
    }
    iovec iov[sdk::kIovLimit];
    return sdk::hmem_gather(hmem, to, iov, vectors(iov), 0, bytes);
  }
  bool scatter(const sdk::Hmem *hmem, const void *from, size_t bytes) const {
    if (hmem == nullptr) {
      sdk::ioc_scatter(ioc, count, size, from, bytes);
      return true;
    }
    iovec iov[sdk::kIovLimit];
    return sdk::hmem_scatter(hmem, iov, vectors(iov), 0, from, bytes);
  }

 private:
  size_t vectors(iovec *iov) const {
    for (size_t i = 0; i < count; ++i) iov[i] = {ioc[i].addr, ioc[i].count * size};
    return count;
  }
};

}  // namespace

bool Core::prepare_atomic(TxOp &op, const sdk::AtomicRequest &request, size_t element) {
  op.form = TxOp::Form::kAtomic;
  op.header = header_of(PacketType::kAtomic, 0);
  op.header.op = uint8_t(request.kind == sdk::AtomicKind::kWrite   ? PacketOp::kAtomic
                         : request.kind == sdk::AtomicKind::kFetch ? PacketOp::kFetch
                                                                   : PacketOp::kCompare);
  op.header.message = OperationTable::id_of(op);
  op.header.atomic.datatype = uint8_t(request.datatype);
  op.header.atomic.operation = uint8_t(request.op);
  op.header.atomic.vectors = uint8_t(request.rma_count);
  std::memset(op.bytes, 0, kAtomicVectorsSize);
  for (size_t i = 0; i < request.rma_count; ++i) {
    const RmaVector v{request.rma[i].addr, request.rma[i].count, request.rma[i].key};
    std::memcpy(op.bytes + i * sizeof v, &v, sizeof v);
  }
  const size_t bytes = size_t(request.elements) * element;
  const size_t operands = request.op != FI_ATOMIC_READ ? bytes : 0;
  const size_t compares = request.compare_count != 0 ? bytes : 0;
  uint8_t *out = op.bytes + kAtomicVectorsSize;
  if (operands + compares > kInlineSize - kAtomicVectorsSize) {
    op.bounce = std::make_unique_for_overwrite<uint8_t[]>(operands + compares);
    out = op.bounce.get();
  }
  if (operands != 0 && !Elements{request.operands, request.operand_count, element}.gather(
                           settings_.hmem, out, operands))
    return false;
  if (compares != 0 && !Elements{request.compares, request.compare_count, element}.gather(
                           settings_.hmem, out + operands, compares))
    return false;
  op.header.size = kAtomicVectorsSize + operands + compares;
  op.length = bytes;
  op.count = 0;
  op.result_count = uint8_t(request.result_count);
  std::copy_n(request.results, request.result_count, op.results);
  return true;
}

void Core::take_response(Connection &c, const Packet &p) {
  TxOp *op = in_flight_.awaited(c, p.message);
  if (op == nullptr || op->form != TxOp::Form::kAtomic)
    return fail_peer(c, "an answer to an atomic that does not exist");
  if (p.status != 0) return in_flight_.end(*op, p.status < 0 ? -p.status : FI_EIO);
  const bool fetches = op->header.op != uint8_t(PacketOp::kAtomic);
  if (p.payload.size() != (fetches ? op->length : 0))
    return fail_peer(c, "an atomic's result of another length");
  const Elements results{op->results, op->result_count, element_size(op->header.atomic.datatype)};
  if (fetches && !results.scatter(settings_.hmem, p.payload.data(), p.payload.size()))
    return in_flight_.end(*op, FI_EIO);
  in_flight_.end(*op, 0);
}

void Core::take_atomic(Connection &c, const Packet &p) {
  const sdk::AtomicKind kind = p.op == PacketOp::kAtomic  ? sdk::AtomicKind::kWrite
                               : p.op == PacketOp::kFetch ? sdk::AtomicKind::kFetch
                                                          : sdk::AtomicKind::kCompare;
  const size_t element = element_size(p.datatype);
  Control *control = new_control(c, PacketType::kAtomicResponse, p.message);
  if (control == nullptr) return;
  control->header.op = uint8_t(p.op);
  control->header.atomic.datatype = p.datatype;
  control->header.atomic.operation = p.operation;
  int32_t status = 0;
  RmaVector where[kMaxVectors];
  iovec iov[kMaxVectors][kMaxVectors];
  size_t counts[kMaxVectors] = {};
  const uint64_t access = sdk::atomic_access(kind, p.operation);
  const bool fetches = kind != sdk::AtomicKind::kWrite;
  if (!sdk::atomic_valid(kind, p.operation, p.datatype)) {
    status = -FI_EOPNOTSUPP;
  } else if (fetches && p.size + kAtomicStatusSize > settings_.eager_limit) {
    status = -FI_EMSGSIZE;
  } else {
    // Resolve all vectors before executing any: an atomic is executed completely or not at all.
    for (size_t i = 0; i < p.count && status == 0; ++i) {
      where[i] = p.vectors[i];
      where[i].length *= element;
      const ssize_t n = carrier_.resolve(where[i], access, iov[i], kMaxVectors);
      if (n < 0) {
        status = -FI_EACCES;
      } else {
        counts[i] = size_t(n);
      }
    }
  }
  if (status == 0) {
    if (fetches) control->more.resize(p.size);
    size_t at = 0;
    for (size_t i = 0; i < p.count; ++i) {
      const uint8_t *operand = p.payload.empty() ? nullptr : p.payload.data() + at;
      const uint8_t *compare = p.compare.empty() ? nullptr : p.compare.data() + at;
      if (!sdk::hmem_atomic(settings_.hmem, kind, p.operation, p.datatype, iov[i], counts[i],
                            where[i].length, operand, compare,
                            fetches ? control->more.data() + at : nullptr))
        status = -FI_EIO;
      at += where[i].length;
    }
    if (access & FI_REMOTE_WRITE && !upper_.persist({where, p.count})) {
      status = -FI_EIO;
      control->more.clear();
    }
    upper_.on_remote_atomic(access, {where, p.count});
  }
  encode_status(status, uint32_t(control->more.size()), control->status);
  control->length += kAtomicStatusSize;
  control->header.size = kAtomicStatusSize + control->more.size();
  queue_control(c, *control);
}

}  // namespace weft::rxm
