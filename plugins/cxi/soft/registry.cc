// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/registry.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "plugins/cxi/soft/registry_file.h"
#include "plugins/cxi/soft/registry_lock.h"

namespace weft::cxi {
namespace {

constexpr uint32_t kFailuresPerReclaim = 64;
constexpr int kAttempts = 16;  // while others replace a file of another version

}  // namespace

Result<std::unique_ptr<Registry>> Registry::open(const std::string &folder, Nid nid,
                                                 const RegistryLimits &limits) {
  const std::string path = path_of(folder, nid);
  const auto problem = [&](const char *call) {
    const int code = errno;
    return fail(code, "cxi: the registry of NIC %u: %s %s: %s", nid, call, path.c_str(),
                strerror(code));
  };
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    sdk::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (fd.get() < 0) return problem("open");
    WEFT_CHECK(lock_registry(fd.get(), nid));
    struct stat found = {};
    if (::fstat(fd.get(), &found) != 0) return problem("fstat");
    if (found.st_nlink == 0) continue;  // replaced, while we waited
    const auto size = size_t(found.st_size);
    if (size == 0) {
      // Allocated, so that no later write meets a full file system.
      const int error = ::posix_fallocate(fd.get(), 0, sizeof(RegistryFile));
      if (error != 0) {
        errno = error;
        return problem("posix_fallocate");
      }
    } else if (!RegistryFile::is_own(fd.get(), size)) {
      if (const auto why = RegistryFile::why_it_stays(fd.get(), size))
        return fail(FI_EINVAL, "cxi: the registry %s: %s", path.c_str(), why->c_str());
      if (::unlink(path.c_str()) != 0) return problem("unlink");
      continue;
    }
    void *const memory =
        ::mmap(nullptr, sizeof(RegistryFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) return problem("mmap");
    auto *const file = static_cast<RegistryFile *>(memory);
    std::unique_ptr<Registry> registry(new Registry(std::move(fd), file, nid));
    WEFT_CHECK(registry->join(limits));  // which gives the lock back
    return registry;
  }
  return fail(FI_EAGAIN, "cxi: %s is replaced again and again: versions of this library disagree",
              path.c_str());
}

Registry::~Registry() {
  if (self_ != RegistryFile::kSlots && !mark_.is_child()) give_up(self_);
  ::munmap(file_, sizeof(RegistryFile));
}

Result<void> Registry::join(const RegistryLimits &limits) {
  process_ = uint32_t(::getpid());
  start_time_ = start_time_of(process_);
  self_ = RegistryFile::kSlots;
  if (start_time_ == 0)
    return fail(FI_ENODATA, "cxi: /proc/%u/stat cannot be read: mount /proc", process_);
  WEFT_TRY(const auto lock, FileLock::take(*this));
  if (file_->magic.load() == 0) file_->start(limits);  // also of one whose maker has died
  if (is_alone()) {  // a process may have been killed between two of its counts
    for (std::atomic<uint32_t> &used : file_->used) used.store(0);
    for (RegistryFile::Place &place : file_->places)
      for (std::atomic<uint32_t> &used : place.used) used.store(0);
  }
  WEFT_TRY(self_, take_slot(0));
  return {};
}

// Many processes start at once, so not all of those that are there are looked at.
bool Registry::is_alone() const {
  for (uint32_t i = 0; i < RegistryFile::kSlots; ++i) {
    if (file_->slots[i].start_time.load() == 0) continue;
    if (!is_dead(i)) return false;
    file_->clear(i);
  }
  return true;
}

Result<uint32_t> Registry::take_slot(uint32_t service) {
  for (const bool last : {false, true}) {
    for (uint32_t i = 0; i < RegistryFile::kSlots; ++i) {
      RegistryFile::Slot &slot = file_->slots[i];
      if (slot.start_time.load() != 0) continue;
      slot.process = process_;
      slot.door = 0;
      slot.service = service;
      slot.start_time = start_time_;
      return i;
    }
    if (!last) reclaim();
  }
  return fail(FI_EMFILE, "cxi: %u processes and domains use this NIC already, which is its limit",
              RegistryFile::kSlots);
}

bool Registry::is_dead(uint32_t index) const {
  const RegistryFile::Slot &slot = file_->slots[index];
  const uint64_t start_time = slot.start_time.load(std::memory_order_acquire);
  const uint32_t process = slot.process.load();
  if (process == process_ && start_time == start_time_) return false;
  return start_time_of(process) != start_time;
}

void Registry::reclaim() const {
  for (uint32_t i = 0; i < RegistryFile::kSlots; ++i)
    if (file_->slots[i].start_time.load() != 0 && is_dead(i)) file_->clear(i);
}

// Else whoever has the lock does it, or another one later.
void Registry::try_to_reclaim() const {
  if (const auto lock = FileLock::try_to_take(*this)) reclaim();
}

// The lock is for those who count: what is ours goes without it, too.
void Registry::give_up(uint32_t slot) {
  const auto lock = FileLock::take(*this);
  file_->clear(slot);
}

void Registry::set_door(uint32_t door) {
  file_->slots[self_].door.store(door);
}

Result<Pid> Registry::claim(Vni vni, Pid pid) {
  if (mark_.is_child())
    return fail(FI_EOPNOTSUPP, "the NIC is of the process that forked: open the domain anew");
  WEFT_TRY(const auto lock, FileLock::take(*this));
  // A second round, when those that were killed have lost what they had.
  for (const bool last : {false, true}) {
    RegistryFile::Claim *free = nullptr;
    bool taken[kMaxPid + 1] = {};
    for (RegistryFile::Claim &claim : file_->claims) {
      if (RegistryFile::slot_of(claim) == RegistryFile::kSlots) {
        free = free != nullptr ? free : &claim;
        continue;
      }
      const uint32_t address = claim.address.load(std::memory_order_relaxed);
      if (address >> 16 == vni && (address & 0xffff) <= kMaxPid) taken[address & 0xffff] = true;
    }
    Pid found = pid;
    if (pid == kAnyPid)
      for (found = 0; found <= kMaxPid && taken[found];) ++found;
    if (free != nullptr && found <= kMaxPid && !taken[found]) {
      free->address.store(RegistryFile::address_of(vni, found), std::memory_order_relaxed);
      free->owner.store(self_ + 1, std::memory_order_release);
      ++file_->generation;
      return found;
    }
    if (!last) reclaim();
    if (last && free == nullptr)
      return fail(FI_ENOSPC, "cxi: %u endpoints use this NIC already, which is its limit",
                  RegistryFile::kClaims);
  }
  if (pid == kAnyPid)
    return fail(FI_EADDRINUSE, "cxi: all %u PIDs of VNI %u are taken", kMaxPid + 1, vni);
  return fail(FI_EADDRINUSE,
              "cxi: PID %u of VNI %u has another endpoint: leave it out for one "
              "that is free",
              pid, vni);
}

void Registry::release(Vni vni, Pid pid) {
  if (mark_.is_child()) return;
  for (RegistryFile::Claim &claim : file_->claims)
    if (RegistryFile::slot_of(claim) == self_ &&
        claim.address.load() == RegistryFile::address_of(vni, pid))
      claim.owner.store(0, std::memory_order_release);
  ++file_->generation;
}

// Another process may get the claim, or the slot, meanwhile.
std::optional<Registry::Owner> Registry::find(Vni vni, Pid pid) const {
  const uint32_t wanted = RegistryFile::address_of(vni, pid);
  for (const RegistryFile::Claim &claim : file_->claims) {
    const uint32_t slot = RegistryFile::slot_of(claim);
    if (slot == RegistryFile::kSlots || claim.address.load() != wanted) continue;
    const Owner owner{file_->slots[slot].process.load(), file_->slots[slot].door.load()};
    const bool is_alive = !is_dead(slot);
    if (RegistryFile::slot_of(claim) != slot) continue;
    if (!is_alive) return std::nullopt;
    return owner;
  }
  return std::nullopt;
}

bool Registry::has_vni(Vni vni) const {
  for (const RegistryFile::Claim &claim : file_->claims) {
    const uint32_t slot = RegistryFile::slot_of(claim);
    if (slot != RegistryFile::kSlots && claim.address.load() >> 16 == vni && !is_dead(slot))
      return true;
  }
  return false;
}

uint32_t Registry::generation() const {
  return file_->generation.load(std::memory_order_acquire);
}

std::string Registry::path_of(const std::string &folder, Nid nid) {
  return folder + "/cxi-nic-" + std::to_string(nid);
}

bool Registry::exists(const std::string &folder, Nid nid) {
  return ::access(path_of(folder, nid).c_str(), F_OK) == 0;
}

// ---- the pool ----

bool Registry::try_to_take(uint32_t index, size_t i) {
  const auto below = [](std::atomic<uint32_t> &used, const std::atomic<uint32_t> &limit) {
    if (used.fetch_add(1) < limit.load()) return true;
    used.fetch_sub(1);
    return false;
  };
  RegistryFile::Slot &slot = file_->slots[index];
  RegistryFile::Place *const place = file_->counted_place_of(slot, i);
  if (!below(file_->used[i], file_->limits[i])) return false;
  if (place != nullptr && !below(place->used[i], place->limits[i])) {
    file_->used[i].fetch_sub(1);
    return false;
  }
  slot.used[i].fetch_add(1);
  return true;
}

bool Registry::take(uint32_t slot, Resource resource) {
  if (mark_.is_child()) return false;
  if (try_to_take(slot, size_t(resource))) return true;
  // A killed process may have them. To look costs too much for each of many failures.
  if (failures_.fetch_add(1, std::memory_order_relaxed) % kFailuresPerReclaim != 0) return false;
  try_to_reclaim();
  return try_to_take(slot, size_t(resource));
}

void Registry::give(uint32_t index, Resource resource) {
  if (mark_.is_child()) return;
  const auto i = size_t(resource);
  RegistryFile::Slot &slot = file_->slots[index];
  slot.used[i].fetch_sub(1);
  if (RegistryFile::Place *const place = file_->counted_place_of(slot, i))
    place->used[i].fetch_sub(1);
  file_->used[i].fetch_sub(1);
}

uint32_t Registry::used(Resource resource) const {
  return file_->used[size_t(resource)].load();
}

void Registry::count(uint32_t slot, Telemetry which) {
  if (mark_.is_child()) return;
  std::atomic<uint64_t> &own = file_->slots[slot].counted[size_t(which)];
  own.store(own.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

uint64_t Registry::counted(Telemetry which) const {
  const auto lock = FileLock::take(*this);  // while a process ends, its numbers are in two places
  uint64_t sum = file_->counted[size_t(which)].load();
  for (const RegistryFile::Slot &slot : file_->slots) sum += slot.counted[size_t(which)].load();
  return sum;
}

uint32_t Registry::limit(Resource resource) const {
  return file_->limits[size_t(resource)].load();
}

}  // namespace weft::cxi
