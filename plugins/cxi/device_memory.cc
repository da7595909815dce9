// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/device_memory.h"

#include "plugins/cxi/region.h"

namespace weft::cxi {

sdk::HmemPlace DeviceMemory::find(const void *address, size_t length, const void *desc) const {
  if (length == 0) return {};
  if (desc != nullptr)
    if (const auto known = regions_.place_of(desc, address, length)) return *known;
  return hmem_->find(address, length);
}

}  // namespace weft::cxi
