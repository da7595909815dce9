// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/provider.h"

#include <rdma/fi_domain.h>

#include <algorithm>
#include <cstring>

#include "plugins/rxm/domain.h"
#include "plugins/rxm/wire/packet.h"

namespace weft::rxm {
namespace {

// What the layer speaks to its inner provider, whatever the application was built for.
constexpr uint32_t kInnerVersion = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
constexpr uint64_t kTransmitCaps =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE;
constexpr uint64_t kLevelFlags = FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
// Atomics are executed by the receiver's software in the order of the packets, remote accesses by
// the inner provider by itself: each kind is in order, the two together are not. FI_ORDER_RAR, RAW
// and WAW, which are about both, hold for an application that asks for no atomics.
constexpr uint64_t kOrderWithoutAtomics = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW;
constexpr uint64_t kOrder = FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW |
                            FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR |
                            FI_ORDER_ATOMIC_WAW | FI_ORDER_SAW | FI_ORDER_SAS;
constexpr uint64_t kTagFormat = 0xaaaaaaaaaaaaaaaa;  // any use of the bits

enum fi_progress progress_of(enum fi_progress wanted) {
  return wanted == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
}

}  // namespace

int registration_bits(int mr_mode) {
  if (mr_mode == FI_MR_BASIC) return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (mr_mode == FI_MR_SCALABLE) return 0;
  return mr_mode & ~(FI_MR_BASIC | FI_MR_SCALABLE);
}

Options Options::from(const weft_instance *instance) {
  const sdk::Params<RxmLayer> params(instance);
  Options o;
  o.buffer_size = params.size("buffer_size");
  o.sar_limit = params.size("sar_limit");
  o.rendezvous_write = params.flag("use_rndv_write");
  o.tx_size = size_t(params.integer("tx_size"));
  o.rx_size = size_t(params.integer("rx_size"));
  o.rx_pool = params.size("rx_pool");
  o.unexpected_limit = params.size("unexpected_limit");
  o.max_connections = size_t(params.integer("max_connections"));
  o.connect_timeout_ns = uint64_t(params.integer("connect_timeout_ms")) * 1'000'000u;
  o.close_linger_ns = uint64_t(params.integer("close_linger_ms")) * 1'000'000u;
  return o;
}

// Connected endpoints with the addresses, device and registration that the application wants.
Result<sdk::InfoList> RxmLayer::hints(const fi_info *outer) const {
  sdk::InfoList list(instance_->core);
  WEFT_TRY(fi_info *const info, list.add());
  info->ep_attr->type = FI_EP_MSG;
  info->caps = FI_MSG | FI_RMA;
  info->domain_attr->threading = FI_THREAD_SAFE;
  info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  if (outer == nullptr) return list;
  if (outer->caps & FI_RMA_EVENT) info->caps |= FI_RMA_EVENT;
  WEFT_CHECK(sdk::copy_auth_keys(*info, *outer));
  info->addr_format = outer->addr_format;
  if (outer->src_addr != nullptr)
    WEFT_CHECK(
        sdk::set_address(info->src_addr, info->src_addrlen, outer->src_addr, outer->src_addrlen));
  if (outer->dest_addr != nullptr)
    WEFT_CHECK(sdk::set_address(info->dest_addr, info->dest_addrlen, outer->dest_addr,
                                outer->dest_addrlen));
  if (const fi_domain_attr *domain = outer->domain_attr; domain != nullptr) {
    info->domain_attr->mr_mode = registration_bits(domain->mr_mode);
    if (domain->name != nullptr) WEFT_CHECK(sdk::set_string(info->domain_attr->name, domain->name));
  }
  if (outer->fabric_attr != nullptr && outer->fabric_attr->name != nullptr)
    WEFT_CHECK(sdk::set_string(info->fabric_attr->name, outer->fabric_attr->name));
  return list;
}

Result<sdk::InfoList> RxmLayer::inner_info(const fi_info &info) const {
  WEFT_TRY(const sdk::InfoList wanted, hints(&info));
  return inner_.getinfo({.api_version = kInnerVersion, .hints = wanted.front()});
}

Result<sdk::InfoList> RxmLayer::getinfo(const sdk::GetinfoQuery &query) {
  WEFT_TRY(const sdk::InfoList wanted, hints(query.hints));
  WEFT_TRY(sdk::InfoList list, inner_.getinfo({.api_version = kInnerVersion,
                                               .node = query.node,
                                               .service = query.service,
                                               .flags = query.flags,
                                               .hints = wanted.front()}));
  const bool atomics =
      query.hints == nullptr || query.hints->caps == 0 || (query.hints->caps & FI_ATOMIC) != 0;
  const uint64_t order = kOrder | (atomics ? 0 : kOrderWithoutAtomics);
  const fi_domain_attr *asked = query.hints != nullptr ? query.hints->domain_attr : nullptr;
  for (fi_info *info = list.front(); info != nullptr; info = info->next) {
    const fi_tx_attr inner_tx = *info->tx_attr;
    const uint64_t domain_caps = info->domain_attr->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM);
    info->caps = kTransmitCaps | kReceiveCaps | domain_caps;
    info->mode = 0;

    fi_tx_attr &tx = *info->tx_attr;
    tx.caps = kTransmitCaps;
    tx.mode = 0;
    tx.op_flags = FI_COMPLETION | FI_INJECT | kLevelFlags;
    tx.msg_order = order;
    tx.comp_order = FI_ORDER_NONE;
    tx.inject_size = inner_tx.inject_size > kHeaderSize ? inner_tx.inject_size - kHeaderSize : 0;
    tx.inject_size = std::min<size_t>(tx.inject_size, 64);
    tx.size = options_.tx_size;
    tx.iov_limit = sdk::Receive::kIovLimit;
    tx.rma_iov_limit = std::min(inner_tx.rma_iov_limit, kMaxVectors);

    fi_rx_attr &rx = *info->rx_attr;
    rx.caps = kReceiveCaps;
    rx.mode = 0;
    rx.op_flags = FI_COMPLETION | FI_MULTI_RECV;
    rx.msg_order = order;
    rx.comp_order = FI_ORDER_NONE;
    rx.size = options_.rx_size;
    rx.iov_limit = sdk::Receive::kIovLimit;

    fi_ep_attr &ep = *info->ep_attr;
    ep.type = FI_EP_RDM;
    ep.protocol = FI_PROTO_RXM;
    ep.protocol_version = 1;
    ep.mem_tag_format = kTagFormat;
    ep.max_order_war_size = 0;
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
    domain.mode = 0;
    domain.max_ep_tx_ctx = 1;
    domain.max_ep_rx_ctx = 1;
    domain.max_ep_stx_ctx = 0;
    domain.max_ep_srx_ctx = 65536;
    domain.mr_iov_limit = 1;
    domain.caps = domain_caps;
    if (asked != nullptr && (asked->mr_mode == FI_MR_BASIC || asked->mr_mode == FI_MR_SCALABLE))
      domain.mr_mode = asked->mr_mode;
    info->fabric_attr->api_version = query.api_version;
    info->handle = nullptr;
  }
  return list;
}

Result<fid_fabric *> RxmLayer::fabric(const fi_fabric_attr &attr, void *context) {
  WEFT_TRY(fid_fabric *const inner, inner_.fabric(attr, nullptr));
  return Fabric::open(*this, inner, attr, context);
}

Result<void> RxmLayer::explain(const sdk::LineSink &line) {
  line("messages up to %zu bytes go in one packet, up to %llu in segments, larger ones are %s",
       options_.buffer_size, (unsigned long long)options_.sar_limit,
       options_.rendezvous_write ? "written where the receiver says" : "read by the receiver");
  return {};
}

}  // namespace weft::rxm

namespace {
constexpr weft::sdk::PluginInfo plugin{.name = "rxm",
                                       .vendor = "The weft authors",
                                       .version = WEFT_VERSION,
                                       .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(plugin, weft::rxm::RxmLayer)
