// SPDX-License-Identifier: BSD-2-Clause
// The devices that librdmacm has opened in this process, and what is known of each.
//
// Example:
//    // The device of a domain, by the name in its fi_info.
//    inline Result<Device *> device_of(Devices &devices, const fi_info &info) {
//      if (Device *const device = devices.find(info.domain_attr->name)) return device;
//      return fail(FI_ENODEV, "%s is gone", info.domain_attr->name);
//    }
//
// librdmacm opens each device once, and its identifiers name that context; so everything else is
// made on it, too. Contexts stay open for the life of the process. Not for the fi_info: facts.h.
#ifndef WEFT_PLUGINS_VERBS_DEVICE_H
#define WEFT_PLUGINS_VERBS_DEVICE_H

#include <infiniband/verbs.h>
#include <weft/result.h>

#include <memory>
#include <mutex>
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
  // that cannot be asked is left out, with the reason in `left_out`.
  Result<void> refresh();
  // Copies: another thread may refresh.
  std::vector<DeviceFacts> facts();
  std::vector<std::string> left_out();
  // Null: there is none of this name. It stays where it is as long as this object.
  Device *find(std::string_view name);
  Device *find(const ibv_context *verbs);

 private:
  Result<void> add(ibv_context *verbs);

  const Sizes sizes_;
  std::mutex mutex_;
  ibv_context **list_ = nullptr;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::string> left_out_;
};

// Which device and which local address lead to `dest`: asks the kernel, for at most
// `timeout_ms`. `source` may be unspecified.
struct Route {
  const ibv_context *verbs;
  sdk::SockAddr source;
};
Result<Route> find_route(const sdk::SockAddr &source, const sdk::SockAddr &dest, int timeout_ms);

}  // namespace weft::verbs

#endif
