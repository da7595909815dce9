// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/decode.h"

namespace weft::cxi {
namespace {

Event decode_initiator(const uint8_t *bytes, const ObjectTable &objects) {
  const bool is_short = EventSize(get(bytes, EventHead::size)) == EventSize::k16;
  Event event{.rc = Rc(get(bytes, is_short ? InitiatorEvent::rc : LongInitiatorEvent::rc)),
              .list = List(get(bytes, InitiatorEvent::list)),
              .rendezvous = get(bytes, InitiatorEvent::rendezvous) != 0,
              .user_ptr = get(bytes, InitiatorEvent::user_ptr),
              .mlength = uint32_t(get(bytes, InitiatorEvent::mlength))};
  // The Get of the NIC itself says in its user pointer which portal it was for.
  if (event.rendezvous) event.portal = objects.portal(event.user_ptr >> 29 & 0x7ff);
  return event;
}

Event decode_target(const uint8_t *bytes, const ObjectTable &objects) {
  if (EventSize(get(bytes, EventHead::size)) == EventSize::k32) {
    using E = ShortTargetEvent;
    const auto length = uint32_t(get(bytes, E::length));
    return {.rc = Rc(get(bytes, E::rc)),
            .list = List(get(bytes, E::list)),
            .auto_unlinked = get(bytes, E::auto_unlinked) != 0,
            .portal = objects.portal(unsigned(get(bytes, E::portal))),
            .buffer_id = uint16_t(get(bytes, E::buffer_id)),
            .vni = Vni(get(bytes, E::vni)),
            .initiator = uint32_t(get(bytes, E::initiator)),
            .match_bits = get(bytes, E::match_bits),
            .header_data = get(bytes, E::header_data),
            .mlength = length,
            .rlength = length};
  }
  using E = TargetEvent;
  Event event{.rc = Rc(get(bytes, E::rc)),
              .list = List(get(bytes, E::list)),
              .auto_unlinked = get(bytes, E::auto_unlinked) != 0,
              .rendezvous = get(bytes, E::rendezvous) != 0,
              .get_issued = get(bytes, E::get_issued) != 0,
              .portal = objects.portal(unsigned(get(bytes, E::portal))),
              .buffer_id = uint16_t(get(bytes, E::buffer_id)),
              .vni = Vni(get(bytes, E::vni)),
              .initiator = uint32_t(get(bytes, E::initiator)),
              .match_bits = get(bytes, E::match_bits),
              .header_data = get(bytes, E::header_data),
              .start = get(bytes, E::start),
              .remote_offset = get(bytes, E::remote_offset),
              .mlength = uint32_t(get(bytes, E::mlength)),
              .rlength = uint32_t(get(bytes, E::rlength)),
              .rendezvous_id = uint8_t(get(bytes, E::rendezvous_id)),
              .entries_used = uint32_t(get(bytes, E::entries_used)),
              .entries_max = uint32_t(get(bytes, E::entries_max))};
  if (EventType(get(bytes, EventHead::type)) == EventType::kStateChange) {
    event.initiator = 0;
    event.state = PortalState(get(bytes, E::state));
    event.reason = Reason(get(bytes, E::reason));
    event.nic_auto = get(bytes, E::nic_auto) != 0;
  }
  return event;
}

}  // namespace

Event decode_event(const uint8_t *bytes, const ObjectTable &objects) {
  const auto type = EventType(get(bytes, EventHead::type));
  Event event{.type = EventType::kError};
  switch (type) {
    case EventType::kPut:
    case EventType::kGet:
    case EventType::kAtomic:
    case EventType::kFetchAtomic:
    case EventType::kPutOverflow:
    case EventType::kLink:
    case EventType::kSearch:
    case EventType::kStateChange:
    case EventType::kUnlink:
    case EventType::kRendezvous:
    case EventType::kMatch:
      event = decode_target(bytes, objects);
      break;
    case EventType::kAck:
    case EventType::kReply:
      event = decode_initiator(bytes, objects);
      break;
    case EventType::kTriggered:
      event.rc = Rc(get(bytes, TriggerEvent::rc));
      event.counter = objects.counter(unsigned(get(bytes, TriggerEvent::ct)));
      event.threshold = get(bytes, TriggerEvent::threshold);
      break;
    default:  // a command that the hardware has refused: it names a place in a queue, and no more
      return event;
  }
  event.type = type;
  return event;
}

}  // namespace weft::cxi
