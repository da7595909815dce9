// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/endpoint.h"

#include <weft/sdk/transfers/cancel.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "plugins/shm/barrier.h"

namespace weft::shm {
namespace {

// What a message costs more than being put into the ring.
constexpr uint64_t kSlow = FI_FENCE | sdk::kRemoteLevels;
// What is saved above the limits of messages that are before something awaited: no more than a ring
// has, unless the peer does not heed that it is to send no new ones.
constexpr uint64_t kExtraBehindMessages = 64 << 20;

// Links that are looked at in each progress. Of more, those that had input lately, and some others.
constexpr size_t kFewLinks = 16, kHotLinks = 8, kColdLinks = 8;

// How often the sockets are looked at.
constexpr unsigned kFruitless = 16, kFruitful = 1024;
constexpr uint64_t kSocketsNs = 20'000;

sdk::OrderKind kind_of(const Operation &op) {
  switch (op.kind) {
    case Operation::Kind::kRead:
      return sdk::OrderKind::kRead;
    case Operation::Kind::kWrite:
      return sdk::OrderKind::kWrite;
    case Operation::Kind::kAtomic:
      return sdk::OrderKind::kAtomic;
    case Operation::Kind::kSend:
      break;
  }
  return sdk::OrderKind::kSend;
}

uint8_t wire_flags_of(const sdk::SendRequest &request) {
  return uint8_t(
      (request.tagged ? kTagged : 0) | (request.flags & FI_REMOTE_CQ_DATA ? kHasData : 0) |
      (request.flags & FI_TRANSMIT_COMPLETE ? kAckTaken : 0) |
      (request.flags & (sdk::kRemoteLevels & ~uint64_t(FI_TRANSMIT_COMPLETE)) ? kAckPlaced : 0));
}

}  // namespace

// ---- sending ----

ssize_t Endpoint::start(const sdk::SendRequest &request) {
  if (tx().has_no_place(shm_domain_.engine(), request.flags)) [[unlikely]]
    return -FI_EAGAIN;
  const uint32_t index = av()->peer_of(request.dest);
  if (index == sdk::Av::kNone) return -FI_EINVAL;
  const Peer *const peer = table_.at(index);
  if (peer != nullptr && peer->link != nullptr && !(request.flags & kSlow) && !keeper_.needed() &&
      peer->link->send_now(request)) [[likely]] {
    shm_domain_.engine().turn_of_readers().works();
    tx().succeed(request.context, sdk::completion_flags(request), request.length, request.report);
    return 0;
  }
  return launch(request, [&](Operation &op) {
    op.kind = Operation::Kind::kSend;
    op.wire_flags = wire_flags_of(request);
    if (keeper_.awaits_messages()) op.wire_flags |= kAckPlaced;
    // What is in the memory of a link that nobody takes would be lost.
    if (!op.link->is_taken()) op.wire_flags |= kAckTaken;
    op.tag = request.tag;
    op.data = request.data;
    op.length = op.reported = request.length;
    op.count = uint8_t(request.count);
    std::copy_n(request.iov, request.count, op.iov);
    return (request.flags & FI_INJECT) != 0;
  });
}

// fill(op) says whether the bytes of its vectors have to be copied.
template <class Request, class Fill>
ssize_t Endpoint::launch(const Request &request, Fill fill) {
  const uint32_t index = av()->peer_of(request.dest);
  Peer *const peer = peer_at(index);
  // What a counter starts is in the midst of a link's input.
  if (peer->link != nullptr && !(request.flags & sdk::kDeferred)) {
    peer->link->look_for_peer();
    if (!buried_.empty()) [[unlikely]]
      clean_up();
  }
  if (peer->link == nullptr) {
    const auto connected = connect(*peer);
    if (!connected) {
      const int code = connected.error().code;
      if (code == FI_EAGAIN || code == FI_ENOMEM || code == FI_EMFILE) return -code;
      return fail_now(request, code);
    }
  }
  keeper_.make_room(index);
  Operation *const op = take_operation(request.flags);
  if (op == nullptr || peer->link == nullptr) {
    if (op != nullptr) give(*op);
    return -FI_EAGAIN;
  }
  op->report = request.report;
  op->context = request.context;
  op->cq_flags = sdk::completion_flags(request);
  op->is_canceled = false;
  op->error = 0;
  op->link = peer->link;
  if (fill(*op) && op->length != 0) {
    op->copied.reset(new (std::nothrow) uint8_t[op->length]);
    if (op->copied == nullptr) {
      give(*op);
      return -FI_ENOMEM;
    }
    sdk::gather(op->copied.get(), op->iov, op->count, 0, op->length);
    op->iov[0] = {op->copied.get(), size_t(op->length)};
    op->count = 1;
  }
  const sdk::OrderKind kind = kind_of(*op);
  op->fence = (request.flags & FI_FENCE) != 0 || keeper_.must_wait(index, kind);
  keeper_.started(index, kind, op->fence);
  shm_domain_.engine().turn_of_readers().works();
  peer->link->launch(*op);
  if (peer->link != nullptr && peer->link->has_output()) owe();
  return 0;
}

// Every access has an answer, which says whether the target allowed it.
ssize_t Endpoint::start(const sdk::RmaRequest &request) {
  if (tx().has_no_place(shm_domain_.engine(), request.flags)) return -FI_EAGAIN;
  if (av()->peer_of(request.dest) == sdk::Av::kNone) return -FI_EINVAL;
  return launch(request, [&](Operation &op) {
    op.kind = request.write ? Operation::Kind::kWrite : Operation::Kind::kRead;
    op.wire_flags = request.flags & FI_REMOTE_CQ_DATA ? kHasData : 0;
    op.tag = 0;
    op.data = request.data;
    op.length = op.reported = request.length;
    op.count = uint8_t(request.count);
    std::copy_n(request.iov, request.count, op.iov);
    op.region_count = uint8_t(request.rma_count);
    for (size_t i = 0; i < request.rma_count; ++i)
      op.regions[i] = {request.rma[i].addr, request.rma[i].len, request.rma[i].key};
    op.in_parts = false;
    return request.write && (request.flags & FI_INJECT) != 0;
  });
}

ssize_t Endpoint::start(const sdk::AtomicRequest &request) {
  if (request.flags & FI_REMOTE_CQ_DATA) return -FI_EOPNOTSUPP;  // the records have no room for it
  if (tx().has_no_place(shm_domain_.engine(), request.flags)) return -FI_EAGAIN;
  if (av()->peer_of(request.dest) == sdk::Av::kNone) return -FI_EINVAL;
  const size_t element = sdk::datatype_size(request.datatype);
  const size_t bytes = size_t(request.elements) * element;
  uint8_t values[kMostAtomic];  // with compares: twice as many bytes, and at most so many
  return launch(request, [&](Operation &op) {
    op.kind = Operation::Kind::kAtomic;
    op.wire_flags = 0;
    op.tag = 0;
    op.atomic = request.kind;
    op.operation = uint8_t(request.op);
    op.datatype = uint8_t(request.datatype);
    op.length = 0;
    if (request.op != FI_ATOMIC_READ)
      op.length = sdk::ioc_gather(values, bytes, request.operands, request.operand_count, element);
    if (request.kind == sdk::AtomicKind::kCompare)
      op.length += sdk::ioc_gather(values + op.length, bytes, request.compares,
                                   request.compare_count, element);
    op.iov[0] = {values, size_t(op.length)};
    op.count = 1;
    op.reported = bytes;
    op.region_count = uint8_t(request.rma_count);
    for (size_t i = 0; i < request.rma_count; ++i)
      op.regions[i] = {request.rma[i].addr, request.rma[i].count * element, request.rma[i].key};
    op.result_count = uint8_t(request.result_count);
    for (size_t i = 0; i < request.result_count; ++i)
      op.results[i] = {request.results[i].addr, request.results[i].count * element};
    return true;  // the values are copied
  });
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

// The peer cannot be reached. It is told as of an operation that has failed.
template <class Request>
ssize_t Endpoint::fail_now(const Request &request, int error) {
  uint64_t tag = 0;
  if constexpr (requires { request.tag; }) tag = request.tag;
  tx().finish({.context = request.context,
               .flags = sdk::completion_flags(request),
               .tag = tag,
               .report = request.report,
               .err = error,
               .prov_errno = error});
  return 0;
}

// An application that only sends makes no progress, so it is made here; but what a counter starts
// is in the midst of it.
Operation *Endpoint::take_operation(uint64_t flags) {
  Operation *op = operations_.take();
  if (op == nullptr && !(flags & sdk::kDeferred)) {
    shm_domain_.engine().progress();
    op = operations_.take();
  }
  return op;
}

void Endpoint::give(Operation &op) {
  op.copied.reset();
  op.context = nullptr;  // fi_cancel does not find it any more
  op.link = nullptr;
  operations_.give(op);
}

void Endpoint::finish(Operation &op, int error) {
  // What a counter starts may take an operation, so this one is given back first.
  const sdk::TxContext::Done done{.context = op.context,
                                  .flags = op.cq_flags,
                                  .length = op.reported,
                                  .tag = op.tag,
                                  .report = op.report,
                                  .err = error != 0 && op.is_canceled ? FI_ECANCELED : error,
                                  .prov_errno = error};
  give(op);
  if (error == 0) return tx().succeed(done.context, done.flags, done.length, done.report);
  tx().finish(done);
}

// What has begun is not taken back: it ends as it would have, and an error says that it was
// canceled.
ssize_t Endpoint::cancel(void *context) {
  const ssize_t rc = RdmEndpoint::cancel(context);
  if (rc != -FI_ENOENT || context == nullptr) return rc;
  const sdk::Guard guard(lock());
  Operation *found = nullptr;
  operations_.visit([&](Operation &op) {
    if (op.context == context && !op.is_canceled && !(op.cq_flags & sdk::kDeferred)) found = &op;
  });
  if (found == nullptr) return rc;
  found->is_canceled = true;
  return 0;
}

ssize_t Endpoint::tx_size_left() {
  const sdk::Guard guard(lock());
  return enabled() ? ssize_t(limits().tx_size - operations_.in_use()) : -FI_EOPBADSTATE;
}

// ---- receiving ----

ssize_t Endpoint::start(const sdk::RecvRequest &request) {
  if (request.flags & FI_PEEK) shm_domain_.engine().progress();
  const ssize_t rc = receiver().post(request);
  if (rc == 0 && stalled_) resume();
  return rc;
}

void Endpoint::resume() {
  if (stalled_) poll_links();
}

bool Endpoint::has_memory(Link &link, uint64_t cost, uint64_t extra) const {
  const uint64_t limit = settings().max_saved / (link.peer().is_named() ? 1 : 2) + extra;
  return link.saved_bytes + cost <= settings().max_saved_per_peer + extra &&
         saved_bytes_ + cost <= limit;
}

Saved *Endpoint::save(Link &link, uint64_t bytes) {
  const uint64_t cost = sizeof(Saved) + bytes;
  if (!has_memory(link, cost) &&
      !(link.refuse_messages() && has_memory(link, cost, kExtraBehindMessages)))
    return nullptr;
  void *const memory = std::malloc(cost);
  if (memory == nullptr) return nullptr;
  auto *const saved = new (memory) Saved;
  saved->peer = &link.peer();
  saved->link = &link;
  saved->cost = cost;
  ++link.peer().saved;
  link.saved_bytes += cost;
  saved_bytes_ += cost;
  return saved;
}

void Endpoint::release(Saved &saved) {
  saved_bytes_ -= saved.cost;
  if (saved.link != nullptr) saved.link->saved_bytes -= saved.cost;
  --saved.peer->saved;
  saved.~Saved();
  std::free(&saved);
}

void Endpoint::lose_saved(Link &link, int error) {
  receiver().visit_unexpected(sdk::Matcher::kAnySource, [&](sdk::Unexpected &message) {
    auto &saved = static_cast<Saved &>(message);
    if (saved.link != &link) return;
    saved.link = nullptr;
    if (saved.is_far) saved.error = error;
  });
}

void Endpoint::deliver(sdk::Unexpected &message, sdk::Receive &receive) {
  auto &saved = static_cast<Saved &>(message);
  if (saved.error != 0) {
    receiver().complete(receive, saved.message, 0, saved.error);
  } else if (saved.is_far) {
    saved.link->fetch(receive, saved.message, saved.id, saved.vectors, saved.vector_count);
  } else {
    const auto n = size_t(std::min<uint64_t>(saved.message.length, receive.length));
    sdk::scatter(receive.iov, receive.count, 0, saved.bytes(), n);
    receiver().complete(receive, saved.message, n, 0);
    if (saved.is_awaited && saved.link != nullptr) saved.link->answer(saved.id, 0);
  }
  release(saved);
}

void Endpoint::discard(sdk::Unexpected &message) {
  auto &saved = static_cast<Saved &>(message);
  if (saved.link != nullptr && (saved.is_far || saved.is_awaited)) saved.link->answer(saved.id, 0);
  release(saved);
}

std::string Endpoint::source_address(const sdk::Message &message) {
  for (const auto &[name, peer] : peers_) {
    if (peer->source != message.source) continue;
    const std::string text = sdk::format_address_string(name);
    return {text.c_str(), text.size() + 1};
  }
  return {};
}

// ---- progress ----

bool Endpoint::poll_links() {
  bool found = false, stalled = false;
  const auto poll = [&](Link &link) {
    if (link.is_over()) return false;
    const bool has_input = link.poll();
    stalled |= link.is_stalled();
    found |= has_input;
    return has_input;
  };
  if (links_.size() <= kFewLinks) [[likely]] {
    for (size_t i = 0; i < links_.size(); ++i) poll(*links_[i]);
  } else {
    for (size_t i = 0; i < hot_.size(); ++i) poll(*hot_[i]);
    for (size_t n = 0; n < kColdLinks; ++n) {
      Link &link = *links_[next_++ % links_.size()];
      if (!poll(link) || std::ranges::find(hot_, &link) != hot_.end()) continue;
      if (hot_.size() < kHotLinks) {
        hot_.push_back(&link);
      } else {
        hot_[next_hot_++ % kHotLinks] = &link;
      }
    }
    stalled |= stalled_;
  }
  stalled_ = stalled;
  return found;
}

void Endpoint::on_poll() {
  note_input(poll_links());
  if (!buried_.empty()) [[unlikely]]
    clean_up();
}

// Sockets tell of new peers, and of the end of others: rarely, so a look at them, which costs more
// than one at many rings, is rare.
void Endpoint::note_input(bool found) {
  if (found) {
    fruitless_ = 0;
    if (++fruitful_ % kFruitful == 0) look_at_sockets();
    return;
  }
  if (has_slept_) {  // a socket may have woken it, and would do so again
    has_slept_ = false;
    return look_at_sockets();
  }
  if (++fruitless_ % kFruitless != 0) return;
  const uint64_t now = sdk::now_ns();
  if (now - looked_at_ns_ < kSocketsNs) return;
  looked_at_ns_ = now;
  look_at_sockets();
}

int Endpoint::wait_fds(std::vector<int> &fds) {
  fds.push_back(epoll_.get());
  return 0;
}

// A link that is stalled goes on when a receive is posted, or a queue is read.
bool Endpoint::may_wait() {
  bool is_new = false, may = true;
  for (size_t i = 0; i < links_.size(); ++i) is_new |= links_[i]->arm();
  if (is_new) do_barrier();
  for (size_t i = 0; i < links_.size(); ++i) may = links_[i]->may_sleep() && may;
  has_slept_ = true;
  return may;
}

}  // namespace weft::shm
