// SPDX-License-Identifier: BSD-2-Clause
// Injector: applies the rules to calls. It decides which rule a call meets, does what the rule
// says, sends copies of messages, and hides from the caller that the hook sent them.
//
// Example:
//    ssize_t recvmsg(Injector &injector, Link link, fid_ep *ep, const fi_msg *msg) {
//      const uint64_t flags = FI_COMPLETION;
//      return injector.post(link, flagged(kRecv, *msg, flags, FI_MSG),
//                           [&] { return link.next.msg->recvmsg(ep, msg, flags); });
//    }
//
// transmit() is for messages, post() for all other operations, read_queue() and wait_queue() for
// completion queues. No member calls the provider with the mutex held. Not for parsing rules
// (rules.h), and not an op table (message_ops.h, post_ops.h, fault.cc).
#ifndef WEFT_PLUGINS_HOOK_FAULT_INJECTOR_H
#define WEFT_PLUGINS_HOOK_FAULT_INJECTOR_H

#include <weft/sdk/unit/stats.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "plugins/hook-fault/rules.h"
#include "plugins/hook-fault/state.h"

namespace weft::fault {

class Injector {
 public:
  // `memory`: bytes that all copies of messages may take together.
  Injector(const weft_instance *instance, Rules rules, size_t memory);

  // ---- objects (objects.cc) ----

  std::unique_ptr<State> enter(fid_ep *ep);
  std::unique_ptr<State> enter(fid_cq *cq);
  void forget(EndpointState *endpoint);
  void forget(QueueState *queue);
  // The provider has bound `other` to the endpoint, or made an alias of it.
  void note_bound(Link link, EndpointState &endpoint, struct fid *other, uint64_t flags);
  void note_alias(const EndpointState &original, EndpointState &alias, uint64_t flags);
  // Sends what the endpoint holds and waits for threads that are busy with it. No thread becomes
  // busy with it afterwards, unless the provider refuses to close it.
  void begin_close(EndpointState &endpoint);
  void close_failed(EndpointState &endpoint);
  // How often each rule fired, and how often one could not be applied.
  const sdk::CounterList &stats() const { return counters_; }

  // ---- posts ----

  // An operation that is no message.
  template <class Call>
  ssize_t post(Link link, const Attempt &attempt, Call call) {
    if ((concerned_ >> attempt.operation & 1) == 0 && !any_full_) return call();
    EndpointState &endpoint = endpoint_of(link);
    Verdict verdict;
    {
      std::lock_guard lock(mutex_);
      if (endpoint.full) return -FI_EAGAIN;
      verdict =
          judge(endpoint.calls, endpoint.ordinal, attempt.operation, attempt.size, attempt.peer);
    }
    if (verdict.rule != nullptr) {
      if (const auto rc = fail_call(link, endpoint, attempt, verdict, call)) return *rc;
    }
    return counted(endpoint, attempt.operation, call());
  }
  template <class Message, class Call>
  ssize_t post_msg(Link link, Operation operation, uint64_t kind, const Message *msg,
                   uint64_t flags, Call call) {
    if (msg == nullptr) return call();
    return post(link, flagged(operation, *msg, flags, kind), call);
  }

  // A message: a rule may also lose, copy, change or hold it. `call` is the call as the caller made
  // it, `issue` sends a copy. `described`: the call has descriptors of registered memory.
  template <class Call, class Again>
  ssize_t transmit(Link link, const Attempt &attempt, const iovec *iov, size_t count,
                   bool described, Call call, Again issue) {
    if (rules_.rules.empty()) return call();
    EndpointState &endpoint = endpoint_of(link);
    tick(endpoint);
    const auto go_on = [&] {
      const ssize_t rc = call();
      if (rc == 0) message_went(endpoint);
      return counted(endpoint, attempt.operation, rc);
    };
    std::unique_lock lock(mutex_);
    if (endpoint.full) return -FI_EAGAIN;
    const Verdict verdict =
        judge(endpoint.calls, endpoint.ordinal, attempt.operation, attempt.size, attempt.peer);
    if (verdict.rule == nullptr) {
      lock.unlock();
      return go_on();
    }
    const Rule &rule = *verdict.rule;
    if (rule.action >= Action::kError) {
      lock.unlock();
      const auto rc = fail_call(link, endpoint, attempt, verdict, call);
      return rc ? *rc : go_on();
    }
    const bool possible = rule.action == Action::kDrop
                              ? can_drop(endpoint, attempt)
                              : can_copy(endpoint, attempt, rule, described);
    if (!possible) {
      note_not_applicable(rule);
      lock.unlock();
      return go_on();
    }
    if (rule.action == Action::kDrop) {
      note(endpoint.calls, verdict);
      drop(endpoint, attempt, lock);
      return 0;
    }
    std::unique_ptr<Copy> copy = copy_of(endpoint, attempt, verdict, iov, count);
    if (rule.action == Action::kReorder || rule.action == Action::kDelay) {
      note(endpoint.calls, verdict);
      hold(endpoint, attempt, rule, std::move(copy), std::move(issue));
      return 0;
    }
    ++endpoint.calls.fired[verdict.index];  // before another thread asks whether it may
    lock.unlock();
    const bool kept = !attempt.is_injected();
    const bool twice = rule.action == Action::kDuplicate;
    const ssize_t rc = twice ? call() : issue_copy(copy, issue, kept);
    if (rc != 0) {
      discard(copy);
      return undone(endpoint, verdict, attempt.operation, rc);
    }
    counters_[verdict.index].add();
    message_went(endpoint);
    // If the provider has no room for the duplicate, it is lost.
    if (twice && issue_copy(copy, issue, kept) != 0) discard(copy);
    return 0;
  }

  // ---- completion queues (completions.cc) ----

  template <class Read>
  ssize_t read_queue(Link link, void *buf, size_t count, fi_addr_t *src, Read read) {
    if (rules_.rules.empty()) return read();
    QueueState &queue = queue_of(link);
    if (const auto rc = before_read(queue)) return *rc;
    return take_completions(link, queue, buf, count, src, read);
  }

  template <class Read, class Wait>
  ssize_t wait_queue(Link link, void *buf, size_t count, fi_addr_t *src, int timeout, Read read,
                     Wait wait) {
    if (rules_.rules.empty()) return wait(timeout);
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::milliseconds(std::max(timeout, 0));
    for (bool first = true;; first = false) {
      const ssize_t rc = first ? read_queue(link, buf, count, src, read)
                               : take_completions(link, queue_of(link), buf, count, src, read);
      if (rc != -FI_EAGAIN) return rc;
      flush_all();
      // Short sleeps: meanwhile another thread may make up a completion, or hold a message that the
      // provider has no room for.
      const auto begin = Clock::now();
      if (timeout >= 0 && begin >= end) return -FI_EAGAIN;
      auto slice = std::chrono::milliseconds(held_ != 0 ? 10 : 100);
      if (timeout >= 0)
        slice = std::min(slice, std::chrono::ceil<std::chrono::milliseconds>(end - begin));
      const ssize_t woken = take_completions(link, queue_of(link), buf, count, src,
                                             [&] { return wait(int(slice.count())); });
      if (woken != -FI_EAGAIN && woken != 0) return woken;
      // The sleep was cut short: a call of fi_cq_signal ends the wait.
      if (Clock::now() < begin + slice) return -FI_EAGAIN;
    }
  }
  ssize_t read_error(Link link, fid_cq *cq, fi_cq_err_entry *entry, uint64_t flags);
  bool has_made_up(const QueueState &queue);

  // Sends all messages that are held, on all endpoints.
  void flush_all();

 private:
  static constexpr uint64_t kReorderPatience = 16;  // clock steps to wait for another message

  // The rule that applies to a call; null: none.
  struct Verdict {
    const Rule *rule = nullptr;
    size_t index = 0;
    uint64_t call = 0;
  };

  // ---- rules (injector.cc) ----

  // Counts the call and finds the first rule that applies to it. With the mutex held.
  Verdict judge(Calls &calls, uint64_t ordinal, Operation operation, size_t size, fi_addr_t peer);
  void note(Calls &calls, const Verdict &verdict);
  void note_not_applicable(const Rule &rule);
  ssize_t counted(EndpointState &endpoint, Operation operation, ssize_t rc);
  ssize_t undone(EndpointState &endpoint, const Verdict &verdict, Operation operation, ssize_t rc);

  // Actions that need no copy. Nothing: the call goes on.
  template <class Call>
  std::optional<ssize_t> fail_call(Link link, EndpointState &endpoint, const Attempt &attempt,
                                   const Verdict &verdict, Call call) {
    if (verdict.rule->action != Action::kKill) return refuse(endpoint, attempt, verdict);
    kill(link, endpoint, verdict);
    return call();
  }
  std::optional<ssize_t> refuse(EndpointState &endpoint, const Attempt &attempt,
                                const Verdict &verdict);
  std::optional<ssize_t> complete_with_error(EndpointState &endpoint, const Attempt &attempt,
                                             const Verdict &verdict,
                                             std::unique_lock<std::mutex> &lock);
  void kill(Link link, EndpointState &endpoint, const Verdict &verdict);
  // The four below with the mutex held; drop() unlocks it.
  bool can_drop(const EndpointState &endpoint, const Attempt &attempt) const;
  bool can_copy(const EndpointState &endpoint, const Attempt &attempt, const Rule &rule,
                bool described) const;
  void drop(EndpointState &endpoint, const Attempt &attempt, std::unique_lock<std::mutex> &lock);
  std::unique_ptr<Copy> copy_of(const EndpointState &endpoint, const Attempt &attempt,
                                const Verdict &verdict, const iovec *iov, size_t count);

  // ---- copies and held messages (held.cc) ----

  ssize_t issue_copy(std::unique_ptr<Copy> &copy, const Issue &issue, bool kept);
  void discard(std::unique_ptr<Copy> &copy);
  std::unique_ptr<Copy> take_copy(void *context);
  void hold(EndpointState &endpoint, const Attempt &attempt, const Rule &rule,
            std::unique_ptr<Copy> copy, Issue issue);
  void tick(EndpointState &endpoint);
  void message_went(EndpointState &endpoint);
  void flush(EndpointState &endpoint, bool all);
  std::vector<EndpointState *> pinned(const std::vector<EndpointState *> &endpoints);
  void flush_pinned(const std::vector<EndpointState *> &endpoints, bool all);

  // ---- completions (completions.cc) ----

  bool completes(const EndpointState &endpoint, const Attempt &attempt) const;
  bool can_make_up(const EndpointState &endpoint, const Attempt &attempt) const;
  QueueState *make_up(EndpointState &endpoint, const Attempt &attempt, int err);
  void wake(QueueState *queue);
  std::optional<ssize_t> before_read(QueueState &queue);
  bool has_error_first(QueueState &queue);
  ssize_t add_made_up(QueueState &queue, char *entries, size_t have, size_t room, fi_addr_t *src);
  size_t restore(QueueState &queue, char *entries, size_t count, fi_addr_t *src);
  ssize_t sort_error(Link link, QueueState &queue);

  template <class Read>
  ssize_t take_completions(Link link, QueueState &queue, void *buf, size_t count, fi_addr_t *src,
                           Read read) {
    for (;;) {
      // Completions behind an error wait until the caller has read the error.
      if (has_error_first(queue)) return -FI_EAVAIL;
      const ssize_t rc = read();
      if (rc == -FI_EAVAIL) {
        const ssize_t sorted = sort_error(link, queue);
        if (sorted == 0) continue;
        return sorted;
      }
      if (rc <= 0 && rc != -FI_EAGAIN) return rc;
      if (queue.stride == 0) return rc;
      auto *entries = static_cast<char *>(buf);
      const size_t left =
          rc > 0 ? restore(queue, entries, static_cast<size_t>(rc), src) : size_t{0};
      const ssize_t all = add_made_up(queue, entries, left, count, src);
      if (rc > 0 && all == -FI_EAGAIN) continue;  // all entries were the hook's own
      return all;
    }
  }

  const weft_instance *instance_;
  const Rules rules_;
  const size_t memory_;
  uint32_t concerned_ = 0;  // operations that some rule is for
  std::atomic<bool> any_full_{false};
  std::atomic<size_t> held_{0};  // messages, on all endpoints

  // Never held in a call of the provider. It guards all that follows, and the states.
  std::mutex mutex_;
  std::condition_variable idle_;  // no thread is busy with an endpoint any more
  uint64_t ordinals_ = 0;
  std::vector<EndpointState *> endpoints_;
  std::unordered_map<Copy *, std::unique_ptr<Copy>> copies_;  // that the provider is sending
  size_t copied_ = 0;                                         // bytes of all copies
  sdk::CounterList counters_;  // one per rule in their order, and not_applicable
};

}  // namespace weft::fault

#endif
