// SPDX-License-Identifier: BSD-2-Clause
// Fabric: the fabric of the layer. The SDK has all of it (weft/sdk/layers/layer_fabric.h).
//
// Example:
//    inline size_t largest_packet(const Fabric &fabric) {
//      return fabric.layer().options().buffer_size;  // a domain reaches its layer by its fabric
//    }
//
// Not for domains: domain.h.
#ifndef WEFT_PLUGINS_RXM_FABRIC_H
#define WEFT_PLUGINS_RXM_FABRIC_H

#include <weft/sdk/layers/layer_fabric.h>

#include "plugins/rxm/protocol/counters.h"
#include "plugins/rxm/provider.h"

namespace weft::rxm {

class Domain;
using Fabric = sdk::LayerFabric<RxmLayer, Domain, Counters>;

}  // namespace weft::rxm

#endif
