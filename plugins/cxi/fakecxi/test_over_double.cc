// SPDX-License-Identifier: BSD-2-Clause
// The tests of the NIC once more, over the backend for the hardware: commands and events go through
// rings of memory, the double reads them, and the engine of the test is behind it.
#include <memory>
#include <utility>
#include <vector>

#include "plugins/cxi/fakecxi/functions.h"
#include "plugins/cxi/fakecxi/world.h"
#include "plugins/cxi/libcxi/devices.h"
#include "plugins/cxi/soft/test_nic.h"

namespace weft::cxi {
namespace {

class HostDevice final : public Device {
 public:
  HostDevice(Host &host, const DeviceFacts &facts) : host_(host), facts_(facts) {}
  const DeviceFacts &facts() const override { return facts_; }
  std::vector<Service> services() const override {
    return {{.max_list_entries = facts_.max_list_entries, .max_triggered = facts_.max_triggered}};
  }
  Result<std::unique_ptr<Lni>> open_lni(uint32_t) override { return host_.engine.open(facts_.nid); }
  void poll() override {}
  void push() override {}
  uint64_t telemetry(Telemetry which) const override { return host_.counted[size_t(which)]; }
  int wait_fd() const override { return -1; }

 private:
  Host &host_;
  const DeviceFacts facts_;
};

class HostDevices final : public Devices {
 public:
  explicit HostDevices(Host &host) : host_(host) {
    for (Nid nid = 1; nid <= 9; ++nid)
      facts_.push_back({.name = "cxi" + std::to_string(nid),
                        .nid = nid,
                        .max_list_entries = host.limits[size_t(Resource::kListEntry)],
                        .max_triggered = host.limits[size_t(Resource::kTriggered)]});
  }
  std::vector<DeviceFacts> list() const override { return facts_; }
  Result<std::shared_ptr<Device>> open(std::string_view name) override {
    for (const DeviceFacts &facts : facts_)
      if (facts.name == name) return std::make_shared<HostDevice>(host_, facts);
    return fail(FI_ENODEV, "no such NIC");
  }

 private:
  Host &host_;
  std::vector<DeviceFacts> facts_;
};

Result<std::unique_ptr<Lni>> open_over_double(Host &host, Nid nid) {
  host.engine.set_request_form(packet_form());
  World::the().use(std::make_unique<HostDevices>(host));
  WEFT_TRY(std::unique_ptr<LibcxiDevices> devices,
           LibcxiDevices::make(std::make_shared<Library>(fake_functions())));
  WEFT_TRY(const std::shared_ptr<Device> device, devices->open("cxi" + std::to_string(nid)));
  return device->open_lni(Service::kDefault);
}

[[maybe_unused]] const bool is_chosen = [] {
  Host::opener = open_over_double;
  Host::is_soft = false;
  return true;
}();

}  // namespace
}  // namespace weft::cxi
