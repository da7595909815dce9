// SPDX-License-Identifier: BSD-2-Clause
// weft explain: a stack from the application to the wire, and what each unit found on this machine.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <memory>

#include "tools/weft/command.h"
#include "tools/weft/library.h"

namespace weft::cli {
namespace {

struct ExplainOptions {
  std::string stack;
  bool json = false;
};

// The description of each unit, by name; empty if the library cannot be asked.
Json units_by_name(const Library &library) {
  Json units = Json::object();
  const Result<Json> plugins = library.plugins();
  if (!plugins || !plugins->contains("plugins")) return units;
  for (const Json &plugin : (*plugins)["plugins"])
    for (const Json &unit : plugin.value("units", Json::array()))
      units[text_of(unit, "name")] = unit;
  return units;
}

Result<int> run(const ExplainOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  Result<Json> answer = library.explain(options.stack);
  if (!answer) {
    if (options.json) print_json({{"stack", options.stack}, {"error", answer.error().text}});
    absl::FPrintF(stderr, "weft explain: %s\n", answer.error().text);
    if (!options.stack.empty())
      absl::FPrintF(stderr, "`weft why '%s'` tells more\n", options.stack);
    return kExitNo;
  }
  const Json units = units_by_name(library);
  const Json elements = answer->value("elements", Json::array());
  if (options.json) {
    for (Json &element : (*answer)["elements"]) {
      const Json unit = units.value(text_of(element, "unit"), Json::object());
      for (const char *key : {"kind", "ofi_name", "version", "summary", "maturity", "library"})
        element[key] = text_of(unit, key);
    }
    print_json(*answer);
    return kExitOk;
  }
  absl::PrintF("%s\n", emphasized(text_of(*answer, "stack"), Emphasis::kStrong));
  print_field("from", text_of(*answer, "origin"), 4, 2);
  absl::PrintF("\napplication\n");
  for (const Json &element : elements) {
    const std::string name = text_of(element, "unit");
    const Json unit = units.value(name, Json::object());
    std::string title = name;
    if (const std::string kind = text_of(unit, "kind"); !kind.empty())
      title = absl::StrCat(kind, " ", name);
    if (const std::string ofi = text_of(unit, "ofi_name"); !ofi.empty() && ofi != name)
      absl::StrAppend(&title, " (", ofi, ")");
    absl::PrintF("  |\n  %s\n", emphasized(title, Emphasis::kStrong));
    if (const std::string summary = text_of(unit, "summary"); !summary.empty())
      print_field("", summary, 0, 2);
    if (const std::string file = text_of(unit, "library"); !file.empty())
      print_field("", absl::StrCat("from ", file, ", ", text_of(unit, "maturity")), 0, 2);
    const std::vector<std::string> lines = texts_of(element, "lines");
    if (lines.empty()) print_field("", "(has nothing to say about this machine)", 0, 2);
    for (const std::string &line : lines) print_field("-", line, 1, 4);
  }
  absl::PrintF("  |\nwire\n");
  return kExitOk;
}

}  // namespace

void add_explain(CLI::App &app, Action &action) {
  const auto options = std::make_shared<ExplainOptions>();
  CLI::App *command = app.add_subcommand(
      "explain", "A stack, unit by unit, with what each found on this machine and how it decided");
  command->add_option("STACK", options->stack,
                      "'tcp;ofi_rxm', or a name from the configuration (default: the best)");
  command->add_flag("--json", options->json, "JSON instead of text");
  command->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace weft::cli
