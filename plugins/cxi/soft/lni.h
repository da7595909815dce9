// SPDX-License-Identifier: BSD-2-Clause
// SoftLni: what one process has opened of a NIC in software, and SoftEndpoint, its (VNI, PID).
//
// Example:
//    // Whether the engine may read what a command names; its lock is held.
//    inline bool may_read(SoftLni &lni, const Transfer &transfer) {
//      return lni.memory().check(transfer.memory, transfer.local, transfer.length, Lni::kRead) ==
//             Rc::kOk;
//    }
//
// It refuses what its service does not allow. Who may use a service is decided before.
#ifndef WEFT_PLUGINS_CXI_SOFT_LNI_H
#define WEFT_PLUGINS_CXI_SOFT_LNI_H

#include <array>
#include <memory>
#include <set>
#include <utility>

#include "plugins/cxi/nic/nic.h"
#include "plugins/cxi/soft/engine.h"
#include "plugins/cxi/soft/event_ring.h"
#include "plugins/cxi/soft/memory_map.h"

namespace weft::cxi {

class SoftPortal;
class SoftTriggerQueue;

class SoftLni final : public Lni {
 public:
  SoftLni(Engine &engine, Nid nid, Service service, std::shared_ptr<Pool> pool)
      : engine_(engine), nid_(nid), service_(std::move(service)), pool_(std::move(pool)) {}
  ~SoftLni() override;

  Nid nid() const { return nid_; }
  const Service &service() const { return service_; }
  // ---- with the engine's lock held ----
  const MemoryMap &memory() const { return memory_; }
  Pool &pool() { return *pool_; }
  void add(SoftCounter &counter) { counters_.insert(&counter); }
  void remove(SoftCounter &counter) { counters_.erase(&counter); }
  void forget(const SoftTriggerQueue &queue);
  void forget(const EventQueue &eq);
  void forget(const SoftCounter &counter);

  // ---- Lni ----
  Result<std::unique_ptr<Endpoint>> endpoint(Vni vni, Pid pid) override;
  Result<Memory> map(uint64_t start, uint64_t length, unsigned access) override;
  Result<Memory> map_device(uint64_t start, uint64_t length, unsigned access,
                            const sdk::HmemPlace &place) override;
  void unmap(const Memory &memory) override;
  void lend(const Memory &memory, uint64_t reader) override;
  Result<std::unique_ptr<EventQueue>> event_queue(const EventQueueOptions &options) override;
  Result<std::unique_ptr<Counter>> counter() override;
  Result<std::unique_ptr<Portal>> portal(const PortalOptions &options, EventQueue &eq) override;
  Result<std::unique_ptr<TransmitQueue>> transmit_queue(size_t depth,
                                                        const Profile &profile) override;
  Result<std::unique_ptr<TriggerQueue>> trigger_queue(const Profile &profile) override;

 private:
  Engine &engine_;
  const Nid nid_;
  const Service service_;
  const std::shared_ptr<Pool> pool_;
  MemoryMap memory_;
  std::set<SoftCounter *> counters_;
};

class SoftEndpoint final : public Endpoint {
 public:
  SoftEndpoint(Engine &engine, Nid nid, Vni vni, Pid pid)
      : engine_(engine), nid_(nid), vni_(vni), pid_(pid) {}
  ~SoftEndpoint() override;

  Nid nid() const { return nid_; }
  Vni vni() const override { return vni_; }
  Pid pid() const override { return pid_; }
  // ---- with the engine's lock held ----
  SoftPortal *at(Index index) const { return portals_[index]; }
  bool put(Index index, SoftPortal &portal);  // false: there is one
  void remove(const SoftPortal &portal);

 private:
  Engine &engine_;
  const Nid nid_;
  const Vni vni_;
  const Pid pid_;
  std::array<SoftPortal *, 256> portals_{};
};

}  // namespace weft::cxi

#endif
