// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/protocol/weft/accesses.h"

#include <rdma/fi_errno.h>

#include <algorithm>

#include "plugins/rxd/protocol/device_copies.h"

namespace weft::rxd {

bool Accesses::read(uint32_t id, const wire::VectorView &view) {
  RmaVector vectors[wire::kVectorLimit];
  const size_t count = view.copy(vectors);
  const uint64_t length = total_of(vectors, count);
  if (length == 0) return answers_.done(id, 0);
  iovec iov[kMaxPieces];
  const ssize_t found = length == UINT64_MAX ? -FI_EACCES
                                             : link_.core.resolve({vectors, count}, FI_REMOTE_READ,
                                                                  0, length, iov, kMaxPieces);
  if (found < 0) return answers_.done(id, uint16_t(-found));
  Answer *a = answers_.add(Answer::Kind::kRead, id);
  if (a == nullptr) return false;
  a->count = uint8_t(count);
  a->length = length;
  std::copy_n(vectors, count, a->vectors);
  if (link_.copies() != nullptr && length > DeviceCopies::kShort &&
      link_.copies()->finds(iov, size_t(found)))
    a->ahead = link_.copies()->ahead_of(*a);
  link_.core.upper().on_remote_read(length, {a->vectors, count});
  return true;
}

// ---- writes ----

bool Accesses::write(const wire::WriteFrame &f, const wire::VectorView &view,
                     std::span<const uint8_t> payload) {
  RmaVector vectors[wire::kVectorLimit];
  const size_t count = view.copy(vectors);
  const uint64_t length = total_of(vectors, count);
  uint16_t status = FI_EINVAL;
  if (length == f.total) {
    // All the memory must be valid before any byte is written.
    iovec iov[kMaxPieces];
    const ssize_t found =
        link_.core.resolve({vectors, count}, FI_REMOTE_WRITE, 0, length, iov, kMaxPieces);
    status = found < 0 ? uint16_t(-found) : uint16_t(0);
    // A long one to memory of a device is collected first.
    if (found >= 0 && !payload.empty() && (link_.copies() == nullptr || payload.size() == length) &&
        !sdk::hmem_scatter(link_.core.hmem(), iov, size_t(found), 0, payload.data(),
                           payload.size()))
      status = FI_EIO;
  }
  if (status != 0) return answers_.done(f.id, status);
  if (payload.size() != length) return keep(f, {vectors, count}, payload);
  return answers_.done(f.id, report({vectors, count}, length, f.has_data, f.data));
}

bool Accesses::keep(const wire::WriteFrame &f, std::span<const RmaVector> vectors,
                    std::span<const uint8_t> payload) {
  Remote *r = link_.pools.remotes.take();
  if (r == nullptr) return link_.no_memory("no memory for a write");
  r->id = f.id;
  r->count = uint8_t(vectors.size());
  r->has_data = f.has_data;
  r->data = f.data;
  r->length = f.total;
  r->arrived = payload.size();
  std::copy(vectors.begin(), vectors.end(), r->vectors);
  r->next = writes_;
  writes_ = r;
  answers_.owe();
  if (link_.copies() == nullptr) return true;
  r->landing = link_.copies()->landing_of(*r);
  if (payload.empty()) return true;
  const uint16_t status = r->landing != nullptr
                              ? link_.copies()->put(*r->landing, 0, payload)
                              : link_.core.write_to({r->vectors, r->count}, 0, payload);
  return status == 0 || finish(*r, status);
}

bool Accesses::take(Remote &r, const wire::DataFrame &f, std::span<const uint8_t> payload) {
  if (f.offset > r.length || payload.size() > r.length - f.offset)
    return link_.violated("more data than the write has");
  const uint16_t status = r.landing != nullptr
                              ? link_.copies()->put(*r.landing, f.offset, payload)
                              : link_.core.write_to({r.vectors, r.count}, f.offset, payload);
  r.arrived += payload.size();
  return (status == 0 && r.arrived < r.length) || finish(r, status);
}

bool Accesses::finish(Remote &r, uint16_t status) {
  if (r.landing != nullptr) {
    if (status == 0 && link_.waits_for_copies(*r.landing)) return true;
    const uint16_t landed = link_.landings.end(*link_.copies(), r.landing);
    if (status == 0) status = landed;
  }
  Remote **at = &writes_;
  while (*at != &r) at = &(*at)->next;
  *at = r.next;
  answers_.settle();
  const uint32_t id = r.id;
  if (status == 0) status = report({r.vectors, r.count}, r.length, r.has_data, r.data);
  link_.pools.remotes.give(&r);
  return answers_.done(id, status);
}

uint16_t Accesses::report(std::span<const RmaVector> vectors, uint64_t length, bool has_data,
                          uint64_t data) {
  Core &core = link_.core;
  const uint16_t status = core.upper().persist(vectors);
  if (status == 0)
    core.upper().on_remote_write(core.source_of(link_.peer), length, has_data, data, vectors);
  return status;
}

// ---- atomics ----

bool Accesses::atomic(const wire::AtomicFrame &f, const wire::VectorView &view,
                      std::span<const uint8_t> payload) {
  const auto kind = sdk::AtomicKind(f.kind);
  const size_t element = sdk::datatype_size(f.datatype);
  RmaVector vectors[wire::kVectorLimit];
  const size_t count = view.copy(vectors);
  for (size_t i = 0; i < count; ++i)
    if (__builtin_mul_overflow(vectors[i].length, element, &vectors[i].length))
      vectors[i].length = UINT64_MAX;
  const size_t half = kind == sdk::AtomicKind::kCompare ? payload.size() / 2 : payload.size();
  Answer::Bytes *result = nullptr;
  if (kind != sdk::AtomicKind::kWrite && (result = link_.pools.results.take()) == nullptr)
    return answers_.done(f.id, FI_ENOMEM);
  Answer *a = answers_.add(result != nullptr ? Answer::Kind::kResult : Answer::Kind::kDone, f.id);
  if (a == nullptr) {
    if (result != nullptr) link_.pools.results.give(result);
    return false;
  }
  a->result = result;
  size_t size = 0;
  a->status = link_.core.execute(
      kind, f.operation, f.datatype, {vectors, count}, payload.first(half), payload.subspan(half),
      result != nullptr ? std::span<uint8_t>(result->bytes, link_.result_room)
                        : std::span<uint8_t>(),
      size);
  a->length = size;
  return true;
}

// ---- the end ----

void Accesses::end_copies() {
  for (Remote *r = writes_; r != nullptr; r = r->next)
    if (r->landing != nullptr) link_.copies()->end(r->landing);
}

void Accesses::clear() {
  while (Remote *r = writes_) {
    writes_ = r->next;
    link_.pools.remotes.give(r);
  }
}

}  // namespace weft::rxd
