// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/domain.h"

#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "plugins/verbs/cq.h"
#include "plugins/verbs/datagram_endpoint.h"
#include "plugins/verbs/datagram_info.h"
#include "plugins/verbs/endpoint.h"
#include "plugins/verbs/fabric.h"
#include "plugins/verbs/region.h"
#include "plugins/verbs/shared_receive.h"
#include "plugins/verbs/xrc_domain.h"
#include "plugins/verbs/xrc_endpoint.h"

namespace weft::verbs {

Domain::Domain(Fabric &fabric, Device device, ibv_pd *pd, const sdk::DomainSettings &settings,
               void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      DomainCore(fabric.instance(), base(), settings, memory_),
      memory_(*this, settings.hmem),
      fabric_(fabric),
      device_(std::move(device)),
      pd_(pd) {
  sdk::fill_tables(*this);
}

Domain::~Domain() = default;

const Settings &Domain::settings() const {
  return fabric_.settings();
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  const char *const name = info.domain_attr->name;
  if (name == nullptr)
    return fail(FI_EINVAL, "fi_domain: domain_attr.name is empty: pass an info of fi_getinfo");
  std::optional<Device> device = fabric.devices().find(device_of_domain(name));
  if (!device)
    return fail(FI_ENODEV, "fi_domain: there is no RDMA device %s: `rdma link` lists them", name);
  auto settings = sdk::DomainSettings::of(
      info, fabric.api_version(), fabric.settings().sizes.tx + fabric.settings().sizes.rx, {});
  // A thread that reads an event queue makes progress for connections, whatever the threading.
  settings.locked = true;
  ibv_pd *const pd = ibv_alloc_pd(device->verbs);
  if (pd == nullptr) return fail(errno, "fi_domain: ibv_alloc_pd on %s: %s", name, strerror(errno));
  auto *const domain = new (std::nothrow) Domain(fabric, *std::move(device), pd, settings, context);
  if (domain == nullptr) {
    ibv_dealloc_pd(pd);
    return fail(FI_ENOMEM, "no memory for a domain");
  }
  domain->start_cache();
  Result<void> started = domain->watch();
  if (started && is_xrc(info)) started = domain->open_xrc();
  // Over iWARP nudges have to leave while the application sleeps (Endpoint::plan_nudge).
  if (started && (info.domain_attr->control_progress == FI_PROGRESS_AUTO ||
                  domain->device_.facts.transport == Transport::kIwarp))
    started = fabric.engine().start_thread();
  if (started) started = domain->publish(fabric.base());
  if (!started) {
    domain->close_xrc();
    domain->unwatch();
    domain->memory_.end_cache();
    ibv_dealloc_pd(pd);
    delete domain;
    return tl::unexpected(std::move(started).error());
  }
  fabric.children.fetch_add(1);
  return domain;
}

void Domain::start_cache() {
  const Settings &wanted = settings();
  if (!wanted.caches_regions) return;
  auto monitor = fabric_.devices().memory_monitor();
  const auto started = monitor ? memory_.start_cache(*std::move(monitor), wanted.cache_limits)
                               : Result<void>(tl::unexpected(monitor.error()));
  if (!started)
    WEFT_WARN(instance(), FI_LOG_DOMAIN, "no cache of registrations (mr_cache): %s",
              started.error().text.c_str());
}

Result<void> Domain::watch() {
  sdk::Guard guard(fabric_.engine().lock());
  return fabric_.device_events().watch(device_);
}

void Domain::unwatch() {
  sdk::Guard guard(fabric_.engine().lock());
  fabric_.device_events().unwatch(device_);
}

Result<void> Domain::open_xrc() {
  WEFT_TRY(xrc_, XrcDomain::open(*this));
  return {};
}

void Domain::close_xrc() {
  sdk::Guard guard(fabric_.engine().lock());
  xrc_.reset();
}

int Domain::endpoint2(struct fi_info *info, struct fid_ep **ep, uint64_t flags, void *context) {
  if (info == nullptr || info->ep_attr == nullptr ||
      (info->ep_attr->type != FI_EP_DGRAM && !is_xrc(*info)))
    return DomainOps::endpoint2(info, ep, flags, context);
  if (ep == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (is_xrc(*info))
    return sdk::finish(instance(), FI_LOG_EP_CTRL, XrcEndpoint::open(*this, *info, context), ep);
  return sdk::finish(instance(), FI_LOG_EP_CTRL, DatagramEndpoint::open(*this, *info, context), ep);
}

// For datagram endpoints: connected ones have one peer.
int Domain::av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
  return sdk::open_av(shared(), FI_ADDR_IB_UD, attr, av, context, device_.facts.name,
                      FI_ADDR_IB_UD);
}

int Domain::cq_open(struct fi_cq_attr *attr, struct fid_cq **cq, void *context) {
  if (cq == nullptr) return -FI_EINVAL;
  const size_t usual = shared().default_cq_size;
  const size_t size = attr != nullptr ? std::max(attr->size, usual) : usual;
  const bool waits = attr != nullptr && sdk::raw(attr->wait_obj) != FI_WAIT_NONE;
  auto source = CompletionQueue::open(device_, fabric_.stats(), size, waits);
  if (!source) {
    WEFT_WARN(instance(), FI_LOG_CQ, "%s", source.error().text.c_str());
    return -source.error().code;
  }
  return sdk::finish(instance(), FI_LOG_CQ,
                     sdk::Cq::open(shared(), attr, context, std::move(*source), locked()), cq);
}

int Domain::query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                         uint64_t flags) {
  if (attr == nullptr) return -FI_EINVAL;
  if (flags & ~uint64_t(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED)) return -FI_EBADFLAGS;
  if (flags & FI_FETCH_ATOMIC && flags & FI_COMPARE_ATOMIC) return -FI_EINVAL;
  const auto kind = flags & FI_FETCH_ATOMIC     ? sdk::AtomicKind::kFetch
                    : flags & FI_COMPARE_ATOMIC ? sdk::AtomicKind::kCompare
                                                : sdk::AtomicKind::kWrite;
  if (flags & FI_TAGGED || !device_.facts.has_atomics ||
      !has_atomic(kind, sdk::raw(datatype), sdk::raw(op)))
    return -FI_EOPNOTSUPP;
  *attr = {.count = 1, .size = sizeof(uint64_t)};
  return 0;
}

int Domain::cntr_open(struct fi_cntr_attr *, struct fid_cntr **, void *) {
  WEFT_WARN(instance(), FI_LOG_CNTR,
            "fi_cntr_open: the provider verbs has no counters (domain_attr.cntr_cnt is 0): bind "
            "a completion queue");
  return -FI_ENOSYS;
}

int Domain::srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context) {
  if (ep == nullptr) return -FI_EINVAL;
  return sdk::finish(instance(), FI_LOG_EP_CTRL, SharedReceive::open(*this, attr, context), ep);
}

// For layers above (weft/sdk/layers/carrier.h).
// Datagrams of a queue pair keep their order, and the network checks them; one that comes when no
// receive is posted is lost. Nobody tells that a queue pair is not there.
int Domain::ops_open(const char *name, uint64_t flags, void **ops, void *) {
  if (name == nullptr || ops == nullptr) return -FI_EINVAL;
  if (flags != 0) return -FI_EBADFLAGS;
  if (std::string_view(name) == WEFT_CARRIER_OPS && xrc() == nullptr) {
    *ops = const_cast<weft_carrier_ops *>(&Endpoint::carrier_ops());
    return 0;
  }
  if (std::string_view(name) != WEFT_DATAGRAM_OPS) return -FI_ENOSYS;
  static const weft_datagram_ops datagram = {
      .size = offsetof(weft_datagram_ops, next_arrival),
      .tell_unreachable = [](struct fid_ep *) { return -FI_EOPNOTSUPP; },
      .name_sources = [](struct fid_ep *, int) { return -FI_EOPNOTSUPP; },
      .properties = WEFT_DATAGRAM_ONLY_POSTED | WEFT_DATAGRAM_CHECKED,
      .stock_rxd_datagram = 0};
  *ops = const_cast<weft_datagram_ops *>(&datagram);
  return 0;
}

int Domain::close() {
  if (shared().children.load() != 0) return -FI_EBUSY;
  close_xrc();
  memory_.end_cache();  // what it keeps is of the protection domain
  if (const int error = ibv_dealloc_pd(pd_); error != 0) return -error;
  retire();
  unbind();
  unwatch();
  fabric_.children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::verbs
