// SPDX-License-Identifier: BSD-2-Clause
// The services of a registry: who may use what, and what is in use.
#include <unistd.h>

#include <algorithm>

#include "plugins/cxi/soft/registry.h"
#include "plugins/cxi/soft/registry_file.h"
#include "plugins/cxi/soft/registry_lock.h"

namespace weft::cxi {

// A slot of this process, for a service.
class Registry::Share final : public Pool {
 public:
  Share(Registry &registry, uint32_t slot) : registry_(registry), slot_(slot) {}
  ~Share() override {
    if (!registry_.mark_.is_child()) registry_.give_up(slot_);
  }
  Share(const Share &) = delete;
  Share &operator=(const Share &) = delete;

  bool take(Resource resource) override { return registry_.take(slot_, resource); }
  void give(Resource resource) override { registry_.give(slot_, resource); }
  void count(Telemetry which) override { registry_.count(slot_, which); }
  // What other services have taken of the NIC is missing here, too.
  uint32_t used(Resource resource) const override {
    const auto i = size_t(resource);
    const auto left = [](uint32_t limit, uint32_t used) { return limit - std::min(limit, used); };
    const uint32_t most = place().limits[i].load();
    return most - std::min(left(most, place().used[i].load()),
                           left(registry_.limit(resource), registry_.used(resource)));
  }
  uint32_t limit(Resource resource) const override {
    return place().limits[size_t(resource)].load();
  }

 private:
  const RegistryFile::Place &place() const {
    RegistryFile &file = *registry_.file_;
    const RegistryFile::Place *const own = file.place_of(file.slots[slot_]);
    return own != nullptr ? *own : file.places[0];  // somebody has written to the file
  }

  Registry &registry_;
  const uint32_t slot_;
};

// One that is destroyed meanwhile may be another one by now.
std::vector<Service> Registry::services() const {
  std::vector<Service> all;
  for (const RegistryFile::Place &place : file_->places) {
    Service service = RegistryFile::read(place);
    if (service.id != 0 && place.id.load() == service.id) all.push_back(std::move(service));
  }
  std::ranges::sort(all, {}, &Service::id);
  return all;
}

Result<Registry::Opened> Registry::use(uint32_t id, const std::string &nic) {
  WEFT_TRY(const auto lock, FileLock::take(*this));
  WEFT_TRY(Service service, usable_service(services(), id, User::own(), nic));
  const RegistryFile::Place *const place = file_->find(id);
  WEFT_TRY(const uint32_t slot, take_slot(uint32_t(place - file_->places) + 1));
  return Opened{std::move(service), std::make_shared<Share>(*this, slot)};
}

ServiceUse Registry::usage(uint32_t service) const {
  try_to_reclaim();
  ServiceUse use;
  for (const RegistryFile::Slot &slot : file_->slots) {
    const RegistryFile::Place *const place = file_->place_of(slot);
    if (slot.start_time.load() == 0 || place == nullptr) continue;
    if (service != 0 && place->id.load() != service) continue;
    const ServiceUse::Process one{slot.process.load(), slot.used[0].load(), slot.used[1].load()};
    use.list_entries += one.list_entries;
    use.triggered += one.triggered;
    const auto known = std::ranges::find(use.processes, one.id, &ServiceUse::Process::id);
    if (known == use.processes.end()) {
      use.processes.push_back(one);
    } else {
      known->list_entries += one.list_entries;
      known->triggered += one.triggered;
    }
  }
  return use;
}

Result<uint32_t> Registry::create(const Service &wanted) {
  WEFT_CHECK(check_new(wanted));
  Service service = wanted;
  const uint32_t entries = limit(Resource::kListEntry), triggered = limit(Resource::kTriggered);
  if (service.max_list_entries == 0) service.max_list_entries = entries;
  if (service.max_triggered == 0) service.max_triggered = triggered;
  if (service.max_list_entries > entries || service.max_triggered > triggered)
    return fail(FI_EINVAL,
                "cxi: a service of %zu list entries and %zu triggered commands: the NIC has %u and "
                "%u",
                service.max_list_entries, service.max_triggered, entries, triggered);
  WEFT_TRY(const auto lock, FileLock::take(*this));
  RegistryFile::Place *const free =
      std::ranges::find_if(file_->places, [](const auto &place) { return place.id.load() == 0; });
  if (free == std::end(file_->places))
    return fail(FI_ENOSPC, "cxi: the NIC has %u services, which is its limit: destroy one",
                RegistryFile::kServices);
  // A number that was used before might still stand in somebody's environment.
  do {
    service.id = ++file_->last_service;
  } while (service.id <= Service::kDefault || file_->find(service.id) != nullptr);
  RegistryFile::write(*free, service);
  return service.id;
}

namespace {

tl::unexpected<Error> no_service(uint32_t service) {
  return fail(FI_EINVAL, "cxi: there is no service %u: `weft cxi service list` has those there are",
              service);
}

}  // namespace

Result<void> Registry::enable(uint32_t service, bool enabled) {
  WEFT_TRY(const auto lock, FileLock::take(*this));
  RegistryFile::Place *const place = file_->find(service);
  if (place == nullptr) return no_service(service);
  place->is_disabled = !enabled;
  return {};
}

Result<void> Registry::destroy(uint32_t service) {
  if (service == Service::kDefault)
    return fail(FI_EINVAL, "cxi: service %u is the NIC's own: disable it instead", service);
  WEFT_TRY(const auto lock, FileLock::take(*this));
  RegistryFile::Place *const place = file_->find(service);
  if (place == nullptr) return no_service(service);
  reclaim();
  for (const RegistryFile::Slot &slot : file_->slots)
    if (slot.start_time.load() != 0 && file_->place_of(slot) == place)
      return fail(FI_EBUSY, "cxi: process %u uses service %u: end it first", slot.process.load(),
                  service);
  place->id.store(0, std::memory_order_release);
  return {};
}

}  // namespace weft::cxi
