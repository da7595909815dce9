// SPDX-License-Identifier: BSD-2-Clause
// Receives that the NIC keeps, and what it tells of their messages. inbox_saved.cc: messages
// without a receive; inbox_long.cc: the rest of long ones; inbox_flow.cc: what the NIC has no place
// for.
#include "plugins/cxi/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "plugins/cxi/control.h"
#include "plugins/cxi/nic/return_codes.h"

namespace weft::cxi {
namespace {

constexpr uint16_t kFirstOverflow = 0x4000, kFirstRequest = 0x8000;

}  // namespace

Inbox::Inbox(const Ports &ports, sdk::Receiver &receiver, sdk::Engine &engine, Sources &sources,
             const Settings &settings, Counters &counters, const Protocol &protocol,
             const weft_instance *instance)
    : ports_(ports),
      receiver_(receiver),
      engine_(engine),
      sources_(sources),
      settings_(settings),
      counters_(counters),
      protocol_(protocol),
      instance_(instance),
      overflow_(ports, {.list = List::kOverflow,
                        .first_id = kFirstOverflow,
                        .size = settings.oflow_buf_size,
                        .linked = protocol.is_rnr ? 0 : settings.oflow_buf_min_posted,
                        .cached = settings.oflow_buf_max_cached,
                        .longest = settings.max_eager()}),
      request_(
          ports,
          {.list = List::kRequest,
           .first_id = kFirstRequest,
           .size = settings.req_buf_size,
           .linked = settings.match_mode == MatchMode::kHardware ? 0 : settings.req_buf_min_posted,
           .cached = settings.req_buf_max_cached,
           .longest = settings.max_eager() + kMaxRequestHead}),
      incoming_(SIZE_MAX),
      saved_(SIZE_MAX),
      offloads_(protocol.is_rnr || settings.match_mode != MatchMode::kSoftware) {}

Inbox::~Inbox() = default;

// Messages of peers may fill the events up to a limit. Behind it there is room for what the NIC
// tells of our own commands: a receive may take all messages that were saved.
Result<void> Inbox::open(bool waits, size_t max_list_entries) {
  const size_t receives = receiver_.size();
  most_ = std::max(receives, std::min<size_t>(max_list_entries, kFirstOverflow));
  slots_ = sdk::make_lazy_array<Slot>(most_);
  if (slots_ == nullptr) return fail(FI_ENOMEM, "no memory for %zu receives", most_);
  free_.clear();
  for (made_ = 0; made_ < receives; ++made_) {
    std::construct_at(&slots_[made_]);
    free_.push_back(uint16_t(made_));
  }
  const size_t messages = max_list_entries + 2 * receives, more = most_ - receives;
  WEFT_TRY(events_, ports_.lni->event_queue({.places = 2 * (messages + more) + max_list_entries,
                                             .reserved = 2 * max_list_entries + 2 * most_,
                                             .waits = waits}));
  WEFT_CHECK(queue_.open(*ports_.lni, settings_.sw_rx_tx_init_max, ports_.profile));
  WEFT_TRY(portal_,
           ports_.lni->portal(
               {.is_matching = true, .flow_control = !protocol_.is_rnr, .lossless = is_lossless()},
               *events_));
  WEFT_CHECK(ports_.map(*portal_, protocol_.index));
  if (!protocol_.is_rnr) reserve();
  WEFT_CHECK(links_.wait("messages without a receive", *portal_, [this] { return read_link(); }));
  if (!overflow_.link(*portal_) || !request_.link(*portal_))
    return fail(FI_ENOMEM, "no memory for %zu overflow buffers of %zu bytes (cxi oflow_buf_size)",
                settings_.oflow_buf_min_posted, settings_.oflow_buf_size);
  portal_->set_state(offloads_ ? PortalState::kEnabled : PortalState::kSoftwareManaged,
                     kIgnoreDrops);
  if (is_lossless()) {
    look_after_ = kLookNs;
    make_room();
  }
  return {};
}

// While it opens nothing else comes.
bool Inbox::read_link() {
  const Event *const event = events_->peek(0);
  if (event == nullptr) return false;
  if (event->type == EventType::kLink) on_link(*event);
  events_->ack(1);
  return true;
}

void Inbox::close() {
  engine_.set_deadline(*this, 0);
  portal_.reset();
  for (Slot &slot : slots()) unmap(slot.window);
  incoming_.visit([this](Incoming &message) { unmap(message.window); });
  queue_.close();
  events_.reset();
}

// ---- receives ----

// The NIC may still have to tell that it has no place for the latest receives. So those are taken
// back before a newer one is posted.
bool Inbox::make_way() {
  if (offloads_ && !starved_ && may_post() && receiver_.posted() == 0) {
    if (settings_.preemptive.receives && kept_ >= receiver_.size() && may_leave_to_software())
      leave_to_software("more receives are posted than rx_attr.size says");
    else if (!has_slot()) [[unlikely]]
      on_no_slot();
  }
  return may_post() || collect();
}

bool Inbox::keep(sdk::Receive &receive) {
  // Those that are posted in software are older.
  if (!offloads_ || starved_ || !may_post() || receiver_.posted() != 0) return false;
  if (!append(receive)) return false;
  leave_to_software_if_short();
  return true;
}

// ---- memory of devices ----

sdk::HmemPlace Inbox::place_of(const sdk::Receive &receive, uint64_t start, uint64_t length) const {
  if (ports_.devices == nullptr || length == 0) return {};
  void *const *const desc = receive.desc();
  return ports_.devices->find(reinterpret_cast<const void *>(start), length,
                              desc != nullptr ? desc[0] : nullptr);
}

// False: the NIC cannot reach it.
bool Inbox::map_device(const sdk::HmemPlace &place, uint64_t start, uint64_t length,
                       Memory &window) {
  if (!place) return true;
  auto mapped = ports_.lni->map_device(start, length, Lni::kWrite, place);
  if (!mapped) return false;
  window = *mapped;
  return true;
}

void Inbox::unmap(Memory &window) {
  if (window.number != 0) ports_.lni->unmap(std::exchange(window, {}));
}

Inbox::Slot *Inbox::take_slot() {
  if (free_.empty()) return made_ < most_ ? std::construct_at(&slots_[made_++]) : nullptr;
  Slot &slot = slots_[free_.front()];
  free_.pop_front();
  return &slot;
}

// There are as many receives as the NIC has list entries, or as buffer_id can tell apart. What
// follows is the same as where the NIC says that it has no place.
void Inbox::on_no_slot() {
  if (settings_.match_mode == MatchMode::kHybrid && may_leave_to_software())
    return leave_to_software("more receives are posted than the NIC has list entries");
  starved_ = true;
  if (protocol_.is_rnr) return retry_later();  // messages come back for it
  take_back();
}

bool Inbox::append(sdk::Receive &receive) {
  Slot *const taken = take_slot();
  if (taken == nullptr) return false;
  Slot &slot = *taken;
  const uint16_t id = id_of(slot);
  const bool is_multi = receive.flags & FI_MULTI_RECV;
  slot = {.receive = &receive, .origin = is_multi ? receive.at : 0};
  if (receive.count != 0) {
    slot.start = reinterpret_cast<uintptr_t>(receive.iov[0].iov_base) + slot.origin;
    slot.length = receive.iov[0].iov_len - slot.origin;
    slot.place = place_of(receive, slot.start, slot.length);
    if (!map_device(slot.place, slot.start, slot.length, slot.window)) {
      slot.receive = nullptr;
      free_.push_back(id);
      return false;
    }
  }
  ++kept_;
  Entry entry{.buffer_id = id,
              .memory = memory_of(slot),
              .start = slot.start,
              .length = slot.length,
              .match_bits = protocol_.wanted(receive.tagged, receive.tag),
              .ignore_bits = protocol_.ignored(receive.tagged) |
                             (receive.tagged ? receive.ignore & protocol_.tag_mask() : 0)};
  if (receive.source != sdk::Matcher::kAnySource) {
    const auto address = receiver_.av->address(receive.source);
    if (address)
      entry.match_id = sources_.by_rank() ? peer_of(*address).initiator_as(receive.source)
                                          : peer_of(*address).initiator();
  }
  entry.op_put = entry.manage_local = true;
  entry.link_disable = entry.unlink_disable = true;
  entry.restart_sequence = std::exchange(restarts_, false);
  if (is_multi) {
    entry.min_free = std::max<uint64_t>(receiver_.min_multi_recv(), 1);
    entry.no_truncate = true;
  } else {
    entry.use_once = true;
  }
  counters_.receives_given.add();
  ++pool_used_;  // as far as is known here
  portal_->append(List::kPriority, entry);
  look_soon();
  return true;
}

void Inbox::free_slot(Slot &slot) {
  slot.receive = nullptr;
  unmap(slot.window);
  free_.push_back(id_of(slot));
  --kept_;
}

bool Inbox::cancel(const void *context) {
  for (Slot &slot : slots()) {
    if (slot.receive == nullptr || slot.unlinked || slot.is_canceled) continue;
    if (sdk::Receiver::context_of(*slot.receive) != context) continue;
    slot.is_canceled = true;
    if (!slot.taken_back) portal_->unlink(List::kPriority, id_of(slot));
    return true;
  }
  const auto has_it = [context](const sdk::Receive *one) {
    return sdk::Receiver::context_of(*one) == context;
  };
  const auto found = std::ranges::find_if(back_, has_it);
  if (found == back_.end()) return false;
  sdk::Receive &receive = **found;
  back_.erase(found);
  receiver_.give_up(receive, FI_ECANCELED);
  return true;
}

// It was not there any more if a message has taken it meanwhile.
void Inbox::on_unlink(const Event &event) {
  if (event.list != List::kPriority || !is_slot(event.buffer_id)) return;
  Slot &slot = slots_[event.buffer_id];
  const bool taken_back = std::exchange(slot.taken_back, false);
  if (slot.receive != nullptr && event.rc == Rc::kOk) {
    sdk::Receive &receive = *slot.receive;
    portal_->invalidate(List::kPriority, event.buffer_id);
    slot.unlinked = true;
    slot.total = 0;
    settle(slot);
    if (taken_back) counters_.receives_taken_back.add();
    if (taken_back && !slot.is_canceled)
      back_.push_back(&receive);
    else
      receiver_.give_up(receive, FI_ECANCELED);
  }
  if (taken_back && --taking_back_ == 0) on_back();
}

// The NIC had no place for it.
void Inbox::on_link(const Event &event) {
  if (event.buffer_id == kReserve) {
    has_reserve_ = event.rc == Rc::kOk;
    return links_.on_link(event);
  }
  if (event.rc == Rc::kOk) return;
  if (event.list == List::kOverflow) {
    overflow_.on_refused(event.buffer_id);
  } else if (event.list == List::kRequest) {
    request_.on_refused(event.buffer_id);
  }
  if (event.list != List::kPriority) return retry_later();
  if (!is_slot(event.buffer_id) || slots_[event.buffer_id].receive == nullptr) return;
  Slot &slot = slots_[event.buffer_id];
  const bool starves = event.rc == Rc::kNoSpace && offloads_;
  if (starves) starved_ = restarts_ = true;  // before keep() is asked again
  // Messages that were saved may be on their way into a multi-receive buffer.
  sdk::Receive &receive = *slot.receive;
  if (slot.is_multi()) receive.at = slot.origin + slot.saved_at;
  slot.unlinked = true;
  slot.total = slot.saved_at;
  settle(slot);
  if (slot.is_canceled)
    receiver_.give_up(receive, FI_ECANCELED);
  else if (taking_back_ != 0)
    back_.push_back(&receive);
  else
    receiver_.put_back(receive);
  if (starves && protocol_.is_rnr) {
    retry_later();  // messages come back for it
  } else if (starves) {
    take_back();
  }
}

void Inbox::settle(Slot &slot) {
  if (slot.unlinked && slot.users == 0 && slot.taken >= slot.total) free_slot(slot);
}

// ---- messages ----

// The oldest message of which other events have told, but none of this kind; null: there is none.
// Events of one message agree in where its rest goes, whatever its sender says of itself.
Inbox::Incoming *Inbox::known_rendezvous(const Slot &slot, uint64_t rest_at,
                                         bool Incoming::*told) const {
  for (auto [one, end] = rendezvous_.equal_range(rest_at); one != end; ++one)
    if (one->second->slot == &slot && !(one->second->*told)) return one->second;
  return nullptr;
}

// A message of a slot. What is known of a rendezvous comes by several events, in any order. `told`:
// what an event of this kind sets.
Inbox::Incoming &Inbox::incoming(Slot &slot, const Event &event, uint64_t rest_at,
                                 bool Incoming::*told) {
  const bool is_rendezvous = event.rendezvous && event.rc == Rc::kOk;
  if (is_rendezvous)
    if (Incoming *const message = known_rendezvous(slot, rest_at, told)) return *message;
  Incoming &message = *incoming_.take();
  message = {.slot = &slot,
             .rest_at = rest_at,
             .is_rendezvous = is_rendezvous,
             .begun = !is_rendezvous,
             .done = !is_rendezvous};
  if (is_rendezvous) rendezvous_.emplace(rest_at, &message);
  ++slot.users;
  if (slot.is_multi()) ++slot.receive->users;
  return message;
}

// `at`: in the slot's memory. What has failed at once has no place there, and takes nothing.
Inbox::Incoming &Inbox::describe(Slot &slot, const Event &event, uint64_t at) {
  Incoming &message = incoming(slot, event, slot.start + at + event.mlength, &Incoming::known);
  message.sender = sources_.sender_of(event.initiator, event.vni);
  // The NIC, which knows better, may have named the peer of one that says nothing of it.
  if (message.sender.peer.is_nowhere() && message.is_rendezvous && message.begun)
    message.sender.peer = message.reader;
  message.bits = event.match_bits;
  message.data = event.header_data;
  message.first = event.mlength;
  message.length = event.rlength;
  message.unlinks = event.auto_unlinked;
  if (event.rc != Rc::kOk) message.rc = event.rc;
  if (at <= slot.length) {
    message.at = at;
    message.takes = std::min<uint64_t>(event.rlength, slot.length - at);
  }
  message.known = true;
  return message;
}

sdk::Message Inbox::message_of(const Incoming &message) {
  sdk::Message about = message_of(message.sender, message.bits, message.data, message.length);
  if (message.rc != Rc::kOk) about.prov_errno = uint16_t(message.rc);
  return about;
}

sdk::Message Inbox::message_of(const Sender &sender, uint64_t bits, uint64_t data,
                               uint64_t length) {
  const bool has_data = (bits & protocol_.has_data) != 0;
  return {.tagged = (bits & protocol_.tagged) != 0,
          .has_data = has_data,
          .source = sources_.number_of(sender),
          .tag = protocol_.tag_of(bits),
          .data = has_data ? data : 0,
          .length = length};
}

bool Inbox::read_events(bool always) {
  if (!gets_.empty()) post_gets();
  size_t taken = 0;
  // The application is to read its completions first.
  while (taken != settings_.eq_ack_batch && (always || !receiver_.is_full())) {
    const Event *const place = events_->peek(taken);
    if (place == nullptr) break;
    const Event event = *place;
    ++taken;
    pool_used_ = event.entries_used;
    pool_size_ = event.entries_max;
    on_event_of(event);
  }
  if (taken != 0) {
    events_->ack(taken);
    leave_to_software_if_short();
    look_soon();
    return true;
  }
  if (events_->peek(0) != nullptr) return false;
  if (flow_ == Flow::kDropping) try_to_enable();
  if (starved_ && may_post() && receiver_.posted() == 0) {
    starved_ = false;
    if (!protocol_.is_rnr) reserve();
  }
  return false;
}

void Inbox::on_event_of(const Event &event) {
  switch (event.type) {
    case EventType::kPut:
      return on_put(event);
    case EventType::kGet:
    case EventType::kAtomic:
    case EventType::kFetchAtomic:
      return on_access(event);
    case EventType::kPutOverflow:
      return is_slot(event.buffer_id) ? on_taken(event) : on_collected(event);
    case EventType::kRendezvous:
      return on_rendezvous(event);
    case EventType::kReply:
      return on_reply(event);
    case EventType::kLink:
      return on_link(event);
    case EventType::kUnlink:
      return on_unlink(event);
    case EventType::kSearch:
      return on_all_collected();
    case EventType::kStateChange:
      return on_state(event);
    default:
      return;
  }
}

void Inbox::on_put(const Event &event) {
  if (event.list == List::kOverflow) return on_saved_put(event);
  if (event.list == List::kRequest) return on_request(event);
  if (Slot *const slot = slot_of(event)) advance(describe(*slot, event, event.start - slot->start));
}

// A read or an atomic operation of a peer, at the portal of messages. It has used up what it has
// met.
void Inbox::on_access(const Event &event) {
  if (event.list == List::kOverflow) {
    overflow_.release(event.start, event.mlength);
    return on_overflow_end(event);
  }
  Slot *const slot = slot_of(event);
  if (slot == nullptr) return;
  Incoming &message = describe(*slot, event, event.start - slot->start);
  message.rc = Rc::kOpViolation;
  advance(message);
}

// Null: it names none. What has found no entry says 0.
Inbox::Slot *Inbox::slot_of(const Event &event) {
  if (!is_slot(event.buffer_id) || event.rc == Rc::kEntryNotFound) return nullptr;
  Slot &slot = slots_[event.buffer_id];
  return slot.receive != nullptr ? &slot : nullptr;
}

// Its first bytes are in an overflow buffer, if they have landed.
void Inbox::on_taken(const Event &event) {
  --waiting_;
  Slot &slot = slots_[event.buffer_id];
  if (slot.receive == nullptr) return;
  Incoming &message = describe(slot, event, slot.saved_at);
  message.saved = event.start;
  message.is_saved = true;
  slot.saved_at += message.takes;
  message.landed = event.mlength == 0 || landed_.erase(event.start) != 0;
  if (!message.landed) awaited_[event.start] = &message;
  if (!event.rendezvous && event.match_bits & kMatchComplete)
    tell_matched(message.sender.peer, event.match_bits);
  advance(message);
}

void Inbox::advance(Incoming &message) {
  if (!message.known || !message.landed || !message.begun || !message.done) return;
  finish(message);
}

void Inbox::finish(Incoming &message) {
  if (message.slot != nullptr) return finish_in_slot(message);
  const sdk::Message about = message_of(message);
  sdk::Receive &receive = *message.receive;
  const Rc rc = message.rc;
  const size_t received = rc == Rc::kOk ? message.first + message.read : 0;
  unmap(message.window);
  incoming_.give(&message);
  receiver_.complete(receive, about, received, errno_of(rc));
}

void Inbox::finish_in_slot(Incoming &message) {
  Slot &slot = *message.slot;
  if (message.is_rendezvous) forget_rendezvous(message);
  uint64_t first = std::min<uint64_t>(message.first, message.takes);
  if (message.is_saved) {
    if (!sdk::hmem_copy(reinterpret_cast<void *>(slot.start + message.at), slot.place.or_null(),
                        reinterpret_cast<const void *>(message.saved), nullptr, first))
      message.rc = Rc::kNoTranslation;
    overflow_.release(message.saved, message.first);
  }
  const uint64_t takes = message.takes;
  const size_t received =
      message.rc == Rc::kOk ? size_t(std::min<uint64_t>(first + message.read, takes)) : 0;
  const sdk::Message about = message_of(message);
  const int err = errno_of(message.rc);
  slot.taken += takes;
  if (message.unlinks) {
    slot.unlinked = slot.ends = true;
    slot.total = message.at + takes;
  }
  sdk::Receive *receive = slot.receive;
  if (slot.is_multi()) {
    sdk::Receive *const part = receiver_.part_at(*receive, slot.origin + message.at, received);
    --receive->users;
    if (slot.ends && slot.taken >= slot.total) receive->open = false;
    receive = part;
  } else {
    slot.unlinked = true;
    slot.total = 0;
  }
  --slot.users;
  incoming_.give(&message);
  settle(slot);
  if (receive != nullptr) receiver_.complete(*receive, about, received, err);
}

}  // namespace weft::cxi
