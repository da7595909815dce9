// SPDX-License-Identifier: BSD-2-Clause
#include <weft/sdk/unit/provider.h>

#include <cstdio>

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

Result<void> unit_detail::check_inner_count(const UnitInfo &layer, const weft_provider *inner,
                                            uint32_t count) {
  if (inner != nullptr && count >= layer.inner_min && count <= layer.inner_max) return {};
  if (layer.inner_max == 1)
    return fail(FI_EINVAL, "%s takes one provider beneath it, not %u", layer.name, count);
  return fail(FI_EINVAL, "%s takes %u to %u providers beneath it, not %u", layer.name,
              layer.inner_min, layer.inner_max, count);
}

void LineSink::operator()(const char *format, ...) const {
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  line_(arg_, text);
}

}  // namespace weft::sdk
