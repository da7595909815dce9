// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/tcp/domain.h"

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/shared_transmit.h>
#include <weft/sdk/objects/traffic_class.h>
#include <weft/sdk/unit/log.h>

#include <new>
#include <string_view>
#include <utility>

#include "plugins/tcp/byte_stream.h"
#include "plugins/tcp/endpoint.h"
#include "plugins/tcp/fabric.h"
#include "plugins/tcp/shared_receive.h"
#include "plugins/tcp/unconnected_endpoint.h"

namespace weft::tcp {
namespace {

sdk::SockAddr source_of(const fi_info &info) {
  const int family = sdk::family_of(info.addr_format) == AF_INET6 ? AF_INET6 : AF_INET;
  if (info.src_addr != nullptr) {
    auto source = sdk::read_sock_address(info.addr_format, info.src_addr, info.src_addrlen);
    if (source) {
      source->set_port(0);
      return *source;
    }
  }
  return sdk::SockAddr::any(family);
}

}  // namespace

Domain::Domain(Fabric &fabric, const sdk::DomainSettings &settings, const fi_info &info,
               void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      SoftwareDomain(fabric.instance(), base(), settings),
      fabric_(fabric),
      addr_format_(info.addr_format),
      is_unconnected_(info.ep_attr != nullptr && sdk::type_of(*info.ep_attr) == FI_EP_RDM),
      source_(source_of(info)),
      name_(info.domain_attr->name != nullptr ? info.domain_attr->name : ""),
      staging_(std::make_unique_for_overwrite<uint8_t[]>(kStagingSize)) {
  engine().lock().count_waits(fabric.counters().locks_contended);
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Domain>());
  c()->ops = const_cast<fi_ops_domain *>(sdk::domain_ops<Domain>());
  c()->mr = const_cast<fi_ops_mr *>(sdk::mr_ops<Domain>());
  // A frame in flight from or to the region cannot be finished without its memory, nor skipped. So
  // its connection ends.
  regions().on_close = [this](sdk::Mr &mr) {
    for (Endpoint *endpoint : endpoints_) {
      if (mr.pins == 0) break;
      endpoint->drop_region(mr);
    }
    for (UnconnectedEndpoint *endpoint : unconnected_) {
      if (mr.pins == 0) break;
      endpoint->drop_region(mr);
    }
  };
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  sdk::MrTable::Mode regions = sdk::MrTable::Mode::of(info.domain_attr->mr_mode);
  regions.iov_limit = 1;
  const bool unconnected = info.ep_attr != nullptr && sdk::type_of(*info.ep_attr) == FI_EP_RDM;
  auto settings = sdk::DomainSettings::of(
      info, fabric.api_version(), fabric.settings().tx_size + fabric.settings().rx_size, regions);
  // Event queues belong to the fabric: a thread that reads one makes progress for connected
  // endpoints, whatever the domain's threading level says. Unconnected endpoints have no events.
  if (!unconnected) settings.locked = true;
  std::shared_ptr<const sdk::Hmem> hmem;
  if (settings.hmem) {
    WEFT_TRY(hmem, fabric.hmem().open());
  }
  WEFT_TRY(const Keys keys, Keys::of(info, nullptr, fabric.settings(), fabric.api_version()));
  WEFT_TRY(const uint8_t dscp, sdk::domain_dscp(info, fabric.api_version()));
  Domain *domain = nullptr;
  try {
    std::unique_ptr<sdk::HmemOutput> output;
    std::unique_ptr<sdk::HmemInput> input;
    if (hmem != nullptr) {
      output = std::make_unique<sdk::HmemOutput>(hmem);
      input = std::make_unique<sdk::HmemInput>(hmem);
    }
    domain = new Domain(fabric, settings, info, context);
    domain->hmem_output_ = std::move(output);
    domain->hmem_input_ = std::move(input);
    domain->set_hmem(std::move(hmem));
  } catch (const std::bad_alloc &) {
    return fail(FI_ENOMEM, "no memory for a domain");
  }
  domain->keys_ = keys;
  domain->dscp_ = dscp;
  if (auto started = start(*domain, info, fabric.base()); !started) {
    delete domain;
    return tl::unexpected(std::move(started).error());
  }
  fabric.children.fetch_add(1);
  return domain;
}

int Domain::endpoint2(struct fi_info *info, struct fid_ep **ep, uint64_t flags, void *context) {
  if (info == nullptr || ep == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  const int type = sdk::type_of(*info->ep_attr);
  if (type == FI_EP_RDM || (type == FI_EP_UNSPEC && is_unconnected_))
    return sdk::finish(instance(), FI_LOG_EP_CTRL, UnconnectedEndpoint::open(*this, *info, context),
                       ep);
  if (!engine().lock().needed()) {
    WEFT_WARN(instance(), FI_LOG_EP_CTRL,
              "fi_endpoint: this domain was opened for FI_EP_RDM under FI_THREAD_DOMAIN, and "
              "threads that read event queues make progress for connected endpoints, too: open "
              "another domain with the info of the endpoint");
    return -FI_EINVAL;
  }
  if (sdk::asks_for(info, sdk::kSockStream))
    return sdk::finish(instance(), FI_LOG_EP_CTRL, ByteStream::open(*this, *info, context), ep);
  return sdk::finish(instance(), FI_LOG_EP_CTRL, Endpoint::open(*this, *info, context), ep);
}

int Domain::srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context) {
  if (ep == nullptr) return -FI_EINVAL;
  // The call does not name the kind of endpoint. The kind that the domain was opened for decides,
  // and capabilities that only one kind has.
  constexpr uint64_t kUnconnectedOnly = kRdmReceiveCaps & ~kReceiveCaps;
  if (is_unconnected_ || (attr != nullptr && attr->caps & kUnconnectedOnly))
    return sdk::open_shared_receive(shared(), attr,
                                    {.caps = kRdmReceiveCaps,
                                     .size = fabric_.settings().rx_size,
                                     .max_size = kMaxQueueSize,
                                     .min_multi_recv = kRdmMinMultiRecv},
                                    ep, context);
  return sdk::finish(instance(), FI_LOG_EP_CTRL, SharedReceiveContext::open(*this, attr, context),
                     ep);
}

int Domain::stx_ctx(struct fi_tx_attr *attr, struct fid_stx **stx, void *context) {
  return sdk::open_shared_transmit(shared(), attr,
                                   {.caps = is_unconnected_ ? kRdmTransmitCaps : kTransmitCaps,
                                    .size = fabric_.settings().tx_size,
                                    .max_size = kMaxQueueSize,
                                    .inject_size = kMaxInjectSize},
                                   stx, context);
}

int Domain::av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
  if (av == nullptr) return -FI_EINVAL;
  return sdk::finish(instance(), FI_LOG_AV,
                     sdk::Av::open(shared(), addr_format_, attr, context, name_), av);
}

// For layers above (weft/sdk/layers/carrier.h).
int Domain::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) == WEFT_CARRIER_OPS) {
    *ops = const_cast<weft_carrier_ops *>(&Endpoint::carrier_ops());
    return 0;
  }
  if (std::string_view(name) != WEFT_REGION_OPS) return -FI_ENOSYS;
  static const weft_region_ops regions = {
      .size = sizeof(weft_region_ops),
      .join_group = [](struct fid_ep *ep, uint64_t group) -> int {
        Endpoint::from(ep)->join_group(group);
        return 0;
      },
      .confine = [](struct fid_mr *mr, uint64_t group) -> int {
        sdk::Mr::from(mr)->confine(group);
        return 0;
      }};
  *ops = const_cast<weft_region_ops *>(&regions);
  return 0;
}

int Domain::close() {
  if (shared().children.load() != 0) return -FI_EBUSY;
  close_lanes();
  retire();
  engine().stop_thread();
  unbind();
  fabric_.children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::tcp
