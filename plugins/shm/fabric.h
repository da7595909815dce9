// SPDX-License-Identifier: BSD-2-Clause
// The fabric of shm: settings, counters, and the number of the next endpoint's name.
//
// Example:
//    inline void count_refused(Fabric &fabric) { fabric.counters().strangers_refused.add(); }
#ifndef WEFT_PLUGINS_SHM_FABRIC_H
#define WEFT_PLUGINS_SHM_FABRIC_H

#include <weft/sdk/fabric_ops.h>
#include <weft/sdk/fid.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/stats.h>

#include <atomic>
#include <memory>

#include "plugins/shm/counters.h"
#include "plugins/shm/settings.h"

namespace weft::shm {

class Domain;

class Fabric final : public sdk::Object<Fabric, fid_fabric>, public sdk::FabricOps<Fabric, Domain> {
 public:
  static Result<fid_fabric *> open(const weft_instance *instance, const Settings &settings,
                                   std::shared_ptr<std::atomic<unsigned>> next_number,
                                   const fi_fabric_attr &attr, void *context);

  const Settings &settings() const { return settings_; }
  Counters &counters() { return *stats_; }
  sdk::Stats<Counters> &stats() { return stats_; }
  uint32_t api_version() const { return api_version_; }
  unsigned next_number() { return next_number_->fetch_add(1); }
  std::atomic<size_t> children{0};

  // fi_ops
  int close();
  int ops_open(const char *name, uint64_t flags, void **ops, void *) {
    return sdk::open_counters<Fabric>(name, flags, ops);
  }

 private:
  Fabric(const weft_instance *instance, const Settings &settings,
         std::shared_ptr<std::atomic<unsigned>> next_number, const fi_fabric_attr &attr,
         void *context);
  ~Fabric() = default;

  const Settings settings_;
  const std::shared_ptr<std::atomic<unsigned>> next_number_;
  const uint32_t api_version_;
  sdk::Stats<Counters> stats_;
};

}  // namespace weft::shm

#endif
