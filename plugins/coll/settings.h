// SPDX-License-Identifier: BSD-2-Clause
// The parameters of coll (docs/man/weft-coll.7), and their values in one instance.
//
// Example:
//    inline bool is_for_all(const Options &options) { return options.always; }
//
// Not for the table of algorithms itself: schedule/choice.h.
#ifndef WEFT_PLUGINS_COLL_SETTINGS_H
#define WEFT_PLUGINS_COLL_SETTINGS_H

#include <weft/sdk/unit/params.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "plugins/coll/group/group.h"

namespace weft::coll {

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::list_param(
        "algorithms", nullptr,
        "algorithms that come before those of the table, each as "
        "COLLECTIVE[:BYTES[:MEMBERS[:WHERE]]]=ALGORITHM; must be the same at all members"),
    sdk::int_param("probe_ms", "500",
                   "milliseconds without news, after which a member asks those that it waits for "
                   "whether they are there",
                   1, 3600000),
    sdk::int_param("deadline_ms", "0",
                   "milliseconds after which an operation fails, also if its members are only "
                   "late; 0: never",
                   0, 86400000),
    sdk::bool_param("always", "0",
                    "the layer is offered to programs that do not ask for FI_COLLECTIVE, too"),
    sdk::int_param("tx_size", "1024", "tx_attr.size: sends in flight per endpoint", 1, 65536),
    sdk::int_param("rx_size", "1024", "rx_attr.size: receives expected per endpoint", 1, 65536),
    sdk::yield_after_param(),
    sdk::string_param(
        "libcuda", "libcuda.so.1",
        "the driver's library for memory of CUDA devices (FI_HMEM), which the provider "
        "beneath must have, too; empty: none"),
};
}  // namespace parameters

struct Options {
  GroupLimits limits;
  bool always = false;
  size_t tx_size = 1024, rx_size = 1024;
  std::string libcuda;
};

}  // namespace weft::coll

#endif
