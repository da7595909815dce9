// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/coll/region.h"

#include <weft/sdk/memory/mr.h>
#include <weft/sdk/objects/endpoint_number.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/ops.h>

#include <new>

#include "plugins/coll/endpoint.h"

namespace weft::coll {

Region::Region(Domain &domain, void *context, fid_mr *inner)
    : Object(domain.instance(), FI_CLASS_MR, context), domain_(domain), inner_(inner) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Region>());
  c()->mem_desc = this;  // the endpoint beneath is opened so that it wants none
  c()->key = fi_mr_key(inner);
}

Result<Region *> Region::open(Domain &domain, const fi_mr_attr &attr, uint64_t flags) {
  fid_mr *inner = nullptr;
  fi_mr_attr asked = attr;
  asked.context = nullptr;
  if (const int rc = fi_mr_regattr(domain.inner(), &asked, flags, &inner); rc != 0)
    return fail(-rc, "memory registration: refused by the provider beneath");
  auto *const region = new (std::nothrow) Region(domain, attr.context, inner);
  if (region == nullptr) {
    fi_close(&inner->fid);
    return fail(FI_ENOMEM, "no memory for a memory region");
  }
  if (auto published = region->publish(domain.base()); !published) {
    fi_close(&inner->fid);
    delete region;
    return tl::unexpected(published.error());
  }
  domain.shared().children.fetch_add(1);
  return region;
}

int Region::close() {
  {
    const sdk::Guard guard(domain_.engine().lock());
    if (written_.inner != nullptr || read_.inner != nullptr) domain_.mirrors().follow_now();
    if (const int rc = fi_close(&inner_->fid); rc != 0) return rc;
    for (const Count &count : {written_, read_}) {
      if (count.inner == nullptr) continue;
      domain_.mirrors().remove(domain_.engine(), count.inner);
      count.outer->users.fetch_sub(1);
    }
  }
  retire();
  if (sdk::Eq *const eq = domain_.memory().eq) eq->forget(base());
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

int Region::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_EP) return bind_endpoint(fid, flags);
  if (!sdk::Cntr::is_mine(fid, FI_CLASS_CNTR, instance())) return -FI_EINVAL;
  if (flags == 0 || flags & ~sdk::Mr::kBindFlags) return -FI_EBADFLAGS;
  sdk::Cntr &outer = *sdk::Cntr::from(fid);
  if (&outer.engine() != &domain_.engine()) return -FI_EDOMAIN;
  const sdk::Guard guard(domain_.engine().lock());
  if ((flags & FI_REMOTE_WRITE && written_.inner != nullptr) ||
      (flags & FI_REMOTE_READ && read_.inner != nullptr))
    return -FI_EBUSY;
  int rc = 0;
  if (flags & FI_REMOTE_WRITE) rc = bind_counter(FI_REMOTE_WRITE, written_, outer);
  if (rc == 0 && flags & FI_REMOTE_READ) rc = bind_counter(FI_REMOTE_READ, read_, outer);
  return rc;
}

int Region::bind_counter(uint64_t access, Count &count, sdk::Cntr &outer) {
  const auto inner = sdk::Mirrors::open(domain_.inner());
  if (!inner) return -inner.error().code;
  if (const int rc = fi_mr_bind(inner_, &(*inner)->fid, access); rc != 0) {
    fi_close(&(*inner)->fid);
    return rc;
  }
  count = {*inner, &outer};
  outer.users.fetch_add(1);
  domain_.mirrors().add(domain_.engine(), *inner, outer);
  return 0;
}

// FI_MR_ENDPOINT: the region beneath is bound to the endpoint beneath. Without, it means nothing.
int Region::bind_endpoint(struct fid *fid, uint64_t flags) {
  if (flags & ~sdk::Mr::kBindFlags) return -FI_EBADFLAGS;
  if (!domain_.endpoint_needed()) return 0;
  if (!is_mine(fid, FI_CLASS_EP, instance())) return -FI_EINVAL;
  uint64_t number = 0;
  if (const int rc = sdk::endpoint_number(domain_.shared(), fid, number); rc != 0) return rc;
  const sdk::Guard guard(domain_.engine().lock());
  fid_ep *const beneath = domain_.endpoint_beneath(number);
  return beneath != nullptr ? fi_mr_bind(inner_, &beneath->fid, flags) : -FI_EINVAL;
}

Result<fid_mr *> BeneathMemory::open(const fi_mr_attr &attr, uint64_t flags) {
  WEFT_TRY(Region *const region, Region::open(domain_, attr, flags));
  return region->c();
}

}  // namespace weft::coll
