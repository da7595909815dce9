// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/link/region.h"

#include <weft/sdk/memory/mr.h>
#include <weft/sdk/objects/eq.h>
#include <weft/sdk/objects/ops.h>

#include <memory>
#include <utility>

#include "plugins/link/endpoint.h"

namespace weft::link {

Region::Region(Domain &domain, void *context)
    : Object(domain.instance(), FI_CLASS_MR, context), domain_(domain) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Region>());
  c()->mem_desc = this;  // the endpoints beneath want none
}

Region::~Region() {
  for (fid_mr *const mr : beneath_)
    if (mr != nullptr) fi_close(&mr->fid);
  counters_.clear();
  for (std::atomic<size_t> *const users : held_) users->fetch_sub(1);
}

// The network's key first: a device may choose it.
Result<Region *> Region::open(Domain &domain, const fi_mr_attr &attr, uint64_t flags) {
  const auto destroy = [](Region *region) { delete region; };
  std::unique_ptr<Region, decltype(destroy)> region(new Region(domain, attr.context), destroy);
  fi_mr_attr asked = attr;
  asked.context = nullptr;
  for (size_t i = 0; i < domain.branches(); ++i) {
    WEFT_CHECK(region->register_in(i, asked, flags));
    asked.requested_key = region->c()->key;
  }
  WEFT_CHECK(region->publish(domain.base()));
  domain.shared().children.fetch_add(1);
  return region.release();
}

Result<void> Region::register_in(size_t branch, const fi_mr_attr &attr, uint64_t flags) {
  const int rc = fi_mr_regattr(domain_.branch(branch).domain(), &attr, flags, &beneath_[branch]);
  if (rc != 0)
    return fail(-rc, "memory registration: refused by the %s provider beneath",
                branch == kLocal ? "first" : "second");
  const uint64_t key = fi_mr_key(beneath_[branch]);
  if (branch == kNetwork) c()->key = key;
  if (key == c()->key) return {};
  return fail(FI_ENOKEY, "memory registration: the first provider beneath does not take the key");
}

int Region::close() {
  for (size_t i = domain_.branches(); i-- > 0;) {
    if (beneath_[i] == nullptr) continue;
    if (const int rc = fi_close(&beneath_[i]->fid); rc != 0) return rc;
    beneath_[i] = nullptr;
  }
  retire();
  if (sdk::Eq *const eq = domain_.memory().eq) eq->forget(base());
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

int Region::bind(struct fid *fid, uint64_t flags) {
  if (fid == nullptr) return -FI_EINVAL;
  if (fid->fclass == FI_CLASS_EP) return flags & ~sdk::Mr::kBindFlags ? -FI_EBADFLAGS : 0;
  if (!sdk::Cntr::is_mine(fid, FI_CLASS_CNTR, instance())) return -FI_EINVAL;
  if (flags == 0 || flags & ~sdk::Mr::kBindFlags) return -FI_EBADFLAGS;
  sdk::Cntr &counter = *sdk::Cntr::from(fid);
  if (&counter.engine() != &domain_.engine()) return -FI_EDOMAIN;
  if (flags & counted_) return -FI_EBUSY;
  const int rc = bind_counter(counter, flags);
  if (rc == 0) counted_ |= flags;
  return rc;
}

int Region::bind_counter(sdk::Cntr &counter, uint64_t flags) {
  auto lent = domain_.lend(counter);
  if (!lent) return -lent.error().code;
  counters_.push_back(*lent);
  held_.push_back(&counter.users);
  counter.users.fetch_add(1);
  for (size_t i = 0; i < domain_.branches(); ++i)
    if (const int rc = fi_mr_bind(beneath_[i], &(*lent)->at(i)->fid, flags); rc != 0) return rc;
  return 0;
}

int Region::control(int command, void *arg) {
  for (size_t i = 0; i < domain_.branches(); ++i)
    if (const int rc = fi_control(&beneath_[i]->fid, command, arg); rc != 0) return rc;
  return 0;
}

Result<fid_mr *> BeneathMemory::open(const fi_mr_attr &attr, uint64_t flags) {
  WEFT_TRY(Region *const region, Region::open(domain_, attr, flags));
  return region->c();
}

}  // namespace weft::link
