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
#include <weft/sdk/fabric_ops.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/hmem.h>

#include <atomic>
#include <memory>

#include "plugins/cxi/counters.h"
#include "plugins/cxi/domain.h"
#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/services_ops.h"
#include "plugins/cxi/settings.h"

namespace weft::cxi {

class Fabric final : public sdk::Object<Fabric, fid_fabric>, public sdk::FabricOps<Fabric, Domain> {
 public:
  static Result<fid_fabric *> open(const weft_instance *instance, const Settings &settings,
                                   std::shared_ptr<Devices> devices,
                                   std::shared_ptr<sdk::HmemSource> hmem,
                                   const fi_fabric_attr &attr, void *context);

  Devices &devices() { return *devices_; }
  // Memory of devices, for domains with FI_HMEM.
  Result<std::shared_ptr<const sdk::Hmem>> hmem() { return hmem_->open(); }
  const Settings &settings() const { return settings_; }
  uint32_t api_version() const { return api_version_; }
  sdk::Stats<Counters> &stats() { return stats_; }
  Counters &counters() { return *stats_; }
  std::atomic<size_t> children{0};

  // fi_ops_fabric
  int eq_open(struct fi_eq_attr *attr, struct fid_eq **eq, void *context);

  // fi_ops
  int close();
  int ops_open(const char *name, uint64_t flags, void **ops, void *) {
    if (is_services_ops(name)) return open_services_ops(ops);
    return sdk::open_counters<Fabric>(name, flags, ops);
  }

 private:
  Fabric(const weft_instance *instance, const Settings &settings, std::shared_ptr<Devices> devices,
         std::shared_ptr<sdk::HmemSource> hmem, const fi_fabric_attr &attr, void *context);
  ~Fabric() = default;

  const Settings settings_;
  const std::shared_ptr<Devices> devices_;
  const std::shared_ptr<sdk::HmemSource> hmem_;
  const uint32_t api_version_;
  sdk::Stats<Counters> stats_;
};

}  // namespace weft::cxi

#endif
