// SPDX-License-Identifier: BSD-2-Clause
#include "tools/weft/command_line.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <weft/printable.h>

#include <cstdio>
#include <exception>
#include <sstream>
#include <string_view>
#include <vector>

#include "tools/finish_output.h"
#include "tools/weft/text.h"

namespace weft::cli {
namespace {

// The subcommand that was typed, as deep as it goes.
const CLI::App *typed(const CLI::App &app) {
  const CLI::App *deepest = &app;
  for (auto next = deepest->get_subcommands(); !next.empty(); next = deepest->get_subcommands())
    deepest = next.front();
  return deepest;
}

std::string full_name(const CLI::App *command) {
  return command->get_parent() == nullptr
             ? command->get_name()
             : absl::StrCat(full_name(command->get_parent()), " ", command->get_name());
}

std::vector<std::string> words_of(const CLI::App &command, bool option) {
  std::vector<std::string> words;
  if (!option) {
    for (const CLI::App *one : command.get_subcommands([](const CLI::App *) { return true; }))
      words.push_back(one->get_name());
    return words;
  }
  for (const CLI::Option *one : command.get_options()) {
    for (const std::string &name : one->get_lnames()) words.push_back(absl::StrCat("--", name));
    for (const std::string &name : one->get_snames()) words.push_back(absl::StrCat("-", name));
  }
  return words;
}

// The first word that `command` itself does not know, not a subcommand of it.
std::string stray_word(const CLI::App &command) {
  for (const std::string &one : command.remaining(false))
    if (one != "--") return one;
  return "";
}

// The first word that is not known where it stands, and the word that was probably meant.
std::string misfit(const CLI::App &app) {
  const CLI::App *const last = typed(app), *command = &app;
  while (command != last && stray_word(*command).empty())
    command = command->get_subcommands().front();
  const std::string word = stray_word(*command), name = full_name(command);
  if (word.empty()) {
    return absl::StrCat(
        name, ": a subcommand is missing: ", absl::StrJoin(words_of(*command, false), ", "), "\n");
  }
  const bool option = word.size() > 1 && word[0] == '-';
  const std::string bare = word.substr(0, word.find('='));
  const std::vector<std::string> words = words_of(*command, option);
  const std::string close = nearest_word(bare, words);
  const char *kind = option ? "option" : words.empty() ? "argument" : "subcommand";
  std::string advice;
  if (!close.empty())
    advice = absl::StrCat(": did you mean '", close, "'?");
  else if (command != last)
    advice = absl::StrCat("; options of `", full_name(last), "` go behind these words");
  else if (!words.empty())
    advice = absl::StrCat("; known: ", absl::StrJoin(words, " "));
  return absl::StrCat(name, ": unknown ", kind, " '", bare, "'", advice, "\n");
}

}  // namespace

int run_command_line(CLI::App &app, const Action &action, int argc, char **argv,
                     const Around &around) {
  app.set_version_flag("--version", absl::StrCat(app.get_name(), " ", WEFT_VERSION));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &wanted) {  // --help, --version
    std::ostringstream text;
    const int status = app.exit(wanted, text);
    std::fputs(text.str().c_str(), stdout);
    return finish_output(full_name(typed(app)).c_str(), status);
  } catch (const CLI::ParseError &error) {
    const bool stray = dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr ||
                       dynamic_cast<const CLI::RequiredError *>(&error) != nullptr;
    const CLI::App *command = typed(app);
    // For a missing argument CLI11's own message is better.
    const bool explained =
        stray && (!app.remaining(true).empty() || !words_of(*command, false).empty());
    const std::string text =
        explained ? misfit(app) : absl::StrCat(full_name(command), ": ", error.what(), "\n");
    absl::FPrintF(stderr, "%s`%s --help` lists what there is\n", printable_lines(text),
                  full_name(command));
    return kExitUsage;
  }
  const std::string name = full_name(typed(app));
  const auto run_action = [&] {
    const Result<int> status = action();
    if (status) return finish_output(name.c_str(), *status);
    absl::FPrintF(stderr, "%s: %s\n", name, printable_lines(status.error().text));
    return kExitUsage;
  };
  return around != nullptr ? around(name, run_action) : run_action();
}

int run_program(const char *name, int (*run)(int argc, char **argv), int argc, char **argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return kExitUsage;
  }
}

}  // namespace weft::cli
