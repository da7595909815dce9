// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/lni.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "plugins/cxi/nic/service.h"
#include "plugins/cxi/soft/counter.h"
#include "plugins/cxi/soft/portal.h"
#include "plugins/cxi/soft/queues.h"

namespace weft::cxi {
namespace {

constexpr size_t kMaxPlaces = size_t{1} << 24;  // of an event queue; more is a mistake

class SoftEventQueue final : public EventRing {
 public:
  SoftEventQueue(Engine &engine, SoftLni &lni, const EventQueueOptions &options)
      : EventRing(options), engine_(engine), lni_(lni) {}
  ~SoftEventQueue() override {
    const EngineGuard guard(engine_.lock);
    engine_.forget(*this);
    lni_.forget(*this);
  }

 private:
  Engine &engine_;
  SoftLni &lni_;
};

}  // namespace

SoftLni::~SoftLni() {
  const EngineGuard guard(engine_.lock);
  engine_.forget(*this);
  if (--engine_.nids_[nid_] == 0) engine_.nids_.erase(nid_);
}

void SoftLni::forget(const SoftTriggerQueue &queue) {
  for (SoftCounter *const counter : counters_) counter->forget(queue);
}

void SoftLni::forget(const EventQueue &eq) {
  for (SoftCounter *const counter : counters_) counter->forget(eq);
}

void SoftLni::forget(const SoftCounter &gone) {
  for (SoftCounter *const counter : counters_) counter->forget(gone);
}

Result<std::unique_ptr<Endpoint>> SoftLni::endpoint(Vni vni, Pid pid) {
  if (pid > kMaxPid && pid != kAnyPid)
    return fail(FI_EINVAL, "cxi: PID %u: it is 0 to %u, or %u for any that is free", pid, kMaxPid,
                kAnyPid);
  WEFT_CHECK(check_vni(service_, vni));
  const EngineGuard guard(engine_.lock);
  WEFT_TRY(const Pid claimed, engine_.outside().claim(nid_, vni, pid));
  auto endpoint = std::make_unique<SoftEndpoint>(engine_, nid_, vni, claimed);
  engine_.add_endpoint(*endpoint);
  return endpoint;
}

Result<Memory> SoftLni::map(uint64_t start, uint64_t length, unsigned access) {
  return map_device(start, length, access, {});
}

Result<Memory> SoftLni::map_device(uint64_t start, uint64_t length, unsigned access,
                                   const sdk::HmemPlace &place) {
  if (length > UINT64_MAX - start)
    return fail(FI_EINVAL, "cxi: memory at %#llx of %llu bytes ends beyond the address space",
                (unsigned long long)start, (unsigned long long)length);
  const EngineGuard guard(engine_.lock);
  return memory_.add(start, length, access, place);
}

void SoftLni::unmap(const Memory &memory) {
  const EngineGuard guard(engine_.lock);
  memory_.remove(memory);
}

void SoftLni::lend(const Memory &memory, uint64_t reader) {
  const EngineGuard guard(engine_.lock);
  memory_.lend(memory, reader);
}

Result<std::unique_ptr<EventQueue>> SoftLni::event_queue(const EventQueueOptions &options) {
  if (options.places > kMaxPlaces)
    return fail(FI_EINVAL, "cxi: an event queue of %zu places: at most %zu", options.places,
                kMaxPlaces);
  if (options.reserved >= options.places)
    return fail(FI_ENOSPC, "cxi: an event queue of %zu places cannot reserve %zu", options.places,
                options.reserved);
  auto queue = std::make_unique<SoftEventQueue>(engine_, *this, options);
  if (options.waits && queue->wait_fd() < 0)
    return fail(EMFILE, "cxi: no descriptor for an event queue: see `ulimit -n`");
  return queue;
}

Result<std::unique_ptr<Counter>> SoftLni::counter() {
  auto counter = std::make_unique<SoftCounter>(engine_, *this);
  return counter;
}

Result<std::unique_ptr<Portal>> SoftLni::portal(const PortalOptions &options, EventQueue &eq) {
  return std::make_unique<SoftPortal>(engine_, *this, options, static_cast<EventRing &>(eq));
}

Result<std::unique_ptr<TransmitQueue>> SoftLni::transmit_queue(size_t depth,
                                                               const Profile &profile) {
  WEFT_CHECK(check_profile(service_, profile));
  return std::make_unique<SoftTransmitQueue>(engine_, *this, depth, profile);
}

Result<std::unique_ptr<TriggerQueue>> SoftLni::trigger_queue(const Profile &profile) {
  WEFT_CHECK(check_profile(service_, profile));
  return std::make_unique<SoftTriggerQueue>(engine_, *this, profile);
}

// ---- the endpoint ----

SoftEndpoint::~SoftEndpoint() {
  const EngineGuard guard(engine_.lock);
  for (SoftPortal *const portal : portals_)
    if (portal != nullptr) portal->unmapped(*this);
  engine_.remove_endpoint(*this);
  engine_.outside().release(nid_, vni_, pid_);
  engine_.settle();
}

bool SoftEndpoint::put(Index index, SoftPortal &portal) {
  if (portals_[index] != nullptr) return false;
  portals_[index] = &portal;
  return true;
}

void SoftEndpoint::remove(const SoftPortal &portal) {
  std::replace(portals_.begin(), portals_.end(), const_cast<SoftPortal *>(&portal),
               static_cast<SoftPortal *>(nullptr));
}

}  // namespace weft::cxi
