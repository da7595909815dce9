// SPDX-License-Identifier: BSD-2-Clause
// weft: asks the libfabric of this machine what it gives a program, and why. The command line.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "tools/weft/command.h"
#include "tools/weft/command_line.h"
#include "tools/weft/plugin.h"
#include "tools/weft/supervise.h"
#include "tools/weft/supposing.h"

namespace weft::cli {
namespace {

// The commands that run code of plugins.
bool asks_plugins(std::string_view command) {
  constexpr std::string_view kCommands[] = {
      "weft info",         "weft why",    "weft explain",     "weft plugin list",
      "weft plugin check", "weft doctor", "weft config show", "weft plugin quarantine",
      "weft policy test"};
  return std::find(std::begin(kCommands), std::end(kCommands), command) != std::end(kCommands);
}

// The commands that are programs of their own, weft-trace and so on, beside this one. So it
// contains no HTTP server and no Protobuf, and who needs only `weft` compiles only that.
struct Program {
  const char *word, *help;
};
constexpr Program kPrograms[] = {
    {"exporter", "Serves what running processes count to Prometheus."},
    {"stats", "Prints what plugins and the hook profile have counted in running processes."},
    {"top", "Shows live what running processes count."},
    {"trace", "Records the calls and completions of processes, and shows what was recorded"}};

// Does not return, unless there is no such program: then the exit status.
int become(const Program &program, char **arguments) {
  std::error_code failed;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) {  // without its folder, it would be looked for in the working directory
    std::fprintf(stderr, "weft %s: /proc/self/exe: %s: is /proc mounted?\n", program.word,
                 failed.message().c_str());
    return kExitUsage;
  }
  const std::string path = self.parent_path() / (std::string("weft-") + program.word);
  arguments[0] = const_cast<char *>(path.c_str());
  execv(path.c_str(), arguments);
  std::fprintf(stderr,
               "weft %s: %s: %s; it is a program of its own, which is built as the target weft-%s "
               "and installed beside weft\n",
               program.word, path.c_str(), strerror(errno), program.word);
  return kExitUsage;
}

int run(int argc, char **argv) {
  for (const Program &program : kPrograms)
    if (argc > 1 && std::string_view(argv[1]) == program.word) return become(program, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == kTrialWord)
    return run_plugin_trial(argc - 1, argv + 1);
  CLI::App app("Asks this machine's libfabric what it gives a program, and why.", "weft");
  app.require_subcommand(1);
  app.footer("`weft COMMAND --help` explains a command; weft(1) all of them.");
  Action action;
  add_info(app, action);
  const bool separated = std::find(argv, argv + argc, std::string_view("--")) != argv + argc;
  add_why(app, action, separated);
  add_explain(app, action);
  add_plugin(app, action);
  SupposingOptions supposing;
  add_config(app, action, supposing);
  add_policy(app, action, supposing);
  add_hook(app, action);
  for (const Program &program : kPrograms) app.add_subcommand(program.word, program.help);
  add_cxi(app, action);
  add_doctor(app, action);
  return run_command_line(
      app, action, argc, argv, [&](const std::string &name, const std::function<int()> &command) {
        const auto before = [&](const Library &library) { return suppose(library, supposing); };
        const bool runs_another = separated && name == "weft why";
        return asks_plugins(name) && !runs_another ? supervised(name, before, command) : command();
      });
}

}  // namespace
}  // namespace weft::cli

int main(int argc, char **argv) {
  return weft::cli::run_program("weft", weft::cli::run, argc, argv);
}
