// SPDX-License-Identifier: BSD-2-Clause
// weft plugin: the command line of its subcommands; `weft plugin refresh`.
#include "tools/weft/plugin.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <filesystem>
#include <memory>

#include "tools/weft/child.h"
#include "tools/weft/command.h"
#include "tools/weft/library.h"

namespace weft::cli {
namespace fs = std::filesystem;

std::string tidy_path(const std::string &path) {
  const fs::path tidy = fs::absolute(path).lexically_normal();
  return tidy.has_filename() ? tidy : tidy.parent_path();
}

Result<int> refresh_plugins(const PluginOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  std::vector<std::string> folders;
  if (!options.folder.empty()) {
    folders.push_back(tidy_path(options.folder));
  } else {
    WEFT_TRY(const Json plugins, library.plugins());
    std::error_code error;
    for (const Json &folder : array_of(plugins, "folders"))
      if (fs::is_directory(text_of(folder, "path"), error))
        folders.push_back(text_of(folder, "path"));
  }
  Json list = Json::array();
  bool good = true;
  for (const std::string &folder : folders) {
    WEFT_TRY(const ChildResult child,
             run_child({library.probe_program(), "--refresh", folder, "--reader",
                        absl::StrCat(library.plugin_folder(), "/weft-config.so")},
                       {}, kProbeLimit));
    good = good && child.status == 0;
    list.push_back({{"folder", folder}, {"written", child.status == 0}, {"troubles", child.err}});
    std::fputs(printable_lines(child.err).c_str(), stderr);
    if (!options.json && child.status == 0)
      absl::PrintF("wrote %s/plugins.idx\n", printable(folder));
  }
  if (options.json) print_json(list);
  return good ? kExitOk : kExitNo;
}

namespace {

void add_new(CLI::App *command, PluginOptions &options) {
  command->add_option("KIND", options.kind, "provider, layer or hook")->required();
  command->add_option("NAME", options.name, "the unit, as in FI_PROVIDER")->required();
  command->add_option("--folder", options.folder,
                      "where it is written; must not be there (default: the plugin's name)");
  command->add_option("--vendor", options.vendor, "who makes the plugin");
  command->add_option("--templates", options.templates,
                      "folder of templates (default: those of the installed SDK)");
}

void add_test(CLI::App &parent, Action &action, const std::shared_ptr<PluginOptions> &owner) {
  PluginOptions &options = *owner;
  CLI::App *command = parent.add_subcommand(
      "test", "What a plugin offers, passes and fails, tried by an application with wrong calls");
  command->add_option("FILE", options.file, "the plugin")->required();
  command->add_option("--json", options.json_file, "write JSON into this file; -: stdout");
  command->add_option("--junit", options.junit_file, "write JUnit's XML into this file; -: stdout");
  command->add_option("--over", options.over,
                      "the provider beneath a layer or a hook (default: tcp, or what fits)");
  command->add_option("--budget", options.budget,
                      "milliseconds that the first try may take (default: of the configuration)");
  command->callback([&action, owner] { action = [owner] { return test_plugin(*owner); }; });
}

}  // namespace

void add_plugin(CLI::App &app, Action &action) {
  const auto options = std::make_shared<PluginOptions>();
  CLI::App *command = app.add_subcommand(
      "plugin", "Plugins: list, check and test a file, begin one, index, quarantine");
  command->require_subcommand(1);
  const auto add = [&](const char *name, const char *help,
                       Result<int> (*run)(const PluginOptions &)) {
    CLI::App *sub = command->add_subcommand(name, help);
    sub->add_flag("--json", options->json, "JSON instead of text");
    sub->callback([&action, options, run] { action = [options, run] { return run(*options); }; });
    return sub;
  };
  CLI::App *list_command = add(
      "list", "What is installed, loadable, usable and selected, or what stops it", list_plugins);
  list_command->add_flag("-v,--verbose", options->verbose, "all facts, with the parameters");

  CLI::App *check_command = add(
      "check", "Whether a file is a good plugin: its symbols, and a try in a process of its own",
      check_plugin);
  check_command->add_option("FILE", options->file, "the plugin")->required();
  check_command->add_option("--budget", options->budget,
                            "milliseconds that the try may take (default: of the configuration)");

  add_test(*command, action, options);

  add_new(add("new", "Writes a project that makes a plugin: code, tests, packages", new_plugin),
          *options);

  CLI::App *refresh_command =
      add("refresh", "Writes plugins.idx, so that programs start without reading manifests",
          refresh_plugins);
  refresh_command->add_option("DIR", options->folder,
                              "folder of plugins (default: all that count)");

  CLI::App *quarantine_command =
      add("quarantine", "Plugins that crashed, hung or misbehaved when they were tried",
          quarantine_plugins);
  quarantine_command->add_option("--clear,--remove", options->clear,
                                 "try this file again when it is needed next");
}

}  // namespace weft::cli
