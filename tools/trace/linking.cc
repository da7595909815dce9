// SPDX-License-Identifier: BSD-2-Clause
// Posts and their completions.
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tools/trace/linking.h"

namespace weft::trace {
namespace {

// Calls with flags of their own; other calls have those of the endpoint.
bool has_flags(Op op) {
  const std::string_view name = kOps[size_t(op)].name;
  return name.size() > 3 && name.substr(name.size() - 3) == "msg";
}

struct Pending {
  std::deque<size_t> tx, rx;  // spans
};
struct KeyHash {
  size_t operator()(const std::pair<uint64_t, uint64_t> &key) const {
    return std::hash<uint64_t>()(key.first * 0x9e3779b97f4a7c15 ^ key.second);
  }
};

class Linker {
 public:
  Linker(Timeline &timeline, size_t process) : timeline_(timeline), process_(process) {
    for (const ObjectInfo &object : (*timeline.processes)[process].objects) {
      if (object.srx != 0 && object.rx_cq != 0) cq_of_srx_.emplace(object.srx, object.rx_cq);
      // If the hook saw the endpoint open, it also saw all of its bind calls.
      if (object.caps != 0 || object.tx_op_flags != 0) bound_.insert(object.id);
    }
  }

  void post(size_t index) {
    Event &event = timeline_.events[index];
    const Record &r = *event.record;
    if (r.result != 0) return;  // it did not start
    const ObjectInfo *endpoint = timeline_.object(process_, r.object);
    Span span;
    span.process = process_;
    span.post = index;
    span.receives = event.info().kind == Kind::kPostRx;
    span.bytes = r.size;
    span.begin_ns = event.begin_ns;
    span.end_ns = event.end_ns;
    const uint64_t cq = queue_of(endpoint, span.receives);
    span.expects = event.info().kind != Kind::kInject && signals(endpoint, event, span.receives) &&
                   cq != kNoQueue;
    event.span = timeline_.spans.size();
    timeline_.spans.push_back(span);
    if (!span.expects) return;
    Pending &pending = pending_[{cq, r.context}];
    (span.receives ? pending.rx : pending.tx).push_back(event.span);
  }

  void completion(size_t index) {
    Event &event = timeline_.events[index];
    const Record &r = *event.record;
    const bool failed = event.op() == Op::completion_error;
    if ((r.flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0)
      return;  // the peer's operation: it has no post here
    const ObjectInfo *queue_object = timeline_.object(process_, r.object);
    for (const uint64_t cq : {uint64_t(r.object), any_queue(queue_object), any_queue(nullptr)}) {
      const auto found = pending_.find({cq, r.context});
      if (found == pending_.end()) continue;
      std::deque<size_t> *queue = choose(found->second, r.flags);
      if (queue == nullptr) continue;
      const size_t at = queue->front();
      Span &span = timeline_.spans[at];
      span.completion = index;
      span.end = failed ? SpanEnd::kFailed : SpanEnd::kCompleted;
      span.end_ns = std::max(event.begin_ns, span.begin_ns);
      if (span.receives && r.size != 0) span.bytes = r.size;
      event.span = at;
      const Record &posted = *timeline_.events[span.post].record;
      const bool shared = span.receives && (posted.flags & FI_MULTI_RECV) != 0;
      if (shared && !failed && (r.flags & FI_MULTI_RECV) == 0) return;  // the buffer is not used up
      queue->pop_front();
      if (found->second.tx.empty() && found->second.rx.empty()) pending_.erase(found);
      return;
    }
    ++timeline_.unlinked[process_];
  }

 private:
  static constexpr uint64_t kNoQueue = ~uint64_t{0};

  // The queue of an endpoint that was bound before the hook came: any queue of the same element.
  static uint64_t any_queue(const ObjectInfo *object) {
    const uint64_t hash = object != nullptr ? std::hash<std::string>()(object->element) : 0;
    return (hash >> 1) | (uint64_t{1} << 63);
  }
  uint64_t queue_of(const ObjectInfo *endpoint, bool receives) const {
    if (endpoint == nullptr) return any_queue(nullptr);
    if (endpoint->fclass == FI_CLASS_SRX_CTX) {
      const auto found = cq_of_srx_.find(endpoint->id);
      return found != cq_of_srx_.end() ? found->second : any_queue(endpoint);
    }
    if (endpoint->tx_cq == 0 && endpoint->rx_cq == 0 && !was_bound(*endpoint))
      return any_queue(endpoint);
    const uint64_t cq = receives ? endpoint->rx_cq : endpoint->tx_cq;
    return cq != 0 ? cq : kNoQueue;
  }
  bool was_bound(const ObjectInfo &endpoint) const { return bound_.contains(endpoint.id); }
  static bool signals(const ObjectInfo *endpoint, const Event &event, bool receives) {
    if (endpoint == nullptr) return true;
    const uint64_t bound = receives ? endpoint->rx_bind_flags : endpoint->tx_bind_flags;
    if ((bound & FI_SELECTIVE_COMPLETION) == 0) return true;
    const uint64_t flags = has_flags(event.op()) ? event.record->flags
                           : receives            ? endpoint->rx_op_flags
                                                 : endpoint->tx_op_flags;
    return (flags & FI_COMPLETION) != 0;
  }
  std::deque<size_t> *choose(Pending &pending, uint64_t flags) const {
    const bool receives = (flags & FI_RECV) != 0;
    const bool transmits = (flags & (FI_SEND | FI_READ | FI_WRITE | FI_ATOMIC)) != 0;
    if (receives != transmits) {
      std::deque<size_t> &queue = receives ? pending.rx : pending.tx;
      return queue.empty() ? nullptr : &queue;
    }
    // The format has no flags: takes the operation that was posted first.
    if (pending.tx.empty()) return pending.rx.empty() ? nullptr : &pending.rx;
    if (pending.rx.empty()) return &pending.tx;
    return timeline_.spans[pending.tx.front()].begin_ns <=
                   timeline_.spans[pending.rx.front()].begin_ns
               ? &pending.tx
               : &pending.rx;
  }

  Timeline &timeline_;
  const size_t process_;
  std::unordered_map<uint64_t, uint64_t> cq_of_srx_;
  std::unordered_set<uint64_t> bound_;  // endpoints
  std::unordered_map<std::pair<uint64_t, uint64_t>, Pending, KeyHash> pending_;
};

}  // namespace

void link_posts(Timeline &timeline, size_t process, size_t first) {
  std::vector<size_t> order;
  for (size_t i = first; i < timeline.events.size(); ++i) {
    const Event &event = timeline.events[i];
    if (is_post(event.info().kind) || is_completion(event.op())) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return timeline.events[a].begin_ns < timeline.events[b].begin_ns;
  });
  Linker linker(timeline, process);
  for (const size_t i : order) {
    if (is_completion(timeline.events[i].op()))
      linker.completion(i);
    else
      linker.post(i);
  }
}

}  // namespace weft::trace
