// SPDX-License-Identifier: BSD-2-Clause
// DeviceMemory: what a domain with FI_HMEM knows of its buffers: whether they are a device's, and
// how the NIC reaches them. A domain without FI_HMEM has none, and asks nobody.
//
// Example:
//    // The bytes that go into a command, from wherever they are.
//    inline bool read(const DeviceMemory *devices, const void *from, size_t length, void *bytes) {
//      const auto place = devices != nullptr ? devices->find(from, length, nullptr) : sdk::HmemPlace{};
//      return sdk::hmem_copy(bytes, nullptr, from, place.or_null(), length);
//    }
//
// FI_MR_HMEM is not asked for (fi_cxi.7): any buffer may be a device's. A descriptor of a region
// that has the buffer says where it is; without one the driver of the device is asked, once for an
// operation. The NIC in software copies by way of the host's memory, a piece at a time. Not for
// memory that peers reach: region.h.
#ifndef WEFT_PLUGINS_CXI_DEVICE_MEMORY_H
#define WEFT_PLUGINS_CXI_DEVICE_MEMORY_H

#include <weft/sdk/memory/hmem.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "plugins/cxi/nic/nic.h"

namespace weft::cxi {

class Regions;

class DeviceMemory {
 public:
  // `registers_host`: buffers that are often copied from are registered with the device.
  DeviceMemory(std::shared_ptr<const sdk::Hmem> hmem, const Regions &regions, bool registers_host)
      : hmem_(std::move(hmem)), regions_(regions), registers_host_(registers_host) {}

  const sdk::Hmem &hmem() const { return *hmem_; }
  // With the domain's lock held. `desc` may be null, or anything: what is no region of this domain
  // is ignored (fi_mr.3).
  sdk::HmemPlace find(const void *address, size_t length, const void *desc) const;
  void register_host(void *address, size_t length) const {
    if (registers_host_) hmem_->register_host(address, length);
  }
  void unregister_host(void *address) const {
    if (registers_host_) hmem_->unregister_host(address);
  }

 private:
  const std::shared_ptr<const sdk::Hmem> hmem_;
  const Regions &regions_;
  const bool registers_host_;
};

}  // namespace weft::cxi

#endif
