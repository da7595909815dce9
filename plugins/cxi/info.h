// SPDX-License-Identifier: BSD-2-Clause
// What cxi answers to fi_getinfo.
//
// Example:
//    inline Result<void> add(sdk::InfoList &list, const DeviceFacts &nic,
//                            const sdk::GetinfoQuery &query) {
//      WEFT_TRY(const AskedPlaces asked, asked_places(query, {nic}));
//      return add_infos(list, nic, asked, query, Settings());
//    }
//
// Not for what fits an application's hints: the core compares.
#ifndef WEFT_PLUGINS_CXI_INFO_H
#define WEFT_PLUGINS_CXI_INFO_H

#include <weft/sdk/unit/provider.h>

#include <optional>
#include <string>
#include <vector>

#include "plugins/cxi/auth_key.h"
#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/ports.h"
#include "plugins/cxi/settings.h"

namespace weft::cxi {

inline constexpr size_t kInjectSize = kMaxInlineUnrestricted;
inline constexpr uint64_t kMaxMessageSize = UINT32_MAX;
inline constexpr size_t kAtomicSize = 32;  // both operands of the widest compare
inline constexpr uint64_t kOrder = FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_RMA_WAW |
                                   FI_ORDER_ATOMIC_WAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_RAW |
                                   FI_ORDER_ATOMIC_RAR;
// What endpoints with the keys of their address vector (FI_AV_AUTH_KEY) do not have. Receives of
// one peer: the NIC knows peers by their address, and not by their VNI. Groups: members are in one
// VNI.
inline constexpr uint64_t kOneVniCaps = FI_DIRECTED_RECV | FI_COLLECTIVE;
inline constexpr size_t kMaxTxSize = 16384, kMaxRxSize = 15360;

// What node, service and addresses name.
struct AskedPlaces {
  std::string device;  // the only NIC; empty: any
  Pid own_pid = kAnyPid;
  std::optional<Peer> dest;
  uint16_t dest_host = 0;      // the mark in its address
  std::optional<AuthKey> key;  // of hints
};
Result<AskedPlaces> asked_places(const sdk::GetinfoQuery &query,
                                 const std::vector<DeviceFacts> &devices);

// Of FI_TC_...; nullopt: there is no such class.
std::optional<TrafficClass> traffic_of(uint32_t tclass);

// FI_CXI_COMPAT. FI_ENODATA: it does not allow what is asked for.
Result<void> check_compat(const fi_info *hints, const Settings &settings);

// The ways to use one NIC, best first.
Result<void> add_infos(sdk::InfoList &list, const DeviceFacts &facts, const AskedPlaces &asked,
                       const sdk::GetinfoQuery &query, const Settings &settings);

}  // namespace weft::cxi

#endif
