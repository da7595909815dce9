// SPDX-License-Identifier: BSD-2-Clause
// A domain of cxi: one NIC, its share of which (Lni) all endpoints use, and what moves them on.
//
// Example:
//    // How many PIDs of this domain are in use.
//    inline size_t endpoints_of(Domain &domain) {
//      const sdk::Guard guard(domain.engine().lock());
//      return domain.endpoint_count();
//    }
//
// A NIC in software is polled in each progress, before its endpoints read what it tells. What was
// sent to other processes leaves at once, or with the next progress if that is near.
#ifndef WEFT_PLUGINS_CXI_DOMAIN_H
#define WEFT_PLUGINS_CXI_DOMAIN_H

#include <rdma/fi_domain.h>
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/transfers/atomic.h>

#include <memory>
#include <optional>
#include <vector>

#include "plugins/cxi/amo.h"
#include "plugins/cxi/auth_key.h"
#include "plugins/cxi/collectives.h"
#include "plugins/cxi/counters.h"
#include "plugins/cxi/deferred.h"
#include "plugins/cxi/device_memory.h"
#include "plugins/cxi/extensions.h"
#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/region.h"
#include "plugins/cxi/settings.h"
#include "plugins/cxi/vector_keys.h"

namespace weft::cxi {

class CxiEndpoint;
class Fabric;

class Domain final : public sdk::Object<Domain, fid_domain>,
                     public sdk::DomainCore,
                     public sdk::DomainOps<Domain, CxiEndpoint>,
                     private sdk::Poller,
                     private sdk::Handler {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);

  // The fabric's, but for what fi_control of this domain has changed.
  const Settings &settings() const { return settings_; }
  // With the lock held, while there is no endpoint.
  Settings &settings_to_change() { return settings_; }
  Counters &counters();
  Device &device() { return *device_; }
  Lni &lni() { return *lni_; }
  weft::cxi::Memory all_memory() const { return all_; }
  const AuthKey &key() const { return key_; }
  Vni vni() const { return key_.vni; }
  // FI_AV_AUTH_KEY: endpoints are in the VNIs of their address vector's keys.
  bool has_vector_keys() const { return has_vector_keys_; }
  // The first key says which service the domain has. FI_EBUSY: something of the NIC is open by the
  // one that was found; FI_EINVAL: there are keys of that one. The lock is held.
  Result<void> take_service(const AuthKey &key);
  size_t nic_counters = 0;  // open ones
  // Triggered commands that all processes of the service may queue together.
  size_t deferred_depth() const { return deferred_depth_; }
  Regions &regions() { return regions_; }
  // Null: a domain without FI_HMEM.
  const DeviceMemory *devices() const { return devices_.get(); }
  DeferredWork &deferred() { return deferred_; }

  // ---- for endpoints; the lock is held ----
  void add(CxiEndpoint &endpoint);
  void remove(CxiEndpoint &endpoint);
  CxiEndpoint *find(uint64_t number) const;
  size_t endpoint_count() const { return endpoints_.size(); }
  // Something was given to the NIC. `report`: a completion is wanted, so progress will come.
  void on_sent(bool report);
  // Something was posted that leaves at the next progress.
  void on_held_back() { engine().mark_dirty(*this); }
  void poll_device() { device_->poll(); }
  // fi_atomicvalid and its siblings. `pcie`: by the host (FI_CXI_PCIE_AMO).
  std::optional<Amo> atomic_of(sdk::AtomicKind kind, int op, int datatype, bool pcie) const;
  int atomic_count(sdk::AtomicKind kind, int op, int datatype, size_t *count) const;

  // fi_ops_domain
  int av_open(struct fi_av_attr *attr, struct fid_av **av, void *context);
  int cntr_open(struct fi_cntr_attr *attr, struct fid_cntr **cntr, void *context);
  int query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                   uint64_t flags);
  int query_collective(enum fi_collective_op coll, struct fi_collective_attr *attr,
                       uint64_t flags) {
    return cxi::query_collective(coll, attr, flags);
  }

  // fi_ops
  int bind(struct fid *fid, uint64_t flags) { return bind_eq(fid, flags); }
  int control(int command, void *arg);
  int ops_open(const char *name, uint64_t, void **ops, void *) {
    if (name == nullptr || ops == nullptr) return -FI_EINVAL;
    return open_domain_ops(name, ops);
  }
  int close();

 private:
  Domain(Fabric &fabric, const sdk::DomainSettings &settings, const fi_info &info,
         std::shared_ptr<Device> device, std::unique_ptr<Lni> lni, const AuthKey &key,
         void *context);
  ~Domain() = default;
  void use_devices(std::shared_ptr<const sdk::Hmem> hmem);
  void log_telemetry();
  int check_peer(const sdk::Address &peer);
  void look_at_service(const std::vector<Service> &services);

  // sdk::Poller
  void on_poll() override;
  int wait_fds(std::vector<int> &fds) override;
  bool may_wait() override;
  // sdk::Handler
  void on_event(uint32_t) override {}
  void on_flush() override { device_->push(); }

  Regions regions_;
  std::unique_ptr<const DeviceMemory> devices_;
  Fabric &fabric_;
  Settings settings_;
  const std::shared_ptr<Device> device_;
  std::unique_ptr<Lni> lni_;
  DeferredWork deferred_{*this, shared()};
  weft::cxi::Memory all_;
  AuthKey key_;
  bool has_keys_ = false;  // of its service, in address vectors
  const bool has_vector_keys_;
  VectorKeys vector_keys_{*this};
  size_t deferred_depth_ = 0;
  bool has_refused_ = false;  // a peer
  std::vector<CxiEndpoint *> endpoints_;
  std::vector<uint64_t> telemetry_;  // at its opening, of Settings::telemetry
  uint64_t burst_round_ = UINT64_MAX;
  uint32_t burst_items_ = 0;
};

}  // namespace weft::cxi

#endif
