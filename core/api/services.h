// SPDX-License-Identifier: BSD-2-Clause
// The services of the core as plugins call them: fi_info, log, objects.
//
// Example:
//    #include "core/loader/loader.h"
//    weft::LoaderOptions options() {
//      weft::LoaderOptions made;
//      made.services = weft::process_services();
//      return made;
//    }
//
// The table's functions have no argument for a core, so they use the core of the process
// (core/api/process.h). A test of the loader fills its own table.
#ifndef WEFT_CORE_API_SERVICES_H
#define WEFT_CORE_API_SERVICES_H

#include <weft/plugin.h>

namespace weft {

weft_core_services process_services() noexcept;

}  // namespace weft

#endif
