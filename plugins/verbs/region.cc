// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/verbs/region.h"

#include <weft/sdk/eq.h>
#include <weft/sdk/ops.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "plugins/verbs/domain.h"
#include "plugins/verbs/fabric.h"

namespace weft::verbs {
namespace {

Result<ibv_mr *> register_dmabuf(Domain &domain, const fi_mr_attr &attr, int access) {
  const fi_mr_dmabuf &buffer = *attr.dmabuf;
  const uint64_t address = reinterpret_cast<uintptr_t>(buffer.base_addr) + buffer.offset;
  ibv_mr *const mr =
      ibv_reg_dmabuf_mr(domain.pd(), buffer.offset, buffer.len, address, buffer.fd, access);
  if (mr != nullptr) return mr;
  const int error = errno;
  return fail(error, "memory registration: ibv_reg_dmabuf_mr of %zu bytes on %s: %s%s", buffer.len,
              domain.device().facts.name.c_str(), strerror(error),
              error == EOPNOTSUPP ? ": the device has no dma-buf" : "");
}

Result<ibv_mr *> register_memory(Domain &domain, const fi_mr_attr &attr, int access) {
  const iovec &memory = attr.mr_iov[0];
  ibv_mr *const mr = ibv_reg_mr(domain.pd(), memory.iov_base, memory.iov_len, access);
  if (mr != nullptr) return mr;
  const int error = errno;
  return fail(error, "memory registration: ibv_reg_mr of %zu bytes at %p on %s: %s%s",
              memory.iov_len, memory.iov_base, domain.device().facts.name.c_str(), strerror(error),
              error == ENOMEM ? ": see `ulimit -l`" : "");
}

}  // namespace

int device_access(uint64_t access, bool iwarp, bool atomics) {
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

Region::Region(Domain &domain, ibv_mr *mr, void *context)
    : Object(domain.instance(), FI_CLASS_MR, context),
      local_key_(mr->lkey),
      domain_(domain),
      mr_(mr) {
  c()->fid.ops = const_cast<fi_ops *>(sdk::fid_ops<Region>());
  c()->mem_desc = this;
  c()->key = mr->rkey;
}

Result<Region *> Region::open(Domain &domain, const fi_mr_attr &attr, uint64_t flags) {
  WEFT_CHECK(sdk::check_registration(attr, flags, {.flags = FI_MR_DMABUF}));
  const DeviceFacts &facts = domain.device().facts;
  const int access =
      device_access(attr.access, facts.transport == Transport::kIwarp, facts.has_atomics);
  WEFT_TRY(ibv_mr *const mr, flags &FI_MR_DMABUF ? register_dmabuf(domain, attr, access)
                                                 : register_memory(domain, attr, access));
  auto *const region = new (std::nothrow) Region(domain, mr, attr.context);
  if (region == nullptr) {
    ibv_dereg_mr(mr);
    return fail(FI_ENOMEM, "no memory for a memory region");
  }
  if (auto published = region->publish(domain.base()); !published) {
    ibv_dereg_mr(mr);
    delete region;
    return tl::unexpected(published.error());
  }
  domain.shared().children.fetch_add(1);
  domain.fabric().counters().registrations.add();
  return region;
}

int Region::close() {
  if (const int error = ibv_dereg_mr(mr_); error != 0) return -error;
  retire();
  if (sdk::Eq *const eq = domain_.memory().eq) eq->forget(base());
  domain_.shared().children.fetch_sub(1);
  delete this;
  return 0;
}

// Regions belong to the domain, and no counter is told of accesses (fi_verbs.7).
int Region::bind(struct fid *fid, uint64_t) {
  if (fid == nullptr) return -FI_EINVAL;
  return fid->fclass == FI_CLASS_EP ? 0 : -FI_EOPNOTSUPP;
}

int Region::control(int command, void *) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

}  // namespace weft::verbs
