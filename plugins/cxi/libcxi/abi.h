// SPDX-License-Identifier: BSD-2-Clause
// The structures of libcxi.so.1 as it lays them out in memory, x86_64 and aarch64.
//
// Example:
//    inline bool is_usable(const abi::DeviceInfo &info) {
//      return info.pid_bits == 9 && info.link_state != 0;
//    }
//
// They are declared anew from the layout alone, so that weft builds where the library's headers are
// not. What the library keeps to itself begins with what is here. Not for the words of the
// hardware: words.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_ABI_H
#define WEFT_PLUGINS_CXI_LIBCXI_ABI_H

#include <cstddef>
#include <cstdint>

namespace weft::cxi::abi {

struct DeviceInfo {
  unsigned number;
  unsigned nid;
  unsigned pid_bits, pid_count, pid_granule;
  unsigned min_free_shift;  // of an entry, whose number is in units of this
  unsigned rendezvous_index;
  char name[14], driver[9];
  unsigned vendor_id, device_id, revision, protocol, platform;
  uint16_t portals, transmit_queues, target_queues, event_queues, counters, contexts, triggered,
      list_entries;
  uint16_t pci_domain;
  uint8_t pci_bus, pci_device, pci_function;
  size_t mtu, speed;
  uint8_t link_state;
  int microcontroller;
  unsigned retry_queue;
  unsigned version;
  char board[16];
  bool is_virtual;
  unsigned system;
};
static_assert(sizeof(DeviceInfo) == 152 && offsetof(DeviceInfo, name) == 28 &&
              offsetof(DeviceInfo, vendor_id) == 52 && offsetof(DeviceInfo, portals) == 72 &&
              offsetof(DeviceInfo, list_entries) == 86 && offsetof(DeviceInfo, mtu) == 96 &&
              offsetof(DeviceInfo, link_state) == 112 && offsetof(DeviceInfo, version) == 124);

struct DeviceList {
  unsigned count;
  DeviceInfo info[1];  // `count` of them
};
static_assert(offsetof(DeviceList, info) == 8);

struct Device {
  DeviceInfo info;
};
struct Lni {
  unsigned id;
};
struct Domain {
  unsigned vni, pid;
};
struct Portal {
  unsigned number;
};
struct PortalMap;
struct WaitObject;

// ---- services ----

inline constexpr size_t kMembers = 2, kVnis = 4, kClasses = 5, kResources = 8;
enum Resource : unsigned { kListEntries = 5, kTriggered = 6 };
enum MemberType : unsigned { kNobody = 0, kUser = 1, kGroup = 2, kNetworkNamespace = 3 };

struct Service {
  uint8_t flags;  // below
  uint8_t vni_count;
  uint16_t vnis[kVnis];
  bool classes[kClasses];
  struct Member {
    unsigned id;
    unsigned type;
  } members[kMembers];
  struct Limit {
    uint16_t most, reserved;
  } limits[kResources];
  unsigned id;

  static constexpr uint8_t kRestrictsMembers = 1, kRestrictsVnis = 2, kRestrictsClasses = 4,
                           kLimitsResources = 8, kEnabled = 16, kSystem = 32;
};
static_assert(sizeof(Service) == 68 && offsetof(Service, members) == 16 &&
              offsetof(Service, limits) == 32 && offsetof(Service, id) == 64);

struct ServiceList {
  unsigned count;
  Service services[1];  // `count` of them
};
static_assert(offsetof(ServiceList, services) == 4);

struct ResourceUse {
  unsigned service, triggered_pool;
  uint16_t in_use[kResources];
};
static_assert(sizeof(ResourceUse) == 24 && offsetof(ResourceUse, in_use) == 8);

// ---- queues ----

struct Profile {
  unsigned vni;
  unsigned traffic, type;
  unsigned lcid;
};
static_assert(sizeof(Profile) == 16);
enum ProfileUse : unsigned { kForTriggers = 0, kForOthers = 1, kForBoth = 2 };

struct CommandQueueOptions {
  unsigned count;   // of 64 bytes
  unsigned policy;  // how often the NIC tells what it has read: 0 to 3, less and less
  unsigned statistics;
  uint32_t flags;
  unsigned lcid;
  unsigned credits;

  static constexpr uint32_t kTransmit = 2, kTriggers = 8;
};
static_assert(sizeof(CommandQueueOptions) == 24);

struct CommandQueue {
  unsigned size;
  uint64_t *doorbell;
  uint8_t *low_latency[3];
  uint8_t *commands;  // the status first
  uint64_t read32;
  unsigned index;
  unsigned size32;
  uint64_t write32, told32;
};
static_assert(sizeof(CommandQueue) == 80 && offsetof(CommandQueue, doorbell) == 8 &&
              offsetof(CommandQueue, commands) == 40 && offsetof(CommandQueue, size32) == 60 &&
              offsetof(CommandQueue, write32) == 64);

struct EventQueueOptions {
  void *ring;
  size_t bytes;
  uint64_t flags;
  unsigned status_base, status_delta, status_count;  // of the fill level, in percent
  unsigned combine_ns;
  unsigned cpu;
  unsigned reserved;

  static constexpr uint64_t kLongTargetEvents = 8;
};
static_assert(sizeof(EventQueueOptions) == 48 && offsetof(EventQueueOptions, reserved) == 44);

struct EventQueue {
  unsigned bytes;
  uint64_t state;
  uint64_t *state_address;
  uint64_t status_seconds, status_ns;
  unsigned read, acknowledged;
  unsigned number;
  void *context;
  uint8_t *events;
};
static_assert(sizeof(EventQueue) == 72 && offsetof(EventQueue, state_address) == 16 &&
              offsetof(EventQueue, number) == 48 && offsetof(EventQueue, events) == 64);

struct Counter {
  uint8_t *doorbell;
  unsigned number;
  uint64_t *word;
};
static_assert(sizeof(Counter) == 24);
// What is stored there adds, or resets, by the offset.
enum CounterDoorbell : size_t {
  kAddSuccess = 0,
  kAddFailure = 64,
  kResetSuccess = 128,
  kResetFailure = 192,
};

// ---- memory ----

struct Mapping {
  uint64_t io_address, address;
  size_t length;
  uint8_t lac;
  int page_shift, huge_shift;
  unsigned id;
};
static_assert(sizeof(Mapping) == 40 && offsetof(Mapping, lac) == 24 && offsetof(Mapping, id) == 36);
enum MapFlag : uint32_t { kPin = 1, kTranslated = 2, kNicWrites = 4, kNicReads = 8 };

struct MapHints {
  int page_shift, huge_shift, mode;
  bool has_mode;
  int dmabuf;
  unsigned long dmabuf_offset;
  bool has_dmabuf;
};
static_assert(sizeof(MapHints) == 40 && offsetof(MapHints, dmabuf) == 16);

// ---- portals ----

struct PortalOptions {
  uint64_t bits;

  static constexpr uint64_t kMatchEvents = 1, kFlowControl = 4, kLongEvents = 8, kLossless = 16,
                            kTakesRestricted = 32, kMatching = 128;
};
static_assert(sizeof(PortalOptions) == 8);

struct PortalStatus {
  uint32_t drops;
  uint8_t state;
  uint16_t entries_reserved, entries_used, entries_max;
  uint64_t *offsets;        // of unexpected headers
  uint16_t offsets_length;  // how many fit there; then how many there are
};
static_assert(sizeof(PortalStatus) == 32 && offsetof(PortalStatus, entries_max) == 10 &&
              offsetof(PortalStatus, offsets) == 16);

}  // namespace weft::cxi::abi

#endif
