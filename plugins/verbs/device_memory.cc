// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/device_memory.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <weft/sdk/unit/log.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "plugins/verbs/domain.h"
#include "plugins/verbs/fabric.h"
#include "plugins/verbs/region.h"

namespace weft::verbs {

int device_access_bits(uint64_t access, bool iwarp, bool atomics) {
  int bits = 0;
  if (access & (FI_RECV | FI_READ)) bits |= IBV_ACCESS_LOCAL_WRITE;
  // What a read brings is written by the peer on iWARP.
  if (access & FI_READ && iwarp) bits |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  if (access & FI_REMOTE_READ) bits |= IBV_ACCESS_REMOTE_READ;
  if (access & FI_REMOTE_WRITE) {
    bits |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
    if (atomics) bits |= IBV_ACCESS_REMOTE_ATOMIC;
  }
  return bits;
}

int DeviceMemory::device_access(uint64_t access) const {
  const DeviceFacts &facts = domain_.device().facts;
  return device_access_bits(access, facts.transport == Transport::kIwarp, facts.has_atomics);
}

Result<void> DeviceMemory::start_cache(std::shared_ptr<sdk::MemoryMonitor> monitor,
                                       const sdk::RegionCacheLimits &limits) {
  WEFT_TRY(cache_, sdk::RegionCache::open(std::move(monitor), *this, limits,
                                          domain_.fabric().counters().cache));
  return {};
}

Result<DeviceMemory::Registration> DeviceMemory::add(const fi_mr_attr &attr, uint64_t flags) {
  WEFT_CHECK(sdk::check_registration(attr, flags,
                                     {.flags = FI_RMA_EVENT | FI_RMA_PMEM | FI_HMEM_HOST_ALLOC |
                                               FI_HMEM_DEVICE_ONLY | FI_MR_DMABUF}));
  Registration made;
  made.of_device = sdk::raw(attr.iface) != FI_HMEM_SYSTEM || (flags & FI_MR_DMABUF) != 0;
  if (flags & FI_MR_DMABUF) {
    WEFT_TRY(made.mr, add_dmabuf(attr));
  } else if (cache_ != nullptr && !made.of_device) {
    WEFT_TRY(made.kept, cache_->get(attr.mr_iov[0], attr.access));
    made.mr = static_cast<ibv_mr *>(sdk::RegionCache::handle_of(*made.kept));
  } else if (auto mr = add_memory(attr.mr_iov[0], attr.access)) {
    made.mr = *mr;
  } else {
    if (made.of_device)
      mr.error().text += ": memory of a device is registered by its dma-buf (FI_MR_DMABUF)";
    return tl::unexpected(std::move(mr).error());
  }
  return made;
}

int DeviceMemory::remove(const Registration &registration) {
  if (registration.kept == nullptr) return ibv_dereg_mr(registration.mr);
  cache_->put(registration.kept);
  return 0;
}

Result<ibv_mr *> DeviceMemory::add_dmabuf(const fi_mr_attr &attr) {
  const DeviceFacts &facts = domain_.device().facts;
  const fi_mr_dmabuf &buffer = *attr.dmabuf;
  if (!facts.has_dmabuf)
    return fail(FI_EOPNOTSUPP, "memory registration: %s has no dma-buf", facts.name.c_str());
  if (!hmem_)
    return fail(FI_EOPNOTSUPP,
                "memory registration: FI_MR_DMABUF needs a domain that was opened with FI_HMEM "
                "(hints.caps)");
  uint64_t end;
  const uint64_t base = reinterpret_cast<uintptr_t>(buffer.base_addr);
  if (buffer.len == 0 || __builtin_add_overflow(base, buffer.offset, &end) ||
      __builtin_add_overflow(end, buffer.len, &end))
    return fail(FI_EINVAL,
                "memory registration: %zu bytes of a dma-buf from byte %llu: nothing, or more than "
                "an address space",
                buffer.len, (unsigned long long)buffer.offset);
  ibv_mr *const mr = ibv_reg_dmabuf_mr(domain_.pd(), buffer.offset, buffer.len,
                                       base + buffer.offset, buffer.fd, device_access(attr.access));
  if (mr == nullptr) {
    const int error = errno;
    return fail(error, "memory registration: ibv_reg_dmabuf_mr of %zu bytes on %s: %s", buffer.len,
                facts.name.c_str(), strerror(error));
  }
  domain_.fabric().counters().registrations.add();
  return mr;
}

Result<ibv_mr *> DeviceMemory::add_memory(const iovec &memory, uint64_t access) {
  ibv_mr *const mr =
      ibv_reg_mr(domain_.pd(), memory.iov_base, memory.iov_len, device_access(access));
  if (mr == nullptr) {
    const int error = errno;
    return fail(error, "memory registration: ibv_reg_mr of %zu bytes at %p on %s: %s%s",
                memory.iov_len, memory.iov_base, domain_.device().facts.name.c_str(),
                strerror(error), error == ENOMEM ? ": see `ulimit -l`" : "");
  }
  domain_.fabric().counters().registrations.add();
  return mr;
}

Result<void *> DeviceMemory::add(const iovec &memory, uint64_t access) {
  WEFT_TRY(ibv_mr *const mr, add_memory(memory, access));
  return mr;
}

void DeviceMemory::remove(void *handle) {
  if (const int error = ibv_dereg_mr(static_cast<ibv_mr *>(handle)); error != 0)
    WEFT_WARN(domain_.instance(), FI_LOG_MR, "the cache of registrations: ibv_dereg_mr on %s: %s",
              domain_.device().facts.name.c_str(), strerror(error));
}

Result<fid_mr *> DeviceMemory::open(const fi_mr_attr &attr, uint64_t flags) {
  WEFT_TRY(Region *const region, Region::open(domain_, attr, flags));
  return region->c();
}

}  // namespace weft::verbs
