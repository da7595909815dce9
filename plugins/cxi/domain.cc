// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/domain.h"

#include <weft/sdk/av.h>
#include <weft/sdk/log.h>
#include <weft/sdk/ops.h>

#include <algorithm>
#include <new>
#include <utility>

#include "plugins/cxi/amo.h"
#include "plugins/cxi/endpoint.h"
#include "plugins/cxi/fabric.h"

namespace weft::cxi {
namespace {

constexpr uint32_t kBurst = 64;  // operations that wait for progress, at most

}  // namespace

Domain::Domain(Fabric &fabric, const sdk::DomainSettings &settings, const fi_info &info,
               std::shared_ptr<Device> device, std::unique_ptr<Lni> lni, void *context)
    : Object(fabric.instance(), FI_CLASS_DOMAIN, context),
      DomainCore(fabric.instance(), base(), settings, regions_),
      regions_(*this, (info.domain_attr->mr_mode & FI_MR_PROV_KEY) != 0),
      fabric_(fabric),
      device_(std::move(device)),
      lni_(std::move(lni)),
      vni_(fabric.settings().default_vni) {
  shared().keeps_receives = true;
  regions_.optimized = fabric.settings().optimized_mrs;
  sdk::fill_tables(*this);
}

const Settings &Domain::settings() const {
  return fabric_.settings();
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  const char *const name = info.domain_attr->name;
  if (name == nullptr)
    return fail(FI_EINVAL, "fi_domain: domain_attr.name is empty: pass an info of fi_getinfo");
  WEFT_TRY(std::shared_ptr<Device> device, fabric.devices().open(name));
  WEFT_TRY(std::unique_ptr<Lni> lni, device->open_lni());
  const auto settings =
      sdk::DomainSettings::of(info, fabric.api_version(), fabric.settings().cq_size, {});
  auto *const domain =
      new (std::nothrow) Domain(fabric, settings, info, std::move(device), std::move(lni), context);
  if (domain == nullptr) return fail(FI_ENOMEM, "no memory for a domain");
  Result<void> started;
  // Nothing of the process is hidden from its own NIC.
  if (auto all = domain->lni_->map(0, UINT64_MAX, Lni::kRead | Lni::kWrite)) {
    domain->all_ = *all;
    {
      const sdk::Guard guard(domain->engine().lock());
      domain->engine().add_poller(*domain);
    }
    started = start(*domain, info, fabric.base());
  } else {
    started = tl::unexpected(all.error());
  }
  if (!started) {
    delete domain;
    return tl::unexpected(started.error());
  }
  fabric.children.fetch_add(1);
  return domain;
}

int Domain::close() {
  if (shared().children.load() != 0) return -FI_EBUSY;
  retire();
  engine().stop_thread();
  unbind();
  {
    const sdk::Guard guard(engine().lock());
    engine().remove(*this);
    engine().remove_poller(*this);
  }
  device_->push();
  fabric_.children.fetch_sub(1);
  delete this;
  return 0;
}

int Domain::av_open(struct fi_av_attr *attr, struct fid_av **av, void *context) {
  return sdk::open_av(shared(), FI_ADDR_CXI, attr, av, context, device_->facts().name, FI_ADDR_CXI);
}

// ---- endpoints ----

void Domain::add(CxiEndpoint &endpoint) {
  endpoints_.push_back(&endpoint);
}

void Domain::remove(CxiEndpoint &endpoint) {
  std::erase(endpoints_, &endpoint);
}

CxiEndpoint *Domain::find(uint64_t number) const {
  const auto found =
      std::ranges::find_if(endpoints_, [&](const auto *one) { return one->number() == number; });
  return found != endpoints_.end() ? *found : nullptr;
}

// ---- progress ----

int Domain::wait_fds(std::vector<int> &fds) {
  if (const int fd = device_->wait_fd(); fd >= 0) fds.push_back(fd);
  return 0;
}

bool Domain::may_wait() {
  device_->push();
  return true;
}

void Domain::on_sent(bool report) {
  sdk::Engine &own = engine();
  if (!report || !own.spinning() || burst_round_ != own.rounds() || ++burst_items_ >= kBurst) {
    burst_round_ = own.rounds();
    burst_items_ = 0;
    own.sent();
    device_->push();
  } else if (own.may_wait()) {
    own.posted();
    own.mark_dirty(*this);
  } else {
    device_->push();
    own.posted();
  }
}

// ---- atomics ----

int Domain::atomic_count(sdk::AtomicKind kind, int op, int datatype, size_t *count) const {
  if (count == nullptr) return -FI_EINVAL;
  if (!amo_of(kind, op, datatype)) return -FI_EOPNOTSUPP;
  *count = 1;
  return 0;
}

int Domain::query_atomic(enum fi_datatype datatype, enum fi_op op, struct fi_atomic_attr *attr,
                         uint64_t flags) {
  if (attr == nullptr) return -FI_EINVAL;
  if (flags & ~uint64_t(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC | FI_TAGGED)) return -FI_EBADFLAGS;
  if (flags & FI_FETCH_ATOMIC && flags & FI_COMPARE_ATOMIC) return -FI_EINVAL;
  const auto kind = flags & FI_FETCH_ATOMIC     ? sdk::AtomicKind::kFetch
                    : flags & FI_COMPARE_ATOMIC ? sdk::AtomicKind::kCompare
                                                : sdk::AtomicKind::kWrite;
  if (flags & FI_TAGGED) return -FI_EOPNOTSUPP;
  size_t count = 0;
  const int rc = atomic_count(kind, sdk::raw(op), sdk::raw(datatype), &count);
  if (rc == 0) *attr = {.count = count, .size = sdk::datatype_size(sdk::raw(datatype))};
  return rc;
}

}  // namespace weft::cxi
