// SPDX-License-Identifier: BSD-2-Clause
// kFuzzCore: the core's services for a plugin that a fuzz target runs without the core. Log
// messages are formatted, and shown with WEFT_FUZZ_LOG=1.
//
// Example:
//    inline weft_instance instance_of(const char *stack) {
//      weft_instance instance{};
//      instance.magic = WEFT_INSTANCE_MAGIC;
//      instance.struct_size = sizeof instance;
//      instance.core = &kFuzzCore;
//      instance.stack = stack;
//      return instance;
//    }
//
// Not for tests that look at the log, or count objects.
#ifndef WEFT_TESTS_FUZZ_CORE_SERVICES_H
#define WEFT_TESTS_FUZZ_CORE_SERVICES_H

#include <weft/plugin.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "core/base/info.h"

namespace weft::fuzz {

inline constexpr weft_core_services kFuzzCore = {
    .struct_size = sizeof(weft_core_services),
    .info_alloc = [] { return alloc_info(); },
    .info_dup = [](const fi_info *info) { return dup_info(info); },
    .info_free = [](fi_info *info) { free_info(info); },
    .log_enabled = [](const weft_instance *, int32_t level, int32_t) -> int32_t {
      return level == 0 || std::getenv("WEFT_FUZZ_LOG") != nullptr;
    },
    .log =
        [](const weft_instance *, int32_t, int32_t, const char *, int32_t, const char *text) {
          if (std::getenv("WEFT_FUZZ_LOG") != nullptr) std::fprintf(stderr, "%s\n", text);
        },
    .object_opened = [](struct fid *, struct fid *, weft_error *) -> int32_t { return 0; },
    .object_closing = [](struct fid *) {},
};

}  // namespace weft::fuzz

#endif
