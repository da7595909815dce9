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
// The table's functions have no argument for a core, so they serve the process's own
// (core/api/process.h). A test of the loader fills a table of its own.
#ifndef WEFT_CORE_API_SERVICES_H
#define WEFT_CORE_API_SERVICES_H

#include <weft/plugin.h>

namespace weft {

weft_core_services process_services() noexcept;

}  // namespace weft

#endif
