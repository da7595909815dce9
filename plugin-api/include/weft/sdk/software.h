// SPDX-License-Identifier: BSD-2-Clause
// What a provider over IP that works in software answers to fi_getinfo whatever its protocol is: it
// is thread-safe, makes progress as it is asked to, needs nothing of the application, and has as
// many objects as there is memory for.
//
//   WEFT_TRY(fi_info *const info, list.add());
//   WEFT_CHECK(fill_software_info(*info, path, query,
//                                 {.type = FI_EP_DGRAM, .version = UdpProvider::info.version,
//                                  .transmit_caps = FI_MSG | FI_SEND, ...}));
//   info->tx_attr->size = settings_.tx_size;   // sizes, limits, orders and the protocol's number
//
// Not for a device, which has limits of its own, nor for layers, which have those of what is
// beneath (layer_info.h); but a layer that leaves nothing of its domain to that uses
// fill_software_domain().
#ifndef WEFT_SDK_SOFTWARE_H
#define WEFT_SDK_SOFTWARE_H

#include <weft/sdk/paths.h>

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

// Of them the domain's attributes but its name. `mr_mode`: as above.
void fill_software_domain(fi_domain_attr &domain, const GetinfoQuery &query, int mr_mode);

}  // namespace weft::sdk

#endif
