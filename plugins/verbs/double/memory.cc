// SPDX-License-Identifier: BSD-2-Clause
// Protection domains, memory regions and their keys.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "plugins/verbs/double/objects.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace weft::verbs_double {

namespace {

constexpr unsigned kRemoteChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr unsigned kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                                  IBV_ACCESS_OPTIONAL_RANGE;

// Whether all pages are mapped, as the kernel finds out when it pins them.
bool is_mapped(const void *memory, size_t size) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory) + size;
  uintptr_t at = reinterpret_cast<uintptr_t>(memory) & ~(page - 1);
  std::array<unsigned char, 4096> resident;
  while (at < end) {
    const size_t some = std::min<size_t>(end - at, page * resident.size());
    if (mincore(reinterpret_cast<void *>(at), some, resident.data()) != 0) return false;
    at += some;
  }
  return true;
}

int refusal(const Adapter &adapter, const void *memory, size_t size, unsigned access) {
  if (adapter.removed) return EIO;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  if ((access & ~kKnownAccess) != 0) return EINVAL;
  if ((access & kRemoteChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0 && !adapter.options.features.atomics) return EINVAL;
  if (size == 0 || size > adapter.options.limits.max_mr_size) return EINVAL;
  if (memory != nullptr && !is_mapped(memory, size)) return EFAULT;
  return 0;
}

// Both keys are unknown elsewhere: no key of a device is used twice, and a local one is no remote
// one.
void give_keys(Adapter &adapter, Mr &region) {
  const auto next = [&adapter] {
    const uint32_t number = adapter.next_key++;
    return number << 8 | (number * 37 & 0xff);
  };
  region.lkey = next();
  region.rkey = next();
  adapter.mrs[region.lkey] = &region;
  adapter.mrs[region.rkey] = &region;
}

Mr *find(Adapter &adapter, uint32_t key, const Pd *pd, uint64_t address, uint64_t size,
         unsigned access) {
  const auto found = adapter.mrs.find(key);
  if (found == adapter.mrs.end()) return nullptr;
  Mr &region = *found->second;
  if (pd != nullptr && region.pd_of != pd) return nullptr;
  if ((region.access_flags & access) != access) return nullptr;
  if (address < region.iova || address - region.iova > region.length) return nullptr;
  if (size > region.length - (address - region.iova)) return nullptr;
  return &region;
}

ibv_mr *register_memory(ibv_pd *ibv, void *memory, size_t size, uint64_t iova, unsigned access) {
  Pd &pd = of(ibv);
  Adapter &adapter = pd.context_of.adapter;
  const Entry entry(adapter.world, Call::k_ibv_reg_mr);
  if (entry.error() != 0) return no_object(entry.error());
  if (memory == nullptr) return no_object(EFAULT);
  if (const int error = refusal(adapter, memory, size, access); error != 0) return no_object(error);
  if (adapter.regions >= adapter.options.limits.max_mr) return no_object(ENOMEM);
  auto region = std::make_unique<Mr>(pd);
  region->context = pd.context;
  region->pd = &pd;
  region->addr = memory;
  region->length = size;
  region->host = static_cast<uint8_t *>(memory);
  region->iova = (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
  region->access_flags = access;
  give_keys(adapter, *region);
  ++pd.users;
  ++adapter.regions;
  return region.release();
}

}  // namespace

bool resolve(Adapter &adapter, const Pd *pd, std::span<const ibv_sge> sges, unsigned access,
             std::vector<Piece> &pieces) {
  pieces.clear();
  for (const ibv_sge &sge : sges) {
    if (sge.length == 0) continue;
    const Mr *region = find(adapter, sge.lkey, pd, sge.addr, sge.length, access);
    if (region == nullptr || region->lkey != sge.lkey) return false;
    pieces.push_back({region->host + (sge.addr - region->iova), sge.length});
  }
  return true;
}

uint8_t *remote_memory(Adapter &adapter, const Pd *pd, uint64_t address, uint64_t size,
                       uint32_t rkey, unsigned access) {
  const Mr *region = find(adapter, rkey, pd, address, size, access);
  if (region == nullptr || region->rkey != rkey) return nullptr;
  return region->host + (address - region->iova);
}

size_t size_of(std::span<const Piece> pieces) {
  size_t size = 0;
  for (const Piece &piece : pieces) size += piece.size;
  return size;
}

void scatter(std::span<const Piece> pieces, size_t skip, std::span<const uint8_t> bytes) {
  for (const Piece &piece : pieces) {
    if (skip >= piece.size) {
      skip -= piece.size;
      continue;
    }
    const size_t some = std::min(piece.size - skip, bytes.size());
    std::copy_n(bytes.begin(), some, piece.memory + skip);
    bytes = bytes.subspan(some);
    skip = 0;
    if (bytes.empty()) return;
  }
}

}  // namespace weft::verbs_double

using namespace weft::verbs_double;

extern "C" {

ibv_pd *ibv_alloc_pd(ibv_context *ibv) {
  Context &context = of(ibv);
  const Entry entry(context.world, Call::k_ibv_alloc_pd);
  if (entry.error() != 0) return no_object(entry.error());
  if (context.adapter.removed) return no_object(EIO);
  if (context.adapter.pds >= context.adapter.options.limits.max_pd) return no_object(ENOMEM);
  ++context.adapter.pds;
  return new Pd(context);
}

int ibv_dealloc_pd(ibv_pd *ibv) {
  Pd &pd = of(ibv);
  const Entry entry(pd.context_of.world, Call::k_ibv_dealloc_pd);
  if (entry.error() != 0) return entry.error();
  if (pd.users > 0) return EBUSY;
  --pd.context_of.adapter.pds;
  delete &pd;
  return 0;
}

ibv_mr *ibv_reg_mr(ibv_pd *pd, void *memory, size_t size, int access) {
  return register_memory(pd, memory, size, reinterpret_cast<uintptr_t>(memory),
                         static_cast<unsigned>(access));
}

ibv_mr *ibv_reg_mr_iova(ibv_pd *pd, void *memory, size_t size, uint64_t iova, int access) {
  return register_memory(pd, memory, size, iova, static_cast<unsigned>(access));
}

ibv_mr *ibv_reg_mr_iova2(ibv_pd *pd, void *memory, size_t size, uint64_t iova, unsigned access) {
  return register_memory(pd, memory, size, iova, access);
}

ibv_mr *ibv_reg_dmabuf_mr(ibv_pd *ibv, uint64_t offset, size_t size, uint64_t iova, int fd,
                          int access) {
  Pd &pd = of(ibv);
  Adapter &adapter = pd.context_of.adapter;
  const Entry entry(adapter.world, Call::k_ibv_reg_dmabuf_mr);
  if (entry.error() != 0) return no_object(entry.error());
  if (!adapter.options.features.dmabuf) return no_object(EOPNOTSUPP);
  const int error = refusal(adapter, nullptr, size, static_cast<unsigned>(access));
  if (error != 0) return no_object(error);
  const size_t whole = offset + size;
  struct stat file = {};
  if (fstat(fd, &file) != 0) return nullptr;  // errno says why
  const auto within_page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) - 1;
  if (whole < size || whole > static_cast<size_t>(file.st_size)) return no_object(EINVAL);
  if (((offset ^ iova) & within_page) != 0) return no_object(EINVAL);
  void *mapping = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) return nullptr;  // errno says why
  auto region = std::make_unique<Mr>(pd);
  region->context = pd.context;
  region->pd = &pd;
  region->length = size;
  region->host = static_cast<uint8_t *>(mapping) + offset;
  region->iova = iova;
  region->access_flags = static_cast<unsigned>(access);
  region->mapping = mapping;
  region->mapping_size = whole;
  give_keys(adapter, *region);
  ++pd.users;
  ++adapter.regions;
  return region.release();
}

int ibv_rereg_mr(ibv_mr *ibv, int flags, ibv_pd *new_pd, void *memory, size_t size, int access) {
  Mr &region = of(ibv);
  Adapter &adapter = region.pd_of->context_of.adapter;
  const Entry entry(adapter.world, Call::k_ibv_rereg_mr);
  const auto refused = [](int error) {
    errno = error;
    return static_cast<int>(IBV_REREG_MR_ERR_INPUT);
  };
  if (entry.error() != 0) return refused(entry.error());
  if (!adapter.options.features.rereg) return refused(EOPNOTSUPP);
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return refused(EINVAL);
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const unsigned rights = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? static_cast<unsigned>(access)
                                                                    : region.access_flags;
  if (moves && memory == nullptr) return refused(EFAULT);
  const int error =
      refusal(adapter, moves ? memory : nullptr, moves ? size : region.length, rights);
  if (error != 0) return refused(error);
  region.access_flags = rights;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    --region.pd_of->users;
    region.pd_of = &of(new_pd);
    region.pd = new_pd;
    ++region.pd_of->users;
  }
  if (moves) {
    region.addr = memory;
    region.length = size;
    region.host = static_cast<uint8_t *>(memory);
    region.iova = reinterpret_cast<uintptr_t>(memory);
  }
  adapter.mrs.erase(region.lkey);
  adapter.mrs.erase(region.rkey);
  give_keys(adapter, region);
  return 0;
}

int ibv_dereg_mr(ibv_mr *ibv) {
  Mr &region = of(ibv);
  Adapter &adapter = region.pd_of->context_of.adapter;
  const Entry entry(adapter.world, Call::k_ibv_dereg_mr);
  if (entry.error() != 0) return entry.error();
  adapter.mrs.erase(region.lkey);
  adapter.mrs.erase(region.rkey);
  if (region.mapping != nullptr) munmap(region.mapping, region.mapping_size);
  --region.pd_of->users;
  --adapter.regions;
  delete &region;
  return 0;
}

}  // extern "C"
