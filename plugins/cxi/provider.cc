// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/provider.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "plugins/cxi/fabric.h"
#include "plugins/cxi/info.h"
#include "plugins/cxi/soft/devices.h"

namespace weft::cxi {
Result<std::unique_ptr<CxiProvider>> CxiProvider::create(const weft_instance *instance) {
  WEFT_TRY(Settings settings, settings_of(instance));
  WEFT_TRY(std::shared_ptr<Devices> devices,
           SoftDevices::make(settings.soft_devices, settings.soft));
  return std::make_unique<CxiProvider>(instance, std::move(settings), std::move(devices));
}

std::vector<DeviceFacts> CxiProvider::usable() const {
  std::vector<DeviceFacts> all = devices_->list();
  std::erase_if(all, [&](const DeviceFacts &facts) {
    if (facts.is_software && !settings_.is_soft) return true;
    const auto &names = settings_.device_names;
    return !names.empty() && std::ranges::find(names, facts.name) == names.end();
  });
  return all;
}

Result<sdk::InfoList> CxiProvider::getinfo(const sdk::GetinfoQuery &query) {
  const std::vector<DeviceFacts> devices = usable();
  if (devices.empty())
    return fail(
        FI_ENODATA,
        settings_.is_soft
            ? "cxi: no NIC is left by FI_CXI_DEVICE_NAME"
            : "cxi: there is no Slingshot card, and NICs in software are off (FI_CXI_SOFT)");
  WEFT_TRY(const AskedPlaces asked, asked_places(query, devices));
  sdk::InfoList list(instance_->core);
  for (const DeviceFacts &facts : devices) {
    if (!asked.device.empty() && facts.name != asked.device) continue;
    WEFT_CHECK(add_infos(list, facts, asked, query, settings_));
  }
  return list;
}

Result<fid_fabric *> CxiProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, devices_, attr, context);
}

Result<void> CxiProvider::explain(const sdk::LineSink &line) {
  for (const DeviceFacts &facts : usable())
    line("%s: NIC 0x%x, %s", facts.name.c_str(), facts.nid,
         facts.is_software ? "in software: for development, not for speed" : "Cassini");
  if (usable().empty()) line("no NIC: see FI_CXI_SOFT and FI_CXI_DEVICE_NAME");
  return {};
}

}  // namespace weft::cxi
