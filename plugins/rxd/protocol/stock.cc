// SPDX-License-Identifier: BSD-2-Clause
// The life of a conversation with a stock peer: begin, timer, end.
#include "plugins/rxd/protocol/stock.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <string>

namespace weft::rxd {
namespace {

// A request fails after so much time and so many refusals. Until then the peer may only lack
// resources.
constexpr uint64_t kRefusedFor = 1'000'000'000;
constexpr uint32_t kRefusals = 8;
constexpr uint32_t kMinTries = 5;  // tries before a peer is given up: we may not have been running
constexpr uint64_t kDoubtAfter = 100'000'000;  // of silence: another process may have the address

}  // namespace

std::unique_ptr<Conversation> make_stock_conversation(Core &core, Peer &peer) {
  return std::make_unique<StockConversation>(core, peer);
}

StockConversation::StockConversation(Core &core, Peer &peer)
    : core_(core), peer_(peer), heard_(core.carrier().now_ns()) {}

StockConversation::~StockConversation() {
  drop_answers();
}

// ---- time ----

void StockConversation::on_deadline(uint64_t now) {
  if (lost_ || asking_) {
    if (!asking_) return;
    if (now - asked_at_ >= core_.settings().peer_timeout_ns && attempts_ > kMinTries) {
      asking_ = false;
      core_.trust(peer_);
      while (TxOp *op = waiting_.first) {
        waiting_.first = op->next;
        if (waiting_.first == nullptr) waiting_.last = nullptr;
        fail(*op, FI_ETIMEDOUT);
      }
      return set_timer();
    }
    if (asked_) ping();
    ask_later();
    return set_timer();
  }
  const uint64_t quiet = now - std::min(now, std::max(heard_, since_));
  const bool gone = quiet >= core_.settings().peer_timeout_ns && tries_ >= kMinTries;
  if (cursor_ != acked_) {
    const uint64_t age = age_of_first(now);
    if (age + 1000 < time_out()) return set_timer();
    if (gone) return give_up(FI_ETIMEDOUT, "gave up a stock peer that did not answer");
    if (refused_ != 0 && refusals_ >= kRefusals && now - refused_ >= kRefusedFor) {
      TxOp *op = items_[0].op;
      items_.pop();
      refused_ = 0;
      take_back();
      if (op != nullptr) fail(*op, FI_EACCES);
      return output();
    }
    core_.counters().timeouts.add_alone();
    ++backoff_;
    ++tries_;
    if (quiet >= kDoubtAfter) core_.doubt(peer_);
    threshold_ = std::max(congestion_ / 2, kLeastWindow);
    congestion_ = 2;
    rewind();
    return output();
  }
  if (!waits()) return;
  if (gone) return give_up(FI_ETIMEDOUT, "gave up a stock peer that did not send the rest");
  ask_at_ = now;
  if (quiet >= kAskAfter + kDoubtAfter) core_.doubt(peer_);
  ++tries_;
  ping();
  set_timer();
}

// ---- acknowledgements ----

// The peer accepted nothing from acked_ on: the items there go back to wait, for new numbers.
void StockConversation::take_back() {
  Queue ops;
  Answer *answers = nullptr, *last = nullptr;
  for (size_t i = 0; i < items_.size(); ++i) {
    Item &item = items_[i];
    if (item.op != nullptr) {
      forget_awaited(*item.op);
      item.op->started = false;
      item.op->next = nullptr;
      (ops.last != nullptr ? ops.last->next : ops.first) = item.op;
      ops.last = item.op;
    } else if (item.answer != nullptr) {
      item.answer->next = nullptr;
      (last != nullptr ? last->next : answers) = item.answer;
      last = item.answer;
    }
  }
  items_.clear();
  if (ops.first != nullptr) {
    ops.last->next = waiting_.first;
    if (waiting_.first == nullptr) waiting_.last = ops.last;
    waiting_.first = ops.first;
  }
  if (answers != nullptr) {
    last->next = answers_;
    if (answers_ == nullptr) last_answer_ = last;
    answers_ = answers;
  }
  taken_back_ = std::max(taken_back_, highest_);
  next_ = highest_ = acked_;
  hurried_ = kNoNumber;
  rewind();
}

// ---- the end ----

void StockConversation::fail_all(int err) {
  while (items_.size() != 0) {
    const Item item = items_[0];
    items_.pop();
    if (item.op != nullptr) {
      fail(*item.op, err);
    } else {
      item.answer->result.reset();
      pool_.give(item.answer);
    }
  }
  drop_answers();
  for (size_t i = 0; i < awaited_.size() && awaited_count_ != 0; ++i) {
    if (awaited_[i] != nullptr) fail(*awaited_[i], err);
  }
  drop_arriving(err);
  at_ = 0;
  same_ = 0;
  backoff_ = 0;
  refused_ = 0;
  refusals_ = 0;
}

// The peer seems to be gone. How much of our packets it received is unknown; it is asked for the
// expected number before the next operation.
void StockConversation::give_up(int err, const char *why) {
  const std::string text = std::string("rxd ") + why + ": " + peer_.address.to_string();
  if (err == FI_ETIMEDOUT) core_.counters().timed_out.add_alone();
  core_.upper().warn_of_peer(text.c_str());
  fail_all(err);
  next_ = cursor_ = pinged_ = acked_;
  lost_ = true;
  asking_ = false;
  core_.trust(peer_);
  while (TxOp *op = waiting_.first) {
    waiting_.first = op->next;
    if (waiting_.first == nullptr) waiting_.last = nullptr;
    fail(*op, err);
  }
  set_timer();
}

void StockConversation::end(int err, Queue *unsent) {
  fail_all(err);
  core_.set_deadline(peer_, 0);
  while (TxOp *op = waiting_.first) {
    waiting_.first = op->next;
    if (waiting_.first == nullptr) waiting_.last = nullptr;
    if (unsent == nullptr) {
      fail(*op, err);
      continue;
    }
    forget_awaited(*op);
    op->next = nullptr;
    (unsent->last != nullptr ? unsent->last->next : unsent->first) = op;
    unsent->last = op;
  }
}

// Stock's dialect has no close; but the peer should not wait for an acknowledgement.
void StockConversation::part() {
  on_idle();
}

void StockConversation::drop_answers() {
  while (Answer *answer = answers_) {
    answers_ = answer->next;
    answer->result.reset();
    pool_.give(answer);
  }
  last_answer_ = nullptr;
}

}  // namespace weft::rxd
