// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/provider.h"

#include <rdma/fi_domain.h>
#include <weft/sdk/layers/inner_modes.h>
#include <weft/sdk/layers/layer_info.h>
#include <weft/sdk/transfers/buffered.h>

#include <algorithm>

#include "plugins/rxm/domain.h"
#include "plugins/rxm/wire/packet.h"

namespace weft::rxm {
namespace {

// The target's rxm executes atomics in the order of their packets. The inner provider executes
// remote memory accesses by itself. Each kind is in order, but not relative to the other.
// FI_ORDER_RAR, RAW and WAW concern both kinds: they hold without effort if the application asks
// for no atomics. If it asks for atomics and for these orders, operations of one kind wait for
// those of the other. In the same way accesses wait for messages, and what changes memory waits for
// reads.
constexpr uint64_t kOrderWithoutAtomics = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAW;
constexpr uint64_t kOrderIfAsked = kOrderWithoutAtomics | FI_ORDER_WAR | FI_ORDER_RMA_WAR |
                                   FI_ORDER_RAS | FI_ORDER_WAS | FI_ORDER_SAR;
constexpr uint64_t kOrder = FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAW |
                            FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR |
                            FI_ORDER_ATOMIC_WAW | FI_ORDER_SAW | FI_ORDER_SAS;

// What a provider beneath may demand of registration, and what of it changes keys and addresses.
constexpr int kKeys = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
constexpr int kRegistration = FI_MR_LOCAL | FI_MR_ALLOCATED | kKeys;
constexpr uint64_t kNeeded = FI_MSG | FI_RMA;
constexpr size_t kManyObjects = 65536;

}  // namespace

int registration_bits(int mr_mode) {
  if (mr_mode == FI_MR_BASIC) return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  if (mr_mode == FI_MR_SCALABLE) return 0;
  return mr_mode & ~(FI_MR_BASIC | FI_MR_SCALABLE);
}

size_t inject_room(const fi_info &inner) {
  const size_t size = inner.tx_attr->inject_size;
  return size > kHeaderSize ? size - kHeaderSize : 0;
}

size_t inject_size(const fi_info &inner) {
  return std::clamp(inject_room(inner), kLeastInjectSize, kMostInjectSize);
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
  o.max_unnamed_peers = size_t(params.integer("max_unnamed_peers"));
  o.connect_timeout_ns = uint64_t(params.integer("connect_timeout_ms")) * 1'000'000u;
  o.libcuda = params.string("libcuda");
  o.close_linger_ns = uint64_t(params.integer("close_linger_ms")) * 1'000'000u;
  return o;
}

// The hints for the inner provider: connected endpoints, and the application's registration mode.
// `caps` 0: all that the provider has.
Result<sdk::InfoList> RxmLayer::hints(const fi_info *outer, uint64_t caps) const {
  WEFT_TRY(sdk::InfoList list, sdk::inner_hints(instance_->core, FI_EP_MSG, caps, outer));
  // The layer registers local memory itself where the application does not.
  int &mr_mode = list.front()->domain_attr->mr_mode;
  mr_mode = FI_MR_LOCAL;
  list.front()->mode = sdk::kLayerModes;
  if (outer == nullptr) return list;
  WEFT_CHECK(sdk::copy_auth_keys(*list.front(), *outer));
  if (outer->domain_attr != nullptr) mr_mode |= registration_bits(outer->domain_attr->mr_mode);
  return list;
}

// An application that does less than the provider demands of registration gets a provider all the
// same: rxm does it for its own memory.
Result<sdk::InfoList> RxmLayer::ask(const sdk::InfoList &hints,
                                    const sdk::GetinfoQuery &query) const {
  Result<sdk::InfoList> found = inner_.getinfo(sdk::inner_query(hints, query));
  int &mr_mode = hints.front()->domain_attr->mr_mode;
  if (found || found.error().code != FI_ENODATA || (mr_mode & kRegistration) == kRegistration)
    return found;
  mr_mode |= kRegistration;
  return inner_.getinfo(sdk::inner_query(hints, query));
}

Result<sdk::InfoList> RxmLayer::inner_info(const fi_info &info) const {
  const uint64_t more = info.caps & (FI_RMA_EVENT | FI_HMEM);
  WEFT_TRY(const sdk::InfoList wanted, hints(&info, FI_MSG | FI_RMA | more));
  return ask(wanted, {});
}

// What the application has to do when it registers memory: what the inner provider demands
// (info.domain_attr->mr_mode) of regions that peers reach.
void RxmLayer::offer_registration(fi_info &info, const sdk::GetinfoQuery &query) const {
  int &mr_mode = info.domain_attr->mr_mode;
  const int demanded = mr_mode & kKeys;
  if (query.hints == nullptr || query.hints->domain_attr == nullptr) {
    mr_mode &= ~FI_MR_LOCAL;
    return;
  }
  const int asked = query.hints->domain_attr->mr_mode;
  const bool old_words = asked == FI_MR_BASIC || asked == FI_MR_SCALABLE ||
                         FI_VERSION_LT(query.api_version, FI_VERSION(1, 5));
  if (asked == FI_MR_BASIC || (asked == FI_MR_SCALABLE && demanded == 0)) mr_mode = asked;
  if (!(asked & FI_MR_LOCAL)) mr_mode &= ~FI_MR_LOCAL;
  if (old_words) return;
  // Memory that is not there is refused when it is registered.
  if (!(asked & FI_MR_ALLOCATED)) mr_mode &= ~FI_MR_ALLOCATED;
  if ((demanded & ~asked) == 0 || query.hints->caps != 0) return;
  // It may access the memory of peers, which do not reach its own.
  for (uint64_t *caps : {&info.caps, &info.rx_attr->caps})
    *caps &= ~uint64_t(FI_REMOTE_READ | FI_REMOTE_WRITE);
}

Result<void> RxmLayer::offer(fi_info &info, const sdk::GetinfoQuery &query) const {
  const fi_info *hints = query.hints;
  const uint64_t inner_caps = info.caps;
  const uint64_t asked =
      hints == nullptr ? 0
                       : hints->caps | (hints->tx_attr != nullptr ? hints->tx_attr->caps : 0) |
                             (hints->rx_attr != nullptr ? hints->rx_attr->caps : 0);
  // Atomics cost orders, so offer them only if the hints ask for them. Stock libfabric does the
  // same, and MPICH chooses by it between rxm and the provider beneath.
  const bool atomics = (asked & FI_ATOMIC) != 0;
  sdk::offer_rdm(info,
                 {.protocol = FI_PROTO_RXM,
                  .order = kOrder | (atomics ? 0 : kOrderWithoutAtomics),
                  .order_if_asked = kOrderIfAsked,
                  .tx_size = options_.tx_size,
                  .rx_size = options_.rx_size,
                  .inject_size = inject_size(info),
                  .max_inject_size = kMaxInjectSize,
                  .rma_iov_limit = std::min(info.tx_attr->rma_iov_limit, kMaxVectors),
                  .persistent = (inner_caps & FI_RMA_PMEM) != 0,
                  // Regions of a device belong to one of its domains, and a context has its own.
                  .contexts = (info.domain_attr->mr_mode & FI_MR_LOCAL) == 0},
                 query);
  if (const uint64_t hmem = inner_caps & asked & FI_HMEM; hmem != 0)
    for (uint64_t *caps : {&info.caps, &info.tx_attr->caps, &info.rx_attr->caps}) *caps |= hmem;
  uint64_t missing = atomics ? 0 : FI_ATOMIC;
  // Peers' accesses are counted by the inner provider.
  if (!(inner_caps & FI_RMA_EVENT)) missing |= FI_RMA_EVENT;
  for (uint64_t *caps : {&info.caps, &info.tx_attr->caps, &info.rx_attr->caps}) *caps &= ~missing;
  offer_registration(info, query);
  fi_domain_attr &domain = *info.domain_attr;
  // Packets have 8 bytes for the remote data of a message. That of a write is the inner provider's.
  if (hints != nullptr && hints->caps != 0 && !(asked & FI_RMA)) domain.cq_data_size = 8;
  domain.cq_cnt = std::max(domain.cq_cnt, kManyObjects);
  domain.cntr_cnt = std::max(domain.cntr_cnt, kManyObjects);
  domain.max_cntr_value = domain.max_err_cntr_value = UINT64_MAX;
  sdk::offer_buffered(info, query);
  return {};
}

Result<sdk::InfoList> RxmLayer::getinfo(const sdk::GetinfoQuery &query) {
  const bool hmem = query.hints != nullptr && (query.hints->caps & FI_HMEM) != 0;
  if (hmem) {
    if (const auto opened = hmem_.open(); !opened)
      return fail(opened.error().code, "rxm: %s", opened.error().text.c_str());
  }
  WEFT_TRY(const sdk::InfoList wanted,
           hints(query.hints, hmem ? FI_MSG | FI_RMA | FI_RMA_EVENT | FI_HMEM : 0));
  sdk::want_classes(wanted, query);
  // A message is delivered when the peer says so, an access when the inner provider does.
  if (query.hints != nullptr && query.hints->caps & FI_RMA)
    wanted.front()->tx_attr->op_flags = sdk::tx_hints(query.hints).op_flags & FI_DELIVERY_COMPLETE;
  WEFT_TRY(const sdk::InfoList found, ask(wanted, query));
  sdk::InfoList list(instance_->core);
  for (const fi_info *inner = found.front(); inner != nullptr; inner = inner->next) {
    if ((inner->caps & kNeeded) != kNeeded) continue;
    WEFT_TRY(fi_info *const info, list.add_copy(inner));
    WEFT_CHECK(offer(*info, query));
  }
  if (list.empty())
    return fail(FI_ENODATA, "rxm: the provider beneath has no messages with remote memory access");
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
