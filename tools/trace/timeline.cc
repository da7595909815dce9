// SPDX-License-Identifier: BSD-2-Clause
#include "tools/trace/timeline.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <algorithm>
#include <climits>
#include <deque>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace weft::trace {
namespace {

// As well as times of two processes of one host are known to agree.
constexpr int64_t kSlack = 200;  // ns

bool is_post(Kind kind) {
  return kind == Kind::post_tx || kind == Kind::post_rx || kind == Kind::inject;
}
bool is_completion(Op op) {
  return op == Op::completion || op == Op::completion_error;
}
bool is_message(Op op) {
  return op >= Op::send && op <= Op::trecvmsg;
}
// Calls that state flags of their own; others go by those of the endpoint.
bool has_flags(Op op) {
  const std::string_view name = kOps[size_t(op)].name;
  return name.size() > 3 && name.substr(name.size() - 3) == "msg";
}

// ---- nesting ----

// Calls are written when they return, children first.
void nest(std::vector<Event> &events, size_t first) {
  std::vector<std::vector<size_t>> waiting(257);
  size_t deepest = 0;
  for (size_t i = first; i < events.size(); ++i) {
    const size_t depth = events[i].record->depth;
    for (size_t d = depth + 1; d <= deepest; ++d) {
      for (const size_t child : waiting[d]) {
        // What a call that is not recorded made itself stays on its own.
        if (events[child].begin_ns >= events[i].begin_ns) events[child].parent = i;
      }
      waiting[d].clear();
    }
    waiting[depth].push_back(i);
    deepest = std::max(depth, deepest);
  }
}

// Posts in quick succession were not all measured: they are taken to last as long as those that
// were, until the next call at most, and as long as what they called themselves at least.
void guess_ends(std::vector<Event> &events, size_t first) {
  std::map<std::pair<Op, uint32_t>, std::vector<int64_t>> durations;
  for (size_t i = first; i < events.size(); ++i) {
    const Event &event = events[i];
    if (event.measured && is_post(event.info().kind))
      durations[{event.op(), event.record->object}].push_back(event.end_ns - event.begin_ns);
  }
  for (auto &[key, values] : durations)
    std::nth_element(values.begin(), values.begin() + ptrdiff_t(values.size() / 2), values.end());
  std::vector<int64_t> next(257, INT64_MAX);  // when the next call begins, by depth
  for (size_t i = events.size(); i-- > first;) {
    Event &event = events[i];
    const size_t depth = event.record->depth;
    int64_t limit = INT64_MAX;
    for (size_t d = 0; d <= depth; ++d) limit = std::min(limit, next[d]);
    if (!event.measured) {
      const auto found = durations.find({event.op(), event.record->object});
      if (found != durations.end()) event.end_ns += found->second[found->second.size() / 2];
      event.end_ns = std::max(event.begin_ns, std::min(event.end_ns, limit));
    }
    next[depth] = event.begin_ns;
  }
  for (size_t i = first; i < events.size(); ++i) {
    const Event &event = events[i];
    if (event.parent != kNone && !events[event.parent].measured)
      events[event.parent].end_ns = std::max(events[event.parent].end_ns, event.end_ns);
  }
}

// ---- posts and completions ----

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
      // Whose opening was seen, all that was bound to it was.
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
    span.receives = event.info().kind == Kind::post_rx;
    span.bytes = r.size;
    span.begin_ns = event.begin_ns;
    span.end_ns = event.end_ns;
    const uint64_t cq = queue_of(endpoint, span.receives);
    span.expects = event.info().kind != Kind::inject && signals(endpoint, event, span.receives) &&
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
    if ((r.flags & (FI_REMOTE_READ | FI_REMOTE_WRITE)) != 0) return;  // nobody here posted it
    const ObjectInfo *queue_object = timeline_.object(process_, r.object);
    for (const uint64_t cq : {uint64_t(r.object), any_queue(queue_object), any_queue(nullptr)}) {
      const auto found = pending_.find({cq, r.context});
      if (found == pending_.end()) continue;
      std::deque<size_t> *queue = choose(found->second, r.flags);
      if (queue == nullptr) continue;
      const size_t at = queue->front();
      Span &span = timeline_.spans[at];
      span.completion = index;
      span.end = failed ? SpanEnd::failed : SpanEnd::completed;
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

  // Of an endpoint that was bound before the hook came, it is not known: any queue of the same
  // element.
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
    // A format without flags: who came first.
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

void link(Timeline &timeline, size_t process, size_t first) {
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

// ---- both ends ----

// "0.0.0.0:1" is any address of its host with that port.
bool same_address(const std::string &a, const std::string &b, bool same_host) {
  if (a.empty() || b.empty()) return false;
  if (a == b) return true;
  const auto port = [](const std::string &text) { return text.substr(text.rfind(':') + 1); };
  const auto any = [](const std::string &text) {
    return text.starts_with("0.0.0.0:") || text.starts_with("[::]:");
  };
  return same_host && (any(a) || any(b)) && port(a) == port(b);
}

class Pairing {
 public:
  explicit Pairing(Timeline &timeline)
      : timeline_(timeline), steps_left_(kSteps + 20 * uint64_t(timeline.spans.size())) {}

  void run() {
    index();
    collect();
    for (const auto &[key, sends] : sends_) {
      const auto [process, id, peer] = key;
      const ObjectInfo *from = timeline_.object(process, id);
      if (from == nullptr) continue;
      const std::string to =
          from->ep_type == FI_EP_MSG ? from->peer : peer_address(process, from->av, peer);
      if (to.empty()) continue;
      const auto targets = targets_.find(port_of(to));
      if (targets == targets_.end()) continue;
      for (const auto &[other, target] : targets->second) {
        if (!take_steps(1)) {
          timeline_.pairs_left_out[process] += sends.size();
          break;
        }
        const bool same_host =
            (*timeline_.processes)[other].host == (*timeline_.processes)[process].host;
        if (other == process && target->id == id) continue;
        if (target->ep_type != from->ep_type || target->element != from->element ||
            !same_address(target->address, to, same_host))
          continue;
        if (from->ep_type == FI_EP_MSG && !same_address(target->peer, from->address, same_host))
          continue;
        match(sends, process, *from, other, *target);
      }
    }
  }

  // What both ways tell of the difference of two clocks: a message is never received before it was
  // sent.
  void estimate() {
    const auto &processes = *timeline_.processes;
    // Least seeming delays, 0 to p and p to 0.
    std::vector<int64_t> there(processes.size(), INT64_MAX), back = there;
    std::vector<int64_t> change(processes.size(), 0);
    for (const Span &span : timeline_.spans) {
      if (span.receives || span.pair == kNone) continue;
      const Span &other = timeline_.spans[span.pair];
      const int64_t delay = other.end_ns - span.begin_ns;
      if (span.process == 0) there[other.process] = std::min(there[other.process], delay);
      if (other.process == 0) back[span.process] = std::min(back[span.process], delay);
    }
    for (size_t p = 1; p < processes.size(); ++p) {
      if (processes[p].boot_id == processes[0].boot_id && !processes[p].boot_id.empty()) continue;
      if (there[p] == INT64_MAX || back[p] == INT64_MAX) continue;
      change[p] = (back[p] - there[p]) / 2;
      ClockOffset &offset = timeline_.offsets[p];
      offset.ns += change[p];
      offset.how = "estimated from the least delays both ways: to within " +
                   std::to_string((there[p] + back[p]) / 2) + " ns";
    }
    const auto shift = [&](auto &one) {
      one.begin_ns += change[one.process];
      one.end_ns += change[one.process];
    };
    for (Event &event : timeline_.events) shift(event);
    for (Span &span : timeline_.spans) shift(span);
  }

 private:
  using Key = std::tuple<size_t, uint64_t, uint32_t>;  // process, endpoint or vector, peer

  // Beside 20 for each span: more than any honest trace needs, and a few seconds.
  static constexpr uint64_t kSteps = 20'000'000;

  bool take_steps(uint64_t steps) {
    const bool enough = steps <= steps_left_;
    steps_left_ -= enough ? steps : steps_left_;
    return enough;
  }

  static std::string port_of(const std::string &address) {
    return address.substr(address.rfind(':') + 1);
  }

  void index() {
    const auto &processes = *timeline_.processes;
    for (size_t p = 0; p < processes.size(); ++p) {
      for (const AddressInfo &one : processes[p].addresses)
        addresses_.emplace(Key{p, one.av, one.peer}, &one.address);
      for (const ObjectInfo &object : processes[p].objects) {
        if (!object.address.empty()) targets_[port_of(object.address)].emplace_back(p, &object);
      }
      lost_some_.push_back(
          processes[p].lost_records > 0 ||
          std::any_of(processes[p].threads.begin(), processes[p].threads.end(),
                      [](const ThreadInfo &one) { return one.overwritten() > 0; }));
    }
  }

  void collect() {
    for (size_t i = 0; i < timeline_.spans.size(); ++i) {
      const Span &span = timeline_.spans[i];
      const Event &post = timeline_.events[span.post];
      if (!is_message(post.op())) continue;
      const uint64_t id = post.record->object;
      const ObjectInfo *endpoint = timeline_.object(span.process, id);
      const bool connected = endpoint != nullptr && endpoint->ep_type == FI_EP_MSG;
      if (!span.receives) {
        // A connected endpoint has one peer, whatever the call said.
        sends_[{span.process, id, connected ? kNoPeer : post.record->peer}].push_back(i);
      } else if (span.end == SpanEnd::completed) {
        // Of a shared context it depends on the endpoint who a source is.
        const bool known =
            endpoint != nullptr && !connected && endpoint->fclass != FI_CLASS_SRX_CTX;
        const uint32_t source = timeline_.events[span.completion].record->peer;
        const std::string name = known && source != kNoPeer
                                     ? peer_address(span.process, endpoint->av, source)
                                     : std::string();
        received_[{span.process, id}][name].push_back(i);
      }
    }
    for (auto &[key, sources] : received_) {
      for (auto &[source, spans] : sources)
        std::stable_sort(spans.begin(), spans.end(),
                         [&](size_t a, size_t b) { return ended_before(a, b); });
    }
  }
  bool ended_before(size_t a, size_t b) const {
    const int64_t first = timeline_.spans[a].end_ns, second = timeline_.spans[b].end_ns;
    return first != second ? first < second : a < b;
  }
  std::string peer_address(size_t process, uint64_t av, uint32_t peer) const {
    const auto found = addresses_.find(Key{process, av, peer});
    return found != addresses_.end() ? *found->second : std::string();
  }

  // What an endpoint received from one address or from one that is not known, in order of time.
  std::vector<size_t> received_from(const std::map<std::string, std::vector<size_t>> &sources,
                                    const std::string &address) {
    static const std::vector<size_t> kNothing;
    const auto of = [&](const std::string &name) -> const std::vector<size_t> & {
      const auto found = sources.find(name);
      return found != sources.end() ? found->second : kNothing;
    };
    const std::vector<size_t> &known = address.empty() ? kNothing : of(address);
    const std::vector<size_t> &unknown = of("");
    std::vector<size_t> all;
    if (!take_steps(known.size() + unknown.size())) return all;
    all.reserve(known.size() + unknown.size());
    std::merge(known.begin(), known.end(), unknown.begin(), unknown.end(), std::back_inserter(all),
               [&](size_t a, size_t b) { return ended_before(a, b); });
    return all;
  }

  void match(const std::vector<size_t> &sends, size_t process, const ObjectInfo &from, size_t other,
             const ObjectInfo &target) {
    const bool shared = target.srx != 0;
    const auto found = received_.find({other, shared ? target.srx : target.id});
    if (found == received_.end()) return;
    const std::vector<size_t> received = received_from(found->second, from.address);
    if (received.empty() || !take_steps(sends.size())) {
      if (steps_left_ == 0) timeline_.pairs_left_out[process] += sends.size();
      return;
    }
    const bool one_clock =
        (*timeline_.processes)[process].boot_id == (*timeline_.processes)[other].boot_id;
    // Each (tag, size) is a sequence of its own: messages are received in the order in which they
    // match.
    std::map<std::pair<uint64_t, uint64_t>, std::pair<std::vector<size_t>, std::vector<size_t>>>
        classes;
    for (const size_t i : sends) classes[class_of(i)].first.push_back(i);
    for (const size_t i : received) {
      const Span &span = timeline_.spans[i];
      if (span.pair != kNone) continue;
      const uint32_t source = timeline_.events[span.completion].record->peer;
      if (source != kNoPeer && target.ep_type != FI_EP_MSG) {
        const std::string name = peer_address(other, target.av, source);
        if (!name.empty() && name != from.address) continue;
      }
      classes[class_of(i)].second.push_back(i);
    }
    const bool lost = lost_some_[process] || lost_some_[other];
    for (auto &[name, both] : classes) {
      const auto &[sent, got] = both;
      if (sent.empty() || got.empty()) continue;
      size_t skip_sent = 0, skip_got = 0;
      if (lost && !(one_clock && align(sent, got, skip_sent, skip_got))) {
        timeline_.pairs_left_out[process] += sent.size();
        continue;
      }
      for (size_t k = 0; skip_sent + k < sent.size() && skip_got + k < got.size(); ++k) {
        Span &a = timeline_.spans[sent[skip_sent + k]];
        Span &b = timeline_.spans[got[skip_got + k]];
        if (one_clock && b.end_ns + kSlack < a.begin_ns)
          break;  // out of step: say less rather than wrong
        a.pair = got[skip_got + k];
        b.pair = sent[skip_sent + k];
      }
    }
  }
  std::pair<uint64_t, uint64_t> class_of(size_t i) const {
    const Span &span = timeline_.spans[i];
    const Event &post = timeline_.events[span.post];
    if (post.op() < Op::tsend) return {0, span.bytes};
    if (!span.receives) return {post.record->tag, span.bytes};
    // What arrived may have another tag than was asked for; not every format says it.
    const Record &done = *timeline_.events[span.completion].record;
    const ObjectInfo *queue = timeline_.object(span.process, done.object);
    const bool says = queue != nullptr && queue->cq_format == FI_CQ_FORMAT_TAGGED + 1 &&
                      (done.flags & FI_TAGGED) != 0;
    return {says ? done.tag : post.record->tag, span.bytes};
  }
  // Where the beginnings of two sequences are gone: the last send before the first receive that is
  // there is taken for its own, if nothing then is received before it is sent.
  bool align(const std::vector<size_t> &sent, const std::vector<size_t> &got, size_t &skip_sent,
             size_t &skip_got) {
    const auto sent_at = [&](size_t k) { return timeline_.spans[sent[k]].begin_ns; };
    const auto got_at = [&](size_t k) { return timeline_.spans[got[k]].end_ns; };
    while (skip_got < got.size() && got_at(skip_got) + kSlack < sent_at(0)) ++skip_got;
    if (skip_got == got.size()) return false;
    const size_t most = sent.size();
    for (size_t k = 0; k < most && sent_at(k) <= got_at(skip_got) + kSlack; ++k) skip_sent = k;
    // Several may be under way: back until no receive is too early.
    for (size_t tries = 0; tries < 1024; ++tries, --skip_sent) {
      bool sound = true;
      const size_t n = std::min(sent.size() - skip_sent, got.size() - skip_got);
      if (!take_steps(n)) return false;
      for (size_t k = 0; k < n && sound; ++k)
        sound = sent_at(skip_sent + k) <= got_at(skip_got + k) + kSlack;
      if (sound) return true;
      if (skip_sent == 0) return false;
    }
    return false;
  }

  Timeline &timeline_;
  uint64_t steps_left_;
  std::map<Key, const std::string *> addresses_;  // process, address vector, peer
  // By port, which the two names of one address share.
  std::unordered_map<std::string, std::vector<std::pair<size_t, const ObjectInfo *>>> targets_;
  std::vector<bool> lost_some_;               // processes
  std::map<Key, std::vector<size_t>> sends_;  // spans in order
  // By endpoint and by source, "" where that is not known.
  std::map<std::pair<size_t, uint64_t>, std::map<std::string, std::vector<size_t>>> received_;
};

}  // namespace

const ObjectInfo *Timeline::object(size_t process, uint64_t id) const {
  const auto &rows = index[process];
  const auto found = std::lower_bound(rows.begin(), rows.end(), id,
                                      [](const auto &row, uint64_t v) { return row.first < v; });
  return found != rows.end() && found->first == id ? found->second : nullptr;
}

std::string Timeline::object_name(size_t process, uint64_t id) const {
  const ObjectInfo *found = object(process, id);
  if (found == nullptr) return "object " + std::to_string(id);
  return found->element + " " + class_name(found->fclass) + " " + std::to_string(id);
}

Timeline build_timeline(const std::vector<Snapshot> &processes) {
  Timeline timeline;
  timeline.processes = &processes;
  timeline.offsets.resize(processes.size());
  timeline.unlinked.resize(processes.size());
  timeline.pairs_left_out.resize(processes.size());
  timeline.index.resize(processes.size());
  int64_t earliest = INT64_MAX;
  for (size_t p = 0; p < processes.size(); ++p) {
    const Snapshot &process = processes[p];
    for (const ObjectInfo &object : process.objects)
      timeline.index[p].emplace_back(object.id, &object);
    std::sort(timeline.index[p].begin(), timeline.index[p].end());
    ClockOffset &offset = timeline.offsets[p];
    if (p == 0) {
      offset.how = "the clock of the timeline";
    } else if (process.boot_id == processes[0].boot_id && !process.boot_id.empty()) {
      offset.how = "the same clock";
    } else {
      offset.is_estimate = true;
      offset.ns = process.clock.to_real_ns(0) - processes[0].clock.to_real_ns(0);
      offset.how = "from the wall clocks of the two hosts, as good as these agree";
    }
    for (size_t t = 0; t < process.threads.size(); ++t) {
      const size_t first = timeline.events.size();
      for (const Record &record : process.threads[t].records) {
        if (record.op == 0 || record.op >= kOpCount) continue;  // of a newer plugin
        Event &event = timeline.events.emplace_back();
        event.process = p;
        event.thread = t;
        event.record = &record;
        event.begin_ns = process.clock.to_ns(record.begin) + offset.ns;
        event.measured = record.duration != kNotMeasured;
        event.end_ns = event.begin_ns;
        if (event.measured) event.end_ns += int64_t(process.clock.length_ns(record.duration));
        earliest = std::min(earliest, event.begin_ns);
      }
      nest(timeline.events, first);
      guess_ends(timeline.events, first);
    }
  }
  if (timeline.events.empty()) earliest = 0;
  timeline.begin_monotonic_ns = earliest;
  for (Event &event : timeline.events) {
    event.begin_ns -= earliest;
    event.end_ns -= earliest;
  }
  size_t first = 0;
  // Events of a process stand together; link() looks at all from `first` on, so one at a time.
  std::vector<Event> all = std::move(timeline.events);
  timeline.events.clear();
  timeline.events.reserve(all.size());
  for (size_t p = 0; p < processes.size(); ++p) {
    first = timeline.events.size();
    timeline.first_event.push_back(first);
    timeline.first_span.push_back(timeline.spans.size());
    while (timeline.events.size() < all.size() && all[timeline.events.size()].process == p)
      timeline.events.push_back(all[timeline.events.size()]);
    link(timeline, p, first);
  }
  timeline.first_event.push_back(timeline.events.size());
  timeline.first_span.push_back(timeline.spans.size());
  Pairing pairing(timeline);
  pairing.run();
  pairing.estimate();
  for (const Event &event : timeline.events)
    timeline.end_ns = std::max(timeline.end_ns, event.end_ns);
  return timeline;
}

}  // namespace weft::trace
