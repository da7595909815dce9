// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the tcp provider: event queues, passive endpoints, and connection requests without
// an answer (weft/sdk/objects/connections.h).
//
// Example:
//    // The socket of the request that an application names when it opens an endpoint to accept it.
//    inline sdk::UniqueFd take(Fabric &fabric, fid_t handle) {
//      sdk::Guard guard(fabric.engine().lock());
//      const auto request = fabric.connections().take(handle);
//      if (request == nullptr) return {};  // answered already
//      return std::move(static_cast<ConnectRequest &>(*request).socket);
//    }
//
// Its engine makes the progress of listening sockets and unfinished handshakes. Connections belong
// to the engine of their domain.
#ifndef WEFT_PLUGINS_TCP_FABRIC_H
#define WEFT_PLUGINS_TCP_FABRIC_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/objects/connections.h>
#include <weft/sdk/objects/provider_fabric.h>
#include <weft/sdk/progress/engine.h>
#include <weft/sdk/progress/unique_fd.h>

#include <memory>
#include <string_view>
#include <utility>

#include "plugins/tcp/counters.h"
#include "plugins/tcp/settings.h"
#include "plugins/tcp/wire/connect_message.h"

namespace weft::tcp {

// A socket with a complete request.
class ConnectRequest final : public sdk::ConnectRequest {
 public:
  ConnectRequest(sdk::PassiveCore &passive, sdk::UniqueFd socket, const ConnectHeader &header)
      : sdk::ConnectRequest(passive),
        socket(std::move(socket)),
        order(header.order),
        features(header.features) {}

  sdk::Address local() const override;
  sdk::Address peer() const override;
  void reject(std::string_view data) override;

  sdk::UniqueFd socket;
  const ByteOrder order;
  const uint8_t features;
};

class Domain;
class PassiveEndpoint;

class Fabric final : public sdk::ProviderFabric<Fabric, Settings, Counters>,
                     public sdk::ConnectedFabricOps<Fabric, Domain, PassiveEndpoint> {
 public:
  Fabric(const Opening &opening, std::shared_ptr<sdk::HmemSource> hmem)
      : ProviderFabric(opening), hmem_(std::move(hmem)) {}
  ~Fabric();

  sdk::Engine &engine() { return engine_; }
  sdk::Connections &connections() { return connections_; }
  sdk::HmemSource &hmem() { return *hmem_; }

  void close_copies() { engine_.close_copies(); }  // weft/sdk/objects/ops.h

  // fi_ops_fabric
  int passive_ep(struct fi_info *info, struct fid_pep **pep, void *context);

 private:
  sdk::Engine engine_{true};
  sdk::Connections connections_{engine_, children, kPrivateDataSize};
  const std::shared_ptr<sdk::HmemSource> hmem_;
};

}  // namespace weft::tcp

#endif
