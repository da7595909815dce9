// SPDX-License-Identifier: BSD-2-Clause
// weft plugin: what is installed, whether a file is a good plugin, the index and the quarantine.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "tools/weft/child.h"
#include "tools/weft/command.h"
#include "tools/weft/decisions.h"
#include "tools/weft/elf_file.h"
#include "tools/weft/hints.h"
#include "tools/weft/library.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

struct Options {
  bool json = false;
  bool verbose = false;
  std::string file;
  std::string budget;
  std::string folder;
  std::string clear;
};

// Longer than any budget that weft-probe accepts.
constexpr std::chrono::minutes kProbeLimit{11};

std::string tidy(const std::string &path) {
  return fs::absolute(path).lexically_normal();
}

Json array_of(const Json &object, const char *key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : Json::array();
}

// ---- list
// -----------------------------------------------------------------------------------------

// The units of "tcp;ofi_rxm".
std::set<std::string> parts_of(const std::string &stack) {
  std::set<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = stack.find(';', begin)) != std::string::npos; begin = end + 1)
    parts.insert(stack.substr(begin, end - begin));
  parts.insert(stack.substr(begin));
  return parts;
}

struct UnitState {
  std::string state, reason;
};

// How far a unit gets: installed, loadable (a probe found nothing wrong), usable (it was loaded),
// selected (a fi_getinfo() without hints offers it); or what stops it.
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
    text += " " + text_of(param, "minimum") + ".." + text_of(param, "maximum");
  if (const std::string value = text_of(param, "default"); !value.empty())
    text += ", default " + value;
  return text;
}

void print_unit(const Json &unit, size_t indent) {
  constexpr size_t kWidth = 10;
  const auto field = [&](const char *label, const std::string &text) {
    if (!text.empty()) print_field(label, text, kWidth, indent + 2);
  };
  std::printf(
      "%*s%s\n", static_cast<int>(indent), "",
      emphasized(text_of(unit, "kind") + " " + text_of(unit, "name"), Emphasis::kStrong).c_str());
  field("", text_of(unit, "summary"));
  if (text_of(unit, "ofi_name") != text_of(unit, "name"))
    field("OFI name", text_of(unit, "ofi_name"));
  field("version", text_of(unit, "version"));
  field("state", text_of(unit, "state"));
  field("reason", text_of(unit, "state_reason"));
  field("offers", joined(texts_of(unit, "offers"), ", "));
  field("needs", joined(texts_of(unit, "needs"), ", "));
  field("rank", text_of(unit, "rank"));
  field("maturity", text_of(unit, "maturity"));
  field("security", text_of(unit, "security"));
  field("devices", joined(texts_of(unit, "devices"), ", "));
  for (const Json &param : array_of(unit, "params")) {
    field("parameter",
          text_of(param, "name") + " (" + bounds_of(param) + "): " + text_of(param, "help"));
    if (param.contains("value"))
      field("", "is " + text_of(param, "value") + ", from " + text_of(param, "origin"));
  }
}

void print_plugins(const Json &plugins) {
  for (const Json &plugin : plugins) {
    if (&plugin != &plugins.front()) std::printf("\n");
    std::printf("%s\n", emphasized(text_of(plugin, "name"), Emphasis::kStrong).c_str());
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
      if (state == "disabled") table.note("reason: " + text_of(unit, "state_reason"));
    }
    if (const std::string reason = text_of(plugin, "reason"); !reason.empty()) {
      table.note("reason: " + text_of(plugin, "stage") + ": " + reason);
      table.note("remedy: " + text_of(plugin, "remedy"));
    }
  }
  table.print();
}

Result<int> list(const Options &options) {
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
    std::printf("no plugins; these folders were searched:\n");
    for (const Json &folder : array_of(answer, "folders"))
      std::printf("  %s (%s)\n", text_of(folder, "path").c_str(),
                  text_of(folder, "origin").c_str());
  } else if (options.verbose) {
    print_plugins(plugins);
  } else {
    print_table(plugins);
  }
  // What concerns no plugin in the table: manifests that cannot be read, names that are taken.
  std::set<std::string> told;
  for (const Json &plugin : plugins)
    if (!text_of(plugin, "reason").empty()) told.insert(text_of(plugin, "library"));
  for (const Json &trouble : array_of(answer, "troubles")) {
    if (told.contains(text_of(trouble, "rule"))) continue;
    std::fprintf(stderr, "weft plugin list: %s: %s: %s\n", text_of(trouble, "rule").c_str(),
                 text_of(trouble, "stage").c_str(), text_of(trouble, "reason").c_str());
    if (const std::string remedy = text_of(trouble, "remedy"); !remedy.empty())
      std::fprintf(stderr, "    remedy: %s\n", remedy.c_str());
  }
  return kExitOk;
}

// ---- check
// ----------------------------------------------------------------------------------------

struct Finding {
  std::string check, finding, remedy;
  bool good = true;
};

// What must not be linked to a plugin, and why.
std::string forbidden(const std::string &needed) {
  if (needed.starts_with("libprotobuf") || needed.starts_with("libprotoc"))
    return needed + ": two copies of Protobuf in one process end it";
  if (needed.starts_with("libfabric.so"))
    return needed + ": a plugin gets what it needs from the core, and never calls fi_getinfo()";
  return {};
}

void check_file(const std::string &file, std::vector<Finding> &findings) {
  constexpr const char *kQuery = "weft_plugin_query";
  const Result<ElfFacts> facts = read_elf(file);
  if (!facts) {
    findings.push_back({"file", facts.error().text, "build or copy it again", false});
    return;
  }
  std::vector<std::string> others;
  bool query = false;
  for (const std::string &symbol : facts->exported) {
    if (symbol == kQuery)
      query = true;
    else
      others.push_back(symbol);
  }
  if (query && others.empty()) {
    findings.push_back({"symbols", std::string("exports ") + kQuery + " and nothing else", ""});
  } else {
    constexpr size_t kShown = 8;
    const size_t count = others.size();
    if (count > kShown) others.resize(kShown);
    std::string text = query ? "" : std::string("does not export ") + kQuery;
    if (count != 0)
      text += (text.empty() ? "exports " : "; exports ") + std::to_string(count) +
              (count == 1 ? " symbol" : " symbols") +
              " that others may bind to: " + joined(others, ", ") + (count > kShown ? ", ..." : "");
    findings.push_back({"symbols", text,
                        "build it with weft_add_plugin(), or with -fvisibility=hidden and a "
                        "version script",
                        false});
  }

  std::vector<std::string> reasons;
  for (const std::string &needed : facts->needed)
    if (std::string reason = forbidden(needed); !reason.empty())
      reasons.push_back(std::move(reason));
  if (reasons.empty())
    findings.push_back(
        {"libraries", facts->needed.empty() ? "needs none" : "needs " + joined(facts->needed, " "),
         ""});
  else
    findings.push_back(
        {"libraries", joined(reasons, "; "), "link it statically, or do without", false});

  const Result<Missing> missing = try_linking(file);
  if (!missing) {
    findings.push_back({"linking", missing.error().text, "build it for this machine", false});
    return;
  }
  if (missing->libraries.empty() && missing->symbols.empty()) {
    findings.push_back({"linking", "every symbol is found", ""});
    return;
  }
  if (!missing->libraries.empty())
    findings.push_back({"linking",
                        "libraries that are not found: " + joined(missing->libraries, " "),
                        "install the packages that hold them", false});
  if (!missing->symbols.empty())
    findings.push_back({"linking", "symbols that nothing defines: " + joined(missing->symbols, " "),
                        "link it with -Wl,-z,defs and the libraries that define them", false});
}

std::string describe(const Json &record) {
  std::string text = text_of(record, "name") + " " + text_of(record, "version") + " of " +
                     text_of(record, "vendor") + ", ABI " + text_of(record, "abi") + ", " +
                     text_of(record, "license");
  for (const Json &unit : array_of(record, "units")) {
    text += "; " + text_of(unit, "kind") + " " + text_of(unit, "name") + " (" +
            text_of(unit, "maturity") + ", " + text_of(unit, "security") + ")";
  }
  return text;
}

// The list of verdicts, as the library itself uses it.
Result<std::string> quarantine_file(const Library &library) {
  WEFT_TRY(const Json plugins, library.plugins());
  return text_of(plugins, "quarantine");
}

std::string probe_budget(const Library &library) {
  const Result<Json> config = library.config();
  if (!config) return {};
  for (const Json &value : array_of(*config, "values"))
    if (text_of(value, "key") == "plugins.probe_budget_ms") return text_of(value, "value");
  return {};
}

Result<Json> probe(const Library &library, const std::string &file, const std::string &budget) {
  std::vector<std::string> command = {library.probe_program(), "--check", file};
  WEFT_TRY(const std::string remembered, quarantine_file(library));
  if (!remembered.empty()) command.insert(command.end(), {"--quarantine", remembered});
  const std::string limit = budget.empty() ? probe_budget(library) : budget;
  if (!limit.empty()) command.insert(command.end(), {"--budget", limit});
  WEFT_TRY(const ChildResult child, run_child(command, {}, kProbeLimit));
  Json record = Json::parse(child.out, nullptr, false);
  if (record.is_discarded())
    return fail(
        FI_EINVAL, "%s",
        child.err.empty() ? "weft-probe gave no answer: reinstall weft" : child.err.c_str());
  if (!child.err.empty()) std::fputs(child.err.c_str(), stderr);
  return record;
}

Result<int> check(const Options &options) {
  WEFT_TRY(const Library library, Library::open());
  const std::string file = tidy(options.file);
  std::error_code error;
  if (!fs::exists(file, error))
    return fail(FI_ENOENT, "%s: there is no such file: give the path of a plugin", file.c_str());
  std::vector<Finding> findings;
  check_file(file, findings);
  WEFT_TRY(const Json record, probe(library, file, options.budget));
  if (!text_of(record, "name").empty()) findings.push_back({"descriptor", describe(record), ""});
  const std::string verdict = text_of(record, "verdict");
  if (verdict == "ok")
    findings.push_back({"probe",
                        "loaded, queried, initialized and shut down in a process of its "
                        "own: nothing to complain of",
                        ""});
  else
    findings.push_back({"probe",
                        (verdict == "quarantined" ? "quarantined: " : "") +
                            text_of(record, "stage") + ": " + text_of(record, "reason"),
                        text_of(record, "remedy"), false});
  const bool good = std::all_of(findings.begin(), findings.end(),
                                [](const Finding &finding) { return finding.good; });
  if (options.json) {
    Json list = Json::array();
    for (const Finding &finding : findings)
      list.push_back({{"check", finding.check},
                      {"good", finding.good},
                      {"finding", finding.finding},
                      {"remedy", finding.remedy}});
    print_json({{"file", file}, {"good", good}, {"findings", list}, {"plugin", record}});
    return good ? kExitOk : kExitNo;
  }
  std::printf("%s\n", emphasized(file, Emphasis::kStrong).c_str());
  Table table({"CHECK", "STATE", "FINDING"});
  for (const Finding &finding : findings) {
    table.add({finding.check, finding.good ? "OK" : "FAIL", finding.finding},
              finding.good ? Emphasis::kNone : Emphasis::kBad);
    if (!finding.remedy.empty()) table.note("remedy: " + finding.remedy);
  }
  table.print(2);
  std::printf("%s\n", good ? "a good plugin" : "not a good plugin");
  return good ? kExitOk : kExitNo;
}

// ---- refresh
// --------------------------------------------------------------------------------------

Result<int> refresh(const Options &options) {
  WEFT_TRY(const Library library, Library::open());
  std::vector<std::string> folders;
  if (!options.folder.empty()) {
    folders.push_back(tidy(options.folder));
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
                        library.plugin_folder() + "/weft-config.so"},
                       {}, kProbeLimit));
    good = good && child.status == 0;
    list.push_back({{"folder", folder}, {"written", child.status == 0}, {"troubles", child.err}});
    std::fputs(child.err.c_str(), stderr);
    if (!options.json && child.status == 0) std::printf("wrote %s/plugins.idx\n", folder.c_str());
  }
  if (options.json) print_json(list);
  return good ? kExitOk : kExitNo;
}

// ---- quarantine
// -----------------------------------------------------------------------------------

struct Quarantined {
  std::string library, stage, reason, remedy, where;
};

Result<std::vector<Quarantined>> quarantined(const Library &library) {
  WEFT_TRY(const Json plugins, library.plugins());
  std::vector<Quarantined> all;
  const std::string remembered = text_of(plugins, "quarantine");
  std::error_code error;
  if (!remembered.empty() && fs::exists(remembered, error)) {
    WEFT_TRY(const ChildResult child,
             run_child({library.probe_program(), "--list", remembered}, {}, kProbeLimit));
    const Json records = Json::parse(child.out, nullptr, false);
    if (child.status != 0 || !records.is_array())
      return fail(FI_EINVAL, "%s cannot be read: %s", remembered.c_str(), child.err.c_str());
    for (const Json &record : records)
      if (text_of(record, "verdict") == "quarantined")
        all.push_back({text_of(record, "library"), text_of(record, "stage"),
                       text_of(record, "reason"), text_of(record, "remedy"), remembered});
  }
  // An index may say so as well.
  for (const Json &plugin : array_of(plugins, "plugins")) {
    const std::string file = text_of(plugin, "library");
    if (text_of(plugin, "state") != "quarantined" ||
        std::any_of(all.begin(), all.end(),
                    [&](const Quarantined &one) { return one.library == file; }))
      continue;
    const std::string folder = fs::path(file).parent_path();
    all.push_back({file, text_of(plugin, "stage"), text_of(plugin, "reason"),
                   "`weft plugin refresh " + folder + "` tries it again", folder + "/plugins.idx"});
  }
  return all;
}

Result<int> clear(const Library &library, const std::string &wanted, bool json) {
  WEFT_TRY(const std::vector<Quarantined> all, quarantined(library));
  const std::string file = tidy(wanted);
  std::vector<std::string> known;
  for (const Quarantined &one : all) {
    known.push_back(one.library);
    if (one.library != file) continue;
    if (fs::path(one.where).filename() == "plugins.idx")
      return fail(FI_EPERM, "%s stands in %s: %s", file.c_str(), one.where.c_str(),
                  one.remedy.c_str());
    WEFT_TRY(const ChildResult child,
             run_child({library.probe_program(), "--forget", file, "--quarantine", one.where}, {},
                       kProbeLimit));
    if (child.status != 0) return fail(FI_EPERM, "%s", child.err.c_str());
    if (json)
      print_json({{"cleared", file}});
    else
      std::printf("%s is tried again when it is next needed\n", file.c_str());
    return kExitOk;
  }
  const std::string close = nearest_word(file, known);
  return fail(FI_ENOENT, "%s is not in quarantine%s%s%s", file.c_str(),
              close.empty() ? "" : ": did you mean '", close.c_str(), close.empty() ? "" : "'?");
}

Result<int> quarantine(const Options &options) {
  WEFT_TRY(const Library library, Library::open());
  if (!options.clear.empty()) return clear(library, options.clear, options.json);
  WEFT_TRY(const std::vector<Quarantined> all, quarantined(library));
  if (options.json) {
    Json list = Json::array();
    for (const Quarantined &one : all)
      list.push_back({{"library", one.library},
                      {"stage", one.stage},
                      {"reason", one.reason},
                      {"remedy", one.remedy},
                      {"where", one.where}});
    print_json(list);
    return kExitOk;
  }
  if (all.empty()) {
    std::printf("no plugin is in quarantine\n");
    return kExitOk;
  }
  Table table({"FILE", "STAGE", "REASON"});
  for (const Quarantined &one : all) {
    table.add({one.library, one.stage, one.reason});
    table.note("remedy: " + one.remedy);
    table.note("stands in: " + one.where);
  }
  table.print();
  return kExitOk;
}

}  // namespace

void add_plugin(CLI::App &app, Action &action) {
  const auto options = std::make_shared<Options>();
  CLI::App *command =
      app.add_subcommand("plugin", "Plugins: list, check a file, index, quarantine");
  command->require_subcommand(1);
  const auto add = [&](const char *name, const char *help, Result<int> (*run)(const Options &)) {
    CLI::App *sub = command->add_subcommand(name, help);
    sub->add_flag("--json", options->json, "JSON instead of text");
    sub->callback([&action, options, run] { action = [options, run] { return run(*options); }; });
    return sub;
  };
  CLI::App *list_command =
      add("list", "What is installed, loadable, usable and selected, or what stops it", list);
  list_command->add_flag("-v,--verbose", options->verbose, "everything, with the parameters");

  CLI::App *check_command =
      add("check",
          "Whether a file is a good plugin: its symbols, and a try in a process of its own", check);
  check_command->add_option("FILE", options->file, "the plugin")->required();
  check_command->add_option("--budget", options->budget,
                            "milliseconds that the try may take (default: of the configuration)");

  CLI::App *refresh_command = add(
      "refresh", "Writes plugins.idx, so that programs start without reading manifests", refresh);
  refresh_command->add_option("DIR", options->folder,
                              "folder of plugins (default: all that count)");

  CLI::App *quarantine_command = add(
      "quarantine", "Plugins that crashed, hung or misbehaved when they were tried", quarantine);
  quarantine_command->add_option("--clear,--remove", options->clear,
                                 "try this file again when it is next needed");
}

}  // namespace weft::cli
