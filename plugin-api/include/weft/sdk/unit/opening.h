// SPDX-License-Identifier: BSD-2-Clause
// check_opening: whether an object may be opened with what an application passes, which may have
// changed an fi_info since fi_getinfo gave it. The core decides, by the function that fi_getinfo
// uses (weft_core_services.check_info).
//
// Example:
//    int open(const weft_instance *instance, uint32_t api_version, const fi_info &info) {
//      if (const int rc = check_opening(instance, api_version, info); rc != 0) return rc;
//      return 0;  // whatever the info says, the provider offers it
//    }
//
// The op tables call it before each opening call of a class (ops.h), so no class needs it. The
// class says what it knows:
// - the version of the API: `shared()` of a domain, or the fid of a fabric;
// - `opened_with()`: the info of a domain or of a scalable endpoint, of which contexts change one
//   part. Null: contexts are not checked.
#ifndef WEFT_SDK_UNIT_OPENING_H
#define WEFT_SDK_UNIT_OPENING_H

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <weft/plugin.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace weft::sdk {

// Whether the core has a check.
inline bool checks_openings(const weft_core_services &core) {
  return core.struct_size >= offsetof(weft_core_services, check_info) + sizeof core.check_info &&
         core.check_info != nullptr;
}

// 0, or -FI_E... and a line in the log.
int check_opening(const weft_instance *instance, uint32_t api_version, const fi_info &info);
// A context of what was opened with `info`, whose attributes are other ones.
int check_opening(const weft_instance *instance, uint32_t api_version, const fi_info &info,
                  const fi_tx_attr &attr);
int check_opening(const weft_instance *instance, uint32_t api_version, const fi_info &info,
                  const fi_rx_attr &attr);
// An endpoint asks for what only the whole domain can have, and the domain was opened without it.
int check_domain_caps(const weft_instance *instance, const fi_info &endpoint,
                      const fi_info &domain);

namespace opening_detail {

template <class Arg>
inline constexpr bool is_info = std::is_same_v<Arg, struct fi_info *>;
template <class Arg>
inline constexpr bool is_attr =
    std::is_same_v<Arg, struct fi_tx_attr *> || std::is_same_v<Arg, struct fi_rx_attr *>;
// Whether a call with these arguments opens something.
template <class... Args>
inline constexpr bool opens = (is_info<Args> || ...) || (is_attr<Args> || ...);

template <class T>
uint32_t api_version(T &object) {
  if constexpr (requires { object.shared().api_version; })
    return object.shared().api_version;
  else if constexpr (requires { object.c()->api_version; })
    return object.c()->api_version;
  else if constexpr (requires { object.api_version(); })
    return object.api_version();
  else
    return FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);
}

template <class T>
const fi_info *opened_with(T &object) {
  if constexpr (requires { object.opened_with(); })
    return object.opened_with();
  else
    return nullptr;
}

// One argument of a call; most say nothing.
template <class T, class Arg>
int check(T &object, Arg arg) {
  if constexpr (is_info<Arg>) {
    if (arg == nullptr) return 0;
    const int rc = check_opening(object.instance(), api_version(object), *arg);
    const fi_info *const domain = opened_with(object);
    return rc != 0 || domain == nullptr ? rc : check_domain_caps(object.instance(), *arg, *domain);
  } else if constexpr (is_attr<Arg>) {
    const fi_info *const info = opened_with(object);
    if (arg == nullptr || info == nullptr) return 0;
    return check_opening(object.instance(), api_version(object), *info, *arg);
  } else {
    return 0;
  }
}

template <class T, class... Args>
int check_all(T &object, Args... args) {
  int rc = 0;
  ((rc = rc != 0 ? rc : check(object, args)), ...);
  return rc;
}

}  // namespace opening_detail

}  // namespace weft::sdk

#endif
