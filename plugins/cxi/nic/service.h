// SPDX-License-Identifier: BSD-2-Clause
// What a Service allows, and whom.
//
// Example:
//    // Why the user of this process may not send as `profile` says, by the service `id`.
//    inline Result<void> may_send(const Device &device, uint32_t id, const Profile &profile) {
//      const std::string &nic = device.facts().name;
//      WEFT_TRY(const Service service, usable_service(device.services(), id, User::own(), nic));
//      return check_profile(service, profile);
//    }
//
// Not for where services are kept: that is the Device's business.
#ifndef WEFT_PLUGINS_CXI_NIC_SERVICE_H
#define WEFT_PLUGINS_CXI_NIC_SERVICE_H

#include <weft/result.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cxi/nic/device.h"

namespace weft::cxi {

inline constexpr size_t kMaxServiceMembers = 2,
                        kMaxServiceVnis = 4;  // of a service, as the driver has it
inline constexpr unsigned kTrafficClasses = 4;

struct User {
  uint32_t id = 0;
  std::vector<uint32_t> groups;  // the effective one first

  static User own();
  bool is_in(uint32_t group) const;
};

// The service, if it is there, enabled, and `user` may use it. FI_EINVAL, FI_EPERM. `nic` is for
// the words.
Result<Service> usable_service(const std::vector<Service> &services, uint32_t id, const User &user,
                               const std::string &nic);
bool is_member(const Service &service, const User &user);

bool allows(const Service &service, Vni vni);
bool allows(const Service &service, TrafficClass traffic);
Result<void> check_profile(const Service &service, const Profile &profile);  // FI_EINVAL
Result<void> check_vni(const Service &service, Vni vni);

// Whether a service can be made like that: FI_EINVAL with the reason.
Result<void> check_new(const Service &service);

std::string text_of(const std::vector<Service::Vnis> &vnis);  // "10, 100-200"
const char *name_of(TrafficClass traffic);                    // "best_effort"

}  // namespace weft::cxi

#endif
