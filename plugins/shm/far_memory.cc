// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/shm/far_memory.h"

#include <weft/sdk/memory/iov.h>

#include <algorithm>
#include <cerrno>

namespace weft::shm {
namespace {

using Call = ssize_t (*)(pid_t, const iovec *, unsigned long, const iovec *, unsigned long,
                         unsigned long);

constexpr uint64_t kAtOnce = 1 << 30;  // bytes: a call copies no more than 2 GiB
constexpr size_t kMostOwn = 4 * sdk::kIovLimit;

// The part [offset, offset + n). In numbers: the other process's addresses are no pointers here.
size_t slice_far(const FarVector *far, size_t count, uint64_t offset, uint64_t n, iovec *out) {
  size_t made = 0;
  for (size_t i = 0; i < count && n != 0; ++i) {
    if (offset >= far[i].length) {
      offset -= far[i].length;
      continue;
    }
    const uint64_t k = std::min(n, far[i].length - offset);
    out[made++] = {reinterpret_cast<void *>(uintptr_t(far[i].address + offset)), size_t(k)};
    offset = 0;
    n -= k;
  }
  return made;
}

int copy(Call call, pid_t pid, const iovec *own, size_t own_count, const FarVector *far,
         size_t far_count, uint64_t n) {
  for (uint64_t done = 0; done < n;) {
    iovec here[kMostOwn], there[kMostVectors];
    const uint64_t part = std::min(n - done, kAtOnce);
    const size_t here_count = sdk::slice(own, own_count, done, part, here);
    const size_t there_count = slice_far(far, far_count, done, part, there);
    const ssize_t copied = call(pid, here, here_count, there, there_count, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) return errno;
    if (copied == 0) return EFAULT;
    done += uint64_t(copied);
  }
  return 0;
}

}  // namespace

int read_far(pid_t pid, const iovec *own, size_t own_count, const FarVector *far, size_t far_count,
             uint64_t n) {
  return copy(process_vm_readv, pid, own, own_count, far, far_count, n);
}

int write_far(pid_t pid, const iovec *own, size_t own_count, const FarVector *far, size_t far_count,
              uint64_t n) {
  return copy(process_vm_writev, pid, own, own_count, far, far_count, n);
}

}  // namespace weft::shm
