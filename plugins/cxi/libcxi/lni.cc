// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/libcxi/lni.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "plugins/cxi/libcxi/counter.h"
#include "plugins/cxi/libcxi/event_queue.h"
#include "plugins/cxi/libcxi/portal.h"
#include "plugins/cxi/libcxi/queues.h"

namespace weft::cxi {
namespace {

constexpr size_t kNumbers = 2048;  // of portals, and of counters
constexpr unsigned kTargetCommands = 4096, kCounterCommands = 1024;
constexpr unsigned kOftenWhenEmpty = 1;  // how often the NIC tells what it has read

}  // namespace

// ---- a command queue ----

Result<std::unique_ptr<HardwareQueue>> HardwareQueue::open(const Library &library, abi::Lni *lni,
                                                           const abi::CommandQueueOptions &options,
                                                           CommandRing::Use use) {
  abi::CommandQueue *queue = nullptr;
  if (const int rc = library.alloc_cmdq(lni, nullptr, &options, &queue); rc != 0)
    return fail(-rc, "cxi: no command queue of %u commands: %s: its service may have no more",
                options.count, strerror(-rc));
  return std::unique_ptr<HardwareQueue>(new HardwareQueue(library, queue, use));
}

uint8_t *HardwareQueue::add_patiently(CommandSize size) {
  while (!ring_.has_room()) {
    ring_.ring();
    std::this_thread::yield();
  }
  return ring_.add(size);
}

// ---- the LNI ----

Result<std::unique_ptr<LibcxiLni>> LibcxiLni::open(std::shared_ptr<OpenDevice> device,
                                                   const Service &service) {
  const Library &library = *device->library;
  abi::Lni *handle = nullptr;
  if (const int rc = library.alloc_lni(device->handle, &handle, service.id); rc != 0)
    return fail(-rc, "cxi: %s lets nobody in by service %u: %s%s", device->facts.name.c_str(),
                service.id, strerror(-rc),
                rc == -EPERM ? ": this user is no member of it" : ": it may be disabled");
  std::unique_ptr<LibcxiLni> lni(new LibcxiLni(std::move(device), handle, service));
  const abi::CommandQueueOptions options{.count = kTargetCommands, .policy = kOftenWhenEmpty};
  WEFT_TRY(lni->target_, HardwareQueue::open(library, handle, options, CommandRing::Use::kTarget));
  return lni;
}

LibcxiLni::LibcxiLni(std::shared_ptr<OpenDevice> device, abi::Lni *lni, const Service &service)
    : device_(std::move(device)),
      lni_(lni),
      service_(service),
      portals_(kNumbers),
      counters_(kNumbers) {
  mappings_.emplace(library(), lni_);
}

LibcxiLni::~LibcxiLni() {
  counter_.reset();
  target_.reset();
  for (const Known &known : profiles_) library().destroy_cp(known.handle);
  mappings_.reset();
  library().destroy_lni(lni_);
}

Result<unsigned> LibcxiLni::lcid(const Profile &profile, bool triggers) {
  const std::lock_guard guard(mutex_);
  for (const Known &known : profiles_)
    if (known.triggers == triggers && known.profile.vni == profile.vni &&
        known.profile.traffic == profile.traffic && known.profile.type == profile.type)
      return known.handle->lcid;
  abi::Profile *made = nullptr;
  const unsigned use = triggers ? abi::kForTriggers : abi::kForOthers;
  const int rc = library().alloc_trig_cp != nullptr
                     ? library().alloc_trig_cp(lni_, profile.vni, unsigned(profile.traffic),
                                               unsigned(profile.type), use, &made)
                     : library().alloc_cp(lni_, profile.vni, unsigned(profile.traffic),
                                          unsigned(profile.type), &made);
  if (rc != 0)
    return fail(-rc,
                "cxi: no communication profile of VNI %u and traffic class %u: %s: service %u "
                "may not allow them",
                profile.vni, unsigned(profile.traffic), strerror(-rc), service_.id);
  profiles_.push_back({profile, triggers, made});
  return made->lcid;
}

// ---- commands ----

void LibcxiLni::drain_target() {
  const std::lock_guard guard(target_mutex_);
  while (!target_->ring().is_drained()) std::this_thread::yield();
}

// Counters are opened before anybody says in which VNI; their commands send nothing.
Result<void> LibcxiLni::open_counter_queue() {
  const std::lock_guard guard(counter_mutex_);
  if (counter_ != nullptr) return {};
  Profile profile{.vni = service_.vnis.empty() ? Vni{1} : service_.vnis.front().first};
  {
    const std::lock_guard known(mutex_);
    const auto other = std::ranges::find(profiles_, true, &Known::triggers);
    if (other != profiles_.end()) profile = other->profile;
  }
  WEFT_TRY(const unsigned number, lcid(profile, true));
  const abi::CommandQueueOptions options{
      .count = kCounterCommands,
      .policy = kOftenWhenEmpty,
      .flags = abi::CommandQueueOptions::kTransmit | abi::CommandQueueOptions::kTriggers,
      .lcid = number};
  WEFT_TRY(counter_, HardwareQueue::open(library(), lni_, options, CommandRing::Use::kTriggers));
  return {};
}

// ---- what events name ----

Portal *LibcxiLni::portal(unsigned number) const {
  return number < kNumbers ? portals_[number].load(std::memory_order_acquire) : nullptr;
}
Counter *LibcxiLni::counter(unsigned number) const {
  return number < kNumbers ? counters_[number].load(std::memory_order_acquire) : nullptr;
}
void LibcxiLni::set_portal(unsigned number, Portal *portal) {
  if (number < kNumbers) portals_[number].store(portal, std::memory_order_release);
}
void LibcxiLni::set_counter(unsigned number, Counter *counter) {
  if (number < kNumbers) counters_[number].store(counter, std::memory_order_release);
}

// ---- objects ----

Result<std::unique_ptr<Endpoint>> LibcxiLni::endpoint(Vni vni, Pid pid) {
  return LibcxiEndpoint::open(*this, vni, pid);
}
Result<std::unique_ptr<EventQueue>> LibcxiLni::event_queue(const EventQueueOptions &options) {
  return LibcxiEventQueue::open(*this, options);
}
Result<std::unique_ptr<Counter>> LibcxiLni::counter() {
  WEFT_CHECK(open_counter_queue());
  return LibcxiCounter::open(*this);
}
Result<std::unique_ptr<Portal>> LibcxiLni::portal(const PortalOptions &options, EventQueue &eq) {
  return LibcxiPortal::open(*this, options, static_cast<LibcxiEventQueue &>(eq));
}
Result<std::unique_ptr<TransmitQueue>> LibcxiLni::transmit_queue(size_t depth,
                                                                 const Profile &profile) {
  return LibcxiTransmitQueue::open(*this, depth, profile);
}
Result<std::unique_ptr<TriggerQueue>> LibcxiLni::trigger_queue(const Profile &profile) {
  return LibcxiTriggerQueue::open(*this, profile);
}

}  // namespace weft::cxi
