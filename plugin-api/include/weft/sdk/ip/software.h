// SPDX-License-Identifier: BSD-2-Clause
// What a provider over IP that works in software answers to fi_getinfo, whatever its protocol: it
// is thread-safe, makes progress as it is asked to, needs nothing of the application, and has as
// many objects as memory allows.
//
// Example:
//    weft::Result<void> add(InfoList &list, const IpPath &path, const GetinfoQuery &query) {
//      WEFT_TRY(fi_info *const info, list.add());
//      WEFT_CHECK(fill_software_info(*info, path, query,
//                                    {.type = FI_EP_DGRAM,
//                                     .version = FI_VERSION(1, 0),
//                                     .transmit_caps = FI_MSG | FI_SEND,
//                                     .receive_caps = FI_MSG | FI_RECV}));
//      info->tx_attr->size = 1024;  // sizes, limits, orders and the protocol's number are its own
//      return {};
//    }
//
// Not for a device, which has limits of its own, nor for layers, which have those of the provider
// beneath (layer_info.h). But a layer whose domain has nothing of that provider's uses
// fill_software_domain().
#ifndef WEFT_SDK_IP_SOFTWARE_H
#define WEFT_SDK_IP_SOFTWARE_H

#include <weft/sdk/ip/paths.h>

namespace weft::sdk {

struct SoftwareOffer {
  enum fi_ep_type type;
  uint32_t version;  // of the provider
  uint64_t transmit_caps, receive_caps;
  int mr_mode = 0;  // bits that an application gets if it can live with them
};

// Capabilities, addresses, names, versions and counts; what is not said here stays zero.
Result<void> fill_software_info(fi_info &info, const IpPath &path, const GetinfoQuery &query,
                                const SoftwareOffer &offer);

// The same for the domain's attributes only, without its name. `mr_mode`: as above.
void fill_software_domain(fi_domain_attr &domain, const GetinfoQuery &query, int mr_mode);

}  // namespace weft::sdk

#endif
