// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/unit.h>

#include "plugins/cxi/provider.h"

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "cxi",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::cxi::CxiProvider)
