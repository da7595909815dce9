// SPDX-License-Identifier: BSD-2-Clause
#include "core/probe/services.h"

#include "core/base/info.h"

namespace weft {

ObjectTable &probe_objects() {
  static ObjectTable &objects = *new ObjectTable;
  return objects;
}

const weft_core_services &probe_services() {
  static const weft_core_services services = {
      .struct_size = sizeof(weft_core_services),
      .reserved = 0,
      .info_alloc = []() -> fi_info * { return alloc_info(); },
      .info_dup = [](const fi_info *info) -> fi_info * { return dup_info(info); },
      .info_free = [](fi_info *info) { free_info(info); },
      .log_enabled = [](const weft_instance *, int32_t, int32_t) -> int32_t { return 0; },
      .log = [](const weft_instance *, int32_t, int32_t, const char *, int32_t, const char *) {},
      .object_opened = [](struct fid *object, struct fid *parent, weft_error *why) -> int32_t {
        return probe_objects().opened(object, parent, why);
      },
      .object_closing = [](struct fid *object) { probe_objects().closing(object); },
      .check_info = [](const weft_instance *, uint32_t, const fi_info *, weft_error *) -> int32_t {
        return 0;
      },
  };
  return services;
}

}  // namespace weft
