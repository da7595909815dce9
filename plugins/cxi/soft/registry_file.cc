// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/registry_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weft::cxi {
namespace {

constexpr size_t kFamily = 7;  // bytes of the magic number that all versions have
constexpr uint64_t kFirstMagic = 0x3169786374666577;  // "weftcxi1", which did not say where
constexpr uint32_t kFirstSlots[] = {32, 24, 1024};
constexpr uint32_t kMostSlots = 1 << 16;

bool read_at(int fd, size_t offset, void *out, size_t size) {
  return ::pread(fd, out, size, off_t(offset)) == ssize_t(size);
}

void give_back(std::atomic<uint32_t> &used, uint32_t count) {
  used.fetch_sub(std::min(count, used.load()));
}

}  // namespace

namespace {

// What /proc/PID/stat has behind the name: " STATE ...". Empty: there is no such process. The name
// may hold anything, so the last bracket counts.
std::string stat_of(uint32_t process) {
  char path[32], text[1024];
  std::snprintf(path, sizeof path, "/proc/%u/stat", process);
  const sdk::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return {};
  const ssize_t n = ::read(fd.get(), text, sizeof text - 1);
  if (n <= 0) return {};
  text[n] = '\0';
  const char *const at = std::strrchr(text, ')');
  return at != nullptr && at[1] == ' ' ? at + 1 : "";
}

}  // namespace

bool is_stopped(uint32_t process) {
  const std::string stat = stat_of(process);
  return stat.size() > 1 && (stat[1] == 'T' || stat[1] == 't');
}

// Field 22.
uint64_t start_time_of(uint32_t process) {
  const std::string stat = stat_of(process);
  if (stat.size() < 2 || stat[1] == 'Z' || stat[1] == 'X') return 0;
  const char *at = stat.c_str();
  for (int field = 3; field < 22; ++field) {
    at = std::strchr(at + 1, ' ');
    if (at == nullptr) return 0;
  }
  return std::strtoull(at, nullptr, 10);
}

void RegistryFile::start(const RegistryLimits &given) {
  limits[size_t(Resource::kListEntry)] = given.list_entries;
  limits[size_t(Resource::kTriggered)] = given.triggered;
  slots_at = offsetof(RegistryFile, slots);
  slot_size = sizeof(Slot);
  slot_count = kSlots;
  write(places[0], Registry::usual(given));
  last_service = Service::kDefault;
  magic = kMagic;
}

Service Registry::usual(const RegistryLimits &limits) {
  Service service;
  service.vnis = {{1, 1}, {10, 10}};
  service.max_list_entries = limits.list_entries;
  service.max_triggered = limits.triggered;
  return service;
}

RegistryFile::Place *RegistryFile::find(uint32_t service) {
  if (service == 0) return nullptr;
  for (Place &place : places)
    if (place.id.load(std::memory_order_acquire) == service) return &place;
  return nullptr;
}

void RegistryFile::write(Place &place, const Service &service) {
  place.is_disabled = !service.is_enabled;
  uint32_t classes = 0;
  for (const TrafficClass one : service.classes) classes |= 1u << unsigned(one);
  place.classes = classes;
  const size_t members = std::min(service.members.size(), kMaxServiceMembers);
  for (size_t i = 0; i < members; ++i) {
    place.member[i].is_group = service.members[i].is_group;
    place.member[i].id = service.members[i].id;
  }
  place.members = uint32_t(members);
  const size_t vnis = std::min(service.vnis.size(), kMaxServiceVnis);
  for (size_t i = 0; i < vnis; ++i)
    place.vni[i] = uint32_t{service.vnis[i].last} << 16 | service.vnis[i].first;
  place.vnis = uint32_t(vnis);
  place.limits[size_t(Resource::kListEntry)] = uint32_t(service.max_list_entries);
  place.limits[size_t(Resource::kTriggered)] = uint32_t(service.max_triggered);
  for (std::atomic<uint32_t> &used : place.used) used = 0;
  place.id.store(service.id, std::memory_order_release);
}

Service RegistryFile::read(const Place &place) {
  Service service{.id = place.id.load(std::memory_order_acquire),
                  .is_enabled = place.is_disabled.load() == 0,
                  .members = {},
                  .vnis = {},
                  .classes = {}};
  const size_t members = std::min<size_t>(place.members.load(), kMaxServiceMembers);
  for (size_t i = 0; i < members; ++i)
    service.members.push_back({place.member[i].is_group.load() != 0, place.member[i].id.load()});
  const size_t vnis = std::min<size_t>(place.vnis.load(), kMaxServiceVnis);
  for (size_t i = 0; i < vnis; ++i) {
    const uint32_t range = place.vni[i].load();
    service.vnis.push_back({.first = Vni(range), .last = Vni(range >> 16)});
  }
  for (unsigned i = 0; i < kTrafficClasses; ++i)
    if (place.classes.load() >> i & 1) service.classes.push_back(TrafficClass(i));
  service.max_list_entries = place.limits[size_t(Resource::kListEntry)].load();
  service.max_triggered = place.limits[size_t(Resource::kTriggered)].load();
  return service;
}

void RegistryFile::clear(uint32_t index) {
  Slot &slot = slots[index];
  for (Claim &claim : claims)
    if (slot_of(claim) == index) claim.owner.store(0, std::memory_order_release);
  for (const size_t i : {0, 1}) {
    const uint32_t count = slot.used[i].exchange(0);
    give_back(used[i], count);
    if (Place *const place = counted_place_of(slot, i)) give_back(place->used[i], count);
  }
  for (size_t i = 0; i < kTelemetryCount; ++i) counted[i].fetch_add(slot.counted[i].exchange(0));
  slot.service = 0;
  slot.start_time.store(0, std::memory_order_release);
  ++generation;
}

// ---- files of other versions ----

bool RegistryFile::is_own(int fd, size_t size) {
  uint64_t found = 0;
  return size == sizeof(RegistryFile) && read_at(fd, 0, &found, sizeof found) &&
         (found == kMagic || found == 0);
}

std::optional<std::string> RegistryFile::why_it_stays(int fd, size_t size) {
  const std::string unknown = "it is no registry of a NIC: remove it when no process uses it";
  uint64_t found = 0;
  uint32_t shape[3];  // where the slots are, their size, and their number
  if (!read_at(fd, 0, &found, sizeof found) || std::memcmp(&found, &kMagic, kFamily) != 0)
    return unknown;
  if (found == kFirstMagic)
    std::ranges::copy(kFirstSlots, shape);
  else if (!read_at(fd, sizeof found, shape, sizeof shape))
    return unknown;
  const auto [at, each, count] = shape;
  struct {
    uint64_t start_time;
    uint32_t process;
  } slot;
  constexpr size_t kKnown = sizeof slot.start_time + sizeof slot.process;
  if (each < kKnown || count > kMostSlots || at > size || size_t{each} * count > size - at)
    return unknown;
  for (uint32_t i = 0; i < count; ++i) {
    if (!read_at(fd, at + size_t{each} * i, &slot, kKnown)) return unknown;
    if (slot.start_time != 0 && start_time_of(slot.process) == slot.start_time)
      return "it is of another version of this library, and process " +
             std::to_string(slot.process) + " uses it: end that first";
  }
  return std::nullopt;
}

}  // namespace weft::cxi
