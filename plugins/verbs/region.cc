// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/region.h"

#include <weft/sdk/memory/mr.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/ops.h>

#include <new>

#include "plugins/verbs/domain.h"

namespace weft::verbs {

Region::Region(Domain &domain, const DeviceMemory::Registration &registration, void *context)
    : Object(domain.instance(), FI_CLASS_MR, context),
      local_key_(registration.mr->lkey),
      of_device_(registration.of_device),
      domain_(domain),
      registration_(registration) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Region>());
  c()->mem_desc = this;
  c()->key = registration.mr->rkey;
}

Result<Region *> Region::open(Domain &domain, const fi_mr_attr &attr, uint64_t flags) {
  DeviceMemory &memory = domain.device_memory();
  WEFT_TRY(const DeviceMemory::Registration registration, memory.add(attr, flags));
  auto *const region = new (std::nothrow) Region(domain, registration, attr.context);
  if (region == nullptr) {
    memory.remove(registration);
    return fail(FI_ENOMEM, "no memory for a memory region");
  }
  if (auto published = region->publish(domain.base()); !published) {
    memory.remove(registration);
    delete region;
    return tl::unexpected(published.error());
  }
  domain.shared().children.fetch_add(1);
  return region;
}

int Region::close() {
  if (const int error = domain_.device_memory().remove(registration_); error != 0) return -error;
  retire();
  if (sdk::Eq *const eq = domain_.memory().eq) eq->forget(base());
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

// Regions belong to the domain: a binding to an endpoint is allowed, and changes nothing. No
// counter is told of accesses (fi_verbs.7).
int Region::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass != FI_CLASS_EP && fid->fclass != FI_CLASS_SEP) return -FI_EOPNOTSUPP;
  return flags & ~sdk::Mr::kBindFlags ? -FI_EBADFLAGS : 0;
}

int Region::control(int command, void *) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

}  // namespace weft::verbs
