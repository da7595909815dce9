// SPDX-License-Identifier: BSD-2-Clause
// weft why: the decision record of one unit or stack, or of all candidates of a fi_getinfo(), or
// the calls of a command that it runs.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <memory>

#include "tools/weft/command.h"
#include "tools/weft/decisions.h"
#include "tools/weft/hints.h"
#include "tools/weft/library.h"
#include "tools/weft/why_command.h"

namespace weft::cli {
namespace {

struct WhyOptions {
  std::vector<std::string> words;  // NAME, or after a -- a command and its arguments
  std::string name;
  HintOptions hints;
  bool json = false;
};

// For a name that no plugin has: adds the folders that were searched, and whether the configuration
// disables the name as well.
void explain_absence(const Library &library, const std::string &name, Json &decision) {
  std::vector<std::string> folders;
  if (const Result<Json> plugins = library.plugins(); plugins && plugins->contains("folders"))
    for (const Json &folder : (*plugins)["folders"]) folders.push_back(text_of(folder, "path"));
  decision["searched"] = folders;
  const std::string known = text_of(decision, "remedy");
  decision["remedy"] = absl::StrCat(
      "install a plugin that has it in one of the folders searched, or name its "
      "folder in FI_PROVIDER_PATH or plugins.path",
      known.empty() ? "" : "; ", known);
  const Result<Json> config = library.config();
  if (!config || !config->contains("values")) return;
  for (const Json &value : (*config)["values"])
    if (text_of(value, "key") == "providers.disable" && text_of(value, "value") == name)
      decision["reason"] =
          absl::StrCat(text_of(decision, "reason"), "; and providers.disable names it at ",
                       text_of(value, "origin"));
}

Result<int> run(const WhyOptions &options) {
  WEFT_TRY(const Library library, Library::open());
  // The record is that of the last fi_getinfo(); it tells whether something matched.
  WEFT_TRY(const Offers asked, ask(options.hints));
  (void)asked;
  WEFT_TRY(Json decisions, library.why(options.name));
  if (decisions.size() == 1 && text_of(decisions[0], "stage") == "manifest" &&
      text_of(decisions[0], "candidate") == options.name && text_of(decisions[0], "rule").empty())
    explain_absence(library, options.name, decisions[0]);
  if (options.json) {
    print_json(decisions);
    return kExitOk;
  }
  const std::vector<Candidate> candidates = by_candidate(decisions);
  if (candidates.empty()) {
    absl::PrintF("%s\n",
                 options.name.empty()
                     ? "no candidates: no plugin offers a provider; `weft doctor` looks for "
                       "the cause"
                     : "nothing was decided about this name");
    return kExitOk;
  }
  if (options.name.empty()) {
    print_candidates(candidates);
    return kExitOk;
  }
  for (const Candidate &candidate : candidates) {
    if (&candidate != &candidates.front()) absl::PrintF("\n");
    print_candidate(candidate);
  }
  for (const std::string &folder : texts_of(decisions[0], "searched"))
    print_field("searched", folder, 8, 2);
  return kExitOk;
}

Result<int> run_either(WhyOptions &options, bool separated) {
  if (separated) {
    if (options.words.empty()) return fail(FI_EINVAL, "-- and no command: weft why -- COMMAND");
    return why_command(options.words, options.json);
  }
  if (options.words.size() > 1)
    return fail(FI_EINVAL, "one name, or -- before a command: weft why -- %s ...",
                options.words[0].c_str());
  if (!options.words.empty()) options.name = options.words[0];
  return run(options);
}

}  // namespace

void add_why(CLI::App &app, Action &action, const bool &separated) {
  const auto options = std::make_shared<WhyOptions>();
  CLI::App *command = app.add_subcommand(
      "why", "Why a provider, layer, hook or stack was or was not chosen, and what to do");
  command->add_option(
      "NAME", options->words,
      "unit or stack, installed or not: verbs, 'tcp;ofi_rxm' (default: all); or, after --, a "
      "command: its calls of fi_getinfo, with hints, answers and misses");
  command->footer("weft why -- COMMAND [ARG...]  runs a command and tells of its calls");
  add_hint_options(*command, options->hints);
  command->add_flag("--json", options->json, "JSON instead of text");
  command->callback([&action, options, &separated] {
    action = [options, &separated] { return run_either(*options, separated); };
  });
}

}  // namespace weft::cli
