// SPDX-License-Identifier: BSD-2-Clause
// fi_getinfo of a layer that makes unconnected endpoints (FI_EP_RDM) above endpoints of another
// kind: what it asks the inner provider for, and what it makes of each answer.
//
// Example:
//    weft::Result<InfoList> getinfo(const weft_core_services *core, const Inner &inner,
//                                   const GetinfoQuery &query) {
//      WEFT_TRY(const InfoList wanted, inner_hints(core, FI_EP_DGRAM, FI_MSG, query.hints));
//      WEFT_TRY(InfoList list, inner.getinfo(inner_query(wanted, query)));
//      for (fi_info *info = list.front(); info != nullptr; info = info->next)
//        offer_rdm(*info, {.protocol = FI_PROTO_RXD, .order = FI_ORDER_SAS}, query);
//      return list;
//    }
//
// Attributes that offer_rdm() does not name stay the inner provider's; the layer must judge
// registration (mr_mode), numbers of objects, and sizes. Not for providers, which make an fi_info
// from nothing, nor for comparing with hints: the core does that.
#ifndef WEFT_SDK_LAYERS_LAYER_INFO_H
#define WEFT_SDK_LAYERS_LAYER_INFO_H

#include <rdma/fi_endpoint.h>
#include <weft/sdk/objects/rdm_caps.h>
#include <weft/sdk/unit/info_list.h>
#include <weft/sdk/unit/provider.h>

namespace weft::sdk {

// Hints for the inner provider: endpoints of `type` with `caps`, thread-safe, with manual progress;
// addresses, domain and fabric as the application wants them (`outer`, which may be null).
Result<InfoList> inner_hints(const weft_core_services *core, enum fi_ep_type type, uint64_t caps,
                             const fi_info *outer);

// For fi_getinfo: the layer has the traffic classes of the provider beneath. Later on LayerDomain
// and the layer's endpoints say which (traffic_class.h).
void want_classes(const InfoList &inner_hints, const GetinfoQuery &query);

// The same query for the inner provider. Layers use the newest version of the API with the provider
// beneath, whatever the application was built for.
GetinfoQuery inner_query(const InfoList &hints, const GetinfoQuery &outer = {});

struct RdmOffer {
  uint32_t protocol = FI_PROTO_UNSPEC;  // FI_PROTO_...
  uint64_t order = FI_ORDER_NONE;       // FI_ORDER_..., of messages and remote accesses
  uint64_t order_if_asked = 0;          // more of them, at a cost (order.h)
  size_t tx_size = 1024, rx_size = 1024;
  size_t inject_size = 0;      // bytes
  size_t max_inject_size = 0;  // for applications that ask
  size_t rma_iov_limit = 1;
  bool persistent = false;  // FI_RMA_PMEM with FI_COMMIT_COMPLETE
  bool contexts = false;    // scalable endpoints (scalable.h)
};

inline constexpr size_t kMaxLayerQueue = 65536;  // tx_size and rx_size that may be asked for

// Makes the inner provider's entry one of the layer. Progress is as the application asks, else
// manual.
void offer_rdm(fi_info &info, const RdmOffer &offer, const GetinfoQuery &query);

}  // namespace weft::sdk

#endif
