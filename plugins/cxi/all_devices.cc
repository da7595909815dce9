// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/all_devices.h"

#include <algorithm>

#include "plugins/cxi/libcxi/devices.h"

namespace weft::cxi {

Result<std::unique_ptr<AllDevices>> AllDevices::make(const Settings &settings) {
  std::unique_ptr<Devices> hardware, software;
  std::vector<std::string> notes;
  if (!settings.libcxi.empty()) {
    auto found = LibcxiDevices::make(settings.libcxi);
    // That there is none is no mistake, unless somebody names it.
    if (!found && settings.names_libcxi) return tl::unexpected(found.error());
    if (found) {
      notes = (*found)->refusals();
      if (!(*found)->list().empty()) hardware = std::move(*found);
    } else if (found.error().code != FI_ENODATA) {
      notes.push_back(found.error().text);
    }
  }
  if (settings.soft_for != Settings::SoftFor::kNobody &&
      (hardware == nullptr || !settings.soft_devices.empty())) {
    WEFT_TRY(software, SoftDevices::make(settings.soft_devices, settings.soft));
  }
  return std::make_unique<AllDevices>(std::move(hardware), std::move(software), std::move(notes));
}

std::vector<DeviceFacts> AllDevices::hardware() const {
  return hardware_ != nullptr ? hardware_->list() : std::vector<DeviceFacts>();
}

std::vector<DeviceFacts> AllDevices::list() const {
  std::vector<DeviceFacts> all;
  for (const Devices *const some : {hardware_.get(), software_.get()}) {
    if (some == nullptr) continue;
    for (DeviceFacts &one : some->list()) {
      const bool is_known = std::ranges::any_of(
          all, [&](const DeviceFacts &f) { return f.name == one.name || f.nid == one.nid; });
      if (!is_known) all.push_back(std::move(one));
    }
  }
  return all;
}

Result<std::shared_ptr<Device>> AllDevices::open(std::string_view name) {
  for (Devices *const some : {hardware_.get(), software_.get()}) {
    if (some == nullptr) continue;
    const std::vector<DeviceFacts> list = some->list();
    if (std::ranges::find(list, name, &DeviceFacts::name) != list.end()) return some->open(name);
  }
  return fail(FI_ENODEV, "cxi: there is no NIC %.*s: `fi_info -p cxi` lists them", int(name.size()),
              name.data());
}

Result<DeviceFacts> AllDevices::look_again(std::string_view name) const {
  for (const Devices *const some : {hardware_.get(), software_.get()}) {
    if (some == nullptr) continue;
    const std::vector<DeviceFacts> list = some->list();
    if (std::ranges::find(list, name, &DeviceFacts::name) != list.end())
      return some->look_again(name);
  }
  return Devices::look_again(name);
}

}  // namespace weft::cxi
