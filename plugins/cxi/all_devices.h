// SPDX-License-Identifier: BSD-2-Clause
// AllDevices: the NICs that the provider offers: those of the hardware, and those in software.
//
// Example:
//    inline Result<std::unique_ptr<Devices>> software_alone() {
//      WEFT_TRY(std::unique_ptr<SoftDevices> soft, SoftDevices::make({}));
//      return std::make_unique<AllDevices>(nullptr, std::move(soft));
//    }
//
// The name and the address of a NIC are those of the first that has them. Not for which of them an
// application may have: provider.cc.
#ifndef WEFT_PLUGINS_CXI_ALL_DEVICES_H
#define WEFT_PLUGINS_CXI_ALL_DEVICES_H

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/settings.h"

namespace weft::cxi {

class AllDevices final : public Devices {
 public:
  // Either may be null.
  AllDevices(std::unique_ptr<Devices> hardware, std::unique_ptr<Devices> software,
             std::vector<std::string> notes = {})
      : hardware_(std::move(hardware)), software_(std::move(software)), notes_(std::move(notes)) {}
  // Those in software are for hosts without a card, unless the settings name them.
  static Result<std::unique_ptr<AllDevices>> make(const Settings &settings);

  // What was found and is not used, one line each.
  const std::vector<std::string> &notes() const { return notes_; }

  // Those of the library alone. Nothing is looked up for the others.
  std::vector<DeviceFacts> hardware() const;

  // ---- Devices ----
  std::vector<DeviceFacts> list() const override;
  Result<void> problem() const override {
    return software_ != nullptr ? software_->problem() : Result<void>();
  }
  Result<std::shared_ptr<Device>> open(std::string_view name) override;
  Result<DeviceFacts> look_again(std::string_view name) const override;

 private:
  const std::unique_ptr<Devices> hardware_, software_;
  const std::vector<std::string> notes_;
};

}  // namespace weft::cxi

#endif
