// SPDX-License-Identifier: BSD-2-Clause
// The functions of libcxi.so.1, as weft's backend calls them.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "plugins/cxi/fakecxi/commands.h"
#include "plugins/cxi/fakecxi/functions.h"
#include "plugins/cxi/fakecxi/objects.h"
#include "plugins/cxi/fakecxi/world.h"
#include "plugins/cxi/soft/lni.h"

using namespace weft;
using namespace weft::cxi;

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// A list of the library has `count` and entries behind it.
template <class List, class Entry>
int make_list(const std::vector<Entry> &entries, size_t offset, List **out) {
  auto *const list = static_cast<List *>(
      std::calloc(1, std::max(sizeof(List), offset + entries.size() * sizeof(Entry))));
  if (list == nullptr) return -ENOMEM;
  list->count = unsigned(entries.size());
  if (!entries.empty())
    std::memcpy(reinterpret_cast<uint8_t *>(list) + offset, entries.data(),
                entries.size() * sizeof(Entry));
  *out = list;
  return 0;
}

// Takes what was made, or says why it was not.
template <class T>
int take(Result<std::unique_ptr<T>> made, std::unique_ptr<T> &into) {
  if (!made) return -made.error().code;
  into = std::move(*made);
  return 0;
}

abi::Service service_of(const cxi::Service &told) {
  using S = abi::Service;
  S service{};
  service.id = told.id;
  service.flags = uint8_t((told.is_enabled ? S::kEnabled : 0) | S::kLimitsResources |
                          (told.members.empty() ? 0 : S::kRestrictsMembers) |
                          (told.vnis.empty() ? 0 : S::kRestrictsVnis) |
                          (told.classes.empty() ? 0 : S::kRestrictsClasses));
  for (size_t i = 0; i != std::min(told.members.size(), abi::kMembers); ++i)
    service.members[i] = {told.members[i].id, told.members[i].is_group ? abi::kGroup : abi::kUser};
  for (const cxi::Service::Vnis &range : told.vnis)
    for (unsigned vni = range.first; vni <= range.last && service.vni_count != abi::kVnis; ++vni)
      service.vnis[service.vni_count++] = Vni(vni);
  for (const TrafficClass traffic : told.classes) service.classes[size_t(traffic)] = true;
  const auto limit = [](size_t most) {
    return abi::Service::Limit{uint16_t(std::min<size_t>(most, UINT16_MAX)), 0};
  };
  service.limits[abi::kListEntries] = limit(told.max_list_entries);
  service.limits[abi::kTriggered] = limit(told.max_triggered);
  return service;
}

struct FakeProfile : abi::Profile {
  FakeLni *lni;
};

FakeLni &own(abi::Lni *lni) {
  return *static_cast<FakeLni *>(lni);
}
FakePortal &own(abi::Portal *portal) {
  return *static_cast<FakePortal *>(portal);
}
FakeEventQueue &own(abi::EventQueue *queue) {
  return *static_cast<FakeEventQueue *>(queue);
}
FakeCounter &own(abi::Counter *counter) {
  return *static_cast<FakeCounter *>(counter);
}
FakeWait &own(abi::WaitObject *wait) {
  return *reinterpret_cast<FakeWait *>(wait);
}

}  // namespace

FAKE_EXPORT void weft_cxi_doorbell(void *address, uint64_t value) {
  World::the().ring(address, value);
}

// ---- devices ----

FAKE_EXPORT int cxil_get_device_list(abi::DeviceList **out) {
  return make_list(World::the().devices(), offsetof(abi::DeviceList, info), out);
}
FAKE_EXPORT void cxil_free_device_list(abi::DeviceList *list) {
  std::free(list);
}
FAKE_EXPORT int cxil_open_device(uint32_t number, abi::Device **out) {
  FakeDevice *const device = World::the().open(number);
  if (device == nullptr) return -ENODEV;
  *out = device;
  return 0;
}
FAKE_EXPORT void cxil_close_device(abi::Device *device) {
  delete static_cast<FakeDevice *>(device);
}
FAKE_EXPORT int cxil_get_amo_remap_to_pcie_fadd(abi::Device *device, int *out) {
  *out = static_cast<FakeDevice *>(device)->device->facts().amo_remap_to_pcie_fadd;
  return 0;
}
FAKE_EXPORT int cxil_read_cntr(abi::Device *device, unsigned number, uint64_t *value,
                               struct timespec *when) {
  const auto which = telemetry_of(number);
  if (!which) return -EINVAL;
  *value = static_cast<FakeDevice *>(device)->device->telemetry(*which);
  if (when != nullptr) ::clock_gettime(CLOCK_REALTIME, when);
  return 0;
}

// ---- services ----

FAKE_EXPORT int cxil_get_svc_list(abi::Device *device, abi::ServiceList **out) {
  std::vector<abi::Service> all;
  for (const cxi::Service &one : static_cast<FakeDevice *>(device)->device->services())
    all.push_back(service_of(one));
  return make_list(all, offsetof(abi::ServiceList, services), out);
}
FAKE_EXPORT void cxil_free_svc_list(abi::ServiceList *list) {
  std::free(list);
}
FAKE_EXPORT int cxil_get_svc_rsrc_use(abi::Device *device, unsigned service,
                                      abi::ResourceUse *out) {
  auto &fake = *static_cast<FakeDevice *>(device);
  *out = {};
  out->service = service;
  const std::lock_guard guard(fake.mutex);
  if (fake.lnis.empty()) return 0;
  Pool &pool = static_cast<SoftLni &>(*(*fake.lnis.begin())->lni).pool();
  out->in_use[abi::kListEntries] = uint16_t(pool.used(Resource::kListEntry));
  out->in_use[abi::kTriggered] = uint16_t(pool.used(Resource::kTriggered));
  return 0;
}

// ---- what a process opens ----

FAKE_EXPORT int cxil_alloc_lni(abi::Device *device, abi::Lni **out, unsigned service) {
  auto &fake = *static_cast<FakeDevice *>(device);
  auto lni = std::make_unique<FakeLni>();
  lni->device = &fake;
  if (const int rc = take(fake.device->open_lni(service), lni->lni); rc != 0) return rc;
  const std::lock_guard guard(fake.mutex);
  fake.lnis.insert(lni.get());
  *out = lni.release();
  return 0;
}
FAKE_EXPORT int cxil_destroy_lni(abi::Lni *lni) {
  const std::unique_ptr<FakeLni> gone(&own(lni));
  const std::lock_guard guard(gone->device->mutex);
  gone->device->lnis.erase(gone.get());
  return 0;
}

FAKE_EXPORT int cxil_alloc_cp(abi::Lni *lni, unsigned vni, unsigned traffic, unsigned type,
                              abi::Profile **out) {
  const int lcid = own(lni).add_profile(
      {.vni = Vni(vni), .traffic = TrafficClass(traffic), .type = ProfileType(type)});
  if (lcid < 0) return lcid;
  auto *const made = new FakeProfile{{vni, traffic, type, unsigned(lcid)}, &own(lni)};
  *out = made;
  return 0;
}
FAKE_EXPORT int cxil_alloc_trig_cp(abi::Lni *lni, unsigned vni, unsigned traffic, unsigned type,
                                   unsigned, abi::Profile **out) {
  return cxil_alloc_cp(lni, vni, traffic, type, out);
}
FAKE_EXPORT int cxil_destroy_cp(abi::Profile *profile) {
  const std::unique_ptr<FakeProfile> gone(static_cast<FakeProfile *>(profile));
  gone->lni->remove_profile(gone->lcid);
  return 0;
}

FAKE_EXPORT int cxil_alloc_domain(abi::Lni *lni, unsigned vni, unsigned pid, abi::Domain **out) {
  auto domain = std::make_unique<FakeDomain>();
  if (const int rc = take(own(lni).lni->endpoint(Vni(vni), Pid(pid)), domain->endpoint); rc != 0)
    return rc;
  domain->vni = vni;
  domain->pid = domain->endpoint->pid();
  *out = domain.release();
  return 0;
}
FAKE_EXPORT int cxil_destroy_domain(abi::Domain *domain) {
  delete static_cast<FakeDomain *>(domain);
  return 0;
}

// ---- memory ----

// All of the process, and what is not pinned, is seen where it is; the rest is seen elsewhere, as a
// translation may have it.
FAKE_EXPORT int cxil_map(abi::Lni *lni, void *address, size_t length, uint32_t flags,
                         abi::MapHints *, abi::Mapping **out) {
  if ((flags & abi::kTranslated) != 0 && !World::the().has_ats()) return -EOPNOTSUPP;
  const bool pinned = (flags & abi::kPin) != 0;
  const unsigned access = (flags & abi::kNicReads ? cxi::Lni::kRead : 0u) |
                          (flags & abi::kNicWrites ? cxi::Lni::kWrite : 0u) |
                          (pinned ? 0u : cxi::Lni::kRemote);
  auto mapping = std::make_unique<FakeMapping>();
  const auto start = reinterpret_cast<uintptr_t>(address);
  auto memory = own(lni).lni->map(start, length, access);
  if (!memory) return -memory.error().code;
  mapping->lni = &own(lni);
  mapping->memory = *memory;
  mapping->address = start;
  mapping->length = length;
  mapping->lac = pinned ? 1 : 0;
  mapping->io_address = pinned ? own(lni).next_address(length) : start;
  own(lni).add(*mapping);
  *out = mapping.release();
  return 0;
}
FAKE_EXPORT int cxil_unmap(abi::Mapping *mapping) {
  const std::unique_ptr<FakeMapping> gone(static_cast<FakeMapping *>(mapping));
  gone->lni->remove(*gone);
  gone->lni->lni->unmap(gone->memory);
  return 0;
}

// ---- portals ----

FAKE_EXPORT int cxil_alloc_pte(abi::Lni *lni, abi::EventQueue *eq, abi::PortalOptions *options,
                               abi::Portal **out) {
  using O = abi::PortalOptions;
  auto portal = std::make_unique<FakePortal>();
  const PortalOptions asked{.is_matching = (options->bits & O::kMatching) != 0,
                            .flow_control = (options->bits & O::kFlowControl) != 0,
                            .lossless = (options->bits & O::kLossless) != 0,
                            .match_events = (options->bits & O::kMatchEvents) != 0};
  if (eq == nullptr || (options->bits & O::kLongEvents) == 0) return -EINVAL;
  if (const int rc = take(own(lni).lni->portal(asked, *own(eq).queue), portal->portal); rc != 0)
    return rc;
  portal->lni = &own(lni);
  portal->number = own(lni).portals.add(portal->portal.get());
  if (portal->number == 0) return -ENOSPC;
  *out = portal.release();
  return 0;
}
FAKE_EXPORT int cxil_destroy_pte(abi::Portal *portal) {
  const std::unique_ptr<FakePortal> gone(&own(portal));
  gone->lni->portals.remove(gone->number);
  return 0;
}
FAKE_EXPORT int cxil_map_pte(abi::Portal *portal, abi::Domain *domain, unsigned index,
                             bool is_multicast, abi::PortalMap **out) {
  if (is_multicast || index > UINT8_MAX) return -EINVAL;
  const auto mapped =
      own(portal).portal->map(*static_cast<FakeDomain *>(domain)->endpoint, Index(index));
  if (!mapped) return -mapped.error().code;
  *out = reinterpret_cast<abi::PortalMap *>(new FakePortalMap);
  return 0;
}
// The portal goes at once in any case.
FAKE_EXPORT int cxil_unmap_pte(abi::PortalMap *map) {
  delete reinterpret_cast<FakePortalMap *>(map);
  return 0;
}
FAKE_EXPORT int cxil_pte_status(abi::Portal *portal, abi::PortalStatus *out) {
  const PortalStatus status = own(portal).portal->status();
  out->drops = status.drops;
  out->state = uint8_t(status.state);
  out->entries_used = uint16_t(status.entries_used);
  out->entries_max = uint16_t(std::min<size_t>(status.entries_max, UINT16_MAX));
  const size_t fit = std::min<size_t>(out->offsets_length, status.unexpected.size());
  if (out->offsets != nullptr) std::copy_n(status.unexpected.begin(), fit, out->offsets);
  out->offsets_length = uint16_t(status.unexpected.size());
  return 0;
}
FAKE_EXPORT int cxil_pte_transition_sm(abi::Portal *portal, unsigned drops) {
  return own(portal).portal->take_over(drops);
}
FAKE_EXPORT int cxil_invalidate_pte_le(abi::Portal *portal, unsigned buffer_id, unsigned list) {
  own(portal).portal->invalidate(List(list), uint16_t(buffer_id));
  return 0;
}

// ---- queues ----

FAKE_EXPORT int cxil_alloc_cmdq(abi::Lni *lni, abi::EventQueue *,
                                const abi::CommandQueueOptions *options, abi::CommandQueue **out) {
  auto queue = std::make_unique<FakeCommandQueue>();
  if (const int rc = queue->open(own(lni), *options); rc != 0) return rc;
  *out = queue.release();
  return 0;
}
FAKE_EXPORT int cxil_destroy_cmdq(abi::CommandQueue *queue) {
  delete static_cast<FakeCommandQueue *>(queue);
  return 0;
}
FAKE_EXPORT int cxil_cmdq_ack_counter(abi::CommandQueue *queue, unsigned *out) {
  const auto &triggers = static_cast<FakeCommandQueue *>(queue)->triggers;
  if (triggers == nullptr) return -EINVAL;
  *out = unsigned(triggers->pending());
  return 0;
}

FAKE_EXPORT int cxil_alloc_evtq(abi::Lni *lni, const abi::Mapping *mapping,
                                const abi::EventQueueOptions *options, abi::WaitObject *wait,
                                abi::WaitObject *, abi::EventQueue **out) {
  if (mapping == nullptr || options->bytes % 4096 != 0 || options->bytes == 0) return -EINVAL;
  auto queue = std::make_unique<FakeEventQueue>();
  const EventQueueOptions asked{
      .places = options->bytes / 64 - 1,  // the status has one, and one stays free
      .reserved = options->reserved,
      .fill_percent = options->status_count != 0 ? options->status_base : 100};
  if (const int rc = take(own(lni).lni->event_queue(asked), queue->queue); rc != 0) return rc;
  queue->lni = &own(lni);
  queue->wait = wait != nullptr ? &own(wait) : nullptr;
  queue->bytes = unsigned(options->bytes);
  queue->events = static_cast<uint8_t *>(options->ring);
  queue->state_address = &queue->reader;
  queue->number = own(lni).event_queues.add(queue->queue.get());
  if (queue->number == 0) return -ENOSPC;
  static_cast<EventRing &>(*queue->queue).set_sink(*queue);
  World::the().add_register(queue->state_address, *queue);
  *out = queue.release();
  return 0;
}
FAKE_EXPORT int cxil_destroy_evtq(abi::EventQueue *queue) {
  const std::unique_ptr<FakeEventQueue> gone(&own(queue));
  World::the().remove_register(gone->state_address);
  gone->lni->event_queues.remove(gone->number);
  gone->queue.reset();  // whose events still come here until then
  return 0;
}
FAKE_EXPORT int cxil_evtq_adjust_reserved_fc(abi::EventQueue *queue, int value) {
  cxi::EventQueue &soft = *own(queue).queue;
  if (value < 0) {
    soft.unreserve(size_t(-value));
    return 0;
  }
  return soft.reserve(size_t(value)) ? value : -ENOSPC;
}

FAKE_EXPORT int cxil_alloc_wait_obj(abi::Lni *, abi::WaitObject **out) {
  auto wait = std::make_unique<FakeWait>();
  if (!wait->open()) return -errno;
  *out = reinterpret_cast<abi::WaitObject *>(wait.release());
  return 0;
}
FAKE_EXPORT int cxil_destroy_wait_obj(abi::WaitObject *wait) {
  delete &own(wait);
  return 0;
}
FAKE_EXPORT int cxil_get_wait_obj_fd(abi::WaitObject *wait) {
  return own(wait).fd();
}
FAKE_EXPORT void cxil_clear_wait_obj(abi::WaitObject *wait) {
  own(wait).clear();
}

// ---- counters ----

FAKE_EXPORT int cxil_alloc_ct(abi::Lni *lni, uint64_t *word, abi::Counter **out) {
  auto counter = std::make_unique<FakeCounter>();
  if (const int rc = take(own(lni).lni->counter(), counter->counter); rc != 0) return rc;
  counter->lni = &own(lni);
  counter->number = own(lni).counters.add(counter->counter.get());
  if (counter->number == 0) return -ENOSPC;
  counter->doorbell = counter->page;
  counter->word = word;
  counter->counter->write_back_to(word);
  for (FakeCounter::Register *const one : {&counter->success, &counter->failure}) {
    one->counter = counter->counter.get();
    one->device = own(lni).device;
    one->success = one == &counter->success;
  }
  World::the().add_register(counter->page + abi::kAddSuccess, counter->success);
  World::the().add_register(counter->page + abi::kAddFailure, counter->failure);
  *out = counter.release();
  return 0;
}
FAKE_EXPORT int cxil_ct_wb_update(abi::Counter *counter, uint64_t *word) {
  counter->word = word;
  own(counter).counter->write_back_to(word);
  return 0;
}
FAKE_EXPORT int cxil_destroy_ct(abi::Counter *counter) {
  const std::unique_ptr<FakeCounter> gone(&own(counter));
  World::the().remove_register(gone->page + abi::kAddSuccess);
  World::the().remove_register(gone->page + abi::kAddFailure);
  gone->lni->counters.remove(gone->number);
  return 0;
}

namespace weft::cxi {

LibraryFunctions fake_functions() {
  return {.get_device_list = cxil_get_device_list,
          .free_device_list = cxil_free_device_list,
          .open_device = cxil_open_device,
          .close_device = cxil_close_device,
          .get_svc_list = cxil_get_svc_list,
          .free_svc_list = cxil_free_svc_list,
          .get_svc_rsrc_use = cxil_get_svc_rsrc_use,
          .alloc_lni = cxil_alloc_lni,
          .destroy_lni = cxil_destroy_lni,
          .alloc_cp = cxil_alloc_cp,
          .destroy_cp = cxil_destroy_cp,
          .alloc_cmdq = cxil_alloc_cmdq,
          .destroy_cmdq = cxil_destroy_cmdq,
          .cmdq_ack_counter = cxil_cmdq_ack_counter,
          .alloc_domain = cxil_alloc_domain,
          .destroy_domain = cxil_destroy_domain,
          .alloc_pte = cxil_alloc_pte,
          .destroy_pte = cxil_destroy_pte,
          .map_pte = cxil_map_pte,
          .unmap_pte = cxil_unmap_pte,
          .pte_status = cxil_pte_status,
          .pte_transition_sm = cxil_pte_transition_sm,
          .invalidate_pte_le = cxil_invalidate_pte_le,
          .alloc_evtq = cxil_alloc_evtq,
          .destroy_evtq = cxil_destroy_evtq,
          .evtq_adjust_reserved_fc = cxil_evtq_adjust_reserved_fc,
          .alloc_wait_obj = cxil_alloc_wait_obj,
          .destroy_wait_obj = cxil_destroy_wait_obj,
          .get_wait_obj_fd = cxil_get_wait_obj_fd,
          .clear_wait_obj = cxil_clear_wait_obj,
          .map = cxil_map,
          .unmap = cxil_unmap,
          .alloc_ct = cxil_alloc_ct,
          .ct_wb_update = cxil_ct_wb_update,
          .destroy_ct = cxil_destroy_ct,
          .alloc_trig_cp = cxil_alloc_trig_cp,
          .get_amo_remap_to_pcie_fadd = cxil_get_amo_remap_to_pcie_fadd,
          .read_cntr = cxil_read_cntr,
          .svc_get_vni_range = nullptr,
          .doorbell = weft_cxi_doorbell};
}

}  // namespace weft::cxi
