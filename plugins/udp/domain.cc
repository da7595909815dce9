// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/udp/domain.h"

#include <weft/sdk/av.h>
#include <weft/sdk/ops.h>

#include <new>

#include "plugins/udp/endpoint.h"
#include "plugins/udp/fabric.h"

namespace weft::udp {

Domain::Domain(Fabric &fabric, const sdk::DomainSettings &settings, const fi_info &info,
               void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      DomainCore(fabric.instance(), base(), settings),
      fabric_(fabric),
      addr_format_(info.addr_format),
      name_(info.domain_attr->name != nullptr ? info.domain_attr->name : "") {
  sdk::fill_tables(*this);
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  const fi_domain_attr &attr = *info.domain_attr;
  const bool threaded =
      attr.data_progress == FI_PROGRESS_AUTO || attr.control_progress == FI_PROGRESS_AUTO;
  const sdk::DomainSettings settings{
      .api_version = fabric.api_version(),
      .locked = threaded || attr.threading != FI_THREAD_DOMAIN,
      .resource_management = attr.resource_mgmt != FI_RM_DISABLED,
      .default_cq_size = fabric.settings().tx_size + fabric.settings().rx_size,
      .user_ids = sdk::asks_user_ids(info),
      .mr = sdk::MrTable::Mode::of(attr.mr_mode),
  };
  Domain *domain = nullptr;
  try {
    domain = new Domain(fabric, settings, info, context);
  } catch (const std::bad_alloc &) {
    return fail(FI_ENOMEM, "no memory for a domain");
  }
  Result<void> opened;
  if (threaded) opened = domain->engine().start_thread();
  if (opened) opened = domain->publish(fabric.base());
  if (!opened) {
    domain->engine().stop_thread();
    delete domain;
    return tl::unexpected(opened.error());
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
