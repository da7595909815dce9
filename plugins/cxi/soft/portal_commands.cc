// SPDX-License-Identifier: BSD-2-Clause
// What the process does with a portal of its own.
#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "plugins/cxi/soft/counter.h"
#include "plugins/cxi/soft/lni.h"
#include "plugins/cxi/soft/portal.h"

namespace weft::cxi {

SoftPortal::SoftPortal(Engine &engine, SoftLni &lni, const PortalOptions &options, EventRing &eq)
    : engine_(engine),
      lni_(lni),
      options_(options),
      eq_(eq),
      priority_(engine.seed()),
      overflow_(engine.seed()),
      request_(engine.seed()),
      unexpected_(engine.seed()) {}

SoftPortal::~SoftPortal() {
  const EngineGuard guard(engine_.lock);
  for (SoftEndpoint *const endpoint : endpoints_) endpoint->remove(*this);
  endpoints_.clear();
  engine_.forget(*this);
  for (EntryList *const entries : {&priority_, &overflow_, &request_}) {
    while (LinkedEntry *const entry = entries->front()) {
      entries->remove(*entry);
      release(entry);
    }
  }
  while (Header *const header = unexpected_.front()) {
    unexpected_.remove(*header);
    drop(header);
  }
  end_waiting([](const Waiting &) { return true; }, Rc::kPtlteNotFound);
  engine_.settle();
}

EntryList &SoftPortal::list(List which) {
  switch (which) {
    case List::kOverflow:
      return overflow_;
    case List::kRequest:
      return request_;
    default:
      return priority_;
  }
}

// ---- the pool of list entries: entries and unexpected headers ----

bool SoftPortal::new_entry() {
  return lni_.pool().take(Resource::kListEntry);
}

void SoftPortal::release(LinkedEntry *entry) {
  lni_.pool().give(Resource::kListEntry);
  delete entry;
}

void SoftPortal::drop(Header *header) {
  lni_.pool().give(Resource::kListEntry);
  delete header;
}

// ---- state ----

Result<void> SoftPortal::map(Endpoint &endpoint, Index index) {
  const EngineGuard guard(engine_.lock);
  auto &own = static_cast<SoftEndpoint &>(endpoint);
  if (std::ranges::find(endpoints_, &own) != endpoints_.end())
    return fail(FI_EINVAL, "cxi: the portal is mapped already");
  if (!endpoints_.empty() && endpoints_.front()->pid() != own.pid())
    return fail(FI_EINVAL, "cxi: the portal is mapped for PID %u, and not for %u",
                endpoints_.front()->pid(), own.pid());
  if (!own.put(index, *this))
    return fail(EEXIST, "cxi: portal index %u of PID %u is mapped already", index, own.pid());
  endpoints_.push_back(&own);
  return {};
}

void SoftPortal::set_state(PortalState state, uint32_t drops) {
  const EngineGuard guard(engine_.lock);
  Event event{.type = EventType::kStateChange, .state = state};
  const bool starts = state == PortalState::kEnabled || state == PortalState::kSoftwareManaged;
  if (state_ == PortalState::kDisabled && starts && options_.flow_control &&
      drops != kIgnoreDrops && drops != drops_) {
    event.rc = Rc::kNoMatch;
    event.state = state_;
  } else {
    // One that is disabled already goes on counting: its senders are telling how many it dropped.
    if (state_ != PortalState::kDisabled || state != PortalState::kDisabled) drops_ = 0;
    state_ = state;
    appends_ = state == PortalState::kSoftwareManaged ? Rc::kPtlteSwManaged : Rc::kOk;
  }
  post(event);
  engine_.settle();
}

int SoftPortal::take_over(uint32_t drops) {
  const EngineGuard guard(engine_.lock);
  if (state_ != PortalState::kDisabled) return -FI_EINVAL;
  if (drops != drops_) return -FI_EAGAIN;
  state_ = PortalState::kSoftwareManaged;
  drops_ = 0;
  appends_ = Rc::kPtlteSwManaged;
  engine_.settle();
  return 0;
}

PortalStatus SoftPortal::status() const {
  const EngineGuard guard(engine_.lock);
  PortalStatus status{.state = state_,
                      .drops = drops_,
                      .entries_used = lni_.pool().used(Resource::kListEntry),
                      .entries_max = lni_.pool().limit(Resource::kListEntry),
                      .unexpected = {}};
  for (const Header *header = unexpected_.front(); header != nullptr; header = header->next)
    status.unexpected.push_back(header->remote_offset);
  return status;
}

// ---- lists ----

// R6.
void SoftPortal::append(List which, const Entry &entry) {
  const EngineGuard guard(engine_.lock);
  if (which == List::kPriority) {
    if (entry.restart_sequence && appends_ == Rc::kNoSpace) appends_ = Rc::kOk;
    if (appends_ != Rc::kOk) return report_link(which, entry, appends_);
  }
  auto linked = std::unique_ptr<LinkedEntry>(new (std::nothrow) LinkedEntry);
  if (linked == nullptr) return report_link(which, entry, Rc::kNoSpace);
  linked->entry = entry;
  if (which == List::kPriority) {
    // What has come before it is older than any other receive.
    Header *header = nullptr;
    while ((header = unexpected_.find(entry.match_bits, entry.ignore_bits, entry.match_id,
                                      nullptr)) != nullptr) {
      if (entry.no_truncate && header->rlength > linked->room()) {
        while (header != nullptr && header->rlength > linked->room())
          header = unexpected_.find(entry.match_bits, entry.ignore_bits, entry.match_id, header);
        if (header == nullptr) break;
      }
      if (take_unexpected(*linked, *header)) return engine_.settle();
    }
  }
  if (!new_entry()) {
    if (which == List::kPriority) {
      appends_ = Rc::kNoSpace;
      if (state_ == PortalState::kEnabled && request_.size() != 0)
        leave_to_software(Reason::kSmAppendFail);
    }
    report_link(which, entry, Rc::kNoSpace);
    return engine_.settle();
  }
  list(which).append(*linked.release());
  if (!entry.link_disable) report_link(which, entry, Rc::kOk);
  engine_.settle();
}

void SoftPortal::report_link(List which, const Entry &entry, Rc rc) {
  post({.type = EventType::kLink, .rc = rc, .list = which, .buffer_id = entry.buffer_id});
}

// The new receive gets a message that has waited for it. True: it is used up, and never linked.
bool SoftPortal::take_unexpected(LinkedEntry &linked, Header &header) {
  const Entry &entry = linked.entry;
  const uint64_t address = entry.start + linked.used, room = linked.room();
  const uint64_t takes = std::min<uint64_t>(header.rlength, room);
  unexpected_.remove(header);
  Event event{.type = EventType::kPutOverflow,
              .list = List::kOverflow,
              .rendezvous = header.rendezvous,
              .buffer_id = entry.buffer_id,
              .vni = header.vni,
              .initiator = header.initiator,
              .match_bits = header.match_bits,
              .header_data = header.header_data,
              .start = header.start,
              .remote_offset = header.remote_offset,
              .mlength = header.mlength,
              .rlength = header.rlength,
              .rendezvous_id = header.rendezvous_id};
  if (entry.manage_local) linked.used += takes;
  event.auto_unlinked = entry.use_once || (entry.manage_local && linked.room() < entry.min_free);
  if (!entry.comm_disable && !entry.success_disable) post(event);
  if (auto *const counter = static_cast<SoftCounter *>(entry.counter);
      counter != nullptr && entry.counts_overflow)
    counter->count(true, entry.counts_bytes ? header.mlength : 1);
  if (header.rendezvous) begin_rendezvous(entry, address, room, header, event);
  drop(&header);
  return event.auto_unlinked;
}

void SoftPortal::unlink(List which, uint16_t buffer_id) {
  const EngineGuard guard(engine_.lock);
  EntryList &entries = list(which);
  LinkedEntry *const entry = entries.find_buffer(buffer_id);
  if (entry != nullptr) {
    entries.remove(*entry);
    release(entry);
  }
  post({.type = EventType::kUnlink,
        .rc = entry != nullptr ? Rc::kOk : Rc::kEntryNotFound,
        .list = which,
        .buffer_id = buffer_id});
  engine_.settle();
}

void SoftPortal::search(const Criteria &criteria, bool takes) {
  const EngineGuard guard(engine_.lock);
  Header *after = nullptr;
  bool hit = false;
  while (!(hit && criteria.once)) {
    Header *const header =
        unexpected_.find(criteria.match_bits, criteria.ignore_bits, criteria.match_id, after);
    if (header == nullptr) break;
    hit = true;
    post({.type = takes ? EventType::kPutOverflow : EventType::kSearch,
          .list = takes ? List::kOverflow : List::kUnexpected,
          .rendezvous = header->rendezvous,
          .buffer_id = criteria.buffer_id,
          .vni = header->vni,
          .initiator = header->initiator,
          .match_bits = header->match_bits,
          .header_data = header->header_data,
          .start = header->start,
          .remote_offset = header->remote_offset,
          .mlength = header->mlength,
          .rlength = header->rlength,
          .rendezvous_id = header->rendezvous_id});
    if (takes) {
      unexpected_.remove(*header);
      drop(header);
    } else {
      after = header;
    }
  }
  if (!(hit && criteria.once))
    post({.type = EventType::kSearch,
          .rc = Rc::kNoMatch,
          .list = List::kUnexpected,
          .buffer_id = criteria.buffer_id});
  engine_.settle();
}

// What is not in pieces is over when the lock is free.
void SoftPortal::invalidate(List which, uint16_t buffer_id) {
  const EngineGuard guard(engine_.lock);
  engine_.cancel(*this, which, buffer_id);
}

}  // namespace weft::cxi
