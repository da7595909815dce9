// SPDX-License-Identifier: BSD-2-Clause
// weft plugin check: whether a file is a good plugin, by its ELF data and by a run in a process of
// its own.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <weft/printable.h>

#include <algorithm>
#include <filesystem>

#include "tools/weft/child.h"
#include "tools/weft/command.h"
#include "tools/weft/elf_file.h"
#include "tools/weft/library.h"
#include "tools/weft/plugin.h"

namespace weft::cli {
namespace fs = std::filesystem;
namespace {

// Why a plugin must not need this library; empty: it may.
std::string forbidden(const std::string &needed) {
  if (needed.starts_with("libprotobuf") || needed.starts_with("libprotoc"))
    return absl::StrCat(needed, ": two copies of Protobuf in one process end it");
  if (needed.starts_with("libfabric.so"))
    return absl::StrCat(
        needed, ": a plugin gets what it needs from the core, and never calls fi_getinfo()");
  return {};
}

FileCheck judge_symbols(const ElfFacts &facts) {
  constexpr absl::string_view kQuery = "weft_plugin_query";
  constexpr size_t kShown = 8;
  std::vector<std::string> others;
  for (const std::string &symbol : facts.exported)
    if (symbol != kQuery) others.push_back(symbol);
  const bool query = others.size() != facts.exported.size();
  if (query && others.empty())
    return {"symbols", absl::StrCat("exports ", kQuery, " and nothing else"), ""};
  std::string text = query ? "" : absl::StrCat("does not export ", kQuery);
  if (const size_t count = others.size(); count != 0) {
    others.resize(std::min(count, kShown));
    absl::StrAppend(
        &text, query ? "exports " : "; exports ", count, count == 1 ? " symbol" : " symbols",
        " that others may bind to: ", absl::StrJoin(others, ", "), count > kShown ? ", ..." : "");
  }
  return {"symbols", text,
          "build it with weft_add_plugin(), or with -fvisibility=hidden and a version script",
          false};
}

FileCheck judge_libraries(const ElfFacts &facts) {
  std::vector<std::string> reasons;
  for (const std::string &needed : facts.needed)
    if (std::string reason = forbidden(needed); !reason.empty())
      reasons.push_back(std::move(reason));
  if (!reasons.empty())
    return {"libraries", absl::StrJoin(reasons, "; "), "link it statically, or do without", false};
  if (facts.needed.empty()) return {"libraries", "needs none", ""};
  return {"libraries", absl::StrCat("needs ", absl::StrJoin(facts.needed, " ")), ""};
}

std::vector<FileCheck> judge_linking(const std::string &file) {
  const Result<Missing> missing = try_linking(file);
  if (!missing) return {{"linking", missing.error().text, "build it for this machine", false}};
  std::vector<FileCheck> findings;
  if (!missing->libraries.empty())
    findings.push_back(
        {"linking",
         absl::StrCat("libraries that are not found: ", absl::StrJoin(missing->libraries, " ")),
         "install the packages that hold them", false});
  if (!missing->symbols.empty())
    findings.push_back(
        {"linking",
         absl::StrCat("symbols that nothing defines: ", absl::StrJoin(missing->symbols, " ")),
         "link it with -Wl,-z,defs and the libraries that define them", false});
  if (findings.empty()) findings.push_back({"linking", "every symbol is found", ""});
  return findings;
}

std::vector<FileCheck> check_file(const std::string &file) {
  const Result<ElfFacts> facts = read_elf(file);
  if (!facts) return {{"file", facts.error().text, "build or copy it again", false}};
  std::vector<FileCheck> findings = {judge_symbols(*facts), judge_libraries(*facts)};
  for (FileCheck &finding : judge_linking(file)) findings.push_back(std::move(finding));
  return findings;
}

std::string describe(const Json &record) {
  std::string text =
      absl::StrCat(text_of(record, "name"), " ", text_of(record, "version"), " of ",
                   text_of(record, "vendor"), ", ABI ", text_of(record, "abi"), ", ");
  absl::StrAppend(&text, text_of(record, "license"));
  for (const Json &unit : array_of(record, "units")) {
    absl::StrAppend(&text, "; ", text_of(unit, "kind"), " ", text_of(unit, "name"));
    absl::StrAppend(&text, " (", text_of(unit, "maturity"), ", ", text_of(unit, "security"), ")");
  }
  return text;
}

// The file of remembered verdicts that the library uses.
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
  if (!child.err.empty()) std::fputs(printable_lines(child.err).c_str(), stderr);
  return record;
}

// What weft-probe says of the plugin.
FileCheck judge_probe(const Json &record) {
  const std::string verdict = text_of(record, "verdict");
  if (verdict == "ok")
    return {"probe",
            "loaded, queried, initialized, asked and shut down in a process of its own: nothing to "
            "complain of",
            ""};
  return {"probe",
          absl::StrCat(verdict == "quarantined" ? "quarantined: " : "", text_of(record, "stage"),
                       ": ", text_of(record, "reason")),
          text_of(record, "remedy"), false};
}

}  // namespace

Result<PluginCheck> check_plugin_file(const std::string &file, const std::string &budget) {
  WEFT_TRY(const Library library, Library::open());
  std::error_code error;
  if (!fs::exists(file, error))
    return fail(FI_ENOENT, "%s: there is no such file: give the path of a plugin", file.c_str());
  PluginCheck check{.findings = check_file(file)};
  WEFT_TRY(check.record, probe(library, file, budget));
  if (!text_of(check.record, "name").empty())
    check.findings.push_back({"descriptor", describe(check.record), ""});
  check.findings.push_back(judge_probe(check.record));
  check.good = std::all_of(check.findings.begin(), check.findings.end(),
                           [](const FileCheck &finding) { return finding.good; });
  return check;
}

Result<int> check_plugin(const PluginOptions &options) {
  const std::string file = tidy_path(options.file);
  WEFT_TRY(const PluginCheck check, check_plugin_file(file, options.budget));
  if (options.json) {
    Json list = Json::array();
    for (const FileCheck &finding : check.findings)
      list.push_back({{"check", finding.check},
                      {"good", finding.good},
                      {"finding", finding.finding},
                      {"remedy", finding.remedy}});
    print_json(
        {{"file", file}, {"good", check.good}, {"findings", list}, {"plugin", check.record}});
    return check.good ? kExitOk : kExitNo;
  }
  absl::PrintF("%s\n", emphasized(file, Emphasis::kStrong));
  Table table({"CHECK", "STATE", "FINDING"});
  for (const FileCheck &finding : check.findings) {
    table.add({finding.check, finding.good ? "OK" : "FAIL", finding.finding},
              finding.good ? Emphasis::kNone : Emphasis::kBad);
    if (!finding.remedy.empty()) table.note(absl::StrCat("remedy: ", finding.remedy));
  }
  table.print(2);
  absl::PrintF("%s\n", check.good ? "a good plugin" : "not a good plugin");
  return check.good ? kExitOk : kExitNo;
}

}  // namespace weft::cli
