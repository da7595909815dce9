// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/transmit.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

#include "plugins/cxi/control.h"
#include "plugins/cxi/deferred.h"
#include "plugins/cxi/nic/return_codes.h"
#include "plugins/cxi/nic_counter.h"

namespace weft::cxi {
namespace {

constexpr size_t kUntaggedLong = 256, kAllLong = size_t{1} << 15;

// Between two tries of a message that finds no receive.
constexpr uint64_t kFirstPauseNs = 5'000, kLastPauseNs = 2'000'000;

// What the endpoints of peers do by themselves names their NIC, and no rank.
bool is_from(const Peer &peer, const Event &event) {
  return !is_logical(event.initiator) && peer == Peer::of(event.initiator, event.vni);
}

}  // namespace

Transmit::Transmit(const Ports &ports, sdk::Engine &engine, sdk::TxContext &tx,
                   const Settings &settings, Counters &counters, size_t size, bool retries)
    : ports_(ports),
      engine_(engine),
      tx_(tx),
      settings_(settings),
      counters_(counters),
      ops_(size),
      retries_(retries),
      retry_time_ns_(settings.rnr_max_timeout_ns) {}

Result<void> Transmit::open(bool waits) {
  // An acknowledgement of each operation, a read of each long one, and a notice of each match; and
  // answers of peers.
  const size_t size = ops_.limit(), answers = PeerWatch::kMostAsked;
  WEFT_TRY(events_, ports_.lni->event_queue({.places = 3 * size + 256 + answers,
                                             .reserved = size + 64 + answers,
                                             .fill_percent = settings_.cq_fill_percent,
                                             .waits = waits}));
  WEFT_TRY(queue_, ports_.lni->transmit_queue(size + 8, profile_ = ports_.profile));
  WEFT_CHECK(open_source());
  WEFT_CHECK(open_done());
  WEFT_CHECK(links_.wait("messages of an endpoint", *source_, [this] { return read_link(); }));
  long_.resize(std::min(kAllLong, kUntaggedLong + size));
  transactions_.resize(kTransactions);
  free_untagged_ = FreeNumbers(0, kUntaggedLong);
  free_tagged_ = FreeNumbers(kUntaggedLong, long_.size());
  free_transactions_ = FreeNumbers(0, kTransactions);
  return {};
}

// Whatever is mapped for a long message, by its LAC and address: the target knows both from it.
Result<void> Transmit::open_source() {
  WEFT_TRY(source_, ports_.lni->portal({.is_matching = true, .no_rendezvous = true}, *events_));
  WEFT_CHECK(ports_.map(*source_, kRendezvousIndex));
  source_->set_state(PortalState::kEnabled, kIgnoreDrops);
  for (const uint8_t lac : ports_.lni->lacs()) {
    Entry whole{.memory = {.number = Memory::kLent, .lac = lac},
                .length = UINT64_MAX,
                .match_bits = MessageBits().with_rendezvous(0, lac, 0).bits,
                .ignore_bits = ~MessageBits().with_rendezvous(0, kLacMask, 0).bits};
    whole.op_get = true;
    whole.unlink_disable = true;
    links_.append(*source_, whole);
  }
  return {};
}

// While it opens nothing else comes.
bool Transmit::read_link() {
  const Event *const event = events_->peek(0);
  if (event == nullptr) return false;
  if (event->type == EventType::kLink) links_.on_link(*event);
  events_->ack(1);
  return true;
}

Result<void> Transmit::open_done() {
  WEFT_TRY(done_, ports_.lni->portal({.is_matching = true, .no_rendezvous = true}, *events_));
  WEFT_CHECK(ports_.map(*done_, kDoneIndex));
  done_->set_state(PortalState::kEnabled, kIgnoreDrops);
  Entry notice{.ignore_bits = ~uint64_t{0}};
  notice.op_put = true;
  notice.unlink_disable = true;
  links_.append(*done_, notice);
  return {};
}

void Transmit::close() {
  engine_.set_deadline(*this, 0);
  done_.reset();
  source_.reset();
  queue_.reset();
  ops_.visit([this](Op &op) {
    if (op.window.number != 0) ports_.lni->unmap(std::exchange(op.window, {}));
  });
  events_.reset();
}

// ---- calls ----

bool Transmit::is_saturated() {
  saturated_ |= events_->take_saturation();
  if (saturated_ && events_->peek(0) == nullptr) saturated_ = false;
  return saturated_;
}

Transmit::Op *Transmit::take() {
  if (is_saturated()) return nullptr;
  Op *const op = ops_.take();
  if (op == nullptr) return nullptr;
  op->is_message = op->is_rendezvous = op->is_inject = false;
  op->acknowledged = op->read = op->matched = op->wants_match = op->in_flight = false;
  op->is_awaited = op->is_canceled = false;
  op->is_deferred = op->is_work = false;
  op->tries = 0;
  op->completion = nullptr;
  op->writes_back = op->is_counted = false;
  op->number = UINT32_MAX;
  op->sequence = 0;
  op->rc = Rc::kOk;
  op->transfer = Transfer{};
  op->transfer.eq = events_.get();
  op->token = tokens_.add(*op);
  op->transfer.user_ptr = op->token << kOwnerShift | kOperation;
  op->transfer.initiator = ports_.sender;
  return op;
}

sdk::Cntr *Transmit::counter_of(const Op &op) const {
  return op.is_message ? tx_.send : op.flags & FI_WRITE ? tx_.write : tx_.read;
}

// A message that is refused goes again, and has not failed.
void Transmit::count_in_nic(Op &op, sdk::Cntr *counter) {
  if (counter == nullptr || counter->store() == nullptr) return;
  if (op.is_message && (op.is_rendezvous || op.wants_match || !ports_.counts_successes_alone))
    return;
  op.is_counted = true;
  op.transfer.counter = &static_cast<NicCounter &>(*counter->store()).counter();
  op.transfer.counts_bytes = counter->counts_bytes();
  op.transfer.counts_failures = !op.is_message;
}

void Transmit::give(Op &op) {
  op.context = nullptr;  // nobody finds it any more
  op.is_awaited = false;
  if (op.window.number != 0) ports_.lni->unmap(std::exchange(op.window, {}));
  if (op.number != UINT32_MAX) {
    (op.is_rendezvous ? long_ : transactions_)[op.number] = nullptr;
    FreeNumbers &free = !op.is_rendezvous           ? free_transactions_
                        : op.number < kUntaggedLong ? free_untagged_
                                                    : free_tagged_;
    free.give(op.number);
  }
  tokens_.remove(op.token);
  ops_.give(&op);
}

bool Transmit::number_long(Op &op, bool tagged) {
  FreeNumbers &free = tagged ? free_tagged_ : free_untagged_;
  if (free.empty()) return false;
  if (op.window.number == 0) {  // of a device it is mapped already
    auto window = ports_.lni->map(op.transfer.local, op.transfer.length, Lni::kRead | Lni::kRemote);
    if (!window) return false;
    op.window = *window;
  }
  ports_.lni->lend(op.window, key_of(op.transfer.to.nid, op.profile.vni, op.transfer.to.pid));
  counters_.long_messages.add();
  op.is_rendezvous = true;
  op.number = free.take();
  long_[op.number] = &op;
  return true;
}

bool Transmit::number_transaction(Op &op) {
  if (free_transactions_.empty()) return false;
  op.wants_match = true;
  op.number = free_transactions_.take();
  transactions_[op.number] = &op;
  return true;
}

ssize_t Transmit::post(Op &op, bool fence) {
  op.peer = {op.transfer.to.nid, op.transfer.to.pid, op.profile.vni};
  op.sequence = ++sequence_;
  if (!use(op.profile)) return -FI_EINVAL;
  if (fence) {
    if (waiting_ != 0) return -FI_EAGAIN;  // what it is to wait for has not left yet
    if (const int rc = queue_->fence(); rc != 0) return rc;
  }
  if (op.is_message && !parked_.empty()) {
    const auto found = parked_.find(op.peer.key());
    if (found != parked_.end() &&
        (!found->second.resumes || found->second.next != found->second.waiting.size())) {
      found->second.waiting.push_back(&op);
      ++waiting_;
      injected_ += op.is_inject;
      return 0;
    }
  }
  const int rc = start(op);
  if (rc == 0) injected_ += op.is_inject;
  return rc;
}

bool Transmit::use(const Profile &profile) {
  if (profile == profile_) return true;
  if (!queue_->set_profile(profile)) return false;
  profile_ = profile;
  return true;
}

int Transmit::start(Op &op) {
  use(op.profile);  // it may go once more, behind those of another one
  const int rc = queue_->post(op.transfer);
  if (rc != 0) return rc;
  op.in_flight = true;
  if (!parked_.empty() && op.is_message)
    if (const auto found = parked_.find(op.peer.key()); found != parked_.end())
      ++found->second.in_flight;
  return 0;
}

// ---- events ----

bool Transmit::read_events() {
  size_t taken = 0;
  // The application is to read its completions first.
  while (taken != settings_.eq_ack_batch && !tx_.is_full()) {
    const Event *const place = events_->peek(taken);
    if (place == nullptr) break;
    const Event event = *place;
    ++taken;
    switch (event.type) {
      case EventType::kAck:
      case EventType::kReply:
      case EventType::kCommandFailure:  // of a deferred one
        on_acknowledged(event);
        break;
      case EventType::kGet:
        on_read(event);
        break;
      case EventType::kPut:
        on_matched(event);
        break;
      default:
        break;
    }
  }
  if (taken == 0) return false;
  events_->ack(taken);
  if (waiting_ != 0)
    for (auto &[key, parked] : parked_)
      if (parked.resumes) go_on(parked);
  return true;
}

void Transmit::on_acknowledged(const Event &event) {
  if (event.rendezvous)
    return;  // of no command: a peer has sent a long message to a portal of ours
  if (event.user_ptr & kPeerQuestion)
    return on_peer(Peer::of_key(event.user_ptr >> kOwnerShift), event.rc);
  Op *const found = tokens_.find(event.user_ptr >> kOwnerShift);
  if (found == nullptr) return;
  Op &op = *found;
  if (event.user_ptr & kEndpointQuestion) return on_endpoint(op, event.rc);
  const bool counted = std::exchange(op.in_flight, false);  // not if a counter has started it
  if (op.is_message && event.rc == Rc::kPtDisabled) return on_refused(op, counted);
  if (retries_ && op.is_message && event.rc == Rc::kEntryNotFound && retry(op)) return;
  if (op.is_message && counted && !parked_.empty()) {
    if (const auto found = parked_.find(op.peer.key()); found != parked_.end()) {
      --found->second.in_flight;
      on_returned(found->second);
    }
  }
  op.acknowledged = true;
  op.rc = event.rc;
  if (event.type == EventType::kCommandFailure) op.is_counted = false;  // it has not begun
  // The NIC has found the receive by itself.
  if (event.list == List::kPriority) op.matched = true;
  if (event.rc == Rc::kPtlteNotFound && is_the_key_in_doubt(op)) return;
  settle(op);
}

// An optimized region has portals of its own. Where there is none, the region may be missing, or
// the whole endpoint: the portals for other regions, which each endpoint has, tell.
bool Transmit::is_the_key_in_doubt(Op &op) {
  return !op.is_message && is_optimized_index(op.transfer.to.index) &&
         control_->ask(op.peer, *events_, op.transfer.user_ptr | kEndpointQuestion);
}

// Then it is the key, and the error that of any other key that the peer does not know.
void Transmit::on_endpoint(Op &op, Rc answer) {
  op.rc = is_gone(answer) ? answer : Rc::kEntryNotFound;
  settle(op);
}

// It found no receive: it goes again, later and later.
bool Transmit::retry(Op &op) {
  if (op.is_canceled) return false;
  const uint64_t now = sdk::now_ns();
  if (op.tries == 0) op.until = now + retry_time_ns_;
  if (now >= op.until) return false;
  counters_.messages_retried.add();
  op.again_at = now + std::min(kFirstPauseNs << std::min(op.tries, 16u), kLastPauseNs);
  ++op.tries;
  again_.push_back(&op);
  on_deadline();
  return true;
}

void Transmit::on_deadline() {
  const uint64_t now = sdk::now_ns();
  bool posted = false;
  again_at_ = 0;
  std::erase_if(again_, [&](Op *op) {
    if (op->again_at <= now && start(*op) == 0) return posted = true;
    if (op->again_at <= now) op->again_at = now + kFirstPauseNs;  // the queue is full
    if (again_at_ == 0 || op->again_at < again_at_) again_at_ = op->again_at;
    return false;
  });
  if (posted) queue_->flush();
  if (look_at_ != 0 && now >= look_at_) look_at_peers(now);
  schedule();
}

void Transmit::schedule() {
  const bool looks_first = look_at_ != 0 && (again_at_ == 0 || look_at_ < again_at_);
  engine_.set_deadline(*this, looks_first ? look_at_ : again_at_);
}

// The target has read the rest of a message.
void Transmit::on_read(const Event &event) {
  const uint32_t number = rendezvous_of(event.match_bits);
  Op *const op = number < long_.size() ? long_[number] : nullptr;
  if (op == nullptr || !is_from(op->peer, event)) return;  // it names none of ours
  op->read = true;
  if (event.rc != Rc::kOk) op->rc = event.rc;
  settle(*op);
}

void Transmit::on_matched(const Event &event) {
  const uint64_t number = transaction_of(event.match_bits);
  Op *const op = number < transactions_.size() ? transactions_[number] : nullptr;
  if (op == nullptr || !is_from(op->peer, event)) return;
  op->matched = true;
  settle(*op);
}

void Transmit::settle(Op &op) {
  if (!op.acknowledged) return;
  if (op.rc == Rc::kOk && ((op.is_rendezvous && !op.read) || (op.wants_match && !op.matched))) {
    op.is_awaited = true;
    if (look_at_ == 0) start_watch();
    return;
  }
  complete(op);
}

void Transmit::drop(Op &op) {
  if (op.completion != nullptr) op.completion->users.fetch_sub(1);
  give(op);
}

void Transmit::cancel(Op &op) {
  op.rc = Rc::kCanceled;
  if (sdk::Cntr *const counter = counter_of(op)) counter->add_error();
  report(op);
  give(op);
}

bool Transmit::cancel(const void *context) {
  Op *const found = ops_.find([context](const Op &op) {
    return op.context == context && !op.is_deferred && !op.is_canceled;
  });
  if (found == nullptr) return false;
  found->is_canceled = true;
  if (!take_back(*found)) return true;
  found->rc = Rc::kCanceled;
  complete(*found);
  return true;
}

bool Transmit::take_back(Op &op) {
  if (const auto at = std::ranges::find(again_, &op); at != again_.end()) {
    again_.erase(at);
    return true;
  }
  const auto found = parked_.find(op.peer.key());
  if (found == parked_.end()) return false;
  Parked &parked = found->second;
  const auto from = parked.waiting.begin() + ptrdiff_t(parked.next);
  const auto at = std::find(from, parked.waiting.end(), &op);
  if (at == parked.waiting.end()) return false;
  parked.waiting.erase(at);
  --waiting_;
  on_returned(parked);
  return true;
}

// fi_trigger.3: a counter of its own tells of deferred work, and those of the endpoint do not.
void Transmit::complete_work(Op &op) {
  if (sdk::Cntr *const counter = op.completion) {
    count(op, *counter);
    if (op.writes_back) static_cast<NicCounter &>(*counter->store()).counter().request_write_back();
    counter->users.fetch_sub(1);
  }
  report(op);
  give(op);
}

// What the NIC has counted is only told.
void Transmit::count(const Op &op, sdk::Cntr &counter) {
  if (op.is_counted && (op.rc == Rc::kOk || op.transfer.counts_failures)) {
    if (op.rc != Rc::kOk) static_cast<NicCounter &>(*counter.store()).on_error_in_nic();
    counter.look();
  } else if (op.rc == Rc::kOk) {
    counter.add_events(1, op.length);
  } else {
    counter.add_error();
  }
}

void Transmit::report(const Op &op) {
  if (tx_.cq == nullptr) return;
  if (op.rc != Rc::kOk)
    tx_.cq->push_error({.context = op.context,
                        .flags = op.flags,
                        .len = op.length,
                        .err = op.is_canceled ? FI_ECANCELED : errno_of(op.rc),
                        .prov_errno = int(op.rc)});
  else if (op.report)
    tx_.cq->push({.context = op.context, .flags = op.flags, .len = op.length});
}

void Transmit::complete(Op &op) {
  if (op.is_deferred)
    deferred_->on_done(op);
  else
    injected_ -= op.is_inject;
  if (op.is_work) return complete_work(op);
  if (sdk::Cntr *const counter = counter_of(op)) count(op, *counter);
  report(op);
  give(op);
}

}  // namespace weft::cxi
