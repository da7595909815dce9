// SPDX-License-Identifier: BSD-2-Clause
// What fi_getinfo says of datagram endpoints (FI_EP_DGRAM).
//
// Example:
//    inline Result<sdk::InfoList> offers(const weft_core_services *core, Devices &devices,
//                                        const sdk::GetinfoQuery &query) {
//      sdk::InfoList list(core);
//      WEFT_CHECK(add_datagram_infos(list, query, devices.facts(), Sizes{}));
//      return list;
//    }
//
// Functions of this file are pure: they open no device. Not for connected endpoints: facts.h.
#ifndef WEFT_PLUGINS_VERBS_DATAGRAM_INFO_H
#define WEFT_PLUGINS_VERBS_DATAGRAM_INFO_H

#include <weft/sdk/unit/info_list.h>
#include <weft/sdk/unit/provider.h>

#include <string>
#include <string_view>
#include <vector>

#include "plugins/verbs/facts.h"

namespace weft::verbs {

inline constexpr uint64_t kDatagramCaps = FI_MSG | FI_SEND | FI_RECV | FI_SOURCE;

// The capabilities of a device's datagram endpoints. Groups are joined by an IP address.
uint64_t datagram_caps(const DeviceFacts &facts);

// An entry for each device that has datagrams. An error says why there is none.
Result<void> add_datagram_infos(sdk::InfoList &list, const sdk::GetinfoQuery &query,
                                const std::vector<DeviceFacts> &all, const Sizes &sizes);

// The domain of a device's datagram endpoints has a name of its own, as in stock.
std::string datagram_domain(const DeviceFacts &facts);
// The device of a domain, by the domain's name.
std::string_view device_of_domain(std::string_view domain);

}  // namespace weft::verbs

#endif
