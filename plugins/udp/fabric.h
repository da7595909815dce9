// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the udp provider: domains, event queues, and the counters of the provider.
#ifndef WEFT_PLUGINS_UDP_FABRIC_H
#define WEFT_PLUGINS_UDP_FABRIC_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/fabric_ops.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/hmem.h>

#include <atomic>

#include "plugins/udp/counters.h"
#include "plugins/udp/settings.h"

namespace weft::udp {

class Domain;

class Fabric final : public sdk::Object<Fabric, fid_fabric>, public sdk::FabricOps<Fabric, Domain> {
 public:
  static Result<fid_fabric *> open(const weft_instance *instance, const Settings &settings,
                                   std::shared_ptr<sdk::HmemSource> hmem,
                                   const fi_fabric_attr &attr, void *context);

  const Settings &settings() const { return settings_; }
  sdk::HmemSource &hmem() { return *hmem_; }
  sdk::Stats<Counters> &stats() { return stats_; }
  uint32_t api_version() const { return api_version_; }
  std::atomic<size_t> children{0};

  // fi_ops
  int close();
  int ops_open(const char *name, uint64_t flags, void **ops, void *) {
    return sdk::open_counters<Fabric>(name, flags, ops);
  }

 private:
  Fabric(const weft_instance *instance, const Settings &settings,
         std::shared_ptr<sdk::HmemSource> hmem, const fi_fabric_attr &attr, void *context);
  ~Fabric() = default;

  const Settings settings_;
  const std::shared_ptr<sdk::HmemSource> hmem_;
  const uint32_t api_version_;
  sdk::Stats<Counters> stats_;
};

}  // namespace weft::udp

#endif
