// SPDX-License-Identifier: BSD-2-Clause
// Fabric and Counters of the layer. The fabric beneath is that of the network; the one of memory
// belongs to the domain (branch.h).
//
// Example:
//    inline uint64_t messages(Fabric &fabric) {
//      return fabric.stats()->sent_local.value() + fabric.stats()->sent_network.value();
//    }
//
// Not for domains: domain.h.
#ifndef WEFT_PLUGINS_LINK_FABRIC_H
#define WEFT_PLUGINS_LINK_FABRIC_H

#include <weft/sdk/layers/layer_fabric.h>
#include <weft/sdk/unit/stats.h>

#include "plugins/link/provider.h"

namespace weft::link {

struct Counters : sdk::CounterSet {
  using Counter = sdk::Counter;

  Counter sent_local{*this, "sent_local", "messages and accesses that began through memory"};
  Counter sent_network{*this, "sent_network", "messages and accesses that began by the network"};
  Counter peers_local{*this, "peers_local",
                      "times when a peer was found on this host, and is reached through memory"};
  Counter peers_network{*this, "peers_network",
                        "times when a peer was not found on this host, and is reached by the "
                        "network"};
  Counter names_taken{*this, "names_taken",
                      "endpoints that nobody finds on this host, because another one has the name"};
};

class Domain;
using Fabric = sdk::LayerFabric<LinkLayer, Domain, Counters>;

}  // namespace weft::link

#endif
