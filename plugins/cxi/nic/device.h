// SPDX-License-Identifier: BSD-2-Clause
// Device: a NIC of this host, before a process has anything of it. Devices: all of them.
//
// Example:
//    // What a process has of a NIC, by the service that anybody may use.
//    inline Result<std::unique_ptr<Lni>> open_by_name(Devices &devices, std::string_view name) {
//      WEFT_TRY(const std::shared_ptr<Device> device, devices.open(name));
//      return device->open_lni(Service::kDefault);  // the device outlives it
//    }
//
// A NIC in software moves bytes only when somebody polls it; hardware needs nobody. All calls are
// thread-safe. Not for what a process does with a NIC: nic.h.
#ifndef WEFT_PLUGINS_CXI_NIC_DEVICE_H
#define WEFT_PLUGINS_CXI_NIC_DEVICE_H

#include <weft/result.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/cxi/nic/nic.h"
#include "plugins/cxi/nic/telemetry.h"

namespace weft::cxi {

struct DeviceFacts {
  std::string name;  // "cxi0"
  Nid nid = 0;
  bool is_software = false;
  bool link_up = true;
  bool counts_successes_alone = false;  // Transfer::counts_failures may be false
  // ---- of software ----
  uint32_t ip = 0;               // the IPv4 address that it is known by
  uint32_t network_address = 0;  // the same, if other hosts reach it there; 0: none does
  uint16_t host = 0;             // the mark of this host in its addresses (soft/host.h)
  // ---- of all ----
  uint64_t speed = 0;           // bits per second
  size_t mtu = 0;               // bytes
  size_t max_list_entries = 0;  // of the pool that all processes share
  size_t max_triggered = 0;
  struct Bus {
    uint16_t domain = 0;
    uint8_t bus = 0, device = 0, function = 0;
  };
  std::optional<Bus> bus;             // of hardware
  unsigned vendor = 0, revision = 0;  // 0: it has none
  int amo_remap_to_pcie_fadd =
      -1;  // the AmoOp that a PCIe fetch-and-add replaces; -1: there is none
};

// What part of a NIC somebody may use. A launcher makes one for a job.
struct Service {
  static constexpr uint32_t kDefault = 1;  // which every NIC has
  struct Member {
    bool is_group = false;
    uint32_t id = 0;  // of a user or a group
  };
  struct Vnis {
    Vni first = 0, last = 0;
  };
  uint32_t id = kDefault;
  bool is_enabled = true;
  std::vector<Member> members;        // who may use it; none: everybody
  std::vector<Vnis> vnis;             // none: all
  std::vector<TrafficClass> classes;  // none: all
  size_t max_list_entries = 0, max_triggered = 0;
};

// What living processes have by a service.
struct ServiceUse {
  struct Process {
    uint32_t id = 0;
    size_t list_entries = 0, triggered = 0;
  };
  std::vector<Process> processes;
  size_t list_entries = 0, triggered = 0;  // of all of them together
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceFacts &facts() const = 0;
  virtual std::vector<Service> services() const = 0;
  // FI_EINVAL: there is no such service, or it is not enabled. FI_EPERM: we are no member.
  virtual Result<std::unique_ptr<Lni>> open_lni(uint32_t service) = 0;
  // Whether a peer may be spoken to. `host`: the mark of the host that has made its address; 0: it
  // has none. FI_EHOSTUNREACH: it is beyond reach; FI_EADDRINUSE: it cannot be told from one of
  // ours.
  virtual Result<void> check_peer(Nid, uint16_t host) const {
    (void)host;
    return {};
  }
  // Moves on what this process and its peers have under way, without blocking.
  virtual void poll() = 0;
  // What this process has posted leaves, if the NIC does not do that by itself.
  virtual void push() = 0;
  // The same for acknowledgements that wait for the next poll(): nobody polls for a while.
  virtual void settle() {}
  // As the NIC has it now, for all processes.
  virtual uint64_t telemetry(Telemetry which) const = 0;
  // Readable when poll() has something to do; -1: never.
  virtual int wait_fd() const = 0;

  // ---- for launchers and for who looks after the host ----
  // Of one service, or with 0 of all together.
  virtual Result<ServiceUse> usage(uint32_t service) const {
    return managed_elsewhere("who uses service", service);
  }
  // The id of a new service. That of `service` does not matter.
  virtual Result<uint32_t> create_service(const Service &service) {
    return managed_elsewhere("a new service beside", service.id);
  }
  virtual Result<void> enable_service(uint32_t service, bool) {
    return managed_elsewhere("the state of service", service);
  }
  // FI_EBUSY: a living process uses it.
  virtual Result<void> destroy_service(uint32_t service) {
    return managed_elsewhere("the end of service", service);
  }

 private:
  tl::unexpected<Error> managed_elsewhere(const char *what, uint32_t service) const {
    return fail(FI_EOPNOTSUPP, "cxi: %s %u of %s is a matter of the NIC's driver: use cxi_service",
                what, service, facts().name.c_str());
  }
};

class Devices {
 public:
  virtual ~Devices() = default;
  virtual std::vector<DeviceFacts> list() const = 0;
  virtual Result<std::shared_ptr<Device>> open(std::string_view name) = 0;
  // Why there are none that there should be.
  virtual Result<void> problem() const { return {}; }
  // What is known of it now: its link may have changed. FI_ENODEV: it is gone.
  virtual Result<DeviceFacts> look_again(std::string_view name) const {
    for (DeviceFacts &facts : list())
      if (facts.name == name) return std::move(facts);
    return fail(FI_ENODEV, "cxi: there is no NIC %.*s any more", int(name.size()), name.data());
  }
};

}  // namespace weft::cxi

#endif
