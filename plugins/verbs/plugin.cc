// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/unit.h>

#include "plugins/verbs/provider.h"

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "verbs",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::verbs::VerbsProvider)
