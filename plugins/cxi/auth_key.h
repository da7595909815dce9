// SPDX-License-Identifier: BSD-2-Clause
// AuthKey: the service of a NIC and the VNI that a domain uses. An application gives it
// (struct cxi_auth_key), or it is found: in the variables of a launcher, or among the services.
//
// Example:
//    // The key of a domain on `device`.
//    inline Result<AuthKey> key_for(const fi_info &info, const Device &device, uint32_t version) {
//      WEFT_TRY(const auto given, auth_key_of(info, version));
//      if (given) return *given;
//      return find_auth_key(device.facts().name, device.services(), User::own(),
//                           Launcher::of_environment(), 10);
//    }
//
// Not for who may use a service: nic/service.h.
#ifndef WEFT_PLUGINS_CXI_AUTH_KEY_H
#define WEFT_PLUGINS_CXI_AUTH_KEY_H

#include <rdma/fabric.h>
#include <weft/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cxi/nic/service.h"

namespace weft::cxi {

inline constexpr size_t kAuthKeySize = 8;  // of struct cxi_auth_key

struct AuthKey {
  uint32_t service = 0;
  Vni vni = 0;
  bool operator==(const AuthKey &) const = default;
};

// What an attribute has. `owner` ("domain_attr") is for the words of FI_EINVAL.
Result<std::optional<AuthKey>> auth_key_of(const char *owner, const uint8_t *key, size_t size);
// Whether the domain's address vectors are to have keys (FI_AV_AUTH_KEY): then the domain and its
// endpoints have none of their own.
bool has_vector_keys(const fi_info &info, uint32_t api_version);
// Of a domain's attribute or the endpoint's. If both have one they must agree.
Result<std::optional<AuthKey>> auth_key_of(const fi_info &info, uint32_t api_version);
Result<void> put_auth_key(fi_info &info, const AuthKey &key);  // into the domain's attribute

// SLINGSHOT_VNIS, SLINGSHOT_DEVICES, SLINGSHOT_SVC_IDS; null where one is not set.
struct Launcher {
  const char *vnis = nullptr, *devices = nullptr, *services = nullptr;

  static Launcher of_environment();
  bool is_there() const;  // one of them is set
  // The key for a NIC; none: the launcher has not given us this NIC. FI_EINVAL: what they say
  // cannot be read.
  Result<std::optional<AuthKey>> key_for(const std::string &nic) const;
};

// For who gives no key, as fi_cxi.7 says: the launcher's; else the newest service for this user,
// for one of its groups, for everybody. Of a service's VNIs it is `default_vni`, or else the first.
Result<AuthKey> find_auth_key(const std::string &nic, const std::vector<Service> &services,
                              const User &user, const Launcher &launcher, Vni default_vni);

// Whether `user` may use it. FI_EINVAL, FI_EPERM.
Result<void> check_auth_key(const AuthKey &key, const std::string &nic,
                            const std::vector<Service> &services, const User &user);

}  // namespace weft::cxi

#endif
