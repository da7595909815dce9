// SPDX-License-Identifier: BSD-2-Clause
#include "weft/sdk/unit.h"

#include <cstdlib>

namespace weft::sdk {

Result<InfoList> Inner::getinfo(const GetinfoQuery &query) const {
  weft_error why{.struct_size = sizeof why};
  struct fi_info *info = nullptr;
  const int32_t rc = provider_->ops->getinfo(provider_->self, query.api_version, query.node,
                                             query.service, query.flags, query.hints, &info, &why);
  if (rc != 0) return tl::unexpected<Error>(from_c(rc, why));
  return InfoList(core_, info);
}

Result<fid_fabric *> Inner::fabric(const fi_fabric_attr &attr, void *context) const {
  weft_error why{.struct_size = sizeof why};
  fi_fabric_attr copy = attr;  // the op may write into its argument
  fid_fabric *fabric = nullptr;
  const int32_t rc = provider_->ops->fabric(provider_->self, &copy, &fabric, context, &why);
  if (rc != 0) return tl::unexpected<Error>(from_c(rc, why));
  return fabric;
}

void LineSink::operator()(const char *format, ...) const {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  line_(arg_, text);
}

namespace unit_detail {

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

}  // namespace unit_detail
}  // namespace weft::sdk
