// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/domain.h"

#include <weft/sdk/atomic.h>
#include <weft/sdk/av.h>
#include <weft/sdk/eq.h>
#include <weft/sdk/ops.h>

#include <new>

#include "plugins/rxm/endpoint.h"
#include "plugins/rxm/region.h"

namespace weft::rxm {

// ---- counters that follow others ----

void Mirrors::add(sdk::Engine &engine, fid_cntr *inner, sdk::Cntr &outer) {
  const bool first = mirrors_.empty();
  mirrors_.push_back({inner, &outer, 0, 0});
  if (!first) engine.remove_poller(*this);  // its descriptors change
  engine.add_poller(*this);
}

void Mirrors::remove(sdk::Engine &engine, fid_cntr *inner) {
  engine.remove_poller(*this);
  std::erase_if(mirrors_, [inner](const Mirror &m) { return m.inner == inner; });
  fi_close(&inner->fid);
  if (!mirrors_.empty()) engine.add_poller(*this);
}

void Mirrors::follow(Mirror &mirror) {
  const uint64_t value = fi_cntr_read(mirror.inner), errors = fi_cntr_readerr(mirror.inner);
  if (value != mirror.value) {
    // Counted in the unit of the outer counter already.
    const uint64_t n = value - mirror.value;
    mirror.outer->add_events(n, n);
  }
  for (; mirror.errors < errors; ++mirror.errors) mirror.outer->add_error();
  mirror.value = value;
}

void Mirrors::on_poll() {
  for (Mirror &mirror : mirrors_) follow(mirror);
}

int Mirrors::wait_fds(int (&fds)[kMaxFds]) {
  // What changes them is the traffic that wakes whoever waits for completions; where nobody does,
  // the first few stand for all: they share the inner domain's descriptors.
  int count = 0;
  for (const Mirror &mirror : mirrors_) {
    if (count == int(kMaxFds)) break;
    if (const int rc = fi_control(&mirror.inner->fid, FI_GETWAIT, &fds[count]); rc != 0) return rc;
    ++count;
  }
  return count;
}

bool Mirrors::may_wait() {
  struct fid *fids[kMaxFds];
  int count = 0;
  for (const Mirror &mirror : mirrors_) {
    if (count == int(kMaxFds)) break;
    fids[count++] = &mirror.inner->fid;
  }
  return fi_trywait(fabric_, fids, count) == 0;
}

// ---- the domain ----

Domain::Domain(Fabric &fabric, const sdk::DomainSettings &settings, sdk::InfoList inner_info,
               const fi_info &info, void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      DomainCore(fabric.instance(), base(), settings),
      fabric_(fabric),
      inner_info_(std::move(inner_info)),
      mr_bits_(registration_bits(info.domain_attr->mr_mode)),
      name_(info.domain_attr->name != nullptr ? info.domain_attr->name : ""),
      addr_format_(info.addr_format),
      mirrors_(fabric.inner()) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Domain>());
  c()->ops = const_cast<fi_ops_domain *>(sdk::domain_ops<Domain>());
  c()->mr = const_cast<fi_ops_mr *>(sdk::mr_ops<Domain>());
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  const fi_domain_attr &attr = *info.domain_attr;
  const bool threaded =
      attr.data_progress == FI_PROGRESS_AUTO || attr.control_progress == FI_PROGRESS_AUTO;
  const Options &options = fabric.layer().options();
  const sdk::DomainSettings settings{
      .api_version = fabric.api_version(),
      .locked = threaded || attr.threading != FI_THREAD_DOMAIN,
      .resource_management = attr.resource_mgmt != FI_RM_DISABLED,
      .default_cq_size = options.tx_size + options.rx_size,
      .mr = {},  // regions are the inner domain's
  };
  WEFT_TRY(sdk::InfoList inner_info, fabric.layer().inner_info(info));
  fi_info *inner = inner_info.front();
  inner->domain_attr->mr_mode = registration_bits(attr.mr_mode) & ~FI_MR_ENDPOINT;
  inner->domain_attr->threading = settings.locked ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
  Domain *domain = nullptr;
  try {
    domain = new Domain(fabric, settings, std::move(inner_info), info, context);
  } catch (const std::bad_alloc &) {
    return fail(FI_ENOMEM, "no memory for a domain");
  }
  Result<void> opened;
  if (const int rc = fi_domain(fabric.inner(), inner, &domain->inner_, nullptr); rc != 0) {
    delete domain;
    return fail(-rc, "fi_domain: the inner provider has no domain %s for it",
                attr.name != nullptr ? attr.name : "");
  }
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
  return sdk::atomic_query(sdk::raw(datatype), sdk::raw(op), atomic_limits(*this), attr, flags);
}

Result<fid_cntr *> Domain::open_inner_cntr() {
  fi_cntr_attr attr{};
  attr.events = FI_CNTR_EVENTS_COMP;
  attr.wait_obj = FI_WAIT_FD;
  fid_cntr *cntr = nullptr;
  if (const int rc = fi_cntr_open(inner_, &attr, &cntr, nullptr); rc != 0)
    return fail(-rc, "the inner provider has no counter");
  return cntr;
}

ssize_t Domain::resolve(uint64_t key, uint64_t address, uint64_t length, uint64_t access,
                        iovec *iov, size_t room) {
  const auto it = table_.find(key);
  if (it == table_.end() || room == 0) return -FI_EACCES;
  const Region &region = *it->second;
  if (!region.enabled() || (region.access() & access) != access) return -FI_EACCES;
  const uint64_t size = region.memory().iov_len;
  if (address < region.base_address()) return -FI_EACCES;
  const uint64_t offset = address - region.base_address();
  if (offset > size || length > size - offset) return -FI_EACCES;
  iov[0] = {static_cast<char *>(region.memory().iov_base) + offset, size_t(length)};
  return 1;
}

int Domain::reg(const void *buf, size_t len, uint64_t access, uint64_t offset,
                uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context) {
  const iovec iov{const_cast<void *>(buf), len};
  return regv(&iov, 1, access, offset, requested_key, flags, mr, context);
}

int Domain::regv(const struct iovec *iov, size_t count, uint64_t access, uint64_t offset,
                 uint64_t requested_key, uint64_t flags, struct fid_mr **mr, void *context) {
  const fi_mr_attr attr{.mr_iov = iov,
                        .iov_count = count,
                        .access = access,
                        .offset = offset,
                        .requested_key = requested_key,
                        .context = context};
  return regattr(&attr, flags, mr);
}

int Domain::regattr(const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **mr) {
  if (attr == nullptr || mr == nullptr) return -FI_EINVAL;
  const int rc = sdk::finish(instance(), FI_LOG_MR, Region::open(*this, *attr, flags), mr);
  if (rc == 0 && eq() != nullptr) eq()->push(FI_MR_COMPLETE, &(*mr)->fid, (*mr)->key);
  return rc;
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

}  // namespace weft::rxm
