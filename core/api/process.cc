// SPDX-License-Identifier: BSD-2-Clause
#include "core/api/process.h"

#include <pthread.h>
#include <unistd.h>
#include <weft/runtime_dir.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include "core/api/services.h"

namespace weft {
namespace {

// `weft why -- COMMAND` names a folder.
std::unique_ptr<WhyFile> why_file(const Environment &environment) {
  const std::string *folder = environment.find("WEFT_WHY");
  if (folder == nullptr || folder->empty()) return nullptr;
  auto file = std::make_unique<WhyFile>(*folder, environment.library_folder);
  file->begin();
  return file;
}

FrontOptions front_options(const Environment &environment, Log &log, ObjectTable &objects,
                           const std::atomic<bool> &control_runs, WhyFile *why) {
  FrontOptions options;
  options.environment = environment.variables;
  options.library_folder = environment.library_folder;
  options.secure = environment.secure;
  options.objects = &objects;
  options.own_threads = [&control_runs]() -> size_t { return control_runs ? 1 : 0; };
  options.services = process_services();
  options.notice = [&log](std::string_view line) { log.notice(line); };
  if (why != nullptr) options.record = [why](std::string_view line) { why->write(line); };
  return options;
}

// Set by process(): at exit, and around a fork, nothing is done for a program that never called
// this library.
std::atomic<Process *> the_process{nullptr};

int watch_forks() {
  return pthread_atfork([] { the_process.load()->before_fork(); },
                        [] { the_process.load()->after_fork(/*in_child=*/false); },
                        [] { the_process.load()->after_fork(/*in_child=*/true); });
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
  params.define(
      "core", "control", FI_PARAM_STRING,
      "Whether hooks can be attached while the program runs: allow or deny (default: allow)");
  params.define("core", "config", FI_PARAM_STRING,
                "A YAML file that is read after the site's and the user's");
  params.define("core", "log_level", FI_PARAM_STRING,
                "What to log: warn, trace, info or debug (default: nothing but mistakes in "
                "the configuration)");
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
      why(why_file(environment)),
      log(environment),
      params(environment, [this](std::string_view line) { log.notice(line); }),
      front(front_options(environment, log, objects, control_runs_, why.get())) {
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

void Process::fabric_opened() noexcept {
  const pid_t self = getpid();
  pid_t owner = control_pid_.load(std::memory_order_acquire);
  if (owner == self || !control_pid_.compare_exchange_strong(owner, self)) return;
  try {
    start_control();
  } catch (const std::exception &error) {
    log.say(FI_LOG_INFO, FI_LOG_CORE, __func__, __LINE__, error.what());
  }
}

void Process::start_control() {
  if (control_ != nullptr) {  // of the process that this one was forked from
    control_->abandon_in_child();
    (void)control_.release();  // its thread is not here
    control_runs_ = false;
  }
  if (!front.control_allowed()) return;
  static const int watched = watch_forks();
  if (watched != 0) log.say(FI_LOG_WARN, FI_LOG_CORE, __func__, __LINE__, "pthread_atfork failed");
  Result<std::string> folder = runtime_directory();
  Result<std::unique_ptr<ControlServer>> server =
      folder ? ControlServer::listen(
                   *folder + "/" + std::to_string(getpid()) + ".sock",
                   [this](std::string_view request) { return controller_.answer(request); })
             : tl::unexpected(std::move(folder).error());
  if (server) {
    control_ = *std::move(server);
    control_runs_ = true;
  } else {
    const std::string text = "hooks cannot be attached to this process: " + server.error().text;
    log.say(FI_LOG_INFO, FI_LOG_CORE, __func__, __LINE__, text);
  }
}

void Process::before_fork() noexcept {
  if (control_runs_) control_->before_fork();
}

void Process::after_fork(bool in_child) noexcept {
  if (in_child) {
    control_runs_ = false;
  } else if (control_runs_) {
    control_->after_fork();
  }
}

void Process::leave() noexcept {
  if (control_ != nullptr && control_pid_ == getpid()) (void)unlink(control_->path().c_str());
}

namespace {
// If `weft why` asks for the calls of programs, every program writes a file: so a program that
// makes no call differs from one that runs on another library.
__attribute__((constructor)) void note_process() {
  if (secure_getenv("WEFT_WHY") == nullptr) return;
  try {
    (void)process();
  } catch (...) {  // no memory
  }
}

__attribute__((destructor)) void leave_process() {
  if (Process *known = the_process.load()) known->leave();
}
}  // namespace

Process &process() {
  static Process *const only = [] {
    auto *made = new Process(Environment::of_process());
    the_process = made;
    return made;
  }();
  return *only;
}

}  // namespace weft
