// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/domain.h"

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/shared_transmit.h>
#include <weft/sdk/objects/traffic_class.h>

#include <new>
#include <string_view>
#include <utility>

#include "plugins/udp/datagram_socket.h"
#include "plugins/udp/endpoint.h"
#include "plugins/udp/fabric.h"

namespace weft::udp {

Domain::Domain(Fabric &fabric, const sdk::DomainSettings &settings, const fi_info &info,
               void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      SoftwareDomain(fabric.instance(), base(), settings),
      fabric_(fabric),
      addr_format_(info.addr_format),
      name_(info.domain_attr->name != nullptr ? info.domain_attr->name : "") {
  sdk::fill_tables(*this);
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  const auto settings = sdk::DomainSettings::of(
      info, fabric.api_version(), fabric.settings().tx_size + fabric.settings().rx_size,
      sdk::MrTable::Mode::of(info.domain_attr->mr_mode));
  std::shared_ptr<const sdk::Hmem> hmem;
  if (settings.hmem) {
    WEFT_TRY(hmem, fabric.hmem().open());
  }
  WEFT_TRY(const uint8_t dscp, sdk::domain_dscp(info, fabric.api_version()));
  Domain *domain = nullptr;
  try {
    domain = new Domain(fabric, settings, info, context);
    domain->dscp_ = dscp;
  } catch (const std::bad_alloc &) {
    return fail(FI_ENOMEM, "no memory for a domain");
  }
  domain->set_hmem(std::move(hmem));
  if (auto started = start(*domain, info, fabric.base()); !started) {
    delete domain;
    return tl::unexpected(std::move(started).error());
  }
  fabric.children.fetch_add(1);
  return domain;
}

int Domain::av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
  return sdk::open_av(shared(), addr_format_, attr, av, context, name_);
}

int Domain::endpoint2(struct fi_info *info, struct fid_ep **ep, uint64_t flags, void *context) {
  if (!sdk::asks_for(info, sdk::kSockDgram)) return DomainOps::endpoint2(info, ep, flags, context);
  if (ep == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  return sdk::finish(instance(), FI_LOG_EP_CTRL, DatagramSocket::open(*this, *info, context), ep);
}

// A datagram has left when the call returns, so there are no places to share.
int Domain::stx_ctx(struct fi_tx_attr *attr, struct fid_stx **stx, void *context) {
  return sdk::open_shared_transmit(shared(), attr,
                                   {.caps = kTransmitCaps,
                                    .size = fabric_.settings().tx_size,
                                    .max_size = kMaxQueueSize,
                                    .inject_size = SIZE_MAX},
                                   stx, context);
}

// For layers above (weft/sdk/layers/carrier.h).
int Domain::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) != WEFT_DATAGRAM_OPS) return -FI_ENOSYS;
  static const weft_datagram_ops datagram = {
      .size = sizeof(weft_datagram_ops),
      .tell_unreachable =
          [](struct fid_ep *ep) {
            Endpoint &endpoint = *Endpoint::from(ep);
            sdk::Guard guard(endpoint.lock());
            return endpoint.tell_unreachable();
          },
      .name_sources =
          [](struct fid_ep *ep, int named) {
            Endpoint &endpoint = *Endpoint::from(ep);
            sdk::Guard guard(endpoint.lock());
            return endpoint.name_sources(named != 0);
          },
      .properties = WEFT_DATAGRAM_SENT_AT_ONCE | WEFT_DATAGRAM_FRAGMENTS,
      .stock_rxd_datagram = 1472,
      .next_arrival =
          [](struct fid_ep *ep, void *address, size_t *length) {
            Endpoint &endpoint = *Endpoint::from(ep);
            sdk::Guard guard(endpoint.lock());
            return endpoint.next_arrival(address, length);
          }};
  *ops = const_cast<weft_datagram_ops *>(&datagram);
  return 0;
}

int Domain::close() {
  if (shared().children.load() != 0) return -FI_EBUSY;
  retire();
  engine().stop_thread();
  unbind();
  fabric_.children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::udp
