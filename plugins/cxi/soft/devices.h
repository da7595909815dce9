// SPDX-License-Identifier: BSD-2-Clause
// SoftDevices: the NICs in software that this host has: cxi0 and cxi1, or what the setting
// soft_devices names.
//
// Example:
//    inline Result<std::unique_ptr<SoftDevices>> three_nics() {
//      return SoftDevices::make({"cxi0=127.0.0.1", "cxi1=10.1.2.3", "cxi2=eth*"});
//    }
//
// A NIC is known by an IPv4 address of its host. One that is not in 127.0.0.0/8 listens there, and
// reaches the NICs of other hosts (hosts.h); its own address are the low 20 bits. One of
// 127.0.0.0/8 is for this host alone, and its address is made of what tells hosts apart (host.h).
// What host this is, and which address an interface has, is found out with the first look at the
// NICs.
//
// All NICs of a process share one engine and its sockets, which come into being with the first Lni,
// and go with the last device. A child after fork() has none of them: it opens its own.
#ifndef WEFT_PLUGINS_CXI_SOFT_DEVICES_H
#define WEFT_PLUGINS_CXI_SOFT_DEVICES_H

#include <memory>
#include <string>
#include <vector>

#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/soft/hosts.h"
#include "plugins/cxi/soft/registry.h"

namespace weft::cxi {

class RequestForm;

struct SoftOptions {
  bool has_thread =
      true;  // progress.h; without it the NICs of a process that does not poll stand still
  RegistryLimits limits;
  int pcie_fadd = -1;  // DeviceFacts::amo_remap_to_pcie_fadd
  HostsOptions hosts;
  const RequestForm *request_form = nullptr;  // null: the usual one
};

class SoftDevices final : public Devices {
 public:
  // Each as NAME=ADDRESS, or with an interface or a network of this host in place of the address
  // (weft/sdk/ip/interfaces.h). None: cxi0=127.0.0.1 and cxi1=127.0.0.2.
  static Result<std::unique_ptr<SoftDevices>> make(const std::vector<std::string> &devices,
                                                   const SoftOptions &options = {});

  // ---- Devices ----
  std::vector<DeviceFacts> list() const override;
  Result<std::shared_ptr<Device>> open(std::string_view name) override;
  Result<void> problem() const override;

 private:
  class SoftDevice;
  struct Process;
  class Lifetime;
  class Shared;   // with the devices that were opened
  struct Named {  // a word of the setting
    std::string name, place;
  };
  SoftDevices(std::vector<Named> named, const SoftOptions &options);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace weft::cxi

#endif
