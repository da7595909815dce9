// SPDX-License-Identifier: BSD-2-Clause
// What a link sends: messages, accesses, answers, and parts of messages that the peer asks for.
#include <algorithm>
#include <ctime>
#include <utility>

#include "plugins/shm/endpoint.h"
#include "plugins/shm/link.h"

namespace weft::shm {
namespace {

// How long an application that only sends believes that a peer is there. The clock moves by a tick
// of the kernel at a time.
constexpr uint64_t kBelievedNs = 1'000'000;

uint64_t coarse_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000u + uint64_t(now.tv_nsec);
}

}  // namespace

bool Link::is_doubtful() const {
  return coarse_ns() >= believed_at_ns_ + kBelievedNs;
}

void Link::look_for_peer() {
  if (out_.is_closed()) return end(End::kPeerGone);
  if (!is_doubtful()) return;
  believed_at_ns_ = coarse_ns();
  if (!has_peer()) on_socket();
}

bool Link::send_now(const sdk::SendRequest &request) {
  if (has_output() || !is_taken() || out_.is_closed() || !out_.may_put_message() || is_doubtful())
      [[unlikely]]
    return false;
  const bool has_data = (request.flags & FI_REMOTE_CQ_DATA) != 0;
  const auto flags = uint8_t((request.tagged ? kTagged : 0) | (has_data ? kHasData : 0));
  constexpr auto kType = uint8_t(Type::kMessage);
  if (!has_data && request.count == 1 && request.length <= kMostContent) [[likely]] {
    const auto size = uint16_t(request.length);
    if (!out_.has_room(lines_of(size), 0)) return false;
    out_.put({.type = kType, .flags = flags, .size = size, .tag = request.tag},
             request.iov[0].iov_base);
    wake();
    return true;
  }
  if (request.length > out_.geometry().most_payload()) return false;
  Content content;
  if (has_data) content.put(request.data);
  return put_payload(content, Type::kMessage, flags, request.tag, request.iov, request.count, 0,
                     request.length);
}

void Link::launch(Operation &op) {
  op.link = this;
  op.is_flying = false;
  const bool may_go = waiting_.empty() && !(op.fence && has_flying());
  if (!may_go || !write(op)) waiting_.push(op);
  if (out_.broken()) violated("it has taken more than was there");
}

bool Link::owes() const {
  for (const Operation *op = waiting_.front(); op != nullptr; op = op->next)
    if (!op->report || op->copied != nullptr) return true;
  return !owed_.empty();
}

void Link::push() {
  while (!owed_.empty() && pay(owed_.front())) {
    if (owed_.front().bytes != nullptr) owed_bytes_ -= owed_.front().length;
    owed_.pop_front();
  }
  while (Operation *const op = waiting_.front()) {
    if (op->fence && has_flying()) break;
    // What is started when it ends, by a counter, is behind it.
    waiting_.remove(*op);
    if (write(*op)) continue;
    waiting_.push_front(*op);
    break;
  }
  if (out_.broken()) violated("it has taken more than was there");
}

// False: there is no room.
bool Link::write(Operation &op) {
  switch (op.kind) {
    case Operation::Kind::kSend:
      return out_.may_put_message() && write_message(op);
    case Operation::Kind::kWrite:
      return write_write(op);
    case Operation::Kind::kRead:
      return write_read(op);
    case Operation::Kind::kAtomic:
      return write_atomic(op);
  }
  return false;
}

bool Link::write_message(Operation &op) {
  Content content;
  if (op.wire_flags & kHasData) content.put(op.data);
  const bool is_far = op.length > out_.geometry().most_payload();
  const bool has_answer = is_far || (op.wire_flags & (kAckTaken | kAckPlaced)) != 0;
  if (has_answer) content.put(op.id());
  if (!put_payload(content, Type::kMessage, op.wire_flags, op.tag, op.iov, op.count, 0, op.length))
    return false;
  if (has_answer) {
    fly(op);
  } else {
    endpoint_.finish(op, 0);
  }
  return true;
}

bool Link::write_write(Operation &op) {
  Content content;
  if (op.wire_flags & kHasData) content.put(op.data);
  content.put(op.regions, op.region_count);
  if (!put_payload(content, Type::kWrite, op.wire_flags, op.id(), op.iov, op.count, 0, op.length))
    return false;
  fly(op);
  return true;
}

bool Link::write_read(Operation &op) {
  if (op.in_parts || reads_in_parts_ || op.length <= out_.geometry().most_payload() ||
      op.length < endpoint_.settings().cma_size) {
    op.in_parts = true;
    op.asked = op.answered = 0;
    if (!write_part(op)) return false;
    fly(op);
    ask_for_parts(op);
    return true;
  }
  Content content;
  content.put(op.regions, op.region_count);
  content.put(op.iov, op.count);
  if (!put(content, content.head(Type::kRead, 0, op.id()))) return false;
  fly(op);
  return true;
}

// The next part.
bool Link::write_part(Operation &op) {
  const Part part = part_at(op, op.asked);
  const bool is_last = op.asked + part.length == op.length;
  Region regions[kMostVectors];
  Content content;
  if (part.ends_region) content.put(part.region_length);
  if (is_last) content.put(op.length);
  content.put(regions, slice_regions(op.regions, op.region_count, op.asked, part.length, regions));
  content.put(static_cast<const iovec *>(nullptr), 0);
  const auto flags = uint8_t((part.ends_region ? kHasData : 0) | (is_last ? kLast : 0));
  if (!put(content, content.head(Type::kRead, flags, op.id()))) return false;
  op.asked += part.length;
  return true;
}

Link::Part Link::part_at(const Operation &op, uint64_t at) const {
  for (size_t i = 0; i < op.region_count; ++i) {
    const uint64_t length = op.regions[i].length;
    if (at >= length) {
      at -= length;
      continue;
    }
    const uint64_t n = std::min<uint64_t>(out_.geometry().most_payload(), length - at);
    return {.length = n, .region_length = length, .ends_region = at + n == length};
  }
  return {};
}

void Link::ask_for_parts(Operation &op) {
  const uint64_t window = kParts * out_.geometry().most_payload();
  if (op.asked < op.length && op.asked - op.answered < window)
    owe({.type = Type::kRead, .tag = op.id()});
}

bool Link::write_atomic(Operation &op) {
  Content content;
  content.put(uint8_t(op.atomic));
  content.put(op.operation);
  content.put(op.datatype);
  content.put(uint32_t(op.length));
  content.put(op.regions, op.region_count);
  if (!out_.has_room(lines_of(content.size()), size_t(op.length))) return false;
  sdk::pieces(op.iov, op.count, 0, op.length,
              [this](const uint8_t *at, size_t n) { out_.put_bytes(at, n); });
  out_.put(content.head(Type::kAtomic, kInBytes, op.id()), content.bytes());
  wake();
  fly(op);
  return true;
}

// The rest of a record with a payload, which is in the content if it is short, else among the
// bytes; if it is long, the content says where it is. False: there is no room.
bool Link::put_payload(Content &content, Type type, uint8_t flags, uint64_t tag, const iovec *iov,
                       size_t count, uint64_t offset, uint64_t length) {
  if (length <= content.left()) {
    sdk::gather(content.room(size_t(length)), iov, count, offset, length);
    return put(content, content.head(type, flags, tag));
  }
  if (length > out_.geometry().most_payload()) {
    content.put(iov, count);
    return put(content, content.head(type, uint8_t(flags | kElsewhere), tag));
  }
  content.put(uint32_t(length));
  if (!out_.has_room(lines_of(content.size()), size_t(length))) return false;
  sdk::pieces(iov, count, offset, length,
              [this](const uint8_t *at, size_t n) { out_.put_bytes(at, n); });
  out_.put(content.head(type, uint8_t(flags | kInBytes), tag), content.bytes());
  wake();
  return true;
}

bool Link::put(const Content &content, const Head &head) {
  if (!out_.has_room(lines_of(head.size), 0)) return false;
  out_.put(head, content.bytes());
  wake();
  return true;
}

void Link::fly(Operation &op) {
  op.is_flying = true;
  flying_.push(op);
}

void Link::wake() {
  if (!out_.must_wake() || socket_.get() < 0) [[likely]]
    return;
  // If the socket is full, the peer has not read what woke it before.
  [[maybe_unused]] const int rc = send_packet(socket_.get(), {&kWake, 1});
}

// ---- answers ----

void Link::answer(uint64_t id, uint16_t status) {
  owe({.status = status, .tag = id});
}

void Link::owe(Owed owed) {
  if (over_ || is_gone_) return;
  if (owed_.empty() && pay(owed)) return;
  if (owed.bytes != nullptr) owed_bytes_ += owed.length;
  owed_.push_back(std::move(owed));
}

// False: there is no room.
bool Link::pay(Owed &owed) {
  if (owed.type == Type::kData) return pay_data(owed);
  if (owed.type == Type::kRead) {  // as many parts as may be asked for
    Operation *const op = endpoint_.operations().find(owed.tag);
    const uint64_t window = kParts * out_.geometry().most_payload();
    while (op != nullptr && op->link == this && op->asked < op->length &&
           op->asked - op->answered < window)
      if (!write_part(*op)) return false;
    return true;
  }
  Content content;
  if (owed.type == Type::kPull) {
    content.put(owed.id);
    content.put(owed.offset);
    content.put(owed.length);
  } else {
    content.put(owed.status);
  }
  return put(content, content.head(owed.type, 0, owed.tag));
}

bool Link::pay_data(const Owed &owed) {
  if (owed.id == kOfAccess) {
    const iovec own{owed.bytes.get(), owed.length};
    return put_data(owed.tag, owed.status, &own, 1, owed.length);
  }
  const Operation *const op = endpoint_.operations().find(owed.id);
  const bool is_there = op != nullptr && op->link == this && op->is_flying;
  const uint32_t length = is_there ? owed.length : 0;
  Content content;
  content.put(uint16_t(is_there ? 0 : FI_ECANCELED));
  content.put(length);
  if (!out_.has_room(lines_of(content.size()), length)) return false;
  if (is_there)
    sdk::pieces(op->iov, op->count, owed.offset, length,
                [this](const uint8_t *at, size_t n) { out_.put_bytes(at, n); });
  out_.put(content.head(Type::kData, kInBytes | kForFetch, owed.tag), content.bytes());
  wake();
  return true;
}

// What an access answers. False: there is no room.
bool Link::put_data(uint64_t id, uint16_t status, const iovec *iov, size_t count, uint64_t length) {
  Content content;
  content.put(status);
  content.put(uint32_t(length));
  if (!out_.has_room(lines_of(content.size()), size_t(length))) return false;
  sdk::pieces(iov, count, 0, length,
              [this](const uint8_t *at, size_t n) { out_.put_bytes(at, n); });
  out_.put(content.head(Type::kData, kInBytes, id), content.bytes());
  wake();
  return true;
}

}  // namespace weft::shm
