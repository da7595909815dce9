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
#include <weft/sdk/objects/connections.h>
#include <weft/sdk/objects/provider_fabric.h>
#include <weft/sdk/progress/engine.h>

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

class Fabric final : public sdk::ProviderFabric<Fabric, Settings, Counters>,
                     public sdk::ConnectedFabricOps<Fabric, Domain, PassiveEndpoint> {
 public:
  Fabric(const Opening &opening, std::shared_ptr<Devices> devices);
  ~Fabric();

  sdk::Engine &engine() { return engine_; }
  sdk::Connections &connections() { return connections_; }
  Channel &channel() { return *channel_; }
  Devices &devices() { return *devices_; }
  DeviceEvents &device_events() { return device_events_; }
  // Opens the channel.
  Result<void> start();
  // Whether one more request may wait for an answer, of a passive endpoint with this backlog. The
  // lock is held.
  bool takes_request(int backlog);

  // fi_ops_fabric
  int passive_ep(struct fi_info *info, struct fid_pep **pep, void *context);

 private:
  const std::shared_ptr<Devices> devices_;
  sdk::Engine engine_{true};
  sdk::Connections connections_{engine_, children, kPrivateDataSize};
  DeviceEvents device_events_;
  std::unique_ptr<Channel> channel_;
  bool crowd_told_ = false;
};

}  // namespace weft::verbs

#endif
