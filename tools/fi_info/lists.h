// SPDX-License-Identifier: BSD-2-Clause
// The three answers of fi_info: variables, providers, interfaces. Each prints its list, as text or
// as JSON, and returns the exit status.
//
// Example:
//     int print_list(Options &options) {
//       return options.list ? list_providers(options) : list_interfaces(options);
//     }
#ifndef WEFT_TOOLS_FI_INFO_LISTS_H
#define WEFT_TOOLS_FI_INFO_LISTS_H

#include "tools/fi_info/options.h"

namespace weft::info {

// The environment variables that the library and the providers read.
int list_environment(const Options &options);
int list_providers(const Options &options);
// What fi_getinfo() offers for the node, the source and the hints.
int list_interfaces(Options &options);

}  // namespace weft::info

#endif
