// SPDX-License-Identifier: BSD-2-Clause
// weft config: prints the merged configuration with its origins, and checks the files.
#include <fcntl.h>
#include <unistd.h>
#include <weft/printable.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "tools/weft/child.h"
#include "tools/weft/command.h"
#include "tools/weft/library.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

struct ConfigOptions {
  bool json = false;
  bool origin = false;
  bool defaults = false;
  std::vector<std::string> files;
};

size_t having(const Json &diagnostics, const std::string &severity) {
  return static_cast<size_t>(
      std::count_if(diagnostics.begin(), diagnostics.end(),
                    [&](const Json &one) { return text_of(one, "severity") == severity; }));
}

std::string plural(size_t count, const char *word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

// ---- show

std::string value_text(const Json &value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<int> show(const ConfigOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(Json config, library.config());
  Json values = Json::array();
  for (const Json &value : config.value("values", Json::array()))
    if (options.defaults || text_of(value, "origin") != "default") values.push_back(value);
  if (options.json) {
    config["values"] = std::move(values);
    print_json(config);
    return kExitOk;
  }
  if (options.origin) {
    const Json files = config.value("files", Json::array());
    std::printf("Files, from the weakest to the strongest:%s\n", files.empty() ? " none" : "");
    for (const Json &file : files)
      std::printf("  %s%s\n", printable(text_of(file, "path")).c_str(),
                  flag_of(file, "used") ? "" : "  (left out: has errors)");
    std::printf("\n");
  }
  Table table(options.origin ? std::vector<std::string>{"KEY", "VALUE", "ORIGIN"}
                             : std::vector<std::string>{"KEY", "VALUE"});
  for (const Json &value : values) {
    std::vector<std::string> cells = {text_of(value, "key"),
                                      value_text(value.value("value", Json(nullptr)))};
    if (options.origin)
      cells.push_back(text_of(value, "origin") + (flag_of(value, "final") ? " (final)" : ""));
    table.add(std::move(cells));
  }
  table.print();
  const Json diagnostics = config.value("diagnostics", Json::array());
  const size_t problems = having(diagnostics, "error") + having(diagnostics, "warning");
  if (problems != 0)
    std::fprintf(stderr, "weft config show: %s: see `weft config lint`\n",
                 plural(problems, "problem").c_str());
  return kExitOk;
}

// ---- lint

struct Place {
  std::string file;  // or "environment FI_PROVIDER"
  long line = 0, column = 0;
};

// Splits "/etc/weft/10-site.yaml:3:5"; a file name may have colons itself.
Place place_of(const std::string &where) {
  Place place{where, 0, 0};
  long *const numbers[] = {&place.column, &place.line};
  std::string rest = where;
  size_t found = 0;
  long read[2] = {0, 0};
  while (found < 2) {
    const size_t colon = rest.rfind(':');
    if (colon == std::string::npos || colon + 1 == rest.size() ||
        rest.find_first_not_of("0123456789", colon + 1) != std::string::npos ||
        rest.size() - colon > 10)
      break;
    read[found++] = std::stol(rest.substr(colon + 1));
    rest.resize(colon);
  }
  if (found == 0) return place;
  place.file = rest;
  if (found == 1) {
    place.line = read[0];
  } else {
    for (size_t i = 0; i < 2; ++i) *numbers[i] = read[i];
  }
  return place;
}

// The diagnostics of `file`; all if it is empty. Leaves out "the file is left out" where the file's
// own errors are listed.
Json only_of(const Json &diagnostics, const std::string &file) {
  std::set<std::string> explained;
  for (const Json &one : diagnostics)
    if (const Place place = place_of(text_of(one, "where")); place.line != 0)
      explained.insert(place.file);
  Json list = Json::array();
  for (const Json &one : diagnostics) {
    const Place place = place_of(text_of(one, "where"));
    if (!file.empty() && place.file != file) continue;
    if (place.line == 0 && explained.contains(place.file)) continue;
    Json entry = one;
    entry["file"] = place.file;
    entry["line"] = place.line;
    entry["column"] = place.column;
    list.push_back(std::move(entry));
  }
  return list;
}

// The library's view of the configuration, with `file` as FI_CONFIG unless it is empty. Runs in a
// process of its own, because the library also writes each error to stderr, once per process.
Result<Json> config_with(const std::string &file) {
  std::error_code error;
  const std::string self = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail(error.value(), "/proc/self/exe: %s", error.message().c_str());
  WEFT_TRY(const ChildResult child,
           run_child({self, "config", "show", "--json"},
                     file.empty() ? std::map<std::string, std::string>()
                                  : std::map<std::string, std::string>{{"FI_CONFIG", file}},
                     std::chrono::minutes(2)));
  const Json config = Json::parse(child.out, nullptr, false);
  if (child.status != 0 || config.is_discarded())
    return fail(FI_EOTHER, "%s cannot be checked: %s",
                file.empty() ? "the configuration" : file.c_str(), child.err.c_str());
  return config;
}

Result<void> check_readable(const std::string &file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return fail(errno, "%s: %s: give a file that you may read", file.c_str(), std::strerror(errno));
  ::close(fd);
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    return fail(FI_EINVAL, "%s is no file: give a file in the format of weft.yaml(5)",
                file.c_str());
  return {};
}

Result<int> lint(const ConfigOptions &options) {
  WEFT_TRY(const Json here, config_with(""));
  std::vector<std::string> known;
  for (const Json &file : here.value("files", Json::array()))
    known.push_back(text_of(file, "path"));

  Json diagnostics = Json::array();
  std::vector<std::string> checked;
  if (options.files.empty()) {
    diagnostics = only_of(here.value("diagnostics", Json::array()), "");
    checked = known;
  }
  for (const std::string &name : options.files) {
    WEFT_CHECK(check_readable(name));
    const std::string file = fs::absolute(name).lexically_normal();
    const bool counts = std::find(known.begin(), known.end(), file) != known.end();
    Json config = here;
    if (!counts) {
      WEFT_TRY(config, config_with(file));
    }
    for (Json &one : only_of(config.value("diagnostics", Json::array()), file))
      diagnostics.push_back(std::move(one));
    checked.push_back(file);
  }
  const size_t errors = having(diagnostics, "error"), warnings = having(diagnostics, "warning");
  if (options.json) {
    print_json({{"files", checked},
                {"errors", errors},
                {"warnings", warnings},
                {"diagnostics", diagnostics}});
    return errors == 0 ? kExitOk : kExitNo;
  }
  for (const Json &one : diagnostics) {
    const std::string severity = text_of(one, "severity");
    const Emphasis emphasis = severity == "error"  ? Emphasis::kBad
                              : severity == "note" ? Emphasis::kNone
                                                   : Emphasis::kDoubtful;
    std::printf("%s: %s: %s\n", printable(text_of(one, "where")).c_str(),
                emphasized(severity, emphasis).c_str(), printable(text_of(one, "text")).c_str());
  }
  if (checked.empty() && diagnostics.empty())
    std::printf("no configuration file: weft uses what it finds, by rank\n");
  else
    std::printf("%s, %s in %s\n", plural(errors, "error").c_str(),
                plural(warnings, "warning").c_str(), plural(checked.size(), "file").c_str());
  return errors == 0 ? kExitOk : kExitNo;
}

}  // namespace

void add_config(CLI::App &app, Action &action) {
  const auto options = std::make_shared<ConfigOptions>();
  CLI::App *command = app.add_subcommand("config", "The configuration: what holds, what is wrong");
  command->require_subcommand(1);

  CLI::App *show_command =
      command->add_subcommand("show", "What holds, from files, environment and defaults");
  show_command->add_flag("--origin", options->origin, "also where each value was set");
  show_command->add_flag("--defaults", options->defaults, "also the parameters that nobody set");
  show_command->add_flag("--json", options->json, "JSON instead of text");
  show_command->callback([&action, options] { action = [options] { return show(*options); }; });

  CLI::App *lint_command = command->add_subcommand(
      "lint", "Every error, with file, line and column; exit status 1 if there is one");
  lint_command->add_option("FILE", options->files,
                           "files to check (default: those that count on this machine)");
  lint_command->add_flag("--json", options->json, "JSON instead of text");
  lint_command->callback([&action, options] { action = [options] { return lint(*options); }; });
}

}  // namespace weft::cli
