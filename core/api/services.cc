// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/services.h"

#include <rdma/fi_errno.h>

#include <exception>

#include "core/api/process.h"
#include "core/base/info.h"

namespace weft {
namespace {

struct Source {
  const char *name = nullptr;  // as users know it from FI_PROVIDER
  const char *other = nullptr;
};

Source source_of(const weft_instance *instance) {
  if (instance == nullptr || instance->unit == nullptr) return {};
  const weft_unit &unit = *instance->unit;
  return unit.ofi_name != nullptr ? Source{unit.ofi_name, unit.name} : Source{unit.name, nullptr};
}

fi_info *info_alloc() {
  return alloc_info();
}
fi_info *info_dup(const fi_info *info) {
  return dup_info(info);
}
void info_free(fi_info *info) {
  free_info(info);
}

int32_t log_enabled(const weft_instance *instance, int32_t level, int32_t subsys) {
  const Source source = source_of(instance);
  return process().log.enabled(source.name, static_cast<fi_log_level>(level),
                               static_cast<fi_log_subsys>(subsys), source.other)
             ? 1
             : 0;
}

void log(const weft_instance *instance, int32_t level, int32_t subsys, const char *func,
         int32_t line, const char *text) {
  if (text == nullptr) return;
  process().log.write(source_of(instance).name, static_cast<fi_log_level>(level),
                      static_cast<fi_log_subsys>(subsys), func, line, text);
}

// Exceptions must not enter a plugin's frames.
int32_t object_opened(struct fid *fid, struct fid *parent, weft_error *why) try {
  return process().objects.opened(fid, parent, why);
} catch (const std::exception &error) {
  return to_c(Error{FI_ENOMEM, std::string("object_opened: ") + error.what()}, why);
}

void object_closing(struct fid *fid) try {
  process().objects.closing(fid);
} catch (const std::exception &error) {
  process().log.say(FI_LOG_WARN, FI_LOG_CORE, __func__, __LINE__, error.what());
}

int32_t check_info(const weft_instance *instance, uint32_t api_version, const fi_info *info,
                   weft_error *why) try {
  if (info == nullptr) return to_c(Error{FI_EINVAL, "check_info: no info"}, why);
  const Result<void> checked = process().objects.check_info(instance, api_version, *info);
  return checked ? 0 : to_c(checked.error(), why);
} catch (const std::exception &error) {
  return to_c(Error{FI_ENOMEM, std::string("check_info: ") + error.what()}, why);
}

}  // namespace

weft_core_services process_services() noexcept {
  weft_core_services services{};
  services.struct_size = sizeof services;
  services.info_alloc = info_alloc;
  services.info_dup = info_dup;
  services.info_free = info_free;
  services.log_enabled = log_enabled;
  services.log = log;
  services.object_opened = object_opened;
  services.object_closing = object_closing;
  services.check_info = check_info;
  return services;
}

}  // namespace weft
