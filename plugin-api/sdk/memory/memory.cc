// SPDX-License-Identifier: BSD-2-Clause
#include <rdma/fi_errno.h>
#include <sys/uio.h>
#include <weft/sdk/memory/memory.h>

#include <limits>

namespace weft::sdk {

Result<void> check_registration(const fi_mr_attr &attr, uint64_t flags,
                                const RegistrationLimits &limits) {
  constexpr uint64_t kAccess =
      FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_COLLECTIVE;
  if (flags & ~limits.flags)
    return fail(FI_EBADFLAGS, "memory registration: flags %#llx are not supported",
                (unsigned long long)(flags & ~limits.flags));
  if (attr.iov_count == 0 || attr.mr_iov == nullptr || attr.iov_count > limits.iov_limit)
    return fail(FI_EINVAL,
                "memory registration: %zu buffers; 1 to %zu (domain_attr.mr_iov_limit) are allowed",
                attr.iov_count, limits.iov_limit);
  if (attr.access & ~kAccess)
    return fail(FI_EINVAL, "memory registration: access %#llx has unknown bits",
                (unsigned long long)attr.access);
  if (attr.offset != 0)
    return fail(FI_EINVAL, "memory registration: offset is reserved and must be 0");
  if (flags & FI_MR_DMABUF) return {};  // its buffers are not in the address space
  uint64_t length = 0;
  for (size_t i = 0; i < attr.iov_count; ++i) {
    const uintptr_t base = reinterpret_cast<uintptr_t>(attr.mr_iov[i].iov_base);
    if (__builtin_add_overflow(length, attr.mr_iov[i].iov_len, &length) ||
        attr.mr_iov[i].iov_len > std::numeric_limits<uintptr_t>::max() - base)
      return fail(FI_EINVAL,
                  "memory registration: buffer %zu runs past the end of the address space", i);
  }
  return {};
}

}  // namespace weft::sdk
