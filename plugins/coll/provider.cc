// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/provider.h"

#include <weft/sdk/inner_modes.h>
#include <weft/sdk/layer_info.h>
#include <weft/sdk/software.h>

#include <algorithm>

#include "plugins/coll/domain.h"
#include "plugins/coll/endpoint.h"

namespace weft::coll {
namespace {

constexpr uint64_t kTransmitCaps = FI_MSG | FI_TAGGED | FI_SEND | FI_COLLECTIVE;
constexpr uint64_t kReceiveCaps = FI_MSG | FI_TAGGED | FI_RECV | FI_COLLECTIVE | FI_DIRECTED_RECV;
// Of receives, and the endpoint's beneath where it has them.
constexpr uint64_t kPassed = FI_MULTI_RECV | FI_SOURCE;
constexpr uint64_t kMillisecond = 1'000'000;

Options options_of(const sdk::Params<CollLayer> &params) {
  return {.limits = {.probe = uint64_t(params.integer("probe_ms")) * kMillisecond,
                     .deadline = uint64_t(params.integer("deadline_ms")) * kMillisecond},
          .always = params.flag("always"),
          .tx_size = size_t(params.integer("tx_size")),
          .rx_size = size_t(params.integer("rx_size"))};
}

// Endpoints whose tags have a bit to spare, and at least the 64 bits of ours.
bool fits(const fi_info &inner) {
  return (inner.ep_attr->mem_tag_format & kOurTags) != 0 && inner.tx_attr->iov_limit != 0 &&
         inner.rx_attr->iov_limit != 0;
}

}  // namespace

Result<std::unique_ptr<CollLayer>> CollLayer::create(const weft_instance *instance,
                                                     sdk::Inner inner) {
  const sdk::Params<CollLayer> params(instance);
  auto choice = Choice::with(params.list("algorithms"));
  if (!choice)
    return fail(FI_EINVAL, "coll: the parameter algorithms: %s", choice.error().text.c_str());
  return std::unique_ptr<CollLayer>(
      new CollLayer(instance, inner, std::move(*choice), options_of(params)));
}

bool CollLayer::is_wanted(const fi_info *hints) const {
  if (options_.always) return true;
  if (hints == nullptr) return false;
  const uint64_t caps = hints->caps | (hints->tx_attr != nullptr ? hints->tx_attr->caps : 0) |
                        (hints->rx_attr != nullptr ? hints->rx_attr->caps : 0);
  return (caps & FI_COLLECTIVE) != 0;
}

Result<sdk::InfoList> CollLayer::hints(const fi_info *outer) const {
  uint64_t caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
  if (outer != nullptr) caps |= (outer->caps | sdk::rx_hints(outer).caps) & kPassed;
  WEFT_TRY(sdk::InfoList list, sdk::inner_hints(instance_->core, FI_EP_RDM, caps, outer));
  fi_info &front = *list.front();
  front.mode = sdk::kLayerModes;
  // Joins of the same members follow each other, in this order.
  front.tx_attr->msg_order = front.rx_attr->msg_order = FI_ORDER_SAS;
  // What the layer promises of its queues and completions, the endpoint beneath has to keep.
  const fi_tx_attr tx = sdk::tx_hints(outer);
  front.tx_attr->op_flags = tx.op_flags & sdk::kLevelFlags;
  front.tx_attr->size = tx.size;
  front.rx_attr->size = sdk::rx_hints(outer).size;
  return list;
}

Result<sdk::InfoList> CollLayer::inner_info(const fi_info &info) const {
  WEFT_TRY(const sdk::InfoList wanted, hints(&info));
  return inner_.getinfo(sdk::inner_query(wanted));
}

void CollLayer::offer(fi_info &entry, const sdk::GetinfoQuery &query) const {
  const uint64_t where =
      (entry.domain_attr->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM)) | FI_SHARED_AV;
  const uint64_t passed = entry.rx_attr->caps & kPassed;
  entry.caps = kTransmitCaps | kReceiveCaps | passed | where;
  entry.mode = entry.tx_attr->mode = entry.rx_attr->mode = 0;
  entry.handle = nullptr;
  entry.tx_attr->caps = kTransmitCaps;
  entry.rx_attr->caps = kReceiveCaps | passed;
  // Which completions are reported is the layer's business.
  entry.tx_attr->op_flags = FI_COMPLETION | (entry.tx_attr->op_flags & sdk::kLevelFlags);
  entry.rx_attr->op_flags = FI_COMPLETION | (passed & FI_MULTI_RECV);
  entry.tx_attr->iov_limit = std::min(entry.tx_attr->iov_limit, sdk::kIovLimit);
  entry.rx_attr->iov_limit = std::min(entry.rx_attr->iov_limit, sdk::kIovLimit);
  entry.tx_attr->rma_iov_limit = 0;
  entry.tx_attr->size =
      sdk::offered_size(options_.tx_size, sdk::tx_hints(query.hints).size, sdk::kMaxLayerQueue);
  entry.rx_attr->size =
      sdk::offered_size(options_.rx_size, sdk::rx_hints(query.hints).size, sdk::kMaxLayerQueue);
  entry.ep_attr->mem_tag_format >>= 1;  // the highest bit is ours
  entry.ep_attr->tx_ctx_cnt = entry.ep_attr->rx_ctx_cnt = 1;
  sdk::fill_software_domain(*entry.domain_attr, query, 0);
  entry.domain_attr->max_ep_stx_ctx = 0;
  entry.domain_attr->caps = where;
  entry.fabric_attr->api_version = query.api_version;
}

Result<sdk::InfoList> CollLayer::getinfo(const sdk::GetinfoQuery &query) {
  if (!is_wanted(query.hints))
    return fail(FI_ENODATA,
                "coll: nobody asks for it: name FI_COLLECTIVE in hints.caps, or set its parameter "
                "always");
  WEFT_TRY(const sdk::InfoList wanted, hints(query.hints));
  WEFT_TRY(const sdk::InfoList found, inner_.getinfo(sdk::inner_query(wanted, query)));
  sdk::InfoList list(instance_->core);
  for (const fi_info *below = found.front(); below != nullptr; below = below->next) {
    if (!fits(*below)) continue;
    WEFT_TRY(fi_info *const entry, list.add_copy(below));
    offer(*entry, query);
  }
  if (list.empty())
    return fail(FI_ENODATA,
                "coll: the tags of the endpoints beneath have fewer than 64 bits, and one of them "
                "keeps collective operations apart: choose another provider");
  return list;
}

Result<fid_fabric *> CollLayer::fabric(const fi_fabric_attr &attr, void *context) {
  WEFT_TRY(fid_fabric *const inner, inner_.fabric(attr, nullptr));
  return Fabric::open(*this, inner, attr, context);
}

Result<void> CollLayer::explain(const sdk::LineSink &line) {
  line("the first that holds is taken, as COLLECTIVE[:BYTES[:MEMBERS]]=ALGORITHM:");
  for (const std::string &one : choice_.lines()) line("  %s", one.c_str());
  return {};
}

}  // namespace weft::coll

namespace {
constexpr weft::sdk::PluginInfo coll_plugin{.name = "coll",
                                            .vendor = "The weft authors",
                                            .version = WEFT_VERSION,
                                            .license = "BSD-2-Clause"};
}
WEFT_PLUGIN(coll_plugin, weft::coll::CollLayer)
