// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/provider.h"

#include <rdma/fi_domain.h>
#include <weft/sdk/auth.h>

#include <algorithm>

#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {
Result<std::unique_ptr<TcpProvider>> TcpProvider::create(const weft_instance *instance) {
  return std::unique_ptr<TcpProvider>(new TcpProvider(instance));
}

Result<void> TcpProvider::add_info(sdk::InfoList &list, const sdk::IpPath &path,
                                   enum fi_ep_type type, const sdk::GetinfoQuery &query) const {
  const bool connected = type == FI_EP_MSG;
  const fi_info *hints = query.hints;
  WEFT_TRY(fi_info *const info, list.add());
  // A message that was only announced is fetched when it is wanted: what is behind it may be done,
  // and complete, first.
  const uint64_t order = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_SAW | FI_ORDER_SAS |
                         FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW |
                         (connected ? FI_ORDER_RAS | FI_ORDER_WAS : 0);
  constexpr uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  const uint64_t transmit_caps = connected ? kTransmitCaps : kRdmTransmitCaps;
  const uint64_t receive_caps = connected ? kReceiveCaps : kRdmReceiveCaps;
  info->caps = transmit_caps | receive_caps | kDomainCaps;
  WEFT_CHECK(sdk::set_path(*info, path, hints));

  fi_tx_attr &tx = *info->tx_attr;
  tx.caps = transmit_caps;
  tx.op_flags = FI_COMPLETION | FI_INJECT | kLevelFlags;
  tx.msg_order = order;
  tx.comp_order = FI_ORDER_NONE;  // a read completes behind the sends that were posted after it
  tx.inject_size = kInjectSize;
  tx.size = settings_.tx_size;
  tx.iov_limit = sdk::kIovLimit;
  tx.rma_iov_limit = kMaxRmaVectors;

  fi_rx_attr &rx = *info->rx_attr;
  rx.caps = receive_caps;
  rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
  rx.msg_order = order;
  rx.comp_order = connected ? FI_ORDER_STRICT : FI_ORDER_NONE;
  rx.size = settings_.rx_size;
  rx.iov_limit = sdk::kIovLimit;

  fi_ep_attr &ep = *info->ep_attr;
  ep.type = type;
  ep.protocol = connected ? FI_PROTO_SOCK_TCP : FI_PROTO_XNET;
  ep.max_msg_size = kMaxMessageSize;
  ep.max_order_raw_size = kMaxMessageSize;
  ep.max_order_waw_size = kMaxMessageSize;
  ep.tx_ctx_cnt = 1;
  ep.rx_ctx_cnt = 1;
  if (!connected) ep.protocol_version = kRdmVersion;
  // Every bit a field of its own. The same as FI_TAG_BITS to who knows that; others count the bits.
  if (!connected) ep.mem_tag_format = 0xaaaaaaaaaaaaaaaa;

  fi_domain_attr &domain = *info->domain_attr;
  WEFT_CHECK(sdk::set_string(domain.name, path.domain));
  domain.threading = FI_THREAD_SAFE;
  // Manual progress costs nothing; the thread of automatic progress is for those who ask.
  const fi_domain_attr *wanted = hints != nullptr ? hints->domain_attr : nullptr;
  const auto progress = [](enum fi_progress p) {
    return p == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
  };
  domain.control_progress =
      progress(wanted != nullptr ? wanted->control_progress : FI_PROGRESS_UNSPEC);
  domain.data_progress = progress(wanted != nullptr ? wanted->data_progress : FI_PROGRESS_UNSPEC);
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.av_type = FI_AV_UNSPEC;  // either
  // Nothing is needed. Random keys are safer than chosen ones, so an application that can live with
  // them gets them.
  const int mr_mode = wanted != nullptr ? wanted->mr_mode : 0;
  if (mr_mode == FI_MR_BASIC || mr_mode == FI_MR_SCALABLE) {
    domain.mr_mode = mr_mode;
  } else {
    domain.mr_mode = mr_mode & FI_MR_PROV_KEY;
  }
  ep.auth_key_size = domain.auth_key_size = sdk::kMaxAuthKey;
  domain.mr_key_size = sizeof(uint64_t);
  domain.cq_data_size = sizeof(uint64_t);
  domain.cq_cnt = 65536;
  domain.ep_cnt = 65536;
  domain.tx_ctx_cnt = 65536;
  domain.rx_ctx_cnt = 65536;
  domain.max_ep_tx_ctx = 1;
  domain.max_ep_rx_ctx = 1;
  domain.max_ep_srx_ctx = 65536;
  domain.cntr_cnt = 65536;
  domain.mr_iov_limit = 1;
  domain.mr_cnt = SIZE_MAX;
  domain.caps = kDomainCaps;
  domain.max_cntr_value = UINT64_MAX;
  domain.max_err_cntr_value = UINT64_MAX;

  WEFT_CHECK(sdk::set_string(info->fabric_attr->name, path.fabric));
  info->fabric_attr->prov_version = TcpProvider::info.version;
  info->fabric_attr->api_version = query.api_version;
  return {};
}

Result<sdk::InfoList> TcpProvider::getinfo(const sdk::GetinfoQuery &query) {
  sdk::InfoList list(instance_->core);
  if (query.flags & FI_PROV_ATTR_ONLY) {
    const bool unconnected = query.hints != nullptr && query.hints->ep_attr != nullptr &&
                             query.hints->ep_attr->type == FI_EP_RDM;
    WEFT_CHECK(add_info(list, {"tcp", "TCP-IP", sdk::SockAddr::any(AF_INET), {}},
                        unconnected ? FI_EP_RDM : FI_EP_MSG, query));
    return list;
  }
  WEFT_TRY(const std::vector<sdk::IpPath> found,
           sdk::ip_paths(query, {"tcp", "TCP-IP", settings_.interfaces}));
  for (enum fi_ep_type type : {FI_EP_MSG, FI_EP_RDM})
    for (const sdk::IpPath &path : found) WEFT_CHECK(add_info(list, path, type, query));
  return list;
}

Result<fid_fabric *> TcpProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, attr, context);
}

Result<void> TcpProvider::explain(const sdk::LineSink &line) {
  return sdk::explain_interfaces(settings_.interfaces, line);
}

}  // namespace weft::tcp

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "tcp",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::tcp::TcpProvider)
