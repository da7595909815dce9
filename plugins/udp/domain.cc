// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/domain.h"

#include <weft/sdk/av.h>
#include <weft/sdk/ops.h>

#include <new>
#include <utility>

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
  Domain *domain = nullptr;
  try {
    domain = new Domain(fabric, settings, info, context);
  } catch (const std::bad_alloc &) {
    return fail(FI_ENOMEM, "no memory for a domain");
  }
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
