// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/provider.h"

#include <rdma/fi_domain.h>
#include <weft/sdk/auth.h>

#include <algorithm>
#include <cstring>

#include "plugins/rxd/domain.h"

namespace weft::rxd {
namespace {

// What the layer speaks to its inner provider, whatever the application was built for.
constexpr uint32_t kInnerVersion = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
constexpr uint64_t kTransmitCaps =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
constexpr uint64_t kLevelFlags = FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
// Operations begin in the order of their calls. Messages are matched and atomics are executed then;
// the bytes of a remote access go to their places as they come.
constexpr uint64_t kOrder = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                            FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
constexpr uint64_t kTagFormat = 0xaaaaaaaaaaaaaaaa;  // any use of the bits
constexpr uint64_t kMaxMessageSize = INT64_MAX;

enum fi_progress progress_of(enum fi_progress wanted) {
  return wanted == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
}

}  // namespace

Result<Options> Options::from(const weft_instance *instance) {
  const sdk::Params<RxdLayer> params(instance);
  Options o;
  o.datagram_size = params.size("datagram_size");
  if (o.datagram_size != 0) o.datagram_size = std::max(o.datagram_size, kLeastDatagram);
  const std::string_view checksum = params.string("checksum");
  if (checksum == "on") {
    o.checksum = Checksum::kOn;
  } else if (checksum == "off") {
    o.checksum = Checksum::kOff;
  } else if (checksum != "auto") {
    return fail(FI_EINVAL, "rxd: checksum \"%.*s\" (%s): one of on, off, auto",
                int(checksum.size()), checksum.data(), params.origin("checksum"));
  }
  o.auth_key_file = params.string("auth_key_file");
  o.tx_size = size_t(params.integer("tx_size"));
  o.rx_size = size_t(params.integer("rx_size"));
  o.rx_pool = params.size("rx_pool");
  o.receive_window = params.size("receive_window");
  o.unexpected_limit = params.size("unexpected_limit");
  o.peer_timeout_ns = uint64_t(params.integer("peer_timeout_ms")) * 1'000'000u;
  o.close_linger_ns = uint64_t(params.integer("close_linger_ms")) * 1'000'000u;
  o.stock_peers = params.flag("stock_peers");
  o.max_stock_peers = size_t(params.integer("max_stock_peers"));
  o.max_unnamed_peers = size_t(params.integer("max_unnamed_peers"));
  return o;
}

Result<std::unique_ptr<RxdLayer>> RxdLayer::create(const weft_instance *instance,
                                                   sdk::Inner inner) {
  WEFT_TRY(Options options, Options::from(instance));
  return std::unique_ptr<RxdLayer>(new RxdLayer(instance, inner, std::move(options)));
}

// Datagrams with the addresses and device that the application wants. All else is made here.
Result<sdk::InfoList> RxdLayer::hints(const fi_info *outer) const {
  sdk::InfoList list(instance_->core);
  WEFT_TRY(fi_info *const info, list.add());
  info->ep_attr->type = FI_EP_DGRAM;
  info->caps = FI_MSG;
  info->domain_attr->threading = FI_THREAD_SAFE;
  info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  if (outer == nullptr) return list;
  info->addr_format = outer->addr_format;
  if (outer->src_addr != nullptr)
    WEFT_CHECK(
        sdk::set_address(info->src_addr, info->src_addrlen, outer->src_addr, outer->src_addrlen));
  if (outer->dest_addr != nullptr)
    WEFT_CHECK(sdk::set_address(info->dest_addr, info->dest_addrlen, outer->dest_addr,
                                outer->dest_addrlen));
  if (outer->domain_attr != nullptr && outer->domain_attr->name != nullptr)
    WEFT_CHECK(sdk::set_string(info->domain_attr->name, outer->domain_attr->name));
  if (outer->fabric_attr != nullptr && outer->fabric_attr->name != nullptr)
    WEFT_CHECK(sdk::set_string(info->fabric_attr->name, outer->fabric_attr->name));
  return list;
}

// A provider may offer less than it carries to those who do not ask: udp does, because programs
// take the size of their datagrams from it.
Result<sdk::InfoList> RxdLayer::inner_info(const fi_info &info) const {
  WEFT_TRY(const sdk::InfoList wanted, hints(&info));
  const sdk::GetinfoQuery query{.api_version = kInnerVersion, .hints = wanted.front()};
  WEFT_TRY(sdk::InfoList usual, inner_.getinfo(query));
  const size_t size = usual.front()->ep_attr->max_msg_size;
  if (size == 0) return fail(FI_ENODATA, "rxd: the provider beneath carries datagrams of 0 bytes");
  if (size == SIZE_MAX) return usual;
  wanted.front()->ep_attr->max_msg_size = size + 1;
  Result<sdk::InfoList> larger = inner_.getinfo(query);
  if (larger) return larger;
  return usual;
}

Result<sdk::InfoList> RxdLayer::getinfo(const sdk::GetinfoQuery &query) {
  WEFT_TRY(const sdk::InfoList wanted, hints(query.hints));
  WEFT_TRY(sdk::InfoList list, inner_.getinfo({.api_version = kInnerVersion,
                                               .node = query.node,
                                               .service = query.service,
                                               .flags = query.flags,
                                               .hints = wanted.front()}));
  const fi_domain_attr *asked = query.hints != nullptr ? query.hints->domain_attr : nullptr;
  const int mr_mode = asked != nullptr ? asked->mr_mode : 0;
  for (fi_info *info = list.front(); info != nullptr; info = info->next) {
    const uint64_t domain_caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    info->caps = kTransmitCaps | kReceiveCaps | domain_caps;
    info->mode = 0;

    fi_tx_attr &tx = *info->tx_attr;
    tx = {};
    tx.caps = kTransmitCaps;
    tx.op_flags = FI_COMPLETION | FI_INJECT | kLevelFlags;
    tx.msg_order = kOrder;
    tx.comp_order = FI_ORDER_NONE;
    tx.inject_size = kInjectSize;
    tx.size = options_.tx_size;
    tx.iov_limit = sdk::Receive::kIovLimit;
    tx.rma_iov_limit = kMaxVectors;

    fi_rx_attr &rx = *info->rx_attr;
    rx = {};
    rx.caps = kReceiveCaps;
    rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
    rx.msg_order = kOrder;
    rx.comp_order = FI_ORDER_NONE;
    rx.size = options_.rx_size;
    rx.iov_limit = sdk::Receive::kIovLimit;

    fi_ep_attr &ep = *info->ep_attr;
    ep.type = FI_EP_RDM;
    ep.protocol = FI_PROTO_RXD;
    ep.protocol_version = 1;
    ep.max_msg_size = kMaxMessageSize;
    ep.msg_prefix_size = 0;
    ep.max_order_raw_size = 0;
    ep.max_order_war_size = 0;
    ep.max_order_waw_size = 0;
    ep.mem_tag_format = kTagFormat;
    ep.tx_ctx_cnt = 1;
    ep.rx_ctx_cnt = 1;

    fi_domain_attr &domain = *info->domain_attr;
    domain.threading = FI_THREAD_SAFE;
    domain.control_progress =
        progress_of(asked != nullptr ? asked->control_progress : FI_PROGRESS_UNSPEC);
    domain.data_progress =
        progress_of(asked != nullptr ? asked->data_progress : FI_PROGRESS_UNSPEC);
    domain.resource_mgmt = FI_RM_ENABLED;
    domain.av_type = FI_AV_UNSPEC;
    // Nothing is needed: regions are this layer's. Random keys for those who can live with them.
    domain.mr_mode =
        mr_mode == FI_MR_BASIC || mr_mode == FI_MR_SCALABLE ? mr_mode : mr_mode & FI_MR_PROV_KEY;
    domain.mr_key_size = sizeof(uint64_t);
    domain.cq_data_size = sizeof(uint64_t);
    domain.cq_cnt = 65536;
    domain.ep_cnt = 65536;
    domain.tx_ctx_cnt = 65536;
    domain.rx_ctx_cnt = 65536;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;
    domain.max_ep_stx_ctx = 0;
    domain.max_ep_srx_ctx = 65536;
    domain.cntr_cnt = 65536;
    domain.mr_iov_limit = 1;
    domain.mr_cnt = SIZE_MAX;
    domain.caps = domain_caps;
    domain.mode = 0;
    domain.max_cntr_value = UINT64_MAX;
    domain.max_err_cntr_value = UINT64_MAX;
    if (query.hints != nullptr) WEFT_CHECK(sdk::copy_auth_keys(*info, *query.hints));
    for (size_t size : {ep.auth_key_size, domain.auth_key_size})
      if (size > sdk::kMaxAuthKey)
        return fail(FI_ENODATA, "rxd: an auth_key of %zu bytes: at most %zu", size,
                    sdk::kMaxAuthKey);
    info->fabric_attr->api_version = query.api_version;
    info->handle = nullptr;
  }
  return list;
}

Result<fid_fabric *> RxdLayer::fabric(const fi_fabric_attr &attr, void *context) {
  WEFT_TRY(fid_fabric *const inner, inner_.fabric(attr, nullptr));
  return Fabric::open(*this, inner, attr, context);
}

Result<void> RxdLayer::explain(const sdk::LineSink &line) {
  line("peers are given up after %llu ms without an answer%s",
       (unsigned long long)(options_.peer_timeout_ns / 1'000'000u),
       options_.stock_peers ? "" : "; those of stock libfabric are not answered");
  return {};
}

}  // namespace weft::rxd

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "rxd",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::rxd::RxdLayer)
