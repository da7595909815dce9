// SPDX-License-Identifier: BSD-2-Clause
// What a request of a peer does at a portal.
#include "plugins/cxi/soft/portal.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "plugins/cxi/soft/amo.h"
#include "plugins/cxi/soft/counter.h"
#include "plugins/cxi/soft/lni.h"

namespace weft::cxi {
namespace {

constexpr uint64_t kNobody = 0;  // no process has it: VNI 0 is none

bool is_put(Op op) {
  return op == Op::kPut || op == Op::kRendezvousPut;
}

EventType type_of(Op op) {
  switch (op) {
    case Op::kGet:
      return EventType::kGet;
    case Op::kAtomic:
      return EventType::kAtomic;
    case Op::kFetchAtomic:
      return EventType::kFetchAtomic;
    default:
      return EventType::kPut;
  }
}

Telemetry telemetry_of(Op op) {
  switch (op) {
    case Op::kGet:
      return Telemetry::kGets;
    case Op::kAtomic:
      return Telemetry::kAtomics;
    case Op::kFetchAtomic:
      return Telemetry::kFetchingAtomics;
    case Op::kRendezvousPut:
      return Telemetry::kRendezvousPuts;
    default:
      return Telemetry::kPuts;
  }
}

Header header_of(const Packet &packet) {
  return {.match_bits = packet.match_bits,
          .header_data = packet.header_data,
          .remote_offset = packet.remote_offset,
          .initiator = packet.initiator,
          .rlength = packet.length,
          .source = packet.source,
          .vni = packet.vni,
          .rendezvous = packet.op == Op::kRendezvousPut,
          .rendezvous_id = packet.rendezvous_id};
}

// An atomic operation on memory of a device is done in the host's memory: nothing else comes
// between on this NIC, but the device itself may.
Rc execute_anywhere(const Packet &packet, void *target, const sdk::HmemPlace *place,
                    uint64_t fetched[2]) {
  if (place == nullptr && packet.place == nullptr) return execute_amo(packet, target, fetched);
  alignas(16) uint8_t operand[16] = {}, element[16] = {};
  const size_t size = amo_size(packet.amo_type);
  const uintptr_t at = reinterpret_cast<uintptr_t>(target);
  if (size == 0) return Rc::kAmoInvalOp;
  if (at % size != 0) return Rc::kAmoAlign;
  if (!sdk::hmem_copy(operand, nullptr, packet.bytes, packet.place,
                      std::min<size_t>(size, packet.length)) ||
      !sdk::hmem_copy(element, nullptr, target, place, size))
    return Rc::kNoTranslation;
  Packet here = packet;
  here.bytes = operand;
  here.place = nullptr;
  const Rc rc = execute_amo(here, element, fetched);
  if (rc != Rc::kOk) return rc;
  return MemoryMap::copied(sdk::hmem_copy(target, place, element, nullptr, size));
}

}  // namespace

SoftPortal::Hit SoftPortal::match(const Packet &packet) {
  const Envelope envelope{packet.match_bits, packet.initiator, packet.length};
  const auto in = [&](List which) {
    const EntryList &entries = list(which);
    return Hit{.list = which,
               .entry = options_.is_matching ? entries.find(envelope) : entries.front()};
  };
  Hit hit = in(List::kPriority);
  if (hit.entry != nullptr) return hit;
  if (state_ == PortalState::kSoftwareManaged)  // R9; software matches messages, and nothing else
    return {.list = List::kRequest, .entry = is_put(packet.op) ? request_.front() : nullptr};
  return in(List::kOverflow);
}

// R3, R9: nothing takes the request.
Reply SoftPortal::refuse(const Packet &packet) {
  Reply reply{.token = packet.token};
  if (state_ == PortalState::kSoftwareManaged && is_put(packet.op)) {
    reply.rc = find_no_place(packet, Reason::kRequestFull);
  } else if (options_.flow_control && is_put(packet.op)) {
    reply.rc = find_no_place(packet, Reason::kNoMatch);
  } else {
    reply.rc = Rc::kEntryNotFound;
    if (eq_.has_room(1)) post(event_of(packet, {.rc = reply.rc}, 0));
  }
  return reply;
}

Rc SoftPortal::disable(Reason reason) {
  change_state(PortalState::kDisabled, reason);
  drops_ = 1;  // R12: the request that caused it
  return Rc::kPtDisabled;
}

// R13: kNone where the request waits.
Rc SoftPortal::find_no_place(const Packet &packet, Reason reason) {
  return may_wait(packet) ? Rc::kNone : disable(reason);
}

void SoftPortal::change_state(PortalState state, Reason reason) {
  state_ = state;
  post({.type = EventType::kStateChange, .nic_auto = true, .state = state, .reason = reason});
}

// R8. What the peer is answered: kOk where software has taken over.
Rc SoftPortal::no_entry_left(const Packet &packet, Reason if_software) {
  if (request_.size() == 0) return find_no_place(packet, Reason::kUnexpectedFail);
  leave_to_software(if_software);
  return Rc::kOk;
}

void SoftPortal::leave_to_software(Reason reason) {
  change_state(PortalState::kSoftwareManaged, reason);
  appends_ = Rc::kPtlteSwManaged;
}

// What the NIC counts of a request that has been answered.
void SoftPortal::count(const Packet &packet, Rc rc, bool is_silent) {
  Pool &pool = lni_.pool();
  pool.count(packet.restricted ? Telemetry::kRestrictedPackets : Telemetry::kUnrestrictedPackets);
  pool.count(telemetry_of(packet.op));
  pool.count(rc == Rc::kOk ? Telemetry::kSuccess : Telemetry::kFailure);
  if (rc != Rc::kOk) return;
  if (packet.op == Op::kFetchAtomic) pool.count(Telemetry::kHostFetches);
  if (packet.flush) pool.count(Telemetry::kFlushes);
  if (is_silent) pool.count(Telemetry::kPlecHits);
}

std::optional<Reply> SoftPortal::arrive(const Packet &packet, Arrival &arrival) {
  Reply reply{.token = packet.token};
  if (!is_running()) {  // R2
    ++drops_;
    reply.rc = Rc::kPtDisabled;
    return reply;
  }
  if (packet.restricted && options_.is_matching) {
    reply.rc = Rc::kRestrictedUnicast;
    return reply;
  }
  if (options_.no_rendezvous && packet.op == Op::kRendezvousPut) {
    reply.rc = Rc::kOpViolation;
    return reply;
  }
  arrival.packet = packet;
  Hit &hit = arrival.hit = match(packet);
  if (hit.entry != nullptr && hit.list == List::kOverflow && is_put(packet.op) &&
      !hit.entry->entry.unexpected_header_disable) {
    if (new_entry()) {
      arrival.header = std::make_unique<Header>(header_of(packet));
    } else {
      reply.rc = no_entry_left(packet, Reason::kSmUnexpectedFail);
      if (reply.rc != Rc::kOk) return reply;
      hit = {.list = List::kRequest, .entry = request_.front()};
    }
  }
  if (hit.entry == nullptr) return refuse(packet);
  arrival.entry = hit.entry->entry;
  arrival.room = hit.entry->room();
  if (!eq_.has_room(events_of(arrival))) {  // E3
    if (arrival.header != nullptr) drop(arrival.header.release());
    reply.rc = options_.flow_control ? find_no_place(packet, Reason::kEqFull) : Rc::kEntryNotFound;
    return reply;
  }
  locate(hit, packet);
  if (hit.rc == Rc::kOk && !arrival.entry.manage_local) arrival.room -= packet.remote_offset;
  if (hit.list == List::kRequest && hit.rc == Rc::kAddrOutOfRange) {
    reply.rc = disable(Reason::kRequestFull);
    return reply;
  }
  return std::nullopt;
}

// At most.
size_t SoftPortal::events_of(const Arrival &arrival) const {
  const size_t own = arrival.entry.comm_disable && arrival.entry.unlink_disable ? 0 : 1;
  const bool rendezvous =
      arrival.packet.op == Op::kRendezvousPut && arrival.hit.list == List::kPriority;
  const bool tells = options_.match_events && !arrival.is_told;
  return own + (tells ? 1 : 0) + (rendezvous ? 1 : 0);
}

Reply SoftPortal::serve(const Packet &packet) {
  if (!waiting_.empty() && may_wait(packet)) return wait(packet);
  const std::optional<Reply> reply = try_to_serve(packet);
  return reply ? *reply : wait(packet);
}

// None: it has to wait, and nothing has happened.
std::optional<Reply> SoftPortal::try_to_serve(const Packet &packet) {
  Arrival arrival;
  if (const std::optional<Reply> refused = arrive(packet, arrival)) {
    if (refused->rc == Rc::kNone) return std::nullopt;
    count(packet, refused->rc, false);
    return refused;
  }
  Reply reply{.token = packet.token};
  tell_match(arrival);
  if (arrival.hit.rc == Rc::kOk) arrival.hit.rc = move_bytes(arrival.hit, packet, reply);
  use_up(arrival);
  report(arrival, reply);
  return reply;
}

// ---- bytes in pieces ----

std::optional<Reply> SoftPortal::begin(const Packet &packet, Arrival &arrival) {
  // A put that would go elsewhere changes nothing here: it is served when its bytes are there.
  if (is_put(packet.op) && is_running()) {
    arrival.hit = match(packet);
    if (arrival.hit.entry != nullptr && !can_land(arrival)) return std::nullopt;
    if (options_.lossless && would_wait(arrival)) {
      arrival.hit.list = List::kOverflow;
      return std::nullopt;
    }
  }
  if (std::optional<Reply> refused = arrive(packet, arrival)) {
    count(packet, refused->rc, false);
    return refused;
  }
  tell_match(arrival);
  eq_.hold(events_of(arrival));
  use_up(arrival);
  return std::nullopt;
}

void SoftPortal::land(Arrival &arrival, uint32_t offset, const uint8_t *bytes, uint32_t count) {
  Hit &hit = arrival.hit;
  if (hit.rc != Rc::kOk || offset >= hit.mlength) return;  // it is cut, or fails
  count = std::min(count, hit.mlength - offset);
  // It may have been unmapped since.
  Memory memory;
  hit.rc = resolve(hit, offset, count, Lni::kWrite, memory);
  if (hit.rc != Rc::kOk) return;
  hit.rc = lni_.memory().write(memory, hit.address + offset, bytes, nullptr, count);
}

// False: it is over, or the memory is not mapped any more.
bool SoftPortal::copy_out(const Arrival &arrival, uint32_t offset, std::span<uint8_t> out) const {
  const Hit &hit = arrival.hit;
  if (hit.rc != Rc::kOk || offset > hit.mlength || out.size() > hit.mlength - offset) return false;
  Memory memory;
  return resolve(hit, offset, out.size(), Lni::kRead, memory) == Rc::kOk &&
         lni_.memory().read(memory, hit.address + offset, out.data(), out.size()) == Rc::kOk;
}

Reply SoftPortal::end(Arrival &arrival) {
  eq_.unhold(events_of(arrival));
  Reply reply{.token = arrival.packet.token};
  report(arrival, reply);
  return reply;
}

// R4: may it, and where are its bytes.
void SoftPortal::locate(Hit &hit, const Packet &packet) const {
  const Entry &entry = hit.entry->entry;
  const bool writes = packet.op != Op::kGet;
  const bool reads = packet.op == Op::kGet || packet.op == Op::kFetchAtomic;
  if ((writes && !entry.op_put) || (reads && !entry.op_get)) {
    hit.rc = Rc::kOpViolation;
    return;
  }
  const uint32_t bytes = packet.op == Op::kGet ? packet.length : bytes_behind(packet);
  if (hit.list == List::kRequest) {
    const uint64_t needed = uint64_t{engine_.request_form().bytes(packet)} + bytes;
    hit.address = entry.start + hit.entry->used;
    hit.mlength = uint32_t(needed);
    hit.takes = needed;
    if (needed > hit.entry->room() || needed > UINT32_MAX) hit.rc = Rc::kAddrOutOfRange;
  } else if (entry.manage_local) {
    hit.address = entry.start + hit.entry->used;
    hit.mlength = uint32_t(std::min<uint64_t>(bytes, hit.entry->room()));
    if (hit.mlength < bytes && !is_put(packet.op) && packet.op != Op::kGet)
      hit.rc = Rc::kAddrOutOfRange;  // an atomic is done whole, or not
    // The rest of a rendezvous goes behind what is here.
    hit.takes = hit.list == List::kPriority ? std::min<uint64_t>(packet.length, hit.entry->room())
                                            : hit.mlength;
  } else {
    hit.address = entry.start + packet.remote_offset;
    hit.mlength = bytes;
    if (packet.remote_offset > entry.length || bytes > entry.length - packet.remote_offset)
      hit.rc = Rc::kAddrOutOfRange;
  }
  if (hit.rc != Rc::kOk) return;
  const unsigned access = (writes ? Lni::kWrite : 0) | (reads ? Lni::kRead : 0);
  hit.memory = entry.memory;
  hit.peer = is_logical(packet.initiator)
                 ? kNobody
                 : key_of(packet.source, packet.vni, packet.initiator >> kMatchEpBits);
  Memory memory;
  hit.rc = resolve(hit, 0, hit.mlength, access, memory);
  if (hit.rc != Rc::kOk) return;
  hit.rc = lni_.memory().check(memory, hit.address, hit.mlength, access, hit.place);
}

// Whenever bytes move: several long messages may lend the same bytes, and one of them may be over.
Rc SoftPortal::resolve(const Hit &hit, uint32_t offset, size_t length, unsigned access,
                       Memory &memory) const {
  memory = hit.memory;
  return lni_.memory().resolve(memory, hit.address + offset, length, access, hit.peer);
}

Rc SoftPortal::move_bytes(const Hit &hit, const Packet &packet, Reply &reply) {
  auto *const target = reinterpret_cast<uint8_t *>(hit.address);
  if (packet.op == Op::kGet) {
    reply.bytes = target;
    reply.place = hit.place;
    return Rc::kOk;
  }
  if (!is_put(packet.op)) return execute_anywhere(packet, target, hit.place, reply.fetched);
  uint8_t *at = target;
  uint32_t bytes = hit.mlength;
  if (hit.list == List::kRequest) {
    const RequestForm &form = engine_.request_form();
    form.write(packet, at);
    at += form.bytes(packet);
    bytes -= form.bytes(packet);
  }
  // A process may put to itself.
  return MemoryMap::copied(sdk::hmem_copy(at, hit.place, packet.bytes, packet.place, bytes));
}

// Before any byte moves.
void SoftPortal::tell_match(Arrival &arrival) {
  if (!options_.match_events) return;
  arrival.is_told = true;
  Event event = event_of(arrival.packet, arrival.hit, arrival.entry.buffer_id);
  event.type = EventType::kMatch;
  post(event);
}

void SoftPortal::use_up(Arrival &arrival) {
  LinkedEntry &entry = *arrival.hit.entry;
  arrival.hit.entry = nullptr;
  if (entry.entry.manage_local) entry.used += arrival.hit.takes;
  const bool full = entry.entry.manage_local && entry.room() < entry.entry.min_free;
  arrival.unlinked = entry.entry.use_once || full;
  if (!arrival.unlinked) return;
  entry.in->remove(entry);
  release(&entry);
}

void SoftPortal::report(Arrival &arrival, Reply &reply) {
  const Packet &packet = arrival.packet;
  const Entry &entry = arrival.entry;
  const Hit &hit = arrival.hit;
  const bool good = hit.rc == Rc::kOk;
  reply.rc = hit.rc;
  reply.list = hit.list;
  reply.mlength = good ? hit.mlength : 0;
  count(packet, hit.rc, entry.comm_disable && entry.counter == nullptr);
  Event event = event_of(packet, hit, entry.buffer_id);
  event.auto_unlinked = arrival.unlinked;
  if (arrival.header != nullptr && good) {
    arrival.header->start = hit.address;
    arrival.header->mlength = hit.mlength;
    arrival.header->buffer_id = entry.buffer_id;
    unexpected_.append(*arrival.header.release());
  } else if (arrival.header != nullptr) {
    drop(arrival.header.release());
  }
  if (!entry.comm_disable && (!entry.success_disable || !good)) {
    post(event);
  } else if (event.auto_unlinked && !entry.unlink_disable) {
    event.type = EventType::kUnlink;
    post(event);
  }
  if (auto *const counter = static_cast<SoftCounter *>(entry.counter))
    counter->count(good, good && entry.counts_bytes ? reply.mlength : 1);
  if (good && packet.op == Op::kRendezvousPut && hit.list == List::kPriority) {
    Header message = header_of(packet);
    message.mlength = hit.mlength;
    begin_rendezvous(entry, hit.address, arrival.room, message, event);
  }
}

// R7: the message has met its receive, and has its first `message.mlength` bytes at `address`.
void SoftPortal::begin_rendezvous(const Entry &entry, uint64_t address, uint64_t room,
                                  const Header &message, Event event) {
  constexpr uint64_t kAltRead = uint64_t{1} << 61;  // of match bits 61 and 62: software reads
  constexpr uint64_t kProtocol = uint64_t{3} << 61;
  const uint64_t whole = std::min<uint64_t>(message.rlength, room);
  event.type = EventType::kRendezvous;
  event.list = List::kPriority;
  event.rendezvous = true;
  event.rendezvous_id = message.rendezvous_id;
  event.start = address + message.mlength;
  event.initiator = message.source << 12 | message.initiator >> kMatchEpBits;
  event.auto_unlinked = false;
  event.get_issued = (message.match_bits & kProtocol) != kAltRead && engine_.issues_gets();
  Operation *const get = event.get_issued ? engine_.new_operation() : nullptr;
  if (get == nullptr) event.get_issued = false;
  post(event);
  if (get == nullptr) return;
  Transfer &transfer = get->transfer = {};
  transfer.op = Op::kGet;
  transfer.vni = message.vni;
  transfer.to = {message.source, Pid(message.initiator >> kMatchEpBits), kRendezvousIndex};
  transfer.memory = entry.memory;
  transfer.local = event.start;
  transfer.length = uint32_t(whole > message.mlength ? whole - message.mlength : 0);
  transfer.remote_offset = message.remote_offset + message.mlength;
  transfer.match_bits = message.rendezvous_id | (message.match_bits & (uint64_t{0xffff} << 48));
  transfer.initiator = match_id(endpoints_.empty() ? 0 : endpoints_.front()->pid(), lni_.nid());
  transfer.is_answer = true;
  transfer.eq = &eq_;
  transfer.user_ptr = RendezvousReply{.nid = message.source,
                                      .pid = transfer.to.pid,
                                      .id = message.rendezvous_id,
                                      .buffer_id = entry.buffer_id}
                          .user_ptr();
  get->lni = &lni_;
  get->is_rendezvous_get = true;
  get->portal = this;
  engine_.start_later(*get);
}

Event SoftPortal::event_of(const Packet &packet, const Hit &hit, uint16_t buffer_id) const {
  return {.type = type_of(packet.op),
          .rc = hit.rc,
          .list = hit.list,
          .rendezvous = packet.op == Op::kRendezvousPut,
          .buffer_id = buffer_id,
          .vni = packet.vni,
          .initiator = packet.initiator,
          .match_bits = packet.match_bits,
          .header_data = packet.header_data,
          .start = hit.address,
          .remote_offset = packet.remote_offset,
          .mlength = hit.rc == Rc::kOk ? hit.mlength : 0,
          .head = hit.list == List::kRequest ? engine_.request_form().bytes(packet) : 0,
          .rlength = packet.length,
          .rendezvous_id = packet.rendezvous_id};
}

void SoftPortal::post(const Event &event) {
  Event whole = event;
  whole.portal = this;
  whole.entries_used = lni_.pool().used(Resource::kListEntry);
  whole.entries_max = lni_.pool().limit(Resource::kListEntry);
  eq_.post(whole);
}

}  // namespace weft::cxi
