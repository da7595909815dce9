// SPDX-License-Identifier: BSD-2-Clause
// weft policy: what programs get under files that are not installed, and what the files change.
#include "tools/weft/policy.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <weft/printable.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>

#include "tools/weft/child.h"
#include "tools/weft/command.h"
#include "tools/weft/decisions.h"
#include "tools/weft/hints.h"
#include "tools/weft/library.h"
#include "tools/weft/offers.h"

namespace weft::cli {
namespace fs = std::filesystem;

size_t having(const Json &diagnostics, const std::string &severity) {
  return static_cast<size_t>(
      std::count_if(diagnostics.begin(), diagnostics.end(),
                    [&](const Json &one) { return text_of(one, "severity") == severity; }));
}

std::string plural(size_t count, const char *word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

std::string value_text(const Json &value) {
  const Json content = value.value("value", Json(nullptr));
  return content.is_string() ? content.get<std::string>()
                             : content.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Place place_in(const std::string &where) {
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

Json only_of(const Json &diagnostics, const std::string &file) {
  std::set<std::string> explained;
  for (const Json &one : diagnostics)
    if (const Place place = place_in(text_of(one, "where")); place.line != 0)
      explained.insert(place.file);
  Json list = Json::array();
  for (const Json &one : diagnostics) {
    const Place place = place_in(text_of(one, "where"));
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

std::string lint_command(const std::string &file, const std::string &place) {
  if (file.empty()) return "weft config lint";
  return file == place ? absl::StrCat("weft config lint ", file)
                       : absl::StrCat("weft config lint --as ", place, " ", file);
}

Result<Json> ask_child(const std::vector<std::string> &words,
                       const std::map<std::string, std::string> &environment) {
  std::error_code error;
  std::vector<std::string> command = {fs::read_symlink("/proc/self/exe", error)};
  if (error) return fail(error.value(), "/proc/self/exe: %s", error.message().c_str());
  command.insert(command.end(), words.begin(), words.end());
  WEFT_TRY(const ChildResult child, run_child(command, environment, std::chrono::minutes(2)));
  Json answer = Json::parse(child.out, nullptr, false);
  if ((child.status == kExitOk || child.status == kExitNo) && !answer.is_discarded()) return answer;
  // The user has not typed the command of the child.
  const std::string name = absl::StrCat("weft ", words[0], " ", words[1], ": ");
  std::string why(absl::StripTrailingAsciiWhitespace(child.err));
  if (const size_t at = why.rfind(name); at == 0 || (at != why.npos && why[at - 1] == '\n'))
    return tl::unexpected<Error>(Error{FI_EINVAL, why.substr(at + name.size())});
  return tl::unexpected<Error>(Error{FI_EOTHER, "the configuration cannot be checked: " + why});
}

namespace {

struct PolicyTestOptions {
  std::vector<std::string> programs;  // their hints
  bool json = false;
};

// What one program gets, and why.
struct ProgramAnswer {
  std::string hints;
  int ret = 0;
  std::vector<Offer> offers;  // best first
  Json decisions;
};

Result<ProgramAnswer> ask_as(const Library &library, const std::string &hints) {
  WEFT_TRY(const HintOptions options, parse_hints(hints));
  WEFT_TRY(const Offers found, ask(options));
  WEFT_TRY(Json decisions, library.why(""));
  return ProgramAnswer{hints, found.ret, offers_of(found.list.get()), std::move(decisions)};
}

// The last decision on what the program gets.
Decision reason_of(const ProgramAnswer &program) {
  return program.offers.empty() ? Decision() : on_first_answer(program.decisions);
}

Json program_json(const ProgramAnswer &program) {
  const bool chosen = !program.offers.empty();
  Json json = {{"hints", program.hints},
               {"chosen", chosen ? offer_json(program.offers.front()) : Json(nullptr)},
               {"offers", offers_json(program.offers)},
               {"decisions", program.decisions},
               {"error", program.ret == 0 ? Json(nullptr) : Json(fi_strerror(-program.ret))}};
  if (!chosen) return json;
  const Decision reason = reason_of(program);
  json["chosen"]["reason"] = reason.reason;
  json["chosen"]["rule"] = reason.rule;
  return json;
}

void print_program(const ProgramAnswer &program) {
  constexpr size_t kWidth = 8;
  absl::PrintF("\n");
  print_field("program", program.hints.empty() ? "without hints" : program.hints, kWidth);
  if (program.offers.empty()) {
    print_field("chosen", absl::StrCat("nothing: ", fi_strerror(-program.ret)), kWidth);
  } else {
    const Decision reason = reason_of(program);
    print_field("chosen", summary(program.offers.front()), kWidth);
    if (!reason.reason.empty()) print_field("because", reason.reason, kWidth);
    if (!reason.rule.empty()) print_field("rule", reason.rule, kWidth);
    absl::PrintF("\n");
    print_offers(program.offers);
  }
  if (const std::vector<Candidate> all = by_candidate(program.decisions); !all.empty()) {
    absl::PrintF("\n");
    print_candidates(all);
  }
}

// The entry of a file in the answer of the library.
Json entry_of(const Json &config, const std::string &file) {
  for (const Json &one : array_of(config, "files"))
    if (text_of(one, "path") == file) return one;
  return Json::object();
}

void print_policy(const SupposingOptions &supposing, const Json &entry) {
  if (supposing.file.empty()) return print_field("policy", "as it is installed", 8);
  const std::string file = absolute_path(supposing.file), as = text_of(entry, "as");
  std::error_code error;
  print_field("policy",
              absl::StrCat(file, file == as ? "" : absl::StrCat(", read as ", as),
                           file != as && fs::exists(as, error) ? ", in its place" : "",
                           flag_of(entry, "used") ? "" : "; it has errors and is left out"),
              8);
}

Result<int> test_policy(const PolicyTestOptions &options, const SupposingOptions &supposing) {
  warn_of_absent_devices("weft policy test", supposing);
  WEFT_TRY(const Library library, Library::open());
  std::vector<ProgramAnswer> programs;
  const std::vector<std::string> plain = {""};
  for (const std::string &hints : options.programs.empty() ? plain : options.programs) {
    WEFT_TRY(ProgramAnswer program, ask_as(library, hints));
    programs.push_back(std::move(program));
  }
  WEFT_TRY(const Json config, library.config());
  const std::string file = supposing.file.empty() ? "" : absolute_path(supposing.file);
  const Json diagnostics = only_of(array_of(config, "diagnostics"), file);
  const Json entry = entry_of(config, file);
  const std::string as = text_of(entry, "as");
  const size_t errors = having(diagnostics, "error");
  const bool all = std::all_of(programs.begin(), programs.end(),
                               [](const ProgramAnswer &one) { return !one.offers.empty(); });
  const int status = all && errors == 0 ? kExitOk : kExitNo;
  if (options.json) {
    Json list = Json::array();
    for (const ProgramAnswer &program : programs) list.push_back(program_json(program));
    print_json({{"file", file.empty() ? Json(nullptr) : Json(file)},
                {"as", file.empty() ? Json(nullptr) : Json(as)},
                {"errors", errors},
                {"diagnostics", diagnostics},
                {"programs", std::move(list)}});
    return status;
  }
  print_policy(supposing, entry);
  for (const ProgramAnswer &program : programs) print_program(program);
  if (errors != 0)
    absl::FPrintF(stderr, "weft policy test: %s: see `%s`\n", plural(errors, "error"),
                  printable(lint_command(file, as)));
  return status;
}

}  // namespace

void add_policy(CLI::App &app, Action &action, SupposingOptions &supposing) {
  CLI::App *command =
      app.add_subcommand("policy", "What a file of the configuration would change, before it does");
  command->require_subcommand(1);
  constexpr const char *kAs =
      "hints of a program, as for `weft info`: \"--ep rdm --caps tagged\"; may be repeated";

  const auto options = std::make_shared<PolicyTestOptions>();
  CLI::App *test = command->add_subcommand(
      "test", "What programs would get under a file that is not installed, and why");
  add_file_option(*test, supposing);
  test->add_option("--as", options->programs, kAs)->allow_extra_args(false);
  add_fact_options(*test, supposing);
  test->add_flag("--json", options->json, "JSON instead of text");
  test->callback([&action, options, &supposing] {
    action = [options, &supposing] { return test_policy(*options, supposing); };
  });

  const auto differing = std::make_shared<DiffOptions>();
  CLI::App *compare = command->add_subcommand(
      "diff", "What differs in effect between two files; exit status 1 if something does");
  compare
      ->add_option("FILE", differing->files,
                   "two files that are compared, or one that is compared with what is installed")
      ->required()
      ->expected(1, 2);
  add_place_option(*compare, supposing);
  compare->add_option("--as", differing->programs, kAs)->allow_extra_args(false);
  add_fact_options(*compare, supposing);
  compare->add_flag("--json", differing->json, "JSON instead of text");
  compare->callback([&action, differing, &supposing] {
    action = [differing, &supposing] { return diff(*differing, supposing); };
  });
}

}  // namespace weft::cli
