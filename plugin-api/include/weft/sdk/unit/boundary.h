// SPDX-License-Identifier: BSD-2-Clause
// The boundary between C++ units and the C functions of the plugin ABI: a Result or an exception
// becomes a code and a text.
//
// Example:
//    weft::Result<void> work(int n) {
//      if (n < 0) return weft::fail(FI_EINVAL, "%d is negative", n);
//      return {};
//    }
//    int32_t c_function(int n, weft_error *why) noexcept {
//      return unit_detail::boundary(why, [n] { return work(n); });
//    }
//
// For provider.h, hook.h and unit.h; a unit class does not need it.
#ifndef WEFT_SDK_UNIT_BOUNDARY_H
#define WEFT_SDK_UNIT_BOUNDARY_H

#include <weft/plugin.h>
#include <weft/result.h>

#include <concepts>
#include <cstdint>
#include <memory>

namespace weft::sdk {

namespace unit_detail {

// Hands an error of a unit to C: `why` gets the text, the result is negative. A code of 0 or below,
// which would read as success, becomes an error too.
int32_t report(const Error &error, weft_error *why) noexcept;
int32_t report(int code, const char *text, weft_error *why) noexcept;
// What is being handled, for use in a catch (...).
int32_t report_exception(weft_error *why) noexcept;

// Runs a function that returns a Result<void>.
template <class Body>
int32_t boundary(weft_error *why, Body body) noexcept {
  try {
    Result<void> result = body();
    return result ? 0 : report(result.error(), why);
  } catch (...) {
    return report_exception(why);
  }
}

template <class P, class... Args>
Result<std::unique_ptr<P>> make(Args... args) {
  if constexpr (requires { P::create(args...); }) {
    return P::create(args...);
  } else if constexpr (std::constructible_from<P, Args...>) {
    return std::make_unique<P>(args...);
  } else {
    return std::make_unique<P>();
  }
}

template <class P>
void destroy(void *self) noexcept {
  delete static_cast<P *>(self);
}

}  // namespace unit_detail

}  // namespace weft::sdk

#endif
