// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/provider.h"

#include <weft/sdk/ip/software.h>
#include <weft/sdk/layers/inner_modes.h>
#include <weft/sdk/layers/layer_info.h>

#include <algorithm>

#include "plugins/coll/domain.h"
#include "plugins/coll/endpoint.h"

namespace weft::coll {
namespace {

// What the endpoint beneath has to have, and what the layer has by itself.
constexpr uint64_t kNeeded = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE;
constexpr uint64_t kOwn = FI_COLLECTIVE | FI_TRIGGER;
constexpr uint64_t kTransmitCaps = FI_MSG | FI_TAGGED | FI_SEND | kOwn;
constexpr uint64_t kReceiveCaps =
    FI_MSG | FI_TAGGED | FI_RECV | FI_DIRECTED_RECV | FI_AV_USER_ID | FI_PEER | kOwn;
// The endpoint's beneath, where it has them.
constexpr uint64_t kPassedOfTransmits =
    FI_RMA | FI_ATOMIC | FI_READ | FI_WRITE | FI_FENCE | FI_RMA_PMEM | FI_HMEM;
constexpr uint64_t kPassedOfReceives = FI_RMA | FI_ATOMIC | FI_REMOTE_READ | FI_REMOTE_WRITE |
                                       FI_RMA_EVENT | FI_RMA_PMEM | FI_MULTI_RECV | FI_SOURCE |
                                       FI_SOURCE_ERR | FI_HMEM;
constexpr uint64_t kPassed = kPassedOfTransmits | kPassedOfReceives;
constexpr uint64_t kAccesses = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr int kRegistration =
    FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_RMA_EVENT | FI_MR_ENDPOINT;
constexpr uint64_t kMillisecond = 1'000'000;
constexpr size_t kManyShared = 65536;

Options options_of(const sdk::Params<CollLayer> &params) {
  return {.limits = {.probe = uint64_t(params.integer("probe_ms")) * kMillisecond,
                     .deadline = uint64_t(params.integer("deadline_ms")) * kMillisecond},
          .always = params.flag("always"),
          .tx_size = size_t(params.integer("tx_size")),
          .rx_size = size_t(params.integer("rx_size")),
          .libcuda = std::string(params.string("libcuda"))};
}

uint64_t asked_caps(const fi_info *hints) {
  return hints == nullptr ? 0
                          : hints->caps | (hints->tx_attr != nullptr ? hints->tx_attr->caps : 0) |
                                (hints->rx_attr != nullptr ? hints->rx_attr->caps : 0);
}

// What the endpoint beneath is asked for. Who asks for nothing gets all that there is. Groups need
// both directions of messages, so one direction of accesses does not take them away.
uint64_t caps_beneath(uint64_t asked) {
  if (asked == 0) return 0;
  const uint64_t caps = kNeeded | (asked & kPassed);
  if (!(caps & (FI_RMA | FI_ATOMIC))) return caps & ~kAccesses;
  return caps & kAccesses ? caps | FI_SEND | FI_RECV : caps;
}

// Endpoints whose tags have a bit to spare, and at least the 64 bits of ours; joins of the same
// members follow each other.
bool fits(const fi_info &inner) {
  return (inner.caps & kNeeded) == kNeeded && (inner.tx_attr->msg_order & FI_ORDER_SAS) != 0 &&
         (inner.ep_attr->mem_tag_format & kOurTags) != 0 && inner.tx_attr->iov_limit != 0 &&
         inner.rx_attr->iov_limit != 0;
}

}  // namespace

int registration_bits(int mr_mode) {
  if (mr_mode == FI_MR_BASIC) return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (mr_mode == FI_MR_SCALABLE) return 0;
  return mr_mode & kRegistration;
}

uint64_t receive_caps_over(const fi_info &info) {
  const uint64_t groups = info.caps & FI_COLLECTIVE;
  return (kReceiveCaps & ~uint64_t(FI_COLLECTIVE)) | kPassedOfReceives | groups;
}

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
  return (asked_caps(hints) & FI_COLLECTIVE) != 0;
}

Result<sdk::InfoList> CollLayer::hints(const fi_info *outer) const {
  WEFT_TRY(sdk::InfoList list,
           sdk::inner_hints(instance_->core, FI_EP_RDM, caps_beneath(asked_caps(outer)), outer));
  fi_info &front = *list.front();
  front.mode = sdk::kLayerModes;
  if (outer != nullptr) WEFT_CHECK(sdk::copy_auth_keys(front, *outer));
  if (outer != nullptr && outer->domain_attr != nullptr)
    front.domain_attr->mr_mode = registration_bits(outer->domain_attr->mr_mode);
  const fi_tx_attr tx = sdk::tx_hints(outer);
  const fi_rx_attr rx = sdk::rx_hints(outer);
  if (tx.msg_order != 0) front.tx_attr->msg_order = tx.msg_order | FI_ORDER_SAS;
  if (rx.msg_order != 0) front.rx_attr->msg_order = rx.msg_order | FI_ORDER_SAS;
  // What the layer promises of its queues and completions, the endpoint beneath has to keep.
  front.tx_attr->op_flags = tx.op_flags & sdk::kLevelFlags;
  front.tx_attr->size = tx.size;
  front.tx_attr->inject_size = tx.inject_size;
  front.rx_attr->size = rx.size;
  return list;
}

Result<sdk::InfoList> CollLayer::inner_info(const fi_info &info) const {
  WEFT_TRY(const sdk::InfoList wanted, hints(&info));
  return inner_.getinfo(sdk::inner_query(wanted));
}

// Regions are those of the domain beneath. The old words for their modes stay as they were asked.
void CollLayer::offer_domain(fi_domain_attr &domain, const sdk::GetinfoQuery &query) {
  const fi_domain_attr beneath = domain;
  sdk::fill_software_domain(domain, query, 0);
  if (domain.mr_mode == 0) domain.mr_mode = beneath.mr_mode & kRegistration;
  domain.mr_key_size = beneath.mr_key_size;
  domain.mr_iov_limit = beneath.mr_iov_limit;
  domain.mr_cnt = beneath.mr_cnt;
  domain.max_ep_srx_ctx = std::min(beneath.max_ep_srx_ctx, kManyShared);
}

void CollLayer::offer(fi_info &entry, const sdk::GetinfoQuery &query) const {
  const uint64_t where =
      (entry.domain_attr->caps & (FI_LOCAL_COMM | FI_REMOTE_COMM)) | FI_SHARED_AV;
  entry.tx_attr->caps = kTransmitCaps | (entry.tx_attr->caps & kPassedOfTransmits);
  entry.rx_attr->caps = kReceiveCaps | (entry.rx_attr->caps & kPassedOfReceives);
  entry.caps = entry.tx_attr->caps | entry.rx_attr->caps | where;
  entry.mode = entry.tx_attr->mode = entry.rx_attr->mode = 0;
  entry.handle = nullptr;
  // Which completions are reported is the layer's business.
  entry.tx_attr->op_flags =
      FI_COMPLETION | FI_INJECT | (entry.tx_attr->op_flags & sdk::kLevelFlags);
  entry.rx_attr->op_flags = FI_COMPLETION | (entry.caps & FI_MULTI_RECV);
  entry.tx_attr->iov_limit = std::min(entry.tx_attr->iov_limit, sdk::kIovLimit);
  entry.rx_attr->iov_limit = std::min(entry.rx_attr->iov_limit, sdk::kIovLimit);
  entry.tx_attr->rma_iov_limit =
      entry.caps & FI_RMA ? std::min(entry.tx_attr->rma_iov_limit, sdk::kIovLimit) : 0;
  entry.tx_attr->size =
      sdk::offered_size(options_.tx_size, sdk::tx_hints(query.hints).size, sdk::kMaxLayerQueue);
  entry.rx_attr->size =
      sdk::offered_size(options_.rx_size, sdk::rx_hints(query.hints).size, sdk::kMaxLayerQueue);
  entry.ep_attr->mem_tag_format >>= 1;  // the highest bit is ours
  entry.ep_attr->tx_ctx_cnt = entry.ep_attr->rx_ctx_cnt = 1;
  offer_domain(*entry.domain_attr, query);
  entry.domain_attr->max_ep_stx_ctx = kManyShared;
  entry.domain_attr->caps = where | FI_AV_USER_ID | FI_PEER;
  // Receives of an owner cannot be imported: it is either of the two.
  if (asked_caps(query.hints) & FI_PEER)
    entry.domain_attr->max_ep_srx_ctx = 0;
  else if (query.hints != nullptr && sdk::wants_shared_receive(*query.hints))
    for (uint64_t *caps : {&entry.caps, &entry.rx_attr->caps, &entry.domain_attr->caps})
      *caps &= ~uint64_t(FI_PEER);
  entry.fabric_attr->api_version = query.api_version;
}

Result<sdk::InfoList> CollLayer::getinfo(const sdk::GetinfoQuery &query) {
  if (!is_wanted(query.hints) && (query.flags & WEFT_GETINFO_OPENING) == 0)
    return fail(FI_ENODATA,
                "coll: nobody asks for it: name FI_COLLECTIVE in hints.caps, or set its parameter "
                "always");
  if (asked_caps(query.hints) & FI_HMEM)
    if (const auto opened = hmem_.open(); !opened)
      return fail(opened.error().code, "coll: %s", opened.error().text.c_str());
  WEFT_TRY(const sdk::InfoList wanted, hints(query.hints));
  sdk::want_classes(wanted, query);
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
  line("the first that holds is taken, as COLLECTIVE[:BYTES[:MEMBERS[:WHERE]]]=ALGORITHM:");
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
