// SPDX-License-Identifier: BSD-2-Clause
// DeviceMemory: the memory that a domain registers with its device, and the cache that keeps
// registrations after their use, where a user asks for one.
//
// Example:
//    // Memory is registered and found again: the second time from the cache, if there is one.
//    inline Result<void> twice(DeviceMemory &memory, const fi_mr_attr &attr) {
//      for (int i = 0; i < 2; ++i) {
//        WEFT_TRY(const DeviceMemory::Registration made, memory.add(attr, /*flags=*/0));
//        memory.remove(made);
//      }
//      return {};
//    }
//
// Memory of devices and dma-bufs are never kept. Not for the fids of regions: region.h.
#ifndef WEFT_PLUGINS_VERBS_DEVICE_MEMORY_H
#define WEFT_PLUGINS_VERBS_DEVICE_MEMORY_H

#include <infiniband/verbs.h>
#include <weft/sdk/devices/region_cache.h>
#include <weft/sdk/memory/memory.h>

#include <memory>

namespace weft::verbs {

class Domain;

class DeviceMemory final : public sdk::Memory, private sdk::Registrar {
 public:
  // `hmem`: the domain was opened with FI_HMEM.
  DeviceMemory(Domain &domain, bool hmem) : domain_(domain), hmem_(hmem) {}

  // Registrations are kept from now on, until end_cache().
  Result<void> start_cache(std::shared_ptr<sdk::MemoryMonitor> monitor,
                           const sdk::RegionCacheLimits &limits);
  void end_cache() { cache_.reset(); }

  struct Registration {
    ibv_mr *mr = nullptr;
    sdk::RegionCache::Entry *kept = nullptr;  // null: not from the cache
    bool of_device = false;                   // the processor may not be able to read it
  };
  Result<Registration> add(const fi_mr_attr &attr, uint64_t flags);
  int remove(const Registration &registration);  // 0 or an errno

  // sdk::Memory
  Result<fid_mr *> open(const fi_mr_attr &attr, uint64_t flags) override;

 private:
  Result<ibv_mr *> add_dmabuf(const fi_mr_attr &attr);
  Result<ibv_mr *> add_memory(const iovec &memory, uint64_t access);
  int device_access(uint64_t access) const;
  // sdk::Registrar
  Result<void *> add(const iovec &memory, uint64_t access) override;
  void remove(void *handle) override;

  Domain &domain_;
  const bool hmem_;
  std::unique_ptr<sdk::RegionCache> cache_;
};

// The access bits of ibv_reg_mr for those of fi_mr.3.
int device_access_bits(uint64_t access, bool iwarp, bool atomics);

}  // namespace weft::verbs

#endif
