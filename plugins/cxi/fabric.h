// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the cxi provider: event queues, wait sets, and domains, one for each NIC that is
// opened.
//
// Example:
//    inline std::vector<DeviceFacts> nics(Fabric &fabric) { return fabric.devices().list(); }
//
// Not for progress: a domain has it.
#ifndef WEFT_PLUGINS_CXI_FABRIC_H
#define WEFT_PLUGINS_CXI_FABRIC_H

#include <rdma/fabric.h>
#include <weft/sdk/memory/hmem.h>
#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/provider_fabric.h>

#include <memory>
#include <utility>

#include "plugins/cxi/counters.h"
#include "plugins/cxi/domain.h"
#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/services_ops.h"
#include "plugins/cxi/settings.h"

namespace weft::cxi {

class Fabric final : public sdk::ProviderFabric<Fabric, Settings, Counters>,
                     public sdk::FabricOps<Fabric, Domain> {
 public:
  Fabric(const Opening &opening, std::shared_ptr<Devices> devices,
         std::shared_ptr<sdk::HmemSource> hmem)
      : ProviderFabric(opening), devices_(std::move(devices)), hmem_(std::move(hmem)) {}

  Devices &devices() { return *devices_; }
  // Memory of devices, for domains with FI_HMEM.
  Result<std::shared_ptr<const sdk::Hmem>> hmem() { return hmem_->open(); }

  // fi_ops_fabric
  int eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context);

  // fi_ops
  int ops_open(const char *name, uint64_t flags, void **ops, void *context) {
    if (is_services_ops(name)) return open_services_ops(ops);
    return ProviderFabric::ops_open(name, flags, ops, context);
  }

 private:
  const std::shared_ptr<Devices> devices_;
  const std::shared_ptr<sdk::HmemSource> hmem_;
};

}  // namespace weft::cxi

#endif
