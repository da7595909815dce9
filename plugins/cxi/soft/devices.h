// SPDX-License-Identifier: BSD-2-Clause
// SoftDevices: the NICs in software that this host has: cxi0 and cxi1, or what the setting
// soft_devices names.
//
// Example:
//    inline Result<std::unique_ptr<SoftDevices>> two_nics() {
//      return SoftDevices::make({"cxi0=127.0.0.1", "cxi1=10.1.2.3"});
//    }
//
// A NIC is known by an IPv4 address of its host, whose low 20 bits are the NIC's address. All NICs
// of a process share one engine and its sockets, which come into being with the first one that is
// opened, and go with the last. A child after fork() has none of them: it opens its own.
#ifndef WEFT_PLUGINS_CXI_SOFT_DEVICES_H
#define WEFT_PLUGINS_CXI_SOFT_DEVICES_H

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/cxi/nic/device.h"
#include "plugins/cxi/soft/registry.h"

namespace weft::cxi {

class RequestForm;

struct SoftOptions {
  bool has_thread =
      true;  // progress.h; without it the NICs of a process that does not poll stand still
  RegistryLimits limits;
  int pcie_fadd = -1;                         // DeviceFacts::amo_remap_to_pcie_fadd
  const RequestForm *request_form = nullptr;  // null: the usual one
};

class SoftDevices final : public Devices {
 public:
  // Each as NAME=ADDRESS. None: cxi0=127.0.0.1 and cxi1=127.0.0.2.
  static Result<std::unique_ptr<SoftDevices>> make(const std::vector<std::string> &devices,
                                                   const SoftOptions &options = {});

  // ---- Devices ----
  std::vector<DeviceFacts> list() const override { return facts_; }
  Result<std::shared_ptr<Device>> open(std::string_view name) override;

 private:
  class SoftDevice;
  struct Process;
  SoftDevices(std::vector<DeviceFacts> facts, const SoftOptions &options)
      : facts_(std::move(facts)), options_(options) {}
  Result<std::shared_ptr<Process>> process();

  const std::vector<DeviceFacts> facts_;
  const SoftOptions options_;
  std::mutex mutex_;
  std::weak_ptr<Process> process_;
  pid_t process_id_ = -1;  // whose it is
};

}  // namespace weft::cxi

#endif
