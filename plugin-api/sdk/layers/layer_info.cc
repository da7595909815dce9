// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_domain.h>
#include <weft/sdk/layers/layer_info.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/objects/scalable.h>
#include <weft/sdk/progress/progress.h>
#include <weft/sdk/transfers/levels.h>

namespace weft::sdk {
namespace {

constexpr uint64_t kOfferedLevels = kLevelFlags & ~uint64_t(FI_COMMIT_COMPLETE);
constexpr uint64_t kTagFormat = 0xaaaaaaaaaaaaaaaa;  // any use of the bits
constexpr size_t kManySharedReceives = 65536;

}  // namespace

Result<InfoList> inner_hints(const weft_core_services *core, enum fi_ep_type type, uint64_t caps,
                             const fi_info *outer) {
  InfoList list(core);
  WEFT_TRY(fi_info *const info, list.add());
  info->ep_attr->type = type;
  info->caps = caps;
  info->domain_attr->threading = FI_THREAD_SAFE;
  info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  if (outer == nullptr) return list;
  info->addr_format = outer->addr_format;
  if (outer->src_addr != nullptr)
    WEFT_CHECK(set_address(info->src_addr, info->src_addrlen, outer->src_addr, outer->src_addrlen));
  if (outer->dest_addr != nullptr)
    WEFT_CHECK(
        set_address(info->dest_addr, info->dest_addrlen, outer->dest_addr, outer->dest_addrlen));
  if (outer->domain_attr != nullptr && outer->domain_attr->name != nullptr)
    WEFT_CHECK(set_string(info->domain_attr->name, outer->domain_attr->name));
  if (outer->fabric_attr != nullptr && outer->fabric_attr->name != nullptr)
    WEFT_CHECK(set_string(info->fabric_attr->name, outer->fabric_attr->name));
  return list;
}

void want_classes(const InfoList &inner_hints, const GetinfoQuery &query) {
  inner_hints.front()->tx_attr->tclass = tx_hints(query.hints).tclass;
  if (query.hints != nullptr && query.hints->domain_attr != nullptr)
    inner_hints.front()->domain_attr->tclass = query.hints->domain_attr->tclass;
}

GetinfoQuery inner_query(const InfoList &hints, const GetinfoQuery &outer) {
  return {.api_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
          .node = outer.node,
          .service = outer.service,
          .flags = outer.flags,
          .hints = hints.front()};
}

void offer_rdm(fi_info &info, const RdmOffer &offer, const GetinfoQuery &query) {
  // The layer's vectors are its own, whatever those of the provider beneath can do.
  const uint64_t domain_caps =
      (info.domain_attr->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM)) | FI_SHARED_AV;
  const uint64_t contexts =
      offer.contexts && query.hints != nullptr ? query.hints->caps & uint64_t(FI_NAMED_RX_CTX) : 0;
  const uint64_t less = contexts != 0 ? FI_TRIGGER : 0;  // whose counters have one lock
  const uint64_t persistent = offer.persistent ? uint64_t(FI_RMA_PMEM) : 0;
  const uint64_t tx_caps = (kRdmTransmitCaps & ~less) | contexts | persistent;
  const uint64_t rx_caps = (kRdmReceiveCaps & ~less) | persistent;
  info.caps = tx_caps | rx_caps | domain_caps;
  info.mode = 0;
  info.handle = nullptr;

  const fi_tx_attr asked_tx = tx_hints(query.hints);
  const fi_rx_attr asked_rx = rx_hints(query.hints);
  const uint64_t order =
      offer.order | (offer.order_if_asked & (asked_tx.msg_order | asked_rx.msg_order));

  fi_tx_attr &tx = *info.tx_attr;
  tx.caps = tx_caps;
  tx.mode = 0;
  tx.op_flags = FI_COMPLETION | FI_INJECT | kOfferedLevels |
                (offer.persistent ? uint64_t(FI_COMMIT_COMPLETE) : 0);
  tx.msg_order = order;
  tx.comp_order = FI_ORDER_NONE;
  tx.inject_size = offered_size(offer.inject_size, asked_tx.inject_size, offer.max_inject_size);
  tx.size = offered_size(offer.tx_size, asked_tx.size, kMaxLayerQueue);
  tx.iov_limit = kIovLimit;
  tx.rma_iov_limit = offer.rma_iov_limit;

  fi_rx_attr &rx = *info.rx_attr;
  rx.caps = rx_caps;
  rx.mode = 0;
  rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
  rx.msg_order = order;
  rx.comp_order = FI_ORDER_NONE;
  rx.size = offered_size(offer.rx_size, asked_rx.size, kMaxLayerQueue);
  rx.iov_limit = kIovLimit;

  fi_ep_attr &ep = *info.ep_attr;
  ep.type = FI_EP_RDM;
  ep.protocol = offer.protocol;
  ep.protocol_version = 1;
  ep.mem_tag_format = kTagFormat;
  ep.max_order_war_size = order & (FI_ORDER_WAR | FI_ORDER_RMA_WAR) ? SIZE_MAX : 0;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;

  const fi_domain_attr *asked = query.hints != nullptr ? query.hints->domain_attr : nullptr;
  fi_domain_attr &domain = *info.domain_attr;
  domain.threading = FI_THREAD_SAFE;
  domain.control_progress =
      offered_progress(asked != nullptr ? asked->control_progress : FI_PROGRESS_UNSPEC);
  domain.data_progress =
      offered_progress(asked != nullptr ? asked->data_progress : FI_PROGRESS_UNSPEC);
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.av_type = FI_AV_UNSPEC;
  domain.caps = domain_caps | (kRdmReceiveCaps & (FI_AV_USER_ID | FI_PEER));
  domain.mode = 0;
  domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = offer.contexts ? kMaxContexts : 1;
  domain.max_ep_stx_ctx = kManySharedReceives;
  domain.max_ep_srx_ctx = kManySharedReceives;
  domain.mr_iov_limit = 1;
  info.fabric_attr->api_version = query.api_version;
}

}  // namespace weft::sdk
