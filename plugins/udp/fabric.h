// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the udp provider: domains, event queues, and the counters of the provider.
#ifndef WEFT_PLUGINS_UDP_FABRIC_H
#define WEFT_PLUGINS_UDP_FABRIC_H

#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/provider_fabric.h>

#include <memory>
#include <utility>

#include "plugins/udp/counters.h"
#include "plugins/udp/settings.h"

namespace weft::udp {

class Domain;

class Fabric final : public sdk::ProviderFabric<Fabric, Settings, Counters>,
                     public sdk::FabricOps<Fabric, Domain> {
 public:
  Fabric(const Opening &opening, std::shared_ptr<sdk::HmemSource> hmem)
      : ProviderFabric(opening), hmem_(std::move(hmem)) {}

  sdk::HmemSource &hmem() { return *hmem_; }

 private:
  const std::shared_ptr<sdk::HmemSource> hmem_;
};

}  // namespace weft::udp

#endif
