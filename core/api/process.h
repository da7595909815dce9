// SPDX-License-Identifier: BSD-2-Clause
// The objects that a process has one of. The exported C functions have no argument for them, so
// they are here. Nothing else in the core is global.
//
// Example:
//    int getinfo(uint32_t version, const fi_info *hints, fi_info **info) {
//      return weft::process().front.getinfo(version, nullptr, nullptr, 0, hints, info);
//    }
//
// Made by the first call that needs it and never destroyed: at exit other threads and atexit
// handlers may still be in the library. Not for anything that can be passed to a part of the core
// as an argument.
#ifndef WEFT_CORE_API_PROCESS_H
#define WEFT_CORE_API_PROCESS_H

#include <sys/types.h>

#include <atomic>
#include <memory>

#include "core/api/environment.h"
#include "core/api/log.h"
#include "core/api/params.h"
#include "core/api/why_file.h"
#include "core/control/requests.h"
#include "core/control/server.h"
#include "core/select/front.h"
#include "core/stack/object_table.h"

namespace weft {

struct Process {
  explicit Process(Environment from);  // reads nothing else; a test makes its own

  // All that `weft config`, fi_info -e and fi_getparams() show: the core's, the units', and what
  // stock providers defined.
  std::vector<ParamLine> parameters();

  // Called after each opened fabric. The first call starts the control server, through which other
  // processes of the user can reach this one, if the policy allows it. Errors are only logged.
  void fabric_opened() noexcept;
  // Around a fork of the application, so that a child finds nothing that the control server's
  // thread had begun (core/control/server.h).
  void before_fork() noexcept;
  void after_fork(bool in_child) noexcept;
  // At exit: no socket is left behind. Other threads, the control server's too, may still run.
  void leave() noexcept;

  const Environment environment;
  const std::unique_ptr<WhyFile> why;  // null: nobody listens
  Log log;
  ParamTable params;
  ObjectTable objects;

 private:
  std::atomic<pid_t> control_pid_{0};  // whose server `control_` is; changes in a forked child
  std::atomic<bool> control_runs_{false};

 public:
  Front front;

 private:
  void start_control();

  Controller controller_{front, objects};
  std::unique_ptr<ControlServer> control_;
};

Process &process();

}  // namespace weft

#endif
