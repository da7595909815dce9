// SPDX-License-Identifier: BSD-2-Clause
// weft config lint: every mistake in files that count, or would count, on this machine.
#include <weft/printable.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "tools/weft/command.h"
#include "tools/weft/policy.h"

namespace weft::cli {
namespace {

std::pair<std::string, std::string> told(const Json &one) {
  return {text_of(one, "where"), text_of(one, "text")};
}

// The values of `file` that a later file of the system overrides.
Json without_effect(const Json &config, const std::string &file) {
  std::set<std::string> system;
  for (const Json &one : array_of(config, "files"))
    if (flag_of(one, "system")) system.insert(text_of(one, "path"));
  Json list = Json::array();
  for (const Json &one : array_of(config, "overridden")) {
    const std::string how = text_of(one, "how"), by = place_in(text_of(one, "by")).file;
    // That a final key refuses a value is told anyway.
    if (how == "final" || by == file || !system.contains(by)) continue;
    list.push_back({{"severity", "warning"},
                    {"where", text_of(one, "origin")},
                    {"text", text_of(one, "key") + " has no effect: " + text_of(one, "text")}});
  }
  return only_of(list, file);
}

struct Checked {
  std::vector<std::string> files;
  Json diagnostics = Json::array();
};

void append_all(Json &list, const Json &more) {
  for (const Json &one : more) list.push_back(one);
}

// Of the files that are in use, or of each file as FI_CONFIG.
Result<Checked> check_files(const std::vector<std::string> &names) {
  WEFT_TRY(const Json here, ask_child({"config", "show", "--json"}));
  std::vector<std::string> known;
  for (const Json &file : array_of(here, "files")) known.push_back(text_of(file, "path"));
  if (names.empty()) return Checked{known, only_of(array_of(here, "diagnostics"), "")};
  Checked checked;
  for (const std::string &name : names) {
    WEFT_CHECK(check_readable(name));
    const std::string file = absolute_path(name);
    Json config = here;
    if (std::find(known.begin(), known.end(), file) == known.end()) {
      WEFT_TRY(config, ask_child({"config", "show", "--json"}, {{"FI_CONFIG", file}}));
    }
    append_all(checked.diagnostics, only_of(array_of(config, "diagnostics"), file));
    checked.files.push_back(file);
  }
  return checked;
}

// Of a file at a place among the installed ones, what is wrong with it and with the others because
// of it.
Result<Checked> check_in_place(const std::string &name, const std::string &as_file) {
  WEFT_CHECK(check_readable(name));
  const std::string file = absolute_path(name);
  WEFT_TRY(const Json before, ask_child({"config", "show", "--json"}));
  WEFT_TRY(const Json config, ask_child({"config", "show", "--json", "--all",
                                         "--as-file=" + absolute_path(as_file), file}));
  const Json all = array_of(config, "diagnostics"), old = array_of(before, "diagnostics");
  Checked checked{{file}, only_of(all, file)};
  append_all(checked.diagnostics, without_effect(config, file));
  std::set<std::pair<std::string, std::string>> old_ones;
  for (const Json &one : old) old_ones.insert(told(one));
  for (const Json &one : only_of(all, ""))
    if (text_of(one, "file") != file && !old_ones.contains(told(one)))
      checked.diagnostics.push_back(one);
  return checked;
}

void print_diagnostics(const Json &diagnostics) {
  for (const Json &one : diagnostics) {
    const std::string severity = text_of(one, "severity");
    const Emphasis emphasis = severity == "error"  ? Emphasis::kBad
                              : severity == "note" ? Emphasis::kNone
                                                   : Emphasis::kDoubtful;
    std::printf("%s: %s: %s\n", printable(text_of(one, "where")).c_str(),
                emphasized(severity, emphasis).c_str(), printable(text_of(one, "text")).c_str());
  }
}

}  // namespace

Result<int> lint(const std::vector<std::string> &files, const std::string &as_file, bool json) {
  if (!as_file.empty() && files.size() != 1)
    return fail(FI_EINVAL, "--as %s, and %s: give the one that is read there", as_file.c_str(),
                plural(files.size(), "file").c_str());
  WEFT_TRY(const Checked checked,
           as_file.empty() ? check_files(files) : check_in_place(files[0], as_file));
  const size_t errors = having(checked.diagnostics, "error"),
               warnings = having(checked.diagnostics, "warning");
  const int status = errors == 0 ? kExitOk : kExitNo;
  if (json) {
    print_json({{"files", checked.files},
                {"errors", errors},
                {"warnings", warnings},
                {"diagnostics", checked.diagnostics}});
    return status;
  }
  print_diagnostics(checked.diagnostics);
  if (checked.files.empty() && checked.diagnostics.empty())
    std::printf("no configuration file: weft uses what it finds, by rank\n");
  else
    std::printf("%s, %s in %s\n", plural(errors, "error").c_str(),
                plural(warnings, "warning").c_str(), plural(checked.files.size(), "file").c_str());
  return status;
}

}  // namespace weft::cli
