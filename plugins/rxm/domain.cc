// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/rxm/domain.h"

#include <sys/random.h>
#include <weft/sdk/memory/persist.h>
#include <weft/sdk/objects/eq.h>

#include "plugins/rxm/endpoint.h"
#include "plugins/rxm/region.h"

namespace weft::rxm {

// Regions belong to the inner domain.
Domain::Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner_info, void *context)
    : LayerDomain(fabric, {}, info, std::move(inner_info), context, memory_),
      mr_bits_(registration_bits(this->inner_info().domain_attr->mr_mode)),
      endpoint_asked_((registration_bits(info.domain_attr->mr_mode) & FI_MR_ENDPOINT) != 0),
      inner_modes_(sdk::InnerModes::of(this->inner_info())),
      mirrors_(fabric.inner()) {
  engine().lock().count_waits(fabric.stats()->locks_contended);
  shared().keeps_descriptors = inner_modes_.local_memory &&
                               (registration_bits(info.domain_attr->mr_mode) & FI_MR_LOCAL) != 0;
}

Result<Domain *> Domain::open(Fabric &fabric, const fi_info &info, void *context) {
  WEFT_TRY(sdk::InfoList inner, fabric.layer().inner_info(info));
  // What the application does by itself, and what the inner provider demands all the same.
  const int asked = registration_bits(info.domain_attr->mr_mode);
  inner.front()->domain_attr->mr_mode |= asked & ~(FI_MR_ENDPOINT | FI_MR_LOCAL);
  std::shared_ptr<const sdk::Hmem> hmem;
  if ((info.caps | info.domain_attr->caps) & FI_HMEM) {
    WEFT_TRY(hmem, fabric.layer().hmem().open());
  }
  auto *const made = new Domain(fabric, info, std::move(inner), context);
  made->set_hmem(std::move(hmem));
  WEFT_TRY(Domain *const domain, start(made, info));
  void *ops = nullptr;
  if (fi_open_ops(&domain->inner()->fid, WEFT_REGION_OPS, 0, &ops, nullptr) == 0)
    domain->region_ops_ = static_cast<const weft_region_ops *>(ops);
  return domain;
}

// The operands and the vectors of an atomic must fit into one packet.
sdk::AtomicLimits Domain::atomic_limits() const {
  const size_t room = fabric().layer().options().buffer_size - kAtomicVectorsSize;
  return {.write = room, .fetch = room, .compare = room / 2};
}

bool Domain::random_key(uint64_t &key) {
  if (random_left_ == 0) {
    if (getrandom(random_.data(), sizeof random_, 0) != ssize_t(sizeof random_)) return false;
    random_left_ = random_.size();
  }
  key = random_[--random_left_];
  const size_t size = inner_info().domain_attr->mr_key_size;
  if (size != 0 && size < sizeof key) key &= (UINT64_C(1) << 8 * size) - 1;
  return true;
}

int Domain::register_inner(const iovec &memory, uint64_t access, sdk::InnerRegion &region) {
  // When applications choose keys, a random key may be in use already: others are tried.
  return region.open(inner(), memory, access, [this](uint64_t &key) { return random_key(key); });
}

void *Domain::inner_descriptor(void *desc) const {
  if (desc == nullptr || !inner_modes_.local_memory) return nullptr;
  return static_cast<const Region *>(desc)->inner_descriptor();
}

ssize_t Domain::resolve(uint64_t key, uint64_t address, uint64_t length, uint64_t access,
                        iovec *iov, size_t room, uint64_t endpoint) {
  std::unique_lock<std::mutex> lent;
  if (origin_ != nullptr) lent = std::unique_lock(origin_->lending_);
  const auto &table = origin_ != nullptr ? origin_->table_ : table_;
  const auto it = table.find(key);
  if (it == table.end() || room == 0) return -FI_EACCES;
  const Region &region = *it->second;
  if (!region.enabled() || (region.access() & access) != access) return -FI_EACCES;
  if (region.endpoint() != 0 && region.endpoint() != endpoint) return -FI_EACCES;
  const uint64_t size = region.memory().iov_len;
  if (address < region.base_address()) return -FI_EACCES;
  const uint64_t offset = address - region.base_address();
  if (offset > size || length > size - offset) return -FI_EACCES;
  iov[0] = {static_cast<char *>(region.memory().iov_base) + offset, size_t(length)};
  return 1;
}

bool Domain::persist(uint64_t key, uint64_t address, uint64_t length) {
  std::unique_lock<std::mutex> lent;
  if (origin_ != nullptr) lent = std::unique_lock(origin_->lending_);
  const auto &table = origin_ != nullptr ? origin_->table_ : table_;
  const auto it = table.find(key);
  if (it == table.end() || !it->second->persistent()) return true;
  const Region &region = *it->second;
  return sdk::make_persistent(
      {static_cast<char *>(region.memory().iov_base) + (address - region.base_address()),
       size_t(length)});
}

Result<void> Domain::join(Domain &origin) {
  WEFT_CHECK(LayerDomain::join(origin));
  const sdk::Guard guard(origin.engine().lock());
  origin.lanes_.push_back(this);
  origin_ = &origin;
  return {};
}

int Domain::close() {
  if (shared().children.load() != 0) return -FI_EBUSY;
  if (origin_ != nullptr) {
    const sdk::Guard guard(origin_->engine().lock());
    std::erase(origin_->lanes_, this);
  }
  return LayerDomain::close();
}

void Domain::wait_for_lanes() {
  for (Domain *lane : lanes_) const sdk::Guard guard(lane->engine().lock());
}

void Domain::count_remote(uint64_t access, uint64_t key, uint64_t bytes) {
  if (origin_ == nullptr) {
    if (const auto it = table_.find(key); it != table_.end())
      it->second->count_remote(access, bytes);
    return;
  }
  const std::lock_guard lent(origin_->lending_);
  if (const auto it = origin_->table_.find(key); it != origin_->table_.end())
    it->second->count_from_lane(access);
}

Result<fid_mr *> InnerMemory::open(const fi_mr_attr &attr, uint64_t flags) {
  WEFT_TRY(Region *const region, Region::open(domain_, attr, flags));
  return region->c();
}

}  // namespace weft::rxm
