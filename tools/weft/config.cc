// SPDX-License-Identifier: BSD-2-Clause
// weft config: prints the merged configuration with its origins, and checks the files.
#include <weft/printable.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/weft/command.h"
#include "tools/weft/library.h"
#include "tools/weft/policy.h"
#include "tools/weft/supposing.h"

namespace weft::cli {
namespace {

struct ConfigOptions {
  bool json = false;
  bool origin = false;
  bool defaults = false;
  bool all = false;
  std::vector<std::string> files;
};

void print_files(const Json &files) {
  std::printf("Files, from the weakest to the strongest:%s\n", files.empty() ? " none" : "");
  for (const Json &file : files) {
    const std::string path = text_of(file, "path"), as = text_of(file, "as");
    std::printf("  %s%s%s%s\n", printable(path).c_str(), path == as ? "" : ", read as ",
                path == as ? "" : printable(as).c_str(),
                flag_of(file, "used") ? "" : "  (left out: has errors)");
  }
  std::printf("\n");
}

// What files and variables say in vain.
void print_overridden(const Json &overridden) {
  std::printf("\nWithout effect:%s\n", overridden.empty() ? " nothing" : "");
  Table table({"KEY", "VALUE", "ORIGIN", "BECAUSE"});
  for (const Json &one : overridden)
    table.add({text_of(one, "key"), value_text(one), text_of(one, "origin"), text_of(one, "text")});
  if (!table.empty()) table.print();
}

// One line for what is wrong with a file, or (an empty one) with all that is in use.
void tell_count(const Json &diagnostics, const std::string &file, const std::string &place) {
  const size_t problems = having(diagnostics, "error") + having(diagnostics, "warning");
  if (problems != 0)
    std::fprintf(stderr, "weft config show: %s%s%s: see `%s`\n",
                 plural(problems, "problem").c_str(), file.empty() ? "" : " in ",
                 printable(file).c_str(), printable(lint_command(file, place)).c_str());
}

// The problems of a file that is not installed, and of the others.
void tell_problems(const Json &config, const std::string &file) {
  std::string place;
  for (const Json &one : array_of(config, "files"))
    if (text_of(one, "path") == file) place = text_of(one, "as");
  Json of_file = Json::array(), others = Json::array();
  for (const Json &one : only_of(array_of(config, "diagnostics"), ""))
    (!file.empty() && text_of(one, "file") == file ? of_file : others).push_back(one);
  tell_count(of_file, file, place);
  tell_count(others, "", "");
}

Result<int> show(const ConfigOptions &options, const SupposingOptions &supposing) {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(Json config, library.config());
  Json values = Json::array();
  for (const Json &value : config.value("values", Json::array()))
    if (options.defaults || text_of(value, "origin") != "default") values.push_back(value);
  if (options.json) {
    config["values"] = std::move(values);
    if (!options.all) config.erase("overridden");
    print_json(config);
    return kExitOk;
  }
  const bool origin = options.origin || options.all;
  if (origin) print_files(array_of(config, "files"));
  Table table(origin ? std::vector<std::string>{"KEY", "VALUE", "ORIGIN"}
                     : std::vector<std::string>{"KEY", "VALUE"});
  for (const Json &value : values) {
    std::vector<std::string> cells = {text_of(value, "key"), value_text(value)};
    if (origin)
      cells.push_back(text_of(value, "origin") + (flag_of(value, "final") ? " (final)" : ""));
    table.add(std::move(cells));
  }
  table.print();
  if (options.all) print_overridden(array_of(config, "overridden"));
  tell_problems(config, supposing.file.empty() ? "" : absolute_path(supposing.file));
  return kExitOk;
}

}  // namespace

void add_config(CLI::App &app, Action &action, SupposingOptions &supposing) {
  const auto options = std::make_shared<ConfigOptions>();
  CLI::App *command = app.add_subcommand("config", "The configuration: what holds, what is wrong");
  command->require_subcommand(1);

  CLI::App *show_command =
      command->add_subcommand("show", "What holds, from files, environment and defaults");
  show_command->add_flag("--origin", options->origin, "also where each value was set");
  show_command->add_flag("--all", options->all,
                         "also what has no effect, with what counts instead; with --origin");
  show_command->add_flag("--defaults", options->defaults, "also the parameters that nobody set");
  show_command->add_flag("--json", options->json, "JSON instead of text");
  add_file_option(*show_command, supposing);
  show_command->callback([&action, options, &supposing] {
    action = [options, &supposing] { return show(*options, supposing); };
  });

  CLI::App *lint_command = command->add_subcommand(
      "lint", "Every error, with file, line and column; exit status 1 if there is one");
  lint_command->add_option("FILE", options->files,
                           "files to check (default: those that count on this machine)");
  lint_command
      ->add_option("--as,--as-file", supposing.as_file,
                   "checks FILE as if it stood at this place, among the installed files")
      ->check(check_not_empty);
  lint_command->add_flag("--json", options->json, "JSON instead of text");
  lint_command->callback([&action, options, &supposing] {
    action = [options, &supposing] {
      return lint(options->files, supposing.as_file, options->json);
    };
  });
}

}  // namespace weft::cli
