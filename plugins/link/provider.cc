// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/provider.h"

#include <weft/sdk/ip/software.h>
#include <weft/sdk/layers/layer_info.h>
#include <weft/sdk/transfers/levels.h>

#include <algorithm>

#include "plugins/link/domain.h"
#include "plugins/link/endpoint.h"

namespace weft::link {
namespace {

// What both providers beneath have to have: the layer is the owner of their queues and receives,
// and tells them by which fi_addr_t it knows a peer.
constexpr uint64_t kNeeded = FI_PEER | FI_AV_USER_ID;
// What is offered where both have it.
constexpr uint64_t kTransmitCaps =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | FI_READ | FI_WRITE | FI_FENCE;
constexpr uint64_t kReceiveCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV |
                                  FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RMA_EVENT | FI_MULTI_RECV |
                                  FI_DIRECTED_RECV | FI_SOURCE;
constexpr uint64_t kCaps = kTransmitCaps | kReceiveCaps;
constexpr int kRegistration = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_RMA_EVENT;
constexpr size_t kManyShared = 65536;

Options options_of(const sdk::Params<LinkLayer> &params) {
  return {.local = params.flag("local"),
          .tx_size = size_t(params.integer("tx_size")),
          .rx_size = size_t(params.integer("rx_size"))};
}

uint64_t asked_caps(const fi_info *hints) {
  return hints == nullptr ? 0
                          : hints->caps | (hints->tx_attr != nullptr ? hints->tx_attr->caps : 0) |
                                (hints->rx_attr != nullptr ? hints->rx_attr->caps : 0);
}

// Who asks for nothing gets all that there is.
uint64_t caps_beneath(uint64_t asked) {
  return asked == 0 ? 0 : (asked & kCaps) | kNeeded;
}

template <class T>
void lower(T &value, const T &other) {
  value = std::min(value, other);
}

// Makes attributes of sending, or of receiving, those of both providers: at most `caps`.
template <class Attr>
void narrow(Attr &attr, const Attr &near, uint64_t caps) {
  attr.caps &= near.caps & caps;
  attr.mode = 0;
  attr.op_flags &= near.op_flags;
  attr.msg_order &= near.msg_order;
  attr.comp_order &= near.comp_order;
  lower(attr.size, near.size);
  lower(attr.iov_limit, near.iov_limit);
}

// Makes the network's entry one of both.
void offer(fi_info &entry, const fi_info &near, const sdk::GetinfoQuery &query) {
  const uint64_t where = (entry.domain_attr->caps & FI_REMOTE_COMM) | FI_LOCAL_COMM;
  narrow(*entry.tx_attr, *near.tx_attr, kTransmitCaps);
  lower(entry.tx_attr->inject_size, near.tx_attr->inject_size);
  lower(entry.tx_attr->rma_iov_limit, near.tx_attr->rma_iov_limit);
  narrow(*entry.rx_attr, *near.rx_attr, kReceiveCaps);
  entry.caps = entry.tx_attr->caps | entry.rx_attr->caps | where;
  entry.mode = 0;
  entry.handle = nullptr;
  fi_ep_attr &ep = *entry.ep_attr;
  lower(ep.max_msg_size, near.ep_attr->max_msg_size);
  lower(ep.max_order_raw_size, near.ep_attr->max_order_raw_size);
  lower(ep.max_order_war_size, near.ep_attr->max_order_war_size);
  lower(ep.max_order_waw_size, near.ep_attr->max_order_waw_size);
  ep.mem_tag_format &= near.ep_attr->mem_tag_format;
  ep.tx_ctx_cnt = ep.rx_ctx_cnt = 1;
  fi_domain_attr &domain = *entry.domain_attr;
  const fi_domain_attr beneath = domain;
  sdk::fill_software_domain(domain, query, 0);
  if (domain.mr_mode == 0) domain.mr_mode = beneath.mr_mode & kRegistration;
  domain.mr_key_size = std::min(beneath.mr_key_size, near.domain_attr->mr_key_size);
  lower(domain.mr_iov_limit, std::min(beneath.mr_iov_limit, near.domain_attr->mr_iov_limit));
  domain.mr_cnt = beneath.mr_cnt;
  lower(domain.cq_data_size, near.domain_attr->cq_data_size);
  domain.max_ep_srx_ctx =
      std::min({domain.max_ep_srx_ctx, near.domain_attr->max_ep_srx_ctx, kManyShared});
  domain.max_ep_stx_ctx =
      std::min({domain.max_ep_stx_ctx, near.domain_attr->max_ep_stx_ctx, kManyShared});
  domain.caps = where;
  entry.fabric_attr->api_version = query.api_version;
}

bool fits(const fi_info &info) {
  return (info.caps & kNeeded) == kNeeded && info.domain_attr->max_ep_srx_ctx != 0;
}

}  // namespace

uint64_t offered_caps() {
  return kCaps;
}

int registration_bits(int mr_mode) {
  if (mr_mode == FI_MR_BASIC) return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (mr_mode == FI_MR_SCALABLE) return 0;
  return mr_mode & kRegistration;
}

uint64_t receive_caps_over(const fi_info &info) {
  return kReceiveCaps & (info.caps | FI_RECV | FI_MULTI_RECV);
}

LinkLayer::LinkLayer(const weft_instance *instance, std::span<const sdk::Inner> inner)
    : instance_(instance),
      local_(inner[0]),
      network_(inner[1]),
      options_(options_of(sdk::Params<LinkLayer>(instance))) {}

Result<sdk::InfoList> LinkLayer::hints(const fi_info *outer, bool local) const {
  WEFT_TRY(sdk::InfoList list,
           sdk::inner_hints(instance_->core, FI_EP_RDM, caps_beneath(asked_caps(outer)),
                            local ? nullptr : outer));
  if (outer == nullptr) return list;
  fi_info &front = *list.front();
  if (!local && outer->domain_attr != nullptr)
    front.domain_attr->mr_mode = registration_bits(outer->domain_attr->mr_mode);
  const fi_tx_attr tx = sdk::tx_hints(outer);
  const fi_rx_attr rx = sdk::rx_hints(outer);
  front.tx_attr->msg_order = tx.msg_order;
  front.rx_attr->msg_order = rx.msg_order;
  front.tx_attr->comp_order = tx.comp_order;
  front.rx_attr->comp_order = rx.comp_order;
  front.tx_attr->op_flags = tx.op_flags;
  front.rx_attr->op_flags = rx.op_flags;
  front.tx_attr->size = tx.size;
  front.tx_attr->inject_size = tx.inject_size;
  front.rx_attr->size = rx.size;
  return list;
}

Result<sdk::InfoList> LinkLayer::inner_info(const fi_info &info) const {
  WEFT_TRY(const sdk::InfoList wanted, hints(&info, false));
  return network_.getinfo(sdk::inner_query(wanted));
}

Result<sdk::InfoList> LinkLayer::local_info(const fi_info &info) const {
  WEFT_TRY(const sdk::InfoList wanted, hints(&info, true));
  return local_.getinfo(sdk::inner_query(wanted));
}

Result<sdk::InfoList> LinkLayer::getinfo(const sdk::GetinfoQuery &query) {
  WEFT_TRY(const sdk::InfoList wanted, hints(query.hints, false));
  sdk::want_classes(wanted, query);
  WEFT_TRY(const sdk::InfoList found, network_.getinfo(sdk::inner_query(wanted, query)));
  WEFT_TRY(const sdk::InfoList near_wanted, hints(query.hints, true));
  WEFT_TRY(const sdk::InfoList near, local_.getinfo(sdk::inner_query(near_wanted)));
  if (!fits(*near.front()))
    return fail(FI_ENODATA,
                "link: the first provider beneath has no FI_PEER with shared receive contexts, or "
                "no FI_AV_USER_ID: choose another one");
  sdk::InfoList list(instance_->core);
  for (const fi_info *below = found.front(); below != nullptr; below = below->next) {
    if (!fits(*below)) continue;
    WEFT_TRY(fi_info *const entry, list.add_copy(below));
    offer(*entry, *near.front(), query);
  }
  if (list.empty())
    return fail(FI_ENODATA,
                "link: the second provider beneath has no FI_PEER with shared receive contexts, or "
                "no FI_AV_USER_ID: choose another one");
  return list;
}

Result<fid_fabric *> LinkLayer::fabric(const fi_fabric_attr &attr, void *context) {
  WEFT_TRY(fid_fabric *const inner, network_.fabric(attr, nullptr));
  return Fabric::open(*this, inner, attr, context);
}

Result<void> LinkLayer::explain(const sdk::LineSink &line) {
  if (options_.local)
    line(
        "a peer that listens on this host under the name of its address is reached by the first "
        "provider, any other by the second; `weft stats` counts both");
  else
    line("all peers are reached by the second provider (FI_LINK_LOCAL=0)");
  return {};
}

}  // namespace weft::link

namespace {
constexpr weft::sdk::PluginInfo link_plugin{.name = "link",
                                            .vendor = "The weft authors",
                                            .version = WEFT_VERSION,
                                            .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(link_plugin, weft::link::LinkLayer)
