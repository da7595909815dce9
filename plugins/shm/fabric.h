// SPDX-License-Identifier: BSD-2-Clause
// The fabric of shm: settings, counters, and the number of the next endpoint's name.
//
// Example:
//    inline void count_refused(Fabric &fabric) { fabric.counters().strangers_refused.add(); }
#ifndef WEFT_PLUGINS_SHM_FABRIC_H
#define WEFT_PLUGINS_SHM_FABRIC_H

#include <weft/sdk/objects/fabric_ops.h>
#include <weft/sdk/objects/provider_fabric.h>

#include <atomic>
#include <memory>
#include <utility>

#include "plugins/shm/counters.h"
#include "plugins/shm/settings.h"

namespace weft::shm {

class Domain;

class Fabric final : public sdk::ProviderFabric<Fabric, Settings, Counters>,
                     public sdk::FabricOps<Fabric, Domain> {
 public:
  Fabric(const Opening &opening, std::shared_ptr<std::atomic<unsigned>> next_number)
      : ProviderFabric(opening), next_number_(std::move(next_number)) {}

  unsigned next_number() { return next_number_->fetch_add(1); }

 private:
  const std::shared_ptr<std::atomic<unsigned>> next_number_;
};

}  // namespace weft::shm

#endif
