// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/unit/boundary.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

namespace weft::sdk::unit_detail {

int32_t report(int code, const char *text, weft_error *why) noexcept {
  code = code == 0 ? FI_EOTHER : std::abs(code);
  if (why != nullptr) {
    why->struct_size = sizeof *why;
    why->code = -code;
    std::snprintf(why->text, sizeof why->text, "%s", text);
  }
  return -code;
}

int32_t report(const Error &error, weft_error *why) noexcept {
  return report(error.code, error.text.c_str(), why);
}

int32_t report_exception(weft_error *why) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    return report(FI_ENOMEM, "out of memory", why);
  } catch (const std::exception &e) {
    return report(FI_EOTHER, e.what(), why);
  } catch (...) {
    return report(FI_EOTHER, "an exception of unknown type", why);
  }
}

}  // namespace weft::sdk::unit_detail
