// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/domain.h"

#include <weft/sdk/addresses/av.h>
#include <weft/sdk/addresses/host_name.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/rdm_caps.h>
#include <weft/sdk/objects/shared_receive.h>
#include <weft/sdk/objects/shared_transmit.h>

#include <new>

#include "plugins/shm/endpoint.h"
#include "plugins/shm/fabric.h"

namespace weft::shm {

Domain::Domain(Fabric &fabric, const sdk::DomainSettings &settings, void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      SoftwareDomain(fabric.instance(), base(), settings),
      fabric_(fabric) {
  engine().lock().count_waits(fabric.counters().locks_contended);
  sdk::fill_tables(*this);
}

const Settings &Domain::settings() const {
  return fabric_.settings();
}

Counters &Domain::counters() {
  return fabric_.counters();
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  sdk::MrTable::Mode regions = sdk::MrTable::Mode::of(info.domain_attr->mr_mode);
  regions.iov_limit = 1;
  const auto settings = sdk::DomainSettings::of(
      info, fabric.api_version(), fabric.settings().tx_size + fabric.settings().rx_size, regions);
  auto *const domain = new (std::nothrow) Domain(fabric, settings, context);
  if (domain == nullptr) return fail(FI_ENOMEM, "no memory for a domain");
  if (auto started = start(*domain, info, fabric.base()); !started) {
    delete domain;
    return tl::unexpected(std::move(started).error());
  }
  fabric.children.fetch_add(1);
  return domain;
}

int Domain::av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
  return sdk::open_av(shared(), FI_ADDR_STR, attr, av, context, "shm", sdk::kHostName);
}

int Domain::srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context) {
  return sdk::open_shared_receive(
      shared(), attr,
      {.caps = sdk::kRdmReceiveCaps, .size = settings().rx_size, .max_size = kMaxQueue}, ep,
      context);
}

int Domain::stx_ctx(struct fi_tx_attr *attr, struct fid_stx **stx, void *context) {
  return sdk::open_shared_transmit(shared(), attr,
                                   {.caps = sdk::kRdmTransmitCaps,
                                    .size = settings().tx_size,
                                    .max_size = kMaxQueue,
                                    .inject_size = kMaxInjectSize},
                                   stx, context);
}

int Domain::query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                         uint64_t flags) {
  return sdk::atomic_query(sdk::raw(datatype), sdk::raw(op), kAtomicLimits, attr, flags);
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

}  // namespace weft::shm
