// SPDX-License-Identifier: BSD-2-Clause
// R13: puts that wait at a lossless portal until there is a place for them.
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "plugins/cxi/soft/lni.h"
#include "plugins/cxi/soft/portal.h"

namespace weft::cxi {
namespace {

constexpr size_t kMostEvents = 3;  // of a put: SoftPortal::events_of()

size_t room_of(const Packet &packet) {
  return sizeof(SoftPortal::Waiting) + bytes_behind(packet);
}

}  // namespace

bool SoftPortal::may_wait(const Packet &packet) const {
  return options_.lossless && is_running() && packet.asker != nullptr &&
         (packet.op == Op::kPut || packet.op == Op::kRendezvousPut);
}

// Whether a put whose bytes are to come could not begin at once.
bool SoftPortal::would_wait(const Arrival &arrival) const {
  return !waiting_.empty() || arrival.hit.entry == nullptr || !eq_.has_room(kMostEvents);
}

// Without memory flow control takes its place.
Reply SoftPortal::wait(const Packet &packet) {
  const uint32_t count = bytes_behind(packet);
  Waiting one{.packet = packet, .bytes = nullptr};
  Reply reply{.token = packet.token, .rc = Rc::kNone};
  if (count != 0) one.bytes.reset(new (std::nothrow) uint8_t[count]);
  const bool has_memory = count == 0 || one.bytes != nullptr;
  if (!has_memory) {
    reply.rc = disable(Reason::kUncorrectable);
  } else if (!sdk::hmem_copy(one.bytes.get(), nullptr, packet.bytes, packet.place, count)) {
    reply.rc = Rc::kNoTranslation;
  } else if (!packet.asker->take_room(room_of(packet))) {
    reply.rc = Rc::kDropped;
  } else {
    one.packet.bytes = one.bytes.get();
    one.packet.place = nullptr;
    waiting_.push_back(std::move(one));
    note_waiting();
  }
  if (reply.rc != Rc::kNone) this->count(packet, reply.rc, false);
  return reply;
}

// In their order. The first one that finds no place stops those behind it; where the portal runs no
// more, all are dropped (R2).
void SoftPortal::try_waiting() {
  while (!waiting_.empty()) {
    Waiting one = std::move(waiting_.front());
    waiting_.pop_front();
    const std::optional<Reply> reply = try_to_serve(one.packet);
    if (!reply) {
      waiting_.push_front(std::move(one));
      return;
    }
    one.packet.asker->give_room(room_of(one.packet));
    engine_.answer_late(*one.packet.asker, *reply);
  }
  note_waiting();
}

void SoftPortal::note_waiting() {
  engine_.set_waiting(*this, !waiting_.empty());
}

void SoftPortal::end_waiting(const std::function<bool(const Waiting &)> &ends, Rc rc) {
  std::erase_if(waiting_, [&](const Waiting &one) {
    if (!ends(one)) return false;
    one.packet.asker->give_room(room_of(one.packet));
    if (rc != Rc::kNone)
      engine_.answer_late(*one.packet.asker, {.token = one.packet.token, .rc = rc});
    return true;
  });
  note_waiting();
}

void SoftPortal::forget(const Asker &asker) {
  end_waiting([&](const Waiting &one) { return one.packet.asker == &asker; }, Rc::kNone);
}

void SoftPortal::unmapped(const SoftEndpoint &endpoint) {
  std::erase(endpoints_, &endpoint);
  end_waiting([&](const Waiting &one) { return one.packet.vni == endpoint.vni(); },
              Rc::kPtlteNotFound);
}

}  // namespace weft::cxi
