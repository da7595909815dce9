// SPDX-License-Identifier: BSD-2-Clause
// The parameters of link (docs/man/weft-link.7), and their values in one instance.
//
// Example:
//    inline bool uses_network_only(const Options &options) { return !options.local; }
//
// Not for the parameters of the providers beneath, which are theirs.
#ifndef WEFT_PLUGINS_LINK_SETTINGS_H
#define WEFT_PLUGINS_LINK_SETTINGS_H

#include <weft/sdk/unit/params.h>

#include <cstddef>

namespace weft::link {

namespace parameters {
inline constexpr weft_param kAll[] = {
    sdk::bool_param("local", "1",
                    "peers on this host are reached through memory; 0: all peers by the network, "
                    "and those on this host find this process there, too"),
    sdk::int_param("tx_size", "1024", "default of tx_attr.size: operations in flight per endpoint",
                   1, 65536),
    sdk::int_param("rx_size", "1024", "default of rx_attr.size: receives expected per endpoint", 1,
                   65536),
    sdk::yield_after_param("384"),  // 256 reads of memory alone, and 128 of both (pace.h)
};
}  // namespace parameters

struct Options {
  bool local = true;
  size_t tx_size = 1024, rx_size = 1024;
};

}  // namespace weft::link

#endif
