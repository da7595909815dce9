// SPDX-License-Identifier: BSD-2-Clause
// RegistryFile: the bytes that the processes of a host share of one NIC (registry.h), and what can
// be said of a file of another version.
//
// Example:
//    // How many endpoints a NIC has.
//    inline size_t endpoints_of(const RegistryFile &file) {
//      size_t count = 0;
//      for (const RegistryFile::Claim &claim : file.claims)
//        count += RegistryFile::slot_of(claim) != RegistryFile::kSlots;
//      return count;
//    }
//
// Zeros are a valid start. What others may have written is checked before it is an index. Each
// version begins with its magic number and the place of its slots, and a slot with start_time and
// process, so that later versions see who uses it. Not for locks: registry.cc has the file's.
#ifndef WEFT_PLUGINS_CXI_SOFT_REGISTRY_FILE_H
#define WEFT_PLUGINS_CXI_SOFT_REGISTRY_FILE_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "plugins/cxi/nic/service.h"
#include "plugins/cxi/soft/registry.h"

namespace weft::cxi {

struct RegistryFile {
  static constexpr uint64_t kMagic = 0x3369786374666577;  // "weftcxi3"
  static constexpr uint32_t kSlots = 2048;    // processes, and each service that one uses
  static constexpr uint32_t kClaims = 8192;   // (VNI, PID) of all VNIs
  static constexpr uint32_t kServices = 128;  // of a NIC

  struct Slot {
    std::atomic<uint64_t> start_time;  // 0: free
    std::atomic<uint32_t> process, door;
    std::atomic<uint32_t> service;                   // its place + 1; 0: the process itself
    std::atomic<uint32_t> used[2];                   // by Resource
    std::atomic<uint64_t> counted[kTelemetryCount];  // only by the process itself
  };
  // `owner` is written last, so that a process that dies leaves a whole claim, or none. Who reads
  // without the lock looks at it before and after the rest.
  struct Claim {
    std::atomic<uint32_t> address;  // VNI and PID
    std::atomic<uint32_t> owner;    // slot + 1; 0: free
  };
  // `id` is written last.
  struct Place {
    std::atomic<uint32_t> id;                    // 0: free
    std::atomic<uint32_t> is_disabled, classes;  // a bit for each class; 0: all
    std::atomic<uint32_t> members, vnis;         // how many
    struct {
      std::atomic<uint32_t> is_group, id;
    } member[kMaxServiceMembers];
    std::atomic<uint32_t> vni[kMaxServiceVnis];  // the last one above the first one
    std::atomic<uint32_t> limits[2], used[2];    // by Resource
  };

  std::atomic<uint64_t> magic;  // written last
  std::atomic<uint32_t> slots_at, slot_size, slot_count;
  std::atomic<uint32_t> limits[2], used[2], generation, last_service;
  std::atomic<uint64_t> counted[kTelemetryCount];  // by slots that are free again
  Slot slots[kSlots];
  Claim claims[kClaims];
  Place places[kServices];

  static uint32_t address_of(Vni vni, Pid pid) { return uint32_t{vni} << 16 | pid; }
  static uint32_t slot_of(const Claim &claim) {
    const uint32_t owner = claim.owner.load(std::memory_order_acquire);
    return owner == 0 || owner > kSlots ? kSlots : owner - 1;
  }
  Place *place_of(const Slot &slot) {  // null: it is the process itself
    const uint32_t service = slot.service.load();
    return service == 0 || service > kServices ? nullptr : &places[service - 1];
  }
  // The same where the service has less than the NIC, so that it must be counted.
  Place *counted_place_of(const Slot &slot, size_t resource) {
    Place *const place = place_of(slot);
    return place != nullptr && place->limits[resource] < limits[resource] ? place : nullptr;
  }
  Place *find(uint32_t service);

  void start(const RegistryLimits &limits);
  static void write(Place &place, const Service &service);
  static Service read(const Place &place);
  // What a slot has is nobody's from now on.
  void clear(uint32_t slot);

  // Whether the descriptor is of a file of this version, or of one that nobody has begun.
  static bool is_own(int fd, size_t size);
  // Of a file of another version: empty, if no living process uses it; else why it stays.
  static std::optional<std::string> why_it_stays(int fd, size_t size);
};

// When a process has started, in ticks since the boot; 0: there is no such process.
uint64_t start_time_of(uint32_t process);
bool is_stopped(uint32_t process);  // by a signal

}  // namespace weft::cxi

#endif
