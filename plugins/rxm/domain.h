// SPDX-License-Identifier: BSD-2-Clause
// Domain: the domain of the layer. Opens endpoints, address vectors, and memory regions, each of
// which wraps a region of the inner domain.
//
// Example:
//    // How an endpoint finds the memory that a peer's atomic names, under the engine's lock.
//    inline ssize_t add_one(Domain &domain, uint64_t key, uint64_t address) {
//      iovec target;
//      const ssize_t n = domain.resolve(key, address, 8, FI_REMOTE_WRITE, &target, 1);
//      if (n < 0) return n;  // no such region, or the peer has no right to it
//      ++*static_cast<uint64_t *>(target.iov_base);
//      domain.count_remote(FI_REMOTE_WRITE, key, 8);
//      return 0;
//    }
//
// Not for completion queues and counters: the SDK's LayerDomain has them.
#ifndef WEFT_PLUGINS_RXM_DOMAIN_H
#define WEFT_PLUGINS_RXM_DOMAIN_H

#include <weft/sdk/layers/carrier.h>
#include <weft/sdk/layers/inner_modes.h>
#include <weft/sdk/layers/inner_progress.h>
#include <weft/sdk/layers/layer_domain.h>
#include <weft/sdk/layers/mirrors.h>

#include <array>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "plugins/rxm/fabric.h"

namespace weft::rxm {

class Region;
class Domain;
class Endpoint;

// Its regions are regions of the inner domain (region.h).
class InnerMemory final : public sdk::Memory {
 public:
  explicit InnerMemory(Domain &domain) : domain_(domain) {}
  Result<fid_mr *> open(const fi_mr_attr &attr, uint64_t flags) override;

 private:
  Domain &domain_;
};

class Domain final : public sdk::LayerDomain<Domain, Fabric, Endpoint, sdk::DomainCore> {
 public:
  static Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);
  Result<void> join(Domain &origin);
  int close();

  bool virtual_addresses() const { return mr_bits_ & FI_MR_VIRT_ADDR; }
  bool provider_keys() const { return mr_bits_ & FI_MR_PROV_KEY; }
  bool enable_needed() const { return mr_bits_ & FI_MR_RMA_EVENT; }
  // FI_MR_ENDPOINT: regions are bound to an endpoint before peers reach them, through it alone. Not
  // over a provider that cannot confine them.
  bool endpoint_needed() const { return endpoint_asked_ && region_ops_ != nullptr; }
  const weft_region_ops *region_ops() const { return region_ops_; }
  sdk::Eq *eq() { return memory().eq; }  // reports completed registrations; null: none

  // By key; call with the engine's lock held. What lanes see changes with this lock, too.
  std::unordered_map<uint64_t, Region *> &table() { return table_; }
  std::mutex &lending() { return lending_; }
  // When this returns no lane uses a region that is no longer in the table.
  void wait_for_lanes();
  sdk::Mirrors &mirrors() { return mirrors_; }
  sdk::InnerProgress &progress_beneath() { return progress_beneath_; }
  // A key that other processes cannot guess, for a region that rxm registers itself when
  // applications choose keys. It is as long as keys of the inner provider. False: the kernel gave
  // no random bytes.
  bool random_key(uint64_t &key);
  // Registers memory with the inner domain, under such a key or under the provider's. 0 or -FI_E...
  int register_inner(const iovec &memory, uint64_t access, sdk::InnerRegion &region);
  // What the inner provider demands of each call.
  const sdk::InnerModes &inner_modes() const { return inner_modes_; }
  // The inner descriptor for one of a Region; null for null, and where it is not wanted.
  void *inner_descriptor(void *desc) const;
  // The local memory that an atomic of a peer of `endpoint` (its number) addresses: 1 iov, or
  // -FI_EACCES.
  ssize_t resolve(uint64_t key, uint64_t address, uint64_t length, uint64_t access, iovec *iov,
                  size_t room, uint64_t endpoint = 0);

  // FI_RMA_PMEM: writes what a peer's atomic changed to its medium. False: that has failed.
  bool persist(uint64_t key, uint64_t address, uint64_t length);
  // Counts a peer's atomic on the counter of the region `key`.
  void count_remote(uint64_t access, uint64_t key, uint64_t bytes);

  sdk::AtomicLimits atomic_limits() const;

 private:
  friend LayerDomain;
  Domain(Fabric &fabric, const fi_info &info, sdk::InfoList inner_info, void *context);
  ~Domain() = default;

  InnerMemory memory_{*this};
  const int mr_bits_;
  const bool endpoint_asked_;
  const weft_region_ops *region_ops_ = nullptr;
  const sdk::InnerModes inner_modes_;
  // Random numbers for random_key(), of which `random_left_` are unused.
  std::array<uint64_t, 32> random_;
  size_t random_left_ = 0;
  std::unordered_map<uint64_t, Region *> table_;
  // Locks: the engine, then that of a lane, then this.
  std::mutex lending_;
  std::vector<Domain *> lanes_;
  Domain *origin_ = nullptr;  // of a lane
  sdk::Mirrors mirrors_;
  sdk::InnerProgress progress_beneath_;
};

}  // namespace weft::rxm

#endif
