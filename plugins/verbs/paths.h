// SPDX-License-Identifier: BSD-2-Clause
// Which devices, with which local addresses, a call of fi_getinfo is about.
//
// Example:
//    inline Result<size_t> count(const sdk::GetinfoQuery &query, Devices &devices) {
//      WEFT_TRY(const std::vector<DevicePath> found, device_paths(query, devices.facts(), devices));
//      return found.size();
//    }
//
// Not for the entries themselves: facts.h.
#ifndef WEFT_PLUGINS_VERBS_PATHS_H
#define WEFT_PLUGINS_VERBS_PATHS_H

#include <weft/sdk/ip/paths.h>

#include <vector>

#include "plugins/verbs/device.h"

namespace weft::verbs {

// By addresses of IP: that of a peer is resolved by the kernel (find_route). Without a peer, all
// addresses of all devices with an active port. An error says why there is none.
Result<std::vector<DevicePath>> device_paths(const sdk::GetinfoQuery &query,
                                             const std::vector<DeviceFacts> &all, Devices &devices);

// The part that asks nobody: the paths from `sources`, or from all addresses without any. A source
// without an address (a port alone) stands for all addresses.
std::vector<DevicePath> source_paths(const std::vector<DeviceFacts> &all,
                                     const std::vector<sdk::SockAddr> &sources, int family);

// By native InfiniBand addresses (FI_SOCKADDR_IB), if `query` asks for them, or for no address. The
// only ones that have them are devices whose link layer is InfiniBand.
Result<std::vector<DevicePath>> infiniband_paths(const sdk::GetinfoQuery &query,
                                                 const std::vector<DeviceFacts> &all,
                                                 Devices &devices);
// The name of a device's port.
sdk::Address infiniband_address(const DeviceFacts &facts, uint16_t port);

}  // namespace weft::verbs

#endif
