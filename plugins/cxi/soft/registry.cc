// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

namespace weft::cxi {
namespace {

constexpr uint64_t kMagic = 0x3169786374666577;  // "weftcxi1"
constexpr unsigned kLayout = 2;                  // of File: processes of another one have their own
constexpr uint32_t kSlots = 1024;                // processes
constexpr uint32_t kClaims = 8192;               // (VNI, PID) of all VNIs
constexpr uint32_t kFailuresPerReclaim = 64;

// Field 22 of /proc/PID/stat, in ticks since the boot; 0: there is no such process.
uint64_t start_time_of(uint32_t process) {
  char path[32], text[1024];
  std::snprintf(path, sizeof path, "/proc/%u/stat", process);
  const sdk::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return 0;
  const ssize_t n = ::read(fd.get(), text, sizeof text - 1);
  if (n <= 0) return 0;
  text[n] = '\0';
  // The name may hold anything, so count from the last bracket: "PID (NAME) STATE ...".
  const char *at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X') return 0;
  for (int field = 2; field < 22; ++field) {
    at = std::strchr(at + 1, ' ');
    if (at == nullptr) return 0;
  }
  return std::strtoull(at, nullptr, 10);
}

}  // namespace

// Zeros are a valid start. What others may have written is checked before it is an index.
struct Registry::File {
  struct Slot {
    std::atomic<uint64_t> start_time;  // 0: free
    std::atomic<uint32_t> process, door;
    std::atomic<uint32_t> used[2];                   // by Resource
    std::atomic<uint64_t> counted[kTelemetryCount];  // only by the process itself
  };
  // `owner` is written last, so that a process that dies leaves a whole claim, or none.
  struct Claim {
    std::atomic<uint32_t> address;  // VNI and PID
    std::atomic<uint32_t> owner;    // slot + 1; 0: free
  };

  std::atomic<uint64_t> magic;  // written last
  std::atomic<uint32_t> limits[2], used[2], generation;
  std::atomic<uint64_t> counted[kTelemetryCount];  // by processes that have ended
  Slot slots[kSlots];
  Claim claims[kClaims];

  static uint32_t address_of(Vni vni, Pid pid) { return uint32_t{vni} << 16 | pid; }
  static uint32_t slot_of(const Claim &claim) {
    const uint32_t owner = claim.owner.load(std::memory_order_acquire);
    return owner == 0 || owner > kSlots ? kSlots : owner - 1;
  }
};

class Registry::FileLock {
 public:
  explicit FileLock(const Registry &registry) : guard_(registry.mutex_), fd_(registry.fd_.get()) {
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { ::flock(fd_, LOCK_UN); }

 private:
  const std::lock_guard<std::mutex> guard_;
  const int fd_;
};

Result<std::unique_ptr<Registry>> Registry::open(const std::string &folder, Nid nid,
                                                 const RegistryLimits &limits) {
  const std::string path = path_of(folder, nid);
  const auto problem = [&](const char *call) {
    const int code = errno;
    return fail(code, "cxi: the registry of NIC %u: %s %s: %s", nid, call, path.c_str(),
                strerror(code));
  };
  sdk::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0) return problem("open");
  while (::flock(fd.get(), LOCK_EX) != 0)
    if (errno != EINTR) return problem("flock");
  struct stat found = {};
  if (::fstat(fd.get(), &found) != 0) return problem("fstat");
  const bool is_new = found.st_size == 0;
  if (is_new) {
    // Allocated, so that no later write meets a full file system.
    const int error = ::posix_fallocate(fd.get(), 0, sizeof(File));
    if (error != 0) {
      errno = error;
      return problem("posix_fallocate");
    }
  } else if (size_t(found.st_size) != sizeof(File)) {
    return fail(FI_EINVAL,
                "cxi: %s is not the registry of this version: remove it when no "
                "process uses it",
                path.c_str());
  }
  void *const memory =
      ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return problem("mmap");
  auto *const file = static_cast<File *>(memory);
  std::unique_ptr<Registry> registry(new Registry(std::move(fd), file));
  if (file->magic.load() == 0) {  // also of one whose maker has died
    file->limits[size_t(Resource::kListEntry)] = limits.list_entries;
    file->limits[size_t(Resource::kTriggered)] = limits.triggered;
    file->magic = kMagic;
  }
  const bool known = file->magic.load() == kMagic;
  ::flock(registry->fd_.get(), LOCK_UN);
  if (!known)
    return fail(FI_EINVAL,
                "cxi: %s is not the registry of this version: remove it when no "
                "process uses it",
                path.c_str());
  WEFT_CHECK(registry->join());
  return registry;
}

Registry::~Registry() {
  if (self_ != kSlots && process_ == uint32_t(::getpid())) {
    const FileLock lock(*this);
    clear(self_);
  }
  ::munmap(file_, sizeof(File));
}

// Its process has ended.
void Registry::clear(uint32_t index) const {
  File::Slot &slot = file_->slots[index];
  for (File::Claim &claim : file_->claims)
    if (File::slot_of(claim) == index) claim.owner.store(0, std::memory_order_release);
  for (const size_t i : {0, 1}) file_->used[i].fetch_sub(slot.used[i].exchange(0));
  for (size_t i = 0; i < kTelemetryCount; ++i)
    file_->counted[i].fetch_add(slot.counted[i].exchange(0));
  slot.start_time.store(0, std::memory_order_release);
  ++file_->generation;
}

Result<void> Registry::join() {
  const uint32_t process = process_ = uint32_t(::getpid());
  const uint64_t start_time = start_time_of(process);
  self_ = kSlots;
  if (start_time == 0)
    return fail(FI_ENODATA, "cxi: /proc/%u/stat cannot be read: mount /proc", process);
  const FileLock lock(*this);
  reclaim();
  bool is_alone = true;
  for (const File::Slot &slot : file_->slots) is_alone &= slot.start_time.load() == 0;
  if (is_alone)  // a process may have been killed between two of its counts
    for (std::atomic<uint32_t> &used : file_->used) used.store(0);
  for (uint32_t i = 0; i < kSlots; ++i) {
    File::Slot &slot = file_->slots[i];
    if (slot.start_time.load() != 0) continue;
    slot.process = process;
    slot.door = 0;
    slot.start_time = start_time;
    self_ = i;
    return {};
  }
  return fail(FI_EMFILE, "cxi: %u processes use this NIC already, which is its limit", kSlots);
}

bool Registry::is_dead(uint32_t index) const {
  const File::Slot &slot = file_->slots[index];
  const uint64_t start_time = slot.start_time.load(std::memory_order_acquire);
  return index != self_ && start_time_of(slot.process.load()) != start_time;
}

void Registry::reclaim() const {
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (file_->slots[i].start_time.load() != 0 && is_dead(i)) clear(i);
  }
}

void Registry::set_door(uint32_t door) {
  file_->slots[self_].door.store(door);
}

Result<Pid> Registry::claim(Vni vni, Pid pid) {
  const FileLock lock(*this);
  // A second round, when those that were killed have lost what they had.
  for (const bool last : {false, true}) {
    File::Claim *free = nullptr;
    bool taken[kMaxPid + 1] = {};
    for (File::Claim &claim : file_->claims) {
      if (File::slot_of(claim) == kSlots) {
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
      free->address.store(File::address_of(vni, found), std::memory_order_relaxed);
      free->owner.store(self_ + 1, std::memory_order_release);
      ++file_->generation;
      return found;
    }
    if (!last) reclaim();
    if (last && free == nullptr)
      return fail(FI_ENOSPC, "cxi: %u endpoints use this NIC already, which is its limit", kClaims);
  }
  if (pid == kAnyPid)
    return fail(FI_EADDRINUSE, "cxi: all %u PIDs of VNI %u are taken", kMaxPid + 1, vni);
  return fail(FI_EADDRINUSE,
              "cxi: PID %u of VNI %u has another endpoint: leave it out for one "
              "that is free",
              pid, vni);
}

void Registry::release(Vni vni, Pid pid) {
  const FileLock lock(*this);
  for (File::Claim &claim : file_->claims)
    if (File::slot_of(claim) == self_ && claim.address.load() == File::address_of(vni, pid))
      claim.owner.store(0, std::memory_order_release);
  ++file_->generation;
}

std::optional<Registry::Owner> Registry::find(Vni vni, Pid pid) const {
  const FileLock lock(*this);
  for (const File::Claim &claim : file_->claims) {
    const uint32_t slot = File::slot_of(claim);
    if (slot == kSlots || claim.address.load() != File::address_of(vni, pid)) continue;
    if (is_dead(slot)) return std::nullopt;
    return Owner{file_->slots[slot].process.load(), file_->slots[slot].door.load()};
  }
  return std::nullopt;
}

bool Registry::has_vni(Vni vni) const {
  const FileLock lock(*this);
  for (const File::Claim &claim : file_->claims) {
    const uint32_t slot = File::slot_of(claim);
    if (slot != kSlots && claim.address.load() >> 16 == vni && !is_dead(slot)) return true;
  }
  return false;
}

uint32_t Registry::generation() const {
  return file_->generation.load(std::memory_order_acquire);
}

std::string Registry::path_of(const std::string &folder, Nid nid) {
  return folder + "/cxi-nic-" + std::to_string(nid) + "-" + std::to_string(kLayout);
}

bool Registry::exists(const std::string &folder, Nid nid) {
  return ::access(path_of(folder, nid).c_str(), F_OK) == 0;
}

bool Registry::try_to_take(size_t i) {
  if (file_->used[i].fetch_add(1) >= file_->limits[i].load()) {
    file_->used[i].fetch_sub(1);
    return false;
  }
  file_->slots[self_].used[i].fetch_add(1);
  return true;
}

bool Registry::take(Resource resource) {
  if (try_to_take(size_t(resource))) return true;
  // A killed process may have them. To look costs too much for each of many failures.
  if (failures_.fetch_add(1, std::memory_order_relaxed) % kFailuresPerReclaim != 0) return false;
  {
    const FileLock lock(*this);
    reclaim();
  }
  return try_to_take(size_t(resource));
}

void Registry::give(Resource resource) {
  file_->slots[self_].used[size_t(resource)].fetch_sub(1);
  file_->used[size_t(resource)].fetch_sub(1);
}

uint32_t Registry::used(Resource resource) const {
  return file_->used[size_t(resource)].load();
}

uint32_t Registry::limit(Resource resource) const {
  return file_->limits[size_t(resource)].load();
}

void Registry::count(Telemetry which) {
  std::atomic<uint64_t> &own = file_->slots[self_].counted[size_t(which)];
  own.store(own.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

uint64_t Registry::counted(Telemetry which) const {
  const FileLock lock(*this);  // while a process ends, its numbers are in two places
  uint64_t sum = file_->counted[size_t(which)].load();
  for (const File::Slot &slot : file_->slots) sum += slot.counted[size_t(which)].load();
  return sum;
}

}  // namespace weft::cxi
