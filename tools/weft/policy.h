// SPDX-License-Identifier: BSD-2-Clause
// What the commands about the configuration have in common: its values and mistakes as the library
// gives them (policy_json of core/select/policy.h), and questions about files that are not
// installed.
//
// Example (statements):
//     const Json value = {{"key", "use"}, {"value", {"rdm"}}, {"origin", "site.yaml:3:6"}};
//     value_text(value);                    // ["rdm"]
//     place_in(text_of(value, "origin"));   // site.yaml, 3, 6
//
// Not for the policy itself: that is the core's.
#ifndef WEFT_TOOLS_WEFT_POLICY_H
#define WEFT_TOOLS_WEFT_POLICY_H

#include <weft/result.h>

#include <map>
#include <string>
#include <vector>

#include "tools/weft/supposing.h"
#include "tools/weft/text.h"

namespace weft::cli {

// How many of the diagnostics are of this severity.
size_t having(const Json &diagnostics, const std::string &severity);

std::string plural(size_t count, const char *word);

// The member "value" as text.
std::string value_text(const Json &value);

struct Place {
  std::string file;  // or "environment FI_PROVIDER"
  long line = 0, column = 0;
};

// Splits "/etc/weft/10-site.yaml:3:5"; a file name may have colons itself.
Place place_in(const std::string &where);

// The diagnostics of `file`, each with "file", "line", "column"; all if it is empty. Leaves out
// "the file is left out" where the file's own errors are listed.
Json only_of(const Json &diagnostics, const std::string &file);

// The command that tells what is wrong with a file at a place; an empty file: with what is
// installed.
std::string lint_command(const std::string &file, const std::string &place);

// What a weft command prints as JSON. It runs in a process of its own, because a process has one
// configuration, and because the library writes each error to stderr, once per process. The command
// may say no, with status 1.
Result<Json> ask_child(const std::vector<std::string> &words,
                       const std::map<std::string, std::string> &environment = {});

// config_lint.cc. `as_file`: the place at which the one file is checked; empty: as FI_CONFIG.
Result<int> lint(const std::vector<std::string> &files, const std::string &as_file, bool json);

// policy_diff.cc. Empty `before`: what is installed. Of `supposing` the facts and --as-file count.
struct DiffOptions {
  std::vector<std::string> files;     // A and B, or B
  std::vector<std::string> programs;  // their hints
  bool json = false;
};
Result<int> diff(const DiffOptions &options, const SupposingOptions &supposing);

}  // namespace weft::cli

#endif
