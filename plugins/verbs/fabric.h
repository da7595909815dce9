// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the verbs provider: event queues, passive endpoints, connection requests without an
// answer, and the channel of all connections.
//
// Example:
//    // The identifier of the request that an application names when it opens the endpoint to accept
//    // it; null: there is none, or its device is gone.
//    inline rdma_cm_id *take(Fabric &fabric, fid_t handle) {
//      sdk::Guard guard(fabric.engine().lock());
//      const auto request = fabric.connections().take(handle);
//      return request != nullptr ? static_cast<ConnectRequest &>(*request).take_id() : nullptr;
//    }
//
// Its engine's lock is the lock of connections. It is taken before that of a completion queue, and
// that before the lock of an endpoint.
#ifndef WEFT_PLUGINS_VERBS_FABRIC_H
#define WEFT_PLUGINS_VERBS_FABRIC_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/connections.h>
#include <weft/sdk/engine.h>
#include <weft/sdk/fid.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "plugins/verbs/channel.h"
#include "plugins/verbs/counters.h"
#include "plugins/verbs/device_events.h"
#include "plugins/verbs/private_data.h"
#include "plugins/verbs/settings.h"
#include "plugins/verbs/xrc_data.h"

namespace weft::verbs {

class Domain;
class PassiveEndpoint;

// An identifier of a request.
class ConnectRequest final : public sdk::ConnectRequest, private ChannelUser {
 public:
  // `xrc`: what an XRC endpoint asked for.
  ConnectRequest(sdk::PassiveCore &passive, rdma_cm_id *id, std::optional<XrcData> xrc = {});
  ~ConnectRequest();  // rejects, if nobody has taken the identifier

  sdk::Address local() const override;
  sdk::Address peer() const override;
  void reject(std::string_view data) override;

  rdma_cm_id *id() const { return id_; }  // null: its device is gone
  const std::optional<XrcData> &xrc() const { return xrc_; }
  // Whether an endpoint on this device can accept it.
  Result<void> check_device(const Device &device) const;
  // The device of the request, which may be another than that of the info where the address of the
  // passive endpoint is a wildcard.
  Result<void> describe(Devices &devices, fi_info &info) const;
  rdma_cm_id *take_id() { return std::exchange(id_, nullptr); }

 private:
  // fi_accept reports a requester that is gone.
  void on_event(const ChannelEvent &event) override;

  rdma_cm_id *id_;
  const std::optional<XrcData> xrc_;
};

class Fabric final : public sdk::Object<Fabric, fid_fabric>,
                     public sdk::ConnectedFabricOps<Fabric, Domain, PassiveEndpoint> {
 public:
  static Result<fid_fabric *> open(const weft_instance *instance, const Settings &settings,
                                   std::shared_ptr<Devices> devices, const fi_fabric_attr &attr,
                                   void *context);

  sdk::Engine &engine() { return engine_; }
  sdk::Connections &connections() { return connections_; }
  Channel &channel() { return *channel_; }
  Devices &devices() { return *devices_; }
  DeviceEvents &device_events() { return device_events_; }
  Counters &counters() { return *stats_; }
  sdk::Stats<Counters> &stats() { return stats_; }
  const Settings &settings() const { return settings_; }
  uint32_t api_version() const { return api_version_; }
  // Whether one more request may wait for an answer, of a passive endpoint with this backlog. The
  // lock is held.
  bool takes_request(int backlog);
  std::atomic<size_t> children{0};

  // fi_ops_fabric
  int passive_ep(struct fi_info *info, struct fid_pep **pep, void *context);

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
  sdk::Connections connections_{engine_, children, kPrivateDataSize};
  sdk::Stats<Counters> stats_;
  DeviceEvents device_events_;
  std::unique_ptr<Channel> channel_;
  bool crowd_told_ = false;
};

}  // namespace weft::verbs

#endif
