// SPDX-License-Identifier: BSD-2-Clause
// Nic: a Cassini NIC as its process sees it. Everything of the provider stands above this
// interface; a NIC in software (plugins/cxi/soft) and the hardware stand below.
//
// Example:
//    // Opens a portal that takes what peers put there.
//    inline Result<std::unique_ptr<Portal>> open_mailbox(Lni &lni, Endpoint &endpoint,
//                                                        EventQueue &events, Index index) {
//      WEFT_TRY(std::unique_ptr<Portal> portal, lni.portal({.is_matching = true}, events));
//      WEFT_CHECK(portal->map(endpoint, index));
//      portal->set_state(PortalState::kEnabled, 0);
//      return portal;
//    }
//
// An object ends with its pointer, and must do so before the Lni that made it. A queue or counter
// outlives the portals and entries that report to it; commands that name it may be under way.
// Commands of one Lni take effect in the order of the calls; hardware keeps that order within a
// queue, and for entries before what is sent behind them to others. All calls are thread-safe, but
// for those of one EventQueue. Errors of calls are errnos with the reason in words; those of
// commands are events.
//
// Not for protocols: a message, a memory region and an operation of libfabric are made of these.
#ifndef WEFT_PLUGINS_CXI_NIC_NIC_H
#define WEFT_PLUGINS_CXI_NIC_NIC_H

#include <rdma/fi_errno.h>
#include <sys/types.h>
#include <weft/result.h>
#include <weft/sdk/memory/hmem.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cxi/nic/command.h"
#include "plugins/cxi/nic/event.h"
#include "plugins/cxi/nic/words.h"

namespace weft::cxi {

enum class TrafficClass : uint8_t { kDedicated = 0, kLowLatency = 1, kBulk = 2, kBestEffort = 3 };
enum class ProfileType : uint8_t { kDefault = 0, kHighRatePut = 1, kRestricted = 2, kCollLeaf = 3 };

// The VNI and the class of what a command queue sends.
struct Profile {
  Vni vni = 0;
  TrafficClass traffic = TrafficClass::kBestEffort;
  ProfileType type = ProfileType::kDefault;
  bool operator==(const Profile &) const = default;
};

// (VNI, PID) of a process: Lni::endpoint().
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual Vni vni() const = 0;
  virtual Pid pid() const = 0;
};

// Success and failure, which commands and the process add to, and which fire triggered commands.
class Counter {
 public:
  static constexpr uint64_t kMaxSuccess = (uint64_t{1} << 48) - 1, kMaxFailure = 127;
  // What the NIC writes to the process's memory: success in bits 0 to 47, failure in 48 to 54, and
  // bit 63, which says that it was written.
  static constexpr uint64_t kWritten = uint64_t{1} << 63;

  virtual ~Counter() = default;
  // As the NIC has it now. Reading it writes it back, too.
  virtual uint64_t success() const = 0;
  virtual uint64_t failure() const = 0;
  virtual void add(uint64_t success) = 0;
  virtual void add_failure(uint64_t failure) = 0;
  virtual void set(std::optional<uint64_t> success, std::optional<uint64_t> failure) = 0;
  // The NIC writes here on each failure, when the value is set, and by request. Null: nowhere.
  virtual void write_back_to(uint64_t *word) = 0;
  virtual void request_write_back() = 0;
  // Drops the triggered commands that have not fired, without events.
  virtual void cancel() = 0;
  // Where a store counts by itself, as fi_cxi_ext.h lays it out; null: nowhere.
  static constexpr size_t kRegisterBytes = 256;
  virtual void *registers() const { return nullptr; }
};

struct PortalOptions {
  bool is_matching = false;
  bool flow_control = false;   // disabled, where a request cannot be taken
  bool lossless = false;       // requests wait instead
  bool match_events = false;   // an event also before the operation
  bool no_rendezvous = false;  // refuses rendezvous puts; hardware takes them all the same
};

struct PortalStatus {
  PortalState state = PortalState::kReset;
  uint32_t drops = 0;
  size_t entries_used = 0, entries_max = 0;
  std::vector<uint64_t> unexpected;  // remote offsets of the headers, in order of arrival
};

// A portal table entry (PtlTE): lists that requests of peers are matched with.
class Portal {
 public:
  virtual ~Portal() = default;
  // Once for each endpoint of a PID: peers reach it through each of their VNIs.
  virtual Result<void> map(Endpoint &endpoint, Index index) = 0;
  // By command. An event kStateChange follows. From kDisabled, `drops` must be the count, or
  // kIgnoreDrops: kNoMatch otherwise.
  virtual void set_state(PortalState state, uint32_t drops) = 0;
  // At once, to kSoftwareManaged. -FI_EAGAIN: the count differs; -FI_EINVAL: it is not disabled.
  virtual int take_over(uint32_t drops) = 0;
  virtual PortalStatus status() const = 0;
  virtual void append(List list, const Entry &entry) = 0;
  virtual void unlink(List list, uint16_t buffer_id) = 0;
  // Over the unexpected list; `takes`: what is found is taken off.
  virtual void search(const Criteria &criteria, bool takes) = 0;
  // Returns when no operation uses the entry any more.
  virtual void invalidate(List list, uint16_t buffer_id) = 0;
};

// Transfers, in order. Nothing leaves before flush().
class TransmitQueue {
 public:
  virtual ~TransmitQueue() = default;
  // -FI_EAGAIN: the queue is full, and nothing has happened.
  virtual int post(const Transfer &transfer) = 0;
  // What follows starts when all before it is done.
  virtual int fence() = 0;
  // Of what follows. FI_EINVAL: the service does not allow it.
  virtual Result<void> set_profile(const Profile &profile) = 0;
  virtual void flush() = 0;
};

// A command that a counter fires, once, when success + failure reach the threshold.
struct Trigger {
  enum class Kind : uint8_t { kTransfer, kSet, kAdd, kWriteBack, kEvent };
  Counter *counter = nullptr;
  uint64_t threshold = 0;
  Kind kind = Kind::kTransfer;
  Transfer transfer;          // kTransfer; its bytes must not be inline
  Counter *target = nullptr;  // kSet, kAdd, kWriteBack
  uint64_t value = 0;         // of success
  EventQueue *eq = nullptr;   // kEvent
};

class TriggerQueue {
 public:
  virtual ~TriggerQueue() = default;
  // -FI_ENOSPC: the service has no triggered command left.
  virtual int post(const Trigger &trigger) = 0;
  virtual size_t pending() const = 0;
};

// What one process has of a NIC, by a service.
class Lni {
 public:
  // Of map(): what the NIC may do, and that peers reach it through an entry of Memory::kWholeLac.
  static constexpr unsigned kRead = 1, kWrite = 2, kRemote = 4;

  virtual ~Lni() = default;
  // `pid` or kAnyPid. FI_EINVAL: the service does not allow the VNI; so for profiles below.
  virtual Result<std::unique_ptr<Endpoint>> endpoint(Vni vni, Pid pid) = 0;
  virtual Result<Memory> map(uint64_t start, uint64_t length, unsigned access) = 0;
  // The same of memory of a device. FI_EOPNOTSUPP: not by this NIC (Device::facts().is_software).
  virtual Result<Memory> map_device(uint64_t, uint64_t, unsigned, const sdk::HmemPlace &place) {
    return fail(FI_EOPNOTSUPP, "cxi: this NIC does not reach memory of %s devices",
                place.iface->name());
  }
  // Memory that was mapped with kRemote is a long message: the peer with this key (key_of) reads it
  // through an entry of Memory::kLent, and nobody else does.
  virtual void lend(const Memory &memory, uint64_t reader) { (void)memory, (void)reader; }
  // Those that all of the process, map(0, UINT64_MAX), is in.
  virtual std::vector<uint8_t> lacs() const { return {0}; }
  // After it the NIC does not touch the memory.
  virtual void unmap(const Memory &memory) = 0;
  virtual Result<std::unique_ptr<EventQueue>> event_queue(const EventQueueOptions &options) = 0;
  virtual Result<std::unique_ptr<Counter>> counter() = 0;
  virtual Result<std::unique_ptr<Portal>> portal(const PortalOptions &options, EventQueue &eq) = 0;
  virtual Result<std::unique_ptr<TransmitQueue>> transmit_queue(size_t depth,
                                                                const Profile &profile) = 0;
  virtual Result<std::unique_ptr<TriggerQueue>> trigger_queue(const Profile &profile) = 0;
};

}  // namespace weft::cxi

#endif
