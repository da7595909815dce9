// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/protocol/atomics.h"

#include <rdma/fi_atomic.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/transfers/atomic.h>

#include <algorithm>
#include <cstring>

#include "plugins/rxm/protocol/operation_table.h"

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

bool Atomics::prepare(TxOp &op, const sdk::AtomicRequest &request, size_t element) const {
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

int Atomics::take_result(const TxOp &op, const Packet &p) const {
  if (p.status != 0) return p.status < 0 && p.status != INT32_MIN ? -p.status : FI_EIO;
  const bool fetches = op.header.op != uint8_t(PacketOp::kAtomic);
  if (p.payload.size() != (fetches ? op.length : 0)) return kWrongLength;
  const Elements results{op.results, op.result_count, element_size(op.header.atomic.datatype)};
  if (fetches && !results.scatter(settings_.hmem, p.payload.data(), p.payload.size()))
    return FI_EIO;
  return 0;
}

// ---- those of peers ----

// 0, or why the atomic cannot be executed: -FI_E....
int32_t Atomics::resolve(const Packet &p, sdk::AtomicKind kind, Memory &memory) {
  if (!sdk::atomic_valid(kind, p.operation, p.datatype)) return -FI_EOPNOTSUPP;
  const bool fetches = kind != sdk::AtomicKind::kWrite;
  if (fetches && p.size + kAtomicStatusSize > settings_.eager_limit) return -FI_EMSGSIZE;
  const uint64_t access = sdk::atomic_access(kind, p.operation);
  for (size_t i = 0; i < p.count; ++i) {
    RmaVector &where = memory.where[i];
    where = p.vectors[i];
    where.length *= element_size(p.datatype);
    const ssize_t n = carrier_.resolve(where, access, memory.iov[i], kMaxVectors);
    if (n < 0) return -FI_EACCES;
    memory.counts[i] = size_t(n);
  }
  return 0;
}

// 0 or -FI_EIO: a device has failed.
int32_t Atomics::apply(const Packet &p, sdk::AtomicKind kind, const Memory &memory,
                       std::vector<uint8_t> &results) {
  const bool fetches = kind != sdk::AtomicKind::kWrite;
  if (fetches) results.resize(p.size);
  int32_t status = 0;
  size_t at = 0;
  for (size_t i = 0; i < p.count; ++i) {
    const uint8_t *operand = p.payload.empty() ? nullptr : p.payload.data() + at;
    const uint8_t *compare = p.compare.empty() ? nullptr : p.compare.data() + at;
    const size_t length = size_t(memory.where[i].length);
    if (!sdk::hmem_atomic(settings_.hmem, kind, p.operation, p.datatype, memory.iov[i],
                          memory.counts[i], length, operand, compare,
                          fetches ? results.data() + at : nullptr))
      status = -FI_EIO;
    at += length;
  }
  const uint64_t access = sdk::atomic_access(kind, p.operation);
  const std::span where(memory.where, p.count);
  if (access & FI_REMOTE_WRITE && !upper_.persist(where)) {
    status = -FI_EIO;
    results.clear();
  }
  upper_.on_remote_atomic(access, where);
  return status;
}

void Atomics::execute(const Packet &p, Control &control) {
  const sdk::AtomicKind kind = p.op == PacketOp::kAtomic  ? sdk::AtomicKind::kWrite
                               : p.op == PacketOp::kFetch ? sdk::AtomicKind::kFetch
                                                          : sdk::AtomicKind::kCompare;
  control.header.op = uint8_t(p.op);
  control.header.atomic.datatype = p.datatype;
  control.header.atomic.operation = p.operation;
  // All vectors are resolved before any is touched.
  Memory memory;
  int32_t status = resolve(p, kind, memory);
  if (status == 0) status = apply(p, kind, memory, control.more);
  encode_status(status, uint32_t(control.more.size()), control.status);
  control.length += kAtomicStatusSize;
  control.header.size = kAtomicStatusSize + control.more.size();
}

}  // namespace weft::rxm
