// SPDX-License-Identifier: BSD-2-Clause
// LibcxiDevices: the Cassinis of this host, by libcxi.
//
// Example:
//    // The names of the NICs, if there is a library, and it sees any.
//    inline std::vector<std::string> names_of_cassinis(const std::string &library) {
//      std::vector<std::string> names;
//      const auto devices = LibcxiDevices::make(library);
//      if (!devices) return names;
//      for (const DeviceFacts &facts : (*devices)->list()) names.push_back(facts.name);
//      return names;
//    }
//
// They are listed once: a NIC that comes later is there for the next process. Not for NICs in
// software: soft/devices.h.
#ifndef WEFT_PLUGINS_CXI_LIBCXI_DEVICES_H
#define WEFT_PLUGINS_CXI_LIBCXI_DEVICES_H

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cxi/libcxi/library.h"
#include "plugins/cxi/nic/device.h"

namespace weft::cxi {

class LibcxiDevices final : public Devices {
 public:
  // FI_ENODATA: there is no library, or it lists no device.
  static Result<std::unique_ptr<LibcxiDevices>> make(const std::string &library);
  static Result<std::unique_ptr<LibcxiDevices>> make(std::shared_ptr<const Library> library);

  // Why a device that the library lists cannot be used, one line each.
  const std::vector<std::string> &refusals() const { return refusals_; }
  const std::string &library_file() const { return library_->file(); }

  // ---- Devices ----
  std::vector<DeviceFacts> list() const override;
  Result<std::shared_ptr<Device>> open(std::string_view name) override;
  Result<DeviceFacts> look_again(std::string_view name) const override;

 private:
  struct Known {
    DeviceFacts facts;
    uint32_t number;
    unsigned min_free_shift;
  };
  explicit LibcxiDevices(std::shared_ptr<const Library> library) : library_(std::move(library)) {}
  void take(const abi::DeviceInfo &info);

  const std::shared_ptr<const Library> library_;
  std::vector<Known> known_;
  std::vector<std::string> refusals_;
};

}  // namespace weft::cxi

#endif
