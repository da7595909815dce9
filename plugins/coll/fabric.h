// SPDX-License-Identifier: BSD-2-Clause
// Fabric and Counters of the layer. The SDK has all of the fabric (weft/sdk/layers/layer_fabric.h).
//
// Example:
//    inline void count_join(Fabric &fabric) { fabric.stats()->groups_joined.add(); }
//
// Not for domains: domain.h.
#ifndef WEFT_PLUGINS_COLL_FABRIC_H
#define WEFT_PLUGINS_COLL_FABRIC_H

#include <weft/sdk/layers/layer_fabric.h>
#include <weft/sdk/unit/stats.h>

#include "plugins/coll/provider.h"

namespace weft::coll {

struct Counters : sdk::CounterSet {
  using Counter = sdk::Counter;

  Counter groups_joined{*this, "groups_joined", "groups that endpoints have joined"};
  Counter collectives{*this, "collectives", "collective operations that have ended well"};
  Counter collectives_failed{*this, "collectives_failed",
                             "collective operations that have failed: a member is gone, or "
                             "members disagree"};
  Counter packets{*this, "packets", "messages about lost members, and questions"};
  Counter packets_dropped{*this, "packets_dropped",
                          "such messages that came from others than the members that they named, "
                          "or made no sense"};
};

class Domain;
using Fabric = sdk::LayerFabric<CollLayer, Domain, Counters>;

}  // namespace weft::coll

#endif
