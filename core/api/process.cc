// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/process.h"

#include <utility>

#include "core/api/services.h"

namespace weft {
namespace {

FrontOptions front_options(const Environment &environment, Log &log, ObjectTable &objects) {
  FrontOptions options;
  options.environment = environment.variables;
  options.library_folder = environment.library_folder;
  options.secure = environment.secure;
  options.objects = &objects;
  options.services = process_services();
  options.notice = [&log](std::string_view line) { log.notice(line); };
  return options;
}

void define_core_parameters(ParamTable &params) {
  params.define("core", "provider", FI_PARAM_STRING,
                "Providers to use, \"tcp,verbs\", or not to use, \"^udp\"; layers over one: "
                "\"verbs;ofi_rxm\" "
                "(default: all that the configuration allows)");
  params.define(
      "core", "provider_path", FI_PARAM_STRING,
      "Folders with further plugins, separated by colons, searched before the library's own");
  params.define("core", "hook", FI_PARAM_STRING,
                "Hooks on every stack, separated by semicolons, outermost first");
  params.define("core", "config", FI_PARAM_STRING,
                "A YAML file that is read after the site's and the user's");
  params.define("core", "log_level", FI_PARAM_STRING,
                "What to log: warn, trace, info or debug (default: warn)");
  params.define("core", "log_prov", FI_PARAM_STRING,
                "Providers whose lines are shown, or with a leading ^ hidden (default: all)");
  params.define("core", "log_subsys", FI_PARAM_STRING,
                "Subsystems whose lines are shown, or with a leading ^ hidden: core, fabric, "
                "domain, ep_ctrl, "
                "ep_data, av, cq, eq, mr, cntr (default: all)");
  params.define("core", "log_interval", FI_PARAM_INT,
                "Milliseconds between log lines of one place that limits itself (default: 2000)");
}

}  // namespace

Process::Process(Environment from)
    : environment(std::move(from)),
      log(environment),
      params(environment, [this](std::string_view line) { log.notice(line); }),
      front(front_options(environment, log, objects)) {
  define_core_parameters(params);
}

std::vector<ParamLine> Process::parameters() {
  std::vector<ParamLine> lines = params.lines();
  for (FrontParam &param : front.params()) {
    lines.push_back({std::move(param.variable), param.type, std::move(param.help), param.is_set,
                     std::move(param.value)});
  }
  return lines;
}

Process &process() {
  static Process *const only = new Process(Environment::of_process());
  return *only;
}

}  // namespace weft
