// SPDX-License-Identifier: BSD-2-Clause
// Remote accesses: checks and executes those of the peer, and takes the results of our atomics.
#include <rdma/fi_errno.h>

#include <algorithm>

#include "plugins/rxd/protocol/device_copies.h"
#include "plugins/rxd/protocol/weft.h"

namespace weft::rxd {
namespace {

uint64_t total_of(const RmaVector *vectors, size_t count) {
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i)
    if (__builtin_add_overflow(total, vectors[i].length, &total)) return UINT64_MAX;
  return total;
}

}  // namespace

bool WeftConversation::take_result(const wire::ResultFrame &f, std::span<const uint8_t> payload) {
  TxOp *op = find(f.id);
  if (op == nullptr) {
    if (int32_t(f.id - next_id_) >= 0) return fail("an answer to an operation that was never sent");
    return true;
  }
  if (op->kind != TxOp::Kind::kAtomic || op->answered) return fail("an answer of the wrong kind");
  if (f.status == 0) {
    const uint64_t length = total_of(op->vectors, op->vector_count);
    if (payload.size() != length) return fail("the result of an atomic with the wrong length");
    if (!core_.give_results(*op, payload)) op->status = FI_EIO;
  }
  op->answered = true;
  if (op->status == 0) op->status = f.status;
  settle(*op);
  return true;
}

bool WeftConversation::take_read(uint32_t id, const wire::VectorView &view) {
  if (!is_new(id)) return false;
  RmaVector vectors[wire::kVectorLimit];
  const size_t count = view.copy(vectors);
  const uint64_t length = total_of(vectors, count);
  if (length == 0) return owe(id, 0);
  iovec iov[kMaxPieces];
  const ssize_t found = length == UINT64_MAX ? -FI_EACCES
                                             : core_.resolve({vectors, count}, FI_REMOTE_READ, 0,
                                                             length, iov, kMaxPieces);
  if (found < 0) return owe(id, uint16_t(-found));
  Answer *a = new_answer(Answer::Kind::kRead, id);
  if (a == nullptr) return false;
  a->count = uint8_t(count);
  a->length = length;
  std::copy_n(vectors, count, a->vectors);
  if (core_.copies() != nullptr && length > DeviceCopies::kShort &&
      core_.copies()->finds(iov, size_t(found)))
    a->ahead = core_.copies()->ahead_of(*a);
  core_.upper().on_remote_read(length, {a->vectors, count});
  return true;
}

bool WeftConversation::take_write(const wire::WriteFrame &f, const wire::VectorView &view,
                                  std::span<const uint8_t> payload) {
  if (!is_new(f.id)) return false;
  RmaVector vectors[wire::kVectorLimit];
  const size_t count = view.copy(vectors);
  const uint64_t length = total_of(vectors, count);
  uint16_t status = FI_EINVAL;
  if (length == f.total) {
    // All the memory must be valid before any byte is written.
    iovec iov[kMaxPieces];
    const ssize_t found =
        core_.resolve({vectors, count}, FI_REMOTE_WRITE, 0, length, iov, kMaxPieces);
    status = found < 0 ? uint16_t(-found) : uint16_t(0);
    // A long one to memory of a device is collected first.
    if (found >= 0 && !payload.empty() && (core_.copies() == nullptr || payload.size() == length) &&
        !sdk::hmem_scatter(core_.hmem(), iov, size_t(found), 0, payload.data(), payload.size()))
      status = FI_EIO;
  }
  if (status != 0) return owe(f.id, status);
  if (payload.size() == length) {
    status = core_.upper().persist({vectors, count});
    if (status != 0) return owe(f.id, status);
    core_.upper().on_remote_write(core_.source_of(peer_), length, f.has_data, f.data,
                                  {vectors, count});
    return owe(f.id, 0);
  }
  Remote *r = pools_.remotes.take();
  if (r == nullptr) {
    core_.upper().warn_of_peer("no memory for a write");
    core_.lose(peer_, FI_ENOMEM, true);
    return false;
  }
  r->id = f.id;
  r->count = uint8_t(count);
  r->has_data = f.has_data;
  r->data = f.data;
  r->length = length;
  r->arrived = payload.size();
  std::copy_n(vectors, count, r->vectors);
  r->next = remotes_;
  remotes_ = r;
  ++owed_;
  if (core_.copies() == nullptr) return true;
  r->landing = core_.copies()->landing_of(*r);
  if (payload.empty()) return true;
  status = r->landing != nullptr ? core_.copies()->put(*r->landing, 0, payload)
                                 : core_.write_to({r->vectors, r->count}, 0, payload);
  return status == 0 || finish(*r, status);
}

bool WeftConversation::finish(Remote &r, uint16_t status) {
  if (r.landing != nullptr) {
    if (status == 0 && waits_for_copies(*r.landing)) return true;
    const uint16_t landed = end_landing(r.landing);
    if (status == 0) status = landed;
  }
  Remote **at = &remotes_;
  while (*at != &r) at = &(*at)->next;
  *at = r.next;
  --owed_;
  const uint32_t id = r.id;
  if (status == 0) status = core_.upper().persist({r.vectors, r.count});
  if (status == 0)
    core_.upper().on_remote_write(core_.source_of(peer_), r.length, r.has_data, r.data,
                                  {r.vectors, r.count});
  pools_.remotes.give(&r);
  return owe(id, status);
}

bool WeftConversation::take_atomic(const wire::AtomicFrame &f, const wire::VectorView &view,
                                   std::span<const uint8_t> payload) {
  if (!is_new(f.id)) return false;
  const auto kind = sdk::AtomicKind(f.kind);
  const size_t element = sdk::datatype_size(f.datatype);
  RmaVector vectors[wire::kVectorLimit];
  const size_t count = view.copy(vectors);
  for (size_t i = 0; i < count; ++i)
    if (__builtin_mul_overflow(vectors[i].length, element, &vectors[i].length))
      vectors[i].length = UINT64_MAX;
  const size_t half = kind == sdk::AtomicKind::kCompare ? payload.size() / 2 : payload.size();
  Answer::Bytes *result = nullptr;
  if (kind != sdk::AtomicKind::kWrite && (result = pools_.results.take()) == nullptr)
    return owe(f.id, FI_ENOMEM);
  Answer *a = new_answer(result != nullptr ? Answer::Kind::kResult : Answer::Kind::kDone, f.id);
  if (a == nullptr) {
    if (result != nullptr) pools_.results.give(result);
    return false;
  }
  a->result = result;
  size_t size = 0;
  a->status = core_.execute(
      kind, f.operation, f.datatype, {vectors, count}, payload.first(half), payload.subspan(half),
      result != nullptr ? std::span<uint8_t>(result->bytes, result_room()) : std::span<uint8_t>(),
      size);
  a->length = size;
  return true;
}

}  // namespace weft::rxd
