// SPDX-License-Identifier: BSD-2-Clause
// Sends and the receives that took their messages.
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <algorithm>
#include <climits>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "tools/trace/linking.h"

namespace weft::trace {
namespace {

// How far the times of two processes of one host may differ.
constexpr int64_t kSlack = 200;  // ns

bool is_message(Op op) {
  return op >= Op::send && op <= Op::trecvmsg;
}
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

  // Estimates the difference of clocks from delays in both directions: no message is received
  // before it is sent.
  void estimate() {
    const auto &processes = *timeline_.processes;
    // The least delays by the uncorrected clocks, from 0 to p and from p to 0.
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

  // A limit against damaged traces: a few seconds, beside 20 steps per span; a good trace needs
  // less.
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
      } else if (span.end == SpanEnd::kCompleted) {
        // For a shared receive context the meaning of a source depends on the endpoint.
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
    // Messages of one tag and size are received in the order in which they were sent, so each (tag,
    // size) is a sequence of its own.
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
          break;  // the sequences do not agree: better no pair than a wrong one
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
    // The message may have another tag than the receive (ignored bits). Only the format TAGGED has
    // it.
    const Record &done = *timeline_.events[span.completion].record;
    const ObjectInfo *queue = timeline_.object(span.process, done.object);
    const bool says = queue != nullptr && queue->cq_format == FI_CQ_FORMAT_TAGGED + 1 &&
                      (done.flags & FI_TAGGED) != 0;
    return {says ? done.tag : post.record->tag, span.bytes};
  }
  // Aligns two sequences whose beginnings are lost. The first receive is paired with the last send
  // before it, unless a later message would then be received before it is sent.
  bool align(const std::vector<size_t> &sent, const std::vector<size_t> &got, size_t &skip_sent,
             size_t &skip_got) {
    const auto sent_at = [&](size_t k) { return timeline_.spans[sent[k]].begin_ns; };
    const auto got_at = [&](size_t k) { return timeline_.spans[got[k]].end_ns; };
    while (skip_got < got.size() && got_at(skip_got) + kSlack < sent_at(0)) ++skip_got;
    if (skip_got == got.size()) return false;
    const size_t most = sent.size();
    for (size_t k = 0; k < most && sent_at(k) <= got_at(skip_got) + kSlack; ++k) skip_sent = k;
    // Several messages may have been in flight: goes back until no receive is too early.
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
  // By port, which is the same in both forms of an address (see same_address).
  std::unordered_map<std::string, std::vector<std::pair<size_t, const ObjectInfo *>>> targets_;
  std::vector<bool> lost_some_;               // processes
  std::map<Key, std::vector<size_t>> sends_;  // spans in order
  // By endpoint and by source, "" where that is not known.
  std::map<std::pair<size_t, uint64_t>, std::map<std::string, std::vector<size_t>>> received_;
};

}  // namespace

void pair_ends(Timeline &timeline) {
  Pairing pairing(timeline);
  pairing.run();
  pairing.estimate();
}

}  // namespace weft::trace
