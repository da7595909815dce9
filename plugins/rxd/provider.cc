// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/provider.h"

#include <rdma/fi_domain.h>
#include <weft/sdk/addresses/auth.h>
#include <weft/sdk/ip/software.h>
#include <weft/sdk/layers/inner_modes.h>
#include <weft/sdk/layers/layer_info.h>
#include <weft/sdk/transfers/buffered.h>

#include <algorithm>
#include <string_view>

#include "plugins/rxd/domain.h"

namespace weft::rxd {
namespace {

// Operations begin in the order of their calls: messages are matched and atomics executed in this
// order. The bytes of reads and writes go to their places as they arrive.
constexpr uint64_t kOrder = FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
                            FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
// Kept only if the hints ask for it: the later operation then waits for the earlier one.
constexpr uint64_t kOrderIfAsked = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW |
                                   FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR |
                                   FI_ORDER_RMA_WAW | FI_ORDER_RAS | FI_ORDER_WAS | FI_ORDER_SAR |
                                   FI_ORDER_SAW;

}  // namespace

Result<Options> Options::from(const weft_instance *instance) {
  const sdk::Params<RxdLayer> params(instance);
  Options o;
  o.datagram_size = params.size("datagram_size");
  if (o.datagram_size != 0) o.datagram_size = std::max(o.datagram_size, kLeastDatagram);
  WEFT_TRY(const size_t checksum, params.word("checksum", {"auto", "on", "off"}));
  if (checksum == 1) o.checksum = Checksum::kOn;
  if (checksum == 2) o.checksum = Checksum::kOff;
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
  o.libcuda = params.string("libcuda");
  o.max_unnamed_peers = size_t(params.integer("max_unnamed_peers"));
  return o;
}

Result<std::unique_ptr<RxdLayer>> RxdLayer::create(const weft_instance *instance,
                                                   sdk::Inner inner) {
  WEFT_TRY(Options options, Options::from(instance));
  return std::unique_ptr<RxdLayer>(new RxdLayer(instance, inner, std::move(options)));
}

// The inner provider supplies datagrams only. Lower does for it whatever its calls need; only this
// layer's own memory is registered there, so no kind of registration is a hindrance.
Result<sdk::InfoList> RxdLayer::hints(const fi_info *outer) const {
  WEFT_TRY(sdk::InfoList list, sdk::inner_hints(instance_->core, FI_EP_DGRAM, FI_MSG, outer));
  list.front()->mode = sdk::kLayerModes | FI_MSG_PREFIX;
  list.front()->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  return list;
}

// A provider may offer smaller datagrams than it carries, unless the hints ask for more: udp does,
// because programs take the size of their datagrams from the offer.
Result<sdk::InfoList> RxdLayer::inner_info(const fi_info &info) const {
  WEFT_TRY(const sdk::InfoList wanted, hints(&info));
  const sdk::GetinfoQuery query = sdk::inner_query(wanted);
  // Only the source address tells which peer sent a packet in stock's format. Without FI_SOURCE in
  // the provider nothing does.
  if (options_.stock_peers) wanted.front()->caps |= FI_SOURCE;
  Result<sdk::InfoList> found = inner_.getinfo(query);
  if (!found && options_.stock_peers) {
    wanted.front()->caps &= ~FI_SOURCE;
    found = inner_.getinfo(query);
  }
  WEFT_TRY(sdk::InfoList usual, std::move(found));
  const size_t size = usual.front()->ep_attr->max_msg_size;
  if (size < kSmallestDatagram)
    return fail(FI_ENODATA,
                "rxd: the provider beneath carries datagrams of %zu bytes: %u are needed", size,
                kSmallestDatagram);
  if (size == SIZE_MAX) return usual;
  wanted.front()->ep_attr->max_msg_size = size + 1;
  Result<sdk::InfoList> larger = inner_.getinfo(query);
  if (larger) return larger;
  return usual;
}

Result<sdk::InfoList> RxdLayer::getinfo(const sdk::GetinfoQuery &query) {
  // Not unasked: it makes a domain look at each address.
  const uint64_t hmem = query.hints != nullptr ? query.hints->caps & uint64_t(FI_HMEM) : 0;
  if (hmem != 0) {
    if (const auto opened = hmem_.open(); !opened)
      return fail(opened.error().code, "rxd: %s", opened.error().text.c_str());
  }
  WEFT_TRY(const sdk::InfoList wanted, hints(query.hints));
  sdk::want_classes(wanted, query);
  WEFT_TRY(const sdk::InfoList found, inner_.getinfo(sdk::inner_query(wanted, query)));
  sdk::InfoList list(instance_->core);
  for (const fi_info *inner = found.front(); inner != nullptr; inner = inner->next) {
    if (inner->ep_attr->max_msg_size < kSmallestDatagram) continue;
    WEFT_TRY(fi_info *const info, list.add_copy(inner));
    // The inner endpoint's attributes are not ours, except for the class of its packets.
    *info->tx_attr = {.tclass = inner->tx_attr->tclass};
    *info->rx_attr = {};
    // No MR mode is needed, because the regions are this layer's. Provider keys if the hints
    // permit.
    sdk::fill_software_domain(*info->domain_attr, query, FI_MR_PROV_KEY);
    sdk::offer_rdm(*info,
                   {.protocol = FI_PROTO_RXD,
                    .order = kOrder,
                    .order_if_asked = kOrderIfAsked,
                    .tx_size = options_.tx_size,
                    .rx_size = options_.rx_size,
                    .inject_size = kInjectSize,
                    .max_inject_size = kMaxInjectSize,
                    .rma_iov_limit = kMaxVectors,
                    .persistent = true,
                    .contexts = sdk::native_format(*inner) == FI_SOCKADDR_IP},
                   query);
    for (uint64_t *caps : {&info->caps, &info->tx_attr->caps, &info->rx_attr->caps}) *caps |= hmem;
    fi_ep_attr &ep = *info->ep_attr;
    ep.msg_prefix_size = 0;
    // No address space holds more than kMaxMessageSize. The last two apply to the orders that were
    // offered.
    ep.max_msg_size = SIZE_MAX;
    ep.max_order_raw_size = SIZE_MAX;
    ep.max_order_waw_size = SIZE_MAX;
    info->domain_attr->cq_data_size = sizeof(uint64_t);
    sdk::offer_buffered(*info, query);
    if (query.hints != nullptr) WEFT_CHECK(sdk::copy_auth_keys(*info, *query.hints));
    for (size_t size : {ep.auth_key_size, info->domain_attr->auth_key_size})
      if (size > sdk::kMaxAuthKey)
        return fail(FI_ENODATA, "rxd: an auth_key of %zu bytes: at most %zu", size,
                    sdk::kMaxAuthKey);
  }
  if (list.empty())
    return fail(FI_ENODATA, "rxd: the provider beneath carries no datagrams of %u bytes",
                kSmallestDatagram);
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
