// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the verbs provider: event queues, passive endpoints, connection requests without an
// answer, and the channel of all connections.
//
// Example:
//    // Takes the request that an application names when it opens the endpoint to accept it.
//    inline Result<std::unique_ptr<ConnectRequest>> take(Fabric &fabric, fid_t handle) {
//      sdk::Guard guard(fabric.engine().lock());
//      std::unique_ptr<ConnectRequest> request(fabric.take(handle));
//      if (request == nullptr) return fail(FI_EINVAL, "the request was answered already");
//      return request;
//    }
//
// Its engine's lock is the lock of connections. It is taken before that of a completion queue, and
// that before the lock of an endpoint.
#ifndef WEFT_PLUGINS_VERBS_FABRIC_H
#define WEFT_PLUGINS_VERBS_FABRIC_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/fabric_ops.h>
#include <weft/sdk/fid.h>

#include <atomic>
#include <memory>
#include <set>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/counters.h"
#include "plugins/verbs/device_events.h"
#include "plugins/verbs/settings.h"

namespace weft::verbs {

class Domain;
class Fabric;
class PassiveEndpoint;

// A request that waits for fi_accept or fi_reject: the fi_info.handle of FI_CONNREQ.
struct ConnectRequestFid {
  struct fid fid;
};
class ConnectRequest final : public sdk::Object<ConnectRequest, ConnectRequestFid>,
                             private ChannelUser {
 public:
  ConnectRequest(Fabric &fabric, struct fid *pep, rdma_cm_id *id);
  ~ConnectRequest();  // rejects, if nobody has taken the identifier
  int close();

  rdma_cm_id *id() { return id_; }  // null: its device is gone
  rdma_cm_id *take_id() { return std::exchange(id_, nullptr); }
  void reject(const void *param, size_t len);
  struct fid *const pep;

 private:
  // fi_accept reports a requester that is gone.
  void on_event(const ChannelEvent &event) override;

  Fabric &fabric_;
  rdma_cm_id *id_;
};

class Fabric final : public sdk::Object<Fabric, fid_fabric>, public sdk::FabricOps<Fabric, Domain> {
 public:
  static Result<fid_fabric *> open(const weft_instance *instance, const Settings &settings,
                                   std::shared_ptr<Devices> devices, const fi_fabric_attr &attr,
                                   void *context);

  sdk::Engine &engine() { return engine_; }
  Channel &channel() { return *channel_; }
  Devices &devices() { return *devices_; }
  DeviceEvents &device_events() { return device_events_; }
  Counters &counters() { return *stats_; }
  sdk::Stats<Counters> &stats() { return stats_; }
  const Settings &settings() const { return settings_; }
  uint32_t api_version() const { return api_version_; }
  std::atomic<size_t> children{0};

  // Handles that applications may pass in. These calls need the engine's lock.
  void remember(ConnectRequest *request) { requests_.insert(request); }
  // Null: it was used already, or is not ours. take() removes it.
  ConnectRequest *find(fid_t handle) const;
  ConnectRequest *take(fid_t handle);
  void drop_requests_of(struct fid *pep);
  void remember(PassiveEndpoint *pep) { passive_.insert(pep); }
  void forget(PassiveEndpoint *pep) { passive_.erase(pep); }
  PassiveEndpoint *find_passive(fid_t handle) const;

  // fi_ops_fabric
  int passive_ep(struct fi_info *info, struct fid_pep **pep, void *context);
  int eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context);

  // fi_ops
  int close();
  int ops_open(const char *name, uint64_t flags, void **ops, void *) {
    return sdk::open_counters<Fabric>(name, flags, ops);
  }

 private:
  Fabric(const weft_instance *instance, const Settings &settings, std::shared_ptr<Devices> devices,
         const fi_fabric_attr &attr, void *context);
  ~Fabric() = default;

  const Settings settings_;
  const std::shared_ptr<Devices> devices_;
  const uint32_t api_version_;
  sdk::Engine engine_{true};
  sdk::Stats<Counters> stats_;
  DeviceEvents device_events_;
  std::unique_ptr<Channel> channel_;
  std::set<ConnectRequest *> requests_;
  std::set<PassiveEndpoint *> passive_;
};

}  // namespace weft::verbs

#endif
