// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxd/domain.h"

#include <weft/sdk/atomic.h>
#include <weft/sdk/av.h>
#include <weft/sdk/ops.h>
#include <weft/sdk/shared_receive.h>

#include <new>

#include "plugins/rxd/endpoint.h"

namespace weft::rxd {

Domain::Domain(Fabric &fabric, const sdk::DomainSettings &settings, sdk::InfoList inner_info,
               const fi_info &info, void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      DomainCore(fabric.instance(), base(), settings),
      fabric_(fabric),
      inner_info_(std::move(inner_info)),
      name_(info.domain_attr->name != nullptr ? info.domain_attr->name : ""),
      addr_format_(info.addr_format) {
  fill_tables(*this);
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  const fi_domain_attr &attr = *info.domain_attr;
  const bool threaded =
      attr.data_progress == FI_PROGRESS_AUTO || attr.control_progress == FI_PROGRESS_AUTO;
  const bool basic = attr.mr_mode == FI_MR_BASIC;
  const Options &options = fabric.layer().options();
  const sdk::DomainSettings settings{
      .api_version = fabric.api_version(),
      .locked = threaded || attr.threading != FI_THREAD_DOMAIN,
      .resource_management = attr.resource_mgmt != FI_RM_DISABLED,
      .default_cq_size = options.tx_size + options.rx_size,
      .mr = {.virtual_addresses = basic || (attr.mr_mode & FI_MR_VIRT_ADDR) != 0,
             .provider_keys = basic || (attr.mr_mode & FI_MR_PROV_KEY) != 0,
             .enable_needed = !basic && (attr.mr_mode & FI_MR_RMA_EVENT) != 0,
             .iov_limit = 1},
  };
  WEFT_TRY(sdk::InfoList inner_info, fabric.layer().inner_info(info));
  fi_info *inner = inner_info.front();
  inner->domain_attr->threading = settings.locked ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
  WEFT_TRY(sdk::AuthKey key, sdk::auth_key(info, options.auth_key_file));
  Domain *domain = nullptr;
  try {
    domain = new Domain(fabric, settings, std::move(inner_info), info, context);
  } catch (const std::bad_alloc &) {
    return fail(FI_ENOMEM, "no memory for a domain");
  }
  domain->auth_key_ = std::move(key);
  if (const int rc = fi_domain(fabric.inner(), inner, &domain->inner_, nullptr); rc != 0) {
    delete domain;
    return fail(-rc, "fi_domain: the inner provider has no domain %s for it",
                attr.name != nullptr ? attr.name : "");
  }
  Result<void> opened;
  if (threaded) opened = domain->engine().start_thread();
  if (opened) opened = domain->publish(fabric.base());
  if (!opened) {
    domain->engine().stop_thread();
    fi_close(&domain->inner_->fid);
    delete domain;
    return tl::unexpected(opened.error());
  }
  fabric.children.fetch_add(1);
  return domain;
}

int Domain::av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
  return sdk::open_av(shared(), addr_format_, attr, av, context, name_);
}

int Domain::srx_ctx(struct fi_rx_attr *attr, struct fid_ep **ep, void *context) {
  return sdk::open_shared_receive(
      shared(), attr,
      {.caps = kReceiveCaps, .size = fabric_.layer().options().rx_size, .max_size = kMaxQueueSize},
      ep, context);
}

int Domain::query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                         uint64_t flags) {
  return sdk::atomic_query(sdk::raw(datatype), sdk::raw(op), kAtomicLimits, attr, flags);
}

int Domain::close() {
  if (shared().children.load() != 0) return -FI_EBUSY;
  engine().stop_thread();
  if (const int rc = fi_close(&inner_->fid); rc != 0) return rc;
  retire();
  unbind();
  fabric_.children.fetch_sub(1);
  delete this;
  return 0;
}

}  // namespace weft::rxd
