// SPDX-License-Identifier: BSD-2-Clause
#include <sys/mman.h>
#include <unistd.h>
#include <weft/sdk/memory/persist.h>

#include <cstdint>

namespace weft::sdk {

bool make_persistent(const iovec &memory) {
  if (memory.iov_len == 0) return true;
  const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory.iov_base) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory.iov_base) + memory.iov_len;
  return msync(reinterpret_cast<void *>(begin), end - begin, MS_SYNC) == 0;
}

}  // namespace weft::sdk
