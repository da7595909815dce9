// SPDX-License-Identifier: BSD-2-Clause
// The devices that librdmacm has opened in this process, and what is known of each.
//
// Example:
//    // The device of a domain, by the name in its fi_info.
//    inline Result<Device> device_of(Devices &devices, const fi_info &info) {
//      if (auto device = devices.find(info.domain_attr->name)) return *std::move(device);
//      return fail(FI_ENODEV, "%s is gone", info.domain_attr->name);
//    }
//
// librdmacm opens each device once, and its identifiers name that context; so everything else is
// made on it, too. A context stays open as long as the Devices, even if the device is gone. Not for
// the fi_info: facts.h.
#ifndef WEFT_PLUGINS_VERBS_DEVICE_H
#define WEFT_PLUGINS_VERBS_DEVICE_H

#include <infiniband/verbs.h>
#include <weft/result.h>
#include <weft/sdk/devices/memory_monitor.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "plugins/verbs/facts.h"

namespace weft::verbs {

struct Device {
  ibv_context *verbs;
  DeviceFacts facts;
};

class Devices {
 public:
  explicit Devices(const Sizes &sizes) : sizes_(sizes) {}
  ~Devices();
  Devices(const Devices &) = delete;
  Devices &operator=(const Devices &) = delete;

  // Reads what may have changed: the list, ports and addresses. The rest is read once. A device
  // that is gone or cannot be asked is left out, with the reason in `left_out`.
  Result<void> refresh();
  // Copies of what there is: another thread may refresh.
  std::vector<DeviceFacts> facts();
  std::vector<std::string> left_out();
  std::optional<Device> find(std::string_view name);
  std::optional<Device> find(const ibv_context *verbs);

  // For caches of registrations: memory has one userfaultfd, so all domains have one monitor.
  Result<std::shared_ptr<sdk::MemoryMonitor>> memory_monitor();

 private:
  struct Known : Device {
    bool present = false;
  };
  // `added`: it was not known before.
  Result<void> add(ibv_context *verbs, bool &added);
  template <class Is>
  std::optional<Device> find_if(Is is);

  const Sizes sizes_;
  std::mutex mutex_;
  std::vector<ibv_context **> lists_;  // of librdmacm: they keep the contexts open
  std::vector<Known> devices_;
  std::vector<std::string> left_out_;
  std::weak_ptr<sdk::MemoryMonitor> monitor_;
};

// The entries of the tables of GIDs of all its ports.
Result<std::vector<ibv_gid_entry>> read_gids(ibv_context *verbs);

// Which device and which local address lead to `dest`: asks the kernel, for at most
// `timeout_ms`. `source` may be none.
struct Route {
  const ibv_context *verbs;
  sdk::Address source;
};
Result<Route> find_route(const sdk::Address &source, const sdk::Address &dest, int timeout_ms);

}  // namespace weft::verbs

#endif
