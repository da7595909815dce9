// SPDX-License-Identifier: BSD-2-Clause
// UnitInfo: what every unit class (weft/sdk/unit.h) says of itself.
//
// Example:
//    class Frob {
//     public:
//      static constexpr UnitInfo info{.name = "frob",
//                                     .summary = "messages over Frobco cards",
//                                     .version = FI_VERSION(1, 0),
//                                     .offers_ep = WEFT_EP_BIT(FI_EP_MSG),
//                                     .security = WEFT_SECURITY_TRUSTED_PEERS};
//      explicit Frob(const weft_instance *instance);
//    };
//    static_assert(HasInfo<Frob> && Creatable<Frob, const weft_instance *>);
//
// Not for what the plugin says of itself: that is PluginInfo (weft/sdk/unit.h).
#ifndef WEFT_SDK_UNIT_UNIT_INFO_H
#define WEFT_SDK_UNIT_UNIT_INFO_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>

namespace weft::sdk {

// What a unit says of itself; see weft_unit for the meaning of each.
struct UnitInfo {
  const char *name = nullptr;
  const char *ofi_name = nullptr;
  const char *summary = nullptr;
  uint32_t version = 0;
  uint32_t needs_ep = 0;                  // layers
  uint32_t inner_min = 1, inner_max = 1;  // layers: how many providers they take beneath them
  uint32_t offers_ep = 0;
  int32_t rank = 500;
  uint32_t maturity = WEFT_MATURITY_EXPERIMENTAL;
  uint32_t security = 0;
  std::span<const char *const> devices = {};
  const char *device_remedy = nullptr;
  std::span<const weft_param> params = {};
};

// `P(args...)` or `P::create(args...)`.
template <class P, class... Args>
concept Creatable = std::constructible_from<P, Args...> || requires(Args... args) {
  { P::create(args...) } -> std::same_as<Result<std::unique_ptr<P>>>;
};

template <class U>
concept HasInfo = requires {
  { U::info } -> std::same_as<const UnitInfo &>;
};

}  // namespace weft::sdk

#endif
