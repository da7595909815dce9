// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/fakecxi/objects.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::cxi {
namespace {

constexpr uint64_t kUserEnd = uint64_t{1} << 56;  // of what a process can address
constexpr unsigned kProfiles = 16;
constexpr size_t kBlock = 64, kNullSize = 16;

void encode_target(uint8_t *bytes, const Event &event, unsigned portal) {
  using E = TargetEvent;
  put(bytes, E::size, uint64_t(EventSize::k64));
  put(bytes, E::header_data, event.header_data);
  put(bytes, E::portal, portal);
  put(bytes, E::list, uint64_t(event.list));
  put(bytes, E::rendezvous, event.rendezvous);
  put(bytes, E::get_issued, event.get_issued);
  put(bytes, E::auto_unlinked, event.auto_unlinked);
  put(bytes, E::match_bits, event.match_bits);
  put(bytes, E::buffer_id, event.buffer_id);
  put(bytes, E::vni, event.vni);
  put(bytes, E::mlength, event.mlength);
  put(bytes, E::rlength, event.rlength);
  put(bytes, E::remote_offset, event.remote_offset);
  put(bytes, E::start, event.start);
  put(bytes, E::entries_used, std::min<uint32_t>(event.entries_used, UINT16_MAX));
  put(bytes, E::entries_max, std::min<uint32_t>(event.entries_max, UINT16_MAX));
  put(bytes, E::rendezvous_id, event.rendezvous_id);
  put(bytes, E::rc, uint64_t(event.rc));
  if (event.type == EventType::kStateChange) {
    put(bytes, E::state, uint64_t(event.state));
    put(bytes, E::reason, uint64_t(event.reason));
    put(bytes, E::nic_auto, event.nic_auto);
  } else {
    put(bytes, E::initiator, event.initiator);
  }
}

// Returns its size.
size_t encode(uint8_t *bytes, const Event &event, const FakeLni &lni) {
  const unsigned portal = event.portal != nullptr ? lni.portals.number_of(event.portal) : 0;
  put(bytes, EventHead::type, uint64_t(event.type));
  switch (event.type) {
    case EventType::kAck:
    case EventType::kReply:
      put(bytes, InitiatorEvent::size, uint64_t(EventSize::k16));
      put(bytes, InitiatorEvent::user_ptr,
          event.rendezvous ? event.user_ptr | uint64_t{portal} << 29 : event.user_ptr);
      put(bytes, InitiatorEvent::mlength, event.mlength);
      put(bytes, InitiatorEvent::list, uint64_t(event.list));
      put(bytes, InitiatorEvent::rendezvous, event.rendezvous);
      put(bytes, InitiatorEvent::rc, uint64_t(event.rc));
      return InitiatorEvent::kBytes;
    case EventType::kTriggered:
      put(bytes, TriggerEvent::size, uint64_t(EventSize::k16));
      put(bytes, TriggerEvent::threshold, event.threshold);
      put(bytes, TriggerEvent::ct, lni.counters.number_of(event.counter));
      put(bytes, TriggerEvent::rc, uint64_t(Rc::kOk));
      return TriggerEvent::kBytes;
    case EventType::kCommandFailure:
      put(bytes, FailureEvent::size, uint64_t(EventSize::k16));
      put(bytes, FailureEvent::rc, uint64_t(event.rc));
      return FailureEvent::kBytes;
    default:
      encode_target(bytes, event, portal);
      return TargetEvent::kBytes;
  }
}

}  // namespace

// ---- memory ----

FakeLni::Place FakeLni::find(unsigned lac, uint64_t address, uint64_t length) const {
  const std::lock_guard guard(mutex_);
  for (const FakeMapping *const one : mappings_) {
    if (one->lac != lac) continue;
    const uint64_t offset = address - one->io_address;
    if (address >= kUserEnd) continue;
    if (offset <= one->length && length <= one->length - offset)
      return {one->memory, one->address + offset};
  }
  // Of an entry: whatever is mapped there when it is used. Otherwise a number that was never given.
  if (length > kUserEnd / 2) return {{.number = Memory::kWholeLac}, address};
  return {{.number = kNone}, address};
}

void FakeLni::add(FakeMapping &mapping) {
  const std::lock_guard guard(mutex_);
  mappings_.push_back(&mapping);
}

void FakeLni::remove(FakeMapping &mapping) {
  const std::lock_guard guard(mutex_);
  std::erase(mappings_, &mapping);
}

uint64_t FakeLni::next_address(uint64_t length) {
  const std::lock_guard guard(mutex_);
  const uint64_t address = next_;
  next_ += length + 4096;
  return address;
}

// ---- profiles ----

int FakeLni::add_profile(const Profile &profile) {
  const std::lock_guard guard(mutex_);
  for (unsigned lcid = 0; lcid != kProfiles; ++lcid)
    if (profiles_.try_emplace(lcid, profile).second) return int(lcid);
  return -ENOSPC;
}

void FakeLni::remove_profile(unsigned lcid) {
  const std::lock_guard guard(mutex_);
  profiles_.erase(lcid);
}

Profile FakeLni::profile(unsigned lcid) const {
  const std::lock_guard guard(mutex_);
  const auto found = profiles_.find(lcid);
  return found != profiles_.end() ? found->second : Profile{};
}

// ---- wait objects ----

bool FakeWait::open() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  writer_.reset(ends[0]);
  reader_.reset(ends[1]);
  signal();  // which kernels before Linux 5.15 cannot
  const bool works = is_set_;
  clear();
  return works;
}

void FakeWait::signal() {
  const std::lock_guard guard(mutex_);
  if (std::exchange(is_set_, true)) return;
  const char urgent = 1;
  if (::send(writer_.get(), &urgent, 1, MSG_OOB | MSG_NOSIGNAL) != 1) is_set_ = false;
}

void FakeWait::clear() {
  const std::lock_guard guard(mutex_);
  char urgent;
  if (std::exchange(is_set_, false)) (void)::recv(reader_.get(), &urgent, 1, MSG_OOB);
}

// ---- event queues ----

// Behind the body comes the size, and last of all the return code.
void FakeEventQueue::write_raw(const uint8_t *event, size_t size) {
  uint8_t *const at = events + kBlock + written_ % payload();
  constexpr size_t kSize = EventHead::kSizeByte;
  std::memcpy(at, event, kSize);
  if (size != kNullSize) std::memcpy(at + kSize + 1, event + kSize + 1, size - kSize - 2);
  __atomic_store_n(at + kSize, event[kSize], __ATOMIC_RELAXED);
  __atomic_store_n(at + size - 1, event[size - 1], __ATOMIC_RELEASE);
  written_ += size;
}

// An event is in one block, at a multiple of its size; the gap before it is filled.
void FakeEventQueue::write(const uint8_t *event, size_t size) {
  uint8_t nothing[kNullSize] = {};
  put(nothing, EventHead::size, uint64_t(EventSize::k16));
  put(nothing, EventHead::type, kNullEvent);
  put(nothing, InitiatorEvent::rc, uint64_t(Rc::kOk));
  while (written_ % size != 0) write_raw(nothing, kNullSize);
  write_raw(event, size);
}

void FakeEventQueue::on_event(const Event &event) {
  uint8_t bytes[TargetEvent::kBytes] = {};
  const size_t size = encode(bytes, event, *lni);
  const std::lock_guard guard(mutex_);
  write(bytes, size);
  ends_.push_back(written_);
  if (interrupts_ && wait != nullptr) wait->signal();
}

void FakeEventQueue::on_lost() {
  constexpr size_t kByte = EventStatus::dropped.bit / 8;
  __atomic_fetch_or(events + kByte, uint8_t{1}, __ATOMIC_RELAXED);
}

void FakeEventQueue::rung(uint64_t value) {
  size_t taken = 0;
  {
    const std::lock_guard guard(mutex_);
    const uint64_t place = (get(&value, EventReader::read) - 1) * kBlock;
    read_ += (place + payload() - read_ % payload()) % payload();
    while (!ends_.empty() && ends_.front() <= read_) {
      ends_.pop_front();
      ++taken;
    }
    interrupts_ = get(&value, EventReader::interrupt_off) == 0;
  }
  if (taken != 0) queue->ack(taken);
}

// ---- counters ----

void FakeCounter::Register::rung(uint64_t value) {
  if (success)
    counter->add(value);
  else
    counter->add_failure(value);
  device->device->push();
}

}  // namespace weft::cxi
