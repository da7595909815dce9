// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/device_memory.h"

#include "plugins/cxi/region.h"

namespace weft::cxi {

// What has failed may be there later.
Result<std::shared_ptr<const sdk::Hmem>> HmemSource::open() {
  const std::lock_guard guard(mutex_);
  if (hmem_ == nullptr) {
    WEFT_TRY(hmem_, sdk::Hmem::open(options_));
  }
  return hmem_;
}

sdk::HmemPlace DeviceMemory::find(const void *address, size_t length, const void *desc) const {
  if (length == 0) return {};
  if (desc != nullptr)
    if (const auto known = regions_.place_of(desc, address, length)) return *known;
  return hmem_->find(address, length);
}

}  // namespace weft::cxi
