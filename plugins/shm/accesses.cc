// SPDX-License-Identifier: BSD-2-Clause
// The memory of an endpoint's domain, as its peers name it.
#include <weft/sdk/unit/sparse_log.h>

#include <algorithm>

#include "plugins/shm/endpoint.h"

namespace weft::shm {

ssize_t Endpoint::resolve(const Region *regions, size_t count, uint64_t access, uint64_t offset,
                          uint64_t n, iovec *iov, size_t room) {
  Region parts[kMostVectors];
  const size_t part_count = slice_regions(regions, count, offset, n, parts);
  size_t made = 0;
  for (size_t i = 0; i < part_count; ++i) {
    const sdk::MrTable::Access found =
        shm_domain_.regions().resolve(parts[i].key, parts[i].address, parts[i].length, access,
                                      iov + made, room - made, {.endpoint = number()});
    if (found.mr == nullptr) {
      counters().rma_rejected.add();
      WEFT_INFO_SPARSE(instance(), FI_LOG_EP_DATA, "an access of a peer is refused: %s",
                       sdk::text_of(found.reject));
      return -FI_EACCES;
    }
    made += found.count;
  }
  return ssize_t(made);
}

void Endpoint::count_access(const Region *regions, size_t count, uint64_t access) {
  for (size_t i = 0; i < count; ++i) {
    iovec ignored[sdk::kIovLimit];
    const sdk::MrTable::Access found =
        shm_domain_.regions().resolve(regions[i].key, regions[i].address, regions[i].length, access,
                                      ignored, sdk::kIovLimit, {.endpoint = number()});
    if (found.mr != nullptr) found.mr->count_remote(access, regions[i].length);
  }
}

}  // namespace weft::shm
