// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/provider.h"

#include <weft/sdk/ip/software.h>
#include <weft/sdk/memory/iov.h>
#include <weft/sdk/objects/rdm_caps.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/transfers/levels.h>

#include "plugins/shm/domain.h"
#include "plugins/shm/fabric.h"
#include "plugins/shm/names.h"

namespace weft::shm {

Result<sdk::InfoList> ShmProvider::getinfo(const sdk::GetinfoQuery &query) {
  WEFT_TRY(const AskedNames names, asked_names(query));
  sdk::InfoList list(instance_->core);
  WEFT_TRY(fi_info *const info, list.add());
  info->caps = sdk::kRdmTransmitCaps | sdk::kRdmReceiveCaps | FI_LOCAL_COMM | FI_SHARED_AV;
  info->addr_format = FI_ADDR_STR;
  WEFT_CHECK(sdk::set_address(info->src_addr, info->src_addrlen, names.source.c_str(),
                              names.source.size() + 1));
  if (!names.destination.empty())
    WEFT_CHECK(sdk::set_address(info->dest_addr, info->dest_addrlen, names.destination.c_str(),
                                names.destination.size() + 1));

  const fi_tx_attr asked_tx = sdk::tx_hints(query.hints);
  const fi_rx_attr asked_rx = sdk::rx_hints(query.hints);
  const uint64_t order = kOrder | (kOrderIfAsked & (asked_tx.msg_order | asked_rx.msg_order));

  fi_tx_attr &tx = *info->tx_attr;
  tx.caps = sdk::kRdmTransmitCaps;
  tx.op_flags = FI_COMPLETION | FI_INJECT | (sdk::kLevelFlags & ~uint64_t(FI_COMMIT_COMPLETE));
  tx.msg_order = order;
  tx.comp_order = FI_ORDER_NONE;
  tx.inject_size = sdk::offered_size(kInjectSize, asked_tx.inject_size, kMaxInjectSize);
  tx.size = sdk::offered_size(settings_.tx_size, asked_tx.size, kMaxQueue);
  tx.iov_limit = sdk::kIovLimit;
  tx.rma_iov_limit = kMostVectors;
  WEFT_TRY(tx.tclass, sdk::offered_class("tx_attr.tclass", asked_tx.tclass));

  fi_rx_attr &rx = *info->rx_attr;
  rx.caps = sdk::kRdmReceiveCaps;
  rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
  rx.msg_order = order;
  rx.comp_order = FI_ORDER_NONE;
  rx.size = sdk::offered_size(settings_.rx_size, asked_rx.size, kMaxQueue);
  rx.iov_limit = sdk::kIovLimit;

  fi_ep_attr &ep = *info->ep_attr;
  ep.type = FI_EP_RDM;
  ep.protocol = FI_PROTO_SHM;
  ep.protocol_version = 1;
  ep.max_order_raw_size = order & (FI_ORDER_RAW | FI_ORDER_RMA_RAW) ? SIZE_MAX : 0;
  ep.max_order_waw_size = order & (FI_ORDER_WAW | FI_ORDER_RMA_WAW) ? SIZE_MAX : 0;
  ep.max_order_war_size = order & (FI_ORDER_WAR | FI_ORDER_RMA_WAR) ? SIZE_MAX : 0;
  ep.max_msg_size = SIZE_MAX;  // stock's value; no address space holds more than kMostLength
  ep.mem_tag_format = 0xaaaaaaaaaaaaaaaa;
  ep.tx_ctx_cnt = ep.rx_ctx_cnt = 1;

  fi_domain_attr &domain = *info->domain_attr;
  sdk::fill_software_domain(domain, query, FI_MR_PROV_KEY);
  domain.caps = FI_LOCAL_COMM | FI_SHARED_AV | (sdk::kRdmReceiveCaps & (FI_AV_USER_ID | FI_PEER));
  domain.cq_data_size = sizeof(uint64_t);
  domain.max_ep_srx_ctx = domain.max_ep_stx_ctx = domain.ep_cnt;
  if (query.hints != nullptr && query.hints->domain_attr != nullptr) {
    WEFT_TRY(domain.tclass,
             sdk::offered_class("domain_attr.tclass", query.hints->domain_attr->tclass));
  }
  WEFT_CHECK(sdk::set_string(domain.name, "shm"));
  WEFT_CHECK(sdk::set_string(info->fabric_attr->name, "shm"));
  info->fabric_attr->prov_version = ShmProvider::info.version;
  info->fabric_attr->api_version = query.api_version;
  return list;
}

Result<fid_fabric *> ShmProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, attr, context, next_number_);
}

Result<void> ShmProvider::explain(const sdk::LineSink &line) {
  line("peers are processes of this host%s", settings_.other_users ? "" : " and of this user");
  if (settings_.disable_cma) line("long messages are copied twice (FI_SHM_DISABLE_CMA)");
  return {};
}

}  // namespace weft::shm

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "shm",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::shm::ShmProvider)
