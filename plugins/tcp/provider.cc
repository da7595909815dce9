// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/provider.h"

#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/ip/software.h>
#include <weft/sdk/objects/scalable.h>
#include <weft/sdk/transfers/buffered.h>

#include <algorithm>

#include "plugins/tcp/byte_stream.h"
#include "plugins/tcp/domain.h"
#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/passive_endpoint.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {
Result<std::unique_ptr<TcpProvider>> TcpProvider::create(const weft_instance *instance) {
  return std::unique_ptr<TcpProvider>(new TcpProvider(instance));
}

Result<void> TcpProvider::add_info(sdk::InfoList &list, const sdk::IpPath &path,
                                   enum fi_ep_type type, const sdk::GetinfoQuery &query) const {
  const bool connected = type == FI_EP_MSG;
  // Not unasked: it makes a domain look at each address.
  const uint64_t hmem = query.hints != nullptr ? query.hints->caps & uint64_t(FI_HMEM) : 0;
  // Not unasked: programs compare capabilities.
  const uint64_t contexts =
      !connected && query.hints != nullptr ? query.hints->caps & uint64_t(FI_NAMED_RX_CTX) : 0;
  const uint64_t less = contexts != 0 ? FI_TRIGGER : 0;  // whose counters have one lock
  WEFT_TRY(fi_info *const info, list.add());
  // No mr_mode is needed. Random keys are safer than chosen ones, so applications that can use them
  // get them.
  WEFT_CHECK(sdk::fill_software_info(
      *info, path, query,
      {.type = type,
       .version = TcpProvider::info.version,
       .transmit_caps =
           connected ? kTransmitCaps | hmem : (kRdmTransmitCaps & ~less) | hmem | contexts,
       .receive_caps = (connected ? kReceiveCaps : kRdmReceiveCaps & ~less) | hmem,
       .mr_mode = FI_MR_PROV_KEY}));

  const fi_tx_attr asked_tx = sdk::tx_hints(query.hints);
  const fi_rx_attr asked_rx = sdk::rx_hints(query.hints);
  // An announced message is fetched when it has a receive; operations behind it may be executed,
  // and complete, first. If the hints ask for these orders, messages are not announced.
  // What a read returns leaves the target later than the request is taken. If the hints ask for
  // messages and writes behind reads, those wait for the answers.
  const uint64_t behind_messages = FI_ORDER_RAS | FI_ORDER_WAS;
  const uint64_t costly = kOrderBehindReads | (connected ? 0 : behind_messages);
  const uint64_t order = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW | FI_ORDER_SAW | FI_ORDER_SAS |
                         FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW |
                         (connected ? behind_messages : 0) |
                         (costly & (asked_tx.msg_order | asked_rx.msg_order));

  fi_tx_attr &tx = *info->tx_attr;
  tx.op_flags = FI_COMPLETION | FI_INJECT | kLevelFlags;
  tx.msg_order = order;
  tx.comp_order = FI_ORDER_NONE;  // sends posted after a read may complete before it
  tx.inject_size = connected ? kInjectSize
                             : sdk::offered_size(kInjectSize, asked_tx.inject_size, kMaxInjectSize);
  tx.size = sdk::offered_size(settings_.tx_size, asked_tx.size, kMaxRdmQueue);
  tx.iov_limit = sdk::kIovLimit;
  tx.rma_iov_limit = kMaxRmaVectors;

  fi_rx_attr &rx = *info->rx_attr;
  rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
  rx.msg_order = order;
  rx.comp_order = connected ? FI_ORDER_STRICT : FI_ORDER_NONE;
  rx.size = sdk::offered_size(settings_.rx_size, asked_rx.size, kMaxRdmQueue);
  rx.iov_limit = sdk::kIovLimit;

  fi_ep_attr &ep = *info->ep_attr;
  ep.protocol = connected ? FI_PROTO_SOCK_TCP : FI_PROTO_XNET;
  // The value of stock libfabric; no address space holds more than kMaxMessageSize.
  ep.max_msg_size = SIZE_MAX;
  ep.max_order_raw_size = SIZE_MAX;
  ep.max_order_waw_size = SIZE_MAX;
  ep.max_order_war_size = order & kOrderBehindReads ? SIZE_MAX : 0;
  if (!connected) ep.protocol_version = kRdmVersion;
  // Every bit is a field of its own. Programs that know FI_TAG_BITS take it for that; others count
  // the bits.
  if (!connected) ep.mem_tag_format = 0xaaaaaaaaaaaaaaaa;
  ep.auth_key_size = sdk::kMaxAuthKey;

  fi_domain_attr &domain = *info->domain_attr;
  domain.auth_key_size = sdk::kMaxAuthKey;
  domain.cq_data_size = sizeof(uint64_t);
  domain.max_ep_srx_ctx = domain.max_ep_stx_ctx = domain.ep_cnt;
  if (!connected) domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = sdk::kMaxContexts;
  if (!connected) sdk::offer_buffered(*info, query);
  return {};
}

// Byte streams, for who asks for them.
Result<void> TcpProvider::add_stream(sdk::InfoList &list, const sdk::IpPath &path,
                                     const sdk::GetinfoQuery &query) const {
  WEFT_TRY(fi_info *const info, list.add());
  WEFT_CHECK(sdk::fill_software_info(*info, path, query,
                                     {.type = FI_EP_MSG,
                                      .version = TcpProvider::info.version,
                                      .transmit_caps = FI_MSG | FI_SEND,
                                      .receive_caps = FI_MSG | FI_RECV}));
  info->tx_attr->op_flags = FI_COMPLETION | FI_INJECT;
  info->rx_attr->op_flags = FI_COMPLETION;
  info->tx_attr->msg_order = info->rx_attr->msg_order = FI_ORDER_SAS;
  info->tx_attr->comp_order = info->rx_attr->comp_order = FI_ORDER_STRICT | FI_ORDER_DATA;
  info->tx_attr->inject_size = SIZE_MAX;  // each call is over when it returns
  info->tx_attr->size = info->rx_attr->size = settings_.tx_size;
  info->tx_attr->iov_limit = info->rx_attr->iov_limit = ByteStream::kIovLimit;
  sdk::set_type(*info->ep_attr, sdk::kSockStream);
  info->ep_attr->protocol = FI_PROTO_UNSPEC;  // TCP itself
  info->ep_attr->max_msg_size = SIZE_MAX;
  info->domain_attr->mr_mode = 0;
  info->domain_attr->max_ep_tx_ctx = info->domain_attr->max_ep_rx_ctx = 1;
  return {};
}

Result<sdk::InfoList> TcpProvider::getinfo(const sdk::GetinfoQuery &query) {
  sdk::InfoList list(instance_->core);
  if (query.flags & FI_PROV_ATTR_ONLY) {
    const bool unconnected = sdk::asks_for(query.hints, FI_EP_RDM);
    WEFT_CHECK(add_info(list, {"tcp", "TCP-IP", sdk::SockAddr::any(AF_INET), {}},
                        unconnected ? FI_EP_RDM : FI_EP_MSG, query));
    return list;
  }
  if (query.hints != nullptr && (query.hints->caps & FI_HMEM) != 0) {
    if (const auto hmem = hmem_->open(); !hmem)
      return fail(hmem.error().code, "tcp: %s", hmem.error().text.c_str());
  }
  WEFT_TRY(const std::vector<sdk::IpPath> found,
           sdk::ip_paths(query, {"tcp", "TCP-IP", settings_.interfaces}));
  if (sdk::asks_for(query.hints, sdk::kSockStream)) {
    for (const sdk::IpPath &path : found) WEFT_CHECK(add_stream(list, path, query));
    return list;
  }
  // Without a type in the hints FI_EP_RDM comes first, as from stock libfabric.
  for (enum fi_ep_type type : {FI_EP_RDM, FI_EP_MSG})
    for (const sdk::IpPath &path : found) WEFT_CHECK(add_info(list, path, type, query));
  return list;
}

Result<fid_fabric *> TcpProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, attr, context, hmem_);
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
