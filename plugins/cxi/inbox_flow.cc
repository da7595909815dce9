// SPDX-License-Identifier: BSD-2-Clause
// What happens where the NIC has no place for messages or receives.
#include <rdma/fi_errno.h>
#include <weft/sdk/unit/log.h>
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "plugins/cxi/control.h"
#include "plugins/cxi/inbox.h"

namespace weft::cxi {
namespace {

constexpr uint16_t kCollected = UINT16_MAX;  // buffer_id of searches
constexpr int kRounds = 1 << 16;
constexpr size_t kLowShare = 8;  // of the list entries: with less than that left they are short

const char *text_of(Reason reason) {
  switch (reason) {
    case Reason::kEqFull:
      return "its event queue was full: the application reads its completions too slowly";
    case Reason::kNoMatch:
      return "no overflow buffer was there";
    case Reason::kUnexpectedFail:
    case Reason::kSmUnexpectedFail:
      return "no list entry was left for a message without a receive";
    case Reason::kSmAppendFail:
      return "no list entry was left for a receive";
    case Reason::kRequestFull:
      return "no request buffer was there";
    case Reason::kUncorrectable:
      return "of an error of the NIC";
  }
  return "of an unknown reason";
}

}  // namespace

// ---- collecting ----

void Inbox::search() {
  collecting_ = true;
  portal_->search({.buffer_id = kCollected, .ignore_bits = ~uint64_t{0}, .once = true}, true);
}

// An application may post receives, and look for messages, before it reads completions.
bool Inbox::collect() {
  if (!offloads_ && may_post()) return true;
  if (may_post()) search();
  for (int i = 0; !may_post() && i < kRounds; ++i)
    if (!read_events(true)) break;
  return may_post();
}

void Inbox::on_all_collected() {
  collecting_ = false;
  while (!held_.empty() && !collecting_) {
    const Event event = held_.front();
    held_.pop_front();
    on_request(event);
  }
  offer_again();
}

// ---- receives that wait for a place ----

void Inbox::offer_again() {
  while (offloads_ && !starved_ && may_post() && receiver_.posted() != 0) {
    if (!has_slot()) return on_no_slot();
    sdk::Receive &receive = *receiver_.take_oldest();
    if (!append(receive)) return receiver_.put_back(receive);
  }
}

// The newest first: messages may come meanwhile, and must find the oldest. A multi-receive buffer
// stays where it is: messages may be on their way into it. Then those of its kind stay, too, or
// they would change their order.
void Inbox::take_back() {
  if (taking_back_ != 0) return;
  starved_ = true;
  give_up_reserve();
  bool stay[2] = {};
  std::vector<Slot *> kept;
  for (Slot &slot : slots()) {
    if (slot.receive == nullptr || slot.unlinked) continue;
    stay[slot.receive->tagged] |= slot.is_multi();
    kept.push_back(&slot);
  }
  std::erase_if(kept, [&](const Slot *slot) { return stay[slot->receive->tagged]; });
  std::ranges::sort(kept, std::greater(), [](const Slot *slot) { return slot->receive->number; });
  for (Slot *const slot : kept) slot->taken_back = true;
  taking_back_ = kept.size();
  if (kept.empty()) return on_back();
  for (Slot *const slot : kept) portal_->unlink(List::kPriority, id_of(*slot));
}

// A place for a message or a receive that others cannot take: where the NIC has none left, this one
// is given up, and messages come one by one.
void Inbox::reserve() {
  if (std::exchange(has_reserve_, true)) return;
  Entry entry{.buffer_id = kReserve, .match_bits = kControl, .ignore_bits = ~kControl};
  entry.unlink_disable = true;
  links_.append(*portal_, entry, List::kOverflow);
}

void Inbox::give_up_reserve() {
  if (std::exchange(has_reserve_, false)) portal_->unlink(List::kOverflow, kReserve);
}

// All that the NIC has given back are posted in software, in their order.
void Inbox::on_back() {
  while (sdk::Receive *const receive = receiver_.take_oldest()) back_.push_back(receive);
  std::ranges::stable_sort(back_, {}, &sdk::Receive::number);
  for (sdk::Receive *const receive : std::exchange(back_, {})) receiver_.put_back(*receive);
  if (!collecting_) search();
}

bool Inbox::is_pool_low() const {
  return pool_used_ >= pool_size_ - pool_size_ / kLowShare && pool_size_ != 0;
}

void Inbox::retry_later() {
  retry_at_ = sdk::now_ns() + settings_.fc_retry_ns + 1;
  schedule();
}

void Inbox::be_patient() {
  give_up_at_ = sdk::now_ns() + kPatienceNs;
  schedule();
}

void Inbox::schedule() {
  uint64_t next = 0;
  for (const uint64_t at : {retry_at_, flow_ == Flow::kDropping ? give_up_at_ : 0, look_at_})
    if (at != 0 && (next == 0 || at < next)) next = at;
  engine_.set_deadline(*this, next);
}

void Inbox::look_in(uint64_t ns) {
  look_at_ = sdk::now_ns() + ns;
  schedule();
}

// A NIC does not say that messages wait in the network because it has no list entry for them, so
// this looks again and again. An idle one looks less often: there only another process can have
// taken the last entries. In hybrid mode the NIC leaves messages to software by itself, while it
// has request buffers.
void Inbox::make_room() {
  look_in(look_after_);
  look_after_ = std::min(2 * look_after_, kIdleLookNs);
  const bool leaves = settings_.match_mode == MatchMode::kHybrid && !request_.is_short();
  if (!offloads_ || leaves || !may_post() || flow_ != Flow::kRunning) return;
  const PortalStatus pool = portal_->status();
  if (pool.entries_max == 0 || pool.entries_used < pool.entries_max) return;
  if (starved_) return search();
  take_back();
}

void Inbox::on_deadline() {
  const uint64_t now = sdk::now_ns();
  if (retry_at_ != 0 && now >= retry_at_) {
    retry_at_ = 0;
    if (protocol_.is_rnr) starved_ = false;
    // Others may need the last entries more.
    const bool one = is_pool_low();
    if (!overflow_.link(*portal_, one) || !request_.link(*portal_, one)) retry_later();
    offer_again();
  }
  if (flow_ == Flow::kDropping && may_post() && now >= give_up_at_) enable_without_the_lost();
  if (look_at_ != 0 && now >= look_at_) make_room();
  schedule();
}

void Inbox::enable_without_the_lost() {
  // Whoever has not told yet is gone, or so slow that its messages may change their order.
  WEFT_WARN_SPARSE(instance_, FI_LOG_EP_DATA,
                   "flow control: of %u dropped messages only %u were told of in %d s; the others' "
                   "senders are taken to be gone",
                   portal_->status().drops, told_, int(kPatienceNs / 1'000'000'000));
  counters_.senders_given_up.add();
  flow_ = Flow::kEnabling;
  portal_->set_state(offloads_ ? PortalState::kEnabled : PortalState::kSoftwareManaged,
                     kIgnoreDrops);
}

// ---- software matches, before the NIC must leave it ----

// FI_CXI_HYBRID_PREEMPTIVE and its siblings: other processes keep their share of the list entries.
void Inbox::leave_to_software_if_short() {
  if (!may_leave_to_software()) return;
  const Settings::Preemptive &early = settings_.preemptive;
  if (is_pool_low() &&
      ((early.low_on_message && waiting_ > 0) || (early.low_on_receive && kept_ != 0)))
    return leave_to_software("list entries are short");
  if (early.messages && waiting_ > ptrdiff_t(receiver_.size()))
    leave_to_software("more messages wait than rx_attr.size says");
}

bool Inbox::may_leave_to_software() const {
  return settings_.match_mode == MatchMode::kHybrid && !protocol_.is_rnr && offloads_ &&
         flow_ == Flow::kRunning && may_post();
}

void Inbox::leave_to_software(const char *why) {
  WEFT_INFO(instance_, FI_LOG_EP_DATA, "software matches from now on, because %s", why);
  counters_.software_matching.add();
  // No message may come while those that are here become the software's: what the NIC drops
  // meanwhile is sent again.
  offloads_ = false;
  flow_ = Flow::kDropping;
  portal_->set_state(PortalState::kDisabled, 0);
  be_patient();
  search();
}

// ---- flow control ----

void Inbox::on_state(const Event &event) {
  if (!event.nic_auto) {
    if (flow_ != Flow::kEnabling) return;
    if (event.rc == Rc::kOk) return on_enabled();
    flow_ = Flow::kDropping;  // more messages have been dropped meanwhile
    return be_patient();
  }
  if (event.state == PortalState::kSoftwareManaged) {
    WEFT_INFO(instance_, FI_LOG_EP_DATA, "software matches from now on, because %s",
              text_of(event.reason));
    counters_.software_matching.add();
    offloads_ = false;
  } else {
    WEFT_WARN_SPARSE(instance_, FI_LOG_EP_DATA, "flow control: the NIC drops messages, because %s",
                     text_of(event.reason));
    counters_.flow_controls.add();
    flow_ = Flow::kDropping;
    be_patient();
  }
  if (event.reason == Reason::kUnexpectedFail) return take_back();
  if (!collecting_) search();
}

void Inbox::on_notify(const Peer &peer, uint32_t drops) {
  // The portal was enabled without waiting for this sender, or another endpoint had this address.
  if (flow_ == Flow::kRunning && portal_->status().state != PortalState::kDisabled)
    return control_->tell(peer, {ControlType::kResume, 0});
  told_ += drops;
  if (std::ranges::find(senders_, peer) == senders_.end()) senders_.push_back(peer);
  if (drops != 0) be_patient();  // the others only ask again
}

void Inbox::try_to_enable() {
  if (!may_post()) return;
  const PortalStatus status = portal_->status();
  if (status.drops != told_) return;
  flow_ = Flow::kEnabling;
  portal_->set_state(offloads_ ? PortalState::kEnabled : PortalState::kSoftwareManaged,
                     status.drops);
}

void Inbox::on_enabled() {
  flow_ = Flow::kRunning;
  told_ = 0;
  for (const Peer &peer : std::exchange(senders_, {}))
    control_->tell(peer, {ControlType::kResume, 0});
  offer_again();
}

}  // namespace weft::cxi
