// SPDX-License-Identifier: BSD-2-Clause
// weft hook: attaches hooks to the objects of running processes, detaches and lists them.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include <memory>

#include "tools/weft/command.h"
#include "tools/weft/control.h"
#include "tools/weft/text.h"

namespace weft::cli {
namespace {

struct HookOptions {
  pid_t pid = 0;
  std::string hook;
  std::vector<std::string> params;
  HookPlace place;
  bool json = false;
};

Result<int> list_processes(const HookOptions &options) {
  WEFT_TRY(const std::vector<ControlProcess> processes, control_processes());
  if (options.json) {
    Json list = Json::array();
    for (const ControlProcess &one : processes)
      list.push_back({{"pid", one.pid}, {"program", one.program}});
    print_json(list);
    return kExitOk;
  }
  if (processes.empty()) absl::PrintF("no process of yours has a fabric of weft open\n");
  Table table({"PID", "PROGRAM"});
  for (const ControlProcess &one : processes) table.add({absl::StrCat(one.pid), one.program});
  if (!table.empty()) table.print();
  return kExitOk;
}

Result<int> list_objects(const HookOptions &options) {
  WEFT_TRY(const Control control, Control::connect(options.pid));
  WEFT_TRY(const Json objects, control.objects());
  if (options.json) {
    print_json(objects);
    return kExitOk;
  }
  Table table({"OBJECT", "CLASS", "OF", "MADE BY", "HOOKS"});
  for (const Json &object : objects) {
    const std::vector<std::string> hooks = texts_of(object, "hooks");
    const uint64_t parent = object.value("parent", uint64_t(0));
    table.add({absl::StrCat(object.value("id", uint64_t(0))), text_of(object, "class"),
               parent != 0 ? absl::StrCat(parent) : "-", text_of(object, "element"),
               hooks.empty() ? "-" : absl::StrJoin(hooks, ", ")},
              hooks.empty() ? Emphasis::kNone : Emphasis::kStrong);
  }
  table.print();
  return kExitOk;
}

void tell(const HookOptions &options, const char *done, const std::vector<uint64_t> &objects) {
  if (options.json) {
    print_json({{"pid", options.pid}, {"hook", options.hook}, {"objects", objects}});
    return;
  }
  absl::PrintF("%s %s process %d (object %s and what is opened from it)\n", options.hook, done,
               options.pid, absl::StrJoin(objects, ", "));
}

Result<int> attach(const HookOptions &options) {
  std::vector<std::pair<std::string, std::string>> params;
  for (const std::string &text : options.params) {
    std::pair<std::string, std::string> param = absl::StrSplit(text, absl::MaxSplits('=', 1));
    if (param.first.empty() || !absl::StrContains(text, '='))
      return fail(FI_EINVAL, "'%s' is no parameter: write KEY=VALUE; `weft plugin list` has them",
                  text.c_str());
    params.push_back(std::move(param));
  }
  WEFT_TRY(const Control control, Control::connect(options.pid));
  WEFT_TRY(const std::vector<uint64_t> objects,
           control.attach(options.hook, params, options.place));
  tell(options, "is on", objects);
  return kExitOk;
}

Result<int> detach(const HookOptions &options) {
  WEFT_TRY(const Control control, Control::connect(options.pid));
  WEFT_TRY(const std::vector<uint64_t> objects, control.detach(options.hook, options.place));
  tell(options, "is off", objects);
  return kExitOk;
}

}  // namespace

void add_hook(CLI::App &app, Action &action) {
  CLI::App *command = app.add_subcommand(
      "hook", "Attaches hooks to the objects of running processes, and lists them");
  command->require_subcommand(1);
  const auto options = std::make_shared<HookOptions>();
  const auto common = [&](CLI::App *sub, Result<int> (*run)(const HookOptions &)) {
    sub->add_flag("--json", options->json, "JSON instead of text");
    sub->callback([&action, options, run] { action = [options, run] { return run(*options); }; });
  };
  const auto place = [&](CLI::App *sub) {
    sub->add_option("PID", options->pid, "The process; `weft hook ls` lists them")
        ->required()
        ->check(CLI::Range(1, INT_MAX));
    sub->add_option("HOOK", options->hook, "The hook: trace, profile, fault or a vendor's")
        ->required();
    sub->add_option(
        "--at", options->place.element,
        "The element of the stack above which it is put: tcp beneath rxm (default: next "
        "to the application)");
    sub->add_option("--object", options->place.object,
                    "One object by its number, and what is opened from it; `weft hook ls PID`");
  };

  CLI::App *ls = command->add_subcommand(
      "ls", "The processes that listen, or the objects of one and the hooks on them");
  ls->add_option("PID", options->pid, "The process")->check(CLI::Range(1, INT_MAX));
  common(ls, [](const HookOptions &given) {
    return given.pid != 0 ? list_objects(given) : list_processes(given);
  });

  CLI::App *on = command->add_subcommand("attach", "Attaches a hook to a running process");
  place(on);
  on->add_option("PARAMS", options->params, "Parameters of the hook: KEY=VALUE ...");
  common(on, attach);

  CLI::App *off = command->add_subcommand("detach", "Detaches the hook");
  place(off);
  common(off, detach);
}

}  // namespace weft::cli
