// SPDX-License-Identifier: BSD-2-Clause
// What a peer may do to this process's memory: writes, reads and atomic operations, each checked by
// its keys; and the answers to those of this side.
#include <algorithm>
#include <cstring>

#include "plugins/shm/endpoint.h"
#include "plugins/shm/link.h"

namespace weft::shm {

// ---- writes ----

bool Link::take_write(const Record &record) {
  // Its data needs a place in the queue.
  if (owes_too_much() || (record.has(kHasData) && endpoint_.receiver().is_full())) return false;
  iovec iov[kMostPieces];
  const ssize_t found = endpoint_.resolve(record.regions, record.region_count, FI_REMOTE_WRITE, 0,
                                          record.length, iov, kMostPieces);
  const sdk::Message message{.has_data = record.has(kHasData),
                             .source = peer_.source,
                             .data = record.data,
                             .length = record.length};
  if (found >= 0 && record.has(kElsewhere) && record.length != 0 && !copies(record.length)) {
    fetch_write(record);
    return !over_;
  }
  auto status = uint16_t(found < 0 ? -found : 0);
  if (status == 0 && record.has(kElsewhere)) {
    if (record.length != 0)
      status = uint16_t(read_far(process_.pid, iov, size_t(found), record.vectors,
                                 record.vector_count, record.length));
    if (!has_peer()) status = FI_ECONNRESET;
  } else if (status == 0) {
    copy_out(record, 0, record.length, iov, size_t(found));
  }
  end_write(record.regions, record.region_count, message, record.tag, status);
  return true;
}

// A write whose bytes this side asks for part by part.
void Link::fetch_write(const Record &record) {
  Fetch *const fetch = is_gone_ || over_ ? nullptr : endpoint_.fetches().take();
  if (fetch == nullptr) return answer(record.tag, FI_ENOMEM);
  ++fetching_;
  fetch->link = this;
  fetch->receive = nullptr;
  fetch->message = {.has_data = record.has(kHasData),
                    .source = peer_.source,
                    .data = record.data,
                    .length = record.length};
  fetch->region_count = record.region_count;
  std::copy_n(record.regions, record.region_count, fetch->regions);
  fetch->far_id = record.tag;
  fetch->wanted = record.length;
  fetch->asked = fetch->arrived = 0;
  ask_for_parts(*fetch);
}

void Link::end_write(const Region *regions, size_t count, const sdk::Message &message, uint64_t id,
                     uint16_t status) {
  if (status == 0) {
    endpoint_.receiver().count_remote(FI_REMOTE_WRITE, message.length);
    endpoint_.count_access(regions, count, FI_REMOTE_WRITE);
    if (message.has_data)
      endpoint_.report_remote_write(message.length, message.data, message.source);
  }
  answer(id, status);
}

// ---- reads ----

bool Link::take_read(const Record &record) {
  if (owes_too_much()) return false;
  iovec iov[kMostPieces];
  const ssize_t found = endpoint_.resolve(record.regions, record.region_count, FI_REMOTE_READ, 0,
                                          record.length, iov, kMostPieces);
  auto status = uint16_t(found < 0 ? -found : 0);
  if (record.vector_count != 0) {
    if (status == 0 && !can_copy()) {
      answer(record.tag, kInParts);
      return !over_;
    }
    // What a peer had sent before its end is still here, and another process may have its number.
    if (status == 0 && !has_peer()) status = FI_ECONNRESET;
    if (status == 0 && record.length != 0)
      status = uint16_t(write_far(process_.pid, iov, size_t(found), record.vectors,
                                  record.vector_count, record.length));
    answer(record.tag, status);
  } else {
    answer_data(record.tag, status, iov, status == 0 ? size_t(found) : 0,
                status == 0 ? record.length : 0);
  }
  if (status != 0) return true;
  // A read in parts counts with the last one, and with the last one of each region.
  if (record.vector_count != 0 || record.has(kLast))
    endpoint_.receiver().count_remote(FI_REMOTE_READ,
                                      record.has(kLast) ? record.id : record.length);
  if (record.vector_count != 0) {
    endpoint_.count_access(record.regions, record.region_count, FI_REMOTE_READ);
  } else if (record.has(kHasData) && record.region_count == 1) {
    const Region &part = record.regions[0];
    const Region whole{part.address + part.length - record.data, record.data, part.key};
    endpoint_.count_access(&whole, 1, FI_REMOTE_READ);
  }
  return true;
}

// What is read is what is there now, also if there is no room for it now.
void Link::answer_data(uint64_t id, uint16_t status, const iovec *iov, size_t count,
                       uint64_t length) {
  if (over_ || is_gone_) return;
  if (owed_.empty() && put_data(id, status, iov, count, length)) return;
  Owed owed{.type = Type::kData,
            .status = status,
            .length = uint32_t(length),
            .tag = id,
            .id = kOfAccess,
            .bytes = std::make_unique<uint8_t[]>(length)};
  sdk::gather(owed.bytes.get(), iov, count, 0, length);
  owe(std::move(owed));
}

// A part of what this side reads, or the result of an atomic operation.
bool Link::take_part(Operation &op, const Record &record) {
  const bool is_result = op.kind == Operation::Kind::kAtomic && op.result_count != 0;
  if (!is_result && (op.kind != Operation::Kind::kRead || !op.in_parts))
    return violated("data for what reads nothing");
  const uint64_t due = is_result ? op.reported : part_at(op, op.answered).length;
  if (!is_result && op.answered + due > op.asked) return violated("a part that was not asked for");
  if (record.status != 0) {
    if (op.error == 0) op.error = uint16_t(error_of(record.status));
  } else if (record.length != due) {
    return violated("data of another length than was asked for");
  } else {
    scatter_bytes(is_result ? op.results : op.iov, is_result ? op.result_count : op.count,
                  is_result ? 0 : op.answered, due);
  }
  op.answered += due;
  if (!is_result && op.answered != op.length) {
    ask_for_parts(op);
    return true;
  }
  flying_.remove(op);
  endpoint_.finish(op, op.error);
  return true;
}

// ---- atomic operations ----

bool Link::take_atomic(const Record &record) {
  if (owes_too_much()) return false;
  const auto kind = sdk::AtomicKind(record.atomic_kind);
  const uint64_t access = sdk::atomic_access(kind, record.operation);
  alignas(sdk::kMaxDatatypeSize) uint8_t operands[kMostAtomic], results[kMostAtomic];
  uint64_t total = 0;
  for (size_t i = 0; i < record.region_count; ++i) total += record.regions[i].length;
  const iovec own{operands, size_t(record.length)};
  scatter_bytes(&own, 1, 0, record.length);

  iovec iov[kMostPieces];
  const ssize_t found =
      endpoint_.resolve(record.regions, record.region_count, access, 0, total, iov, kMostPieces);
  const auto status = uint16_t(found < 0 ? -found : 0);
  const bool fetches = kind != sdk::AtomicKind::kWrite;
  if (status == 0) {
    sdk::atomic_execute_v(kind, record.operation, record.datatype, iov, size_t(found), operands,
                          operands + total, results);
    endpoint_.receiver().count_remote(sdk::counted_as(access), total);
    for (const uint64_t one : {FI_REMOTE_WRITE, FI_REMOTE_READ})
      if ((access & one) != 0) endpoint_.count_access(record.regions, record.region_count, one);
  }
  if (!fetches) {
    answer(record.tag, status);
    return true;
  }
  const iovec out{results, size_t(total)};
  answer_data(record.tag, status, &out, 1, status == 0 ? total : 0);
  return true;
}

}  // namespace weft::shm
