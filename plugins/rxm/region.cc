// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/region.h"

#include <weft/sdk/objects/endpoint_number.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/ops.h>

#include <new>

namespace weft::rxm {
namespace {

constexpr uint64_t kRemote = FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr uint64_t kNobody = UINT64_MAX;  // a group without endpoints

}  // namespace

Region::Region(Domain &domain, const fi_mr_attr &attr, uint64_t flags, fid_mr *inner, bool enabled)
    : Object(domain.instance(), FI_CLASS_MR, attr.context),
      domain_(domain),
      inner_(inner),
      memory_(attr.mr_iov[0]),
      access_(attr.access),
      key_(fi_mr_key(inner)),
      base_(domain.virtual_addresses() ? reinterpret_cast<uintptr_t>(attr.mr_iov[0].iov_base) : 0),
      persistent_((flags & FI_RMA_PMEM) != 0),
      enabled_(enabled) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Region>());
  c()->mem_desc = this;
  c()->key = key_;
}

Result<Region *> Region::open(Domain &domain, const fi_mr_attr &attr, uint64_t flags) {
  if (attr.iov_count != 1 || attr.mr_iov == nullptr)
    return fail(FI_EINVAL,
                "memory registration: %zu buffers; 1 (domain_attr.mr_iov_limit) is allowed",
                attr.iov_count);
  fid_mr *inner = nullptr;
  fi_mr_attr asked = attr;
  asked.context = nullptr;
  // The protocol reads a large message into memory for receives, or writes it from memory for
  // sends.
  if (domain.inner_modes().local_memory) {
    if (attr.access & FI_SEND) asked.access |= FI_WRITE;
    if (attr.access & FI_RECV) asked.access |= FI_READ;
  }
  // Until it is bound to an endpoint nobody reaches it.
  const bool confined = domain.endpoint_needed() && (attr.access & kRemote) != 0;
  const int rc = fi_mr_regattr(domain.inner(), &asked, flags, &inner);
  if (rc != 0) return fail(-rc, "memory registration: refused by the inner provider");
  if (confined) domain.region_ops()->confine(inner, kNobody);
  const bool enabled =
      !domain.endpoint_needed() && !(domain.enable_needed() && flags & FI_RMA_EVENT);
  auto *region = new (std::nothrow) Region(domain, attr, flags, inner, enabled);
  if (region == nullptr) {
    fi_close(&inner->fid);
    return fail(FI_ENOMEM, "no memory for a memory region");
  }
  auto published = region->publish(domain.base());
  if (!published) {
    fi_close(&inner->fid);
    delete region;
    return tl::unexpected(published.error());
  }
  domain.shared().children.fetch_add(1);
  sdk::Guard guard(domain.engine().lock());
  const std::lock_guard alone(domain.lending());
  if (region->access_ & kRemote) domain.table()[region->key_] = region;
  return region;
}

int Region::close() {
  {
    sdk::Guard guard(domain_.engine().lock());
    for (Bound *bound : {&write_, &read_}) {
      if (bound->inner == nullptr) continue;
      domain_.mirrors().follow_now();
    }
    if (const int rc = fi_close(&inner_->fid); rc != 0) return rc;
    {
      const std::lock_guard alone(domain_.lending());
      if (access_ & kRemote) domain_.table().erase(key_);
    }
    domain_.wait_for_lanes();
    for (Bound *bound : {&write_, &read_}) {
      if (bound->inner == nullptr) continue;
      domain_.mirrors().remove(domain_.engine(), bound->inner);
      bound->outer->users.fetch_sub(1);
    }
  }
  retire();
  if (domain_.eq() != nullptr) domain_.eq()->forget(base());
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

int Region::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_EP || fid->fclass == FI_CLASS_SEP || fid->fclass == FI_CLASS_RX_CTX ||
      fid->fclass == FI_CLASS_TX_CTX)
    return bind_endpoint(fid, flags);
  if (!sdk::Cntr::is_mine(fid, FI_CLASS_CNTR, instance())) return -FI_EINVAL;
  if (flags == 0 || flags & ~sdk::Mr::kBindFlags) return -FI_EBADFLAGS;
  sdk::Cntr *outer = sdk::Cntr::from(fid);
  if (&outer->domain() != &domain_.shared()) return -FI_EDOMAIN;
  sdk::Cntr *const reached = outer->reached_from(domain_.shared());
  sdk::Guard guard(domain_.engine().lock());
  if ((flags & FI_REMOTE_WRITE && write_.inner != nullptr) ||
      (flags & FI_REMOTE_READ && read_.inner != nullptr))
    return -FI_EBUSY;
  for (const auto &[bit, bound] : {std::pair{FI_REMOTE_WRITE, &write_}, {FI_REMOTE_READ, &read_}}) {
    if (!(flags & bit)) continue;
    auto inner = sdk::Mirrors::open(domain_.inner());
    if (!inner) return -inner.error().code;
    if (const int rc = fi_mr_bind(inner_, &(*inner)->fid, bit); rc != 0) {
      fi_close(&(*inner)->fid);
      return rc;
    }
    {
      const std::lock_guard alone(domain_.lending());
      bound->inner = *inner;
    }
    bound->outer = outer;
    bound->reached = reached;
    outer->users.fetch_add(1);
    domain_.mirrors().add(domain_.engine(), *inner, *reached);
  }
  return 0;
}

// Only with FI_MR_ENDPOINT it means something (fi_mr.3).
int Region::bind_endpoint(struct fid *fid, uint64_t flags) {
  if (flags & ~sdk::Mr::kBindFlags) return -FI_EBADFLAGS;
  if (!domain_.endpoint_needed()) return 0;
  if (!is_mine(fid, fid->fclass, instance())) return -FI_EINVAL;
  uint64_t number;
  if (const int rc = sdk::endpoint_number(domain_.shared(), fid, number); rc != 0) return rc;
  sdk::Guard guard(domain_.engine().lock());
  if (enabled_) return -FI_EOPBADSTATE;
  if (endpoint_ != 0 && endpoint_ != number) return -FI_EBUSY;
  const std::lock_guard alone(domain_.lending());
  endpoint_ = number;
  return 0;
}

int Region::control(int command, void *arg) {
  if (command != FI_ENABLE) return fi_control(&inner_->fid, command, arg);
  sdk::Guard guard(domain_.engine().lock());
  if (domain_.endpoint_needed() && endpoint_ == 0) return -FI_EOPBADSTATE;
  if (const int rc = fi_control(&inner_->fid, command, arg); rc != 0) return rc;
  if (endpoint_ != 0) domain_.region_ops()->confine(inner_, endpoint_);
  const std::lock_guard alone(domain_.lending());
  enabled_ = true;
  return 0;
}

}  // namespace weft::rxm
