// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/provider.h"

#include <weft/sdk/unit/log.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "plugins/cxi/all_devices.h"
#include "plugins/cxi/fabric.h"
#include "plugins/cxi/info.h"
#include "plugins/cxi/nic_attr.h"
#include "plugins/cxi/soft/network.h"

namespace weft::cxi {
Result<std::unique_ptr<CxiProvider>> CxiProvider::create(const weft_instance *instance) {
  WEFT_TRY(Settings settings, settings_of(instance));
  WEFT_TRY(std::shared_ptr<AllDevices> devices, AllDevices::make(settings));
  return std::make_unique<CxiProvider>(instance, std::move(settings), std::move(devices));
}

std::vector<DeviceFacts> CxiProvider::usable(bool is_named) const {
  using SoftFor = Settings::SoftFor;
  const bool with_software =
      settings_.soft_for == SoftFor::kAll || (settings_.soft_for == SoftFor::kNamers && is_named);
  std::vector<DeviceFacts> all = with_software ? devices_->list() : devices_->hardware();
  std::erase_if(all, [&](const DeviceFacts &facts) {
    const auto &names = settings_.device_names;
    return !names.empty() && std::ranges::find(names, facts.name) == names.end();
  });
  return all;
}

// A NIC in software is not what a program wants that asks for the fastest, and a site's file may
// leave it nothing else.
Error CxiProvider::nothing_for(bool is_named) const {
  if (settings_.soft_for == Settings::SoftFor::kNobody)
    return {FI_ENODATA,
            "cxi: there is no Slingshot card, and NICs in software are off (FI_CXI_SOFT)"};
  if (settings_.soft_for == Settings::SoftFor::kNamers && !is_named)
    return {FI_ENODATA,
            "cxi: there is no Slingshot card, and hints.fabric_attr.prov_name does not ask for a "
            "NIC in software: name cxi there, in FI_PROVIDER or in a stack, or set its parameter "
            "soft to yes"};
  if (const auto problem = devices_->problem(); !problem) return problem.error();
  return {FI_ENODEV, "cxi: no NIC is left by FI_CXI_DEVICE_NAME"};
}

// A key must be good for the NIC. Without one, NICs that a launcher has not given us are left out;
// what it has said in other words than we know is told when a domain is opened.
Result<void> CxiProvider::check_key(const std::string &nic,
                                    const std::optional<AuthKey> &key) const {
  if (key) {
    WEFT_TRY(const std::shared_ptr<Device> device, devices_->open(nic));
    return check_auth_key(*key, nic, device->services(), User::own());
  }
  const Launcher launcher = Launcher::of_environment();
  const auto given = launcher.key_for(nic);
  if (!launcher.is_there() || !given || *given) return {};
  return fail(FI_ENODATA, "cxi: SLINGSHOT_DEVICES is \"%s\", without %s", launcher.devices,
              nic.c_str());
}

Result<sdk::InfoList> CxiProvider::getinfo(const sdk::GetinfoQuery &query) {
  const bool is_named = (query.flags & WEFT_GETINFO_NAMED) != 0;
  const std::vector<DeviceFacts> devices = usable(is_named);
  if (devices.empty()) return tl::unexpected(nothing_for(is_named));
  WEFT_CHECK(check_compat(query.hints, settings_));
  WEFT_TRY(const AskedPlaces asked, asked_places(query, devices));
  const bool has_hmem = query.hints != nullptr && (query.hints->caps & FI_HMEM) != 0;
  if (has_hmem) WEFT_CHECK(hmem_->open());
  sdk::InfoList list(instance_->core);
  std::optional<Error> locked;  // why the first NIC that was asked for is left out
  for (const DeviceFacts &facts : devices) {
    if (!asked.device.empty() && facts.name != asked.device) continue;
    if (has_hmem && !facts.is_software) {
      locked = Error{FI_ENODATA, "cxi: FI_HMEM is there with NICs in software only"};
      continue;
    }
    const auto open = check_key(facts.name, asked.key);
    if (!open) {
      if (!locked) locked = open.error();
      continue;
    }
    WEFT_CHECK(add_infos(list, facts, asked, query, settings_));
    for (fi_info *info = list.front(); info != nullptr; info = info->next)
      if (info->nic == nullptr) WEFT_CHECK(put_nic(*info, facts, devices_, settings_.default_vni));
  }
  if (list.empty() && locked) return tl::unexpected(*locked);
  return list;
}

Result<fid_fabric *> CxiProvider::fabric(const fi_fabric_attr &attr, void *context) {
  return Fabric::open(instance_, settings_, attr, context, devices_, hmem_);
}

Result<void> CxiProvider::explain(const sdk::LineSink &line) {
  const std::vector<DeviceFacts> devices = usable(true);
  for (const DeviceFacts &facts : devices) {
    line("%s: NIC 0x%x, %s", facts.name.c_str(), facts.nid,
         !facts.is_software ? "Cassini"
         : settings_.soft_for == Settings::SoftFor::kAll
             ? "in software: for development, not for speed"
             : "in software: for who names cxi");
    if (facts.is_software && facts.network_address == 0)
      line("%s: within this host; FI_CXI_SOFT_DEVICES=%s=INTERFACE reaches others",
           facts.name.c_str(), facts.name.c_str());
    if (facts.network_address != 0)
      line("%s: listens for other hosts at %s, port %u, and one more", facts.name.c_str(),
           text_of_address(facts.network_address).c_str(), settings_.soft.hosts.port);
  }
  for (const std::string &note : devices_->notes()) line("%s", note.c_str());
  if (devices.empty()) line("%s", nothing_for(true).text.c_str());
  return {};
}

}  // namespace weft::cxi
