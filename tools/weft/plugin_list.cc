// SPDX-License-Identifier: BSD-2-Clause
// weft plugin list: the installed plugins, and how far each of their units gets on this machine.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <weft/printable.h>

#include <filesystem>
#include <set>

#include "tools/weft/command.h"
#include "tools/weft/decisions.h"
#include "tools/weft/hints.h"
#include "tools/weft/library.h"
#include "tools/weft/plugin.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

// The units of "tcp;ofi_rxm".
std::set<std::string> parts_of(const std::string &stack) {
  return absl::StrSplit(stack, ';');
}

struct UnitState {
  std::string state, reason;
};

// How far a unit gets: installed, loadable (the probe found no fault), usable (the library loaded
// it), selected (a fi_getinfo() without hints offers it). Otherwise the state is what stops it.
UnitState state_of(const Json &plugin, const Json &unit, const std::vector<Candidate> &candidates) {
  const std::string state = text_of(plugin, "state");
  if (state == "rejected" || state == "quarantined") return {state, text_of(plugin, "reason")};
  if (unit.contains("allowed") && unit["allowed"] == false)
    return {"disabled", text_of(unit, "reason")};
  const std::string name = text_of(unit, "name"), ofi_name = text_of(unit, "ofi_name");
  const Decision *stopped = nullptr;
  bool loaded = false;
  for (const Candidate &candidate : candidates) {
    const std::set<std::string> parts = parts_of(candidate.name);
    if (!parts.contains(name) && !parts.contains(ofi_name)) continue;
    if (candidate.chosen()) return {"selected", candidate.last().reason};
    if (parts.size() > 1) continue;
    for (const Decision &decision : candidate.decisions)
      loaded = loaded || (decision.stage == "init" && decision.accepted);
    if (!candidate.last().accepted) stopped = &candidate.last();
  }
  if (loaded) return {"usable", stopped != nullptr ? stopped->reason : ""};
  const bool good = state == "probed" || state == "loaded";
  return {good ? "loadable" : "installed", stopped != nullptr ? stopped->reason : ""};
}

std::string bounds_of(const Json &param) {
  std::string text = text_of(param, "type");
  if (param.contains("minimum"))
    absl::StrAppend(&text, " ", text_of(param, "minimum"), "..", text_of(param, "maximum"));
  if (const std::string value = text_of(param, "default"); !value.empty())
    absl::StrAppend(&text, ", default ", value);
  return text;
}

// "1 provider", "2 to 16 providers", each of which offers what the unit needs.
std::string providers_beneath(const std::string &least, const std::string &most) {
  if (least == most) return absl::StrCat(most, most == "1" ? " provider" : " providers");
  return absl::StrCat(least, " to ", most, " providers");
}

void print_unit(const Json &unit, size_t indent) {
  constexpr size_t kWidth = 10;
  const auto field = [&](const char *label, const std::string &text) {
    if (!text.empty()) print_field(label, text, kWidth, indent + 2);
  };
  const std::string title = absl::StrCat(text_of(unit, "kind"), " ", text_of(unit, "name"));
  absl::PrintF("%s%s\n", std::string(indent, ' '), emphasized(title, Emphasis::kStrong));
  field("", text_of(unit, "summary"));
  if (text_of(unit, "ofi_name") != text_of(unit, "name"))
    field("OFI name", text_of(unit, "ofi_name"));
  field("version", text_of(unit, "version"));
  field("state", text_of(unit, "state"));
  field("reason", text_of(unit, "state_reason"));
  field("offers", absl::StrJoin(texts_of(unit, "offers"), ", "));
  field("needs", absl::StrJoin(texts_of(unit, "needs"), ", "));
  if (const std::string most = text_of(unit, "inner_max"); !most.empty() && most != "0")
    field("stands on", providers_beneath(text_of(unit, "inner_min"), most));
  field("rank", text_of(unit, "rank"));
  field("maturity", text_of(unit, "maturity"));
  field("security", text_of(unit, "security"));
  field("devices", absl::StrJoin(texts_of(unit, "devices"), ", "));
  field("without", text_of(unit, "device_remedy"));
  for (const Json &param : array_of(unit, "params")) {
    field("parameter", absl::StrCat(text_of(param, "name"), " (", bounds_of(param),
                                    "): ", text_of(param, "help")));
    if (param.contains("value"))
      field("", absl::StrCat("is ", text_of(param, "value"), ", from ", text_of(param, "origin")));
  }
}

void print_plugins(const Json &plugins) {
  for (const Json &plugin : plugins) {
    if (&plugin != &plugins.front()) absl::PrintF("\n");
    absl::PrintF("%s\n", emphasized(text_of(plugin, "name"), Emphasis::kStrong));
    constexpr size_t kWidth = 8;
    for (const char *key : {"version", "vendor", "license", "support", "abi", "library", "manifest",
                            "state", "stage", "reason", "remedy"})
      if (const std::string text = text_of(plugin, key); !text.empty())
        print_field(key, text, kWidth, 2);
    for (const Json &unit : array_of(plugin, "units")) print_unit(unit, 2);
  }
}

void print_table(const Json &plugins) {
  Table table(
      {"PLUGIN", "VERSION", "ABI", "UNIT", "KIND", "MATURITY", "SECURITY", "STATE", "FILE"});
  for (const Json &plugin : plugins) {
    Json units = array_of(plugin, "units");
    if (units.empty())
      units.push_back({{"name", "-"}, {"kind", "-"}, {"state", text_of(plugin, "state")}});
    for (const Json &unit : units) {
      const std::string state = text_of(unit, "state");
      const bool bad = state == "rejected" || state == "quarantined";
      const std::string file = text_of(plugin, "library");
      const std::string name = text_of(plugin, "name");
      table.add(
          {name.empty() ? fs::path(file).filename().string() : name, text_of(plugin, "version"),
           text_of(plugin, "abi"), text_of(unit, "name"), text_of(unit, "kind"),
           text_of(unit, "maturity"), text_of(unit, "security"), state, file},
          bad                   ? Emphasis::kBad
          : state == "selected" ? Emphasis::kGood
                                : Emphasis::kNone);
      if (state == "disabled") table.note(absl::StrCat("reason: ", text_of(unit, "state_reason")));
    }
    if (const std::string reason = text_of(plugin, "reason"); !reason.empty()) {
      table.note(absl::StrCat("reason: ", text_of(plugin, "stage"), ": ", reason));
      table.note(absl::StrCat("remedy: ", text_of(plugin, "remedy")));
    }
  }
  table.print();
}

// Prints the problems that belong to no plugin in the table, such as manifests that cannot be read
// and names that are taken.
void print_troubles(const Json &answer) {
  std::set<std::string> told;
  for (const Json &plugin : array_of(answer, "plugins"))
    if (!text_of(plugin, "reason").empty()) told.insert(text_of(plugin, "library"));
  for (const Json &trouble : array_of(answer, "troubles")) {
    if (told.contains(text_of(trouble, "rule"))) continue;
    absl::FPrintF(stderr, "weft plugin list: %s: %s: %s\n", printable(text_of(trouble, "rule")),
                  printable(text_of(trouble, "stage")), printable(text_of(trouble, "reason")));
    if (const std::string remedy = text_of(trouble, "remedy"); !remedy.empty())
      absl::FPrintF(stderr, "    remedy: %s\n", printable(remedy));
  }
}

}  // namespace

Result<int> list_plugins(const PluginOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  WEFT_TRY(const Offers asked, ask({}));  // loads what can be loaded
  (void)asked;
  WEFT_TRY(Json answer, library.plugins());
  WEFT_TRY(const Json decisions, library.why(""));
  const std::vector<Candidate> candidates = by_candidate(decisions);
  for (Json &plugin : answer["plugins"]) {
    for (Json &unit : plugin["units"]) {
      const UnitState state = state_of(plugin, unit, candidates);
      unit["state"] = state.state;
      unit["state_reason"] = state.reason;
    }
  }
  if (options.json) {
    print_json(answer);
    return kExitOk;
  }
  const Json &plugins = answer["plugins"];
  if (plugins.empty()) {
    absl::PrintF("no plugins; these folders were searched:\n");
    for (const Json &folder : array_of(answer, "folders"))
      absl::PrintF("  %s (%s)\n", printable(text_of(folder, "path")),
                   printable(text_of(folder, "origin")));
  } else if (options.verbose) {
    print_plugins(plugins);
  } else {
    print_table(plugins);
  }
  print_troubles(answer);
  return kExitOk;
}

}  // namespace weft::cli
