// SPDX-License-Identifier: BSD-2-Clause
// weft explain: a stack from the application to the wire, and what each unit found on this machine.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <memory>

#include "tools/weft/command.h"
#include "tools/weft/library.h"

namespace weft::cli {
namespace {

struct ExplainOptions {
  std::string stack;
  bool json = false;
};

// The description of each unit, by name; empty if the library cannot be asked. Of several units
// with one name the first counts, as for the library.
Json units_by_name(const Library &library) {
  Json units = Json::object();
  const Result<Json> plugins = library.plugins();
  if (!plugins || !plugins->contains("plugins")) return units;
  for (const Json &plugin : (*plugins)["plugins"])
    for (const Json &unit : plugin.value("units", Json::array()))
      if (const std::string name = text_of(unit, "name"); !units.contains(name)) units[name] = unit;
  return units;
}

// Adds what is known of each unit, also in the branches.
void describe(Json &chain, const Json &units) {
  for (Json &element : chain) {
    const Json unit = units.value(text_of(element, "unit"), Json::object());
    for (const char *key : {"kind", "ofi_name", "version", "summary", "maturity", "library"})
      element[key] = text_of(unit, key);
    if (element.contains("branches"))
      for (Json &branch : element["branches"]) describe(branch, units);
  }
}

void print_chain(const Json &chain, size_t indent) {
  const std::string margin(indent, ' ');
  for (const Json &element : chain) {
    const std::string name = text_of(element, "unit");
    std::string title = name;
    if (const std::string kind = text_of(element, "kind"); !kind.empty())
      title = absl::StrCat(kind, " ", name);
    if (const std::string ofi = text_of(element, "ofi_name"); !ofi.empty() && ofi != name)
      absl::StrAppend(&title, " (", ofi, ")");
    absl::PrintF("%s|\n%s%s\n", margin, margin, emphasized(title, Emphasis::kStrong));
    if (const std::string summary = text_of(element, "summary"); !summary.empty())
      print_field("", summary, 0, indent);
    if (const std::string file = text_of(element, "library"); !file.empty())
      print_field("", absl::StrCat("from ", file, ", ", text_of(element, "maturity")), 0, indent);
    const std::vector<std::string> lines = texts_of(element, "lines");
    if (lines.empty()) print_field("", "(has nothing to say about this machine)", 0, indent);
    for (const std::string &line : lines) print_field("-", line, 1, indent + 2);
    const Json branches = array_of(element, "branches");
    for (size_t i = 0; i < branches.size(); ++i) {
      absl::PrintF("%s|\n%s+- branch %d of %d\n", margin, margin, i + 1, branches.size());
      print_chain(branches[i], indent + 4);
    }
  }
}

void print_stack(const Json &stack) {
  absl::PrintF("%s\n", emphasized(text_of(stack, "stack"), Emphasis::kStrong));
  if (const std::string name = text_of(stack, "offered_as"); !name.empty())
    print_field("to programs", name, 11, 2);
  print_field("from", text_of(stack, "origin"), 4, 2);
  absl::PrintF("\napplication\n");
  print_chain(array_of(stack, "elements"), 2);
  absl::PrintF("  |\nwire\n");
}

Result<int> run(const ExplainOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  Result<Json> answer = library.explain(options.stack);
  if (!answer) {
    if (options.json) print_json({{"stack", options.stack}, {"error", answer.error().text}});
    absl::FPrintF(stderr, "weft explain: %s\n", printable(answer.error().text));
    if (!options.stack.empty())
      absl::FPrintF(stderr, "`weft why '%s'` tells more\n", options.stack);
    return kExitNo;
  }
  const Json units = units_by_name(library);
  describe((*answer)["elements"], units);
  if (answer->contains("parts"))
    for (Json &part : (*answer)["parts"]) describe(part["elements"], units);
  if (options.json) {
    print_json(*answer);
    return kExitOk;
  }
  print_stack(*answer);
  for (const Json &part : array_of(*answer, "parts")) {
    absl::PrintF("\n");
    print_stack(part);
  }
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
