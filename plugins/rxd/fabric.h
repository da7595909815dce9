// SPDX-License-Identifier: BSD-2-Clause
// The fabric of the layer.
#ifndef WEFT_PLUGINS_RXD_FABRIC_H
#define WEFT_PLUGINS_RXD_FABRIC_H

#include <weft/sdk/layers/layer_fabric.h>

#include "plugins/rxd/protocol/counters.h"
#include "plugins/rxd/provider.h"

namespace weft::rxd {

class Domain;
using Fabric = sdk::LayerFabric<RxdLayer, Domain, Counters>;

}  // namespace weft::rxd

#endif
