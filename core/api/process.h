// SPDX-License-Identifier: BSD-2-Clause
// What a process has one of. The exported C functions have no argument that could carry these, so
// they stand here, and nowhere else in the core is anything global.
//
//   int ret = process().front.getinfo(version, node, service, flags, hints, &info);
//
// Made by the first call that needs it and never destroyed: at exit other threads and atexit
// handlers may still be in the library. Not for anything that a part of the core could be given as
// an argument instead.
#ifndef WEFT_CORE_API_PROCESS_H
#define WEFT_CORE_API_PROCESS_H

#include "core/api/environment.h"
#include "core/api/log.h"
#include "core/api/params.h"
#include "core/select/front.h"
#include "core/stack/object_table.h"

namespace weft {

struct Process {
  explicit Process(Environment from);  // reads nothing else; a test makes its own

  // All that `weft config`, fi_info -e and fi_getparams() show: the core's, the units', and what
  // stock providers defined.
  std::vector<ParamLine> parameters();

  const Environment environment;
  Log log;
  ParamTable params;
  ObjectTable objects;
  Front front;
};

Process &process();

}  // namespace weft

#endif
